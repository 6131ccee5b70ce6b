"""Fixtures for tests of queries on Spark."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.rewrite.star import Star


@pytest.fixture(scope="session")
def star(spark: SparkSession) -> Star:
    return Star(spark)
