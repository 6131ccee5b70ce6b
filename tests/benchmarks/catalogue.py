"""A star join whose table has a million files: `python -m tests.benchmarks.catalogue [files ...]`.

A Delta table partitioned by day. The files of one day are there, 200 of them; those of other days,
as many as are asked for, are in the table's log and in the index, and on the disk as other names of
those. The index is brought up to them by REFRESH, with values that are made up. The dimension's
keys are in two files of the day, which have no other names.

Three joins, in one run. *A day*: the query names the day, with the index and without; Spark finds
the day's files in the log. *All days*: it does not, so that without the index Spark would open
every file; with it two are opened, of a million. Then what commands take.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from tqdm import tqdm

from skipping import SkippingIndex
from skipping.indexing.refresh import refresh
from skipping.indexing.sketch import Build, Work
from skipping.model.definition import Versioned
from skipping.stores import IDENTITY
from tests.benchmarks.metrics import Read, reads
from tests.benchmarks.report import heading, interleaved, ratio, spread, table
from tests.benchmarks.session import benchmark_session, checkpoint
from tests.benchmarks.star import FILES, KEYS, star

__all__ = ["main"]

ROWS = 10_000  # of a file
VALUES = 20  # of a file of another day
COMMIT = 100_000  # files of one version
DAY, OTHERS = "2026-01-01", 365
SPARK = {"spark.driver.memory": "6g", "spark.databricks.delta.snapshotPartitions": "8"}

COMMANDS = (
    "SHOW SKIPPING INDEXES",
    "DESCRIBE SKIPPING INDEX ON fact",
    "REFRESH SKIPPING INDEX ON fact",
    "VACUUM SKIPPING INDEX ON fact",
    "ANALYZE SKIPPING INDEX ON fact",
)
QUERY = """SELECT count(*) AS n, sum(cast(price AS decimal(10, 2))) AS price, max(note) AS note
FROM fact JOIN dim USING (h) WHERE place < 2{and_day}"""
ARMS = {
    "a day": (True, f" AND day = '{DAY}'"),
    "a day, without": (False, f" AND day = '{DAY}'"),
    "all days": (True, ""),
}


def main(sizes: Sequence[int], rounds: int) -> None:
    """Print a table: a line for each size and join."""
    lines: list[tuple[object, ...]] = []
    commands: list[tuple[object, ...]] = []
    for files in sizes:
        with TemporaryDirectory() as folder, benchmark_session(SPARK) as spark:
            _tables(spark, folder)
            index = SkippingIndex.create(spark, "fact", "h VALUE_LIST")
            for first in tqdm(range(0, files, COMMIT), unit="version", disable=None):
                _append(Path(folder), first, min(COMMIT, files - first))
            checkpoint(spark, folder)
            _bring_up(index)
            lines += _measured(spark, folder, files, rounds)
            commands.append((f"{FILES + files:,}", *(_seconds(spark, c) for c in COMMANDS)))
    heading("A star join, files of other days in the catalogue", rows=FILES * ROWS, rounds=rounds)
    table(("files", "join", "opened", "first, s", "s", "of the day without"), lines)
    table(("files", *(f"{command.split()[0]}, s" for command in COMMANDS)), commands)


def _seconds(spark: SparkSession, command: str) -> str:
    start = time.perf_counter()
    spark.sql(command).collect()
    return f"{time.perf_counter() - start:.2f}"


def _tables(spark: SparkSession, folder: str) -> None:
    rows = star(spark, ROWS, more={"day": f"date'{DAY}'"})
    rows.write.format("delta").partitionBy("day").option("path", folder).saveAsTable("fact")
    keys = star(spark, KEYS).selectExpr("h", f"cast(k div {KEYS} AS int) AS place")
    keys.coalesce(1).write.format("delta").saveAsTable("dim")


def _append(folder: Path, first: int, n: int) -> None:
    """A version with files of other days, which are names of those without the dimension's keys."""
    _, _, *there = sorted((folder / f"day={DAY}").glob("*.parquet"))
    log = folder / "_delta_log"
    version = 1 + max(int(path.stem) for path in log.glob("*.json"))
    with (log / f"{version:020d}.json").open("x") as commit:
        for i, add in enumerate(_adds(first, n), first):
            path = folder / str(add["path"])
            path.parent.mkdir(exist_ok=True)
            path.hardlink_to(there[i % len(there)])
            commit.write(json.dumps({"add": add}) + "\n")


def _adds(first: int, n: int) -> Iterator[dict[str, object]]:
    days = np.datetime64("2025-01-01") + np.arange(OTHERS)
    for i in range(first, first + n):
        day = str(days[i % OTHERS])
        yield {
            "path": f"day={day}/part-{i:07}-{'0' * 8}-c000.snappy.parquet",
            "partitionValues": {"day": day},
            "size": 1_000_000 + i,
            "modificationTime": 0,
            "dataChange": True,
            "stats": json.dumps({"numRecords": ROWS}),
        }


def _bring_up(index: SkippingIndex) -> None:
    """REFRESH with values of the files of other days that are made up."""
    build = cast(Build, partial(_invented, np.random.default_rng(11)))
    state = refresh(build, index.store, index.table, Versioned(index.definition, index.revision))
    assert state.status == "active", state


def _invented(
    random: np.random.Generator, files: pa.Table, _: Sequence[Work]
) -> Iterator[pa.Table]:
    n = len(files)
    ends = pa.array(np.arange(n + 1, dtype=np.int32) * VALUES)
    values = random.integers(-(2**63), 2**63, n * VALUES)
    columns = {
        "s1_known": pa.repeat(True, n),
        "s1o_known": pa.nulls(n, pa.bool_()),  # a part that only long lists have
        "s1_values": pa.ListArray.from_arrays(ends, pa.array(values)),
        "s1_nulls": pa.array(np.zeros(n, np.int64)),
    }
    built = files.select(IDENTITY.names)
    for name, column in columns.items():
        built = built.append_column(name, column)
    yield built


def _measured(
    spark: SparkSession, folder: str, files: int, rounds: int
) -> Iterator[tuple[object, ...]]:
    last: dict[str, tuple[list[Row], Read]] = {}

    def run(arm: str) -> None:
        on, and_day = ARMS[arm]
        spark.conf.set("spark.skipping.enabled", str(on).lower())
        df: DataFrame = spark.sql(QUERY.format(and_day=and_day))
        rows = df.collect()
        (fact,) = (read for read in reads(df) if read.location.endswith(folder))
        last[arm] = rows, fact

    first = {}
    for arm in ARMS:
        start = time.perf_counter()
        run(arm)
        first[arm] = time.perf_counter() - start
    seconds = interleaved({arm: partial(run, arm) for arm in ARMS}, rounds=rounds)
    if len({str(rows) for rows, _ in last.values()}) != 1:
        raise AssertionError(f"other rows: {last}")
    for arm, spent in seconds.items():
        opened = f"{last[arm][1].files:,}"
        of_plain = ratio(spent, seconds["a day, without"])
        yield (f"{FILES + files:,}", arm, opened, f"{first[arm]:.2f}", spread(spent), of_plain)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, default=(0, 1_000_000), help="of other days")
    parser.add_argument("--rounds", type=int, default=5)
    main(**vars(parser.parse_args()))
