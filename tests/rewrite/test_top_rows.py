"""`ORDER BY column LIMIT n`, `min(column)` and `max(column)` open only the files that can hold one
of the first rows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import hypothesis
import pytest
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import rewrite
from tests.rewrite.differential import (
    FORMATS,
    append,
    in_catalog_of,
    make_table,
    matching,
    opened,
    same_rows,
    settings,
)
from tests.rewrite.star import BOUNDS, SORTED, Star
from tests.rewrite.star import SORTED_FILES as FILES

PLAIN = {"spark.sql.adaptive.enabled": "false"}
BOTH = pytest.mark.parametrize(
    "conf",
    [pytest.param({}, id="adaptive"), pytest.param(PLAIN, id="plain", marks=pytest.mark.nightly)],
)


@pytest.fixture(scope="module", params=FORMATS)
def format(star: Star, request: pytest.FixtureRequest) -> Iterator[str]:
    """A session whose tables are the star's of a format: `sorted` is in order of each column."""
    with star.of(request.param, "sorted"):
        yield request.param


ORDERS = {
    "i LIMIT 10": 1,
    "i LIMIT 11": 2,
    "i DESC LIMIT 3": 1,
    "i DESC LIMIT 3 OFFSET 8": 2,
    "i LIMIT 1000": FILES,
    "s DESC LIMIT 5": 1,
    "ts LIMIT 10": 2,  # Delta keeps times to the millisecond
    "t, id DESC LIMIT 3": 5,  # rows that are alike are in five files
    "n LIMIT 7": 2,  # nulls are first
    "n DESC LIMIT 7": 1,
    "n NULLS LAST LIMIT 7": 1,
    "n DESC NULLS FIRST LIMIT 7": 2,
    "d LIMIT 3": FILES,  # NaN is in no bounds
    "i + 1 LIMIT 3": FILES,
}


@BOTH
@pytest.mark.parametrize("order", ORDERS)
def test_the_first_rows(spark: SparkSession, format: str, order: str, conf: dict[str, str]) -> None:
    found = same_rows(spark, f"SELECT * FROM sorted ORDER BY {order}", conf=conf)
    assert found.opened <= ORDERS[order], str(found.explained)
    if ORDERS[order] < FILES:
        assert "STATISTICS" in str(found.explained)


def test_columns_that_are_computed_and_chosen(spark: SparkSession, format: str) -> None:
    query = "SELECT upper(s) AS u, i FROM sorted WHERE i IS NOT NULL ORDER BY i DESC LIMIT 4"
    assert same_rows(spark, query).opened == 1
    assert same_rows(spark, "SELECT n FROM sorted ORDER BY n LIMIT 4").opened <= 2
    nulls = "SELECT id FROM sorted WHERE n IS NOT NULL ORDER BY n, id LIMIT 4"
    assert same_rows(spark, nulls).opened == 1


CONDITIONS = {
    "i >= 55 ORDER BY i LIMIT 5": 2,  # how many rows are left of the first file is not known
    "i > 59 AND i < 1000 ORDER BY i LIMIT 10": 1,
    "150 > i ORDER BY i DESC LIMIT 10": 1,
    "i <= 150 ORDER BY i DESC LIMIT 10": 2,
    "i >= 50 AND i <= 99 ORDER BY i DESC LIMIT 3": 1,
    "t = 2 ORDER BY i LIMIT 10": 1,
    "t = 2 ORDER BY i LIMIT 11": 2,
    "t <> 2 ORDER BY i LIMIT 10": FILES - 5,
    "s >= 's0100' ORDER BY i LIMIT 3": 1,
    "n >= 0 ORDER BY i DESC LIMIT 3": 1,
    "n >= 0 AND i >= 100 ORDER BY i LIMIT 9": 2,  # the first file has nulls
    "n >= 100 ORDER BY n LIMIT 5": 1,
    "n >= 100 ORDER BY n LIMIT 6": 2,
    "n IS NOT NULL AND i >= 100 ORDER BY i LIMIT 4": 2,
    "n > 100 ORDER BY n DESC NULLS FIRST LIMIT 4": 1,
    "d >= 14.2 ORDER BY i LIMIT 3": 10,  # NaN would be there, and is in no bounds
    "i IN (100, 105, 111) ORDER BY i LIMIT 2": 2,
    "id % 3 = 0 ORDER BY i LIMIT 2": FILES,
}


@BOTH
@pytest.mark.parametrize("query", CONDITIONS)
def test_the_first_rows_of_those_that_are_left(
    spark: SparkSession, format: str, query: str, conf: dict[str, str]
) -> None:
    """Files count whose bounds say that all their rows are left."""
    found = same_rows(spark, f"SELECT * FROM sorted WHERE {query}", conf=conf)
    assert found.opened <= CONDITIONS[query], str(found.explained)


LIMITS = {
    "i >= 55 LIMIT 5": 1,
    "i >= 55 LIMIT 10": 1,
    "i >= 55 LIMIT 11": 2,
    "i >= 55 LIMIT 3 OFFSET 9": 2,
    "i BETWEEN 55 AND 74 LIMIT 10": 1,
    "i BETWEEN 55 AND 74 LIMIT 11": 3,  # one file is whole, two are not
    "t = 2 AND i > 3 LIMIT 20": 2,
    "n IS NOT NULL LIMIT 190": 19,
    "n >= 100 LIMIT 10": 1,
    "s >= 's0100' LIMIT 3": 1,
    "i >= 1000 LIMIT 3": FILES,
    "d >= 14.2 LIMIT 3": FILES,
    "i % 2 = 0 AND i >= 0 LIMIT 3": FILES,
    "i >= 0 ORDER BY d LIMIT 3": FILES,
}


def some_rows(spark: SparkSession, query: str, *, conf: dict[str, str] | None = None) -> int:
    """How many files an answer is from, of which any so many rows of all are right."""
    with settings(spark, conf or {}):
        with settings(spark, {"spark.skipping.enabled": "false"}):
            count = spark.sql(query).count()
            all_rows = set(spark.sql(re.sub("LIMIT.*", "", query)).collect())
        df = spark.sql(query)
        rows = df.collect()
        assert len(rows) == len(set(rows)) == count, str(rewrite.explain(df))
        assert set(rows) <= all_rows, str(rewrite.explain(df))
        return opened(df)


@pytest.mark.parametrize("query", LIMITS)
def test_some_rows(spark: SparkSession, format: str, query: str) -> None:
    conf = PLAIN if len(query) % 3 == 0 else {}
    assert some_rows(spark, f"SELECT * FROM sorted WHERE {query}", conf=conf) <= LIMITS[query]


def test_a_look_at_some_rows(spark: SparkSession, format: str) -> None:
    df = spark.table("sorted").where("i > 101")
    shown = rewrite.explain(df.limit(3))
    assert "LIMIT ?  STATISTICS" in str(shown), str(shown)
    assert [row.i > 101 for row in df.head(3)] == [True] * 3


NESTED = [
    "SELECT * FROM (SELECT * FROM sorted ORDER BY d DESC LIMIT 10) ORDER BY i LIMIT 5",
    "SELECT * FROM (SELECT * FROM sorted ORDER BY i + 0 DESC LIMIT 10) ORDER BY i LIMIT 5",
    "SELECT * FROM (SELECT * FROM sorted ORDER BY i DESC LIMIT 10) ORDER BY i LIMIT 5",
    "SELECT * FROM (SELECT * FROM sorted WHERE i >= 3 ORDER BY d DESC LIMIT 10) WHERE t >= 0"
    " ORDER BY i LIMIT 5",
]


@pytest.mark.parametrize("query", NESTED)
def test_a_limit_below_a_limit(spark: SparkSession, format: str, query: str) -> None:
    same_rows(spark, query)
    some = re.sub(r"ORDER BY i LIMIT 5$", "LIMIT 5", query)
    within = spark.sql(re.sub(r"LIMIT 5$", "", some))
    with settings(spark, {"spark.skipping.enabled": "false"}):
        expected = set(within.collect())
    assert set(spark.sql(some).collect()) <= expected


def test_some_rows_that_are_read_twice(spark: SparkSession, format: str) -> None:
    """MERGE reads its source twice, and counts on the same rows."""
    spark.sql("CREATE OR REPLACE TEMP VIEW some AS SELECT id FROM sorted WHERE i > 5 LIMIT 15")
    df = spark.sql("SELECT count(*), sum(id) FROM some")
    df.collect()
    assert "LIMIT" not in str(rewrite.explain(df))
    same_rows(spark, "SELECT a.id FROM some a JOIN some b ON a.id = b.id")


EXTREMES = {
    "min(i) FROM sorted WHERE i >= 55": 2,  # no row of the first file is sure to match
    "min(i) AS x FROM sorted WHERE i >= 60 HAVING x > 3": 1,
    "max(i) FROM sorted WHERE i >= 55": 1,
    "max(i) - 1 FROM sorted WHERE 150 > i": 1,
    "min(DISTINCT i) FROM sorted WHERE i >= 55": 2,
    "min(i), max(i) FROM sorted WHERE i >= 55": 3,
    "min(i), max(n), max(s) FROM sorted WHERE i >= 60 AND i < 150": 2,
    "max(n) FROM sorted WHERE i >= 100 AND i <= 119": 1,
    "min(n) FROM sorted WHERE i >= 100 AND i <= 119": 1,  # half of the rows have a value
    "min(n) FROM sorted WHERE n IS NOT NULL AND i >= 100": 1,
    "min(i) FROM sorted WHERE n IS NOT NULL AND i >= 100": 2,
    "min(n) FROM sorted WHERE i >= 103 AND i <= 107": 1,  # it is null
    "max(i) FROM sorted WHERE i > 1000": 0,  # so is this
    "min(t), max(t) FROM sorted WHERE i >= 50": 2,  # one of five files with the value
    "min(s) FROM sorted WHERE i >= 55": 2,
    "max(s) FROM sorted WHERE i >= 55": 1,
    "max(ts) FROM sorted WHERE i >= 55": 2,  # Delta keeps times to the millisecond
    "max(ntz), min(day) FROM sorted WHERE i >= 60": 4,
    "max(e) FROM sorted WHERE i >= 55": 3,  # Iceberg's writers round to whole numbers
    "min(i) FROM (SELECT i FROM sorted WHERE i < 150 ORDER BY i DESC LIMIT 3)": 1,
    "id FROM sorted WHERE i = (SELECT max(i) FROM sorted WHERE i < 150)": 2,
    "(SELECT min(i) FROM sorted WHERE i > 59), (SELECT max(i) FROM sorted WHERE i > 59)": 4,
    "max(f.i) FROM sorted f LEFT JOIN tens d ON f.p = d.p AND f.i > d.i WHERE f.i >= 60": 1,
    "min(d), max(d) FROM sorted WHERE i >= 60": 14,  # NaN is in no bounds
    "min(i + 1) FROM sorted WHERE i >= 60": 14,
    "min(i), count(*) FROM sorted WHERE i >= 60": 14,
    "min(i), sum(t) FROM sorted WHERE i >= 60": 14,
    "min(i), count(DISTINCT t) FROM sorted WHERE i >= 60": 14,
    "min(i) FILTER (WHERE t = 3) FROM sorted WHERE i >= 60": 14,
    "t, min(i) FROM sorted WHERE i >= 60 GROUP BY t": 14,
    "min(i) OVER () FROM sorted WHERE i >= 60": 14,
    "min(i) FROM sorted WHERE i % 2 = 1": FILES,
    "min(i) FROM sorted WHERE i >= 60 AND id % 7 = 3": 14,
    "min(f.i) FROM sorted f JOIN tens d ON f.p <> d.p WHERE f.i >= 60": 14,
    "max(i) FROM (SELECT i FROM sorted WHERE i >= 60 UNION ALL SELECT id FROM range(2))": 14,
    "min(i) FROM (SELECT int(i % 7) AS i FROM sorted WHERE i >= 60)": 14,
    "min(i), max(i) FROM sorted": 0,  # the formats have it in their metadata
}


@pytest.fixture
def tens(spark: SparkSession) -> None:
    tens = spark.range(0, 200, 20).selectExpr("int(id div 10) AS p", "int(id) AS i")
    tens.createOrReplaceTempView("tens")


@pytest.mark.parametrize("query", EXTREMES)
def test_the_min_and_the_max(spark: SparkSession, format: str, tens: None, query: str) -> None:
    conf = PLAIN if len(query) % 3 == 0 else {}
    found = same_rows(spark, f"SELECT {query}", conf=conf)
    assert found.opened <= EXTREMES[query], str(found.explained)


@pytest.mark.parametrize("conf", [{}, PLAIN], ids=["adaptive", "plain"])
def test_a_max_that_is_used_twice_is_read_once(
    spark: SparkSession, format: str, conf: dict[str, str]
) -> None:
    last = "(SELECT max(i) FROM sorted WHERE i < 150 AND t >= 0)"
    query = f"SELECT id FROM sorted WHERE i = {last} OR i = {last} - 100"
    found = same_rows(spark, query, conf=conf)
    assert found.rows == ["Row(id=149)", "Row(id=49)"]
    assert str(found.explained).count("max(i)  STATISTICS") == 1
    assert found.opened <= FILES + 1


@pytest.mark.skipif("iceberg" not in FORMATS, reason="Iceberg has no release for this Spark")
def test_the_max_of_metadata(spark: SparkSession, star: Star) -> None:
    """No bound is known of it, and the condition prunes as without it."""
    with star.of("iceberg", "sorted"):
        found = same_rows(spark, "SELECT max(_pos), max(i) FROM sorted WHERE i IN (7, 8)")
    assert found.opened == 1, str(found.explained)


def test_explain_names_the_min_and_the_max(spark: SparkSession, format: str) -> None:
    df = spark.sql("SELECT max(i), min(n) FROM sorted WHERE i >= 60")
    assert "max(i), min(n)  STATISTICS" in str(rewrite.explain(df))
    df.collect()
    assert "max(i), min(n)  STATISTICS" in str(rewrite.explain(df))


FIRST = {
    "SELECT * FROM (SELECT * FROM sorted ORDER BY i LIMIT 12) WHERE t = 0 AND i > 5": 2,
    "SELECT * FROM (SELECT * FROM sorted ORDER BY i LIMIT 12) WHERE i = 150": 2,
    "SELECT * FROM (SELECT * FROM sorted WHERE i >= 60 ORDER BY i LIMIT 12) f"
    " JOIN tens d ON f.p = d.p": 2,
    "SELECT * FROM (SELECT * FROM sorted ORDER BY i DESC LIMIT 12) f"
    " LEFT JOIN tens d ON f.p = d.p": 2,
    "SELECT * FROM (SELECT * FROM sorted ORDER BY i DESC LIMIT 12)"
    " WHERE p IN (SELECT p FROM tens)": 2,
    "SELECT * FROM (SELECT * FROM sorted ORDER BY i DESC LIMIT 12) f ANTI JOIN tens d"
    " ON f.p = d.p": 2,
    "SELECT * FROM tens t JOIN (SELECT * FROM sorted ORDER BY d, id LIMIT 12) f ON f.p = t.p":
        FILES,
}  # fmt: skip


@pytest.mark.parametrize("query", FIRST)
def test_the_first_rows_below_joins_and_filters(
    spark: SparkSession, format: str, tens: None, query: str
) -> None:
    """They are those of the whole table, not of the rows that the join or the filter leaves."""
    conf = PLAIN if len(query) % 3 == 0 else {}
    found = same_rows(spark, query, conf=conf)
    assert found.opened <= FIRST[query], str(found.explained)


JOINS = {
    "SELECT * FROM sorted f LEFT JOIN tens d ON f.p = d.p ORDER BY f.i LIMIT 10": 1,
    "SELECT * FROM tens d RIGHT JOIN sorted f ON f.p = d.p ORDER BY f.i DESC LIMIT 11": 2,
    "SELECT *, EXISTS (SELECT * FROM tens d WHERE d.p = f.p) AS e FROM sorted f"
    " ORDER BY i LIMIT 4": 1,
    "SELECT * FROM sorted f LEFT JOIN tens d ON f.p = d.p WHERE f.i > 59 ORDER BY f.i LIMIT 10": 1,
    # Partners double rows, or order them.
    "SELECT * FROM sorted f LEFT JOIN (SELECT * FROM tens UNION ALL SELECT * FROM tens) d"
    " ON f.p = d.p ORDER BY f.i LIMIT 10": 1,
    "SELECT * FROM sorted f LEFT JOIN tens d ON f.p = d.p ORDER BY d.i, f.i LIMIT 10": FILES,
    "SELECT * FROM sorted f LEFT JOIN tens d ON f.p = d.p WHERE d.i IS NULL ORDER BY f.i LIMIT 3":
        FILES,
    "SELECT * FROM sorted f JOIN tens d ON f.p <> d.p ORDER BY f.i LIMIT 3": FILES,
    "SELECT * FROM sorted f LEFT ANTI JOIN tens d ON f.p = d.p ORDER BY f.i LIMIT 3": FILES,
}  # fmt: skip


@pytest.mark.parametrize("query", JOINS)
def test_the_first_rows_above_joins(
    spark: SparkSession, format: str, tens: None, query: str
) -> None:
    """Where a join keeps all rows of the side that is ordered."""
    conf = PLAIN if len(query) % 3 == 0 else {}
    with settings(spark, conf):
        with settings(spark, {"spark.skipping.enabled": "false"}):
            expected = spark.sql(query).collect()
        df = spark.sql(query)
        assert sorted(map(repr, df.collect())) == sorted(map(repr, expected))
        found = [s for s in rewrite.explain(df).scans if "sorted" in s.table]
        assert (found[0].opened if found else FILES) <= JOINS[query], str(rewrite.explain(df))


TABLES = st.sampled_from(["sorted", "thinned"])
SIZES = st.integers(1, 30)


@st.composite
def filters(draw: st.DrawFn) -> list[str]:
    number = st.integers(-5, 10 * FILES + 5)
    values = {
        "i": "{}",
        "n": "{}",
        "t": "{} div 50",
        "p": "{} div 10",
        "d": "{}",
        "s": "concat('s', {})",
    }
    conditions = []
    for _ in range(draw(st.integers(0, 3))):
        column = draw(st.sampled_from(sorted(values)))
        op = draw(
            st.sampled_from(["<", "<=", ">", ">=", "=", "<>", "<=>", "IS NOT NULL", "IS NULL"])
        )
        value = "" if op.startswith("IS") else values[column].format(draw(number))
        turned = draw(st.booleans()) and op in ("<", "<=", ">", ">=")
        conditions.append(f"{value} {op} {column}" if turned else f"{column} {op} {value}")
    return conditions


@st.composite
def extremes(draw: st.DrawFn) -> str:
    table = draw(TABLES)
    conditions = draw(filters())
    columns = ["i", "n", "n", "t", "p", "s", "ts", "ntz", "day", "e", "odd", "d"]
    if table == "thinned":
        columns.append("late")
        if draw(st.booleans()):
            late = st.sampled_from(["late > 2", "late IS NOT NULL", "late <> 0"])
            conditions.append(draw(late))
    function = st.tuples(st.sampled_from(["min", "max"]), st.sampled_from(columns))
    functions = draw(st.lists(function, min_size=1, max_size=3))
    values = ", ".join(f"string({name}({column}))" for name, column in functions)
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT array({values}) FROM {table} {where}"


def together(queries: list[str]) -> str:
    return " UNION ALL ".join(f"SELECT {n}, ({query})" for n, query in enumerate(queries))


@st.composite
def orders(draw: st.DrawFn) -> str:
    conditions = draw(filters())
    if conditions and draw(st.integers(0, 4)) == 0:
        return f"SELECT * FROM {draw(TABLES)} WHERE {' AND '.join(conditions)} LIMIT {draw(SIZES)}"
    by = draw(st.sampled_from(["i", "n", "n", "t", "p", "s", "ts"]))
    way = draw(st.sampled_from(["", "DESC", "NULLS LAST", "DESC NULLS FIRST"]))
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    limit, offset = draw(SIZES), draw(st.sampled_from([0, 0, 7]))
    order = f"ORDER BY {by} {way}, id LIMIT {limit} OFFSET {offset}"
    return f"SELECT * FROM {draw(TABLES)} {where} {order}"


RANDOM = {
    "orders": (40, orders()),
    "extremes": (8, st.lists(extremes(), min_size=8, max_size=8).map(together)),
}


@pytest.mark.parametrize("what", RANDOM)
def test_random_orders(spark: SparkSession, format: str, what: str) -> None:
    share, queries = RANDOM[what]
    deletes = {"delta.enableDeletionVectors": "true", "write.delete.mode": "merge-on-read"}
    make_table(spark, "thinned", SORTED, properties={**BOUNDS, **deletes})
    spark.sql("DELETE FROM thinned WHERE i < 10 AND i <> 4 OR i % 7 = 5 OR n IS NULL AND id > 104")
    spark.sql("ALTER TABLE thinned ADD COLUMNS (late INT)")
    late = spark.sql(SORTED).where("i BETWEEN 90 AND 119").drop("_f")
    late.withColumn("late", F.expr("int(i % 5)")).coalesce(1).write.insertInto("thinned")
    files = opened = 0

    @hypothesis.settings(
        max_examples=int(os.environ.get("SKIPPING_TEST_QUERIES", "40")) * share // 40,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(queries)
    def drawn(query: str) -> None:
        nonlocal files, opened
        if "LIMIT" in query and "ORDER" not in query:
            some_rows(spark, query)
            return
        found = same_rows(spark, query, conf=PLAIN if len(query) % 3 == 0 else {})
        files += found.without
        opened += found.opened

    drawn()
    assert opened < 0.85 * files, (opened, files)
    spark.sql("DROP TABLE thinned")


def test_a_column_that_is_made_on_the_way(spark: SparkSession, format: str) -> None:
    made = "(SELECT id, i, int(id % 7 + rand(3) * 0) AS t FROM sorted)"
    found = same_rows(spark, f"SELECT * FROM {made} WHERE t = 2 ORDER BY i LIMIT 4")
    assert len(found.rows) == 4
    assert found.opened == FILES


def test_rows_that_are_filtered_do_not_count(spark: SparkSession, format: str) -> None:
    query = "SELECT id FROM sorted WHERE i % 10 = 9 ORDER BY i LIMIT 3"
    assert same_rows(spark, query).rows == ["Row(id=19)", "Row(id=29)", "Row(id=9)"]
    late = "SELECT id FROM sorted WHERE i > (SELECT min(i) + 95 FROM sorted) ORDER BY i LIMIT 3"
    assert len(same_rows(spark, late).rows) == 3


def test_conformance_50_files_without_statistics(spark: SparkSession, format: str) -> None:
    """The first rows are in one of them."""
    make_table(spark, "partly", SORTED, properties=BOUNDS)
    none = {"delta.dataSkippingNumIndexedCols": "0", "write.metadata.metrics.default": "none"}
    for key, value in none.items():
        spark.sql(f"ALTER TABLE partly SET TBLPROPERTIES ('{key}' = '{value}')")
    late = spark.sql(SORTED).withColumn("i", F.expr("i + 5000")).drop("_f")
    late.coalesce(1).write.insertInto("partly")
    for key, value in BOUNDS.items():  # else Delta reads no statistics at all
        spark.sql(f"ALTER TABLE partly SET TBLPROPERTIES ('{key}' = '{value}')")
    found = same_rows(spark, "SELECT i FROM partly ORDER BY i DESC LIMIT 3")
    assert found.rows == [f"Row(i={n})" for n in (5197, 5198, 5199)]
    assert found.skipped > 0, str(found.explained)
    spark.sql("DROP TABLE partly")


def test_rows_that_are_deleted_do_not_count(spark: SparkSession, format: str) -> None:
    deletes = {"delta.enableDeletionVectors": "true", "write.delete.mode": "merge-on-read"}
    make_table(spark, "thinned", SORTED, properties={**BOUNDS, **deletes})
    spark.sql("DELETE FROM thinned WHERE i < 10 AND i <> 4 OR i = 15")
    found = same_rows(spark, "SELECT id FROM thinned ORDER BY i LIMIT 5")
    assert found.rows == [f"Row(id={id})" for id in (10, 11, 12, 13, 4)]
    # Of a file with deletes Iceberg does not tell how many rows are left.
    assert found.opened <= (2 if format == "delta" else 3)
    assert some_rows(spark, "SELECT id FROM thinned WHERE i > 2 LIMIT 9") == 1
    assert some_rows(spark, "SELECT id FROM thinned WHERE i >= 10 AND i < 20 LIMIT 10") == 1
    spark.sql("DELETE FROM thinned WHERE i > 190")
    for query in ("SELECT max(i) FROM thinned", "SELECT max(i) FROM thinned WHERE i >= 100"):
        found = same_rows(spark, query)
        assert found.rows == ["Row(max(i)=190)"]
        assert found.opened <= (1 if format == "delta" else 2)
    append(spark, "thinned", SORTED.replace(f"range({10 * FILES})", "range(5)"))
    assert len(same_rows(spark, "SELECT id FROM thinned ORDER BY i, id LIMIT 5").rows) == 5
    spark.sql("DROP TABLE thinned")


@pytest.mark.parametrize("setting", ["ignoreMissingFiles", "ignoreCorruptFiles"])
def test_rows_of_files_that_are_passed_over_do_not_count(spark: SparkSession, setting: str) -> None:
    """Where Spark is to read on, other files have to do for the rows that one does not give."""
    with in_catalog_of(spark, "delta"):
        make_table(spark, "holed", SORTED, properties=BOUNDS)
        (first,) = matching(spark, "holed", "i < 10")
        content = first.read_bytes()
        if setting == "ignoreMissingFiles":
            first.unlink()
        else:
            first.with_name(f".{first.name}.crc").unlink(missing_ok=True)
            first.write_bytes(os.urandom(len(content)))
        conf = {f"spark.sql.files.{setting}": "true"}
        found = same_rows(spark, "SELECT id FROM holed ORDER BY i LIMIT 5", conf=conf)
        assert found.rows == [f"Row(id={id})" for id in range(10, 15)]
        assert some_rows(spark, "SELECT id FROM holed WHERE i >= 0 LIMIT 5", conf=conf) == FILES
        least = same_rows(spark, "SELECT min(i) FROM holed WHERE i >= 0", conf=conf)
        assert least.rows == ["Row(min(i)=10)"]
        first.write_bytes(content)
        spark.sql("DROP TABLE holed")


@pytest.mark.parametrize("of", [pytest.param("delta", marks=pytest.mark.smoke), "iceberg"])
def test_a_partition_is_a_whole(spark: SparkSession, of: str) -> None:
    with in_catalog_of(spark, of):
        spark.sql(
            f"CREATE TABLE split (id BIGINT, i INT, q INT) USING {of} PARTITIONED BY (q) "
            "TBLPROPERTIES ('write.distribution-mode' = 'none')"
        )
        append(
            spark,
            "split",
            "SELECT id, int(id) AS i, int(id % 2) AS q, id DIV 10 AS _f FROM range(60)",
        )
        found = same_rows(spark, "SELECT * FROM split WHERE q = 1 ORDER BY i DESC LIMIT 6")
        assert len(found.rows) == 6
        assert found.opened == 2
        assert same_rows(spark, "SELECT * FROM split ORDER BY i LIMIT 10").opened == 2
        assert same_rows(spark, "SELECT max(i) FROM split WHERE q = 1 AND i > 20").opened == 1
        spark.sql("DROP TABLE split")


def test_parts_of_a_query(spark: SparkSession, format: str) -> None:
    first = "(SELECT id FROM sorted ORDER BY i LIMIT 2)"
    last = "(SELECT id FROM sorted ORDER BY i DESC LIMIT 2)"
    found = same_rows(spark, f"{first} UNION ALL {last} UNION ALL {first}")
    assert len(found.rows) == 6
    assert found.opened <= 3
    within = f"SELECT f.id FROM sorted f JOIN {last} l ON f.id = l.id"
    assert len(same_rows(spark, within).rows) == 2
    with settings(spark, {"spark.skipping.statistics.enabled": "false"}):
        assert same_rows(spark, "SELECT * FROM sorted ORDER BY i LIMIT 1").opened == FILES
