"""Reading in the background, once for all who wait for the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as OutOfTime  # the built-in one since Python 3.11
from typing import Generic, TypeVar, cast

from providers.errors import StoreError
from skipping.stores.fork_safety import Lock, reset_after_fork

__all__ = ["SingleFlight"]

_T = TypeVar("_T")


class SingleFlight(Generic[_T]):
    """Work that goes on when who asked for it cannot wait; the next to ask finds it further.

    >>> SingleFlight[int]().result("key", lambda: 1, timeout=5)
    1
    """

    def __init__(self) -> None:
        self._loads: dict[Hashable, Future[_T]] = {}
        self._partial: dict[Hashable, Callable[[], _T]] = {}
        self._lock = Lock()
        reset_after_fork(self)

    def _after_fork(self) -> None:
        # What is under way goes on in the parent only: nobody would ever say that it is done.
        self._loads, self._partial = {}, {}

    def tell(self, key: Hashable, partial: Callable[[], _T]) -> None:
        """What makes of work that is under way that which is done; for those who cannot wait."""
        with self._lock:
            if key in self._loads:
                self._partial[key] = partial

    def result(self, key: Hashable, work: Callable[[], _T], *, timeout: float) -> _T | None:
        """What the work gives, or that which is under way already; None if it takes too long.

        Then it is what the work told last, if it told anything.

        Raises StoreError for whatever the work raises. What it gives after that is not kept here.
        """
        with self._lock:
            load = self._loads.get(key)
            if load is None:
                load = Future()
                # No executor: Python waits for its threads at the end, and a store may hang.
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
