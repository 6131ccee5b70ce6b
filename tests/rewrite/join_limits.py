"""Joins where keys are many, or threads and memory few: run in a process of its own.

    python join_limits.py FOLDER MILLIONS-OF-KEYS QUERIES-AT-ONCE

A driver of 1 GB, results of at most 1 MB, and pools of two threads for Spark's subqueries and
broadcasts, none of which can be set in a session that runs. Each query has to end, with the rows
that it has without an index; what explain says of it is checked. Prints `all is well`.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import SparkSession

import rewrite

FILES = 12
ALL = (4800, sum(range(4800)))
SMJ = "spark.sql.autoBroadcastJoinThreshold"


def session(folder: str, master: str) -> SparkSession:
    builder = (
        SparkSession.builder.master(master)
        .config("spark.sql.warehouse.dir", folder)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.maxResultSize", "1m")
        .config("spark.sql.subquery.maxThreadThreshold", "2")
        .config("spark.sql.broadcastExchange.maxThreadThreshold", "2")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.skipping.timeout", "60s")
    )
    spark = rewrite.session(builder)
    spark.sparkContext.setLogLevel("OFF")
    return spark


def make(spark: SparkSession) -> None:
    # Text that does not compress: reading a dimension twice has to be cheap beside it.
    rows = spark.sql(
        """SELECT id, int(id % 1200) AS k,
        concat_ws('', transform(sequence(1, 8), i -> md5(string(id * 8 + i)))) AS pad
        FROM range(4800)"""
    )
    rows.selectExpr("*", f"int(k % {FILES}) AS _f").repartitionById(FILES, "_f").drop(
        "_f"
    ).write.format("delta").option("delta.dataSkippingNumIndexedCols", "0").saveAsTable("fact")
    spark.sql(
        f"SELECT int(id) AS k, int(id % 40) AS g, id % {FILES} AS name FROM range(1200)"
    ).coalesce(1).write.format("delta").saveAsTable("dim")
    spark.sql("SELECT int(id) AS g, id AS name FROM range(40)").coalesce(1).write.format(
        "delta"
    ).saveAsTable("sub")
    spark.sql("CREATE SKIPPING INDEX ON fact (k VALUE_LIST, k MIN_MAX)")


def check(spark: SparkSession, query: str, said: str, expected: tuple[int, int]) -> None:
    df = spark.sql(f"SELECT count(*), coalesce(sum(id), 0) FROM ({query})")
    assert tuple(df.first() or ()) == expected, query
    explained = str(rewrite.explain(df))
    fact = next(s for s in rewrite.explain(df).scans if s.table.endswith("fact"))
    assert said in explained, explained
    assert fact.opened == FILES, explained
    print(f"{said!r}: {time.monotonic() - started:.0f} s", flush=True)


def many_keys(spark: SparkSession, millions: int) -> None:
    """Millions of keys, and nothing that tells so beforehand."""
    many = f"""(SELECT int(a.id * 10000 + b.id) AS k FROM range({100 * millions}) a
        JOIN range(10000) b ON a.id % 1 = b.id % 1 WHERE a.id % 1000 < 1000)"""
    spark.conf.set(SMJ, "-1")
    check(spark, f"SELECT f.id FROM fact f JOIN {many} d ON f.k = d.k", "no keys of Range", ALL)


def big_results(spark: SparkSession) -> None:
    """500,000 keys fit the setting but not what Spark lets its tasks return."""
    many = """(SELECT hash(a.id, b.id) | 1073741824 AS k FROM range(500) a JOIN range(1000) b
        ON a.id % 1 = b.id % 1 WHERE a.id % 1000 < 1000)"""
    spark.conf.set(SMJ, "-1")
    check(spark, f"SELECT f.id FROM fact f JOIN {many} d ON f.k = d.k", "collecting failed", (0, 0))
    spark.conf.set(SMJ, "10m")


SNOWFLAKE = """SELECT count(*), sum(f.id) FROM fact f JOIN dim ON f.k = dim.k
    JOIN sub ON dim.g = sub.g WHERE sub.name = {0} AND dim.name < 100"""


def concurrent(spark: SparkSession, queries: int, threads: int) -> None:
    spark.conf.set("spark.skipping.enabled", "false")
    expected = [tuple(spark.sql(SNOWFLAKE.format(n % 40)).first() or ()) for n in range(queries)]
    spark.conf.set("spark.skipping.enabled", "true")

    def run(n: int) -> tuple[object, ...]:
        return tuple(spark.sql(SNOWFLAKE.format(n % 40)).first() or ())

    with ThreadPoolExecutor(threads) as pool:
        assert list(pool.map(run, range(queries))) == expected
    df = spark.sql(SNOWFLAKE.format(3))
    df.collect()
    fact = next(s for s in rewrite.explain(df).scans if s.table.endswith("fact"))
    assert (fact.opened or 0) < FILES, str(fact)
    print(f"{queries} at once: {time.monotonic() - started:.0f} s", flush=True)


def shared_exchanges(spark: SparkSession, queries: int, threads: int) -> None:
    """One side of a join waits for the shuffle of the other one."""
    spark.conf.set(SMJ, "-1")

    def run(n: int) -> int | None:
        given = spark.createDataFrame([(n,), (n + FILES,)], "k int")
        df = spark.table("fact").join(given, "k").select("id")
        assert len(df.collect()) == 8
        (fact,) = rewrite.explain(df).scans
        return fact.opened

    with ThreadPoolExecutor(threads) as pool:
        assert list(pool.map(run, range(queries))) == [1] * queries
    print(f"{queries} shared exchanges at once: {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    started = time.monotonic()
    folder, millions, at_once = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    spark = session(folder, "local[2]")
    make(spark)
    big_results(spark)
    many_keys(spark, millions)
    for threshold in ("10m", "-1"):
        spark.conf.set(SMJ, threshold)
        concurrent(spark, queries=at_once, threads=at_once)
    spark.stop()
    spark = session(f"{folder}/1", "local[1]")  # the catalog went with the first session
    make(spark)
    concurrent(spark, queries=8, threads=8)
    shared_exchanges(spark, queries=16, threads=8)
    spark.stop()
    print("all is well")
