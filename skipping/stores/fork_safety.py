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

__all__ = ["Forked", "Gate", "Lock", "reset_after_fork"]


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


class Gate:
    """What a child cannot have, as an open database: a fork waits until it is closed.

    SQLite remembers for the whole process which locks it has on a file. A child would believe that
    it has them too, and read while somebody else writes over what it reads; so `with gate:` stands
    around all that is open. `is_carried` says that a fork did not wait long enough: what was open
    then must not be opened in this process.

    `patience` is in seconds.
    """

    def __init__(self, patience: float = 5.0) -> None:
        self._patience = patience
        self._after_fork()
        self.is_carried = False
        _gates.append(self)

    def _after_fork(self) -> None:
        self._condition = threading.Condition()
        self._inside = 0

    def __enter__(self) -> None:
        with self._condition:
            self._inside += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._condition:
            self._inside -= 1
            self._condition.notify_all()

    def _close(self) -> None:
        self._condition.acquire()
        self._condition.wait_for(lambda: not self._inside, self._patience)

    def _open(self) -> None:
        self._condition.release()

    def _begin_anew(self) -> None:
        self.is_carried |= self._inside > 0
        self._after_fork()


_gates: list[Gate] = []  # they live as long as the process


def _before() -> None:
    for gate in _gates:
        gate._close()


def _in_parent() -> None:
    for gate in reversed(_gates):
        gate._open()


def _in_child() -> None:
    for gate in _gates:
        gate._begin_anew()
    for reference in list(_registered.values()):
        if (obj := reference()) is not None:
            obj._after_fork()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
