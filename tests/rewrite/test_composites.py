"""Composites: each file has every value of every column, and only the tuples tell files apart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from providers.errors import SkippingError
from skipping import SkippingIndex
from skipping.spark_api import RELEASE
from tests.rewrite.differential import (
    append,
    exact,
    exact_batch,
    in_catalog_of,
    make_table,
    same_rows,
    settings,
    skips,
    smoke_on,
)

FILES = 8
N = 24
# In file f are n and (n + f) % 24 for each n: all of a and all of b, and no (a, b) of another file.
ROWS = f"""
    SELECT int(n) AS a, (n + f) % {N} AS b, concat('t', n) AS s,
           nullif(double((n + f) % {N}) - 5, 3) AS x, decimal(n) / 4 AS dec,
           date_add(date'2024-01-01', int((n + f) % {N})) AS d,
           named_struct('k', int((n + f) % {N})) AS st, repeat(md5(string(n)), 20) AS pad,
           int(f) AS _f
    FROM (SELECT id % {N} AS n, id div {N} AS f FROM range({N * FILES}))
"""
COLUMNS = """
    (a, b) VALUE_LIST, (b, s, d) BLOOM_FILTER(fpp => 0.000001), (dec, st.k) VALUE_LIST,
    (a, x) VALUE_LIST
"""
CONDITIONS = [
    "a = 1 AND b = 3",
    "a = 1 AND b = 3 AND pad > ''",
    "a IN (1, 2) AND b = 3",
    "a = 1 AND b IN (2, 3, 99)",
    "(a = 1 AND b = 3) OR (a = 5 AND b = 5)",
    "(a = 1 AND b = 3 AND x < 0) OR (b = 5 AND a = 5) OR (a = 7 AND b = 0)",
    "a = 1 AND (b = 3 OR b = 4)",
    "(a, b) IN ((1, 3L), (5, 5L))",
    *(["(a, b) = (1, 3L)"] if RELEASE >= (4, 0) else []),  # 3.5 compares the names of the fields
    "b = 3 AND s = 't1' AND d = date'2024-01-04'",
    "dec = 0.25 AND st.k = 3",
    "dec IN (0.25, 0.5) AND st.k <=> 3",
    "a = 1 AND x = -2",
    "a = 5 AND x = 0 AND x = -0.0",
    "a = 1 AND b = 12",
    "a = 1 AND b = -7",
]


@pytest.fixture(scope="module", params=["delta", "iceberg"])
def table(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    with in_catalog_of(spark, request.param) as format:
        yield make_table(spark, f"{format.namespace}.composed", ROWS, COLUMNS)


@smoke_on("delta", "table")
def test_exactly_the_files_with_a_tuple_are_opened(spark, table):
    exact_batch(spark, table, CONDITIONS)
    many = ", ".join(f"({n}, {n + 2}L)" for n in range(12))
    assert exact(spark, table, f"(a, b) IN ({many})").skipped == FILES - 1
    many = " OR ".join(f"(a = {n} AND b = {n + 2})" for n in range(12))
    assert exact(spark, table, many).skipped == FILES - 1


def test_what_tuples_say_nothing_of_is_read(spark, table):
    for condition in (
        "NOT (a = 1 AND b = 3)",
        "(a, b) NOT IN ((1, 3L), (5, 5L))",
        "(a, b) <> (1, 3L)",
        "(a = 1 AND b = 3) OR (a = 5 AND b > 3)",
        "a = 1 AND b <> 3",
        "(a, x) IN ((8, double(-2)), (1, CAST(NULL AS DOUBLE)))",
        "a = 8 AND x <=> NULL",
    ):
        assert same_rows(spark, f"SELECT * FROM {table} WHERE {condition}").skipped == 0, condition


def test_explain_and_describe_show_the_columns(spark, table):
    found = skips(spark, f"SELECT * FROM {table} WHERE a = 1 AND b = 3")
    text = str(found.explained)
    assert "(a, b) IN (1 key)  VALUE_LIST" in text
    assert "not used" not in text
    found = same_rows(spark, f"SELECT * FROM {table} WHERE s = 't1'")
    assert "s = ?: s is not in the index, only (b, s, d)" in str(found.explained)
    with settings(spark, {"spark.skipping.explain.values": "true"}):
        found = skips(spark, f"SELECT * FROM {table} WHERE dec = 0.25 AND st.k = 3")
        assert "(dec, st.k) IN ((0.25, 3))" in str(found.explained).replace("0.250000", "0.25")
    rows = [tuple(row) for row in spark.sql(f"DESCRIBE SKIPPING INDEX ON {table}").collect()]
    assert rows[0] == ("(a, b)", "tuple<int, bigint>", "VALUE_LIST", "")
    assert [row[0] for row in rows] == ["(a, b)", "(b, s, d)", "(dec, st.k)", "(a, x)"]
    index = SkippingIndex.on(spark, table)
    assert "(a, b) IN (1 key)  VALUE_LIST" in index.why("a = 1 AND b = 3").column_names


@pytest.mark.parametrize(
    "conf",
    [
        {},
        {"spark.sql.adaptive.enabled": "false"},
        {"spark.sql.autoBroadcastJoinThreshold": "-1"},
    ],
    ids=["adaptive", "plain", "read again"],
)
def test_joins_by_several_columns(spark, table, conf):
    """Of few tuples, which are asked as conditions, too, and of more than that."""
    dim = "spark_catalog.default.composed_dim"
    for size in (3, 300):
        spark.sql(
            f"SELECT int(id % {N}) AS k, id % {N} + 2 + int(id >= {N}) * 100 AS l, id AS m"
            f" FROM range({size})"
        ).write.format("delta").mode("overwrite").saveAsTable(dim)
        query = f"SELECT f.*, d.m FROM {table} f JOIN {dim} d ON f.a = d.k AND f.b = d.l"
        found = same_rows(spark, f"{query} WHERE d.m >= 0", conf=conf)
        (scan,) = [s for s in found.explained.scans if s.table.endswith(".composed")]
        assert scan.opened == 1, str(found.explained)
        (label,) = [label for label, _ in scan.legs if label.startswith("(a, b) IN")]
        keys = 3 if size == 3 else len({(n % N, n % N + 2 + (n >= N) * 100) for n in range(300)})
        assert label == f"(a, b) IN ({keys} keys of composed_dim)  VALUE_LIST"


def test_alter(spark):
    t = make_table(spark, "composed_alter", ROWS, "a VALUE_LIST")
    spark.sql(f"ALTER SKIPPING INDEX ON {t} ADD ((a, b) VALUE_LIST, (A, s) BLOOM_FILTER)")
    assert exact(spark, t, "a = 1 AND b = 3").skipped == FILES - 1
    for added, why in {
        "(a, b) VALUE_LIST": "in the index already",
        "(b, a) VALUE_LIST": "in the index already",
        "(a, b) MIN_MAX": "MIN_MAX does not support",
        "(a, b) RANGES": "RANGES does not support",
        "(a, b) NGRAM": "NGRAM requires a STRING column",
        "(a, b) ADDRESSES": "ADDRESSES requires a STRING column",
        "(a, A) VALUE_LIST": "has a column twice",
        "(a, nope) VALUE_LIST": "no column nope",
        "(a) VALUE_LIST": "only a column",
        "(a, st) VALUE_LIST": "st is a struct",
        "(a, b + 1) VALUE_LIST": "named_struct is not among",
    }.items():
        with pytest.raises(SkippingError, match=why):
            spark.sql(f"ALTER SKIPPING INDEX ON {t} ADD ({added})")
    spark.sql(f"ALTER SKIPPING INDEX ON {t} DROP ((b, a))")
    assert same_rows(spark, f"SELECT * FROM {t} WHERE a = 1 AND b = 3").skipped == 0
    spark.sql(f"ALTER SKIPPING INDEX ON {t} DROP ((a, s) BLOOM_FILTER)")
    assert [c.name for c in SkippingIndex.on(spark, t).definition.columns] == ["a"]


def test_partition_columns_are_refused(spark):
    for format in ("delta", "iceberg"):
        with in_catalog_of(spark, format) as of:
            t = f"{of.namespace}.composed_parts"
            spark.sql(f"DROP TABLE IF EXISTS {t}")
            spark.sql(f"CREATE TABLE {t} (p int, a int) USING {format} PARTITIONED BY (p)")
            with pytest.raises(SkippingError, match="one value per file"):
                spark.sql(f"CREATE SKIPPING INDEX ON {t} ((p, a) VALUE_LIST)")


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_columns_that_are_renamed_widened_and_new(spark, format):
    with in_catalog_of(spark, format) as of:
        t = make_table(
            spark,
            f"{of.namespace}.composed_evolves",
            "SELECT int(id % 5) AS a, int((id + id div 5) % 5) AS b, int(id div 5) AS _f"
            " FROM range(15)",
            "(a, b) VALUE_LIST",
            properties={"delta.columnMapping.mode": "name", "delta.enableTypeWidening": "true"},
        )
        spark.sql(f"ALTER TABLE {t} RENAME COLUMN a TO key")
        assert exact(spark, t, "key = 1 AND b = 2").skipped == 2
        spark.sql(f"ALTER TABLE {t} ALTER COLUMN key TYPE bigint")
        append(spark, t, "SELECT 10000000000 AS key, 2 AS b, 0 AS _f")
        spark.sql(f"REFRESH SKIPPING INDEX ON {t}")
        assert exact(spark, t, "key = 10000000000 AND b = 2").skipped == 3
        assert exact(spark, t, "key = 1 AND b = 2").skipped == 3
        (column,) = SkippingIndex.on(spark, t).definition.columns
        assert (column.name, column.type) == ("(key, b)", "tuple<bigint, int>")
        # A column of the old name is another one; files without it have only nulls there.
        spark.sql(f"ALTER TABLE {t} DROP COLUMN key")
        spark.sql(f"ALTER TABLE {t} ADD COLUMN key string")
        append(spark, t, "SELECT 2 AS b, 'x' AS key, 0 AS _f")
        same_rows(spark, f"SELECT * FROM {t} WHERE key = 'x' AND b = 2")
        spark.sql(f"REFRESH SKIPPING INDEX ON {t}")
        assert exact(spark, t, "key = 'x' AND b = 2").skipped == 4
        names = [(c.name, c.type) for c in SkippingIndex.on(spark, t).definition.columns]
        assert names[-1] == ("(key, b)", "tuple<string, int>")
        assert len(names) == 2
