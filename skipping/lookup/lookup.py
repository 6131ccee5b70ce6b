"""Find the files that one index prunes for a predicate.

    leaves of the predicate -> tests of each index type -> one request to the store for all tests
    -> a bitmap of pruned ordinals for each test -> And and Or over the bitmaps

`providers.index_predicate` has the theory.
"""

from __future__ import annotations

import math
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyroaring import BitMap

from providers.index_predicate import Test, find_prunable, has_always_false, tests
from providers.predicate import Predicate
from skipping.config.settings import Settings
from skipping.lookup.entries_cache import EntriesCache
from skipping.lookup.translate import PredicateTranslator, QueryColumn
from skipping.model.definition import Definition, IndexId, TableId
from skipping.stores import IndexStore
from skipping.stores.entries import bitmap_of
from skipping.stores.fork_safety import Lock

_MAX_TABLES = 4096  # whose definitions are cached one by one
_MAX_SHARED = 8  # lookups that the process shares; each caches the files of its indexes

_shared: OrderedDict[Hashable, Lookup] = OrderedDict()
_shared_lock = Lock()
_lookups: weakref.WeakSet[Lookup] = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class PredicateStats:
    """The files that one sketch prunes for one leaf of a predicate.

    `source` names the table that provided the leaf's join keys.
    """

    label: str
    pruned: BitMap
    source: str = ""


@dataclass(frozen=True, slots=True)
class LookupResult:
    """The files that an index prunes for a predicate.

    `pruned` has ordinals of `files`. These are the index's entries at `generation`, or those that
    were read so far. A file that is not among them must be read. `entries_id` is the
    id of the `CachedEntries`. `unused` gives a reason for each part of the predicate that the index
    cannot evaluate.
    """

    index: IndexId
    generation: int
    pruned: BitMap
    legs: tuple[PredicateStats, ...]
    unused: tuple[str, ...]
    files: pa.Table
    entries_id: str


class Lookup:
    """Finds pruned files in the indexes of one store; caches definitions and entries for `ttl` s.

    With `values`, labels and reasons show the values of conditions.

    Safe to use from several threads; no lock is held while the store is read.
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
        self.entries = EntriesCache(store, ttl=ttl, clock=clock)
        self._ttl = ttl
        self._providers = tuple(providers)
        self._values = values
        self._clock = clock
        self._definitions: tuple[float, dict[TableId, Definition]] | None = None
        self._by_table: dict[TableId, tuple[float, Definition | None]] = {}
        self.on_change: Callable[[], object] = lambda: None
        _lookups.add(self)

    @classmethod
    def of(cls, store: IndexStore, settings: Settings) -> Lookup:
        """Create a lookup with the settings of a session."""
        return cls(
            store,
            ttl=settings.cache_ttl,
            providers=settings.providers,
            values=settings.explain_values,
        )

    def expire(self) -> None:
        """Read the store again at the next use, even if `ttl` is not over."""
        self._definitions = None
        # A copy, because other threads add tables meanwhile.
        cached = self._by_table.copy()
        self._by_table = {table: (-math.inf, found) for table, (_, found) in cached.items()}
        self.entries.expire()
        self.on_change()

    def definitions(
        self, *, fresh: bool = False, timeout: float | None = None
    ) -> Mapping[TableId, Definition]:
        """Return the live indexes by table; if `fresh`, always read the store.

        Raises StoreError after `timeout` seconds, or if the store fails.
        """
        cached = self._definitions
        if cached is not None and not fresh and self._clock() - cached[0] < self._ttl:
            return cached[1]
        stored = [each.value for each in self.store.definitions(timeout=timeout)]
        live = {each.table: each for each in stored if each.enabled and not each.dropped}
        self._definitions = self._clock(), live
        self.entries.retain({each.index for each in live.values()})
        return live

    def definition(self, table: TableId, *, timeout: float | None = None) -> Definition | None:
        """Return the live index of a table, or None, without reading those of other tables.

        Raises StoreError as `definitions` does.
        """
        listed, now = self._definitions, self._clock()
        if listed is not None and now - listed[0] < self._ttl:
            return listed[1].get(table)
        cached_at, cached = self._by_table.get(table, (-math.inf, None))
        if now - cached_at < self._ttl:
            return cached
        if not table.is_sound:  # its writers choose an id, which must not fill the cache
            return None
        stored = self.store.live_definition(table, timeout=timeout)
        live = stored.value if stored is not None and stored.value.enabled else None
        if cached is not None and (live is None or live.index != cached.index):
            self.entries.drop(cached.index)
        if len(self._by_table) >= _MAX_TABLES:
            self._by_table = {}
        self._by_table[table] = self._clock(), live
        return live

    def find(
        self,
        definition: Definition,
        predicate: Predicate,
        columns: Mapping[str, QueryColumn],
        *,
        timeout: float,
    ) -> LookupResult:
        """Find the files that the index prunes for a predicate with normalised values.

        The predicate names columns by identity; `columns` has their names and types in the query.
        Raises StoreError after `timeout` seconds, or if the store fails.
        """
        deadline = time.monotonic() + timeout
        cached = self.entries.get(definition.index, timeout=timeout)
        entries = cached.entries
        translator = PredicateTranslator(definition, columns, self._providers, values=self._values)
        translated = translator.translate(predicate)
        needed = [] if translated is None else list(tests(translated))
        with self.entries.drop_if_stale(definition.index):
            bitmaps = self.store.find_prunable(
                definition.index,
                needed,
                below=entries.below,
                timeout=max(0.0, deadline - time.monotonic()),
                generation=entries.generation,
            )
        by_test = {id(test): bitmap for test, bitmap in zip(needed, bitmaps, strict=True)}

        def get_bitmap(test: Test) -> BitMap:
            return by_test[id(test)]

        never = translated is not None and has_always_false(translated)
        all_files = bitmap_of(entries.files["ordinal"].to_numpy()) if never else BitMap()
        return LookupResult(
            definition.index,
            entries.generation,
            BitMap() if translated is None else find_prunable(translated, get_bitmap, all_files),
            tuple(
                PredicateStats(label, find_prunable(part, get_bitmap, all_files), source)
                for label, source, part in translator.labelled_leaves(translated)
            ),
            tuple(dict.fromkeys(translator.unused)),
            entries.files,
            cached.id,
        )


def shared_lookup(store: IndexStore, settings: Settings) -> Lookup:
    """Return the process's shared lookup for a store and these settings.

    It keeps what it has read, or is still reading, for the next caller. The process shares the
    _MAX_SHARED most recently used lookups.
    """
    # A Lookup keeps its store alive, so no other store gets the same id meanwhile.
    key = id(store), settings.cache_ttl, settings.providers, settings.explain_values
    with _shared_lock:
        lookup = _shared.pop(key, None) or Lookup.of(store, settings)
        _shared[key] = lookup
        while len(_shared) > _MAX_SHARED:
            _shared.popitem(last=False)
    return lookup


def invalidate(store: IndexStore) -> None:
    """Expire every Lookup of this process on a store, after this process changed the store."""
    for lookup in list(_lookups):
        if lookup.store.location == store.location:
            lookup.expire()
