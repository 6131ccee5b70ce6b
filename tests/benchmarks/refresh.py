"""Refresh after 10 new files: what it costs on a small table and on one of 100,000 files.

The old files are actions in a Delta log and entries in the store: no refresh reads them, so they
need not be there. `python -m tests.benchmarks.refresh [files] [rounds]`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyspark.sql import SparkSession

from skipping import SkippingIndex
from skipping.model.definition import State
from skipping.stores.sqlite.store import SqliteStore
from tests.benchmarks.report import heading, interleaved, ratio, spread, table
from tests.benchmarks.session import benchmark_session, checkpoint

__all__ = ["append", "main", "write_index"]

SMALL, NEW = 100, 10
_SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": name, "type": type, "nullable": True, "metadata": {}}
        for name, type in (("id", "long"), ("s", "string"))
    ],
}


def main(files: int = 100_000, rounds: int = 7) -> None:
    with benchmark_session() as spark, tempfile.TemporaryDirectory() as place:
        tables = {n: write_index(spark, Path(place) / str(n), n) for n in (SMALL, files)}
        heading(
            f"refresh after {NEW} new files, SQLite, MIN_MAX and VALUE_LIST",
            rounds=rounds,
        )

        def run(n: int) -> None:
            assert tables[n].refresh().status == "active"

        seconds: dict[int, list[float]] = {n: [] for n in tables}
        for turn in range(rounds + 2):
            for index in tables.values():
                append(spark, index, turn)
            timed = interleaved({str(n): lambda n=n: run(n) for n in tables}, rounds=1, warm=0)
            if turn >= 2:
                for n in tables:
                    seconds[n] += timed[str(n)]
        rows = [
            (f"{n:,} files", spread(seconds[n]), ratio(seconds[n], seconds[SMALL])) for n in tables
        ]
        table(("table", "seconds", "ratio"), rows)
        print("\n  where the time of one goes, seconds")
        parts: dict[str, dict[int, float]] = {}
        for n, index in tables.items():
            append(spark, index, rounds + 2)
            with _timing() as spent:
                run(n)
            for part, took in spent.items():
                parts.setdefault(part, {})[n] = took
        table(
            ("part", *(f"{n:,}" for n in tables)),
            [(p, *(f"{took.get(n, 0):.2f}" for n in tables)) for p, took in parts.items()],
        )
        for n, index in tables.items():
            assert len(index.files()) == n + NEW * (rounds + 3)


def write_index(spark: SparkSession, root: Path, files: int) -> SkippingIndex:
    """Write a table of files that are not there, with an index that has entries of them."""
    log = root / "_delta_log"
    log.mkdir(parents=True)
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    metadata = {
        "metaData": {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(_SCHEMA),
            "partitionColumns": [],
            "configuration": {"delta.dataSkippingNumIndexedCols": "0"},
            "createdTime": 0,
        }
    }
    with (log / f"{0:020d}.json").open("w") as commit:
        for action in (protocol, metadata, *_adds(files)):
            commit.write(json.dumps(action) + "\n")
    checkpoint(spark, root)
    store = SqliteStore(root.with_suffix(".sqlite"))
    index = SkippingIndex.create(
        spark, f"delta.`{root}`", "id MIN_MAX, s VALUE_LIST", build=False, store=store
    )
    id, revision = index.definition.index, index.revision
    listed = index.table.files()
    ordinals = store.reserve(id, files)
    known = pa.repeat(True, files)
    columns = {
        "ordinal": pa.array(ordinals),
        "path": listed["path"],
        "size": listed["size"],
        "stamp": listed["stamp"],
        "partition": pa.repeat("{}", files),
        "s1_known": known,
        "s1_low": pa.array(range(0, 10 * files, 10)),
        "s1_high": pa.array(range(9, 10 * files, 10)),
        "s1_nulls": pa.repeat(0, files).cast(pa.int64()),
        "s2_known": known,
        "s2_values": pa.array([[str(i % 7)] for i in range(files)]),
        "s2_nulls": pa.repeat(0, files).cast(pa.int64()),
    }
    store.write(id, pa.table(columns), revision=revision)
    store.report(id, State("active", 0, revision=revision))
    return SkippingIndex.on(spark, f"delta.`{root}`", store=store)


def _adds(files: int) -> Iterator[dict[str, object]]:
    for i in range(files):
        yield {
            "add": {
                "path": f"part-{i:06}-{'0' * 8}-c000.snappy.parquet",
                "partitionValues": {},
                "size": 1_000_000 + i,
                "modificationTime": 0,
                "dataChange": True,
            }
        }


def append(spark: SparkSession, index: SkippingIndex, turn: int) -> None:
    """Write new files: they are there, and have ids from 10**9 on."""
    start = 10**9 + turn * 10 * NEW
    spark.range(start, start + 10 * NEW, 1, NEW).selectExpr(
        "id", "cast(id % 7 AS string) AS s"
    ).write.format("delta").mode("append").save(index.table.id.root)


@contextmanager
def _timing() -> Iterator[dict[str, float]]:
    """Seconds by part of a refresh; a part may hold another."""
    import time

    from skipping.indexing import spark as build
    from skipping.tables.delta import spark as delta

    spent: dict[str, float] = {}

    def timed(owner: Any, name: str, label: str) -> Any:
        real = getattr(owner, name)

        def run(*arguments: Any, **named: Any) -> Any:
            start = time.perf_counter()
            try:
                return real(*arguments, **named)
            finally:
                spent[label] = spent.get(label, 0.0) + time.perf_counter() - start

        return patch.object(owner, name, run)

    with (
        timed(delta.DeltaTable, "_snapshot", "snapshot of the log"),
        timed(delta.DeltaTable, "columns", "columns"),
        timed(delta.DeltaTable, "changes", "changes"),
        timed(delta.DeltaTable, "files", "files"),
        timed(SqliteStore, "ordinals", "store: ordinals"),
        timed(SqliteStore, "catalogue", "store: catalogue"),
        timed(SqliteStore, "definitions", "store: definitions"),
        timed(SqliteStore, "write", "store: write"),
        timed(build.SparkBuild, "_sketch_batch", "sketches"),
    ):
        yield spent


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
