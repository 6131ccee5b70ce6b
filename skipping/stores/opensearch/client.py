"""One cluster over HTTP: requests with a deadline; every failure is a StoreError.

A response counts only if it is complete: no failed shard, no timeout, no early end. Only requests
that were rejected for load (429), and so not executed, are sent again. Every search has a number
that its response must repeat, and every document is checked by its id. Paths name one index, or one
document in it, and nothing else.
"""

from __future__ import annotations

import base64
import json
import random
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import urlencode

from opensearchpy import Connection, OpenSearch
from opensearchpy.exceptions import SerializationError, TransportError
from opensearchpy.serializer import JSONSerializer

from providers.errors import StoreError
from skipping.stores.fork_safety import Lock
from skipping.stores.opensearch import limits
from skipping.stores.opensearch.circuit_breaker import CircuitBreaker
from skipping.stores.opensearch.credentials import STORE, Access
from skipping.stores.opensearch.http import TooMuch, Wire

Body: TypeAlias = dict[str, Any]

PAGE_SIZE = 10_000
"""Maximum of hits of a search, unless an index has another limit."""

_CHUNK = 4 * 2**20  # bytes of one bulk request; servers accept 100 MB
_LOAD = 429
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_SLOW = 0.25  # seconds from which a failed request counts as a timeout
_LIMIT = "most"  # a parameter for `_Connection`, not for the server

# One index by its own name: no wildcard, list, `_all` or date expression.
_PATH = re.compile(
    r"/[a-z0-9][a-z0-9_.-]{0,254}"
    r"(?:/_(?:search|bulk|refresh|forcemerge|mapping|stats/(?:docs|store)|doc/[A-Za-z0-9][\w.-]{0,511}))?",
    re.ASCII,
)


class Refused(StoreError):
    """An error response: its `status`, and the server's name for the error (`kind`)."""

    def __init__(self, message: str, *, status: int = 0, kind: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class _Answer(dict[str, Any]):
    """The JSON object of a response, and its `size` in bytes."""

    size: int


class _Serializer(JSONSerializer):
    """Adds the size to each response."""

    def loads(self, s: Any) -> Any:
        """Parse the JSON of a response."""
        loaded = super().loads(s)
        if isinstance(loaded, dict):
            loaded = _Answer(loaded)
            loaded.size = len(s)
        return loaded


class _Connection(Connection):
    """Sends requests of the library through a `Wire`."""

    def __init__(self, *, wire: Wire, **more: Any) -> None:
        super().__init__(**more)
        self._wire = wire

    def perform_request(  # type: ignore[override]  # the base class has Any everywhere
        self,
        method: str,
        url: str,
        params: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        timeout: float = 0.0,
        ignore: Collection[int] = (),
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body; raise the library's error for an error response."""
        more = dict(params or {})
        most = more.pop(_LIMIT, None)
        path = f"{url}?{urlencode(more)}" if more else url
        said = {**self.headers, **(headers or {})}
        deadline = time.monotonic() + timeout
        reply = self._wire.exchange(method, path, body, said, deadline=deadline, most=most)
        if not 200 <= reply.status < 300:
            self._raise_error(reply.status, reply.body, reply.headers.get("content-type"))
        return reply.status, reply.headers, reply.body


class Client:
    """A client of one server. Several threads can use it."""

    def __init__(self, server: str, access: Access, *, patience: float) -> None:
        self.server = server
        self.patience = patience
        self._access = access
        self._breaker = CircuitBreaker(server)
        self._wire = Wire(server, ca=access.ca, certificate=access.certificate, key=access.key)
        self._made: OpenSearch | None = None
        self._lock = Lock()

    def call(
        self,
        method: str,
        path: str,
        body: Body | str | None = None,
        *,
        timeout: float | None = None,
        most: int | None = None,
        **params: str | int,
    ) -> Any:
        """Return the JSON object of a response; raise Refused for an error, else StoreError.

        While the circuit breaker is open, a request with a timeout fails at once. `most` as in
        `Wire.exchange`.
        """
        if most is not None:
            params[_LIMIT] = most
        if not _PATH.fullmatch(path):
            raise StoreError(f"{path!r} is not the path of an index or document")
        if timeout is not None:
            self._breaker.admit(timeout)
        deadline = time.monotonic() + (self.patience if timeout is None else timeout)
        pause = _FIRST_PAUSE
        while True:
            try:
                return self._once(method, path, body, deadline, params)
            except Refused as error:
                if error.status != _LOAD or time.monotonic() + pause >= deadline:
                    raise
            pause = _back_off(pause)

    def search(
        self, index: str, body: Body, *, timeout: float | None = None, most: int | None = None
    ) -> Any:
        """Return a complete response; raise StoreError for an incomplete one."""
        left = self.patience if timeout is None else timeout
        # The server also stops, so that no search outlives its caller.
        bound = f"{max(1, int(left * 1000))}ms"
        asked = secrets.token_hex(8)
        # This aggregation collects nothing, because there is no such field.
        number = {"asked": {"max": {"field": "asked"}, "meta": {"number": asked}}}
        answer = self.call(
            *("POST", f"/{index}/_search"),
            {**body, "timeout": bound, "aggs": {**body.get("aggs", {}), **number}},
            timeout=timeout,
            most=most,
            allow_partial_search_results="false",
            cancel_after_time_interval=bound,
        )
        shards = answer.get("_shards", {})
        if answer.get("timed_out") or answer.get("terminated_early"):
            raise StoreError(f"{self.server} did not answer within {left:.3g} s")
        if shards.get("failed") or shards.get("successful") != shards.get("total"):
            counts = f"{shards.get('successful')} of {shards.get('total')}"
            raise StoreError(f"{self.server}: only {counts} shards of {index} responded")
        try:
            answered = answer["aggregations"]["asked"]["meta"]["number"]
            hits = answer["hits"]["hits"]
        except (LookupError, TypeError) as error:
            raise StoreError(f"{self.server} answered without a search result: {error}") from error
        if answered != asked:
            self._wire.close()
            raise StoreError(f"{self.server} returned the response to another request")
        if not isinstance(hits, list) or not all(isinstance(hit, dict) for hit in hits):
            raise StoreError(f"{self.server} answered without hits")
        return answer

    def document(
        self, index: str, id: str, *, timeout: float | None = None, most: int | None = None
    ) -> Any:
        """Return a document with its sequence number; raise Refused if it does not exist."""
        found = self.call("GET", f"/{index}/_doc/{id}", timeout=timeout, most=most)
        if found.get("_id") != id:
            self._wire.close()
            raise StoreError(f"{self.server} returned the response to another request")
        return found

    def pages(
        self,
        index: str,
        body: Body,
        *,
        by: Sequence[str],
        size: int = PAGE_SIZE,
        timeout: float | None = None,
    ) -> Iterator[Body]:
        """Yield every hit, `size` of them in a request, sorted by fields that together are unique.

        Raises TooMuch if the responses have more than `limits.TABLE` bytes together.
        """
        deadline = time.monotonic() + (self.patience if timeout is None else timeout)
        body = {"track_total_hits": False, **body, "size": size, "sort": list(by)}
        room = limits.TABLE
        while True:
            answer = self.search(index, body, timeout=deadline - time.monotonic())
            hits = answer["hits"]["hits"]
            room -= answer.size
            if room < 0:
                raise TooMuch(f"{index} has more than {limits.TABLE >> 20} MB, the limit of a read")
            yield from hits
            if len(hits) < size:
                return
            body["search_after"] = hits[-1]["sort"]

    def bulk(
        self,
        index: str,
        items: Iterable[tuple[Body, Body | None]],
        *,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        """Execute every item, again if it was rejected for load; raise StoreError if one fails.

        An item is an action, such as {"create": {"_id": ...}}, and its document. Ids belong to the
        writer, so an id that exists is from an earlier attempt. `beat` is called before each
        request. This does not use `helpers.streaming_bulk`, which ignores deadlines between
        requests and shows documents in errors.
        """
        lines = [
            "\n".join(json.dumps(part) for part in item if part is not None) + "\n"
            for item in items
        ]
        deadline = time.monotonic() + self.patience
        pause = _FIRST_PAUSE
        while lines:
            again: list[str] = []
            for chunk in _chunks(lines):
                beat()
                again += self._bulk_once(index, chunk)
            if len(again) < len(lines):
                deadline = time.monotonic() + self.patience
            lines = again
            if lines:
                if time.monotonic() + pause >= deadline:
                    raise StoreError(f"{self.server} is too busy to write: try again later")
                pause = _back_off(pause)

    def _bulk_once(self, index: str, lines: list[str]) -> list[str]:
        """Send lines; return those to send again."""
        answer = self.call("POST", f"/{index}/_bulk", "".join(lines))
        if not answer.get("errors"):
            return []
        again = []
        for line, item in zip(lines, answer["items"], strict=True):
            ((action, result),) = item.items()
            status = result["status"]
            done = status < 300 or (action, status) in (("create", 409), ("delete", 404))
            if status == _LOAD:
                again.append(line)
            elif not done:
                # Do not show the reason, which can contain values.
                kind = result.get("error", {}).get("type", "no reason")
                raise Refused(
                    f"{self.server} refused to write into {index}: {kind}", status=status, kind=kind
                )
        return again

    def _once(
        self,
        method: str,
        path: str,
        body: Body | str | None,
        deadline: float,
        params: Mapping[str, str | int],
    ) -> Any:
        began = time.monotonic()
        if began >= deadline:
            raise StoreError(f"{self.server} did not answer in time")
        asked = {**params, "request_timeout": deadline - began}
        try:
            answer = self._client().transport.perform_request(method, path, params=asked, body=body)
        except TransportError as error:
            self._breaker.record_answer()
            raise self._refusal(error, path) from error
        except (SerializationError, RecursionError, MemoryError) as error:
            raise StoreError(f"{self.server} answered with something other than JSON") from error
        except TooMuch:
            self._breaker.record_answer()
            raise
        except StoreError:
            if time.monotonic() - began > _SLOW:
                self._breaker.record_failure(began)
            raise
        self._breaker.record_answer()
        if not isinstance(answer, dict):
            raise StoreError(f"{self.server} answered with something other than a JSON object")
        return answer

    def _refusal(self, error: TransportError, path: str) -> Refused:
        status = error.status_code if isinstance(error.status_code, int) else 0
        kind = error.error if isinstance(error.error, str) and len(error.error) < 100 else "error"
        who = self._access.user or "a client without a user"
        if status == 401:
            text = f"{self.server} does not accept the user or the password of {who}"
            if self._access.withheld:
                text += (
                    ": the given credentials belong to the server that was named at start-up, in "
                    f"{STORE} or spark.skipping.store; name this server there, or set "
                    "spark.skipping.opensearch.user and .password for it"
                )
        elif status == 403:
            text = f"{self.server} does not allow {who} the use of {path} ({kind})"
        elif status == _LOAD:
            text = f"{self.server} is too busy: try again later"
        else:
            text = f"{self.server} answered {status} {kind}"
        return Refused(text, status=status, kind=kind)

    def _client(self) -> OpenSearch:
        with self._lock:
            if self._made is None:
                self._made = OpenSearch(
                    self.server,
                    headers=_login(self._access),
                    connection_class=_Connection,
                    serializer=_Serializer(),
                    max_retries=0,
                    wire=self._wire,
                )
            return self._made


def _login(access: Access) -> dict[str, str]:
    if access.user is None:
        return {}
    # As UTF-8, which servers expect; urllib3 would take Latin-1.
    pair = base64.b64encode(f"{access.user}:{access.password}".encode())
    return {"authorization": f"Basic {pair.decode()}"}


def _back_off(pause: float) -> float:
    """Sleep for about this time, and return the next one."""
    time.sleep(pause * random.uniform(0.5, 1))
    return min(2 * pause, _LONGEST_PAUSE)


def _chunks(lines: list[str]) -> list[list[str]]:
    chunks: list[list[str]] = []
    room = 0
    for line in lines:
        if len(line) > room:
            chunks.append([])
            room = _CHUNK
        chunks[-1].append(line)
        room -= len(line)
    return chunks
