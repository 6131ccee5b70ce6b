"""Every kind of commit: after each the stream catches up, and keeps what a new index would."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from skipping import SkippingIndex
from skipping.spark_api import RELEASE
from tests.skipping.streaming.conftest import (
    QUICK,
    append,
    caught_up,
    checked,
    follow,
    row_changes,
    same_as_scratch,
    schema_changes,
    until,
)

pytestmark = pytest.mark.nightly

UNBOUNDED = "spark.databricks.delta.optimize.zorder.checkStatsCollection.enabled"
PROPERTIES = (
    "delta.dataSkippingNumIndexedCols = 0, delta.columnMapping.mode = 'name',"
    " delta.enableTypeWidening = true, delta.enableDeletionVectors = {vectors}"
)


def made(name: str, vectors: str, *, how: str = "CREATE TABLE", rows: int = 40) -> str:
    properties = PROPERTIES.format(vectors=vectors)
    return (
        f"{how} {name} USING delta TBLPROPERTIES ({properties}) AS SELECT /*+ REPARTITION(4) */"
        f" cast(id AS int) AS id, cast(id % 7 AS string) AS s, id AS n FROM range({rows})"
    )


def commits(name: str) -> dict[str, list[str]]:
    """What is done, one after another, to a table whose `id` begins as INT."""
    out = {
        **row_changes(name),
        "optimize": [f"OPTIMIZE {name}"],
        "append once more": [f"INSERT INTO {name} SELECT id, 'y', id FROM range(200, 220)"],
        "z-order": [f"OPTIMIZE {name} ZORDER BY (n)"],
        "restore": [f"RESTORE TABLE {name} TO VERSION AS OF 2"],
        "restore forward": [f"RESTORE TABLE {name} TO VERSION AS OF 4"],
        "overwrite": [f"INSERT OVERWRITE {name} SELECT id, 'over', id FROM range(30)"],
        "vacuum": [f"VACUUM {name} RETAIN 0 HOURS", f"VACUUM SKIPPING INDEX ON {name}"],
        **schema_changes(name),
        "properties only": [f"ALTER TABLE {name} SET TBLPROPERTIES (a = 'b')"],
        "delete all": [f"DELETE FROM {name}"],
        "append to nothing": [f"INSERT INTO {name} VALUES (1, 'back', 'x'), (2, 'back', 'y')"],
    }
    if RELEASE < (4, 0):
        del out["widen"]  # Delta 3.3 widens no INT to BIGINT
    return out


def test_rows_that_change_without_deletion_vectors(
    spark: SparkSession, t: str, tmp_path: Path
) -> None:
    spark.sql(made(t, "false", how="CREATE OR REPLACE TABLE"))
    follow(spark, t, tmp_path, row_changes(t))


@pytest.mark.parametrize("vectors", ["true", pytest.param("false", marks=pytest.mark.soak)])
def test_every_kind_of_commit(
    spark: SparkSession, t: str, tmp_path: Path, vectors: str, request: pytest.FixtureRequest
) -> None:
    spark.conf.set(UNBOUNDED, "false")
    request.addfinalizer(lambda: spark.conf.unset(UNBOUNDED))
    spark.sql(made(t, vectors, how="CREATE OR REPLACE TABLE"))
    follow(spark, t, tmp_path, commits(t))
    first = SkippingIndex.on(spark, t).definition

    spark.sql(made(t, vectors, how="CREATE OR REPLACE TABLE", rows=20))
    checked(spark, t, tmp_path)
    second = SkippingIndex.on(spark, t).definition
    assert second.table != first.table
    # By name: what was renamed to `word` is gone, `n` is a number again.
    assert {(i.name, i.kind) for i in second.columns} == {("id", "MIN_MAX"), ("n", "VALUE_LIST")}

    spark.sql(f"DROP TABLE {t}")
    time.sleep(1.0)
    spark.sql(made(t, vectors, rows=10))
    checked(spark, t, tmp_path)
    third = SkippingIndex.on(spark, t).definition
    assert third.table.root == second.table.root
    assert third.table != second.table


def test_a_log_whose_old_versions_are_gone(spark: SparkSession, t: str, tmp_path: Path) -> None:
    spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX) WITH ({QUICK})")
    spark.sql(f"ALTER SKIPPING INDEX ON {t} WITH (auto_refresh = false)")
    for i in range(3):
        append(spark, t, start=100 * (i + 1))
    index = SkippingIndex.on(spark, t)
    jvm: Any = spark._jvm
    delta = jvm.org.apache.spark.sql.delta.DeltaLog
    delta.forTable(spark._jsparkSession, index.table.id.root).checkpoint()
    log = Path(index.table.id.root.removeprefix("file:")) / "_delta_log"
    for version in range(3):
        for old in log.glob(f"*{version:020d}.*"):
            old.unlink()
    delta.clearCache()
    assert index.table.changes(0, 3) is None
    spark.sql(f"ALTER SKIPPING INDEX ON {t} WITH (auto_refresh = true)")
    until(lambda: caught_up(spark, t))
    same_as_scratch(spark, t, tmp_path)


def test_plain_parquet_by_the_difference_of_listings(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    name = f"parquet.`{folder}`"

    def write(start: int, mode: str = "append") -> None:
        spark.range(start, start + 10).coalesce(1).write.mode(mode).parquet(str(folder))

    steps: dict[str, Callable[[], object]] = {
        "append": lambda: write(100),
        "delete": lambda: next(folder.glob("part-*")).unlink(),
        "overwrite": lambda: write(500, "overwrite"),
    }
    write(0)
    spark.sql(f"CREATE SKIPPING INDEX ON {name} (id MIN_MAX) WITH ({QUICK})")
    try:
        for step in steps.values():
            step()
            until(lambda: caught_up(spark, name))
            same_as_scratch(spark, name, tmp_path)
    finally:
        spark.sql(f"DROP SKIPPING INDEX ON {name}")
