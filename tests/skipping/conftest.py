"""A catalog, a store and random rows for the tests of tables, scans and filters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from skipping.stores.memory.store import MemoryStore

if TYPE_CHECKING:
    from tests.skipping.tables.world import World


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    made = SqlCatalog("own", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    made.create_namespace("db")
    yield made
    made.close()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore("pyiceberg")


@pytest.fixture(scope="module", params=["delta", "iceberg"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    from tests.skipping.tables.world import make_world  # which imports every engine

    return make_world(request.param, tmp_path_factory.mktemp(request.param) / "t")
