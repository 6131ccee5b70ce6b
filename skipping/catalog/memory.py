"""Memory of the service and of its workers, which no other process may read."""

from __future__ import annotations

import ctypes
import sys

__all__ = ["hide_memory"]

_SET_DUMPABLE = 4  # of prctl


def hide_memory() -> None:
    """Keep other processes of this user from reading this one's memory, and its forks' (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)
