"""Joins on ranges: the dimension says within which ranges a column has to be.

A fact of twelve files that hold sixty neighbours each, and in turn an index of it, or only what its
format knows. Rows are as without, and exactly the files that a range reaches are opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from skipping.lookup.scan_plan import ScanPlan
from skipping.spark_api import RELEASE
from tests.rewrite.differential import (
    Compared,
    in_catalog_of,
    make_table,
    same_rows,
    settings,
)

pytestmark = pytest.mark.nightly

FILES = 12
BOUNDS = {
    "delta.dataSkippingNumIndexedCols": "32",
    "write.metadata.metrics.default": "truncate(16)",
}
TYPES = {
    "i": "int({n})",
    "l": "{n}",
    "e": "CAST({n} / 4 AS DECIMAL(9, 2))",
    "day": "date_add(DATE'2024-01-01', int({n}))",
    "ts": "timestamp_micros(1704067200000000 + {n} * 3600000003)",
    "ntz": "CAST(timestamp_micros(1704067200000000 + {n} * 3600000003) AS TIMESTAMP_NTZ)",
    "x": "{n} / 7D",
    "s": "concat('key ', lpad({n}, 5, '0'))",
}


def columns(n: str, suffix: str = "") -> str:
    """A number as columns of all types."""
    return ", ".join(f"{sql.format(n=n)} AS {name}{suffix}" for name, sql in TYPES.items())


FACT = f"""SELECT id, {columns("id")}, repeat(md5(string(id)), 6) AS pad, int(id div 60) AS _f
    FROM range({60 * FILES})"""

# Names of periods, their first numbers and their last.
PERIODS = [("spring", 70, 90), ("spring", 300, 310), ("never", 500, 400), ("all", -9, 9999),
           ("open", None, 30), ("edge", 119, 120)]  # fmt: skip
PERIODS += [("weekly", 60 * n + 5, 60 * n + 7) for n in (0, 1, 11)]
PERIODS += [("daily", 4 * n, 4 * n + 1) for n in range(30, 50)]

PLAIN = {"spark.sql.adaptive.enabled": "false"}
SMJ = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
ENGINES = {"adaptive": {}, "plain": PLAIN, "sorted": SMJ, "plain, sorted": PLAIN | SMJ}


@pytest.fixture(scope="module", params=["delta", "iceberg"])
def format(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    """`known` has bounds in its log, `indexed` an index; `parted` is partitioned by day."""
    with in_catalog_of(spark, request.param):
        make_table(spark, "known", FACT, properties=BOUNDS)
        kinds = ", ".join(f"{c} MIN_MAX" for c in TYPES)
        make_table(spark, "indexed", FACT, kinds)
        day = "date_trunc('month', day)"
        by = "days(day)" if request.param == "iceberg" else "month"
        spark.sql(
            f"CREATE TABLE parted USING {request.param} PARTITIONED BY ({by}) AS SELECT *,"
            f" CAST({day} AS DATE) AS month FROM known WHERE id % 30 = 0"
        )
        given = str(PERIODS)[1:-1].replace("None", "NULL")
        ends = f"SELECT name, BIGINT(a) AS a, BIGINT(b) AS b FROM VALUES {given} AS t(name, a, b)"
        make_table(
            spark,
            "periods",
            f"SELECT name, {columns('a', '1')}, {columns('b', '2')}, 0 AS _f FROM ({ends})",
        )
        yield request.param
        spark.sql("DROP SKIPPING INDEX ON indexed")
        for name in ("known", "indexed", "parted", "periods"):
            spark.sql(f"DROP TABLE {name}")


def fact(found: Compared) -> ScanPlan:
    (scan,) = [s for s in found.explained.scans if not s.table.endswith("periods")]
    return scan


def joined(on: str, where: str = "d.name = 'spring'", table: str = "known") -> str:
    return f"SELECT f.id, d.name FROM {table} f JOIN periods d ON {on} WHERE {where}"


@pytest.mark.parametrize("table", ["known", "indexed"])
@pytest.mark.parametrize("column", TYPES)
def test_a_column_of_each_type(spark: SparkSession, format: str, column: str, table: str) -> None:
    found = same_rows(spark, joined(f"f.{column} BETWEEN d.{column}1 AND d.{column}2", table=table))
    assert len(found.rows) == 32
    assert fact(found).opened in (2, 2 + is_wide(format, column, table)), str(found.explained)


def is_wide(format: str, column: str, table: str) -> bool:
    """Whether bounds are widened: those of DECIMAL in Iceberg's manifests, to whole numbers."""
    return (format, column, table) == ("iceberg", "e", "known")


@pytest.mark.parametrize("conf", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize("table", ["known", "indexed"])
def test_on_every_engine(
    spark: SparkSession, format: str, conf: dict[str, str], table: str
) -> None:
    query = joined("f.l BETWEEN d.l1 AND d.l2", table=table)
    found = same_rows(spark, query, conf=conf)
    assert fact(found).opened == 2, str(found.explained)
    # Before Spark 4.1, without adaptive execution, subqueries get other ids.
    is_named = RELEASE >= (4, 1) or not conf.items() >= PLAIN.items()
    side = "periods" if is_named else "a dimension"
    assert f"2 ranges of {side} for l:" in str(found.explained)


FORMS = {
    "ends that are not included": (joined("f.l > d.l1 AND f.l < d.l2", "d.name = 'edge'"), 2),
    "turned round": (joined("d.l1 <= f.l AND d.l2 >= f.l"), 2),
    "only a beginning": (joined("f.l >= d.l1", "d.name = 'edge'"), 11),
    "only an end": (joined("f.l < d.l1", "d.name = 'spring'"), 6),  # the end is at the file's least
    "three conditions": (joined("f.l >= d.l1 AND f.l < d.l2 AND f.l > d.l1 + 1"), 2),
    "an expression": (joined("f.l BETWEEN d.l1 - 10 AND d.l1 + INT(1)"), 3),
    "nothing in the range": (joined("f.l BETWEEN d.l1 AND d.l2", "d.name = 'never'"), 0),
    "far from each other": (joined("f.l BETWEEN d.l1 AND d.l2", "d.name = 'weekly'"), 3),
    "more than an index is asked": (joined("f.l BETWEEN d.l1 AND d.l2", "d.name = 'daily'"), 2),
    "a key, too": (joined("f.day = d.day1 AND f.l BETWEEN d.l1 AND d.l2"), 2),
    "two columns": (joined("f.l BETWEEN d.l1 AND d.l2 AND f.x >= d.x1 AND f.x <= d.x2"), 2),
    "semi": (
        "SELECT id FROM known f WHERE EXISTS (SELECT 1 FROM periods d WHERE d.name = 'spring'"
        " AND f.l BETWEEN d.l1 AND d.l2)",
        2,
    ),
    "right outer": (
        "SELECT f.id, d.name FROM known f RIGHT JOIN"
        " (SELECT * FROM periods WHERE name IN ('spring', 'open')) d ON f.l BETWEEN d.l1 AND d.l2",
        2,
    ),
    "what NOT EXISTS looks up": (
        "SELECT d.name, d.l1 FROM periods d WHERE d.name IN ('spring', 'open') AND NOT EXISTS"
        " (SELECT 1 FROM known f WHERE f.l BETWEEN d.l1 AND d.l2)",
        2,
    ),
    "below a group": (
        "SELECT f.l, f.c, d.name FROM (SELECT l, count(*) AS c FROM known GROUP BY l) f"
        " JOIN periods d ON f.l BETWEEN d.l1 AND d.l2 WHERE d.name = 'spring'",
        2,
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_form(spark: SparkSession, format: str, form: str) -> None:
    query, opened = FORMS[form]
    tables = ["known"] if form in ("semi", "right outer", "below a group") else ["known", "indexed"]
    for table in tables:
        found = same_rows(spark, query.replace("known", table))
        assert fact(found).opened == opened, str(found.explained)


@pytest.mark.parametrize("name", ["open", "none"])
def test_no_range_at_all(spark: SparkSession, format: str, name: str) -> None:
    """Comparisons with null are never true."""
    for conf in ENGINES.values():
        query = joined("f.l BETWEEN d.l1 AND d.l2", f"d.name = '{name}'")
        found = same_rows(spark, query, conf=conf)
        assert not any(s.opened for s in found.explained.scans if s.table.endswith("known"))


KEPT = {
    "a preserved side": (
        "SELECT f.id, d.name FROM known f LEFT JOIN (SELECT * FROM periods WHERE name = 'spring') d"
        " ON f.l BETWEEN d.l1 AND d.l2",
        "keeps rows without a partner",
    ),
    "what NOT EXISTS returns": (
        "SELECT id FROM known f WHERE NOT EXISTS (SELECT 1 FROM periods d WHERE d.name = 'spring'"
        " AND f.l BETWEEN d.l1 AND d.l2)",
        "keeps rows without a partner",
    ),
    "a function of the column": (
        joined("abs(f.l) BETWEEN d.l1 AND d.l2", table="indexed"),
        r"the join key is abs\(l\)",
    ),
    "NaN is above all numbers": (joined("f.x >= d.x1"), ""),
}


@pytest.mark.parametrize("form", KEPT)
def test_what_reads_all(spark: SparkSession, format: str, form: str) -> None:
    query, why = KEPT[form]
    found = same_rows(spark, query)
    assert fact(found).opened == FILES, str(found.explained)
    assert re.search(why, str(fact(found))), str(found.explained)


CASTS = {
    "the day of a time": "date(f.ts) = date(d.ts1)",
    "days of times": "date(f.ts) BETWEEN date(d.ts1) AND date(d.ts2)",
    "the day of a time without a zone": "date(f.ntz) = date(d.ts1)",
    "a day as a time": "f.day = CAST(d.day1 AS TIMESTAMP)",
    "days as times": "f.day BETWEEN d.ts1 AND d.ts2",
    "a decimal of another scale": "f.e = CAST(d.e1 AS DECIMAL(14, 5)) + 0.00001 - 0.00001",
    "an integer as a decimal": "f.i = CAST(d.e1 AS DECIMAL(14, 5)) + 0.5",
    "an integer as a double": "f.i = d.x1",
    "a bigint as a decimal": "f.l = CAST(d.e1 AS DECIMAL(22, 2))",
}


@pytest.mark.parametrize("form", CASTS)
@pytest.mark.parametrize("conf", [{}, PLAIN | SMJ], ids=["adaptive", "plain, sorted"])
def test_a_key_that_is_cast(
    spark: SparkSession, format: str, form: str, conf: dict[str, str]
) -> None:
    """As many files are opened as have rows with a partner."""
    for table in ("known", "indexed"):
        query = joined(CASTS[form], "d.name = 'spring'", table)
        found = same_rows(spark, query, conf=conf)
        assert found.rows
        files = spark.sql(query).selectExpr("count(DISTINCT id div 60)").first()
        assert files is not None
        wide = is_wide(format, CASTS[form][2], table)
        assert fact(found).opened in (files[0], files[0] + wide), str(found.explained)
        assert fact(found).opened < FILES


@pytest.mark.parametrize("function", ["CAST(f.x AS INT)", "f.ts || ''"])
def test_a_cast_that_does_not_say_what_the_column_was(
    spark: SparkSession, format: str, function: str
) -> None:
    key = {"f.ts || ''": "string(d.ts1)"}.get(function, "INT(d.l1)")
    query = joined(f"{function} = {key}", "d.name = 'spring'", "indexed")
    found = same_rows(spark, query)
    assert found.rows
    assert fact(found).opened == FILES
    assert "the join key is" in str(found.explained)


ZONES = {  # around a day that is twice there, in part, or left out
    "America/St_Johns": "1988-10-28",  # at 00:01 to 23:01, half of an hour off
    "Pacific/Apia": "2011-12-28",  # without the 30th
    "Pacific/Kwajalein": "1969-09-28",  # the 30th twice
    "America/Sao_Paulo": "2018-11-02",  # at 00:00 to 01:00
    "Europe/Berlin": "2024-10-25",
}


@pytest.mark.parametrize("zone", ZONES)
def test_days_where_clocks_change(spark: SparkSession, format: str, zone: str) -> None:
    with settings(spark, {"spark.sql.session.timeZone": zone}):
        start = f"timestamp_seconds(unix_seconds(TIMESTAMP'{ZONES[zone]} 00:00:00') + 300 * id)"
        rows = (
            f"SELECT id, {start} AS ts, date({start}) AS day, int(id div 40) AS _f FROM range(1600)"
        )
        make_table(spark, "moments", rows, "ts MIN_MAX, day MIN_MAX")
        # A column for each form: whose keys are in vain beside the filter is remembered by it.
        each = f"SELECT DISTINCT date({start}) AS d FROM range(1600)"
        make_table(spark, "days", f"SELECT d, d AS e, d AS g, 0 AS _f FROM ({each})")
        days = [row[0] for row in spark.table("days").select("d").collect()]
        for day in days:
            for column, on in {
                "d": "date(m.ts) = d.d",
                "e": "date(m.ts) BETWEEN d.e AND d.e",
                "g": "m.day = TIMESTAMP(d.g)",
            }.items():
                of = f"d.{column} = DATE'{day}'"
                query = f"SELECT m.id FROM moments m JOIN days d ON {on} WHERE {of}"
                found = same_rows(spark, query)
                assert found.rows
                (scan,) = [s for s in found.explained.scans if s.table.endswith("moments")]
                assert scan.opened is not None
                assert scan.opened < 40
        spark.sql("DROP SKIPPING INDEX ON moments")
        for name in ("moments", "days"):
            spark.sql(f"DROP TABLE {name}")


def test_a_partition_column(spark: SparkSession, format: str) -> None:
    column = "day" if format == "iceberg" else "month"
    first = "d.day1" if format == "iceberg" else "date_trunc('month', d.day1)"
    query = joined(
        f"f.{column} BETWEEN CAST({first} AS DATE) AND d.day2", "d.name = 'spring'", "parted"
    )
    found = same_rows(spark, query)
    assert found.rows
    scan = fact(found)
    assert scan.opened
    assert scan.total
    assert scan.opened < scan.total / 2, str(found.explained)
    assert "PARTITION" in str(found.explained)
