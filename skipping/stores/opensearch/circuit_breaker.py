"""A circuit breaker: after a request timed out, let the next ones fail at once for some time.

A request can take as long as a query's lookup may take. Without a breaker every scan of every query
would wait that long for a store that hangs. So after a failed request the next ones fail at once:
for a second at first, then for twice as long each time, up to half a minute. After the pause one
request is let through. Any response closes the breaker.
"""

from __future__ import annotations

import time

from providers.errors import StoreError
from skipping.stores.fork_safety import Lock

_FIRST, _LONGEST = 1.0, 30.0  # seconds


class CircuitBreaker:
    """The circuit breaker of one server. Several threads can use it."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._lock = Lock()
        self._pause = 0.0  # none
        self._until = 0.0
        self._opened = 0.0
        self._answered = 0.0

    def admit(self, timeout: float) -> None:
        """Raise StoreError during a pause; then let one request try for `timeout` seconds."""
        if not self._pause:
            return
        with self._lock:
            now = time.monotonic()
            if self._pause and now < self._until:
                raise StoreError(
                    f"{self._server} did not answer within the deadline; the next "
                    f"request is sent in {self._until - now:.1f} s"
                )
            self._until = now + max(self._pause, timeout)

    def record_answer(self) -> None:
        """Close the breaker after any response."""
        self._answered = time.monotonic()
        if self._pause:
            with self._lock:
                self._pause = 0.0

    def record_failure(self, began: float) -> None:
        """Open the breaker after a request that began at this time and got no response."""
        with self._lock:
            # Other requests succeed, or this one began before the last failure was known.
            if self._answered > began or self._opened > began:
                return
            self._pause = min(_LONGEST, 2 * self._pause or _FIRST)
            self._opened = time.monotonic()
            self._until = self._opened + self._pause
