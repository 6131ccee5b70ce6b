"""A driver that follows a table and kills itself: `dies.py POINT TABLE FOLDER CHECKPOINTS`."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import rewrite
from skipping import SkippingIndex
from skipping.indexing.spark import SparkBuild
from skipping.model.definition import State
from skipping.stores.sqlite import store as sqlite
from skipping.stores.sqlite.store import SqliteStore
from skipping.tables.delta.spark import DeltaTable


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _after_read() -> None:
    for name in ("changes", "files"):
        real = getattr(DeltaTable, name)

        def read(*arguments: Any, real: Any = real, **named: Any) -> pa.Table | None:
            found: pa.Table | None = real(*arguments, **named)
            if found is not None and len(found):
                _die()
            return found

        setattr(DeltaTable, name, read)


def _after_sketch() -> None:
    real = SparkBuild.__call__

    def build(self: SparkBuild, *arguments: Any) -> Iterator[pa.Table]:
        for _ in real(self, *arguments):
            _die()
            yield _

    SparkBuild.__call__ = build  # type: ignore[method-assign]


def _mid_bulk() -> None:
    real = sqlite.add_entries

    def store(*arguments: Any) -> None:
        real(*arguments)
        _die()  # written, and not committed

    sqlite.add_entries = store  # type: ignore[assignment]


def _before_watermark() -> None:
    real = SqliteStore.report

    def report(self: SqliteStore, index: str, state: State, *, token: int | None = None) -> None:
        if state.status == "active":
            _die()
        real(self, index, state, token=token)

    SqliteStore.report = report  # type: ignore[method-assign]


def _before_checkpoint() -> None:
    real = SkippingIndex.refresh

    def refresh(self: SkippingIndex, **arguments: Any) -> State:
        real(self, **arguments)
        _die()
        raise AssertionError("it is dead")

    SkippingIndex.refresh = refresh  # type: ignore[method-assign]


POINTS: dict[str, Callable[[], None]] = {
    "after read": _after_read,
    "after sketch": _after_sketch,
    "in mid-bulk": _mid_bulk,
    "between bulk and watermark": _before_watermark,
    "between watermark and checkpoint": _before_checkpoint,
}

if __name__ == "__main__":
    point, table, folder, checkpoints = sys.argv[1:]
    POINTS[point]()
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .config("spark.skipping.store", f"sqlite:{folder}/store.sqlite")
        .config("spark.skipping.streaming.checkpointRoots", checkpoints)
    )
    spark = rewrite.session(builder)
    spark.sql(
        f"ALTER SKIPPING INDEX ON {table} WITH (auto_refresh = true, refresh_interval = '200ms',"
        f" checkpoint_location = '{checkpoints}/checkpoint')"
    )
    time.sleep(300)
    sys.exit("it lived")
