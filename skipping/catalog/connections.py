"""Close idle client connections after a minute, or earlier if there are too many."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Sequence
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

_ASKING = 60.0
"""Seconds from a connection, or from the first byte of a request, to the end of its headers."""

_OF_ONE_CLIENT = 128
"""Maximum of connections of one client: twice its maximum of concurrent requests."""


def client_of(host: str) -> str:
    """Return the client that an address belongs to: an IPv4 address, or an IPv6 /64 network.

    >>> client_of("192.0.2.7"), client_of("2001:db8::1:2"), client_of("::ffff:192.0.2.7")
    ('192.0.2.7', '2001:db8::', '192.0.2.7')
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_address(int(address) >> 64 << 64))


class Protocol(H11Protocol):
    """Uvicorn's protocol, which also closes connections that are slow to send a request.

    Uvicorn itself closes only connections that are idle after a request.
    """

    _timer: asyncio.TimerHandle | None = None
    _heard = 0.0

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._heard = self.loop.time()
        self._wait()
        others = [
            each
            for each in self.connections
            if isinstance(each, Protocol) and not each.transport.is_closing()
        ]
        client = self._client
        self._make_room([each for each in others if each._client == client], _OF_ONE_CLIENT)
        self._make_room(others, (self.limit_concurrency or len(others) + 1) - 1)

    def data_received(self, data: bytes) -> None:
        """Stop waiting once there is a request."""
        super().data_received(data)
        self._heard = self.loop.time()
        if self.cycle is None or self.cycle.response_complete:
            self._wait()
        else:
            self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(_ASKING, self._close)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        if self._is_idle:
            self.transport.close()

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    @property
    def _client(self) -> str:
        return client_of(self.client[0]) if self.client else ""

    def _make_room(self, among: Sequence[Protocol], most: int) -> None:
        """Close the connection that has been idle longest; this one if all are busy."""
        if len(among) > most:
            idle = (each for each in among if each._is_idle and each is not self)
            chosen = min(idle, key=lambda each: each._heard, default=self)
            chosen.transport.close()
