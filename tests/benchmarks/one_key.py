"""One key in many small files: `python -m tests.benchmarks.one_key [files] [--rows 200]`.

The log has no bounds that could tell one file from the next, and a checkpoint. Filters of two
false-positive rates, and lists of values, each on a column of its own; and the table of only the
file with the key, which has a short log and nothing to look up. With `--delay 30` the table is in
an object store that answers each request 30 ms late.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import rewrite
from skipping import SkippingIndex
from tests.benchmarks.report import heading, interleaved, ratio, spread, table
from tests.benchmarks.session import benchmark_session, checkpoint
from tests.benchmarks.small_files import write_small_files
from tests.object_store import BUCKET, ObjectStore

__all__ = ["main"]

KINDS = {
    "filtered": "BLOOM_FILTER",
    "coarse": "BLOOM_FILTER(fpp => 0.01)",
    "listed": "VALUE_LIST",
}
"""Each type with the column that it indexes; all columns have the same values."""

MANY, ALONE, WITHOUT = "many", "alone", "without"


def main(files: int, rows: int, rounds: int, delay: int | None) -> None:
    """Print the table."""
    with ExitStack() as open_things:
        store = open_things.enter_context(ObjectStore()) if delay is not None else None
        spark = open_things.enter_context(benchmark_session(store.settings() if store else {}))
        folder = Path(open_things.enter_context(tempfile.TemporaryDirectory()))
        middle = files // 2
        root = folder if store is None else store.folder
        for name, numbers in ((MANY, range(files)), (ALONE, [middle])):
            _write(spark, root / name, numbers, files, rows)
            uri = f"file:{root}/{name}" if store is None else f"s3a://{BUCKET}/{name}"
            spark.read.format("delta").load(uri).createOrReplaceTempView(name)
            if name == MANY:
                kinds = ", ".join(f"{column} {kind}" for column, kind in KINDS.items())
                SkippingIndex.create(spark, f"delta.`{uri}`", kinds)
        if store is not None and delay is not None:
            store.delay(delay)
        key = middle + 3 * files
        arms = {column: partial(_run, spark, MANY, column, key) for column in KINDS}
        opened = {column: arm() for column, arm in arms.items()}
        arms[ALONE] = partial(_run, spark, ALONE, "filtered", key)
        seconds = interleaved(arms, rounds=rounds, warm=3)
        # Once, because it opens all files.
        without: dict[str, Callable[[], object]] = {
            WITHOUT: partial(_run, spark, MANY, "filtered", key, enabled=False)
        }
        seconds |= interleaved(without, rounds=1, warm=0)
        where = f"object store, {delay} ms a request" if store else "local disk"
        facts = {"files": f"{files:,}", "rows_a_file": rows, "rounds": rounds, "at": where}
        heading("One key in many small files", **facts)
        table(
            ("index", "opened", "s", "to a table of only its file"),
            [
                (
                    KINDS.get(name, name),
                    f"{opened.get(name, files if name == WITHOUT else 1):,}",
                    spread(took),
                    "" if name == WITHOUT else ratio(took, seconds[ALONE]),
                )
                for name, took in seconds.items()
            ],
        )


def _run(spark: SparkSession, name: str, column: str, key: int, *, enabled: bool = True) -> int:
    """Find the row; return how many files were opened."""
    spark.conf.set("spark.skipping.enabled", str(enabled).lower())
    df = spark.sql(f"SELECT * FROM {name} WHERE {column} = {key}")
    if len(df.collect()) != 1:
        raise AssertionError(f"{name}, {column}: other rows")
    return sum(scan.opened or 0 for scan in rewrite.explain(df).scans) if enabled else 0


def _write(spark: SparkSession, root: Path, numbers: Iterable[int], files: int, rows: int) -> None:
    """A table with a checkpoint; the file of a number has it and every `files`-th value after."""
    schema = pa.schema(dict.fromkeys(KINDS, pa.int64()))
    values = (pa.array(range(number, rows * files, files)) for number in numbers)
    write_small_files(root, schema, (pa.table(dict.fromkeys(KINDS, each)) for each in values))
    checkpoint(spark, root)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="?", type=int, default=20_000)
    parser.add_argument("--rows", type=int, default=200, help="a file")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--delay", type=int, help="ms a request; the table is in an object store")
    main(**vars(parser.parse_args()))
