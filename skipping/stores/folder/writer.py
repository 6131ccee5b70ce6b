"""Append commits to the log of a folder store, and keep the folder small."""

from __future__ import annotations

import logging
import random
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from providers.errors import Conflict, StoreError
from skipping.model.definition import IndexId
from skipping.stores.folder import log, upkeep
from skipping.stores.folder.follower import LogFollower, boot_time
from skipping.stores.folder.log import Commit, Manifest, Segment
from skipping.stores.folder.replica import Overtaken, Position
from skipping.stores.folder.segments import read_part, write_segments
from skipping.stores.single_flight import SingleFlight
from skipping.stores.untrusted import INVALID

_log = logging.getLogger(__name__)
_PATIENCE = 60.0  # seconds in which a writer tries to get a commit into the log
_PAUSE = 0.05  # maximum of seconds between attempts: in a longer pause others commit a lot
_UPLOADS = 8  # at once
_LONGEST = 12 * 3_600.0  # seconds between the first object of a write and its commit


class LogWriter:
    """Appends commits to the log that a follower reads."""

    def __init__(self, follower: LogFollower) -> None:
        self._follower = follower
        self._objects = follower.objects
        self._replica = follower.replica
        self._flights = SingleFlight[bool]()

    def upload(self, entries: pa.Table) -> Iterator[tuple[Segment, dict[str, pa.Table]]]:
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

    def append(
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
            if position is not None and position.start != self._follower.start:
                raise Overtaken  # another process lets the replica follow another log
            return make(position)

        self._follower.confirm()
        while True:
            try:
                commit = self._replica.publish(make_here, tables or {}, self._create, wait=timeout)
                break
            except Conflict:
                if is_newest:
                    raise
                is_newest = True  # another driver may have written what this one expects
            except Overtaken:
                if time.monotonic() > deadline:
                    raise StoreError(
                        f"{self._objects.location} is being written all the time: try again later"
                    ) from None
                time.sleep(random.uniform(0, pause))
                pause = min(2 * pause, _PAUSE)
            self._follower.follow()
        if commit is None:
            return
        self._follower.note_own_commit()
        if commit.version % upkeep.CHECKPOINT == 0:
            if timeout is None:
                self.maintain()
            else:  # such as a lease, which may expire while its holder waits
                self._flights.result("maintain", self.maintain, timeout=0)

    def maintain(self) -> bool:
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
            _log.warning(
                "the store is not maintained: store=%s error=%s", self._objects.location, error
            )
        return True

    def _merge(self, index: IndexId, manifest: Manifest, chosen: Sequence[Segment]) -> None:
        began = boot_time()
        entries = upkeep.merge(self._objects, manifest, chosen)
        add = tuple(segment for segment, _ in self.upload(entries))
        ids = tuple(each.id for each in chosen)

        def make(position: Position | None) -> Commit | None:
            now = self._replica.progress(index).manifest
            if now.segments[: len(manifest.segments)] != manifest.segments or (
                now.removed != manifest.removed
            ):
                return None  # the next checkpoint tries again
            require_recent(began)
            return next_commit(position, index, add=add, merged=ids)

        self.append(make)

    def _create(self, commit: Commit) -> bool:
        """Write a commit; return False if another writer has written this version."""
        name, data = log.commit_name(commit.version), log.require_size(commit.to_bytes())
        try:
            is_written = self._objects.create(name, data) or self._follower.is_logged(
                commit.version, commit.id
            )
        except StoreError:
            # The response may be lost after the commit was written.
            is_written = self._follower.is_logged(commit.version, commit.id)
            if not is_written:
                raise
        if is_written and not self._follower.is_confirmed():
            self._require_predecessor(commit)
        return is_written

    def _require_predecessor(self, commit: Commit) -> None:
        """Take a commit back if the log before it was collected while this host was suspended."""
        before = log.commit_name(commit.version - 1)
        if commit.version > 1 and self._objects.get(before, most=log.MOST_COMMIT) is None:
            self._objects.delete([log.commit_name(commit.version)])
            self._follower.require_confirmation()
            raise StoreError(
                f"the store {self._objects.location} was changed by others while this process was "
                "suspended: try again"
            )


def require_recent(began: float) -> None:
    """Raise StoreError if new objects may have been collected before their commit."""
    if boot_time() - began > _LONGEST:
        raise StoreError("the write took too long, or its host was suspended: try again")


def next_commit(position: Position | None, index: IndexId, **changes: Any) -> Commit | None:
    """Return the next commit; None if it has no changes."""
    if not any(changes.values()):
        return None
    if position is None:
        return Commit(secrets.token_hex(16), 1, "", index, **changes)
    return Commit(position.store, position.version + 1, position.commit, index, **changes)
