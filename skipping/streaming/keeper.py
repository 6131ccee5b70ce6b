"""One thread for all streams of a store, and a few for what their queries take.

A lease has to move whatever a query does, so the keeper's thread asks nothing but the store. What
Spark or a file system may take its time for, to start a query and to stop one, is done by threads
of which a process has a few, however many streams it has.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

from skipping.model.definition import Definition, Versioned
from skipping.stores import IndexStore

__all__ = ["Keeper", "Kept"]

_AT_ONCE = 4
"""Queries of this process that are started or stopped at the same time."""


class Kept(Protocol):
    """What a keeper looks after. Nothing here raises; the work that is to be done may."""

    due: float
    """When to look at it next, by `time.monotonic`."""

    busy: float | None
    """Since when there is work to do, or done, for it."""

    @property
    def patience(self) -> float:
        """Seconds without a beat of its lease after which others take it for dead."""

    def is_over(self) -> bool:
        """Whether it is to be closed, and looked at no more."""

    def look(self, definitions: Sequence[Versioned[Definition]]) -> Callable[[], object] | None:
        """Look at what the store has; the work that is to be done, if any is."""

    def lost(self, error: Exception) -> None:
        """The store, or a thread, could not be had."""

    def close(self) -> Callable[[], object] | None:
        """Give back what it has; the work to do first, if any is."""


class Keeper:
    """Looks after the streams of a store until each is over."""

    _all: ClassVar[dict[IndexStore, Keeper]] = {}  # those that have anything
    _changed: ClassVar = threading.Condition()  # of all: there are few

    def __init__(self, store: IndexStore) -> None:
        self._store = store
        self._kept: set[Kept] = set()

    @classmethod
    def add(cls, store: IndexStore, kept: Kept) -> None:
        """Look after it from now on; returns at once."""
        with cls._changed:
            keeper = cls._all.get(store)
            if keeper is None:
                keeper = cls(store)
                name = f"keep {store.location}"
                threading.Thread(target=keeper._run, name=name, daemon=True).start()
                cls._all[store] = keeper
            keeper._kept.add(kept)
            cls._changed.notify_all()

    @classmethod
    def wake(cls, kept: Kept) -> None:
        """Look at it at once."""
        with cls._changed:
            kept.due = 0.0
            cls._changed.notify_all()

    @classmethod
    def has(cls, kept: Kept) -> bool:
        """Whether it is looked after, and not closed yet."""
        return any(kept in keeper._kept for keeper in list(cls._all.values()))

    @classmethod
    def closed(cls, kept: Kept, *, within: float) -> bool:
        """Whether it is closed, after so many seconds at most."""
        with cls._changed:
            return cls._changed.wait_for(lambda: not cls.has(kept), within)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._kept:
                    del self._all[self._store]
                    return
                pause = min(kept.due for kept in self._kept) - time.monotonic()
                if pause > 0:
                    self._changed.wait(pause)
                now = time.monotonic()
                due = [kept for kept in self._kept if kept.due <= now]
                for kept in due:  # before they are looked at: whoever wakes one meanwhile is heard
                    kept.due = now + kept.patience / 6
            ended = [kept for kept in due if kept.is_over()]
            for kept in ended:
                self._close(kept)
            if going := [kept for kept in due if kept not in ended]:
                self._look(going)

    def _close(self, kept: Kept) -> None:
        if kept.busy is not None:
            return
        if work := kept.close():
            self._do(kept, work, last=True)
            return
        with self._changed:
            self._kept.discard(kept)
            self._changed.notify_all()

    def _look(self, due: Sequence[Kept]) -> None:
        try:
            # Before a lease counts as dead there has to be time for another try.
            timeout = min(kept.patience for kept in due) / 3
            definitions = self._store.definitions(timeout=timeout)
        except Exception as error:
            for kept in due:
                kept.lost(error)
            return
        for kept in due:
            if work := kept.look(definitions):
                self._do(kept, work)

    def _do(self, kept: Kept, work: Callable[[], object], *, last: bool = False) -> None:
        def done() -> None:
            try:
                work()
            except Exception as error:
                kept.lost(error)
            kept.busy = None
            self.wake(kept)

        kept.busy = time.monotonic()
        try:
            _workers.do(done)
        except RuntimeError as error:  # no thread can be had: the process ends, or has too many
            if last:
                done()
                return
            kept.busy = None
            kept.lost(error)


class _Workers:
    """Threads that do what is to be done in its order, and end when there is nothing."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._running = 0
        self._lock = threading.Lock()
        self._waiting = deque[Callable[[], None]]()

    def do(self, work: Callable[[], None]) -> None:
        """Have it done; returns at once. Raises RuntimeError if no thread can be started."""
        with self._lock:
            self._waiting.append(work)
            if self._running == self._most:
                return
            try:
                threading.Thread(target=self._run, name="keep queries", daemon=True).start()
                self._running += 1
            except RuntimeError:
                if not self._running:
                    self._waiting.remove(work)
                    raise

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                work = self._waiting.popleft()
            work()


_workers = _Workers(_AT_ONCE)


def _after_fork() -> None:
    """A child keeps nothing: its parent does."""
    global _workers
    Keeper._all, Keeper._changed, _workers = {}, threading.Condition(), _Workers(_AT_ONCE)


os.register_at_fork(after_in_child=_after_fork)
