"""One thread for all streams of a store, and a few for what their queries take.

A lease has to move whatever a query does, so the keeper's thread asks the store, within a time, and
of Spark whether something still runs. What Spark or a file system may take its time for, to start a
query and to stop one, is done by threads of which a process has a few, however many streams it has.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import ClassVar, Protocol

from skipping.model.definition import Definition, Versioned
from skipping.stores import IndexStore

__all__ = ["Keeper", "Kept"]

log = logging.getLogger("skipping")

_STARTED, _STOPPED, _HUNG = 4, 16, 64
"""Queries that are started at the same time in this process; with those that are stopped; and with
those that took longer than `_USUAL`, which keep nobody else waiting."""

_USUAL = 30.0
"""Seconds after which what a query takes counts as hanging."""

QUEUED = math.inf
"""`Kept.busy` while its work waits for a thread."""


class Kept(Protocol):
    """What a keeper looks after. Nothing here raises; the work that is to be done may."""

    due: float
    """When to look at it next, by `time.monotonic`."""

    busy: float | None
    """Since when a thread does its work, or QUEUED."""

    @property
    def patience(self) -> float:
        """Seconds without a beat of its lease after which others take it for dead."""

    def is_over(self) -> bool:
        """Whether it is to be closed, and looked at no more."""

    def look(self, definitions: Sequence[Versioned[Definition]]) -> Callable[[], object] | None:
        """Look at what the store has; the work that is to be done, if any is."""

    def lost(self, error: Exception) -> None:
        """The store, or a thread, could not be had, or its work failed."""

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
    def wake(cls, kept: Kept, *, at: float = 0.0) -> None:
        """Look at it by then, or at once."""
        with cls._changed:
            kept.due = min(kept.due, at)
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
        try:
            while due := self._next():
                try:
                    self._round(due)
                except Exception:  # a fault of ours
                    log.exception("the streams of %s were not looked after", self._store.location)
        finally:  # whoever comes next has another
            with self._changed:
                if self._all.get(self._store) is self:
                    del self._all[self._store]
                    self._changed.notify_all()

    def _next(self) -> Sequence[Kept]:
        """Wait until some are due; none: there are no more."""
        with self._changed:
            while self._kept:
                now = time.monotonic()
                if due := [kept for kept in self._kept if kept.due <= now]:
                    for kept in due:  # before the look: whoever wakes one meanwhile is heard
                        kept.due = now + kept.patience / 6
                    return due
                self._changed.wait(min(kept.due for kept in self._kept) - now)
            del self._all[self._store]  # at once: who is added now has another
            return ()

    def _round(self, due: Sequence[Kept]) -> None:
        _workers.go_on()
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
            if kept.busy is not None:
                return
            kept.close()
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
            kept.busy = time.monotonic()
            try:
                work()
            except Exception as error:
                kept.lost(error)
            finally:
                kept.busy = None
                self.wake(kept)

        kept.busy = QUEUED
        try:
            _workers.do(done, last=last)
        except RuntimeError as error:  # no thread can be had: the process ends, or has too many
            if last:
                done()
                return
            kept.busy = None
            kept.lost(error)


class _Workers:
    """Threads that do what is to be done, and end when there is nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first = deque[Callable[[], None]]()  # what stops a query
        self._then = deque[Callable[[], None]]()
        self._since: dict[threading.Thread, float] = {}  # when each took what it does

    def do(self, work: Callable[[], None], *, last: bool) -> None:
        """Have it done; returns at once. Raises RuntimeError if no thread can be started."""
        with self._lock:
            waiting = self._first if last else self._then
            waiting.append(work)
            try:
                self._start()
            except RuntimeError:
                if not self._since:
                    waiting.remove(work)
                    raise

    def go_on(self) -> None:
        """See whether threads that hang keep others waiting."""
        with self._lock, suppress(RuntimeError):
            self._start()

    def _start(self) -> None:
        """A thread for what waits, unless as many are at work as may be."""
        if not self._first and not self._then:
            return
        most = _STOPPED if self._first else _STARTED
        if self._at_work() < most and len(self._since) < _HUNG:
            thread = threading.Thread(target=self._run, name="keep queries", daemon=True)
            self._since[thread] = time.monotonic()
            try:
                thread.start()
            except RuntimeError:
                del self._since[thread]
                raise

    def _at_work(self) -> int:
        now = time.monotonic()
        return sum(now - since < _USUAL for since in self._since.values())

    def _run(self) -> None:
        this = threading.current_thread()
        try:
            while True:
                with self._lock:
                    del self._since[this]
                    idle = not self._then or self._at_work() >= _STARTED
                    if not self._first and idle:
                        return
                    work = (self._first or self._then).popleft()
                    self._since[this] = time.monotonic()
                work()
        finally:
            with self._lock:
                self._since.pop(this, None)


_workers = _Workers()


def _after_fork() -> None:
    """A child keeps nothing: its parent does."""
    global _workers
    Keeper._all, Keeper._changed, _workers = {}, threading.Condition(), _Workers()


os.register_at_fork(after_in_child=_after_fork)
