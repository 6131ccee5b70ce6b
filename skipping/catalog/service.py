"""An Iceberg REST catalog that plans scans with the index, in front of another.

Forwards each request to the upstream and its answer to the client. Changes only what tells clients
that scans are planned here (`v1/config`, and `loadTable` of tables that have an index), and answers
`plan` and `tasks`. Each of these first loads the table from the upstream with the caller's own
headers, which is what allows it, and which gives the credentials to read its manifests.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import httpx
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from providers.errors import SkippingError
from skipping.catalog.handles import Handles, Invalid
from skipping.catalog.plan import LoadedTable, Planner, Refused, completed, contents, unplanned
from skipping.catalog.storage import storage
from skipping.catalog.upstream import (
    Headers,
    TooLarge,
    Unreachable,
    Upstream,
    end_to_end,
    whole,
)

__all__ = ["Limits", "application"]

log = logging.getLogger("skipping")

MODE = "scan-planning-mode"

_TABLE = re.compile(r"(/v1/(?:.+/)?namespaces/[^/]+/tables/[^/]+)(?:/(plan|tasks))?")
_TABLES = "/v1/{prefix}/namespaces/{namespace}/tables/{table}"
_ENDPOINTS = (f"POST {_TABLES}/plan", f"POST {_TABLES}/tasks")
_DEFAULT_ENDPOINTS = (
    "GET /v1/{prefix}/namespaces",
    "POST /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "DELETE /v1/{prefix}/namespaces/{namespace}",
    "POST /v1/{prefix}/namespaces/{namespace}/properties",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    f"GET {_TABLES}",
    f"POST {_TABLES}",
    f"DELETE {_TABLES}",
    "POST /v1/{prefix}/namespaces/{namespace}/register",
    f"POST {_TABLES}/metrics",
    "POST /v1/{prefix}/tables/rename",
    "POST /v1/{prefix}/transactions/commit",
)
"""Those of a catalog that names none, by the specification of `v1/config`."""

_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_PLAN_BYTES = 16 << 20
_REQUEST_BYTES = 64 << 20
_UNSENT = (b"accept-encoding", b"if-none-match", b"if-modified-since", b"range")
_ABOUT_BODY = (b"content-type", b"content-encoding", b"idempotency-key")


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is done at a time: requests in all and of one client, plans, and files kept.

    Bytes of a loaded table, for its scans to be planned here. Seconds that a request may take to
    come, and an answer to be taken.
    """

    requests: int = 256
    of_one_client: int = 64
    plans: int = 4
    files: int = 1_000_000
    metadata: int = 64 << 20
    receiving: float = 60.0
    sending: float = 300.0


class _TooMuch(Exception):
    """A body that is longer than what is taken."""


class _Service:
    """The routes, over one upstream."""

    def __init__(
        self,
        upstream: Upstream,
        planner: Planner,
        io: Mapping[str, str],
        limits: Limits,
        key: bytes | None,
    ) -> None:
        self.upstream = upstream
        self._planner = planner
        self._io = io
        self._limits = limits
        self._handles = Handles(key)
        self._under_way: dict[str, int] = {}
        self._plans = anyio.CapacityLimiter(limits.plans)
        self._threads = anyio.CapacityLimiter(limits.plans + 4)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Whatever is asked; it counts until the last byte is sent."""
        request = Request(scope, receive)
        client = request.client.host if request.client is not None else ""
        busy = sum(self._under_way.values()) >= self._limits.requests
        if busy or self._under_way.get(client, 0) >= self._limits.of_one_client:
            full = _error(503, "ServiceUnavailableException", "too many requests at a time")
            return await full(scope, receive, send)
        self._under_way[client] = self._under_way.get(client, 0) + 1
        try:
            response = await self._said(request)
            with anyio.move_on_after(self._limits.sending):
                await response(scope, receive, send)
        finally:
            self._under_way[client] -= 1
            if not self._under_way[client]:
                del self._under_way[client]

    async def _said(self, request: Request) -> Response:
        """The answer, or what is wrong, as the specification has it."""
        try:
            return await self._answer(request)
        except _TooMuch:
            return _error(413, "BadRequestException", "the request is too large")
        except TimeoutError:
            return _error(408, "BadRequestException", "the request took too long to come")
        except Refused as refused:
            return _error(refused.status, refused.kind, refused.message)
        except Unreachable as error:
            return _error(502, "ServiceFailureException", f"the catalog behind: {error}")
        except PermissionError as error:
            said = f"{error}: use scan-planning-mode=client"
            return _error(406, "UnsupportedOperationException", said)
        except SkippingError as error:
            return _error(500, "ServiceFailureException", str(error))
        except ClientDisconnect:
            return Response(status_code=499)

    async def _answer(self, request: Request) -> Response:
        path = request.scope["raw_path"].decode("latin-1")
        table = _TABLE.fullmatch(path)
        if request.method == "POST" and table is not None and table[2] is not None:
            body = await self._body(request, _PLAN_BYTES)
            work = self._plan if table[2] == "plan" else self._tasks
            return await work(request, table[1], body)
        body = await self._body(request, _REQUEST_BYTES)
        changes = request.method == "GET" and (path == "/v1/config" or table is not None)
        headers = _without(request.headers.raw, _UNSENT[:1]) if changes else request.headers.raw
        answer = await self._send(request, headers, body)
        if not changes or answer.status_code != 200:
            return _forwarded(answer)
        try:
            text = await whole(answer, self._limits.metadata)
        except TooLarge as large:
            # As it came: it does not say who plans, so only who goes by `v1/config` asks here.
            return _forwarded(answer, large.rest)
        said = _object(text)
        if said is None:
            changed = text
        elif table is None:
            changed = _configured(said)
        else:
            changed = await run_sync(self._with_mode, table[1], text, said, limiter=self._threads)
        kept = _without(answer.headers.raw, (b"content-encoding", b"content-length"))
        made = Response(changed)
        made.raw_headers = [
            *end_to_end(kept),
            (b"content-length", str(len(changed)).encode()),
        ]
        return made

    async def _body(self, request: Request, most: int) -> bytes:
        """The body; raises _TooMuch, and TimeoutError if it does not come."""
        parts: list[bytes] = []
        size = 0
        with anyio.fail_after(self._limits.receiving):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise _TooMuch
                parts.append(part)
        return b"".join(parts)

    async def _send(
        self, request: Request, headers: Headers, body: bytes, path: bytes | None = None
    ) -> httpx.Response:
        """What the upstream answers to a request, or to a GET of another path."""
        try:
            return await self.upstream.send(
                request.method if path is None else "GET",
                request.scope["raw_path"] if path is None else path,
                request.scope["query_string"] if path is None else b"",
                headers,
                body,
            )
        except ValueError:
            raise Refused(400, "BadRequestException", "no path of a catalog") from None

    def _with_mode(self, path: str, text: bytes, said: dict[str, Any]) -> bytes:
        """A loaded table that says who plans its scans; as it came if that cannot be told."""
        try:
            table = self._opened(path, said)
            reason = table.contents.unplanned
            refs = table.contents.metadata.refs.values()
            snapshots = (table.contents.metadata.snapshot_by_id(r.snapshot_id) for r in refs)
            readable = all(s is None or table.io.may_read(s.manifest_list) for s in snapshots)
            server = reason is None and readable and self._planner.indexed(table) is not None
        except Exception as error:  # a table that is not understood is loaded all the same
            log.warning("a table is left to its clients: %s", type(error).__name__)
            server = False
        config = said.get("config")
        said["config"] = {
            **(config if isinstance(config, dict) else {}),
            MODE: "server" if server else "client",
        }
        return json.dumps(said, separators=(",", ":")).encode()

    async def _load(self, request: Request, path: str) -> LoadedTable | Response:
        """The table, as the upstream gives it to whoever asks, or its refusal."""
        headers = _without(request.headers.raw, _UNSENT + _ABOUT_BODY)
        answer = await self._send(request, headers, b"", path.encode("latin-1"))
        if answer.status_code != 200:
            return _forwarded(answer)
        try:
            text = await whole(answer, self._limits.metadata)
        except TooLarge as large:
            await large.rest.aclose()
            await answer.aclose()
            most = f"the table's metadata has more than {self._limits.metadata >> 20} MiB"
            raise unplanned(f"{most}, expire snapshots or") from None
        said = _object(text)
        if said is None or not isinstance(said.get("metadata"), dict):
            raise Unreachable("no table in its answer")
        return await run_sync(self._opened, path, said, limiter=self._threads)

    def _opened(self, path: str, said: dict[str, Any]) -> LoadedTable:
        """A loaded table, with what reads its files as the caller may."""
        metadata = said["metadata"]
        location = str(said.get("metadata-location") or "")  # of a table that is: always there
        io = storage(said, location, self._io)
        key = path, metadata.get("table-uuid"), metadata.get("location"), io.folder, io.place
        return LoadedTable(key, contents(json.dumps(metadata)), io)

    async def _plan(self, request: Request, path: str, body: bytes) -> Response:
        asked = _asked(body)
        table = await self._load(request, path)
        if isinstance(table, Response):
            return table

        def work() -> bytes:
            first, *rest = self._planner.plan(table, asked)
            inside = list(self._planner.tasks(table, first))
            return completed(inside, [self._handles.seal(path, part) for part in rest])

        return _json(await run_sync(work, limiter=self._plans))

    async def _tasks(self, request: Request, path: str, body: bytes) -> Response:
        handle = _asked(body).get("plan-task")
        table = await self._load(request, path)
        if isinstance(table, Response):
            return table
        try:
            part = self._handles.open(path, handle if isinstance(handle, str) else "")
        except Invalid:
            message = "the plan task does not exist, or not any more"
            return _error(404, "NoSuchPlanTaskException", message)

        def work() -> bytes:
            return b"".join([b"{", *self._planner.tasks(table, part), b"}"])

        return _json(await run_sync(work, limiter=self._plans))


def application(
    upstream: Upstream,
    planner: Planner,
    *,
    io: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    key: bytes | None = None,
) -> Starlette:
    """The service as an ASGI application; `key` signs the handles of pages."""
    service = _Service(upstream, planner, io or {}, limits or Limits(), key)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await upstream.close()

    route = Route("/{path:path}", service, methods=_METHODS)
    return Starlette(routes=[route], lifespan=lifespan)


def _configured(said: dict[str, Any]) -> bytes:
    """The catalog's configuration, for clients of this service."""
    for part in ("defaults", "overrides"):
        given = said.get(part)
        said[part] = {k: v for k, v in given.items() if k != "uri"} if given else {}
    said["overrides"].pop(MODE, None)
    # A default: a client that says otherwise plans for itself.
    said["defaults"][MODE] = "server"
    named = said.get("endpoints") or list(_DEFAULT_ENDPOINTS)
    others = [e for e in named if "/plan" not in str(e) and not str(e).endswith("/tasks")]
    said["endpoints"] = [*others, *_ENDPOINTS]
    return json.dumps(said, separators=(",", ":")).encode()


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def _asked(body: bytes) -> dict[str, Any]:
    asked = _object(body)
    if asked is None:
        raise Refused(400, "BadRequestException", "no JSON object, or one nested too deep")
    return asked


class _Forwarded(StreamingResponse):
    """A body as it comes, whose connection is given back whoever stops."""

    def __init__(self, answer: httpx.Response, body: AsyncIterator[bytes]) -> None:
        super().__init__(body, status_code=answer.status_code)
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            with anyio.CancelScope(shield=True):
                await self._answer.aclose()


def _forwarded(answer: httpx.Response, decoded: AsyncIterator[bytes] | None = None) -> Response:
    """An answer as it came, or its body as far as it was `decoded`."""
    made = _Forwarded(answer, answer.aiter_raw() if decoded is None else decoded)
    made.raw_headers = end_to_end(answer.headers.raw)
    if decoded is not None:
        made.raw_headers = _without(made.raw_headers, (b"content-encoding",))
    elif length := answer.headers.get("content-length"):
        made.raw_headers.append((b"content-length", length.encode()))
    return made


def _without(headers: Headers, names: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    return [(key, value) for key, value in headers if key.lower() not in names]


def _json(text: bytes) -> Response:
    return Response(text, media_type="application/json")


def _error(status: int, kind: str, message: str) -> Response:
    """As the specification has errors."""
    said = {"error": {"message": message, "type": kind, "code": status}}
    return JSONResponse(said, status_code=status)
