"""What WHERE takes, and what it refuses: nothing in it runs."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from providers.errors import StatementError
from skipping.parser import condition
from skipping.parser.condition import (
    Between,
    Both,
    ColumnName,
    Comparison,
    Condition,
    Constant,
    Either,
    Like,
    Membership,
    Negation,
    NullTest,
    TupleMembership,
    parse_condition,
)
from skipping.parser.parse import parse
from skipping.tables.spark_where import spark_condition

A, B = ColumnName(("a",)), ColumnName(("b", "c d"))
ONE = Constant(1)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a = 1", Comparison(A, "=", ONE)),
        ("a == 1", Comparison(A, "=", ONE)),
        ("a <> 1", Comparison(A, "!=", ONE)),
        ("1 <=> b.`c d`", Comparison(ONE, "<=>", B)),
        ("a IS NOT NULL", NullTest(A, True)),
        ("a in (1, NULL, TRUE)", Membership(A, (ONE, Constant(None), Constant(True)), False)),
        (
            "(a, b.`c d`) NOT IN ((1, 1), (2, 1))",
            TupleMembership((A, B), ((ONE, ONE), (Constant(2), ONE)), True),
        ),
        ("(a = 1) AND (a IN (1))", Both((Comparison(A, "=", ONE), Membership(A, (ONE,), False)))),
        ("a NOT LIKE 'x!%%' ESCAPE '!'", Like(A, "x!%%", "!", True)),
        ("a LIKE r'\\d%'", Like(A, "\\d%", "\\", False)),
        ("a BETWEEN -1.50 AND 2e3", Between(A, Constant(Decimal("-1.50")), Constant(2e3), False)),
        ("a > DATE '2024-02-29'", Comparison(A, ">", Constant("2024-02-29", "date"))),
        ("a = X'00ff'", Comparison(A, "=", Constant(b"\0\xff"))),
        ("date >= 'it''s\\t'", Comparison(ColumnName(("date",)), ">=", Constant("it's\t"))),
        (
            "NOT (a = 1 OR a = 1) AND a = 1 -- AND f()",
            Both((Negation(Either((Comparison(A, "=", ONE),) * 2)), Comparison(A, "=", ONE))),
        ),
    ],
)
def test_a_condition(text: str, tree: Condition) -> None:
    assert parse_condition(text) == tree


@pytest.mark.parametrize(
    ("text", "at", "message"),
    [
        ("(a, b) IN ((1, 2), (1, 2, 3))", 20, "this tuple has 3 values, the left side 2"),
        ("(a, b) IN ((1, NULL))", 12, "a tuple of constants cannot contain NULL"),
        ("reflect('java.lang.System', 'exit') IS NULL", 1, "reflect is a function"),
        ("a > 1 OR java_method('x', 'y') = 1", 10, "java_method is a function"),
        ("a = current_user()", 5, "current_user is a function"),
        ("a", 2, "the condition ends too early"),
        ("a = 1 OR", 9, "the condition ends too early"),
        ("a + 1 = 2", 3, "unexpected +"),
        ("a IN (SELECT 1)", 14, "unexpected 1"),
        ("a = (SELECT 1)", 5, "unexpected ("),
        ("EXISTS (SELECT 1)", 1, "EXISTS is a function"),
        ("a = ${env:HOME}", 5, "unexpected $"),
        ("a = :p", 5, "unexpected :"),
        ("a = ?", 5, "unexpected ?"),
        ("a = @@x", 5, "unexpected @"),
        ("a = 1; DROP TABLE t", 6, "unexpected ;"),
        ("a = INTERVAL '1'", 5, "unknown type of constant INTERVAL"),
        ("CAST(a AS INT) = 1", 1, "CAST is a function"),
        ("a::int = 1", 2, "unexpected :"),
        ("a[0] = 1", 2, "unexpected ["),
        ("a = 'x", 5, "this ' is never closed"),
        ("a = X'0'", 6, "X takes pairs of hexadecimal digits"),
        ("a LIKE 'x' ESCAPE 'yz'", 19, "ESCAPE takes one character"),
        ("a=1 OR " * 1_000 + "a=1", 7_001, "more than 1,000 tests"),
        ("NOT " * 51 + "a = 1", 205, "more than 50 levels deep"),
        ("a = '" + "x" * (1 << 13) + "'", 1, "at most 8,192 characters"),
        ("(" * 8_000 + "a = 1", 8_006, "ends too early"),
    ],
)
def test_what_is_refused(text: str, at: int, message: str) -> None:
    with pytest.raises(StatementError) as refused:
        parse_condition(text)
    assert message in str(refused.value)
    assert f"column {at}\n" in str(refused.value)


def test_what_is_refused_is_read_once() -> None:
    """A store may hold many of them, and is looked at every few seconds."""
    texts = [f"a = {n} OR " + "(" * 800 for n in range(30)]
    messages = [_refusal(text) for text in texts]
    misses = condition._read.cache_info().misses
    assert [_refusal(text) for text in texts] == messages
    assert condition._read.cache_info().misses == misses


def _refusal(text: str) -> str:
    with pytest.raises(StatementError) as refused:
        parse_condition(text)
    return str(refused.value)


def test_in_a_statement_the_mark_is_under_the_word() -> None:
    text = "CREATE SKIPPING INDEX ON t (a MIN_MAX)\nWHERE a > 1 AND abs(a) > 2 WITH (build = false)"
    with pytest.raises(StatementError) as refused:
        parse(text)
    *_, line, mark = str(refused.value).splitlines()
    assert line[mark.index("^") :].startswith("abs")
    assert "line 2, column 17" in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "a = 1",
        "2 > a",
        "a <> 1 AND s IS NOT NULL",
        "NOT (a <=> NULL) OR s LIKE 'x%'",
        "s NOT LIKE '%!_y' ESCAPE '!'",
        "s LIKE '%\\_%'",
        "a IN (1, 3, NULL)",
        "a NOT IN (1, 3)",
        "(a, s) IN ((1, 'x_y'), (3, 'it''s \\''))",
        "(a, s) NOT IN ((1, 'x_y'), (3, 'x'))",
        "(a, s) IN ((0, 'x'))",
        "(a, d) IN ((5, DATE '2024-01-06'), (4, DATE '2024-01-05'))",
        "a NOT BETWEEN 1 AND 2",
        "a >= 1.5 AND a < 123456789012345678901234567890",
        "d > DATE '2024-01-02' AND d < '2024-01-05'",
        "t >= TIMESTAMP '2024-01-03 00:00:00'",
        "b = X'02' OR b IS NULL",
        "`odd name`.`x.y` >= 2",
        "s = 'it''s \\'' OR s = '\\u0041'",
        "1 = 0",
    ],
)
def test_it_means_what_spark_reads_in_the_text(spark: SparkSession, text: str) -> None:
    rows = spark.range(6).selectExpr(
        "IF(id = 5, NULL, int(id)) AS a",
        "element_at(array('x', 'x_y', 'z_y', \"it's '\", 'A', NULL), int(id) + 1) AS s",
        "date_add(DATE '2024-01-01', int(id)) AS d",
        "timestamp(date_add(DATE '2024-01-01', int(id))) AS t",
        "unhex(concat('0', id)) AS b",
        "named_struct('x.y', id) AS `odd name`",
    )
    ours = [row.a for row in rows.where(spark_condition(text)).collect()]
    assert ours == [row.a for row in rows.where(text).collect()]


def test_session_settings_do_not_change_what_it_means(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("a\\d",), ("ad",)], "s string")
    spark.conf.set("spark.sql.parser.escapedStringLiterals", "true")
    spark.conf.set("spark.sql.ansi.doubleQuotedIdentifiers", "true")
    try:
        found = rows.where(spark_condition("s = 'a\\\\d' OR s = \"b\"")).collect()
    finally:
        spark.conf.unset("spark.sql.parser.escapedStringLiterals")
        spark.conf.unset("spark.sql.ansi.doubleQuotedIdentifiers")
    assert [row.s for row in found] == ["a\\d"]
