"""Tables to index, and what a statement or a query of them says."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

import rewrite
from providers.errors import SkippingError
from skipping import ScanPlan

FLINT = Path(__file__).parents[1] / "parser" / "flint.sql"
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_numbers = itertools.count()


def fresh() -> str:
    return f"cmd{next(_numbers):03}"


def make(spark: SparkSession, name: str, *, files: int = 4, start: int = 0) -> None:
    """Ten rows a file, `id` clustered; Delta keeps no bounds, so that only an index skips."""
    frame = spark.range(start, start + 10 * files, 1, files)
    frame.selectExpr("id", "cast(id % 7 as string) AS s", "id * 2 AS n").write.format(
        "delta"
    ).option("delta.dataSkippingNumIndexedCols", "0").mode("append").saveAsTable(name)


def indexes(spark: SparkSession, name: str) -> list[Row]:
    return [
        row for row in spark.sql("SHOW SKIPPING INDEXES EXTENDED").collect() if row.table == name
    ]


def facts(spark: SparkSession, name: str) -> dict[str, str | None]:
    rows = spark.sql(f"DESCRIBE SKIPPING INDEX EXTENDED ON {name}").collect()
    assert len({row.item for row in rows}) == len(rows)
    return {row.item: row.value for row in rows}


def scan(spark: SparkSession, query: str) -> ScanPlan:
    df = spark.sql(query)
    df.collect()
    (plan,) = rewrite.explain(df).scans
    return plan


def opened(spark: SparkSession, query: str) -> int | None:
    return scan(spark, query).opened


def refused(spark: SparkSession, text: str, error: type[SkippingError] = SkippingError) -> str:
    with pytest.raises(error) as caught:
        spark.sql(text)
    return str(caught.value)


def word(message: str) -> str:
    """What the mark stands under."""
    *_, line, mark = message.split("\n")
    return line[mark.index("^") : mark.rindex("^") + 1]
