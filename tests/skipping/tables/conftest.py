"""A table name of the format under test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.skipping.tables.formats import FORMATS, Format


@pytest.fixture
def name(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    form: Format = getattr(request, "param", FORMATS["delta"])
    name = form.name()
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")
