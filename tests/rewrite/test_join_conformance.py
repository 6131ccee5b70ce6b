"""False skips of joins that shipped elsewhere, each by its number in the list of conformance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import rewrite
from rewrite import Explanation
from skipping.stores.sqlite.store import SqliteStore
from tests.rewrite.differential import Compared, Query, make_table, same_rows, settings

pytestmark = pytest.mark.nightly

FILES = 10
SMJ = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
PLAIN = {"spark.sql.adaptive.enabled": "false"}
INTERPRETED = {"spark.sql.codegen.wholeStage": "false"}
ENGINES: list[Mapping[str, str]] = [{}, SMJ | PLAIN]
ALL: list[Mapping[str, str]] = [{}, SMJ, PLAIN, SMJ | PLAIN]
FACT = f"""SELECT id, int(id % 100) AS k, id % 100 AS l, float(id % 100) AS fl,
    double(id % 100) AS x,
    IF(id % 10 = 7, NULL, int(id % 100)) AS n, repeat(md5(string(id)), 8) AS pad,
    int(id % {FILES}) AS _f FROM range(400)"""
DIM = """SELECT int(id) AS k, id AS l, float(id) AS fl, double(id) AS x, id % 10 AS name,
    IF(id % 10 = 3, NULL, int(id)) AS n FROM range(100)"""


@pytest.fixture(scope="module", autouse=True)
def tables(spark: SparkSession) -> Iterator[None]:
    columns = ("k", "l", "fl", "x", "n")
    kinds = ", ".join(f"{column} VALUE_LIST, {column} MIN_MAX" for column in columns)
    make_table(spark, "facts30", FACT, kinds)
    spark.sql(DIM).coalesce(1).write.format("delta").mode("overwrite").saveAsTable("dim30")
    yield
    spark.sql("DROP SKIPPING INDEX ON facts30")
    for name in ("facts30", "dim30"):
        spark.sql(f"DROP TABLE {name}")


def on_engines(
    spark: SparkSession,
    query: Query,
    opened: int | None = None,
    *,
    engines: list[Mapping[str, str]] = ENGINES,
) -> list[Compared]:
    """`same_rows` on each engine; the scans of the fact open so many files together."""
    found = [same_rows(spark, query, conf=conf) for conf in engines]
    for each in found:
        assert opened is None or facts(each.explained) == opened, str(each.explained)
    return found


def facts(explained: Explanation) -> int:
    return sum(s.opened or 0 for s in explained.scans if s.table.endswith("facts30"))


def dim(condition: str, column: str = "k") -> str:
    return f"(SELECT {column} FROM dim30 WHERE {condition})"


def test_conformance_30_two_prunings_of_one_table(spark: SparkSession) -> None:
    one = f"SELECT k, id FROM facts30 JOIN {dim('name = 1')} USING (k)"
    two = f"SELECT k, id FROM facts30 JOIN {dim('name = 2')} USING (k)"
    on_engines(
        spark, f"SELECT a.id, b.id FROM ({one}) a JOIN ({two}) b ON a.id = b.id - 1", 2, engines=ALL
    )
    on_engines(spark, f"{one} UNION ALL {two}", 2, engines=ALL)
    on_engines(
        spark, f"SELECT (SELECT sum(id) FROM ({one})) AS a, (SELECT sum(id) FROM ({two})) AS b", 2
    )
    twice = f"WITH c AS ({one}) SELECT a.id, b.id FROM c a JOIN c b ON a.id = b.id"
    for found in on_engines(spark, twice, engines=ALL):
        assert facts(found.explained) <= 2
    correlated = f"""SELECT * FROM facts30 f WHERE id > (SELECT min(g.id) FROM facts30 g
        JOIN {dim("name = 1")} USING (k) WHERE g.l = f.l)"""
    on_engines(spark, correlated)


def test_conformance_30_without_generated_code(spark: SparkSession) -> None:
    query = f"SELECT * FROM facts30 JOIN {dim('name = 1')} USING (k)"
    for conf in ENGINES:
        assert facts(same_rows(spark, query, conf={**conf, **INTERPRETED}).explained) == 1
        wide = {**conf, "spark.sql.codegen.maxFields": "3"}
        assert facts(same_rows(spark, query, conf=wide).explained) == 1


def test_conformance_31_what_stands_below_the_join(spark: SparkSession) -> None:
    filtered = dim("name = 1")
    for below in (
        "SELECT k, id FROM facts30 ORDER BY id LIMIT 50",
        "SELECT k, id FROM facts30 TABLESAMPLE (50 PERCENT) REPEATABLE (5)",
        "SELECT k, id, rand(3) AS r FROM facts30",
        "SELECT k, monotonically_increasing_id() AS id FROM facts30",
        "SELECT max(k) AS k, id % 7 AS id FROM facts30 GROUP BY id % 7",
        "SELECT k, sum(id) OVER () AS id FROM facts30",
        "SELECT k, id FROM facts30 ORDER BY id OFFSET 300",
    ):
        on_engines(spark, f"SELECT * FROM ({below}) JOIN {filtered} USING (k)", FILES)
    for sets in ("EXCEPT", "INTERSECT", "EXCEPT ALL", "INTERSECT ALL"):
        on_engines(spark, f"SELECT k FROM facts30 {sets} SELECT k FROM dim30 WHERE name = 1")
        on_engines(spark, f"SELECT k FROM dim30 WHERE name = 1 {sets} SELECT k FROM facts30")


def test_conformance_32_rows_that_a_join_keeps(spark: SparkSession) -> None:
    for kind in ("LEFT", "FULL", "LEFT ANTI"):
        query = f"SELECT * FROM facts30 {kind} JOIN {dim('name = 1', '*')} d ON facts30.k = d.k"
        on_engines(spark, query, FILES)
    kept = "SELECT * FROM facts30 WHERE k NOT IN "
    on_engines(spark, kept + dim("name = 3", "n"))
    on_engines(spark, kept + dim("name IN (3, 4)", "n"))
    on_engines(spark, f"SELECT * FROM facts30 WHERE n NOT IN {dim('name = 1')}", FILES)
    on_engines(spark, f"SELECT * FROM facts30 WHERE k IN {dim('name = 1')} OR id = 5", FILES)
    null_safe = "SELECT * FROM facts30 f JOIN dim30 d ON f.n <=> d.n WHERE d.name = 3"
    for found in on_engines(spark, null_safe, 2):  # that of the nulls, and that of coalesce's 0
        assert len(found.rows) == 40 * 10
    conditions = "f.k = d.k AND f.id + d.l > 200 AND f.pad > string(d.l)"
    on_engines(spark, f"SELECT * FROM facts30 f JOIN dim30 d ON {conditions} WHERE name = 1", 1)
    on_engines(spark, f"SELECT * FROM dim30 d LEFT JOIN facts30 f ON {conditions} AND name = 1")
    for on, held in (("abs(f.k) = d.k", FILES), ("f.k + 1 = d.k", None), ("f.k = d.k + 1", 1)):
        on_engines(spark, f"SELECT * FROM facts30 f JOIN dim30 d ON {on} WHERE name = 1", held)
    on_engines(spark, "SELECT * FROM facts30 a JOIN facts30 b USING (k) WHERE b.id = 5")


def test_conformance_33_dimensions_of_all_sorts(spark: SparkSession, tmp_path: Path) -> None:
    def joined(condition: str, column: str = "k") -> str:
        return f"SELECT * FROM facts30 f JOIN {dim(condition, column)} d ON f.k = d.{column}"

    on_engines(spark, joined("name = 77"), 0)
    on_engines(spark, joined("name = 3", "n"), 0)
    on_engines(spark, joined("l = 42"), 1)
    spark.sql("SELECT * FROM dim30").createOrReplaceTempView("cached30")
    cached = spark.table("cached30").cache()
    try:
        cached.count()
        query = "SELECT * FROM facts30 JOIN cached30 USING (k) WHERE name = 1"
        for found in on_engines(spark, query):
            assert facts(found.explained) in (1, FILES)
    finally:
        cached.unpersist(blocking=True)
    pruned = "SELECT * FROM facts30 f JOIN (SELECT k FROM facts30 WHERE k IN (5, 6)) d ON f.k = d.k"
    on_engines(spark, pruned, 4)
    with settings(spark, {"spark.skipping.dynamic.maxBytes": "40"}):
        for found in on_engines(spark, joined("name = 1"), FILES):
            assert "more than spark.skipping.dynamic.maxBytes hold" in str(found.explained)
        on_engines(spark, joined("l IN (1, 11)"), 1)


def test_conformance_33_a_stream_is_no_dimension(spark: SparkSession, tmp_path: Path) -> None:
    out, marks = str(tmp_path / "out"), str(tmp_path / "checkpoint")
    stream = spark.readStream.table("dim30").where("name = 1").select("k")
    joined = spark.table("facts30").join(stream, "k").select("id")
    sink = joined.writeStream.format("delta").option("checkpointLocation", marks)
    sink.trigger(availableNow=True).start(out).awaitTermination()
    assert spark.read.format("delta").load(out).count() == 40


def test_conformance_34_caches_writes_and_hidden_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    joined = f"SELECT f.* FROM facts30 f JOIN {dim('name = 1')} d ON f.k = d.k"
    frame = spark.sql(joined).cache()
    try:
        expected = {row.id for row in same_query_without(spark, joined)}
        assert {row.id for row in frame.collect()} == expected
        assert {row.id for row in frame.where("id > 100").collect()} == {
            i for i in expected if i > 100
        }
    finally:
        frame.unpersist(blocking=True)
    assert {row.id for row in spark.sql(joined).localCheckpoint().collect()} == expected
    spark.sql(f"CREATE TABLE copy34 USING delta AS {joined}")
    assert {row.id for row in spark.table("copy34").collect()} == expected
    make_table(spark, "self34", FACT, "k VALUE_LIST")
    from_itself = joined.replace("facts30", "self34")
    spark.sql(f"INSERT OVERWRITE self34 {from_itself}")
    assert {row.id for row in spark.table("self34").collect()} == expected
    spark.sql(f"INSERT INTO self34 {from_itself}")
    assert spark.table("self34").count() == 2 * len(expected)
    spark.sql(joined).createOrReplaceTempView("view34")
    on_engines(spark, "SELECT count(*) FROM view34", 1)
    hidden = "SELECT id, k, _metadata.file_size AS size FROM facts30"
    on_engines(spark, f"SELECT * FROM ({hidden}) f JOIN {dim('name = 1')} d ON f.k = d.k", 1)
    for name in ("copy34", "self34"):
        spark.sql(f"DROP TABLE {name}")


def same_query_without(spark: SparkSession, query: str) -> list[Any]:
    with settings(spark, {"spark.skipping.enabled": "false"}):
        return spark.sql(query).collect()


def test_conformance_34_commands_see_every_row(spark: SparkSession) -> None:
    """The joins that MERGE makes: what it looks for in its target is never pruned."""
    for command in (
        f"MERGE INTO target34 t USING {dim('name = 1')} d ON t.k = d.k WHEN MATCHED THEN DELETE",
        f"MERGE INTO target34 t USING {dim('name = 1')} d ON t.k = d.k"
        " WHEN NOT MATCHED BY SOURCE THEN UPDATE SET t.id = -2",
        f"MERGE INTO target34 t USING (SELECT f.k, f.id FROM facts30 f JOIN {dim('name = 1')} d"
        " ON f.k = d.k) s ON t.id = s.id + 1 WHEN MATCHED THEN UPDATE SET t.id = -3"
        " WHEN NOT MATCHED THEN INSERT (id, k) VALUES (s.id, s.k)",
    ):
        outcomes = []
        for enabled in ("true", "false"):
            make_table(spark, "target34", FACT, "k VALUE_LIST, id VALUE_LIST")
            with settings(spark, {"spark.skipping.enabled": enabled}):
                spark.sql(command)
            rows = same_query_without(spark, "SELECT id, k FROM target34")
            outcomes.append(sorted(map(str, rows)))
        assert outcomes[0] == outcomes[1], command
    spark.sql("DROP TABLE target34")


def test_conformance_35_nothing_is_asked_before_it_runs(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    answer = SqliteStore.find_prunable

    def counted(self: SqliteStore, index: str, tests: Any, **named: Any) -> Any:
        asked.append(len(tests))
        return answer(self, index, tests, **named)

    monkeypatch.setattr(SqliteStore, "find_prunable", counted)
    for conf in ALL:
        with settings(spark, conf):
            df = spark.sql(f"SELECT * FROM facts30 JOIN {dim('name = 1')} USING (k) WHERE l < 50")
            assert (df.schema.names[0], df.columns[0], asked) == ("k", "k", [])
            df._jdf.queryExecution().toString()
            assert len(asked) <= 1
            asked.clear()
            df.collect()
            assert len(asked) == 1, "static conditions and keys travel together"
            asked.clear()


def test_conformance_47_keys_of_another_width(spark: SparkSession) -> None:
    """Keys that do not fit match nothing; those that do are found."""
    spark.sql("""SELECT l FROM VALUES (5L), (5000000005L), (-9223372036854775808L), (4294967301L),
        (NULL) t(l)""").createOrReplaceTempView("wide47")
    for fact_key in ("k", "smallint(k)", "l"):
        query = f"SELECT * FROM facts30 f JOIN wide47 w ON f.{fact_key} = w.l"
        if fact_key.startswith("small"):
            query = query.replace("f.smallint(k)", "smallint(f.k)")
        for found in on_engines(spark, query):
            assert len(found.rows) == 4
    on_engines(spark, "SELECT * FROM facts30 f JOIN wide47 w ON f.k = w.l", 1)
    on_engines(spark, "SELECT * FROM facts30 f JOIN wide47 w ON f.l = w.l", 1)
    on_engines(spark, "SELECT * FROM facts30 f JOIN wide47 w ON f.x = w.l")
    on_engines(spark, "SELECT * FROM facts30 f JOIN wide47 w ON f.fl = w.l")


def test_conformance_47_floats(spark: SparkSession) -> None:
    rows = """SELECT double(c) AS x, float(c) AS f, repeat(md5(c), 20) AS pad, int(p) AS _f
        FROM VALUES ('NaN', 0), ('-0.0', 1), ('0.0', 2), ('1.5', 3), ('Infinity', 4), (NULL, 5),
        ('7', 6) t(c, p)"""
    make_table(spark, "floats47", rows, "x VALUE_LIST, x MIN_MAX, f VALUE_LIST, f MIN_MAX")
    spark.sql("""SELECT double(c) AS x, float(c) AS f, id FROM VALUES ('NaN', 1), ('0.0', 2),
        ('-0.0', 3), ('Infinity', 4), ('2.5', 5) t(c, id)""").createOrReplaceTempView("keys47")
    for column in ("x", "f"):
        for condition, opened in (("id = 1", 1), ("id = 2", 2), ("id = 3", 2), ("id IN (4, 5)", 1)):
            query = f"SELECT * FROM floats47 JOIN keys47 USING ({column}) WHERE {condition}"
            for conf in ENGINES:
                found = same_rows(spark, query, conf=conf)
                assert len(found.rows) == opened
                assert found.explained.scans[0].opened in (opened, 7)
    found = same_rows(spark, "SELECT * FROM floats47 a JOIN keys47 b ON a.f = b.x WHERE id < 4")
    assert len(found.rows) == 5
    spark.sql("DROP TABLE floats47")


def test_conformance_47_padded_keys(spark: SparkSession) -> None:
    spark.sql("CREATE TABLE padded47 (c CHAR(5), v VARCHAR(5), n INT) USING delta")
    for n, text in enumerate(("a", "a ", "b", "ab", "")):
        spark.sql(f"INSERT INTO padded47 VALUES ('{text}', '{text}', {n})")
    spark.sql("CREATE SKIPPING INDEX ON padded47 (v VALUE_LIST, n MIN_MAX)")
    spark.sql(
        "SELECT * FROM VALUES ('a', 1), ('a    ', 2), ('b', 3) t(s, g)"
    ).createOrReplaceTempView("texts47")
    for column in ("c", "v"):
        for conf in ENGINES:
            query = f"SELECT * FROM padded47 p JOIN texts47 t ON p.{column} = t.s WHERE g < 3"
            same_rows(spark, query, conf=conf)
    spark.sql("DROP TABLE padded47")


def test_conformance_48_days_that_java_leaves_out(spark: SparkSession) -> None:
    """Spark's own condition on such a day finds nothing; a join finds its row."""
    rows = """SELECT date_add(DATE '1582-09-20', int(id)) AS d, repeat(md5(string(id)), 8) AS pad,
        int(id) AS _f FROM range(40)"""
    make_table(spark, "days48", rows, "d VALUE_LIST")
    days = spark.range(40).selectExpr("date_add(DATE '1582-09-20', int(id)) AS d", "id")
    days.write.format("delta").saveAsTable("gap48")
    for found in on_engines(spark, "SELECT * FROM days48 JOIN gap48 USING (d) WHERE id = 20"):
        assert len(found.rows) == 1
        (fact,) = (scan for scan in found.explained.scans if scan.table.endswith("days48"))
        assert fact.opened == 1, str(found.explained)
    for name in ("days48", "gap48"):
        spark.sql(f"DROP TABLE {name}")


def test_explain_names_what_was_collected(spark: SparkSession) -> None:
    df = spark.sql(f"SELECT * FROM facts30 JOIN {dim('name = 1')} USING (k)")
    df.collect()
    (scan,) = [s for s in rewrite.explain(df).scans if s.keys]
    (keys,) = scan.keys
    assert (keys.dimension, keys.column, keys.keys, keys.how) == (
        "dim30",
        "k",
        10,
        "from the broadcast",
    )
    assert ("k IN (10 keys of dim30)  VALUE_LIST", FILES - 1) in scan.legs
    assert keys.seconds > 0
