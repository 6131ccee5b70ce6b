"""A store in a folder on disk or object storage, which many drivers share without a server.

Writers append commits to its log (`log`); readers follow it with a replica on their own host
(`replica`). The format is specified in docs/folder-format.md.
"""

from __future__ import annotations

import logging
import random
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from providers.errors import Conflict, Damaged, NoStore, Rewound, StoreError, first_line
from providers.index_predicate import Test
from skipping.model.definition import Definition, IndexId, Revision, TableId, Versioned
from skipping.stores import Catalogue, Generation, OnProgress
from skipping.stores.entries import check_entries, sketches
from skipping.stores.fields import KEPT
from skipping.stores.folder import log, upkeep
from skipping.stores.folder.log import RECORD, Checkpoint, Commit, Manifest, Part, Ranges, Segment
from skipping.stores.folder.objects import (
    Objects,
    get_all,
    in_parallel,
    is_forked,
    require_process,
)
from skipping.stores.folder.replica import IDENTITIES, Overtaken, Position, Replica
from skipping.stores.folder.segments import MOST_PART, read_part, write_segments
from skipping.stores.fork_safety import Lock
from skipping.stores.index_record import RecordStore
from skipping.stores.single_flight import SingleFlight
from skipping.stores.sqlite.index_rows import IndexRow
from skipping.stores.untrusted import INVALID

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
REPLICA_MAX_BYTES = 32 << 30
"""Default size of a replica above which queries load no further sketches into it."""

_CONFIRMED = 600.0  # seconds for which a position in the log needs no confirmation
_PATIENCE = 60.0  # seconds in which a writer tries to get a commit into the log
_PAUSE = 0.05  # maximum of seconds between attempts: in a longer pause others commit a lot
_RECENT = 1.0  # seconds for which a statement need not read the log again, as it wrote or read it
_AHEAD = 8  # commits that are read at once
_ATTEMPTS = 5  # to load objects while another process empties the replica
_UPLOADS = 8  # at once
_AT_ONCE = 64 << 20  # bytes of objects, or of their tables, that are loaded together
_LONGEST = 12 * 3_600.0  # seconds between the first object of a write and its commit
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
        self._path = replica
        self._replica = Replica(replica, kept=kept)
        self._ttl = ttl
        self._kept = kept
        self._replica_max_bytes = replica_max_bytes
        self._is_full = False
        self._lock = Lock()
        self._flights = SingleFlight[bool]()
        self._exists = False
        self._loaded: set[tuple[IndexId, str]] = set()  # since the log was read last
        self._lacking: set[tuple[IndexId, str]] = set()  # since then, too
        self._start: str | None = None  # of the replica whose position was confirmed
        self._read_at = self._tried_at = -float("inf")
        self._confirmed_at = -float("inf")

    def __reduce__(self) -> tuple[object, ...]:
        return _make, (self._objects, self._path, self._ttl, self._kept, self._replica_max_bytes)

    @property
    def location(self) -> str:
        """The address of the folder."""
        return self._objects.location

    def definitions(self, *, timeout: float | None = None) -> Sequence[Versioned[Definition]]:
        self._refresh(timeout)
        return self._replica.definitions(timeout=timeout)

    def definition(
        self, index: IndexId, *, timeout: float | None = None
    ) -> Versioned[Definition] | None:
        self._refresh(timeout)
        return self._replica.definition(index, timeout=timeout)

    def live_definition(
        self, table: TableId, *, timeout: float | None = None
    ) -> Versioned[Definition] | None:
        self._refresh(timeout)
        return self._replica.live_definition(table, timeout=timeout)

    def define(self, definition: Definition, *, expect: Revision | None) -> Revision:
        if expect is None:
            upkeep.require_conditional_writes(self._objects)
            self._confirmed_at = -float("inf")
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
            return _commit(position, index, set=_difference(before, record))

        self._append(make)
        return (expect or 0) + 1

    def write(
        self, index: IndexId, entries: pa.Table, *, revision: Revision, token: int | None = None
    ) -> None:
        entries = check_entries(entries)
        try:
            self._replica.read(index).require_writable(revision, token)
        except StoreError:  # maybe not according to the newest commit
            self._follow()
            self._replica.read(index).require_writable(revision, token)
        add, tables, began = list[Segment](), dict[str, pa.Table](), _now()
        for segment, of_parts in self._upload(entries):
            add.append(segment)
            tables |= of_parts

        def make(position: Position | None) -> Commit | None:
            self._replica.read(index).require_writable(revision, token)
            _require_recent(began)
            return _commit(position, index, add=tuple(add)) if add else None

        self._append(make, tables)

    def remove(self, index: IndexId, ordinals: pa.Array) -> None:
        def make(position: Position | None) -> Commit | None:
            there = self._replica.catalogue(index).files["ordinal"].to_numpy()
            gone = np.intersect1d(there, ordinals.to_numpy())
            return _commit(position, index, removed=_ranges(gone)) if len(gone) else None

        self._load_and_run(index, [IDENTITIES], lambda: self._append(make))

    def erase(self, index: IndexId) -> None:
        def make(position: Position | None) -> Commit | None:
            before = self._replica.find_record(index)
            return _commit(position, index, set=_difference(before, before.with_nothing()))

        self._append(make)

    def _read(self, index: IndexId, *, timeout: float | None = None) -> IndexRow:
        self._refresh(timeout)
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
            return _commit(position, index, set=_difference(before, changed[0]))

        self._append(make, timeout=timeout)
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
        self._refresh(timeout)
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
            return self._load_and_run(index, wanted, read)
        if not self._load_within(index, wanted, timeout):
            raise StoreError(f"{self.location} did not answer within {timeout} s")
        return read()

    def size(self, index: IndexId) -> int | None:
        """Return the bytes of the index's objects."""
        self._refresh(None)
        self._replica.read(index)
        return sum(each.bytes for each in self._replica.progress(index).manifest.segments)

    def ordinals(self, index: IndexId, files: pa.Table) -> pa.Array:
        self._refresh(None)
        return self._load_and_run(index, [IDENTITIES], lambda: self._replica.ordinals(index, files))

    def entries(self, index: IndexId) -> Iterator[pa.Table]:
        self._refresh(None)
        self._ensure(index, None)
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
        self._refresh(timeout)
        # What does not arrive in time is unknown to this query, and there for the next.
        if not is_forked():
            needed = {test.sketch for test in tests} if self._can_load() else set()
            wanted = sorted({IDENTITIES} | needed)
            self._load_within(index, wanted, _SHARE * (deadline - time.monotonic()))
        return self._replica.find_prunable(
            index,
            tests,
            below=below,
            timeout=max(0.0, deadline - time.monotonic()),
            generation=generation,
        )

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
        self._refresh(None)
        return self._replica.progress(index).manifest.segments

    # Follow the log

    def _refresh(self, timeout: float | None) -> None:
        """Follow the log: at once without a timeout or before the first use, else in background.

        A child of a fork cannot.
        """
        age = time.monotonic() - self._read_at
        if is_forked():
            pass  # the replica answers, as the parent left it or as other processes do
        elif timeout is None:
            if age >= min(self._ttl, _RECENT):
                self._follow()
        elif self._ttl == 0 or age == float("inf"):
            if self._flights.result("follow", self._follow, timeout=timeout) is None:
                raise StoreError(f"{self.location} did not answer within {timeout} s")
        elif min(age, time.monotonic() - self._tried_at) > self._ttl:
            self._flights.result("follow", self._follow, timeout=0)
        self._exists = self._exists or self._replica.position() is not None
        if not self._exists:
            require_process(self.location)
            raise NoStore(f"the store {self.location} does not exist: create the index again")

    def _follow(self) -> bool:
        """Apply the commits that the replica does not have."""
        with self._lock:
            self._tried_at = time.monotonic()
            self._reset_loading()
            self._advance()
        return True

    def _reset_loading(self) -> None:
        self._loaded.clear()
        self._lacking.clear()

    def _advance(self) -> None:
        try:
            self._apply_commits(self._confirm(self._replica.position()))
        except Rewound:
            self._confirmed_at = -float("inf")  # the folder may have been restored from a backup
            try:
                self._apply_commits(self._confirm(self._replica.position()))
            except Rewound as error:
                raise Damaged(
                    f"{first_line(error)} in {self.location}: was the folder restored while a "
                    "driver wrote? Delete this commit and all later ones from log/"
                ) from error

    def _apply_commits(self, position: Position | None) -> None:
        """Apply the commits after a position."""
        ahead = 1
        while True:
            first = 1 if position is None else position.version + 1
            wanted = {log.commit_name(first + n): log.MOST_COMMIT for n in range(ahead)}
            found = list(get_all(self._objects, wanted).values())
            for version, data in enumerate(found, first):
                if data is None:
                    self._read_at = time.monotonic()
                    return
                commit = Commit.parse(data, version)
                is_applied = self._replica.apply(commit, self._read_parts(commit))
                position = self._replica.position()
                if position is None or (position.version, position.commit) != (version, commit.id):
                    break  # another process follows with this replica, too
                if is_applied:
                    self._start = position.start
            ahead = _AHEAD

    def _confirm(self, position: Position | None) -> Position | None:
        """Return the position if the log still has its commit; else start again."""
        is_mine = position is not None and position.start == self._start
        if is_mine and _now() - self._confirmed_at < _CONFIRMED:
            return position
        if position is None or not self._is_logged(position.version, position.commit):
            position = self._restart()
        self._confirmed_at = _now()
        self._start = None if position is None else position.start
        return position

    def _restart(self) -> Position | None:
        """Continue after the newest checkpoint, or from the beginning of the log."""
        version, checkpoint = self._newest_checkpoint(), None
        if version is not None:
            data = self._objects.get(log.checkpoint_name(version), most=log.MOST_COMMIT)
            if data is None:
                raise Damaged(f"the store {self.location} lacks its checkpoint {version}")
            checkpoint = Checkpoint.parse(data, version)
        if checkpoint is not None or self._replica.position() is not None:
            self._replica.restart(checkpoint)
            self._reset_loading()
        return self._replica.position()

    def _newest_checkpoint(self) -> int | None:
        hint = self._objects.get(log.HINT, most=log.MOST_COMMIT)
        if hint is not None:
            return log.parse_hint(hint)
        if self._objects.get(log.commit_name(1), most=log.MOST_COMMIT) is not None:
            return None
        # The hint may be lost: a store that began again from commit 1 would hide what is there.
        found = (log.version_of(each.name) or (0, False) for each in self._objects.list("log/"))
        return max((version for version, is_checkpoint in found if is_checkpoint), default=None)

    def _read_parts(self, commit: Commit) -> dict[str, pa.Table]:
        """Read objects of a commit that the replica needs; the others are loaded when used."""
        if not commit.add or commit.merged:
            return {}
        progress, can_load = self._replica.progress(commit.index), self._can_load()
        wanted = [
            (segment.rows, part)
            for segment in commit.add
            for part in segment.parts
            if progress.needs(part) and (can_load or part.identities)
        ]
        try:
            return next(self._read_objects(wanted), {})
        except StoreError as error:
            # The commit is applied nevertheless: other indexes need what follows it.
            _log.info("objects of commit %d are not loaded: %s", commit.version, error)
            return {}

    def _can_load(self) -> bool:
        """Return whether the replica may grow by sketches; warn once when it becomes full."""
        was, self._is_full = self._is_full, self._replica.file_size() > self._replica_max_bytes
        if self._is_full and not was:
            _log.warning(
                "the replica is full, so files with sketches that it lacks are read: raise "
                "spark.skipping.store.replica.maxBytes or delete it: store=%s replica=%s",
                self.location,
                self._path,
            )
        return not self._is_full

    def _read_objects(self, wanted: Sequence[tuple[int, Part]]) -> Iterator[dict[str, pa.Table]]:
        """Read objects, some at a time; those that are gone or invalid are left out."""
        tables, size = dict[str, pa.Table](), 0
        for some in _groups(wanted):
            found = in_parallel(self._read_object, [part for _, part in some])
            for (rows, part), data in zip(some, found, strict=True):
                try:
                    if data is not None:
                        tables[part.name] = read_part(part, data, rows)
                        size += tables[part.name].nbytes
                except Damaged as error:
                    _log.warning("store=%s %s", self.location, error)
                if size > _AT_ONCE:
                    yield tables
                    tables, size = {}, 0
        if tables:
            yield tables

    def _read_object(self, part: Part) -> bytes | None:
        try:
            return self._objects.get(part.name, most=min(part.bytes, MOST_PART))
        except Damaged as error:
            _log.warning("store=%s %s", self.location, error)
            return None

    def _missing(
        self, index: IndexId, wanted: Collection[str] | None
    ) -> Iterator[tuple[int, Part]]:
        """Yield the objects to load before these sketches can be used; None stands for all."""
        for rows, part in self._replica.progress(index).parts():
            if part.identities or wanted is None or set(part.sketches) & set(wanted):
                yield rows, part

    def _load_within(self, index: IndexId, wanted: Sequence[str], seconds: float) -> bool:
        """Do what `_ensure` does, in the background after this time; return whether it is done."""
        if all((index, name) in self._loaded for name in wanted):
            return True
        if any((index, name) in self._lacking for name in wanted):
            raise self._lacks_objects(index)
        key, work = ("load", index, *wanted), partial(self._ensure, index, wanted)
        if any(self._missing(index, wanted)):
            return bool(self._flights.result(key, work, timeout=seconds))
        if self._replica.progress(index).in_use.issuperset(wanted):
            self._loaded |= {(index, name) for name in wanted}
            return True
        # Noting that they are in use can wait for a writer of this host, a query does not.
        with suppress(StoreError):
            self._flights.result(key, work, timeout=0)
        return True

    def _ensure(self, index: IndexId, wanted: Collection[str] | None) -> bool:
        """Load the objects of these sketches, and keep them up to date; raise StoreError."""
        missing = list(self._missing(index, wanted))
        progress = self._replica.progress(index)
        used = {IDENTITIES, *(wanted or ())}
        if not used <= progress.in_use:
            self._replica.use(index, used)
        if not missing:
            self._loaded |= {(index, name) for name in used}
            return True
        with self._lock:
            lacking = self._load(index, wanted)
            if lacking:  # maybe merged and collected since: then the log names others
                self._confirmed_at = -float("inf")
                self._advance()
                if lacking != list(self._missing(index, wanted)):
                    lacking = self._load(index, wanted)
            if not lacking:
                return True
            of = {*(name for _, part in lacking for name in part.sketches)}
            if any(part.identities for _, part in lacking):
                of.add(IDENTITIES)
            self._lacking |= {(index, name) for name in of}
        raise self._lacks_objects(index)

    def _load_and_run(
        self, index: IndexId, wanted: Collection[str], work: Callable[[], _Result]
    ) -> _Result:
        """Return the result of work that needs these sketches.

        Another process can empty the replica meanwhile; then the work is done again.
        """
        for _ in range(_ATTEMPTS):
            self._ensure(index, wanted)
            before = self._replica.position()
            result = work()
            after = self._replica.position()
            is_same = before is not None and after is not None and before.start == after.start
            if is_same and not any(self._missing(index, wanted)):
                return result
        raise StoreError(f"the replica {self._path} was emptied by another process: try again")

    def _load(self, index: IndexId, wanted: Collection[str] | None) -> list[tuple[int, Part]]:
        """Load the objects of these sketches; return those that are gone or invalid."""
        for tables in self._read_objects(list(self._missing(index, wanted))):
            self._replica.load(index, tables)
        return list(self._missing(index, wanted))

    def _lacks_objects(self, index: IndexId) -> Damaged:
        return Damaged(
            f"the store {self.location} lacks objects of index {index}: run DROP SKIPPING INDEX, "
            "then CREATE SKIPPING INDEX again"
        )

    # Append to the log

    def _upload(self, entries: pa.Table) -> Iterator[tuple[Segment, dict[str, pa.Table]]]:
        """Write the objects of entries; yield their segments, and the tables of the objects."""
        for segment, objects in write_segments(entries):
            with ThreadPoolExecutor(_UPLOADS) as pool:
                # Names are random, so nothing is overwritten. `create` would not tell a conflict
                # (HTTP 409), after which there is no object, from one that exists.
                list(pool.map(lambda item: self._objects.replace(*item), objects.items()))
            yield (
                segment,
                {
                    part.name: read_part(part, objects[part.name], segment.rows)
                    for part in segment.parts
                },
            )

    def _append(
        self,
        make: Callable[[Position | None], Commit | None],
        tables: dict[str, pa.Table] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Append the commit that `make` returns; after another writer's commit call it again.

        `make` gets the position in the log at which it reads the replica; it must not change it.
        """
        patience = _PATIENCE if timeout is None else timeout
        deadline, pause, is_newest = time.monotonic() + patience, 0.005, False

        def make_here(position: Position | None) -> Commit | None:
            if position is not None and position.start != self._start:
                raise Overtaken  # another process lets the replica follow another log
            return make(position)

        with self._lock:
            if self._replica.position() is None or _now() - self._confirmed_at > _CONFIRMED:
                self._advance()
        while True:
            try:
                commit = self._replica.publish(make_here, tables or {}, self._create, wait=timeout)
                self._read_at = time.monotonic() if commit is not None else self._read_at
                break
            except Conflict:
                if is_newest:
                    raise
                is_newest = True  # another driver may have written what this one expects
            except Overtaken:
                if time.monotonic() > deadline:
                    raise StoreError(
                        f"{self.location} is being written all the time: try again later"
                    ) from None
                time.sleep(random.uniform(0, pause))
                pause = min(2 * pause, _PAUSE)
            self._follow()
        if commit is not None and commit.version % upkeep.CHECKPOINT == 0:
            if timeout is None:
                self._maintain()
            else:  # such as a lease, which may expire while its holder waits
                self._flights.result("maintain", self._maintain, timeout=0)

    def _maintain(self) -> bool:
        """Merge small segments, write a checkpoint, delete old objects; log errors only."""
        try:
            made = self._replica.checkpoint()
            for index, (_, manifest) in () if made is None else made.indexes.items():
                try:
                    if chosen := upkeep.segments_to_merge(manifest):
                        self._merge(index, manifest, chosen)
                except (StoreError, *INVALID) as error:
                    _log.warning("index %s is not merged: %s", index, error)
            made = upkeep.checkpoint(self._objects, self._replica)
            if made is not None:
                upkeep.collect(self._objects, made)
        except (StoreError, *INVALID) as error:
            _log.warning("the store is not maintained: store=%s error=%s", self.location, error)
        return True

    def _merge(self, index: IndexId, manifest: Manifest, chosen: Sequence[Segment]) -> None:
        began = _now()
        entries = upkeep.merge(self._objects, manifest, chosen)
        add = tuple(segment for segment, _ in self._upload(entries))
        ids = tuple(each.id for each in chosen)

        def make(position: Position | None) -> Commit | None:
            now = self._replica.progress(index).manifest
            if now.segments[: len(manifest.segments)] != manifest.segments or (
                now.removed != manifest.removed
            ):
                return None  # the next checkpoint tries again
            _require_recent(began)
            return _commit(position, index, add=add, merged=ids)

        self._append(make)

    def _create(self, commit: Commit) -> bool:
        """Write a commit; return False if another writer has written this version."""
        name, data = log.commit_name(commit.version), log.require_size(commit.to_bytes())
        try:
            is_written = self._objects.create(name, data) or self._is_logged(
                commit.version, commit.id
            )
        except StoreError:
            # The response may be lost after the commit was written.
            is_written = self._is_logged(commit.version, commit.id)
            if not is_written:
                raise
        if is_written and _now() - self._confirmed_at > _CONFIRMED:
            self._require_predecessor(commit)
        return is_written

    def _require_predecessor(self, commit: Commit) -> None:
        """Take a commit back if the log before it was collected while this host was suspended."""
        before = log.commit_name(commit.version - 1)
        if commit.version > 1 and self._objects.get(before, most=log.MOST_COMMIT) is None:
            self._objects.delete([log.commit_name(commit.version)])
            self._confirmed_at = -float("inf")
            raise StoreError(
                f"the store {self.location} was changed by others while this process was "
                "suspended: try again"
            )

    def _is_logged(self, version: int, id: str) -> bool:
        """Return whether the commit with this id is in the log at a version."""
        data = self._objects.get(log.commit_name(version), most=log.MOST_COMMIT)
        return data is not None and Commit.parse(data, version).id == id


def _groups(wanted: Sequence[tuple[int, Part]]) -> Iterator[Sequence[tuple[int, Part]]]:
    """Divide objects into groups of at most _AT_ONCE bytes, or of one object."""
    some, size = list[tuple[int, Part]](), 0
    for rows, part in wanted:
        if some and size + part.bytes > _AT_ONCE:
            yield some
            some, size = [], 0
        some.append((rows, part))
        size += part.bytes
    if some:
        yield some


def _require_recent(began: float) -> None:
    """Raise StoreError if new objects may have been collected before their commit."""
    if _now() - began > _LONGEST:
        raise StoreError("the write took too long, or its host was suspended: try again")


def _now() -> float:
    """Return seconds of a clock that goes on while the host is suspended, where there is one."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def _commit(position: Position | None, index: IndexId, **changes: Any) -> Commit | None:
    """Return the next commit; None if it has no changes."""
    if not any(changes.values()):
        return None
    if position is None:
        return Commit(secrets.token_hex(16), 1, "", index, **changes)
    return Commit(position.store, position.version + 1, position.commit, index, **changes)


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
