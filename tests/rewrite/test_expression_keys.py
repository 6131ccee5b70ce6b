"""Join keys that an index has as expressions: the keys are asked of it, and files are left out."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.rewrite.differential import (
    Compared,
    exact,
    in_catalog_of,
    make_table,
    same_rows,
    settings,
)

pytestmark = pytest.mark.nightly

ZONE, ANSI = "spark.sql.session.timeZone", "spark.sql.ansi.enabled"

ROWS = """
    SELECT id, concat('User', id, '@X.org') AS email,
           timestamp_seconds(1700000000 + id * 3600) AS ts,
           concat('{"id": "k', id, '"}') AS doc,
           concat('a', id div 10) AS a, concat('b', id % 10) AS b,
           if(id = 0, double('NaN'), if(id = 1, -0.0D, double(id))) AS x,
           if(id % 10 = 9, NULL, concat('Oslo', id)) AS city,
           int(id div 10) AS _f
    FROM range(100)
"""
COLUMNS = """
    lower(email) VALUE_LIST, date_trunc('hour', ts) VALUE_LIST,
    get_json_object(doc, '$.id') VALUE_LIST, a || '-' || b VALUE_LIST,
    x * 2 VALUE_LIST, coalesce(city, 'none') VALUE_LIST, id + 1 VALUE_LIST
"""
HOUR = "date_trunc('hour', timestamp_seconds(1700000000 + {} * 3600))"
JOINED = {
    "lower(f.email) = d.k": ("VALUES ('user17@x.org'), ('USER3@x.org'), (NULL)", 1),
    "date_trunc('hour', f.ts) = d.k": (f"VALUES ({HOUR.format(5)}), ({HOUR.format(95)})", 2),
    "get_json_object(f.doc, '$.id') = d.k": ("VALUES ('k25'), ('k29'), ('k71'), (NULL)", 2),
    "f.a || '-' || f.b = d.k": ("VALUES ('a2-b7'), ('a99-b1'), ('a2-b1')", 1),
    "f.x * 2 = d.k": ("VALUES (double('NaN')), (134D), (-7D)", 2),
    "f.x * 2 = d.k + 0D": ("VALUES (0.0D)", 1),
    "coalesce(f.city, 'none') = d.k": ("VALUES ('Oslo17'), ('Oslo22')", 2),
    "f.id + 1 = d.k": ("VALUES (bigint(12)), (bigint(72))", 2),
    "lower(f.email) BETWEEN d.k AND d.k || '~'": ("VALUES ('user17@')", 1),
}
"""Of each the keys, and how many of the ten files hold one."""

BROADCAST, SHUFFLE = "/*+ BROADCAST(d) */", "/*+ MERGE(d) */"
SHAPES = {
    "inner": "SELECT {hint} f.* FROM {f} f JOIN {d} d ON {on}",
    "semi": "SELECT {hint} f.* FROM {f} f LEFT SEMI JOIN {d} d ON {on}",
    "outer": "SELECT {hint} f.id, d.k FROM {f} f RIGHT JOIN {d} d ON {on}",
}


@pytest.fixture(scope="module", params=["delta", "iceberg"])
def fact(spark: SparkSession, request: pytest.FixtureRequest) -> str:
    with in_catalog_of(spark, request.param) as format:
        return f"{format.namespace}.{make_table(spark, 'keyed', ROWS, COLUMNS)}"


def dimension(spark: SparkSession, rows: str) -> str:
    frame = spark.sql(f"SELECT k, 'x' AS tag FROM {rows} AS (k)").coalesce(1)
    writer = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    writer.saveAsTable("spark_catalog.default.keys_of_expressions")
    return "(SELECT k FROM spark_catalog.default.keys_of_expressions WHERE tag = 'x')"


def opened(found: Compared) -> list[int]:
    """How many files each scan of a table with an index opened."""
    return [s.opened or 0 for s in found.explained.scans if "keys_of_expressions" not in s.table]


@pytest.mark.parametrize("on", JOINED)
def test_exactly_the_files_that_hold_a_key(spark: SparkSession, fact: str, on: str) -> None:
    rows, held = JOINED[on]
    d = dimension(spark, rows)
    others = [("inner", SHUFFLE), ("semi", BROADCAST), ("outer", SHUFFLE)]
    shapes = [("inner", BROADCAST)]
    if "BETWEEN" not in on:
        shapes.append(others[list(JOINED).index(on) % 3])
    for shape, hint in shapes:
        found = same_rows(spark, SHAPES[shape].format(hint=hint, f=fact, d=d, on=on))
        assert found.rows
        assert opened(found) == [held], f"{shape} {hint}\n{found.explained}"


def test_the_key_is_made_below_the_join(spark: SparkSession, fact: str) -> None:
    d = dimension(spark, "VALUES ('a2-b7'), ('user17@x.org')")
    legs = f"SELECT a AS p, b AS q FROM {fact} UNION ALL SELECT b, a FROM {fact}"
    found = same_rows(spark, f"SELECT f.* FROM ({legs}) f JOIN {d} d ON p || '-' || q = d.k")
    assert sorted(opened(found)) == [1, 10], str(found.explained)
    groups = f"SELECT lower(email) AS e, count(*) AS n FROM {fact} GROUP BY lower(email)"
    found = same_rows(spark, f"SELECT f.* FROM ({groups}) f JOIN {d} d ON e = d.k")
    assert opened(found) == [1], str(found.explained)


def test_groups_by_what_the_key_is_made_of(spark: SparkSession, fact: str) -> None:
    d = dimension(spark, "VALUES ('a2-b7'), ('user17@x.org')")
    rows = "SELECT a, b, count(*) AS n FROM {} GROUP BY {}"
    latest = "row_number() OVER (PARTITION BY email ORDER BY a) AS r"
    for below, key, held in (
        (f"SELECT email, count(*) AS n FROM {fact} GROUP BY email", "lower(email)", 1),
        (rows.format(fact, "a, b"), "a || '-' || b", 1),
        (rows.format(fact, "ROLLUP (a, b)"), "a || '-' || b", 10),
        (f"SELECT email, n FROM (SELECT *, 1 AS n, {latest} FROM {fact}) WHERE r = 1",
         "lower(email)", 1),
        (f"SELECT a, max(email) AS email FROM {fact} GROUP BY a", "lower(email)", 10),
        (f"SELECT a, max(b) AS b FROM {fact} GROUP BY a", "a || '-' || b", 10),
        (f"SELECT email COLLATE UTF8_LCASE AS e FROM {fact} GROUP BY 1", "lower(string(e))", 10),
    ):  # fmt: skip
        found = same_rows(spark, f"SELECT f.* FROM ({below}) f JOIN {d} d ON {key} = d.k")
        assert opened(found) == [held], f"{below}\n{found.explained}"


def test_another_session_asks_only_what_means_the_same(spark: SparkSession, fact: str) -> None:
    query = SHAPES["inner"].format(
        hint=BROADCAST, f=fact, d="(SELECT explode(array({})) AS k)", on="{}"
    )
    hour = query.format(HOUR.format(5), "date_trunc('hour', f.ts) = d.k")
    with settings(spark, {ZONE: "Asia/Kolkata"}):  # half an hour off
        assert opened(same_rows(spark, hour)) == [10]
    text = query.format("'user17@x.org'", "lower(f.email) = d.k")
    with settings(spark, {ZONE: "Asia/Kolkata"}):
        assert opened(same_rows(spark, text)) == [1]
    with settings(spark, {"spark.sql.legacy.sizeOfNull": "false"}):
        assert opened(same_rows(spark, text)) == [10]
    with settings(spark, {"spark.sql.adaptive.enabled": "false"}):
        assert opened(same_rows(spark, text)) == [1]


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_row_on_which_the_expression_fails(spark: SparkSession, format: str) -> None:
    with in_catalog_of(spark, format) as of:
        t = make_table(
            spark,
            f"{of.namespace}.keyed_fails",
            "SELECT if(id = 12, 'oops', string(id)) AS s, id, int(id div 5) AS _f FROM range(40)",
            "cast(s as int) VALUE_LIST",
        )
    d = dimension(spark, "VALUES (3), (4)")
    for hint in (BROADCAST, SHUFFLE):
        on = "cast(f.s AS int) = d.k"
        with pytest.raises(PySparkException, match="CAST_INVALID_INPUT"):
            spark.sql(SHAPES["inner"].format(hint=hint, f=t, d=d, on=on)).collect()
        # A file of which it is not known, and the one with keys. The row is gone before the join:
        # nothing evaluates the expression on it.
        kept = f"(SELECT /*+ MERGE(o) */ t.* FROM {t} t JOIN {{}} o ON t.id = o.id)"
        others = kept.format("(SELECT id FROM range(40) WHERE id <> 12)")
        found = same_rows(spark, SHAPES["inner"].format(hint=hint, f=others, d=d, on=on))
        assert opened(found) == [2], f"{hint}\n{found.explained}"


LINES = """
    SELECT int(id) AS k, id AS l, date_add(date'2024-01-01', int(id)) AS day, int(id % 20) AS _f
    FROM range(400)
"""
SPREAD = {
    "f.k + 1 = d.k": "3 + 20 * id + 1",
    "f.l - 7 = d.k": "3 + 20 * id - 7",
    "5 - f.k = d.k": "5 - (3 + 20 * id)",
    "-f.l = d.k": "-(3 + 20 * id)",
    "f.k * 3 + 2 = d.k": "(3 + 20 * id) * 3 + 2",
    "bigint(f.k + 1) = d.k": "bigint(3 + 20 * id + 1)",
    "date_add(f.day, 7) = d.k": "date_add(date'2024-01-01', int(3 + 20 * id + 7))",
    "unix_date(f.day) = d.k": "unix_date(date_add(date'2024-01-01', int(3 + 20 * id)))",
    "datediff(f.day, date'2024-05-05') = d.k": "int(3 + 20 * id - 125)",
}


@pytest.fixture(scope="module", params=["delta", "iceberg"])
def lines(spark: SparkSession, request: pytest.FixtureRequest) -> str:
    kinds = "k VALUE_LIST, l VALUE_LIST, day VALUE_LIST"
    with in_catalog_of(spark, request.param) as format:
        return f"{format.namespace}.{make_table(spark, 'lines', LINES, kinds)}"


@pytest.mark.parametrize("on", SPREAD)
def test_many_keys_of_a_function_that_is_one_to_one(
    spark: SparkSession, lines: str, on: str
) -> None:
    d = dimension(spark, f"(SELECT {SPREAD[on]} FROM range(20))")
    found = same_rows(spark, SHAPES["inner"].format(hint=BROADCAST, f=lines, d=d, on=on))
    assert len(found.rows) == 20
    assert opened(found) == [1], str(found.explained)


def test_neighbours_and_lists_in_conditions(spark: SparkSession, lines: str) -> None:
    listed = ", ".join(str(3 + 20 * n + 1) for n in range(20))
    assert exact(spark, lines, f"k + 1 IN ({listed})").opened == 1
    same_rows(spark, f"SELECT * FROM {lines} WHERE k + 1 NOT IN ({listed})")
    assert exact(spark, lines, "k * 2 IN (6, 7, 8, 10)").opened == 3


def test_numbers_that_overflow_still_fail(spark: SparkSession) -> None:
    t = make_table(
        spark,
        "lines_overflow",
        "SELECT if(id = 399, 2147483647, int(id)) AS k, int(id % 20) AS _f FROM range(400)",
        "k VALUE_LIST",
    )
    d = dimension(spark, "(SELECT int(4 + 20 * id) FROM range(15))")
    query = SHAPES["inner"].format(hint=BROADCAST, f=t, d=d, on="f.k + 1 = d.k")
    with pytest.raises(PySparkException, match="ARITHMETIC_OVERFLOW"):
        spark.sql(query).collect()
    with settings(spark, {ANSI: "false"}):
        assert opened(same_rows(spark, query)) == [2]
        d = dimension(spark, "VALUES (-2147483648)")
        query = SHAPES["inner"].format(hint=BROADCAST, f=t, d=d, on="f.k + 1 = d.k")
        assert len(same_rows(spark, query).rows) == 1


def test_ranges_of_what_stands_for_nulls(spark: SparkSession) -> None:
    t = make_table(
        spark,
        "ranged_nulls",
        "SELECT if(id div 10 = 3, NULL, id) AS n, int(id div 10) AS _f FROM range(100)",
        "n MIN_MAX",
    )
    d = dimension(spark, "VALUES (4)")
    query = f"SELECT f.* FROM {t} f JOIN {d} d ON coalesce(f.n, 5) BETWEEN d.k AND d.k + 2"
    found = same_rows(spark, query)
    assert len(found.rows) == 13
    assert opened(found) == [2], str(found.explained)
