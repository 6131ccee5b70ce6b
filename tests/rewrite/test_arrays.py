"""Conditions on the elements of arrays, row by row as Spark has them, on Delta and Iceberg."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import rewrite
from providers.errors import SkippingError
from tests.rewrite.differential import (
    FORMATS,
    batch,
    exact_batch,
    in_catalog_of,
    make_table,
    same_rows,
    skips,
    smoke_on,
)

FILES = 12
ROWS = f"""SELECT id, f AS _f,
    CASE WHEN id % 7 = 0 THEN NULL WHEN id % 7 = 1 THEN array()
        WHEN id % 7 = 2 THEN array(f, NULL) ELSE array(f, f + 1, id) END AS i,
    CASE WHEN id % 5 = 0 THEN array(NULL) ELSE array('t' || f, 'all', NULL) END AS s,
    CASE f WHEN 0 THEN array(double('NaN')) WHEN 1 THEN array(-0.0D, 1.5D) WHEN 2 THEN array(0.0D)
        ELSE array(double(f), NULL) END AS d,
    array(CAST(f + 0.25 AS decimal(10,2)), NULL) AS m,
    array(date_add(DATE'2026-01-01', f)) AS day, array(f % 2 = 0) AS ok,
    array(timestamp_micros(f * 86400000000L)) AS ts, array(encode('x' || f, 'utf-8')) AS x,
    IF(id % 3 = 0, NULL, named_struct('tags', array('n' || f))) AS n,
    array(array(f)) AS nested, map('k', f) AS map, array(named_struct('a', f)) AS structs
    FROM (SELECT int(id) AS id, int(id div 10) AS f FROM range({10 * FILES}))"""
LISTED = ["i", "s", "d", "m", "day", "ok", "ts", "x", "n.tags"]


@pytest.fixture(scope="module", params=FORMATS)
def arrays(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    """File f has arrays of f and values made of it, with nulls, without elements, and null."""
    with in_catalog_of(spark, request.param):
        kinds = ", ".join(f"{c} VALUE_LIST, {c} BLOOM_FILTER" for c in LISTED)
        table = make_table(spark, "arrays", ROWS, kinds)
        yield table
        spark.sql(f"DROP SKIPPING INDEX ON {table}")
        spark.sql(f"DROP TABLE {table}")


CONDITIONS = [
    "array_contains(i, 5)", "array_contains(i, 104)", "array_contains(s, 't3')",
    "array_contains(s, 'nowhere')", "array_contains(d, double('NaN'))", "array_contains(d, 0.0D)",
    "array_contains(d, -0.0D)", "array_contains(m, 3.25BD)", "array_contains(m, 3.26BD)",
    "array_contains(day, DATE'2026-01-04')", "array_contains(x, X'7838')",
    "array_contains(ts, timestamp_micros(172800000000L))", "array_contains(ok, true)",
    "array_contains(n.tags, 'n4')", "arrays_overlap(i, array(3, 300, NULL))",
    "arrays_overlap(array('t1', 't2', 'q'), s)", "arrays_overlap(d, array(double('NaN')))",
    "arrays_overlap(d, array(1.5D))", "exists(i, x -> x = 7)", "exists(s, x -> x IN ('t8', 'q'))",
    "exists(i, x -> x IN (1, 2, 3, 4, 60, 61, 62, 63, 64, 65, 66, 67, NULL))",
    "exists(d, x -> x = double('NaN'))", "exists(m, x -> x = 4.25)",
    "array_contains(i, 5) OR array_contains(s, 't9')",
    "array_contains(s, 'all') AND array_contains(i, 54)",
]  # fmt: skip
READ = [
    "NOT array_contains(i, 5)", "NOT arrays_overlap(s, array('t1'))", "NOT exists(i, x -> x = 5)",
    "array_contains(i, 5) IS NULL", "arrays_overlap(i, array(3)) IS NULL", "i IS NULL",
    "i IS NOT NULL", "i = array(5, 6, 50)", "i IN (array(5, 6, 50), array(1))", "get(i, 0) = 5",
    "size(i) = 0", "exists(i, x -> x > 100)", "exists(i, x -> x IS NULL)", "forall(i, x -> x = 5)",
    "exists(ok, x -> x)", "exists(i, x -> x = id)", "array_contains(i, id)", "get(s, 0) LIKE 't5%'",
    "exists(i, x -> x + 1 = 5)", "exists(i, x -> x <=> NULL)", "array_contains(nested, array(5))",
    "exists(nested, x -> exists(x, y -> y = 5))", "exists(nested, x -> array_contains(x, 5))",
    "map_contains_key(map, 'k')", "exists(structs, x -> x.a = 5)", "array_contains(structs.a, 5)",
    "(array_contains(i, 5)) <=> false", "exists(i, x -> exists(s, y -> x = 5))",
    "array_contains(i, 5L)", "array_contains(i, 5.5D)", "exists(i, x -> true)",
    "array_contains(i, 5) AND array_contains(i, 6)", "array_contains(i, 5) AND i IS NOT NULL",
    "array_contains(s, CAST(NULL AS string))", "array_contains(s, 'all') AND array_contains(i, 55)",
    "arrays_overlap(d, array(0.0D))", "array_position(i, 5) > 0", "exists(i, (x, n) -> x = 5)",
]  # fmt: skip


@smoke_on("iceberg", "arrays")
def test_exactly_the_files_with_an_element_are_opened(spark: SparkSession, arrays: str) -> None:
    exact_batch(spark, arrays, CONDITIONS)


def test_other_conditions_on_arrays_lose_no_row(spark: SparkSession, arrays: str) -> None:
    usable = []
    for condition in READ:
        try:
            spark.sql(f"SELECT * FROM {arrays} WHERE {condition}")
            usable.append(condition)
        except Exception:  # Spark refuses it
            continue
    assert len(usable) > len(READ) - 4
    batch(spark, arrays, usable)


def test_random_conditions_on_elements_lose_no_row(spark: SparkSession, arrays: str) -> None:
    rng = random.Random(41)
    values = {
        "i": ["3", "11", "50", "NULL", "-1"], "s": ["'t2'", "'all'", "NULL", "'é'"],
        "d": ["0.0D", "-0.0D", "double('NaN')", "3.0D", "NULL"], "m": ["1.25", "9.25", "1", "NULL"],
    }  # fmt: skip

    def leaf() -> str:
        column, given = rng.choice(list(values.items()))
        type = {"i": "int", "s": "string", "d": "double", "m": "decimal(10,2)"}[column]
        listed = [f"CAST({value} AS {type})" for value in given]
        value, many = rng.choice(listed), ", ".join(rng.choices(listed, k=rng.randrange(1, 4)))
        return rng.choice([
            f"array_contains({column}, {listed[0]})", f"arrays_overlap({column}, array({many}))",
            f"exists({column}, x -> x = {value})", f"exists({column}, x -> x IN ({many}))",
        ])  # fmt: skip

    def condition() -> str:
        one = leaf()
        return rng.choice([one, one, f"NOT {one}", f"{one} AND {leaf()}", f"{one} OR {leaf()}",
                           f"NOT ({one} AND NOT {leaf()})", f"({one}) IS NULL"])  # fmt: skip

    found = batch(spark, arrays, [condition() for _ in range(60)])
    assert found.skipped > 50


@pytest.mark.parametrize("format", FORMATS)
def test_array_index_follows_renamed_and_added_columns(spark: SparkSession, format: str) -> None:
    with in_catalog_of(spark, format):
        mapped = {"delta.columnMapping.mode": "name"} if format == "delta" else {}
        table = make_table(
            spark, "renamed", "SELECT id AS k, array(id) AS a, int(id) AS _f FROM range(4)",
            "a VALUE_LIST", properties=mapped,
        )  # fmt: skip
        spark.sql(f"ALTER TABLE {table} RENAME COLUMN a TO b")
        spark.sql(f"ALTER TABLE {table} ADD COLUMN a array<bigint>")
        assert skips(spark, f"SELECT * FROM {table} WHERE array_contains(b, 2L)").opened == 1
        spark.sql(f"ALTER SKIPPING INDEX ON {table} ADD (a BLOOM_FILTER)")
        spark.sql(f"INSERT INTO {table} VALUES (9, array(9L), array(7L)), (10, NULL, array(NULL))")
        spark.sql(f"REFRESH SKIPPING INDEX ON {table}")
        for condition in ("array_contains(a, 7L)", "array_contains(b, 9L)"):
            found = skips(spark, f"SELECT * FROM {table} WHERE {condition}")
            assert found.opened == 1, str(found.explained)
        same_rows(spark, f"SELECT * FROM {table} WHERE NOT array_contains(a, 7L) OR a IS NULL")
        spark.sql(f"DROP SKIPPING INDEX ON {table}")
        spark.sql(f"DROP TABLE {table}")


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("i MIN_MAX", "elements of arrays are only tested for equality"),
        ("i RANGES", "elements of arrays are only tested for equality"),
        ("s NGRAM", "NGRAM requires a STRING column"),
        ("s ADDRESSES", "ADDRESSES"),
        ("nested VALUE_LIST", "arrays cannot be indexed"),
        ("structs VALUE_LIST", "arrays cannot be indexed"),
        ("map VALUE_LIST", "maps cannot be indexed"),
        ("(i, s) VALUE_LIST", "arrays can be indexed by their elements only"),
        ("sort_array(i) VALUE_LIST", "cannot be indexed"),
    ],
)
def test_create_refuses_other_indexes_of_arrays(
    spark: SparkSession, arrays: str, columns: str, says: str
) -> None:
    with pytest.raises(SkippingError, match=says):
        spark.sql(f"ALTER SKIPPING INDEX ON {arrays} ADD ({columns})")


def test_explain_shows_the_condition_on_elements(spark: SparkSession, arrays: str) -> None:
    df = spark.sql(f"SELECT * FROM {arrays} WHERE array_contains(s, 't3') AND size(i) = 2")
    df.collect()
    said = str(rewrite.explain(df))
    assert "s IN (1 key)  VALUE_LIST" in said
