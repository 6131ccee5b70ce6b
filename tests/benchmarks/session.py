"""The Spark session that benchmarks run in, and what only its Java can do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import SparkSession

import rewrite

__all__ = ["benchmark_session", "checkpoint"]


@contextmanager
def benchmark_session(settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A strict session on two cores whose index store lives as long as it does."""
    with TemporaryDirectory() as warehouse:
        builder = (
            SparkSession.builder.master("local[2]")
            .config("spark.sql.warehouse.dir", warehouse)
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.memory", "6g")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.databricks.delta.snapshotPartitions", "2")
            .config("spark.skipping.mode", "strict")
            .config("spark.skipping.timeout", "60s")
        )
        for name, value in (settings or {}).items():
            builder = builder.config(name, value)
        session = rewrite.session(builder)
        session.sparkContext.setLogLevel("ERROR")
        try:
            yield session
        finally:
            session.stop()


def checkpoint(spark: SparkSession, root: str | Path) -> None:
    """Write a checkpoint of the log of the Delta table in a folder of this machine."""
    jvm: Any = spark._jvm
    delta = jvm.org.apache.spark.sql.delta.DeltaLog
    delta.forTable(spark._jsparkSession, f"file:{root}").checkpoint()
