"""Cache the entries of a store's indexes in this process.

Each index is read once, completely, and then updated with changes. The first read of a large index
can take longer than a query may wait. The query then continues with the files that were read so
far, and the read continues in the background.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from providers.errors import Rewound, StoreError
from skipping.model.definition import IndexId
from skipping.stores import Catalogue, IndexStore
from skipping.stores.entries import compact
from skipping.stores.fork_safety import Lock
from skipping.stores.single_flight import SingleFlight

_PARTIAL_AFTER = 0.25  # fraction of the timeout after which a query continues with partial entries
_MAX_CHUNKS = 64


@dataclass(frozen=True, slots=True)
class CachedEntries:
    """The entries of an index, complete or partial.

    Later entries with the same `id` begin with these files, in the same order. Java keeps the files
    that it has been sent as long as the id stays.
    """

    entries: Catalogue
    id: str

    @classmethod
    def start(cls, entries: Catalogue) -> CachedEntries:
        """Return entries with a new id."""
        return cls(entries, secrets.token_hex(8))

    def advance(self, newest: Catalogue) -> CachedEntries:
        """Return newer entries; the id stays if they begin with these files in this order."""
        # Comparing ordinals is enough: within one history of a store an ordinal is never reused.
        old, new = (each.files["ordinal"].to_numpy() for each in (self.entries, newest))
        extends = np.array_equal(old, new[: len(old)])
        return CachedEntries(newest, self.id) if extends else CachedEntries.start(newest)


class EntriesCache:
    """Caches the entries of a store's indexes for `ttl` seconds, then refreshes them.

    Safe to use from several threads; no lock is held while the store is read.
    """

    def __init__(
        self, store: IndexStore, *, ttl: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._ttl = ttl
        self._clock = clock
        self._lock = Lock()
        self._complete: dict[IndexId, tuple[float, CachedEntries]] = {}
        self._partial: dict[IndexId, CachedEntries] = {}
        self._loads = SingleFlight[CachedEntries]()

    def get(self, index: IndexId, *, timeout: float | None = None) -> CachedEntries:
        """Return the entries of an index, at most `ttl` seconds old.

        The first read of an index returns partial entries once a quarter of `timeout` is over and
        some were read. Raises StoreError after `timeout` seconds, or if the store fails.
        """
        loaded = self._complete.get(index)
        if loaded is None:
            return self._load(index, timeout)
        loaded_at, cached = loaded
        if self._clock() - loaded_at < self._ttl:
            return cached
        return self._refresh(index, cached, timeout)

    def peek(self, index: IndexId) -> CachedEntries | None:
        """Return the cached entries of an index, however old, without reading the store."""
        with self._lock:
            loaded = self._complete.get(index)
            return self._partial.get(index) if loaded is None else loaded[1]

    def expire(self) -> None:
        """Refresh each index at its next use, even if `ttl` is not over."""
        with self._lock:
            self._complete = {i: (-math.inf, cached) for i, (_, cached) in self._complete.items()}

    def retain(self, indexes: Collection[IndexId]) -> None:
        """Drop all other indexes."""
        with self._lock:
            self._complete = {i: loaded for i, loaded in self._complete.items() if i in indexes}
            self._partial = {i: cached for i, cached in self._partial.items() if i in indexes}

    def drop(self, index: IndexId) -> None:
        """Drop an index: its next use reads all of its entries."""
        with self._lock:
            self._complete.pop(index, None)
            self._partial.pop(index, None)

    @contextmanager
    def drop_if_stale(self, index: IndexId) -> Iterator[None]:
        """If the store went back to an older state, drop the entries: the next use reads all."""
        try:
            yield
        except Rewound:
            self.drop(index)
            raise

    def _load(self, index: IndexId, timeout: float | None) -> CachedEntries:
        def load() -> CachedEntries:
            return self._finish(index, self._store.catalogue(index, on_progress=on_progress))

        def on_progress(partial: Callable[[], Catalogue]) -> None:
            self._loads.report(index, lambda: self._advance(index, partial()))

        if timeout is None:
            return load()
        cached = self._loads.result(index, load, timeout=_PARTIAL_AFTER * timeout)
        if cached is None or not (cached.entries.whole or len(cached.entries.files)):
            cached = self._loads.result(index, load, timeout=(1 - _PARTIAL_AFTER) * timeout)
        if cached is None:
            raise StoreError(f"{self._store.location} did not list the index's files in time")
        return cached

    def _advance(self, index: IndexId, newest: Catalogue) -> CachedEntries:
        """Cache what a first read has so far, unless another read has got further."""
        with self._lock:
            if index in self._complete:
                return self._complete[index][1]
            before = self._partial.get(index)
            if before is None or before.entries.generation != newest.generation:
                cached = CachedEntries.start(newest)
            elif len(newest.files) < len(before.entries.files):
                return before
            else:
                cached = before.advance(newest)
            self._partial[index] = cached
            return cached

    def _finish(self, index: IndexId, newest: Catalogue) -> CachedEntries:
        """Cache a complete first read, unless another one finished earlier."""
        cached = self._advance(index, newest)
        with self._lock:
            self._partial.pop(index, None)
            return self._complete.setdefault(index, (self._clock(), cached))[1]

    def _refresh(
        self, index: IndexId, cached: CachedEntries, timeout: float | None
    ) -> CachedEntries:
        since = cached.entries.generation
        with self.drop_if_stale(index):
            change = self._store.catalogue(index, since=since, timeout=timeout)
        newest = cached
        if change.generation != since:
            newest = cached.advance(_compact(cached.entries.after(change)))
        with self._lock:
            _, current = self._complete.get(index, (0.0, None))
            if current is not cached:
                if current and newest.entries.generation <= current.entries.generation:
                    return current
                # Two refreshes of the same entries may have seen different histories, if the
                # store was restored in between: only one of them may keep the id.
                newest = CachedEntries.start(newest.entries)
            self._complete[index] = self._clock(), newest
        return newest


def _compact(entries: Catalogue) -> Catalogue:
    """Merge the chunks of files that many small refreshes leave behind."""
    if entries.files["ordinal"].num_chunks <= _MAX_CHUNKS:
        return entries
    return replace(entries, files=compact(entries.files))
