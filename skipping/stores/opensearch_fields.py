"""SCALAR fields of whole indexes, kept here for tests with too many keys for a query.

They are read in the background: who cannot wait is told so, asks without them and finds them there
the next time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from providers.errors import StoreError
from skipping.definition import IndexId
from skipping.stores import Catalogue
from skipping.stores.opensearch_catalogue import Head
from skipping.stores.opensearch_index import Entries

__all__ = ["Fields"]

_HELD = 8  # indexes
_SHARE = 0.5  # of the time left that is spent on waiting


@dataclass(slots=True)
class _Load:
    done: threading.Event = field(default_factory=threading.Event)
    error: StoreError | None = None


class Fields:
    """What was read of the indexes that were asked last. Safe to use from several threads."""

    def __init__(self) -> None:
        self._held: dict[IndexId, tuple[frozenset[str], Catalogue]] = {}
        self._loads: dict[IndexId, _Load] = {}
        self._lock = threading.Lock()

    def table(
        self,
        index: IndexId,
        head: Head,
        entries: Entries,
        names: Sequence[str],
        *,
        deadline: float,
    ) -> pa.Table | None:
        """`ordinal` and these fields of all entries, as of the head; None if it takes too long."""
        until = deadline - _SHARE * (deadline - time.monotonic())
        while True:
            with self._lock:
                known, held = self._held.get(index, (frozenset[str](), None))
                fits = held is not None and known.issuperset(names)
                if held is not None and fits and held.generation >= head.generation:
                    return held.files
                load = self._loads.get(index)
                if load is None:
                    load = self._loads[index] = _Load()
                    self._start(load, index, entries, known.union(names), held if fits else None)
            if not load.done.wait(until - time.monotonic()):
                return None
            if load.error is not None:
                raise load.error

    def _start(
        self,
        load: _Load,
        index: IndexId,
        entries: Entries,
        names: frozenset[str],
        held: Catalogue | None,
    ) -> None:
        def run() -> None:
            try:
                if held is None:
                    newest = entries.scalars(sorted(names))
                else:
                    newest = held.after(entries.scalars(sorted(names), since=held.generation))
                with self._lock:
                    self._held.pop(index, None)
                    self._held[index] = names, newest
                    while len(self._held) > _HELD:
                        del self._held[next(iter(self._held))]
            except StoreError as error:
                load.error = error
            except Exception as error:
                load.error = StoreError(f"fields of the index cannot be read: {error}")
            finally:
                with self._lock:
                    del self._loads[index]
                load.done.set()

        threading.Thread(target=run, name="skipping-fields", daemon=True).start()
