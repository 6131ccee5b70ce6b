"""Every kind of commit to an Iceberg table: as `test_commits` does to a Delta table."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import skipping
from skipping import SkippingIndex
from tests.skipping.streaming.conftest import (
    EXPIRES_ALL,
    QUICK,
    checked,
    follow,
    row_changes,
    schema_changes,
)

pytestmark = pytest.mark.nightly

_numbers = itertools.count()
UNBOUNDED = "'write.metadata.metrics.default' = 'none'"


@pytest.fixture
def t(spark: SparkSession) -> Iterator[str]:
    name = f"iceberg.streams.t{next(_numbers)}"
    yield name
    spark.sql(f"DROP SKIPPING INDEX IF EXISTS ON {name}")
    spark.sql(f"DROP TABLE IF EXISTS {name}")


def made(name: str, mode: str, *, version: int = 2, rows: int = 40) -> str:
    writes = ", ".join(f"'write.{w}.mode' = '{mode}'" for w in ("delete", "update", "merge"))
    return (
        f"CREATE TABLE {name} USING iceberg"
        f" TBLPROPERTIES ('format-version' = '{version}', {UNBOUNDED}, {writes}) AS"
        " SELECT /*+ REPARTITION(4) */ cast(id AS int) AS id, cast(id % 7 AS string) AS s, id AS n"
        f" FROM range({rows})"
    )


def commits(name: str, first: int) -> dict[str, list[str]]:
    """What is done, one after another; `first` is its first snapshot."""
    catalog, _, table = name.partition(".")
    call = f"CALL {catalog}.system."
    all_files = "map('rewrite-all', 'true')"
    return {
        **row_changes(name),
        "rewrite": [f"{call}rewrite_data_files(table => '{table}', options => {all_files})"],
        "append once more": [f"INSERT INTO {name} SELECT id, 'y', id FROM range(200, 220)"],
        "sort": [
            f"{call}rewrite_data_files(table => '{table}', strategy => 'sort',"
            f" sort_order => 'n DESC', options => {all_files})"
        ],
        "roll back": [f"{call}rollback_to_snapshot('{table}', {first})"],
        "append to the past": [f"INSERT INTO {name} VALUES (14, 'past', 1)"],
        "branch": [
            f"ALTER TABLE {name} CREATE BRANCH side",
            f"INSERT INTO {name}.branch_side VALUES (260, 'side', 1)",
        ],
        "cherry-pick": [
            f"ALTER TABLE {name} SET TBLPROPERTIES ('write.wap.enabled' = 'true')",
            "SET spark.wap.id = picked",
            f"INSERT INTO {name} VALUES (270, 'picked', 1)",
            "RESET spark.wap.id",
            f"CALL {catalog}.system.publish_changes('{table}', 'picked')",
        ],
        "overwrite": [f"INSERT OVERWRITE {name} SELECT id, 'over', id FROM range(30)"],
        "expire": [
            f"ALTER TABLE {name} DROP BRANCH side",
            f"{call}expire_snapshots(table => '{table}', {EXPIRES_ALL})",
            f"VACUUM SKIPPING INDEX ON {name}",
        ],
        **schema_changes(name),
        "another partitioning": [
            f"ALTER TABLE {name} ADD PARTITION FIELD bucket(2, id)",
            f"INSERT INTO {name} VALUES (302, 'parted', 'text'), (303, 'parted', 'text')",
        ],
        "delete all": [f"DELETE FROM {name} WHERE true"],
        "append to nothing": [f"INSERT INTO {name} VALUES (1, 'back', 'x'), (2, 'back', 'y')"],
    }


def test_rows_that_change_by_copying(spark: SparkSession, t: str, tmp_path: Path) -> None:
    spark.sql(made(t, "copy-on-write"))
    follow(spark, t, tmp_path, row_changes(t))


@pytest.mark.parametrize(
    ("mode", "version"),
    [pytest.param("copy-on-write", 2, marks=pytest.mark.soak), ("merge-on-read", 3)],
)
def test_every_kind_of_commit(
    spark: SparkSession, t: str, tmp_path: Path, mode: str, version: int
) -> None:
    spark.sql(made(t, mode, version=version))
    (first,) = spark.sql(f"SELECT snapshot_id FROM {t}.snapshots").collect()
    follow(spark, t, tmp_path, commits(t, first[0]))
    before = SkippingIndex.on(spark, t).definition

    spark.sql(f"DROP TABLE {t}")
    spark.sql(made(t, mode, version=version, rows=10))
    checked(spark, t, tmp_path)
    after = SkippingIndex.on(spark, t).definition
    assert after.table != before.table
    # By name: what was renamed to `word` is gone, `n` is a number again.
    assert {(i.name, i.kind) for i in after.columns} == {("id", "MIN_MAX"), ("n", "VALUE_LIST")}


def test_the_session_sees_its_own_commits(spark: SparkSession, t: str) -> None:
    """It keeps one object of a table; the stream must not put an older one in its place."""
    spark.sql(made(t, "copy-on-write"))
    spark.sql(
        f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX)"
        " WITH (auto_refresh = true, refresh_interval = '1ms')"
    )
    for i in range(12):
        spark.sql(f"INSERT INTO {t} VALUES ({1000 + i}, 'own', 1)")
        assert spark.table(t).where("s = 'own'").count() == i + 1


def test_snapshots_that_expired_before_they_were_seen(
    spark: SparkSession, t: str, tmp_path: Path
) -> None:
    spark.sql(made(t, "copy-on-write"))
    spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX) WITH ({QUICK})")
    spark.sql(f"ALTER SKIPPING INDEX ON {t} WITH (auto_refresh = false)")
    covered = SkippingIndex.on(spark, t).state.covered
    for i in range(3):
        spark.sql(f"INSERT INTO {t} SELECT id, 'x', id FROM range({100 * i}, {100 * i + 5})")
    table = t.partition(".")[2]
    spark.sql(f"CALL iceberg.system.expire_snapshots(table => '{table}', {EXPIRES_ALL})")
    index = SkippingIndex.on(spark, t)
    assert covered is not None
    assert index.table.changes(covered, index.table.version()) is None
    spark.sql(f"ALTER SKIPPING INDEX ON {t} WITH (auto_refresh = true)")
    checked(spark, t, tmp_path)
    (stream,) = [s for s in skipping.streams(spark) if s.table == t]
    assert (stream.versions, stream.files, stream.error) == (0, 0, None)


def test_a_commit_of_another_engine_is_followed(
    spark: SparkSession, t: str, tmp_path: Path
) -> None:
    spark.sql(made(t, "copy-on-write"))
    spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX) WITH ({QUICK})")
    spark.table(t).count()
    jvm: Any = spark._jvm
    tables = jvm.org.apache.iceberg.hadoop.HadoopTables(
        spark._jsparkSession.sessionState().newHadoopConf()
    )
    (path,) = spark.sql(f"SELECT _file FROM {t} WHERE id = 14").collect()
    delete = tables.load(path[0].partition("/data/")[0]).newDelete()
    # Not a string: py4j would find a method that Iceberg hides, and that deletes the file itself.
    delete.deleteFile(jvm.java.lang.StringBuilder(path[0]))
    delete.commit()
    checked(spark, t, tmp_path)
    assert len(SkippingIndex.on(spark, t).table.files()) == 3
