"""A store that was restored from a backup and came as far again: what was remembered is not it."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any as Anything

import pyarrow as pa
import pytest

from providers.errors import Rewound
from providers.index_predicate import FieldCompare, Overlaps
from providers.predicate import In
from providers.values import Domain
from skipping.lookup.lookup import Lookup
from skipping.lookup.translate import QueryColumn
from skipping.model.definition import IndexedColumn
from skipping.stores import IndexStore
from skipping.stores.epochs import next_generation
from skipping.stores.folder.store import FolderStore
from skipping.stores.opensearch.store import OpenSearchStore
from skipping.stores.sqlite.store import SqliteStore
from tests.skipping.stores.samples import bounds, definition, entries

pytestmark = pytest.mark.nightly

LONG = Domain("integer", pa.int64())
KEYS = 300  # more than a query of OpenSearch says: it evaluates them on what it keeps


def backup(store: IndexStore) -> Callable[[], None]:
    """What puts everything back as it is now."""
    if isinstance(store, SqliteStore):
        path = store._path
        shutil.copy(path, f"{path}-kept")
        return lambda: (shutil.copy(f"{path}-kept", path), None)[1]
    if isinstance(store, FolderStore):
        return backup_of_folder(store)
    assert isinstance(store, OpenSearchStore)
    record = store._registry.read("i")
    path = f"/{store._access.prefix}catalogue/_doc/{store._registry._keys['i']}"
    kept = store._client.call("GET", path)["_source"]

    def restore() -> None:
        store._client.call("PUT", path, kept, refresh="true")
        later = {"range": {"generation": {"gt": record.generation}}}
        hits = store._client.search(record.entries, {"query": later})["hits"]["hits"]
        store._client.bulk(record.entries, [({"delete": {"_id": h["_id"]}}, None) for h in hits])
        store._client.call("POST", f"/{record.entries}/_refresh")

    return restore


def backup_of_folder(store: FolderStore) -> Callable[[], None]:
    objects = store._objects
    names = [each.name for prefix in ("log/", "data/") for each in objects.list(prefix)]
    kept = {name: objects.get(name, most=1 << 20) for name in names}

    def restore() -> None:
        gone = {each.name for prefix in ("log/", "data/") for each in objects.list(prefix)}
        objects.delete(sorted(gone - set(kept)))
        for name, data in kept.items():
            assert data is not None
            objects.replace(name, data)
        # As ten minutes later: docs/maintenance.md says to stop writers until then.
        store._confirmed_at = -float("inf")

    return restore


def write(store: IndexStore, lows: Sequence[int], *, name: str) -> None:
    ordinals = store.reserve("i", len(lows))
    paths: Anything = [f"{name}{o}" for o in ordinals]
    store.write("i", entries(ordinals, bounds(lows), path=paths), revision=1)


@pytest.mark.parametrize("ttl", [0, 3_600])
def test_a_lookup_follows_into_no_other_past(reachable: IndexStore, ttl: float) -> None:
    store = reachable
    column = IndexedColumn(1, "x", "x", "bigint", "MIN_MAX")
    made = replace(definition(), columns=(column,))
    store.define(made, expect=None)
    write(store, [0, 1], name="f")
    restore = backup(store)
    write(store, [2, 3], name="lost")
    lookup = Lookup(store, ttl=ttl)
    columns = {"x": QueryColumn("x", LONG, "bigint")}

    def list_files(*keys: int) -> list[str]:
        asked = In("x", pa.array([*keys, *range(1_000, 1_000 + KEYS)], pa.int64()))
        found = lookup.find(made, asked, columns, timeout=30)
        files = lookup.entries.get("i").entries.files
        names = zip(files["ordinal"].to_pylist(), files["path"].to_pylist(), strict=True)
        return [path for ordinal, path in names if ordinal not in found.pruned]

    assert list_files(2) == ["lost2"]
    restore()
    write(store, [3, 2], name="new")  # the same ordinals, after as many changes
    with pytest.raises(Rewound, match="read its entries again"):
        list_files(2)
    assert list_files(2) == ["new3"]
    assert list_files(1, 3) == ["f1", "new2"]


def test_a_past_that_never_was(store: IndexStore) -> None:
    store.define(definition(), expect=None)
    empty = store.catalogue("i")
    write(store, [0, 1], name="f")
    first = store.catalogue("i")
    store.remove("i", pa.array([0]))
    asked = [FieldCompare("low", "<", 1, "s1"), Overlaps("low", "high", pa.array([5]), "s1")]

    def find_prunable(generation: int) -> list[list[int]]:
        found = store.find_prunable("i", asked, below=9, timeout=30, generation=generation)
        return [list(answer) for answer in found]

    for known in (empty, first, store.catalogue("i")):
        assert find_prunable(known.generation) == [[1], [1]]
        assert known.after(store.catalogue("i", since=known.generation)).files["path"].to_pylist()
    drawn = first.generation
    while drawn == first.generation:
        drawn = next_generation(empty.generation)
    for unknown in (drawn, store.catalogue("i").generation + 1, next_generation(first.generation)):
        with pytest.raises(Rewound):
            find_prunable(unknown)
        with pytest.raises(Rewound):
            store.catalogue("i", since=unknown)


def test_generations_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    for drawn in (0, 2**31 - 1):
        monkeypatch.setattr(secrets, "randbits", lambda bits, drawn=drawn: drawn)
        last = 0
        for _ in range(100):
            assert next_generation(last) > last
            last = next_generation(last)
        assert last >> 31 == 100
