"""`file-skipping` without Spark: what it prints, its exit codes, and which tables it opens."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from providers.errors import StoreError, WrongAnswer
from skipping import SkippingIndex
from skipping.__main__ import main
from skipping.cli import tables
from skipping.model.definition import Definition
from skipping.model.workload import PredicateWorkload, TableWorkload, WorkloadRecord
from skipping.stores import list_definitions
from skipping.stores.open import open_store
from tests.conftest import RunPython
from tests.test_house import ROOT


@pytest.fixture(autouse=True)
def loggers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore what the options set, and allow no Spark."""
    monkeypatch.delenv("SKIPPING_STORE", raising=False)
    names = ("providers", "skipping", "rewrite", "skipping.progress")
    levels = {name: logging.getLogger(name).level for name in names}
    yield
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    logging.getLogger("skipping.progress").disabled = False


@pytest.fixture(autouse=True)
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The configurations of the sessions that commands would start."""
    started: list[dict[str, str]] = []

    @contextmanager
    def start(conf: dict[str, str], *_: object, **__: object) -> Iterator[None]:
        started.append(conf)
        raise StoreError("a session was started")
        yield

    monkeypatch.setattr(tables, "start_session", start)
    return started


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path}/index.sqlite"


@pytest.fixture
def delta(tmp_path: Path, address: str) -> Path:
    """A Delta table with two files and an index; one file is not indexed yet."""
    folder = tmp_path / "lake" / "flights"
    write_deltalake(folder, pa.table({"k": [1, 2], "s": ["a", "b"]}))
    SkippingIndex.create(DeltaTable(folder), "k VALUE_LIST, s MIN_MAX", store=address)
    write_deltalake(folder, pa.table({"k": [3, 4], "s": ["c", "d"]}), mode="append")
    return folder


@pytest.fixture
def parquet(tmp_path: Path, address: str) -> Path:
    folder = tmp_path / "lake" / "departures"
    folder.mkdir(parents=True)
    for n in range(3):
        pq.write_table(pa.table({"k": [n, n + 10]}), folder / f"{n}.parquet")
        os.utime(folder / f"{n}.parquet", (1_700_000_000, 1_700_000_000))
    SkippingIndex.create(folder, "k VALUE_LIST", store=address)
    return folder


@pytest.fixture
def workload(address: str, delta: Path) -> WorkloadRecord:
    """What a driver has counted today of the Delta table, and written to the store."""
    store = open_store(address)
    (definition,) = (each.value for each in list_definitions(store))
    today = datetime.now(timezone.utc).date()
    predicate = PredicateWorkload(
        condition="k = ?",
        identity="k",
        sql="k",
        computed=False,
        form="values",
        scans=3,
        pruned_scans=2,
        pruned_files=5,
        pruned_bytes=900,
    )
    table = TableWorkload(
        table=definition.table,
        name="flights",
        queries=4,
        pruned_queries=2,
        pruned_files=5,
        pruned_bytes=900,
        predicates=(predicate,),
    )
    record = WorkloadRecord(driver="0123456789abcdef", day=today, tables=(table,))
    store.record_workload(record, oldest=today)
    return record


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], address: str) -> Run:
    """Run a command on the store; return the exit code, stdout and stderr."""

    def run(*arguments: object, store: str | None = address) -> tuple[int, str, str]:
        named = [] if store is None else ["--store", store]
        capsys.readouterr()
        code = main([*map(str, arguments), *named])
        return code, *capsys.readouterr()

    return run


def document(result: tuple[int, str, str], code: int = 0) -> Any:
    assert result[0] == code, result[2]
    return json.loads(result[1])


def rename(address: str, folder: Path, name: str, **identity: str) -> None:
    """Forge the name and identity of an index, as anyone can who may write to the store."""
    store = open_store(address)
    found = next(d for d in list_definitions(store) if str(folder) in d.value.name)
    table = replace(found.value.table, **identity)
    store.define(replace(found.value, name=name, table=table), expect=found.revision)


class TestSavings:
    def test_shows_what_drivers_wrote(self, run: Run, workload: WorkloadRecord) -> None:
        (found,) = document(run("savings", "--json"))["savings"]
        assert (found["table"], found["files"], found["bytes"]) == ("flights", 5, 900)
        assert found["since"] == workload.day.isoformat()
        head, line = run("savings")[1].splitlines()
        assert head.split()[:3] == ["table", "since", "queries"]
        assert line.split()[:3] == ["flights", workload.day.isoformat(), "4"]

    def test_by_column(self, run: Run, workload: WorkloadRecord) -> None:
        (found,) = document(run("savings", "--by", "column", "--json"))["savings"]
        assert (found["column"], found["queries"], found["pruned_queries"]) == ("k", 3, 2)

    def test_a_store_without_counts(self, run: Run, delta: Path) -> None:
        code, out, _ = run("savings")
        assert code == 0
        assert out.startswith("no queries are counted in ")
        assert document(run("savings", "--json"))["problem"] is None

    def test_a_store_that_cannot_be_read(
        self, run: Run, delta: Path, address: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise StoreError("the store is damaged")

        monkeypatch.setattr(type(open_store(address)), "workload", fail)
        for options in ([], ["--json"], ["-q"]):
            assert run("savings", *options) == (1, "", "error: the store is damaged\n")


class TestArguments:
    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            ([], "required: command"),
            (["describe"], "required: table"),
            (["list", "-q", "-v"], "not allowed with"),
            (["list", "--spark", "--without-spark"], "not allowed with"),
            (["list", "--nothing"], "unrecognized arguments: --nothing"),
            (["list", "--conf", "x"], "--conf takes key=value, not x"),
            (["refresh"], "pass the names of tables, or --all"),
            (["vacuum", "--all", "t"], "pass the names of tables, or --all"),
            (["verify", "t"], "pass a table and --where, or --query"),
            (["verify", "t", "--where", "a", "--query", "b"], "pass a table and --where"),
            (["verify", "--query", "b", "--without-spark"], "--query requires a Spark session"),
            (["describe", "t", "--without-spark", "--formats", "delta"], "--formats requires"),
            (["describe", "t", "--without-spark", "--conf", "spark.master=x"], "spark.master"),
            (["completion", "fish"], "invalid choice"),
        ],
    )
    def test_wrong_ones_end_with_2(
        self, arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert reason in printed.err
        assert "usage: " in printed.err

    def test_help_imports_no_command(self, run_python: RunPython) -> None:
        program = (
            "import sys; from skipping.__main__ import main\n"
            "try: main(['--help'])\n"
            "except SystemExit: print(sorted({'skipping.index', 'pyspark'} & set(sys.modules)))"
        )
        done = run_python("-c", program)
        assert done.stdout.endswith("[]\n"), done.stdout + done.stderr
        commands = (
            "list describe analyze verify savings refresh vacuum copy serve catalog completion"
        )
        assert re.findall(r"^    (\w+)\b", done.stdout, re.M) == commands.split()


class TestList:
    def test_shows_each_index(self, run: Run, delta: Path, parquet: Path, address: str) -> None:
        code, out, err = run("list")
        assert (code, err) == (0, "")
        header, *lines = out.splitlines()
        names = "table format status covered files bytes index bytes types"
        assert header.split() == names.split()
        assert f"delta.`{delta}`" in lines[0]
        assert lines[0].endswith("k VALUE_LIST, s MIN_MAX")
        assert f"parquet.`{parquet}`" in lines[1]
        found = document(run("list", "--json"))
        assert found["store"] == address
        first, second = found["indexes"]
        assert (first["format"], first["status"], first["covered"]) == ("delta", "active", 0)
        assert (first["files"], first["error"]) == (1, None)
        assert first["columns"][0] == {"name": "k", "type": "VALUE_LIST"}
        assert (second["format"], second["covered"], second["files"]) == ("parquet", None, 3)
        assert first["bytes"] > 0 < first["index_bytes"]

    def test_of_a_missing_store(self, run: Run, address: str) -> None:
        text = f"no indexes: the store {address} does not exist yet\n"
        assert run("list") == (0, text, "")
        assert document(run("list", "--json")) == {"store": address, "indexes": []}

    def test_of_an_empty_store(self, run: Run, address: str, parquet: Path) -> None:
        SkippingIndex.on(parquet, store=address).drop()
        assert run("list") == (0, f"no indexes in {address}\n", "")

    def test_names_an_index_that_cannot_be_read(
        self, run: Run, delta: Path, address: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise StoreError("torn")

        monkeypatch.setattr(type(open_store(address)), "catalogue", fail)
        (found,) = document(run("list", "--json"))["indexes"]
        assert (found["status"], found["error"], found["files"]) == ("unreadable", "torn", None)
        assert run("list")[1].rstrip().endswith("torn")


class TestDescribe:
    def test_of_a_path(self, run: Run, delta: Path) -> None:
        code, out, err = run("describe", delta)
        assert (code, err) == (0, "")
        items = {line[:16].strip(): line[16:].strip() for line in out.splitlines()}
        assert items["lag"] == "1 version"
        assert items["column k"] == "bigint VALUE_LIST, known in 1"
        assert document(run("describe", delta, "--json"))["lag"] == "1 version"

    def test_of_every_spelling(
        self, run: Run, delta: Path, parquet: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(delta.parent)
        for name in (delta, f"delta.`{delta}`", "flights", "./flights/", f"file:{delta}"):
            assert document(run("describe", name, "--json"))["files"] == "1"
        for name in (parquet, f"parquet.`{parquet}`", "departures"):
            assert document(run("describe", name, "--json"))["files"] == "3"

    def test_finds_a_catalog_name_in_the_store(self, run: Run, delta: Path, address: str) -> None:
        store = open_store(address)
        (found,) = list_definitions(store)
        named = replace(found.value, name="spark_catalog.default.flights")
        store.define(named, expect=found.revision)
        for name in ("flights", "default.Flights", "spark_catalog.`default`.flights"):
            assert document(run("describe", name, "--json"))["files"] == "1"
        assert run("describe", "other.flights", "--without-spark")[0] == 1

    def test_a_name_of_two_indexes_is_opened_by_its_path(
        self, run: Run, delta: Path, parquet: Path, address: str
    ) -> None:
        store = open_store(address)
        for found in list_definitions(store):
            store.define(replace(found.value, name="a.b.c"), expect=found.revision)
        code, _, err = run("describe", "a.b.c", "--without-spark")
        assert code == 1
        assert "the name of one index in" in err
        assert run("describe", delta)[0] == 0

    def test_of_a_table_without_index(self, run: Run, tmp_path: Path) -> None:
        write_deltalake(tmp_path / "other", pa.table({"k": [1]}))
        code, out, err = run("describe", tmp_path / "other", "--json")
        assert (code, out) == (1, "")
        assert err.startswith("error: delta.`")
        assert "has no skipping index" in err
        assert len(err.splitlines()) == 1


class TestSparkIsStarted:
    def test_only_where_it_is_needed(
        self, run: Run, delta: Path, sessions: list[dict[str, str]], address: str
    ) -> None:
        assert run("list")[0] == run("describe", delta)[0] == run("vacuum", "--all")[0] == 0
        assert run("verify", delta, "--where", "k = 1")[0] == 0
        assert sessions == []
        for arguments in (
            ["describe", "db.unknown"],
            ["describe", delta, "--spark"],
            ["describe", delta, "--conf", "spark.master=local"],
            ["list", "--formats", "delta"],
            ["analyze", delta],
            ["refresh", delta],
            ["verify", "--query", "SELECT 1"],
        ):
            assert run(*arguments)[0] == 1
        assert len(sessions) == 7
        assert all(conf["spark.skipping.store"] == address for conf in sessions)
        assert sessions[2]["spark.master"] == "local"
        run("list", store=None)
        assert sessions[7] == {}, "the store is in the session's warehouse"
        run("list", store="hdfs://name:8020/index")
        assert len(sessions) == 9

    def test_never_without_permission(self, run: Run, sessions: list[dict[str, str]]) -> None:
        code, _, err = run("describe", "db.t", "--without-spark")
        assert code == 1
        assert "db.t is not an absolute path or URL" in err
        code, _, err = run("list", "--without-spark", store=None)
        assert code == 1
        assert "no store is configured" in err
        assert sessions == []

    def test_if_delta_rs_is_missing(
        self, run: Run, delta: Path, parquet: Path, sessions: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tables, "_has_delta_rs", lambda: False)
        run("describe", delta)
        assert len(sessions) == 1
        assert run("describe", parquet)[0] == 0

    @pytest.mark.parametrize(
        ("name", "expected"),
        [("t", "t"), ("db.t", "db.t"), ("delta.`/a/b`", "delta.`/a/b`"), ("/a/b", "delta.`/a/b`")],
    )
    def test_with_the_name_in_sql(self, name: str, expected: str) -> None:
        assert tables.spark_name(name) == expected

    def test_with_the_path_of_a_folder(self, parquet: Path) -> None:
        assert tables.spark_name(f"{parquet}/") == f"parquet.`{parquet}`"


class TestPyIceberg:
    @pytest.fixture
    def iceberg_table(
        self, catalog: SqlCatalog, tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
    ) -> str:
        """A table of a catalog in PyIceberg's configuration."""
        table = catalog.create_table("db.t", pa.schema([("k", pa.int64())]))
        table.append(pa.table({"k": [1]}))
        table.append(pa.table({"k": [2]}))
        SkippingIndex.create(table, "k VALUE_LIST", store=address)
        (tmp_path / "home").mkdir()
        configuration = f"catalog:\n  own:\n    type: sql\n    uri: sqlite:///{tmp_path}/c.db\n"
        (tmp_path / "home" / ".pyiceberg.yaml").write_text(configuration)
        monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path / "home"))
        return "own.db.t"

    def test_a_table_is_opened_by_its_catalog_name(
        self, run: Run, iceberg_table: str, sessions: list[dict[str, str]]
    ) -> None:
        assert document(run("describe", iceberg_table, "--json"))["table"] == iceberg_table
        assert document(run("verify", iceberg_table, "--where", "k = 2", "--json"))["opened"] == 1
        assert run("refresh", "--all", "--without-spark")[1].startswith("[1/1] own.db.t: 0 files")
        assert document(run("vacuum", iceberg_table, "--json"))["indexes"][0]["removed"] == 0
        assert sessions == []

    def test_a_missing_table_and_an_unreachable_catalog(
        self, run: Run, iceberg_table: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        code, _, err = run("describe", "own.db.u")
        assert code == 1
        assert "cannot open table own.db.u with PyIceberg: " in err
        monkeypatch.setenv("PYICEBERG_CATALOG__OTHER__URI", "http://me:secret@127.0.0.1:9/")
        code, _, err = run("describe", "other.db.u")
        assert code == 1
        assert len(err.splitlines()) == 1
        assert "secret" not in err

    def test_a_catalog_that_is_not_configured(self, run: Run, iceberg_table: str) -> None:
        code, _, err = run("describe", "lake.db.t", "--without-spark")
        assert code == 1
        assert "a table of a catalog that PyIceberg is configured for" in err


class TestVerify:
    def test_prints_counts(self, run: Run, parquet: Path) -> None:
        code, out, _ = run("verify", parquet, "--where", "k = 11")
        assert (code, out) == (0, "same 1 rows, opened 1 of 3 files\n")
        assert document(run("verify", parquet, "--where", "k = 11", "--json")) == {
            "rows": 1,
            "opened": 1,
            "opened_without": 3,
            "note": None,
        }

    def test_fails_if_a_skipped_file_has_a_match(
        self, run: Run, parquet: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise WrongAnswer("1 rows with the index, 2 without\n  /t/a.parquet: 1")

        monkeypatch.setattr(SkippingIndex, "verify", fail)
        code, out, err = run("verify", parquet, "--where", "k = 11", "--json")
        assert (code, out) == (1, "")
        assert err == "error: 1 rows with the index, 2 without\n  /t/a.parquet: 1\n"

    def test_shows_a_wrong_condition(self, run: Run, parquet: Path) -> None:
        code, _, err = run("verify", parquet, "--where", "nothing = 11")
        assert code == 1
        assert "nothing" in err
        assert "Traceback" not in err


class TestRefreshAndVacuum:
    def test_refresh_continues_after_a_failure(self, run: Run, delta: Path, parquet: Path) -> None:
        gone = delta.parent / "gone"
        found = document(run("refresh", gone, delta, "--without-spark", "--json"), code=1)
        assert found["failed"] == 1
        first, second = found["indexes"]
        assert first["table"] == str(gone)
        assert first["error"]
        assert (second["added"], second["covered"], second["error"]) == (1, 1, None)
        assert run("refresh", delta, "--without-spark", "-q") == (0, "", "")
        code, out, err = run("refresh", "--all", "--without-spark")
        assert (code, err) == (0, "")
        assert f"[1/2] delta.`{delta}`: 0 files, covers version 1, " in out
        assert f"[2/2] parquet.`{parquet}`: 0 files, covers all files, " in out

    @pytest.mark.parametrize("name", ["...", "`"])
    def test_a_name_without_parts_stops_no_other_table(
        self, run: Run, parquet: Path, address: str, name: str
    ) -> None:
        rename(address, parquet, name, format="iceberg")
        other = parquet.parent / "other"
        other.mkdir()
        pq.write_table(pa.table({"k": [1]}), other / "0.parquet")
        SkippingIndex.create(other, "k VALUE_LIST", store=address)
        for command in ("refresh", "vacuum"):
            result = run(command, "--all", "--without-spark", "--json")
            (found,) = document(result)["indexes"]
            assert found["table"] == f"parquet.`{other}`"
            assert f"skipped {name}: PyIceberg is not configured for the catalog" in result[2]

    def test_unexpected_errors_of_one_table_stop_no_other(
        self, run: Run, delta: Path, parquet: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        own = SkippingIndex.refresh

        def fail(self: SkippingIndex, *arguments: Any, **options: Any) -> Any:
            if self.table.name.startswith("delta"):
                raise RuntimeError("cannot read s3://u:secret@host\n at java")
            return own(self, *arguments, **options)

        monkeypatch.setattr(SkippingIndex, "refresh", fail)
        result = run("refresh", "--all", "--without-spark", "--json")
        first, second = document(result, code=1)["indexes"]
        assert first["error"] == "RuntimeError: cannot read s3://u:***@host"
        assert (second["table"], second["error"]) == (f"parquet.`{parquet}`", None)
        assert result[2].startswith(f"error: [1/2] delta.`{delta}`: RuntimeError: ")
        assert "Traceback" not in result[2]
        traced = run("refresh", "--all", "--without-spark", "-v")[2]
        assert "Traceback" in traced
        assert "secret" not in traced

    def test_an_obstacle_that_cannot_be_found_stops_no_other(
        self, run: Run, delta: Path, parquet: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(self: tables.LocalTables, definition: Definition) -> str | None:
            if definition.table.format == "delta":
                raise ValueError("wrong")
            return None

        monkeypatch.setattr(tables.LocalTables, "find_obstacle", fail)
        found = document(run("vacuum", "--all", "--json"), code=1)
        assert [each["error"] for each in found["indexes"]] == ["ValueError: wrong", None]

    def test_json_has_no_passwords(self, run: Run, parquet: Path, address: str) -> None:
        rename(address, parquet, "parquet.`ftp://u:secret@host/t`", root="ftp://u:secret@host/t")
        (found,) = document(run("list", "--json"))["indexes"]
        assert found["table"] == "parquet.`ftp://u:***@host/t`"
        code, out, err = run("refresh", "--all", "--without-spark", "--json")
        (found,) = json.loads(out)["indexes"]
        assert (code, found["table"]) == (1, "parquet.`ftp://u:***@host/t`")
        assert "secret" not in out + err

    def test_vacuum_removes_entries_of_deleted_files(self, run: Run, parquet: Path) -> None:
        (parquet / "0.parquet").unlink()
        assert run("vacuum", parquet) == (
            0,
            f"[1/1] {parquet}: removed 1 entries and 0 dropped indexes\n",
            "",
        )
        assert document(run("describe", parquet, "--json"))["files"] == "2"

    @pytest.mark.parametrize("name", ["--all", "{}", "file:{}/", "parquet.`{}`"])
    def test_vacuum_erases_dropped_indexes(
        self, run: Run, parquet: Path, delta: Path, address: str, name: str
    ) -> None:
        SkippingIndex.on(parquet, store=address).drop()
        assert run("vacuum", delta)[0] == 0
        assert len(list_definitions(open_store(address))) == 2
        code, out, _ = run("vacuum", name.format(parquet))
        assert code == 0
        assert ("removed 1 dropped" if name == "--all" else "entries and 1 dropped indexes") in out
        (left,) = list_definitions(open_store(address))
        assert left.value.table.format == "delta"
        assert document(run("vacuum", "--all", "--json"))["erased_indexes"] == 0
        assert run("vacuum", parquet)[0] == 1, "it has no index, dropped or not"

    def test_copy_as_json(self, delta: Path, address: str, tmp_path: Path, capsys: Any) -> None:
        target = f"sqlite:{tmp_path}/copy.sqlite"
        assert main(["copy", address, target, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {
            "source": address,
            "target": target,
            "indexes": 1,
            "files": 1,
        }
        assert main(["copy", address, target, "-q"]) == 1
        assert "has indexes already" in capsys.readouterr().err


class TestErrors:
    def fail_with(self, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
        def fail(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr(SkippingIndex, "describe", fail)

    def test_of_libraries_are_one_line(
        self, run: Run, delta: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.fail_with(monkeypatch, OSError("cannot read\x1b[2J s3://u:secret@host\n at java"))
        code, out, err = run("describe", delta)
        assert (code, out) == (1, "")
        assert err == "error: OSError: cannot read\\x1b[2J s3://u:***@host\n"
        traced = run("describe", delta, "-v")[2]
        assert "Traceback" in traced
        assert "secret" not in traced

    def test_ctrl_c(self, run: Run, delta: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fail_with(monkeypatch, KeyboardInterrupt())
        assert run("describe", delta) == (130, "", "error: interrupted\n")

    def test_a_reader_that_ends_early(self, delta: Path, address: str) -> None:
        command = [sys.executable, "-u", "-m", "skipping", "list", "--store", address]
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        os.close(writer)
        assert (done.returncode, done.stderr) == (1, "")


class TestLogging:
    def test_verbose_logs_and_quiet_disables_progress(self, run: Run, delta: Path) -> None:
        run("describe", delta, "-v")
        assert logging.getLogger("skipping").isEnabledFor(logging.INFO)
        assert not logging.getLogger("skipping.progress").disabled
        run("describe", delta, "-q")
        assert logging.getLogger("skipping.progress").disabled


class TestCompletion:
    def test_says_what_to_install(self, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "shtab", None)
        assert main(["completion", "bash"]) == 1
        assert "pip install 'lakehouse-file-skipping[completion]'" in capsys.readouterr().err

    @pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
    def test_is_a_script_with_commands_and_options(self, shell: str, capsys: Any) -> None:
        pytest.importorskip("shtab")
        assert main(["completion", shell]) == 0
        script = capsys.readouterr().out
        assert "describe" in script
        assert "file-skipping" in script
        assert shell == "tcsh" or "--without-spark" in script
        if shell == "bash":
            complete = (
                f"{script}\nCOMP_WORDS=(file-skipping describe --wi); COMP_CWORD=2\n"
                "_shtab_file_skipping 2>/dev/null; echo ${COMPREPLY[@]}"
            )
            done = subprocess.run(["bash", "-c", complete], capture_output=True, text=True)
            assert done.stdout.split() == ["--without-spark"], done.stderr
