"""Whatever keeps an index from being used, explain names it: the reasons that no other test meets.

The last test reads the sources, so that a new reason without a test is noticed.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import rewrite
from rewrite.bridge.classes import Classes
from rewrite.bridge.install import find_hooks
from skipping import SkippingIndex
from skipping.parser.parse import parse
from skipping.parser.statements import Create
from tests.rewrite.differential import make_table, same_rows, settings

ROOT = Path(__file__).parents[2]
FILES = 4


@pytest.fixture(scope="module", autouse=True)
def tables(spark: SparkSession) -> Iterator[None]:
    rows = f"""SELECT id, int(id % {FILES}) AS _f, int(id % {FILES}) AS k, int(id % 3) AS m,
        repeat(md5(string(id)), 8) AS pad, float(id) AS x FROM range(400)"""
    make_table(spark, "why", rows, "k VALUE_LIST, id MIN_MAX, x MIN_MAX")
    spark.sql("SELECT int(id) AS k, 'n' || id AS name FROM range(40)").coalesce(1).write.format(
        "delta"
    ).saveAsTable("whose")
    whose = spark.table("whose").coalesce(1)
    whose.write.format("parquet").saveAsTable("listed")
    whose.withColumn("p", F.lit(1)).write.format("parquet").partitionBy("p").saveAsTable("parts")
    yield
    spark.sql("DROP SKIPPING INDEX ON why")
    for name in ("why", "whose", "listed", "parts"):
        spark.sql(f"DROP TABLE {name}")


NO_CONSTRAINTS = {"spark.sql.constraintPropagation.enabled": "false"}
SMJ = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
APART = SMJ | {"spark.sql.exchange.reuse": "false"}
"""Joins that shuffle, and provide no keys from their shuffle."""
D = "JOIN whose d ON f.k = d.k WHERE d.name = 'n3'"

JOINS: dict[str, tuple[str, str, dict[str, str]]] = {
    "a filter that is not deterministic": (
        f"SELECT f.id FROM (SELECT * FROM why WHERE rand(7) + id >= 0) f {D}",
        "a condition that is not deterministic stands below the join",
        {},
    ),
    "a column that is not deterministic": (
        f"SELECT f.id, f.r > 2 FROM (SELECT *, rand(7) AS r FROM why) f {D}",
        "a column that is not deterministic stands below the join",
        {},
    ),
    "a key that is made on the way": (
        "SELECT f.id FROM (SELECT id, e FROM why LATERAL VIEW explode(array(k)) AS e) f"
        " JOIN whose d ON f.e = d.k WHERE d.name = 'n3'",
        "a Generate makes the join key",
        {},
    ),
    "what no keys pass": (
        f"SELECT f.id FROM (SELECT * FROM why ORDER BY id LIMIT 300) f {D}",
        "stands between the join and the scan",
        {},
    ),
    "an outer join in between": (
        f"SELECT f.id FROM (SELECT w.* FROM whose e LEFT JOIN why w ON e.k = w.m) f {D}",
        "JOIN stands between",
        NO_CONSTRAINTS,
    ),
    "a common table that is kept": (
        "WITH c AS (SELECT k, name, rand(7) AS r FROM whose WHERE name = 'n3')"
        " SELECT f.id FROM why f JOIN c ON f.k = c.k WHERE c.r <= (SELECT max(r) FROM c)",
        "the dimension is a common table that is kept apart",
        {},
    ),
    "a dimension that is limited": (
        "SELECT f.id FROM why f JOIN (SELECT k FROM whose WHERE name = 'n3' LIMIT 3) d"
        " ON f.k = d.k",
        "the dimension has a LIMIT or a sample, and may have other rows when read again",
        APART,
    ),
    "a value that ties decide": (
        "SELECT f.id FROM why f JOIN (SELECT max_by(k, m) AS k FROM (SELECT k, k % 3 AS m, name"
        " FROM whose) WHERE name > 'n1' GROUP BY m) d ON f.k = d.k",
        "the dimension has an aggregate that may give other values of the same rows",
        SMJ,
    ),
    "a value that chance decides": (
        "SELECT f.id FROM why f JOIN (SELECT kll_sketch_get_quantile_bigint("
        "kll_sketch_agg_bigint(k, 8), 0.5D) AS k FROM whose WHERE name > 'n1') d ON f.k = d.k",
        "the dimension has an aggregate that may give other values of the same rows",
        SMJ,
    ),
    "an average, in floating point": (
        "SELECT f.id FROM why f JOIN (SELECT int(avg(k)) AS k FROM whose WHERE name > 'n1'"
        " GROUP BY name) d ON f.k = d.k",
        "the dimension has an aggregate that may give other values of the same rows",
        SMJ,
    ),
    "files that are listed at each read": (
        "SELECT f.id FROM why f JOIN parts d ON f.k = d.k WHERE d.name = 'n3'",
        "the dimension has a table that may change between two reads",
        APART,
    ),
    "files that may be replaced, under an anti join": (
        "SELECT d.k FROM listed d WHERE d.name = 'n3'"
        " AND NOT EXISTS (SELECT 1 FROM why f WHERE f.k = d.k)",
        "the dimension has a table that may change between two reads",
        APART,
    ),
    "an aggregate by another column": (
        f"SELECT f.m FROM (SELECT m, max(k) AS k FROM why GROUP BY m) f {D}",
        "an aggregate by other columns stands below the join",
        {},
    ),
    "a key that a join makes": (
        "SELECT f.id FROM (SELECT id, k IN (SELECT m FROM why WHERE x > 9) AS e FROM why) f"
        " JOIN (SELECT k > 3 AS e FROM whose WHERE name = 'n3') d ON f.e = d.e",
        "a join makes the key",
        {},
    ),
    "a dimension that has an index itself": (
        "SELECT /*+ BROADCAST(d) */ b.id FROM why b JOIN why f ON b.k = f.id"
        " JOIN whose d ON f.k = d.k WHERE f.x > 1",
        "the dimension waits for the keys of another one",
        {},
    ),
    "a large table in an operand of OR": (
        "SELECT id FROM why WHERE k IN (SELECT m FROM why) OR k = 3",
        "keys of a join: why has no condition, and is not small against",
        {},
    ),
    "a key with a subquery": (
        "SELECT f.id FROM why f JOIN whose d"
        " ON f.k = d.k OR f.k = d.k + (SELECT max(k) FROM whose) WHERE d.name = 'n1'",
        "the dimension's keys are computed with a subquery",
        {},
    ),
    "a key that is not indexed": (
        "SELECT f.id FROM why f JOIN whose d ON f.m = d.k WHERE d.name = 'n1'",
        "m, the join key, is not in the index",
        {},
    ),
}


@pytest.mark.parametrize("form", JOINS)
def test_why_a_join_does_not_prune(spark: SparkSession, form: str) -> None:
    query, why, conf = JOINS[form]
    found = same_rows(spark, query, conf=conf)
    assert why in str(found.explained), str(found.explained)


def test_files_that_are_listed_once_give_keys(spark: SparkSession) -> None:
    query = "SELECT f.id FROM why f JOIN listed d ON f.k = d.k WHERE d.name = 'n3'"
    for conf in ({}, SMJ):
        found = same_rows(spark, query, conf=conf)
        assert "by k IN (1 key of listed)  VALUE_LIST" in str(found.explained)


def test_rows_of_a_list_whose_size_is_unknown(spark: SparkSession) -> None:
    given = spark.createDataFrame([(3,)], "k int")
    for conf, why in (
        (SMJ, "1 key of LogicalRDD"),
        (APART, "LogicalRDD has no condition, and is not small against"),
    ):
        found = same_rows(
            spark, lambda spark: spark.table("why").join(given, "k").select("id"), conf=conf
        )
        assert why in str(found.explained)


def test_a_dimension_that_others_may_write_to(spark: SparkSession, tmp_path: Path) -> None:
    """Between two reads of it: so only the broadcast that the join itself has tells the keys."""
    database = str(tmp_path / "whose.db")
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("CREATE TABLE whose (k INTEGER, name TEXT)")
        connection.execute("INSERT INTO whose VALUES (3, 'n3')")
    whose = spark.read.jdbc(
        f"jdbc:sqlite:{database}", "whose", properties={"driver": "org.sqlite.JDBC"}
    )
    for hint, conf, why in (
        ("", APART, "a table that may change between two reads"),
        ("", SMJ, "1 key of LogicalRelation"),
        ("broadcast", {}, "1 key of LogicalRelation"),
    ):

        def joined(spark: SparkSession, hint: str = hint) -> DataFrame:
            dim = whose.where("name = 'n3'")
            dim = dim.hint(hint) if hint else dim
            return spark.table("why").join(dim, "k").select("id")

        assert why in str(same_rows(spark, joined, conf=conf).explained)


def test_a_dimension_that_is_too_dear(spark: SparkSession) -> None:
    dear = spark.range(0, 100_000).selectExpr("int(id) AS k", "uuid() AS t", "id % 8 AS name")
    dear.write.format("delta").saveAsTable("too_dear")
    try:
        query = "SELECT f.id FROM why f JOIN too_dear d ON f.k = d.k WHERE d.name = 3"
        # Else the large table takes the keys of the small one, by its own bounds.
        own = {"spark.skipping.statistics.enabled": "false"}
        explained = str(same_rows(spark, query, conf={**own, **APART}).explained)
        assert "bytes) may cost more than it saves of" in explained
        query = query.replace("SELECT", "SELECT /*+ MERGE(f, d) */")
        explained = str(
            same_rows(spark, query, conf=own | {"spark.sql.exchange.reuse": "false"}).explained
        )
        too_dear = "Spark does not broadcast it, and reading it a second time costs too much"
        assert too_dear in explained
        # Beside one that is given up, the keys of what may have other rows are the join's own.
        # With a condition of its own: a shape that saved nothing above is not asked again.
        query = """SELECT /*+ BROADCAST(l), MERGE(d) */ f.id FROM why f
            JOIN (SELECT k FROM whose WHERE name < 'n3' ORDER BY k LIMIT 2) l ON f.k = l.k
            JOIN too_dear d ON f.id = d.k WHERE d.name = 3"""
        for reuse, opened in (("true", 2), ("false", FILES)):
            conf = own | {"spark.sql.exchange.reuse": reuse}
            found = same_rows(spark, query, conf=conf).explained
            assert (too_dear in str(found)) == (reuse == "false")
            (fact,) = (scan for scan in found.scans if scan.table.endswith("why"))
            assert fact.opened == opened, str(found)
    finally:
        spark.sql("DROP TABLE too_dear")


SLOW = {
    "a function in Python": (
        "(SELECT k FROM whose WHERE name LIKE 'n3%' AND plus(length(name)) > 0)",
        "is not read a second time, for it has code of the user's",
    ),
    "rows from arrays": (
        "(SELECT k FROM whose LATERAL VIEW explode(sequence(1, k)) AS e WHERE name = 'n3')",
        "is not read a second time, for it has a function that makes rows",
    ),
    "each row with each": (
        "(SELECT a.k FROM whose a JOIN whose b ON a.k < b.k WHERE b.name = 'n3')",
        "is not read a second time, for it has a join of each row with each",
    ),
}


@pytest.mark.parametrize("form", SLOW)
def test_a_dimension_that_is_small_but_slow(spark: SparkSession, form: str) -> None:
    """Where Spark broadcasts it anyway, its rows are used; it is never read for its keys alone."""
    spark.udf.register("plus", F.udf(lambda k: k + 1, "int"))
    dimension, why = SLOW[form]
    query = f"SELECT f.id, d.k FROM why f JOIN {dimension} d ON f.k = d.k"
    found = same_rows(spark, query, conf=APART)
    assert why in str(found.explained), str(found.explained)
    assert found.opened == found.without
    used = same_rows(spark, query.replace("SELECT", "SELECT /*+ BROADCAST(d) */", 1))
    assert used.skipped > 0, str(used.explained)


def test_keys_that_spark_did_not_collect(spark: SparkSession) -> None:
    gateway = spark.sparkContext._gateway
    jvm: Any = spark.sparkContext._jvm
    classes = Classes(gateway)
    types = gateway.new_array(jvm.java.lang.Class, 2)
    loader = classes._loader
    types[0] = loader.loadClass("org.apache.spark.sql.catalyst.expressions.Expression")
    types[1] = loader.loadClass("rewrite.jvm.keys.PruningRegistry")
    arguments = gateway.new_array(jvm.java.lang.Object, 2)
    expressions = jvm.org.apache.spark.sql.catalyst.expressions
    nothing = expressions.Literal.TrueLiteral()
    arguments[0] = expressions.DynamicPruningExpression(nothing)
    arguments[1] = classes.new("keys.PruningRegistry")
    key_set = loader.loadClass("rewrite.jvm.keys.JoinKeySet")
    keys = key_set.getMethod("of", types).invoke(None, arguments)
    keys.accept(None, 0)
    assert keys.describe()["reason"] == "Spark did not collect them"


CONDITIONS = {
    "x > 1 OR m = 1": "m is not in the index",
    "upper(pad) = 'X'": "pad ILIKE '%?%': pad is not in the index",
    "reverse(pad) = 'X'": "reverse(pad) = ?: no index can answer it",
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_why_a_condition_does_not_help(spark: SparkSession, condition: str) -> None:
    found = same_rows(spark, f"SELECT id FROM why WHERE {condition}")
    assert CONDITIONS[condition] in str(found.explained), str(found.explained)


def test_a_kind_that_is_not_installed_here(spark: SparkSession) -> None:
    table = make_table(spark, "strange", f"SELECT id AS _f, id FROM range({FILES})")
    statement = parse("CREATE SKIPPING INDEX ON t (id MIN_MAX)")
    assert isinstance(statement, Create)
    index = SkippingIndex.create(spark, table, "id MIN_MAX")
    definition = index.definition
    (column,) = definition.columns
    stranger = replace(definition, columns=(column, replace(column, number=2, kind="ELSEWHERE")))
    index.store.define(stranger, expect=1)
    with settings(spark, {"spark.skipping.cache.ttl": "0"}):
        found = same_rows(spark, f"SELECT * FROM {table} WHERE id = 2")
    assert found.opened == 1, str(found.explained)
    assert "id = ?: unknown index type ELSEWHERE" in str(found.explained), str(found.explained)
    spark.sql(f"DROP SKIPPING INDEX ON {table}")
    spark.sql(f"DROP TABLE {table}")


STREAMS = {
    "state": (
        lambda stream: stream.dropDuplicates(["id"]),
        "keys of a join: the stream has state, a watermark or an observation",
    ),
    "an observation": (
        lambda stream: stream.observe("seen", F.count(F.lit(1)).alias("n")),
        "keys of a join: the stream has state, a watermark or an observation",
    ),
}


@pytest.mark.parametrize("form", STREAMS)
def test_why_a_stream_takes_no_keys(spark: SparkSession, tmp_path: Path, form: str) -> None:
    change, why = STREAMS[form]
    joined = change(spark.readStream.table("why")).join(
        spark.table("whose").where("name = 'n3'"), "k"
    )
    sink = joined.select("id").writeStream.format("parquet")
    sink = sink.option("checkpointLocation", str(tmp_path / "checkpoint"))
    sink.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
    found = [row for row in rewrite.history(spark).collect() if row.table.endswith("why")]
    assert found[-1].opened == FILES
    assert found[-1].unused == [why]


def test_neither_keys_nor_a_condition(spark: SparkSession) -> None:
    query = "SELECT f.id FROM why f JOIN whose d ON f.k = d.k WHERE d.name LIKE 'n%'"
    df = spark.sql(query)
    (scan,) = [s for s in rewrite.explain(df).scans if s.table.endswith("why")]
    assert "collected when the query runs" in str(scan), str(scan)


def reasons() -> Iterator[str]:
    """The longest literal of each reason in the Java sources."""
    for name in (
        "join/PruningCost",
        "join/KeyPushdown",
        "join/FilteringSide",
        "join/SideCost",
        "keys/JoinKeySet",
        "keys/PruningFeedback",
        "keys/PruningRegistry",
        "bridge/IndexClient",
    ):
        text = (ROOT / "rewrite" / "jvm" / f"{name}.java").read_text()
        text = re.sub(r'"\s*\+\s*"', "", text)
        for match in re.finditer(
            r'(?:return|refuse\([^;"]*|reason = |ScanNotes\.add\([^;"]*|failed\()[^;]*;', text
        ):
            literals = re.findall(r'"([^"\\]*)"', match[0])
            longest = max(literals, key=len, default="")
            words = longest.strip(" :")
            if len(words) > 12 and " " in words and "(" not in words:
                yield words


def test_a_dimension_without_a_condition_that_is_not_small(spark: SparkSession) -> None:
    """Against two facts together one is small, and not against one of them."""
    make_table(
        spark, "lesser", "SELECT int(id) AS k, int(id % 2) AS _f FROM range(40)", "k MIN_MAX"
    )
    query = "SELECT f.id FROM why f JOIN lesser g ON f.k = g.k JOIN whose d ON g.k = d.k"
    found = same_rows(spark, query)
    (scan,) = [s for s in found.explained.scans if s.table.endswith("lesser")]
    assert re.search(r"whose has no condition, and is not small against \d+ bytes", str(scan))

    alike = same_rows(spark, "SELECT f.id FROM why f JOIN why g ON f.k = g.k")
    said = [str(scan) for scan in alike.explained.scans]
    assert [bool(re.search("why has no condition, and is not small", s)) for s in said] == (
        [True, False]
    )
    spark.sql("DROP SKIPPING INDEX ON lesser")
    spark.sql("DROP TABLE lesser")


def test_a_rule_that_fails_leaves_the_plan_and_a_note(spark: SparkSession) -> None:
    """The rule gets nothing that it needs, as if a release of Spark were another one."""
    with settings(spark, {"spark.skipping.dynamic.enabled": "false"}):
        df = spark.sql(f"SELECT f.id FROM why f {D}")
        plan = df._jdf.queryExecution().optimizedPlan()
    hooks = find_hooks(spark)
    assert hooks is not None
    rule = Classes(spark.sparkContext._gateway).new(
        "join.JoinPruningRule", hooks.java.client(), None, None, None
    )
    with settings(spark, {"spark.skipping.mode": "fallback"}):
        assert rule.apply(plan).equals(plan)
    df.collect()
    assert "looking for them failed: NullPointerException: Cannot" in str(rewrite.explain(df))
    with pytest.raises(Py4JJavaError, match="mode is strict"):
        rule.apply(plan)


def test_every_reason_has_a_test() -> None:
    found = set(reasons())
    assert len(found) > 20, found
    tests = "".join(
        re.sub(r'"\s*\n\s*r?f?"', "", path.read_text()) for path in (ROOT / "tests").rglob("*.py")
    )
    missing = {r for r in found if r[:24] not in tests and r[-24:] not in tests}
    assert not missing
