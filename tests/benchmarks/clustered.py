"""Tables without an index, sorted by a column: `python -m tests.benchmarks.clustered [files]`.

A join with ten keys, a list of ten values, a value from a subquery, the first ten rows and any ten
rows, on Delta and on Iceberg, without skipping and with it. With `--delay 30` the tables are in an
object store that answers each request 30 ms late, else on the local disk.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from tqdm import tqdm

import rewrite
from tests.benchmarks.report import heading, interleaved, ratio, spread, table
from tests.benchmarks.session import benchmark_session
from tests.object_store import BUCKET, ObjectStore

KEYS = 10
WAREHOUSE = "spark.sql.catalog.iceberg.warehouse"

QUERIES = {
    "join, ten keys": "SELECT sum(v) FROM {t} f JOIN keys d ON f.k = d.k WHERE d.a = 1",
    "IN, ten values": "SELECT sum(v) FROM {t} WHERE k IN ({list})",
    "k = (SELECT max(k))": "SELECT sum(v) FROM {t} WHERE k = (SELECT max(k) FROM keys WHERE a = 1)",
    "ORDER BY k LIMIT 10": "SELECT * FROM {t} ORDER BY k LIMIT 10",
    "k >= ... ORDER BY k LIMIT 10": "SELECT * FROM {t} WHERE k >= {third} ORDER BY k LIMIT 10",
    "k >= ... LIMIT 10": "SELECT * FROM {t} WHERE k >= {third} LIMIT 10",
}


def _opened(df: DataFrame, name: str) -> int:
    scans = rewrite.explain(df).scans
    return sum(scan.opened or 0 for scan in scans if scan.table.endswith(f".{name}"))


def _run(spark: SparkSession, query: str, enabled: str) -> None:
    spark.conf.set("spark.skipping.enabled", enabled)
    spark.sql(query).collect()


def main(files: int, rows: int, rounds: int, delay: int | None) -> None:
    """Print the table."""
    with ExitStack() as open_things:
        store = open_things.enter_context(ObjectStore()) if delay is not None else None
        settings = {} if store is None else {**store.settings(), WAREHOUSE: f"s3a://{BUCKET}/ice"}
        spark = open_things.enter_context(benchmark_session(settings))
        spark.sql("CREATE NAMESPACE IF NOT EXISTS iceberg.default")
        step = rows // files
        chosen = [n * step * (files // KEYS) + 7 for n in range(KEYS)]
        spark.createDataFrame([(k, 1) for k in chosen], "k BIGINT, a INT").write.format(
            "delta"
        ).saveAsTable("keys")
        tables = {"delta": "spark_catalog.default.c", "iceberg": "iceberg.default.c"}
        for format, name in tables.items():
            source = spark.range(0, rows, 1, files).selectExpr("id AS k", "id % 1000 AS v")
            writer = source.write.format(format)
            if store is not None and format == "delta":
                writer = writer.option("path", f"s3a://{BUCKET}/c")
            writer.saveAsTable(name)
        if store is not None and delay is not None:
            store.delay(delay)
        out = []
        cases = [(*table, *query) for table in tables.items() for query in QUERIES.items()]
        for format, name, title, text in tqdm(cases, unit="query", disable=None):
            query = text.format(t=name, list=", ".join(map(str, chosen)), third=rows // 3)
            out.append([format, title, *_line(spark, query, rounds)])
        heading(
            "sorted tables without an index",
            files=files,
            rows=f"{rows:,}",
            rounds=rounds,
            at="local disk" if delay is None else f"object store, {delay} ms a request",
        )
        table(["format", "query", "files without", "with", "s without", "s with", "ratio"], out)


def _line(spark: SparkSession, query: str, rounds: int) -> list[object]:
    spark.conf.set("spark.skipping.enabled", "false")
    control = spark.sql(query)
    rows_without = control.collect()
    without = _opened(control, "c")
    spark.conf.set("spark.skipping.enabled", "true")
    df = spark.sql(query)
    found = df.collect()
    # Without an order any rows are right.
    is_ordered = "LIMIT" not in query or "ORDER" in query
    assert found == rows_without if is_ordered else len(found) == len(rows_without)
    times = interleaved(
        {
            "without": partial(_run, spark, query, "false"),
            "with": partial(_run, spark, query, "true"),
        },
        rounds=rounds,
        warm=0,  # both have run once
    )
    return [
        without,
        _opened(df, "c"),
        spread(times["without"]),
        spread(times["with"]),
        ratio(times["without"], times["with"]),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="?", type=int, default=200)
    parser.add_argument("rows", nargs="?", type=int, default=2_000_000, help="of a table")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--delay", type=int, help="ms a request; tables are in an object store")
    main(**vars(parser.parse_args()))
