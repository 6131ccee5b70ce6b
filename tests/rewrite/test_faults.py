"""What goes wrong with a store or a callback costs skipping, never a row, and is said.

Every test has a store of its own and runs in mode `fallback`, as users do.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import Row, SparkSession

import rewrite
import skipping
from providers.errors import StoreError
from rewrite.bridge import protocol
from rewrite.bridge.callbacks import Answers
from rewrite.bridge.install import find_hooks
from rewrite.bridge.messages import read_message
from skipping.commands.execute import sql
from skipping.lookup.lookup import invalidate
from skipping.stores import IndexStore
from skipping.stores.open import open_store
from skipping.stores.sqlite.store import SqliteStore
from tests.rewrite.differential import Compared, make_table, same_rows, settings

pytestmark = pytest.mark.nightly

SPELL = Path(__file__).parent / "another_process.py"
QUERY = "SELECT * FROM faulty WHERE k = 3"
FILES = 6


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> Iterator[str]:
    rows = f"SELECT int(id) AS k, id AS _f FROM range({FILES})"
    yield make_table(spark, "faulty", rows)
    spark.sql("DROP TABLE faulty")


@pytest.fixture
def store(spark: SparkSession, table: str, tmp_path: Path) -> Iterator[Path]:
    """A store with an index on the table, in a session that falls back."""
    path = tmp_path / "store.sqlite"
    values = {
        "spark.skipping.store": f"sqlite:{path}",
        "spark.skipping.mode": "fallback",
        "spark.skipping.cache.ttl": "1s",
    }
    with settings(spark, values):
        spark.sql("CREATE SKIPPING INDEX ON faulty (k VALUE_LIST)")
        assert look(spark).opened == 1
        yield path
    # The watcher is told of the shared store again.
    hooks = find_hooks(spark)
    assert hooks is not None
    hooks.follow(spark)


def look(spark: SparkSession) -> Compared:
    """The query, with everything that this process remembers of the store forgotten."""
    invalidate(open_store(spark.conf.get("spark.skipping.store")))
    return same_rows(spark, QUERY)


def reads_everything(spark: SparkSession, reason: str) -> None:
    found = look(spark)
    assert (found.opened, found.without) == (FILES, FILES)
    (scan,) = found.explained.scans
    assert reason in str(scan), str(scan)


def remove(path: Path) -> None:
    for each in path.parent.glob(f"{path.name}*"):
        each.unlink()


def truncate(path: Path) -> None:
    content = path.read_bytes()
    remove(path)
    path.write_bytes(content[: len(content) // 2])


def garbage(path: Path) -> None:
    size = path.stat().st_size
    remove(path)
    path.write_bytes(os.urandom(size))


def newer(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 999")
    connection.close()


def emptied(path: Path) -> None:
    remove(path)
    path.touch()


def trigger(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TRIGGER t AFTER UPDATE ON index_ BEGIN SELECT 1; END")
    connection.close()


BREAKAGES: dict[str, Callable[[Path], None]] = {
    "deleted": remove,
    "garbage": garbage,
    "truncated": truncate,
    "of a newer release": newer,
    "empty": emptied,
    "with a trigger": trigger,
}


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_a_broken_store_reads_everything_and_says_so(
    spark: SparkSession, store: Path, breakage: str, caplog: pytest.LogCaptureFixture
) -> None:
    BREAKAGES[breakage](store)
    with caplog.at_level(logging.WARNING, "skipping"):
        reads_everything(spark, "no index was used: ")
        reads_everything(spark, "no index was used: ")
    warned = [record.getMessage() for record in caplog.records]
    assert len(warned) == len(set(warned)) <= 1, warned


def test_a_store_that_others_may_write_reads_everything_and_says_what_to_do(
    spark: SparkSession, store: Path
) -> None:
    store.parent.chmod(0o1777)
    reads_everything(spark, f"chmod o-w {store.parent}")
    with pytest.raises(StoreError, match="chmod o-w"):
        sql(spark, "REFRESH SKIPPING INDEX ON faulty")
    store.parent.chmod(0o755)
    assert look(spark).opened == 1


def test_a_store_that_comes_back_is_used_again(spark: SparkSession, store: Path) -> None:
    away = store.with_name("away")
    away.mkdir()
    for each in store.parent.glob(f"{store.name}*"):
        shutil.move(each, away / each.name)
    reads_everything(spark, "no index was used: ")
    for each in away.iterdir():
        shutil.move(each, store.parent / each.name)
    assert look(spark).opened == 1


def test_a_store_locked_by_another_process(spark: SparkSession, store: Path) -> None:
    """An exclusive lock keeps readers out; a query waits no longer than its timeout."""
    code = (
        "import sqlite3, sys, time\n"
        "c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('PRAGMA locking_mode = EXCLUSIVE')\n"
        "c.execute('BEGIN EXCLUSIVE')\n"
        "c.execute('PRAGMA user_version')\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(store)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "locked\n"
        with settings(spark, {"spark.skipping.timeout": "1s"}):
            started = time.monotonic()
            found = same_rows(spark, QUERY)
            assert time.monotonic() - started < 30
        # WAL readers get by a writer; whoever is kept out reads everything.
        assert found.opened in (1, FILES)
        other.stdin.close()
        other.wait(10)
    assert look(spark).opened == 1


def test_a_store_made_in_the_middle_of_a_session(
    spark: SparkSession, table: str, tmp_path: Path
) -> None:
    values = {
        "spark.skipping.store": f"sqlite:{tmp_path / 'late.sqlite'}",
        "spark.skipping.mode": "fallback",
        "spark.skipping.cache.ttl": "1s",
    }
    with settings(spark, values):
        assert look(spark).opened == FILES
        spark.sql("CREATE SKIPPING INDEX ON faulty (k VALUE_LIST)")
        assert look(spark).opened == 1
        spark.sql("DROP SKIPPING INDEX ON faulty")
        assert look(spark).opened == FILES


def test_a_callback_that_dies(
    spark: SparkSession, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any) -> bytes:
        raise MemoryError("no more")

    with monkeypatch.context() as patch:
        patch.setattr(Answers, "apply", die)
        reads_everything(spark, "asking the index failed")
    with monkeypatch.context() as patch:
        patch.setattr(Answers, "_find_prunable", die)
        reads_everything(spark, "MemoryError")
    with monkeypatch.context() as patch:
        patch.setattr(Answers, "apply", lambda *_: b"\x05\0\0\0{nonsense")
        reads_everything(spark, "asking the index failed")
    assert look(spark).opened == 1
    with monkeypatch.context() as patch:
        patch.setattr(Answers, "_files", die)
        forget_entries(store, 1)  # how files are numbered is asked when something changed
        reads_everything(spark, "no index was used: ")
    assert look(spark).opened in (1, 2)


def message(**header: Any) -> bytes:
    head = json.dumps({protocol.VERSION: protocol.CURRENT, **header}).encode()
    return len(head).to_bytes(4, "little") + head


def changed(**header: Any) -> Callable[[bytes], bytes]:
    """Gives an answer other values in its header, and the same buffers."""

    def change(answer: bytes) -> bytes:
        end = 4 + int.from_bytes(answer[:4], "little")
        return message(**{**json.loads(answer[4:end]), **header}) + answer[end:]

    return change


FORGED: dict[str, Callable[[bytes], Any]] = {
    "no answer": lambda _: None,
    "no bytes": lambda _: b"",
    "text": lambda _: "text",
    "a number": lambda _: 7,
    "cut in half": lambda answer: answer[: len(answer) // 2],
    "cut by a byte": lambda answer: answer[:-1],
    "only a header": lambda answer: answer[: 4 + int.from_bytes(answer[:4], "little")],
    "a long header": lambda answer: b"\xff\xff\xff\x7f" + answer[4:],
    "a header of negative length": lambda answer: b"\xff\xff\xff\xff" + answer[4:],
    "a header that is no object": lambda _: (2).to_bytes(4, "little") + b"[]",
    "a deep header": lambda _: (10**5).to_bytes(4, "little") + b"[" * 10**5,
    "buffers of ones": lambda answer: answer[:-16] + b"\xff" * 16,
    "numbers for texts": changed(index=7, entries_id=7, table=7),
    "texts for numbers": changed(n="n", length="n", first="n", seconds="s", generation="g"),
    "huge numbers": changed(n=2**62, length=2**62, first=2**62, generation=2**70),
    "negative numbers": changed(n=-1, length=-1, first=-1),
    "operands without a label": changed(operands=[{"length": 0}]),
    "operands that are text": changed(operands="operands", unused="unused"),
    "tables that are none": changed(tables=[1, 2]),
}
FRESH = itertools.count(100)


@pytest.mark.parametrize("operation", [protocol.PRUNED, protocol.FILES, protocol.INDEXED])
def test_forged_answer_of_python_loses_no_row(
    spark: SparkSession, store: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    whole = Answers.apply
    forged: list[str] = []

    def apply(self: Answers, envelope: str, given: bytes) -> Any:
        answer = whole(self, envelope, given)
        asked = read_message(given)[0][protocol.OP]
        if operation == protocol.FILES and asked in (protocol.PRUNED, protocol.FILES):
            answer = changed(entries_id=name)(answer)  # Java asks for files that it does not have
        if asked != operation:
            return answer
        forged.append(name)
        return FORGED[name](answer)

    monkeypatch.setattr(Answers, "apply", apply)
    for name in FORGED:
        # Under settings that are new Java asks which tables have an index.
        with settings(spark, {"spark.skipping.cache.ttl": f"{next(FRESH)}s"}):
            df = spark.sql(QUERY)
            assert df.collect() == [Row(k=3)], name
            assert str(rewrite.explain(df)), name
    # The thread that watches the store may tell Java of the tables first.
    fewest = 1 if operation == protocol.INDEXED else len(FORGED)
    assert len(set(forged)) >= fewest


def test_noting_what_ran_asks_and_lists_nothing(
    spark: SparkSession, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the listener does on Spark's thread, of a scan that was planned and never listed."""
    hooks = find_hooks(spark)
    assert hooks is not None
    join = "SELECT f.* FROM faulty f JOIN (SELECT k FROM faulty WHERE k > 4) d ON f.k = d.k"
    with settings(spark, {"spark.sql.adaptive.enabled": "false"}):
        plans = [spark.sql(text)._jdf.queryExecution().executedPlan() for text in (QUERY, join)]
    asked: list[object] = []

    def die(*arguments: object) -> bytes:
        asked.append(arguments)
        raise AssertionError("asked")

    monkeypatch.setattr(Answers, "apply", die)
    jvm: Any = spark.sparkContext._jvm
    for plan in plans:
        for scan in hooks.java.scans().summarize(plan, False, jvm.java.util.ArrayList()):
            assert scan["reason"].startswith(("the scan did not run", "no condition of the query"))
            assert scan["table"].endswith("faulty")
    assert not asked


def test_strict_mode_raises(
    spark: SparkSession, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any, **__: Any) -> Any:
        raise StoreError("away")

    monkeypatch.setattr(SqliteStore, "find_prunable", die)
    reads_everything(spark, "away")
    with settings(spark, {"spark.skipping.mode": "strict"}), pytest.raises(Exception, match="stri"):
        spark.sql(QUERY).collect()


def test_a_slow_store(spark: SparkSession, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SqliteStore.find_prunable

    def slow(self: SqliteStore, *arguments: Any, **named: Any) -> Any:
        time.sleep(1.5)
        return whole(self, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "find_prunable", slow)
        with settings(spark, {"spark.skipping.timeout": "300ms"}):
            reads_everything(spark, "did not answer within spark.skipping.timeout")
        with settings(spark, {"spark.skipping.timeout": "60s"}):
            assert look(spark).opened == 1


def forget_entries(store: Path, count: int) -> None:
    kept: IndexStore = open_store(f"sqlite:{store}")
    (found,) = kept.definitions()
    ordinals = kept.catalogue(found.value.index).files["ordinal"].combine_chunks()
    kept.remove(found.value.index, ordinals[:count])


def test_an_index_without_entries_knows_nothing(spark: SparkSession, store: Path) -> None:
    """Entries that were lost are files that are read."""
    forget_entries(store, FILES)
    found = look(spark)
    assert found.opened == FILES
    assert found.explained.scans[0].unknown == FILES


def eventually(spark: SparkSession, expected: int, seconds: float = 20) -> None:
    """The query opens so many files within the time; nothing here is told to look again."""
    end = time.monotonic() + seconds
    while (opened := same_rows(spark, QUERY).opened) != expected:
        assert time.monotonic() < end, f"{opened} files are opened, not {expected}"
        time.sleep(0.2)


OTHER = """
import sys
from dataclasses import replace
from pathlib import Path
from skipping.model.definition import Definition, State
from skipping.stores.open import open_store

store, what = open_store(sys.argv[1]), sys.argv[2]
(found,) = store.definitions()
index = found.value.index
if what in ("enable", "disable"):
    store.define(replace(found.value, enabled=what == "enable"), expect=found.revision)
elif what == "erase":
    store.define(replace(found.value, dropped=True), expect=found.revision)
    store.erase(index)
elif what == "forget":
    files = store.catalogue(index).files
    store.remove(index, files["ordinal"].combine_chunks())
"""


def another_process(store: Path, what: str) -> None:
    subprocess.run([sys.executable, "-c", OTHER, f"sqlite:{store}", what], check=True)


def test_another_process_changes_the_index(spark: SparkSession, store: Path) -> None:
    another_process(store, "disable")
    eventually(spark, FILES)
    another_process(store, "enable")
    eventually(spark, 1)
    another_process(store, "forget")
    eventually(spark, FILES)  # nothing is known any more
    another_process(store, "erase")
    eventually(spark, FILES)


@pytest.mark.parametrize("kind", ["sqlite", "folder"])
def test_another_session_makes_refreshes_and_drops_an_index(
    spark: SparkSession, table: str, tmp_path: Path, kind: str
) -> None:
    """The other process runs a Spark of its own on the same table, by its path.

    delta-rs also writes the table and its index. Each has a replica of the folder of its own.
    """
    at = str(spark.sql(f"DESCRIBE DETAIL {table}").collect()[0]["location"])
    version = DeltaTable(at).version()
    shared = tmp_path / "shared"
    store = shared.as_uri() if kind == "folder" else f"sqlite:{shared}"
    values = {
        "spark.skipping.store": store,
        "spark.skipping.store.replica": str(tmp_path / "one"),
        "spark.skipping.mode": "fallback",
        "spark.skipping.cache.ttl": "1s",
    }
    with (
        settings(spark, values),
        subprocess.Popen(
            [sys.executable, str(SPELL), at, store, str(tmp_path / "other")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as other,
    ):
        assert other.stdin is not None
        assert other.stdout is not None

        def tell(statement: str) -> None:
            print(statement, file=other.stdin, flush=True)
            for line in other.stdout or ():
                if line.startswith("done"):
                    return
            raise AssertionError("the other process ended")

        def files_of(k: int) -> int:
            opened = open_store(store, replicas=str(tmp_path / "delta-rs"))
            index = skipping.SkippingIndex.on(DeltaTable(at), store=opened)
            index.refresh()
            return len(index.files(f"k = {k}"))

        assert same_rows(spark, QUERY).opened == FILES
        tell(f"CREATE SKIPPING INDEX ON delta.`{at}` (k VALUE_LIST)")
        eventually(spark, 1)
        assert files_of(3) == 1
        spark.sql(f"INSERT INTO {table} VALUES (3)")
        assert len(same_rows(spark, QUERY).rows) == 2
        spark.sql(f"INSERT INTO {table} VALUES (99)")
        eventually(spark, 3)
        tell(f"REFRESH SKIPPING INDEX ON delta.`{at}`")
        eventually(spark, 2)
        assert files_of(99) == 1
        write_deltalake(at, pa.table({"k": pa.array([98], pa.int32())}), mode="append")
        eventually(spark, 3)
        assert files_of(98) == 1
        eventually(spark, 2)
        tell(f"DROP SKIPPING INDEX ON delta.`{at}`")
        eventually(spark, FILES + 3)
        spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF {version}")
        other.stdin.close()
        assert other.wait(60) == 0


RESTARTED = """
import sys
from pyspark.sql import SparkSession
import rewrite

def builder():
    return (SparkSession.builder.master("local[1]")
        .config("spark.sql.warehouse.dir", sys.argv[1]))

spark = rewrite.session(builder())
path = sys.argv[1] + "/t"
spark.range(0, 40, 1, 4).write.format("delta").save(path)
spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES('delta.dataSkippingNumIndexedCols'='0')")
spark.sql(f"CREATE SKIPPING INDEX ON delta.`{path}` (id VALUE_LIST)")
query = f"SELECT * FROM delta.`{path}` WHERE id = 7"
assert [r.id for r in spark.sql(query).collect()] == [7]
spark.stop()

plain = builder().getOrCreate()
assert [r.id for r in plain.sql(query).collect()] == [7]
try:
    plain.sql("SHOW SKIPPING INDEXES")
except Exception as error:
    assert "PARSE_SYNTAX_ERROR" in str(error), error
else:
    raise AssertionError("no hooks, no statements")
again = rewrite.enable(plain)
df = again.sql(query)
assert [r.id for r in df.collect()] == [7]
assert rewrite.explain(df).scans[0].reason is None, str(rewrite.explain(df))
again.stop()
print("all is well")
"""


def test_a_stopped_session_and_a_new_one(tmp_path: Path) -> None:
    """The new one works without the hooks, and with them once they are enabled again."""
    done = subprocess.run(
        [sys.executable, "-c", RESTARTED, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "all is well" in done.stdout, done.stdout[-2000:] + done.stderr[-4000:]


def test_the_session_still_answers(spark: SparkSession) -> None:
    """Whatever was done above, the fixture that others share is as it was."""
    assert spark.conf.get("spark.skipping.mode") == "strict"
    assert rewrite.explain(spark.range(1)).scans == ()
