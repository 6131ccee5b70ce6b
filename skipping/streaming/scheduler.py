"""Poll all streams of a store from one thread; start and stop their queries on a few others.

Leases must be renewed even if a query hangs. So the scheduler's thread only calls the store, with a
timeout, and checks whether Spark still runs a query. Starting and stopping a query can block on
Spark or a file system, so a few worker threads, which all streams of the process share, do that.
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

log = logging.getLogger("skipping")

_STARTING, _WORKING, _ALL = 4, 16, 64
"""Maximum numbers of worker threads in this process: that start queries; that start or stop
queries; and of all threads, including those that hang."""

_HANGING = 30.0  # seconds after which starting or stopping a query counts as hanging

QUEUED = math.inf
"""The value of `Scheduled.busy` while its work waits for a thread."""


class Scheduled(Protocol):
    """An item that a scheduler polls. Its methods must not raise; the work they return may."""

    due: float
    """The time of the next poll, by `time.monotonic`."""

    busy: float | None
    """The time since which a thread runs its work; QUEUED while the work waits; None: no work."""

    @property
    def patience(self) -> float:
        """Seconds without a heartbeat after which other processes take over its lease."""

    def is_over(self) -> bool:
        """Return whether the scheduler should close the item and stop polling it."""

    def look(self, definitions: Sequence[Versioned[Definition]]) -> Callable[[], object] | None:
        """Poll the item: compare it with the stored definitions; return work to do, or None."""

    def on_error(self, error: Exception) -> None:
        """Handle an error: of the store, of the work, or of starting a thread."""

    def close(self) -> Callable[[], object] | None:
        """Release the lease and return None, or return work that must run before that."""


class Scheduler:
    """Polls the streams of one store until each is over."""

    _all: ClassVar[dict[IndexStore, Scheduler]] = {}  # the schedulers that have items
    _changed: ClassVar = threading.Condition()  # shared, because there are few schedulers

    def __init__(self, store: IndexStore) -> None:
        self._store = store
        self._items: set[Scheduled] = set()

    @classmethod
    def add(cls, store: IndexStore, item: Scheduled) -> None:
        """Poll the item from now on; return immediately."""
        with cls._changed:
            scheduler = cls._all.get(store)
            if scheduler is None:
                scheduler = cls(store)
                name = f"streams: {store.location}"
                threading.Thread(target=scheduler._run, name=name, daemon=True).start()
                cls._all[store] = scheduler
            scheduler._items.add(item)
            cls._changed.notify_all()

    @classmethod
    def wake(cls, item: Scheduled, *, at: float = 0.0) -> None:
        """Poll the item at the time `at` (`time.monotonic`), by default immediately."""
        with cls._changed:
            item.due = min(item.due, at)
            cls._changed.notify_all()

    @classmethod
    def has(cls, item: Scheduled) -> bool:
        """Return whether the item was added and is not closed yet."""
        return any(item in scheduler._items for scheduler in list(cls._all.values()))

    @classmethod
    def await_close(cls, item: Scheduled, *, within: float) -> bool:
        """Wait until the item is closed, at most `within` seconds; return whether it is closed."""
        with cls._changed:
            return cls._changed.wait_for(lambda: not cls.has(item), within)

    def _run(self) -> None:
        try:
            while due := self._next():
                try:
                    self._run_due(due)
                except Exception:  # a defect of this project
                    log.exception("polling the streams failed: store=%s", self._store.location)
        finally:  # remove it, so that the next stream gets a new scheduler
            with self._changed:
                if self._all.get(self._store) is self:
                    del self._all[self._store]
                    self._changed.notify_all()

    def _next(self) -> Sequence[Scheduled]:
        """Wait until some items are due, and return them; return () if there are no items."""
        with self._changed:
            while self._items:
                now = time.monotonic()
                if due := [item for item in self._items if item.due <= now]:
                    for item in due:  # before the poll, so that `wake` during the poll has effect
                        item.due = now + item.patience / 6
                    return due
                self._changed.wait(min(item.due for item in self._items) - now)
            del self._all[self._store]  # while locked, so that the next stream gets a new scheduler
            return ()

    def _run_due(self, due: Sequence[Scheduled]) -> None:
        _workers.resume()
        ended = [item for item in due if item.is_over()]
        for item in ended:
            self._close(item)
        if going := [item for item in due if item not in ended]:
            self._look(going)

    def _close(self, item: Scheduled) -> None:
        if item.busy is not None:
            return
        if work := item.close():
            self._submit(item, work, last=True)
            if item.busy is not None:
                return
            item.close()
        with self._changed:
            self._items.discard(item)
            self._changed.notify_all()

    def _look(self, due: Sequence[Scheduled]) -> None:
        try:
            # Leave time for a second try before the lease expires.
            timeout = min(item.patience for item in due) / 3
            definitions = self._store.definitions(timeout=timeout)
        except Exception as error:
            for item in due:
                item.on_error(error)
            return
        for item in due:
            if work := item.look(definitions):
                self._submit(item, work)

    def _submit(self, item: Scheduled, work: Callable[[], object], *, last: bool = False) -> None:
        def done() -> None:
            item.busy = time.monotonic()
            try:
                work()
            except Exception as error:
                item.on_error(error)
            finally:
                item.busy = None
                self.wake(item)

        item.busy = QUEUED
        try:
            _workers.submit(done, last=last)
        except RuntimeError as error:  # the process is exiting, or has too many threads
            if last:
                done()
                return
            item.busy = None
            item.on_error(error)


class _Workers:
    """Threads that run submitted work. A thread ends when the queue is empty."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stops = deque[Callable[[], None]]()  # work that stops a query, which runs first
        self._starts = deque[Callable[[], None]]()
        self._since: dict[threading.Thread, float] = {}  # when each began its current work

    def submit(self, work: Callable[[], None], *, last: bool) -> None:
        """Queue work and return immediately; raise RuntimeError if no thread can be started."""
        with self._lock:
            waiting = self._stops if last else self._starts
            waiting.append(work)
            try:
                self._start()
            except RuntimeError:
                if not self._since:
                    waiting.remove(work)
                    raise

    def resume(self) -> None:
        """Start a thread if work is queued while other threads hang."""
        with self._lock, suppress(RuntimeError):
            self._start()

    def _start(self) -> None:
        if not self._stops and not self._starts:
            return
        most = _WORKING if self._stops else _STARTING
        if self._count_working() < most and len(self._since) < _ALL:
            thread = threading.Thread(target=self._run, name="streams: queries", daemon=True)
            self._since[thread] = time.monotonic()
            try:
                thread.start()
            except RuntimeError:
                del self._since[thread]
                raise

    def _count_working(self) -> int:
        """Return the number of threads that do not hang."""
        now = time.monotonic()
        return sum(now - since < _HANGING for since in self._since.values())

    def _run(self) -> None:
        this = threading.current_thread()
        try:
            while True:
                with self._lock:
                    del self._since[this]
                    is_idle = not self._starts or self._count_working() >= _STARTING
                    if not self._stops and is_idle:
                        return
                    work = (self._stops or self._starts).popleft()
                    self._since[this] = time.monotonic()
                work()
        finally:
            with self._lock:
                self._since.pop(this, None)


_workers = _Workers()


def _after_fork() -> None:
    """Forget all streams in a child process: the parent maintains them."""
    global _workers
    Scheduler._all, Scheduler._changed, _workers = {}, threading.Condition(), _Workers()


os.register_at_fork(after_in_child=_after_fork)
