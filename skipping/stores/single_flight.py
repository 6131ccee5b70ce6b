"""Reading in the background, once for all who wait for the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from providers.errors import StoreError
from skipping.stores.forking import Lock, reset_after_fork

__all__ = ["Loading"]

_T = TypeVar("_T")


@dataclass(slots=True)
class _Load(Generic[_T]):
    done: threading.Event = field(default_factory=threading.Event)
    result: _T | None = None
    error: StoreError | None = None


class Loading(Generic[_T]):
    """Work that goes on when who asked for it cannot wait; the next to ask finds it further.

    >>> Loading[int]().result("key", lambda: 1, timeout=5)
    1
    """

    def __init__(self) -> None:
        self._loads: dict[Hashable, _Load[_T]] = {}
        self._lock = Lock()
        reset_after_fork(self)

    def _after_fork(self) -> None:
        # What is under way goes on in the parent only: nobody would ever say that it is done.
        self._loads = {}

    def result(self, key: Hashable, work: Callable[[], _T], *, timeout: float) -> _T | None:
        """What the work gives, or that which is under way already; None if it takes too long.

        Raises StoreError for whatever the work raises. What it gives after that is not kept here.
        """
        with self._lock:
            load = self._loads.get(key)
            if load is None:
                load = self._loads[key] = _Load()
                thread = threading.Thread(
                    target=self._run, args=(key, work, load), name="skipping-load", daemon=True
                )
                thread.start()
        if not load.done.wait(max(0.0, timeout)):
            return None
        if load.error is not None:
            raise load.error
        return load.result

    def _run(self, key: Hashable, work: Callable[[], _T], load: _Load[_T]) -> None:
        try:
            load.result = work()
        except StoreError as error:
            load.error = error
        except Exception as error:
            load.error = StoreError(f"the store cannot be read: {error}")
        finally:
            with self._lock:
                del self._loads[key]
            load.done.set()
