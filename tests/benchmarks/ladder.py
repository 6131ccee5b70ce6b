"""How exact each kind stays as a join brings more keys: `python -m tests.benchmarks.ladder`.

A fact of 200 files with 5,000 keys each, as a column in the order of the files and as a mix of it;
the same values in a column for each kind. The keys of a join live in ten of the files; from 100,000
keys on most live in none.
"""

from __future__ import annotations

import time

from pyspark.sql import SparkSession

import rewrite
from skipping import SkippingIndex
from tests.benchmarks.metrics import reads
from tests.benchmarks.report import heading, table
from tests.benchmarks.session import benchmark_session
from tests.benchmarks.star import DATA

__all__ = ["main"]

FILES, IN_FILE, MATCH = 200, 5_000, 10
KEYS = (1, 100, 10_000, 100_000, 1_000_000)
KINDS = {
    "list": f"VALUE_LIST({IN_FILE})",
    "bounds": "MIN_MAX",
    "bloom": f"BLOOM_FILTER(num_items = {IN_FILE})",
    "all": "",
}
VALUES = {"ordered": "k", "mixed": "xxhash64(k)"}


def main() -> None:
    """Print the table."""
    with benchmark_session() as spark:
        path = DATA / "ladder"
        if not path.exists():
            _write(spark, str(path))
        source = f"delta.`{path}`"
        every = list(filter(None, KINDS.values()))
        kinds = {name: [kind] if kind else every for name, kind in KINDS.items()}
        SkippingIndex.create(
            spark,
            source,
            ", ".join(f"{v}_{name} {k}" for v in VALUES for name in kinds for k in kinds[name]),
        )
        lines = []
        for n in KEYS:
            match = _dimension(spark, n)
            for values, value in VALUES.items():
                for name in KINDS:
                    lines.append(
                        (
                            f"{n:,} {values} {name}",
                            match,
                            *_join(spark, source, values, name, value),
                        )
                    )
        heading("Files opened for the keys of a join", files=FILES, keys_in_a_file=IN_FILE)
        table(("keys", "match", "opened", "collected", "query s", "without s"), lines)


def _write(spark: SparkSession, path: str) -> None:
    columns = ", ".join(f"{sql} AS {v}_{name}" for v, sql in VALUES.items() for name in KINDS)
    rows = spark.range(0, FILES * IN_FILE, 1, FILES).selectExpr("id", "id AS k")
    rows.createOrReplaceTempView("keys")
    spark.sql(f"SELECT id, {columns} FROM keys").write.format("delta").option(
        "delta.dataSkippingNumIndexedCols", "0"
    ).save(path)


def _dimension(spark: SparkSession, n: int) -> int:
    """Makes `dim`; the number of files that hold a key of it."""
    step = FILES // MATCH
    present = min(n, MATCH * IN_FILE // 2)
    inside = f"(id % {MATCH}) * {step * IN_FILE} + id div {MATCH}"
    spark.sql("DROP TABLE IF EXISTS dim")
    spark.range(0, n, 1, 2).selectExpr(
        f"IF(id < {present}, {inside}, -id) AS k", "true AS chosen"
    ).write.format("delta").saveAsTable("dim")
    return min(n, MATCH)


def _join(
    spark: SparkSession, source: str, values: str, name: str, value: str
) -> tuple[object, ...]:
    query = f"""SELECT count(*), sum(id) FROM {source} f
        JOIN (SELECT {value} AS key FROM dim WHERE chosen) d ON f.{values}_{name} = d.key"""
    seconds, rows, opened, collected = [], [], 0, ""
    for skip in ("true", "false"):
        spark.conf.set("spark.skipping.enabled", skip)
        started = time.perf_counter()
        df = spark.sql(query)
        rows.append(df.collect())
        seconds.append(time.perf_counter() - started)
        if skip == "true":
            opened = max(read.files for read in reads(df) if read.location.endswith("ladder"))
            (scan,) = [
                s for s in rewrite.explain(df).scans if s.table.rstrip("`").endswith("ladder")
            ]
            keys = scan.keys[0] if scan.keys else None
            collected = (
                f"{keys.seconds:.2f} s {keys.how}"
                if keys is not None and keys.keys is not None
                else "; ".join(filter(None, (scan.reason, *scan.unused, keys and keys.reason)))
            )
    if rows[0] != rows[1]:
        raise AssertionError(f"other rows with the index: {query}")
    return opened, collected, *(f"{s:.2f}" for s in seconds)


if __name__ == "__main__":
    main()
