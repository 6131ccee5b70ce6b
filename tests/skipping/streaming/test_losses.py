"""What a stream needs and somebody took away: the table's history, its checkpoint."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import skipping
from skipping import SkippingIndex
from tests.skipping.streaming.conftest import (
    EXPIRES_ALL,
    QUICK,
    append,
    caught_up,
    same_as_scratch,
    until,
)

pytestmark = pytest.mark.nightly

_numbers = itertools.count()


BOTH = pytest.mark.parametrize(
    "where", [pytest.param("", marks=pytest.mark.soak, id="all"), "WHERE id < 100000"]
)


def stopped(spark: SparkSession, name: str, *, stop: bool = True) -> None:
    spark.sql(f"ALTER SKIPPING INDEX ON {name} WITH (auto_refresh = {str(not stop).lower()})")


def forget_the_last_commit(checkpoint: Path) -> None:
    """As of a driver that died in the middle of a batch: that batch is asked for again."""
    numbers = [int(p.name) for p in (checkpoint / "commits").glob("[0-9]*")]
    for name in (f"{max(numbers)}", f".{max(numbers)}.crc"):
        (checkpoint / "commits" / name).unlink()


def clean_delta(spark: SparkSession, name: str) -> None:
    """Leave of a table's log what Delta's cleaning would: a checkpoint, and what came since."""
    table = SkippingIndex.on(spark, name).table
    jvm: Any = spark._jvm
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, table.id.root)
    log.checkpoint()
    commits = Path(table.id.root.removeprefix("file:")) / "_delta_log"
    for version in range(table.version()):
        (commits / f"{version:020d}.json").unlink(missing_ok=True)
    log.clearCache()


@BOTH
def test_a_cleaned_delta_log(
    spark: SparkSession, t: str, tmp_path: Path, place: Path, where: str
) -> None:
    spark.sql(
        f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX, s VALUE_LIST) {where}"
        f" WITH ({QUICK}, checkpoint_location = '{place}')"
    )
    append(spark, t, start=100)
    checkpoint = place / SkippingIndex.on(spark, t).definition.index
    until(lambda: caught_up(spark, t) and list((checkpoint / "commits").glob("[0-9]*")))
    clean_delta(spark, t)  # while it runs
    append(spark, t, start=200)
    until(lambda: caught_up(spark, t))

    stopped(spark, t)
    forget_the_last_commit(checkpoint)
    for start in (300, 400):
        append(spark, t, start=start)
    clean_delta(spark, t)
    index = SkippingIndex.on(spark, t)
    assert index.state.covered == 2
    assert index.table.changes(2, 4) is None
    stopped(spark, t, stop=False)
    until(lambda: caught_up(spark, t))
    same_as_scratch(spark, t, tmp_path)
    (stream,) = [s for s in skipping.streams(spark) if s.table.endswith(f".{t}")]
    assert (stream.versions, stream.files, stream.error) == (0, 0, None)


@BOTH
def test_expired_iceberg_snapshots(
    spark: SparkSession, tmp_path: Path, place: Path, where: str
) -> None:
    name = f"iceberg.streams.losses{next(_numbers)}"
    spark.sql(
        f"CREATE TABLE {name} USING iceberg TBLPROPERTIES"
        " ('write.metadata.metrics.default' = 'none') AS SELECT id, 'x' AS s FROM range(10)"
    )
    spark.sql(
        f"CREATE SKIPPING INDEX ON {name} (id MIN_MAX, s VALUE_LIST) {where}"
        f" WITH ({QUICK}, checkpoint_location = '{place}')"
    )
    try:
        spark.sql(f"INSERT INTO {name} VALUES (100, 'y')")
        checkpoint = place / SkippingIndex.on(spark, name).definition.index
        until(lambda: caught_up(spark, name) and list((checkpoint / "commits").glob("[0-9]*")))
        stopped(spark, name)
        forget_the_last_commit(checkpoint)
        for i in range(3):
            spark.sql(f"INSERT INTO {name} VALUES ({200 + i}, 'z')")
        spark.sql(
            "CALL iceberg.system.expire_snapshots("
            f"table => '{name.partition('.')[2]}', {EXPIRES_ALL})"
        )
        index = SkippingIndex.on(spark, name)
        assert index.state.covered is not None
        assert index.table.changes(index.state.covered, index.table.version()) is None
        stopped(spark, name, stop=False)
        until(lambda: caught_up(spark, name))
        same_as_scratch(spark, name, tmp_path)
    finally:
        spark.sql(f"DROP SKIPPING INDEX ON {name}")
        spark.sql(f"DROP TABLE {name}")


GARBAGE = {
    "offsets": b"\x00\xffno offsets",
    "commits": b"no commits",
    "metadata": b"{",
    "offsets of others": b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}\n["x", {}]',
    "offsets beyond all": (
        b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}\n'
        b'{"version": 99999999999999999999, "step": "x"}'
    ),
}


def spoil(checkpoint: Path, what: str) -> None:
    """Write garbage over a part of a checkpoint, as if its last batch were not done."""
    folder = checkpoint / what.split()[0]
    files = [folder] if folder.is_file() else sorted(folder.glob("[0-9]*"))
    if what.startswith(("offsets of", "offsets beyond")):
        forget_the_last_commit(checkpoint)
    for file in files:
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
        file.write_bytes(GARBAGE[what])


@pytest.mark.parametrize(
    "parts",
    [("offsets", "offsets beyond all"), pytest.param(tuple(GARBAGE), marks=pytest.mark.soak)],
    ids=["some", "each"],
)
def test_a_corrupt_checkpoint(
    spark: SparkSession, t: str, tmp_path: Path, place: Path, parts: tuple[str, ...]
) -> None:
    spark.sql(
        f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX, s VALUE_LIST)"
        f" WITH ({QUICK}, checkpoint_location = '{place}')"
    )
    for n, what in enumerate(parts, start=1):
        print(what)
        checkpoint = place / SkippingIndex.on(spark, t).definition.index
        append(spark, t, start=100 * n)
        until(lambda: caught_up(spark, t))
        until(lambda at=checkpoint: list((at / "commits").glob("[0-9]*")))
        stopped(spark, t)
        spoil(checkpoint, what)
        append(spark, t, start=100 * n + 50)
        stopped(spark, t, stop=False)
        until(lambda: caught_up(spark, t))
        stopped(spark, t)
        shutil.rmtree(checkpoint)  # as the log says
        stopped(spark, t, stop=False)
    same_as_scratch(spark, t, tmp_path)


def test_a_checkpoint_deleted_while_it_is_written(
    spark: SparkSession, t: str, tmp_path: Path, place: Path
) -> None:
    spark.sql(
        f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX, s VALUE_LIST)"
        f" WITH ({QUICK}, checkpoint_location = '{place}')"
    )
    until(place.exists)
    shutil.rmtree(place, ignore_errors=True)
    append(spark, t, start=1_000)
    until(lambda: caught_up(spark, t))
    same_as_scratch(spark, t, tmp_path)
