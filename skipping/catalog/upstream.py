"""Forward requests to the upstream catalog, and to no other host, with the caller's own headers.

Requests use httpx's transport directly. It stores no cookies, follows no redirects and ignores the
environment. So nothing of one caller is sent for another, and no credentials are sent to the target
of a redirect.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import TypeAlias
from urllib.parse import unquote_to_bytes

import httpx

from providers.errors import SettingError

__all__ = [
    "HOPS",
    "Headers",
    "TooLarge",
    "Unreachable",
    "Upstream",
    "end_to_end",
    "hops",
    "leads_out",
    "whole",
]

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer "
    b"transfer-encoding upgrade".split()
)
_OURS = frozenset((b"host", b"content-length", b"expect"))
HOPS = _HOP | {b"close", b"http2-settings"}
"""Headers that a client may limit to its connection. With any other name it could remove a header
that a proxy in front of this service has added, such as the client's identity."""


class Unreachable(Exception):
    """The upstream did not respond; the message has the reason, but nothing of the request."""


class Upstream:
    """The upstream catalog, at a URI that may have a path."""

    def __init__(self, uri: str, *, ca: str | None, connections: int, timeout: float) -> None:
        base = httpx.URL(uri)
        if base.scheme not in ("http", "https") or not base.host or base.query or base.fragment:
            raise SettingError(f"--upstream takes an address as https://host/path, not {uri}")
        if base.userinfo:
            raise SettingError("--upstream takes no user: callers bring their own credentials")
        self._base = base
        self._path = base.raw_path.rstrip(b"/")
        context = ssl.create_default_context(cafile=ca)
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        self._transport = httpx.AsyncHTTPTransport(verify=context, limits=limits, trust_env=False)
        self._timeout = dict.fromkeys(("connect", "read", "write", "pool"), timeout)

    async def send(
        self,
        method: str,
        path: bytes,
        query: bytes,
        headers: Headers,
        body: AsyncIterator[bytes] | None = None,
    ) -> httpx.Response:
        """Send a request and return the response; the caller reads its body and closes it.

        A body is sent as it arrives; `headers` may have its length. Raises Unreachable, and
        ValueError for a path outside of the catalog's.
        """
        if not path.startswith(b"/") or leads_out(path):
            raise ValueError("the path is not one of a catalog")
        target = self._path + path + (b"?" + query if query else b"")
        try:
            request = httpx.Request(
                method,
                self._base.copy_with(raw_path=target),
                headers=[*end_to_end(headers), *(_length(headers) if body is not None else ())],
                content=b"" if body is None else body,
                extensions={"timeout": self._timeout},
            )
        except httpx.InvalidURL as error:
            raise ValueError("the path is not one of a catalog") from error
        # The upstream may have closed a kept-alive connection: read requests are sent again.
        for again in (method in ("GET", "HEAD") and body is None, False):
            try:
                return await self._transport.handle_async_request(request)
            except (httpx.ReadError, httpx.RemoteProtocolError) as error:
                if not again:
                    raise Unreachable(type(error).__name__) from error
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise Unreachable(type(error).__name__) from error
        raise AssertionError("unreachable: the second attempt returns or raises")

    async def close(self) -> None:
        """Close its connections."""
        await self._transport.aclose()


def leads_out(path: bytes) -> bool:
    """Return whether some proxy could decode a path to one with `.` or `..`."""
    for _ in range(3):
        path = unquote_to_bytes(path)
    if unquote_to_bytes(path) != path:
        return True
    segments = re.split(rb"[/\\]", path)
    return any(segment.partition(b";")[0] in (b".", b"..") for segment in segments)


def _length(headers: Headers) -> list[tuple[bytes, bytes]]:
    return [(key, value) for key, value in headers if key.lower() == b"content-length"]


class TooLarge(Exception):
    """A response has a longer body than the limit; `rest` yields all of it."""

    def __init__(self, rest: AsyncGenerator[bytes, None]) -> None:
        super().__init__("the response is too large")
        self.rest = rest


async def whole(answer: httpx.Response, most: int, took: Callable[[int], None]) -> bytes:
    """Return the body; raise Unreachable if it is incomplete, or compressed without request.

    Calls `took` with the number of bytes of each part; `took` may raise. Raises TooLarge for a body
    of more than `most` bytes, and leaves the response open.
    """
    parts: list[bytes] = []
    size = 0
    body = answer.aiter_raw()
    is_closed = True
    try:
        if answer.headers.get("content-encoding", "identity").lower() != "identity":
            raise Unreachable("the response has an encoding that was not requested")
        async for part in body:
            size += len(part)
            parts.append(part)
            if size > most:
                is_closed = False
                raise TooLarge(_rest(parts, body))
            took(len(part))
    except httpx.HTTPError as error:
        raise Unreachable(type(error).__name__) from error
    finally:
        if is_closed:
            await answer.aclose()
    return b"".join(parts)


async def _rest(parts: list[bytes], body: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    while parts:
        yield parts.pop(0)
    async for part in body:
        yield part


def hops(headers: Headers) -> set[bytes]:
    """Return the names of headers that a message limits to its connection."""
    return {
        name.strip().lower()
        for key, value in headers
        if key.lower() == b"connection"
        for name in value.split(b",")
        if name.strip()
    }


def end_to_end(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return the headers to forward: all but those that are limited to one connection."""
    left = _HOP | _OURS | hops(headers)
    return [(key, value) for key, value in headers if key.lower() not in left]
