"""A query that is cancelled while its keys are collected ends as it does without an index."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from pyspark import InheritableThread
from pyspark.sql import SparkSession

import rewrite
from rewrite.bridge.install import find_hooks
from tests.rewrite.differential import in_catalog_of, make_table, settings, spelled

pytestmark = pytest.mark.nightly

FILES = 4
SMJ = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
PLAIN = {"spark.sql.adaptive.enabled": "false"}
ENGINES = {"adaptive": SMJ, "plain": SMJ | PLAIN}
TAGGED = "skipping-keys-"

# Each row of the dimension costs so many steps, of plain SQL: it is no function of the user's.
QUERY = """SELECT f.id, d.name FROM stopped f JOIN stopping d ON f.k = d.k
    WHERE d.name < 2 AND aggregate(sequence(1, d.one * {}), 0D, (s, x) -> s + sqrt(x)) > 0"""
SLOW, FAST = 300_000, 2


@pytest.fixture(scope="module", params=["delta", "iceberg"])
def format(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    rows = f"""SELECT id, int(id % 80) AS k, repeat(md5(string(id)), 20) AS pad,
        int(id % {FILES}) AS _f FROM range(800)"""
    with in_catalog_of(spark, request.param):
        make_table(spark, "stopped", rows, "k VALUE_LIST")
        spark.sql(
            f"""CREATE TABLE stopping USING {request.param}
            AS SELECT int(id) AS k, int(id % {FILES}) AS name, 1 AS one FROM range(80)"""
        )
        yield request.param
        spark.sql("DROP SKIPPING INDEX ON stopped")
        for name in ("stopped", "stopping"):
            spark.sql(f"DROP TABLE {name}")


def group(spark: SparkSession, stopped: Stopped) -> None:
    spark.sparkContext.cancelJobGroup(stopped.group)


def group_and_later(spark: SparkSession, stopped: Stopped) -> None:
    spark.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(stopped.group)


def tag(spark: SparkSession, stopped: Stopped) -> None:
    spark.sparkContext.cancelJobsWithTag("mine too")


def interrupt_all(spark: SparkSession, stopped: Stopped) -> None:
    spark.interruptAll()


def button_of_the_ui(spark: SparkSession, stopped: Stopped) -> None:
    spark.sparkContext._jsc.sc().cancelJob(stopped.job)


def control_c(spark: SparkSession, stopped: Stopped) -> None:
    handler = signal.getsignal(signal.SIGINT)
    assert callable(handler)
    with pytest.raises(KeyboardInterrupt):
        handler(signal.SIGINT, None)


WAYS: list[Callable[[SparkSession, Stopped], None]] = [
    group,
    group_and_later,
    tag,
    interrupt_all,
    button_of_the_ui,
    control_c,
]


class Stopped:
    """A query in a thread of its own, with a group and tags, that is cancelled."""

    def __init__(self, spark: SparkSession, query: str, *, tagged: str = TAGGED) -> None:
        self.spark = spark
        self.group = f"mine {uuid4()}"  # one that is cancelled for good takes no more jobs
        self.error: Exception | None = None
        self.ended = 0.0
        self.thread = InheritableThread(target=self._run, args=(query,))
        self.thread.start()
        self.job, self.properties = self._job(tagged)

    def _run(self, query: str) -> None:
        context = self.spark.sparkContext
        context.setJobGroup(self.group, "my work")
        context.addJobTag("mine too")
        try:
            self.spark.sql(query).collect()
        except Exception as error:
            self.error = error
        self.ended = time.monotonic()

    def _job(self, tagged: str) -> tuple[int, Any]:
        """The job that collects."""
        end = time.monotonic() + 20
        while time.monotonic() < end and self.thread.is_alive():
            for job in active(self.spark):
                data = self.spark.sparkContext._jsc.sc().statusStore().job(job)
                if tagged in data.jobTags().mkString(","):
                    return job, data
            time.sleep(0.02)
        raise AssertionError(f"no job collects keys: {self.error}")

    def cancel(self, way: Callable[[SparkSession, Stopped], None]) -> float:
        """Seconds until the query had ended."""
        began = time.monotonic()
        way(self.spark, self)
        self.thread.join(60)
        assert not self.thread.is_alive()
        return self.ended - began


def active(spark: SparkSession) -> list[int]:
    return list(spark.sparkContext.statusTracker().getActiveJobsIds())


def at_rest(spark: SparkSession) -> bool:
    """Whether no job runs, and none of our threads."""
    hooks = find_hooks(spark)
    assert hooks is not None
    return not active(spark) and hooks.java.client().threads().getActiveCount() == 0


def comes_to_rest(spark: SparkSession, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not at_rest(spark):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_cancelled_query_ends(
    spark: SparkSession, format: str, way: Callable[[SparkSession, Stopped], None], engine: str
) -> None:
    with settings(spark, ENGINES[engine]):
        stopped = Stopped(spark, QUERY.format(SLOW))
        assert stopped.properties.jobGroup().get() == stopped.group
        assert stopped.properties.description().get() == "my work"
        tags = stopped.properties.jobTags().mkString(",")
        assert "mine too" in tags
        assert "-execution-root-id-" in tags
        assert stopped.cancel(way) < 4  # on a machine that may do other work
        assert "SPARK_JOB_CANCELLED" in str(stopped.error), stopped.error
        assert comes_to_rest(spark, 2)
        df = spark.sql(QUERY.format(FAST))
        rows = spelled(df.collect())
        assert len(rows) == 400
        (scan,) = [s for s in rewrite.explain(df).scans if s.table.endswith("stopped")]
        assert scan.opened == 2, str(scan)
