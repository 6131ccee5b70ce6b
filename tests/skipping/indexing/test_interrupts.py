"""Ctrl-C while Spark works for us."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from skipping import SkippingIndex
from skipping.indexing.interrupts import run_interruptibly
from skipping.spark_api import collect_arrow


@pytest.fixture(params=["PySpark's handler", "a notebook's"])
def handled(request: pytest.FixtureRequest) -> Iterator[None]:
    """With the handler of the signal that a program has, or that a cell of a notebook has."""
    before = signal.getsignal(signal.SIGINT)
    if request.param == "a notebook's":
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_while(holds: Callable[[], object]) -> None:
    """Send the signal of Ctrl-C as soon as this is so."""

    def send() -> None:
        while not holds():
            time.sleep(0.05)
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=send, daemon=True).start()


def sleep(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    time.sleep(90)
    yield from batches


def idle(spark: SparkSession) -> bool:
    return not spark.sparkContext.statusTracker().getActiveJobsIds()


@pytest.mark.usefixtures("handled")
def test_run_interruptibly_cancels_the_job(spark: SparkSession) -> None:
    began = time.monotonic()
    frame = spark.range(2, numPartitions=2).mapInArrow(sleep, "id long")
    interrupt_while(lambda: not idle(spark))
    with pytest.raises(KeyboardInterrupt):
        run_interruptibly(spark, frame.toArrow)
    while not idle(spark):
        time.sleep(0.1)
    assert time.monotonic() - began < 60
    assert run_interruptibly(spark, spark.range(3).count) == 3


@pytest.mark.usefixtures("handled")
@pytest.mark.parametrize("twin", [False, True])
def test_create_ends_when_it_is_interrupted(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, twin: bool
) -> None:
    spark.range(8, numPartitions=2).write.format("delta").saveAsTable("interrupted")
    began = time.monotonic()
    started = threading.Event()

    def build(self: Any, *_: object) -> Iterator[pa.Table]:
        started.set()
        yield collect_arrow(self._spark.range(2, numPartitions=2).mapInArrow(sleep, "id long"))

    with monkeypatch.context() as patched:
        patched.setattr("skipping.indexing.spark.SparkBuild.__call__", build)
        interrupt_while(lambda: started.is_set() and not idle(spark))
        create = partial(SkippingIndex.create, spark, "interrupted", "id MIN_MAX")
        statement = partial(spark.sql, "CREATE SKIPPING INDEX ON interrupted (id MIN_MAX)")
        with pytest.raises(KeyboardInterrupt):
            (create if twin else statement)()
        while not idle(spark):
            time.sleep(0.1)
    index = SkippingIndex.on(spark, "interrupted")
    while index.state.status == "creating":
        time.sleep(0.1)
    assert time.monotonic() - began < 60
    assert (index.state.status, index.state.covered) == ("failed", None)
    assert spark.sql("SELECT count(*) FROM interrupted").first()[0] == 8  # type: ignore[index]
    spark.sql("REFRESH SKIPPING INDEX ON interrupted")
    assert index.state.status == "active"
    spark.sql("DROP SKIPPING INDEX ON interrupted")
    spark.sql("DROP TABLE interrupted")
