"""A stream that is stopped while it looks for the first time ends as any other does."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pyspark.sql import SparkSession

from skipping.sources.spark import settings_of, store_of
from skipping.streaming import jobs
from skipping.streaming.maintainer import State
from skipping.streaming.source import FileEvents
from tests.skipping.streaming.conftest import QUICK, until


def test_it_is_no_fault(spark: SparkSession, t: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark logged a NullPointerException: it asked for a batch, and was given none."""
    looking = threading.Event()

    def interrupted(self: FileEvents, end: Any) -> Any:
        looking.set()
        maintainer = jobs._maintainers[key]
        until(lambda: maintainer.state is State.ENDED)
        raise InterruptedError("as Spark does it to a job that its thread waits for")

    monkeypatch.setattr(FileEvents, "_events", interrupted)
    key = store_of(spark, settings_of(spark)).location, f"spark_catalog.default.{t}"
    spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX) WITH ({QUICK}, build = false)")
    assert looking.wait(60)
    query = jobs._maintainers[key].query
    assert query is not None
    spark.sql(f"DROP SKIPPING INDEX ON {t}")
    assert not query.isActive
    assert query.exception() is None
