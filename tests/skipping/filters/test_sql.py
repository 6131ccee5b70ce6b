"""Conditions as text: the predicate prunes only files in which Spark would find no row."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timezone
from typing import Any

import pytest
from pyspark.sql import SparkSession

from providers import And, Compare, Contains, EndsWith, In, IsNull, Or, StartsWith, Unknown
from providers.errors import DefinitionError, StatementError
from skipping import SkippingIndex, plots
from skipping.filters.sql import as_predicate
from skipping.parser.condition import Strings
from skipping.stores.memory.store import MemoryStore
from skipping.tables import Columns, TableColumn
from tests.rewrite.differential import settings

COLUMNS = Columns(
    TableColumn(name, name, type)
    for name, type in (
        ("id", "bigint"),
        ("s", "string"),
        ("day", "date"),
        ("ts", "timestamp"),
        ("ntz", "timestamp_ntz"),
        ("a.b", "int"),
        ("x.y z", "int"),
    )
)
REST = Unknown("the rest of a pattern of s LIKE")
BAD = "a comparison other than of a column with a constant"


@pytest.mark.parametrize(
    ("text", "predicate"),
    [
        ("id = 5", Compare("id", "=", 5)),
        ("ID <> 5", Compare("id", "!=", 5)),
        ("5 <= id", Compare("id", ">=", 5)),
        ("NOT (5 < id)", Compare("id", "<=", 5)),
        ("(id, s) IN ((5, 'x'))", Or((And((Compare("id", "=", 5), Compare("s", "=", "x"))),))),
        ("NOT (id, s) NOT IN ((5, 'x'))",
         Or((And((Compare("id", "=", 5), Compare("s", "=", "x"))),))),
        ("(id, s) NOT IN ((5, 'x'))", Unknown("NOT IN of tuples")),
        ("NOT (id, s) IN ((5, 'x'))", Unknown("NOT IN of tuples")),
        ("(id, s) IN ((5, 1))",
         Or((And((Compare("id", "=", 5), Compare("s", "=", 1))),))),
        ("(id, s) IN (('5', 'x'))", Unknown("id in tuples with values of several types")),
        ("(id, s) IN ((5, s))", Unknown("s in tuples with values of several types")),
        ("(1, s) IN ((1, 'x'))", Unknown("a tuple with a constant")),
        ("(day, s) IN ((DATE '2024-01-02', 'x'))",
         Or((And((Compare("day", "=", date(2024, 1, 2)), Compare("s", "=", "x"))),))),
        ("id = NULL", Compare("id", "=", None)),
        ("id <=> NULL", IsNull("id")),
        ("NOT id <=> NULL", IsNull("id", negated=True)),
        ("NULL <=> id", IsNull("id")),
        ("NOT id <=> 5", Or((Compare("id", "!=", 5), IsNull("id")))),
        ("s IS NULL", IsNull("s")),
        ("NOT s IS NOT NULL", IsNull("s")),
        ("a.b = 1 AND s = 'x' AND id < 2", And((Compare("a.b", "=", 1), Compare("s", "=", "x"),
                                                Compare("id", "<", 2)))),
        ("NOT (a.b = 1 OR s = 'x')", And((Compare("a.b", "!=", 1), Compare("s", "!=", "x")))),
        ("NOT (a.b = 1 AND NOT s = 'x')", Or((Compare("a.b", "!=", 1), Compare("s", "=", "x")))),
        ("id BETWEEN 2 AND 3", And((Compare("id", ">=", 2), Compare("id", "<=", 3)))),
        ("id NOT BETWEEN 2 AND 3", Or((Compare("id", "<", 2), Compare("id", ">", 3)))),
        ("NOT id NOT BETWEEN 2 AND 3", And((Compare("id", ">=", 2), Compare("id", "<=", 3)))),
        ("s LIKE 'ab%'", StartsWith("s", "ab")),
        ("s NOT LIKE 'ab%'", StartsWith("s", "ab", negated=True)),
        ("s LIKE 'ab'", Compare("s", "=", "ab")),
        ("NOT s LIKE 'ab'", Compare("s", "!=", "ab")),
        ("s LIKE '%ab'", EndsWith("s", "ab")),
        ("s NOT LIKE '%ab'", EndsWith("s", "ab", negated=True)),
        ("s LIKE '%ab%'", Contains("s", "ab")),
        ("NOT s LIKE '%ab%'", Contains("s", "ab", negated=True)),
        ("s LIKE '%a!%b%' ESCAPE '!'", Contains("s", "a%b")),
        ("s LIKE 'a_b%'", And((StartsWith("s", "a"), Contains("s", "b"), REST))),
        ("s LIKE '_ab_c%d'",
         And((Contains("s", "ab"), Contains("s", "c"), EndsWith("s", "d"), REST))),
        ("s LIKE 'a_'", And((StartsWith("s", "a"), REST))),
        ("s LIKE '%%ab'", EndsWith("s", "ab")),
        ("s NOT LIKE 'ab%%%'", StartsWith("s", "ab", negated=True)),
        ("s LIKE '_'", Unknown("s LIKE this pattern")),
        ("s LIKE '%'", StartsWith("s", "")),
        ("s NOT LIKE '%'", StartsWith("s", "", negated=True)),
        (r"s LIKE 'a\\_b%'", StartsWith("s", "a_b")),
        ("s LIKE 'a!%b%' ESCAPE '!'", StartsWith("s", "a%b")),
        ("s NOT LIKE 'a_b%'", Unknown("s NOT LIKE this pattern")),
        ("id = a.b", Unknown(BAD)),
        ("1 = 1", Unknown(BAD)),
        ("NOT 1 = 2", Unknown(BAD)),
        ("1 IN (1, 2)", Unknown("a test of a constant")),
        ("id IN (1, a.b)", Unknown("id IN other columns")),
        ("id BETWEEN a.b AND 3", Unknown("id BETWEEN other columns")),
    ],
)  # fmt: skip
def test_text(text: str, predicate: object) -> None:
    assert as_predicate(text, COLUMNS, zone="UTC") == predicate


@pytest.mark.parametrize(
    "text",
    [
        # Spark casts the text, or the number, which is spelled in more than one way.
        "s = DATE '2024-1-5'", "s >= TIMESTAMP '2024-03-09 12:00'", "s IN (DATE '2024-1-5')",
        "id NOT LIKE '015'", "NOT id LIKE '-0'", "ts NOT LIKE '2024-03-09 12:00:00Z'",
        # A day that begins at one o'clock.
        "day = TIMESTAMP '2018-11-04 01:00:00'", "day >= TIMESTAMP '2018-11-04 03:00:00Z'",
        "day < TIMESTAMP '2024-03-09 25:00:00'",
        # Spark compares a day or a time with no number: 19791 are not the days since 1970.
        "day = 19791", "day > 5.0", "day BETWEEN 1 AND 30000", "day IN ('2024-03-09', 19791)",
        "ts < 1", "ntz >= 1.5", "ts IN (5)", "NOT day = 19791", "day = TRUE", "19791 = day",
        "day <=> 19791",
    ],
)  # fmt: skip
def test_what_depends_on_more_is_not_answered(text: str) -> None:
    assert isinstance(as_predicate(text, COLUMNS, zone="America/Sao_Paulo"), Unknown), text


@pytest.mark.parametrize(
    "text",
    ["2024-01-31 25:00:00", "2024-01-31 23:59:60", "2024-01-31 12:00:00+19:00", "2024-02-30",
     "2024-01-31 12:00:00+18:01", "2024-01-31 12:00:00+01:60", "\u00a02024-01-31",
     "\u0662024-01-31"],
)  # fmt: skip
def test_times_that_are_none_stay_text(text: str) -> None:
    assert as_predicate(f"ts > '{text}'", COLUMNS, zone="UTC") == Compare("ts", ">", text)


def test_times() -> None:
    def read(text: str, zone: str = "UTC") -> object:
        (value,) = as_predicate(f"ts IN ({text})", COLUMNS, zone=zone).values  # type: ignore[union-attr]
        return value

    noon = datetime(2024, 1, 31, 12, tzinfo=timezone.utc)
    assert read("TIMESTAMP '2024-01-31 12:00:00'") == noon
    assert read("TIMESTAMP '2024-01-31 13:30:00+01:30'") == noon
    assert read("TIMESTAMP '2024-01-31 10:30:00-01:30'") == noon
    assert read("TIMESTAMP '2024-01-31 12:00:00.5'") == noon.replace(microsecond=500_000)
    # What clocks show, in a zone that only Java knows.
    found = read("TIMESTAMP_NTZ '2024-01-31 12:00:00+00:00'", "GMT+8")
    assert found == datetime(2024, 1, 31, 12)


def test_lists_keep_their_nulls() -> None:
    assert as_predicate("id NOT IN (1, NULL)", COLUMNS) == In("id", [1, None], negated=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [And(()), Compare("id", "=", 5), Unknown("why")])
def test_predicates_stay_as_they_are(given: Any) -> None:
    assert as_predicate(given, COLUMNS) is given


@pytest.mark.parametrize("given", [None, 5, True, b"id = 5", ["id = 5"], object(), Compare])
def test_anything_else_is_a_type_error(given: object) -> None:
    says = f"a predicate is SQL text such as .*, not {type(given).__name__}$"
    with pytest.raises(TypeError, match=says):
        as_predicate(given, COLUMNS)


def test_wrong_text_points_at_the_word() -> None:
    with pytest.raises(StatementError, match=r"abs is a function.*\n.*\n.*abs\(id\)"):
        as_predicate("abs(id) = 5", COLUMNS)
    with pytest.raises(DefinitionError, match="no column nope: there are id, s, day"):
        as_predicate("nope = 5", COLUMNS)
    with pytest.raises(StatementError, match="the condition ends too early"):
        as_predicate("", COLUMNS)


ESCAPED = "spark.sql.parser.escapedStringLiterals"


def test_strings_that_the_session_reads_otherwise_are_refused(index: SkippingIndex) -> None:
    spark = index.spark
    plain = ("s = 's3' AND ts > '2024-03-01'", r"s = r'\d'", r"s LIKE 'a\_%'", "id = 3")
    texts = (r"s = 'a\\d'", r"s LIKE '\t%'", "s = 'it''s'", r"id = 3 OR s IN ('x', '\u0041')")
    for text in (*plain, *texts):
        index.why(text)
    with settings(spark, {ESCAPED: "true"}):
        for text in plain:
            index.why(text)
        for text in texts:
            says = (
                r"(?s)escapedStringLiterals is true, so Spark does not replace the escapes in.*\^"
            )
            with pytest.raises(StatementError, match=says):
                index.why(text)
        with pytest.raises(StatementError, match="abs is a function"):
            index.why("abs(id) = 3")


QUOTED = {"spark.sql.ansi.doubleQuotedIdentifiers": "TRUE"}


def test_names_in_double_quotes_are_refused(index: SkippingIndex) -> None:
    """There `"s"` is a column; without ANSI, and as r"..." or within other quotes, a string."""
    spark = index.spark
    plain = ("s = 's3'", 's = r"s3"', "s = 'it is \"s\"' OR `s` IS NULL")
    name = 'spark.sql.ansi.doubleQuotedIdentifiers is true, so Spark reads "s" as a name'
    with settings(spark, {**QUOTED, "spark.sql.ansi.enabled": "true"}):
        assert spark.sql("SELECT \"s\" FROM VALUES ('a') AS t(s)").collect()[0][0] == "a"
        assert spark.sql('SELECT r"s" FROM VALUES (1) AS t(s)').collect()[0][0] == "s"
        for text in plain:
            index.why(text)
        for text in ("\"s\" > 'a'", 'id = 3 OR s LIKE "s"'):
            with pytest.raises(StatementError, match=rf"(?s){name}.*\^"):
                index.why(text)
            with pytest.raises(StatementError, match=name):
                SkippingIndex.create(
                    spark, index.table.name, "id MIN_MAX", where=text, store="memory:q"
                )
    with settings(spark, {**QUOTED, "spark.sql.ansi.enabled": "false"}):
        assert spark.sql("SELECT \"s\" FROM VALUES ('a') AS t(s)").collect()[0][0] == "s"
        index.why('s = "s3"')


# How many of eight files are kept, in UTC. A file has three days, the last one nulls besides.
KEPT = {
    "id = 3": 1,
    "id = '3'": 1,
    "id > 3.5 AND id < 5": 1,
    "id <=> 3 OR id = 23": 2,
    "id IN (1, 22, NULL)": 2,
    "id NOT IN (1, NULL)": 0,
    "NOT (id < 21 OR s = 's22')": 1,
    "s LIKE 's1%'": 5,  # 1, and 10 to 19
    "s LIKE 's1'": 1,
    "s = 's5' AND s <> 's5'": 1,
    "s IS NULL": 1,
    "NOT (s IS NOT NULL)": 1,
    "x = 1.5": 1,
    "x BETWEEN 1 AND 1.25": 1,
    "price < 0.75": 1,
    "price = 0.7500": 1,
    "flag <=> NULL": 1,
    "day = '2024-03-09'": 1,
    "day = DATE '2024-03-09'": 1,
    "day = '2024-03-09 23:00:00'": 1,  # text is cast to a date
    "day > TIMESTAMP '2024-03-09 23:00:00'": 5,
    "day < TIMESTAMP_NTZ '2024-03-04 01:00:00'": 2,
    "day IN ('2024-03-02', DATE '2024-03-20')": 2,
    "day BETWEEN '2024-03-02' AND '2024-03-03'": 1,
    "day > 'soon'": 8,
    "ts = '2024-03-09 12:00:00'": 1,
    "ts >= TIMESTAMP '2024-03-24 12:00:00'": 1,
    "ts > '2024-03-10'": 5,
    "ts > DATE '2024-03-10'": 5,
    "ts < '2024-03-02T13:00:00Z'": 1,
    "ts <= TIMESTAMP '2024-03-01 12:00:00+00:00'": 1,
    "ts = TIMESTAMP_NTZ '2024-03-09 12:00:00'": 1,
    "ts IN ('2024-03-09 12:00:00')": 8,
    "ntz < '2024-03-01 13:00:00'": 1,
    "ntz = TIMESTAMP_NTZ '2024-03-09 12:00:00'": 1,
    "ntz < TIMESTAMP '2024-03-01 13:00:00'": 8,
    "ntz > DATE '2024-03-24'": 1,
    "s = DATE '2024-03-24'": 8,
    "day = 19791": 8,  # no day, and in Spark a fault
    "day IN (19791, '2024-03-09')": 8,
    "ts > 5": 8,
    "id = DATE '1970-01-04'": 8,
}
# Where ANSI is as it is by default.
FAILING = {
    *("day > 'soon'", "s = DATE '2024-03-24'"),
    *("day = 19791", "day IN (19791, '2024-03-09')", "ts > 5", "id = DATE '1970-01-04'"),
}
WHEREVER = {"day", "ntz", "id", "s", "x", "price", "flag", "NOT"}


@pytest.fixture(scope="module")
def index(spark: SparkSession) -> Iterator[SkippingIndex]:
    """24 rows in eight files: noon of each day from the first of March on, in UTC."""
    with settings(spark, {"spark.sql.session.timeZone": "UTC"}):
        rows = spark.range(0, 24, 1, 8).selectExpr(
            "id",
            "if(id = 23, NULL, concat('s', id)) AS s",
            "id / 4 AS x",
            "cast(id / 4 AS decimal(10, 2)) AS price",
            "if(id = 23, NULL, id % 2 = 0) AS flag",
            "date'2024-03-01' + cast(id AS int) AS day",
            "timestamp'2024-03-01 12:00:00' + make_dt_interval(cast(id AS int)) AS ts",
            "timestamp_ntz'2024-03-01 12:00:00' + make_dt_interval(cast(id AS int)) AS ntz",
        )
        rows.write.format("delta").option("delta.dataSkippingNumIndexedCols", "0").saveAsTable(
            "conditions"
        )
    columns = ", ".join(
        f"{c} MIN_MAX" for c in ("id", "s", "x", "price", "flag", "day", "ts", "ntz")
    )
    yield SkippingIndex.create(
        spark, "conditions", f"{columns}, s VALUE_LIST", store=MemoryStore("conditions")
    )
    spark.sql("DROP TABLE conditions")


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata", "GMT+8"])
def test_as_spark_finds_them(spark: SparkSession, index: SkippingIndex, zone: str) -> None:
    with settings(spark, {"spark.sql.session.timeZone": zone}):
        asked = [text for text in KEPT if text not in FAILING]
        tests = [f"coalesce(max({text}), false) AS c{i}" for i, text in enumerate(asked)]
        found = spark.table("conditions").selectExpr("*", "_metadata.file_path AS path")
        found.createOrReplaceTempView("found")
        rows = spark.sql(f"SELECT path, {', '.join(tests)} FROM found GROUP BY path").collect()
        holding = {t: {r.path for r in rows if r[f"c{i}"]} for i, t in enumerate(asked)}
        spark.catalog.dropTempView("found")
        kept = {}
        for text in KEPT:
            why = index.why(text).select(["path", "pruned"]).to_pylist()
            left = {row["path"] for row in why if not row["pruned"]}
            kept[text] = len(left)
            assert holding.get(text, set()) <= left, text
    if zone == "UTC":
        assert kept == KEPT
    elif zone != "GMT+8":  # one of Java's own, in which Python knows no time
        assert {t: n for t, n in kept.items() if t.split()[0] in WHEREVER} == {
            t: n for t, n in KEPT.items() if t.split()[0] in WHEREVER
        }
        assert sum(n == 8 for n in kept.values()) == sum(n == 8 for n in KEPT.values())


def test_everything_that_takes_a_predicate_takes_text(index: SkippingIndex) -> None:
    assert index.lookup("id = 3") == index.lookup(Compare("id", "=", 3))
    assert len(index.files("id = 3 OR s = 's23'")) == 1
    assert len(index.files("s IS NULL OR id = 3")) == 2
    assert index.files("id < 30").num_rows == index.files().num_rows == 8
    assert (
        plots.file_map(index, "id", "id = 3").get_title(loc="left").startswith("8 files: 1 to read")
    )
    for ask in (index.lookup, index.why, index.files, lambda p: plots.file_map(index, "id", p)):
        with pytest.raises(TypeError, match="a predicate is SQL text"):
            ask(5)  # type: ignore[arg-type]


def test_two_legs_of_one_name_are_two_columns(index: SkippingIndex) -> None:
    why = index.why("s < 's1' OR s < 's3' AND id > 3")
    assert [n for n in why.column_names[4:] if n.startswith("s <") and "MIN_MAX" in n] == [
        "s < ?  MIN_MAX",
        "s < ?  MIN_MAX (2)",
    ]


@pytest.mark.parametrize(
    ("text", "strings", "message"),
    [
        ('s = "x"', Strings(name=True), "doubleQuotedIdentifiers"),
        (r"s = 'a\tb'", Strings(stand=True), "escapedStringLiterals"),
        (r"s = r'a\tb'", Strings(stand=True, name=True), None),
        (r"""s IN ('x', "a\tb")""", Strings(), None),
    ],
)
def test_as_predicate_refuses_a_string_that_spark_reads_differently(
    text: str, strings: Strings, message: str | None
) -> None:
    if message is None:
        assert as_predicate(text, COLUMNS, strings=strings) == as_predicate(text, COLUMNS)
        return
    with pytest.raises(StatementError, match=message):
        as_predicate(text, COLUMNS, strings=strings)
