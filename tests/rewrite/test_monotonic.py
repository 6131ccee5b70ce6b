"""Functions that keep the order of a column: an index of the bare column answers for them."""

from __future__ import annotations

import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import SparkSession

from tests.rewrite.differential import (
    exact,
    exact_batch,
    in_catalog_of,
    make_table,
    same_rows,
    smoke_on,
)

DAYS = """
    SELECT ts, date(ts) AS d, CAST(ts AS timestamp_ntz) AS n, date(ts) || '-' || id AS s, _f,
        int(k) AS x, CAST(k AS decimal(10, 2)) AS m, double(k) AS f
    FROM (
        SELECT id, _f, _f * 10 + id % 10 AS k, timestampadd(
            MINUTE, 17 * int(id),
            timestampadd(MONTH, _f, timestamp'2023-12-01') + (id % 28) * INTERVAL 1 DAY
        ) AS ts
        FROM (SELECT id, int(id DIV 28) AS _f FROM range(420))
    )
    UNION ALL SELECT NULL, NULL, NULL, NULL, 15, NULL, NULL, NULL"""
"""A file a month from 2023-12 to 2025-02, and one of nulls."""


@pytest.fixture(scope="module", params=["delta", "iceberg"])
def days(spark: SparkSession, request: pytest.FixtureRequest) -> str:
    index = ", ".join(f"{column} MIN_MAX" for column in ("ts", "d", "n", "s", "x", "m", "f"))
    with in_catalog_of(spark, request.param) as format:
        return f"{format.namespace}.{make_table(spark, 'days', DAYS, index)}"


OF_DAYS = [
    "year(ts) = 2024",
    "year(d) <> 2024",
    "extract(YEAR FROM ts) > 2024",
    "date(ts) = date'2024-02-29'",
    "to_date(ts) BETWEEN date'2024-06-20' AND date'2024-07-05'",
    "date_trunc('month', ts) = timestamp'2024-03-01'",
    "date_trunc('MONTH', d) < timestamp'2024-03-01'",
    "trunc(d, 'QUARTER') IN (date'2024-04-01', date'2025-01-01')",
    "trunc(ts, 'YEAR') = date'2023-01-01'",
    "date_add(d, 30) > date'2025-02-28'",
    "d + 1 <= date'2023-12-05'",
    "date_sub(d, 1) = date'2024-08-14'",
    "datediff(date'2025-02-20', d) < 30",
    "datediff(d, date'2024-01-01') BETWEEN 0 AND 20",
    "last_day(d) = date'2024-05-31'",
    "unix_timestamp(ts) >= unix_timestamp(timestamp'2025-01-15')",
    "unix_millis(ts) < 1704067200000",
    "unix_seconds(ts) BETWEEN 1718400000 AND 1718500000",
    "unix_micros(ts) > 1738411200000000",
    "unix_date(d) = 19700",
    "bigint(ts) < 1704067200",
    "CAST(n AS date) = date'2024-09-09'",
    "year(n) = 2025",
    "date_trunc('hour', n) = timestamp_ntz'2024-07-03 00:00:00'",
    "year(d) + 1 = 2026",
    "x + 1 > 145",
    "x - 1 = 20",
    "10 - x > 5",
    "-x >= -3",
    "x * 2 = 24",
    "x * -3 < -440",
    "2 * x + 1 IN (1, 3, 5, 281)",
    "x DIV 10 = 7",
    "x DIV -10 = -7",
    "x / 10 < 0.75",
    "cast(x AS double) = 33.0",
    "m * 1.5 > 200",
    "m + 0.5 < 3",
    "m / 3 = 5",
    "f * 1.1 > 160",
    "f / 2 <= 4.5",
    "f + 0.5 BETWEEN 20 AND 21",
    "substr(s, 1, 7) = '2024-10'",
    "left(s, 7) IN ('2024-10', '2024-12', 'x')",
    "substr(s, 0, 4) <> '2024'",
    "substr(s, 1, 4) > '2024'",
    "substr(s, 1, 4) >= '2025'",
    "substr(s, 1, 7) < '2024-01-02'",
    "substr(s, 1, 7) <= '2024-01'",
    "substr(s, 1, 7) = '2024'",
    "NOT (substr(s, 1, 4) = '2024')",
    "NOT (year(ts) = 2024)",
    "NOT (year(ts) < 2025)",
    "NOT (10 - x > -130)",
    "year(ts) IN (2023, 2025)",
    "year(ts) IN (2025, NULL)",
    "year(ts) = 1999 OR x + 1 = 1",
]


@smoke_on("iceberg", "days")
def test_exactly_the_files_that_hold_a_match(spark: SparkSession, days: str) -> None:
    exact_batch(spark, days, OF_DAYS)


def test_a_null_in_the_list_of_not_in(spark: SparkSession, days: str) -> None:
    for condition in ("year(ts) NOT IN (2024, NULL)", "substr(s, 1, 4) NOT IN ('2024', NULL)"):
        assert not same_rows(spark, f"SELECT * FROM {days} WHERE {condition}").rows


def test_the_beginning_of_bytes_is_unknown_and_nothing_else_is(spark: SparkSession) -> None:
    rows = "SELECT id, CAST('a' || id AS binary) AS b, int(id DIV 5) AS _f FROM range(20)"
    table = make_table(spark, "beginnings", rows, "id MIN_MAX, b MIN_MAX")
    exact_batch(spark, table, [
        "id < 5 AND substr(b, 1, 1) = X'61'",
        "id < 5 AND substr(b, 1, 1) IN (X'61', X'62')",
    ])  # fmt: skip


def test_explain_tells_of_the_column(spark: SparkSession, days: str) -> None:
    shown = str(exact(spark, days, "year(ts) = 2024").explained)
    assert "4  by ts BETWEEN ? AND ?  MIN_MAX" in shown


def test_what_fails_without_the_index_fails_with_it(spark: SparkSession) -> None:
    rows = "SELECT c, int(id) AS _f FROM VALUES (1, 0), (2, 1), (2147483647, 2) AS (c, id)"
    table = make_table(spark, "overflows", rows, "c MIN_MAX")
    exact_batch(spark, table, ["c < 3 AND c + 1 = 2", "try_add(c, 1) = 2 AND c < 5"])
    for condition in ("c + 1 = 2", "NOT (c + 1 > 2)", "c + 1 IN (2, 7)", "5 - (c + 1) > 2"):
        with pytest.raises(ArithmeticException, match="ARITHMETIC_OVERFLOW"):
            spark.table(table).where(condition).collect()
    found = same_rows(spark, f"SELECT * FROM {table} WHERE try_add(c, 1) = 2")
    assert found.opened == 2  # one of them for the overflow


JOINED = {
    "year(f.ts) = d.k": ("VALUES (2023), (2025), (1066)", 4),
    "date_trunc('month', f.ts) = d.k": (
        "VALUES (timestamp'2024-03-01'), (timestamp'2024-05-01')",
        2,
    ),
    "last_day(f.d) = d.k AND f.x = 52": ("VALUES (date'2024-05-31')", 1),
    "f.x + 1 = d.k": ("VALUES (12), (15), (71), (NULL)", 2),
    "year(f.ts) >= d.k": ("VALUES (2025)", 3),
    "year(f.ts) BETWEEN d.k AND d.k + 1": ("VALUES (2025)", 3),
}


@pytest.mark.parametrize("join", ["JOIN", "SEMI JOIN"])
@pytest.mark.parametrize("on", JOINED)
def test_keys_of_joins(spark: SparkSession, days: str, on: str, join: str) -> None:
    keys, held = JOINED[on]
    dimension = spark.sql(f"SELECT k, 'x' AS tag FROM {keys} AS (k)").coalesce(1)
    writer = dimension.write.mode("overwrite").option("overwriteSchema", "true")
    writer.saveAsTable("spark_catalog.default.keys_of_days")
    tagged = "(SELECT k FROM spark_catalog.default.keys_of_days WHERE tag = 'x')"
    query = f"SELECT /*+ BROADCAST(d) */ f.* FROM {days} f {join} {tagged} d ON {on}"
    found = same_rows(spark, query)
    assert found.opened == held + 1, str(found.explained)
