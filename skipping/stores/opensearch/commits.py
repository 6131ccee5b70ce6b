"""Make writes to an OpenSearch store atomic: one writer at a time, all or nothing.

* A writer takes the lock of the index, and with it a new number: its *attempt*. Every document that
  it creates has this number as `generation`. No document is ever changed.
* A document is visible if its generation is at most that of the record and was not aborted. So what
  an attempt creates is invisible until its commit makes its number the record's generation, and the
  commit is one compare-and-set, refused if the definition was changed or dropped meanwhile.
* The lock of a dead writer has no heartbeats. After a lease, by its own monotonic clock, a waiting
  writer takes over and marks the attempt as aborted for good: documents of the dead writer, also
  later ones if it was only suspended, are never visible, and its commit is refused.
* An attempt starts after all earlier ones ended. So what is visible at a generation never changes,
  except for entries removed later: an incomplete or lost write can only make files unknown.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from providers.errors import StoreError
from skipping.model.definition import IndexId
from skipping.stores import Generation
from skipping.stores.epochs import next_generation
from skipping.stores.opensearch.registry import Registry, RegistryRecord

_PAUSE = 0.02


class LostHistory(StoreError):
    """Entries have documents of generations that the registry, which is older, does not know."""

    def __init__(self, message: str, generations: Sequence[Generation]) -> None:
        super().__init__(message)
        self.generations = tuple(generations)


class Attempt:
    """The lock of an index while it is held, and the `record` after the last change."""

    def __init__(
        self,
        registry: Registry,
        index: IndexId,
        record: RegistryRecord,
        admit: Callable[[RegistryRecord], None],
        *,
        lease: float,
    ) -> None:
        self.record = record
        self.number = record.attempt
        self._registry = registry
        self._index = index
        self._admit = admit
        self._lease = lease
        self._last_beat = time.monotonic()

    def beat(self) -> None:
        """Send a heartbeat if one is due; raise StoreError if the lock was taken over."""
        if time.monotonic() - self._last_beat > self._lease / 4:
            self._last_beat = time.monotonic()
            self._update(lambda record: replace(record, beat=record.beat + 1))

    def commit(self, **changes: Any) -> None:
        """Make the created documents visible; raise Conflict if the definition has changed."""

        def at(record: RegistryRecord) -> RegistryRecord:
            self._admit(record)
            return replace(record.with_generation(self.number), **changes)

        self._update(at)

    def note(self, **changes: Any) -> None:
        """Change the record now, even if the attempt is not committed."""
        self._update(lambda record: replace(record, **changes))

    def release(self) -> None:
        """Release the lock, unless a commit has done so."""
        if self.record.writer is not None:
            self.note(writer=None)

    def abort(self, also: Sequence[Generation] = ()) -> None:
        """Hide the created documents for good, unless they are committed, and release the lock.

        `also` are lost generations to hide.
        """

        def at(record: RegistryRecord) -> RegistryRecord:
            lost = () if record.generation == self.number else (self.number,)
            return replace(record, writer=None, aborted=(*record.aborted, *lost, *also))

        self._update(at)

    def _update(self, change: Callable[[RegistryRecord], RegistryRecord]) -> None:
        def at(record: RegistryRecord) -> RegistryRecord:
            if record.writer != self.number:
                raise StoreError(f"another writer took over index {self._index}: try again")
            return change(record)

        self.record = self._registry.update(self._index, at)


@contextmanager
def attempt(
    registry: Registry,
    index: IndexId,
    admit: Callable[[RegistryRecord], None],
    *,
    lease: float,
    patience: float,
) -> Iterator[Attempt]:
    """Hold the lock of an index. `admit` raises if the record does not allow the write.

    An attempt that is not committed is aborted. Raises StoreError if other writers hold the lock
    for longer than `lease` and `patience` together.
    """
    wait = _Wait(lease)
    deadline = time.monotonic() + lease + patience
    while True:
        record = registry.update(index, lambda record: _try_lock(record, admit, wait))
        if wait.won:
            break
        if time.monotonic() > deadline:
            raise StoreError(f"index {index} is being written all the time: try again later")
        time.sleep(random.uniform(_PAUSE, 5 * _PAUSE))
    held = Attempt(registry, index, record, admit, lease=lease)
    try:
        yield held
    except BaseException as error:
        # If this fails, too, the next writer does it when the lease has ended.
        with suppress(StoreError):
            held.abort(error.generations if isinstance(error, LostHistory) else ())
        raise
    held.release()


class _Wait:
    """Waits for a lock, and watches the heartbeats of its holder."""

    def __init__(self, lease: float) -> None:
        self.won = False
        self._lease = lease
        self._seen: tuple[int, int] | None = None
        self._since = 0.0

    def is_dead(self, writer: int, beat: int) -> bool:
        if self._seen != (writer, beat):
            self._seen, self._since = (writer, beat), time.monotonic()
        return time.monotonic() - self._since > self._lease


def _try_lock(
    record: RegistryRecord, admit: Callable[[RegistryRecord], None], wait: _Wait
) -> RegistryRecord:
    admit(record)
    aborted = record.aborted
    if record.writer is not None:
        wait.won = wait.is_dead(record.writer, record.beat)
        if not wait.won:
            return record
        # It may have died after its commit; then its documents stay visible.
        aborted += (record.writer,) if record.generation != record.writer else ()
    wait.won = True
    number = next_generation(record.attempt)
    return replace(record, attempt=number, writer=number, beat=0, aborted=aborted)
