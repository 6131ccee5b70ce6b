"""What a driver holds does not grow with what it is asked, whatever its store does.

And the time that a query spends on asking is one, however many scans it has.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import rewrite
from rewrite.bridge.callbacks import describe_indexes
from rewrite.bridge.install import Hooks, find_hooks
from skipping.lookup.lookup import Lookup
from skipping.stores.sqlite.store import SqliteStore
from tests.rewrite.differential import make_table, same_rows, settings

pytestmark = pytest.mark.nightly

FILES = 4
AT_ONCE = 32
"""Questions at once, as `PythonCallback.java` has it."""

FALLBACK = {"spark.skipping.mode": "fallback"}


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> Iterator[str]:
    yield make_table(spark, "flat", f"SELECT int(id) AS k, id AS _f FROM range({FILES})")
    spark.sql("DROP TABLE flat")


@pytest.fixture
def store(spark: SparkSession, table: str, tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "store.sqlite"
    with settings(spark, {**FALLBACK, "spark.skipping.store": f"sqlite:{path}"}):
        spark.sql("CREATE SKIPPING INDEX ON flat (k VALUE_LIST)")
        yield path
    hooks(spark).follow(spark)


def hooks(spark: SparkSession) -> Hooks:
    found = find_hooks(spark)
    assert found is not None
    return found


@dataclass(frozen=True)
class Held:
    python_threads: int
    java_threads: int
    """Ours: Spark keeps its own for a minute."""
    python_files: int
    java_files: int
    messages: int
    heap: int

    @classmethod
    def now(cls, spark: SparkSession) -> Held:
        jvm: Any = spark.sparkContext._jvm
        factory = jvm.java.lang.management.ManagementFactory
        process = int(factory.getRuntimeMXBean().getName().split("@")[0])
        gc.collect()
        for _ in range(2):
            jvm.System.gc()
            time.sleep(0.2)
        runtime = jvm.Runtime.getRuntime()
        return cls(
            threading.active_count(),
            sum(
                thread.getName().startswith("skipping-")
                for thread in jvm.java.lang.Thread.getAllStackTraces().keySet().toArray()
            ),
            len(os.listdir("/proc/self/fd")),
            len(os.listdir(f"/proc/{process}/fd")),
            len(list(hooks(spark)._folder.path.iterdir())),
            (runtime.totalMemory() - runtime.freeMemory()) >> 20,
        )

    def grown(self, since: Held) -> tuple[int, ...]:
        return tuple(b - a for a, b in zip(astuple(since), astuple(self), strict=True))


def few_keys(n: int) -> str:
    return f"SELECT k FROM flat WHERE k = {n % FILES}"


def many_keys(n: int) -> str:
    """Too many for a message that is no file."""
    return f"SELECT k FROM flat WHERE k IN ({', '.join(map(str, range(n, n + 900)))})"


def ask(spark: SparkSession, queries: int) -> list[float]:
    """Seconds of each."""
    seconds = []
    for n in range(queries):
        began = time.monotonic()
        spark.sql((many_keys if n % 10 == 0 else few_keys)(n)).collect()
        seconds.append(time.monotonic() - began)
    return seconds


@pytest.mark.parametrize("queries", [100, pytest.param(2_000, marks=pytest.mark.soak)])
def test_a_healthy_store(spark: SparkSession, store: Path, queries: int) -> None:
    ask(spark, 30)
    before = Held.now(spark)
    ask(spark, queries)
    after = Held.now(spark)
    threads, java_threads, files, java_files, messages, heap = after.grown(before)
    assert max(threads, java_threads, files, java_files) <= 5, (before, after)
    assert (before.messages, messages) == (0, 0)
    assert heap < 40, (before, after)


class Dripping:
    """A server that never ends an answer, and never stops to send it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"opensearch://127.0.0.1:{self._listener.getsockname()[1]}"
        self._ended = threading.Event()
        self.connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        self._listener.settimeout(0.2)
        while not self._ended.is_set():
            try:
                connection, _ = self._listener.accept()
                connection.sendall(b"HTTP/1.1 200 OK\r\nx: ")
                self.connections.append(connection)
            except TimeoutError:
                pass
            for each in list(self.connections):
                try:
                    each.sendall(b" ")
                except OSError:
                    each.close()
                    self.connections.remove(each)

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._listener.close()
        for each in self.connections:
            each.close()


@contextmanager
def dripping() -> Iterator[Dripping]:
    server = Dripping()
    try:
        yield server
    finally:
        server.close()


@pytest.mark.parametrize("queries", [20, pytest.param(200, marks=pytest.mark.soak)])
def test_a_dripping_store(spark: SparkSession, store: Path, queries: int) -> None:
    """Every query waits once, and what asked for it is given back at the latest with the store."""
    ask(spark, 6)
    known = json.dumps(describe_indexes(Lookup(SqliteStore(store), ttl=5).definitions()))
    before = Held.now(spark)
    with dripping() as server:
        slow = {"spark.skipping.store": server.url, "spark.skipping.timeout": "200ms"}
        with settings(spark, slow):
            # What was known when the store began to drip.
            java = hooks(spark).java
            name = java.client().settings().name(spark._jsparkSession.sessionState().conf())
            java.client().setIndexes(name, known)
            seconds = ask(spark, queries)
        during = Held.now(spark)
        assert during.messages == 0
        assert during.java_threads - before.java_threads <= AT_ONCE + 5
        assert during.python_threads - before.python_threads <= 3 * AT_ONCE
    assert sorted(seconds)[len(seconds) // 2] < 2, seconds
    end = time.monotonic() + 60
    while True:
        after = Held.now(spark)
        threads, java_threads, files, java_files, messages, heap = after.grown(before)
        # Each thread of Java's that ever asked has a connection, with a thread of Python's.
        kept = AT_ONCE + 5
        if threads <= kept and java_threads <= kept and files <= kept + 5 and java_files <= kept:
            break
        assert time.monotonic() < end, (before, during, after)
    assert messages == 0
    assert heap < 40, (before, after)
    spark.sql(few_keys(1)).collect()
    assert same_rows(spark, few_keys(1)).opened == 1


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_eight_scans_wait_once(
    spark: SparkSession, store: Path, adaptive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[tuple[float, float]] = []

    def never(*_: Any, timeout: float, **__: Any) -> Any:
        now = time.monotonic()
        waited.append((now, now + timeout))
        time.sleep(timeout)
        return []

    scans = " UNION ALL ".join(f"({few_keys(n)} AND {n} < 9)" for n in range(8))
    ask(spark, 1)
    monkeypatch.setattr(SqliteStore, "find_prunable", never)
    values = {"spark.skipping.timeout": "1500ms", "spark.sql.adaptive.enabled": adaptive}
    with settings(spark, values):
        for look in (lambda: spark.sql(scans).collect(), lambda: explained(spark, scans)):
            waited.clear()
            began = time.monotonic()
            look()
            assert 0 < covered(waited) <= 1.6
            assert time.monotonic() - began < 8 * 1.5  # what eight would wait, if each did alone


def covered(spans: list[tuple[float, float]]) -> float:
    """Seconds in at least one of them."""
    total, end = 0.0, 0.0
    for first, last in sorted(spans):
        total += max(0.0, last - max(first, end))
        end = max(end, last)
    return total


def explained(spark: SparkSession, query: str) -> None:
    assert len(rewrite.explain(spark.sql(query)).scans) == 8


def test_the_stages_of_a_long_query_are_all_asked(spark: SparkSession, store: Path) -> None:
    """What counts is the time that questions wait, not the time since the first."""
    spark.udf.register("slowly", lambda k: time.sleep(1.2) or k, "int")
    query = (
        "SELECT count(*) FROM flat a JOIN (SELECT slowly(k) AS k FROM flat WHERE k = 1"
        " GROUP BY k) b ON a.k = b.k WHERE a.k <> 2"
    )
    with settings(spark, {"spark.skipping.timeout": "1s"}):
        df = spark.sql(query)
        assert df.collect() == [(1,)]
        assert [scan.reason for scan in rewrite.explain(df).scans] == [None, None]


def test_settings_that_java_obeys_make_nothing_anew(spark: SparkSession, store: Path) -> None:
    held = hooks(spark)
    ask(spark, 1)
    before = (
        held.java.client().settings().names().size(),
        len(held.lookups._lookups),
        len(held.lookups._settings),
    )
    for i in range(40):
        with settings(spark, {"spark.skipping.timeout": f"{5000 + i}ms"}):
            spark.sql(few_keys(i))._jdf.queryExecution().executedPlan()
    after = (
        held.java.client().settings().names().size(),
        len(held.lookups._lookups),
        len(held.lookups._settings),
    )
    assert after == before


def test_settings_and_stores_are_remembered_for_a_while(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    held = hooks(spark)
    for i in range(80):
        with settings(spark, {"spark.skipping.store": f"sqlite:{tmp_path}/{i}.sqlite"}):
            spark.sql(few_keys(i))._jdf.queryExecution().executedPlan()
            conf = spark._jsparkSession.sessionState().conf()
            held.lookups.get(held.java.client().settings().name(conf))
    assert held.java.client().settings().names().size() == 64
    assert len(held.lookups._settings) == len(held.lookups._lookups) == 64
    assert same_rows(spark, few_keys(1)).opened == 1


def test_a_store_that_no_query_names_any_more_is_not_watched(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    known = hooks(spark).java.client().settings()
    with settings(spark, {"spark.skipping.store": f"sqlite:{tmp_path}/once.sqlite"}):
        once = known.name(spark._jsparkSession.sessionState().conf())
    now = known.name(spark._jsparkSession.sessionState().conf())
    assert {once, now} <= set(known.names().toArray())
    jvm: Any = spark._jvm
    field = known.getClass().getDeclaredField("names")
    field.setAccessible(True)
    (make,) = known.getClass().getDeclaredClasses()[0].getDeclaredConstructors()
    make.setAccessible(True)
    values = spark.sparkContext._gateway.new_array(jvm.Object, 2)  # type: ignore[union-attr]
    values[0], values[1] = once, jvm.java.lang.System.nanoTime() - 601 * 10**9
    field.get(known).put(known.of(once), make.newInstance(values))
    names = set(known.names().toArray())
    assert once not in names
    assert now in names
    # A query that was planned then still gets an answer.
    assert "once.sqlite" in known.of(once)


def test_the_watch_goes_on_whatever_happens(
    spark: SparkSession, store: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """And says once what did."""
    looked: list[type[Exception]] = []
    kinds: list[type[Exception]] = [RecursionError, MemoryError, KeyError, OSError]

    def fail(*_: Any, **__: Any) -> Any:
        kind = kinds[len(looked) % len(kinds)]
        looked.append(kind)
        raise kind("of the store")

    with settings(spark, {"spark.skipping.cache.ttl": "200ms"}):
        spark.sql(few_keys(1)).collect()
        with caplog.at_level(logging.WARNING, "skipping"), monkeypatch.context() as patch:
            patch.setattr(Lookup, "definitions", fail)
            eventually(lambda: len(looked) > 3 * len(kinds))
        said = [record.getMessage() for record in caplog.records]
        assert len(said) == len(set(said)) >= len(kinds), said
        assert "skipping" in [thread.name for thread in threading.enumerate()]
        again: list[None] = []
        whole = Lookup.definitions

        def counted(self: Lookup, **named: Any) -> Any:
            again.append(None)
            return whole(self, **named)

        monkeypatch.setattr(Lookup, "definitions", counted)
        eventually(lambda: len(again) > 2)


def test_each_session_has_the_store_looked_at_by_its_own_ttl(
    spark: SparkSession, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasty, looked, whole = spark.newSession(), Counter[float](), Lookup.definitions

    def counted(self: Lookup, **named: Any) -> Any:
        looked[self._ttl] += 1
        return whole(self, **named)

    for key, value in {**FALLBACK, "spark.skipping.store": f"sqlite:{store}"}.items():
        hasty.conf.set(key, value)
    hasty.conf.set("spark.skipping.cache.ttl", "250ms")
    with settings(spark, {"spark.skipping.cache.ttl": "50s"}):
        for session in (spark, hasty):
            session.sql(few_keys(1)).collect()
        eventually(
            lambda: {50.0, 0.25} <= {lookup._ttl for lookup in hooks(spark)._watcher._read_at}
        )
        monkeypatch.setattr(Lookup, "definitions", counted)
        eventually(lambda: looked[0.25] > 4)
        assert looked[50.0] <= 1  # which may have begun before it was counted


def eventually(holds: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)
