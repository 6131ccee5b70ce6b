r"""False skips that shipped elsewhere (`tests/conformance.md`), end to end on Delta.

Where each of the lines 1 to 28 and 39 to 47 is shown:

* here, by number: 1 to 14, 16 to 23, 44, 51, 52; in `test_conformance_tables.py`: 24 to 28, 39 to
  42, 45, 49, 53; in `test_top_rows.py`: 50; in `test_other_writers.py`: 54, 55.
* `tests/providers`: every line on values, nulls and predicates for every kind, without Spark; 15
  (a file with no rows, which Spark does not write) and 16.
* `tests/skipping/indexing/test_parquet_reader.py`: 7, 10, 14, 27, 40 for the reader (INT96, legacy
  calendars, field ids, names in two cases) and writers other than Spark.
* `tests/skipping/stores`: 36, 42 and 43 as far as a store is concerned.
* `tests/rewrite/test_static.py` and `test_commands.py`: 21, 23, 25, 30, 31, 34 in full;
  `test_faults.py`: 36, 37.

Not yet: 14 with a default for existing rows (Delta has none; Iceberg v3); 24 for a path written in
place and 29 (plain Parquet, CSV: no such table yet); position and equality deletes in 25, rollback
and branches in 26, partition evolution in 28 (Iceberg);
32, 33, 46, 47 (keys of joins); 43 for shards and pages (OpenSearch).
"""

from __future__ import annotations

from decimal import Decimal

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from providers.errors import SkippingError
from tests.rewrite.conditions import EVERY_KIND, both, check
from tests.rewrite.differential import (
    append,
    batch,
    exact,
    exact_batch,
    make_table,
    reads_all,
    same_rows,
    settings,
    skips,
)

TEXTS = [
    ["x", "xa", "xzy", "x%y"],
    ["x\U0010ffff", "x\U0010ffffz", "x_", "\U0010ffff"],
    ["y", "X", "w\uffff", "w\U00010000"],
    ["", " ", "a ", "a", "a\x00b", "a\nb"],
    ["'; DROP TABLE t --", '{"a": [1]}', ".*", "back\\slash", 'quo"te', "a%b", "a_b"],
    ["\u00e9", "e\u0301", "ABC", "abc"],
    [None],
]


@pytest.fixture(scope="module")
def texts(spark: SparkSession) -> str:
    rows = [(text, text, f) for f, part in enumerate(TEXTS) for text in part]
    df = spark.createDataFrame(rows, "s string, t string, _f int")
    return make_table(spark, "texts", df, "s VALUE_LIST, t MIN_MAX")


@pytest.fixture(scope="module")
def floats(spark: SparkSession) -> str:
    """nan; nan with values; -0.0; 0.0; infinities; ordinary; null."""
    nan, inf = "double('NaN')", "double('Infinity')"
    parts = [(nan,), (nan, "1D", "2D"), ("-0D",), ("0D",), (inf, f"-{inf}"), ("5D", "7D"),
             ("NULL",), ("0.1D", "double(float('0.1'))")]  # fmt: skip
    values = ", ".join(f"({v}, {f})" for f, part in enumerate(parts) for v in part)
    rows = f"SELECT v AS a, v AS b, float(v) AS c, _f FROM VALUES {values} AS (v, _f)"
    return make_table(spark, "floats", rows, "a VALUE_LIST, b MIN_MAX, c VALUE_LIST, c MIN_MAX")


@pytest.fixture(scope="module")
def nulls(spark: SparkSession) -> str:
    """Files of {1, 3}, {2}, {2, null}, {null}, {5}; `o` is always 1 more than the file's number."""
    rows = """SELECT v AS a, v AS b, _f + 1 AS o, _f FROM
        VALUES (1, 0), (3, 0), (2, 1), (2, 1), (2, 2), (NULL, 2), (NULL, 3), (5, 4) AS (v, _f)"""
    return make_table(spark, "nulls", rows, "a VALUE_LIST, b MIN_MAX, o VALUE_LIST")


def test_conformance_01_and_52_like(spark: SparkSession, texts: str) -> None:
    patterns = ["x%", "x%y", "x_", "", "%", "x\U0010ffff%", "\U0010ffff%", "a%", r"a\%%", r"a\_b",
                "%y", "X%", r"back\\%", "w\uffff%", "w\U00010000%",
                "_", "x_%", "_%", r"a\_%", r"a\%b%", r"%\_b", "a_b", r"\_%"]  # fmt: skip
    conditions = []
    for pattern in patterns:
        for column in ("s", "t"):
            conditions += [f"{column} LIKE r'{pattern}'", f"NOT ({column} LIKE r'{pattern}')"]
    escaped = ["'a/_b' ESCAPE '/'", "'a/%%' ESCAPE '/'", "'x_%' ESCAPE '/'", "'//%' ESCAPE '/'"]
    conditions += [f"{column} LIKE {pattern}" for column in ("s", "t") for pattern in escaped]
    check(spark, texts, conditions)
    assert exact(spark, texts, "s LIKE 'x%'").opened == 2


def test_conformance_02_unequal(spark: SparkSession, nulls: str) -> None:
    assert exact(spark, nulls, "a <> 2").opened == 2
    assert exact(spark, nulls, "b <> 2").opened == 2


def test_conformance_03_not_in_with_nulls(spark: SparkSession, nulls: str) -> None:
    conditions = ["{c} NOT IN (2, 5)", "{c} NOT IN (2, NULL)", "{c} <> 2", "NOT ({c} IN (1))",
                  "{c} NOT IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)",
                  "{c} NOT IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, NULL)"]  # fmt: skip
    check(spark, nulls, [text for each in conditions for text in both(each, ("a", "b"))])
    assert exact(spark, nulls, "a NOT IN (2, 5)").opened == 1


def test_conformance_04_and_12_long_texts(spark: SparkSession) -> None:
    """Past a store's term limit, and with bounds that differ only far behind."""
    rows = """SELECT concat(repeat('p', 100), _f, repeat('q', 20000)) AS s,
        concat(repeat('p', 100), _f) AS t, concat(char(97 + _f), repeat('z', 100)) AS u, _f
        FROM (SELECT int(id) AS _f FROM range(4))"""
    make_table(spark, "long_texts", rows, "s VALUE_LIST, s MIN_MAX, t MIN_MAX, u MIN_MAX")
    check(spark, "long_texts", [
        "s = concat(repeat('p', 100), 2, repeat('q', 20000))", "s > 'p'", "s < 'p'",
        "s IS NULL", "s IS NOT NULL", "t = concat(repeat('p', 100), 3)",
        "t > concat(repeat('p', 100), 2)", "t LIKE concat(repeat('p', 100), '2%')",
        "u >= concat('c', repeat('z', 100))", "u > concat('c', repeat('z', 99))"])  # fmt: skip
    assert exact(spark, "long_texts", "u = concat('c', repeat('z', 100))").opened == 1
    assert exact(spark, "long_texts", "s < 'p'").opened == 0


def test_conformance_05_nan(spark: SparkSession, floats: str) -> None:
    nan = "double('NaN')"
    conditions = [f"{{c}} = {nan}", f"{{c}} >= {nan}", "{c} > 6", f"{{c}} < {nan}",
                  f"{{c}} IN ({nan}, 5D)", f"{{c}} NOT IN ({nan}, 5D)", f"{{c}} <> {nan}",
                  "{c} > double('Infinity')", "isnan({c})"]  # fmt: skip
    check(spark, floats, [each.format(c=column) for each in conditions for column in "abc"])
    assert exact(spark, floats, f"a = {nan}").opened == 2
    assert exact(spark, floats, "b > double('Infinity')").opened == 2


def test_conformance_06_negative_zero(spark: SparkSession, floats: str) -> None:
    many = ", ".join(f"{i}D" for i in range(12))
    for zero in ("0D", "-0D"):
        conditions = [f"{{c}} = {zero}", f"{{c}} <> {zero}", f"{{c}} >= {zero}",
                      f"{{c}} < {zero}", f"{{c}} IN ({zero}, 5D)", f"{{c}} NOT IN ({zero})",
                      f"{{c}} IN ({many})", f"{{c}} NOT IN ({many})"]  # fmt: skip
        check(spark, floats, [each.format(c=column) for each in conditions for column in "abc"])
        assert exact(spark, floats, f"a = {zero}").opened == 2


def test_conformance_07_times(spark: SparkSession) -> None:
    times = ["2024-01-01 00:00:00.123456", "2024-01-01 00:00:00.123457", "2024-03-31 02:30:00",
             "9999-12-31 23:59:59.999999", "0001-01-01 00:00:00", "1582-10-04 12:00:00",
             "1969-12-31 23:59:59.999999", "1900-01-01 00:00:00"]  # fmt: skip
    values = ", ".join(f"('{text}', {f})" for f, text in enumerate(times))
    rows = f"""SELECT timestamp(v) AS ts, CAST(v AS TIMESTAMP_NTZ) AS ntz, date(v) AS d, v, _f
        FROM VALUES {values} AS (v, _f)"""
    # In another zone than it was written in, a time may be of a year that Python does not have.
    shown = "unix_micros(ts), string(ts), string(ntz), string(d), v"
    with settings(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        make_table(spark, "times", rows, "ts VALUE_LIST, ts MIN_MAX, ntz MIN_MAX, d VALUE_LIST")
    for zone in ("America/New_York", "Asia/Tokyo", "UTC"):
        with settings(spark, {"spark.sql.session.timeZone": zone}):
            check(spark, "times", [
                f"{column} {op} {type}'{text[:length]}'"
                for text in times
                for column, type, length in (
                    ("ts", "timestamp", 26), ("ntz", "timestamp_ntz", 26), ("d", "date", 10))
                for op in ("=", "<=", ">")], shown)  # fmt: skip
            batch(spark, "times", ["ts = ntz", "ts = d", "d = '2024-01-01'", "ts > d AND d = v"],
                  shown=shown)  # fmt: skip
    assert exact(spark, "times", "ntz = timestamp_ntz'2024-01-01 00:00:00.123457'").opened == 1


def test_conformance_08_decimals(spark: SparkSession) -> None:
    kept = ["-1.50", "1.50", "99999999.99", "-99999999.99", "0.01", "NULL"]
    rows = f"""SELECT CAST(v AS DECIMAL(10, 2)) AS a, CAST(v AS DECIMAL(10, 2)) AS b,
        CAST(v * 100000000000 AS DECIMAL(30, 5)) AS w, _f
        FROM VALUES {", ".join(f"({v}, {f})" for f, v in enumerate(kept))} AS (v, _f)"""
    make_table(spark, "decimals", rows, "a VALUE_LIST, b MIN_MAX, w VALUE_LIST, w MIN_MAX")
    asked = ["1.5", "1.50", "1.500", "15", "150", "-1.5", "0.010", "99999999.99", "1.5D",
             "123456789012345678901.25BD", "'1.50'"]  # fmt: skip
    check(spark, "decimals", [f"{column} {op} {value}" for value in asked
                              for op in ("=", "<", ">=", "<>") for column in "ab"])  # fmt: skip
    check(spark, "decimals", ["a IN (1.5, 2, 0.01)", "b IN (1.5, 2)", "a NOT IN (1.5, 0.01)",
                              "w = CAST(150000000000 AS DECIMAL(30, 5))", "w = 150000000000",
                              "w < 0", "w > CAST(0.5 AS DECIMAL(30, 5))"])  # fmt: skip
    many = ", ".join(["1.5", *(f"{i}.25" for i in range(300, 312))])
    exact_batch(spark, "decimals", [f"a IN ({many})", f"b IN ({many})", "a IN (1.5, 0.01)"])
    key = Decimal("1.50")
    assert len(skips(spark, lambda s: s.table("decimals").where(F.col("a") == key)).rows) == 1


def test_conformance_09_widths(spark: SparkSession) -> None:
    rows = """SELECT tinyint(id * 60 - 120) AS b, smallint(id * 10000 - 20000) AS s,
        int(id * 1000000000 - 2000000000) AS i, (id - 2) * 4000000000000000000 AS l,
        id AS _f FROM range(5)"""
    make_table(spark, "widths", rows, "b VALUE_LIST, s MIN_MAX, i VALUE_LIST, i MIN_MAX, l MIN_MAX")
    values = ["-120", "60Y", "10000S", "1000000000", "1000000000L", "3000000000",
              "-9223372036854775808", "9223372036854775807", "1e9", "10000.0"]  # fmt: skip
    check(spark, "widths", [f"{column} {op} {value}" for value in values
                            for op in ("=", "<", "<>", "<=>") for column in "bsil"])  # fmt: skip
    check(spark, "widths", ["b = 60", "i IN (1000000000L, 3000000000L)", "s + 1L = 10001"])
    assert exact(spark, "widths", "bigint(b) = 60L").opened == 1


def test_conformance_10_texts(spark: SparkSession, texts: str) -> None:
    df = spark.table(texts)
    every = [text for part in TEXTS for text in part if text is not None]
    spelled = [f"cast(X'{text.encode().hex()}' AS string)" for text in [*every, "A", "b "]]
    check(spark, texts, [f"{column} = {text}" for text in spelled for column in "st"])
    check(spark, texts, [f"t > {text} OR startswith(s, {text})" for text in spelled])
    for text in ("a\x00b", 'quo"te', "\U0010ffff", "a "):
        found = same_rows(spark, lambda _, t=text: df.where(F.col("s") == t))
        assert (found.opened, len(found.rows)) == (1, 1)
    check(spark, texts, ["s COLLATE UTF8_LCASE = 'abc'", "s = 'abc' COLLATE UTF8_LCASE",
                         "s COLLATE UNICODE_CI = 'abc'", "s COLLATE UNICODE = '\u00e9'", "s = 'x'",
                         "rtrim(s) = 'a'", "s = cast(X'61FF' AS string)"])  # fmt: skip


def test_conformance_10_and_11_refused_types(spark: SparkSession) -> None:
    spark.sql("DROP TABLE IF EXISTS refused")
    spark.sql("""CREATE TABLE refused (c CHAR(5), v VARCHAR(5), arr ARRAY<INT>, m MAP<INT, INT>,
        s STRUCT<x: INT>, bin BINARY, ok BOOLEAN, d DATE) USING delta""")
    for column in ("c", "arr", "m", "s", "arr.element", "m.key"):
        for kind in EVERY_KIND:
            if column == "arr" and kind in ("VALUE_LIST", "BLOOM_FILTER"):
                continue  # these keep the elements
            with pytest.raises(SkippingError):
                spark.sql(f"CREATE SKIPPING INDEX ON refused ({column} {kind})")
    spark.sql("ALTER TABLE refused SET TBLPROPERTIES ('delta.dataSkippingNumIndexedCols' = '0')")
    for i in range(3):
        spark.sql(f"""INSERT INTO refused VALUES ('a{i}', 'a{i}', array({i}), map({i}, {i}),
            named_struct('x', {i}), X'FF0{i}', {i} = 1, date'2024-01-0{i + 1}')""")
    spark.sql("CREATE SKIPPING INDEX ON refused (v VALUE_LIST, s.x MIN_MAX, bin VALUE_LIST,"
              " bin MIN_MAX, ok VALUE_LIST, d MIN_MAX)")  # fmt: skip
    exact_batch(spark, "refused", [
        "v = 'a1'", "s.x = 2", "bin = X'FF01'", "bin > X'FF01'", "ok = true", "ok", "NOT ok",
        "ok <=> false", "d = date'2024-01-03'", "d IN ('2024-01-01')"])  # fmt: skip
    for condition in ("c = 'a1'", "c = 'a1 '", "m[1] = 1"):
        same_rows(spark, f"SELECT * FROM refused WHERE {condition}")
    batch(spark, "refused", ["arr = array(1)", "arr[0] = 1", "v = 'a1 '",
                             "s = named_struct('x', 1)"])  # fmt: skip


def test_conformance_11_collated_columns(spark: SparkSession) -> None:
    spark.sql("DROP TABLE IF EXISTS collated")
    # Delta does not take such a table by itself yet.
    with settings(spark, {"spark.databricks.delta.schema.typeCheck.enabled": "false"}):
        spark.sql("CREATE TABLE collated (s STRING COLLATE UTF8_LCASE, k INT) USING delta")
    with pytest.raises(SkippingError, match=r"(?i)collate"):
        spark.sql("CREATE SKIPPING INDEX ON collated (s VALUE_LIST)")


def test_conformance_13_null_counts(spark: SparkSession, nulls: str) -> None:
    for column in ("a", "b"):
        assert exact(spark, nulls, f"{column} IS NULL").opened == 2
        assert exact(spark, nulls, f"{column} IS NOT NULL").opened == 4


def test_conformance_14_an_added_column(spark: SparkSession) -> None:
    make_table(spark, "added", "SELECT int(id) AS k, id AS _f FROM range(3)", "k VALUE_LIST")
    spark.sql("ALTER TABLE added ADD COLUMNS (n INT)")
    append(spark, "added", "SELECT int(id + 10) AS k, int(id) AS n, id AS _f FROM range(3)")
    spark.sql("DROP SKIPPING INDEX ON added")
    spark.sql("CREATE SKIPPING INDEX ON added (k VALUE_LIST, n VALUE_LIST, n MIN_MAX)")
    assert exact(spark, "added", "n IS NULL").opened == 3
    assert exact(spark, "added", "n = 1").opened == 1
    assert exact(spark, "added", "n <=> NULL OR n = 2").opened == 4
    check(spark, "added", ["n <> 1", "NOT (n <=> 1)", "COALESCE(n, 1) = 1 AND k < 11", "k = 1"])


def test_conformance_16_over_the_cap(spark: SparkSession) -> None:
    rows = "SELECT int(id) AS k, IF(id > 16, 0, id % 4) AS _f FROM range(40)"
    make_table(spark, "capped", rows, "k VALUE_LIST(10)")
    check(spark, "capped", [f"k = {key}" for key in range(40)])


def test_conformance_17_and_44_null_safe(spark: SparkSession, nulls: str) -> None:
    conditions = []
    for condition in ("{c} <=> NULL", "NOT ({c} <=> NULL)", "{c} <=> 2", "NOT ({c} <=> 2)",
                      "{c} IS DISTINCT FROM 2", "{c} IS NOT DISTINCT FROM 2", "{c} = NULL",
                      "COALESCE({c}, 0) = 0", "{c} = {c}", "{c} <=> {c}", "nullif({c}, 2) IS NULL",
                      "NOT ({c} = 2 OR {c} IS NULL)", "NOT ({c} = 2 AND o = 2)",
                      "NOT (({c} <=> 2) <=> true)", "NOT ({c} NOT IN (2, NULL))"):  # fmt: skip
        conditions += both(condition, ("a", "b"))
    check(spark, nulls, conditions)


def test_conformance_18_legs_without_an_index(spark: SparkSession, nulls: str) -> None:
    rows = "SELECT int(id) AS k, int(id) AS free, array(id) AS arr, id AS _f FROM range(4)"
    make_table(spark, "legs", rows, "k VALUE_LIST")
    legs = ["free = 2", "abs(free) = 2", "arr = array(2L)", "rand() >= 0", "arr[0] = 2"]
    exact_batch(spark, "legs", [f"k = 2 AND {leg}" for leg in legs])
    assert batch(spark, "legs", [f"k = 2 OR {leg}" for leg in legs]).skipped == 0
    reads_all(spark, "SELECT * FROM legs WHERE k = 2 OR free = 3", "free is not in the index")


def test_conformance_19_negations(spark: SparkSession, nulls: str) -> None:
    conditions = ["NOT ({c} = 2 AND o = 2)", "NOT ({c} = 2 OR o = 2)", "{c} NOT BETWEEN 2 AND 4",
                  "NOT (NOT ({c} = 2))", "NOT (NOT ({c} <> 2 OR abs(o) = 1))",
                  "NOT ({c} > 1 AND abs(o) > 3)", "NOT ({c} > 1 OR abs(o) > 3)",
                  "NOT ({c} < 2 AND NOT ({c} >= 5 OR o = 3))",
                  "NOT (IF({c} = 2, NULL, {c} = 5))"]  # fmt: skip
    check(spark, nulls, [text for each in conditions for text in both(each, ("a", "b"))])


def test_conformance_20_and_51_functions(spark: SparkSession) -> None:
    rows = """SELECT int(id - 3) AS c, timestamp'2024-01-01' + make_interval(0, 0, 0, id) AS ts,
        string(id) AS s, id AS _f FROM range(6)"""
    make_table(spark, "computed", rows, "c VALUE_LIST, c MIN_MAX, ts MIN_MAX, s VALUE_LIST")
    batch(spark, "computed", [
        "abs(c) = 2", "c % 8 = 1", "c % 2 IN (1, -1)", "pmod(c, 3) = 2", "day(ts) = 3",
        "substr(s, 1, 1) = '3'", "cast(s AS int) = 3",
        "c + 1 = 3", "-c = 2", "c * c = 4", "date(ts) > date'2024-01-03'", "upper(s) = '3'",
        "cast(c AS string) = '2'", "cast(c AS boolean)", "cast(c AS double) = 2",
        "cast(c AS tinyint) = 2", "year(ts) = 2024 AND c = 2",
        "date(ts) = '2024-01-03'"])  # fmt: skip
    skips(spark, "SELECT * FROM computed WHERE c % 2 = 0 AND c >= 2")
    joined = "SELECT c FROM computed JOIN VALUES (1), (0) AS d(k) ON c % 2 = k"
    assert len(same_rows(spark, joined).rows) == 4


def test_conformance_21_lists(spark: SparkSession, nulls: str) -> None:
    many = ", ".join(map(str, [5, *range(100, 112)]))
    conditions = [f"{{c}} IN ({many})", f"{{c}} IN ({many}, NULL)", f"{{c}} NOT IN ({many})",
                  f"{{c}} NOT IN ({many}, NULL)", "5 IN ({c})", "{c} IN (5, 5, NULL)",
                  "5 = {c}", "5 <= {c}", "{c} IN (NULL)"]  # fmt: skip
    check(spark, nulls, [text for each in conditions for text in both(each, ("a", "b"))])
    column = F.col("a")
    empty = same_rows(spark, lambda s: s.table(nulls).where(column.isin([])))
    assert empty.rows == []
    assert len(same_rows(spark, lambda s: s.table(nulls).where(~column.isin([]))).rows) == 8


def test_conformance_22_left_alone(spark: SparkSession, nulls: str) -> None:
    two = F.udf(lambda value: value == 2, "boolean")
    same_rows(spark, lambda s: s.table(nulls).where(two("a")))
    skips(spark, lambda s: s.table(nulls).where(two("a") & (F.col("o") == 2)))
    check(spark, nulls, ["a = b AND o = 2", "rand() < 2 AND a = 5", "a < o AND a = 2",
                         "a = (SELECT max(b) FROM nulls) AND o > 1"])  # fmt: skip
    skips(spark, "SELECT * FROM nulls WHERE a IN (SELECT b FROM nulls WHERE o = 2) AND o < 4")


def test_conformance_23_names(spark: SparkSession) -> None:
    rows = """SELECT int(id) AS `a.b`, named_struct('b', int(9 - id)) AS a, int(id) AS Up, id AS _f
        FROM range(4)"""
    make_table(spark, "named", rows, "`a.b` VALUE_LIST, a.b VALUE_LIST, UP MIN_MAX")
    assert exact(spark, "named", "`a.b` = 3").opened == 1
    assert exact(spark, "named", "a.b = 7").opened == 1
    assert exact(spark, "named", "A.B = 3").opened == 0
    for sensitive in ("true", "false"):
        with settings(spark, {"spark.sql.caseSensitive": sensitive}):
            assert exact(spark, "named", "Up = 3 AND `a.b` = 3").opened == 1
