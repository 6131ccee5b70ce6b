"""The families of false skips that come of what a table does (tests/conformance.md)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from tests.rewrite.conditions import EVERY_KIND, check, compared
from tests.rewrite.differential import (
    append,
    batch,
    exact,
    exact_batch,
    files_of,
    make_table,
    reads_all,
    same_rows,
    settings,
    skips,
    spoiled,
)


def test_conformance_24_and_49_a_file_before_its_entry(spark: SparkSession) -> None:
    make_table(spark, "early", "SELECT int(id) AS k, id AS _f FROM range(4)", "k VALUE_LIST")
    append(spark, "early", "SELECT int(id) AS k, id AS _f FROM range(4)")
    found = skips(spark, "SELECT * FROM early WHERE k = 2")
    assert (len(found.rows), found.opened) == (2, 5)
    assert found.explained.scans[0].unknown == 4
    joined = "SELECT e.k FROM early e JOIN VALUES (2), (3) AS d(k) ON e.k = d.k"
    assert len(skips(spark, joined).rows) == 4
    spark.sql("REFRESH SKIPPING INDEX ON early")
    assert exact(spark, "early", "k = 2").opened == 2


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_conformance_25_and_39_deletion_vectors(spark: SparkSession, kind: str) -> None:
    """A sketch of the live rows would miss those that RESTORE and time travel bring back."""
    rows = "SELECT int(f * 10 + i) AS k, f AS _f FROM range(4) AS r(f), range(3) AS q(i)"
    vectors = {"delta.enableDeletionVectors": "true"}
    make_table(spark, "vectored", rows, properties=vectors)
    spark.sql("DELETE FROM vectored WHERE k IN (11, 12)")
    spark.sql(f"CREATE SKIPPING INDEX ON vectored (k {kind})")
    assert len(skips(spark, "SELECT * FROM vectored VERSION AS OF 1 WHERE k = 12").rows) == 1
    assert same_rows(spark, "SELECT * FROM vectored WHERE k = 12").rows == []
    spark.sql("INSERT INTO vectored VALUES (11)")
    assert len(skips(spark, "SELECT * FROM vectored WHERE k = 11").rows) == 1
    spark.sql("RESTORE TABLE vectored TO VERSION AS OF 1")
    assert len(skips(spark, "SELECT * FROM vectored WHERE k = 12").rows) == 1
    spark.sql("REFRESH SKIPPING INDEX ON vectored")
    assert len(skips(spark, "SELECT * FROM vectored WHERE k IN (11, 12)").rows) == 2


NAMES = ("plain", "a b", "50%", "a%20b", "ü", "..", ".a", "-", "a+b", "a#b?c", "a=b")


@pytest.mark.parametrize("place", ["in the names of files", "in partitions"])
def test_files_with_any_names(spark: SparkSession, tmp_path: Path, place: str) -> None:
    """Delta's log has encoded paths, the index has the locations that Spark reads."""
    folder = tmp_path / "a folder, 50% ü"
    frame = spark.createDataFrame(list(enumerate(NAMES)), "k INT, p STRING").coalesce(1)
    if place == "in partitions":
        writer = frame.write.partitionBy("p").format("delta")
        writer.option("delta.dataSkippingNumIndexedCols", "0").save(str(folder))
    else:
        folder.mkdir()
        for k, name in enumerate(NAMES):
            # Spark lists no file whose name begins with a dot, and Hadoop opens none with a colon.
            pq.write_table(pa.table({"k": pa.array([k], pa.int32())}), folder / f"f{name}.parquet")
        spark.sql(f"CONVERT TO DELTA parquet.`{folder}` NO STATISTICS")
    spark.sql(f"CREATE SKIPPING INDEX ON delta.`{folder}` (k VALUE_LIST)")
    for k in range(len(NAMES)):
        found = skips(spark, f"SELECT * FROM delta.`{folder}` WHERE k = {k}")
        (scan,) = found.explained.scans
        assert (len(found.rows), scan.opened, scan.unknown) == (1, 1, 0)


def test_conformance_26_maintenance(spark: SparkSession, tmp_path: Path) -> None:
    make_table(spark, "kept_up", "SELECT int(id) AS k, id AS _f FROM range(6)", "k VALUE_LIST")
    spark.sql("OPTIMIZE kept_up")
    assert len(same_rows(spark, "SELECT * FROM kept_up WHERE k = 3").rows) == 1
    assert skips(spark, "SELECT * FROM kept_up VERSION AS OF 1 WHERE k = 3").opened == 1
    spark.sql("REFRESH SKIPPING INDEX ON kept_up")
    assert same_rows(spark, "SELECT * FROM kept_up WHERE k = 9").opened == 0
    spark.sql("RESTORE TABLE kept_up TO VERSION AS OF 1")
    assert exact(spark, "kept_up", "k = 3").opened == 1
    clone = tmp_path / "clone"
    spark.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE kept_up")
    assert same_rows(spark, f"SELECT * FROM delta.`{clone}` WHERE k = 3").skipped == 0
    spark.sql(f"CREATE SKIPPING INDEX ON delta.`{clone}` (k MIN_MAX)")
    spark.sql(f"INSERT INTO delta.`{clone}` VALUES (77)")
    spark.sql(f"REFRESH SKIPPING INDEX ON delta.`{clone}`")
    assert exact(spark, f"delta.`{clone}`", "k = 3").opened == 1
    assert exact(spark, f"delta.`{clone}`", "k = 77").opened == 1
    spark.sql("DROP TABLE kept_up")
    spark.sql("CREATE TABLE kept_up (k INT) USING delta")
    spark.sql("INSERT INTO kept_up VALUES (3)")
    assert len(same_rows(spark, "SELECT * FROM kept_up WHERE k = 3").rows) == 1


def test_conformance_27_mapped_columns(spark: SparkSession) -> None:
    for mode in ("name", "id"):
        rows = "SELECT int(id) AS a, int(9 - id) AS b, string(id) AS c, id AS _f FROM range(6)"
        make_table(spark, "mapped", rows, "a VALUE_LIST, b VALUE_LIST, c VALUE_LIST",
                   properties={"delta.columnMapping.mode": mode})  # fmt: skip
        # Swap two names; drop the third and make it again with another type.
        for change in ("RENAME COLUMN a TO x", "RENAME COLUMN b TO a", "RENAME COLUMN x TO b",
                       "DROP COLUMN c", "ADD COLUMN c INT", "ALTER COLUMN b FIRST"):  # fmt: skip
            spark.sql(f"ALTER TABLE mapped {change}")
        assert exact(spark, "mapped", "a = 9").opened == 1
        assert exact(spark, "mapped", "b = 5").opened == 1
        append(spark, "mapped", "SELECT int(id) AS a, int(id) AS b, int(id) AS c, id AS _f"
                                " FROM range(2)")  # fmt: skip
        for _ in ("stale", "fresh"):
            check(spark, "mapped", ["a = 1", "b = 1", "c = 1", "c IS NULL", "c <=> NULL AND a = 9"])
            check(spark, "mapped VERSION AS OF 1", ["c = '3'", "a = 3", "b = 3"])
            spark.sql("REFRESH SKIPPING INDEX ON mapped")
        assert exact(spark, "mapped", "c = 1").opened == 1
        assert exact(spark, "mapped", "c IS NULL").opened == 6


WIDENING = {"delta.enableTypeWidening": "true", "delta.feature.timestampNtz": "supported"}


def test_conformance_27_and_41_widened_columns(spark: SparkSession) -> None:
    rows = """SELECT int(id) AS i, float(id / 3) AS f, CAST(id * 1.5 AS DECIMAL(10, 2)) AS d,
        date'2024-01-01' + int(id) AS t, smallint(id) AS s, id AS _f FROM range(6)"""
    index = """i VALUE_LIST, i MIN_MAX, f VALUE_LIST, d VALUE_LIST, d MIN_MAX, t MIN_MAX,
        s VALUE_LIST"""
    make_table(spark, "widened", rows, index, properties=WIDENING)
    for column, type in (("i", "BIGINT"), ("f", "DOUBLE"), ("d", "DECIMAL(14, 4)"),
                         ("t", "TIMESTAMP_NTZ"), ("s", "INT")):  # fmt: skip
        spark.sql(f"ALTER TABLE widened ALTER COLUMN {column} TYPE {type}")
    append(spark, "widened", """SELECT id + 5000000000 AS i, double(id / 3) AS f,
        CAST(id * 1.5 + 0.0001 AS DECIMAL(14, 4)) AS d, timestamp_ntz'2024-01-02 12:00:00' AS t,
        int(id + 100000) AS s, id AS _f FROM range(2)""")  # fmt: skip
    conditions = ["i = 3", "i = 5000000001", "f = double(float(1 / 3D))", "f = 1 / 3D", "d = 3",
                  "d = 1.5001", "d = 1.50", "d < 1.5001", "t = timestamp_ntz'2024-01-03 00:00:00'",
                  "t > timestamp_ntz'2024-01-02 00:00:00'", "s = 3", "s = 100001"]  # fmt: skip
    for _ in ("stale", "fresh"):
        check(spark, "widened", conditions)
        old = ["d = 3", "d = 1.50", "i = 3", "t = date'2024-01-03'", "f = float(1 / 3D)", "s = 3"]
        exact_batch(spark, "widened VERSION AS OF 1", old)
        spark.sql("REFRESH SKIPPING INDEX ON widened")
    assert exact(spark, "widened", "i = 5000000001").opened == 1
    assert exact(spark, "widened", "i = 3").opened == 1


def test_conformance_28_partitions(spark: SparkSession, tmp_path: Path) -> None:
    values = ["a/b", "50%", "a b", "é:=?#", "", None, "x{y}", "..", "%25", "a+b"]
    schema = StructType([StructField("p", StringType()), StructField("v", StringType())])
    path = tmp_path / "part é %25"
    df = spark.createDataFrame([Row(p=v, v=str(i)) for i, v in enumerate(values)], schema)
    df.coalesce(1).write.format("delta").partitionBy("p").save(str(path))
    name = f"delta.`{path}`"
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.dataSkippingNumIndexedCols' = '0')")
    spark.sql(f"CREATE SKIPPING INDEX ON {name} (p PARTITION, v VALUE_LIST)")
    table = spark.table(name)
    for i, value in enumerate(values):
        by_value = same_rows(spark, lambda _, i=i: table.where(F.col("v") == str(i)))
        assert (len(by_value.rows), by_value.opened) == (1, 1)
        same_rows(spark, lambda _, v=value: table.where(F.col("p").eqNullSafe(F.lit(v))))
    batch(
        spark, name, ["p LIKE 'a%'", "p > 'a'", "p IS NULL", "p <> '..'", "p = '%25' AND v = '8'"]
    )
    # Spark hands no disjunction of partition and other columns to a scan.
    reads_all(spark, f"SELECT * FROM {name} WHERE p = 'a b' OR v = '0'", "no condition")


def test_conformance_40_nested_and_old(spark: SparkSession) -> None:
    """INT96 in the far future, and a child under a null parent, whose bytes are no value."""
    rows = """SELECT timestamp_micros(253402300799999999 - id) AS far, id AS _f,
        IF(id % 2 = 0, NULL, named_struct('x', IF(id = 3, NULL, int(id)))) AS s FROM range(6)"""
    with settings(spark, {"spark.sql.parquet.outputTimestampType": "INT96"}):
        make_table(spark, "far", rows, "far MIN_MAX, far VALUE_LIST, s.x VALUE_LIST, s.x MIN_MAX")
    for offset in (0, 1, 5, 6):
        same_rows(spark, "SELECT * FROM far WHERE far = "
                         f"timestamp_micros({253402300799999999 - offset})")  # fmt: skip
    assert exact(spark, "far", "s.x = 0").opened == 0
    assert exact(spark, "far", "s.x IS NULL").opened == 4
    assert exact(spark, "far", "s.x = 5").opened == 1


def test_conformance_53_int96_beyond_arrow(spark: SparkSession) -> None:
    """Its microseconds wrap around, in the year 290,000 and before 4714 BC."""
    micros = "element_at(array(9089000000000000000, -377000000000000000, 1700000000000000), _f + 1)"
    rows = f"SELECT timestamp_micros({micros}) AS a, _f FROM (SELECT int(id) AS _f FROM range(3))"
    kinds = ("MIN_MAX", "VALUE_LIST", "BLOOM_FILTER", "RANGES")
    with settings(spark, {"spark.sql.parquet.outputTimestampType": "INT96"}):
        make_table(spark, "beyond", rows, ", ".join(f"a {kind}" for kind in kinds))
    # As numbers: Python has no such years.
    query = "SELECT unix_micros(a) AS micros FROM beyond WHERE "
    for value in ("9089000000000000000", "-377000000000000000"):
        for op in ("=", ">=", "<="):
            found = same_rows(spark, f"{query}a {op} timestamp_micros({value})")
            assert any(value in row for row in found.rows)
            # The other two files are unknown.
            assert found.skipped == (not any("1700000000000000" in row for row in found.rows))
    assert len(same_rows(spark, f"{query}year(a) > 2100").rows) == 1


def test_conformance_42_numbers_are_not_used_again(spark: SparkSession) -> None:
    make_table(spark, "numbered", "SELECT int(id) AS k, id AS _f FROM range(4)", "k VALUE_LIST")
    assert skips(spark, "SELECT * FROM numbered WHERE k = 3").opened == 1
    spark.sql("DELETE FROM numbered WHERE k < 2")
    append(spark, "numbered", "SELECT int(3) AS k, id AS _f FROM range(2)")
    with settings(spark, {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}):
        spark.sql("VACUUM numbered RETAIN 0 HOURS")
    spark.sql("VACUUM SKIPPING INDEX ON numbered")
    assert len(same_rows(spark, "SELECT * FROM numbered WHERE k = 3").rows) == 3
    spark.sql("REFRESH SKIPPING INDEX ON numbered")
    assert exact(spark, "numbered", "k = 3").opened == 3
    spark.sql("DROP SKIPPING INDEX ON numbered")
    assert same_rows(spark, "SELECT * FROM numbered WHERE k = 3").skipped == 0
    spark.sql("CREATE SKIPPING INDEX ON numbered (k MIN_MAX)")
    assert exact(spark, "numbered", "k = 2").opened == 1


def test_conformance_45_copies_and_replacements(spark: SparkSession, tmp_path: Path) -> None:
    rows = "SELECT int(id) AS k, id AS _f FROM range(4)"
    make_table(spark, "original", rows, "k VALUE_LIST")
    source = Path(str(spark.sql("DESCRIBE DETAIL original").collect()[0]["location"])[5:])
    copy = tmp_path / "copy"
    shutil.copytree(source, copy)
    name = f"delta.`{copy}`"
    assert same_rows(spark, f"SELECT * FROM {name} WHERE k = 2").skipped == 0
    spark.sql(f"INSERT INTO {name} VALUES (2)")
    spark.sql(f"CREATE SKIPPING INDEX ON {name} (k MIN_MAX)")
    assert exact(spark, name, "k = 2").opened == 2
    assert exact(spark, "original", "k = 2").opened == 1
    options = "TBLPROPERTIES ('delta.dataSkippingNumIndexedCols' = '0')"
    spark.sql(f"CREATE OR REPLACE TABLE original USING delta {options} AS SELECT 2 AS k")
    assert len(same_rows(spark, "SELECT * FROM original WHERE k = 2").rows) == 1
    assert skips(spark, "SELECT * FROM original VERSION AS OF 1 WHERE k = 2").opened == 1
    spark.sql("REFRESH SKIPPING INDEX ON original")
    assert same_rows(spark, "SELECT * FROM original WHERE k = 3").opened == 0


@pytest.fixture
def ground(spark: SparkSession) -> Iterator[tuple[str, list[Path]]]:
    rows = "SELECT int(f + 6 * i) AS k, f AS _f FROM range(6) AS r(f), range(5) AS q(i)"
    table = make_table(spark, "ground", rows, "k VALUE_LIST")
    yield table, files_of(spark, table)
    spark.sql(f"DROP TABLE {table}")


def test_what_need_not_be_read_is_not_opened(
    spark: SparkSession, ground: tuple[str, list[Path]]
) -> None:
    """Every other file is garbage: the query answers, and the control without the index fails."""
    table, paths = ground
    query = f"SELECT * FROM {table} WHERE k IN (13, 19)"
    (needed,) = files_of_matches(spark, query)
    with spoiled([path for path in paths if path.name != needed]):
        assert sorted(row.k for row in spark.sql(query).collect()) == [13, 19]
        with settings(spark, {"spark.skipping.enabled": "false"}):
            control: Any = spark.sql(query)
            with pytest.raises((Py4JJavaError, Exception), match=r"(?i)parquet|CANNOT_READ_FILE"):
                control.collect()
    assert compared(spark, query).opened == 1


def files_of_matches(spark: SparkSession, query: str) -> set[str]:
    rows = spark.sql(query).selectExpr("_metadata.file_name AS n").distinct().collect()
    return {row.n for row in rows}
