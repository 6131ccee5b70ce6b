"""One condition after the other, with the index and without."""

from __future__ import annotations

from pyspark.sql import SparkSession

import rewrite
from tests.rewrite.differential import (
    Compared,
    batch,
    same_rows,
)

EVERY_KIND = ("VALUE_LIST", "MIN_MAX")


def check(spark: SparkSession, table: str, conditions: list[str], shown: str = "*") -> None:
    """Equal rows for all, and something was skipped over them."""
    found = [
        batch(spark, table, conditions[at : at + 20], shown=shown)
        for at in range(0, len(conditions), 20)
    ]
    assert sum(each.skipped for each in found) > 0


def both(condition: str, columns: tuple[str, str]) -> list[str]:
    return [condition.format(c=column) for column in columns]


def compared(spark: SparkSession, query: str) -> Compared:
    found = same_rows(spark, query)
    assert rewrite.explain(spark.sql(query)).execution is None
    return found
