"""Cache sketch fields in the driver, to evaluate tests without the store.

The SCALAR fields of a sketch are one Arrow table with all its files; a BYTES field is stored by bit
(`slices`). Each entry of the cache belongs to one generation, and is updated with later changes.
The cache has a limit in bytes and drops the least recently used fields.

A result must belong to one generation. So a request reads the cache *before* it reads the store's
generation: the cached fields can only be older, and are then updated to that generation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from skipping.model.definition import IndexId
from skipping.stores import Catalogue
from skipping.stores.fork_safety import Lock
from skipping.stores.single_flight import SingleFlight
from skipping.stores.slices import Slices, TooLarge

KEPT = 256 << 20
"""The default limit of the cache, in bytes."""

_SHARE = 0.5  # of the remaining time to wait for a load

_Cached = TypeVar("_Cached", bound=Catalogue | Slices)


class Fields:
    """The cached fields of a store's sketches. Several threads can use it.

    A cached `Catalogue` has the column `ordinal`, sorted, and the fields of one sketch.
    """

    def __init__(self, most: int = KEPT) -> None:
        self.most = most
        self._cached: dict[tuple[IndexId, str], Catalogue | Slices] = {}
        self._too_large: set[tuple[IndexId, str]] = set()
        self._loading = SingleFlight[Any]()
        self._lock = Lock()

    def get(self, index: IndexId, name: str, sort: type[_Cached]) -> _Cached | None:
        """Return the cached fields of a sketch (a Catalogue) or of a BYTES field (Slices)."""
        with self._lock:
            found = self._cached.pop((index, name), None)
            if found is not None:
                self._cached[index, name] = found  # now the most recently used
            return found if isinstance(found, sort) else None

    def add(self, index: IndexId, name: str, newest: Catalogue | Slices) -> None:
        """Cache these fields, unless newer ones are cached; drop others to stay below the limit."""
        with self._lock:
            found = self._cached.pop((index, name), newest)
            self._cached[index, name] = max(newest, found, key=lambda each: each.generation)
            if newest.nbytes > self.most:
                self._too_large.add((index, name))
            bytes = sum(each.nbytes for each in self._cached.values())
            for key in list(self._cached):
                if bytes <= self.most:
                    break
                bytes -= self._cached.pop(key).nbytes

    def fits(self, index: IndexId, name: str) -> bool:
        """Return whether these fields may fit into the cache, so that reading ahead is useful."""
        return self.most > 0 and (index, name) not in self._too_large

    def load(
        self, index: IndexId, name: str, read: Callable[[], _Cached], *, deadline: float
    ) -> _Cached | None:
        """Return the result of `read`, and cache it.

        If half of the time until the deadline is not enough, `read` continues in the background.
        The result is then what it has reported so far (`report`), or None. If another thread
        already reads, this waits for its result, at the generation that it sees.
        """

        def work() -> _Cached:
            try:
                newest = read()
            except TooLarge:
                with self._lock:
                    self._too_large.add((index, name))
                raise
            self.add(index, name, newest)
            return newest

        wait = _SHARE * (deadline - time.monotonic())
        found: _Cached | None = self._loading.result((index, name), work, timeout=wait)
        return found

    def report(self, index: IndexId, sketch: str, partial: Callable[[], Catalogue]) -> None:
        """Set the function that returns the entries which `read` has so far."""
        self._loading.report((index, sketch), partial)

    def drop(self, index: IndexId) -> None:
        """Drop the fields of an index."""
        with self._lock:
            self._cached = {key: each for key, each in self._cached.items() if key[0] != index}

    def retain(self, live: Collection[IndexId]) -> None:
        """Drop the fields of all other indexes."""
        with self._lock:
            self._cached = {key: each for key, each in self._cached.items() if key[0] in live}


def apply_change(fields: Catalogue, change: Catalogue) -> Catalogue:
    """Return cached fields with a change applied, sorted by ordinal."""
    newest = fields.after(change)
    files = newest.files
    ordinals = files["ordinal"].to_numpy()
    if np.any(ordinals[1:] < ordinals[:-1]):
        files = files.sort_by("ordinal")
    files = files.combine_chunks()
    return Catalogue(newest.generation, newest.below, files, pa.array([], pa.int64()))
