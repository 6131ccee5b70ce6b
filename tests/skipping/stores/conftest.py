"""The stores under contract: a new one is one line in FACTORIES."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from skipping.stores import IndexStore
from skipping.stores.memory import MemoryStore
from skipping.stores.sqlite import SqliteStore

FACTORIES: dict[str, Callable[[Path], IndexStore]] = {
    "memory": lambda folder: MemoryStore(folder.name),
    "sqlite": lambda folder: SqliteStore(folder / "store.db"),
}
ONE_PROCESS = {"memory"}  # a pickled copy of these is another store


@pytest.fixture(params=FACTORIES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> IndexStore:
    """A new, empty store of each sort."""
    return FACTORIES[request.param](tmp_path)


@pytest.fixture(scope="module", params=FACTORIES)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> IndexStore:
    """One store of each sort for all examples of a property; every example makes its own index."""
    return FACTORIES[request.param](tmp_path_factory.mktemp("shared"))


@pytest.fixture(params=[name for name in FACTORIES if name not in ONE_PROCESS])
def reachable(request: pytest.FixtureRequest, tmp_path: Path) -> IndexStore:
    """A new store that other processes reach through a pickled copy."""
    return FACTORIES[request.param](tmp_path)


@pytest.fixture(scope="session")
def processes() -> Iterator[ProcessPoolExecutor]:
    """Four other processes, which share nothing with this one."""
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(abs, range(4)))
        yield pool
