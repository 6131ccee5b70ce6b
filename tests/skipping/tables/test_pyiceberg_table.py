"""A table as PyIceberg has it: files, values, versions, settings."""

from __future__ import annotations

import datetime
import logging
import re
import time
import uuid
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable, Table
from pyiceberg.types import FixedType, LongType, NestedField, UUIDType

from providers import Compare
from providers.errors import SettingError, StatementError, TableError
from skipping import SkippingIndex
from skipping.__main__ import main
from skipping.config.settings import Settings
from skipping.indexing.sketch import Work, sketch_files
from skipping.lookup import lookup
from skipping.model.definition import IndexedColumn
from skipping.stores import IDENTITY, identities
from skipping.stores import open as opening
from skipping.stores.memory.store import MemoryStore
from skipping.tables import Partitioning, PhysicalColumn, TableColumn
from skipping.tables.iceberg.pyiceberg import PyIcebergTable
from tests.conftest import RunPython
from tests.skipping.tables.formats import paths
from tests.skipping.tables.local import UTC, make, plain, rows, run_without_spark


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
        assert followed.find_reachable(pa.array([*dead, "file:///nowhere"])).to_pylist() == [
            True,
            False,
        ]
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
        *("p", "#2 `p`", "bigint"),
        PhysicalColumn(("p",), 2, imported=(("p",),)),
        Partitioning(by_value=partition, in_files=True),
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
        lookup._shared.clear()
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
        assert re.search("no file is skipped: .* in time", caplog.text)
        waited = time.monotonic() + 60
        while kept(0.2) > 1:  # each time less than it takes to read all
            assert time.monotonic() < waited

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
        assert index._query.settings.cache_ttl > 0

    def test_the_process_keeps_few(self) -> None:
        stores = [MemoryStore(str(i)) for i in range(20)]
        settings, others = (Settings(cache_ttl=ttl) for ttl in (5, 1))
        first = lookup.shared_lookup(stores[0], settings)
        assert lookup.shared_lookup(stores[0], settings) is first
        assert lookup.shared_lookup(stores[0], others) is not first
        for each in stores[1:]:
            assert lookup.shared_lookup(each, settings).store is each
        assert len(lookup._shared) == lookup._MAX_SHARED
        assert lookup.shared_lookup(stores[0], settings) is not first


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
        assert index._query.settings == Settings(store=address, timeout=7, cache_max_bytes=1024)
        assert SkippingIndex.on(table, timeout=0.5)._query.settings.timeout == 0.5
        monkeypatch.setenv("SKIPPING_TIMEOUT", "soon")
        with pytest.raises(SettingError, match="SKIPPING_TIMEOUT takes a duration"):
            SkippingIndex.on(table)

    @pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan")])
    def test_a_timeout_is_some_seconds(
        self, catalog: SqlCatalog, store: MemoryStore, timeout: float
    ) -> None:
        with pytest.raises(SettingError, match="timeout takes seconds above zero"):
            SkippingIndex.on(make(catalog, files=0), store=store, timeout=timeout)


class TestColumnsWithoutAnIndex:
    @pytest.mark.parametrize("name", ["u", "f"])
    def test_keys_of_uuids_and_fixed_bytes(
        self, catalog: SqlCatalog, store: MemoryStore, name: str
    ) -> None:
        """The index knows nothing of them; the rows are those of the keys."""
        ids = [uuid.UUID(int=i) for i in range(3)]
        schema = Schema(
            NestedField(1, "u", UUIDType()),
            NestedField(2, "f", FixedType(16)),
            NestedField(3, "k", LongType()),
        )
        table = catalog.create_table(("db", "t"), schema)
        for k, id in enumerate(ids):
            row = {"u": [id.bytes, None], "f": [id.bytes, None], "k": [k, 10 + k]}
            table.append(pa.table(row, schema=table.schema().as_arrow()))
        index = SkippingIndex.create(table, "k MIN_MAX", store=store)
        for keys in (
            [ids[1]],
            [ids[1].bytes, None],
            pa.array([ids[1].bytes], pa.binary(16)),
            table.scan("k = 1").to_arrow()[name],
            pl.Series([ids[1].bytes]),
        ):
            scan = index.scan("k < 12", keys={name: keys})
            assert scan.to_arrow()["k"].to_pylist() == [1]
            assert scan.count() == 1
        dimension = pa.table({name: pa.array([ids[2].bytes, ids[2].bytes]), "n": [1, 2]})
        joined = index.join(dimension, name).to_arrow()
        assert sorted(joined["n"].to_pylist()) == [1, 2]
        assert set(joined["k"].to_pylist()) == {2}
        with pytest.raises(TypeError, match=f"{name} is binary, but its keys are string"):
            index.scan(keys={name: [str(ids[1])]})


def test_a_filter_that_pyiceberg_cannot_read_is_named(
    catalog: SqlCatalog, store: MemoryStore
) -> None:
    index = SkippingIndex.create(make(catalog, files=1), "k VALUE_LIST", store=store)
    with pytest.raises(StatementError, match="single quotes, as in name = 'x'") as raised:
        index.scan('s = "s1"')
    assert """the filter 's = "s1"'""" in str(raised.value)
    assert len(str(raised.value)) < 300
    scan = index.scan("k = 1", selected_fields=("k", "s"), limit=7)
    assert re.fullmatch(
        r"<IndexedScan of (\w+\.)?db\.t: filter .*k.*1.*; k, s; limit 7>", repr(scan)
    )


def test_an_index_that_the_command_cannot_refresh_is_passed_over(
    catalog: SqlCatalog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:{tmp_path}/index.sqlite"
    SkippingIndex.create(make(catalog, files=1), "k VALUE_LIST", store=url)
    folder = tmp_path / "t"
    folder.mkdir()
    pq.write_table(pa.table({"k": [1]}), folder / "0.parquet")
    SkippingIndex.create(folder, "k VALUE_LIST", store=url)
    options = ["--without-spark", "--conf", f"spark.skipping.store={url}"]
    assert main(["refresh", "--all", *options]) == 0
    printed = capsys.readouterr()
    assert "[2/2] parquet." in printed.out
    assert "own.db.t: PyIceberg is not configured for the catalog own" in printed.err


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


def test_no_spark_and_no_java_is_needed(run_python: RunPython, tmp_path: Path) -> None:
    program = f"""
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
others = ()
"""
    assert run_without_spark(run_python, program, tmp_path) == ["1 [1]", "[]"]
