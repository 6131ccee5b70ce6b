"""Counters by table: in Python, in the log, and as Prometheus scrapes them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from pyspark.sql import SparkSession

import rewrite
from providers.errors import SessionError
from rewrite.bridge.counters import Counting, TableCounters
from rewrite.bridge.install import find_hooks
from tests.rewrite.differential import make_table, settings

NAME = "spark_catalog.default.counted"


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> Iterator[str]:
    yield make_table(spark, "counted", "SELECT id AS _f, id FROM range(5)", "id MIN_MAX")
    spark.sql("DROP SKIPPING INDEX ON counted")
    spark.sql("DROP TABLE counted")


def counted(spark: SparkSession) -> TableCounters:
    found = [c for c in rewrite.counters(spark) if c.table == NAME]
    return found[0] if found else TableCounters(NAME, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, {})


def test_what_queries_asked_and_skipped(spark: SparkSession, table: str) -> None:
    before = counted(spark)
    for id in (1, 2):
        df = spark.sql(f"SELECT * FROM {table} WHERE id = {id}")
        df.collect()
    (scan,) = rewrite.explain(df).scans
    with settings(spark, {"spark.skipping.enabled": "false"}):
        spark.sql(f"SELECT * FROM {table} WHERE id = 3").collect()
    spark.sql(f"SELECT * FROM {table} WHERE id = 4")  # it does not run
    now = counted(spark)
    assert (now.scans - before.scans, now.lookups - before.lookups) == (3, 2)
    assert (now.files - before.files, now.skipped - before.skipped) == (10, 8)
    assert now.bytes - before.bytes == 2 * (scan.bytes or 0)
    assert now.skipped_bytes - before.skipped_bytes == 2 * scan.pruned_bytes
    assert now.opened - before.opened == 2 + 5
    assert now.unknown == before.unknown
    assert 0 < now.lookup_seconds - before.lookup_seconds < 60
    reason = "spark.skipping.enabled is false"
    assert now.fallbacks[reason] - before.fallbacks.get(reason, 0) == 1


def test_the_log(spark: SparkSession, table: str, caplog: pytest.LogCaptureFixture) -> None:
    spark.sql(f"SELECT * FROM {table} WHERE id = 1").collect()
    now = counted(spark)
    hooks, counting = find_hooks(spark), Counting()
    assert hooks is not None
    with caplog.at_level(logging.INFO, "skipping.counters"):
        counting.log(hooks.java)
        lines = [r.getMessage() for r in caplog.records if r.getMessage().startswith(NAME)]
        assert lines == [str(now)]
        caplog.clear()
        counting.log(hooks.java)
        assert not caplog.records, "nothing has changed"
    assert f"skipped {now.skipped:,} of {now.files:,} files" in str(now)


def test_files_that_can_have_no_index_are_not_counted(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.csv(f"{tmp_path}/lines")
    lines = spark.read.csv(f"{tmp_path}/lines").where("_c0 = '1'")
    lines.collect()
    assert rewrite.explain(lines).scans[0].opened
    make_table(spark, "logged", "SELECT id AS _f, id FROM range(2)")
    spark.sql("DELETE FROM logged WHERE id = 1")  # Delta reads its own log
    spark.sql("DROP TABLE logged")
    tables = {row.table for row in rewrite.history(spark).collect()}
    tables |= {counters.table for counters in rewrite.counters(spark)}
    assert "spark_catalog.default.logged" in tables
    assert not [table for table in tables if "lines" in table or "_delta_log" in table]


def test_prometheus(spark: SparkSession, table: str) -> None:
    spark.sql(f"SELECT * FROM {table} WHERE id = 1").collect()
    with settings(spark, {"spark.skipping.enabled": "false"}):
        spark.sql(f"SELECT * FROM {table} WHERE id = 3").collect()
    registry = CollectorRegistry()
    registry.register(rewrite.PrometheusCollector(spark))
    now = counted(spark)
    label = {"table": NAME}
    for name in ("scans", "lookups", "files", "skipped", "bytes", "skipped_bytes", "opened"):
        value = registry.get_sample_value(f"skipping_{name}_total", label)
        assert value == getattr(now, name), name
    reason = {"table": NAME, "reason": "spark.skipping.enabled is false"}
    value = registry.get_sample_value("skipping_fallbacks_total", reason)
    assert value == now.fallbacks[reason["reason"]]
    text = generate_latest(registry).decode()
    assert "# HELP skipping_alarms_total wrongly pruned files" in text
    assert f'skipping_lookup_seconds_total{{table="{NAME}"}}' in text


def test_without_prometheus(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(SessionError, match=r"lakehouse-file-skipping\[metrics\]"):
        rewrite.PrometheusCollector(spark)
