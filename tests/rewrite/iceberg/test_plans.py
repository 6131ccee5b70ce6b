"""Iceberg tables: versions, branches, deletes, evolution, and what must never be pruned.

Joins, engines and random queries on Iceberg are where those on Delta are. A table here has one row
group of one key a file, k = f, f + 8, ..., in file f of 8.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

import rewrite
from rewrite.bridge.classes import Classes
from rewrite.bridge.install import find_hooks
from tests.rewrite.differential import (
    ENABLED,
    append,
    exact,
    files_of,
    make_table,
    matching,
    reads_all,
    run,
    same_rows,
    settings,
    spelled,
    spoiled,
)
from tests.rewrite.iceberg.tables import (
    ENGINES,
    FILES,
    INDEX,
    JOIN,
    MERGE_ON_READ,
    ROWS,
    SMJ,
    delete_by_value,
    drop,
    on_both_engines,
    one_of,
)

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_only_files_with_a_match_are_opened(spark: SparkSession, version: str) -> None:
    make_table(spark, "t", ROWS, INDEX, properties={"format-version": version})
    for condition in ("k = 3", "k IN (3, 11, 4)", "s = 's7' OR m = 2", "k = 999", "NOT k <> 5"):
        exact(spark, "t", condition)
    for query, held in (("SELECT * FROM t WHERE k = 3", "m = 3"), (JOIN.format(t="t"), "m = 3")):
        found = same_rows(spark, query)
        others = set(files_of(spark, "t")) - matching(spark, "t", held)
        assert len(others) == FILES - 1
        with spoiled(list(others)):
            assert spelled(run(spark, query).collect()) == found.rows
            with settings(spark, {ENABLED: "false"}), pytest.raises(Exception, match="Parquet"):
                run(spark, query).collect()
    drop(spark, "t")


def test_explain(spark: SparkSession, base: str) -> None:
    df = spark.sql(f"SELECT * FROM {base} WHERE k = 3")
    assert "Skipping(" in df._jdf.queryExecution().toString()
    planned = rewrite.explain(df).scans[0]
    assert (planned.total, planned.kept, planned.opened) == (FILES, 1, None)
    df.collect()
    (scan,) = rewrite.explain(df).scans
    assert scan.table == "iceberg.default.base"
    assert (scan.total, scan.pruned, scan.unknown, scan.opened) == (FILES, 7, 0, 1)
    reads_all(spark, f"SELECT * FROM {base}", "no condition of the query reached this scan")
    with_file = f"SELECT *, _file FROM {base} WHERE k = 3"
    assert one_of(same_rows(spark, with_file), ".base") == 1
    with settings(spark, {"spark.skipping.dml": "false"}):
        reads_all(spark, with_file, "not a query on a Delta or Iceberg")
    reads_all(spark, "SELECT * FROM few WHERE k = 3", "the table has no index")


EMPTY_READS = [
    "SELECT * FROM never WHERE k = 1",
    "SELECT * FROM never WHERE k IN (1, 2)",
    "SELECT * FROM never WHERE s LIKE 'a%'",
    "SELECT * FROM never WHERE k > 3 LIMIT 3",
    "SELECT * FROM never WHERE k = (SELECT max(k) FROM few)",
    "SELECT * FROM never ORDER BY k LIMIT 3",
    "SELECT count(*) FROM never WHERE k IN (1, 2)",
    "SELECT never.* FROM never JOIN few USING (k) WHERE name = 'n3'",
    "SELECT few.* FROM few LEFT JOIN never ON few.k = never.k AND never.k IN (1, 2)",
]
EMPTY_COMMANDS = [
    "DELETE FROM never WHERE k IN (1, 2)",
    "DELETE FROM never WHERE k IN (SELECT k FROM few WHERE name = 'n3')",
    "UPDATE never SET k = 5 WHERE k > 1",
    "MERGE INTO never USING few ON never.k = few.k WHEN MATCHED THEN DELETE",
    "MERGE INTO never USING few ON never.k = few.k AND name = 'n3'"
    " WHEN MATCHED THEN UPDATE SET s = 'x' WHEN NOT MATCHED THEN INSERT (k) VALUES (few.k)",
]


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("index", ["k VALUE_LIST", None])
def test_table_without_snapshot_is_read_and_changed(
    spark: SparkSession, index: str | None, mode: str
) -> None:
    listed = ", ".join(f"'{name}' = '{mode}'" for name in MERGE_ON_READ)
    spark.sql(f"CREATE TABLE never (k INT, s STRING) USING iceberg TBLPROPERTIES ({listed})")
    if index:
        spark.sql(f"CREATE SKIPPING INDEX ON never ({index})")
    for query in EMPTY_READS:
        same_rows(spark, query)
    for command in EMPTY_COMMANDS:
        assert spark.table("never").count() == 0
        spark.sql(command)
    assert spark.table("never").count() == 80
    drop(spark, "never")


@on_both_engines
def test_versions_and_branches(spark: SparkSession, table: str, engine: dict[str, str]) -> None:
    def newest() -> int:
        found = spark.sql(
            f"SELECT snapshot_id FROM default.{table}.snapshots ORDER BY committed_at DESC"
        )
        return int(found.collect()[0][0])

    first = newest()
    spark.sql(f"ALTER TABLE {table} CREATE TAG old")
    spark.sql(f"ALTER TABLE {table} CREATE BRANCH side")
    spark.sql(f"INSERT INTO default.{table}.branch_side SELECT 1003, 3, 's3', 0, 3, ''")
    append(
        spark, table, "SELECT 1000L AS id, 3 AS k, 's3' AS s, 0 AS p, 3 AS m, '' AS pad, 0 AS _f"
    )
    spark.sql(f"DELETE FROM {table} WHERE m = 5")
    spark.sql(f"REFRESH SKIPPING INDEX ON {table}")
    with settings(spark, engine):
        for at, opened in (
            ("t", 2), (f"t VERSION AS OF {first}", 1), ("t VERSION AS OF 'old'", 1),
            ("default.t.branch_side", 2), ("t VERSION AS OF 'side'", 2), ("default.t.tag_old", 1),
        ):  # fmt: skip
            for query in (f"SELECT * FROM {at} WHERE k = 3", JOIN.format(t=at)):
                assert one_of(same_rows(spark, query)) == opened, query
        deleted = same_rows(spark, f"SELECT * FROM t VERSION AS OF {first} WHERE k = 5")
        assert (len(deleted.rows), one_of(deleted)) == (5, 1)
        assert same_rows(spark, "SELECT * FROM t WHERE k = 5").rows == []


@pytest.mark.parametrize("version", ["2", "3"])
def test_deleted_rows(spark: SparkSession, version: str) -> None:
    properties = {"format-version": version, **MERGE_ON_READ}
    make_table(spark, "t", ROWS, INDEX, properties=properties)
    spark.sql("DELETE FROM t WHERE id IN (3, 83, 12)")
    spark.sql("UPDATE t SET k = 4 WHERE id = 6")
    for condition in ("k = 3", "k = 12", "k = 4"):
        for engine in (*ENGINES.values(), SMJ):
            same_rows(spark, f"SELECT * FROM t WHERE {condition}", conf=engine)
    spark.sql("REFRESH SKIPPING INDEX ON t")
    assert one_of(same_rows(spark, "SELECT * FROM t WHERE k = 3")) == 1
    assert one_of(same_rows(spark, "SELECT * FROM t WHERE k = 4")) == 2
    for engine in (*ENGINES.values(), SMJ):
        assert one_of(same_rows(spark, JOIN.format(t="t"), conf=engine)) == 1
    drop(spark, "t")


def test_equality_deletes(spark: SparkSession, table: str) -> None:
    """What Flink writes: rows are deleted by their values."""
    delete_by_value(spark, "t", 11)
    for engine in (*ENGINES.values(), SMJ):
        assert same_rows(spark, "SELECT * FROM t WHERE k = 11", conf=engine).rows == []
        found = same_rows(spark, JOIN.format(t="t"), conf=engine)
        assert len(found.rows) == 45
        assert one_of(found) == 1


@on_both_engines
def test_columns_and_partitions_evolve(
    spark: SparkSession, table: str, engine: dict[str, str]
) -> None:
    spark.sql("ALTER TABLE t RENAME COLUMN k TO kk")
    spark.sql("ALTER TABLE t ALTER COLUMN kk TYPE bigint")
    spark.sql("ALTER TABLE t DROP COLUMN s")
    spark.sql("ALTER TABLE t ADD COLUMN s string")
    spark.sql("ALTER TABLE t ADD PARTITION FIELD p")
    spark.sql("INSERT INTO t SELECT 2000 + id, 3 + id, int(id % 4), 0, '', 'x' FROM range(4)")
    spark.sql("ALTER TABLE t ADD PARTITION FIELD bucket(4, kk)")
    spark.sql("INSERT INTO t SELECT 3000 + id, 3 + id, int(id % 4), 0, '', 'y' FROM range(4)")
    spark.sql("REFRESH SKIPPING INDEX ON t")
    join = "SELECT * FROM t JOIN few ON t.kk = few.k WHERE name = 'n3'"
    with settings(spark, engine):
        assert one_of(same_rows(spark, "SELECT * FROM t WHERE kk = 3")) == 3
        assert one_of(same_rows(spark, "SELECT * FROM t WHERE kk = 3 AND p = 0")) == 3
        assert one_of(same_rows(spark, join)) == 3
        assert one_of(same_rows(spark, join, conf=SMJ)) == 3
        same_rows(spark, "SELECT * FROM t WHERE s = 'x'")
        same_rows(spark, "SELECT * FROM t WHERE s IS NULL AND kk = 4")
        both = f"{join} AND p IN (SELECT int(k) FROM few WHERE name = 'n0')"
        same_rows(spark, both)
        same_rows(spark, both, conf=SMJ)


def test_what_is_no_read_of_the_table_is_left_alone(spark: SparkSession, table: str) -> None:
    (first,) = [
        row[0] for row in spark.sql("SELECT snapshot_id FROM default.t.snapshots").collect()
    ]
    append(spark, "t", "SELECT 1000L AS id, 3 AS k, 's3' AS s, 0 AS p, 3 AS m, '' AS pad, 0 AS _f")
    spark.sql("REFRESH SKIPPING INDEX ON t")
    for query in (
        "SELECT count(*) FROM default.t.files WHERE record_count > 10",
        "SELECT file_path FROM default.t.entries e JOIN default.t.files"
        " ON file_path = e.data_file.file_path",
        "SELECT count(*) FROM default.t.position_deletes WHERE pos = 3",
    ):
        same_rows(spark, query)

    def added(session: SparkSession) -> Any:
        reader = session.read.format("iceberg").option("start-snapshot-id", first)
        return reader.load("iceberg.default.t").where("k = 3")

    assert len(same_rows(spark, added).rows) == 1
    stream = spark.readStream.table("t").where("k = 3").writeStream.format("memory")
    query = stream.queryName("streamed").trigger(availableNow=True).start()
    query.awaitTermination()
    assert spark.sql("SELECT * FROM streamed").count() == 6


UNIONS = [
    "SELECT /*+ REPARTITION(2, s) */ s, id FROM base WHERE k = {a}",
    "SELECT s, count(*) AS n FROM base WHERE k = {a} GROUP BY s",
    "SELECT /*+ REPARTITION(2, s) */ s, id FROM base JOIN few USING (k) WHERE name = 'n{a}'",
]


@on_both_engines
@pytest.mark.parametrize("leg", UNIONS)
def test_differently_pruned_scans_never_mix(
    spark: SparkSession, base: str, leg: str, engine: dict[str, str]
) -> None:
    with settings(spark, engine):
        for a, b in ((3, 4), (3, 3), (3, 999), (998, 999)):
            found = same_rows(spark, f"{leg.format(a=a)} UNION ALL {leg.format(a=b)}")
            scans = [s for s in found.explained.scans if s.table.endswith(".base")]
            assert [s.opened for s in scans] == [int(x < 100) for x in (a, b)][: len(scans)]
        twice = "SELECT * FROM base a JOIN base b ON a.m = b.m WHERE a.k = 3 AND b.k = 11"
        assert [s.opened for s in same_rows(spark, twice).explained.scans] == [1, 1]
        twice = "SELECT * FROM base a FULL JOIN (SELECT * FROM base WHERE k = 4) b ON a.id = b.id"
        assert {s.opened for s in same_rows(spark, twice).explained.scans} == {FILES, 1}


GROUPED = {
    "spark.sql.sources.v2.bucketing.enabled": "true",
    "spark.sql.iceberg.planning.preserve-data-grouping": "true",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    **SMJ,
}


@on_both_engines
@pytest.mark.parametrize("push", ["true", "false"])
def test_storage_partitioned_joins(spark: SparkSession, push: str, engine: dict[str, str]) -> None:
    """Partitions are joined as they lie, so an empty one has to stay."""
    for name in ("t", "u"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")
        make_table(spark, f"{name}_flat", ROWS)
        spark.sql(f"CREATE TABLE {name} USING iceberg PARTITIONED BY (m) AS"
                  f" SELECT * FROM {name}_flat")  # fmt: skip
        spark.sql(f"DROP TABLE {name}_flat")
    spark.sql(f"CREATE SKIPPING INDEX ON t ({INDEX})")
    conf = GROUPED | engine | {"spark.sql.sources.v2.bucketing.pushPartValues.enabled": push}
    few = "(SELECT m, k FROM t WHERE k IN (3, 12))"
    for query in (
        "SELECT t.id, u.id FROM t JOIN u ON t.m = u.m WHERE t.k IN (3, 12)",
        f"SELECT u.id, t.k FROM u LEFT JOIN {few} t ON t.m = u.m",
        f"SELECT count(*), count(t.k) FROM {few} t FULL JOIN u ON t.m = u.m",
        "SELECT t.id, u.id FROM t JOIN u ON t.m = u.m JOIN few ON t.k = few.k WHERE name = 'n3'",
        "SELECT m, count(*) FROM t WHERE k = 3 GROUP BY m",
    ):
        found = same_rows(spark, query, conf=conf)
        # Its keys for `u` may come from a second read.
        scans = [s for s in found.explained.scans if s.table.endswith(".t")]
        assert scans
        assert all(s.opened is not None and s.opened < FILES for s in scans), str(found.explained)
    with settings(spark, conf):
        df = spark.sql("SELECT t.id, u.id FROM t JOIN u ON t.m = u.m WHERE t.k IN (3, 12)")
        df.collect()
        assert "hashpartitioning" not in df._jdf.queryExecution().sparkPlan().toString()
    drop(spark, "t")
    spark.sql("DROP TABLE u")


@on_both_engines
def test_options_limits_and_aggregates(
    spark: SparkSession, base: str, engine: dict[str, str]
) -> None:
    def split(session: SparkSession) -> Any:
        options = {"split-size": "2000", "vectorization-enabled": "false"}
        return session.read.options(**options).table("base").where("k = 3")

    with settings(spark, engine):
        assert one_of(same_rows(spark, split), ".base") == 1
        for query, opened in (
            ("SELECT count(*), max(k) FROM base WHERE k = 3", 1),
            ("SELECT * FROM (SELECT * FROM base WHERE k = 3 ORDER BY id LIMIT 2)", 1),
            ("SELECT (SELECT max(id) FROM base WHERE k = 3) AS x", 1),
            ("SELECT * FROM few f WHERE EXISTS (SELECT 1 FROM base WHERE k = 3 AND f.k = m)", 1),
        ):
            assert one_of(same_rows(spark, query), ".base") == opened, query
        same_rows(spark, "SELECT count(*), max(id), min(k) FROM base")
        assert len(same_rows(spark, "SELECT id FROM base WHERE k = 3 LIMIT 5").rows) == 5
        nothing = same_rows(spark, "SELECT * FROM base LIMIT 0")
        assert nothing.rows == []


@on_both_engines
def test_files_of_other_formats_are_read(
    spark: SparkSession, table: str, engine: dict[str, str]
) -> None:
    row = "1000L AS id, 3 AS k, 's3' AS s, 0 AS p, 3 AS m, '' AS pad"
    for format in ("orc", "avro", "avro"):
        spark.sql(f"ALTER TABLE t SET TBLPROPERTIES ('write.format.default' = '{format}')")
        spark.sql(f"INSERT INTO t SELECT {row}")
    spark.sql("REFRESH SKIPPING INDEX ON t")
    with settings(spark, engine):
        for query in ("SELECT * FROM t WHERE k = 3", JOIN.format(t="t")):
            found = same_rows(spark, query)
            assert one_of(found) == 1 + 3
            (scan,) = [s for s in found.explained.scans if s.table.endswith(".t")]
            assert scan.unknown == 3
            assert "ORC files (1): only Parquet is indexed" in scan.unused, scan
            assert "AVRO files (2): only Parquet is indexed" in scan.unused, scan


def test_explain_shows_that_pruning_failed(spark: SparkSession) -> None:
    """The rule visits a scan with the filter above it, and once more alone, without conditions."""
    make_table(spark, "t", ROWS, INDEX)
    hooks = find_hooks(spark)
    assert hooks is not None
    classes = Classes(spark.sparkContext._gateway)
    client = hooks.java.client()
    scans = classes.new(
        "scan.PhysicalScans",
        client,
        classes.new("keys.PruningRegistry"),
        classes.new("keys.PruningFeedback"),
        classes.new("source.TableStatistics", None),  # which cannot look up conditions
    )
    rule = classes.new("scan.FilePruningRule", scans, False)
    report = classes.new("observe.ScanReport", client.budgets(), scans, rule)
    plan = spark.sql("SELECT * FROM t WHERE k = 3")._jdf.queryExecution().sparkPlan()
    with settings(spark, {"spark.skipping.mode": "fallback"}):
        (scan,) = json.loads(report.foresee(rule.apply(plan)))
    assert scan["reason"].startswith("pruning it failed: NullPointerException"), scan
    drop(spark, "t")
