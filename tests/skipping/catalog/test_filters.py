"""Filters of scan requests: read as far as they are understood, and never beyond."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg import expressions as iceberg
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimeType,
)

from skipping.catalog.filters import Filter, Names, read_filter

FIELDS = (
    NestedField(1, "k", LongType(), required=False),
    NestedField(2, "s", StringType(), required=False),
    NestedField(3, "d", DoubleType(), required=False),
    NestedField(4, "b", BinaryType(), required=False),
    NestedField(5, "m", DecimalType(9, 2), required=False),
    NestedField(6, "ts", TimestampType(), required=False),
    NestedField(7, "day", DateType(), required=False),
    NestedField(10, "at", TimeType(), required=False),
    NestedField(
        8, "in", StructType(NestedField(9, "x", LongType(), required=False)), required=False
    ),
)
SPEC = PartitionSpec(
    PartitionField(1, 1000, BucketTransform(4), "k_bucket"),
    PartitionField(6, 1001, DayTransform(), "ts_day"),
    PartitionField(2, 1002, IdentityTransform(), "s"),
)
PLAIN = PartitionSpec()


def metadata(spec: PartitionSpec = PLAIN) -> TableMetadata:
    return new_table_metadata(Schema(*FIELDS), spec, UNSORTED_SORT_ORDER, "file:/nowhere")


def read(given: Any, spec: PartitionSpec = PLAIN) -> Filter:
    return read_filter(given, Names(metadata(spec)))


def leaf(type: str = "eq", term: Any = "k", **rest: Any) -> dict[str, Any]:
    return {"type": type, "term": term, **(rest or {"value": 1})}


UNKNOWN = leaf("st-intersects", value="POINT")

K = iceberg.EqualTo("k", 1)
UNDERSTOOD = [
    (leaf(), K),
    (leaf("lt_eq"), iceberg.LessThanOrEqual("k", 1)),
    (leaf(term="K"), K),
    (leaf(term={"type": "reference", "term": "k"}), K),
    (leaf(term={"type": "transform", "transform": "identity", "term": "k"}), K),
    (leaf(value={"type": "literal", "value": 1}), K),
    ({"type": "eq", "left": "k", "right": 1}, K),
    (leaf(term="in.x"), iceberg.EqualTo("in.x", 1)),
    (leaf(term="b", value="0aFF"), iceberg.EqualTo("b", b"\n\xff")),
    (leaf(term="m", value="1.50"), iceberg.EqualTo("m", "1.50")),
    (leaf(term="m", value=1.5), iceberg.EqualTo("m", "1.50")),
    (leaf(term="m", value="1E2"), iceberg.EqualTo("m", "100.00")),
    (leaf(value="9007199254740993"), iceberg.EqualTo("k", 2**53 + 1)),
    (leaf(term="at", value="01:00:00.123456"), iceberg.EqualTo("at", "01:00:00.123456")),
    (leaf(term="day", value=19_000), iceberg.EqualTo("day", 19_000)),
    (leaf("starts-with", "s", value="a"), iceberg.StartsWith("s", "a")),
    ({"type": "is-nan", "term": "d"}, iceberg.IsNaN("d")),
    (leaf("in", values=[1, 2]), iceberg.In("k", [1, 2])),
    (leaf("in", values=[]), iceberg.AlwaysFalse()),
    (leaf("not-in", values=[]), iceberg.AlwaysTrue()),
    (None, iceberg.AlwaysTrue()),
    (False, iceberg.AlwaysFalse()),
    ({"type": "literal", "value": False}, iceberg.AlwaysFalse()),
    ({"type": "not", "child": leaf()}, iceberg.Not(K)),
]


@pytest.mark.parametrize(("given", "meant"), UNDERSTOOD)
def test_what_clients_send(given: Any, meant: iceberg.BooleanExpression) -> None:
    assert read(given).rows == meant


@pytest.mark.parametrize(
    "given",
    [
        UNKNOWN,
        leaf(term="gone"),
        leaf(term={"type": "transform", "transform": "bucket[16]", "term": "k"}),
        leaf(term={"type": "transform", "transform": "zorder", "term": "k"}),
        leaf(term={"type": "transform", "transform": {}, "term": "k"}),
        leaf(term=[1]),
        leaf(term="d", value=float("nan")),
        leaf(value="x"),
        leaf(value=None),
        leaf(value=[1]),
        leaf(term="b", value="no hex"),
        leaf(term="m", value="1.505"),
        leaf(term="m", value="1E999999"),
        leaf("lt", term="m", value=1.005),
        leaf("lt", value="1.5"),
        leaf("lt", term="at", value="01:00:00.1234567"),
        leaf("in", values=1),
        leaf("in", values=[1, None]),
        leaf(term="in", value=1),
        "k = 1",
        7,
        [],
        {"type": ["eq"]},
        {},
        {"type": "and", "left": UNKNOWN},
    ],
)
def test_what_is_not_understood_is_true_also_under_not(given: Any) -> None:
    for there in (given, {"type": "not", "child": given}):
        assert read(there).rows == iceberg.AlwaysTrue(), there
    both = {"type": "and", "left": given, "right": leaf()}
    assert read(both).rows == read(leaf()).rows
    either = {"type": "not", "child": {"type": "or", "left": given, "right": leaf()}}
    assert read(either).rows == read({"type": "not", "child": leaf()}).rows
    assert read({"type": "or", "left": given, "right": leaf()}).rows == iceberg.AlwaysTrue()


def test_long_chains_are_flat_and_deep_ones_are_true() -> None:
    chain: Any = leaf(value=0)
    for n in range(1, 900):
        chain = {"type": "or", "left": chain, "right": leaf(value=n)}
    assert repr(read(chain).rows).count("EqualTo") == 900
    deep: Any = leaf()
    for n in range(200):
        deep = {"type": "and" if n % 2 else "or", "left": deep, "right": leaf(value=n)}
    found = read(deep)
    assert found.rows != iceberg.AlwaysTrue()
    assert found.exact, "of a table without partitions"
    assert not read(deep, SPEC).exact
    for _ in range(100):
        deep = {"type": "not", "child": deep}
    assert read(deep).rows == iceberg.AlwaysTrue()


def test_partitions_are_exact_by_transforms_too() -> None:
    bucket = {"type": "transform", "transform": "bucket[4]", "term": "k"}
    asked = {
        "type": "and",
        "left": leaf(term=bucket, value=3),
        "right": {"type": "not", "child": leaf(term={**bucket, "transform": "bucket[8]"}, value=1)},
    }
    found = read(asked, SPEC)
    assert found.exact
    assert found.partitions(SPEC) == iceberg.EqualTo("k_bucket", 3)
    negated = read({"type": "not", "child": leaf("in", bucket, values=[1, 2])}, SPEC)
    assert negated.partitions(SPEC) == iceberg.NotIn("k_bucket", [1, 2])
    day = read(leaf("gt-eq", "ts", value=86_400_000_000), SPEC)
    assert "ts_day" in repr(day.partitions(SPEC))
    missing = read(leaf("is-null", bucket, nothing=1), SPEC)
    assert missing.partitions(SPEC) == iceberg.IsNull("k_bucket")


@pytest.mark.parametrize(
    ("given", "exact"),
    [
        (leaf(), True),
        (leaf(term="gone"), True),
        (leaf("later", "d"), True),
        (leaf("later", "k"), False),
        (leaf(value="x"), False),
        (UNKNOWN, False),
        (7, False),
    ],
)
def test_a_filter_that_may_select_partitions_unread_says_so(given: Any, exact: bool) -> None:
    assert read(given, SPEC).exact is exact
    assert read(given).exact


def test_a_name_that_was_another_columns_stands_for_none() -> None:
    now, before = (
        Schema(*FIELDS, schema_id=1),
        Schema(
            *(f for f in FIELDS if f.name not in ("k", "s")),
            NestedField(1, "kk", LongType(), required=False),
            NestedField(20, "s", StringType(), required=False),
            NestedField(21, "gone", StringType(), required=False),
            schema_id=0,
        ),
    )
    names = Names(metadata().model_copy(update={"schemas": [before, now], "current_schema_id": 1}))
    assert names.column("kk") == names.column("K") == 1
    assert names.column("s") is None
    assert names.column("gone") is None
    assert not names.unclear
    renamed = read_filter(leaf(term="kk"), names)
    assert renamed.rows == K
    assert renamed.column == "kk", "as the client has it"
    by_s = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "s"))
    unclear = metadata(by_s).model_copy(update={"schemas": [before, now], "current_schema_id": 1})
    assert Names(unclear).unclear
    assert not read_filter(leaf(term="s", value="x"), Names(unclear)).exact


def test_rows_before_1970_may_be_in_the_unit_after_theirs() -> None:
    """Old writers rounded towards 1970 (iceberg#1680); days of a DATE were always right."""

    def of(term: str, type: str, **values: Any) -> iceberg.BooleanExpression:
        return read({"type": type, "term": term, **values}).partitions(
            PartitionSpec(
                PartitionField(6, 1000, DayTransform(), "ts_day"),
                PartitionField(7, 1001, DayTransform(), "day_day"),
            )
        )

    early, late = "1969-12-30T12:00:00", "1970-01-03T12:00:00"
    assert of("ts", "lt-eq", value=early) == iceberg.LessThanOrEqual("ts_day", -1)
    assert of("ts", "lt-eq", value=late) == iceberg.LessThanOrEqual("ts_day", 2)
    assert of("ts", "gt-eq", value=early) == iceberg.GreaterThanOrEqual("ts_day", -2)
    assert of("ts", "eq", value=early) == iceberg.In("ts_day", {-2, -1})
    assert of("ts", "in", values=[early, late]) == iceberg.In("ts_day", {-2, -1, 2})
    assert of("ts", "eq", value=late) == iceberg.EqualTo("ts_day", 2)
    assert of("day", "eq", value="1969-12-30") == iceberg.EqualTo("day_day", -2)
