"""What PyIceberg's reader returns, against random filters on tables that were altered at random.

A file that the index prunes is read by PyIceberg with that filter all the same: one row of it is
a row lost. So each wrong rule is found that a filter and a file can tell from the right one, and
`test_a_wrong_rule_is_found` puts some in place to see that they are.
"""

from __future__ import annotations

import datetime
import math
import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
    StartsWith,
)
from pyiceberg.expressions.visitors import bind, translate_column_names
from pyiceberg.io.pyarrow import (
    ArrowScan,
    _expression_to_complementary_pyarrow,
    _get_column_projection_values,
    expression_to_pyarrow,
    pyarrow_to_schema,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, FileScanTask, Table
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
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from providers.predicate import OPPOSITE
from providers.predicate import IsNull as Null
from providers.predicate import Or as AnyOf
from skipping import SkippingIndex
from skipping.filters import pyiceberg as filters
from skipping.scans.iceberg_scan import IndexedScan
from skipping.scans.iceberg_transaction import IndexedTransaction
from skipping.stores.memory.store import MemoryStore

pytestmark = pytest.mark.nightly

UTC = datetime.timezone.utc
NAN, INF = math.nan, math.inf
DAYS = [datetime.date(1, 1, 1), datetime.date(1969, 12, 31), datetime.date(2024, 1, 1)]
TIMES = [datetime.datetime(d.year, d.month, d.day, 1, 2, 3, 4) for d in DAYS]
INTS = [-(2**31), -1, 0, 1, 2, 7, 2**31 - 1]
FLOATS = [NAN, -0.0, 0.0, 0.1, -0.1, 1.0, 5.5, 3.0e38, INF, -INF, 16777217.0]
TEXTS = ["", "a", "ab", "abc", "b", "b\U0001f600", "\U0001f600", "\x00"]
IDS = [uuid.UUID(int=0), uuid.UUID(int=2**127 + 5)]

POOLS: dict[type[IcebergType], list[Any]] = {
    BooleanType: [True, False],
    IntegerType: INTS,
    LongType: [*INTS, 2**31, 2**40, -(2**40), 2**63 - 1],
    FloatType: FLOATS,
    DoubleType: [*FLOATS, float(pa.scalar(0.1, pa.float32()).as_py()), 1e39, -1e39, 1e300],
    DecimalType: [Decimal("0.00"), Decimal("-1.50"), Decimal("1.50"), Decimal("99999.99")],
    DateType: DAYS,
    TimestampType: TIMES,
    TimestamptzType: [t.replace(tzinfo=UTC) for t in TIMES],
    StringType: TEXTS,
    BinaryType: [text.encode() for text in TEXTS] + [b"\xff", b"\xff\xff"],
    TimeType: [datetime.time(0, 0), datetime.time(1, 2, 3)],
    UUIDType: [id.bytes for id in IDS],
    FixedType: [b"abcd", b"\x00\x00\x00\x00"],
}
"""Few values of each type, so that many files have no match, and files of one value are many."""

LITERALS: dict[type[IcebergType], list[Any]] = {
    IntegerType: [2**31, 2**40, -(2**40)],
    LongType: [2**63, -(2**63) - 1],
    FloatType: [1e39, -1e39, float(pa.scalar(0.1, pa.float32()).as_py())],
    DecimalType: [Decimal("7.25"), 2],
    UUIDType: IDS,
}
"""Values that are asked for beside those that files have."""

KINDS = ("MIN_MAX", "VALUE_LIST", "BLOOM_FILTER", "MIN_MAX")
WIDER: dict[type[IcebergType], IcebergType] = {
    IntegerType: LongType(),
    FloatType: DoubleType(),
    DecimalType: DecimalType(12, 2),
}


def first_schema() -> Schema:
    types: list[IcebergType] = [
        *(IntegerType(), LongType(), FloatType(), DoubleType(), FloatType(), IntegerType()),
        *(BooleanType(), DecimalType(9, 2), DecimalType(20, 2), DateType(), TimestampType()),
        *(TimestamptzType(), StringType(), BinaryType(), TimeType(), UUIDType(), FixedType(4)),
    ]
    fields = [NestedField(i, f"c{i}", type, required=False) for i, type in enumerate(types, 1)]
    inner = StructType(
        NestedField(31, "x", FloatType(), required=False),
        NestedField(32, "y", StringType(), required=False),
        NestedField(33, "z", IntegerType(), required=True),
    )
    return Schema(*fields, NestedField(30, "st", inner, required=False))


@dataclass
class World:
    """A table of many small files, written under many schemas, and its index."""

    random: random.Random
    catalog: SqlCatalog
    folder: Path
    partition: str = ""
    asked: int = 0
    skipped: int = 0
    files: int = 0
    index: SkippingIndex = field(init=False)
    table: Table = field(init=False)
    tasks: Sequence[FileScanTask] = ()
    names: Sequence[str] = ()
    read: dict[str, tuple[Schema, pa.Table]] = field(default_factory=dict)
    whole: dict[str, pa.Table] = field(default_factory=dict)

    def build(self) -> None:
        name = f"db.t{self.random.randrange(2**60)}"
        self.table = self.catalog.create_table(
            name, schema=first_schema(), properties={"write.metadata.metrics.default": "none"}
        )
        if self.partition:
            with self.table.update_spec() as spec:
                spec.add_identity(self.partition)
        for step in (None, self.widen, self.rename, self.drop_and_add, self.swap, self.reorder):
            if step is not None:
                step()
            for _ in range(2 if self.partition else 3):
                self.append()
        self.table.append(self.rows(0))
        self.build_index()

    def build_index(self) -> None:
        schema = self.table.schema()
        text = ", ".join(
            f"{name} {self.random.choice(KINDS)}"
            for name in schema.column_names
            if _kind(schema.find_type(name)) not in (StructType, TimeType, UUIDType, FixedType)
        )
        self.index = SkippingIndex.create(self.table, text, store=MemoryStore(self.table.name()[1]))
        # No residual: the whole filter is to be evaluated, whatever the partition says.
        self.tasks = [
            FileScanTask(task.file, task.delete_files, AlwaysFalse())
            for task in self.table.scan().plan_files()
        ]
        self.names = [n for n in self.table.schema().column_names if n != "st"]

    def widen(self) -> None:
        with self.table.update_schema() as update:
            for f in self.table.schema().fields:
                stays = f.name == self.partition or f.field_type == DecimalType(20, 2)
                if type(f.field_type) in WIDER and not stays and self.random.random() < 0.7:
                    update.update_column(f.name, field_type=WIDER[type(f.field_type)])
            update.update_column(("st", "x"), field_type=DoubleType())
            update.make_column_optional(("st", "z"))

    def rename(self) -> None:
        a, b = self.random.sample(self.plain(), 2)
        with self.table.update_schema() as update:
            update.rename_column(a, f"{a}_new")
            update.rename_column(b, f"{b}_new")

    def drop_and_add(self) -> None:
        gone = self.random.sample(self.plain(), 3)
        types = [self.table.schema().find_type(name) for name in gone]
        with self.table.update_schema() as update:
            for name in gone:
                update.delete_column(name)
        self.random.shuffle(types)
        with self.table.update_schema() as update:
            for name, type in zip(gone, types, strict=True):
                update.add_column(name, type)
            update.add_column("late", DoubleType())
            update.add_column(("st", "late"), LongType())

    def swap(self) -> None:
        """Columns whose names differ in case only, as they did in files written meanwhile."""
        names = {f.name: f.field_type for f in self.table.schema().fields if f.name in self.plain()}
        pairs = [(a, b) for a in names for b in names if a < b and names[a] == names[b]]
        a, b = self.random.choice(pairs)
        with self.table.update_schema() as update:
            update.rename_column(a, b.upper())
        self.append()
        with self.table.update_schema() as update:
            update.rename_column(b.upper(), a)

    def reorder(self) -> None:
        with self.table.update_schema() as update:
            update.move_first(self.random.choice(self.plain()))

    def plain(self) -> list[str]:
        fixed = {"st", self.partition}
        return [f.name for f in self.table.schema().fields if f.name not in fixed]

    def rows(self, count: int) -> pa.Table:
        schema = self.table.schema()
        arrow = schema_to_pyarrow(schema, include_field_ids=False)
        return pa.table(
            [self.column(f.field_type, arrow.field(f.name).type, count) for f in schema.fields],
            schema=arrow,
        )

    def column(self, type: IcebergType, arrow: pa.DataType, count: int) -> pa.Array:
        if isinstance(type, StructType):
            inner = [
                self.column(f.field_type, arrow.field(f.name).type, count) for f in type.fields
            ]
            inner = [
                array.fill_null(1) if f.required else array
                for f, array in zip(type.fields, inner, strict=True)
            ]
            null = [self.random.random() < 0.3 for _ in range(count)]
            if self.random.random() < 0.3:
                null = [True] * count
            return pa.StructArray.from_arrays(
                inner, fields=list(arrow), mask=pa.array(null, pa.bool_())
            )
        pool = self.random.sample(POOLS[_kind(type)], self.random.choice([1, 1, 1, 2]))
        if self.random.random() < 0.15:
            pool = [None]
        elif self.random.random() < 0.25:
            pool = [*pool, None]
        return pa.array(self.random.choices(pool, k=count), arrow)

    def append(self) -> None:
        rows = self.rows(self.random.choice([1, 2, 3]))
        if not self.partition:
            self.table.append(rows)
            return
        # One file a partition, and one that has not the column: then its value is in the log only.
        type = _kind(self.table.schema().find_type(self.partition))
        # More often than not one that a FLOAT has not exactly.
        value = self.random.choice(POOLS[type] + ([0.1, -0.1] * 6 if type is FloatType else []))
        place = rows.schema.get_field_index(self.partition)
        type = rows.schema.field(place).type
        rows = rows.set_column(place, rows.schema.field(place), pa.array([value] * len(rows), type))
        arrow = schema_to_pyarrow(self.table.schema(), include_field_ids=True)
        rows = rows.cast(arrow)
        if self.random.random() < 0.6:
            rows = rows.drop_columns([self.partition])
        path = self.folder / f"{self.random.randrange(2**60)}.parquet"
        pq.write_table(rows, path)
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"file://{path}",
            file_format=FileFormat.PARQUET,
            partition=Record(pa.array([value], type)[0].as_py()),
            record_count=len(rows),
            file_size_in_bytes=path.stat().st_size,
            column_sizes={},
            value_counts={},
            null_value_counts={},
            nan_value_counts={},
            lower_bounds={},
            upper_bounds={},
            key_metadata=None,
            split_offsets=None,
            equality_ids=None,
            sort_order_id=None,
        )
        file._spec_id = self.table.spec().spec_id
        with self.table.transaction() as change, change.update_snapshot().fast_append() as append:
            append.append_data_file(file)

    def filter(self, depth: int = 3) -> BooleanExpression:
        shape = self.random.random() if depth else 1.0
        if shape < 0.25:
            return Not(self.filter(depth - 1))
        if shape < 0.55:
            joined = And if self.random.random() < 0.5 else Or
            return joined(self.filter(depth - 1), self.filter(depth - 1))
        return self.leaf()

    def leaf(self) -> BooleanExpression:
        name = self.random.choice(self.names)
        type = _kind(self.table.schema().find_type(name))
        pool = [v for v in POOLS[type] + LITERALS.get(type, []) if v == v]
        forms: list[Callable[[], Any]] = [
            *(lambda op=op: op(name, self.random.choice(pool)) for op in ORDERS),
            *(lambda op=op: op(name, self.random.choice(pool)) for op in (EqualTo, NotEqualTo)),
            *(lambda op=op: op(name, set(self.random.choices(pool, k=3))) for op in (In, NotIn)),
            *(lambda op=op: op(name) for op in (IsNull, NotNull)),
        ]
        if type in (FloatType, DoubleType):
            forms += [lambda: IsNaN(name), lambda: NotNaN(name)]
        if type is StringType:
            forms += [
                lambda op=op: op(name, self.random.choice(TEXTS))  # type: ignore[misc]
                for op in (StartsWith, NotStartsWith)
            ]
        made: BooleanExpression = self.random.choice(forms)()
        return made

    def check(self) -> list[str]:
        """One random filter; the files that it loses rows of."""
        given = self.filter(self.random.choice([0, 1, 3]))
        options: dict[str, Any] = {}
        if self.random.random() < 0.4:
            options["selected_fields"] = tuple(self.random.sample(self.names, 2))
        if self.random.random() < 0.3:
            options["case_sensitive"] = False
        if self.random.random() < 0.1:
            options["snapshot_id"] = self.random.choice(self.table.snapshots()).snapshot_id
        scan = self.index.scan(given, **options)
        assert isinstance(scan, IndexedScan)
        try:
            reader = Reader(self.read, scan)
        except (TypeError, ValueError):  # no filter on this table
            return []
        gone = self.prune(scan)
        return [f"{task.file.file_path}: {given} {options}" for task in gone if reader.rows(task)]

    def prune(self, scan: IndexedScan) -> list[FileScanTask]:
        """Return the tasks that a scan prunes, and count them."""
        kept = {id(task) for task in scan.prune_tasks(self.tasks)}
        gone = [task for task in self.tasks if id(task) not in kept]
        self.asked += 1
        self.skipped += len(gone)
        self.files += len(self.tasks)
        return gone

    def check_delete(self) -> list[str]:
        """One random filter; the files in which a delete loses rows to delete."""
        given = self.filter(self.random.choice([0, 1, 3]))
        scan = IndexedTransaction(self.table, self.index._query.find_prunable)._scan(given)
        assert isinstance(scan, IndexedScan)
        schema = self.table.schema()
        try:
            preserved = _expression_to_complementary_pyarrow(bind(schema, given, True), schema)
        except (TypeError, ValueError):  # no filter on this table
            return []
        gone = self.prune(scan)
        return [f"{t.file.file_path}: {given}" for t in gone if self.deletes(t, preserved)]

    def deletes(self, task: FileScanTask, preserved: pa.compute.Expression) -> bool:
        """Whether PyIceberg's delete removes a row, as `Transaction.delete` reads and filters."""
        if task.file.file_path not in self.whole:
            read = ArrowScan(
                self.table.metadata, self.table.io, self.table.schema(), AlwaysTrue()
            ).to_table([task])
            self.whole[task.file.file_path] = read
        rows = self.whole[task.file.file_path]
        try:
            return len(rows.filter(preserved)) < len(rows)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return False


ORDERS = (LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual)


def _kind(type: IcebergType) -> Any:
    return type.__class__


class Reader:
    """PyIceberg's reader for one scan. What it does to a filter it does here as well, with its own
    functions; but files stay open, which is ten times as fast. `test_rows` compares with its own.
    """

    def __init__(self, read: dict[str, tuple[Schema, pa.Table]], scan: DataScan) -> None:
        self.read = read
        self.scan = scan
        self.projected = scan.projection()
        self.bound = bind(scan.table_metadata.schema(), scan.row_filter, scan.case_sensitive)

    def rows(self, task: FileScanTask) -> int:
        """How many it returns of a file; none where it cannot evaluate the filter at all."""
        metadata, path = self.scan.table_metadata, task.file.file_path
        if path not in self.read:
            table = pq.read_table(path.removeprefix("file://"))
            self.read[path] = pyarrow_to_schema(table.schema), table
        schema, table = self.read[path]
        logged = _get_column_projection_values(
            task.file,
            self.projected,
            metadata.schema(),
            metadata.specs()[task.file.spec_id],
            schema.field_ids,
        )
        case = self.scan.case_sensitive
        try:
            named = translate_column_names(self.bound, schema, case, logged)
            return len(table.filter(expression_to_pyarrow(bind(schema, named, case), schema)))
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return 0

    def rows_read(self, task: FileScanTask) -> int | None:
        """The same, by PyIceberg's own reader; None where that cannot return such rows at all."""
        scan = self.scan
        own = ArrowScan(
            scan.table_metadata, scan.io, self.projected, scan.row_filter, scan.case_sensitive
        )
        try:
            return sum(map(len, own._record_batches_from_scan_tasks_and_deletes([task], {})))
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return None


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[World]]:
    folder = tmp_path_factory.mktemp("worlds")
    catalog = SqlCatalog("own", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
    catalog.create_namespace("db")
    made = [
        World(random.Random(seed), catalog, folder, partition)
        for seed, partition in enumerate(("", "c3", "", "c13"))
    ]
    for world in made:
        world.build()
    yield made
    catalog.close()


def losses(worlds: Sequence[World], filters: int, check: Any = World.check) -> Iterator[str]:
    """What random filters lose; the same filters for the same worlds."""
    for seed, world in enumerate(worlds):
        world.random.seed(seed)
        world.asked = world.skipped = world.files = 0
    for _ in range(filters // len(worlds)):
        for world in worlds:
            yield from check(world)


def require_none_lost(worlds: Sequence[World], filters: int, check: Any = World.check) -> None:
    assert list(losses(worlds, filters, check)) == []
    assert sum(w.asked for w in worlds) > 0.9 * filters, "the others are no filters"
    assert sum(w.skipped for w in worlds) > 0.25 * sum(w.files for w in worlds)


def test_rows(worlds: list[World]) -> None:
    # What `Reader` says of every file, whether skipped or not, is what PyIceberg's reader returns.
    compared = 0
    for world in worlds:
        world.random.seed(7)
        for _ in range(12):
            scan = world.index.scan(world.filter())
            try:
                reader = Reader(world.read, scan)
            except (TypeError, ValueError):
                continue
            for task in world.tasks[::2]:
                read = reader.rows_read(task)
                assert read in (None, reader.rows(task)), f"{scan.row_filter}"
                compared += read is not None
    assert compared > 200


def test_no_file_with_a_match_is_skipped(worlds: list[World]) -> None:
    require_none_lost(worlds, 2_000)


def test_delete_skips_no_file_with_a_row_to_delete(worlds: list[World]) -> None:
    require_none_lost(worlds, 2_000, World.check_delete)


def test_delete_with_a_wrong_rule_is_found(
    worlds: list[World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "_find_null_tests", lambda _: iter(()))
    assert next(losses(worlds, 20_000, World.check_delete), None)


@pytest.mark.soak
def test_delete_skips_no_file_with_a_row_to_delete_whatever_the_filter(
    worlds: list[World],
) -> None:
    require_none_lost(worlds, 100_000, World.check_delete)


@pytest.mark.soak
def test_no_file_with_a_match_is_skipped_whatever_the_filter(worlds: list[World]) -> None:
    require_none_lost(worlds, 100_000)


WRONG: dict[str, tuple[str, Any]] = {
    "NOT < is >": ("OPPOSITE", {**OPPOSITE, "<": ">"}),
    "NaN is no value": ("_NAN", 1.25),
    "a column that is not there is false": ("_Leaf._or_null", lambda _, *legs: AnyOf(legs)),
    "0.0 is in a list that has -0.0": ("_Leaf._drop_inexact", lambda _, values: values),
    "0.1 is 0.1 in every file": ("_as_float", lambda value: value),
    "every file takes every literal": ("_NARROWER", {}),
    "there is one case": ("_find_ambiguous", lambda _: set()),
    "what is required is there": (
        "_Leaf._null",
        lambda leaf, null: leaf._or_null() if null else Null(leaf.name, negated=True),
    ),
}


@pytest.mark.parametrize("rule", WRONG)
def test_a_wrong_rule_is_found(
    worlds: list[World], rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, wrong = WRONG[rule]
    monkeypatch.setattr(f"{filters.__name__}.{place}", wrong)
    assert next(losses(worlds, 2_000), None)
