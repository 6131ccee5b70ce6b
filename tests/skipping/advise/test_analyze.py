"""ANALYZE SKIPPING INDEX: its rows, its estimate against a query, its statement pasted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rewrite
from providers.errors import DefinitionError, TableError
from skipping import SkippingIndex
from tests.rewrite.differential import make_table, skips

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

FILES = 20
ROWS = f"""SELECT id div 50 AS _f, id AS clustered, 'k' || (id div 50) % 5 AS `my group`,
    xxhash64(id) AS mixed, named_struct('x', id % 3, 'y.z', cast(id as string)) AS s,
    array(id) AS list, cast(null AS date) AS never FROM range({FILES * 50})"""


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> Iterator[str]:
    name = make_table(spark, "analyzed", ROWS, properties={"delta.columnMapping.mode": "name"})
    yield name
    spark.sql(f"DROP SKIPPING INDEX IF EXISTS ON {name}")
    spark.sql(f"DROP TABLE {name}")


def test_rows_and_the_statement(spark: SparkSession, table: str) -> None:
    answer = spark.sql(f"ANALYZE SKIPPING INDEX ON {table}")
    flint = ["column_name", "column_type", "reason", "skipping_type"]
    assert answer.columns[:4] == flint
    rows = answer.collect()
    assert {(r.files, r.sampled_files) for r in rows if r.skipping_type} == {(FILES, FILES)}
    advised = {r.column_name: r for r in rows if r.advised}
    assert set(advised) == {"clustered", "my group", "mixed", "s.`y.z`"}
    assert advised["clustered"].skipping_type == "MIN_MAX"
    assert advised["clustered"].kept_1 == pytest.approx(1)
    assert advised["clustered"].average_depth == 1
    assert advised["my group"].kept_1 == pytest.approx(4)
    (why,) = [r for r in rows if r.column_name == "list"]
    assert why.skipping_type is None
    assert "array" in why.reason
    (ddl,) = {r.ddl for r in advised.values()}
    assert {r.ddl for r in rows if not r.advised} == {None}

    spark.sql(ddl)
    # The files that it said are the files that are read.
    for condition, column in (("clustered = 77", "clustered"), ("`my group` = 'k3'", "my group")):
        found = skips(spark, f"SELECT * FROM {table} WHERE {condition}")
        assert found.opened == pytest.approx(advised[column].kept_1)


def test_the_sorted_table_reads_what_was_said(spark: SparkSession, table: str) -> None:
    advice = SkippingIndex.analyze(spark, table, columns=["s.x"])
    (column,) = advice.columns
    assert column.name == "s.x"
    assert column.advised is None
    assert advice.ddl is None
    assert "sorted by it 7 for 1 key" in column.reason
    assert str(advice).endswith("no index is worth it as the table lies now")
    rows = (
        spark.table(table)
        .selectExpr("*", "int((row_number() OVER (ORDER BY s.x) - 1) div 50) AS _f")
        .select("s", "_f")
    )
    properties = {"delta.columnMapping.mode": "name"}
    try:
        make_table(spark, "analyzed_sorted", rows, "s.x MIN_MAX", properties=properties)
        found = skips(spark, "SELECT * FROM analyzed_sorted WHERE s.x = 1")
        assert abs(found.opened - column.sorted[0]) <= 1
    finally:
        spark.sql("DROP SKIPPING INDEX IF EXISTS ON analyzed_sorted")
        spark.sql("DROP TABLE IF EXISTS analyzed_sorted")


def test_a_sample_says_so_and_writes_nothing(spark: SparkSession, table: str) -> None:
    before = spark.sql("SHOW SKIPPING INDEXES").collect()
    advice = SkippingIndex.analyze(spark, table, columns=["CLUSTERED"], files=8)
    assert (advice.files, advice.sampled_files) == (FILES, 8)
    assert advice.sampled_bytes < advice.bytes
    assert f"{FILES} files" in str(advice)
    assert "looked at 8" in str(advice)
    assert advice.columns[0].advised is not None
    assert advice.columns[0].advised.kept[0] == pytest.approx(1, abs=0.5)
    assert spark.sql("SHOW SKIPPING INDEXES").collect() == before


def test_plain_files_partitions_and_a_kind_of_somebodys_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "plain"
    spark.range(0, 60, 1, 6).selectExpr("id", "id % 2 AS p").write.partitionBy("p").parquet(
        str(path)
    )
    advice = SkippingIndex.analyze(spark, f"parquet.`{path}`")
    by_name = {column.name: column for column in advice.columns}
    assert by_name["id"].advised is not None
    assert by_name["p"].reason == "a partition column: the table itself skips by it"
    assert (advice.ddl or "").startswith(f"CREATE SKIPPING INDEX ON parquet.`file:{path}` (id ")


def test_nothing_to_look_at(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "empty"
    spark.range(0).write.format("delta").save(str(path))
    advice = SkippingIndex.analyze(spark, f"delta.`{path}`")
    assert (advice.files, advice.ddl) == (0, None)
    assert advice.columns[0].reason == "the table has no files"
    with pytest.raises(DefinitionError, match="no column nope"):
        SkippingIndex.analyze(spark, f"delta.`{path}`", columns=["nope"])
    with pytest.raises(TableError, match="cannot open table nowhere"):
        SkippingIndex.analyze(spark, "nowhere")


def test_explain_and_analyze_do_not_meddle(spark: SparkSession, table: str) -> None:
    df = spark.sql(f"ANALYZE SKIPPING INDEX ON {table}")
    assert str(rewrite.explain(df)).endswith("no file scan")
