"""The condition of WHERE in the languages of delta-rs and PyIceberg."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.expressions import And, EqualTo, In, IsNull, LessThan, Not, StartsWith

from providers.errors import DefinitionError
from skipping.parser.condition import Comparison, parse_condition
from skipping.tables import Columns, TableColumn
from skipping.tables.delta.deltalake_where import delta_rs_condition
from skipping.tables.iceberg.pyiceberg import _RENDERER
from skipping.tables.where import column_first

COLUMNS = Columns([TableColumn("K", "K", "int"), TableColumn("s", "s", "string")])


@pytest.mark.parametrize(
    ("text", "turned"),
    [
        ("1 < k", "k > 1"),
        ("1 >= k", "k <= 1"),
        ("1 = k", "k = 1"),
        ("1 <> k", "k <> 1"),
        ("1 <=> k", "k <=> 1"),
        ("k < 1", "k < 1"),
        ("k < j", "k < j"),
        ("1 < 2", "1 < 2"),
    ],
)
def test_column_first_exchanges_the_sides(text: str, turned: str) -> None:
    node = parse_condition(text)
    assert isinstance(node, Comparison)
    assert column_first(node) == parse_condition(turned)


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("1 < k AND NOT s = 'a''b'", """("K" > 1 AND NOT ("s" = 'a''b'))"""),
        ("k NOT BETWEEN 1 AND 2", 'NOT (("K" >= 1 AND "K" <= 2))'),
        ("k NOT IN (1, NULL) OR k IS NOT NULL", '(NOT ("K" IN (1, NULL)) OR NOT ("K" IS NULL))'),
        ("k <=> NULL", '"K" IS NOT DISTINCT FROM NULL'),
        ("s NOT LIKE 'ab%'", """NOT (("s" >= 'ab' AND "s" < 'ac'))"""),
        ("s > DATE '2024-01-02'", """"s" > DATE '2024-01-02'"""),
    ],
)
def test_delta_rs_condition_renders_sql(text: str, sql: str) -> None:
    assert delta_rs_condition(text, COLUMNS) == sql


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("3 > k AND s LIKE 'ab%'", And(LessThan("k", 3), StartsWith("s", "ab"))),
        ("NOT k IN (1, 2)", Not(In("k", {1, 2}))),
        ("a.b IS NOT NULL", Not(IsNull("a.b"))),
        ("k = 1", EqualTo("k", 1)),
    ],
)
def test_pyiceberg_where_renders_expressions(text: str, expression: Any) -> None:
    assert _RENDERER.render(text) == expression


@pytest.mark.parametrize("text", ["s LIKE '%a'", "s LIKE 'a_%'", "(k, s) IN ((1, 'a'))", "k < j"])
def test_where_refuses_what_the_engine_cannot_express(text: str) -> None:
    with pytest.raises(DefinitionError, match="without Spark, WHERE"):
        _RENDERER.render(text)
    if text != "k < j":
        with pytest.raises(DefinitionError, match="without Spark, WHERE"):
            delta_rs_condition(text, COLUMNS)
