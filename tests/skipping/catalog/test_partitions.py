"""Random specs and filters: partitions that are selected are PyIceberg's, and hold every match."""

from __future__ import annotations

import json
import math
import os
import random
import time
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import _ExpressionEvaluationVisitor, bind, rewrite_not, visit
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import parse_transform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    UUIDType,
)

from skipping.catalog.entries import File, Files, _Deletes
from skipping.catalog.filters import Filter, read_filter
from skipping.catalog.plan import Contents, _matching_partitions

QUERIES = int(os.environ.get("SKIPPING_TEST_QUERIES", "30"))
DAY = 86_400_000_000

IDS = [uuid.UUID(int=n << 96) for n in (1, 2, 2**31, 2**32 - 1)]
NUMBERS = [math.nan, -math.inf, -1.5, -0.0, 0.0, 0.5, 3.0, math.inf]
COLUMNS: dict[str, tuple[IcebergType, list[Any], list[str]]] = {
    "i": (IntegerType(), [-(2**31), -5, 0, 3, 4, 9], ["identity", "bucket[3]", "truncate[4]"]),
    "l": (LongType(), [-(2**63), -2, 0, 5, 7, 2**40], ["identity", "bucket[3]", "truncate[5]"]),
    "f": (FloatType(), [float(np.float32(v)) for v in (0.1, *NUMBERS)], ["identity", "void"]),
    "d": (DoubleType(), NUMBERS, ["identity", "void"]),
    "s": (StringType(), ["", "a", "ab", "abc", "b", "é", "\U0001f600", "\uffff"], [
        "identity", "bucket[2]", "truncate[1]", "truncate[2]", "void",
    ]),
    "b": (BinaryType(), [b"", b"a", b"ab", b"\xff", b"\xff\xff"], ["identity", "truncate[1]"]),
    "x": (FixedType(2), [b"aa", b"ab", b"\xff\x00"], ["identity", "bucket[2]"]),
    "u": (UUIDType(), IDS, ["identity", "bucket[2]"]),
    "m": (DecimalType(9, 2), [Decimal(v) for v in ("-1.05", "0.00", "2.50", "9.99")], [
        "identity", "bucket[3]", "truncate[100]",
    ]),
    "t": (BooleanType(), [True, False], ["identity"]),
    "day": (DateType(), [-1, 0, 30, 31, 400], ["identity", "month", "year", "day"]),
    "at": (TimestampType(), [-DAY - 1, -1, 0, DAY, 40 * DAY], ["hour", "day", "month", "year"]),
}  # fmt: skip
FIELDS = [NestedField(n, name, COLUMNS[name][0]) for n, name in enumerate(COLUMNS, 1)]
SCHEMA = Schema(*FIELDS)
COMPARED = ["eq", "not-eq", "lt", "lt-eq", "gt", "gt-eq"]


def in_json(value: Any) -> Any:
    """A value as clients spell it."""
    return {bytes: bytes.hex, uuid.UUID: str, Decimal: str}.get(type(value), lambda v: v)(value)


def leaf(source: random.Random) -> dict[str, Any]:
    name = source.choice(list(COLUMNS))
    type, values, transforms = COLUMNS[name]
    known = [v for v in values if not isinstance(v, float) or math.isfinite(v)]
    term: Any = name
    of = source.randrange(8)
    if of == 0:
        return {"type": source.choice(["is-null", "not-null"]), "term": term}
    if of == 1 and isinstance(type, FloatType | DoubleType):
        return {"type": source.choice(["is-nan", "not-nan"]), "term": term}
    if of == 1 and isinstance(type, StringType):
        kind = source.choice(["starts-with", "not-starts-with"])
        return {"type": kind, "term": term, "value": source.choice(["", *known])}
    if of == 2:
        some = [in_json(v) for v in source.sample(known, source.randint(1, len(known)))]
        return {"type": source.choice(["in", "not-in"]), "term": term, "values": some}
    if of == 3 and (buckets := [t for t in transforms if t.startswith("bucket")]):
        term = {"type": "transform", "transform": buckets[0], "term": name}
        return {"type": source.choice(COMPARED), "term": term, "value": source.randrange(3)}
    return {"type": source.choice(COMPARED), "term": term, "value": in_json(source.choice(known))}


def tree(source: random.Random, depth: int = 0) -> Any:
    kind = source.randrange(5 if depth < 3 else 1)
    if kind < 2:
        return leaf(source)
    if kind == 2:
        return {"type": "not", "child": tree(source, depth + 1)}
    legs = {"left": tree(source, depth + 1), "right": tree(source, depth + 1)}
    return {"type": "and" if kind == 3 else "or", **legs}


def random_spec(source: random.Random, id: int) -> PartitionSpec:
    parts = []
    for number, name in enumerate(source.sample(list(COLUMNS), source.randint(1, 4))):
        transform = parse_transform(source.choice(COLUMNS[name][2]))
        field = 1000 + 10 * id + number
        made = f"{name}_{number}" if str(transform) != "identity" else name
        parts.append(PartitionField(SCHEMA.find_field(name).field_id, field, transform, made))
    return PartitionSpec(*parts, spec_id=id)


def table_of(specs: list[PartitionSpec], schema: Schema = SCHEMA) -> Contents:
    made = new_table_metadata(schema, specs[0], UNSORTED_SORT_ORDER, "file:/nowhere")
    # By ids of our own: `new_table_metadata` numbers anew.
    said = json.loads(made.model_dump_json())
    said["schemas"] = [json.loads(schema.model_dump_json())]
    said["partition-specs"] = [json.loads(spec.model_dump_json()) for spec in specs]
    said["default-spec-id"] = specs[-1].spec_id
    return Contents(json.dumps(said))


def a_file(spec: int, *partition: Any) -> File:
    data = DataFile.from_args(
        _table_format_version=2,
        content=DataFileContent.DATA,
        file_path="f",
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=1,
        file_size_in_bytes=1,
    )
    data.spec_id = spec
    return File(data, 1)


def files_of(found: list[File]) -> Files:
    numbers: dict[Any, int] = {}
    group = [numbers.setdefault(file.partition, len(numbers)) for file in found]
    groups = {number: file for file, number in zip(found, group, strict=True)}
    return Files(
        found, _Deletes([], frozenset()), np.array(group, np.int64),
        [groups[n] for n in range(len(numbers))],
    )  # fmt: skip


class _WithNaN(_ExpressionEvaluationVisitor):
    """PyIceberg's own, but for NaN, which Java and SQL have for the greatest."""

    def visit_greater_than(self, term: Any, literal: Any) -> bool:
        value = term.eval(self.struct)
        return value != value or super().visit_greater_than(term, literal)

    def visit_greater_than_or_equal(self, term: Any, literal: Any) -> bool:
        value = term.eval(self.struct)
        return value != value or super().visit_greater_than_or_equal(term, literal)


def selected_by_pyiceberg(table: Contents, file: File, wanted: Filter) -> bool:
    spec = table.metadata.specs()[file.data.spec_id]
    types = table.types[spec.spec_id]
    fields = [
        NestedField(f.field_id, f.name, type or StringType(), required=False)
        for f, type in zip(spec.fields, types, strict=True)
    ]
    values = [v.bytes if isinstance(v, uuid.UUID) else v for v in file.data.partition._data]
    condition = bind(Schema(*fields), wanted.partitions(spec), True)
    return bool(visit(condition, _WithNaN(Record(*values))))


def holds(asked: BooleanExpression, row: Record) -> bool:
    """Whether a row meets a filter, for which NOT x < 5 is not true of null."""
    return bool(visit(bind(SCHEMA, rewrite_not(asked), True), _WithNaN(row)))


def test_random_specs_and_filters() -> None:
    source = random.Random(20_262)
    left = kept = 0
    for _ in range(QUERIES):
        specs = [random_spec(source, id) for id in range(source.randint(1, 3))]
        table, found, rows = table_of(specs), [], []
        for _ in range(60):
            row = {n: source.choice([None, *values]) for n, (_, values, _) in COLUMNS.items()}
            # Java truncates the least numbers to the greatest; `test_plan` has those.
            row = {n: None if v in (-(2**31), -(2**63)) else v for n, v in row.items()}
            spec = source.choice(specs)
            names = {f.field_id: f.name for f in FIELDS}
            partition = [
                f.transform.transform(SCHEMA.find_type(f.source_id))(row[names[f.source_id]])
                for f in spec.fields
            ]
            found.append(a_file(spec.spec_id, *partition))
            values = [v.bytes if isinstance(v, uuid.UUID) else v for v in row.values()]
            rows.append(Record(*values))
        files = files_of(found)
        for _ in range(6):
            asked = tree(source)
            wanted = read_filter(asked, table.names)
            assert wanted.understood, asked
            mask = _matching_partitions(table, files, wanted)
            expected = [selected_by_pyiceberg(table, file, wanted) for file in found]
            assert mask.tolist() == expected, (asked, specs)
            lost = [n for n, row in enumerate(rows) if not mask[n] and holds(wanted.rows, row)]
            assert not [n for n in lost if "transform" not in str(asked)], (asked, specs)
            left += int((~mask).sum())
            kept += int(mask.sum())
    assert left > kept // 20


def test_many_partitions_are_compared_at_once() -> None:
    """Large filters on 20,000 partitions: one after the other they took minutes."""
    schema = Schema(NestedField(1, "s", StringType()))
    spec = PartitionSpec(PartitionField(1, 1000, parse_transform("identity"), "s"))
    table = table_of([spec], schema)
    files = files_of([a_file(0, f"p{n}") for n in range(20_000)])
    conditions: Any = False
    for n in range(3_000):
        leaf = {"type": "eq", "term": "s", "value": f"p{2 * n}"}
        conditions = {"type": "or", "left": conditions, "right": leaf}
    values = {"type": "in", "term": "s", "values": [f"p{2 * n}" for n in range(8_000)]}
    for asked, last in ((conditions, 6_000), (values, 16_000)):
        wanted = read_filter(asked, table.names)
        assert wanted.understood
        start = time.monotonic()
        selected = np.flatnonzero(_matching_partitions(table, files, wanted))
        assert selected.tolist() == list(range(0, last, 2))
        assert time.monotonic() - start < 30
