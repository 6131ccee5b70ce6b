"""Iceberg tables without Spark: what PyIceberg lists, an index in this process, cut scans."""

from __future__ import annotations

import datetime
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import Not, NotNaN, NotStartsWith, StartsWith
from pyiceberg.table import StaticTable, Table

from providers import Compare
from providers.errors import (
    Conflict,
    DefinitionError,
    SettingError,
    SkippingError,
    StoreError,
    TableError,
)
from skipping import SkippingIndex
from skipping.build.sketch import Work, sketch_files
from skipping.config.settings import Settings
from skipping.lookup import lookup
from skipping.model.definition import IndexedColumn
from skipping.stores import IDENTITY, identities
from skipping.stores import open as opening
from skipping.stores.memory.store import MemoryStore
from skipping.tables import TableColumn
from skipping.tables.iceberg.pyiceberg import PyIcebergTable
from tests.skipping.tables.formats import paths

UTC = datetime.timezone.utc
COLUMNS = (
    "k VALUE_LIST, big MIN_MAX, s VALUE_LIST, s MIN_MAX, day MIN_MAX, ts MIN_MAX, x MIN_MAX, "
    "d VALUE_LIST, b VALUE_LIST, st.a MIN_MAX, st.t.y VALUE_LIST"
)


def rows(i: int) -> pa.Table:
    """A file's rows: values of its own, and nulls."""
    return pa.table(
        {
            "k": pa.array([i, i + 10, None], pa.int32()),
            "big": pa.array([2**40 + i] * 3, pa.int64()),
            "s": [f"s{i}", None, "all"],
            "day": [datetime.date(2024, 1, 1 + i)] * 3,
            "ts": [datetime.datetime(2024, 1, 1, i, tzinfo=UTC)] * 3,
            "x": [1.5 * i, float("nan"), -0.0],
            "d": pa.array([Decimal("1.50") + i] * 3, pa.decimal128(10, 2)),
            "b": [i % 2 == 0, None, None],
            "st": pa.array(
                [{"a": i, "t": {"y": f"y{i}"}}, {"a": None, "t": None}, None],
                pa.struct([("a", pa.int64()), ("t", pa.struct([("y", pa.string())]))]),
            ),
        }
    )  # fmt: skip


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    made = SqlCatalog("own", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    made.create_namespace("db")
    yield made
    made.close()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore("pyiceberg")


def make(catalog: SqlCatalog, *, files: int = 4, partition: str = "", **properties: str) -> Table:
    table = catalog.create_table(("db", "t"), schema=rows(0).schema, properties=properties)
    if partition:
        with table.update_spec() as spec:
            spec.add_identity(partition)
    for i in range(files):
        table.append(rows(i))
    return table


def plain(table: pa.Table) -> list[Any]:
    """Rows that can be compared: NaN as text."""
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize("kind", ["VALUE_LIST", "MIN_MAX"])
@pytest.mark.parametrize(
    ("values", "row_filter", "metrics", "found"),
    [
        ([1, None, 1], "p IS NULL OR y = 99", "full", 1),
        ([5, 5], "p = 5 OR y = 99", "none", 2),
        ([5, 6], "p = 5 OR y = 99", "counts", 1),
        ([5, 5], "p = 7 OR y = 99", "full", 0),
    ],
)
def test_an_imported_file_may_not_hold_what_the_log_says(
    catalog: SqlCatalog,
    store: MemoryStore,
    tmp_path: Path,
    kind: str,
    values: list[int | None],
    row_filter: str,
    metrics: str,
    found: int,
) -> None:
    """Its partition is guessed from statistics; PyIceberg filters by the column of the file."""
    schema = pa.schema([("p", pa.int64()), ("y", pa.int64())])
    properties = {"write.metadata.metrics.default": metrics}
    table = catalog.create_table("db.imported", schema=schema, properties=properties)
    with table.update_spec() as spec:
        spec.add_identity("p")
    outside = tmp_path / "outside.parquet"
    pq.write_table(pa.table({"p": values, "y": list(range(len(values)))}, schema), outside)
    table.add_files([f"file://{outside}"])
    index = SkippingIndex.create(table, f"p {kind}, y MIN_MAX", store=store)
    plain_rows = table.scan(row_filter).to_arrow()
    assert len(plain_rows) == found
    assert plain(index.scan(row_filter).to_arrow()) == plain(plain_rows)
    assert len(list(index.scan(row_filter).plan_files())) == min(found, 1)


FILTERS = {
    "k = 1": 1,
    "k in (2, 12)": 1,
    "k not in (1, 11)": 4,
    "k is null": 4,
    "big > 1099511627778": 1,
    "s = 's3'": 1,
    "s != 's3'": 4,
    "s = 'all'": 4,
    "s like 's1%'": 1,
    "day = '2024-01-02'": 1,
    "ts >= '2024-01-01T02:00:00+00:00'": 2,
    "x = 4.5": 4,
    "x < -1": 0,
    "d = 2.50": 1,
    "b = true": 2,
    "st.a >= 3": 1,
    "st.t.y = 'y2'": 1,
    "k = 1 or st.a = 3": 2,
    "k = 1 and x is nan": 1,
    "k = 99": 0,
    "not (k < 13 and k > 2)": 4,
}


class TestScan:
    @pytest.fixture(scope="class")
    @staticmethod
    def indexed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Table, SkippingIndex]]:
        folder = tmp_path_factory.mktemp("scan")
        made = SqlCatalog("own", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
        made.create_namespace("db")
        # No statistics of Iceberg's: what is skipped is the index's doing.
        table = make(made, **{"write.metadata.metrics.default": "none"})
        yield table, SkippingIndex.create(table, COLUMNS, store=MemoryStore("scan"))
        made.close()

    @pytest.mark.parametrize("given", [*FILTERS, Not(StartsWith("s", "s")), NotNaN("x")], ids=str)
    def test_it_gives_the_rows_of_fewer_files(
        self, indexed: tuple[Table, SkippingIndex], given: Any
    ) -> None:
        table, index = indexed
        cut, whole = index.scan(given), table.scan(given)
        assert plain(cut.to_arrow()) == plain(whole.to_arrow())
        assert len(list(whole.plan_files())) == 4
        assert len(list(cut.plan_files())) == FILTERS.get(given, 4)
        assert cut.count() == whole.count()

    def test_nulls_that_not_in_returns(self, indexed: tuple[Table, SkippingIndex]) -> None:
        # PyIceberg says of a null that it is in no list, where SQL does not know.
        table, index = indexed
        for given in ("k not in (0, 1, 2, 3, 10, 11, 12, 13)", NotStartsWith("s", "all")):
            whole = table.scan(given).to_arrow()
            assert plain(index.scan(given).to_arrow()) == plain(whole)
            assert len(whole) == 4

    def test_all_that_a_scan_can_do(self, indexed: tuple[Table, SkippingIndex]) -> None:
        table, index = indexed
        cut = index.scan("k = 1", selected_fields=("s",), limit=5)
        assert cut.to_pandas()["s"].tolist() == ["s1"]
        again = index.scan().filter("K = 2").with_case_sensitive(False).select("k", "big")
        assert again.to_arrow().to_pylist() == [{"k": 2, "big": 2**40 + 2}]
        assert len(list(again.plan_files())) == 1
        first = table.snapshots()[0].snapshot_id
        assert len(list(index.scan("k = 1", snapshot_id=first).plan_files())) == 0
        assert index.scan("k = 0", snapshot_id=first).to_arrow().num_rows == 1
        with pytest.raises(ValueError, match="nope"):
            index.scan("nope = 1").to_arrow()

    def test_reading_goes_on_when_the_store_is_away(
        self, indexed: tuple[Table, SkippingIndex], monkeypatch: pytest.MonkeyPatch, caplog: Any
    ) -> None:
        _, index = indexed

        def away(*_: object, **__: object) -> None:
            raise StoreError("it is away")

        monkeypatch.setattr(index.store, "disproved", away)
        with caplog.at_level(logging.WARNING, "skipping"):
            assert index.scan("k = 1").to_arrow().num_rows == 1
        assert len(list(index.scan("k = 1").plan_files())) == 4
        assert "no file is skipped: it is away" in caplog.text

    def test_only_files_with_a_match_are_opened(
        self, catalog: SqlCatalog, store: MemoryStore
    ) -> None:
        table = make(catalog)
        index = SkippingIndex.create(table, "k VALUE_LIST", store=store)
        for task in table.scan().plan_files():
            location = Path(task.file.file_path.removeprefix("file://"))
            if pq.read_table(location)["k"][0].as_py() != 2:
                location.write_bytes(b"no parquet" * 400)
        assert index.scan("k = 2").to_arrow().num_rows == 1
        with pytest.raises(pa.ArrowInvalid):
            table.scan("k = 2 or big = 7").to_arrow()


class TestIndex:
    def test_entries_are_those_of_the_physical_files(
        self, catalog: SqlCatalog, store: MemoryStore
    ) -> None:
        table = make(catalog, partition="day")
        table.delete("k = 1")
        SkippingIndex.create(
            table, "k MIN_MAX, s VALUE_LIST, st.a MIN_MAX, day PARTITION", store=store
        )
        (definition,) = store.definitions()
        fields = ["s1_low", "s1_high", "s3_low", "s3_nulls", "s4_low", "s4_high"]
        entries = store.catalogue(definition.value.index, fields=fields).files.to_pylist()
        assert len(entries) == 4
        for entry in entries:
            file = pq.read_table(entry["path"].removeprefix("file://"))
            assert (entry["s1_low"], entry["s1_high"]) == tuple(
                pc.min_max(file["k"]).as_py().values()
            )
            assert entry["s3_low"] == pc.min(pc.struct_field(file["st"], "a")).as_py()
            days = (file["day"][0].as_py() - datetime.date(1970, 1, 1)).days
            assert entry["s4_low"] == entry["s4_high"] == days
            assert entry["stamp"] == len(file)
            assert entry["size"] == Path(entry["path"].removeprefix("file://")).stat().st_size

    def test_refresh_builds_what_came(self, catalog: SqlCatalog, store: MemoryStore) -> None:
        table = make(catalog)
        index = SkippingIndex.create(table, "k VALUE_LIST", store=store)
        assert (index.state.covered, len(index.files())) == (4, 4)
        table.append(rows(7))
        again = SkippingIndex.on(catalog.load_table("db.t"), store=store)
        assert again.refresh().covered == 5
        assert len(again.files()) == 5
        assert again.lookup(Compare("k", "=", 7)).kept == 1
        assert again.definition.name == "own.db.t"
        with pytest.raises(Conflict):
            SkippingIndex.create(table, "s MIN_MAX", store=store)
        again.drop()
        with pytest.raises(DefinitionError, match="no skipping index"):
            SkippingIndex.on(table, store=store)

    def test_where_is_that_of_create(self, catalog: SqlCatalog, store: MemoryStore) -> None:
        table = make(catalog)
        index = SkippingIndex.create(
            table, "s VALUE_LIST", where="big >= 1099511627778", store=store
        )
        assert len(index.files()) == 2
        assert index.lookup(Compare("s", "=", "s0")).unknown == 2
        index.drop()
        for wrong, says in (
            ("nope = 1", "nope"),
            ("big >", "ends too early"),
            ("abs(big) > 1", "abs is a function"),
            ("big <=> 1", "takes no <=>"),
            ("s LIKE '%a'", "only 'prefix%'"),
            ("big = big", "a column with constants"),
        ):
            with pytest.raises(SkippingError, match=says):
                SkippingIndex.create(table, "s VALUE_LIST", where=wrong, store=store)

    def test_what_is_given_wrong(self, catalog: SqlCatalog, store: MemoryStore) -> None:
        table: Any = make(catalog, files=0)
        with pytest.raises(SettingError, match="give store="):
            SkippingIndex.on(table)
        with pytest.raises(TableError, match="is not a PyIceberg table"):
            SkippingIndex.on(object(), store=store)  # type: ignore[arg-type]
        with pytest.raises(DefinitionError, match="st is a struct; name its leaves"):
            SkippingIndex.create(table, "st MIN_MAX", store=store)
        index = SkippingIndex.create(table, "k MIN_MAX", store=store)
        catalog.drop_table("db.t")
        with pytest.raises(TableError, match=r"own\.db\.t is gone"):
            index.refresh()

    def test_evolution(self, catalog: SqlCatalog, store: MemoryStore) -> None:
        table = make(catalog, files=2)
        index = SkippingIndex.create(table, "k VALUE_LIST, s VALUE_LIST", store=store)
        with table.update_schema() as schema:
            schema.rename_column("k", "key")
            schema.update_column("k", field_type=_long())
            schema.delete_column("s")
        with table.update_schema() as schema:
            schema.add_column("s", _long())
        more = rows(5).drop_columns(["k", "s"]).append_column("key", pa.array([2**40, 1, None]))
        table.append(more.append_column("s", pa.array([7, 7, 7])))
        index.refresh()
        assert [c.type for c in index.definition.columns] == ["bigint", "string", "bigint"]
        plan = index.lookup(Compare("key", "=", 2**40))
        assert (plan.kept, plan.unknown) == (1, 0)
        assert index.lookup(Compare("s", "=", 7)).kept == 1
        for given in ("key = 1", "s = 7", "s is null"):
            cut, whole = index.scan(given), catalog.load_table("db.t").scan(given)
            assert plain(cut.to_arrow()) == plain(whole.to_arrow())


class TestTable:
    def test_files_changes_and_versions(self, catalog: SqlCatalog) -> None:
        table = make(catalog, files=3)
        followed = PyIcebergTable(table)
        assert [len(followed.files(v)) for v in range(4)] == [0, 1, 2, 3]
        assert [len(followed.changes(v, 3) or ()) for v in range(4)] == [3, 2, 1, 0]
        dead = paths(followed.files(1))
        table.overwrite(rows(9))
        assert followed.version() == 5, "a delete and an append"
        assert len(followed.files()) == 1
        assert followed.retained(pa.array([*dead, "file:///nowhere"])).to_pylist() == [True, False]
        assert followed.changes(5, 6) is None
        with pytest.raises(TableError, match="no version 6"):
            followed.files(6)
        catalog.drop_table("db.t")
        for ask in (followed.version, followed.files, followed.columns):
            with pytest.raises(TableError, match="is gone"):
                ask()

    def test_branches_and_tags_are_read_too(self, catalog: SqlCatalog) -> None:
        table = make(catalog, files=2)
        first = table.snapshots()[0].snapshot_id
        table.manage_snapshots().create_branch(first, "side").create_tag(first, "old").commit()
        table.append(rows(5), branch="side")
        table.overwrite(rows(6))
        followed = PyIcebergTable(table)
        assert len(followed.files()) == 3, "one of main; the first and one more of the branch"
        assert len(followed.changes(2, followed.version()) or ()) == 2

    def test_expired_snapshots_are_a_gap(self, catalog: SqlCatalog) -> None:
        table = make(catalog, files=3)
        second = table.snapshots()[1].snapshot_id
        table.maintenance.expire_snapshots().by_id(second).commit()
        followed = PyIcebergTable(table)
        assert followed.changes(1, 3) is None
        assert followed.changes(2, 3) is None, "what version 3 was made of is not known"
        assert len(followed.files()) == 3
        with pytest.raises(TableError, match="no version 2"):
            followed.files(2)

    def test_after_going_back_the_files_are_compared(self, catalog: SqlCatalog) -> None:
        table = make(catalog, files=3)
        first = table.snapshots()[0].snapshot_id
        table.manage_snapshots().rollback_to_snapshot(first).commit()
        table.append(rows(8))
        followed = PyIcebergTable(table)
        assert followed.version() == 4
        assert followed.changes(3, 4) is None, "what is current did not come of version 3"
        assert len(followed.files()) == 2

    def test_v1_has_no_sequence(self, catalog: SqlCatalog, store: MemoryStore) -> None:
        table = make(catalog, files=2, **{"format-version": "1"})
        followed = PyIcebergTable(table)
        before = followed.version()
        assert followed.changes(before, before) is None
        index = SkippingIndex.create(table, "k VALUE_LIST", store=store)
        table.append(rows(5))
        assert followed.version() > before
        assert len(followed.files(before)) == 2
        index.refresh()
        assert len(index.files()) == 3
        with table.transaction() as change:
            change.upgrade_table_version(2)
        table.append(rows(6))
        index.refresh()
        assert (len(index.files()), index.state.covered) == (4, 1)

    def test_partition_values_where_the_spec_has_them(
        self, catalog: SqlCatalog, store: MemoryStore
    ) -> None:
        table = make(catalog, files=1)
        for name in ("day", "ts", "d", "b", "big"):
            with table.update_spec() as spec:
                spec.add_identity(name)
        table.append(rows(2))
        with table.update_spec() as spec:
            spec.remove_field("day")
        table.append(rows(3))
        followed = PyIcebergTable(table)
        columns = followed.columns()
        assert {n for n, c in columns.items() if c.partition} == {"ts", "d", "b", "big"}
        found = [dict(f["partition"]) for f in followed.files().to_pylist()]
        by_days = {f.get(columns["day"].identity): f for f in found}
        assert set(by_days) == {None, "2024-01-03"}
        assert {} in found, "unpartitioned is not the same as null"
        whole = next(
            f for f in found if f.get(columns["ts"].identity, "").startswith("2024-01-01T02")
        )
        named = {n: whole.get(c.identity, "?") for n, c in columns.items() if c.identity in whole}
        assert named.pop("b") in ("true", None)
        assert named == {
            "day": "2024-01-03",
            "ts": "2024-01-01T02:00:00.000000Z",
            "d": "3.50",
            "big": str(2**40 + 2),
        }
        index = SkippingIndex.create(table, "big PARTITION, b PARTITION, day MIN_MAX", store=store)
        assert index.lookup(Compare("big", "=", 2**40 + 3)).kept == 2
        assert index.lookup(Compare("big", "=", 2**40)).kept == 1, "read from the file"
        assert index.lookup(Compare("day", "=", datetime.date(2024, 1, 3))).kept == 2

    def test_files_from_elsewhere(
        self, catalog: SqlCatalog, store: MemoryStore, tmp_path: Path
    ) -> None:
        table = make(catalog, files=1)
        outside = tmp_path / "outside.parquet"
        pq.write_table(rows(5), outside)
        table.add_files([f"file://{outside}"])
        with table.update_schema() as schema:
            schema.rename_column("k", "key").rename_column(("st", "a"), "aa")
        columns = "key VALUE_LIST, st.aa MIN_MAX, st.t.y VALUE_LIST"
        index = SkippingIndex.create(table, columns, store=store)
        assert index.lookup(Compare("key", "=", 15)).kept == 1
        assert index.lookup(Compare("st.aa", "=", 5)).kept == 1
        assert index.lookup(Compare("st.t.y", "=", "y0")).kept == 1
        assert plain(index.scan("key = 15").to_arrow()) == plain(table.scan("key = 15").to_arrow())
        index.drop()
        index.vacuum()
        with table.transaction() as change:
            change.remove_properties("schema.name-mapping.default")
        index = SkippingIndex.create(table, columns, store=store)
        known = {Path(f["path"]).name: f["key VALUE_LIST"] for f in index.files().to_pylist()}
        assert known.pop("outside.parquet") is False
        assert list(known.values()) == [True]

    def test_names_of_files_from_elsewhere_belong_to_a_column(
        self, catalog: SqlCatalog, store: MemoryStore, tmp_path: Path
    ) -> None:
        table = make(catalog, files=0)
        outside = tmp_path / "outside.parquet"
        pq.write_table(rows(5), outside)
        table.add_files([f"file://{outside}"])
        assert PyIcebergTable(table).columns()["st.t.y"].identity == "#12 `st`.`t`.`y`"
        index = SkippingIndex.create(table, "k VALUE_LIST, big VALUE_LIST", store=store)
        mapping = table.metadata.properties["schema.name-mapping.default"]
        swapped = mapping.replace('"k"', '"?"').replace('"big"', '"k"').replace('"?"', '"big"')
        with table.transaction() as change:
            change.set_properties({"schema.name-mapping.default": swapped})
        table.refresh()
        for given in ("k = 5", "big = 5", "big is null"):
            whole = table.scan(given)
            assert plain(index.scan(given).to_arrow()) == plain(whole.to_arrow())
        index.refresh()
        assert index.lookup(Compare("big", "=", 5)).kept == 1
        assert index.lookup(Compare("big", "=", 6)).kept == 0

    def test_a_static_table(self, catalog: SqlCatalog, store: MemoryStore) -> None:
        table = make(catalog)
        index = SkippingIndex.create(table, "k VALUE_LIST", store=store)
        static = StaticTable.from_metadata(table.metadata_location)
        again = SkippingIndex.on(static, store=store)
        assert again.definition == index.definition
        assert len(list(again.scan("k = 1").plan_files())) == 1
        assert list(identities(again.table.files())) == list(identities(index.table.files()))


@pytest.mark.parametrize("partition", [True, False])
def test_values_of_the_log_and_of_the_file_both_count(tmp_path: Path, partition: bool) -> None:
    # As Hive leaves them, files have no partition columns; the spec of today may not either.
    values = {"without": {"k": [1]}, "other": {"k": [1], "p": [9]}}
    column = TableColumn(
        *("p", "#2 `p`", "bigint", ("p",), 2),
        partition=partition,
        in_files=True,
        imported=(("p",),),
    )
    indexed = IndexedColumn(1, "p", column.identity, "bigint", "MIN_MAX", partition=partition)
    found = {}
    for name, held in values.items():
        path = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table(held), path)
        size = path.stat().st_size
        rows = [[0, 1], [str(path)] * 2, [size] * 2, [1, 1], ['{"#2": "7"}', "{}"]]
        files = pa.RecordBatch.from_arrays(list(map(pa.array, rows)), schema=IDENTITY)
        work = [Work(indexed, column, indexed.provider())]
        for row, log in zip(sketch_files(files, work).to_pylist(), ("7", ""), strict=True):
            found[name, log] = row["s1_known"], row["s1_low"], row["s1_high"]
    assert found == {
        ("without", "7"): (True, 7, 7),
        ("without", ""): (True, None, None),
        ("other", "7"): (True, 7, 9),
        ("other", ""): (True, 9, 9),
    }


class TestManyFiles:
    MANY = 60_000

    @pytest.fixture
    @staticmethod
    def made(catalog: SqlCatalog, tmp_path: Path) -> tuple[Table, str]:
        """A table of four files whose index has entries of many more."""
        table = make(catalog, **{"write.metadata.metrics.default": "none"})
        address = f"sqlite:{tmp_path}/index.sqlite"
        index = SkippingIndex.create(table, "big MIN_MAX", store=address)
        n = TestManyFiles.MANY
        numbers = pa.array(range(n), pa.int64())
        columns: dict[str, Any] = {
            "ordinal": pa.array(index.store.reserve(index.definition.index, n), pa.int64()),
            "path": pc.binary_join_element_wise("f", numbers.cast(pa.string()), "/"),
            "size": numbers,
            "stamp": numbers,
            "partition": pa.array(["{}"] * n),
            "s1_known": pa.array([True] * n),
            **{f"s1_{name}": numbers for name in ("low", "high", "nulls")},
        }
        index.store.write(index.definition.index, pa.table(columns), revision=index.revision)
        # Another process: nothing of the store is kept here.
        opening._file.cache_clear()
        lookup._kept.clear()
        return table, address

    def test_a_question_finds_what_an_earlier_one_began_to_read(
        self, made: tuple[Table, str], caplog: pytest.LogCaptureFixture
    ) -> None:
        table, address = made

        def kept(timeout: float) -> int:
            index = SkippingIndex.on(table, store=address, timeout=timeout)
            return len(list(index.scan("big > 1099511627778").plan_files()))

        whole = len(list(table.scan("big > 1099511627778").plan_files()))
        with caplog.at_level(logging.WARNING, "skipping"):
            assert kept(0.001) == whole == 4
        assert "no file is skipped: " in caplog.text
        assert "did not name its files in time" in caplog.text
        waited = time.monotonic() + 60
        while kept(0.2) == whole:  # each time less than it takes to read all
            assert time.monotonic() < waited
        assert kept(0.2) == 1

    def test_what_this_process_changes_is_seen_at_once(
        self, catalog: SqlCatalog, store: MemoryStore
    ) -> None:
        table = make(catalog)
        index = SkippingIndex.create(table, "k VALUE_LIST", store=store, timeout=30)
        assert len(list(index.scan("k = 7").plan_files())) == 0
        table.append(rows(6))
        assert len(list(SkippingIndex.on(table, store=store).scan("k = 7").plan_files())) == 1
        SkippingIndex.on(table, store=store).refresh()
        assert len(list(index.scan("k = 7").plan_files())) == 0
        assert index._asking.settings.cache_ttl > 0

    def test_the_process_keeps_few(self) -> None:
        stores = [MemoryStore(str(i)) for i in range(20)]
        first = lookup.shared_lookup(stores[0], ttl=5)
        assert lookup.shared_lookup(stores[0], ttl=5) is first
        assert lookup.shared_lookup(stores[0], ttl=1) is not first, "other settings"
        for each in stores[1:]:
            assert lookup.shared_lookup(each, ttl=5).store is each
        assert len(lookup._kept) == lookup._SHARED
        assert lookup.shared_lookup(stores[0], ttl=5) is not first


class TestSettings:
    def test_the_environment_has_them(
        self, catalog: SqlCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table = make(catalog, files=1)
        address = f"sqlite:{tmp_path}/elsewhere.sqlite"
        for name, value in (("STORE", address), ("TIMEOUT", "7s"), ("CACHE_MAX_BYTES", "1k")):
            monkeypatch.setenv(f"SKIPPING_{name}", value)
        index = SkippingIndex.create(table, "k MIN_MAX")
        assert index.store.location == address
        assert index._asking.settings == Settings(store=address, timeout=7, cache_max_bytes=1024)
        assert SkippingIndex.on(table, timeout=0.5)._asking.settings.timeout == 0.5
        monkeypatch.setenv("SKIPPING_TIMEOUT", "soon")
        with pytest.raises(SettingError, match="SKIPPING_TIMEOUT takes a duration"):
            SkippingIndex.on(table)

    @pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan")])
    def test_a_timeout_is_some_seconds(
        self, catalog: SqlCatalog, store: MemoryStore, timeout: float
    ) -> None:
        with pytest.raises(SettingError, match="timeout takes seconds above zero"):
            SkippingIndex.on(make(catalog, files=0), store=store, timeout=timeout)


def test_old_dates_are_as_they_stand(catalog: SqlCatalog, store: MemoryStore) -> None:
    # Spark's own reader would rebase them, if the file said so; Iceberg's never do.
    first = datetime.date(1, 1, 1)
    moment = datetime.datetime(1, 1, 1, tzinfo=UTC)
    written = pa.table({"d": [first], "t": pa.array([moment], pa.timestamp("us", "UTC"))})
    table = catalog.create_table(("db", "t"), schema=written.schema)
    for _ in range(2):
        table.append(written)
    index = SkippingIndex.create(table, "d VALUE_LIST, t VALUE_LIST", store=store)
    assert index.files()["d VALUE_LIST"].to_pylist() == [True, True]
    assert index.files()["t VALUE_LIST"].to_pylist() == [True, True]
    assert index.lookup(Compare("d", "=", first)).kept == 2
    assert index.lookup(Compare("d", "=", datetime.date(2, 1, 1))).kept == 0


def _long() -> Any:
    from pyiceberg.types import LongType

    return LongType()


def test_no_spark_and_no_java_is_needed(tmp_path: Path) -> None:
    program = f"""
import sys
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from skipping import SkippingIndex
catalog = SqlCatalog("own", uri="sqlite:///{tmp_path}/c.db", warehouse="file://{tmp_path}")
catalog.create_namespace("db")
table = catalog.create_table("db.t", schema=pa.schema([("k", pa.int64())]))
for k in range(3):
    table.append(pa.table({{"k": [k]}}))
store = "sqlite:{tmp_path}/index.sqlite"
SkippingIndex.create(table, "k VALUE_LIST", store=store)
scan = SkippingIndex.on(table, store=store).scan("k = 1")
print(len(list(scan.plan_files())), scan.to_pandas()["k"].tolist())
print([name for name in ("pyspark", "py4j", "delta", "rewrite") if name in sys.modules])
"""
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parents[3]), "PATH": ""},
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["1 [1]", "[]"]
