"""Indexes of expressions: with the index = without it, and exactly the needed files are opened."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from providers.errors import SkippingError
from skipping import SkippingIndex
from skipping.model.definition import Definition
from tests.rewrite.differential import (
    IS_SPARK_4,
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

ZONE, ANSI = "spark.sql.session.timeZone", "spark.sql.ansi.enabled"

ROWS = """
    SELECT id, concat('User', id, '@X.org') AS email,
           timestamp_seconds(1700000000 + id * 3600) AS ts,
           concat('{"id": "k', id, '", "n": ', id, '}') AS doc,
           concat('a', id div 10) AS a, concat('b', id % 10) AS b,
           named_struct('city', concat('Oslo', id)) AS place,
           int(id div 10) AS _f
    FROM range(40)
"""
COLUMNS = """
    lower(email) VALUE_LIST, date_trunc('hour', ts) MIN_MAX,
    get_json_object(doc, '$.id') VALUE_LIST, a || '-' || b VALUE_LIST,
    upper(place.city) BLOOM_FILTER(fpp => 0.0001), id * 2 + 1 VALUE_LIST,
    id * 10 + length(a) + length(b) VALUE_LIST, email MIN_MAX
"""
COLLATED = [
    ("cast(s as string collate UTF8_LCASE)", "a text in it has a collation"),
    ("lower(s collate UTF8_LCASE)", "collate is not among the functions"),
]
CONDITIONS = [
    "lower(email) = 'user17@x.org'",
    "lower(email) IN ('user3@x.org', 'user33@x.org')",
    "lower(email) = 'nobody'",
    "date_trunc('hour', ts) = date_trunc('hour', timestamp_seconds(1700000000 + 5 * 3600))",
    "date_trunc('hour', ts) < timestamp_seconds(1700000000 + 5 * 3600)",
    "get_json_object(doc, '$.id') = 'k25'",
    "concat(a, '-', b) = 'a2-b7'",
    "a || '-' || b <=> 'a2-b7'",
    "upper(place.city) = 'OSLO31'",
    "id * 2 + 1 = 23",
    "1 + 2 * id = 23",
    "id * 10 + length(a) + length(b) = 174",
    "10 * id + length(a) + length(b) IN (174, 354)",
    "lower(email) = (SELECT concat('user', max(id), '@x.org') FROM range(18))",
    "lower(email) LIKE 'user1%' AND id * 2 + 1 > 23 AND lower(email) = 'user12@x.org'",
]


@pytest.fixture(scope="module", params=["delta", "iceberg"])
def table(spark: SparkSession, request: pytest.FixtureRequest) -> str:
    with in_catalog_of(spark, request.param) as format:
        return make_table(spark, f"{format.namespace}.expressed", ROWS, COLUMNS)


@smoke_on("delta", "table")
def test_each_condition_opens_the_files_with_a_match(spark, table):
    exact_batch(spark, table, CONDITIONS)


def test_explain_and_describe_show_the_expression(spark, table):
    found = skips(spark, f"SELECT * FROM {table} WHERE lower(email) = 'user17@x.org'")
    assert "lower(email) = ?  VALUE_LIST" in str(found.explained)
    rows = spark.sql(f"DESCRIBE SKIPPING INDEX ON {table}").collect()
    assert ("a || '-' || b", "string", "VALUE_LIST", "") in map(tuple, rows)


def test_another_session_asks_only_what_means_the_same(spark, table):
    hour = f"SELECT * FROM {table} WHERE date_trunc('hour', ts) < timestamp'2023-11-15 00:00:00Z'"
    text = f"SELECT * FROM {table} WHERE lower(email) = 'user17@x.org'"
    with settings(spark, {ZONE: "Asia/Kolkata"}):  # half an hour off
        assert same_rows(spark, hour).skipped == 0
        skips(spark, text)
    with settings(spark, {"spark.sql.legacy.sizeOfNull": "false"}):
        assert same_rows(spark, text).skipped == 0
    locale = spark._jvm.java.util.Locale
    before = locale.getDefault()
    locale.setDefault(locale.forLanguageTag("el"))  # upper case without accents
    try:
        assert same_rows(spark, text).skipped == 0
    finally:
        locale.setDefault(before)
    sum_ = f"SELECT * FROM {table} WHERE id * 2 + 1 = 23"
    with settings(spark, {ANSI: "false" if spark.conf.get(ANSI) == "true" else "true"}):
        assert same_rows(spark, sum_).skipped == 0


def test_the_steps_of_a_chain_stay_in_their_order(spark, table):
    for other in ("id * 10 + (length(a) + length(b))", "length(a) + id * 10 + length(b)"):
        found = same_rows(spark, f"SELECT * FROM {table} WHERE {other} = 174")
        assert found.skipped == 0, other


def test_deletes_and_new_files(spark, table):
    spark.sql(f"DELETE FROM {table} WHERE id = 17")
    same_rows(spark, f"SELECT * FROM {table} WHERE lower(email) = 'user17@x.org'")
    append(
        spark,
        table,
        ROWS.replace("FROM range(40)", "FROM range(40, 50)").replace("int(id div 10)", "0"),
    )
    spark.sql(f"REFRESH SKIPPING INDEX ON {table}")
    for condition in ("lower(email) = 'user44@x.org'", "id * 2 + 1 = 91"):
        assert exact(spark, table, condition).skipped >= 3


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_operands_that_may_change_places(spark, format):
    """Spark sorts them by numbers that it gives to columns, other ones each time."""
    with in_catalog_of(spark, format) as of:
        t = make_table(
            spark,
            f"{of.namespace}.expressed_commutes",
            "SELECT id AS z, id % 3 AS m, named_struct('k', id % 7, 'j', date'2020-01-01') AS a, "
            "date_add(date'2020-01-01', int(id)) AS d, int(id div 5) AS _f FROM range(20)",
            "z * m VALUE_LIST, m + a.k VALUE_LIST, (z = 1 OR m = 7) VALUE_LIST, "
            "least(d, a.j) MIN_MAX, greatest(d, a.j) MIN_MAX",
        )
        for _ in range(2):
            for condition in ("z * m = 14", "m * z = 14", "a.k + m = 70",
                              "greatest(d, a.j) = date'2020-01-08'"):  # fmt: skip
                skips(spark, f"SELECT * FROM {t} WHERE {condition}")
            index = SkippingIndex.on(spark, t)
            append(spark, t, "SELECT 100L AS z, 5L AS m, named_struct('k', 9L, 'j', current_date())"
                   " AS a, current_date() AS d, 0 AS _f")  # fmt: skip
            state = index.refresh()
            assert state.error is None
            assert not len(index.pending())


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_columns_that_are_renamed_widened_and_new(spark, format):
    with in_catalog_of(spark, format) as of:
        t = make_table(
            spark,
            f"{of.namespace}.expressed_evolves",
            "SELECT concat('K', id) AS k, int(id div 5) AS _f FROM range(20)",
            properties={"delta.columnMapping.mode": "name"},
        )
        spark.sql(f"ALTER TABLE {t} ADD COLUMN late string")
        append(spark, t, "SELECT 'K99' AS k, 'Z' AS late, 0 AS _f")
        spark.sql(
            f"CREATE SKIPPING INDEX ON {t} "
            "(lower(k) VALUE_LIST, lower(late) VALUE_LIST, coalesce(late, k) VALUE_LIST)"
        )
        assert exact(spark, t, "lower(late) = 'z'").skipped == 4
        assert exact(spark, t, "coalesce(late, k) = 'K7'").skipped == 4
        spark.sql(f"ALTER TABLE {t} RENAME COLUMN k TO key")
        assert exact(spark, t, "lower(key) = 'k7'").skipped == 4
        append(spark, t, "SELECT 'K100' AS key, 'Y' AS late, 0 AS _f")
        spark.sql(f"REFRESH SKIPPING INDEX ON {t}")
        assert exact(spark, t, "lower(key) = 'k100'").skipped == 5
        assert exact(spark, t, "lower(key) = 'k7'").skipped == 5
        # A column of the old name is another one.
        spark.sql(f"ALTER TABLE {t} ADD COLUMN k string")
        append(spark, t, "SELECT 'n' AS key, 'n' AS late, 'K7' AS k, 0 AS _f")
        spark.sql(f"REFRESH SKIPPING INDEX ON {t}")
        same_rows(spark, f"SELECT * FROM {t} WHERE lower(k) = 'k7'")
        assert exact(spark, t, "lower(key) = 'k7'").skipped == 6


@pytest.fixture
def ansi(spark):
    """Spark 3.5 has it off by default."""
    with settings(spark, {ANSI: "true"}):
        yield


def test_a_file_with_a_row_that_fails_is_unknown_for_that_expression(spark, ansi):
    t = make_table(
        spark,
        "expressed_fails",
        "SELECT if(id = 12, 'oops', string(id)) AS s, id, int(id div 5) AS _f FROM range(20)",
        "cast(s as int) VALUE_LIST, lower(s) VALUE_LIST, id MIN_MAX",
    )
    with pytest.raises(PySparkException, match="CAST_INVALID_INPUT"):
        spark.sql(f"SELECT * FROM {t} WHERE cast(s as int) = 3").collect()
    assert exact(spark, t, "lower(s) = 'oops'").skipped == 3
    assert exact(spark, t, "id < 5 AND cast(s as int) = 3").skipped == 3
    index = SkippingIndex.on(spark, t)
    assert index.describe()["column cast(s as int)"] == "int VALUE_LIST, known in 3"
    assert index.state.unread == 0
    assert not len(index.pending())
    spark.sql(f"DELETE FROM {t} WHERE id = 12")
    # Without ANSI the cast gives null, which is another expression.
    with settings(spark, {ANSI: "false"}):
        assert same_rows(spark, f"SELECT * FROM {t} WHERE cast(s as int) = 3").skipped == 0
        spark.sql(f"ALTER SKIPPING INDEX ON {t} DROP (cast(s as int))")
        spark.sql(f"ALTER SKIPPING INDEX ON {t} ADD (cast(s as int) VALUE_LIST)")
        assert exact(spark, t, "cast(s as int) = 3").skipped == 3


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("rand() + id", "rand does not give the same each time"),
        ("concat(current_timestamp(), s)", "does not give the same each time"),
        ("concat(current_user(), s)", "does not give the same each time"),
        ("input_file_name() || s", "input_file_name does not give the same each time"),
        ("sum(id)", "one value for each row, as aggregates"),
        ("sum(id) over (partition by s)", "one value for each row"),
        ("(select max(id) from range(3)) + id", "subquery"),
        # A subquery is not even looked at: that would list its files, and read them for a schema.
        ("(select max(a) from json.`/nowhere`) + id", "subquery"),
        ("id in (select a from parquet.`/nowhere`)", "subquery"),
        ("identifier('s') || 'x'", "an identifier that is computed"),
        ("explode(array(id))", "one value for each row"),
        ("1 + 1", "the same in all rows"),
        ("(id)", "only a column"),
        ("lower(nothing)", "nothing"),
        ("array(id, id)", "array is not among the functions"),
        ("named_struct('a', id)", "named_struct is not among the functions"),
        ("my_udf(s)", "is not among the functions"),
        ("default.lower(s)", "lower is not among the functions"),
        ("(st is null)", "name its leaves"),
        ("cast(s as timestamp)", "of the day on which it is read"),
        ("date(to_timestamp(s))", "of the day on which it is read"),
        ("p + 1", "partitioned"),
        *(COLLATED if IS_SPARK_4 else []),
        ("variant_get(parse_json(s), '$.a', 'string')", "not among the functions"),
        ("size(l)", "not among the functions"),
        ("repeat(s, 9)", "repeat is not among the functions"),
        (f"concat(s, '{'x' * 2100}')", "the maximum is 2,000"),
        ("reverse(" * 70 + "s" + ")" * 70, "too long"),
    ],
)
def test_refusals(spark, refusing, expression, why):
    spark.udf.register("my_udf", lambda s: s)
    with pytest.raises(SkippingError, match=why) as error:
        spark.sql(f"CREATE SKIPPING INDEX ON {refusing} ({expression} VALUE_LIST)")
    assert "^" in str(error.value)
    with pytest.raises(SkippingError):
        SkippingIndex.on(spark, refusing)


@pytest.fixture(scope="module")
def refusing(spark: SparkSession) -> str:
    spark.sql("DROP TABLE IF EXISTS expressed_refuses")
    spark.sql(
        "CREATE TABLE expressed_refuses "
        "(id bigint, s string, l array<int>, st struct<a: int>, p int) "
        "USING delta PARTITIONED BY (p)"
    )
    return "expressed_refuses"


def test_what_a_store_says_is_believed_only_if_it_is_what_queries_ask_for(spark):
    t = make_table(
        spark,
        "expressed_lies",
        "SELECT concat('K', id) AS k, int(id div 5) AS _f FROM range(20)",
        "lower(k) VALUE_LIST",
    )
    index = SkippingIndex.on(spark, t)
    (column,) = index.definition.columns
    for sql in ("upper(k)", "reflect('java.lang.System', 'exit', '1') || k", "rand() || k", "k k"):
        lie = replace(
            column,
            number=column.number + 1,
            expression=replace(column.expression, sql=sql),
            name=sql,
        )
        index.alter(lambda d, lie=lie: replace(d, columns=(lie,)))
        append(spark, t, "SELECT 'K7' AS k, 0 AS _f")
        state = index.refresh()
        assert state.error, sql
        # What the index says under that identity is nothing.
        assert same_rows(spark, f"SELECT * FROM {t} WHERE lower(k) = 'k7'").skipped == 0
    index.alter(lambda d: replace(d, columns=(column,)))
    assert index.refresh().error is None
    assert exact(spark, t, "lower(k) = 'k7'").skipped == 3


def test_definition_stores_expressions(spark, table):
    definition = SkippingIndex.on(spark, table).definition
    assert Definition.from_json(definition.to_json()) == definition
    plain = replace(definition, columns=definition.columns[-1:])
    assert json.loads(plain.to_json())["columns"][0]["expression"] is None
    assert Definition.from_json(plain.to_json()).columns == plain.columns
    bad = json.loads(definition.to_json())
    bad["columns"][0]["expression"] = None
    assert Definition.read(json.dumps(bad), definition.index).fault
    bad["columns"][0]["expression"] = {"sql": 1, "zone": "", "ansi": 3, "reads": []}
    assert Definition.read(json.dumps(bad), definition.index).fault


def test_a_refresh_without_spark_leaves_expressions_to_spark(spark):
    t = make_table(
        spark,
        "expressed_shared",
        "SELECT concat('K', id) AS k, id, int(id div 5) AS _f FROM range(20)",
        "lower(k) VALUE_LIST, id MIN_MAX",
    )
    index = SkippingIndex.on(spark, t)
    append(spark, t, "SELECT 'K77' AS k, 77L AS id, 0 AS _f")
    alone = SkippingIndex.on(DeltaTable(index.table.id.root), store=index.store)
    state = alone.refresh()
    assert "index it with Spark" in state.error
    assert alone.describe()["column lower(k)"].endswith("known in 4")
    assert alone.describe()["column id"].endswith("known in 5")
    assert alone.lookup("id = 3").pruned == 4
    assert same_rows(spark, f"SELECT * FROM {t} WHERE lower(k) = 'k7'").skipped == 3
    assert len(index.pending()) == 1
    assert index.refresh().error is None
    assert exact(spark, t, "lower(k) = 'k7'").skipped == 4
    with pytest.raises(SkippingError, match="index it with Spark"):
        alone.add("upper(k) VALUE_LIST")
