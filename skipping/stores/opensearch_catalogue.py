"""The catalogue of an OpenSearch store: what there is, and how it stands.

One document a table holds the *heads* of all indexes the table ever had. Every change of one is a
compare-and-set of that document (`if_seq_no`), so each is atomic: that a table has one live index,
that ordinals are reserved once, that a commit meets the revision it was made for. How the lock in a
head makes a write whole stands in `opensearch_attempts`.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from providers.errors import Conflict, NoStore, StoreError
from skipping.definition import IndexId, TableId
from skipping.stores import Generation
from skipping.stores.generations import REMEMBERED
from skipping.stores.opensearch_client import Body, Client, Refused

__all__ = ["FORMAT", "Catalogues", "Head"]

FORMAT = 1
"""Version of what is written. A newer one is refused."""

_MAPPING: Body = {
    "dynamic": "strict",
    "_meta": {"format": FORMAT},
    "properties": {
        "format": {"type": "integer"},
        "key": {"type": "keyword"},
        "indexes": {"type": "keyword"},
        "heads": {"type": "object", "enabled": False},
    },
}
_PAUSE = 0.02
_UNAVAILABLE = 503
_NOT_FOUND = "index_not_found_exception"
_SETTINGS: Body = {"number_of_shards": 1, "auto_expand_replicas": "0-1"}


@dataclass(frozen=True, slots=True)
class Head:
    """How one index stands; `definition` None: it was erased."""

    entries: str
    definition: str | None
    revision: int = 1
    dropped: bool = False
    state: str | None = None
    next: int = 0
    generation: Generation = 0
    recent: tuple[Generation, ...] = ()
    attempt: int = 0
    writer: int | None = None
    beat: int = 0
    aborted: tuple[int, ...] = ()
    unswept: int | None = None
    fields: dict[str, str] = field(default_factory=dict)
    lease: str | None = None

    @property
    def visible(self) -> Body:
        """What selects the documents that count."""
        counted: Body = {"filter": [{"range": {"generation": {"lte": self.generation}}}]}
        if self.aborted:
            counted["must_not"] = [{"terms": {"generation": list(self.aborted)}}]
        return {"bool": counted}

    def has_been(self, generation: Generation) -> bool:
        """Whether a generation is the present one or came before it, as far as is known."""
        return not generation or generation in self.recent

    def advanced(self, generation: Generation) -> Head:
        """With a generation made the present one."""
        recent = self.recent if generation in self.recent else (*self.recent, generation)
        return replace(self, generation=generation, recent=recent[-REMEMBERED:])


class Catalogues:
    """The heads of all indexes of a store. Safe to use from several threads and processes."""

    def __init__(self, client: Client, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._name = f"{prefix}catalogue"
        self._keys: dict[IndexId, str] = {}  # of documents; an index never moves to another

    def all(self, *, timeout: float | None = None) -> Sequence[tuple[IndexId, Head]]:
        """Every index with its head; raises NoStore where nothing was created yet."""
        with self._there():
            return [
                pair
                for hit in self._client.pages(self._name, {}, by=["key"], timeout=timeout)
                for pair in _heads(hit["_source"]).items()
            ]

    def define(
        self,
        index: IndexId,
        table: TableId,
        definition: str,
        *,
        dropped: bool,
        expect: int | None,
        name: str,
    ) -> int:
        """Write a definition if its revision still is `expect`; raises Conflict if not."""
        text = json.dumps([table.format, table.id, table.root])
        key = hashlib.sha256(text.encode()).hexdigest()
        if expect is None:
            self._create()
            if self._key(index, default=key) != key:
                raise Conflict(f"index {index} is there already, of another table")

        def change(heads: dict[IndexId, Head]) -> dict[IndexId, Head]:
            head = heads.get(index)
            found = None if head is None else head.revision
            if found != expect or (head is not None and head.definition is None):
                raise Conflict(f"index {index} is at revision {found}, not {expect}")
            live = [i for i, h in heads.items() if i != index and h.definition and not h.dropped]
            if live and not dropped:
                raise Conflict(f"there is an index on {name} already: {live[0]}")
            if head is None or found is None:
                folder = f"{self._prefix}{key[:16]}-{_spelled(index)}"
                head = Head(folder, definition, dropped=dropped)
            else:
                head = replace(head, definition=definition, dropped=dropped, revision=found + 1)
            return {**heads, index: head}

        # Refreshed, so that `all` finds it, and who asks for the index by its id.
        return self._change(key, change, refresh="true")[index].revision

    def head(self, index: IndexId, *, timeout: float | None = None) -> Head:
        """How an index stands now; raises StoreError if it was erased or never was here."""
        deadline = None if timeout is None else time.monotonic() + timeout
        key = self._key(index, timeout=timeout)
        left = None if deadline is None else deadline - time.monotonic()
        return _alive(index, self._read(key, timeout=left)[0].get(index))

    def update(self, index: IndexId, change: Callable[[Head], Head]) -> Head:
        """The head after a change, which may be asked for more than once."""

        def at(heads: dict[IndexId, Head]) -> dict[IndexId, Head]:
            return {**heads, index: change(_alive(index, heads.get(index)))}

        return self._change(self._key(index), at)[index]

    def erase(self, index: IndexId) -> Head:
        """Mark a dropped index as erased, again if need be."""

        def at(heads: dict[IndexId, Head]) -> dict[IndexId, Head]:
            head = heads.get(index)
            if head is None:
                raise StoreError(f"the store has no index {index}")
            if head.definition is not None and not head.dropped:
                raise StoreError(f"index {index} is live: drop it before it is erased")
            return {
                **heads,
                index: replace(head, definition=None, state=None, fields={}, lease=None),
            }

        return self._change(self._key(index), at, refresh="true")[index]

    def _create(self) -> None:
        body: Body = {"mappings": _MAPPING, "settings": {"index": _SETTINGS}}
        try:
            self._client.call("PUT", f"/{self._name}", body)
        except Refused as error:
            if error.kind != "resource_already_exists_exception":
                raise
            self._wait()

    def _wait(self) -> None:
        """Until the catalogue that somebody else just made can be asked."""
        deadline = time.monotonic() + self._client.patience
        while True:
            try:
                self._client.search(self._name, {"size": 1, "_source": False})
                return
            except Refused as error:
                if error.status != _UNAVAILABLE or time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE)

    def _key(
        self, index: IndexId, *, default: str | None = None, timeout: float | None = None
    ) -> str:
        """Which document has an index."""
        if index not in self._keys:
            body: Body = {"query": {"term": {"indexes": index}}, "_source": False, "size": 1}
            with self._there():
                hits = self._client.search(self._name, body, timeout=timeout)["hits"]["hits"]
            if not hits and default is not None:
                return default
            if not hits:
                raise StoreError(f"the store has no index {index}: it was never here")
            self._keys[index] = hits[0]["_id"]
        return self._keys[index]

    def _read(
        self, key: str, *, timeout: float | None = None
    ) -> tuple[dict[IndexId, Head], dict[str, int]]:
        """The heads of a table, and what to name when changing them."""
        try:
            found = self._client.call("GET", f"/{self._name}/_doc/{key}", timeout=timeout)
        except Refused as error:
            if error.status != 404:
                raise
            if error.kind == _NOT_FOUND:
                raise _no_store(self._client, self._name) from error
            return {}, {}
        seen = {"if_seq_no": found["_seq_no"], "if_primary_term": found["_primary_term"]}
        return _heads(found["_source"]), seen

    def _change(
        self,
        key: str,
        change: Callable[[dict[IndexId, Head]], dict[IndexId, Head]],
        *,
        refresh: str = "false",
    ) -> dict[IndexId, Head]:
        deadline = time.monotonic() + self._client.patience
        while True:
            heads, seen = self._read(key)
            changed = change(heads)
            if changed == heads:
                return heads
            body = {
                "format": FORMAT,
                "key": key,
                "indexes": list(changed),
                "heads": {index: asdict(head) for index, head in changed.items()},
            }
            params: dict[str, Any] = seen or {"op_type": "create"}
            try:
                self._client.call(
                    "PUT", f"/{self._name}/_doc/{key}", body, refresh=refresh, **params
                )
                return changed
            except Refused as error:
                if error.kind == _NOT_FOUND:
                    raise _no_store(self._client, self._name) from error
                if error.status != 409 or time.monotonic() > deadline:
                    raise
            time.sleep(random.uniform(0, _PAUSE))

    @contextmanager
    def _there(self) -> Iterator[None]:
        try:
            yield
        except Refused as error:
            if error.kind == _NOT_FOUND:
                raise _no_store(self._client, self._name) from error
            raise


def _heads(source: Body) -> dict[IndexId, Head]:
    try:
        if source["format"] > FORMAT:
            raise StoreError(
                f"the store is of format {source['format']}, this release reads up to {FORMAT}: "
                "upgrade, or name another prefix"
            )
        return {
            index: Head(**{**head, **{name: tuple(head[name]) for name in ("aborted", "recent")}})
            for index, head in source["heads"].items()
        }
    except (LookupError, TypeError, AttributeError) as error:
        raise StoreError(f"the catalogue holds what no release wrote: {error}") from error


def _alive(index: IndexId, head: Head | None) -> Head:
    if head is None or head.definition is None:
        raise StoreError(f"the store has no index {index}: it was erased, or never was here")
    return head


def _no_store(client: Client, name: str) -> NoStore:
    return NoStore(f"there is no {name} at {client.server}: create the index anew")


def _spelled(index: IndexId) -> str:
    """An incarnation as part of the name of an index, which takes little else than a UUID does."""
    plain = index.replace("-", "").isalnum() and index.isascii() and index == index.lower()
    return index if plain and len(index) <= 64 else hashlib.sha256(index.encode()).hexdigest()
