"""A store in an OpenSearch cluster, for all drivers that can reach it.

The registry lists the indexes (`registry`). Each skipping index has an OpenSearch index with one
document for each file (`documents`). A write becomes visible by the number of its commit
(`commits`). One search has all tests of a scan (`queries`); tests with too many keys for a query
are evaluated here on cached fields (`evaluate`). Needs the extra `opensearch`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from functools import partial, wraps
from typing import ParamSpec, TypeVar

import pyarrow as pa
from pyroaring import BitMap

from providers.errors import StoreError
from providers.index_predicate import Test
from skipping.model.definition import Definition, IndexId, Revision, TableId, Versioned
from skipping.model.workload import MOST_RECORDS, WorkloadRecord
from skipping.stores import Catalogue, Generation, OnProgress
from skipping.stores.entries import check_entries, declare_fields
from skipping.stores.fields import KEPT, Fields
from skipping.stores.index_record import RecordStore
from skipping.stores.opensearch.capabilities import CapabilityCache
from skipping.stores.opensearch.client import Client
from skipping.stores.opensearch.commits import Attempt, attempt
from skipping.stores.opensearch.credentials import Access
from skipping.stores.opensearch.documents import documents, identities, types_of
from skipping.stores.opensearch.evaluate import IndexSearch, cached_fields
from skipping.stores.opensearch.index import Entries
from skipping.stores.opensearch.packed_entries import pages
from skipping.stores.opensearch.registry import Foreign, Registry, RegistryRecord
from skipping.stores.opensearch.workload import WorkloadIndex
from skipping.stores.untrusted import INVALID

_PATIENCE = 30.0
_LEASE = 30.0
_RECLAIM = 60.0  # seconds between two checks whether deleted documents need merging
_P = ParamSpec("_P")
_T = TypeVar("_T")


def _raise_store_errors(use: Callable[_P, _T]) -> Callable[_P, _T]:
    """Raise StoreError for any error that an invalid response causes."""

    @wraps(use)
    def wrapper(*args: _P.args, **more: _P.kwargs) -> _T:
        try:
            return use(*args, **more)
        except (*INVALID, MemoryError) as error:
            raise StoreError(
                f"the store has, or was given, invalid values ({type(error).__name__})"
            ) from error

    return wrapper


class OpenSearchStore(RecordStore[RegistryRecord]):
    """An `IndexStore` in a cluster, at `http://host:port` or `https://host:port`.

    `patience` is the time of an operation, in seconds; `lease` the time without a heartbeat after
    which a writer counts as dead; `kept` limits the cache of fields, in bytes.

    >>> OpenSearchStore("http://127.0.0.1:9200").location
    'opensearch://127.0.0.1:9200/skipping-'
    """

    has_index_settings = True
    """Whether an index can have the option `index_settings`, as in no other store."""

    def __init__(
        self,
        server: str,
        access: Access | None = None,
        *,
        patience: float = _PATIENCE,
        lease: float = _LEASE,
        kept: int = KEPT,
    ) -> None:
        self._access = Access() if access is None else access
        self._client = Client(server, self._access, patience=patience)
        self._registry = Registry(self._client, self._access.prefix)
        self._workload = WorkloadIndex(self._client, self._access.prefix)
        self._fields = Fields(kept)
        self._cluster = CapabilityCache()
        self._lease = lease
        self._named = set[tuple[str, int, int]]()
        self._reclaimed: dict[str, float] = {}

    def __reduce__(self) -> tuple[object, ...]:
        patience, kept = self._client.patience, self._fields.most
        make = partial(OpenSearchStore, patience=patience, lease=self._lease, kept=kept)
        return make, (self._client.server, self._access)

    @property
    def location(self) -> str:
        """`opensearch://host:port/prefix`, without the user."""
        scheme, _, host = self._client.server.partition("://")
        name = "opensearch" if scheme == "http" else "opensearch+https"
        return f"{name}://{host}/{self._access.prefix}"

    @_raise_store_errors
    def definitions(self, *, timeout: float | None = None) -> Sequence[Versioned[Definition]]:
        found = tuple(
            Versioned(Definition.unreadable(index, str(record)), 0)
            if isinstance(record, Foreign)
            else record.versioned
            for index, record in self._registry.list_records(timeout=timeout)
            if isinstance(record, Foreign) or record.definition is not None
        )
        self._fields.retain({each.value.index for each in found if not each.value.dropped})
        return found

    @_raise_store_errors
    def definition(
        self, index: IndexId, *, timeout: float | None = None
    ) -> Versioned[Definition] | None:
        try:
            record = self._registry.find(index, timeout=timeout)
        except Foreign as error:
            return Versioned(Definition.unreadable(index, str(error)), 0)
        return None if record is None else record.versioned

    @_raise_store_errors
    def live_definition(
        self, table: TableId, *, timeout: float | None = None
    ) -> Versioned[Definition] | None:
        record = self._registry.find_live(table, timeout=timeout)
        return None if record is None else record.versioned

    @_raise_store_errors
    def define(self, definition: Definition, *, expect: Revision | None) -> Revision:
        record = self._registry.define(definition, expect=expect)
        if not definition.dropped:
            self._name(record)
        return record.revision

    @_raise_store_errors
    def _read(self, index: IndexId, *, timeout: float | None = None) -> RegistryRecord:
        return self._registry.read(index, timeout=timeout)

    @_raise_store_errors
    def _update(
        self,
        index: IndexId,
        change: Callable[[RegistryRecord], RegistryRecord],
        *,
        timeout: float | None = None,
    ) -> RegistryRecord:
        return self._registry.update(index, change, timeout=timeout)

    @_raise_store_errors
    def write(
        self, index: IndexId, entries: pa.Table, *, revision: Revision, token: int | None = None
    ) -> None:
        entries = check_entries(entries)
        names = identities(entries)

        def admit(record: RegistryRecord) -> None:
            record.require_writable(revision, token)

        with self._attempt(index, admit) as held:
            fields = declare_fields(held.record.fields, entries)
            kept = self._entries(held.record)
            found = kept.find(entries["ordinal"].to_pylist(), names)
            made = documents(entries, names, found, end=held.record.next, generation=held.number)
            if made:
                if fields != held.record.fields or not held.record.generation:
                    kept.prepare(fields)
                copies = pages(made, types_of(fields), generation=held.number)
                kept.create([*made, *copies], generation=held.number, beat=held.beat)
                held.commit(fields=fields, writer=None)
        self._name(held.record)
        self._reclaim(held.record, pause=_RECLAIM)

    @_raise_store_errors
    def remove(self, index: IndexId, ordinals: pa.Array) -> None:
        with self._attempt(index, lambda record: None) as held:
            kept = self._entries(held.record)
            there = sorted(kept.find(ordinals.to_pylist(), ()).entries)
            if there:
                n = held.number
                tombs = [
                    ({"create": {"_id": f"r{o}.{n}"}}, {"removed": o, "generation": n})
                    for o in there
                ]
                kept.create(tombs, generation=n, beat=held.beat)
                held.commit(unswept=n)
                self._finish_removal(held)
        self._reclaim(held.record, pause=0)

    @_raise_store_errors
    def erase(self, index: IndexId) -> None:
        self._entries(self._registry.erase(index)).drop()
        self._fields.drop(index)

    @_raise_store_errors
    def catalogue(
        self,
        index: IndexId,
        *,
        since: Generation | None = None,
        fields: Sequence[str] = (),
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> Catalogue:
        deadline = None if timeout is None else time.monotonic() + timeout
        entries = self._entries(self._read(index, timeout=timeout))
        left = None if deadline is None else deadline - time.monotonic()
        return entries.catalogue(fields, since=since, timeout=left)

    @_raise_store_errors
    def entries(self, index: IndexId) -> Iterator[pa.Table]:
        return self._entries(self._read(index)).entries()

    @_raise_store_errors
    def size(self, index: IndexId) -> int | None:
        """Return the bytes of its primary shards; None without the permission for that."""
        return self._entries(self._read(index)).size()

    @_raise_store_errors
    def ordinals(self, index: IndexId, files: pa.Table) -> pa.Array:
        entries, names = self._entries(self._read(index)), identities(files)
        holders = entries.find((), names).holders
        removed = entries.find(list(holders.values()), ()).removed if holders else set()
        held = (holders.get(name) for name in names)
        return pa.array([None if o in removed else o for o in held], pa.int64())

    @_raise_store_errors
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
        cached = cached_fields(self._fields, index, tests)
        record = self._read(index, timeout=timeout)
        record.require_generation(generation, self.location)
        below = min(below, record.next)
        entries = self._entries(record)
        search = IndexSearch(entries, self._fields, cached, self._cluster, below, deadline)
        return search.find_prunable(tests)

    @_raise_store_errors
    def record_workload(
        self, record: WorkloadRecord, *, oldest: date, timeout: float | None = None
    ) -> None:
        self._registry.list_records(timeout=timeout)  # raises NoStore
        self._workload.record(record, oldest, timeout)

    @_raise_store_errors
    def workload(
        self,
        *,
        since: date,
        until: date,
        most: int = MOST_RECORDS,
        timeout: float | None = None,
    ) -> Sequence[WorkloadRecord]:
        self._registry.list_records(timeout=timeout)
        return self._workload.read(since, until, most, timeout)

    def _entries(self, record: RegistryRecord) -> Entries:
        return Entries(self._client, record)

    @contextmanager
    def _attempt(
        self, index: IndexId, admit: Callable[[RegistryRecord], None]
    ) -> Iterator[Attempt]:
        patience = self._client.patience
        with attempt(self._registry, index, admit, lease=self._lease, patience=patience) as held:
            self._finish_removal(held)
            yield held

    def _name(self, record: RegistryRecord) -> None:
        """Add column names, once for each revision and set of fields (`names`)."""
        named = record.entries, record.revision, len(record.fields)
        if record.definition is None or not record.generation or named in self._named:
            return
        self._named.add(named)
        with suppress(StoreError):  # the write is complete without them
            definition = Definition.from_json(record.definition)
            self._entries(record).name_columns(definition, record.fields)

    def _reclaim(self, record: RegistryRecord, *, pause: float) -> None:
        """Let the server free space, unless it did within the last `pause` seconds."""
        now = time.monotonic()
        if not record.generation or now - self._reclaimed.get(record.entries, -math.inf) < pause:
            return
        self._reclaimed[record.entries] = now
        with suppress(StoreError):  # it may need a permission that this user does not have
            self._entries(record).reclaim()

    def _finish_removal(self, held: Attempt) -> None:
        """Complete this removal, or an earlier one that was interrupted."""
        self._entries(held.record).purge(beat=held.beat)
        if held.record.unswept is not None:
            self._entries(held.record).sweep(held.record.unswept, beat=held.beat)
            held.note(unswept=None)
