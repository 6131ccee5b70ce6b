"""First lookups on a busy machine: `python -m tests.benchmarks.busy [processes] [starts] [files]`.

Each start is a new driver, while the given number of busy processes uses the same cores. As soon as
it has a session it runs the first query on each of ten indexed tables; another driver runs it on
one table with an index of many files. Counts queries that pruned; the others read all files,
because the index did not respond within `spark.skipping.timeout`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.benchmarks.refresh import append, write_index
from tests.benchmarks.report import heading, spread, table
from tests.benchmarks.session import benchmark_session
from tests.benchmarks.star import star

__all__ = ["main"]

TABLES, FILES, ROWS = 10, 40, 500
CHILD = """
import json, sys, time
from pyspark.sql import SparkSession
import rewrite

warehouse, store, queries = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder.config("spark.driver.host", "127.0.0.1").config("spark.sql.warehouse.dir", warehouse)
builder.config("spark.ui.showConsoleProgress", "false")
builder.config("spark.databricks.delta.snapshotPartitions", "2")
if store:
    builder.config("spark.skipping.store", store)
spark = rewrite.session(builder)
spark.sparkContext.setLogLevel("ERROR")
out = []
for query in json.loads(queries):
    df = spark.sql(query)
    began = time.perf_counter()
    try:
        df.collect()
    except Exception as missing:  # most files of the large table are not there
        out.append((0, time.perf_counter() - began, type(missing).__name__))
        continue
    (scan,) = rewrite.explain(df).scans
    out.append((scan.opened, scan.seconds, scan.reason))
print(json.dumps(out))
"""


def main(processes: int = 8, starts: int = 3, files: int = 100_000) -> None:
    """Print the table."""
    with TemporaryDirectory() as folder:
        warehouse = f"{folder}/warehouse"
        with benchmark_session({"spark.sql.warehouse.dir": warehouse}) as spark:
            for n in range(TABLES):
                frame = star(spark, ROWS, files=FILES).write.format("delta")
                frame.option("delta.dataSkippingNumIndexedCols", "0").save(f"{warehouse}/{n}")
                spark.sql(f"CREATE SKIPPING INDEX ON delta.`{warehouse}/{n}` (h VALUE_LIST)")
            large = Path(folder) / "large"
            index = write_index(spark, large, files)
            append(spark, index, 0)
            index.refresh()
        small = [
            f"SELECT count(*) FROM delta.`{warehouse}/{n}` WHERE h = xxhash64(7L)"
            for n in range(TABLES)
        ]
        one = [f"SELECT count(*) FROM delta.`{large}` WHERE id = 1000000000"]
        rows = []
        for size, queries, store in (
            (FILES, small, ""),
            (files, one, f"sqlite:{large.with_suffix('.sqlite')}"),
        ):
            for busy in (0, processes):
                found = []
                for _ in range(starts):
                    found += _start(busy, Path(folder), warehouse, store, json.dumps(queries))
                pruned = [each for each in found if 0 < each[0] < FILES]
                reasons = {each[2] for each in found if each not in pruned}
                seconds = spread([each[1] for each in found], 3)
                whole = f"{len(pruned)} of {len(found)}"
                rows.append((f"{size:,}", busy, whole, seconds, "; ".join(reasons)))
        heading("First lookups", starts=starts)
        table(("files of an index", "busy processes", "pruned", "lookup, s", "why not"), rows)


def _start(busy: int, folder: Path, *arguments: str) -> list[Any]:
    """Return what a driver's first queries opened, their seconds, and why they were not pruned."""
    workers = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(busy)]
    for worker in workers:
        worker.start()
    try:
        done = subprocess.run(
            (sys.executable, "-c", CHILD, *arguments),
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(Path.cwd())},
            stdout=subprocess.PIPE,
            text=True,
            timeout=600,
            check=True,
        )
    finally:
        for worker in workers:
            worker.kill()
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _spin() -> None:
    while True:
        pass


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
