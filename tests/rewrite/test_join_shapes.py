"""Keys of dimensions of every make, through whatever stands between the join and the scan.

A fact of twelve files without bounds; a key lives in one of them. Rows are as without the index,
and exactly the files with a partner are opened; where that cannot be proven, all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from random import randrange

import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import rewrite
from skipping.lookup.scan_plan import ScanPlan
from skipping.spark_api import collect_arrow, create_frame
from tests.rewrite.differential import (
    FORMATS,
    IS_SPARK_4,
    Compared,
    Query,
    in_catalog_of,
    make_table,
    reads_all,
    same_rows,
    settings,
    spelled,
)
from tests.rewrite.spark_suite import cost_ignored

pytestmark = pytest.mark.nightly

FILES = 12
FACT = f"""SELECT id, int(id % 120) AS k, concat('key ', id % 120) AS s,
    IF(id % {FILES} IN (0, 1), NULL, int(id % 120)) AS n,
    CAST(CAST(id % 120 AS DOUBLE) / 4 AS DECIMAL(9, 2)) AS dec,
    repeat(sha2(string(id), 512), 40) AS pad, int(id % {FILES}) AS _f FROM range(480)"""
DIM = """SELECT int(id) AS k, concat('key ', id) AS s, IF(id % 12 = 0, NULL, int(id)) AS n,
    int(id % 12) AS a, int(id % 7) AS g FROM range(120)"""

SMJ = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
PLAIN = {"spark.sql.adaptive.enabled": "false"}
ENGINES = {"adaptive": {}, "sort-merge": SMJ, "plain": PLAIN, "plain, sort-merge": SMJ | PLAIN}


@pytest.fixture(scope="module", autouse=True)
def every_table(spark: SparkSession) -> Iterator[None]:
    kinds = ", ".join(f"{column} VALUE_LIST" for column in ("k", "s", "n", "dec"))
    for format in FORMATS:
        with in_catalog_of(spark, format):
            make_table(spark, "shaped", FACT, kinds)
            make_table(spark, "dims", f"SELECT *, 0 AS _f FROM ({DIM})")
            make_table(spark, "ids", f"SELECT *, 0 AS _f FROM ({DIM}) WHERE k IN (3, 15, 5)")
    yield
    for format in FORMATS:
        with in_catalog_of(spark, format):
            spark.sql("DROP SKIPPING INDEX IF EXISTS ON shaped")
            for name in ("shaped", "dims", "ids"):
                spark.sql(f"DROP TABLE {name}")


on_every_format = pytest.mark.parametrize("tables", FORMATS, indirect=True)


@pytest.fixture(autouse=True)
def tables(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    """Names are tables of the format that a test asks for: of Delta if it does not."""
    with in_catalog_of(spark, getattr(request, "param", "delta")):
        yield


def fact(found: Compared) -> ScanPlan:
    (scan,) = [s for s in found.explained.scans if s.table.endswith("shaped")]
    return scan


def filtered(spark: SparkSession, *columns: str) -> DataFrame:
    return spark.table("dims").where("a = 3").select(*(columns or ("k",)))


def given(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(3,), (15,)], "k int")


def joined(spark: SparkSession, below: DataFrame, dimension: DataFrame | None = None) -> DataFrame:
    return below.join(filtered(spark) if dimension is None else dimension, "k").drop("pad")


LATEST = """(SELECT *, row_number() OVER (PARTITION BY {by} ORDER BY id DESC) AS r FROM shaped)"""
ONE_OF = "SELECT f.id FROM {} f JOIN dims d ON f.k = d.k WHERE d.a = 3"

SHAPES: dict[str, Query] = {
    "a small table": "SELECT f.id FROM shaped f JOIN ids USING (k)",
    "IN a small table": "SELECT id FROM shaped WHERE k IN (SELECT k FROM ids)",
    "IN a condition or IN a small table": """SELECT id FROM shaped
        WHERE k IN (SELECT k FROM dims WHERE a = 3) OR k IN (SELECT k FROM ids)""",
    "a condition and a small table, united": """SELECT f.id FROM shaped f JOIN
        (SELECT k FROM dims WHERE a = 3 UNION ALL SELECT k FROM ids) d ON f.k = d.k""",
    "the latest row of a key": ONE_OF.format(LATEST.format(by="k")) + " AND r = 1",
    "two distinct counts": """SELECT c, e FROM (SELECT k, count(DISTINCT s) AS c,
        count(DISTINCT n) AS e FROM shaped GROUP BY k) JOIN dims USING (k) WHERE a = 3""",
    "grouping sets that all have the key": """SELECT f.* FROM
        (SELECT k, s, n, count(*) AS c FROM shaped GROUP BY k, GROUPING SETS ((s), (n), ())) f
        JOIN dims d ON f.k = d.k WHERE d.a = 3""",
    "ROLLUP, whose totals have no partner": """SELECT f.* FROM
        (SELECT k, n, count(*) AS c FROM shaped GROUP BY ROLLUP (n, k)) f JOIN dims d
        ON f.k = d.k WHERE d.a = 3""",
    "CUBE in a view, of an outer join": """SELECT f.*, d.g FROM dims d LEFT JOIN
        (SELECT k, s, grouping_id() AS i, count(*) AS c FROM shaped
        GROUP BY CUBE (k, s)) f ON f.k = d.k WHERE d.a = 3""",
    "a number as text": """SELECT f.id FROM shaped f JOIN
        (SELECT if(g = 1, '0', '') || k AS t FROM dims WHERE a = 3) d ON string(f.k) = d.t""",
    "a hint": ONE_OF.format("(SELECT /*+ REBALANCE(k) */ * FROM shaped)"),
    "NOT EXISTS, what is looked up": """SELECT d.k FROM dims d WHERE a = 3
        AND NOT EXISTS (SELECT 1 FROM shaped f WHERE f.k = d.k AND f.id > 300)""",
    "left anti, what is looked up": """SELECT * FROM (SELECT * FROM dims WHERE a = 3
        AND g < 4) d LEFT ANTI JOIN (SELECT * FROM shaped WHERE id % 5 = 0) f ON d.k = f.k""",
    "null-safe": "SELECT f.id FROM shaped f JOIN dims d ON f.n <=> d.n WHERE d.k = 3",
    "null-safe, of nulls": """SELECT f.id FROM shaped f JOIN dims d ON f.n <=> d.n
        WHERE d.k IN (0, 3)""",
    "null-safe, of an outer join": """SELECT f.id FROM dims d LEFT JOIN shaped f
        ON f.n <=> d.n AND f.k <> 0 WHERE d.k = 15""",
    "coalesce": "SELECT f.id FROM shaped f JOIN dims d ON coalesce(f.n, 15) = d.k WHERE d.k = 15",
    "coalesce, of other keys": """SELECT f.id FROM shaped f JOIN dims d
        ON coalesce(f.n, 7) = d.k WHERE d.k = 15""",
    "INTERSECT": "SELECT k FROM shaped INTERSECT SELECT k FROM dims WHERE a = 3",
    "EXCEPT, what is taken away": """SELECT k FROM dims WHERE a = 3 EXCEPT SELECT k
        FROM shaped WHERE id % 5 = 0""",
    "a wider decimal": """SELECT f.id FROM shaped f JOIN
        (SELECT CAST(k / 4D AS DECIMAL(14, 2)) AS dec FROM dims WHERE a = 3) d ON f.dec = d.dec""",
    "given rows": "SELECT f.id FROM shaped f JOIN (VALUES (3), (15)) v(k) ON f.k = v.k",
}
OPENED = {
    "a small table": 2,
    "IN a small table": 2,
    "IN a condition or IN a small table": 2,
    "a condition and a small table, united": 2,
    "null-safe, of nulls": 3,
    "coalesce": 3,
}


@on_every_format
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shape", SHAPES)
def test_exactly_the_files_with_a_partner(spark: SparkSession, shape: str, engine: str) -> None:
    scan = fact(same_rows(spark, SHAPES[shape], conf=ENGINES[engine]))
    assert scan.opened == OPENED.get(shape, 1), str(scan)


CORRELATED: dict[str, tuple[str, int]] = {
    "a scalar": (
        "SELECT k, (SELECT sum(f.id) FROM shaped f JOIN (SELECT d.k AS a) ON f.k = a) FROM ids d",
        2,
    ),
    "LATERAL": (
        "SELECT * FROM ids d, LATERAL"
        " (SELECT sum(f.id) FROM shaped f JOIN (SELECT d.k AS a) ON f.k = a)",
        2,
    ),
    "EXISTS of an outer join": (
        "SELECT k FROM ids d WHERE EXISTS (SELECT 1 FROM shaped f LEFT JOIN dims e"
        " ON f.k = e.k AND e.n = d.n WHERE f.k = d.k)",
        2,
    ),
    "a join of its own": (
        "SELECT k, (SELECT max(f.id) FROM shaped f JOIN dims e ON f.k = e.k"
        " WHERE e.a = 3 AND f.n = d.n) FROM ids d",
        1,
    ),
}


@on_every_format
@pytest.mark.parametrize("engine", ENGINES)
def test_recursive_queries_run(spark: SparkSession, engine: str) -> None:
    """Spark analyzes the plan of each step again, and fails on dynamic filters there."""
    if spark.version < "4.1":
        pytest.skip("Spark 4.1 is the first with recursive queries")
    query = """WITH RECURSIVE t(key, step) AS (SELECT 3, 0 UNION ALL
        SELECT f.k, step + 1 FROM t LEFT JOIN shaped f ON key = f.k WHERE step < 2)
        SELECT key, step FROM t"""
    with cost_ignored(spark):
        assert len(same_rows(spark, query, conf=ENGINES[engine]).rows) > 3


@on_every_format
def test_correlated_subqueries_are_planned(spark: SparkSession) -> None:
    """Spark optimizes them twice: alone, and joined with the query around them."""
    for query, files in CORRELATED.values():
        scan = fact(same_rows(spark, query))
        assert scan.opened == files, str(scan)
    union = """SELECT k, (SELECT sum(v) FROM (
        SELECT f.id AS v FROM shaped f JOIN dims e ON f.k = d.k AND f.n = e.n
        UNION ALL SELECT e.g FROM shaped f JOIN dims e ON e.k = d.k AND f.k = e.k)) FROM ids d"""
    if IS_SPARK_4:  # before, it refuses outer references there
        same_rows(spark, union)


def plus(column: str) -> Column:
    return F.udf(lambda value: (value or 0) + 1, "int")(column)


def series(column: str) -> Column:
    return F.pandas_udf(lambda values: values + 1, "int")(column)


FRAMES: dict[str, tuple[Query, int]] = {
    "a Python function": (
        lambda spark: joined(spark, spark.table("shaped").withColumn("u", plus("k"))), 1),
    "a pandas function": (
        lambda spark: joined(spark, spark.table("shaped").withColumn("u", series("k"))), 1),
    "repartition": (lambda spark: joined(spark, spark.table("shaped").repartition(3)), 1),
    "repartition by the key": (
        lambda spark: joined(spark, spark.table("shaped").repartition(3, "k")), 1),
    "coalesce": (lambda spark: joined(spark, spark.table("shaped").coalesce(1)), 1),
    "given rows with a hint": (
        lambda spark: joined(spark, spark.table("shaped"), F.broadcast(given(spark))), 1),
    "Arrow with a hint": (
        lambda spark: joined(
            spark, spark.table("shaped"),
            F.broadcast(create_frame(spark, collect_arrow(given(spark))))
        ), 1),
    "Arrow": (
        lambda spark: joined(
            spark, spark.table("shaped"), create_frame(spark, collect_arrow(given(spark)))
        ), 1),
    "a table with a hint": (
        lambda spark: joined(spark, spark.table("shaped"), F.broadcast(spark.table("ids"))), 2),
}  # fmt: skip


@pytest.mark.parametrize("shape", FRAMES)
def test_frames(spark: SparkSession, shape: str) -> None:
    query, files = FRAMES[shape]
    scan = fact(same_rows(spark, query))
    assert scan.opened == files, str(scan)


@on_every_format
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("ready", [True, False])
def test_a_cached_dimension(spark: SparkSession, engine: str, ready: bool) -> None:
    """Its rows are those of the cache, whether it is filled before the query or by it."""
    cached = filtered(spark).cache()
    try:
        if ready:
            cached.count()
        found = same_rows(
            spark, lambda spark: joined(spark, spark.table("shaped")), conf=ENGINES[engine]
        )
        assert fact(found).opened == 1, str(found.explained)
    finally:
        cached.unpersist(blocking=True)


KEEPING = {
    "NOT EXISTS": """SELECT d.k FROM kept d WHERE NOT EXISTS
        (SELECT 1 FROM shaped f WHERE f.k = d.k AND f.id > 300)""",
    "left outer": "SELECT d.k, f.id FROM kept d LEFT JOIN shaped f ON f.k = d.k AND f.id > 300",
}


@contextmanager
def cache_dimension(spark: SparkSession, query: str) -> Iterator[None]:
    """Cache the rows of a query, as the view `kept`."""
    spark.sql(query).createOrReplaceTempView("kept")
    spark.catalog.cacheTable("kept")
    try:
        yield
    finally:
        spark.catalog.uncacheTable("kept")
        spark.catalog.dropTempView("kept")


@on_every_format
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shape", KEEPING)
def test_a_cached_dimension_whose_rows_are_kept(
    spark: SparkSession, shape: str, engine: str
) -> None:
    """The cache was computed from a snapshot: dropped, it has the same rows again, whatever the
    table has now."""
    make_table(spark, "changing", f"SELECT *, 0 AS _f FROM ({DIM})")
    query = KEEPING[shape]
    with cache_dimension(spark, "SELECT k, count(*) AS n FROM changing WHERE a = 3 GROUP BY k"):
        found = same_rows(spark, query, conf=ENGINES[engine])
        assert fact(found).opened == 1, str(found.explained)
        with settings(spark, ENGINES[engine]):
            df = spark.sql(query)
            df._jdf.queryExecution().executedPlan()
            spark.sql("UPDATE changing SET k = k + 1")  # drops the cache, too
            assert spelled(df.collect()) == found.rows
            (scan,) = [s for s in rewrite.explain(df).scans if s.table.endswith("shaped")]
        assert scan.opened == 1, str(scan)
    spark.sql("DROP TABLE changing")


@pytest.fixture
def plain_files(spark: SparkSession) -> Iterator[None]:
    name = "spark_catalog.default.listed_dims"
    spark.table("dims").coalesce(1).write.format("parquet").saveAsTable(name)
    yield
    spark.sql(f"DROP TABLE {name}")


@pytest.mark.parametrize("shape", KEEPING)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT k FROM dims WHERE a = 3 ORDER BY g LIMIT 2",
        "SELECT k FROM listed_dims WHERE a = 3",
        "SELECT k FROM dims WHERE a = 3 AND k IN (SELECT k FROM listed_dims)",
        "SELECT k FROM dims WHERE a = (SELECT min(3) FROM listed_dims)",
    ],
    ids=["LIMIT", "files", "files of a join", "files of a subquery"],
)
def test_a_cache_whose_parts_may_have_other_rows(
    spark: SparkSession, plain_files: None, query: str, shape: str
) -> None:
    """Spark computes evicted parts of a cache again."""
    with cache_dimension(spark, query):
        reads_all(spark, KEEPING[shape], "Spark does not broadcast it|no join in the scan's own")


ONCE: dict[str, tuple[Query, int]] = {
    "LIMIT": (
        "SELECT f.id FROM shaped f JOIN (SELECT k FROM dims ORDER BY k LIMIT 2) USING (k)", 2),
    "a LIMIT of ties": (
        "SELECT f.id FROM shaped f JOIN (SELECT k FROM dims ORDER BY g, k LIMIT 1) USING (k)", 1),
    "the latest row": (
        "SELECT f.id FROM shaped f JOIN (SELECT *, row_number() OVER (PARTITION BY a"
        " ORDER BY s DESC) AS r FROM dims WHERE a IN (3, 4)) d ON f.k = d.k WHERE r = 1", 2),
    "groups of texts in any case": (
        "SELECT f.id FROM shaped f JOIN (SELECT DISTINCT s COLLATE UTF8_LCASE AS c FROM dims"
        " WHERE a = 3) d ON f.s = d.c COLLATE UTF8_BINARY", 1),
    "mapInPandas": (
        lambda spark: joined(
            spark, spark.table("shaped"), filtered(spark).mapInPandas(lambda rows: rows, "k int")
        ), 1),
}  # fmt: skip


@on_every_format
@pytest.mark.parametrize("shape", [each for each in ONCE if IS_SPARK_4 or "any case" not in each])
def test_rows_that_are_computed_once(spark: SparkSession, shape: str) -> None:
    """Only from the broadcast that the join itself looks its rows up in."""
    query, files = ONCE[shape]
    try:
        with cost_ignored(spark):
            scan = fact(same_rows(spark, query))
        assert scan.opened == files, str(scan)
        shuffled = fact(same_rows(spark, query, conf=SMJ))
        assert shuffled.opened == files, str(shuffled)
        for engine in ("plain", "plain, sort-merge"):
            scan = fact(same_rows(spark, query, conf=ENGINES[engine]))
            assert scan.opened == FILES, str(scan)
            assert re.search(
                "may have other rows|no join in the scan's own stage has these rows", str(scan)
            )
    finally:
        spark.catalog.clearCache()


TOP = "(SELECT k FROM scattered WHERE g < 5 ORDER BY g LIMIT 3) d"
TOP_JOINS = {
    "inner": f"SELECT f.id, pad FROM shaped f JOIN {TOP} ON f.k = d.k",
    "inner, first": f"SELECT f.id, pad FROM {TOP} JOIN shaped f ON f.k = d.k",
    "left outer": f"SELECT f.id, pad FROM {TOP} LEFT JOIN shaped f ON f.k = d.k",
    "right outer": f"SELECT f.id, pad FROM shaped f RIGHT JOIN {TOP} ON f.k = d.k",
    "semi": f"SELECT d.k AS id FROM {TOP} WHERE EXISTS (SELECT 1 FROM shaped f WHERE f.k = d.k)",
    "anti": f"""SELECT d.k AS id FROM {TOP} WHERE NOT EXISTS
        (SELECT 1 FROM shaped f WHERE f.k = d.k)""",
    "two facts": f"""SELECT f.id, e.pad FROM shaped f JOIN {TOP} ON f.k = d.k
        JOIN shaped e ON e.k = d.k AND e.id = f.id""",
    "with another fact, cast": f"""SELECT f.id FROM shaped f JOIN {TOP} ON f.k = d.k
        JOIN (SELECT bigint(n) AS n, id FROM shaped) e ON e.id = f.id""",
    "two of the same": f"""SELECT f.id FROM shaped f JOIN {TOP} ON f.k = d.k UNION ALL
        SELECT f.id FROM {TOP} LEFT JOIN shaped f ON f.k = d.k""",
}
# The first rows of several tasks depend on which one ends first.
ONE_TASK = {"spark.sql.files.openCostInBytes": "0", "spark.sql.files.minPartitionNum": "1"}
TOP_ROWS = {"semi": 3, "anti": 0, "two of the same": 24}


@pytest.fixture
def ties(spark: SparkSession) -> Iterator[None]:
    """A dimension with ties: which rows come first depends on the order in which they are read."""
    rows = f"SELECT k, g - g % 3 AS g, k % 3 AS _f FROM ({DIM})"
    make_table(spark, "scattered", rows, "g MIN_MAX")
    yield
    spark.sql("DROP SKIPPING INDEX ON scattered")
    spark.sql("DROP TABLE scattered")


@on_every_format
@pytest.mark.parametrize("threshold", ["1000", "-1"])
def test_first_rows_of_ties(spark: SparkSession, ties: None, threshold: str) -> None:
    """Each of them has four partners, whichever they are."""
    conf = {**ONE_TASK, "spark.sql.autoBroadcastJoinThreshold": threshold}  # not of the fact
    for shape, query in TOP_JOINS.items():
        hows = set()
        for _ in range(3):
            with settings(spark, conf):
                df = spark.sql(query)
                rows = df.collect()
            explained = rewrite.explain(df)
            assert len(rows) == TOP_ROWS.get(shape, 12), (shape, str(explained))
            assert all(row.id is not None for row in rows), (shape, str(explained))
            scans = [s for s in explained.scans if s.table.endswith("shaped")]
            opened = min(s.opened or 0 for s in scans)
            assert opened < FILES, (shape, str(explained))
            hows |= {keys.how for s in scans for keys in s.keys if keys.keys}
        shuffled = threshold == "-1" or "outer" in shape
        assert ("from the shuffle" in hows) >= shuffled, (shape, hows)


@on_every_format
def test_first_rows_that_are_not_shuffled_once(spark: SparkSession, ties: None) -> None:
    query = TOP_JOINS["left outer"]
    both = "(SELECT * FROM scattered UNION ALL SELECT * FROM scattered WHERE g > 2)"
    for conf, changed, is_pruned in (
        (PLAIN, query, False),
        (SMJ | PLAIN, query, False),
        (SMJ | {"spark.sql.exchange.reuse": "false"}, query, False),
        (SMJ, f"{query} WHERE f.id < (SELECT 1000 + count(*) FROM ids)", False),
        (SMJ, query.replace("scattered", both), False),
        # The rows of the shuffle below the LIMIT are more, but certain: some, and all of the table.
        (SMJ, query.replace("ORDER BY g", ""), True),
        (SMJ | {"spark.sql.execution.topKSortFallbackThreshold": "2"}, query, False),
    ):
        with settings(spark, ONE_TASK | conf):
            df = spark.sql(changed)
            assert len(df.collect()) == 12
        explained = rewrite.explain(df)
        (scan,) = [s for s in explained.scans if s.table.endswith("shaped")]
        assert (scan.opened != FILES) == is_pruned, str(explained)


@on_every_format
def test_rows_of_chance(spark: SparkSession) -> None:
    """Whatever the dimension gives, the join finds its partners: four rows in one file."""

    def chance(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"k": pa.array([randrange(120)], pa.int32())})

    def random(spark: SparkSession) -> DataFrame:
        return spark.range(1).mapInArrow(chance, "k int")

    def opened(below: str) -> list[int | None]:
        df = joined(spark, spark.sql(below), F.broadcast(random(spark)))
        assert df.agg(F.sum("c")).collect()[0][0] == 4
        df = joined(spark, spark.sql(below), F.broadcast(random(spark)))
        assert sum(row.c for row in df.collect()) == 4
        return [s.opened for s in rewrite.explain(df).scans if s.table.endswith("shaped")]

    for _ in range(4):
        assert opened("SELECT k, 1 AS c, pad FROM shaped") == [1]
        # Here the scan ends in a shuffle below the join, and no join is there to compare with.
        assert opened("SELECT k, count(*) AS c, 1 AS pad FROM shaped GROUP BY k") == [FILES]
    with settings(spark, {"spark.sql.exchange.reuse": "false"}):
        assert opened("SELECT k, 1 AS c, pad FROM shaped") == [FILES]
    twice = spark.table("shaped").where("id < 480").select("k", "id")
    dimension = F.broadcast(random(spark))
    df = twice.join(dimension, "k").unionByName(twice.join(dimension, "k"))
    assert len(df.collect()) % 4 == 0


KEPT: dict[str, tuple[Query, str]] = {
    "ROLLUP makes nulls of the key": (
        "SELECT f.* FROM (SELECT k, n, count(*) AS c FROM shaped GROUP BY ROLLUP (k, n)) f"
        " JOIN dims d ON f.k <=> d.k OR f.k = d.k WHERE d.a = 3",
        "",
    ),
    "a grouping set without the key, which equals a null": (
        "SELECT f.* FROM (SELECT k, n, count(*) AS c FROM shaped GROUP BY ROLLUP (n, k)) f"
        " JOIN dims d ON f.k <=> nullif(d.k, 15) WHERE d.a = 3",
        "grouping sets below the join do not all have the key",
    ),
    "a grouping set without the key, which is replaced": (
        "SELECT f.* FROM (SELECT k, n, count(*) AS c FROM shaped GROUP BY ROLLUP (k, n)) f"
        " JOIN dims d ON coalesce(f.k, 3) = d.k WHERE d.a = 3",
        "grouping sets below the join do not all have the key",
    ),
    "the latest row of another column": (
        ONE_OF.format(LATEST.format(by="id % 7")) + " AND r = 1",
        "stands between",
    ),
    "observed": (
        lambda spark: joined(
            spark, spark.table("shaped").observe("seen", F.count(F.lit(1)).alias("rows"))
        ),
        "a CollectMetrics stands between",
    ),
    "a random function": (
        lambda spark: joined(
            spark,
            spark.table("shaped").withColumn(
                "u", F.udf(lambda value: value, "int").asNondeterministic()("k")
            ),
        ),
        "not deterministic|BatchEvalPython stands between",
    ),
    "a key made by a Python function": (
        lambda spark: joined(spark, spark.table("shaped").drop("k").withColumn("k", plus("n"))),
        "makes the join key",
    ),
    "a cached LIMIT": (
        lambda spark: joined(spark, spark.table("shaped"), filtered(spark).limit(2).cache()),
        "Spark does not broadcast it",
    ),
    "a cached random dimension": (
        lambda spark: joined(
            spark, spark.table("shaped"), filtered(spark).where("rand(5) < 0.9").cache()
        ),
        "not deterministic",
    ),
    "NOT IN, what is looked up": (
        "SELECT k FROM dims WHERE a = 3 AND k NOT IN (SELECT k FROM shaped WHERE id % 2 = 1)",
        "",
    ),
    "anti, what is kept": (
        "SELECT f.id FROM shaped f LEFT ANTI JOIN (SELECT * FROM dims WHERE a = 3) d USING (k)",
        "LEFT ANTI JOIN keeps rows",
    ),
}


@on_every_format
@pytest.mark.parametrize("shape", KEPT)
def test_what_must_not_prune_does_not(spark: SparkSession, shape: str) -> None:
    query, why = KEPT[shape]
    try:
        scan = fact(same_rows(spark, query))
        assert scan.opened == FILES, str(scan)
        assert re.search(why, str(scan)), str(scan)
    finally:
        spark.catalog.clearCache()


def test_what_spark_reads_once_is_not_read_twice_for_a_small_table(spark: SparkSession) -> None:
    once = "WITH s AS (SELECT k, sum(id) AS n FROM shaped GROUP BY k)"
    query = f"""{once} SELECT /*+ BROADCAST(d) */ s.* FROM s JOIN dims d ON s.k = d.k
        UNION ALL SELECT /*+ BROADCAST(d) */ s.k, -s.n FROM s JOIN dims d ON s.k = d.k"""
    found = same_rows(spark, query)
    assert "and Spark reads the scan once for 2 parts" in str(found.explained), str(found.explained)


def test_a_small_table_that_saves_nothing_is_let_be(spark: SparkSession) -> None:
    query = "SELECT f.id FROM shaped f JOIN (SELECT DISTINCT n AS k FROM {}) d ON f.k = d.k"
    spark.range(12).selectExpr("int(id) AS n").write.format("delta").saveAsTable("each_file")
    try:
        scans = [fact(same_rows(spark, query.format("each_file"))) for _ in range(5)]
        assert [bool(s.keys) for s in scans] == [True, False, True, False, False]
    finally:
        spark.sql("DROP TABLE each_file")
