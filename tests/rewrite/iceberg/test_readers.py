"""How scans of Iceberg are pruned and read: copies, caches, row groups, runtime filters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from rewrite.bridge.classes import Classes
from tests.rewrite.differential import (
    append,
    in_catalog_of,
    make_table,
    matching,
    same_rows,
    settings,
)
from tests.rewrite.iceberg.tables import (
    ENGINES,
    INDEX,
    JOIN,
    PLAIN,
    ROWS,
    SMJ,
    drop,
    on_both_engines,
    one_of,
)


@pytest.fixture
def without_copies(spark: SparkSession) -> Iterator[None]:
    """As with an Iceberg whose scans cannot be copied."""
    members = Classes(spark.sparkContext._gateway)._loader.loadClass(
        "rewrite.jvm.source.IcebergReflection"
    )
    held = members.getDeclaredField("FOUND")
    held.setAccessible(True)
    found = held.get(None)
    spark.sql("SELECT * FROM few WHERE k = 3").collect()
    jvm: Any = spark._jvm
    java = jvm.java.lang
    give_up = members.getDeclaredMethod(
        "giveUpCopies", _array(spark, java.Class, java.Class.forName("java.lang.Class"))
    )
    give_up.setAccessible(True)
    (scan,) = list(found.keySet())
    give_up.invoke(None, _array(spark, java.Object, scan))
    yield
    found.clear()


def _array(spark: SparkSession, kind: Any, *values: Any) -> Any:
    out = spark.sparkContext._gateway.new_array(kind, len(values))
    for i, value in enumerate(values):
        out[i] = value
    return out


@on_both_engines
def test_where_scans_cannot_be_copied(
    spark: SparkSession, table: str, without_copies: None, engine: dict[str, str]
) -> None:
    spark.sql("ALTER TABLE t ADD PARTITION FIELD p")
    append(spark, "t", ROWS)
    spark.sql("REFRESH SKIPPING INDEX ON t")
    with settings(spark, engine):
        held = len(matching(spark, "t", "m = 3"))
        for query in ("SELECT * FROM t WHERE k = 3", JOIN.format(t="t")):
            for conf in ({}, SMJ):
                found = same_rows(spark, query, conf=conf)
                assert one_of(found) == held, str(found.explained)
        join = "SELECT * FROM t JOIN few a USING (k) JOIN few b ON t.p = b.k WHERE {}"
        same_rows(spark, join.format("a.name = 'n3' AND b.name = 'n3'"))


def test_another_engine_commits_while_spark_caches_the_table(
    spark: SparkSession, table: str
) -> None:
    jvm: Any = spark._jvm
    iceberg = jvm.org.apache.iceberg
    spark.table("t").count()
    (path,) = [row[0] for row in spark.sql("SELECT _file FROM t WHERE k = 3 LIMIT 1").collect()]
    files = spark.sql(f"SELECT * FROM default.t.files WHERE file_path = '{path}'").collect()[0]
    tables = iceberg.hadoop.HadoopTables(spark._jsparkSession.sessionState().newHadoopConf())
    other = tables.load(path.partition("/data/")[0])
    delete = other.newDelete()
    # Not a string: py4j would find a method that Iceberg hides, and that deletes the file itself.
    delete.deleteFile(jvm.java.lang.StringBuilder(path))
    delete.commit()
    assert len(same_rows(spark, "SELECT * FROM t WHERE k = 3").rows) in (0, 5)
    spark.sql("REFRESH SKIPPING INDEX ON t")
    spark.sql("REFRESH TABLE t")
    assert same_rows(spark, "SELECT * FROM t WHERE k = 3").rows == []
    file = iceberg.DataFiles.builder(other.spec()).withPath(path)
    file = file.withFileSizeInBytes(files.file_size_in_bytes).withRecordCount(files.record_count)
    append = tables.load(path.partition("/data/")[0]).newAppend()
    append.appendFile(file.build())
    append.commit()
    spark.sql("REFRESH TABLE t")
    found = same_rows(spark, "SELECT * FROM t WHERE k = 3")
    assert (len(found.rows), one_of(found)) == (5, 1)


def test_row_groups_are_skipped_by_the_keys(spark: SparkSession) -> None:
    rows = "SELECT id, id * 3 AS k, repeat(uuid(), 2) AS pad, int(id % 2) AS _f FROM range(20000)"
    small = {
        "write.parquet.row-group-size-bytes": "65536",
        "write.parquet.row-group-check-min-record-count": "500",
        "write.parquet.row-group-check-max-record-count": "500",
    }
    make_table(spark, "t", rows, "k VALUE_LIST(20000)", properties=small)
    query = "SELECT count(*), sum(t.id) FROM t JOIN few ON t.k = few.k * 3L WHERE name = 'n3'"
    for engine in (SMJ, SMJ | PLAIN, PLAIN, {}):
        read = {}
        for on in ("true", "false"):
            found = same_rows(spark, query, conf=engine | {"spark.skipping.dynamic.rows": on})
            (scan,) = [s for s in found.explained.scans if s.keys]
            assert scan.rows is not None, str(scan)
            read[on] = scan.rows[0]
        assert read["true"] < read["false"] / 4, read
    drop(spark, "t")


@pytest.fixture
def dropped(spark: SparkSession) -> Iterator[None]:
    """A dimension that is small beside a few files; nothing is left of it and of a table t."""
    spark.sql("CREATE TABLE tiny (k INT, z INT) USING iceberg")
    spark.sql("INSERT INTO tiny VALUES (3, 1), (100, 1), (9, 2)")
    yield
    spark.sql("DROP TABLE tiny")
    drop(spark, "t")


@pytest.mark.parametrize("conf", [{}, SMJ, PLAIN, SMJ | PLAIN])
def test_keys_in_partition_columns_that_imported_files_do_not_hold(
    spark: SparkSession, dropped: None, tmp_path: Path, conf: dict[str, str]
) -> None:
    """To Iceberg's row groups such a column is null, and its values stand in the partition."""
    for p in range(4):
        folder = tmp_path / f"p={p}"
        folder.mkdir()
        x = pa.array(range(10 * p, 10 * p + 10), pa.int32())
        pq.write_table(pa.table({"x": x}), folder / "f.parquet")
    spark.sql("CREATE TABLE t (x INT, p INT) USING iceberg PARTITIONED BY (p)")
    spark.sql(
        "CALL iceberg.system.add_files(table => 'default.t',"
        f" source_table => '`parquet`.`{tmp_path}`')"
    )
    spark.sql("ALTER TABLE t DROP PARTITION FIELD p")
    spark.sql("INSERT INTO t VALUES (100, 100)")
    spark.sql("INSERT INTO t VALUES (101, 3)")
    spark.sql("CREATE SKIPPING INDEX ON t (x MIN_MAX, p VALUE_LIST)")
    found = same_rows(spark, "SELECT t.* FROM t JOIN tiny ON t.p = tiny.k WHERE z = 1", conf=conf)
    assert any(scan.keys for scan in found.explained.scans), str(found.explained)
    assert len(found.rows) == 12


@pytest.mark.parametrize("conf", [{}, SMJ, PLAIN, SMJ | PLAIN])
def test_keys_in_columns_with_a_default(
    spark: SparkSession, dropped: None, conf: dict[str, str]
) -> None:
    """Files older than such a column read the default, and hold nothing."""
    version = "TBLPROPERTIES ('format-version' = '3')"
    spark.sql(f"CREATE TABLE t (x INT) USING iceberg {version}")
    for x in range(3):
        spark.sql(f"INSERT INTO t VALUES ({x})")
    iceberg: Any = spark._jvm.org.apache.iceberg  # type: ignore[union-attr]
    table = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, "iceberg.default.t")
    integer, default = iceberg.types.Types.IntegerType.get(), iceberg.expressions.Literal.of(3)
    table.updateSchema().addColumn("k", integer, None, default).commit()
    spark.sql("REFRESH TABLE t")
    spark.sql("INSERT INTO t VALUES (7, 100), (8, 12)")
    spark.sql("CREATE SKIPPING INDEX ON t (k VALUE_LIST)")
    # An inner join would have Spark push IS NOT NULL, which Iceberg itself gets wrong here.
    query = """SELECT tiny.* FROM tiny WHERE z = 1
        AND (EXISTS (SELECT 1 FROM t WHERE t.k = tiny.k) OR tiny.k = 999)"""
    found = same_rows(spark, query, conf=conf)
    assert any(scan.keys for scan in found.explained.scans), str(found.explained)
    assert len(found.rows) == 2


def test_formats_are_joined_with_each_other(spark: SparkSession, base: str) -> None:
    delta = "spark_catalog.default.mixed"
    make_table(spark, delta, ROWS, INDEX)
    few = "SELECT int(id) AS k, concat('n', id % 8) AS name, 0 AS _f FROM range(80)"
    make_table(spark, "spark_catalog.default.mixed_few", few)
    for fact, dimension in ((delta, "few"), ("base", "spark_catalog.default.mixed_few")):
        for engine in (*ENGINES.values(), SMJ):
            query = f"SELECT f.id FROM {fact} f JOIN {dimension} d ON f.k = d.k WHERE name = 'n3'"
            found = same_rows(spark, query, conf=engine)
            assert [s.opened for s in found.explained.scans if s.keys] == [1], str(found.explained)
    drop(spark, delta)
    spark.sql("DROP TABLE spark_catalog.default.mixed_few")


def test_runtime_filters_are_known_by_what_they_are_not_where(spark: SparkSession) -> None:
    """Spark leaves out those that it cannot translate, and promises no order."""
    with in_catalog_of(spark, "iceberg"):
        rows = "SELECT int(id) AS a, int(id) + 10 AS b, id AS _f FROM range(4)"
        make_table(spark, "ordered", rows, "a VALUE_LIST, b VALUE_LIST")
        for name, first in (("by_a", 0), ("by_b", 10)):
            spark.sql(
                f"""CREATE TABLE {name} USING iceberg
                AS SELECT int(id) + {first} AS k, id FROM range(9)"""
            )
        query = """SELECT f.* FROM ordered f JOIN by_a ON f.a = by_a.k JOIN by_b ON f.b = by_b.k
            WHERE by_a.id = 1 AND by_b.id IN (1, 2)"""
        jvm: Any = spark.sparkContext._jvm
        gateway: Any = spark.sparkContext._gateway
        api = jvm.org.apache.spark.sql.connector.expressions.Expressions
        pruned = []
        for order in ((0, 1), (1, 0), (0,), (1,), ()):
            with settings(spark, PLAIN):
                plan = spark.sql(query)._jdf.queryExecution().executedPlan()
            leaves = plan.collectLeaves()
            (node,) = [
                leaf
                for leaf in (leaves.apply(i) for i in range(leaves.size()))
                if leaf.getClass().getSimpleName() == "BatchScanExec"
                and "Skipping(" in leaf.scan().description()
            ]
            predicates = []
            for n in range(node.runtimeFilters().size()):
                column = node.runtimeFilters().apply(n).child().child()
                is_a = str(column.exprId()) == str(node.output().apply(0).exprId())
                children = gateway.new_array(
                    jvm.org.apache.spark.sql.connector.expressions.Expression, 2 if is_a else 3
                )
                children[0] = api.column(column.name())
                for place, value in enumerate([1] if is_a else [11, 12]):
                    children[place + 1] = api.literal(value)
                predicate = jvm.org.apache.spark.sql.connector.expressions.filter.Predicate
                predicates.append((not is_a, predicate("IN", children)))
            ordered = [found for _, found in sorted(predicates, key=lambda pair: pair[0])]
            assert len(ordered) == 2
            given = gateway.new_array(
                jvm.org.apache.spark.sql.connector.expressions.filter.Predicate, len(order)
            )
            for place, n in enumerate(order):
                given[place] = ordered[n]
            node.scan().filter(given)
            pruned.append(node.scan().count().get("pruned"))
        assert pruned == [3, 3, 3, 2, 0]
        spark.sql("DROP SKIPPING INDEX ON ordered")
        for name in ("ordered", "by_a", "by_b"):
            spark.sql(f"DROP TABLE {name}")
