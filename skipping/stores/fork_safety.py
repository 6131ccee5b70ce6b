"""Reset locks, threads and connections in the child of a fork.

A child of `os.fork` has its parent's memory but one thread: a lock that another thread held is
never released, work in the background never ends, and the parent still uses the same sockets and
open databases. So objects that have such state reset it in the child.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Forked(Protocol):
    """An object that resets itself in a child."""

    def _after_fork(self) -> None:
        """Replace locks, drop threads and connections; close nothing that the parent uses."""


# Not a WeakSet: its operations are several steps, between which another thread may fork.
_registered: dict[int, weakref.ref[Forked]] = {}


def reset_after_fork(obj: Forked) -> None:
    """Call the object's `_after_fork()` in every child, before any other code runs there.

    The object is referenced weakly. Objects are called in the order of their registration.
    """
    number = id(obj)

    def forget(_: object) -> None:
        _registered.pop(number, None)

    _registered.pop(number, None)
    _registered[number] = weakref.ref(obj, forget)


class Lock:
    """A lock that is free in a child, even if a thread of the parent holds it."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._after_fork()
        reset_after_fork(self)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Gate:
    """Delays forks while a resource is open that a child must not inherit, such as a database.

    SQLite remembers its file locks for the whole process. A child would assume that it holds them
    too, and read pages while another process overwrites them. So `with gate:` surrounds each use. A
    fork waits for `patience` seconds at most; `is_carried` says that it gave up, and that this
    process must not open the resource again.
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

    def __exit__(self, *_: object) -> None:
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
