"""A table of twelve files, what indexes it, and what it holds."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.rewrite.differential import (
    settings,
    spelled,
)

FILES = 12
ROWS = f"""
    SELECT int(f + {FILES} * i) AS k, int(100 * f + i) AS m, concat('n', f, '-', i) AS name,
           IF(f = 0 OR (f = 1 AND i % 2 = 0), NULL, int(f)) AS n,
           IF(f = 2, NULL, named_struct('a', int(f), 'b', named_struct('c', concat('c', f)))) AS st,
           i, f AS _f
    FROM (SELECT int(id % {FILES}) AS f, int(id div {FILES}) AS i FROM range({5 * FILES}))
"""
INDEX = "k VALUE_LIST, m MIN_MAX, name VALUE_LIST, n VALUE_LIST, st.a VALUE_LIST, st.b.c VALUE_LIST"


def location(spark: SparkSession, table: str = "base") -> str:
    return str(spark.sql(f"DESCRIBE DETAIL {table}").collect()[0]["location"])


def contents(spark: SparkSession, table: str) -> list[str]:
    with settings(spark, {"spark.skipping.enabled": "false"}):
        return spelled(spark.table(table).collect())
