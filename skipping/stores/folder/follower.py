"""Follow the log of a folder store with the replica, and load the objects that queries need."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import pyarrow as pa

from providers.errors import Damaged, NoStore, Rewound, StoreError, first_line
from skipping.model.definition import IndexId
from skipping.stores.folder import log
from skipping.stores.folder.log import Checkpoint, Commit, Part
from skipping.stores.folder.objects import (
    Objects,
    get_all,
    in_parallel,
    is_forked,
    require_process,
)
from skipping.stores.folder.replica import IDENTITIES, Position, Replica
from skipping.stores.folder.segments import MOST_PART, read_part
from skipping.stores.fork_safety import Lock
from skipping.stores.single_flight import SingleFlight

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
_CONFIRMED = 600.0  # seconds for which a position in the log needs no confirmation
_RECENT = 1.0  # seconds for which a statement need not read the log again, as it wrote or read it
_AHEAD = 8  # commits that are read at once
_ATTEMPTS = 5  # to load objects while another process empties the replica
_AT_ONCE = 64 << 20  # bytes of objects, or of their tables, that are loaded together


class LogFollower:
    """Keeps a replica up to date with the log in a folder.

    `ttl` and `replica_max_bytes` are those of `FolderStore`. `start` identifies the log that the
    replica follows, so that a process notices if another one lets it follow another log.
    """

    def __init__(
        self, objects: Objects, replica: Replica, *, ttl: float, replica_max_bytes: int
    ) -> None:
        self.objects = objects
        self.replica = replica
        self.ttl = ttl
        self.replica_max_bytes = replica_max_bytes
        self.start: str | None = None  # of the replica whose position was confirmed
        self._location = objects.location
        self._is_full = False
        self._lock = Lock()
        self._flights = SingleFlight[bool]()
        self._exists = False
        self._loaded: set[tuple[IndexId, str]] = set()  # since the log was read last
        self._lacking: set[tuple[IndexId, str]] = set()  # since then, too
        self._read_at = self._tried_at = -float("inf")
        self._confirmed_at = -float("inf")

    def refresh(self, timeout: float | None) -> None:
        """Follow the log: at once without a timeout or before the first use, else in background.

        A child of a fork cannot.
        """
        age = time.monotonic() - self._read_at
        if is_forked():
            pass  # the replica answers, as the parent left it or as other processes do
        elif timeout is None:
            if age >= min(self.ttl, _RECENT):
                self.follow()
        elif self.ttl == 0 or age == float("inf"):
            if self._flights.result("follow", self.follow, timeout=timeout) is None:
                raise StoreError(f"{self._location} did not answer within {timeout} s")
        elif min(age, time.monotonic() - self._tried_at) > self.ttl:
            self._flights.result("follow", self.follow, timeout=0)
        self._exists = self._exists or self.replica.position() is not None
        if not self._exists:
            require_process(self._location)
            raise NoStore(f"no indexes: the store {self._location} does not exist")

    def follow(self) -> bool:
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
            self._apply_commits(self._confirm(self.replica.position()))
        except Rewound:
            self.require_confirmation()  # the folder may have been restored from a backup
            try:
                self._apply_commits(self._confirm(self.replica.position()))
            except Rewound as error:
                raise Damaged(
                    f"{first_line(error)} in {self._location}: was the folder restored while a "
                    "driver wrote? Delete this commit and all later ones from log/"
                ) from error

    def _apply_commits(self, position: Position | None) -> None:
        """Apply the commits after a position."""
        ahead = 1
        while True:
            first = 1 if position is None else position.version + 1
            wanted = {log.commit_name(first + n): log.MOST_COMMIT for n in range(ahead)}
            found = list(get_all(self.objects, wanted).values())
            for version, data in enumerate(found, first):
                if data is None:
                    self._read_at = time.monotonic()
                    return
                commit = Commit.parse(data, version)
                is_applied = self.replica.apply(commit, self._read_parts(commit))
                position = self.replica.position()
                if position is None or (position.version, position.commit) != (version, commit.id):
                    break  # another process follows with this replica, too
                if is_applied:
                    self.start = position.start
            ahead = _AHEAD

    def _confirm(self, position: Position | None) -> Position | None:
        """Return the position if the log still has its commit; else start again."""
        is_mine = position is not None and position.start == self.start
        if is_mine and self.is_confirmed():
            return position
        if position is None or not self.is_logged(position.version, position.commit):
            position = self._restart(position)
        self._confirmed_at = boot_time()
        self.start = None if position is None else position.start
        return position

    def _restart(self, position: Position | None) -> Position | None:
        """Continue after the newest checkpoint, or from the beginning of the log.

        If the replica is no longer at this position, another follower has continued with it.
        """
        version, checkpoint = self._newest_checkpoint(), None
        if version is not None:
            data = self.objects.get(log.checkpoint_name(version), most=log.MOST_COMMIT)
            if data is None:
                raise Damaged(f"the store {self._location} lacks its checkpoint {version}")
            checkpoint = Checkpoint.parse(data, version)
        is_other = checkpoint is not None or position is not None
        if is_other and self.replica.position() == position:
            self.replica.restart(checkpoint)
            self._reset_loading()
        return self.replica.position()

    def _newest_checkpoint(self) -> int | None:
        hint = self.objects.get(log.HINT, most=log.MOST_COMMIT)
        if hint is not None:
            return log.parse_hint(hint)
        if self.objects.get(log.commit_name(1), most=log.MOST_COMMIT) is not None:
            return None
        # The hint may be lost: a store that began again from commit 1 would hide what is there.
        found = (log.version_of(each.name) or (0, False) for each in self.objects.list("log/"))
        return max((version for version, is_checkpoint in found if is_checkpoint), default=None)

    def _read_parts(self, commit: Commit) -> dict[str, pa.Table]:
        """Read objects of a commit that the replica needs; the others are loaded when used."""
        if not commit.add or commit.merged:
            return {}
        progress, can_load = self.replica.progress(commit.index), self.can_load()
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

    def can_load(self) -> bool:
        """Return whether the replica may grow by sketches; warn once when it becomes full."""
        was, self._is_full = self._is_full, self.replica.file_size() > self.replica_max_bytes
        if self._is_full and not was:
            _log.warning(
                "the replica is full, so files with sketches that it lacks are read: raise "
                "spark.skipping.store.replica.maxBytes or delete it: store=%s replica=%s",
                self._location,
                self.replica.location,
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
                    _log.warning("store=%s %s", self._location, error)
                if size > _AT_ONCE:
                    yield tables
                    tables, size = {}, 0
        if tables:
            yield tables

    def _read_object(self, part: Part) -> bytes | None:
        try:
            return self.objects.get(part.name, most=min(part.bytes, MOST_PART))
        except Damaged as error:
            _log.warning("store=%s %s", self._location, error)
            return None

    def _missing(
        self, index: IndexId, wanted: Collection[str] | None
    ) -> Iterator[tuple[int, Part]]:
        """Yield the objects to load before these sketches can be used; None stands for all."""
        for rows, part in self.replica.progress(index).parts():
            if part.identities or wanted is None or set(part.sketches) & set(wanted):
                yield rows, part

    def load_within(self, index: IndexId, wanted: Sequence[str], seconds: float) -> bool:
        """Do what `ensure` does, in the background after this time; return whether it is done."""
        if all((index, name) in self._loaded for name in wanted):
            return True
        if any((index, name) in self._lacking for name in wanted):
            raise self._lacks_objects(index)
        key, work = ("load", index, *wanted), partial(self.ensure, index, wanted)
        if any(self._missing(index, wanted)):
            return bool(self._flights.result(key, work, timeout=seconds))
        if self.replica.progress(index).in_use.issuperset(wanted):
            self._loaded |= {(index, name) for name in wanted}
            return True
        # Noting that they are in use can wait for a writer of this host, a query does not.
        with suppress(StoreError):
            self._flights.result(key, work, timeout=0)
        return True

    def ensure(self, index: IndexId, wanted: Collection[str] | None) -> bool:
        """Load the objects of these sketches, and keep them up to date; raise StoreError."""
        missing = list(self._missing(index, wanted))
        progress = self.replica.progress(index)
        used = {IDENTITIES, *(wanted or ())}
        if not used <= progress.in_use:
            self.replica.use(index, used)
        if not missing:
            self._loaded |= {(index, name) for name in used}
            return True
        with self._lock:
            lacking = self._load(index, wanted)
            if lacking:  # maybe merged and collected since: then the log names others
                self.require_confirmation()
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

    def load_and_run(
        self, index: IndexId, wanted: Collection[str], work: Callable[[], _Result]
    ) -> _Result:
        """Return the result of work that needs these sketches.

        Another process can empty the replica meanwhile; then the work is done again.
        """
        for _ in range(_ATTEMPTS):
            self.ensure(index, wanted)
            before = self.replica.position()
            result = work()
            after = self.replica.position()
            is_same = before is not None and after is not None and before.start == after.start
            if is_same and not any(self._missing(index, wanted)):
                return result
        raise StoreError(
            f"the replica {self.replica.location} was emptied by another process: try again"
        )

    def _load(self, index: IndexId, wanted: Collection[str] | None) -> list[tuple[int, Part]]:
        """Load the objects of these sketches; return those that are gone or invalid."""
        for tables in self._read_objects(list(self._missing(index, wanted))):
            self.replica.load(index, tables)
        return list(self._missing(index, wanted))

    def _lacks_objects(self, index: IndexId) -> Damaged:
        return Damaged(
            f"the store {self._location} lacks objects of index {index}: run DROP SKIPPING INDEX, "
            "then CREATE SKIPPING INDEX again"
        )

    # What writers need

    def require_confirmation(self) -> None:
        """Compare the replica's position with the log before the next use of the log."""
        self._confirmed_at = -float("inf")

    def is_confirmed(self) -> bool:
        """Return whether the position was compared with the log a short time ago."""
        return boot_time() - self._confirmed_at <= _CONFIRMED

    def confirm(self) -> None:
        """Follow the log if the position was not compared with it for a long time."""
        with self._lock:
            if self.replica.position() is None or not self.is_confirmed():
                self._advance()

    def note_own_commit(self) -> None:
        """Note that the replica has the newest commit, because this process wrote it."""
        self._read_at = time.monotonic()

    def is_logged(self, version: int, id: str) -> bool:
        """Return whether the commit with this id is in the log at a version."""
        data = self.objects.get(log.commit_name(version), most=log.MOST_COMMIT)
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


def boot_time() -> float:
    """Return seconds of a clock that goes on while the host is suspended, where there is one."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)
