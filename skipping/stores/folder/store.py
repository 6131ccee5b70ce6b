"""A store in a folder on disk or object storage, which many drivers share without a server.

Writers append commits to its log (`writer`); readers follow it with a replica on their own host
(`follower`), which answers all reads. The format is specified in docs/folder-format.md.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from providers.errors import StoreError
from providers.index_predicate import Test
from skipping.model.definition import Definition, IndexId, Revision, TableId, Versioned
from skipping.model.workload import (
    LONGEST,
    MOST_RECORDS,
    WorkloadRecord,
    list_old_keys,
    parse_records,
    select_keys,
)
from skipping.stores import Catalogue, Generation, OnProgress
from skipping.stores.entries import check_entries, sketches
from skipping.stores.fields import KEPT
from skipping.stores.folder import log, upkeep
from skipping.stores.folder.follower import LogFollower, boot_time
from skipping.stores.folder.log import RECORD, Commit, Ranges, Segment
from skipping.stores.folder.objects import Objects, get_all, is_forked
from skipping.stores.folder.replica import IDENTITIES, Position, Replica
from skipping.stores.folder.writer import LogWriter, next_commit, require_recent
from skipping.stores.index_record import RecordStore
from skipping.stores.single_flight import SingleFlight
from skipping.stores.sqlite.index_rows import IndexRow

_log = logging.getLogger(__name__)
REPLICA_MAX_BYTES = 32 << 30
"""Default size of a replica above which queries load no further sketches into it."""

_T = TypeVar("_T")

_SHARE = 0.5  # of the remaining time that a query waits for missing sketches


class FolderStore(RecordStore[IndexRow]):
    """An `IndexStore` in a folder, with a replica in the SQLite file `replica`.

    Queries see changes of other drivers `ttl` seconds later at most, and do not wait for them:
    the log is read in the background. Calls without a timeout read it first, at most once a second
    (unless `ttl` is less). `kept` limits the cache of fields, in bytes. Once the replica has more
    than `replica_max_bytes`, queries do not load objects that have only sketches: those are
    unknown.
    """

    def __init__(
        self,
        objects: Objects,
        replica: Path,
        *,
        ttl: float = 0.0,
        kept: int = KEPT,
        replica_max_bytes: int = REPLICA_MAX_BYTES,
    ) -> None:
        self._objects = objects
        self._replica = Replica(replica, kept=kept)
        self._follower = LogFollower(
            objects, self._replica, ttl=ttl, replica_max_bytes=replica_max_bytes
        )
        self._writer = LogWriter(self._follower)
        self._flights = SingleFlight[Any]()
        self._cleaned: date | None = None
        self._made_with = objects, replica, ttl, kept, replica_max_bytes

    def __reduce__(self) -> tuple[object, ...]:
        return _make, self._made_with

    @property
    def location(self) -> str:
        """The address of the folder."""
        return self._objects.location

    def definitions(self, *, timeout: float | None = None) -> Sequence[Versioned[Definition]]:
        self._follower.refresh(timeout)
        return self._replica.definitions(timeout=timeout)

    def definition(
        self, index: IndexId, *, timeout: float | None = None
    ) -> Versioned[Definition] | None:
        self._follower.refresh(timeout)
        return self._replica.definition(index, timeout=timeout)

    def live_definition(
        self, table: TableId, *, timeout: float | None = None
    ) -> Versioned[Definition] | None:
        self._follower.refresh(timeout)
        return self._replica.live_definition(table, timeout=timeout)

    def define(self, definition: Definition, *, expect: Revision | None) -> Revision:
        if expect is None:
            upkeep.require_conditional_writes(self._objects)
            self._follower.require_confirmation()
        index = definition.index

        def make(position: Position | None) -> Commit | None:
            try:
                before = self._replica.find_record(index)
            except StoreError:
                before = IndexRow(id=0, index=index, table="")
            record = (
                before.with_definition(definition, expect=expect, live=None)
                if position is None
                else self._replica.preview(definition, expect)
            )
            if position is None:
                _log.warning(
                    "creating an index store; everyone who can read its folder can read values of "
                    "the indexed columns: store=%s",
                    self.location,
                )
            return next_commit(position, index, set=_difference(before, record))

        self._writer.append(make)
        return (expect or 0) + 1

    def write(
        self, index: IndexId, entries: pa.Table, *, revision: Revision, token: int | None = None
    ) -> None:
        entries = check_entries(entries)
        try:
            self._replica.read(index).require_writable(revision, token)
        except StoreError:  # maybe not according to the newest commit
            self._follower.follow()
            self._replica.read(index).require_writable(revision, token)
        add, tables, began = list[Segment](), dict[str, pa.Table](), boot_time()
        for segment, of_parts in self._writer.upload(entries):
            add.append(segment)
            tables |= of_parts

        def make(position: Position | None) -> Commit | None:
            self._replica.read(index).require_writable(revision, token)
            require_recent(began)
            return next_commit(position, index, add=tuple(add)) if add else None

        self._writer.append(make, tables)

    def remove(self, index: IndexId, ordinals: pa.Array) -> None:
        def make(position: Position | None) -> Commit | None:
            there = self._replica.catalogue(index).files["ordinal"].to_numpy()
            gone = np.intersect1d(there, ordinals.to_numpy())
            return next_commit(position, index, removed=_ranges(gone)) if len(gone) else None

        self._follower.load_and_run(index, [IDENTITIES], lambda: self._writer.append(make))

    def erase(self, index: IndexId) -> None:
        def make(position: Position | None) -> Commit | None:
            before = self._replica.find_record(index)
            return next_commit(position, index, set=_difference(before, before.with_nothing()))

        self._writer.append(make)

    def _read(self, index: IndexId, *, timeout: float | None = None) -> IndexRow:
        self._follower.refresh(timeout)
        return self._replica.read(index)

    def _update(
        self,
        index: IndexId,
        change: Callable[[IndexRow], IndexRow],
        *,
        timeout: float | None = None,
    ) -> IndexRow:
        changed: list[IndexRow] = []

        def make(position: Position | None) -> Commit | None:
            before = self._replica.read(index)
            changed[:] = [change(before)]
            return next_commit(position, index, set=_difference(before, changed[0]))

        self._writer.append(make, timeout=timeout)
        return changed[0]

    def catalogue(
        self,
        index: IndexId,
        *,
        since: Generation | None = None,
        fields: Sequence[str] = (),
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> Catalogue:
        self._follower.refresh(timeout)
        wanted = [IDENTITIES, *sketches(fields)]
        read = partial(
            self._replica.catalogue,
            index,
            since=since,
            fields=fields,
            timeout=timeout,
            on_progress=on_progress,
        )
        if timeout is None:
            return self._follower.load_and_run(index, wanted, read)
        if not self._follower.load_within(index, wanted, timeout):
            raise StoreError(f"{self.location} did not answer within {timeout} s")
        return read()

    def size(self, index: IndexId) -> int | None:
        """Return the bytes of the index's objects."""
        self._follower.refresh(None)
        self._replica.read(index)
        return sum(each.bytes for each in self._replica.progress(index).manifest.segments)

    def ordinals(self, index: IndexId, files: pa.Table) -> pa.Array:
        self._follower.refresh(None)
        read = partial(self._replica.ordinals, index, files)
        return self._follower.load_and_run(index, [IDENTITIES], read)

    def entries(self, index: IndexId) -> Iterator[pa.Table]:
        self._follower.refresh(None)
        self._follower.ensure(index, None)
        yield from self._replica.entries(index)

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
        self._follower.refresh(timeout)
        # What does not arrive in time is unknown to this query, and there for the next.
        if not is_forked():
            needed = {test.sketch for test in tests} if self._follower.can_load() else set()
            wanted = sorted({IDENTITIES} | needed)
            self._follower.load_within(index, wanted, _SHARE * (deadline - time.monotonic()))
        return self._replica.find_prunable(
            index,
            tests,
            below=below,
            timeout=max(0.0, deadline - time.monotonic()),
            generation=generation,
        )

    def record_workload(
        self, record: WorkloadRecord, *, oldest: date, timeout: float | None = None
    ) -> None:
        self._follower.refresh(timeout)
        self._run("write", lambda: self._write_workload(record, oldest), timeout)

    def _write_workload(self, record: WorkloadRecord, oldest: date) -> bool:
        self._objects.replace(log.workload_name(record.key), record.to_json().encode())
        if self._cleaned != record.day:  # listing costs as much as writing
            listed = [each.name for each in self._objects.list(log.WORKLOAD)]
            keys = {name: key for name in listed if (key := log.workload_key(name))}
            expired = set(list_old_keys(keys.values(), record, oldest))
            if old := [name for name, key in keys.items() if key in expired]:
                self._objects.delete(old)
            self._cleaned = record.day
        return True

    def workload(
        self,
        *,
        since: date,
        until: date,
        most: int = MOST_RECORDS,
        timeout: float | None = None,
    ) -> Sequence[WorkloadRecord]:
        self._follower.refresh(timeout)
        return self._run("read", lambda: self._read_workload(since, until, most), timeout)

    def _read_workload(self, since: date, until: date, most: int) -> Sequence[WorkloadRecord]:
        listed = (each for each in self._objects.list(log.WORKLOAD) if each.size <= LONGEST)
        keys = {log.workload_key(each.name) for each in listed if each.name.endswith(".json")}
        names = [
            log.workload_name(key)
            for key in select_keys(filter(None, keys), since=since, until=until, most=most)
        ]
        found = get_all(self._objects, dict.fromkeys(names, LONGEST))
        return parse_records(
            (log.workload_key(name) or "", data.decode(errors="replace"))
            for name, data in found.items()
            if data is not None
        )

    def _run(self, key: str, work: Callable[[], _T], timeout: float | None) -> _T:
        """Return what a function of the storage returns; raise StoreError after `timeout`."""
        found = work() if timeout is None else self._flights.result(key, work, timeout=timeout)
        if found is None:
            raise StoreError(f"{self.location} did not answer within {timeout} s")
        return cast(_T, found)

    def describe(self, index: IndexId) -> dict[str, object]:
        """Return facts about an index's place in the folder."""
        segments, position = self.segments(index), self._replica.position()
        hint = self._objects.get(log.HINT, most=log.MOST_COMMIT)
        return {
            "segments": len(segments),
            "log version": None if position is None else position.version,
            "last checkpoint": None if hint is None else log.parse_hint(hint),
        }

    def segments(self, index: IndexId) -> Sequence[Segment]:
        """Return the segments of an index."""
        self._follower.refresh(None)
        return self._replica.progress(index).manifest.segments


def _make(
    objects: Objects, replica: Path, ttl: float, kept: int, replica_max_bytes: int
) -> FolderStore:
    return FolderStore(objects, replica, ttl=ttl, kept=kept, replica_max_bytes=replica_max_bytes)


def _difference(before: IndexRow, after: IndexRow) -> dict[str, object]:
    """Return the fields of a record that changed."""
    return {
        name: getattr(after, name)
        for name in RECORD
        if getattr(after, name) != getattr(before, name)
    }


def _ranges(ordinals: np.ndarray) -> Ranges:
    """Return sorted ordinals as ranges."""
    starts = np.flatnonzero(np.diff(ordinals, prepend=-2) != 1)
    ends = np.append(starts[1:], len(ordinals)) - 1
    return tuple(zip(ordinals[starts].tolist(), ordinals[ends].tolist(), strict=True))
