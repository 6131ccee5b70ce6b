"""An Iceberg REST catalog that plans scans with the index, in front of another catalog.

It forwards each request to the upstream, and the response to the client. It changes two responses,
so that clients let it plan their scans: `v1/config`, and `loadTable` of tables with an index. It
handles `plan` and `tasks` itself: it loads the table from the upstream with the caller's own
headers, which checks the caller's rights and returns the credentials to read the manifests.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import httpx
from anyio.from_thread import run_sync as run_in_loop
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from providers.errors import SkippingError
from skipping.catalog.bounded import TooManyParts, read_json
from skipping.catalog.connections import client_of
from skipping.catalog.errors import Refused, as_refusal, refuse_plan
from skipping.catalog.handles import Handles, Invalid
from skipping.catalog.http import (
    ForwardedResponse,
    drop_headers,
    error_response,
    find_fault,
    forward,
    has_body,
    hash_caller,
    hash_payer,
    read_body,
    replace_body,
)
from skipping.catalog.indexes import Answer, Indexes
from skipping.catalog.limits import ByteLedger, Limits, PlanSlots, RequestSlots
from skipping.catalog.storage import Storage, storage
from skipping.catalog.upstream import Headers, TooLarge, Unreachable, Upstream, whole
from skipping.catalog.workers import Job, Workers, check_tasks

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
"""The endpoints of a catalog that lists no endpoints, by the specification of `v1/config`."""

_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_PLAN_BYTES = 16 << 20
_REQUEST_BYTES = 64 << 20
_UNSENT = (b"accept-encoding", b"if-none-match", b"if-modified-since", b"range")
_ABOUT_BODY = (b"content-type", b"content-encoding", b"content-length", b"idempotency-key")
_PLAIN = (b"accept-encoding", b"identity")
_PARTS = 4_000_000
"""Maximum number of parts in the JSON of a loaded table: 400 MB of Python objects."""

_MODE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class _ClientRequest:
    """A request, the bytes it holds, and its caller: a digest of the headers that identify one.

    `payer` is a digest of the token. Limits apply to it, so that other headers cannot evade them.
    """

    request: Request
    ledger: ByteLedger
    caller: bytes
    payer: bytes

    @classmethod
    def of(cls, request: Request, ledger: ByteLedger) -> _ClientRequest:
        caller = hash_caller(request.headers.raw)
        return cls(request, ledger, caller, hash_payer(request.headers.raw, caller))

    @property
    def headers(self) -> Headers:
        return self.request.headers.raw


@dataclass(frozen=True, slots=True)
class _LoadedTable:
    """A table as the upstream returned it to a caller; `stated` has its UUID and location.

    `io` has the caller's credentials, and is dropped after the request.
    """

    caller: bytes
    path: str
    stated: Mapping[str, Any]
    metadata: bytes
    io: Storage


class _Service:
    def __init__(
        self,
        upstream: Upstream,
        indexes: Indexes,
        workers: Workers,
        io: Mapping[str, str],
        limits: Limits,
        key: bytes | None,
    ) -> None:
        self.upstream = upstream
        self.workers = workers
        self._indexes = indexes
        self._io = io
        self._limits = limits
        self._handles = Handles(key)
        self._requests = RequestSlots(limits)
        self._plans = PlanSlots(limits)
        self._threads = anyio.CapacityLimiter(2 * limits.plans)
        self._parsing = anyio.CapacityLimiter(2)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request; it counts until the last byte is sent."""
        request = Request(scope, receive)
        client = client_of(request.client.host) if request.client is not None else ""
        with ExitStack() as stack:
            try:
                ledger = stack.enter_context(self._requests.admit(client))
            except Refused as refused:
                return await error_response(refused)(scope, receive, send)
            response = await self._respond(_ClientRequest.of(request, ledger))
            with anyio.move_on_after(self._limits.sending):
                await response(scope, receive, send)

    async def _respond(self, asked: _ClientRequest) -> Response:
        try:
            return await self._answer(asked)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:
            return error_response(_refusal(error))

    async def _answer(self, asked: _ClientRequest) -> Response:
        request = asked.request
        wrong = find_fault(asked.headers)
        if wrong is not None:
            # Two readers may disagree about where its body ends, so no request may follow it.
            refused = error_response(Refused(400, "BadRequestException", wrong))
            refused.headers["connection"] = "close"
            return refused
        path = request.scope["raw_path"].decode("latin-1")
        table = _TABLE.fullmatch(path)
        if request.method == "POST" and table is not None and table[2] is not None:
            return await self._plan(asked, table[1], table[2])
        changes = request.method == "GET" and (path == "/v1/config" or table is not None)
        headers = asked.headers
        if changes:
            headers = [*drop_headers(headers, _UNSENT[:1]), _PLAIN]
        body = self._read_body(request, _REQUEST_BYTES) if has_body(headers) else None
        answer = await self._send(request, headers, body)
        if not changes or answer.status_code != 200:
            return forward(answer)
        try:
            text = await self._whole(answer, asked)
        except TooLarge as large:
            # Unchanged: without a planning mode, only clients that follow `v1/config` plan here.
            return forward(answer, large.rest)
        said = await run_sync(_object, text, limiter=self._parsing)
        if said is None:
            changed = text
        elif table is None:
            changed = _change_config(said)
        else:
            changed = await self._with_mode(asked, table[1], said)
        return replace_body(answer, changed)

    def _read_body(self, request: Request, most: int) -> AsyncIterator[bytes]:
        return read_body(request, most, self._limits.receiving)

    async def _whole(self, answer: httpx.Response, asked: _ClientRequest) -> bytes:
        """Return the upstream's complete response; raise Unreachable, TooLarge or Refused."""
        try:
            with anyio.fail_after(self._limits.receiving):
                return await whole(answer, self._limits.metadata, asked.ledger.take)
        except TimeoutError as error:
            raise Unreachable("its response takes too long") from error

    async def _send(
        self,
        request: Request,
        headers: Headers,
        body: AsyncIterator[bytes] | None,
        path: bytes | None = None,
    ) -> httpx.Response:
        """Send a request, or a GET of another path, to the upstream, and return its response."""
        try:
            return await self.upstream.send(
                request.method if path is None else "GET",
                request.scope["raw_path"] if path is None else path,
                request.scope["query_string"] if path is None else b"",
                headers,
                body,
            )
        except ValueError:
            raise Refused(400, "BadRequestException", "the path is not one of a catalog") from None

    async def _with_mode(self, asked: _ClientRequest, path: str, said: dict[str, Any]) -> bytes:
        try:
            table = await run_sync(
                self._open_table, asked.caller, path, said, limiter=self._parsing
            )
            server = await self._is_planned(asked, table)
        except Exception as error:  # a table that cannot be read is still loaded
            log.warning(
                "clients plan the scans of a table themselves: error=%s", type(error).__name__
            )
            server = False
        config = said.get("config")
        said["config"] = {
            **(config if isinstance(config, dict) else {}),
            MODE: "server" if server else "client",
        }

        def write() -> bytes:
            return json.dumps(said, separators=(",", ":")).encode()

        return await run_sync(write, limiter=self._parsing)

    async def _is_planned(self, asked: _ClientRequest, table: _LoadedTable) -> bool:
        """Return whether scans of a table are planned here: it has an index, and can be read."""
        if await run_sync(self._indexes.of, table.stated, table.io, limiter=self._threads) is None:
            return False
        said, _ = await self._ask(asked, table, "mode", seconds=_MODE_SECONDS)
        lists = said.get("lists")
        if not isinstance(lists, list) or said.get("unplanned") is not None:
            return False

        def may_read() -> bool:
            return all(isinstance(each, str) and table.io.may_read(each) for each in lists)

        # A table may have a hundred thousand snapshots: do not block the event loop.
        return await run_sync(may_read, limiter=self._threads)

    async def _load(self, asked: _ClientRequest, path: str) -> _LoadedTable | Response:
        headers = [*drop_headers(asked.headers, _UNSENT + _ABOUT_BODY), _PLAIN]
        answer = await self._send(asked.request, headers, None, path.encode("latin-1"))
        if answer.status_code != 200:
            return forward(answer)
        most = self._limits.metadata >> 20
        try:
            text = await self._whole(answer, asked)
        except TooLarge as large:
            await large.rest.aclose()
            await answer.aclose()
            message = f"the table's metadata has more than {most} MiB"
            raise refuse_plan(f"{message} (expire snapshots)") from None

        def load() -> _LoadedTable:
            try:
                said = read_json(text, _PARTS)
            except TooManyParts:
                raise refuse_plan("the table's metadata is too large (expire snapshots)") from None
            except ValueError:
                said = None
            if not isinstance(said, dict) or not isinstance(said.get("metadata"), dict):
                raise Unreachable("its response has no table")
            return self._open_table(asked.caller, path, said)

        return await run_sync(load, limiter=self._parsing)

    def _open_table(self, caller: bytes, path: str, said: dict[str, Any]) -> _LoadedTable:
        metadata = said["metadata"]
        location = str(said.get("metadata-location") or "")  # an existing table always has one
        io = storage(said, location, self._io)
        stated = {name: str(metadata.get(name) or "") for name in ("table-uuid", "location")}
        return _LoadedTable(caller, path, stated, json.dumps(metadata).encode(), io)

    async def _plan(self, asked: _ClientRequest, path: str, do: str) -> Response:
        """Return a plan or its next page, if the caller is allowed to load the table."""
        table = await self._load(asked, path)
        # Without the right to load the table, the body of the request is read and dropped.
        keeps = not isinstance(table, Response)
        parts: list[bytes] = []
        try:
            async for part in self._read_body(asked.request, _PLAN_BYTES):
                if keeps:
                    asked.ledger.take(len(part))
                    parts.append(part)
        except BaseException:
            if isinstance(table, ForwardedResponse):
                await table.close()
            raise
        if isinstance(table, Response):
            return table
        if do == "plan":
            _, (tasks,) = await self._ask(asked, table, "plan", b"".join(parts))
            return Response(tasks, media_type="application/json")
        said = await run_sync(_object, b"".join(parts), limiter=self._parsing)
        if said is None:
            raise Refused(
                400, "BadRequestException", "the body is not a JSON object, or nested too deeply"
            )
        handle = said.get("plan-task")
        try:
            page = self._handles.open(path, handle if isinstance(handle, str) else "")
        except Invalid:
            message = "the plan task is invalid or has expired: plan again"
            raise Refused(404, "NoSuchPlanTaskException", message) from None
        _, (tasks,) = await self._ask(asked, table, "tasks", page)
        return Response(tasks, media_type="application/json")

    async def _ask(
        self,
        asked: _ClientRequest,
        table: _LoadedTable,
        do: str,
        *parts: bytes,
        seconds: float | None = None,
    ) -> tuple[Mapping[str, Any], Sequence[bytes]]:
        """Ask the worker of a caller and table, when it is the caller's turn; return its response.

        That of a plan is the response to the client, whose bytes count until the client has them.
        """

        def find(said: Mapping[str, Any]) -> Answer | None:
            definition = self._indexes.of(table.stated, table.io)
            return None if definition is None else self._indexes.find(definition, said)

        def ask() -> tuple[Mapping[str, Any], Sequence[bytes]]:
            version = hashlib.sha256(table.metadata).hexdigest()
            key = table.path, *table.stated.values(), table.io.place
            job = Job(table.caller, key, table.metadata, version, table.io.read, find)
            said, made = self.workers.ask(job, do, *parts, seconds=seconds)
            if do == "mode":
                return said, made
            if not made or (do == "tasks" and len(made) > 1):
                raise Refused(500, "ServiceFailureException", "the plan has no tasks")
            run_in_loop(asked.ledger.take, sum(map(len, made)))
            tasks = check_tasks(made[0])
            run_in_loop(asked.ledger.take, max(0, len(tasks) - len(made[0])))
            if do == "plan":
                tasks = _complete_plan(tasks, [self._handles.seal(table.path, x) for x in made[1:]])
            return said, [tasks]

        async with self._plans.take(asked.payer):
            return await run_sync(ask, limiter=self._threads)


def application(
    upstream: Upstream,
    indexes: Indexes,
    *,
    workers: Workers | None = None,
    io: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    key: bytes | None = None,
) -> Starlette:
    """Return the service as an ASGI application; `key` signs `plan-task` handles."""
    workers = workers or Workers()
    service = _Service(upstream, indexes, workers, io or {}, limits or Limits(), key)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        workers.start()
        try:
            yield
        finally:
            await run_sync(workers.close)
            await upstream.close()

    route = Route("/{path:path}", service, methods=_METHODS)
    return Starlette(routes=[route], lifespan=lifespan)


def _refusal(error: Exception) -> Refused:
    if refused := as_refusal(error):
        return refused
    match error:
        case TimeoutError():
            return Refused(408, "BadRequestException", "the request took too long to arrive")
        case Unreachable():
            return Refused(502, "ServiceFailureException", f"the upstream catalog: {error}")
        case SkippingError():
            return Refused(500, "ServiceFailureException", str(error))
    # Our own fault, in the form of the other errors.
    log.error("request failed: error=%s", type(error).__name__, exc_info=error)
    return Refused(500, "ServiceFailureException", "the request failed")


def _change_config(said: dict[str, Any]) -> bytes:
    for part in ("defaults", "overrides"):
        given = said.get(part)
        said[part] = {k: v for k, v in given.items() if k != "uri"} if given else {}
    said["overrides"].pop(MODE, None)
    # Only a default: a client with another mode plans itself.
    said["defaults"][MODE] = "server"
    named = said.get("endpoints") or list(_DEFAULT_ENDPOINTS)
    others = [e for e in named if "/plan" not in str(e) and not str(e).endswith("/tasks")]
    said["endpoints"] = [*others, *_ENDPOINTS]
    return json.dumps(said, separators=(",", ":")).encode()


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        said = read_json(text, _PARTS)
    except ValueError:
        return None
    return said if isinstance(said, dict) else None


def _complete_plan(tasks: bytes, handles: Sequence[str]) -> bytes:
    head = f'{{"status":"completed","plan-id":"{uuid.uuid4()}",'.encode()
    tail = f',"plan-tasks":{json.dumps(handles)}}}'.encode() if handles else b"}"
    return b"".join([head, tasks[1:-1], tail])
