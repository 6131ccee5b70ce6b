"""Files opened against files that hold a match: `python -m tests.benchmarks.literals [rows]`.

MIN_MAX stands alone on the clustered `k`, VALUE_LIST alone on its mix `h`, on a table whose log has
no bounds; beside them what Delta opens by its own bounds. Counts are the same on every machine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from pyspark.sql import SparkSession

import rewrite
from skipping import SkippingIndex
from tests.benchmarks.report import heading, table
from tests.benchmarks.session import benchmark_session
from tests.benchmarks.star import FILES, KEYS, matching, mixes, write_star

__all__ = ["INDEX", "conditions", "main"]

INDEX = "k MIN_MAX, h VALUE_LIST"

SPREAD = [KEYS * file + 10 * step for file in range(10, FILES, 20) for step in range(50)]
"""500 keys of ten files far apart: the interval from the first to the last holds 181 files."""

POINTS: Sequence[tuple[str, str, Sequence[int]]] = (
    ("=", "{c} = {0}", [70 * KEYS + 7]),
    ("= of no row", "{c} = {0}", [-1]),
    ("IN 3 keys", "{c} IN ({all})", [7, 100 * KEYS + 7, 199 * KEYS + 7]),
    ("IN 500 keys of 10 files", "{c} IN ({all})", SPREAD),
    ("OR", "{c} = {0} OR {c} = {1}", [20 * KEYS, 150 * KEYS]),
    ("OR of INs", "{c} IN ({0}, {1}) OR {c} IN ({2}, {3})", [1, 2, 90_000, 90_001]),
    ("NOT of !=", "NOT ({c} != {0})", [33 * KEYS + 1]),
    ("NOT of AND", "NOT ({c} != {0} AND {c} != {1})", [33 * KEYS, 99 * KEYS]),
    ("NOT of NOT IN", "NOT ({c} NOT IN ({all}))", [0, 60 * KEYS]),
    ("!=", "{c} != {0}", [7]),
)
"""A condition on a column, with keys for its places."""

RANGES: Sequence[tuple[str, str]] = (
    ("BETWEEN", "{c} BETWEEN {0} AND {1}"),
    ("NOT of OR", "NOT ({c} < {0} OR {c} > {1})"),
    ("<", "{c} < {2}"),
)


def conditions(spark: SparkSession) -> Iterator[tuple[str, str, str]]:
    """Column, name and SQL of each condition."""
    mixed = {**mixes(spark), -1: -1}
    ordered = sorted(mixed.values())
    bounds = {"k": (35_250, 36_510, 600), "h": (ordered[5_000], ordered[5_004], ordered[3])}
    for column in ("k", "h"):
        for name, text, keys in POINTS:
            values = keys if column == "k" else [mixed[key] for key in keys]
            joined = ", ".join(map(str, values))
            yield column, name, text.format(*values, c=column, all=joined)
        for name, text in RANGES:
            yield column, name, text.format(*bounds[column], c=column)


def main(rows: int = 5_000) -> None:
    """Print the counts."""
    with benchmark_session() as spark:
        paths = {s: write_star(spark, "star", rows, statistics=s) for s in (True, False)}
        full, bare = (f"delta.`{paths[s]}`" for s in (True, False))
        SkippingIndex.create(spark, full, INDEX)
        SkippingIndex.create(spark, bare, INDEX)
        counts = []
        for column, name, condition in conditions(spark):
            ideal = len(matching(spark, condition))
            alone = _opened(spark, full, condition, skip=False)
            index = _opened(spark, bare, condition, skip=True)
            both = _opened(spark, full, condition, skip=True)
            ratio = f"{index / ideal:.2f}" if ideal else f"{index} for 0"
            counts.append((f"{column} {name}", ideal, index, ratio, alone, both))
        heading("Files opened for literals", files=FILES, rows_a_file=rows, index=INDEX)
        table(("condition", "match", "index", "ratio", "Delta", "index+Delta"), counts)


def _opened(spark: SparkSession, source: str, condition: str, *, skip: bool) -> int:
    spark.conf.set("spark.skipping.enabled", str(skip).lower())
    df = spark.sql(f"SELECT count(*), sum(price) FROM {source} WHERE {condition}")
    df.collect()
    spark.conf.unset("spark.skipping.enabled")
    return rewrite.explain(df).scans[0].opened or 0


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
