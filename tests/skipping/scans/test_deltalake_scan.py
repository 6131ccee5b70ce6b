"""Delta tables without Spark: the rows of cut scans, as the format has them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from providers import And, Compare, In, Unknown
from providers.errors import DefinitionError, TableError
from skipping import SkippingIndex
from skipping.stores.memory.store import MemoryStore
from tests.object_store import BUCKET, ObjectStore
from tests.skipping.tables.formats import paths
from tests.skipping.tables.local import COLUMNS, plain, rows
from tests.skipping.tables.made_delta import GARBAGE, hand_made, make


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "a b" / "t"


# How many files are read for a filter, and the filter in Python: NaN is greater than all else, and
# null is no answer.
FILTERS: dict[str, tuple[int, Callable[..., bool]]] = {
    "k = 1": (1, lambda k, **_: k == 1),
    "k in (2, 12)": (1, lambda k, **_: k in (2, 12)),
    "k not in (1, 11)": (3, lambda k, **_: k is not None and k not in (1, 11)),
    "k is null": (4, lambda k, **_: k is None),
    "big > 1099511627778": (1, lambda big, **_: big > 2**40 + 2),
    "s = 's3'": (1, lambda s, **_: s == "s3"),
    "s != 's3'": (4, lambda s, **_: s not in (None, "s3")),
    "s = 'all'": (4, lambda s, **_: s == "all"),
    "s like 's1%'": (1, lambda s, **_: s is not None and s.startswith("s1")),
    "day = '2024-01-02'": (1, lambda day, **_: day.day == 2),
    "ts >= '2024-01-01T02:00:00+00:00'": (2, lambda ts, **_: ts.hour >= 2),
    "x = 4.5": (4, lambda x, **_: x == 4.5),
    "x < -1": (0, lambda x, **_: x < -1),
    "x >= 0": (4, lambda x, **_: math.isnan(x) or x >= 0),
    "d = 2.50": (1, lambda d, **_: d == 2.5),
    "b = true": (2, lambda b, **_: b is True),
    "st.a >= 3": (1, lambda st, **_: st is not None and (st["a"] or 0) >= 3),
    "st.t.y = 'y2'": (1, lambda st, **_: st == {"a": 2, "t": {"y": "y2"}}),
    "k = 1 or st.a = 3": (2, lambda k, st, **_: k == 1 or (st is not None and st["a"] == 3)),
    "k = 99": (0, lambda k, **_: k == 99),
    "not (k < 13 and k > 2)": (4, lambda k, **_: k is not None and not 2 < k < 13),
}


class TestScan:
    @pytest.fixture(scope="class")
    @staticmethod
    def indexed(tmp_path_factory: pytest.TempPathFactory) -> tuple[DeltaTable, SkippingIndex]:
        table = make(tmp_path_factory.mktemp("scan") / "t")
        return table, SkippingIndex.create(table, COLUMNS, store=MemoryStore("scan"))

    @pytest.mark.parametrize("given", FILTERS)
    def test_it_gives_the_rows_of_fewer_files(
        self, indexed: tuple[DeltaTable, SkippingIndex], given: str
    ) -> None:
        table, index = indexed
        files, test = FILTERS[given]
        whole = pa.table(table.scan()).to_pylist()
        wanted = sorted(repr(row) for row in whole if test(**row))
        cut = index.scan(given)
        assert plain(cut.to_arrow()) == wanted
        assert len(cut.plan_files()) == files
        assert cut.count() == len(wanted)

    def test_all_that_a_scan_can_do(self, indexed: tuple[DeltaTable, SkippingIndex]) -> None:
        import duckdb

        table, index = indexed
        cut = index.scan("k = 1", selected_fields=("s",), limit=5)
        assert cut.to_pandas()["s"].tolist() == ["s1"]
        assert cut.to_polars().collect()["s"].to_list() == ["s1"]
        with duckdb.connect() as db:
            assert cut.to_duckdb("t", db).execute("SELECT s FROM t").fetchall() == [("s1",)]
        assert index.scan().select("k", "big").schema.names == ["k", "big"]
        assert index.scan(limit=5).to_arrow().num_rows == 5
        assert index.scan(limit=0).to_arrow().num_rows == 0
        keys = In.of("k", pa.array([2, 12, *range(100, 100_000)], pa.int64()))
        assert len(index.scan(keys).plan_files()) == 1
        assert index.scan(keys).count() == 2
        assert index.scan(selected_fields=("k",)).count() == 12
        assert sum(len(b) for b in index.scan("k in (0, 1)").to_arrow_batch_reader()) == 2
        assert index.scan().to_arrow().schema == pa.schema(table.schema().to_arrow())
        with pytest.raises(DefinitionError, match="no column nope"):
            index.scan("nope = 1")
        with pytest.raises(DefinitionError, match="no column nope"):
            index.scan().select("nope")
        unknown = And((Compare("k", "=", 1), Unknown("f(k)")))
        with pytest.raises(DefinitionError, match=r"condition cannot be evaluated: f\(k\)"):
            index.scan(unknown).to_arrow()
        with pytest.raises(TypeError):
            index.scan(5)

    def test_only_files_with_a_match_are_opened(self, folder: Path, store: MemoryStore) -> None:
        index = SkippingIndex.create(make(folder), "k VALUE_LIST", store=store)
        for path in folder.glob("*.parquet"):
            if pq.read_table(path)["k"][0].as_py() != 2:
                path.write_bytes(GARBAGE)
        assert index.scan("k = 2").to_arrow().num_rows == 1
        with pytest.raises(TableError, match="cannot read file:"):
            index.scan("k = 2 or big = 7").to_arrow()

    def test_time_travel_reads_the_version_that_was_given(
        self, folder: Path, store: MemoryStore
    ) -> None:
        index = SkippingIndex.create(make(folder), "k VALUE_LIST", store=store)
        write_deltalake(folder, rows(8), mode="overwrite")
        first = SkippingIndex.on(DeltaTable(folder, version=0), store=store)
        assert first.scan("k = 0").to_arrow()["s"].to_pylist() == ["s0"]
        assert first.scan("k = 8").plan_files() == []
        assert first.lookup("k = 0").unknown == 1, "the newest version, which is not indexed yet"
        assert index.scan("k = 3").count() == 1, "of its own version"
        index.refresh()
        assert first.scan("k = 0").count() == 1
        assert SkippingIndex.on(DeltaTable(folder), store=store).scan("k = 0").plan_files() == []

    def test_what_cannot_be_read_exactly_is_refused(self, folder: Path, store: MemoryStore) -> None:
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"K": [1], "n": [1]}), folder / "f.parquet")
        fields = [
            {"name": "k", "type": "long"},
            {"name": "n", "type": "long"},
            {"name": "z", "type": "long", "metadata": {"EXISTS_DEFAULT": "5"}},
            {"name": "new", "type": "string"},
        ]
        hand_made(folder, fields, [("f.parquet", {})])
        index = SkippingIndex.create(DeltaTable(folder), "n MIN_MAX, z MIN_MAX", store=store)
        assert index.lookup("z = 1").kept == 1
        assert index.scan("n = 1").select("n", "new").to_arrow().to_pylist() == [
            {"n": 1, "new": None}
        ]
        for name, says in {
            "k": "the file has K, the table expects k",
            "z": "z has a default",
        }.items():
            with pytest.raises(TableError, match=says):
                index.scan("n = 1").select(name).to_arrow()


def test_a_partition_of_bytes_is_refused(folder: Path, store: MemoryStore) -> None:
    """Its values would be the texts of the log."""
    table = pa.table({"k": [1, 2], "p": [b"a", b"\xff"]})
    write_deltalake(folder, table, partition_by=["p"])
    index = SkippingIndex.create(DeltaTable(folder), "k VALUE_LIST", store=store)
    assert index.scan("k = 2", selected_fields=("k",)).to_arrow().to_pylist() == [{"k": 2}]
    for scan in (index.scan("k = 2"), index.scan(keys={"p": [b"a"]}), index.scan("p IS NULL")):
        with pytest.raises(TableError, match="p is a partition column of bytes"):
            scan.count() if scan.tests else scan.to_arrow()


def mapped(name: str, type: Any, id: int) -> dict[str, Any]:
    """A field of a table with column mapping."""
    physical = {"delta.columnMapping.id": id, "delta.columnMapping.physicalName": f"c{id}"}
    return {"name": name, "type": type, "nullable": True, "metadata": physical}


@pytest.mark.parametrize("mode", ["id", "name"])
@pytest.mark.parametrize("ids", [True, False])
def test_nested_columns_are_found_by_id_or_physical_name(
    folder: Path, store: MemoryStore, mode: str, ids: bool
) -> None:
    """Names in the file say nothing in the mode id; here two are swapped."""

    def field(name: str, type: pa.DataType, id: int) -> pa.Field:
        return pa.field(name, type, metadata={"PARQUET:field_id": str(id)} if ids else None)

    a, b = ("c4", "c3") if mode == "id" else ("c3", "c4")
    inner = pa.struct([field(a, pa.int32(), 3), field(b, pa.int32(), 4)])
    schema = pa.schema([field("c1", pa.int64(), 1), field("c2", inner, 2)])
    written = pa.table({"c1": [1, 2], "c2": [{a: 7, b: 8}, None]}, schema)
    folder.mkdir(parents=True)
    pq.write_table(written, folder / "f.parquet")
    struct = {"type": "struct", "fields": [mapped("a", "long", 3), mapped("new", "string", 5)]}
    other = {"type": "struct", "fields": [mapped("a", "long", 6)]}
    structs = {"type": "array", "elementType": other, "containsNull": True}
    hand_made(
        folder,
        [mapped("x.y", "long", 1), mapped("st", struct, 2), mapped("l", structs, 9)],
        [("f.parquet", {})],
        {"minReaderVersion": 2, "minWriterVersion": 5},
        configuration={"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "9"},
    )
    index = SkippingIndex.create(DeltaTable(folder), "st.a MIN_MAX, `x.y` MIN_MAX", store=store)
    scan = index.scan("`x.y` = 1").select("x.y", "st", "l")
    if mode == "id" and not ids:
        with pytest.raises(TableError, match=r"no field ids, so .* cannot be found"):
            scan.to_arrow()
        assert index.lookup("st.a = 99").kept == 1
        return
    found = [{"x.y": 1, "st": {"a": 7, "new": None}, "l": None}]
    assert scan.to_arrow().to_pylist() == found
    assert index.scan("st.a = 7").count() == 1
    assert index.scan("st.a IS NULL").select("x.y").to_arrow()["x.y"].to_pylist() == [2]
    assert index.lookup("st.a = 99").kept == index.lookup("st.a = 8").kept == 0


def test_structs_in_lists_of_a_mapped_table_are_refused(folder: Path, store: MemoryStore) -> None:
    struct = {"type": "struct", "fields": [mapped("a", "long", 3)]}
    structs = {"type": "array", "elementType": struct, "containsNull": True}
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"c1": [1], "c2": [[{"c3": 5}]]}), folder / "f.parquet")
    hand_made(
        folder,
        [mapped("k", "long", 1), mapped("l", structs, 2)],
        [("f.parquet", {})],
        {"minReaderVersion": 2, "minWriterVersion": 5},
        configuration={"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"},
    )
    index = SkippingIndex.create(DeltaTable(folder), "k MIN_MAX", store=store)
    assert index.scan("k = 1").select("k").count() == 1
    with pytest.raises(TableError, match="l is of structs in a list or map"):
        index.scan("k = 1").to_arrow()


def test_an_object_store_with_the_tables_own_credentials(
    objects: ObjectStore, store: MemoryStore
) -> None:
    """Paths stay as the table's URI begins: `s3a` is what Spark calls it."""
    options = objects.options()
    root = f"s3a://{BUCKET}/x y/t"
    for i, p in enumerate(["a b", "%20", "é/x"]):
        written = pa.table({"k": [i], "p": [p]})
        write_deltalake(root, written, mode="append", partition_by=["p"], storage_options=options)
    index = SkippingIndex.create(
        DeltaTable(root, storage_options=options), "k VALUE_LIST, p VALUE_LIST", store=store
    )
    assert index.table.name == f"delta.`{root}`"
    for file in index.files().to_pylist():
        inner = objects.folder / file["path"].removeprefix(f"s3a://{BUCKET}/")
        assert inner.stat().st_size == file["size"]
        if file["path"] not in index.scan("k = 1").plan_files():
            inner.write_bytes(GARBAGE)
    assert index.scan("k = 1").to_arrow().to_pylist() == [{"k": 1, "p": "%20"}]
    table = index.table
    assert len(table.changes(-1, 2) or ()) == 3
    asked = pa.array([*paths(table.files()), f"{root}/nope"])
    assert table.find_reachable(asked).to_pylist() == [True, True, True, False]
