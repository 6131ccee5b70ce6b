"""A table name for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from skipping.stores.memory.store import MemoryStore
from tests.skipping.tables.formats import FORMATS, Format


@pytest.fixture
def name(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    form: Format = getattr(request, "param", FORMATS["delta"])
    name = form.name()
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    made = SqlCatalog("own", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    made.create_namespace("db")
    yield made
    made.close()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore("pyiceberg")
