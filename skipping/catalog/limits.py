"""Limit what clients may use at a time: requests, bytes in memory, and plans.

Each limit has two parts: one for all clients together, and a smaller one for each client.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import anyio

from skipping.catalog.errors import Refused


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a service.

    `requests`, `of_one_client` and `plans` limit numbers at a time. `held` and `held_of_one_client`
    limit the bytes of requests and responses in memory at a time, `metadata` the bytes of a table's
    metadata. The rest are timeouts in seconds: `receiving` for a request or the upstream's
    response, `sending` for a response to the client, `waiting` for a plan to start.
    """

    requests: int = 256
    of_one_client: int = 64
    plans: int = 4
    metadata: int = 64 << 20
    held: int = 512 << 20
    held_of_one_client: int = 160 << 20
    receiving: float = 60.0
    sending: float = 300.0
    waiting: float = 60.0


class RequestSlots:
    """Admits requests, and counts the bytes that they hold."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._requests: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    @contextmanager
    def admit(self, client: str) -> Iterator[ByteLedger]:
        """Count a request until it ends; raise Refused if there are too many."""
        limits, requests = self._limits, self._requests
        if requests.total() >= limits.requests or requests[client] >= limits.of_one_client:
            raise Refused(
                503, "ServiceUnavailableException", "too many concurrent requests: retry later"
            )
        requests[client] += 1
        ledger = ByteLedger(client, self._bytes, limits)
        try:
            yield ledger
        finally:
            _subtract(self._bytes, client, ledger.size)
            _subtract(requests, client, 1)


class ByteLedger:
    """Counts the bytes that one request holds; `held` counts those of all requests, by client."""

    def __init__(self, client: str, held: Counter[str], limits: Limits) -> None:
        self._client, self._held, self._limits = client, held, limits
        self.size = 0

    def take(self, size: int) -> None:
        """Count more bytes; raise Refused if there are too many."""
        held, limits = self._held, self._limits
        mine = held[self._client] + size
        if mine > limits.held_of_one_client or held.total() + size > limits.held:
            message = "too many bytes of concurrent requests: retry later"
            raise Refused(503, "ServiceUnavailableException", message)
        held[self._client] = mine
        self.size += size


def _subtract(counter: Counter[str], key: str, count: int) -> None:
    counter[key] -= count
    if not counter[key]:
        del counter[key]


class PlanSlots:
    """Lets callers plan in turn; one caller gets at most half of the slots."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._all = anyio.CapacityLimiter(limits.plans)
        self._by_payer: dict[bytes, anyio.CapacityLimiter] = {}

    @asynccontextmanager
    async def take(self, payer: bytes) -> AsyncIterator[None]:
        """Wait for a slot; raise Refused after `Limits.waiting` seconds."""
        half = max(1, self._limits.plans // 2)
        mine = self._by_payer.setdefault(payer, anyio.CapacityLimiter(half))
        try:
            deadline = anyio.current_time() + self._limits.waiting
            with anyio.CancelScope(deadline=deadline) as scope:
                async with mine, self._all:
                    scope.deadline = float("inf")
                    yield
            if scope.cancelled_caught:
                raise Refused(
                    503, "ServiceUnavailableException", "too many concurrent plans: retry later"
                )
        finally:
            if not mine.borrowed_tokens and not mine.statistics().tasks_waiting:
                self._by_payer.pop(payer, None)
