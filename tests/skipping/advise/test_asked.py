"""ANALYZE and what was asked in vain, and what the table prunes by itself; against what is read."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest
from pyspark.sql import Row, SparkSession

import rewrite
from skipping import SkippingIndex
from skipping.advise.analyze import Advice
from skipping.advise.history import list_unused_predicates
from skipping.advise.recommend import ColumnAdvice
from skipping.advise.workload import read_workload
from skipping.parser.statements import Analyze
from skipping.spark_api import parse_schema
from skipping.tables.open import open_table
from tests.rewrite.differential import ENABLED, in_catalog_of, make_table, opened, settings, skips

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.nightly,
]

FILES = 6
ROWS = f"""SELECT id div 20 AS _f, id, 'User' || id || '@Example.org' AS email,
    repeat(substr(md5(string(id)), 1, 12), 2) AS body, id * 7919 % 240 AS number,
    '{{"id":"' || id || '"}}' AS doc FROM range({FILES * 20})"""
VAIN = (
    "lower(email) = 'user7@example.org'",
    "lower(email) = 'user77@example.org'",
    "body LIKE '%SECRET%'",
    "get_json_object(doc, '$.id') = '9'",
    "replace(email, 'Smith', 'x') = 'y'",
    "id = 5",
)


@pytest.fixture(params=["delta", "iceberg"])
def table(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    with in_catalog_of(spark, request.param):
        yield make_table(spark, "asked", ROWS, "id MIN_MAX")
        spark.sql("DROP SKIPPING INDEX IF EXISTS ON asked")
        spark.sql("DROP TABLE asked")


def questions(spark: SparkSession, table: str) -> dict[str, int]:
    told = list_unused_predicates(read_workload(spark).records, open_table(spark, table).id)
    return {each.condition: each.scans for each in told}


def by_name(advice: Advice) -> dict[str, ColumnAdvice]:
    return {column.name: column for column in advice.columns}


def test_advice_of_what_was_asked_in_vain(spark: SparkSession, table: str) -> None:
    before = SkippingIndex.analyze(spark, table, columns=["body"])
    assert "NGRAM" not in str(before)
    for condition in VAIN:
        spark.sql(f"SELECT * FROM {table} WHERE {condition}").collect()
    # `id` has an index that helped; of the constants only a path is kept.
    assert questions(spark, table) == {
        "lower(email) = ?": 2,
        "body LIKE '%?%'": 1,
        "get_json_object(doc, '$.id') = ?": 1,
    }
    told = list_unused_predicates(read_workload(spark).records, open_table(spark, table).id)
    assert not re.search("user7|SECRET|Smith", str(told))

    advice = SkippingIndex.analyze(spark, table, budget=3.0)
    found = by_name(advice)
    lower = found["lower(email)"]
    assert lower.advised is not None
    assert (lower.advised.past_scans, lower.advised.kept[0]) == (2, pytest.approx(1, abs=0.2))
    # Two scans opened all files, and would have opened one each.
    assert lower.advised.saved_files == pytest.approx(2 * (FILES - 1), rel=0.05)
    assert lower.advised.saved_bytes == pytest.approx(
        advice.bytes * 2 * (FILES - 1) / FILES, rel=0.1
    )
    assert "lower(email) = ? had no index 2 times" in lower.reason
    (search,) = [kind for kind in found["body"].all_advised if kind.for_text]
    assert (search.spelling, search.past_scans) == ("NGRAM", 1)
    assert search.kept[0] == pytest.approx(1, abs=0.5)
    columns = parse_schema(Analyze(("t",), details=True).schema).names[-3:]
    assert columns == ["past_scans", "saved_files", "saved_bytes"]
    shown = {(row[0], row[3]): row[-3:] for row in advice.details()}
    best = lower.advised
    assert shown["lower(email)", best.spelling] == (2, best.saved_files, best.saved_bytes)
    assert shown["number", "MIN_MAX"] == (0, 0.0, 0.0)
    assert advice.ddl is not None
    assert "lower(email) " in advice.ddl
    assert "get_json_object(doc, '$.id') " in advice.ddl
    assert "body NGRAM" in advice.ddl
    assert re.match(rf"ALTER SKIPPING INDEX ON (\w+\.)?default\.{table} ADD \(", advice.ddl)

    # With the index it reads what it said.
    spark.sql(advice.ddl)
    needle = spark.table(table).where("id = 33").select("body").first()
    assert isinstance(needle, Row)
    for condition in (
        "lower(email) = 'user7@example.org'",
        "get_json_object(doc, '$.id') = '9'",
        f"body LIKE '%{needle.body[3:9]}%'",
    ):
        assert skips(spark, f"SELECT * FROM {table} WHERE {condition}").opened == 1, condition
    # And what was answered counts no more.
    assert questions(spark, table)["lower(email) = ?"] == 2


def test_keys_of_joins_are_asked_too(spark: SparkSession) -> None:
    make_table(spark, "facts", ROWS)
    make_table(spark, "dims", "SELECT 0 AS _f, id * 20 AS k, 'n' || id AS name FROM range(5)")
    try:
        query = "SELECT facts.* FROM facts JOIN dims ON facts.number = dims.k WHERE name = 'n3'"
        spark.sql(query).collect()
        assert questions(spark, "facts") == {"number IN (keys)": 1}
        with settings(spark, {ENABLED: "false"}):
            spark.sql(query).collect()
        assert questions(spark, "facts") == {"number IN (keys)": 1}
        (number,) = SkippingIndex.analyze(spark, "facts", columns=["number"]).columns
        assert number.advised is not None
        assert number.advised.past_scans == 1
        assert 0 < number.advised.saved_files < FILES
    finally:
        for name in ("facts", "dims"):
            spark.sql(f"DROP TABLE {name}")


# --- Columns that are asked for together ----------------------------------------------------------

# Every file has all of `a` and all of `b`, and 24 of (a, b) that no other has.
TOGETHER = """SELECT int(f) AS _f, int(n) AS a, (n + f) % 24 AS `b c`, id AS own,
    'k' || n % 3 AS kind FROM (SELECT id, id % 24 AS n, id div 24 AS f FROM range(24 * 6))"""


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_columns_that_are_asked_for_together(spark: SparkSession, format: str) -> None:
    with in_catalog_of(spark, format):
        properties = {"delta.columnMapping.mode": "name"}
        table = make_table(spark, "together", TOGETHER, "own MIN_MAX", properties=properties)
        make_table(spark, "pairs", "SELECT 0 AS _f, int(id) AS k, id + 2 AS l FROM range(5)")
        try:
            asked_together(spark, table)
        finally:
            spark.sql(f"DROP SKIPPING INDEX IF EXISTS ON {table}")
            for name in (table, "pairs"):
                spark.sql(f"DROP TABLE {name}")


def asked_together(spark: SparkSession, table: str) -> None:
    assert "(a, b c)" not in by_name(SkippingIndex.analyze(spark, table))
    pair = f"SELECT * FROM {table} WHERE a = 1 AND `b c` = 3"
    join = f"SELECT t.* FROM {table} t JOIN pairs ON t.a = pairs.k AND t.`b c` = pairs.l"
    join = f"{join} WHERE pairs.k < 3"
    for query in (
        pair,
        f"SELECT * FROM {table} WHERE (a = 1 AND `b c` = 3) OR (a = 5 AND `b c` = 5)",
        f"SELECT * FROM {table} WHERE a IN (1, 2) AND `b c` IN (3, 4) AND kind > ''",
        f"SELECT * FROM {table} WHERE (`b c`, a) IN ((3L, 1), (9L, 9), (7L, 7))",
        f"SELECT * FROM {table} WHERE own = 7 AND kind = 'k1'",
        join,
        # Keys of two joins are no pairs.
        f"SELECT t.* FROM {table} t JOIN pairs p ON t.a = p.k JOIN pairs q ON t.`b c` = q.l "
        "WHERE p.k < 3 AND q.k < 2",
    ):
        spark.sql(query).collect()
    told = {
        each.condition: each
        for each in list_unused_predicates(
            read_workload(spark).records, open_table(spark, table).id
        )
    }
    together = {name: each for name, each in told.items() if name.startswith("(")}
    assert {name: (each.scans, each.keys * each.scans) for name, each in together.items()} == {
        "(a, b c) IN (?)": (4, 1 + 2 + 4 + 3),
        "(a, b c) IN (keys)": (1, 0),
        "(kind, own) IN (?)": (1, 1),
    }

    advice = SkippingIndex.analyze(spark, table, budget=5.0)
    found = by_name(advice)["(a, b c)"]
    assert found.advised is not None
    assert (found.type, found.advised.spelling) == ("tuple<int, bigint>", "BLOOM_FILTER")
    (listed,) = [kind for kind in found.kinds if kind.spelling == "VALUE_LIST"]
    assert (found.bounds[0], listed.past_scans) == (FILES, 5)
    assert listed.kept[0] == pytest.approx(1)
    # A list keeps a file for each of several pairs.
    assert 5 * (FILES - 5) < listed.saved_files < 5 * (FILES - 1)
    alone = by_name(advice)["(kind, own)"]
    assert alone.advised is None
    assert "the best index types of its columns keep 1 for 1 key" in alone.reason
    shown = {(row[0], row[3]): row for row in advice.details()}
    assert shown["(a, b c)", "VALUE_LIST"][-3] == 5
    assert advice.ddl is not None
    assert "(a, `b c`) BLOOM_FILTER" in advice.ddl

    # With it a file is read for what a file is kept for, and that counts no more, in any order.
    spark.sql(f"ALTER SKIPPING INDEX ON {table} ADD ((`b c`, a) VALUE_LIST)")
    assert skips(spark, pair).opened == listed.kept[0]
    assert skips(spark, join).opened == 1 + 1  # and that of the pairs
    assert questions(spark, table)["(a, b c) IN (?)"] == 4
    assert questions(spark, table)["(a, b c) IN (keys)"] == 1


@pytest.mark.parametrize("format", ["iceberg", "delta"])
def test_a_session_remembers_few(spark: SparkSession, format: str) -> None:
    with in_catalog_of(spark, format):
        remembers_few(spark)


def remembers_few(spark: SparkSession) -> None:
    make_table(spark, "many", "SELECT 0 AS _f, 'a' AS text, 1 AS n")
    try:
        for start in range(0, 90, 30):
            legs = [f"n % {i + 7} = 1" for i in range(start, start + 30)]
            spark.sql(f"SELECT * FROM many WHERE {' OR '.join(legs)}").collect()
        found = questions(spark, "many")
        assert len(found) == 64
        assert "n % 96 = ?" in found
        assert "n % 7 = ?" not in found
    finally:
        spark.sql("DROP TABLE many")


# --- What the table prunes by itself -------------------------------------------------------------

STARTS = "timestamp'2026-01-01 00:00:00'"
HOURS = f"SELECT id, {STARTS} + make_interval(0, 0, 0, 0, id) AS ts, 'k' || id % 9 AS name"


def parted(spark: SparkSession, format: str) -> str:
    """A table of 6 days, each in two files or more, without bounds."""
    spark.sql("DROP TABLE IF EXISTS parted")
    if format == "delta":
        spark.sql(
            "CREATE TABLE parted (id BIGINT, ts TIMESTAMP, name STRING, "
            "day DATE GENERATED ALWAYS AS (CAST(ts AS DATE))) USING delta PARTITIONED BY (day) "
            "TBLPROPERTIES ('delta.dataSkippingNumIndexedCols' = '0')"
        )
    else:
        spark.sql(
            "CREATE TABLE parted (id BIGINT, ts TIMESTAMP, name STRING) USING iceberg "
            "PARTITIONED BY (days(ts), bucket(2, id)) TBLPROPERTIES "
            "('write.metadata.metrics.default' = 'none')"
        )
    for half in (0, 1):
        where = f"id % 24 div 12 = {half}" if format == "delta" else f"id % 2 = {half}"
        rows = spark.sql(f"{HOURS} FROM range(144) WHERE {where}").coalesce(1)
        rows.write.format(format).mode("append").saveAsTable("parted")
    return "parted"


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_partitions_are_counted_in(spark: SparkSession, format: str) -> None:
    with in_catalog_of(spark, format):
        table = parted(spark, format)
        try:
            files = len(open_table(spark, table).files())
            advice = SkippingIndex.analyze(spark, table, columns=["ts", "id"])
            ts, number = advice.columns
            made = "day = CAST(ts AS DATE)" if format == "delta" else "days(ts)"
            assert f"the table's own partitions ({made}) " in ts.reason
            for column, values in ((ts, range(0, 144, 13)), (number, range(0, 144, 13))):
                if not column.bounds:
                    continue
                moment = f"{STARTS} + make_interval(0, 0, 0, 0, {{}})"
                value = moment if column.name == "ts" else "{}"
                read = [
                    spark.sql(f"SELECT * FROM {table} WHERE {column.name} = {value.format(n)}")
                    for n in values
                ]
                for df in read:
                    df.collect()
                mean = sum(map(opened, read)) / len(read)
                assert column.bounds[0] == pytest.approx(mean, rel=0.35), column.name
                assert column.bounds[0] <= files / 2
            if format == "iceberg":
                assert "the table's own partitions (bucket(2, id)) " in number.reason
                # Files of a bucket and day have other ids than those of other days.
                assert number.advised is not None
            else:
                assert number.bounds == ()
                (day,) = SkippingIndex.analyze(spark, table, columns=["day"]).columns
                assert "conditions on CAST(ts AS DATE)" in day.reason
        finally:
            spark.sql(f"DROP TABLE {table}")


def test_create_says_what_the_table_prunes_by(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    with in_catalog_of(spark, "iceberg"):
        spark.sql("DROP TABLE IF EXISTS said")
        spark.sql(
            "CREATE TABLE said (id BIGINT, ts TIMESTAMP, name STRING) USING iceberg "
            "PARTITIONED BY (days(ts), truncate(2, name), id)"
        )
        try:
            with caplog.at_level(logging.WARNING, "skipping"):
                spark.sql("CREATE SKIPPING INDEX ON said (id VALUE_LIST, ts MIN_MAX)")
                spark.sql("ALTER SKIPPING INDEX ON said ADD (lower(name) VALUE_LIST)")
            by_id, by_day, by_name = (record.message for record in caplog.records)
            assert by_id == "id is a partition column: the table itself skips files by it"
            assert by_day.startswith("the table is partitioned by days(ts): it already skips")
            assert "by truncate(2, name): " in by_name
        finally:
            spark.sql("DROP SKIPPING INDEX IF EXISTS ON said")
            spark.sql("DROP TABLE said")


def test_explain_and_analyze_ask_nothing(spark: SparkSession) -> None:
    make_table(spark, "quiet", "SELECT id AS _f, id FROM range(3)")
    try:
        query = "SELECT * FROM quiet WHERE id = 1"
        rewrite.explain(query)
        spark.sql(f"EXPLAIN SKIPPING DRY RUN {query}").collect()
        SkippingIndex.analyze(spark, "quiet")
        assert questions(spark, "quiet") == {}
    finally:
        spark.sql("DROP TABLE quiet")
