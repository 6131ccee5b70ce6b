"""A store in this process's memory: the double that tests use, and the oracle of the others.

It does nothing clever: entries are one Arrow table an index, tests go to the reference evaluator.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from providers.errors import Conflict, StoreError
from providers.evaluate import find_prunable_rows
from providers.index_predicate import BitsSet, Test
from skipping.model.definition import Definition, IndexId, Revision, State, Versioned
from skipping.model.lease import Lease
from skipping.stores import IDENTITY, Catalogue, Generation, Told, find_identities
from skipping.stores.entries import (
    ORDINALS,
    answerable,
    check_entries,
    compact,
    is_scalar,
    take_rows,
)
from skipping.stores.epochs import next_generation, rewound_error
from skipping.stores.fork_safety import Lock
from skipping.stores.memory.entries import fill_sketches, merge_chunks, place_entries

__all__ = ["Index", "MemoryStore"]

_KEYS = 100  # of a test of bits, after which the clock is looked at


@dataclass(frozen=True, slots=True)
class Index:
    """All that a store keeps of one index; every change replaces it whole.

    `next` is the first ordinal that was not reserved; `changed` the generation in which each entry
    changed last; `removed` the ordinals that had an entry, with the generation in which they went;
    `history` the generations there were. What was erased keeps its definition alone.
    """

    definition: Definition
    revision: Revision = 1
    state: State = field(default_factory=State)
    lease: Lease = field(default_factory=Lease)
    next: int = 0
    generation: Generation = 0
    erased: bool = False
    entries: pa.Table = field(default_factory=IDENTITY.empty_table)
    changed: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    removed: Mapping[int, Generation] = field(default_factory=dict)
    history: frozenset[Generation] = frozenset((0,))


class MemoryStore:
    """An `IndexStore` that lives as long as the process.

    `indexes` and `lock` say where it keeps what it knows, and what it holds while it reads or
    changes that; with others than its own it can outlive the process (docs/extending.md).

    >>> store = MemoryStore("here")
    >>> store.location, store.definitions()
    ('memory:here', ())
    """

    def __init__(
        self,
        name: str = "",
        *,
        indexes: MutableMapping[IndexId, Index] | None = None,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        self._name = name
        # A process may fork at any moment, so a change is one assignment.
        self._indexes = {} if indexes is None else indexes
        self._lock = Lock() if lock is None else lock

    @property
    def location(self) -> str:
        """`memory:` and its name."""
        return f"memory:{self._name}"

    def definitions(self, *, timeout: float | None = None) -> Sequence[Versioned[Definition]]:
        """Every definition, dropped ones too until they are erased."""
        with self._lock:
            live = [index for index in self._indexes.values() if not index.erased]
            return tuple(Versioned(index.definition, index.revision) for index in live)

    def definition(
        self, index: IndexId, *, timeout: float | None = None
    ) -> Versioned[Definition] | None:
        """That of an index; None if it was erased, or never was here."""
        with self._lock:
            found = self._indexes.get(index)
        if found is None or found.erased:
            return None
        return Versioned(found.definition, found.revision)

    def define(self, definition: Definition, *, expect: Revision | None) -> Revision:
        """Write a definition if its revision still is `expect`; raises Conflict if not."""
        with self._lock:
            index = self._indexes.get(definition.index)
            found = None if index is None else index.revision
            if found != expect or (index is not None and index.erased):
                raise Conflict(f"index {definition.index} is at revision {found}, not {expect}")
            for id, other in self._indexes.items():
                live = not (other.erased or other.definition.dropped or definition.dropped)
                if live and id != definition.index and other.definition.table == definition.table:
                    raise Conflict(f"there is an index on {definition.name} already: {id}")
            if index is None:
                self._indexes[definition.index] = Index(definition)
                return 1
            self._indexes[definition.index] = replace(
                index, definition=definition, revision=index.revision + 1
            )
            return index.revision + 1

    def state(self, index: IndexId) -> State:
        """How it stands."""
        with self._lock:
            return self._at(index).state

    def report(self, index: IndexId, state: State, *, token: int | None = None) -> None:
        """Say how it stands."""
        with self._lock:
            found = self._at(index)
            _require(index, found.lease, token)
            self._indexes[index] = replace(found, state=state)

    def lease(self, index: IndexId, *, timeout: float | None = None) -> Lease:
        """Who keeps it up to date."""
        with self._lock:
            return self._at(index).lease

    def hold(
        self, index: IndexId, lease: Lease, *, expect: Lease, timeout: float | None = None
    ) -> None:
        """Write a lease if it still is `expect`; raises Conflict if not."""
        with self._lock:
            found = self._at(index)
            if found.lease != expect:
                raise Conflict(f"index {index} has another lease: {found.lease.described()}")
            self._indexes[index] = replace(found, lease=lease)

    def reserve(self, index: IndexId, n: int) -> range:
        """`n` ordinals that nobody else gets; raises StoreError when there are no more."""
        with self._lock:
            found = self._at(index)
            if n < 0 or found.next + n > ORDINALS:
                raise StoreError(f"no {n} ordinals left for index {index}: drop and create it")
            self._indexes[index] = replace(found, next=found.next + n)
            return range(found.next, found.next + n)

    def write(
        self,
        index: IndexId,
        entries: pa.Table,
        *,
        revision: Revision,
        token: int | None = None,
    ) -> None:
        """Add entries and sketches, all or nothing, as `IndexStore.write` says."""
        entries = check_entries(entries)
        with self._lock:
            found = self._at(index)
            if found.definition.dropped or found.revision != revision:
                raise Conflict(f"index {index} was changed or dropped meanwhile: read it again")
            _require(index, found.lease, token)
            base, at, rows = place_entries(
                found.entries, entries, end=found.next, removed=found.removed
            )
            merged, touched = fill_sketches(base, entries, at, rows, old=len(found.entries))
            touched[len(found.entries) :] = True
            if not touched.any():
                return
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
            self._indexes[index] = replace(
                found,
                generation=generation,
                history=found.history | {generation},
                entries=merge_chunks(merged),
                changed=changed,
            )

    def remove(self, index: IndexId, ordinals: pa.Array) -> None:
        """Forget entries; ordinals without an entry are passed over."""
        with self._lock:
            found = self._at(index)
            gone = np.isin(found.entries["ordinal"].to_numpy(), ordinals.to_numpy())
            if not gone.any():
                return
            generation = next_generation(found.generation)
            ordinals_gone = found.entries["ordinal"].to_numpy()[gone].tolist()
            self._indexes[index] = replace(
                found,
                generation=generation,
                history=found.history | {generation},
                entries=compact(found.entries.filter(pa.array(~gone))),
                changed=found.changed[~gone],
                removed={**found.removed, **dict.fromkeys(ordinals_gone, generation)},
            )

    def erase(self, index: IndexId) -> None:
        """Forget a dropped index, again if need be; raises StoreError while it is live."""
        with self._lock:
            found = self._indexes.get(index)
            if found is None:
                raise StoreError(f"the store has no index {index}")
            if not (found.erased or found.definition.dropped):
                raise StoreError(f"index {index} is live: drop it before it is erased")
            self._indexes[index] = Index(found.definition, erased=True)

    def catalogue(
        self,
        index: IndexId,
        *,
        since: Generation | None = None,
        fields: Sequence[str] = (),
        timeout: float | None = None,
        told: Told | None = None,
    ) -> Catalogue:
        """The entries in the order of their ordinals, or those changed after `since`."""
        with self._lock:
            found = self._at(index)
            if since is not None and since not in found.history:
                raise rewound_error(self.location, index)
            entries, changed, generation = found.entries, found.changed, found.generation
            removed = [o for o, g in found.removed.items() if since is not None and g > since]
        below = int(pc.max(entries["ordinal"]).as_py()) + 1 if len(entries) else 0
        columns = {name: entries[name] for name in IDENTITY.names}
        for name in fields:
            known = name in entries.schema.names
            columns[name] = entries[name] if known else pa.nulls(len(entries))
            if not is_scalar(columns[name].type):
                raise StoreError(f"{name} is not a SCALAR field: a catalogue holds only those")
        files = pa.table(columns)
        if since is not None:
            files = files.filter(pa.array(changed > since))
        return Catalogue(generation, below, files, pa.array(sorted(removed), pa.int64()))

    def size(self, index: IndexId) -> int | None:
        """Bytes of its entries."""
        with self._lock:
            return int(self._at(index).entries.nbytes)

    def ordinals(self, index: IndexId, files: pa.Table) -> pa.Array:
        """Of each of these files the ordinal of its entry, or null."""
        with self._lock:
            entries = self._at(index).entries
        near = entries.select(IDENTITY.names)
        near = near.filter(pc.is_in(near["path"], value_set=files["path"].combine_chunks()))
        return near["ordinal"].combine_chunks().take(find_identities(files, near))

    def entries(self, index: IndexId) -> Iterator[pa.Table]:
        """All entries with all their sketches, as `write` takes them."""
        with self._lock:
            entries = self._at(index).entries
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
        """For each test the ordinals under `below` that it prunes; see `IndexStore`."""
        deadline = time.monotonic() + timeout
        with self._lock:
            found = self._at(index)
            if generation is not None and generation not in found.history:
                raise rewound_error(self.location, index)
            entries = found.entries
        entries = entries.slice(0, int(np.searchsorted(entries["ordinal"].to_numpy(), below)))
        types = dict(zip(entries.schema.names, entries.schema.types, strict=True))
        ordinals = entries["ordinal"].to_numpy()
        answers = []
        for test in tests:
            if time.monotonic() >= deadline:
                raise StoreError(f"{self.location} did not answer within {timeout} s")
            if answerable(test, types):
                answers.append(BitMap(ordinals[_find_prunable(test, entries, deadline)]))
            else:
                answers.append(BitMap())
        return answers

    def _at(self, index: IndexId) -> Index:
        found = self._indexes.get(index)
        if found is None or found.erased:
            raise StoreError(f"the store has no index {index}: it was erased, or never was here")
        return found


def _find_prunable(test: Test, entries: pa.Table, deadline: float) -> npt.NDArray[np.bool_]:
    """Of each row whether it is pruned; none for bits that take half of the time left."""
    # In the chunks that there are: together they may be too much for one.
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
    """Tests that prune together what this one does: of bits each of some keys."""
    if not isinstance(test, BitsSet):
        yield test
        return
    most = max((len(keys) for _, keys in test.probes), default=0)
    for start in range(0, max(most, 1), _KEYS):
        yield replace(
            test, probes=tuple((layout, keys.slice(start, _KEYS)) for layout, keys in test.probes)
        )


def _require(index: IndexId, lease: Lease, token: int | None) -> None:
    if not lease.admits(token):
        raise Conflict(f"index {index} was taken over by another owner")
