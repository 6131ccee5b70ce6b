"""A store in this process's memory: for tests, and the reference for other stores.

An index has one Arrow table of entries, and the reference evaluator runs the tests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import date

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from providers.errors import StoreError
from providers.evaluate import find_prunable_rows
from providers.index_predicate import BitsSet, Test
from skipping.model.definition import Definition, IndexId, Revision, TableId, Versioned
from skipping.model.workload import (
    MOST_RECORDS,
    WorkloadRecord,
    list_old_keys,
    parse_records,
    select_keys,
)
from skipping.stores import IDENTITY, Catalogue, Generation, OnProgress, find_identities
from skipping.stores.entries import can_answer, check_entries, compact, is_scalar, take_rows
from skipping.stores.epochs import next_generation
from skipping.stores.fork_safety import Lock
from skipping.stores.index_record import IndexRecord, RecordStore, require_record
from skipping.stores.memory.entries import fill_sketches, merge_chunks, place_entries

_KEYS = 100  # of a BitsSet, between two checks of the time


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexState(IndexRecord):
    """All that the store has of one index; every change replaces the object.

    `changed` has the generation of each entry's last change, `removed` the generation in which each
    removed ordinal was removed.
    """

    entries: pa.Table = field(default_factory=IDENTITY.empty_table)
    changed: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    removed: Mapping[int, Generation] = field(default_factory=dict)


class MemoryStore(RecordStore[IndexState]):
    """An `IndexStore` that lives as long as the process.

    `indexes` maps ids to index states, and `lock` guards it. If both are given, the store can
    outlive the process (docs/extending.md).

    >>> store = MemoryStore("here")
    >>> store.location, store.definitions()
    ('memory:here', ())
    """

    def __init__(
        self,
        name: str = "",
        *,
        indexes: MutableMapping[IndexId, IndexState] | None = None,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        self._name = name
        # A process may fork at any moment, so a change is one assignment.
        self._indexes = {} if indexes is None else indexes
        self._lock = Lock() if lock is None else lock
        self._workload: dict[str, str] = {}

    @property
    def location(self) -> str:
        """`memory:` and the name of the store."""
        return f"memory:{self._name}"

    def definitions(self, *, timeout: float | None = None) -> Sequence[Versioned[Definition]]:
        with self._lock:
            found = list(self._indexes.values())
        return tuple(record.versioned for record in found if record.definition is not None)

    def definition(
        self, index: IndexId, *, timeout: float | None = None
    ) -> Versioned[Definition] | None:
        with self._lock:
            found = self._indexes.get(index)
        return None if found is None or found.definition is None else found.versioned

    def live_definition(
        self, table: TableId, *, timeout: float | None = None
    ) -> Versioned[Definition] | None:
        with self._lock:
            found = list(self._indexes.values())
        return next((record.versioned for record in found if record.is_of(table)), None)

    def define(self, definition: Definition, *, expect: Revision | None) -> Revision:
        index, table = definition.index, definition.table
        with self._lock:
            live = (
                other.index
                for other in self._indexes.values()
                if other.index != index and other.definition is not None and not other.dropped
                if other.versioned.value.table == table
            )
            record = self._indexes.get(index) or IndexState(index=index)
            record = record.with_definition(definition, expect=expect, live=next(live, None))
            self._indexes[index] = record
        return record.revision

    def write(
        self, index: IndexId, entries: pa.Table, *, revision: Revision, token: int | None = None
    ) -> None:
        entries = check_entries(entries)

        def add(found: IndexState) -> IndexState:
            found.require_writable(revision, token)
            base, at, rows = place_entries(
                found.entries, entries, end=found.next, removed=found.removed
            )
            merged, touched = fill_sketches(base, entries, at, rows, old=len(found.entries))
            touched[len(found.entries) :] = True
            if not touched.any():
                return found
            generation = next_generation(found.generation)
            changed = np.full(len(merged), generation)
            changed[: len(found.changed)] = found.changed
            changed[touched] = generation
            ordinals = merged["ordinal"].to_numpy()
            if np.any(ordinals[1:] < ordinals[:-1]):
                order = np.argsort(ordinals)
                changed = changed[order]
                columns = {
                    name: take_rows(merged[name], pa.array(order)) for name in merged.schema.names
                }
                merged = pa.table(columns)
            return replace(
                found.with_generation(generation), entries=merge_chunks(merged), changed=changed
            )

        self._update(index, add)

    def remove(self, index: IndexId, ordinals: pa.Array) -> None:

        def take(found: IndexState) -> IndexState:
            there = found.entries["ordinal"].to_numpy()
            gone = np.isin(there, ordinals.to_numpy())
            if not gone.any():
                return found
            generation = next_generation(found.generation)
            return replace(
                found.with_generation(generation),
                entries=compact(found.entries.filter(pa.array(~gone))),
                changed=found.changed[~gone],
                removed={**found.removed, **dict.fromkeys(there[gone].tolist(), generation)},
            )

        self._update(index, take)

    def erase(self, index: IndexId) -> None:
        with self._lock:
            erased = require_record(self._indexes.get(index), index, erased=True).with_nothing()
            self._indexes[index] = IndexState(index=index, revision=erased.revision, dropped=True)

    def catalogue(
        self,
        index: IndexId,
        *,
        since: Generation | None = None,
        fields: Sequence[str] = (),
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> Catalogue:
        found = self._read(index)
        found.require_generation(since, self.location)
        entries = found.entries
        removed = [o for o, g in found.removed.items() if since is not None and g > since]
        below = int(pc.max(entries["ordinal"]).as_py()) + 1 if len(entries) else 0
        columns = {name: entries[name] for name in IDENTITY.names}
        for name in fields:
            known = name in entries.schema.names
            columns[name] = entries[name] if known else pa.nulls(len(entries))
            if not is_scalar(columns[name].type):
                raise StoreError(f"{name} is not a SCALAR field: only these can be read here")
        files = pa.table(columns)
        if since is not None:
            files = files.filter(pa.array(found.changed > since))
        return Catalogue(found.generation, below, files, pa.array(sorted(removed), pa.int64()))

    def size(self, index: IndexId) -> int | None:
        """Return the bytes of the entries in memory."""
        return int(self._read(index).entries.nbytes)

    def ordinals(self, index: IndexId, files: pa.Table) -> pa.Array:
        entries = self._read(index).entries
        near = entries.select(IDENTITY.names)
        near = near.filter(pc.is_in(near["path"], value_set=files["path"].combine_chunks()))
        return near["ordinal"].combine_chunks().take(find_identities(files, near))

    def entries(self, index: IndexId) -> Iterator[pa.Table]:
        entries = self._read(index).entries
        for batch in entries.to_batches():
            yield pa.Table.from_batches([batch])

    def find_prunable(
        self,
        index: IndexId,
        tests: Sequence[Test],
        *,
        below: int,
        timeout: float,
        generation: Generation | None = None,
    ) -> Sequence[BitMap]:
        deadline = time.monotonic() + timeout
        found = self._read(index)
        found.require_generation(generation, self.location)
        entries = found.entries
        entries = entries.slice(0, int(np.searchsorted(entries["ordinal"].to_numpy(), below)))
        types = dict(zip(entries.schema.names, entries.schema.types, strict=True))
        ordinals = entries["ordinal"].to_numpy()
        answers = []
        for test in tests:
            if time.monotonic() >= deadline:
                raise StoreError(f"{self.location} did not answer within {timeout} s")
            if can_answer(test, types):
                answers.append(BitMap(ordinals[_find_prunable(test, entries, deadline)]))
            else:
                answers.append(BitMap())
        return answers

    def record_workload(
        self, record: WorkloadRecord, *, oldest: date, timeout: float | None = None
    ) -> None:
        with self._lock:
            expired = set(list_old_keys(self._workload, record, oldest))
            kept = {k: v for k, v in self._workload.items() if k not in expired}
            self._workload = {**kept, record.key: record.to_json()}

    def workload(
        self,
        *,
        since: date,
        until: date,
        most: int = MOST_RECORDS,
        timeout: float | None = None,
    ) -> Sequence[WorkloadRecord]:
        with self._lock:
            found = self._workload
        keys = select_keys(found, since=since, until=until, most=most)
        return parse_records((key, found[key]) for key in keys)

    def _read(self, index: IndexId, *, timeout: float | None = None) -> IndexState:
        with self._lock:
            return require_record(self._indexes.get(index), index)

    def _update(
        self,
        index: IndexId,
        change: Callable[[IndexState], IndexState],
        *,
        timeout: float | None = None,
    ) -> IndexState:
        with self._lock:
            found = require_record(self._indexes.get(index), index)
            changed = change(found)
            if changed is not found:
                self._indexes[index] = changed
            return changed


def _find_prunable(test: Test, entries: pa.Table, deadline: float) -> npt.NDArray[np.bool_]:
    """Return which rows are pruned; none if a BitsSet takes half of the remaining time."""
    # Chunk by chunk: together they may be too large for one chunk.
    parts = [pa.Table.from_batches([batch]) for batch in entries.to_batches()]
    until = (time.monotonic() + deadline) / 2
    found = np.ones(len(entries), np.bool_)
    for some in _portions(test):
        if isinstance(test, BitsSet) and time.monotonic() >= until:
            return np.zeros(len(entries), np.bool_)
        rows = [find_prunable_rows(some, part) for part in parts]
        found &= np.concatenate([np.zeros(0, np.bool_), *rows])
    return found


def _portions(test: Test) -> Iterator[Test]:
    """Split a BitsSet by its keys into tests that together prune the same files."""
    if not isinstance(test, BitsSet):
        yield test
        return
    most = max((len(keys) for _, keys in test.probes), default=0)
    for start in range(0, max(most, 1), _KEYS):
        yield replace(
            test, probes=tuple((layout, keys.slice(start, _KEYS)) for layout, keys in test.probes)
        )
