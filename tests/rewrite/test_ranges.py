"""RANGES on Delta and Iceberg: files have the ends of the table, and their own place between."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.rewrite.differential import (
    FORMATS,
    exact_batch,
    in_catalog_of,
    make_table,
    skips,
    smoke_on,
)

FILES = 8
COLUMNS = {
    "i": "n",
    "d": "IF(n < 0, double('NaN'), n / 3)",
    "m": "CAST(n / 7 AS DECIMAL(30, 4))",
    "t": "timestamp_micros(n * 3600000001)",
    "s": "concat('https://example.org/', lpad(n + 1, 8, '0'))",
    "b": "CAST(lpad(n + 1, 8, '0') AS BINARY)",
}


@pytest.fixture(scope="module", params=FORMATS)
def holed(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    """File f has -1 and a million, and between them 20 numbers from 1,000 f on, and a null."""
    with in_catalog_of(spark, request.param):
        numbers = "explode(array_union(array(-1L, 1000000L, NULL), sequence(0L, 19L)))"
        rows = spark.range(FILES).selectExpr("int(id) AS _f", f"{numbers} AS k")
        own = "IF(k BETWEEN 0 AND 19, 1000 * _f + k, k)"
        rows = rows.selectExpr("_f", f"{own} AS n")
        rows = rows.selectExpr("_f", *(f"{sql} AS {name}" for name, sql in COLUMNS.items()))
        table = make_table(spark, "holed", rows, ", ".join(f"{name} RANGES(3)" for name in COLUMNS))
        yield table
        spark.sql(f"DROP SKIPPING INDEX ON {table}")
        spark.sql(f"DROP TABLE {table}")


@smoke_on("iceberg", "holed")
def test_exactly_the_needed_files_are_opened(spark: SparkSession, holed: str) -> None:
    conditions = [
        "i = 3007", "i IN (3007, 5000, 5500)", "i BETWEEN 2020 AND 2999", "i > 2019 AND i < 3001",
        "i = 500", "i < -1", "i <=> 4001", "i > 5019 AND i < 1000000", "i IS NULL",
        "d = double('NaN')", "d = 1000 / 3", "d BETWEEN 400 AND 600", "d > 999999", "d IN (0, 700)",
        "m = CAST(3007 / 7 AS DECIMAL(30, 4))", "m BETWEEN 4 AND 140", "m < 0",
        "t = timestamp_micros(3007 * 3600000001)", "date(t) = '1970-06-18'",
        "t BETWEEN '1970-06-18' AND '1970-08-01'",
        "s = 'https://example.org/00003008'", "s LIKE 'https://example.org/000030%'",
        "s LIKE 'https://example.org/000035%'", "s NOT LIKE 'https://example.org/%'",
        "s BETWEEN 'https://example.org/000031' AND 'https://example.org/00004001'",
        "b = CAST('00003008' AS BINARY)", "b > CAST('00005500' AS BINARY) AND "
        "b < CAST('00006500' AS BINARY)", "i = 3007 OR s = 'https://example.org/00001001'",
    ]  # fmt: skip
    exact_batch(spark, holed, conditions)


@smoke_on("iceberg", "holed")
def test_a_join_opens_the_files_of_its_keys(spark: SparkSession, holed: str) -> None:
    keys = "SELECT explode(array(3007L, 500L, 6001L)) AS k, 'x' AS name"
    query = f"SELECT holed.i, name FROM {holed} AS holed JOIN ({keys}) AS dim ON holed.i = dim.k"
    assert skips(spark, query).opened == 2
