"""What skipping adds to the start of a session: `python -m tests.benchmarks.start [rounds]`.

Each start is a process of its own, with `rewrite.enable` and without, in turns. Both have the same
jars and settings, and read the same Delta table: first one without an index, then one with it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.benchmarks.report import heading, spread, table
from tests.benchmarks.session import benchmark_session
from tests.benchmarks.star import star

__all__ = ["main"]

ARMS = ("enabled", "not enabled")
STEPS = ("import rewrite", "Spark starts", "rewrite.enable", "first query", "second query")
CHILD = """
import json, sys, time
from pyspark.sql import SparkSession

arm, jars, warehouse, table = sys.argv[1:]
enabled = arm == "enabled"
clock, took = time.perf_counter(), []

def lap():
    global clock
    now = time.perf_counter()
    took.append(now - clock)
    clock = now

if enabled:
    import rewrite
lap()
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder.config("spark.driver.host", "127.0.0.1").config("spark.jars", jars)
builder.config("spark.sql.warehouse.dir", warehouse)
builder.config("spark.sql.shuffle.partitions", "2")
builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
builder.config(
    "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
lap()
if enabled:
    spark = rewrite.enable(spark)
lap()
for _ in range(2):
    spark.sql(f"SELECT count(*), max(note) FROM delta.`{table}` WHERE h > 5").collect()
    lap()
print(json.dumps(took))
"""


def main(rounds: int = 7) -> None:
    """Print the table of each case."""
    with TemporaryDirectory() as folder:
        warehouse = f"{folder}/warehouse"
        plain, indexed = f"{folder}/plain", f"{folder}/indexed"
        with benchmark_session({"spark.sql.warehouse.dir": warehouse}) as spark:
            jars = spark.conf.get("spark.jars") or ""
            for path in (plain, indexed):
                star(spark, 500, files=20).write.format("delta").save(path)
            spark.sql(f"CREATE SKIPPING INDEX ON delta.`{indexed}` (h VALUE_LIST)")
        for name, path in (("a table without an index", plain), ("a table with one", indexed)):
            took: dict[str, list[Sequence[float]]] = {arm: [] for arm in ARMS}
            for turn in range(rounds + 1):
                for arm in ARMS:
                    steps = _start(Path(folder), arm, jars, warehouse, path)
                    if turn:  # the first one fills the caches of files
                        took[arm].append(steps)
            heading(f"The start of a session, s: {name}", rounds=rounds)
            columns = {arm: list(zip(*took[arm], strict=True)) for arm in ARMS}
            rows = []
            for step, ours, theirs in zip(STEPS, *columns.values(), strict=True):
                added = [a - b for a, b in zip(ours, theirs, strict=True)]
                rows.append((step, spread(ours), spread(theirs), spread(added)))
            table(("step", *ARMS, "added"), rows)


def _start(folder: Path, *given: str) -> Sequence[float]:
    """Return the seconds of each step of a process."""
    command = (sys.executable, "-c", CHILD, *given)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise AssertionError(done.stderr)
    steps: list[float] = json.loads(done.stdout.splitlines()[-1])
    return steps


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
