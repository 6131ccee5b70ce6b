"""The predicates of filters of Arrow, Polars and PyIceberg, as text; `?` is unknown."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg import expressions as iceberg
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, LongType, NestedField, StringType, StructType

from providers.predicate import And, Compare, In, IsNull, Or, Predicate, Unknown
from skipping.filters.arrow import in_total_order, not_null_beside_nan, translate
from skipping.filters.polars import is_elementwise, translate_polars
from skipping.filters.pyiceberg import Reading, translate_pyiceberg
from skipping.tables import Columns, PhysicalColumn, TableColumn

TYPES = {
    "i": ("bigint", pa.int64()),
    "x": ("double", pa.float64()),
    "f": ("float", pa.float32()),
    "s": ("string", pa.string()),
    "b": ("boolean", pa.bool_()),
    "u": ("decimal(20,0)", pa.uint64()),
    "d": ("string", pa.dictionary(pa.int8(), pa.string())),
}
ROWS = {n: TableColumn(n, n, type, read_as=rows) for n, (type, rows) in TYPES.items()}
INT, X, S, B = map(pc.field, "ixsb")
i, x, s, b = map(pl.col, "ixsb")
ONE_LIST = pl.Series([1, 2]).implode()


def show(predicate: Predicate) -> str:
    match predicate:
        case And(operands) | Or(operands):
            word = "AND" if isinstance(predicate, And) else "OR"
            return f"{word}({', '.join(map(show, operands))})"
        case Compare(column, op, value):
            return f"{column} {op} {value}"
        case In(column, values, negated):
            return f"{column} {'NOT ' if negated else ''}IN {sorted(values.to_pylist())}"
        case IsNull(column, negated):
            return f"{column} IS {'NOT ' if negated else ''}NULL"
        case Unknown():
            return "?"
    return f"{'NOT ' if predicate.negated else ''}{type(predicate).__name__}"


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (INT == 5, "i = 5"),
        (pc.scalar(5) < INT, "i > 5"),
        (~(INT < 5), "i >= 5"),
        (~(X > 5.0), "OR(x <= 5.0, x = nan)"),
        (~(X != 5.0), "x = 5.0"),
        (math.nan == X, "?"),
        (pa.scalar(None, pa.int64()) == INT, "OR()"),
        (INT.isin([1, 2]), "i IN [1, 2]"),
        (INT.isin([1, None]), "OR(i IN [1], i IS NULL)"),
        (~INT.isin([1, None]), "OR(i NOT IN [1], i IS NULL)"),
        (~X.isin([0.0, 1.0]), "OR(x NOT IN [1.0], x IS NULL)"),
        (~X.isin([0.0]), "?"),
        (X.is_null(nan_is_null=True), "OR(x IS NULL, x = nan)"),
        (~X.is_null(nan_is_null=True), "x IS NOT NULL"),
        (S.is_valid(), "s IS NOT NULL"),
        (pc.is_nan(X), "x = nan"),
        (~pc.is_nan(X), "?"),
        (B & INT.is_valid(), "AND(b = True, i IS NOT NULL)"),
        (~(B & INT.is_valid()), "OR(b = False, i IS NULL)"),
        (~(B | S.is_null()), "AND(b = False, s IS NOT NULL)"),
        (pc.starts_with(S, "a"), "StartsWith"),
        (~pc.match_substring(S, "a"), "NOT Contains"),
        (pc.ends_with(S, "a", ignore_case=True), "?"),
        (pc.field("d") == "a", "d = a"),
        (pc.field("d") < "a", "?"),
        (pc.field("u") == pa.scalar(2**63, pa.uint64()), f"u = {2**63}"),
        (pc.field("u").isin([1]), "u IN [Decimal('1')]"),
        (pc.field("f") == 0.1, "?"),
        (pc.field("f") == 0.5, "f = 0.5"),
        (X == 2**53, f"x = {2.0**53}"),
        (X == 2**53 + 1, "?"),
        (INT == X, "?"),
        (pc.scalar(True), "AND()"),
        (~pc.scalar(True), "OR()"),
        (pc.scalar(pa.scalar(None, pa.bool_())), "OR()"),
        (pc.scalar(5), "?"),
        (INT, "?"),
    ],
    ids=str,
)
def test_translate_arrow(expression: Any, text: str) -> None:
    assert show(translate(expression, ROWS).predicate) == text


@pytest.mark.parametrize(
    ("expression", "rows"),
    [
        (X > 0, "1 nan"),
        (pc.scalar(1.0) <= X, "1 nan"),
        (X < 1, "-0"),
        (X != 1.0, "nan -0"),
        (math.nan <= X, "nan"),
        (math.nan == X, "nan"),
        (math.nan >= X, "1 nan -0"),
        (math.nan > X, "1 -0"),
        (math.nan != X, "1 -0"),
        (math.nan < X, ""),
        (pa.scalar(None, pa.float64()) == X, ""),
        (X.isin([0.0]), "-0"),
        (~X.isin([1.0]), "nan -0"),
        (~X.isin([1.0, None]), ""),
        (~INT.isin([1]), "nan None"),
        (X.is_null(), "None"),
        (X.is_null() | (X > 0), "1 nan None"),
        (~X.is_null(nan_is_null=True), "1 -0"),
        (~(pc.is_nan(X) | (INT == 1)), ""),
    ],
    ids=str,
)
def test_in_total_order_filters_as_duckdb(expression: Any, rows: str) -> None:
    table = pa.table({"x": [1.0, math.nan, None, -0.0], "i": [1, 2, 3, None]})
    found = table.filter(in_total_order(expression, table.schema))["x"].to_pylist()
    assert " ".join("None" if value is None else f"{value:g}" for value in found) == rows


def test_not_null_beside_nan_excludes_nulls_of_floats() -> None:
    table = pa.table({"i": [1, 2, 3], "x": [1.0, None, None], "st": [{"y": 1.0}, {"y": 2.0}, None]})
    true = pc.scalar(True)
    for fields, expression, expected in (
        ("x", (INT > 0) & true, [1]),
        ("x", true & (INT > 1), []),
        ("x", (INT > 0) & (INT < 9), [1, 2, 3]),
        ("x", (INT > 9) | true, [1, 2, 3]),
        ("i", true, [1, 2, 3]),
        (("x", "st"), true, [1, 2]),
    ):
        read = [table.schema.field(name) for name in fields if name in table.schema.names]
        found = table.filter(not_null_beside_nan(expression, read))
        assert found["i"].to_pylist() == expected, expression


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (i == 5, "i = 5"),
        (~(pl.lit(5) <= i), "i < 5"),
        (~(x > 5.0), "x <= 5.0"),
        (x == 0.1, "x = 0.1"),
        (pl.col("f") == 0.1, "?"),
        (pl.col("f") == 0.5, "f = 0.5"),
        (pl.col("u") == 2**63, f"u = {2**63}"),
        (i.is_in([1, 2]), "i IN [1, 2]"),
        (i.is_in(ONE_LIST), "i IN [1, 2]"),
        (i.is_in([1, None], nulls_equal=True), "?"),
        (~i.is_in([1, None]), "OR(i NOT IN [1], i IS NULL)"),
        (~x.is_in([0.0, 1.0]), "OR(x NOT IN [1.0], x IS NULL)"),
        (~i.is_not_null(), "i IS NULL"),
        (x.is_nan(), "x = nan"),
        (~x.is_nan(), "?"),
        (b & ~b, "AND(b = True, b = False)"),
        (~(b | i.is_null()), "AND(b = False, i IS NOT NULL)"),
        (pl.any_horizontal(b, i == 1), "OR(b = True, i = 1)"),
        (~pl.all_horizontal(b, i == 1), "OR(b = False, i != 1)"),
        (i.is_between(1, 2), "AND(i >= 1, i <= 2)"),
        (i.is_between(1, 2, closed="left"), "AND(i >= 1, i < 2)"),
        (i.is_between(1, 2, closed="none"), "AND(i > 1, i < 2)"),
        (~i.is_between(1, 2), "?"),
        (s.str.starts_with("a"), "StartsWith"),
        (~s.str.contains("a", literal=True), "NOT Contains"),
        (s.str.contains("a"), "?"),
        (s == "a", "s = a"),
        (i == 1.0, "?"),
        (i + 1 == 2, "?"),
        (i == x, "?"),
        (i, "?"),
    ],
    ids=str,
)
def test_translate_polars(expression: Any, text: str) -> None:
    assert show(translate_polars(expression, ROWS)) == text
    assert is_elementwise(expression)


@pytest.mark.parametrize(
    "expression",
    [
        *(i.sum() == 1, i.shift() == 1, i.is_in(pl.Series([1, 2])), i + pl.Series([1]) == 2),
        *(~(i.max() == 1), i.cast(pl.Int8).sum() == 1, ((i.sum() == 1) & b).alias("x")),
        pytest.param(object(), id="not an expression"),
    ],
    ids=str,
)
def test_is_elementwise_rejects_other_rows(expression: Any) -> None:
    assert is_elementwise(expression) is False


SCHEMA = Schema(
    NestedField(1, "i", LongType()),
    NestedField(2, "x", DoubleType()),
    NestedField(3, "f", FloatType()),
    NestedField(4, "s", StringType()),
    NestedField(5, "st", StructType(NestedField(6, "y", LongType()))),
)
COLUMNS = Columns(
    TableColumn(name, name, type, PhysicalColumn(tuple(name.split(".")), id))
    for id, name, type in (
        *((1, "i", "bigint"), (2, "x", "double"), (3, "f", "float"), (4, "s", "string")),
        (6, "st.y", "bigint"),
    )
)
TENTH = 0.10000000149011612  # as a FLOAT
BIG = 2**40
FLOATS = "x = inf, x = -inf, x = nan"


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (iceberg.EqualTo("i", 5), "i = 5"),
        (iceberg.NotEqualTo("i", 5), "OR(i != 5, i IS NULL)"),
        (iceberg.LessThan("i", 5), "i < 5"),
        (iceberg.Not(iceberg.LessThan("i", 5)), "OR(i >= 5, i IS NULL)"),
        (iceberg.Not(iceberg.GreaterThan("x", 0.5)), "OR(x <= 0.5, x = nan, x IS NULL)"),
        (iceberg.LessThanOrEqual("x", 0.1), f"x <= {TENTH}"),
        (iceberg.GreaterThan("x", 0.1), "x > 0.1"),
        (iceberg.EqualTo("x", 0.1), f"x IN [0.1, {TENTH}]"),
        (iceberg.LessThan("i", BIG), f"OR(i < {BIG}, i IS NULL)"),
        (iceberg.GreaterThan("i", BIG), f"i > {BIG}"),
        (iceberg.EqualTo("i", BIG), f"i = {BIG}"),
        (iceberg.LessThan("x", 1e300), f"OR(x < inf, {FLOATS}, x IS NULL)"),
        (iceberg.In("x", [0.1, 0.5]), f"x IN [0.1, {TENTH}, 0.5]"),
        (iceberg.In("i", [1, BIG]), f"i IN [{-(2**31)}, 1, {2**31 - 1}, {BIG}]"),
        (iceberg.NotIn("x", [0.0, 1.0, 2.0]), "OR(x NOT IN [1.0, 2.0], x IS NULL)"),
        (iceberg.NotIn("x", [0.0, 1e300]), "?"),
        (iceberg.IsNull("s"), "OR(s IS NULL)"),
        (iceberg.NotNull("s"), "s IS NOT NULL"),
        (iceberg.NotNull("st.y"), "?"),
        (iceberg.IsNaN("x"), "x = nan"),
        (iceberg.NotNaN("x"), "OR(x < nan, x IS NULL)"),
        (iceberg.StartsWith("s", "a"), "StartsWith"),
        (iceberg.NotStartsWith("s", "a"), "OR(NOT StartsWith, s IS NULL)"),
        (
            iceberg.Not(iceberg.And(iceberg.IsNull("i"), iceberg.NotNull("s"))),
            "OR(i IS NOT NULL, OR(s IS NULL))",
        ),
        (iceberg.Not(iceberg.AlwaysTrue()), "OR()"),
    ],
    ids=str,
)
def test_translate_pyiceberg(expression: iceberg.BooleanExpression, text: str) -> None:
    assert show(translate_pyiceberg(bind(SCHEMA, expression, True), COLUMNS)) == text


@pytest.mark.parametrize(
    ("expression", "reading", "text"),
    [
        (iceberg.EqualTo("f", 0.1), Reading(), f"f = {TENTH}"),
        (iceberg.EqualTo("f", 0.1), Reading(partitioned={3}), "?"),
        (iceberg.EqualTo("f", 0.5), Reading(partitioned={3}), "f = 0.5"),
        (iceberg.IsNull("i"), Reading(unselected={1}), "?"),
        (iceberg.EqualTo("i", 5), Reading(unselected={1}), "i = 5"),
        (iceberg.EqualTo("i", 5), Reading(ambiguous={1}), "?"),
    ],
    ids=str,
)
def test_translate_pyiceberg_depends_on_the_scan(
    expression: iceberg.BooleanExpression, reading: Reading, text: str
) -> None:
    assert show(translate_pyiceberg(bind(SCHEMA, expression, True), COLUMNS, reading)) == text
