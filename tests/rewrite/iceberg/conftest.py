"""A catalog of Iceberg's with a fact and a dimension."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.rewrite.differential import (
    in_catalog_of,
    make_table,
)
from tests.rewrite.iceberg.tables import INDEX, ROWS, drop


@pytest.fixture(scope="module", autouse=True)
def catalog(spark: SparkSession) -> Iterator[None]:
    with in_catalog_of(spark, "iceberg"):
        rows = "SELECT int(id) AS k, concat('n', id % 8) AS name, 0 AS _f FROM range(80)"
        make_table(spark, "few", rows)
        make_table(spark, "base", ROWS, INDEX)
        yield
        drop(spark, "base")
        spark.sql("DROP TABLE few")


@pytest.fixture
def base() -> str:
    """A table that no test changes."""
    return "base"


@pytest.fixture
def table(spark: SparkSession) -> Iterator[str]:
    yield make_table(spark, "t", ROWS, INDEX)
    drop(spark, "t")
