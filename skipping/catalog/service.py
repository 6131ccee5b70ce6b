"""An Iceberg REST catalog that plans scans with the index, in front of another.

Forwards each request to the upstream and its answer to the client. Changes only what tells clients
that scans are planned here (`v1/config`, and `loadTable` of tables that have an index), and answers
`plan` and `tasks`. Each of these first loads the table from the upstream with the caller's own
headers, which is what allows it, and which gives the credentials to read its manifests.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import httpx
from anyio.from_thread import run_sync as run_in_loop
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from providers.errors import SkippingError
from skipping.catalog.bounded import TooManyParts, read_json
from skipping.catalog.connections import client_of
from skipping.catalog.errors import Refused, unplanned
from skipping.catalog.handles import Handles, Invalid
from skipping.catalog.indexes import Answer, Indexes
from skipping.catalog.storage import Storage, storage
from skipping.catalog.upstream import (
    HOPS,
    Headers,
    TooLarge,
    Unreachable,
    Upstream,
    end_to_end,
    hops,
    whole,
)
from skipping.catalog.workers import Job, Workers, check_tasks

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
_ABOUT_BODY = (b"content-type", b"content-encoding", b"content-length", b"idempotency-key")
_PLAIN = (b"accept-encoding", b"identity")
_PARTS = 4_000_000
"""Of the JSON of a loaded table: 400 MB of Python objects."""

_ANYBODY = frozenset(
    b"accept accept-encoding accept-language cache-control content-encoding content-length "
    b"content-type date expect host idempotency-key if-modified-since if-none-match origin pragma "
    b"range referer traceparent tracestate user-agent x-client-git-commit-short x-client-version "
    b"x-correlation-id x-iceberg-access-delegation x-request-id".split()
)
"""Headers that do not identify a caller. All others do."""

_MODE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is done at a time: requests in all and of one client, and plans.

    `held` are the bytes of requests and answers that are in memory at a time, in all and of one
    client, and `metadata` those of a loaded table whose scans are planned here. Seconds that a
    request, or the upstream's answer, may take to come, an answer to be taken, and a plan to wait.
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


class _TooMuch(Exception):
    """A body that is longer than what is taken."""


class _Ledger:
    """The bytes that a request holds; `held` are those of all requests by client."""

    def __init__(self, client: str, held: dict[str, int], limits: Limits) -> None:
        self._client, self._held, self._limits = client, held, limits
        self._bytes = 0

    def take(self, size: int) -> None:
        """Count bytes; raises Refused if there are too many."""
        mine = self._held.get(self._client, 0) + size
        limits = self._limits
        if mine > limits.held_of_one_client or sum(self._held.values()) + size > limits.held:
            message = "too many bytes of requests at a time"
            raise Refused(503, "ServiceUnavailableException", message)
        self._held[self._client] = mine
        self._bytes += size

    def close(self) -> None:
        """Count them no more."""
        if self._bytes:
            self._held[self._client] -= self._bytes
            if not self._held[self._client]:
                del self._held[self._client]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request, the bytes it holds, and its caller: a digest of the headers that identify one.

    `payer` is whose places it takes. Whoever has a token may add headers, and be another caller.
    """

    request: Request
    ledger: _Ledger
    caller: bytes
    payer: bytes

    @property
    def headers(self) -> Headers:
        return self.request.headers.raw


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A table as the upstream gave it to a caller; `stated` is what it says of its identity.

    `io` has the caller's credentials, and is kept no longer than the request.
    """

    caller: bytes
    path: str
    stated: Mapping[str, Any]
    metadata: bytes
    io: Storage


class _Service:
    """The routes, over one upstream."""

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
        self._under_way: dict[str, int] = {}
        self._held: dict[str, int] = {}
        self._plans = anyio.CapacityLimiter(limits.plans)
        self._plans_of: dict[bytes, anyio.CapacityLimiter] = {}
        self._threads = anyio.CapacityLimiter(2 * limits.plans)
        self._parsing = anyio.CapacityLimiter(2)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Whatever is asked; it counts until the last byte is sent."""
        request = Request(scope, receive)
        client = client_of(request.client.host) if request.client is not None else ""
        busy = sum(self._under_way.values()) >= self._limits.requests
        if busy or self._under_way.get(client, 0) >= self._limits.of_one_client:
            full = _error(503, "ServiceUnavailableException", "too many requests at a time")
            return await full(scope, receive, send)
        self._under_way[client] = self._under_way.get(client, 0) + 1
        ledger = _Ledger(client, self._held, self._limits)
        try:
            caller = _caller(request.headers.raw)
            payer = _payer(request.headers.raw, caller)
            response = await self._said(_Asked(request, ledger, caller, payer))
            with anyio.move_on_after(self._limits.sending):
                await response(scope, receive, send)
        finally:
            ledger.close()
            self._under_way[client] -= 1
            if not self._under_way[client]:
                del self._under_way[client]

    async def _said(self, asked: _Asked) -> Response:
        """The answer, or what is wrong, as the specification has it."""
        try:
            return await self._answer(asked)
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
        except Exception as error:  # a fault of ours, which clients read as they read the others
            log.exception("request failed: error=%s", type(error).__name__)
            return _error(500, "ServiceFailureException", "the request failed")

    async def _answer(self, asked: _Asked) -> Response:
        request = asked.request
        wrong = _wrong(asked.headers)
        if wrong is not None:
            # Where its body ends two readers may not agree, so no other request may follow.
            refused = _error(400, "BadRequestException", wrong)
            refused.headers["connection"] = "close"
            return refused
        path = request.scope["raw_path"].decode("latin-1")
        table = _TABLE.fullmatch(path)
        if request.method == "POST" and table is not None and table[2] is not None:
            return await self._planned(asked, table[1], table[2])
        changes = request.method == "GET" and (path == "/v1/config" or table is not None)
        headers = asked.headers
        if changes:
            headers = [*_without(headers, _UNSENT[:1]), _PLAIN]
        has_body = any(key.lower() in _BODY and value != b"0" for key, value in headers)
        body = self._parts(request, _REQUEST_BYTES) if has_body else None
        answer = await self._send(request, headers, body)
        if not changes or answer.status_code != 200:
            return _forwarded(answer)
        try:
            text = await self._whole(answer, asked)
        except TooLarge as large:
            # As it came: it does not say who plans, so only who goes by `v1/config` asks here.
            return _forwarded(answer, large.rest)
        said = await run_sync(_object, text, limiter=self._parsing)
        if said is None:
            changed = text
        elif table is None:
            changed = _configured(said)
        else:
            changed = await self._with_mode(asked, table[1], said)
        kept = _without(answer.headers.raw, (b"content-encoding", b"content-length"))
        made = Response(changed)
        made.raw_headers = [
            *end_to_end(kept),
            (b"content-length", str(len(changed)).encode()),
        ]
        return made

    async def _parts(self, request: Request, most: int) -> AsyncIterator[bytes]:
        """The body as it comes; raises _TooMuch, and TimeoutError if it does not come."""
        if int(request.headers.get("content-length", 0)) > most:
            raise _TooMuch
        size, end = 0, anyio.current_time() + self._limits.receiving
        stream = request.stream()
        while True:
            with anyio.fail_after(end - anyio.current_time()):
                part = await anext(stream, None)
            if part is None:
                return
            size += len(part)
            if size > most:
                raise _TooMuch
            yield part

    async def _whole(self, answer: httpx.Response, asked: _Asked) -> bytes:
        """The upstream's answer; raises Unreachable, TooLarge and Refused."""
        try:
            with anyio.fail_after(self._limits.receiving):
                return await whole(answer, self._limits.metadata, asked.ledger.take)
        except TimeoutError as error:
            raise Unreachable("its answer takes too long") from error

    async def _send(
        self,
        request: Request,
        headers: Headers,
        body: AsyncIterator[bytes] | None,
        path: bytes | None = None,
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

    async def _with_mode(self, asked: _Asked, path: str, said: dict[str, Any]) -> bytes:
        """A loaded table that says who plans its scans; as it came if that cannot be told."""
        try:
            table = await run_sync(self._opened, asked.caller, path, said, limiter=self._parsing)
            server = await self._is_planned(asked, table)
        except Exception as error:  # a table that is not understood is loaded all the same
            log.warning("a table is left to its clients: %s", type(error).__name__)
            server = False
        config = said.get("config")
        said["config"] = {
            **(config if isinstance(config, dict) else {}),
            MODE: "server" if server else "client",
        }

        def write() -> bytes:
            return json.dumps(said, separators=(",", ":")).encode()

        return await run_sync(write, limiter=self._parsing)

    async def _is_planned(self, asked: _Asked, table: _Loaded) -> bool:
        """Whether scans of a table are planned here: it has an index, and can be read."""
        if await run_sync(self._indexes.of, table.stated, table.io, limiter=self._threads) is None:
            return False
        said, _ = await self._ask(asked, table, "mode", seconds=_MODE_SECONDS)
        lists = said.get("lists")
        if not isinstance(lists, list) or said.get("unplanned") is not None:
            return False

        def may_read() -> bool:
            return all(isinstance(each, str) and table.io.may_read(each) for each in lists)

        # A table may have a hundred thousand snapshots: this is not for the thread of all requests.
        return await run_sync(may_read, limiter=self._threads)

    async def _load(self, asked: _Asked, path: str) -> _Loaded | Response:
        """The table, as the upstream gives it to whoever asks, or its refusal."""
        headers = [*_without(asked.headers, _UNSENT + _ABOUT_BODY), _PLAIN]
        answer = await self._send(asked.request, headers, None, path.encode("latin-1"))
        if answer.status_code != 200:
            return _forwarded(answer)
        most = self._limits.metadata >> 20
        try:
            text = await self._whole(answer, asked)
        except TooLarge as large:
            await large.rest.aclose()
            await answer.aclose()
            message = f"the table's metadata has more than {most} MiB"
            raise unplanned(f"{message}, expire snapshots or") from None

        def load() -> _Loaded:
            try:
                said = read_json(text, _PARTS)
            except TooManyParts:
                raise unplanned("the table's metadata is too large, expire snapshots or") from None
            except ValueError:
                said = None
            if not isinstance(said, dict) or not isinstance(said.get("metadata"), dict):
                raise Unreachable("no table in its answer")
            return self._opened(asked.caller, path, said)

        return await run_sync(load, limiter=self._parsing)

    def _opened(self, caller: bytes, path: str, said: dict[str, Any]) -> _Loaded:
        """A loaded table, with what reads its files as the caller may."""
        metadata = said["metadata"]
        location = str(said.get("metadata-location") or "")  # of a table that is: always there
        io = storage(said, location, self._io)
        stated = {name: str(metadata.get(name) or "") for name in ("table-uuid", "location")}
        return _Loaded(caller, path, stated, json.dumps(metadata).encode(), io)

    async def _planned(self, asked: _Asked, path: str, do: str) -> Response:
        """A plan, or another page of one, for a caller who may load the table."""
        table = await self._load(asked, path)
        # Nothing is kept of the body of a caller who may not load the table.
        keeps = not isinstance(table, Response)
        parts: list[bytes] = []
        try:
            async for part in self._parts(asked.request, _PLAN_BYTES):
                if keeps:
                    asked.ledger.take(len(part))
                    parts.append(part)
        except BaseException:
            if isinstance(table, _Forwarded):
                await table.close()
            raise
        if isinstance(table, Response):
            return table
        if do == "plan":
            _, (tasks,) = await self._ask(asked, table, "plan", b"".join(parts))
            return _json(tasks)
        said = await run_sync(_object, b"".join(parts), limiter=self._parsing)
        if said is None:
            raise Refused(400, "BadRequestException", "no JSON object, or one nested too deep")
        handle = said.get("plan-task")
        try:
            page = self._handles.open(path, handle if isinstance(handle, str) else "")
        except Invalid:
            message = "the plan task does not exist, or not any more"
            return _error(404, "NoSuchPlanTaskException", message)
        _, (tasks,) = await self._ask(asked, table, "tasks", page)
        return _json(tasks)

    async def _ask(
        self, asked: _Asked, table: _Loaded, do: str, *parts: bytes, seconds: float | None = None
    ) -> tuple[Mapping[str, Any], Sequence[bytes]]:
        """What the worker of a caller and table answers, when it is the caller's turn.

        Of a plan it is the answer to the client, whose bytes are held until it is taken.
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
            if do == "plan":
                tasks = _completed(tasks, [self._handles.seal(table.path, x) for x in made[1:]])
            return said, [tasks]

        async with self._turn(asked.payer):
            return await run_sync(ask, limiter=self._threads)

    @asynccontextmanager
    async def _turn(self, payer: bytes) -> AsyncIterator[None]:
        """A place to plan at: half of them at most are one caller's."""
        places = max(1, self._limits.plans // 2)
        mine = self._plans_of.setdefault(payer, anyio.CapacityLimiter(places))
        try:
            with anyio.CancelScope(deadline=anyio.current_time() + self._limits.waiting) as wait:
                async with mine, self._plans:
                    wait.deadline = float("inf")
                    yield
            if wait.cancelled_caught:
                raise Refused(503, "ServiceUnavailableException", "too many plans at a time")
        finally:
            if not mine.borrowed_tokens and not mine.statistics().tasks_waiting:
                self._plans_of.pop(payer, None)


def _caller(headers: Headers) -> bytes:
    """Return a digest of all headers that may identify the caller."""
    digest = hashlib.sha256()
    for key, value in sorted((key.lower(), value) for key, value in end_to_end(headers)):
        if key not in _ANYBODY:
            for each in (key, value):
                digest.update(len(each).to_bytes(8, "big") + each)
    return digest.digest()


def _payer(headers: Headers, caller: bytes) -> bytes:
    """Return a digest of the caller's token, or the caller if there is none."""
    tokens = [value.split()[-1:] for key, value in headers if key.lower() == b"authorization"]
    return hashlib.sha256(b"".join(tokens[0])).digest() if tokens else caller


_BODY = (b"content-length", b"transfer-encoding")


def _wrong(headers: Headers) -> str | None:
    """What is wrong with the headers of a request, if something is."""
    if {b"content-length", b"transfer-encoding"} <= {key.lower() for key, _ in headers}:
        return "a request with Content-Length and Transfer-Encoding"
    if sum(key.lower() == b"authorization" for key, _ in headers) > 1:
        return "a request with two Authorization headers"
    if not hops(headers) <= HOPS:
        return "a Connection header that names another header of the request"
    return None


def application(
    upstream: Upstream,
    indexes: Indexes,
    *,
    workers: Workers | None = None,
    io: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    key: bytes | None = None,
) -> Starlette:
    """The service as an ASGI application; `key` signs the handles of pages."""
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
        said = read_json(text, _PARTS)
    except ValueError:
        return None
    return said if isinstance(said, dict) else None


def _completed(tasks: bytes, handles: Sequence[str]) -> bytes:
    """The answer to a request for a plan; `tasks` is a JSON object."""
    head = f'{{"status":"completed","plan-id":"{uuid.uuid4()}",'.encode()
    tail = f',"plan-tasks":{json.dumps(handles)}}}'.encode() if handles else b"}"
    return b"".join([head, tasks[1:-1], tail])


class _Forwarded(StreamingResponse):
    """A body as it comes, whose connection is given back whoever stops."""

    def __init__(self, answer: httpx.Response, body: AsyncIterator[bytes]) -> None:
        super().__init__(body, status_code=answer.status_code)
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self.close()

    async def close(self) -> None:
        """Give the connection back, sent or not."""
        with anyio.CancelScope(shield=True):
            await self._answer.aclose()


def _forwarded(answer: httpx.Response, begun: AsyncIterator[bytes] | None = None) -> Response:
    """An answer as it came; `begun` is its body, if somebody began to read it."""
    made = _Forwarded(answer, answer.aiter_raw() if begun is None else begun)
    made.raw_headers = end_to_end(answer.headers.raw)
    if length := answer.headers.get("content-length"):
        made.raw_headers.append((b"content-length", length.encode()))
    return made


def _without(headers: Headers, names: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    return [(key, value) for key, value in headers if key.lower() not in names]


def _json(text: bytes) -> Response:
    return Response(text, media_type="application/json")


def _error(status: int, kind: str, message: str) -> Response:
    """As the specification has errors."""
    said = {"error": {"message": message, "type": kind, "code": status}}
    # In ASCII: a message may repeat half of a surrogate pair, which has no bytes in UTF-8.
    text = json.dumps(said, separators=(",", ":"))
    return Response(text, status_code=status, media_type="application/json")
