"""Functions that keep the order of a column: an index of the bare column answers for them.

Of the ends of types, and of times when clocks change, it is asked directly which ranges of the
column an outcome means: no value that has the outcome may be outside.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeAlias

import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import SparkSession

from rewrite.bridge.compiler import Classes
from tests.rewrite.differential import (
    UNCOMPILED,
    exact,
    exact_batch,
    in_catalog_of,
    make_table,
    same_rows,
    settings,
)

ZONE = "spark.sql.session.timeZone"
ANSI = "spark.sql.ansi.enabled"


DAYS = """
    SELECT ts, date(ts) AS d, ts::timestamp_ntz AS n, date(ts) || '-' || id AS s, _f,
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
    "n::date = date'2024-09-09'",
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


def test_exactly_the_files_that_hold_a_match(spark: SparkSession, days: str) -> None:
    exact_batch(spark, days, OF_DAYS)


def test_a_null_in_the_list_of_not_in(spark: SparkSession, days: str) -> None:
    for condition in ("year(ts) NOT IN (2024, NULL)", "substr(s, 1, 4) NOT IN ('2024', NULL)"):
        assert not same_rows(spark, f"SELECT * FROM {days} WHERE {condition}").rows


def test_explain_tells_of_the_column(spark: SparkSession, days: str) -> None:
    shown = str(exact(spark, days, "year(ts) = 2024").explained)
    assert "4  by ts BETWEEN ? AND ?  MIN_MAX" in shown


Outcomes: TypeAlias = list[tuple[str, str, str]]


def ranges(spark: SparkSession, table: str, asked: Outcomes) -> list[list[list[Any]] | None]:
    """What the encoder makes of (function, operator, constant): the ends of ranges of `c`."""
    texts = [text for function, _, constant in asked for text in (function, f"array({constant})")]
    plan = spark.table(table).selectExpr(*texts)._jdf.queryExecution().optimizedPlan()
    written = plan.projectList()
    loader = Classes(spark.sparkContext._gateway)._loader
    monotonic = loader.loadClass("rewrite.jvm.predicate.Monotonic")
    jvm = spark.sparkContext._jvm
    of = next(m for m in monotonic.getDeclaredMethods() if m.getName() == "of")
    arguments = spark.sparkContext._gateway.new_array(jvm.Object, 1)
    found: list[list[list[Any]] | None] = []
    for n, (_, op, _) in enumerate(asked):
        arguments[0] = written.apply(2 * n).child()
        function = of.invoke(None, arguments)
        constants = jvm.java.util.Arrays.asList(written.apply(2 * n + 1).child().value().array())
        there = None if function is None else function.ranges(op, constants)
        found.append(None if there is None else [list(pair) for pair in there])
    return found


def check(spark: SparkSession, table: str, key: str, asked: Outcomes) -> float:
    """No row that matches is outside of the ranges; gives the share of rows inside that match.

    `key` is the column as the number that it is to Spark.
    """
    legs = []
    for (function, op, constant), there in zip(asked, ranges(spark, table, asked), strict=True):
        assert there is not None, (function, op, constant)
        ends = [
            " AND ".join(f"{key} {sign} {end}" for sign, end in zip((">=", "<="), pair, strict=True)
            if end is not None) or "true" for pair in there
        ]  # fmt: skip
        inside = " OR ".join(f"({end})" for end in ends) or "false"
        matches = f"coalesce({function} {op} {constant}, false)"
        legs += [f"count_if({matches} AND NOT ({inside}))", f"count_if({matches})",
                 f"count_if({inside})"]  # fmt: skip
    with settings(spark, UNCOMPILED):
        counts = list(spark.table(table).selectExpr(*legs).head() or ())
    lost = {one: n for one, n in zip(asked, counts[::3], strict=True) if n}
    assert not lost
    return sum(counts[1::3]) / sum(counts[2::3])


def drawn(
    spark: SparkSession, table: str, functions: Sequence[str], draw: random.Random
) -> Outcomes:
    """Each function beside some of its own outcomes, as constants."""
    spelled = {
        "timestamp": "'timestamp_micros(' || unix_micros({f}) || ')'",
        "timestamp_ntz": "'timestamp_ntz\\'' || ({f}) || '\\''",
        "date": "'date\\'' || ({f}) || '\\''",
        "bigint": "string({f}) || 'L'",
    }
    rows = spark.table(table)
    texts = [
        spelled.get(field.dataType.simpleString(), "string({f})").format(f=function)
        for function, field in zip(functions, rows.selectExpr(*functions).schema, strict=True)
    ]
    outcomes = rows.selectExpr(*texts).distinct().collect()
    return [
        (function, op, draw.choice(outcomes)[n])
        for n, function in enumerate(functions)
        for op in ("=", "<", "<=", ">", ">=", "<>")
    ]


ZONES = {
    # Put back over midnight; half an hour; a day left out; a day twice; no changes; back at 1:00.
    "America/Sao_Paulo": "2018-02-17 23:00:00",
    "Australia/Lord_Howe": "2024-04-07 01:30:00",
    "Pacific/Apia": "2011-12-30 00:00:00",
    "America/Juneau": "1867-10-19 00:00:00",
    "Asia/Kolkata": "2024-01-01 00:00:00",
    "America/Havana": "2023-11-05 00:00:00",
    "Europe/Berlin": "2024-03-31 02:00:00",
}
TRUNCATED = [f"date_trunc('{unit}', c)" for unit in ("YEAR", "WEEK", "DAY", "HOUR", "MINUTE")]
CLOCK = ["year(c)", "date(c)", "trunc(c, 'MM')", "last_day(c)", "unix_timestamp(c)", *TRUNCATED]
OF_TIMES = {
    "c": [*CLOCK, "c::timestamp_ntz", "unix_millis(c)", "c::bigint"],
    "c::timestamp_ntz": [*CLOCK, "c::timestamp"],
    "date(c)": [
        *(f for f in CLOCK if f != "date(c)"),
        "date_add(c, 40)",
        "c - 1",
        "datediff(c, date'2020-01-01')",
    ],
}


@pytest.mark.parametrize("zone", ZONES)
def test_clocks_that_are_put_back(spark: SparkSession, zone: str) -> None:
    """Every five minutes of eight days about a change: as moments, as local times, as dates."""
    for type, functions in OF_TIMES.items():
        with settings(spark, {ZONE: "UTC"}):
            spark.sql(
                f"""SELECT {type} AS c FROM (SELECT timestampadd(
                MINUTE, 5 * int(id - 1152), timestamp'{ZONES[zone]}') AS c FROM range(2304))"""
            ).write.mode("overwrite").saveAsTable("clocks")
            whole = "c" if type == "c" else "(c::timestamp)"
            key = "unix_date(c)" if type == "date(c)" else f"unix_micros({whole})"
            keyed = spark.table("clocks").selectExpr("c", f"{key} AS k")
            keyed.write.mode("overwrite").saveAsTable("keyed")
        with settings(spark, {ZONE: zone}):
            asked = drawn(spark, "keyed", functions, random.Random(zone))
            assert check(spark, "keyed", "k", asked) > 0.5, type


WHOLE = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}


@pytest.mark.parametrize("type", WHOLE)
def test_numbers_that_wrap_around(spark: SparkSession, type: str) -> None:
    """Without ANSI, numbers that overflow are other numbers, and may match."""
    end = 2 ** WHOLE[type]
    values = [*range(-end, -end + 40), *range(-45, 45), *range(end - 40, end)]
    with settings(spark, {ANSI: "false"}):
        keys = spark.createDataFrame([(v,) for v in values], "k bigint")
        keys.selectExpr("k", f"{type}(k) AS c").write.mode("overwrite").saveAsTable("wraps")
        three = f"{type}(3)"
        functions = [
            f"c + {three}",
            f"c - {three}",
            f"c * {three}",
            f"c * -{three}",
            "-c",
            f"{three} - c",
            "c DIV 3",
            "c DIV -1",
            f"-(c + {three}) - {three}",
        ]
        asked = drawn(spark, "wraps", functions, random.Random(type))
        asked = [(f, op, f"{'bigint' if 'DIV' in f else type}({v})") for f, op, v in asked if v]
        check(spark, "wraps", "k", asked)


FLOATS = ["'-Infinity'", "-1.7976931348623157E308D", "-1", "-0.5", "-1E-320D", "-0D", "0", "'NaN'",
          "4.9E-324D", "0.1", "1", "7", "1E300D", "1.7976931348623157E308D", "'Infinity'", "NULL",
          "-3.4E38D", "3.4E38D", "1E-40D"]  # fmt: skip


@pytest.mark.parametrize("type", ["double", "float"])
def test_floating_numbers(spark: SparkSession, type: str) -> None:
    listed = ", ".join(f"({type}({value}), {n})" for n, value in enumerate(FLOATS))
    rows = f"SELECT c, _f FROM VALUES {listed} AS (c, _f)"
    table = make_table(spark, "floating", rows, "c MIN_MAX")
    functions = ["c * 1E10D", "c - 1E300D", "c / 3D", "c * 1E-300D", "c * float(7)"]
    constants = ["-0D", "1D", "double('NaN')", "double('Infinity')"]
    exact_batch(spark, table, [
        f"{function} {op} {constant}"
        for function in functions for op in ("=", "<") for constant in constants
    ])  # fmt: skip
    # NaN stays the greatest, so that nothing is known of what turns the rest around.
    for turned in ("c * -2D > 0", "1D - c > 0"):
        found = same_rows(spark, f"SELECT * FROM {table} WHERE {turned}")
        assert found.skipped == 1  # that of nulls
        assert "no index can answer it" in str(found.explained)


def test_what_fails_without_the_index_fails_with_it(spark: SparkSession) -> None:
    rows = "SELECT c, int(id) AS _f FROM VALUES (1, 0), (2, 1), (2147483647, 2) AS (c, id)"
    table = make_table(spark, "overflows", rows, "c MIN_MAX")
    exact_batch(spark, table, ["c < 3 AND c + 1 = 2", "try_add(c, 1) = 2 AND c < 5"])
    for condition in ("c + 1 = 2", "NOT (c + 1 > 2)", "c + 1 IN (2, 7)", "5 - (c + 1) > 2"):
        with pytest.raises(ArithmeticException, match="ARITHMETIC_OVERFLOW"):
            spark.table(table).where(condition).collect()
    found = same_rows(spark, f"SELECT * FROM {table} WHERE try_add(c, 1) = 2")
    assert found.opened == 2  # one of them for the overflow
