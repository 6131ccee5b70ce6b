"""Run a load once in the background for all callers that wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as OutOfTime  # the built-in one since Python 3.11
from typing import Generic, TypeVar, cast

from providers.errors import StoreError
from skipping.stores.fork_safety import Lock, reset_after_fork

_T = TypeVar("_T")


class SingleFlight(Generic[_T]):
    """Run a load once; a caller that times out leaves it running for the next caller.

    >>> SingleFlight[int]().result("key", lambda: 1, timeout=5)
    1
    """

    def __init__(self) -> None:
        self._loads: dict[Hashable, Future[_T]] = {}
        self._partial: dict[Hashable, Callable[[], _T]] = {}
        self._lock = Lock()
        reset_after_fork(self)

    def _after_fork(self) -> None:
        # Loads continue in the parent only, so nothing would ever finish them in the child.
        self._loads, self._partial = {}, {}

    def report(self, key: Hashable, partial: Callable[[], _T]) -> None:
        """Set the function that returns the partial result of a running load."""
        with self._lock:
            if key in self._loads:
                self._partial[key] = partial

    def result(self, key: Hashable, work: Callable[[], _T], *, timeout: float) -> _T | None:
        """Return the result of `work`, or of the load of this key that already runs.

        After `timeout` seconds this is the partial result (`report`), or None. Raises StoreError
        for any error of the load. Results are not cached.
        """
        with self._lock:
            load = self._loads.get(key)
            if load is None:
                load = Future()
                # Not an executor: Python waits for its threads at exit, and a store may hang.
                thread = threading.Thread(
                    target=self._run, args=(key, work, load), name="skipping-load", daemon=True
                )
                try:
                    thread.start()  # which waits for the lock before it ends
                except RuntimeError as error:
                    raise StoreError(f"the store cannot be read: {error}") from error
                self._loads[key] = load
        try:
            return load.result(timeout=max(0.0, timeout))
        except OutOfTime:
            with self._lock:
                partial = self._partial.get(key)
            return None if partial is None else partial()

    def _run(self, key: Hashable, work: Callable[[], _T], load: Future[_T]) -> None:
        error: StoreError | None = None
        result: _T | None = None
        try:
            result = work()
        except StoreError as raised:
            error = raised
        except Exception as raised:
            error = StoreError(f"the store cannot be read: {raised}")
        with self._lock:
            del self._loads[key]
            self._partial.pop(key, None)
        if error is None:
            load.set_result(cast(_T, result))
        else:
            load.set_exception(error)
