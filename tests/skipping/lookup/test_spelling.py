"""Values as people read them, when they asked to see them."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from providers import Between, Compare, Contains, EndsWith, In, IsNull, StartsWith
from providers.values import arrow_type, encode
from skipping.lookup.format import format_leaf, format_value


@pytest.mark.parametrize(
    ("value", "type", "words"),
    [
        (-7, "bigint", "-7"),
        (True, "boolean", "true"),
        (1.5, "double", "1.5"),
        (-2.25, "float", "-2.25"),
        (float("nan"), "double", "nan"),
        (Decimal("1.50"), "decimal(5,2)", "1.50"),
        (Decimal("-1234567890123456789.01"), "decimal(38,2)", "-1234567890123456789.01"),
        (datetime.date(1, 1, 1), "date", "'0001-01-01'"),
        (datetime.datetime(2024, 5, 6, 7, 8, 9, 10), "timestamp", "'2024-05-06 07:08:09.000010'"),
        (datetime.datetime(2024, 5, 6), "timestamp_ntz", "'2024-05-06 00:00:00'"),
        ("it's", "string", "'it''s'"),
        (b"\x01\xff", "binary", "X'01ff'"),
    ],
)
def test_a_value_of_each_type(value: object, type: str, words: str) -> None:
    (normalised,) = encode(pa.array([value], arrow_type(type))).to_pylist()
    assert format_value(normalised, type) == words


def test_years_that_python_does_not_know() -> None:
    assert format_value(10**9, "date") == "1000000000"


def test_a_leaf_of_each_form() -> None:
    keys = In.of("c", pa.array([4, 3, 2, 1]))
    leaves = [
        Compare("c", ">=", 3),
        Between("c", 1, 2),
        keys,
        In.of("c", pa.array([1])),
        In("c", pa.array([1, 2]), negated=True),
        In("c", pa.array([1]), source="planes"),
        IsNull("c", negated=True),
    ]
    assert [format_leaf(leaf, "a.b", "int") for leaf in leaves] == [
        "a.b >= 3",
        "a.b BETWEEN 1 AND 2",
        "a.b IN (1, 2, 3, ... 4 in all)",
        "a.b IN (1)",
        "a.b NOT IN (1, 2)",
        "a.b IN (1 of planes)",
        "a.b IS NOT NULL",
    ]
    assert format_leaf(StartsWith("c", "x'y"), "s", "string") == "s LIKE 'x''y%'"
    assert format_leaf(EndsWith("c", "x'y", True), "s", "string") == "s NOT LIKE '%x''y'"
    assert format_leaf(Contains("c", "x"), "s", "string") == "s LIKE '%x%'"
    assert format_leaf(Contains("c", b"x"), "s", "binary") == "s LIKE X'%78%'"
