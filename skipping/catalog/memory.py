"""Protect the memory of the service and its workers from other processes."""

from __future__ import annotations

import ctypes
import sys

_SET_DUMPABLE = 4  # of prctl


def hide_memory() -> None:
    """Hide the memory of this process and its forks from others of this user (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)
