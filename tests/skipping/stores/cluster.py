"""One small index in a cluster, and what it answers."""

from __future__ import annotations

import uuid
from typing import Any

from skipping.stores.opensearch.credentials import Access
from skipping.stores.opensearch.store import OpenSearchStore
from tests.skipping.stores.small import DEFINITION, TESTS, entries


def make(address: str, *, files: int = 10, **more: Any) -> OpenSearchStore:
    """A store with one index, under a prefix of its own, which reads nothing ahead."""
    access = Access(prefix=f"faults-{uuid.uuid4().hex[:12]}-")
    store = OpenSearchStore(f"http://{address}", access, **{"kept": 0, **more})
    store.define(DEFINITION, expect=None)
    if files:
        store.write("i", entries(store.reserve("i", files)), revision=1)
    return store


def at(store: OpenSearchStore, address: str, **more: Any) -> OpenSearchStore:
    """The same store, reached in another way."""
    access = Access(prefix=store._access.prefix)
    return OpenSearchStore(f"http://{address}", access, **{"kept": 0, **more})


def answers(store: OpenSearchStore, *, timeout: float = 30) -> list[list[int]]:
    return [list(a) for a in store.find_prunable("i", TESTS, below=10, timeout=timeout)]


def ordinals(store: OpenSearchStore) -> list[int]:
    found: list[int] = store.catalogue("i").files["ordinal"].to_pylist()
    return found
