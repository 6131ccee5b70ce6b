"""A store that kept somebody waiting in vain is left alone for a while.

Each question may take as long as a query may spend on asking. Were a store that hangs asked by each
scan of each query, every one of them would take that long. So after a question that came to nothing
the next ones are refused at once, for a second at first, and then for twice as long each time, to
half a minute; then one is let through, and only one. An answer of any kind ends it.
"""

from __future__ import annotations

import time

from providers.errors import StoreError
from skipping.stores.fork_safety import Lock

__all__ = ["CircuitBreaker"]

_FIRST, _LONGEST = 1.0, 30.0  # seconds


class CircuitBreaker:
    """When a server may be asked again. Safe to use from several threads."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._lock = Lock()
        self._pause = 0.0  # none
        self._until = 0.0
        self._opened = 0.0
        self._answered = 0.0

    def admit(self, timeout: float) -> None:
        """Raises StoreError during a pause; after it, for all but one, who may wait so long."""
        if not self._pause:
            return
        with self._lock:
            now = time.monotonic()
            if self._pause and now < self._until:
                raise StoreError(
                    f"{self._server} did not answer within the time that it had, and is asked "
                    f"again in {self._until - now:.1f} s"
                )
            self._until = now + max(self._pause, timeout)

    def record_answer(self) -> None:
        """There was an answer."""
        self._answered = time.monotonic()
        if self._pause:
            with self._lock:
                self._pause = 0.0

    def record_failure(self, began: float) -> None:
        """A question of that time was waited for in vain."""
        with self._lock:
            # Others are answered; or it was asked before the others' failure was known.
            if self._answered > began or self._opened > began:
                return
            self._pause = min(_LONGEST, 2 * self._pause or _FIRST)
            self._opened = time.monotonic()
            self._until = self._opened + self._pause
