"""The folder store on HDFS, as Spark sessions open it; Hadoop's own NameNode and DataNode run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from skipping.sources.session_objects import HadoopObjects
from skipping.stores.folder import log, upkeep
from skipping.stores.folder.store import FolderStore
from tests.hdfs import Hdfs
from tests.rewrite.differential import make_table, same_rows, settings, skips
from tests.skipping.stores import writers
from tests.skipping.stores.samples import definition, race
from tests.skipping.stores.test_folder import state_of

pytestmark = [pytest.mark.process, pytest.mark.nightly]

FILES = 6
TIMEOUT = 2.0
"""Seconds that a query may spend on lookups."""


@pytest.fixture(scope="module")
def hdfs() -> Iterator[Hdfs]:
    with Hdfs() as made:
        yield made


@pytest.fixture
def url(hdfs: Hdfs) -> str:
    """The address of a new folder."""
    return f"{hdfs.url}/{uuid.uuid4().hex}"


def test_one_of_8_clients_creates_a_key(spark: SparkSession, url: str) -> None:
    objects = HadoopObjects(spark, url)
    upkeep.require_conditional_writes(objects)
    for n in range(100):
        name = f"log/{n}"
        won = race(8, lambda client, name=name: objects.create(name, str(client).encode()))
        assert sorted(won) == [False] * 7 + [True]
        assert objects.get(name, most=9) == str(won.index(True)).encode()
    assert [*objects.list("drafts/")] == []


def test_a_key_exists_while_it_is_replaced(spark: SparkSession, url: str) -> None:
    """As `log/_last_checkpoint` is, by several writers."""
    objects = HadoopObjects(spark, url)
    objects.replace(log.HINT, b"0")
    is_done = threading.Event()

    def use(client: int) -> int:
        if client < 2:
            try:
                for n in range(200):
                    objects.replace(log.HINT, str(n).encode())
            finally:
                is_done.set()
            return 0
        reads = 0
        while not is_done.is_set():
            assert objects.get(log.HINT, most=9), f"it was gone after {reads} reads"
            reads += 1
        return reads

    assert [type(each) for each in race(4, use)] == [int] * 4
    assert [*objects.list("drafts/")] == []


def test_commits_of_4_writers_are_neither_lost_nor_doubled(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    """More than 64, so that a writer also makes a checkpoint, and merges segments."""
    FolderStore(HadoopObjects(spark, url), tmp_path / "one").define(definition(), expect=None)
    reports: dict[str, list[list[object]]] = {f"w{n}": [] for n in range(4)}

    def write(n: int) -> None:
        store = FolderStore(HadoopObjects(spark, url), tmp_path / f"host{n}")
        writers.write(store, f"w{n}", 50, lambda *line: reports[f"w{n}"].append([*line]))

    assert race(4, write) == [None] * 4
    objects = HadoopObjects(spark, url)
    assert objects.get(log.HINT, most=999) is not None
    reader = FolderStore(objects, tmp_path / "reader")
    assert writers.check(reader, objects, reports) == 200
    assert state_of(reader) == state_of(FolderStore(objects, tmp_path / "host0"))


PROGRAM = """
import json, sys

from pyspark.sql import SparkSession

import rewrite

builder = SparkSession.builder.master("local[1]").config("spark.driver.memory", "1g")
for name, value in json.loads(sys.argv[1]).items():
    builder.config(name, value)
spark = rewrite.session(builder)
spark.sparkContext.setLogLevel("ERROR")
print("ready", flush=True)
for statement in sys.stdin:
    df = spark.sql(statement)
    rows = len(df.collect())
    opened = [scan.opened for scan in rewrite.explain(df).scans]
    print(json.dumps([rows, *opened]), flush=True)
spark.stop()
"""


class Driver:
    """Another driver, with a replica of its own; it answers statements."""

    def __init__(self, folder: Path, values: Mapping[str, str]) -> None:
        given = {
            "spark.skipping.store.replica": str(folder / "replica"),
            "spark.skipping.cache.ttl": "0s",
            **values,
        }
        with (folder / "log").open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, json.dumps(given)],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                bufsize=1,
            )
        assert self._answer() == "ready", (folder / "log").read_text()[-3000:]

    def ask(self, statement: str) -> list[int]:
        """Return the number of rows, and how many files each scan opened."""
        assert self._process.stdin is not None, "a pipe"
        self._process.stdin.write(f"{statement}\n")
        found: list[int] = json.loads(self._answer())
        return found

    def _answer(self) -> str:
        assert self._process.stdout is not None, "a pipe"
        return self._process.stdout.readline().strip()

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        """Let it end, and check that it does."""
        with self._process:
            assert self._process.stdin is not None, "a pipe"
            self._process.stdin.close()
            try:
                assert self._process.wait(60) == 0
            finally:
                self._process.kill()


@pytest.fixture
def schema(spark: SparkSession, url: str) -> Iterator[str]:
    """A schema whose tables are on HDFS."""
    name = f"h{uuid.uuid4().hex[:8]}"
    spark.sql(f"CREATE SCHEMA {name} LOCATION '{url}/{name}.db'")
    yield name
    spark.sql(f"DROP SCHEMA {name} CASCADE")


def fill(spark: SparkSession, table: str) -> str:
    rows = f"SELECT int(id) AS k, concat('s', id) AS s, id AS _f FROM range({FILES})"
    return make_table(spark, table, rows)


def of_store(url: str, replica: Path) -> dict[str, str]:
    return {"spark.skipping.store": url, "spark.skipping.store.replica": str(replica)}


def test_an_index_on_hdfs_from_create_to_drop(
    spark: SparkSession, url: str, schema: str, tmp_path: Path
) -> None:
    table, objects = fill(spark, f"{schema}.t"), HadoopObjects(spark, f"{url}/indexes")
    with settings(spark, of_store(f"{url}/indexes", tmp_path)):
        spark.sql(f"CREATE SKIPPING INDEX ON {table} (k MIN_MAX, s VALUE_LIST)")
        assert skips(spark, f"SELECT * FROM {table} WHERE k = 3").opened == 1
        assert skips(spark, f"SELECT * FROM {table} WHERE s IN ('s1', 's4')").opened == 2
        spark.sql(f"INSERT INTO {table} VALUES (100, 'new')")
        spark.sql(f"DELETE FROM {table} WHERE k = 0")
        spark.sql(f"REFRESH SKIPPING INDEX ON {table}")
        assert skips(spark, f"SELECT * FROM {table} WHERE k = 100").opened == 1
        assert skips(spark, f"SELECT * FROM {table} WHERE k = 0").opened == 0
        spark.sql(f"DROP SKIPPING INDEX ON {table}")
        assert same_rows(spark, f"SELECT * FROM {table} WHERE k = 100").skipped == 0
        spark.sql(f"CREATE SKIPPING INDEX ON {table} (s VALUE_LIST)")
        reader = FolderStore(objects, tmp_path / "reader")
        assert {each.value.dropped for each in reader.definitions()} == {True, False}
        spark.sql(f"VACUUM SKIPPING INDEX ON {table}")
        reader = FolderStore(objects, tmp_path / "reader")
        assert {each.value.dropped for each in reader.definitions()} == {False}
        assert skips(spark, f"SELECT * FROM {table} WHERE s = 'new'").opened == 1
        spark.sql(f"DROP SKIPPING INDEX ON {table}")
        assert same_rows(spark, f"SELECT * FROM {table} WHERE s = 'new'").skipped == 0


def test_the_default_store_of_a_warehouse_on_hdfs_is_shared(
    spark: SparkSession, url: str, schema: str, tmp_path: Path
) -> None:
    """A driver without a store setting, and this one, see each other's commits."""
    fill(spark, f"{schema}.t")
    table, store = f"delta.`{url}/{schema}.db/t`", f"{url}/warehouse/_skipping"
    query = f"SELECT * FROM {table} WHERE k = "
    (tmp_path / "other").mkdir()
    of_this = {**of_store(store, tmp_path), "spark.skipping.cache.ttl": "0s"}
    of_other = {"spark.sql.warehouse.dir": f"{url}/warehouse", "spark.skipping.mode": "strict"}
    with Driver(tmp_path / "other", of_other) as other, settings(spark, of_this):
        other.ask(f"CREATE SKIPPING INDEX ON {table} (k MIN_MAX)")
        made = len(writers.commits(HadoopObjects(spark, store)))
        assert skips(spark, f"{query}3").opened == 1
        spark.sql(f"INSERT INTO {table} VALUES (100, 'new')")
        assert other.ask(f"{query}100") == [1, 1]
        assert other.ask(f"{query}3") == [1, 2], "the new file is not in the index"
        spark.sql(f"REFRESH SKIPPING INDEX ON {table}")
        assert other.ask(f"{query}3") == [1, 1]
        other.ask(f"DROP SKIPPING INDEX ON {table}")
        assert len(writers.commits(HadoopObjects(spark, store))) > made > 0
        assert same_rows(spark, f"{query}3").skipped == 0


OUTAGES: dict[str, tuple[str | signal.Signals, str | signal.Signals]] = {
    "no NameNode": ("stop NameNode", "start NameNode"),
    "no DataNode": ("stop DataNode", "start DataNode"),
    "both hang": (signal.SIGSTOP, signal.SIGCONT),
}


@contextmanager
def outage(hdfs: Hdfs, kind: str) -> Iterator[None]:
    begin, end = OUTAGES[kind]
    hdfs.do(begin)
    try:
        yield
    finally:
        hdfs.do(end)


@pytest.mark.parametrize("kind", OUTAGES)
def test_an_outage_costs_no_row_and_no_patience(
    spark: SparkSession, hdfs: Hdfs, url: str, tmp_path: Path, kind: str
) -> None:
    """Queries of a local table: with the replica they skip files, without it they read all."""
    table = fill(spark, f"on_disk_{uuid.uuid4().hex[:8]}")

    def ask(replica: str, ttl: str = "200ms") -> int:
        """Return how many files a query skips in a session with this replica."""
        values = {
            **of_store(url, tmp_path / replica),
            "spark.skipping.cache.ttl": ttl,
            "spark.skipping.mode": "fallback",
            "spark.skipping.timeout": f"{TIMEOUT}s",
        }
        with settings(spark, values):
            began = time.monotonic()
            found = same_rows(spark, f"SELECT * FROM {table} WHERE k = 3").skipped
            took = time.monotonic() - began
            assert took < TIMEOUT + 5, f"two queries took {took:.1f} s"
        return found

    with settings(spark, {**of_store(url, tmp_path / "warm"), "spark.skipping.cache.ttl": "200ms"}):
        spark.sql(f"CREATE SKIPPING INDEX ON {table} (k MIN_MAX)")
    assert ask("warm") == ask("asks", "0s") == FILES - 1
    with outage(hdfs, kind):
        for _ in range(5):
            time.sleep(0.3)
            assert ask("warm") == FILES - 1
        # The NameNode knows that there is no other commit.
        assert ask("asks", "0s") == (FILES - 1 if kind == "no DataNode" else 0)
        assert ask("new") == 0
        assert spark.range(10).count() == 10
    deadline = time.monotonic() + 60
    while not (ask("warm") and ask("asks", "0s") and ask("new")):
        assert time.monotonic() < deadline, "it does not recover"
        time.sleep(1)
    spark.sql(f"DROP TABLE {table}")


def test_a_driver_ends_while_hdfs_hangs(
    spark: SparkSession, hdfs: Hdfs, url: str, tmp_path: Path
) -> None:
    table = fill(spark, f"on_disk_{uuid.uuid4().hex[:8]}")
    with settings(spark, of_store(url, tmp_path)):
        spark.sql(f"CREATE SKIPPING INDEX ON {table} (k MIN_MAX)")
    place = spark.sql(f"DESCRIBE DETAIL {table}").collect()[0].location
    (tmp_path / "other").mkdir()
    values = {"spark.skipping.store": url, "spark.skipping.timeout": f"{TIMEOUT}s"}
    with outage(hdfs, "both hang"), Driver(tmp_path / "other", values) as other:
        assert other.ask(f"SELECT * FROM delta.`{place}` WHERE k = 3") == [1, FILES]
    assert "did not answer within" in (tmp_path / "other" / "log").read_text()
    spark.sql(f"DROP TABLE {table}")
