"""One cluster over HTTP: requests with a deadline, and everything that goes wrong as StoreError.

An answer counts only when it is whole: no failed shard, no timeout, no early end. Nothing is tried
again here but what was refused for load (429) and surely not done.
"""

from __future__ import annotations

import base64
import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from opensearchpy import OpenSearch, Urllib3HttpConnection
from opensearchpy.exceptions import (
    ConnectionError,
    ConnectionTimeout,
    SSLError,
    TransportError,
)

from providers.errors import StoreError
from skipping.stores.opensearch_access import Access

__all__ = ["Body", "Client", "Refused"]

Body: TypeAlias = dict[str, Any]

_CHUNK = 4 * 2**20  # bytes of one bulk request: far below what servers take (100 MB)
_PAGE = 10_000  # what a search may return unless an index says otherwise
_LOAD = 429
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


class Refused(StoreError):
    """The cluster answered, with an error: `status`, and `kind` as the server names it."""

    def __init__(self, message: str, *, status: int = 0, kind: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class _Connection(Urllib3HttpConnection):
    """One that leaves it to us to say what failed: most of it is expected, as lost races."""

    def log_request_fail(self, *args: Any, **kwargs: Any) -> None:
        """Nothing."""


class Client:
    """Talks to one server. Safe to use from several threads; a pickled copy connects anew."""

    def __init__(self, server: str, access: Access, *, patience: float) -> None:
        self.server = server
        self.patience = patience
        self._access = access
        self._made: OpenSearch | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return _client, (self.server, self._access, self.patience)

    def call(
        self,
        method: str,
        path: str,
        body: Body | str | None = None,
        *,
        timeout: float | None = None,
        **params: str | int,
    ) -> Any:
        """The JSON of an answer; raises Refused for an error, StoreError for no answer."""
        deadline = time.monotonic() + (self.patience if timeout is None else timeout)
        pause = _FIRST_PAUSE
        while True:
            try:
                return self._once(method, path, body, deadline, params)
            except Refused as error:
                if error.status != _LOAD or time.monotonic() + pause >= deadline:
                    raise
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def search(self, index: str, body: Body, *, timeout: float | None = None) -> Any:
        """A complete answer; raises StoreError for one that lacks anything."""
        left = self.patience if timeout is None else timeout
        # The server gives up by itself, so that nobody's question outlives its asker.
        bound = f"{max(1, int(left * 1000))}ms"
        answer = self.call(
            *("POST", f"/{index}/_search", {**body, "timeout": bound}),
            timeout=timeout,
            allow_partial_search_results="false",
            cancel_after_time_interval=bound,
        )
        shards = answer.get("_shards", {})
        if answer.get("timed_out") or answer.get("terminated_early"):
            raise StoreError(f"{self.server} did not answer within {left:.3g} s")
        if shards.get("failed") or shards.get("successful") != shards.get("total"):
            raise StoreError(f"{self.server}: {shards} shards of {index} answered, not all")
        return answer

    def pages(
        self, index: str, body: Body, *, by: Sequence[str], timeout: float | None = None
    ) -> Iterator[Body]:
        """Every hit, in the order of the fields `by`, which together are unique."""
        deadline = time.monotonic() + (self.patience if timeout is None else timeout)
        body = {"track_total_hits": False, **body, "size": _PAGE, "sort": list(by)}
        while True:
            hits = self.search(index, body, timeout=deadline - time.monotonic())["hits"]["hits"]
            yield from hits
            if len(hits) < _PAGE:
                return
            body["search_after"] = hits[-1]["sort"]

    def bulk(
        self,
        index: str,
        items: Iterable[tuple[Body, Body | None]],
        *,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        """Do every item, those refused for load again; raises StoreError if one fails.

        An item is an action, as {"create": {"_id": ...}}, and its document. Ids are the writer's
        own: one that is there already came from an earlier try. `beat` is called before each
        request.
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
                time.sleep(pause * random.uniform(0.5, 1))
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _bulk_once(self, index: str, lines: list[str]) -> list[str]:
        """The lines to be sent again."""
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
                # The reason would show values.
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
        left = deadline - time.monotonic()
        if left <= 0:
            raise StoreError(f"{self.server} did not answer in time")
        try:
            return self._client().transport.perform_request(
                method, path, params={**params, "request_timeout": left}, body=body
            )
        except ConnectionTimeout as error:
            raise StoreError(f"{self.server} did not answer within {left:.3g} s") from error
        except SSLError as error:
            raise StoreError(
                f"{self.server} shows a certificate that is not trusted ({_last_words(error)}): "
                "name the CA in spark.skipping.opensearch.ca"
            ) from error
        except ConnectionError as error:
            raise StoreError(
                f"{self.server} cannot be reached ({_last_words(error)}): "
                "is it there, and does it speak the protocol that the address names?"
            ) from error
        except TransportError as error:
            raise self._refusal(error, path) from error
        except (OSError, ValueError) as error:  # PEM files, or an answer that is no JSON
            raise StoreError(f"{self.server} cannot be asked: {error}") from error

    def _refusal(self, error: TransportError, path: str) -> Refused:
        status = error.status_code if isinstance(error.status_code, int) else 0
        kind = error.error if isinstance(error.error, str) and len(error.error) < 100 else "error"
        who = self._access.user or "whoever asks without a user"
        if status == 401:
            text = f"{self.server} does not accept the user or the password of {who}"
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
                access = self._access
                secure: Body = {}
                if self.server.startswith("https:"):
                    secure = {
                        "verify_certs": True,
                        "ca_certs": access.ca,
                        "client_cert": access.certificate,
                        "client_key": access.key,
                    }
                self._made = OpenSearch(
                    self.server,
                    headers=_login(access),
                    connection_class=_Connection,
                    max_retries=0,
                    pool_maxsize=16,
                    **{name: value for name, value in secure.items() if value is not None},
                )
            return self._made


def _client(server: str, access: Access, patience: float) -> Client:
    return Client(server, access, patience=patience)


def _login(access: Access) -> dict[str, str]:
    if access.user is None:
        return {}
    # As UTF-8, which servers expect; urllib3 would take Latin-1.
    pair = base64.b64encode(f"{access.user}:{access.password}".encode())
    return {"authorization": f"Basic {pair.decode()}"}


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


def _last_words(error: TransportError) -> str:
    return str(getattr(error, "error", error)).rpartition(": ")[2].strip("')>")[:200]
