"""Check the callers and the headers of requests, and create responses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Sequence

import anyio
import httpx
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from skipping.catalog.errors import Refused
from skipping.catalog.upstream import HOPS, Headers, end_to_end, hops

__all__ = [
    "ForwardedResponse",
    "drop_headers",
    "error_response",
    "find_fault",
    "forward",
    "has_body",
    "hash_caller",
    "hash_payer",
    "read_body",
    "replace_body",
]

_NOT_IDENTIFYING = frozenset(
    b"accept accept-encoding accept-language cache-control content-encoding content-length "
    b"content-type date expect host idempotency-key if-modified-since if-none-match origin pragma "
    b"range referer traceparent tracestate user-agent x-client-git-commit-short x-client-version "
    b"x-correlation-id x-iceberg-access-delegation x-request-id".split()
)
"""Headers that do not identify a caller. All others do."""

_BODY = (b"content-length", b"transfer-encoding")


def hash_caller(headers: Headers) -> bytes:
    """Return a digest of all headers that may identify the caller."""
    digest = hashlib.sha256()
    for key, value in sorted((key.lower(), value) for key, value in end_to_end(headers)):
        if key not in _NOT_IDENTIFYING:
            for each in (key, value):
                digest.update(len(each).to_bytes(8, "big") + each)
    return digest.digest()


def hash_payer(headers: Headers, caller: bytes) -> bytes:
    """Return a digest of the caller's token; without a token, return `caller`."""
    tokens = [value.split()[-1:] for key, value in headers if key.lower() == b"authorization"]
    return hashlib.sha256(b"".join(tokens[0])).digest() if tokens else caller


def find_fault(headers: Headers) -> str | None:
    """Return what is wrong with the headers of a request, or None."""
    if set(_BODY) <= {key.lower() for key, _ in headers}:
        return "a request with Content-Length and Transfer-Encoding"
    if sum(key.lower() == b"authorization" for key, _ in headers) > 1:
        return "a request with two Authorization headers"
    if not hops(headers) <= HOPS:
        return "a Connection header that names another header of the request"
    return None


def has_body(headers: Headers) -> bool:
    """Return whether a request has a body."""
    return any(key.lower() in _BODY and value != b"0" for key, value in headers)


async def read_body(request: Request, most: int, timeout: float) -> AsyncIterator[bytes]:
    """Yield the body as it arrives; raise Refused, or TimeoutError after `timeout` seconds."""
    too_large = Refused(413, "BadRequestException", "the request is too large")
    if int(request.headers.get("content-length", 0)) > most:
        raise too_large
    size, end = 0, anyio.current_time() + timeout
    stream = request.stream()
    while True:
        with anyio.fail_after(end - anyio.current_time()):
            part = await anext(stream, None)
        if part is None:
            return
        size += len(part)
        if size > most:
            raise too_large
        yield part


def drop_headers(headers: Headers, names: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Return the headers without these names (lower case)."""
    return [(key, value) for key, value in headers if key.lower() not in names]


class ForwardedResponse(StreamingResponse):
    """Forwards a body as it arrives; always releases the connection to the upstream."""

    def __init__(self, answer: httpx.Response, body: AsyncIterator[bytes]) -> None:
        super().__init__(body, status_code=answer.status_code)
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self.close()

    async def close(self) -> None:
        """Release the connection, even if nothing was sent."""
        with anyio.CancelScope(shield=True):
            await self._answer.aclose()


def forward(answer: httpx.Response, body: AsyncIterator[bytes] | None = None) -> ForwardedResponse:
    """Return the upstream's response unchanged; pass `body` if its start has been read."""
    made = ForwardedResponse(answer, answer.aiter_raw() if body is None else body)
    made.raw_headers = end_to_end(answer.headers.raw)
    if length := answer.headers.get("content-length"):
        made.raw_headers.append((b"content-length", length.encode()))
    return made


def replace_body(answer: httpx.Response, body: bytes) -> Response:
    """Return the upstream's response with another body."""
    kept = drop_headers(answer.headers.raw, (b"content-encoding", b"content-length"))
    made = Response(body)
    made.raw_headers = [*end_to_end(kept), (b"content-length", str(len(body)).encode())]
    return made


def error_response(refused: Refused) -> Response:
    """Return an error as the REST catalog specification defines it."""
    error = {"message": refused.message, "type": refused.kind, "code": refused.status}
    # In ASCII: a message may repeat half of a surrogate pair, which has no bytes in UTF-8.
    text = json.dumps({"error": error}, separators=(",", ":"))
    return Response(text, status_code=refused.status, media_type="application/json")
