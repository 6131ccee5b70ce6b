"""Plans of tables as odd as they may be, without a server: what is told of files, and of whose."""

from __future__ import annotations

import importlib
import json
import math
import struct
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyiceberg
import pytest
from pyiceberg import manifest
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, TruncateTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    UUIDType,
)

from skipping.catalog import pyiceberg_internals
from skipping.catalog.entries import File, Files, _Deletes
from skipping.catalog.errors import Refused
from skipping.catalog.filters import read_filter
from skipping.catalog.handles import Handles
from skipping.catalog.plan import Contents, Part, Planner, _matching_partitions
from skipping.catalog.storage import storage

BY_F = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "f"))


@pytest.fixture
def catalog(tmp_path: Path) -> Any:
    made = load_catalog("c", type="in-memory", warehouse=tmp_path.as_uri())
    made.create_namespace("ns")
    return made


def planner_of(table: Any) -> Planner:
    """The planner of a table without an index."""
    files = storage({}, table.metadata_location, {})
    return Planner(
        lambda *_: None,
        lambda locations: (b"".join(files.read(each)) for each in locations),
        most=1_000,
        page=1,
    )


def loaded(table: Any, **changed: Any) -> Contents:
    """The contents of its metadata file, with something `changed`."""
    return Contents(json.dumps({**json.loads(table.metadata.model_dump_json()), **changed}))


def count(table: Any, type: str, value: Any, planner: Planner | None = None) -> int:
    """How many files a plan has."""
    filter = {"type": type, "term": "f", "values" if type == "in" else "value": value}
    parts = (planner or planner_of(table)).plan(loaded(table), {"filter": filter})
    return sum(len(part.places) for part in parts)


@pytest.mark.parametrize("spec", [PartitionSpec(), BY_F])
def test_a_float_is_the_float_that_its_decimals_say(catalog: Any, spec: PartitionSpec) -> None:
    schema = Schema(NestedField(1, "f", FloatType()))
    table = catalog.create_table("ns.t", schema, partition_spec=spec)
    table.append(pa.table({"f": pa.array([0.1], pa.float32())}))
    for type, value in (("eq", 0.1), ("lt-eq", 0.1), ("gt-eq", 0.1), ("in", [0.1, 7])):
        assert count(table, type, value) == 1, type
    for type in ("lt", "gt"):
        assert count(table, type, 0.1) == 0
    # Iceberg's bounds say nothing of `!=`; a partition is of one value, and selected exactly.
    assert count(table, "not-eq", 0.1) == (0 if spec is BY_F else 1)


BOUNDS: dict[str, tuple[Any, pa.DataType, list[Any], Any, bytes]] = {
    "delta#7444": (
        TimestampType(),
        pa.timestamp("us"),
        [1_786_000_000_123_456, 1_786_000_060_000_000],
        "2026-08-06T07:06:40.123456",
        struct.pack("<q", 1_786_000_000_123_000),
    ),
    "ClickHouse#116999": (
        DecimalType(18, 2),
        pa.decimal128(18, 2),
        [Decimal("5.75"), Decimal("900.25")],
        "5.75",
        (500).to_bytes(2, "big"),
    ),
    "duckdb-iceberg#1047": (
        StringType(), pa.string(), ["a" * 20, "b" * 20], "a" * 20, b"a" * 16,
    ),
}  # fmt: skip


@pytest.mark.parametrize("report", BOUNDS)
def test_bounds_are_trusted_as_far_as_their_writers(catalog: Any, report: str) -> None:
    """A client that leaves its planning to the service loses no row by them."""
    type, arrow, values, value, upper = BOUNDS[report]
    table = catalog.create_table("ns.t", Schema(NestedField(1, "f", type, required=False)))
    table.append(pa.table({"f": pa.array(values[:1], arrow)}))
    lower = next(iter(table.scan().plan_files())).file.lower_bounds[1]
    table.append(pa.table({"f": pa.array(values[1:], arrow)}))
    planner, metadata = planner_of(table), loaded(table).metadata
    snapshot = metadata.current_snapshot()
    assert snapshot is not None
    files = planner._entries.files(metadata, snapshot)  # which it keeps
    (first,) = (file for file in files.data if file.data.lower_bounds[1] == lower)
    first.data.upper_bounds[1] = upper
    assert count(table, "eq", value, planner) == 1
    assert count(table, "gt-eq", value, planner) == 2


def entry(content: DataFileContent, value: Any, sequence: int) -> File:
    """A file of a partition, which PyIceberg itself cannot write of NaN."""
    made = DataFile.from_args(
        _table_format_version=2,
        content=content,
        file_path=content.name,
        file_format=FileFormat.PARQUET,
        partition=Record(value),
        record_count=1,
        file_size_in_bytes=1,
    )
    made.spec_id = 0
    return File(made, sequence)


def test_a_partition_of_nan_is_the_greatest(catalog: Any) -> None:
    schema = Schema(NestedField(1, "f", DoubleType()))
    table = loaded(catalog.create_table("ns.t", schema, partition_spec=BY_F))
    file = entry(DataFileContent.DATA, math.nan, 1)
    files = Files([file], _Deletes([], frozenset()), np.zeros(1, np.int64), [file])

    def matches(type: str) -> bool:
        filter = {"type": type, "term": "f", "value": 5}
        wanted = read_filter(filter, table.names)
        return bool(_matching_partitions(table, files, wanted).all())

    kept = {type: matches(type) for type in ("gt", "gt-eq", "not-eq", "lt", "lt-eq", "eq")}
    assert [type for type, is_kept in kept.items() if is_kept] == ["gt", "gt-eq", "not-eq"]


def test_a_partition_of_a_uuid_is_its_bytes(catalog: Any) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "u"))
    schema = Schema(NestedField(1, "u", UUIDType()))
    table = loaded(catalog.create_table("ns.t", schema, partition_spec=spec))
    mine = uuid.uuid4()
    file = entry(DataFileContent.DATA, mine, 1)
    files = Files([file], _Deletes([], frozenset()), np.zeros(1, np.int64), [file])
    for type, value, kept in (
        ("eq", mine, True),
        ("eq", uuid.uuid4(), False),
        ("not-eq", mine, False),
        ("gt-eq", mine, True),
    ):
        filter = {"type": type, "term": "u", "value": str(value)}
        wanted = read_filter(filter, table.names)
        assert wanted.understood
        assert bool(_matching_partitions(table, files, wanted).all()) == kept, type


def test_the_least_numbers_are_truncated_to_the_greatest(catalog: Any) -> None:
    """So they are in Java, and so such a partition has to stay."""
    spec = PartitionSpec(PartitionField(1, 1000, TruncateTransform(7), "i_trunc"))
    for type in (IntegerType(), LongType()):
        table = loaded(
            catalog.create_table(
                f"ns.{type}", Schema(NestedField(1, "i", type)), partition_spec=spec
            )
        )
        least, most = type.min, type.max
        for value, kept in ((least, True), (least + 6, True), (0, False)):
            file = entry(DataFileContent.DATA, most - 3, 1)
            files = Files([file], _Deletes([], frozenset()), np.zeros(1, np.int64), [file])
            filter = {"type": "eq", "term": "i", "value": value}
            wanted = read_filter(filter, table.names)
            assert bool(_matching_partitions(table, files, wanted).all()) == kept, value


def test_a_value_that_its_transform_has_not_is_not_understood(catalog: Any) -> None:
    table = catalog.create_table("ns.t", Schema(NestedField(1, "f", FloatType())))
    names = loaded(table).names
    for transform, value in (("bucket[4]", "abc"), ("truncate[-1]", 1)):
        term = {"type": "transform", "transform": transform, "term": "f"}
        assert not read_filter({"type": "eq", "term": term, "value": value}, names).understood


def test_values_that_do_not_compare_are_refused(catalog: Any) -> None:
    """What is not compared may not stay in the plan, as files beyond their bounds may."""
    schema = Schema(NestedField(1, "f", DoubleType()))
    table = loaded(catalog.create_table("ns.t", schema, partition_spec=BY_F))
    odd = [entry(DataFileContent.DATA, value, 1) for value in (1.0, "x")]
    files = Files(odd, _Deletes([], frozenset()), np.arange(2), odd)
    wanted = read_filter({"type": "gt", "term": "f", "value": 5}, table.names)
    with pytest.raises(Refused, match="cannot be compared") as refused:
        _matching_partitions(table, files, wanted)
    assert refused.value.status == 406


def test_deletes_find_their_partition_by_its_bits() -> None:
    nans = [struct.unpack("<d", struct.pack("<d", math.nan))[0] for _ in range(2)]  # not one object
    for of, by, some in ((*nans, 1), (1.5, 1.5, 1), (0.0, -0.0, 0)):
        data = entry(DataFileContent.DATA, of, 1)
        for content in (DataFileContent.POSITION_DELETES, DataFileContent.EQUALITY_DELETES):
            deletes = _Deletes([entry(content, by, 2)], frozenset())
            assert len(list(deletes.of(data))) == some, (of, by, content)


def test_a_page_of_a_snapshot_that_is_gone_is_no_empty_page(catalog: Any) -> None:
    table = catalog.create_table("ns.t", Schema(NestedField(1, "k", LongType())))
    for k in range(3):
        table.append(pa.table({"k": [k]}))
    planner = planner_of(table)
    _, second, _ = planner.plan(loaded(table), {})
    handles = Handles()
    opened = Part.unpack(handles.open("t", handles.seal("t", second.pack())))
    assert b"".join(planner.tasks(loaded(table), opened)).count(b"data-file") == 1
    gone = Part(second.snapshot + 1, opened.places, opened.residual)
    with pytest.raises(Refused) as refused:
        list(planner.tasks(loaded(table), gone))
    assert (refused.value.status, refused.value.kind) == (404, "NoSuchPlanTaskException")


def test_another_tables_manifests_are_not_read_for_whoever_names_them(catalog: Any) -> None:
    """By credentials of the service itself: those of a caller say what the caller may read."""
    schema = Schema(NestedField(1, "k", LongType()))
    theirs, mine = (catalog.create_table(f"ns.{name}", schema) for name in ("theirs", "mine"))
    for table in (theirs, mine):
        table.append(pa.table({"k": [1]}))
    planner = planner_of(mine)
    assert planner.plan(loaded(mine), {})
    snapshots = [json.loads(s.model_dump_json()) for s in mine.metadata.snapshots]
    snapshots[-1]["manifest-list"] = theirs.current_snapshot().manifest_list
    moved = {"snapshots": snapshots, "location": theirs.location()}
    with pytest.raises(PermissionError, match="outside of the table's folder"):
        planner.plan(loaded(mine, **moved), {})


def test_pyiceberg_reads_manifests_as_version_2() -> None:
    """If this fails, PyIceberg may plan what `skipping.catalog.entries` reads itself."""
    assert manifest.DEFAULT_READ_VERSION == 2


def test_another_release_of_pyiceberg_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyiceberg, "__version__", "0.13.1")
    with pytest.raises(
        ImportError, match=r"PyIceberg 0\.13\.1 is installed, .* only with 0\.12: pip install"
    ):
        importlib.reload(pyiceberg_internals)
