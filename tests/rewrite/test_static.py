"""Every shape of query that a condition can stand in: same rows, fewer files.

Table `base` has 12 files; file f holds k = f, f + 12, ... (a value list is exact, bounds know
nothing), m = 100 f ... 100 f + 4 (bounds are exact), n null in files 0 and half of 1, st null in 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

import rewrite
from skipping.spark_api import classic
from tests.rewrite.differential import (
    ENABLED,
    IS_SPARK_4,
    Query,
    append,
    batch,
    exact,
    exact_batch,
    make_table,
    opened,
    reads_all,
    same_rows,
    settings,
    skips,
    spelled,
)
from tests.rewrite.twelve_files import FILES, INDEX, ROWS, location

ENGINES = {
    "aqe": {"spark.sql.adaptive.enabled": "true"},
    "no aqe": {"spark.sql.adaptive.enabled": "false"},
    "no codegen": {"spark.sql.codegen.wholeStage": "false"},
    "neither": {"spark.sql.adaptive.enabled": "false", "spark.sql.codegen.wholeStage": "false"},
}


@pytest.fixture(scope="module")
def base(spark: SparkSession) -> Iterator[str]:
    make_table(spark, "base", ROWS, INDEX)
    spark.sql("CREATE OR REPLACE VIEW seven AS SELECT * FROM base WHERE k = 7")
    spark.table("base").where("k = 8").createOrReplaceTempView("eight")
    yield "base"
    spark.sql("DROP VIEW seven")
    spark.catalog.dropTempView("eight")
    spark.sql("DROP TABLE base")


def twice(spark: SparkSession) -> DataFrame:
    seven = spark.table("base").where("k = 7")
    return seven.alias("a").join(seven.alias("b"), F.col("a.i") == F.col("b.i")).select("a.*")


def windowed(spark: SparkSession) -> DataFrame:
    part = spark.table("base").where("k IN (7, 19)")
    return part.withColumn("rank", F.row_number().over(Window.orderBy("k", "m")))


SHAPES: dict[str, Query] = {
    "table": lambda s: s.table("base").where("k = 7"),
    "table and column": lambda s: s.table("base").where(F.col("k") == 7).select("name"),
    "sql": "SELECT * FROM base WHERE k = 7",
    "load": lambda s: s.read.format("delta").load(location(s)).where("k = 7"),
    "view": "SELECT * FROM seven",
    "view, filtered on": "SELECT * FROM seven WHERE m > 0",
    "temporary view": "SELECT name FROM eight",
    "CTE": "WITH c AS (SELECT * FROM base WHERE k = 7) SELECT * FROM c",
    "CTE twice": """WITH c AS (SELECT * FROM base WHERE k IN (7, 8))
        SELECT a.k, b.name FROM c a JOIN c b ON a.i = b.i WHERE a.k = 7 AND b.k = 8""",
    "scalar subquery": """SELECT i, (SELECT max(m) FROM base WHERE k = 7) FROM base WHERE k = 8""",
    "condition on a scalar subquery": """SELECT * FROM base
        WHERE k = 8 AND m > (SELECT min(m) FROM base WHERE k = 7)""",
    "EXISTS": """SELECT * FROM base a WHERE a.k IN (7, 8)
        AND EXISTS (SELECT 1 FROM base b WHERE b.i = a.i AND b.k = 8)""",
    "NOT EXISTS": """SELECT * FROM base a WHERE a.k IN (7, 20)
        AND NOT EXISTS (SELECT 1 FROM base b WHERE b.i = a.i AND b.k = 8)""",
    "IN subquery": "SELECT * FROM base WHERE k = 7 AND i IN (SELECT i FROM base WHERE k = 8)",
    "NOT IN subquery": """SELECT * FROM base WHERE k IN (7, 19)
        AND i NOT IN (SELECT i FROM base WHERE k = 8)""",
    "self-join, same": twice,
    "self-join, different": """SELECT a.k, b.k, b.name FROM base a JOIN base b ON a.i = b.i
        WHERE a.k = 7 AND b.k = 8""",
    "outer self-join": """SELECT a.k, b.k FROM (SELECT * FROM base WHERE k IN (7, 8)) a
        FULL JOIN (SELECT * FROM base WHERE k IN (20, 9)) b ON a.i = b.i""",
    "union": """SELECT * FROM base WHERE k = 7 UNION ALL SELECT * FROM base WHERE k = 8
        UNION ALL SELECT * FROM base WHERE k = 7""",
    "union, one side all": "SELECT k FROM base WHERE k = 7 UNION ALL SELECT k FROM base",
    "aggregated union": """SELECT k, sum(c) FROM (
        SELECT k, count(*) c FROM base WHERE k = 7 GROUP BY k
        UNION ALL SELECT k, count(*) FROM base WHERE k = 8 GROUP BY k
        UNION ALL SELECT k, count(*) FROM base WHERE k = 7 GROUP BY k) GROUP BY k""",
    "window": windowed,
    "filter above a window": """SELECT * FROM (
        SELECT k, i, sum(m) OVER (PARTITION BY k) s FROM base) WHERE k = 7""",
    "limit": "SELECT * FROM (SELECT * FROM base WHERE k = 7 ORDER BY m LIMIT 3)",
    "filter above a limit": """SELECT * FROM (SELECT * FROM base WHERE k < 30 ORDER BY m LIMIT 20)
        WHERE m > 100""",
    "aggregate": "SELECT i, count(*), max(name), avg(m) FROM base WHERE k = 7 GROUP BY i",
    "global aggregate": "SELECT count(*), max(m), min(k) FROM base WHERE k = 7",
    "global aggregate of nothing": "SELECT count(*), max(m) FROM base WHERE k = -1",
    "having": "SELECT k, count(*) FROM base GROUP BY k HAVING k = 7",
    "distinct": "SELECT DISTINCT n FROM base WHERE n IN (3, 4)",
    "rollup": "SELECT k, n, count(*) FROM base WHERE k IN (7, 8) GROUP BY ROLLUP (k, n)",
    "except": "SELECT k FROM base WHERE k IN (7, 8) EXCEPT SELECT k FROM base WHERE k = 8",
    "intersect": "SELECT k FROM base WHERE k IN (7, 8) INTERSECT SELECT k FROM base WHERE k = 8",
    "lateral": """SELECT a.k, l.m FROM base a, LATERAL (
        SELECT b.m FROM base b WHERE b.k = 8 AND b.i = a.i) l WHERE a.k = 7""",
    "pivot": """SELECT * FROM (SELECT k, i, m FROM base WHERE k IN (7, 8))
        PIVOT (max(m) FOR k IN (7, 8))""",
    "named parameter": lambda s: s.sql("SELECT * FROM base WHERE k = :k", args={"k": 7}),
    "positional parameters": lambda s: s.sql("SELECT * FROM base WHERE k IN (?, ?)", args=[7, 8]),
    "file path": "SELECT k, _metadata.file_path, _metadata.file_size FROM base WHERE k = 7",
    "condition on file size": "SELECT k FROM base WHERE k = 7 AND _metadata.file_size > 0",
    "input_file_name": "SELECT k, input_file_name() FROM base WHERE k = 7",
    "explode": "SELECT k, explode(array(1, 2)) FROM base WHERE k = 7",
    "nondeterministic projection": """SELECT k, m FROM (SELECT *, rand() AS r FROM base)
        WHERE k = 7 AND r >= 0""",
    "nondeterministic condition": "SELECT * FROM base WHERE k = 7 AND rand() >= 0",
    "literal on the left": "SELECT * FROM base WHERE 7 = k",
}
BINDING = {"spark.sql.legacy.parameterSubstitution.constantsOnly": "true"}
"""Delta 4.4.0's parser loses parameters on Spark 4.1 unless they are bound the old way."""


NOT_PUSHED = {"filter above a limit", "nondeterministic projection"}
"""Shapes where Spark itself hands no condition to the scan that an index could answer."""


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_reads_fewer_files(spark: SparkSession, base: str, shape: str) -> None:
    found = same_rows(spark, SHAPES[shape], conf=BINDING if "parameter" in shape else None)
    if shape not in NOT_PUSHED:
        assert found.skipped > 0, str(found.explained)


@pytest.mark.smoke
def test_a_path_in_sql_reads_fewer_files(spark: SparkSession, base: str) -> None:
    found = skips(spark, f"SELECT * FROM delta.`{location(spark)}` WHERE k = 7")
    assert (found.opened, found.without) == (1, FILES)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_shape_reads_fewer_files_on_every_engine(
    spark: SparkSession, base: str, engine: str
) -> None:
    for shape in ("sql", "CTE twice", "scalar subquery", "EXISTS", "self-join, same",
                  "self-join, different", "aggregated union", "window", "except"):  # fmt: skip
        skips(spark, SHAPES[shape], conf=ENGINES[engine])


def test_a_reused_exchange_is_of_an_equal_pruning(spark: SparkSession, base: str) -> None:
    """Two scans with one condition share an exchange; another condition must not join them."""
    for engine in ENGINES.values():
        conf = {**engine, "spark.sql.autoBroadcastJoinThreshold": "-1"}
        found = skips(spark, SHAPES["aggregated union"], conf=conf)
        assert found.rows == ["Row(k=7, sum(c)=2)", "Row(k=8, sum(c)=1)"]
        skips(spark, SHAPES["self-join, different"], conf=conf)
        skips(spark, SHAPES["self-join, same"], conf=conf)


CONDITIONS = {
    "k = 7": True,
    "k = 7 OR k = 20": True,
    "k IN (7)": True,
    "k IN (7, 7, 7, NULL)": True,
    "k IN (NULL)": None,
    "k IN (0, 12, 24, 36, 48, 1, 13, 25, 37, 49, 61)": True,
    "m = 305": True,
    "m BETWEEN 300 AND 304": True,
    "m > 700": True,
    "700 < m": True,
    "m >= 704": True,
    "m < 100": True,
    "m <= 100": True,
    "NOT (m <= 700)": True,
    "NOT (k <> 7)": True,
    "NOT (NOT (k = 7))": True,
    "n <> 3": True,
    "n NOT IN (3, 4)": True,
    "n NOT IN (3, NULL)": None,
    "n IS NULL": True,
    "n IS NOT NULL": True,
    "NOT (n IS NULL)": True,
    "n <=> NULL": True,
    "NOT (n <=> NULL)": True,
    "n <=> 3": True,
    "NOT (n <=> 3)": True,
    "n IS DISTINCT FROM 3": True,
    "n = 3 OR n IS NULL": True,
    "(n > 3 AND m >= 0) IS NULL": True,
    "(n > 3 OR m < 0) IS NULL": True,
    "(n > 3 AND m < 100 AND name > 'n') IS NULL": None,
    "NOT ((n > 3 AND m >= 0) IS NULL)": None,
    "(n > 3 AND abs(m) > 3) IS NULL": None,
    "NOT (n = 3 OR n = 4)": True,
    "NOT (n = 3 AND k = 3)": None,
    "name LIKE 'n7%'": True,
    "name LIKE 'n1-%' OR name LIKE 'n2-%'": True,
    "NOT (name LIKE 'n7%')": True,
    "startswith(name, 'n7-')": True,
    "name LIKE ''": None,
    "name LIKE '%'": None,
    "name LIKE 'n7_%'": None,
    "name LIKE '%-3'": None,
    "st.a = 5": True,
    "st.b.c = 'c5'": True,
    "st.a IS NULL": True,
    "st.b.c IS NOT NULL": True,
    "st IS NULL": None,
    "k = 7L": True,
    "bigint(k) = 7L": True,
    "k = 5000000000": None,
    "k < 5000000000": None,
    "k = 7.0": None,
    "k = '7'": True,
    "k + 1 = 8": True,
    "k % 12 = 7": None,
    "k = m": None,
    "abs(k) = 7": None,
    "(k = 7 AND abs(m) >= 0) OR (k = 8 AND abs(m) >= 0)": True,
    "k = 7 AND array(k) = array(7)": True,
    "k = 7 AND st IN (named_struct('a', 7, 'b', named_struct('c', 'c7')))": True,
    "COALESCE(k, 0) = 7": None,
    "IF(k = 7, true, false)": None,
    "CASE WHEN k = 7 THEN true ELSE false END": None,
    "k = 7 AND 1 = 1": True,
    "k = NULL": None,
    "false": None,
}
"""Conditions, and whether exactly the files with a match are opened (None: only the same rows)."""


@pytest.mark.smoke
def test_conditions(spark: SparkSession, base: str) -> None:
    exact_batch(spark, base, [condition for condition in CONDITIONS if CONDITIONS[condition]])
    batch(spark, base, [condition for condition in CONDITIONS if not CONDITIONS[condition]])


@pytest.mark.parametrize("count", [1, 11, pytest.param(10_000, marks=pytest.mark.smoke)])
def test_lists_of_keys(spark: SparkSession, base: str, count: int) -> None:
    # Those beyond the table's 60 keys are noise; 13 and its likes are in file 1.
    keys = [13, *range(1_000, 1_000 + count - 1)]
    listed = ", ".join(map(str, keys))
    assert exact(spark, base, f"k IN ({listed})").opened == 1
    same_rows(spark, f"SELECT * FROM {base} WHERE k NOT IN ({listed})")


@pytest.mark.nightly
@pytest.mark.skipif(not IS_SPARK_4, reason="the expression is made with a class of Spark 4")
def test_a_list_of_a_million_keys(spark: SparkSession, base: str) -> None:
    """As the optimizer leaves it: parsing and optimizing a million literals is Spark's burden.

    So is what Spark does with them on its own: it sorts them as texts for the description of the
    plan, and writes them out for Parquet once a file. Without that, and compared with the range
    that the keys fill, a minute less is spent.
    """
    jvm: Any = spark._jvm
    numbers = jvm.java.util.stream.IntStream.range(204, 1_000_204).boxed()
    keys = numbers.collect(jvm.java.util.stream.Collectors.toSet())
    there = jvm.scala.jdk.javaapi.CollectionConverters.asScala(keys).toSet()
    expressions: Any = classic(jvm).ExpressionUtils
    column: Any = F.col("m")
    child = expressions.expression(column._jc)
    among = jvm.org.apache.spark.sql.catalyst.expressions.InSet(child, there)
    df = spark.table(base).where(type(column)(expressions.column(among)))

    own = {"spark.sql.ui.explainMode": "simple",
           "spark.sql.parquet.pushdown.inFilterThreshold": "0"}  # fmt: skip
    with settings(spark, own):
        rows = spelled(df.collect())
    assert opened(df) == FILES - 2
    with settings(spark, {ENABLED: "false"}):
        assert rows == spelled(spark.table(base).where("m BETWEEN 204 AND 1000203").collect())


def test_a_disjunction_of_two_thousand_legs(spark: SparkSession, base: str) -> None:
    of_one = " OR ".join(f"k = {key}" for key in [13, *range(1_000, 3_000)])
    assert exact(spark, base, of_one).opened == 1
    mixed = " OR ".join(
        f"(k = {13 + 1_000 * i} AND m > {-i})" for i in range(200)
    )  # fmt: skip
    assert exact(spark, base, mixed).opened == 1


def test_a_condition_nested_deeply(spark: SparkSession, base: str) -> None:
    condition = "k = 13"
    for i in range(60):
        condition = f"({condition} AND m > {-i}) OR NOT (k <> {1_000 + i})"
    assert exact(spark, base, condition).opened == 1


def test_names_of_all_sorts(spark: SparkSession) -> None:
    rows = """SELECT int(id) AS `a.b`, named_struct('b', int(id + 100), 'x y', int(id)) AS a,
        int(id + 200) AS `sp ace`, int(id + 300) AS `tick``s`, int(id + 400) AS MiXed,
        int(id + 500) AS `größe`, id AS _f FROM range(6)"""
    index = """`a.b` VALUE_LIST, a.b VALUE_LIST, a.`x y` VALUE_LIST, `sp ace` VALUE_LIST,
        `tick``s` VALUE_LIST, mixed VALUE_LIST, `größe` VALUE_LIST"""
    mapping = {"delta.columnMapping.mode": "name"}
    make_table(spark, "names", rows, index, properties=mapping)
    for condition in ("`a.b` = 3", "a.b = 103", "a.`x y` = 3", "`sp ace` = 203", "`tick``s` = 303",
                      "mixed = 403", "MIXED = 403", "`größe` = 503"):  # fmt: skip
        assert exact(spark, "names", condition).opened == 1
    with settings(spark, {"spark.sql.caseSensitive": "true"}):
        assert exact(spark, "names", "MiXed = 403 AND a.b = 103").opened == 1


def test_more_than_a_hundred_columns(spark: SparkSession) -> None:
    columns = ", ".join(f"int(id * 1000 + {i}) AS c{i}" for i in range(130))
    make_table(spark, "wide", f"SELECT {columns}, id AS _f FROM range(5)", "c77 MIN_MAX")
    assert exact(spark, "wide", "c77 = 3077").opened == 1
    skips(spark, "SELECT * FROM wide WHERE c77 = 3077", conf=ENGINES["neither"])


def test_a_data_column_named_like_a_metadata_column(spark: SparkSession) -> None:
    """Spark hands `_metadata.file_size` to a scan as a bare `file_size`."""
    rows = """SELECT int(id) AS k, id AS file_size, concat('f', id) AS file_name,
        concat('p', id) AS file_path, id AS _f FROM range(6)"""
    index = "file_size MIN_MAX, file_name VALUE_LIST, file_path VALUE_LIST"
    make_table(spark, "alike", rows, index)
    for condition in ("_metadata.file_size > 100", "_metadata.file_name LIKE 'part-%'",
                      "_metadata.file_path LIKE 'file:%'"):  # fmt: skip
        found = same_rows(spark, f"SELECT k FROM alike WHERE {condition}")
        assert len(found.rows) == 6
    assert exact(spark, "alike", "file_size = 3").opened == 1
    assert exact(spark, "alike", "file_size = 3 AND _metadata.file_size > 100").opened == 1


def test_time_travel(spark: SparkSession) -> None:
    make_table(spark, "travelled", "SELECT int(id) AS k, 'old' AS v, id AS _f FROM range(6)")
    before = spark.sql("DESCRIBE HISTORY travelled").collect()[0]["version"]
    append(spark, "travelled", "SELECT int(id + 100) AS k, 'new' AS v, id AS _f FROM range(3)")
    spark.sql("CREATE SKIPPING INDEX ON travelled (k VALUE_LIST)")
    spark.sql("DELETE FROM travelled WHERE k = 101")
    old = f"travelled VERSION AS OF {before}"
    assert skips(spark, f"SELECT * FROM {old} WHERE k = 3").opened == 1
    assert same_rows(spark, f"SELECT * FROM {old} WHERE k = 101").rows == []
    assert len(skips(spark, f"SELECT * FROM travelled VERSION AS OF {before + 1} WHERE k = 101")
               .rows) == 1  # fmt: skip
    where = location(spark, "travelled")
    found = skips(
        spark,
        lambda s: s.read.format("delta").option("versionAsOf", before).load(where).where("k = 3"),
    )
    assert found.opened == 1
    skips(spark, f"SELECT n.k, o.v FROM travelled n JOIN {old} o ON n.k = o.k WHERE n.k = 3")
    skips(spark, f"SELECT * FROM travelled WHERE k = 4 EXCEPT SELECT * FROM {old} WHERE k = 3")


def test_cached(spark: SparkSession) -> None:
    make_table(spark, "kept", "SELECT int(id) AS k, id AS _f FROM range(6)", "k VALUE_LIST")
    cached = spark.table("kept").where("k = 3").cache()
    try:
        assert [row.k for row in cached.collect()] == [3]
        # A query that asks for less of the same relation must not be given the cached part.
        assert same_rows(spark, "SELECT * FROM kept WHERE k IN (3, 4)").rows == [
            "Row(k=3)",
            "Row(k=4)",
        ]
        append(spark, "kept", "SELECT 3 AS k, 0 AS _f")
        assert cached.count() == 2
        assert same_rows(spark, "SELECT * FROM kept WHERE k = 3").rows == ["Row(k=3)", "Row(k=3)"]
    finally:
        cached.unpersist()
    whole = spark.table("kept").cache()
    try:
        assert whole.count() == 7
        assert same_rows(spark, "SELECT * FROM kept WHERE k = 4").rows == ["Row(k=4)"]
    finally:
        whole.unpersist()


@pytest.mark.smoke
def test_a_query_without_a_useful_condition_says_so(spark: SparkSession, base: str) -> None:
    reads_all(spark, f"SELECT * FROM {base}", "no condition")
    reads_all(spark, f"SELECT * FROM {base} WHERE i = 3", "i is not in the index")
    reads_all(spark, f"SELECT * FROM {base} WHERE k % 5 = 3", "no index can answer")
    refusing: Callable[[SparkSession], DataFrame] = lambda s: s.range(3).where("id = 1")  # noqa: E731
    assert rewrite.explain(refusing(spark)).scans == ()
