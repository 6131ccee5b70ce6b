"""A literal of any type asks what Spark asks: as its answers show, and as exact arithmetic does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from providers import (
    Between,
    Compare,
    Contains,
    EndsWith,
    In,
    IsNull,
    Predicate,
    StartsWith,
    Unknown,
)
from providers.errors import DefinitionError
from providers.literals import normalise_leaf
from providers.predicate import And, Or
from providers.values import arrow_type, encode
from skipping.lookup.binding import Binding
from skipping.spark_api import collect_arrow
from skipping.tables import Columns, TableColumn

OPS = ("=", "!=", "<", "<=", ">", ">=")

ZONE = timezone(timedelta(hours=2))
COLUMNS: dict[str, tuple[str, ...]] = {
    "tinyint": ("-128Y", "-1Y", "0Y", "1Y", "2Y", "127Y"),
    "int": ("-2147483648", "-1", "0", "1", "2", "16777217", "2147483647"),
    "bigint": ("-9223372036854775808L", "0L", "1L", "9007199254740992L", "9007199254740993L"),
    "float": ("float('NaN')", "-0.0F", "0.0F", "0.1F", "1.5F", "16777216F", "float('inf')"),
    "double": ("double('NaN')", "-0.0D", "0.1D", "1D", "1.5D", "9007199254740992D"),
    "decimal(5,2)": ("-1.50BD", "0.00BD", "1.00BD", "1.01BD", "1.10BD", "999.99BD"),
    "decimal(38,10)": ("-1.5BD", "1.1BD", "1.1000000001BD", "9999999999999999999999999999BD"),
    "boolean": ("true", "false"),
    "date": ("DATE'1969-12-31'", "DATE'2020-01-01'", "DATE'2020-01-02'", "DATE'9999-12-31'"),
    "timestamp": ("TIMESTAMP'2020-01-01 00:00:00Z'", "TIMESTAMP'2020-01-01 00:00:00.000001Z'"),
    "timestamp_ntz": ("TIMESTAMP_NTZ'2020-01-01'", "TIMESTAMP_NTZ'2020-01-01 00:00:00.000001'"),
    "string": ("''", "'1'", "'1.5'", "'a'"),
}
"""Values of each type, as Spark spells them; a null is added."""

_NUMBERS: dict[str, Any] = {
    "0": 0,
    "1": 1,
    "-1": -1,
    "16777216": 2**24,
    "16777217": 2**24 + 1,
    "3000000000L": 3_000_000_000,
    "9007199254740993L": 2**53 + 1,
    "9223372036854775807L": 2**63 - 1,
    "9223372036854775808BD": 2**63,
    "1.0D": 1.0,
    "1.5D": 1.5,
    "-1.5D": -1.5,
    "0.1D": 0.1,
    "1.1D": 1.1,
    "-0.0D": -0.0,
    "1e30D": 1e30,
    "9007199254740992D": 2.0**53,
    "9223372036854775807D": 2.0**63,
    "double('NaN')": math.nan,
    "double('inf')": math.inf,
    "double('-inf')": -math.inf,
    "1.00BD": Decimal("1.00"),
    "1.005BD": Decimal("1.005"),
    "1.1BD": Decimal("1.1"),
    "-0.5BD": Decimal("-0.5"),
    "9007199254740992.5BD": Decimal("9007199254740992.5"),
    "99999999999999999999999999999999999999BD": Decimal(10**38 - 1),
    "0.00000000000000000000000000000000000001BD": Decimal("1e-38"),
    "CAST(NULL AS INT)": None,
}
_TIMES: dict[str, Any] = {
    "DATE'2020-01-01'": date(2020, 1, 1),
    "DATE'0001-01-01'": date(1, 1, 1),
    "TIMESTAMP_NTZ'2020-01-01 00:00:00'": datetime(2020, 1, 1),
    "TIMESTAMP_NTZ'2020-01-01 12:00:00'": datetime(2020, 1, 1, 12),
    "TIMESTAMP_NTZ'1969-12-31 23:59:59.999999'": datetime(1969, 12, 31, 23, 59, 59, 999_999),
    "TIMESTAMP'2020-01-01 02:00:00+02:00'": datetime(2020, 1, 1, 2, tzinfo=ZONE),
    "TIMESTAMP'2020-01-01 02:00:00.000001+02:00'": datetime(2020, 1, 1, 2, 0, 0, 1, ZONE),
    "'2020-01-01'": "2020-01-01",
    "'2020-01-01 00:00:00'": "2020-01-01 00:00:00",
    "'2020-01-01T00:00:00Z'": "2020-01-01T00:00:00Z",
}
LITERALS: dict[str, dict[str, Any]] = {
    **{t: {**_NUMBERS, "'1'": "1"} for t in ("tinyint", "int", "bigint")},
    **dict.fromkeys(("float", "double", "decimal(5,2)", "decimal(38,10)"), _NUMBERS),
    **dict.fromkeys(("date", "timestamp", "timestamp_ntz"), _TIMES),
    "boolean": {"true": True, "false": False},
    "string": {"'1'": "1", "''": "", "CAST(NULL AS STRING)": None},
}


def is_true(predicate: Predicate, value: Any) -> bool:
    """Whether a normalised value, or null, satisfies a predicate."""
    match predicate:
        case And(legs):
            return all(is_true(leg, value) for leg in legs)
        case Or(legs):
            return any(is_true(leg, value) for leg in legs)
        case IsNull(_, negated):
            return (value is None) != negated
        case In(_, values, True) if not len(values):
            return True
        case In(_, values, negated):
            return value is not None and (value in values.to_pylist()) != negated
        case Compare(_, op, other):
            return (
                value is not None
                and {
                    "=": value == other,
                    "!=": value != other,
                    "<": value < other,
                    "<=": value <= other,
                    ">": value > other,
                    ">=": value >= other,
                }[op]
            )
        case Between(_, low, high, True, True):
            return value is not None and low <= value <= high
    raise AssertionError(predicate)


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_every_literal_asks_what_spark_asks(spark: SparkSession, ansi: str) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", ansi)
    session.conf.set("spark.sql.session.timeZone", "America/Sao_Paulo")
    told = asked = 0
    for type, spelled in COLUMNS.items():
        arrow = arrow_type(type)
        assert arrow is not None
        rows = ", ".join(f"({value})" for value in (*spelled, "NULL"))
        table = session.sql(f"SELECT CAST(c AS {type}) AS x FROM VALUES {rows} AS t(c)")
        literals = list(LITERALS[type].items())
        leaves: list[tuple[str, Compare | In]] = []
        for text, value in literals:
            leaves += [(f"x {op} {text}", Compare("x", op, value)) for op in OPS]
            for negated in (False, True):
                no = "NOT " if negated else ""
                leaves.append((f"x {no}IN ({text})", In("x", [value], negated)))
            if isinstance(value, int | float | Decimal) and type != "boolean":
                wide = Between("x", -(2**64), value)
                leaves.append((f"x BETWEEN -18446744073709551616BD AND {text}", wide))
        answers = collect_arrow(table.selectExpr("x", *(sql for sql, _ in leaves)))
        normalised = encode(answers["x"].cast(arrow)).to_pylist()
        for (sql, leaf), answer in zip(leaves, answers.columns[1:], strict=True):
            asks = normalise_leaf(leaf, arrow)
            asked += 1
            if isinstance(asks, Unknown):
                continue
            told += 1
            found = [is_true(asks, value) for value in normalised]
            expected = [is_match is True for is_match in answer.to_pylist()]
            assert found == expected, (type, sql, asks)
    assert asked > 1_500
    assert told > 0.8 * asked, "most have an answer"


NUMBERS = (
    st.integers(-(2**66), 2**66)
    | st.sampled_from([*_NUMBERS.values()][:-1])
    | st.floats()
    | st.decimals(-(10**20), 10**20, allow_nan=False, allow_infinity=False)
)


@given(NUMBERS, st.sampled_from(OPS), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5))
def test_integers_against_numbers_as_exact_arithmetic_does(
    literal: Any, op: str, values: Sequence[int]
) -> None:
    asks = normalise_leaf(Compare("x", op, literal), pa.int64())  # type: ignore[arg-type]
    near = []
    if isinstance(asks, Compare | Between):
        ends = (asks.value,) if isinstance(asks, Compare) else (asks.low, asks.high)
        near = [end + step for end in ends for step in (-1, 0, 1)]
    if isinstance(asks, Unknown):
        assert isinstance(literal, Decimal)
        return
    for value in (*values, *(n for n in near if -(2**63) <= n < 2**63)):
        assert is_true(asks, value) == _compares(value, op, literal), (value, asks)


def _compares(value: int, op: str, literal: Any) -> bool:
    left: Any = Fraction(value)
    right: Any = literal
    if isinstance(literal, float):
        left = float(value)
        if math.isnan(literal):
            left, right = 0, 1
    elif isinstance(literal, Decimal):
        right = Fraction(literal)
    return {
        "=": left == right,
        "!=": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[op]


COLUMN = {
    name: TableColumn(name, f"id of {name}", type)
    for name, type in (("n", "int"), ("d", "date"), ("t", "timestamp"), ("s", "string"))
}


@pytest.mark.parametrize(
    ("leaf", "asks"),
    [
        (Compare("n", "<", 1.5), Compare("n", "<", 2)),
        (Compare("n", "=", 2**31), Compare("n", "=", 2**31)),
        (Compare("n", "<", 2**63), And(())),
        (Compare("n", "<=", 1e30), IsNull("n", negated=True)),
        (Compare("n", "<", math.nan), IsNull("n", negated=True)),
        (Between("n", -(2**64), 2**64), And(())),
        (Between("n", -(2**64), 1e30), IsNull("n", negated=True)),
        (Compare("n", ">", 2**63), Or(())),
        (Compare("n", "=", None), Or(())),
        (Compare("n", "=", True), Unknown("n compared with a bool")),
        (Compare("n", "=", np.int64(5)), Compare("n", "=", 5)),
        (Compare("n", "=", pa.scalar(5, pa.int8())), Compare("n", "=", 5)),
        (Between("n", 0.5, 2.5), Between("n", 1, 2)),
        (Between("n", 0.5, None), Or(())),
        (Between("n", 3, 2), Or(())),
        (StartsWith("n", "1"), Unknown("n compared with a str")),
        (StartsWith("s", None), Or(())),
        (StartsWith("s", "a"), StartsWith("s", "a")),
        (EndsWith("s", "a", True), EndsWith("s", "a", True)),
        (Contains("s", pa.scalar("a")), Contains("s", "a")),
        (Contains("s", None), Or(())),
        (EndsWith("n", "1"), Unknown("n compared with a str")),
        (In("n", [1.5, 2**70], negated=True), IsNull("n", negated=True)),
        (In("n", [1, None], negated=True), Or(())),
        (In("s", ["a", None], negated=True), Or(())),
        (Compare("s", "=", 1), Unknown("s compared with a int")),
        (Compare("s", "=", "\ud800"), Unknown("s compared with a str")),
        (Compare("d", "=", date(2020, 1, 1)), Compare("d", "=", 18_262)),
        (Compare("d", "=", datetime(2020, 1, 1, tzinfo=ZONE)), "with a datetime with a time zone"),
        (Compare("t", "=", datetime(2020, 1, 1)), "with a datetime without a time zone"),
        (Compare("t", "=", date(2020, 1, 1)), "with a date: midnight is another instant"),
    ],
    ids=str,
)
def test_a_literal_is_translated_or_unknown(leaf: Any, asks: Predicate | str) -> None:
    bound = Binding(Columns(COLUMN.values())).leaf(leaf)
    if isinstance(asks, str):
        assert isinstance(bound, Unknown)
        assert asks in bound.reason
    else:
        assert repr(bound).replace("id of ", "") == repr(asks)


@pytest.mark.parametrize(
    ("leaf", "says"),
    [
        (Compare("n", "=", "five"), "n is int: 'five' is not a valid integer"),
        (Compare("n", "=", "3000000000"), "n is int: '3000000000' is not a valid integer"),
        (Compare("d", "=", "2024-02-30"), "d is date: day is out of range"),
        (Compare("n", "=", object()), "n is int: object is not a literal"),
    ],
)
def test_what_is_no_value_of_the_column_raises(leaf: Any, says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        Binding(Columns(COLUMN.values())).leaf(leaf)


def test_the_values_of_a_list_are_compared_in_one_type() -> None:
    big = 2**53
    asks = normalise_leaf(In("n", [big + 1, 1.5]), pa.int64())
    assert is_true(asks, big), "all of them are doubles"
    assert not is_true(asks, 1)
    assert is_true(normalise_leaf(In("n", [big + 1, 5], negated=True), pa.int64()), big)
    most = normalise_leaf(In("n", [2.0**63, 1.0]), pa.int64())
    assert is_true(most, 2**63 - 1), "as a double it is the next one"
    assert not is_true(most, 2**62)
    fine, large = Decimal("1e-30"), Decimal(10**20)
    assert isinstance(normalise_leaf(In("n", [fine, large]), pa.decimal128(5, 2)), Unknown)
    assert isinstance(normalise_leaf(In("n", ["1"]), pa.int32()), Unknown)
