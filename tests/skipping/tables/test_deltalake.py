"""Delta tables without Spark: what delta-rs lists, and an index in this process."""

from __future__ import annotations

import json
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from providers import Compare
from providers.errors import Conflict, DefinitionError, SettingError, StatementError, TableError
from skipping import SkippingIndex
from skipping.__main__ import main
from skipping.sources.deltalake import delta_path_source
from skipping.stores.memory.store import MemoryStore
from skipping.tables.delta.deltalake import DeltaLakeTable
from tests.conftest import RunPython
from tests.skipping.tables.formats import SPECIAL, paths
from tests.skipping.tables.local import COLUMNS, rows, run_without_spark
from tests.skipping.tables.made_delta import hand_made, local, make


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "a b" / "t"


class TestTable:
    def test_files_changes_and_versions(self, folder: Path) -> None:
        table = DeltaLakeTable(make(folder, files=3))
        assert [len(table.files(v)) for v in range(3)] == [1, 2, 3]
        assert [len(table.changes(v, 2) or ()) for v in range(-1, 3)] == [3, 2, 1, 0]
        assert table.changes(2, 3) is None, "it is not there yet"
        assert table.name == f"delta.`file:{folder}`"
        assert (table.id.format, table.id.root) == ("delta", f"file:{folder}")
        with pytest.raises(TableError, match="cannot read table"):
            table.files(3)
        first, second, _ = sorted((folder / "_delta_log").glob("*.json"))
        second.write_text(second.read_text()[:-50])
        assert table.changes(0, 1) is None, "a broken commit is a gap"
        first.unlink()
        assert table.changes(-1, 0) is None

    def test_paths_and_sizes_are_those_of_the_files(self, folder: Path) -> None:
        values = [*SPECIAL, None, ""]
        written = pa.table({"k": range(len(values)), "p": values})
        write_deltalake(folder, written, partition_by=["p"])
        table = DeltaLakeTable(DeltaTable(folder))
        files = table.files()
        assert paths(files) == sorted(f"file:{path}" for path in folder.glob("p=*/*.parquet"))
        assert paths(table.changes(-1, 0)) == paths(files)
        for file in files.to_pylist():
            assert local(file["path"]).stat().st_size == file["size"]
        found = [dict(file["partition"]).get("p", "?") for file in files.to_pylist()]
        assert sorted(found) == sorted([*SPECIAL, "?", "?"]), "null or empty: delta-rs says null"
        told = table.changes(-1, 0)
        assert told is not None
        assert {dict(pairs)["p"] for pairs in told["partition"].to_pylist()} == {*values}

    @pytest.mark.parametrize(
        ("type", "logged", "given"),
        [
            ("integer", "7", "7"),
            ("integer", None, None),
            ("integer", "", None),
            ("date", "0001-01-01", "0001-01-01"),
            ("double", "1.0E10", "1.0E10"),
            ("double", "-Infinity", "-Infinity"),
            ("float", "NaN", "NaN"),
            ("boolean", "true", "true"),
            ("decimal(10,2)", "-0.01", "-0.01"),
            ("string", "x y", "x y"),
            ("string", "", "left out"),
            ("timestamp", "2024-05-01 10:00:00", "left out"),
            ("timestamp", "2024-05-01T10:00:00Z", "left out"),
            ("binary", "ab", "left out"),
        ],
    )
    def test_partition_values_are_those_of_the_log(
        self, folder: Path, type: str, logged: str | None, given: str | None
    ) -> None:
        fields = [{"name": "k", "type": "integer"}, {"name": "a.b", "type": type}]
        hand_made(folder, fields, [("f", {"a.b": logged})], partitionColumns=["a.b"])
        table = DeltaLakeTable(DeltaTable(folder))
        (file,) = table.files().to_pylist()
        value = dict(file["partition"]).get("`a.b`", "left out")
        if type == "double" and value and value[0].isdigit():
            assert float(value) == float(logged or "")
        else:
            assert value == given

    def test_absolute_paths_in_the_log(self, folder: Path, tmp_path: Path) -> None:
        away = tmp_path / "else where%"
        away.mkdir()
        pq.write_table(pa.table({"k": [5]}), away / "x y.parquet")
        quoted = str(away / "x y.parquet").replace("%", "%25").replace(" ", "%20")
        adds = [(f"{prefix}{quoted}", {}) for prefix in ("file:", "file://")]
        hand_made(folder, [{"name": "k", "type": "long"}], adds)
        table = DeltaTable(folder)
        assert set(paths(DeltaLakeTable(table).files())) == {f"file:{away}/x y.parquet"}

    def test_where_chooses_by_partitions_and_statistics(self, folder: Path) -> None:
        for k in range(4):
            written = pa.table({"k": [k], "P q": ["ab"[k % 2]], "st": [{"a": k}]})
            write_deltalake(folder, written, mode="append", partition_by=["P q"])
        table = DeltaLakeTable(DeltaTable(folder))
        for where, count in {
            "`p q` = 'a'": 2,
            "K >= 2": 2,
            "`P q` = 'a' AND k >= 2": 1,
            "k = 7": 0,
            "1 = 0": 0,
            "k IS NULL OR k <= 9": 4,
            "NOT (k < 3)": 1,
            "k BETWEEN 1 AND 2": 2,
            "k NOT IN (0, 1)": 2,
            "st.a = 3": 1,
            "k <=> 1": 1,
            "`P q` LIKE 'b%'": 2,
            "`P q` NOT LIKE 'b%'": 2,
        }.items():
            assert len(table.files(where=where)) == count, where
        assert len(table.files(1, where="k >= 1")) == 1
        for wrong, says in {
            "nope = 1": "nope",
            "k >": "ends too early",
            "`P q` LIKE '%a'": "only with 'prefix%'",
        }.items():
            with pytest.raises((DefinitionError, StatementError), match=says):
                table.files(where=wrong)

    def test_what_is_gone_is_not_retained(self, folder: Path) -> None:
        table = DeltaLakeTable(make(folder, files=1))
        (dead,) = paths(table.files())
        write_deltalake(folder, rows(1), mode="overwrite")
        (live,) = paths(table.files())
        asked = pa.array([dead, "file:/nowhere", live])
        assert table.find_reachable(asked).to_pylist() == [True, False, True]
        local(dead).unlink()
        assert table.find_reachable(asked).to_pylist() == [False, False, True]

    @pytest.mark.parametrize(
        ("protocol", "says"),
        [
            ({"minReaderVersion": 9, "minWriterVersion": 9}, "reader version 9"),
            (
                {
                    "minReaderVersion": 3,
                    "minWriterVersion": 7,
                    "readerFeatures": ["fancy"],
                    "writerFeatures": ["fancy"],
                },
                "'fancy' is not supported",
            ),
        ],
    )
    def test_what_delta_rs_cannot_read_is_named(
        self, folder: Path, store: MemoryStore, protocol: Any, says: str
    ) -> None:
        made = make(folder, files=1)
        index = SkippingIndex.create(made, "k MIN_MAX", store=store)
        commit = folder / "_delta_log" / f"{1:020d}.json"
        commit.write_text(json.dumps({"protocol": protocol}))
        for ask in (index.refresh, lambda: index.lookup("k = 1"), index.table.columns):
            with pytest.raises(TableError, match=says):
                ask()
        with pytest.raises(TableError, match=says):
            delta_path_source(str(folder))

    def test_columns_without_an_index_say_why(self, folder: Path) -> None:
        padded = {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}
        collated = {"__COLLATIONS": {"c": "spark.UTF8_LCASE"}}
        fields = [
            {"name": "c", "type": "string", "metadata": collated},
            {"name": "p", "type": "string", "metadata": padded},
            {"name": "l", "type": {"type": "array", "elementType": "long", "containsNull": True}},
            *(
                {**field, "type": {"type": "array", "elementType": "string", "containsNull": True}}
                for field in (
                    {"name": "lc", "metadata": {"__COLLATIONS": {"lc.element": "spark.UNICODE"}}},
                    {"name": "lp", "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "array<char(5)>"}},
                    {"name": "lv", "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "array<varchar(5)>"}},
                )
            ),
            {"name": "b", "type": "byte", "metadata": {"EXISTS_DEFAULT": "5"}},
        ]
        columns = DeltaLakeTable(DeltaTable(hand_made(folder, fields))).columns()
        assert {name: c.refusal for name, c in columns.items()} == {
            "c": "c is string collate UTF8_LCASE, which cannot be indexed",
            "p": "p is char(5), whose values are compared with padding; make it a STRING",
            "l": "arrays can be indexed by their elements only: l is array<bigint>",
            "lc": "arrays cannot be indexed: lc is array<string>",
            "lp": "arrays cannot be indexed: lp is array<string>",
            "lv": "arrays can be indexed by their elements only: lv is array<string>",
            "b": None,
        }
        assert columns["b"].physical.backfilled
        assert columns["b"].type == "tinyint"


class TestIndex:
    def test_create_refresh_look_up_and_why(self, folder: Path, store: MemoryStore) -> None:
        table = make(folder)
        index = SkippingIndex.create(table, COLUMNS, store=store)
        assert (index.state.covered, len(index.files())) == (3, 4)
        assert index.lookup("k = 1").kept == 1
        why = index.why(Compare("k", "=", 1))
        assert why["pruned"].to_pylist().count(True) == 3
        write_deltalake(folder, rows(7), mode="append")
        again = SkippingIndex.on(DeltaTable(folder), store=store)
        assert again.lookup("k = 7").unknown == 1
        assert [len(again.pending()), again.refresh().covered] == [1, 4]
        assert again.lookup("k = 7").kept == 1
        with pytest.raises(Conflict):
            SkippingIndex.create(table, "s MIN_MAX", store=store)
        again.drop()
        with pytest.raises(DefinitionError, match="no skipping index"):
            SkippingIndex.on(table, store=store)

    def test_an_interrupt_ends_the_build_and_is_what_describe_shows(
        self, folder: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table, read = make(folder, files=20), []
        monkeypatch.setattr("os.cpu_count", lambda: 1)

        def sketch(file: pa.RecordBatch, *_: Any, **__: Any) -> pa.RecordBatch:
            read.append(file)
            if file is read[0]:
                os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(0.2)
            return file

        monkeypatch.setattr("skipping.indexing.local.sketch_files", sketch)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt):
                SkippingIndex.create(table, COLUMNS, store=store)
        finally:
            signal.signal(signal.SIGINT, before)
        assert len(read) < 12
        state = SkippingIndex.on(table, store=store).state
        assert (state.status, state.error) == ("failed", "KeyboardInterrupt")

    def test_it_follows_what_delta_rs_does_to_a_table(
        self, folder: Path, store: MemoryStore
    ) -> None:
        table = make(folder)
        index = SkippingIndex.create(table, "k VALUE_LIST", store=store)
        before = {row["path"] for row in index.files().to_pylist()}
        table.optimize.compact()
        index.refresh()
        assert (index.lookup("k = 2").total, index.lookup("k = 2").unknown) == (1, 0)
        table.delete("k = 2")
        index.refresh()
        assert index.lookup("k = 2").kept == 0, "the file was written anew"
        write_deltalake(folder, rows(9), mode="overwrite")
        index.refresh()
        assert index.lookup("k = 9").kept == 1
        assert index.vacuum() == 0, "older versions can be read"
        newest = DeltaTable(folder)
        newest.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        assert not any(local(path).exists() for path in before)
        assert index.vacuum() == 6
        assert len(index.files()) == 1

    def test_a_replaced_table_is_another_one(self, folder: Path, store: MemoryStore) -> None:
        index = SkippingIndex.create(make(folder), "k VALUE_LIST, s NGRAM", store=store)
        (folder / "_delta_log").rename(folder / "old")
        anew = {"x": [1], "k": pa.array([7], pa.int64()), "s": [1]}
        write_deltalake(folder, pa.table(anew))
        assert index.replaced
        again = SkippingIndex.on(DeltaTable(folder), store=store)
        assert again.lookup("k = 1").unknown == 1
        again.refresh()
        assert [c.type for c in again.definition.columns] == ["bigint", "string"]
        assert "unknown in new files: NGRAM requires a STRING column" in (
            again.describe()["column s"] or ""
        )
        assert again.lookup("k = 1").kept == 0

    @pytest.mark.parametrize("kind", ["NGRAM", "ADDRESSES"])
    def test_a_column_made_anew_with_a_type_that_its_index_type_does_not_take(
        self, tmp_path: Path, store: MemoryStore, kind: str
    ) -> None:
        """It is unknown in new files; the others are indexed on."""
        folder = tmp_path / "t"
        write_deltalake(folder, pa.table({"s": ["10.0.0.1"], "k": [1]}))
        index = SkippingIndex.create(DeltaTable(folder), f"s {kind}, k MIN_MAX", store=store)
        for i in range(2, 5):
            anew = {"s": [i], "k": [i]}
            mode = (
                {"mode": "overwrite", "schema_mode": "overwrite"} if i == 2 else {"mode": "append"}
            )
            write_deltalake(folder, pa.table(anew), **mode)  # type: ignore[arg-type]
        facts = index.describe()
        assert (
            f"string {kind}, known in 1, unknown in new files: {kind} requires a STRING column"
            in (facts["column s"] or "")
        )
        assert index.refresh().status == "active"
        index.add("k VALUE_LIST")
        assert (index.state.status, index.state.error) == ("active", None)
        index = SkippingIndex.on(DeltaTable(folder), store=store)
        assert len(index.scan("k = 3").plan_files()) == 1
        assert len(index.scan("s = 3").plan_files()) == 3, "unknown"
        before = SkippingIndex.on(DeltaTable(folder, version=0), store=store)
        assert before.scan("s = '10.0.0.2'").plan_files() == []
        assert index.pending().num_rows == 0
        # An earlier release added the column, and each refresh failed.
        stuck = replace(index.definition.columns[0], number=7, type="bigint")
        index.alter(lambda d: replace(d, columns=(*d.columns, stuck)))
        write_deltalake(folder, pa.table({"s": [5], "k": [5]}), mode="append")
        index.refresh()
        index = SkippingIndex.on(DeltaTable(folder), store=store)
        assert len(index.scan("k = 5").plan_files()) == 1

    def test_a_column_whose_type_is_text_again_is_indexed_on(
        self, folder: Path, store: MemoryStore
    ) -> None:
        write_deltalake(folder, pa.table({"s": ["xyz"], "k": [1]}))
        index = SkippingIndex.create(DeltaTable(folder), "s NGRAM, k MIN_MAX", store=store)
        for i, value in enumerate(([1], ["abcd"])):
            anew = pa.table({"s": value, "k": [100 + i]})
            write_deltalake(folder, anew, mode="overwrite", schema_mode="overwrite")
            index.refresh()
        assert "unknown in new files" not in (index.describe()["column s"] or "")
        newest = SkippingIndex.on(DeltaTable(folder), store=store)
        assert newest.scan("s LIKE '%xyz%'").plan_files() == []
        assert len(newest.scan("s LIKE '%abc%'").plan_files()) == 1

    def test_a_file_of_another_size_is_unknown(self, folder: Path, store: MemoryStore) -> None:
        index = SkippingIndex.create(make(folder), "k VALUE_LIST", store=store)
        commit = folder / "_delta_log" / f"{1:020d}.json"
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if "add" in action:
                action["add"]["size"] += 1
        commit.write_text("\n".join(map(json.dumps, actions)))
        assert (index.lookup("k = 7").kept, index.lookup("k = 7").unknown) == (1, 1)
        assert len(index.scan("k = 7").plan_files()) == 1

    def test_empty_text_and_null_are_not_mixed_up(self, folder: Path, store: MemoryStore) -> None:
        """Spark reads an empty text of the log as it stands, delta-rs as null: neither is lost."""
        for p in ("", None, "x"):
            written = pa.table({"k": [1], "p": pa.array([p], pa.string())})
            write_deltalake(folder, written, mode="append", partition_by=["p"])
        table = DeltaTable(folder)
        index = SkippingIndex.create(table, "p VALUE_LIST", store=store)
        assert index.lookup("p = ''").kept == 2
        assert index.lookup("p IS NULL").kept == 2
        assert index.lookup("p = 'x'").kept == 3
        write_deltalake(folder, pa.table({"k": [2], "p": [""]}), mode="append", partition_by=["p"])
        index.refresh()
        assert index.lookup("p IS NULL").kept == 3
        assert index.lookup("p = ''").kept == 3
        assert SkippingIndex.on(DeltaTable(folder), store=store).scan("p IS NULL").count() == 3

    def test_what_is_given_wrong(self, folder: Path, store: MemoryStore) -> None:
        table = make(folder, files=1)
        with pytest.raises(SettingError, match="pass store="):
            SkippingIndex.on(table)
        wrong: Any = object()
        with pytest.raises(TableError, match="object is not a PyIceberg table, a DeltaT"):
            SkippingIndex.on(wrong, store=store)
        with pytest.raises(DefinitionError, match="st is a struct; name its leaves"):
            SkippingIndex.create(table, "st MIN_MAX", store=store)
        index = SkippingIndex.create(table, "k MIN_MAX", store=store)
        with pytest.raises(TableError, match="was opened without Spark"):
            _ = index.spark
        (folder / "_delta_log").rename(folder / "old")
        with pytest.raises(TableError, match="cannot read table"):
            index.refresh()


def test_no_spark_and_no_java_is_needed(run_python: RunPython, tmp_path: Path) -> None:
    program = f"""
import sys
import skipping
assert "deltalake" not in sys.modules
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from skipping import SkippingIndex
for k in range(3):
    write_deltalake("{tmp_path}/t", pa.table({{"k": [k]}}), mode="append")
store = "sqlite:{tmp_path}/index.sqlite"
SkippingIndex.create(DeltaTable("{tmp_path}/t"), "k VALUE_LIST", store=store)
scan = SkippingIndex.on(DeltaTable("{tmp_path}/t"), store=store).scan("k = 1")
print(len(scan.plan_files()), scan.to_pandas()["k"].tolist())
others = ["pyiceberg"]
"""
    assert run_without_spark(run_python, program, tmp_path) == ["1 [1]", "[]"]


class TestCommand:
    @pytest.fixture
    def store_url(self, tmp_path: Path) -> str:
        return f"sqlite:{tmp_path}/index.sqlite"

    def test_refresh_of_a_path(
        self, folder: Path, store_url: str, capsys: Any, monkeypatch: Any
    ) -> None:
        SkippingIndex.create(make(folder, files=1), "k VALUE_LIST", store=store_url)
        write_deltalake(folder, rows(1), mode="append")
        options = ["--without-spark", "--conf", f"spark.skipping.store={store_url}"]
        assert main(["refresh", str(folder), *options]) == 0
        assert f"[1/1] delta.`{folder}`: 1 files, covers version 1" in capsys.readouterr().out
        write_deltalake(folder, rows(2), mode="append")
        monkeypatch.setenv("SKIPPING_STORE", store_url)
        monkeypatch.chdir(folder.parent)
        assert main(["refresh", folder.name, "--without-spark"]) == 0, "a relative path"
        assert main(["refresh", f"./{folder.name}/", "--without-spark"]) == 0
        assert main(["refresh", f"delta.`{folder}`", "--without-spark"]) == 0
        write_deltalake(folder, rows(3), mode="append")
        assert main(["refresh", "--all", "--without-spark"]) == 0
        assert "covers version 3" in capsys.readouterr().out

    def test_what_fails_is_said(self, folder: Path, store_url: str, capsys: Any) -> None:
        make(folder, files=1)
        options = ["--without-spark", "--conf", f"spark.skipping.store={store_url}"]
        assert main(["refresh", str(folder), str(folder.parent), "db.t", *options]) == 1
        said = capsys.readouterr().err
        assert "has no skipping index" in said
        assert f"parquet.`{folder.parent}` has no skipping index" in said, (
            "it has no log of Delta's"
        )
        assert "db.t is not an absolute path or URL" in said
        assert main(["refresh", "--all", "--without-spark"]) == 1
        assert "pass store=" in capsys.readouterr().err
        with pytest.raises(SystemExit) as ended:
            main(["refresh", str(folder), "--without-spark", "--conf", "spark.master=local"])
        assert ended.value.code == 2
        assert "spark.master requires a Spark session" in capsys.readouterr().err


def test_a_path_that_delta_rs_takes_for_another(tmp_path: Path) -> None:
    """It unquotes twice, and so mixes up two folders."""
    for name in ("x y%20z", "x y z", "x% é"):
        hand_made(tmp_path / name, [{"name": "k", "type": "long"}])
    with pytest.raises(TableError, match="decodes %20 in the path"):
        delta_path_source(f"{tmp_path}/x y%20z")
    for name in ("x y z", "x% é"):
        opened = delta_path_source(f"{tmp_path}/{name}").table
        assert opened.name == f"delta.`file:{tmp_path}/{name}`"
        assert opened.version() == 0
