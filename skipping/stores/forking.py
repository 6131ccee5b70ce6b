"""What a process must not take along when it forks: locks that somebody held, threads, connections.

A child of `os.fork` has the memory of its parent, but one thread only: a lock that another thread
held is never released there, work in the background never ends, and a socket or an open database is
the parent's as well. So whoever keeps such things begins anew in the child.
"""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType
from typing import Protocol

__all__ = ["Forked", "Lock", "reset_after_fork"]


class Forked(Protocol):
    """What begins anew in a child."""

    def _after_fork(self) -> None:
        """Make locks anew, forget threads and connections; close nothing, it is the parent's."""


# Not a WeakSet: its operations are several steps, between which another thread may fork.
_registered: dict[int, weakref.ref[Forked]] = {}


def reset_after_fork(obj: Forked) -> None:
    """Call the object's `_after_fork()` in every child of this process, before its other code.

    It is held weakly. Objects are called in the order in which they were registered.
    """
    number = id(obj)

    def forget(_: object) -> None:
        _registered.pop(number, None)

    _registered.pop(number, None)
    _registered[number] = weakref.ref(obj, forget)


class Lock:
    """A lock that is free in a child, whoever held it in the parent."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._after_fork()
        reset_after_fork(self)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release()


def _in_child() -> None:
    for reference in list(_registered.values()):
        if (obj := reference()) is not None:
            obj._after_fork()


os.register_at_fork(after_in_child=_in_child)
