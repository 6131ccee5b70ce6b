"""What the index leaves of a scan is what Spark's optimizer plans with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import rewrite
from rewrite.bridge.callbacks import Answers
from skipping.stores.sqlite.store import SqliteStore
from tests.rewrite.differential import (
    CONTROL,
    ENABLED,
    FORMATS,
    UNCOMPILED,
    append,
    by_group,
    in_catalog_of,
    make_table,
    run,
    same_rows,
    settings,
)

pytestmark = pytest.mark.nightly

FILES = 20
ROWS = f"""SELECT id, int(id % {FILES}) AS k, int(id) AS d, int(id % 7) AS m,
    sha2(string(id), 512) AS pad, int(id % {FILES}) AS _f FROM range(8000)"""
OTHER = "SELECT int(id) AS d, sha2(string(id), 512) AS text, 0 AS _f FROM range(4000)"
JOIN = "SELECT f.id, o.text FROM sized f JOIN other o ON f.d = o.d WHERE f.k = 7"
LIMIT = "spark.sql.autoBroadcastJoinThreshold"
REPORTED = "spark.skipping.report.size"
ADAPTIVE = "spark.sql.adaptive.enabled"
CBO = {"spark.sql.cbo.enabled": "true", "spark.sql.cbo.planStats.enabled": "true"}
BETWEEN = {LIMIT: "100000"}
"""A limit between a file of the fact, and either table."""
BETWEEN_ROWS = {LIMIT: "30000"}
"""The same for Iceberg, which estimates the bytes of rows in memory, with texts of 20 bytes."""


@pytest.fixture(scope="module", autouse=True)
def tables(spark: SparkSession) -> Iterator[None]:
    make_table(spark, "sized", ROWS, "k VALUE_LIST")
    make_table(spark, "other", OTHER)
    yield
    spark.sql("DROP SKIPPING INDEX IF EXISTS ON sized")
    spark.sql("DROP TABLE sized")
    spark.sql("DROP TABLE other")


@pytest.fixture(scope="module")
def formats_with_tables() -> set[str]:
    """The formats that have the tables."""
    return {"delta"}


@pytest.fixture(params=FORMATS)
def format(
    request: pytest.FixtureRequest, spark: SparkSession, formats_with_tables: set[str]
) -> Iterator[str]:
    """Let the names of the tables be those of this format."""
    with in_catalog_of(spark, request.param):
        if request.param not in formats_with_tables:
            make_table(spark, "sized", ROWS, "k VALUE_LIST")
            make_table(spark, "other", OTHER)
            formats_with_tables.add(request.param)
        yield request.param


@pytest.fixture(scope="module")
def parquet(spark: SparkSession) -> Iterator[str]:
    spark.sql("DROP TABLE IF EXISTS sized_files")
    by_group(spark.sql(ROWS)).write.format("parquet").saveAsTable("sized_files")
    spark.sql("CREATE SKIPPING INDEX ON sized_files (k VALUE_LIST)")
    yield "sized_files"
    spark.sql("DROP SKIPPING INDEX ON sized_files")
    spark.sql("DROP TABLE sized_files")


def size(df: DataFrame) -> int:
    return int(str(df._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))


def sizes(
    spark: SparkSession, query: Any, conf: Mapping[str, str] | None = None
) -> tuple[int, int]:
    """Return the estimated bytes of a query with the index and without."""
    with settings(spark, conf or {}):
        now = size(run(spark, query))
        with settings(spark, {REPORTED: "false"}):
            assert size(run(spark, query)) >= now
        with settings(spark, CONTROL):
            before = size(run(spark, query))
    assert now <= before
    return now, before


def joins(df: DataFrame) -> str:
    return str(df._jdf.queryExecution().executedPlan().toString())


def where(query: str) -> str:
    return f"SELECT * FROM sized WHERE {query}"


@contextmanager
def copy_of(spark: SparkSession, name: str, **properties: str) -> Iterator[str]:
    values = {key.replace("__", "."): value for key, value in properties.items()}
    make_table(spark, name, ROWS, "k VALUE_LIST", properties=values)
    try:
        yield name
    finally:
        spark.sql(f"DROP SKIPPING INDEX ON {name}")
        spark.sql(f"DROP TABLE {name}")


@pytest.mark.smoke
@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_reported_size_lets_spark_broadcast(
    spark: SparkSession, format: str, adaptive: str
) -> None:
    between = BETWEEN_ROWS if format == "iceberg" else BETWEEN
    conf = {**between, ADAPTIVE: adaptive}
    with settings(spark, conf):
        assert "BroadcastHashJoin" in joins(spark.sql(JOIN))
        with settings(spark, {"spark.skipping.enabled": "false"}):
            assert "SortMergeJoin" in joins(spark.sql(JOIN))
        with settings(spark, {REPORTED: "false"}):
            assert "SortMergeJoin" in joins(spark.sql(JOIN))
    found = same_rows(spark, JOIN, conf=conf)
    assert len(found.rows) == 200
    assert found.opened == 2, str(found.explained)


def test_reported_size_is_that_of_the_remaining_files(spark: SparkSession, format: str) -> None:
    now, before = sizes(spark, where("k = 7"))
    assert now == pytest.approx(before / FILES, rel=0.1)
    now, before = sizes(spark, where("k IN (7, 8, 9)"))
    assert now == pytest.approx(3 * before / FILES, rel=0.1)
    now, before = sizes(spark, where("k = 99"))
    assert now <= before / 1000
    for same in ("m = 3", "k >= 0", "k = 7 OR m = 3", "k IS NOT NULL"):
        now, before = sizes(spark, where(same))
        assert now == before, same


def test_reported_size_by_path(spark: SparkSession) -> None:
    at = spark.sql("DESCRIBE DETAIL sized").collect()[0]["location"]
    query = f"SELECT * FROM delta.`{at}` WHERE k = 7"
    now, before = sizes(spark, query)
    assert now == pytest.approx(before / FILES, rel=0.1)
    found = same_rows(spark, query)
    assert found.opened == 1
    (scan,) = found.explained.scans
    assert [step.bytes for step in scan.format if step.name == "statistics"] == [before]
    union = f"{query} UNION ALL SELECT * FROM delta.`{at}` WHERE k = 8 UNION ALL {query}"
    assert same_rows(spark, union).opened == 3


def test_reported_size_of_parquet(spark: SparkSession, parquet: str) -> None:
    query = f"SELECT * FROM {parquet} WHERE k = 7"
    now, before = sizes(spark, query)
    assert now == pytest.approx(before / FILES, rel=0.1)
    join = JOIN.replace("sized f", f"{parquet} f")
    for adaptive in ("true", "false"):
        with settings(spark, {**BETWEEN, ADAPTIVE: adaptive}):
            assert "BroadcastHashJoin" in joins(spark.sql(join))
            with settings(spark, CONTROL):
                assert "SortMergeJoin" in joins(spark.sql(join))
        assert same_rows(spark, join, conf={**BETWEEN, ADAPTIVE: adaptive}).opened == 2


def test_reported_size_keeps_the_classes_of_a_plan(spark: SparkSession, parquet: str) -> None:
    at = spark.sql("DESCRIBE DETAIL sized").collect()[0]["location"]

    def classes(table: str) -> list[str]:
        df = spark.sql(f"SELECT * FROM {table} WHERE k = 7")
        (leaf,) = [df._jdf.queryExecution().optimizedPlan().collectLeaves().apply(0)]
        parts = (leaf, leaf.relation(), leaf.relation().location())
        return [part.getClass().getName() for part in parts]

    for table in ("sized", f"delta.`{at}`", parquet):
        found = classes(table)
        with settings(spark, CONTROL):
            assert classes(table) == found
        assert not any(name.startswith("rewrite.") for name in found)


def test_reported_size_has_unknown_files_in_full(spark: SparkSession) -> None:
    with copy_of(spark, "appended"):
        query = "SELECT * FROM appended WHERE k = 7"
        now, _ = sizes(spark, query)
        append(spark, "appended", "SELECT id, 3 AS k, 0 AS d, 0 AS m, repeat('x', 9) AS pad,"
               " int(id % 3) AS _f FROM range(3000)")  # fmt: skip
        more, before = sizes(spark, query)
        with settings(spark, CONTROL):
            added = size(spark.table("appended")) - size(
                spark.sql("SELECT * FROM appended VERSION AS OF 1")
            )
        assert more == pytest.approx(now + added, rel=0.01)
        assert more < before
        spark.sql("REFRESH SKIPPING INDEX ON appended")
        assert sizes(spark, query)[0] == pytest.approx(now, rel=0.01)


def test_reported_size_of_another_version_and_with_deletion_vectors(spark: SparkSession) -> None:
    with copy_of(spark, "versions", delta__enableDeletionVectors="true"):
        spark.sql("DELETE FROM versions WHERE k = 7 AND m = 3")
        spark.sql("DELETE FROM versions WHERE k = 8")
        for version in ("", " VERSION AS OF 1", " VERSION AS OF 2"):
            query = f"SELECT * FROM versions{version} WHERE k IN (7, 8)"
            now, before = sizes(spark, query)
            assert now < before / 5
            assert same_rows(spark, query).opened in (1, 2)
            at = spark.sql("DESCRIBE DETAIL versions").collect()[0]["location"]
            by_path = query.replace("versions", f"delta.`{at}`", 1)
            assert sizes(spark, by_path)[0] < before / 5
            assert same_rows(spark, by_path).opened in (1, 2)


COMMANDS = (
    "DELETE FROM {t} WHERE k = 7",
    "UPDATE {t} SET m = 1 WHERE k IN (7, 8)",
    "MERGE INTO {t} USING (SELECT * FROM sized WHERE k = 7) s ON {t}.id = s.id"
    " WHEN MATCHED THEN UPDATE SET m = 2",
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each.split(" ")[0])
def test_reported_size_leaves_commands_alone(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    results = []
    with copy_of(spark, "changed"):
        for reported in ("true", "false"):
            with settings(spark, {REPORTED: reported, **BETWEEN}):
                affected = spark.sql(command.format(t="changed")).collect()
                rows = sorted(map(repr, spark.table("changed").collect()))
                results.append((repr(affected), rows))
            spark.sql("RESTORE TABLE changed TO VERSION AS OF 1")
    assert results[0] == results[1]


@contextmanager
def table_statistics(spark: SparkSession, table: str) -> Iterator[None]:
    spark.sql(f"ANALYZE TABLE {table} COMPUTE STATISTICS FOR ALL COLUMNS")
    try:
        yield
    finally:
        spark.sql(f"ANALYZE TABLE {table} COMPUTE STATISTICS NOSCAN")


def rows_of(df: DataFrame) -> int:
    return int(str(df._jdf.queryExecution().optimizedPlan().stats().rowCount().get()))


CONDITIONS = {
    "k = 7": 400,
    "k IN (7, 8)": 800,
    "k = 7 AND m = 3": 58,
    "k < 3": 1200,
    "d = 4007": 1,
    "k = 7 AND d < 4000": 200,
    "k = 99": 0,
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_reported_size_with_cbo_applies_a_filter_once(
    spark: SparkSession, parquet: str, condition: str
) -> None:
    """With its own statistics, Spark estimates what the filter leaves: that is not applied to what
    the same filter left of the files."""
    query = f"SELECT * FROM {parquet} WHERE {condition}"
    with table_statistics(spark, parquet), settings(spark, CBO):
        reported = rows_of(spark.sql(query))
        sizes(spark, query)
        left = same_rows(spark, query).opened * 8000 // FILES
        with settings(spark, {REPORTED: "false"}):
            estimated = rows_of(spark.sql(query))
        # The rows of a file are those of its bytes.
        assert reported <= estimated
        assert reported == pytest.approx(min(estimated, left), rel=0.01, abs=1)


def test_reported_size_without_cbo_never_raises_statistics(
    spark: SparkSession, parquet: str
) -> None:
    with table_statistics(spark, parquet):
        for condition in CONDITIONS:
            sizes(spark, f"SELECT * FROM {parquet} WHERE {condition}")
        now, before = sizes(spark, f"SELECT * FROM {parquet} WHERE k = 7")
        assert now == pytest.approx(before / FILES, rel=0.1)
    # The statistics of the table itself are as they were.
    assert "reported" not in str(spark.sql(f"DESCRIBE EXTENDED {parquet}").collect())


SHAPES = {
    "self-join": "SELECT a.id FROM sized a JOIN sized b ON a.d = b.d WHERE a.k = 7 AND b.k = 7",
    "self-join, different": (
        "SELECT a.id FROM sized a JOIN sized b ON a.m = b.m WHERE a.k = 7 AND b.k = 8 AND a.d < 99"
    ),
    "union": f"{where('k = 7')} UNION ALL {where('k = 8')} UNION ALL {where('k = 7')}",
    "subquery": where("k = 7 AND d IN (SELECT d FROM sized WHERE k IN (7, 8))"),
    "scalar": where("k = (SELECT max(k) FROM sized WHERE k IN (3, 4)) AND m = 1"),
    "scalars that Spark merges": "SELECT (SELECT max(m) FROM sized WHERE k = 7) AS a,"
    " (SELECT min(m) FROM sized) AS b, (SELECT count(m) FROM sized WHERE k = 8) AS c",
    "CTE": f"WITH c AS ({where('k IN (7, 8)')}) SELECT * FROM c a JOIN c b ON a.id = b.id",
    "outer": "SELECT o.d, f.id FROM other o LEFT JOIN (SELECT * FROM sized WHERE k = 7) f"
    " ON o.d = f.d",
}


@pytest.mark.parametrize(
    ("limit", "adaptive"),
    [("100000", "true"), ("100000", "false"), ("30000", "true"), ("-1", "true")],
)
@pytest.mark.parametrize("shape", SHAPES)
def test_reported_size_of_each_shape(
    spark: SparkSession, format: str, shape: str, limit: str, adaptive: str
) -> None:
    conf = {LIMIT: limit, ADAPTIVE: adaptive, **UNCOMPILED}
    assert same_rows(spark, SHAPES[shape], conf=conf).rows


def test_reported_size_keeps_equal_exchanges_equal(spark: SparkSession, format: str) -> None:
    tables = ["sized"]
    if format == "delta":
        at = spark.sql("DESCRIBE DETAIL sized").collect()[0]["location"]
        tables.append(f"delta.`{at}`")
    for table in tables:
        part = f"(SELECT d, count(*) AS n FROM {table} WHERE k = {{}} GROUP BY d)"
        conf = {LIMIT: "-1", ADAPTIVE: "false"}
        same = f"SELECT a.n, b.n AS m FROM {part.format(7)} a JOIN {part.format(7)} b ON a.d = b.d"
        with settings(spark, conf):
            assert "ReusedExchange" in joins(spark.sql(same))
        assert len(same_rows(spark, same, conf=conf).rows) == 400
        other = f"SELECT a.n, b.n AS m FROM {part.format(7)} a JOIN {part.format(8)} b ON a.d = b.d"
        assert not same_rows(spark, other, conf=conf).rows


def test_reported_size_leaves_caches_and_streams(spark: SparkSession, tmp_path: Path) -> None:
    cached = spark.table("sized").cache()
    try:
        before = size(cached)
        assert cached.where("k = 7").count() == 400
        assert "InMemoryTableScan" in joins(cached.where("k = 7"))
        assert size(cached) <= before
    finally:
        cached.unpersist()
    stream = (
        spark.readStream.table("sized").where("k = 7").writeStream.format("memory")
        .queryName("sized_stream").option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    stream.awaitTermination()
    assert spark.table("sized_stream").count() == 400


@pytest.mark.skipif("iceberg" not in FORMATS, reason="Iceberg has no release for this Spark")
def test_reported_size_leaves_no_trace_in_physical_plans(spark: SparkSession) -> None:
    """Only the logical plan has a proxy, with each interface of the connector's scan."""
    with in_catalog_of(spark, "iceberg"):
        make_table(spark, "traces", ROWS, "k VALUE_LIST")
        query = "SELECT * FROM traces WHERE k = 7"
        with settings(spark, {ADAPTIVE: "false"}):
            now = spark.sql(query)._jdf.queryExecution()
            reported = now.optimizedPlan().collectLeaves().apply(0)
            with settings(spark, CONTROL):
                before = spark.sql(query)._jdf.queryExecution()
                own = before.optimizedPlan().collectLeaves().apply(0)
        assert reported.getClass().getName() == own.getClass().getName()
        assert "Proxy" in reported.scan().getClass().getName()
        assert "Proxy" not in own.scan().getClass().getName()
        assert _interfaces(spark, reported.scan()) >= _interfaces(spark, own.scan())
        assert reported.scan().readSchema().equals(own.scan().readSchema())
        assert reported.scan().description() == own.scan().description()
        planned, other = (each.sparkPlan().collectLeaves().apply(0) for each in (now, before))
        assert planned.scan().getClass().getName() == other.scan().getClass().getName()
        assert planned.scan().getClass().getName() == own.scan().getClass().getName()


def _interfaces(spark: SparkSession, scan: Any) -> set[str]:
    """Return the interfaces of Spark's that a scan has."""
    found: set[str] = set()
    lang = spark._jvm.org.apache.commons.lang3.ClassUtils
    for each in lang.getAllInterfaces(scan.getClass()):
        if each.getName().startswith("org.apache.spark."):
            found.add(each.getName())
    return found


STEPS = """(WITH RECURSIVE t(n, s) AS (SELECT 3, 0 UNION ALL
    SELECT e.b, s + 1 FROM (SELECT d.k, s, pad FROM t JOIN nodes d ON t.n = d.k
        WHERE d.name = 'n0') x JOIN edges e ON x.k = e.p
    WHERE e.flag = 1 AND e.wide >= 0 AND s < 5 AND length(pad) < 1000) SELECT * FROM t)"""


@pytest.fixture(scope="module")
def graph(spark: SparkSession) -> Mapping[str, str]:
    """Tables in Iceberg's catalog for `STEPS`, and settings with which Spark broadcasts a step if
    the scan of `nodes` reports less than all."""
    if spark.version < "4.1" or "iceberg" not in FORMATS:
        pytest.skip("there are recursive queries since Spark 4.1, and Iceberg is not on every line")
    nodes = """SELECT int(id) AS k, concat('n', id div 20) AS name, int(id div 20) AS _f,
        repeat(md5(string(id)), 4) AS pad FROM range(400)"""
    with in_catalog_of(spark, "iceberg"):
        make_table(spark, "nodes", nodes, "name VALUE_LIST")
        spark.sql("""CREATE TABLE edges USING iceberg PARTITIONED BY (p)
            TBLPROPERTIES ('write.distribution-mode'='none', 'write.spark.fanout.enabled'='true')
            AS SELECT int((id * 7 + 1) % 20) AS b, int(id % 20) AS p, IF(id < 20, 1, 0) AS flag,
                id AS wide FROM range(40000)""")
    return {LIMIT: "20k"}


def test_reported_size_leaves_the_steps_of_recursive_queries(
    spark: SparkSession, graph: Mapping[str, str]
) -> None:
    """They share a scan of Iceberg, which Spark changes by the partition filter of each step."""
    with in_catalog_of(spark, "iceberg"):
        assert len(same_rows(spark, STEPS, conf=graph).rows) == 6


@pytest.mark.parametrize("turned_on", [ENABLED, REPORTED])
def test_reported_size_leaves_recursive_queries_planned_without_it(
    spark: SparkSession, graph: Mapping[str, str], turned_on: str
) -> None:
    with in_catalog_of(spark, "iceberg"), settings(spark, graph):
        with settings(spark, {turned_on: "false"}):
            df = spark.sql(f"SELECT * FROM {STEPS}")
            df._jdf.queryExecution().optimizedPlan()
        assert len(df.collect()) == 6


def test_reported_size_leaves_the_recursive_queries_of_streams(
    spark: SparkSession, graph: Mapping[str, str], tmp_path: Path
) -> None:
    with in_catalog_of(spark, "iceberg"), settings(spark, graph):
        steps = spark.sql(f"SELECT DISTINCT n AS d FROM {STEPS}")
        rows = spark.readStream.table("spark_catalog.default.other").join(steps, "d")
        writing = rows.writeStream.format("memory").queryName("found")
        stream = writing.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        stream.start().awaitTermination()
        assert spark.table("found").count() == 4
        spark.catalog.dropTempView("found")


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize(
    "command",
    [
        f"DELETE FROM visited WHERE k IN (SELECT n FROM {STEPS})",
        f"DELETE FROM visited WHERE k < (SELECT max(n) FROM {STEPS})",
        f"UPDATE visited SET v = 1 WHERE k IN (SELECT n FROM {STEPS})",
        f"""MERGE INTO visited USING (SELECT DISTINCT n FROM {STEPS}) ON k = n
            WHEN MATCHED THEN UPDATE SET v = 1 WHEN NOT MATCHED THEN INSERT (k, v) VALUES (n, 1)""",
    ],
)
def test_reported_size_leaves_the_recursive_queries_of_commands(
    spark: SparkSession, graph: Mapping[str, str], command: str, mode: str
) -> None:
    left = []
    with in_catalog_of(spark, "iceberg"):
        for enabled in ("false", "true"):
            spark.sql(f"""CREATE TABLE visited USING iceberg
                TBLPROPERTIES ('write.delete.mode'='{mode}', 'write.update.mode'='{mode}',
                    'write.merge.mode'='{mode}') AS SELECT int(id) AS k, 0 AS v FROM range(20)""")
            with settings(spark, {**graph, ENABLED: enabled}):
                spark.sql(command)
            with settings(spark, CONTROL):
                left.append([tuple(row) for row in spark.table("visited").orderBy("k").collect()])
            spark.sql("DROP TABLE visited")
    assert left[0] != [(k, 0) for k in range(20)]
    assert left[1] == left[0]


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The lookups since the last `clear`."""
    found: list[object] = []
    ask = Answers._find_prunable

    def count(self: Answers, *arguments: Any) -> Any:
        found.append(arguments)
        return ask(self, *arguments)

    monkeypatch.setattr(Answers, "_find_prunable", count)
    return found


TABLES = ["sized", "path", "sized_files", *({"iceberg"} & set(FORMATS))]


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_reported_size_costs_no_second_lookup(
    spark: SparkSession, parquet: str, lookups: list[object], table: str, adaptive: str
) -> None:
    at = spark.sql("DESCRIBE DETAIL sized").collect()[0]["location"]
    name = {"path": f"delta.`{at}`", "iceberg": f"{FORMATS['iceberg'].namespace}.costs"}.get(
        table, table
    )
    if table == "iceberg":
        make_table(spark, name, ROWS, "k VALUE_LIST")
    query = f"SELECT f.id, o.text FROM {name} f LEFT JOIN other o ON f.d = o.d WHERE f.k = 7"
    with settings(spark, {ADAPTIVE: adaptive}):
        df = spark.sql(query)
        lookups.clear()
        assert len(df.collect()) == 400
        assert len(lookups) == 1
        assert str(rewrite.explain(df)).count("k = ?") or len(lookups) == 1
        lookups.clear()
        spark.sql(f"EXPLAIN {query}").collect()
        assert len(lookups) <= 2
        lookups.clear()
        spark.sql("SELECT * FROM other WHERE d = 7").collect()
        assert not lookups


def test_reported_size_without_an_answer(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow store costs EXPLAIN its timeout once, and a query plans as without the index."""

    def die(*_: Any, **__: Any) -> Any:
        raise OSError("away")

    conf = {**BETWEEN, "spark.skipping.mode": "fallback"}
    with settings(spark, conf), monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "find_prunable", die)
        assert "SortMergeJoin" in joins(spark.sql(JOIN))
        assert len(spark.sql(JOIN).collect()) == 200
    with settings(spark, conf):
        assert "BroadcastHashJoin" in joins(spark.sql(JOIN))
