"""From a predicate to the files that are pruned for it: what a query asks.

The path of a question: leaves -> each kind's tests -> one question to the store for all of them ->
bitmaps of pruned ordinals -> And and Or over the bitmaps. Theory: `providers.index_predicate`.
"""

from __future__ import annotations

import math
import secrets
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from providers.errors import Rewound, StoreError
from providers.index_predicate import Test, find_prunable, has_always_false, tests
from providers.predicate import Predicate
from skipping.lookup.translate import QueryColumn, Question
from skipping.model.definition import Definition, IndexId, TableId
from skipping.stores import Catalogue, IndexStore
from skipping.stores.entries import bitmap_of, compact
from skipping.stores.fork_safety import Lock
from skipping.stores.single_flight import SingleFlight

__all__ = ["Finding", "Known", "Leg", "Lookup", "invalidate", "shared_lookup"]

_SHARED = 8
"""Lookups that the process keeps for who has none of its own; each has the files of its indexes."""

_SHARE = 0.25  # of the time of a question, that it waits for all files to be named
_CHUNKS = 64  # of a catalogue

_kept: OrderedDict[Hashable, Lookup] = OrderedDict()
_keeping = Lock()
_lookups: weakref.WeakSet[Lookup] = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class Leg:
    """What one sketch prunes for one leaf, alone; `source` is whose keys the leaf holds."""

    label: str
    pruned: BitMap
    source: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """What an index says about a predicate.

    `pruned` are ordinals of this index at `generation`, which are of `files`, its entries then,
    as far as they were read; a file without one is unknown. `lineage`: files that a later finding
    of the same has are these, in this order, and others.
    `unused` says of each part of the predicate that could not be used, why.
    """

    index: IndexId
    generation: int
    pruned: BitMap
    legs: tuple[Leg, ...]
    unused: tuple[str, ...]
    files: pa.Table
    lineage: str


@dataclass(frozen=True, slots=True)
class Known:
    """The files of an index, as far as they were read; those of a `lineage` only grow."""

    catalogue: Catalogue
    lineage: str

    @classmethod
    def first(cls, catalogue: Catalogue) -> Known:
        """Of a new lineage."""
        return cls(catalogue, secrets.token_hex(8))

    def then(self, newest: Catalogue) -> Known:
        """What is known now, of the same lineage if these files are still where they were.

        In one history of a store an ordinal is always of the same file.
        """
        old, new = (each.files["ordinal"].to_numpy() for each in (self.catalogue, newest))
        stays = np.array_equal(old, new[: len(old)])
        return Known(newest, self.lineage) if stays else Known.first(newest)


class Lookup:
    """Asks one store; remembers definitions and catalogues for `ttl` seconds.

    With `values` what it says of conditions shows their values.

    Safe to use from several threads; no lock is held while the store is asked.
    """

    def __init__(
        self,
        store: IndexStore,
        *,
        ttl: float,
        providers: Sequence[str] = (),
        values: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self._ttl = ttl
        self._providers = tuple(providers)
        self._values = values
        self._clock = clock
        self._lock = Lock()
        self._definitions: tuple[float, dict[TableId, Definition]] | None = None
        self._catalogues: dict[IndexId, tuple[float, Known]] = {}
        self._partial: dict[IndexId, Known] = {}
        self._loading = SingleFlight[Known]()
        self.on_change: Callable[[], object] = lambda: None
        _lookups.add(self)

    def forget(self) -> None:
        """Look again at what the store has, though `ttl` is not over."""
        with self._lock:
            self._definitions = None
            self._catalogues = {i: (-math.inf, k) for i, (_, k) in self._catalogues.items()}
        self.on_change()

    def indexed(
        self, *, fresh: bool = False, timeout: float | None = None
    ) -> Mapping[TableId, Definition]:
        """The live indexes by table; raises StoreError, after `timeout` seconds at the latest.

        With `fresh`, as of now.
        """
        held = self._definitions
        if held is not None and not fresh and self._clock() - held[0] < self._ttl:
            return held[1]
        found = self.store.definitions(timeout=timeout)
        asked = (d.value for d in found if d.value.enabled and not d.value.dropped)
        live = {definition.table: definition for definition in asked}
        with self._lock:
            self._definitions = self._clock(), live
            known = {d.index for d in live.values()}
            self._catalogues = {i: held for i, held in self._catalogues.items() if i in known}
            self._partial = {i: held for i, held in self._partial.items() if i in known}
        return live

    def catalogue(self, index: IndexId, *, timeout: float | None = None) -> Catalogue:
        """The files of an index, at most `ttl` seconds old; raises StoreError.

        After `timeout` seconds at the latest. The first reading of an index goes on when a
        quarter of them is over, and this is what was read by then; later there is more of it.
        """
        return self.known(index, timeout=timeout).catalogue

    def known(self, index: IndexId, *, timeout: float | None = None) -> Known:
        """The same with its lineage."""
        held = self._catalogues.get(index)
        if held is not None:
            at, known = held
            if self._clock() - at < self._ttl:
                return known
            since = known.catalogue.generation
            with self._one_past(index):
                changed = self.store.catalogue(index, since=since, timeout=timeout)
            if changed.generation == since:
                return self._follow(index, known, known)
            newest = _compact(known.catalogue.after(changed))
            return self._follow(index, known, known.then(newest))
        if timeout is None:
            return self._keep(index, Known.first(self.store.catalogue(index)))

        def told(partial: Callable[[], Catalogue]) -> None:
            self._loading.tell(index, lambda: self._read(index, partial()))

        def load() -> Known:
            return self._keep(index, self._read(index, self.store.catalogue(index, told=told)))

        found = self._loading.result(index, load, timeout=_SHARE * timeout)
        if found is None or not (found.catalogue.whole or len(found.catalogue.files)):
            found = self._loading.result(index, load, timeout=(1 - _SHARE) * timeout)
        if found is None:
            raise StoreError(f"{self.store.location} did not name its files in time")
        return found

    def held(self, index: IndexId) -> Known | None:
        """What is known of an index without asking the store, however old."""
        with self._lock:
            held = self._catalogues.get(index)
            return self._partial.get(index) if held is None else held[1]

    def _read(self, index: IndexId, newest: Catalogue) -> Known:
        """What has been read of an index by now, of the lineage of what was before."""
        with self._lock:
            if index in self._catalogues:  # it was read to the end meanwhile
                return self._catalogues[index][1]
            before = self._partial.get(index)
            if before is None or before.catalogue.generation != newest.generation:
                known = Known.first(newest)
            elif len(newest.files) < len(before.catalogue.files):
                return before  # somebody else has read further
            else:
                known = before.then(newest)
            self._partial[index] = known
            return known

    @contextmanager
    def _one_past(self, index: IndexId) -> Iterator[None]:
        """Forget the files of an index if the store went back: the next to ask reads them anew."""
        try:
            yield
        except Rewound:
            with self._lock:
                self._catalogues.pop(index, None)
                self._partial.pop(index, None)
            raise

    def _keep(self, index: IndexId, read: Known) -> Known:
        """Keep what was read to the end, unless somebody else was faster."""
        with self._lock:
            self._partial.pop(index, None)
            return self._catalogues.setdefault(index, (self._clock(), read))[1]

    def _follow(self, index: IndexId, known: Known, newest: Known) -> Known:
        """Keep what became of `known`, unless somebody else was faster.

        A lineage has one past: of two that follow on from the same files each may have seen
        another, when the store was restored meanwhile.
        """
        with self._lock:
            _, held = self._catalogues.get(index, (0.0, None))
            if held is not known:
                if held and newest.catalogue.generation <= held.catalogue.generation:
                    return held
                newest = Known.first(newest.catalogue)
            self._catalogues[index] = self._clock(), newest
        return newest

    def ask(
        self,
        definition: Definition,
        predicate: Predicate,
        columns: Mapping[str, QueryColumn],
        *,
        timeout: float,
    ) -> Finding:
        """What the index prunes for a predicate with normalised values.

        The predicate names columns by identity; `columns` says what they are to the query. Raises
        StoreError after `timeout` seconds or if the store fails.
        """
        deadline = time.monotonic() + timeout
        known = self.known(definition.index, timeout=timeout)
        catalogue = known.catalogue
        question = Question(definition, columns, self._providers, values=self._values)
        whole = question.asks(predicate)
        asked = [] if whole is None else list(tests(whole))
        with self._one_past(definition.index):
            answers = self.store.find_prunable(
                definition.index,
                asked,
                below=catalogue.below,
                timeout=max(0.0, deadline - time.monotonic()),
                generation=catalogue.generation,
            )
        by_test = {id(test): bitmap for test, bitmap in zip(asked, answers, strict=True)}

        def answer(test: Test) -> BitMap:
            return by_test[id(test)]

        never = whole is not None and has_always_false(whole)
        every = bitmap_of(catalogue.files["ordinal"].to_numpy()) if never else BitMap()
        return Finding(
            definition.index,
            catalogue.generation,
            BitMap() if whole is None else find_prunable(whole, answer, every),
            tuple(
                Leg(text, find_prunable(part, answer, every), source)
                for text, source, part in question.legs(whole)
            ),
            tuple(dict.fromkeys(question.unused)),
            catalogue.files,
            known.lineage,
        )


def _compact(catalogue: Catalogue) -> Catalogue:
    """In fewer chunks, where many refreshes have left a few files in each."""
    if catalogue.files["ordinal"].num_chunks <= _CHUNKS:
        return catalogue
    return replace(catalogue, files=compact(catalogue.files))


def shared_lookup(
    store: IndexStore, *, ttl: float, providers: Sequence[str] = (), values: bool = False
) -> Lookup:
    """The one Lookup of this process for a store and these settings.

    What it once read, or began to read when the one who asked could not wait, the next to ask
    finds. The process keeps the _SHARED that were asked for last.
    """
    # A Lookup keeps its store alive, so no other store gets the same id meanwhile.
    key = id(store), ttl, tuple(providers), values
    with _keeping:
        lookup = _kept.pop(key, None)
        if lookup is None:
            lookup = Lookup(store, ttl=ttl, providers=providers, values=values)
        _kept[key] = lookup
        while len(_kept) > _SHARED:
            _kept.popitem(last=False)
    return lookup


def invalidate(store: IndexStore) -> None:
    """Let every Lookup of this process see at once what this process changed in a store."""
    for lookup in list(_lookups):
        if lookup.store.location == store.location:
            lookup.forget()
