"""Changes of a definition that need no table in Spark."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from providers.errors import DefinitionError
from skipping.indexing.column_sync import explain_uncomputable
from skipping.indexing.definitions import drop_columns
from skipping.model.definition import Definition, Expression, IndexedColumn, TableId
from skipping.parser.parse import column_drops
from skipping.tables import Columns, TableColumn

COLUMNS = Columns([TableColumn("new", "c1", "bigint"), TableColumn("other", "c2", "bigint")])
PARTS = (("old", "c1"), ("other", "c2"))
DEFINITION = Definition(
    "i",
    TableId("delta", "t", "file:/t"),
    "t",
    (
        IndexedColumn(1, "old", "c1", "bigint", "MIN_MAX"),
        IndexedColumn(2, "old", "c1", "bigint", "VALUE_LIST"),
        IndexedColumn(3, "(old, other)", "both", "x", "VALUE_LIST", parts=PARTS),
    ),
)


@pytest.mark.parametrize(
    ("drops", "left"),
    [
        ("new", [3]),  # renamed since
        ("OLD", [3]),
        ("new value_list", [1, 3]),
        ("(other, new)", [1, 2]),
        ("(new, other) VALUE_LIST, new MIN_MAX", [2]),
    ],
)
def test_drop_columns_finds_a_column_by_identity_or_name(drops: str, left: list[int]) -> None:
    changed = drop_columns(DEFINITION, column_drops(drops), COLUMNS, ())
    assert [column.number for column in changed.columns] == left
    assert changed.next_number == 4


@pytest.mark.parametrize("drops", ["other", "gone", "(new, gone)", "new NGRAM"])
def test_drop_columns_rejects_what_is_not_indexed(drops: str) -> None:
    with pytest.raises(DefinitionError, match="is not in the index: there are old MIN_MAX, old V"):
        drop_columns(DEFINITION, column_drops(drops), COLUMNS, ())


def test_explain_uncomputable_compares_the_expression_with_its_definition() -> None:
    expression = Expression("lower(s)", "UTC", True, ())
    indexed = IndexedColumn(1, "low", "e", "string", "MIN_MAX", expression=expression)
    definition = replace(DEFINITION, columns=(indexed,))
    changed = "low has changed since CREATE: DROP it and ADD it again"
    for computed, reason in (
        (TableColumn("x", "e", "string"), None),
        (TableColumn("x", "f", "string"), changed),
        (TableColumn("x", "e", "binary"), changed),
    ):
        columns: Any = SimpleNamespace(compute=lambda *_, made=computed: made)
        assert explain_uncomputable(definition, columns) == reason
