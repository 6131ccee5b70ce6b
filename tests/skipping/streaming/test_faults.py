"""What goes wrong, and what is there afterwards: what an index built from scratch would keep."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from providers import Compare
from providers.errors import StoreError
from skipping import SkippingIndex
from skipping.model.definition import State
from skipping.stores.sqlite import schema as sqlite_schema
from skipping.stores.sqlite.store import SqliteStore
from skipping.streaming.maintainer import Maintainer
from tests.skipping.export import export, scratch
from tests.skipping.streaming import dies
from tests.skipping.streaming.conftest import QUICK, append, caught_up, same_as_scratch, until

pytestmark = pytest.mark.nightly

WHILE_WRITING = ("in mid-bulk", "between bulk and watermark")


def grow(spark: SparkSession, path: Path, start: int, *, files: int = 2) -> None:
    spark.range(start, start + 10 * files, 1, files).selectExpr(
        "id", "cast(id % 7 AS string) AS s"
    ).write.format("delta").mode("append").save(str(path))


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(point, marks=[] if point in WHILE_WRITING else pytest.mark.soak)
        for point in dies.POINTS
    ],
)
def test_kill_9(spark: SparkSession, tmp_path: Path, place: Path, point: str) -> None:
    path, table = tmp_path / "t", f"delta.`{tmp_path}/t`"
    store = SqliteStore(tmp_path / "store.sqlite")
    grow(spark, path, 0)
    index = SkippingIndex.create(spark, table, "id MIN_MAX, s VALUE_LIST", store=store)
    grow(spark, path, 100)
    grow(spark, path, 200)
    command = [sys.executable, dies.__file__, point, table, str(tmp_path), str(place)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2_000:]

    # What is there now is true, if not all there is to know.
    index = SkippingIndex.on(spark, table, store=store)
    done = point == "between watermark and checkpoint"
    assert index.state.covered == (2 if done else 0)
    assert len(index.files()) == (6 if point.startswith("between") else 2)
    for value, match in ((5, 1), (205, 1), (1_000, 0)):
        plan = index.lookup(Compare("id", "=", value))
        assert match <= plan.kept <= match + plan.unknown

    name = index.definition.name
    keeper = Maintainer(spark, store, name, open_index=SkippingIndex.on, patience=2.0)
    keeper.start()
    try:
        until(lambda: keeper.owns)
        until(lambda: index.state == State("active", 2, None, index.revision, index.state.at))
        assert store.lease(index.definition.index).token == 2, "taken over from the dead one"
        grow(spark, path, 300)
        until(lambda: index.state.covered == 3)
    finally:
        keeper.stop()
    index = SkippingIndex.on(spark, table, store=store)
    assert len(index.files()) == 8
    (tmp_path / "scratch").mkdir()
    assert export(index) == scratch(spark, index, tmp_path / "scratch")


def test_disk_full(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, table = tmp_path / "t", f"delta.`{tmp_path}/t`"
    store = SqliteStore(tmp_path / "store.sqlite")
    grow(spark, path, 0)
    index = SkippingIndex.create(spark, table, "id MIN_MAX, s VALUE_LIST", store=store)
    before = export(index)
    grow(spark, path, 100, files=200)
    real = sqlite_schema._connect

    def full(*arguments: object) -> sqlite3.Connection:
        connection = real(*arguments)  # type: ignore[arg-type]
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    monkeypatch.setattr(sqlite_schema, "_connect", full)
    with pytest.raises(StoreError, match=r"disk is full.*free space"):
        index.refresh()
    monkeypatch.undo()
    assert index.state.covered == 0
    assert len(index.files()) == len(before) == 2
    assert index.lookup(Compare("id", "=", -1)).unknown == 200
    assert index.refresh().covered == 1
    (tmp_path / "scratch").mkdir()
    assert export(index) == scratch(spark, index, tmp_path / "scratch")


def test_what_is_delivered_twice_is_done_once(spark: SparkSession, tmp_path: Path) -> None:
    path, table = tmp_path / "t", f"delta.`{tmp_path}/t`"
    store = SqliteStore(tmp_path / "store.sqlite")
    grow(spark, path, 0)
    index = SkippingIndex.create(spark, table, "id MIN_MAX, s VALUE_LIST", store=store)
    covered = index.state
    grow(spark, path, 100)
    index.refresh()
    kept, generation = export(index), store.catalogue(index.definition.index).generation
    # The watermark got lost, or went back because a slower refresher reported after a faster one.
    store.report(index.definition.index, covered)
    assert index.pending().num_rows == 0
    assert index.refresh().covered == 1
    assert export(index) == kept
    assert store.catalogue(index.definition.index).generation == generation


def test_a_wall_clock_that_jumps(
    spark: SparkSession, t: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX) WITH ({QUICK})")
    real = time.time
    for n, off in enumerate((0.0, 1e8, -1e8, 0.0), start=1):
        monkeypatch.setattr(time, "time", lambda off=off: real() + off)
        append(spark, t, start=100 * n)
        until(lambda: caught_up(spark, t))
    monkeypatch.undo()
    same_as_scratch(spark, t, tmp_path)
