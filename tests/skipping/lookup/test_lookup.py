"""A store that hangs costs a question no more than its budget."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from providers.errors import StoreError
from providers.predicate import Compare
from providers.values import domain_of
from skipping.indexing.definitions import find_live_index
from skipping.lookup.lookup import Lookup, invalidate
from skipping.lookup.translate import QueryColumn
from skipping.model.definition import Definition, IndexedColumn, TableId, Versioned
from skipping.stores.memory.store import MemoryStore

DEFINITION = Definition(
    "i", TableId("delta", "t", "file:/t"), "t", (IndexedColumn(1, "x", "x", "bigint", "MIN_MAX"),)
)


class Slow(MemoryStore):
    """Waits until it may go, as long as it is allowed to."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def _wait(self, timeout: float | None) -> None:
        if not self.go.wait(30 if timeout is None else timeout):
            raise StoreError("it hangs")

    def definitions(self, *, timeout: float | None = None) -> Any:
        self._wait(timeout)
        return super().definitions(timeout=timeout)

    def catalogue(self, index: str, *, timeout: float | None = None, **more: Any) -> Any:
        self._wait(timeout)
        return super().catalogue(index, timeout=timeout, **more)


def test_a_store_that_hangs() -> None:
    store = Slow()
    store.define(DEFINITION, expect=None)
    file = {"ordinal": store.reserve("i", 1), "path": ["f"], "size": [1], "stamp": [None]}
    sketch = {"partition": ["{}"], "s1_known": [True], "s1_low": [1], "s1_high": [2]}
    store.write("i", pa.table({**file, **sketch, "s1_nulls": [0]}), revision=1)
    domain = domain_of(pa.int64())
    assert domain is not None
    lookup = Lookup(store, ttl=0)

    def ask(timeout: float) -> list[int]:
        lookup.definitions(timeout=timeout)
        columns = {"x": QueryColumn("x", domain)}
        return list(lookup.find(DEFINITION, Compare("x", ">", 9), columns, timeout=timeout).pruned)

    began = time.monotonic()
    with pytest.raises(StoreError, match="it hangs"):
        lookup.definitions(timeout=0.1)
    with pytest.raises(StoreError, match="in time"):
        lookup.find(DEFINITION, Compare("x", ">", 9), {}, timeout=0.1)
    assert time.monotonic() - began < 5
    store.go.set()  # the first reading of the catalogue went on meanwhile
    assert ask(30) == [0]
    store.go.clear()
    with pytest.raises(StoreError, match="it hangs"):
        lookup.entries.get("i", timeout=0.1)


class Crowded(MemoryStore):
    """Has too many definitions of other tables to list them."""

    def definitions(self, *, timeout: float | None = None) -> Any:
        raise StoreError("the list takes too long")


def test_definition_of_a_table_needs_no_list() -> None:
    store, table = Crowded(), DEFINITION.table
    clock = iter(range(0, 1_000, 10))
    lookup = Lookup(store, ttl=25, clock=lambda: next(clock))
    changed = list[Lookup]()
    lookup.on_change = lambda: changed.append(lookup)
    assert lookup.definition(table) is None
    store.define(DEFINITION, expect=None)
    assert lookup.definition(table) is None, "cached"
    lookup.expire()
    assert lookup.definition(table) == DEFINITION
    assert find_live_index(store, cast(Any, SimpleNamespace(id=table))) == Versioned(DEFINITION, 1)
    dropped = replace(DEFINITION, dropped=True)
    store.define(dropped, expect=1)
    after = replace(DEFINITION, index="j", enabled=False)
    store.define(after, expect=None)
    assert lookup.entries.get("i").entries.below == 0
    invalidate(MemoryStore("another"))
    assert changed == [lookup]
    invalidate(store)
    assert changed == [lookup] * 2
    assert lookup.definition(table) is None, "disabled"
    assert lookup.entries.peek("i") is None
    store.define(replace(after, enabled=True), expect=1)
    for _ in range(3):
        found = lookup.definition(table)
    assert found == replace(after, enabled=True), "not cached for longer"


def test_definitions_of_tables_are_cached_in_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer of a table chooses its id."""
    monkeypatch.setattr("skipping.lookup.lookup._MAX_TABLES", 3)
    lookup = Lookup(MemoryStore(), ttl=60)
    for n in range(9):
        assert lookup.definition(TableId("iceberg", f"{n}", "file:/t")) is None
    assert len(lookup._by_table) == 3
    known = dict(lookup._by_table)
    assert lookup.definition(TableId("iceberg", "x" * 5_000, "file:/t")) is None
    assert lookup._by_table == known
