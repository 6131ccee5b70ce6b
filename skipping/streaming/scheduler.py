"""One thread for all streams of a store, and a few threads that start and stop their queries.

Leases must be renewed whatever a query does. So the scheduler's thread only calls the store, with a
timeout, and asks Spark whether a query still runs. Starting and stopping a query can block on Spark
or a file system: a few threads of the process do that, however many streams there are.
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

_STARTED, _STOPPED, _HUNG = 4, 16, 64
"""Limits of threads in this process: that start queries, that start or stop queries, and of all,
with those that hang for longer than `_USUAL`, which do not block the others."""

_USUAL = 30.0
"""Seconds after which starting or stopping a query counts as hanging."""

QUEUED = math.inf
"""`Scheduled.busy` while its work waits for a thread."""


class Scheduled(Protocol):
    """An item that a scheduler polls. Its methods do not raise; the work they return may."""

    due: float
    """The time of the next poll, by `time.monotonic`."""

    busy: float | None
    """Since when a thread does its work; QUEUED while it waits for a thread; None: no work."""

    @property
    def patience(self) -> float:
        """Seconds without a heartbeat after which others take over its lease."""

    def is_over(self) -> bool:
        """Return whether to close it and stop polling it."""

    def look(self, definitions: Sequence[Versioned[Definition]]) -> Callable[[], object] | None:
        """Compare it with the definitions in the store; return the work to do, if any."""

    def on_error(self, error: Exception) -> None:
        """Handle an error of the store or of its work, or that no thread could be started."""

    def close(self) -> Callable[[], object] | None:
        """Release the lease, or return the work to do before that."""


class Scheduler:
    """Polls the streams of a store until each is over."""

    _all: ClassVar[dict[IndexStore, Scheduler]] = {}  # those that have anything
    _changed: ClassVar = threading.Condition()  # of all: there are few

    def __init__(self, store: IndexStore) -> None:
        self._store = store
        self._items: set[Scheduled] = set()

    @classmethod
    def add(cls, store: IndexStore, item: Scheduled) -> None:
        """Poll it from now on; returns immediately."""
        with cls._changed:
            scheduler = cls._all.get(store)
            if scheduler is None:
                scheduler = cls(store)
                name = f"keep {store.location}"
                threading.Thread(target=scheduler._run, name=name, daemon=True).start()
                cls._all[store] = scheduler
            scheduler._items.add(item)
            cls._changed.notify_all()

    @classmethod
    def wake(cls, item: Scheduled, *, at: float = 0.0) -> None:
        """Poll it at that time, or immediately."""
        with cls._changed:
            item.due = min(item.due, at)
            cls._changed.notify_all()

    @classmethod
    def has(cls, item: Scheduled) -> bool:
        """Return whether it was added and is not closed yet."""
        return any(item in scheduler._items for scheduler in list(cls._all.values()))

    @classmethod
    def await_close(cls, item: Scheduled, *, within: float) -> bool:
        """Wait until it is closed, at most `within` seconds; return whether it is."""
        with cls._changed:
            return cls._changed.wait_for(lambda: not cls.has(item), within)

    def _run(self) -> None:
        try:
            while due := self._next():
                try:
                    self._run_due(due)
                except Exception:  # a defect of this project
                    log.exception("polling the streams failed: store=%s", self._store.location)
        finally:  # the next stream gets a new scheduler
            with self._changed:
                if self._all.get(self._store) is self:
                    del self._all[self._store]
                    self._changed.notify_all()

    def _next(self) -> Sequence[Scheduled]:
        """Wait until some items are due, and return them; an empty list after the last has left."""
        with self._changed:
            while self._items:
                now = time.monotonic()
                if due := [item for item in self._items if item.due <= now]:
                    for item in due:  # before the poll, so that a call of `wake` meanwhile counts
                        item.due = now + item.patience / 6
                    return due
                self._changed.wait(min(item.due for item in self._items) - now)
            del self._all[self._store]  # at once: the next stream gets a new scheduler
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
        except RuntimeError as error:  # the process ends, or has too many threads
            if last:
                done()
                return
            item.busy = None
            item.on_error(error)


class _Workers:
    """Threads that run submitted work. A thread ends when the queue is empty."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first = deque[Callable[[], None]]()  # that stops a query
        self._then = deque[Callable[[], None]]()
        self._since: dict[threading.Thread, float] = {}  # since when each runs its work

    def submit(self, work: Callable[[], None], *, last: bool) -> None:
        """Queue work; returns immediately. Raises RuntimeError if no thread can be started."""
        with self._lock:
            waiting = self._first if last else self._then
            waiting.append(work)
            try:
                self._start()
            except RuntimeError:
                if not self._since:
                    waiting.remove(work)
                    raise

    def resume(self) -> None:
        """Start a thread if hanging threads block queued work."""
        with self._lock, suppress(RuntimeError):
            self._start()

    def _start(self) -> None:
        """Start a thread for queued work, within the limits."""
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
    """Forget all streams in a child process: the parent maintains them."""
    global _workers
    Scheduler._all, Scheduler._changed, _workers = {}, threading.Condition(), _Workers()


os.register_at_fork(after_in_child=_after_fork)
