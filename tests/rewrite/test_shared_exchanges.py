"""Keys of filtering sides that must not run twice: only from an exchange that the query has.

Rows of an RDD, code of the user's, ties, and files that others may write. Broken files replace
those without a partner, and what the user's code reads is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import randrange
from time import sleep

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import rewrite
from skipping.lookup.scan_plan import ScanPlan
from tests.rewrite.differential import (
    FORMATS,
    UNCOMPILED,
    Compared,
    in_catalog_of,
    make_table,
    matching,
    same_rows,
    settings,
    spelled,
)
from tests.rewrite.spark_suite import without_cheap

nightly = pytest.mark.nightly

FILES = 12
FACT = f"""SELECT id, int(id % 120) AS k, repeat(sha2(string(id), 512), 40) AS pad,
    int(id % {FILES}) AS _f FROM range(480)"""
DIM = """SELECT int(id) AS k, concat('key ', id) AS s, int(id % 12) AS a, int(id % 7) AS g,
    int(id % 4) AS _f FROM range(120)"""
# The machine may be busy: a lookup that is late prunes nothing.
QUIET = {"spark.skipping.timeout": "90s", "spark.sql.shuffle.partitions": "2", **UNCOMPILED}
SMJ = {
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    # Else Spark also evaluates code on the column of facts that equals the code's own.
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.skipping.statistics.enabled": "false",
    **QUIET,
}
PLAIN = {"spark.sql.adaptive.enabled": "false"}
REASON = "no shuffle of the query has its rows before this scan"

Rows = list[tuple[int, int]]
FEW: Rows = [(3, 1), (15, 2), (27, 3)]  # in one file


@pytest.fixture(scope="module", params=FORMATS, autouse=True)
def tables(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    with in_catalog_of(spark, request.param), without_cheap(spark):
        make_table(spark, "shaped", FACT, "k VALUE_LIST")
        make_table(spark, "dims", DIM)
        for path in ("parquet", "csv"):
            spark.sql(f"""CREATE TABLE spark_catalog.default.{path}_dims USING {path} AS
                SELECT /*+ COALESCE(1) */ * FROM ({DIM})""")
        yield
        spark.sql("DROP SKIPPING INDEX ON shaped")
        spark.sql("DROP TABLE shaped")
        spark.sql("DROP TABLE dims")
        for path in ("parquet", "csv"):
            spark.sql(f"DROP TABLE spark_catalog.default.{path}_dims")


def facts(found: Compared | rewrite.Explanation) -> list[ScanPlan]:
    explained = found.explained if isinstance(found, Compared) else found
    return [scan for scan in explained.scans if scan.table.endswith("shaped")]


class Counter:
    """Counts how often the user's code sees a row, in all tasks."""

    def __init__(self, spark: SparkSession) -> None:
        self.rows = spark.sparkContext.accumulator(0)

    def rdd(self, spark: SparkSession, rows: Rows) -> DataFrame:
        counter = self.rows

        def count(row: tuple[int, int]) -> tuple[int, int]:
            counter.add(1)
            return row

        rdd = spark.sparkContext.parallelize(rows, 2).map(count)
        return spark.createDataFrame(rdd, "k int, v int")

    def frame(self, spark: SparkSession, query: str, column: str = "k") -> DataFrame:
        """Rows of a query that a function in Python has seen."""
        counter = self.rows
        count = F.udf(lambda value: (counter.add(1), value)[1], "int")
        return spark.sql(query).withColumn("v", count(column)).where("v >= 0")


@dataclass(frozen=True)
class Form:
    """A filtering side `d`, the condition on facts with a partner, and the rows that its code sees
    if it runs once."""

    side: Callable[[SparkSession, Counter], DataFrame]
    partners: str = "k IN (3, 15, 27)"
    seen: int = 0


def table(query: str) -> Callable[[SparkSession, Counter], DataFrame]:
    return lambda spark, counter: spark.sql(query)


FORMS = {
    "rows": Form(lambda spark, counter: spark.createDataFrame(FEW, "k int, v int")),
    "pandas": Form(
        lambda spark, counter: spark.createDataFrame(
            pd.DataFrame(FEW, columns=["k", "v"]).astype("int32"), "k int, v int"
        )
    ),
    "no rows": Form(
        lambda spark, counter: spark.createDataFrame(
            spark.sparkContext.emptyRDD(), "k int, v int"
        ),
        "false",
    ),
    "collected rows": Form(
        lambda spark, counter: spark.createDataFrame(
            spark.sql("SELECT k, g FROM dims WHERE a = 3").collect(), "k int, g int"
        ),
        "k % 12 = 3",
    ),
    "an RDD": Form(lambda spark, counter: counter.rdd(spark, FEW), seen=3),
    "groups of an RDD": Form(
        lambda spark, counter: counter.rdd(spark, FEW).groupBy("k").agg(F.avg("v")), seen=3
    ),
    "distinct rows of an RDD": Form(
        lambda spark, counter: counter.rdd(spark, FEW).distinct(), seen=3
    ),
    "the latest rows of an RDD": Form(
        lambda spark, counter: counter.rdd(spark, [*FEW, (3, 7)]).selectExpr(
            "*", "row_number() OVER (PARTITION BY k ORDER BY 1) AS r"
        ).where("r = 1"),
        seen=4,
    ),
    "code": Form(
        lambda spark, counter: counter.frame(spark, "SELECT k FROM dims WHERE a = 3"),
        "k % 12 = 3",
        10,
    ),
    "groups of code": Form(
        lambda spark, counter: counter.frame(
            spark, "SELECT k, g FROM dims WHERE a IN (3, 5)"
        ).groupBy("k").agg(F.max("g").alias("g")).where("g < 4"),
        "k % 12 IN (3, 5)",
        20,
    ),
    "exploded": Form(
        table("SELECT k, explode(array(1, 2)) AS v FROM dims WHERE a = 3"), "k % 12 = 3"
    ),
    "groups": Form(table("SELECT k, max(g) FROM dims WHERE a = 3 GROUP BY k"), "k % 12 = 3"),
    "groups with a condition": Form(
        table("SELECT k, max(a) AS m FROM dims WHERE g >= 0 GROUP BY k HAVING m = 3"), "k % 12 = 3"
    ),
    "groups by another column": Form(
        table("SELECT max(k) AS k, g FROM dims WHERE a = 3 GROUP BY g"), "k % 12 = 3"
    ),
    "distinct": Form(table("SELECT DISTINCT k FROM dims WHERE a = 3"), "k % 12 = 3"),
    "a window": Form(
        table("SELECT k, row_number() OVER (PARTITION BY a ORDER BY 1) AS r FROM dims WHERE a = 3"),
        "k % 12 = 3",
    ),
    "the latest rows": Form(
        table("""SELECT * FROM (SELECT k, row_number() OVER (PARTITION BY k ORDER BY g) AS r
            FROM dims WHERE a = 3) WHERE r = 1"""),
        "k % 12 = 3",
    ),
    "code above groups": Form(
        lambda spark, counter: counter.frame(
            spark, "SELECT k, max(g) AS g FROM dims WHERE a = 3 GROUP BY k", "g"
        ),
        "k % 12 = 3",
        10,
    ),
    "the first rows": Form(
        table("""SELECT k, g FROM spark_catalog.default.parquet_dims WHERE a = 3
            ORDER BY g LIMIT 100"""),
        "k % 12 = 3",
    ),
    "Parquet": Form(
        table("SELECT k, s FROM spark_catalog.default.parquet_dims WHERE a = 3"), "k % 12 = 3"
    ),
    "CSV": Form(
        table("SELECT k, s FROM spark_catalog.default.csv_dims WHERE a = 3"), "k % 12 = 3"
    ),
    "groups of first values with a condition": Form(  # the condition does not run for the keys
        table("SELECT k, first(a) AS m FROM dims WHERE g >= 0 GROUP BY k HAVING m = 3"), "true"
    ),
}  # fmt: skip

JOINS = {
    "inner": lambda fact, side: fact.join(side, "k").select("id", "k", "pad"),
    "left outer": lambda fact, side: side.join(fact, "k", "left").select("k", "id", "pad"),
    "right outer": lambda fact, side: fact.join(side, "k", "right").select("k", "id"),
    "semi": lambda fact, side: fact.join(side, "k", "left_semi").select("id"),
    "anti": lambda fact, side: side.join(fact.where("id > 400"), "k", "left_anti").select("k"),
}


OFTEN = {"rows", "code", "groups of an RDD"}


def choose_joins() -> Iterator[object]:
    """Each form in an inner join and in one of the others."""
    others = [join for join in JOINS if join != "inner"]
    for n, name in enumerate(FORMS):
        yield pytest.param(name, "inner", marks=() if name in OFTEN else nightly)
        yield pytest.param(name, others[(n + 3) % len(others)], marks=nightly)


@pytest.mark.parametrize(("name", "join"), list(choose_joins()))
def test_shared_exchanges_open_the_files_with_a_partner(
    spark: SparkSession, name: str, join: str
) -> None:
    form = FORMS[name]
    counter = Counter(spark)

    def query(spark: SparkSession) -> DataFrame:
        return JOINS[join](spark.table("shaped"), form.side(spark, counter))

    needless = matching(spark, "shaped", "true") - matching(spark, "shaped", form.partners)
    found = same_rows(spark, query, conf=SMJ, garbage=needless)
    (scan,) = facts(found)
    assert scan.opened == FILES - len(needless), str(found.explained)
    # With and without skipping.
    assert counter.rows.value == 2 * form.seen, str(found.explained)


@nightly
@pytest.mark.parametrize("join", ["inner", "semi"])
def test_shared_exchanges_of_a_broadcast(spark: SparkSession, join: str) -> None:
    counter = Counter(spark)

    def query(spark: SparkSession) -> DataFrame:
        return JOINS[join](spark.table("shaped"), F.broadcast(counter.rdd(spark, FEW)))

    needless = matching(spark, "shaped", "true") - matching(spark, "shaped", "k IN (3, 15, 27)")
    found = same_rows(spark, query, conf=QUIET, garbage=needless)
    assert [scan.opened for scan in facts(found)] == [1], str(found.explained)
    assert counter.rows.value == 2 * len(FEW)


@pytest.mark.parametrize("rows", [FEW, [(1000, 1)]], ids=["partners", "none"])
@pytest.mark.parametrize(
    "join",
    [
        "inner",
        pytest.param("left outer", marks=nightly),
        pytest.param("right outer", marks=nightly),
        "anti",
    ],
)
def test_shared_exchanges_of_a_join_that_becomes_a_broadcast(
    spark: SparkSession, join: str, rows: Rows
) -> None:
    """Adaptive execution then plans the join anew, or without its empty side: it must not compute
    the rows again."""
    counter = Counter(spark)

    def query(spark: SparkSession) -> DataFrame:
        return JOINS[join](spark.table("shaped"), counter.rdd(spark, rows))

    conf = {**SMJ, "spark.sql.adaptive.autoBroadcastJoinThreshold": "10m"}
    found = same_rows(spark, query, conf=conf)
    assert [scan.opened for scan in facts(found)] == [int(rows == FEW)], str(found.explained)
    assert counter.rows.value == 2 * len(rows)


@nightly
def test_shared_exchanges_below_ties(spark: SparkSession) -> None:
    """Each task keeps one row before the shuffle, and any of these may be the first one: both are
    keys. The window itself does not run for them."""

    def query(spark: SparkSession) -> DataFrame:
        rdd = spark.sparkContext.parallelize([(k, 1) for k in (3, 15, 4, 27)], 2)
        first = spark.createDataFrame(rdd, "k int, v int").selectExpr(
            "k", "row_number() OVER (PARTITION BY v ORDER BY 1) AS r"
        )
        return JOINS["inner"](spark.table("shaped"), first.where("r = 1"))

    with settings(spark, SMJ):
        df = query(spark)
        assert len(df.collect()) == 4
    (scan,) = facts(rewrite.explain(df))
    assert (scan.opened, [keys.keys for keys in scan.keys]) == (2, [2]), str(scan)


@nightly
def test_shared_exchanges_that_take_long(spark: SparkSession) -> None:
    """A scan that has waited long enough reads all files, and the rows are computed once."""
    counter = Counter(spark)

    def query(spark: SparkSession) -> DataFrame:
        slow = counter.rdd(spark, FEW).rdd.map(lambda row: (sleep(5), row)[1])
        side = spark.createDataFrame(slow, "k int, v int").where("v > -7")  # a shape of its own
        return JOINS["inner"](spark.table("shaped"), side)

    found = same_rows(spark, query, conf={**SMJ, "spark.sql.broadcastTimeout": "1"})
    assert [scan.opened for scan in facts(found)] == [FILES], str(found.explained)
    assert "longer than spark.sql.broadcastTimeout" in str(found.explained)
    assert counter.rows.value == 2 * len(FEW)


def test_shared_exchanges_of_commands(spark: SparkSession) -> None:
    """If Spark lost the shuffle, a command would write other rows without their partners."""
    counter = Counter(spark)
    counter.rdd(spark, FEW).createOrReplaceTempView("given")
    with settings(spark, SMJ):
        explained = rewrite.explain(
            spark.sql("""CREATE TABLE sink USING parquet AS
                SELECT f.id FROM shaped f JOIN given g ON f.k = g.k""")
        )
    assert spark.table("sink").count() == 12
    spark.sql("DROP TABLE sink")
    (scan,) = facts(explained)
    assert scan.opened == FILES, str(explained)
    assert REASON in str(explained)
    assert counter.rows.value == len(FEW)


TWICE: dict[str, Callable[[SparkSession, DataFrame], DataFrame]] = {
    "two facts": lambda spark, side: JOINS["inner"](spark.table("shaped"), side).join(
        spark.table("shaped").selectExpr("k", "id AS other"), "k"
    ),
    "a union of two joins": lambda spark, side: JOINS["inner"](spark.table("shaped"), side).union(
        JOINS["inner"](spark.table("shaped"), side)
    ),
    "two joins by one key": lambda spark, side: (
        spark.table("shaped")
        .join(side, "k")
        .join(side.selectExpr("k AS k", "v AS w"), "k")
        .select("id")
    ),
    "a join with itself": lambda spark, side: (
        spark.table("shaped")
        .join(side.alias("a").join(side.alias("b"), F.expr("a.k = b.k")).selectExpr("a.k"), "k")
        .select("id")
    ),
}


@nightly
@pytest.mark.parametrize("name", TWICE)
def test_shared_exchanges_of_rows_of_chance(spark: SparkSession, name: str) -> None:
    """Rows that differ each time they are computed: those that the join reads find partners."""

    def query(spark: SparkSession) -> DataFrame:
        rdd = spark.sparkContext.parallelize([0], 1).map(lambda _: (randrange(120), 1))
        return TWICE[name](spark, spark.createDataFrame(rdd, "k int, v int").where("v > 0"))

    counts = []
    for enabled in ["false"] * 3 + ["true"] * 5:
        with settings(spark, {**SMJ, "spark.skipping.enabled": enabled}):
            df = query(spark)
            counts.append(len(df.collect()))
    assert set(counts[3:]) <= set(counts[:3]), (counts, str(rewrite.explain(df)))
    if name == "two joins by one key":
        assert [scan.opened for scan in facts(rewrite.explain(df))] == [1]


REFUSED = {
    "without adaptive execution": (PLAIN, "may have other rows when read again"),
    "without reuse": ({"spark.sql.exchange.reuse": "false"}, "may have other rows when read again"),
}


@nightly
@pytest.mark.parametrize("name", REFUSED)
def test_shared_exchanges_that_spark_does_not_share(spark: SparkSession, name: str) -> None:
    conf, why = REFUSED[name]
    counter = Counter(spark)

    def query(spark: SparkSession) -> DataFrame:
        return JOINS["inner"](spark.table("shaped"), counter.rdd(spark, FEW).where("v > 0"))

    found = same_rows(spark, query, conf={**SMJ, **conf})
    assert [scan.opened for scan in facts(found)] == [FILES]
    assert why in str(found.explained), str(found.explained)
    assert counter.rows.value == 2 * len(FEW)


@nightly
def test_shared_exchanges_that_begin_later(spark: SparkSession) -> None:
    """A query with a subquery, and rows that are cached: the scan does not wait for them."""
    counter = Counter(spark)
    later = "id < (SELECT 1000 + count(*) FROM dims)"
    cached = counter.rdd(spark, FEW).cache()
    rows = counter.rdd(spark, FEW).where("v > -8")  # a shape of its own
    for frame, condition, times in ((rows, later, 2), (cached, "id < 1000", 1)):
        before = counter.rows.value

        def query(
            spark: SparkSession, frame: DataFrame = frame, condition: str = condition
        ) -> DataFrame:
            return JOINS["inner"](spark.table("shaped").where(condition), frame)

        found = same_rows(spark, query, conf=SMJ)
        (scan,) = facts(found)
        assert scan.opened == FILES, str(scan)
        assert (REASON in str(scan)) == (condition == later), str(scan)
        assert counter.rows.value - before == times * len(FEW)
    cached.unpersist(blocking=True)

    def code(spark: SparkSession) -> DataFrame:
        rows = counter.frame(spark, "SELECT k FROM dims WHERE a = 3")
        return JOINS["inner"](spark.table("shaped").where(later), rows)

    before = counter.rows.value
    found = same_rows(spark, code, conf=SMJ)
    assert [scan.opened for scan in facts(found)] == [FILES]
    assert f"rows that are computed only once, and {REASON}" in str(found.explained)
    assert counter.rows.value - before == 2 * FORMS["code"].seen


@nightly
def test_shared_exchanges_of_both_sides(spark: SparkSession) -> None:
    """Only one side of a join waits for the other one, and never for itself."""
    counter = Counter(spark)

    def query(spark: SparkSession) -> DataFrame:
        left = counter.frame(spark, "SELECT k, id, pad FROM shaped WHERE k % 2 = 1")
        right = counter.frame(spark, "SELECT k, id AS other FROM shaped WHERE k % 3 = 0")
        return left.join(right, "k").select("id", "other")

    found = same_rows(spark, query, conf=SMJ)
    assert min(scan.opened or 0 for scan in facts(found)) < FILES, str(found.explained)
    assert spelled([]) != found.rows
