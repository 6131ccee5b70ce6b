"""Parquet folders without Spark: what pyarrow lists, an index in this process, cut scans."""

from __future__ import annotations

import os
import time
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from providers.errors import Conflict, DefinitionError, SettingError, TableError, WrongAnswer
from skipping import SkippingIndex
from skipping.__main__ import main
from skipping.filters.polars import is_elementwise
from skipping.indexing.parquet_columns import Found
from skipping.indexing.parquet_reader import find_place
from skipping.stores.memory.store import MemoryStore
from skipping.tables import PhysicalColumn, TableColumn
from skipping.tables.parquet.pyarrow import ParquetFolder
from tests.conftest import RunPython
from tests.object_store import ACCESS, BUCKET, SECRET, ObjectStore
from tests.skipping.tables.formats import paths
from tests.skipping.tables.local import COLUMNS, plain, rows, run_without_spark

GARBAGE = b"no parquet" * 400
OLD = time.time() - 3600


def write(path: Path, table: pa.Table, **options: Any) -> Path:
    """A file that was there long before it is indexed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)
    os.utime(path, (OLD, OLD))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four files, with what is none beside them."""
    made = tmp_path / "a b%20" / "t"
    for i in range(4):
        write(made / f"{i}.parquet", rows(i))
    for hidden in ("_SUCCESS", ".0.parquet.crc", "_temporary/0/x.parquet", "1._COPYING_"):
        (made / hidden).parent.mkdir(parents=True, exist_ok=True)
        (made / hidden).write_bytes(GARBAGE)
    (made / "empty.parquet").touch()
    return made


def parted(folder: Path, *names: str) -> Path:
    for i, name in enumerate(names):
        write(folder / name / "x.parquet", pa.table({"k": [i, i + 100], "s": [f"s{i}", None]}))
    return folder


class TestScan:
    FILTERS: ClassVar[dict[str, tuple[int, int]]] = {
        "k = 1": (1, 1),
        "k IN (2, 12)": (2, 1),
        "s = 's3' OR st.t.y = 'y1'": (2, 2),
        "st.a >= 3": (1, 1),
        "day = '2024-01-02'": (3, 1),
        "ts >= TIMESTAMP '2024-01-01 02:00:00Z'": (6, 2),
        "x > 1e300": (4, 4),
        "d = 2.50": (3, 1),
        "b = true": (2, 2),
        "k IS NULL": (4, 4),
        "k = 99": (0, 0),
    }

    def test_it_gives_the_rows_of_fewer_files(self, folder: Path, store: MemoryStore) -> None:
        index = SkippingIndex.create(folder, COLUMNS, store=store)
        whole = index.scan().to_arrow()
        assert plain(whole) == plain(pa.concat_tables(map(rows, range(4))))
        for given, (count, files) in self.FILTERS.items():
            scan = index.scan(given)
            assert (scan.count(), len(scan.to_arrow())) == (count, count), given
            assert len(scan.plan_files()) == files, given
            assert scan.verify().rows == count
        assert index.lookup("k = 1").unknown == 0

    def test_all_that_a_scan_can_do(self, folder: Path, store: MemoryStore) -> None:
        index = SkippingIndex.create(str(folder), "k VALUE_LIST", store=store)
        scan = index.scan("k IN (1, 2)", selected_fields=("s",), limit=1)
        assert scan.to_arrow().to_pylist() == [{"s": "s1"}]
        assert scan.to_pandas()["s"].tolist() == ["s1"]
        assert scan.to_arrow_batch_reader().read_all().column_names == ["s"]
        assert scan.plan_files() == [f"file:{folder}/{i}.parquet" for i in (1, 2)]

    def test_only_files_with_a_match_are_opened(self, folder: Path, store: MemoryStore) -> None:
        index = SkippingIndex.create(folder, "k VALUE_LIST", store=store)
        # 0.parquet says what columns there are.
        for i in (1, 3):
            path = folder / f"{i}.parquet"
            path.write_bytes(GARBAGE[:10] * (path.stat().st_size // 10 + 1))
            os.truncate(path, (folder / f"{i}.parquet").stat().st_size)
        files = {f["path"][-9:]: f["pruned"] for f in index.why("k = 2").to_pylist()}
        assert files["2.parquet"] is False
        changed = index.lookup("k = 2").unknown
        assert changed == 2, "they have another size or time: nobody knows of them"
        with pytest.raises(TableError, match="cannot read file:"):
            index.scan("k = 2").to_arrow()

    def test_a_file_that_was_replaced_is_read(self, folder: Path, store: MemoryStore) -> None:
        index = SkippingIndex.create(folder, "k VALUE_LIST", store=store)
        assert index.scan("k = 7").count() == 0
        path = folder / "1.parquet"
        pq.write_table(rows(7), path)
        assert index.scan("k = 7").count() == 1
        assert repr(index).endswith("files were added, changed or removed>")
        os.utime(path, (OLD + 60, OLD + 60))
        index.refresh()
        assert len(index.scan("k = 7").plan_files()) == 1
        assert index.lookup("k = 7").unknown == 0
        path.unlink()
        assert index.scan("k = 7").plan_files() == []
        assert index.vacuum() == 2, "the old file at the path, and the new one"
        assert index.verify("k = 0").rows == 1

    def test_a_scan_is_of_the_files_as_they_were_listed(
        self, folder: Path, store: MemoryStore
    ) -> None:
        """Else the rows were of two states: of files that stayed away as they were before."""
        index = SkippingIndex.create(folder, "k VALUE_LIST", store=store)
        table = index.scan().to_dataset()  # as an engine's view keeps it
        write(folder / "1.parquet", rows(7))
        os.utime(folder / "1.parquet", (OLD + 60, OLD + 60))
        assert table.count_rows(filter=pc.field("k") == 7) == 0
        with pytest.raises(TableError, match=r"1\.parquet was written since the folder was listed"):
            table.count_rows(filter=pc.field("k") == 1)
        assert index.scan("k = 7").count() == 1

    def test_a_wrong_entry_is_named(self, folder: Path, store: MemoryStore) -> None:
        """Another content of one size and time: nothing tells, but verify."""
        index = SkippingIndex.create(folder, "k VALUE_LIST", store=store)
        size = (folder / "3.parquet").stat().st_size
        write(folder / "3.parquet", rows(5))
        assert (folder / "3.parquet").stat().st_size == size
        assert index.lookup("k = 5").unknown == 0
        with pytest.raises(WrongAnswer, match=rf"file:{folder}/3\.parquet: 1"):
            index.verify("k = 5")


class TestPartitions:
    def test_values_are_those_of_the_folders(self, tmp_path: Path, store: MemoryStore) -> None:
        day = "day=2024-01-0"
        table = parted(
            tmp_path / "t",
            f"p=7/{day}1/q=a%2Fb",
            f"p=007/{day}2/q=1",
            f"p=8/{day}1/q=__HIVE_DEFAULT_PARTITION__",
        )
        index = SkippingIndex.create(table, "p PARTITION, day MIN_MAX, q VALUE_LIST", store=store)
        kinds = {n: (c.type, c.partition) for n, c in index.table.columns().items()}
        assert kinds == {
            "k": ("bigint", False),
            "s": ("string", False),
            "p": ("int", True),
            "day": ("date", True),
            "q": ("string", True),
        }
        found = index.scan("p = 7 AND k < 100").to_arrow()
        assert [(r["k"], str(r["day"]), r["q"]) for r in found.to_pylist()] == [
            (1, "2024-01-02", "1"),
            (0, "2024-01-01", "a/b"),
        ]
        for given, count in {"q = 'a/b'": 1, "q IS NULL": 1, "day = '2024-01-02'": 1}.items():
            assert len(index.scan(given).plan_files()) == count
            assert index.verify(given).rows == 2
        assert index.scan("p = 9").plan_files() == []

    def test_a_partition_of_nulls_only(self, tmp_path: Path, store: MemoryStore) -> None:
        table = parted(tmp_path / "t", "p=__HIVE_DEFAULT_PARTITION__")
        index = SkippingIndex.create(table, "k VALUE_LIST", store=store)
        assert index.table.columns()["p"].refusal == "p is void, which cannot be indexed"
        assert index.scan("k = 0").to_arrow().to_pylist() == [{"k": 0, "s": "s0", "p": None}]

    @pytest.mark.parametrize(
        ("names", "says"),
        [
            (("p=1.5",), "partition column p .* has the value '1.5', whose type only Spark"),
            (("p=1e5", "p=2"), "the value '1e5'"),
            (("p=2024-01-01 00:00:00",), "whose type only Spark can infer"),
            (("p=NaN",), "the value 'NaN'"),
            (("p=2024-02-30",), "the value '2024-02-30'"),
            (("p=12345678901234567890",), "whose type only Spark can infer"),
            (("p=",), "a partition without a value"),
            (
                ("p=%C3%A9",),
                "has %C3 in the name of a partition, %C3%A9, which Spark reads differently",
            ),
            (("p=%31",), "the value '%31', whose type only Spark"),
            (("p=1", "q=1"), "is partitioned in several ways"),
            (("p=1", "p=1/q=2"), "is partitioned in several ways"),
            (("p=1", "."), "is partitioned in several ways"),
            (
                ("deeper",),
                "in a folder that is not a partition, which Spark does not read: deeper/x",
            ),
            (("p=1/P=2",), "partition columns with the same name"),
            (("k=1",), "has a column twice, or one with the name of a partition column"),
            (("_delta_log",), "is a Delta table: give it as a DeltaTable"),
            (("_hidden",), "has no Parquet files"),
        ],
    )
    def test_what_spark_may_read_otherwise_is_refused(
        self, tmp_path: Path, store: MemoryStore, names: tuple[str, ...], says: str
    ) -> None:
        with pytest.raises(TableError, match=says):
            SkippingIndex.create(parted(tmp_path / "t", *names), "s VALUE_LIST", store=store)


class TestFiles:
    """Those that are not of one schema: unknown to the index, or refused by name when read."""

    def test_columns_that_a_file_lacks_are_null(self, tmp_path: Path, store: MemoryStore) -> None:
        write(tmp_path / "0.parquet", pa.table({"k": [1], "s": ["a"]}))
        write(tmp_path / "1.parquet", pa.table({"s": ["b"], "more": [1]}))
        index = SkippingIndex.create(tmp_path, "k VALUE_LIST, s VALUE_LIST", store=store)
        assert index.scan("k IS NULL").to_arrow().to_pylist() == [{"k": None, "s": "b"}]
        assert len(index.scan("k IS NULL").plan_files()) == 1

    @pytest.mark.parametrize(
        ("written", "options", "says"),
        [
            ({"k": ["1"]}, {}, "k is string in .*1.parquet, and int64 in .*0.parquet"),
            ({"k": [1.5]}, {}, "k is double in"),
            ({"k": [7], "n": [2**40]}, {}, "n is int64 in .*1.parquet, and int32 in"),
            ({"K": [1]}, {}, "1.parquet has K$"),
            ({"k": [1], "K": [1]}, {}, "1.parquet has k, K$"),
            (
                {"k": [1], "t": pa.array([1], pa.timestamp("us"))},
                {"use_deprecated_int96_timestamps": True},
                "t has INT96 times in",
            ),
        ],
    )
    def test_others_are_refused_by_name(
        self, tmp_path: Path, store: MemoryStore, written: Any, options: Any, says: str
    ) -> None:
        first = {
            "k": [7],
            "t": pa.array([1], pa.timestamp("us")),
            "o": ["0"],
            "n": pa.array([0], pa.int32()),
        }
        write(tmp_path / "0.parquet", pa.table(first))
        write(tmp_path / "1.parquet", pa.table(written), **options)
        index = SkippingIndex.create(tmp_path, "k VALUE_LIST, t MIN_MAX", store=store)
        with pytest.raises(TableError, match=says):
            index.scan().to_arrow()
        assert index.scan().select("o").to_arrow()["o"].to_pylist() == ["0", None]
        if says.startswith("k"):
            assert len(index.scan("k = 5").plan_files()) == 1, "unknown, so it is read"

    def test_narrower_numbers_are_read(self, tmp_path: Path, store: MemoryStore) -> None:
        write(tmp_path / "0.parquet", pa.table({"k": [2**40], "x": [0.1]}))
        narrow = {"k": pa.array([5], pa.int32()), "x": pa.array([0.5], pa.float32())}
        write(tmp_path / "1.parquet", pa.table(narrow))
        index = SkippingIndex.create(tmp_path, "k VALUE_LIST, x MIN_MAX", store=store)
        assert index.scan("k = 5").to_arrow().to_pylist() == [{"k": 5, "x": 0.5}]
        assert len(index.scan("k = 5 AND x > 0.2").plan_files()) == 1
        assert index.verify("k < 6").rows == 1

    def test_dates_of_the_old_calendar_are_refused(
        self, tmp_path: Path, store: MemoryStore
    ) -> None:
        for key, value in (("legacyDateTime", ""), ("version", "2.4.8")):
            table = pa.table({"k": [1], "d": pa.array([1], pa.date32())})
            marked = table.replace_schema_metadata({f"org.apache.spark.{key}": value})
            write(tmp_path / key / "0.parquet", marked)
            scan = SkippingIndex.create(tmp_path / key, "k VALUE_LIST", store=store).scan("k = 1")
            with pytest.raises(TableError, match="d may have dates of the calendar before Spark 3"):
                scan.to_arrow()
            assert scan.select("k").count() == 1

    def test_a_file_that_is_none(self, tmp_path: Path, store: MemoryStore) -> None:
        (tmp_path / "0.parquet").write_bytes(GARBAGE)
        with pytest.raises(TableError, match=r"cannot read file:.*0\.parquet"):
            SkippingIndex.create(tmp_path, "k VALUE_LIST", store=store)

    def test_types_of_other_writers(self, tmp_path: Path, store: MemoryStore) -> None:
        table = pa.table(
            {
                "u": pa.array([200], pa.uint8()),
                "w": pa.array([2**63], pa.uint64()),
                "c": pa.array(["x"]).dictionary_encode(),
                "l": pa.array(["y"], pa.large_string()),
                "ms": pa.array([1_000], pa.timestamp("ms", "Europe/Berlin")),
                "ns": pa.array([1_000], pa.timestamp("ns")),
                "list": pa.array([[1]]),
            }
        )
        write(tmp_path / "0.parquet", table)
        columns = ParquetFolder.at(tmp_path).columns()
        assert {n: c.type for n, c in columns.items() if c.refusal is None} == {
            "u": "smallint",
            "w": "decimal(20,0)",
            "c": "string",
            "l": "string",
            "ms": "timestamp",
        }
        assert columns["ns"].refusal == "ns is timestamp[ns] of Arrow, which cannot be indexed"
        index = SkippingIndex.create(tmp_path, "u MIN_MAX, c VALUE_LIST, l VALUE_LIST", store=store)
        assert index.scan("u = 200 AND c = 'x' AND l = 'y'").count() == 1
        assert index.scan("u = 7 OR w = 5").count() == 0
        assert index.scan("c = 'z'").plan_files() == []
        (row,) = index.scan("ms = TIMESTAMP '1970-01-01 00:00:01Z'").to_arrow().to_pylist()
        assert (row["w"], row["list"]) == (2**63, [1])


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each file has values of its own, of types that Spark does not have."""
    made = tmp_path_factory.mktemp("typed")
    order = pl.Enum(["z", "d", "c", "b", "a"])
    for i in range(4):
        letter, hour = "abcd"[i], 3_600 * 1_000_000 * i
        frame = pl.DataFrame({"e": pl.Series([letter, None, "z"], dtype=order)})
        columns = {
            "id": pa.array([10 * i, 10 * i + 1, 10 * i + 2]),
            "e": frame.to_arrow()["e"],
            "c": pa.array([letter, None, letter]).dictionary_encode(),
            "ts": pa.array([hour, hour + 1, None], pa.timestamp("us", "Europe/Berlin")),
            "ms": pa.array([hour // 1000, None, 0], pa.timestamp("ms", "Europe/Berlin")),
            "u8": pa.array([200 + i, i, None], pa.uint8()),
            "u32": pa.array([2**31 + i, i, None], pa.uint32()),
            "u64": pa.array([2**60 + i, i, None], pa.uint64()),
            "l": pa.array([f"l{i}", None, "x"], pa.large_string()),
        }
        enum = frame.to_arrow().schema.field("e")
        enum = enum.with_type(pa.dictionary(pa.uint8(), pa.string(), ordered=True))
        columns["e"] = columns["e"].cast(pa.string()).cast(enum.type)
        fields = [enum if n == "e" else pa.field(n, a.type) for n, a in columns.items()]
        write(made / f"{i}.parquet", pa.table(columns, schema=pa.schema(fields)))
    return made


class TestTypes:
    """Rows have the types that `pyarrow.dataset` gives, so other engines find the same rows."""

    @pytest.fixture
    def index(self, typed: Path, store: MemoryStore) -> SkippingIndex:
        names = ("id", "e", "c", "ts", "ms", "u8", "u32", "u64", "l")
        return SkippingIndex.create(
            typed, ", ".join(f"{n} VALUE_LIST, {n} MIN_MAX" for n in names), store=store
        )

    def test_rows_have_the_types_of_the_files(self, typed: Path, index: SkippingIndex) -> None:
        found = index.scan().to_arrow()
        assert found.schema.equals(ds.dataset(typed).schema)
        assert found.equals(ds.dataset(typed).to_table().select(found.column_names))
        assert index.scan().to_polars().collect().equals(pl.read_parquet(typed))

    F = pc.field
    ARROW: ClassVar[list[tuple[Any, int]]] = [
        (pc.hour(F("ts")) == 2, 4),  # of Berlin
        (F("ts") == pa.scalar(3_600_000_000, pa.timestamp("us", "UTC")), 1),
        (F("ts") < pa.scalar(1, pa.timestamp("us", "Europe/Berlin")), 1),
        (F("e") == "b", 1),
        (F("e") < "b", 4),
        (F("c").isin(["b", "nope"]), 1),
        (~F("c").isin(["b"]), 4),
        (pc.subtract(F("u8"), F("u8")) == 0, 4),
        (pc.add(F("u8"), pa.scalar(100, pa.uint8())) < 100, 4),  # wraps
        (F("u8") == 201, 1),
        (F("u8") > -1, 4),
        (F("u32") >= 2**31 + 2, 2),
        (F("u64") == 2**60 + 1, 1),
        (F("u64").isin([2**60 + 3, 1]), 2),
        (F("u64") > -1, 4),
        (F("u64") == pa.scalar(2**64 - 1, pa.uint64()), 0),
        (F("l") == "l2", 1),
    ]

    @pytest.mark.parametrize(("given", "files"), ARROW, ids=lambda value: str(value)[:40])
    def test_arrow_finds_the_same_rows(
        self, typed: Path, index: SkippingIndex, given: Any, files: int
    ) -> None:
        wanted = ds.dataset(typed).to_table(filter=given)
        scan = index.scan(given)
        assert scan.to_arrow().to_pylist() == wanted.to_pylist()
        assert len(scan.plan_files()) == files
        assert index.verify(given).rows == len(wanted)
        assert index.scan().to_dataset().to_table(filter=given).num_rows == len(wanted)

    P = pl.col
    POLARS: ClassVar[list[tuple[pl.Expr, int]]] = [
        (P("ts").dt.hour() == 1, 4),
        (P("ts") == pl.lit(datetime(1970, 1, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))), 4),
        (P("e") < "b", 4),  # in the order of the Enum
        (P("e") == "b", 1),
        (~(P("e") == "b"), 4),
        (P("e").is_in(["a", "d"]), 2),
        (P("e").is_in(pl.Series(["a"], dtype=pl.Enum(["z", "d", "c", "b", "a"])).implode()), 1),
        (P("e").is_between(pl.lit("d"), pl.lit("c")), 4),
        (P("c") >= "c", 4),
        (P("c") == "c", 1),
        (P("l").is_in(pl.Series(["l1", None]).implode()), 1),
        (P("u8") + pl.lit(100, dtype=pl.UInt8) < 100, 4),
        (P("u8") == 201, 1),
        (P("u8") > -1, 4),
        (P("u8") == pl.lit(1, dtype=pl.UInt16), 1),
        (P("u32").is_in([2**31 + 1]), 1),
        (P("u64") > 2**60 + 1, 2),
        (P("u64") == 2**64 - 1, 0),
        (~P("u64").is_in([2**60 + 3, 3]), 4),
    ]

    @pytest.mark.parametrize(("given", "files"), POLARS, ids=lambda value: str(value)[:40])
    def test_polars_finds_the_same_rows(
        self, typed: Path, index: SkippingIndex, given: pl.Expr, files: int
    ) -> None:
        # Not of `scan_parquet`, whose own skipping loses rows of sums that wrap.
        wanted = pl.read_parquet(typed).filter(given)
        if is_elementwise(given):
            scan = index.scan(given)
            assert pl.DataFrame(scan.to_arrow()).equals(wanted)
            assert len(scan.plan_files()) == files
        assert index.scan().to_polars().filter(given).collect().equals(wanted)

    SQL: ClassVar[list[str]] = [
        "e < 'b'",
        "e = 'b' OR c = 'd'",
        "c IN ('a', 'nope')",
        "c >= 'c'",
        "u8 = 201",
        "u8 > 201 AND u32 > 5",
        "u64 = 1152921504606846978",
        "u64 > 3 AND l = 'l1'",
        "l = 'l1' AND l = 'l2'",
        "ts >= TIMESTAMP '1970-01-01 02:00:00'",
        "ts IN (TIMESTAMPTZ '1970-01-01 02:00:00+01', TIMESTAMPTZ '1970-01-01 03:00:00+01')",
        "ms >= TIMESTAMP '1970-01-01 02:00:00'",
    ]

    @pytest.mark.parametrize("where", SQL)
    def test_duckdb_finds_the_same_rows(
        self, typed: Path, index: SkippingIndex, where: str
    ) -> None:
        connection = duckdb.connect(":memory:")
        connection.execute("SET TimeZone = 'Europe/Berlin'")
        connection.register("whole", ds.dataset(typed))
        index.scan().to_duckdb("rows", connection)
        found, wanted = (
            connection.sql(f"SELECT id FROM {name} WHERE {where} ORDER BY id").fetchall()
            for name in ("rows", "whole")
        )
        assert found == wanted

    def test_text_filters_and_keys(self, typed: Path, index: SkippingIndex) -> None:
        for given, count, files in (
            ("u8 = 201 OR u64 = 2", 2, 2),
            ("u64 >= 1152921504606846978", 2, 2),
            ("e > 'c' AND e < 'z'", 1, 1),  # by text, as in Spark
            ("c > 'c'", 2, 1),
            ("ts < TIMESTAMP '1970-01-01 01:00:00Z'", 2, 1),
        ):
            scan = index.scan(given)
            assert (scan.count(), len(scan.plan_files())) == (count, files), given
        order = pl.Enum(["b", "nope"])
        for name, keys, files in (
            ("e", pl.Series(["b"], dtype=order), 1),
            ("c", pl.Series(["b", "nope"], dtype=pl.Categorical), 1),
            ("l", pl.DataFrame({"l": pl.Series(["l1"], dtype=pl.Categorical)}), 1),
            ("c", pd.Series(["b", None], dtype="category"), 1),
            ("u8", [201, -1, 2**70], 1),
            ("u64", [2**60 + 1, 2**63, 2**70], 1),
            ("u64", pl.Series([2**60 + 1, 2**63]), 1),
            ("id", [10, 2**64, -(2**70), None], 1),
            ("id", pd.Series([10, 2**64, None], dtype=object), 1),
            ("id", [2**64], 0),
        ):
            scan = index.scan(keys={name: keys})
            assert len(scan.plan_files()) == files, (name, keys)
            assert scan.count() >= files
        dimension = pl.DataFrame({"e": pl.Series(["b"], dtype=order), "n": [1]})
        assert index.join(dimension, "e").to_arrow()["id"].to_pylist() == [10]

    def test_an_index_knows_unsigned_numbers(self, index: SkippingIndex) -> None:
        facts = index.describe()
        for name in ("u8", "u32", "u64"):
            assert (facts[f"column {name}"] or "").count("known in 4") == 2

    def test_files_of_one_spark_type_are_read_as_the_first(
        self, tmp_path: Path, store: MemoryStore
    ) -> None:
        """What fits is cast, as `pyarrow.dataset` does; the index has what each file has."""
        first = {"u": pa.array([7], pa.uint8()), "c": pa.array(["x"]).dictionary_encode()}
        write(tmp_path / "0.parquet", pa.table(first))
        for i, value in ((1, 8), (2, 300)):
            table = pa.table({"u": pa.array([value], pa.int16()), "c": [f"y{i}"]})
            write(tmp_path / f"{i}.parquet", table)
        index = SkippingIndex.create(tmp_path, "u MIN_MAX, c VALUE_LIST", store=store)
        assert index.scan(pc.field("c") == "y1").to_arrow().to_pylist() == [{"u": 8, "c": "y1"}]
        assert index.scan("u = 300").plan_files()[0].endswith("2.parquet")
        with pytest.raises(TableError, match=r"2\.parquet: Integer value 300 not in range"):
            index.scan("u = 300").to_arrow()

    def test_dictionaries_of_row_groups_are_too_many_values_for_one(
        self, tmp_path: Path, store: MemoryStore
    ) -> None:
        texts = [[f"{group}{i:03}" for i in range(100)] for group in "ab"]
        type = pa.dictionary(pa.int8(), pa.string())
        with pq.ParquetWriter(tmp_path / "0.parquet", pa.schema([("c", type)])) as writer:
            for group in texts:
                writer.write_table(pa.table({"c": pa.array(group).cast(type)}))
        os.utime(tmp_path / "0.parquet", (OLD, OLD))
        index = SkippingIndex.create(tmp_path, "c MIN_MAX", store=store)
        wanted = texts[0] + texts[1]
        assert index.scan().to_arrow()["c"].to_pylist() == wanted
        assert index.scan("c >= 'b'").count() == 100
        assert index.scan(keys={"c": [wanted[0], wanted[-1]]}).count() == 2
        assert index.scan(pc.field("c") == wanted[-1]).count() == 1
        assert index.scan().to_polars().collect()["c"].cast(pl.String).to_list() == wanted

    def test_unsigned_numbers_beyond_a_tables_type_are_unknown(self) -> None:
        """Spark reads 2**31 of a UINT32 as a negative INT, where the table says so."""
        file = pq.ParquetFile(_parquet(pa.table({"k": pa.array([2**31], pa.uint32())})))
        for type, id, is_known in (
            ("int", None, False),
            ("bigint", None, True),
            ("bigint", 1, False),  # of Iceberg, whose reader in Spark takes it for signed
            ("decimal(20,0)", None, False),
        ):
            column = TableColumn("k", "k", type, PhysicalColumn(("k",), id, (("k",),)))
            assert isinstance(find_place(file, column), Found) is is_known, type


def _parquet(table: pa.Table) -> pa.BufferReader:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return pa.BufferReader(sink.getvalue())


class TestArguments:
    def test_a_store_and_columns_are_given_as_people_have_them(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        folder = parted(tmp_path / "t", "p=1")
        store = tmp_path / "new" / "index.sqlite"
        index = SkippingIndex.create(folder, columns=["k MIN_MAX", "s VALUE_LIST"], store=store)
        assert index.store.location == f"sqlite:{store}"
        assert [i.kind for i in index.definition.columns] == ["MIN_MAX", "VALUE_LIST"]
        assert f"folder of the index store: folder={store.parent}" in caplog.text
        assert SkippingIndex.on(folder, store=store).definition == index.definition
        with pytest.raises(Conflict, match=r"if_not_exists=True keeps it, and SkippingIndex"):
            SkippingIndex.create(folder, "k MIN_MAX", store=store)
        with pytest.raises(DefinitionError, match="pass the columns to index: create"):
            SkippingIndex.create(folder, store=store)
        wrong: Any = 5
        with pytest.raises(SettingError, match=r"store takes an IndexStore, .* not int"):
            SkippingIndex.on(folder, store=wrong)

    def test_a_name_of_a_catalog_is_no_folder(self, store: MemoryStore) -> None:
        with pytest.raises(TableError, match=r'SkippingIndex.on\(spark, "db.flights"\)'):
            SkippingIndex.on("db.flights", store=store)

    def test_a_scan_says_how_many_files_it_opens(self, folder: Path, store: MemoryStore) -> None:
        index = SkippingIndex.create(folder, "k VALUE_LIST", store=store)
        assert repr(index.scan("k = 1")) == "<FileScan: 1 of 4 files; *>"
        few = index.scan(limit=1_000).select("k", "s")
        assert repr(few) == "<FileScan: 4 of 4 files; k, s; limit 1,000>"
        joined = repr(index.join(pa.table({"k": [1]}), "k"))
        assert joined.startswith("<JoinScan: <FileScan: 1 of 4 files; k, ")
        assert joined.endswith("> with 1 rows by k>")


class TestDatasets:
    def test_a_datasets_own_types_count(self, tmp_path: Path, store: MemoryStore) -> None:
        table = parted(tmp_path / "t", "day=2024-01-01", "day=2024-01-02")
        dataset = ds.dataset(table, partitioning="hive")
        index = SkippingIndex.create(dataset, "k VALUE_LIST, day PARTITION", store=store)
        assert index.scan().to_arrow().schema.equals(dataset.schema)
        for given in (pc.field("day") == "2024-01-02", pc.field("day") > "2024-01-01"):
            assert index.scan(given).to_arrow().num_rows == dataset.to_table(filter=given).num_rows
        assert index.scan("day = DATE '2024-01-02'").to_arrow()["k"].to_pylist() == [1, 101]
        assert index.scan(keys={"day": ["2024-01-02"]}).to_arrow()["k"].to_pylist() == [1, 101]
        assert len(index.scan("day = DATE '2024-01-02'").plan_files()) == 1
        folder = SkippingIndex.on(table, store=store)
        assert folder.scan().schema.field("day").type == pa.date32()

    def test_a_dataset_is_its_folder(
        self, tmp_path: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table = parted(tmp_path / "t x", "p=1", "p=2")
        index = SkippingIndex.create(
            ds.dataset(table, partitioning="hive"), "k VALUE_LIST, p PARTITION", store=store
        )
        assert index.table.name == f"parquet.`file:{table}`"
        assert index.scan("p = 2 AND k = 1").to_arrow().to_pylist() == [{"k": 1, "s": "s1", "p": 2}]
        monkeypatch.chdir(tmp_path)
        assert SkippingIndex.on(ds.dataset("t x"), store=store).definition == index.definition
        again = SkippingIndex.on(f"file:{table}/", store=store)
        assert again.definition == index.definition
        assert len(again.pending()) == 0

    def test_what_is_no_folder_is_refused(self, tmp_path: Path, store: MemoryStore) -> None:
        table = parted(tmp_path / "t", "p=1", "p=2")
        parted(tmp_path / "u", "p=1")
        (tmp_path / "o").mkdir()
        orc.write_table(pa.table({"k": [1]}), tmp_path / "o" / "x.orc")
        one = ds.dataset(table / "p=1" / "x.parquet")
        below = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
        for given, says in (
            (one, "exactly the files of .*p=2/x.parquet"),
            (ds.dataset([one, ds.dataset(tmp_path / "u")]), "UnionDataset does not consist of"),
            (ds.dataset(pa.table({"k": [1]})), "InMemoryDataset does not consist of"),
            (ds.dataset(tmp_path / "o", format="orc"), "not consist of Parquet files in a folder"),
            (
                ds.dataset(
                    [str(table / "p=1" / "x.parquet"), str(tmp_path / "u" / "p=1" / "x.parquet")]
                ),
                "has files of 2 folders",
            ),
            (
                ds.dataset("t", filesystem=below),
                "Spark has no name for files in a subtree file system",
            ),
        ):  # fmt: skip
            with pytest.raises(TableError, match=says):
                SkippingIndex.create(given, "k VALUE_LIST", store=store)
        for bucket in ("s3a://bucket", "s3a://bucket/"):
            with pytest.raises(TableError, match=f"{bucket} is a bucket: name a folder in it"):
                SkippingIndex.create(bucket, "k VALUE_LIST", store=store)
        with pytest.raises(TableError, match="pyarrow cannot open nope://host"):
            SkippingIndex.create("nope://host/t", "k VALUE_LIST", store=store)
        with pytest.raises(TableError, match="cannot list file:/nowhere"):
            SkippingIndex.create("/nowhere", "k VALUE_LIST", store=store)
        with pytest.raises(DefinitionError, match="does not support WHERE"):
            SkippingIndex.create(table, "k VALUE_LIST", store=store, where="k = 1")

    def test_an_object_store_with_the_datasets_own_credentials(
        self, objects: ObjectStore, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")  # S3Proxy has none
        filesystem = pafs.S3FileSystem(
            access_key=ACCESS,
            secret_key=SECRET,
            endpoint_override=f"127.0.0.1:{objects.port}",
            scheme="http",
            region="us-east-1",
        )
        for p in (1, 2):
            path = f"x y/p={p}/x.parquet"
            with filesystem.open_output_stream(f"{BUCKET}/{path}") as out:
                pq.write_table(pa.table({"k": [p - 1], "s": ["a"]}), out)
            os.utime(objects.folder / path, (OLD, OLD))
        dataset = ds.dataset(f"{BUCKET}/x y", filesystem=filesystem, partitioning="hive")
        index = SkippingIndex.create(dataset, "k VALUE_LIST", store=store)
        assert index.table.name == f"parquet.`s3a://{BUCKET}/x y`"
        assert index.lookup("k = 1").unknown == 0
        (kept,) = index.scan("k = 1").plan_files()
        assert kept == f"s3a://{BUCKET}/x y/p=2/x.parquet"
        assert index.scan("k = 1").to_arrow()["p"].to_pylist() == [2]
        assert paths(index.table.files())[1] == kept


class TestCommand:
    def test_refresh_of_a_folder(self, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
        table, address = parted(tmp_path / "t", "p=1"), f"sqlite:{tmp_path}/index.sqlite"
        SkippingIndex.create(table, "k VALUE_LIST", store=address)
        monkeypatch.setenv("SKIPPING_STORE", address)
        for i, named in enumerate([[str(table)], [f"parquet.`{table}`"], ["--all"]]):
            parted(table, *["p=1"] * 0, *[f"p={n}" for n in range(1, i + 3)])
            assert main(["refresh", *named, "--without-spark"]) == 0, capsys.readouterr().err
            assert f"[1/1] parquet.`{table}`: 1 files, covers all files" in capsys.readouterr().out
        assert len(SkippingIndex.on(table, store=address).pending()) == 0
        assert main(["refresh", str(tmp_path / "nothing"), "--without-spark"]) == 1


def test_no_spark_no_java_and_no_other_library_is_needed(
    run_python: RunPython, tmp_path: Path
) -> None:
    table = parted(tmp_path / "t", "p=1", "p=2")
    program = f"""
from skipping import SkippingIndex
index = SkippingIndex.create("{table}", "k VALUE_LIST", store="sqlite:{tmp_path}/i.sqlite")
scan = index.scan("k = 1")
print(len(scan.plan_files()), scan.to_arrow().to_pylist(), scan.verify())
others = ("deltalake", "pyiceberg")
"""
    first, second = run_without_spark(run_python, program, tmp_path)
    assert first == "1 [{'k': 1, 's': 's1', 'p': 2}] same 1 rows, opened 1 of 2 files"
    assert second == "[]"
