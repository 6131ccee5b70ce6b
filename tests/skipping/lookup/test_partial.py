"""Questions while the files of an index are still being read: the same answer, or more files."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from providers.errors import Rewound
from providers.predicate import Compare
from providers.values import domain_of
from skipping.lookup.entries_cache import CachedEntries
from skipping.lookup.lookup import Lookup, LookupResult
from skipping.lookup.translate import QueryColumn
from skipping.model.definition import Definition, IndexedColumn, TableId
from skipping.stores import Catalogue
from skipping.stores.sqlite import fields
from skipping.stores.sqlite.store import SqliteStore
from tests.skipping.stores.samples import bounds, entries

DEFINITION = Definition(
    "i", TableId("delta", "t", "file:/t"), "t", (IndexedColumn(1, "x", "x", "bigint", "MIN_MAX"),)
)
FILES, GREAT = 100, 70


def write(store: SqliteStore, n: int) -> None:
    ordinals = store.reserve("i", n)
    values = bounds(ordinals) | {"s1_nulls": [0] * n}
    store.write("i", entries(ordinals, values), revision=1)


def ask(lookup: Lookup, timeout: float) -> LookupResult:
    domain = domain_of(pa.int64())
    assert domain is not None
    columns = {"x": QueryColumn("x", domain)}
    return lookup.find(DEFINITION, Compare("x", ">", GREAT), columns, timeout=timeout)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store whose parts have many blocks."""
    monkeypatch.setattr(fields, "_ROWS", 10)
    store = SqliteStore(tmp_path / "store.db")
    store.define(DEFINITION, expect=None)
    for _ in range(2):
        write(store, FILES // 2)
    return tmp_path / "store.db"


@pytest.fixture
def go(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A lookup that reads more than three blocks of a run waits for this; a command does not."""
    event, read, test = threading.Event(), fields._read, threading.current_thread()

    def slowly(*place: Any) -> Iterator[pa.Table]:
        for number, table in enumerate(read(*place)):
            if number >= 3 and threading.current_thread() is not test:
                event.wait(30)
            yield table

    monkeypatch.setattr(fields, "_read", slowly)
    yield event
    event.set()


def eventually_whole(lookup: Lookup) -> CachedEntries:
    deadline = time.monotonic() + 30
    while not (known := lookup.entries.get("i", timeout=30)).entries.whole:
        assert time.monotonic() < deadline
    return known


def test_what_was_read_by_then_is_answered(path: Path, go: threading.Event) -> None:
    lookup = Lookup(SqliteStore(path), ttl=3_600)
    first = ask(lookup, 1)
    there = first.files["ordinal"].to_pylist()
    assert there == list(range(30))
    assert list(first.pruned) == list(range(30))  # of the others nothing is known
    again = ask(lookup, 1)
    assert (list(again.pruned), again.entries_id) == (list(first.pruned), first.entries_id)
    go.set()
    known = eventually_whole(lookup)
    assert known.id == first.entries_id
    assert known.entries.files["ordinal"].to_pylist()[: len(there)] == there
    deadline = time.monotonic() + 30
    while len((last := ask(lookup, 30)).pruned) <= GREAT:
        assert time.monotonic() < deadline
    assert list(last.pruned) == list(range(GREAT + 1))
    assert len(last.files) == FILES


def test_what_is_read_while_others_write(path: Path, go: threading.Event) -> None:
    """Bounds that are not all here cannot be brought up to date: then nothing is pruned."""
    store = SqliteStore(path)
    lookup = Lookup(store, ttl=3_600)
    assert len(ask(lookup, 1).pruned) == 30
    SqliteStore(path).remove("i", pa.array([0]))
    assert list(ask(lookup, 1).pruned) == []
    go.set()
    deadline = time.monotonic() + 30
    while list(ask(lookup, 30).pruned) != list(range(1, GREAT + 1)):
        assert time.monotonic() < deadline


def test_entries_with_one_id_only_grow(path: Path) -> None:
    store = SqliteStore(path)
    lookup = Lookup(store, ttl=0)
    first = lookup.entries.get("i")
    assert lookup.entries.get("i") is first
    shutil.copy(path, f"{path}-kept")
    write(store, 5)
    grown = lookup.entries.get("i")
    assert grown.id == first.id
    ordinals = grown.entries.files["ordinal"].to_pylist()
    assert ordinals == list(range(FILES + 5))
    store.remove("i", pa.array([FILES + 4]))  # what comes next would be in its place
    shorter = lookup.entries.get("i")
    assert shorter.id != first.id
    store.remove("i", pa.array([3]))  # those after it are in other places
    less = lookup.entries.get("i")
    assert less.id not in (first.id, shorter.id)
    shutil.copy(f"{path}-kept", path)  # ordinals above are given out again
    with pytest.raises(Rewound):
        lookup.entries.get("i")
    assert lookup.entries.get("i").id not in (first.id, less.id)


def test_many_small_changes_are_put_together(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skipping.lookup.entries_cache._MAX_CHUNKS", 4)
    store = SqliteStore(path)
    lookup = Lookup(store, ttl=0)
    first = lookup.entries.get("i")
    for n in range(1, 10):
        write(store, 1)
        known = lookup.entries.get("i")
        assert known.entries.files["ordinal"].to_pylist() == list(range(FILES + n))
        assert known.entries.files["ordinal"].num_chunks <= 5
        assert known.id == first.id


class Overtaken(SqliteStore):
    """One thread at a time may be made to wait once it has read how the files changed."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.waits, self.go = threading.Event(), threading.Event()
        self.slow: int | None = None

    def catalogue(self, index: str, **how: Any) -> Catalogue:
        found = super().catalogue(index, **how)
        if threading.get_ident() == self.slow:
            self.waits.set()
            assert self.go.wait(30)
        return found


def test_refresh_that_is_overtaken_gives_entries_a_new_id(path: Path) -> None:
    """Else the files of a lost past would stand for ordinals that others have by now."""
    store = Overtaken(path)
    lookup = Lookup(store, ttl=0)
    first = lookup.entries.get("i")
    shutil.copy(path, f"{path}-kept")
    found: list[CachedEntries] = []

    def ask_slowly() -> None:
        store.slow = threading.get_ident()
        found.append(lookup.entries.get("i"))

    slow = threading.Thread(target=ask_slowly)
    write(store, 1)
    slow.start()
    assert store.waits.wait(30)
    shutil.copy(f"{path}-kept", path)  # the ordinal is given out again
    write(store, 1)
    other = lookup.entries.get("i")
    store.go.set()
    slow.join(30)
    (lost,) = found
    assert first.entries.generation not in (lost.entries.generation, other.entries.generation)
    assert lost is other or lost.id != other.id


def test_who_saw_no_change_takes_none_back(path: Path) -> None:
    store = Overtaken(path)
    lookup = Lookup(store, ttl=0)
    lookup.entries.get("i")
    found: list[CachedEntries] = []

    def ask_slowly() -> None:
        store.slow = threading.get_ident()
        found.append(lookup.entries.get("i"))

    slow = threading.Thread(target=ask_slowly)
    slow.start()
    assert store.waits.wait(30)
    write(store, 1)
    newer = lookup.entries.get("i")
    store.go.set()
    slow.join(30)
    assert len(newer.entries.files) == FILES + 1
    assert found == [newer]
    assert lookup.entries.peek("i") is newer
