"""The catalog behind: every request goes there, and nowhere else, with the caller's own headers.

Requests go through httpx's transport, which neither keeps cookies nor follows redirects nor reads
the environment: nothing of one caller is sent for another, and no credentials go where a redirect
points to.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import TypeAlias
from urllib.parse import unquote_to_bytes

import httpx

from providers.errors import SettingError

__all__ = ["Headers", "TooLarge", "Unreachable", "Upstream", "end_to_end", "whole"]

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer "
    b"transfer-encoding upgrade".split()
)
_OURS = frozenset((b"host", b"content-length", b"expect"))


class Unreachable(Exception):
    """The upstream did not answer; says why, without what was asked."""


class Upstream:
    """One catalog, at a URI that may have a path."""

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
        self, method: str, path: bytes, query: bytes, headers: Headers, body: bytes
    ) -> httpx.Response:
        """The answer, whose body is still to be read, and which has to be closed.

        Raises Unreachable, ValueError for a path that leads out of the catalog's.
        """
        if not path.startswith(b"/") or _leads_out(path):
            raise ValueError("no path of a catalog")
        target = self._path + path + (b"?" + query if query else b"")
        try:
            request = httpx.Request(
                method,
                self._base.copy_with(raw_path=target),
                headers=end_to_end(headers),
                content=body,
                extensions={"timeout": self._timeout},
            )
        except httpx.InvalidURL as error:
            raise ValueError("no path of a catalog") from error
        # A connection that was kept may be closed by now; what only reads is asked once more.
        for again in (method in ("GET", "HEAD"), False):
            try:
                return await self._transport.handle_async_request(request)
            except (httpx.ReadError, httpx.RemoteProtocolError) as error:
                if not again:
                    raise Unreachable(type(error).__name__) from error
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise Unreachable(type(error).__name__) from error
        raise AssertionError("the second attempt ends it")

    async def close(self) -> None:
        """Give back its connections."""
        await self._transport.aclose()


def _leads_out(path: bytes) -> bool:
    """Whether somebody on the way might read a path as one that goes up, however it is quoted."""
    for _ in range(3):
        path = unquote_to_bytes(path)
    if unquote_to_bytes(path) != path:
        return True
    segments = re.split(rb"[/\\]", path)
    return any(segment.partition(b";")[0] in (b".", b"..") for segment in segments)


class TooLarge(Exception):
    """An answer with a longer body than is read at once; `rest` is all of it, decoded."""

    def __init__(self, rest: AsyncGenerator[bytes, None]) -> None:
        super().__init__("an answer that is too large")
        self.rest = rest


async def whole(answer: httpx.Response, most: int) -> bytes:
    """The body, decoded; raises Unreachable if it breaks off.

    Raises TooLarge for one of more than `most` bytes, which is not closed then.
    """
    parts: list[bytes] = []
    size = 0
    body = answer.aiter_bytes()
    is_closed = True
    try:
        async for part in body:
            size += len(part)
            parts.append(part)
            if size > most:
                is_closed = False
                raise TooLarge(_rest(parts, body))
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


def end_to_end(headers: Headers) -> list[tuple[bytes, bytes]]:
    """The headers that go further: not those of one connection, nor those it names."""
    named = {
        name.strip().lower()
        for key, value in headers
        if key.lower() == b"connection"
        for name in value.split(b",")
    }
    left = _HOP | _OURS | named
    return [(key, value) for key, value in headers if key.lower() not in left]
