"""Fields of sketches, kept on the driver: what is asked of them needs no store.

A sketch's SCALAR fields are one Arrow table of all its files, a BYTES field is laid down by bit
(`slices`). Each is as of one generation, and follows the store by what changed since. At most so
many bytes are kept; those asked for last stay.

An answer has to be of one generation. So who asks takes what is held *before* looking which
generation the store is at: it can only be older than that, and is then brought up to it.
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

__all__ = ["KEPT", "Fields", "apply_change"]

KEPT = 256 << 20
"""Bytes that are kept unless told otherwise."""

_SHARE = 0.5  # of the time left that is spent on waiting

_Kept = TypeVar("_Kept", bound=Catalogue | Slices)


class Fields:
    """What was read of the sketches that were asked last. Safe to use from several threads.

    The catalogues have the column `ordinal`, in order, and the fields of one sketch.
    """

    def __init__(self, most: int = KEPT) -> None:
        self.most = most
        self._held: dict[tuple[IndexId, str], Catalogue | Slices] = {}
        self._too_large: set[tuple[IndexId, str]] = set()
        self._loading = SingleFlight[Any]()
        self._lock = Lock()

    def get(self, index: IndexId, name: str, sort: type[_Kept]) -> _Kept | None:
        """What is kept under a name: of a sketch a Catalogue, of a BYTES field Slices."""
        with self._lock:
            found = self._held.pop((index, name), None)
            if found is not None:
                self._held[index, name] = found  # now the last to be dropped
            return found if isinstance(found, sort) else None

    def keep(self, index: IndexId, name: str, newest: Catalogue | Slices) -> None:
        """Keep it, unless something newer is, and drop what there is no room for then."""
        with self._lock:
            held = self._held.pop((index, name), newest)
            later = held if held.generation > newest.generation else newest
            self._held[index, name] = later
            if newest.nbytes > self.most:
                self._too_large.add((index, name))
            bytes = sum(kept.nbytes for kept in self._held.values())
            for key in list(self._held):
                if bytes <= self.most:
                    break
                bytes -= self._held.pop(key).nbytes

    def fits(self, index: IndexId, name: str) -> bool:
        """Whether it may be kept, as far as is known: then it is worth reading ahead."""
        return self.most > 0 and (index, name) not in self._too_large

    def load(
        self, index: IndexId, name: str, read: Callable[[], _Kept], *, deadline: float
    ) -> _Kept | None:
        """What `read` gives, which is kept. If that takes too long it goes on, and this is None.

        Or it is what `read` told by then (`tell`), which is not `whole`. Somebody else may be
        reading already; then it is of the generation that they saw.
        """

        def work() -> _Kept:
            try:
                newest = read()
            except TooLarge:
                with self._lock:
                    self._too_large.add((index, name))
                raise
            self.keep(index, name, newest)
            return newest

        wait = _SHARE * (deadline - time.monotonic())
        found: _Kept | None = self._loading.result((index, name), work, timeout=wait)
        return found

    def tell(self, index: IndexId, sketch: str, partial: Callable[[], Catalogue]) -> None:
        """Say what makes a catalogue of all that `read` has by now."""
        self._loading.tell((index, sketch), partial)

    def drop(self, index: IndexId) -> None:
        """Forget an index."""
        with self._lock:
            self._held = {key: held for key, held in self._held.items() if key[0] != index}

    def retain(self, live: Collection[IndexId]) -> None:
        """Forget every other index."""
        with self._lock:
            self._held = {key: held for key, held in self._held.items() if key[0] in live}


def apply_change(held: Catalogue, change: Catalogue) -> Catalogue:
    """What is held with what changed since, in the order of the ordinals."""
    newest = held.after(change)
    files = newest.files
    ordinals = files["ordinal"].to_numpy()
    if np.any(ordinals[1:] < ordinals[:-1]):
        files = files.sort_by("ordinal")
    files = files.combine_chunks()
    return Catalogue(newest.generation, newest.below, files, pa.array([], pa.int64()))
