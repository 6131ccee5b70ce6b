"""Iceberg tables without Spark: what PyIceberg lists, an index in this process, cut scans."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import Not, NotNaN, NotStartsWith, StartsWith
from pyiceberg.table import Table
from pyiceberg.types import LongType

from providers import Compare
from providers.errors import (
    Conflict,
    DefinitionError,
    SettingError,
    SkippingError,
    TableError,
)
from skipping import SkippingIndex
from skipping.stores.memory.store import MemoryStore
from tests.skipping.tables.local import COLUMNS, make, plain, rows


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
            file = pq.read_table(entry["path"].removeprefix("file://"), partitioning=None)
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
            ("big <=> 1", "does not support <=>"),
            ("s LIKE '%a'", "only with 'prefix%'"),
            ("big = big", "columns with constants"),
        ):
            with pytest.raises(SkippingError, match=says):
                SkippingIndex.create(table, "s VALUE_LIST", where=wrong, store=store)

    def test_what_is_given_wrong(self, catalog: SqlCatalog, store: MemoryStore) -> None:
        table: Any = make(catalog, files=0)
        with pytest.raises(SettingError, match="pass store="):
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
            schema.update_column("k", field_type=LongType())
            schema.delete_column("s")
        with table.update_schema() as schema:
            schema.add_column("s", LongType())
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
