"""One run on executors in processes of their own: nothing compiled or cached here reaches them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.rerun import rerun

PROGRAM = """
import sys

from pyspark.sql import SparkSession

import rewrite

spark = rewrite.session(
    SparkSession.builder.master("local-cluster[2,1,1024]")
    .config("spark.sql.warehouse.dir", sys.argv[1] + "/warehouse")
    .config("spark.log.level", "ERROR")
    .config("spark.executor.memory", "1g")
    .config("spark.skipping.mode", "strict")
)
frame = spark.range(0, 80, 1, 8).selectExpr("id", "concat('v', id % 40) AS v")
for t, using, bounds in (
    ("t", "delta", "'delta.dataSkippingNumIndexedCols' = '0'"),
    ("iceberg.db.t", "iceberg", "'write.metadata.metrics.default' = 'none'"),
):
    spark.sql(f"CREATE TABLE {t} (id bigint, v string) USING {using} TBLPROPERTIES ({bounds})")
    frame.write.format(using).mode("append").saveAsTable(t)
    spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX, v VALUE_LIST)")
    condition = "a.id > 75 AND b.v = 'v37'"
    for query, expected, opened in (
        (
            f"SELECT a.id, b.id AS other FROM {t} a JOIN {t} b ON a.v = b.v WHERE {condition}",
            [(77, 37), (77, 77)],
            [1, 2],
        ),
        (f"SELECT id FROM {t} JOIN (VALUES ('v37'), ('v38')) d(v) USING (v)",
         [(37,), (38,), (77,), (78,)], [2]),
    ):
        spark.conf.set("spark.skipping.enabled", "true")
        df = spark.sql(query)
        rows = sorted(map(tuple, df.collect()))
        scans = rewrite.explain(df).scans
        spark.conf.set("spark.skipping.enabled", "false")
        assert rows == sorted(map(tuple, spark.sql(query).collect())) == expected, rows
        assert [(scan.total, scan.opened) for scan in scans] == [(8, n) for n in opened], scans
spark.stop()
print("skipped on a cluster")
"""


def test_rows_are_equal_and_files_are_skipped(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "skipped on a cluster"


@pytest.mark.soak
def test_random_joins_have_equal_rows() -> None:
    """The first queries of the property test."""
    env = {"SKIPPING_TEST_MASTER": "local-cluster[2,1,1024]", "SKIPPING_TEST_QUERIES": "8"}
    told = rerun("tests/rewrite/test_join_property.py", env=env, timeout=900)
    assert "2 passed" in told, told
