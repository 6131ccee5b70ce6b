"""Joins on `f.a = d.a OR f.b = d.b`: a file is opened if it may have a key of either column."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.rewrite.differential import (
    IS_SPARK_4,
    in_catalog_of,
    make_table,
    same_rows,
    settings,
    smoke_on,
)

pytestmark = pytest.mark.nightly

FILES = 12
FACT = f"""SELECT id, int(id) AS k, int(59 - id) AS m, int(id) AS o, float(id) / 2 AS x,
        string(id) AS name, IF(id % 7 = 0, NULL, int(id % 5)) AS i,
        repeat(md5(string(id)), 4) AS pad,
        int(id div 5) AS _f
    FROM range({5 * FILES})"""
BOUNDS = {
    "delta.dataSkippingNumIndexedCols": "32",
    "write.metadata.metrics.default": "truncate(16)",
}
DIM = """SELECT *, 0 AS _f FROM VALUES (7, 42, 'a'), (8, -5, 'b'), (3000, NULL, 'c'),
    (NULL, NULL, 'd'), (50, 3, 'x') AS s(a, b, v)"""
D = "(SELECT * FROM d WHERE v < 'm') s"
EITHER = "t.k = s.a OR t.m = s.b"

PLAIN = {"spark.sql.adaptive.enabled": "false"}
SMJ = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
ENGINES = {"adaptive": {}, "plain": PLAIN, "large": SMJ, "plain, large": PLAIN | SMJ}

JOINS = {
    "inner": (f"SELECT t.*, s.v FROM f t JOIN {D} ON {EITHER}", 2),
    "the sides the other way round": (f"SELECT t.*, s.v FROM {D} JOIN f t ON {EITHER}", 2),
    "left": (f"SELECT t.id, s.v FROM {D} LEFT JOIN f t ON {EITHER}", 2),
    "right": (f"SELECT t.id, s.v FROM f t RIGHT JOIN {D} ON {EITHER}", 2),
    "semi": (f"SELECT * FROM f t WHERE EXISTS (SELECT 1 FROM {D} WHERE {EITHER})", 2),
    "anti": (f"SELECT * FROM {D} WHERE NOT EXISTS (SELECT 1 FROM f t WHERE {EITHER})", 2),
    "more conditions": (
        f"SELECT t.id FROM f t JOIN {D} ON (t.k = s.a AND t.i > s.b OR t.m = s.b) AND t.o < 40",
        2,
    ),
    "a value": (f"SELECT t.id FROM f t JOIN {D} ON t.k = s.a OR t.m = 0 AND s.v = 'a'", 2),
    "three": (f"SELECT t.id FROM f t JOIN {D} ON {EITHER} OR t.name = string(s.a + 20)", 3),
    "floats": (f"SELECT t.id FROM f t JOIN {D} ON t.k = s.a OR t.x = s.a", 3),
    "an index and bounds": (f"SELECT t.id FROM f t JOIN {D} ON t.k = s.a OR t.o = s.b", 2),
    "below a projection": (
        f"SELECT t.id FROM (SELECT id, k AS p, m AS q FROM f) t JOIN {D} ON t.p = s.a OR t.q = s.b",
        2,
    ),
    "a union": (
        f"SELECT t.id FROM (SELECT * FROM f UNION ALL SELECT * FROM f) t JOIN {D} ON {EITHER}",
        4,
    ),
    "below an aggregate": (
        f"SELECT t.* FROM (SELECT k, m, count(*) FROM f GROUP BY k, m) t JOIN {D} ON {EITHER}",
        2,
    ),
    "also an equality": (
        f"SELECT t.id FROM f t JOIN {D} ON t.name = string(s.a) AND ({EITHER})",
        1,
    ),
}
ALL = {
    "left, of the fact": f"SELECT t.id, s.v FROM f t LEFT JOIN {D} ON {EITHER}",
    "full": f"SELECT t.id, s.v FROM f t FULL JOIN {D} ON {EITHER}",
    "anti, of the fact": f"SELECT * FROM f t WHERE NOT EXISTS (SELECT 1 FROM {D} WHERE {EITHER})",
    "no equality": f"SELECT t.id FROM f t JOIN {D} ON t.k = s.a OR t.m + s.b = 42",
    "nulls are equal": f"SELECT t.id FROM f t JOIN {D} ON t.k = s.a OR t.m <=> s.b",
    "below an aggregate by one column": f"""SELECT t.* FROM
        (SELECT k, max(m) AS m FROM f GROUP BY k) t JOIN {D} ON {EITHER}""",
    "text without case": f"""SELECT t.id
        FROM (SELECT id, k, name COLLATE UTF8_LCASE AS name FROM f) t
        JOIN {D} ON t.k = s.a OR t.name = s.v COLLATE UTF8_LCASE""",
}


@pytest.fixture(scope="module")
def format(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    index = "k VALUE_LIST, m MIN_MAX, name VALUE_LIST, x MIN_MAX"
    with in_catalog_of(spark, request.param):
        make_table(spark, "f", FACT, index, properties=BOUNDS)
        make_table(spark, "d", DIM)
        yield request.param
        spark.sql("DROP SKIPPING INDEX ON f")
        for name in ("f", "d"):
            spark.sql(f"DROP TABLE {name}")


@smoke_on("delta")
@pytest.mark.parametrize("engine", ENGINES)
def test_files_with_a_key_of_either_column(spark: SparkSession, format: str, engine: str) -> None:
    for name, (query, files) in JOINS.items():
        with settings(spark, ENGINES[engine]):
            found = same_rows(spark, query)
        scans = [s for s in found.explained.scans if s.table.endswith("f")]
        opened = sum(scan.opened or 0 for scan in scans)
        assert opened == files, f"{name}: {found.explained}"


@smoke_on("delta")
def test_what_prunes_nothing(spark: SparkSession, format: str) -> None:
    for name, query in ALL.items():
        if "COLLATE" in query and not IS_SPARK_4:
            continue
        found = same_rows(spark, query)
        scans = [s for s in found.explained.scans if s.table.endswith("f")]
        assert [s.opened for s in scans] == [FILES], f"{name}: {found.explained}"


@smoke_on("delta")
def test_explain_shows_the_keys_of_either_column(spark: SparkSession, format: str) -> None:
    found = same_rows(spark, JOINS["inner"][0])
    assert re.search(r"k OR m IN \(4 keys of (\w+\.)*d\)", str(found.explained))
