"""Tables without an index, sorted by a column: `python -m tests.benchmarks.clustered [rows]`.

A join with ten keys, a list of ten values, a value from a subquery and the first ten rows, on 200
files of Delta and of Iceberg, without skipping and with it.
"""

from __future__ import annotations

import sys
from functools import partial

from pyspark.sql import DataFrame, SparkSession

import rewrite
from tests.benchmarks.report import heading, interleaved, ratio, spread, table
from tests.benchmarks.session import benchmark_session

FILES = 200
KEYS = 10
ROUNDS = 5

QUERIES = {
    "join, ten keys": "SELECT sum(v) FROM {t} f JOIN keys d ON f.k = d.k WHERE d.a = 1",
    "IN, ten values": "SELECT sum(v) FROM {t} WHERE k IN ({list})",
    "k = (SELECT max(k))": "SELECT sum(v) FROM {t} WHERE k = (SELECT max(k) FROM keys WHERE a = 1)",
    "ORDER BY k LIMIT 10": "SELECT * FROM {t} ORDER BY k LIMIT 10",
}


def _opened(df: DataFrame, name: str) -> int:
    scans = rewrite.explain(df).scans
    return sum(scan.opened or 0 for scan in scans if scan.table.endswith(f".{name}"))


def _run(spark: SparkSession, query: str, enabled: str) -> None:
    spark.conf.set("spark.skipping.enabled", enabled)
    spark.sql(query).collect()


def main(rows: int = 2_000_000) -> None:
    """Print the table."""
    with benchmark_session() as spark:
        spark.sql("CREATE NAMESPACE IF NOT EXISTS iceberg.default")
        step = rows // FILES
        chosen = [n * step * (FILES // KEYS) + 7 for n in range(KEYS)]
        spark.createDataFrame([(k, 1) for k in chosen], "k BIGINT, a INT").write.format(
            "delta"
        ).saveAsTable("keys")
        out = []
        for format, name in (
            ("delta", "spark_catalog.default.c"),
            ("iceberg", "iceberg.default.c"),
        ):
            source = spark.range(0, rows, 1, FILES).selectExpr("id AS k", "id % 1000 AS v")
            source.write.format(format).saveAsTable(name)
            for title, text in QUERIES.items():
                query = text.format(t=name, list=", ".join(map(str, chosen)))
                spark.conf.set("spark.skipping.enabled", "false")
                control = spark.sql(query)
                rows_without = control.collect()
                without = _opened(control, "c")
                spark.conf.set("spark.skipping.enabled", "true")
                df = spark.sql(query)
                assert df.collect() == rows_without
                times = interleaved(
                    {
                        "without": partial(_run, spark, query, "false"),
                        "with": partial(_run, spark, query, "true"),
                    },
                    rounds=ROUNDS,
                )
                out.append(
                    [
                        format,
                        title,
                        without,
                        _opened(df, "c"),
                        spread(times["without"]),
                        spread(times["with"]),
                        ratio(times["without"], times["with"]),
                    ]
                )
        heading("sorted tables without an index, 200 files")
        table(["format", "query", "files without", "with", "s without", "s with", "ratio"], out)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
