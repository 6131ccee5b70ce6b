"""Paths of variants as indexed expressions: in every format, however Spark reads the paths."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from providers.errors import StatementError
from tests.rewrite.differential import (
    ENABLED,
    FORMATS,
    in_catalog_of,
    make_table,
    same_rows,
    settings,
    skips,
)

PUSHED, ZONE = "spark.sql.variant.pushVariantIntoScan", "spark.sql.session.timeZone"

DOC = """concat('{"user":{"id":"u', id, '","n":', IF(id = 39, '"text"', string(id)), '},"tags":["t',
    id div 10, '"]', IF(id % 7 = 0, '', ',"x":1'), '}')"""
ROWS = f"""
    SELECT id, int(id div 10) AS _f, IF(id = 11, NULL, parse_json({DOC})) AS v FROM range(40)
    UNION ALL SELECT 100, 4, parse_json('[1, 2]') UNION ALL SELECT 101, 4, parse_json('null')
"""
INDEX = """
    variant_get(v, '$.user.id', 'string') VALUE_LIST, v:user.id::string BLOOM_FILTER,
    try_variant_get(v, '$.user.n', 'int') MIN_MAX, variant_get(v, '$.user.n', 'int') VALUE_LIST,
    variant_get(v, '$.tags[0]', 'string') MIN_MAX
"""
EXACT = [
    "variant_get(v, '$.user.id', 'string') = 'u5'",
    "'u25' <=> variant_get(v, '$.user.id', 'string')",
    "variant_get(v, '$.user.id', 'string') IN ('u1', 'u2', 'u31')",
    "variant_get(v, '$.user.id', 'string') LIKE 'u2%'",
    "variant_get(v, '$.user.id', 'string') = 'nobody'",
    "v:user.id::string = 'u17'",
    "try_variant_get(v, '$.user.n', 'int') = 17",
    "try_variant_get(v, '$.user.n', 'int') < 3 OR try_variant_get(v, '$.user.n', 'int') = 33",
    "try_variant_get(v, '$.user.n', 'int') BETWEEN 12 AND 14",
    "variant_get(v, '$.tags[0]', 'string') = 't2'",
]
OTHERS = [  # other paths, types and forms: no index has them
    "try_variant_get(v, '$.user.n', 'bigint') > 5",
    "try_variant_get(v, '$.user.id', 'string') = 'u5'",
    "variant_get(v, '$.x', 'int') = 1",
    "v IS NULL",
    "v:user.id IS NULL",
    "try_variant_get(v, '$.user.n', 'int') IS NULL",
]


@pytest.fixture(scope="module", params=[*FORMATS, "parquet"])
def table(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "parquet":
        made = "spark_catalog.default.plain_variants"
        spark.sql(f"DROP TABLE IF EXISTS {made}")
        spark.sql(f"CREATE TABLE {made} (id BIGINT, v VARIANT) USING parquet")
        for f in range(5):
            rows = spark.sql(f"SELECT id, v FROM ({ROWS}) WHERE _f = {f}").coalesce(1)
            rows.write.insertInto(made)
        spark.sql(f"CREATE SKIPPING INDEX ON {made} ({INDEX})")
    else:
        with in_catalog_of(spark, request.param) as format:
            v3 = {"format-version": "3"} if request.param == "iceberg" else None
            name = f"{format.namespace}.variants"
            made = make_table(spark, name, ROWS, INDEX, properties=v3)
    yield made
    spark.sql(f"DROP SKIPPING INDEX IF EXISTS ON {made}")
    spark.sql(f"DROP TABLE {made}")


def _files(spark: SparkSession, table: str, condition: str) -> int:
    file = "_file" if table.startswith("iceberg") else "_metadata.file_path"
    with settings(spark, {ENABLED: "false"}):
        found = spark.sql(f"SELECT DISTINCT {file} FROM {table} WHERE {condition}")
        return len(found.collect())


def test_exactly_the_needed_files_are_opened(spark: SparkSession, table: str) -> None:
    for condition in EXACT:
        _opens_the_needed(spark, table, condition, pushed="true")


def test_it_is_the_same_where_the_scan_reads_whole_variants(
    spark: SparkSession, table: str
) -> None:
    for condition in (EXACT[0], EXACT[5], EXACT[6]):
        _opens_the_needed(spark, table, condition, pushed="false")


def _opens_the_needed(spark: SparkSession, table: str, condition: str, *, pushed: str) -> None:
    query = f"SELECT id, to_json(v) AS v FROM {table} WHERE {condition}"
    found = skips(spark, query, conf={PUSHED: pushed})
    held = _files(spark, table, condition)
    assert found.opened == held, f"{condition}\n{found.explained}"


def test_other_questions_lose_no_row(spark: SparkSession, table: str) -> None:
    for condition in OTHERS:
        with settings(spark, {"spark.sql.ansi.enabled": "true"}):
            same_rows(spark, f"SELECT id FROM {table} WHERE {condition}")
    with settings(spark, {ZONE: "Asia/Tokyo"}):  # which some casts of variants ask
        same_rows(spark, f"SELECT id FROM {table} WHERE {EXACT[0]}")


def test_a_value_on_which_it_fails_keeps_its_file(spark: SparkSession, table: str) -> None:
    query = f"SELECT id FROM {table} WHERE variant_get(v, '$.user.n', 'int') = 5"
    for enabled in ("true", "false"):
        with (
            settings(spark, {ENABLED: enabled}),
            pytest.raises((PySparkException, Py4JJavaError), match="INVALID_VARIANT_CAST"),
        ):
            spark.sql(query).collect()


def test_the_variant_itself_has_no_index(spark: SparkSession, table: str) -> None:
    with pytest.raises(StatementError, match="is variant, which cannot be indexed"):
        spark.sql(f"ALTER SKIPPING INDEX ON {table} ADD (v VALUE_LIST)")


def test_a_text_in_it_may_be_a_time_of_today(spark: SparkSession, table: str) -> None:
    for expression in ("variant_get(v, '$.x', 'timestamp')", "CAST(v AS TIMESTAMP)"):
        with pytest.raises(StatementError, match="of the day on which it is read"):
            spark.sql(f"ALTER SKIPPING INDEX ON {table} ADD ({expression} MIN_MAX)")
