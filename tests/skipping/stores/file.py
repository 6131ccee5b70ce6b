"""One small index in a file, and what it answers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from skipping.model.definition import State
from skipping.stores.sqlite.store import SqliteStore
from tests.skipping.stores.small import DEFINITION, TESTS, entries

NOBODY = 65534
root_only = pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")


def make(path: Path, *, files: int = 10, patience: float = 30.0) -> SqliteStore:
    store = SqliteStore(path, patience=patience)
    store.define(DEFINITION, expect=None)
    store.write("i", entries(store.reserve("i", files)), revision=1)
    return store


def answers(store: SqliteStore) -> list[list[int]]:
    return [list(a) for a in store.find_prunable("i", TESTS, below=10, timeout=30)]


def readings(store: SqliteStore) -> list[Callable[[], object]]:
    return [
        store.definitions,
        lambda: store.state("i"),
        lambda: store.catalogue("i"),
        lambda: store.find_prunable("i", TESTS, below=10, timeout=5),
    ]


def changes(store: SqliteStore) -> list[Callable[[], object]]:
    return [
        lambda: store.reserve("i", 1),
        lambda: store.report("i", State()),
        lambda: store.write("i", entries(range(1)), revision=1),
        lambda: store.remove("i", pa.array([1])),
        lambda: store.erase("i"),
        lambda: store.define(DEFINITION, expect=1),
    ]
