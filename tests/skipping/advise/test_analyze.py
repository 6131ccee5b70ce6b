"""ANALYZE SKIPPING INDEX: its rows, its estimate against a query, its statement pasted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rewrite
from providers.errors import DefinitionError, TableError
from skipping import SkippingIndex
from tests.rewrite.differential import in_catalog_of, make_table, opened, skips

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.nightly,
]

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
    compact = spark.sql(f"ANALYZE SKIPPING INDEX ON {table}")
    answer = spark.sql(f"ANALYZE SKIPPING INDEX ON {table} WITH (details = true, budget = '50%')")
    flint = ["column_name", "column_type", "reason", "skipping_type"]
    assert compact.columns == [*flint, "saved", "index_bytes", "data_share", "ddl"]
    assert answer.columns[:4] == flint
    *columns, total = compact.collect()
    assert {r.ddl for r in columns} == {None}
    assert total.ddl.startswith(f"CREATE SKIPPING INDEX ON default.{table} (")
    assert total.index_bytes == pytest.approx(sum(r.index_bytes or 0 for r in columns), abs=3)
    assert 0 < total.data_share <= 0.1
    assert f"{total.data_share:.1%} of the data (budget 10%)" in total.reason
    assert any(r.skipping_type == "MIN_MAX" and r.saved > 0.5 for r in columns)
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
    assert "if sorted by it, 7 for 1 key" in column.reason
    assert str(advice).endswith("no index is recommended for the table's current layout")
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
    assert "sampled 8" in str(advice)
    assert advice.columns[0].advised is not None
    assert advice.columns[0].advised.kept[0] == pytest.approx(1, abs=0.5)
    assert spark.sql("SHOW SKIPPING INDEXES").collect() == before


# Texts begin alike, longer than what is kept of a bound; each file has a low and a high group.
BOUNDED = f"""SELECT id div 10 AS _f, id, double(id) AS number,
    'https://shop.example.org/articles/' || lpad(id, 6, '0') AS url, 'k' || lpad(id, 6, '0') AS key,
    id div 10 % 10 + id % 2 * 100 AS apart FROM range({FILES * 10})"""


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_what_the_bounds_of_the_table_keep(spark: SparkSession, format: str) -> None:
    bounds = {
        "delta.dataSkippingNumIndexedCols": "32",
        "write.metadata.metrics.default": "truncate(16)",
    }
    with in_catalog_of(spark, format):
        make_table(spark, "bounded", BOUNDED, properties=bounds)
        make_table(spark, "unbounded", BOUNDED)
        try:
            advice = SkippingIndex.analyze(spark, "bounded", budget=1.0)
            found = {column.name: column for column in advice.columns}
            for name in ("id", "number", "key"):
                assert found[name].bounds[0] == 1, name
                assert found[name].advised is None, name
                assert "bounds keep 1 for 1 key and" in found[name].reason
                assert found[name].reason.endswith("and no index type keeps fewer")
            assert set(found["url"].bounds) == {FILES}
            assert {n for n, c in found.items() if c.advised} == {"url", "apart"}
            assert f"of {FILES} files, the table's own bounds {FILES} and" in found["url"].reason
            assert re.search(r"the table's own bounds +([89]|1[0-3]) ", str(advice))
            details = spark.sql("ANALYZE SKIPPING INDEX ON bounded WITH (details = true)")
            row = details.where("column_name = 'apart'")
            assert row.first().bounds_1 == found["apart"].bounds[0]  # type: ignore[union-attr]

            # What it said is what a table without an index opens.
            for name, values in (
                ("id", range(5, FILES * 10, 20)),
                ("key", [f"k{n:06}" for n in range(0, FILES * 10, 20)]),
                ("apart", [*range(10), *range(100, 110)]),
                ("url", [f"https://shop.example.org/articles/{n:06}" for n in (7, 77)]),
            ):
                read = [spark.table("bounded").where(f"{name} = {value!r}") for value in values]
                assert all(df.count() for df in read[:1])
                for df in read:
                    df.collect()
                mean = sum(map(opened, read)) / len(read)
                # One key of `apart` keeps 2 to 20 files; the mean of 48 that are drawn is 0.8 off.
                off = 3 if name == "apart" else 0
                assert mean == pytest.approx(found[name].bounds[0], abs=off), name

            without = SkippingIndex.analyze(spark, "unbounded", columns=["id"]).columns[0]
            assert without.bounds == ()
            assert without.advised is not None
        finally:
            for name in ("bounded", "unbounded"):
                spark.sql(f"DROP TABLE IF EXISTS {name}")


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
    assert by_name["p"].reason == "a partition column: the table itself skips files by it"
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
