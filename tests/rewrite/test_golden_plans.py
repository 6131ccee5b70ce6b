"""Logical plans as the rules leave them, one for each shape of a join: `golden/plans.txt`.

After a change that is meant, `SKIPPING_TEST_WRITE=1` writes them anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.rewrite.differential import make_table, settings

GOLDEN = Path(__file__).parent / "golden" / "plans.txt"
D = "(SELECT k, g FROM d WHERE g = 3)"

SHAPES = {
    "inner join": f"SELECT f.id FROM f JOIN {D} d ON f.k = d.k",
    "IN": f"SELECT f.id FROM f WHERE k IN (SELECT k FROM {D})",
    "outer join, the side that may lose rows": f"SELECT f.id FROM {D} d LEFT JOIN f ON f.k = d.k",
    "NOT EXISTS, the looked-up side": (
        f"SELECT d.g FROM {D} d WHERE NOT EXISTS (SELECT 1 FROM f WHERE f.k = d.k)"
    ),
    "through UNION ALL": (
        f"SELECT u.id FROM (SELECT id, k FROM f UNION ALL SELECT k, m FROM f) u"
        f" JOIN {D} d ON u.k = d.k"
    ),
    "through an aggregate by the key": (
        f"SELECT a.n FROM (SELECT k, count(*) AS n FROM f GROUP BY k) a JOIN {D} d ON a.k = d.k"
    ),
    "through the latest row of the key": (
        "SELECT w.id FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY id) AS r FROM f) w"
        f" JOIN {D} d ON w.k = d.k WHERE r = 1"
    ),
    "a snowflake": (
        "SELECT f.id FROM f JOIN d ON f.k = d.k JOIN (SELECT g FROM e WHERE h = 2) e ON d.g = e.g"
    ),
    "IN or IN or a constant": (
        f"SELECT id FROM f WHERE k IN (SELECT k FROM {D}) OR k = 5"
        " OR k IN (SELECT g FROM e WHERE h = 2)"
    ),
    "a range": "SELECT f.id FROM f JOIN (SELECT k, g FROM d WHERE g = 3) d"
    " ON f.k BETWEEN d.k AND d.g",
    "a key with a default": f"SELECT f.id FROM f JOIN {D} d ON coalesce(f.k, 0) = d.k",
    "a constant": "SELECT f.id FROM f JOIN (SELECT 5 AS k) d ON f.k = d.k",
    "a side that must not run twice, and is shuffled": (
        "SELECT /*+ MERGE(f, d) */ f.id FROM f"
        " JOIN (SELECT explode(array(k, g)) AS k FROM d WHERE g = 3) d ON f.k = d.k"
    ),
    "a preserved side": f"SELECT f.id FROM f LEFT JOIN {D} d ON f.k = d.k",
}


@pytest.fixture(scope="module", autouse=True)
def tables(spark: SparkSession) -> Iterator[None]:
    rows = """SELECT int(id) AS id, int(id % 40) AS k, int(id % 7) AS m, repeat(md5(string(id)), 8)
        AS pad, int(id % 4) AS _f FROM range(4000)"""
    make_table(spark, "f", rows, "k VALUE_LIST, id MIN_MAX, m VALUE_LIST")
    make_table(spark, "d", "SELECT int(id) AS k, int(id % 5) AS g, 0 AS _f FROM range(40)")
    make_table(spark, "e", "SELECT int(id) AS g, int(id % 3) AS h, 0 AS _f FROM range(5)")
    yield
    spark.sql("DROP SKIPPING INDEX ON f")
    for name in "fde":
        spark.sql(f"DROP TABLE {name}")


def plan(spark: SparkSession, query: str) -> str:
    """Without the numbers that Spark gives columns and subqueries."""
    text = spark.sql(query)._jdf.queryExecution().optimizedPlan().toString()
    text = re.sub(r"#\d+L?|, \d+ rows|plan_id=\d+", "", text)
    text = re.sub(r", (true|false)\)", ")", text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def test_plans(spark: SparkSession) -> None:
    with settings(spark, {"spark.sql.autoBroadcastJoinThreshold": "10m"}):
        found = "\n".join(f"== {name}\n{plan(spark, query)}\n" for name, query in SHAPES.items())
    if os.environ.get("SKIPPING_TEST_WRITE"):
        GOLDEN.write_text(found)
    assert found == GOLDEN.read_text()
