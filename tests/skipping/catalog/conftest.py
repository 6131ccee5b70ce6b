"""One catalog behind, and one service before it, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import TypeAlias

import pytest

from skipping.catalog.workers import Bounds, Workers
from tests.rest_catalog import RestCatalog
from tests.skipping.catalog.forged import Tables
from tests.skipping.catalog.running import Numbered, Service, client, index, make


@pytest.fixture(scope="session")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    with RestCatalog(tmp_path_factory.mktemp("behind")) as server:
        yield server


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:{tmp_path_factory.mktemp('store') / 'index.sqlite'}"


@pytest.fixture(scope="session")
def service(behind: RestCatalog, store: str, base: Numbered) -> Iterator[Service]:
    started = Service(behind.uri, store)
    yield started
    code, log = started.stop()
    assert (code, log) == (0, ""), log


@pytest.fixture(scope="session")
def base(behind: RestCatalog, store: str) -> Numbered:
    """A table with an index that no test changes."""
    made = make(client(behind.uri), "db.base")
    index(made, store)
    return made


Pool: TypeAlias = Callable[..., Workers]


@pytest.fixture
def pool() -> Iterator[Pool]:
    """Make pools of worker processes with these bounds, and close them at the end."""
    with ExitStack() as made:
        yield lambda **bounds: made.enter_context(closing(Workers(Bounds(**bounds))))


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return Tables(tmp_path_factory.mktemp("tables"))


@pytest.fixture(autouse=True)
def planner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polars has planners of its own, of which PyIceberg's asks a catalog for plans."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
