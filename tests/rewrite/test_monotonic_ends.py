"""Functions that keep order, where types end, numbers wrap around, and clocks are put back.

There it is asked directly which ranges of the column an outcome means: no value that has the
outcome may be outside.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeAlias

import pytest
from pyspark.sql import SparkSession

from rewrite.bridge.classes import Classes
from tests.rewrite.differential import UNCOMPILED, exact_batch, make_table, same_rows, settings

ZONE = "spark.sql.session.timeZone"
ANSI = "spark.sql.ansi.enabled"

Outcomes: TypeAlias = list[tuple[str, str, str]]


def ranges(spark: SparkSession, table: str, asked: Outcomes) -> list[list[list[Any]] | None]:
    """What the encoder makes of (function, operator, constant): the ends of ranges of `c`."""
    texts = [text for function, _, constant in asked for text in (function, f"array({constant})")]
    plan = spark.table(table).selectExpr(*texts)._jdf.queryExecution().optimizedPlan()
    written = plan.projectList()
    jvm, gateway = spark.sparkContext._jvm, spark.sparkContext._gateway
    monotonic = Classes(gateway)._loader.loadClass("rewrite.jvm.predicate.Monotonic")
    of, within = (
        next(m for m in monotonic.getDeclaredMethods() if m.toString().endswith(signature))
        for signature in ("of(org.apache.spark.sql.catalyst.expressions.Expression)",
                          "ranges(java.lang.String,java.lang.Object)")
    )  # fmt: skip
    expression, question = (gateway.new_array(jvm.Object, n) for n in (1, 2))
    for method in (of, within):
        method.setAccessible(True)
    found: list[list[list[Any]] | None] = []
    for n, (_, op, _) in enumerate(asked):
        expression[0] = written.apply(2 * n).child()
        function = of.invoke(None, expression)
        question[0] = op
        # Not by way of Python, which has one kind of integer only.
        constants = written.apply(2 * n + 1).child().value().array()
        jvm.System.arraycopy(constants, 0, question, 1, 1)
        there = None if function is None else within.invoke(function, question)
        found.append(None if there is None else [[one.min(), one.max()] for one in there])
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
    # Put back over midnight; half an hour; a day left out; a day twice; back at 1:00.
    "America/Sao_Paulo": "2018-02-17 23:00:00",
    "Australia/Lord_Howe": "2024-04-07 01:30:00",
    "Pacific/Apia": "2011-12-30 00:00:00",
    "America/Juneau": "1867-10-19 00:00:00",
    "America/Havana": "2023-11-05 00:00:00",
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
