"""Iceberg tables to join, and the engines that plan them."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.rewrite.differential import (
    Compared,
)

FILES = 8
ROWS = f"""SELECT id, int(id % 80) AS k, concat('s', id % 80) AS s, int(id % 4) AS p,
    int(id % {FILES}) AS m, repeat(md5(string(id)), 4) AS pad, int(id % {FILES}) AS _f
    FROM range(400)"""
INDEX = "k VALUE_LIST, s VALUE_LIST, m VALUE_LIST"
MERGE_ON_READ = {f"write.{c}.mode": "merge-on-read" for c in ("delete", "update", "merge")}
PLAIN = {"spark.sql.adaptive.enabled": "false"}
SMJ = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
ENGINES = {"adaptive": {}, "plain": PLAIN}
on_both_engines = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
JOIN = "SELECT * FROM {t} f JOIN few ON f.k = few.k WHERE name = 'n3'"


def drop(spark: SparkSession, name: str) -> None:
    spark.sql(f"DROP SKIPPING INDEX IF EXISTS ON {name}")
    spark.sql(f"DROP TABLE {name}")


def one_of(found: Compared, name: str = ".t") -> int | None:
    """The files opened in the one scan of the table."""
    (scan,) = [s for s in found.explained.scans if s.table.endswith(name)]
    return scan.opened
