"""A fact joined with a filtered dimension: `python -m tests.benchmarks.star_join [files] [rows]`.

The keys are a mix, so that each file's bounds span all of them. The dimension's filter leaves keys
of 1 % of the files, of 5 %, and so on: where the gain ends is the break-even. Last, a join whose
keys occur in every file, where an index can only cost. With `--delay 30` the fact is in an object
store that answers each request 30 ms late, else on the local disk.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from statistics import median

from pyspark.sql import DataFrame, Row, SparkSession

import rewrite
from skipping import SkippingIndex
from tests.benchmarks.metrics import Read, reads
from tests.benchmarks.report import heading, interleaved, ratio, spread, table
from tests.benchmarks.session import benchmark_session
from tests.benchmarks.star import KEYS, star, write_star
from tests.object_store import BUCKET, ObjectStore

__all__ = ["main"]

PERCENT = (1, 5, 10, 25, 50, 100)
EVERYWHERE = {"c": "pmod(id, 100)"}
"""A column whose 100 values are in every file."""

QUERY = """SELECT count(*) AS n, sum(cast(price AS decimal(10, 2))) AS price, max(note) AS note
FROM fact JOIN {dimension} USING ({key}) WHERE place < {places}"""


def main(files: int, rows: int, rounds: int, delay: int | None) -> None:
    """Print the table."""
    with ExitStack() as open_things:
        store = open_things.enter_context(ObjectStore()) if delay is not None else None
        spark = open_things.enter_context(benchmark_session(store.settings() if store else {}))
        if store is None:
            where = str(write_star(spark, "star-c", rows, files=files, more=EVERYWHERE))
        else:
            where = f"s3a://{BUCKET}/star"
            star(spark, rows, files=files, more=EVERYWHERE).write.format("delta").save(where)
        _dimensions(spark, files)
        SkippingIndex.create(spark, f"delta.`{where}`", "h VALUE_LIST, c VALUE_LIST")
        spark.read.format("delta").load(where).createOrReplaceTempView("fact")
        if store is not None and delay is not None:
            store.delay(delay)
        lines = []
        for percent in PERCENT:
            match = max(1, files * percent // 100)
            query = QUERY.format(dimension="dim", key="h", places=match)
            lines.append(_line(spark, f"{percent} %", query, match, where, rounds))
        query = QUERY.format(dimension="every", key="c", places=10)
        lines.append(_line(spark, "in every file", query, files, where, rounds))
        heading(
            "A star join, with the index and without",
            files=files,
            rows=f"{files * rows:,}",
            rounds=rounds,
            at="local disk" if delay is None else f"object store, {delay} ms a request",
        )
        table(
            ("keys", "match", "opened", "without", "rows joined", "MB", "s", "s without", "times"),
            lines,
        )


def _dimensions(spark: SparkSession, files: int) -> None:
    """Each key with the place of its file in an order that jumps about, and 100 other keys."""
    keys = star(spark, KEYS, files=files).selectExpr(
        "h", f"cast(pmod((k div {KEYS}) * 7919, {files}) AS int) AS place"
    )
    keys.coalesce(1).write.format("delta").saveAsTable("dim")
    spark.sql("SELECT id AS c, int(id) AS place FROM range(100)").coalesce(1).write.format(
        "delta"
    ).saveAsTable("every")


def _line(
    spark: SparkSession, name: str, query: str, match: int, where: str, rounds: int
) -> tuple[object, ...]:
    last: dict[str, tuple[list[Row], Read]] = {}

    def run(arm: str) -> None:
        spark.conf.set("spark.skipping.enabled", str(arm == "with").lower())
        df: DataFrame = spark.sql(query)
        rows = df.collect()
        (fact,) = [read for read in reads(df) if read.location.endswith(where)]
        last[arm] = rows, fact
        if arm == "with":
            explained.append(str(rewrite.explain(df)))

    explained: list[str] = []
    arms: dict[str, Callable[[], object]] = {a: partial(run, a) for a in ("without", "with")}
    seconds = interleaved(arms, rounds=rounds)
    if last["with"][0] != last["without"][0]:
        raise AssertionError(f"other rows with the index: {query}\n{last}")
    if name in ("1 %", "in every file"):
        print(explained[-1], flush=True)
    read, all_files = last["with"][1], last["without"][1]
    return (
        name,
        match,
        read.files,
        all_files.files,
        f"{read.joined:,} of {all_files.joined:,}",
        f"{read.bytes / 1e6:,.0f} of {all_files.bytes / 1e6:,.0f}",
        spread(seconds["with"]),
        f"{median(seconds['without']):.2f}",
        ratio(seconds["without"], seconds["with"]),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="?", type=int, default=1_000)
    parser.add_argument("rows", nargs="?", type=int, default=50_000, help="a file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--delay", type=int, help="ms a request; the fact is in an object store")
    main(**vars(parser.parse_args()))
