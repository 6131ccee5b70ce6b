"""Tables to index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

import rewrite
from skipping.spark_api import RELEASE, classic
from tests.skipping.commands.samples import fresh, make


@pytest.fixture
def t(spark: SparkSession) -> Iterator[str]:
    name = fresh()
    make(spark, name)
    yield name
    spark.sql(f"DROP SKIPPING INDEX IF EXISTS ON {name}")
    spark.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.fixture(scope="module")
def wide(spark: SparkSession) -> Iterator[str]:
    """A table with no rows, and a column of each type that matters here."""
    name = fresh()
    variant = "v VARIANT, " if RELEASE >= (4, 0) else ""
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT, s STRING, day DATE, code CHAR(3), tags ARRAY<STRING>,"
        f" m MAP<STRING, INT>, {variant}a STRUCT<b: STRUCT<c: INT, `x.y`: STRING>>)"
        " USING delta PARTITIONED BY (day)"
    )
    yield name
    spark.sql(f"DROP TABLE {name}")


@pytest.fixture(scope="module")
def unhooked(spark: SparkSession) -> SparkSession:
    """A Delta session of its own in the same Spark context, where nothing was put in."""
    session: Any = classic(spark.sparkContext._jvm).SparkSession  # type: ignore[union-attr]
    jvm_session = session(spark.sparkContext._jsc.sc(), {})
    assert rewrite.bridge.install.find_hooks(SparkSession(spark.sparkContext, jvm_session)) is None
    return SparkSession(spark.sparkContext, jvm_session)
