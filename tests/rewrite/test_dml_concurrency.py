"""Two transactions at once on twin Delta tables: they end with the index as they do without.

Nothing depends on time: Delta's own observer of transactions stops the first command, either when
it has its snapshot and has looked at nothing, or when it is about to commit; then the second one
runs from end to end, and then the first one goes on.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.rewrite.commands_twin import (
    NAMES,
    Originals,
    Twins,
    looks,
    newest,
    outcome,
    serving,
)

pytestmark = pytest.mark.nightly

ISOLATION = ("Serializable", "WriteSerializable")

# What looks for the rows of file 7, of twelve; `k` has an index, and the log no bounds of it.
FIRST = {
    "delete": "DELETE FROM {t} WHERE k = 7",
    "update": "UPDATE {t} SET name = 'first' WHERE k = 7",
    "delete nothing": "DELETE FROM {t} WHERE k = 7000",
    "merge": """MERGE INTO {t} t USING (SELECT * FROM VALUES (7, 1) AS s(k, m)) s ON t.k = s.k
        WHEN MATCHED THEN UPDATE SET name = 'first'""",
    "upsert": """MERGE INTO {t} t USING (SELECT * FROM VALUES (7, 1), (7000, 2) AS s(k, m)) s
        ON t.k = s.k WHEN MATCHED THEN UPDATE SET m = s.m
        WHEN NOT MATCHED THEN INSERT (k, m) VALUES (s.k, s.m)""",
    "insert only": """MERGE INTO {t} t USING (SELECT * FROM VALUES (7, 1), (7001, 2) AS s(k, m)) s
        ON t.k = s.k WHEN NOT MATCHED THEN INSERT (k, m) VALUES (s.k, s.m)""",
}

# What is done meanwhile: to file 7, or to file 3, which the index has pruned for the first one.
SECOND = {
    "append": "INSERT INTO {t} (k, m) VALUES (8000, 1)",
    "append a match": "INSERT INTO {t} (k, m) VALUES (7, 1)",
    "append what was read": "INSERT INTO {t} (k, m) SELECT k, m FROM {t} WHERE k = 3",
    "delete here": "DELETE FROM {t} WHERE k = 7",
    "delete beside": "DELETE FROM {t} WHERE k = 19",
    "delete there": "DELETE FROM {t} WHERE k = 3",
    "update here": "UPDATE {t} SET m = -1 WHERE k = 7",
    "update there": "UPDATE {t} SET m = -1 WHERE k = 3",
    "merge here": """MERGE INTO {t} t USING (SELECT 7 AS k) s ON t.k = s.k
        WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (k) VALUES (s.k)""",
    "merge there": """MERGE INTO {t} t USING (SELECT 3 AS k) s ON t.k = s.k
        WHEN MATCHED THEN UPDATE SET m = -2""",
    "insert only": """MERGE INTO {t} t USING (SELECT 7002 AS k) s ON t.k = s.k
        WHEN NOT MATCHED THEN INSERT (k) VALUES (s.k)""",
    "optimize": "OPTIMIZE {t}",
    "property": "ALTER TABLE {t} SET TBLPROPERTIES ('a.property' = '1')",
}

KINDS = ("rewritten", "vectors", "parted", "parted, vectors")
STOPS = ("start", "commit")
SOAK = pytest.mark.soak
_USUAL = {("delete", "Serializable"), ("upsert", "WriteSerializable")}

PAUSE = """
package tests;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.delta.OptimisticTransaction;
import org.apache.spark.sql.delta.TransactionExecutionObserver;

/** Stops a transaction once: when it has its snapshot, or before it commits. */
public class Pause implements TransactionExecutionObserver {
  private final boolean atStart;
  private final CountDownLatch reached = new CountDownLatch(1);
  private final CountDownLatch free = new CountDownLatch(1);

  public Pause(boolean atStart) {
    this.atStart = atStart;
  }

  /** Whether it has been stopped; false after a minute. */
  public boolean await() throws InterruptedException {
    return reached.await(60, TimeUnit.SECONDS);
  }

  public boolean isReached() {
    return reached.getCount() == 0;
  }

  public void free() {
    free.countDown();
  }

  private void pause() {
    reached.countDown();
    try {
      if (!free.await(120, TimeUnit.SECONDS)) throw new IllegalStateException("never let go");
    } catch (InterruptedException stopped) {
      throw new IllegalStateException(stopped);
    }
  }

  public OptimisticTransaction startingTransaction(scala.Function0 start) {
    OptimisticTransaction started = (OptimisticTransaction) start.apply();
    if (atStart) pause();
    return started;
  }

  public Object preparingCommit(scala.Function0 prepare) {
    return prepare.apply();
  }

  public void beginDoCommit() {
    if (!atStart) pause();
  }

  public void beginBackfill() {}

  public void beginPostCommit() {}

  public void transactionCommitted() {}

  public void transactionAborted() {}

  public TransactionExecutionObserver createChild() {
    return this;
  }

  public scala.Option nextObserver() {
    return scala.Option.empty();
  }

  public void nextObserver_$eq(scala.Option next) {}

  public scala.Option getNextObserver() {
    return scala.Option.empty();
  }

  public void setNextObserver(Object next) {}

  public void advanceToNextThreadObserver() {}
}
"""


class Pauses:
    """Makes observers that stop a command."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        compiler = self._jvm.org.codehaus.janino.SimpleCompiler()
        loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        compiler.setParentClassLoader(loader)
        compiler.cook(PAUSE)
        made = compiler.getClassLoader().loadClass("tests.Pause").getConstructors()
        self._constructor = made[0]
        self._observers = self._jvm.org.apache.spark.sql.delta.TransactionExecutionObserver

    def make(self, stop: str) -> Any:
        given = self._jvm.java.util.ArrayList()
        given.add(stop == "start")
        return self._constructor.newInstance(given.toArray())

    def set(self, observer: Any) -> Any:
        """Have this thread of Java's observed; the observer there was."""
        before = self._observers.getObserver()
        self._observers.setObserver(observer)
        return before


def pair(spark: SparkSession, pauses: Pauses, table: str, stop: str, *two: str) -> list[object]:
    """What comes of the first and the second, and whether the first one was stopped."""
    first, second = (statement.format(t=table) for statement in two)
    pause = pauses.make(stop)
    ends: list[object] = []

    def run() -> None:
        before = pauses.set(pause)
        try:
            ends.append(outcome(lambda: spark.sql(first).collect()))
        finally:
            pauses.set(before)

    with serving(spark, table):
        thread = threading.Thread(target=run)
        thread.start()
        try:
            # What finds nothing to do commits nothing, and is not stopped there.
            while thread.is_alive() and not pause.isReached():
                thread.join(0.02)
            stopped = pause.isReached()
            other = outcome(lambda: spark.sql(second).collect())
        finally:
            pause.free()
            thread.join()
    # OPTIMIZE tells the sizes and names of its files.
    return [*ends, other if isinstance(other, str) or "OPTIMIZE" not in second else "", stopped]


def same_ends(
    spark: SparkSession, pauses: Pauses, twins: Twins, stop: str, *two: str
) -> list[object]:
    """`pair` on both tables, which are equal afterwards; what came of it."""
    before = len(twins.versions("twin"))
    ends = [pair(spark, pauses, table, stop, *two) for table in NAMES]
    assert ends[0] == ends[1], (twins.kind, stop, two)
    assert twins.differ() is None, (twins.kind, stop, two)
    if made := len(twins.versions("twin")) - before:
        assert twins.differ_in_commits(made) is None, (twins.differ_in_commits(made), stop, two)
    return ends[0]


@pytest.fixture(scope="module")
def originals(spark: SparkSession) -> Iterator[dict[str, str]]:
    yield Originals(spark)
    Twins.drop(spark)


@pytest.fixture(scope="module")
def pauses(spark: SparkSession) -> Pauses:
    return Pauses(spark)


@pytest.mark.parametrize("half", [0, pytest.param(1, marks=SOAK)])
@pytest.mark.parametrize(
    ("first", "isolation"),
    [
        pytest.param(first, isolation, marks=() if (first, isolation) in _USUAL else SOAK)
        for first, isolation in itertools.product(FIRST, ISOLATION)
    ],
)
def test_each_with_each(
    spark: SparkSession,
    originals: dict[str, str],
    pauses: Pauses,
    tmp_path: Path,
    first: str,
    isolation: str,
    half: int,
) -> None:
    """Half of the second ones in turn; what they touch is put back between them."""
    kind = "rewritten" if isolation == "Serializable" else "vectors"
    twins = Twins.make(spark, originals, kind, tmp_path, isolation)
    start = len(twins.versions("twin")) - 1
    conflicts: Counter[bool] = Counter()
    skipped = 0
    place = list(FIRST).index(first)
    turn = (half + place + ISOLATION.index(isolation)) % 2
    for n, (name, second) in enumerate([*SECOND.items()][turn::2]):
        seen = newest(spark)
        stop = STOPS[(n + place) % 2]
        ends = same_ends(spark, pauses, twins, stop, FIRST[first], second)
        conflicts[isinstance(ends[0], str)] += 1
        assert ends[1] == "" or not isinstance(ends[1], str), (name, ends)
        (said, *_), *_ = twins.committed("indexed")
        assert said["isolationLevel"] in (isolation, "SnapshotIsolation"), said
        skipped += sum(look.pruned for look in looks(spark, seen))
        for table in NAMES:
            spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF {start}")
        assert twins.differ() is None
    # Without partitions all files are candidates: only what adds rows blindly may come between.
    if isolation == "WriteSerializable":
        assert conflicts[False] > 0, conflicts
    assert skipped > 0
    if first != "delete nothing":
        assert conflicts[True] > 0, conflicts


@pytest.mark.parametrize("count", [12, pytest.param(10_000, marks=SOAK)])
def test_random_pairs(
    spark: SparkSession, originals: dict[str, str], pauses: Pauses, tmp_path: Path, count: int
) -> None:
    draw = random.Random(7)
    totals: Counter[str] = Counter()
    tables = itertools.cycle(itertools.product(KINDS, ISOLATION))
    for n in range(int(os.environ.get("SKIPPING_TEST_QUERIES", count))):
        if n % 12 == 0:
            kind, isolation = next(tables)
            twins = Twins.make(spark, originals, kind, tmp_path / str(n), isolation)
        if n % 12 == 6:
            spark.sql("REFRESH SKIPPING INDEX ON indexed")
        here, there = draw.sample(range(60), 2)
        keys = {"k = 7 ": f"k = {here} ", "k = 3 ": f"k = {there} "}
        first, second = draw.choice([*FIRST.values()]), draw.choice([*SECOND.values()])
        for old, new in keys.items():
            first, second = (f"{text} ".replace(old, new) for text in (first, second))
        first, second = (text.replace("(7,", f"({here},") for text in (first, second))
        seen = newest(spark)
        ends = same_ends(spark, pauses, twins, draw.choice(STOPS), first, second)
        totals["conflicts"] += isinstance(ends[0], str)
        totals["stopped"] += bool(ends[2])
        totals["skipped"] += sum(look.pruned for look in looks(spark, seen))
    print(dict(totals))
    assert min(totals["conflicts"], totals["stopped"], totals["skipped"]) > 0, totals
