"""Parquet folders without Spark: what pyarrow lists, an index in this process, cut scans."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from providers.errors import DefinitionError, TableError, WrongAnswer
from skipping import SkippingIndex
from skipping.__main__ import main
from skipping.stores.memory.store import MemoryStore
from skipping.tables.folder.table import ParquetFolder
from tests.object_store import ACCESS, BUCKET, SECRET, ObjectStore
from tests.skipping.tables.formats import paths
from tests.skipping.tables.local import COLUMNS, plain, rows

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
        files = {f["path"][-9:]: f["disproved"] for f in index.why("k = 2").to_pylist()}
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
        assert repr(index).endswith("files came, changed or went behind>")
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
        assert index.table.columns()["p"].refusal == "p is void, which has no index"
        assert index.scan("k = 0").to_arrow().to_pylist() == [{"k": 0, "s": "s0", "p": None}]

    @pytest.mark.parametrize(
        ("names", "says"),
        [
            (("p=1.5",), "partition column p .* has the value '1.5', whose type only Spark"),
            (("p=1e5", "p=2"), "the value '1e5'"),
            (("p=2024-01-01 00:00:00",), "whose type only Spark can tell"),
            (("p=NaN",), "the value 'NaN'"),
            (("p=2024-02-30",), "the value '2024-02-30'"),
            (("p=12345678901234567890",), "whose type only Spark can tell"),
            (("p=",), "a partition without a value"),
            (("p=%C3%A9",), "has %C3 in the name of a partition, %C3%A9, which Spark reads as no"),
            (("p=%31",), "the value '%31', whose type only Spark"),
            (("p=1", "q=1"), "is not partitioned in one way"),
            (("p=1", "p=1/q=2"), "is not partitioned in one way"),
            (("p=1", "."), "is not partitioned in one way"),
            (("deeper",), "in a folder that is no partition, which Spark does not read: deeper/x"),
            (("p=1/P=2",), "partition columns of one name"),
            (("k=1",), "has a column twice, or one that is a partition's"),
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
            ({"K": [1]}, {}, "1.parquet has K for k"),
            ({"k": [1], "K": [1]}, {}, "1.parquet has k, K for k"),
            (
                {"k": [1], "t": pa.array([1], pa.timestamp("us"))},
                {"use_deprecated_int96_timestamps": True},
                "t is INT96 of another writer",
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
        assert columns["ns"].refusal == "ns is timestamp[ns] of Arrow, which has no index"
        index = SkippingIndex.create(tmp_path, "u MIN_MAX, c VALUE_LIST, l VALUE_LIST", store=store)
        assert index.scan("u = 200 AND c = 'x' AND l = 'y'").count() == 1
        assert index.scan("u = 7 OR w = 5").count() == 0
        assert index.scan("c = 'z'").plan_files() == []
        (row,) = index.scan("ms = TIMESTAMP '1970-01-01 00:00:01Z'").to_arrow().to_pylist()
        assert (row["w"], row["list"]) == (2**63, [1])


class TestDatasets:
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
            (one, "is not of all files of .*p=2/x.parquet"),
            (ds.dataset([one, ds.dataset(tmp_path / "u")]), "UnionDataset is not of Parquet files"),
            (ds.dataset(pa.table({"k": [1]})), "InMemoryDataset is not of Parquet"),
            (ds.dataset(tmp_path / "o", format="orc"), "is not of Parquet files in a folder"),
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
            with pytest.raises(TableError, match=f"{bucket} is no folder: name one in it"):
                SkippingIndex.create(bucket, "k VALUE_LIST", store=store)
        with pytest.raises(TableError, match="pyarrow cannot open nope://host"):
            SkippingIndex.create("nope://host/t", "k VALUE_LIST", store=store)
        with pytest.raises(TableError, match="cannot list file:/nowhere"):
            SkippingIndex.create("/nowhere", "k VALUE_LIST", store=store)
        with pytest.raises(DefinitionError, match="takes no WHERE"):
            SkippingIndex.create(table, "k VALUE_LIST", store=store, where="k = 1")

    def test_an_object_store_with_the_datasets_own_credentials(
        self, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")  # S3Proxy has none
        with ObjectStore() as objects:
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
            assert f"[1/1] parquet.`file:{table}`: 1 files" in capsys.readouterr().out
        assert len(SkippingIndex.on(table, store=address).pending()) == 0
        assert main(["refresh", str(tmp_path / "nothing"), "--without-spark"]) == 1


def test_no_spark_no_java_and_no_other_library_is_needed(tmp_path: Path) -> None:
    table = parted(tmp_path / "t", "p=1", "p=2")
    program = f"""
import sys
from skipping import SkippingIndex
index = SkippingIndex.create("{table}", "k VALUE_LIST", store="sqlite:{tmp_path}/i.sqlite")
scan = index.scan("k = 1")
print(len(scan.plan_files()), scan.to_arrow().to_pylist(), scan.verify())
others = ("pyspark", "py4j", "delta", "rewrite", "deltalake", "pyiceberg")
print([name for name in others if name in sys.modules])
"""
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parents[3]), "PATH": ""},
    )
    assert run.returncode == 0, run.stderr
    first, second = run.stdout.splitlines()
    assert first == "1 [{'k': 1, 's': 's1', 'p': 2}] same 1 rows, opened 1 of 2 files"
    assert second == "[]"
