"""The registry of an OpenSearch store: its indexes with their definitions and states.

A table has one document with the records of all indexes it ever had. Every change is a
compare-and-set of this document (`if_seq_no`), and so atomic: a table has one live index, ordinals
are reserved once, and a commit succeeds only at the revision that it was prepared for. `commits`
describes how the lock in a record makes writes all or nothing.

Others can write into a cluster, too, so documents are checked: their ids, and the names of the
OpenSearch indices with entries, follow from the table, the index id and the store's prefix. A
document with other content, or of another format, is *foreign*: it is never changed, and is listed
as a definition with a fault.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

from providers.errors import Conflict, NoStore, StoreError
from skipping.model.definition import Definition, IndexId, Revision, TableId
from skipping.stores.index_record import IndexRecord, require_record
from skipping.stores.opensearch import limits
from skipping.stores.opensearch.client import Body, Client, Refused
from skipping.stores.opensearch.http import TooMuch

FORMAT = 1
"""The format of documents. A document with another format is foreign."""

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
_KEY = re.compile(r"[0-9a-f]{64}")
_NUMBERS = 2**63  # the limit of all numbers
_PAGE = 1_000  # documents in one request
_UNAVAILABLE = 503
_NOT_FOUND = "index_not_found_exception"
_SETTINGS: Body = {"number_of_shards": 1, "auto_expand_replicas": "0-1"}


class Foreign(StoreError):
    """A document that this release cannot have written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryRecord(IndexRecord):
    """An index in its registry document; `entries` names the OpenSearch index with its files."""

    entries: str
    attempt: int = 0
    writer: int | None = None
    beat: int = 0
    aborted: tuple[int, ...] = ()
    unswept: int | None = None
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def visible(self) -> Body:
        """The query for the visible documents of entries."""
        counted: Body = {"filter": [{"range": {"generation": {"lte": self.generation}}}]}
        if self.aborted:
            counted["must_not"] = [{"terms": {"generation": list(self.aborted)}}]
        return {"bool": counted}


class Registry:
    """The records of all indexes of a store. Several threads and processes can use it."""

    def __init__(self, client: Client, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._name = f"{prefix}catalogue"
        self._keys: dict[IndexId, str] = {}  # of documents; an index never moves to another
        # Foreign documents, with their sequence number and the error.
        self._foreign: dict[str, tuple[int, Foreign]] = {}

    def list_records(
        self, *, timeout: float | None = None
    ) -> Sequence[tuple[IndexId, RegistryRecord | Foreign]]:
        """Return every index with its record; for a foreign document, its id and the error.

        Raises NoStore before the first index is created.
        """
        deadline = time.monotonic() + (self._client.patience if timeout is None else timeout)
        found: list[tuple[IndexId, RegistryRecord | Foreign]] = []
        with self._there():
            listing = self._client.pages(
                self._name, {"_source": False}, by=["_seq_no"], timeout=timeout
            )
            there = {str(hit.get("_id")): hit["sort"][0] for hit in listing}
            # Foreign documents may be large: each is read once until it changes.
            foreign = {id: said for id, said in self._foreign.items() if there.get(id) == said[0]}
            self._foreign = foreign
            for id, read in self._documents([id for id in there if id not in foreign], deadline):
                if isinstance(read, Foreign):
                    foreign[id] = there[id], read
                    continue
                for index in read:
                    self._keys.setdefault(index, id)
                found += read.items()
        return [*found, *((id[:100], error) for id, (_, error) in foreign.items())]

    def _documents(
        self, ids: Sequence[str], deadline: float
    ) -> Iterator[tuple[str, dict[IndexId, RegistryRecord] | Foreign]]:
        """Read documents, in requests small enough for the limits."""
        count = _PAGE
        while ids:
            some = ids[:count]
            body: Body = {"query": {"ids": {"values": some}}, "size": len(some)}
            try:
                answer = self._client.search(
                    self._name, body, timeout=deadline - time.monotonic(), most=limits.DOCUMENTS
                )
            except TooMuch as error:
                if len(some) > 1:
                    count = max(1, len(some) // 8)
                    continue
                what = f"document {some[0][:80]!r} of {self._name}"
                yield some[0], Foreign(f"{what} is too large for a document of this store: {error}")
            else:
                for hit in answer["hits"]["hits"]:
                    id = str(hit.get("_id"))
                    try:
                        yield id, self._parse(hit)
                    except Foreign as error:
                        yield id, Foreign(str(error))  # without the cause
            ids = ids[len(some) :]
            count = min(_PAGE, 2 * count)

    def define(self, definition: Definition, *, expect: Revision | None) -> RegistryRecord:
        """Write a definition if its revision still is `expect`; raise Conflict if not."""
        index, table = definition.index, definition.table
        key = _key_of(table.format, table.id, table.root)
        if expect is None:
            self._create()
            if self._key(index, default=key) != key:
                raise Conflict(f"index {index} exists already, on another table")

        def change(records: dict[IndexId, RegistryRecord]) -> dict[IndexId, RegistryRecord]:
            live = (i for i, r in records.items() if i != index and r.definition and not r.dropped)
            record = records.get(index)
            if record is None:
                record = RegistryRecord(index=index, entries=self._folder(key, index))
            record = record.with_definition(definition, expect=expect, live=next(live, None))
            return {**records, index: record}

        # Refreshed, so that searches by id and `list_records` find it.
        return self._change(key, change, refresh="true")[index]

    def read(self, index: IndexId, *, timeout: float | None = None) -> RegistryRecord:
        """Return the record of an index; raise StoreError if it does not exist."""
        return require_record(self.find(index, timeout=timeout), index)

    def find(self, index: IndexId, *, timeout: float | None = None) -> RegistryRecord | None:
        """Return the record of an index; None if it does not exist."""
        deadline = None if timeout is None else time.monotonic() + timeout
        key = self._key(index, default="", timeout=timeout)
        if not key:
            return None
        left = None if deadline is None else deadline - time.monotonic()
        record = self._read(key, timeout=left)[0].get(index)
        return None if record is None or record.definition is None else record

    def find_live(self, table: TableId, *, timeout: float | None = None) -> RegistryRecord | None:
        """Return the record of a table's live index; None if it has no valid one."""
        try:
            records, _ = self._read(_key_of(table.format, table.id, table.root), timeout=timeout)
        except Foreign:  # it is listed with the error
            return None
        return next((record for record in records.values() if record.is_of(table)), None)

    def update(
        self,
        index: IndexId,
        change: Callable[[RegistryRecord], RegistryRecord],
        *,
        timeout: float | None = None,
    ) -> RegistryRecord:
        """Change a record and return it; `change` is called again after a conflict."""

        def at(records: dict[IndexId, RegistryRecord]) -> dict[IndexId, RegistryRecord]:
            return {**records, index: change(require_record(records.get(index), index))}

        deadline = None if timeout is None else time.monotonic() + timeout
        key = self._key(index, timeout=timeout)
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        return self._change(key, at, timeout=left)[index]

    def erase(self, index: IndexId) -> RegistryRecord:
        """Mark a dropped index as erased."""

        def at(records: dict[IndexId, RegistryRecord]) -> dict[IndexId, RegistryRecord]:
            record = require_record(records.get(index), index, erased=True)
            return {**records, index: replace(record.with_nothing(), fields={})}

        return self._change(self._key(index), at, refresh="true")[index]

    def _folder(self, key: str, index: IndexId) -> str:
        return f"{self._prefix}{key[:16]}-{_encode_id(index)}"

    def _parse(self, hit: Body) -> dict[IndexId, RegistryRecord]:
        """Parse a document; raise Foreign if this release cannot have written it."""
        key, source = str(hit.get("_id")), hit.get("_source", {})
        what = f"document {key[:80]!r} of {self._name}"
        try:
            if source["format"] != FORMAT:
                upgrade = "upgrade, or " if source["format"] > FORMAT else ""
                raise Foreign(
                    f"{what} has format {source['format']}, this release reads format {FORMAT}: "
                    f"{upgrade}name another prefix and run CREATE SKIPPING INDEX again for each "
                    "table"
                )
            records = {index: _parse_record(index, said) for index, said in source["heads"].items()}
            for index, record in records.items():
                if record.entries != self._folder(key, index):
                    raise Foreign(
                        f"{what} names {str(record.entries)[:255]!r}, not an index of this store"
                    )
                if record.definition is not None and _key_in(record.definition) != key:
                    raise Foreign(f"{what} has an index of another table")
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise Foreign(
                f"{what} has values that no release writes: {str(error)[:200]}"
            ) from error
        return records

    def _create(self) -> None:
        body: Body = {"mappings": _MAPPING, "settings": {"index": _SETTINGS}}
        try:
            self._client.call("PUT", f"/{self._name}", body)
        except Refused as error:
            if error.kind != "resource_already_exists_exception":
                raise
            self._wait()

    def _wait(self) -> None:
        """Wait until the registry that another process just created can be searched."""
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
        """Return the id of the document with an index."""
        if index not in self._keys:
            body: Body = {"query": {"term": {"indexes": index}}, "_source": False, "size": 2}
            with self._there():
                hits = self._client.search(self._name, body, timeout=timeout)["hits"]["hits"]
            if not hits and default is not None:
                return default
            if not hits:
                raise StoreError(f"the store has no index {index}")
            key = hits[0].get("_id")
            if len(hits) > 1:  # some are foreign
                self.list_records(timeout=timeout)
                key = self._keys.get(index, key)
            if not isinstance(key, str) or not _KEY.fullmatch(key):
                raise Foreign(
                    f"document {key!r:.90} of {self._name} is not a document of this store"
                )
            self._keys[index] = key
        return self._keys[index]

    def _read(
        self, key: str, *, timeout: float | None = None
    ) -> tuple[dict[IndexId, RegistryRecord], dict[str, int]]:
        """Return the records of a table, and the sequence number for a change."""
        try:
            found = self._client.document(self._name, key, timeout=timeout, most=limits.DOCUMENTS)
        except Refused as error:
            if error.status != 404:
                raise
            if error.kind == _NOT_FOUND:
                raise _no_store(self._client, self._name) from error
            return {}, {}
        seen = {"if_seq_no": found.get("_seq_no"), "if_primary_term": found.get("_primary_term")}
        if not all(map(_is_number, seen.values())):
            raise StoreError(f"{self._client.server} answered without a document")
        return self._parse(found), seen

    def _change(
        self,
        key: str,
        change: Callable[[dict[IndexId, RegistryRecord]], dict[IndexId, RegistryRecord]],
        *,
        refresh: str = "false",
        timeout: float | None = None,
    ) -> dict[IndexId, RegistryRecord]:
        deadline = time.monotonic() + (self._client.patience if timeout is None else timeout)
        while True:
            left = None if timeout is None else max(0.0, deadline - time.monotonic())
            records, seen = self._read(key, timeout=left)
            changed = change(records)
            if changed == records:
                return records
            body = {
                "format": FORMAT,
                "key": key,
                "indexes": list(changed),
                "heads": {
                    index: {name: v for name, v in asdict(record).items() if name != "index"}
                    for index, record in changed.items()
                },
            }
            params: dict[str, Any] = seen or {"op_type": "create"}
            try:
                left = None if timeout is None else max(0.0, deadline - time.monotonic())
                self._client.call(
                    *("PUT", f"/{self._name}/_doc/{key}", body),
                    timeout=left,
                    refresh=refresh,
                    **params,
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


def _parse_record(index: IndexId, said: Any) -> RegistryRecord:
    """Parse a record; raise TypeError, ValueError or LookupError for invalid values."""
    lists = {name: tuple(said[name]) for name in ("aborted", "recent")}
    record = RegistryRecord(index=index, **{**said, **lists})
    texts = record.definition, record.state, record.lease
    numbers = record.revision, record.next, record.generation, record.attempt, record.beat
    optional = (n for n in (record.writer, record.unswept) if n is not None)
    fields = record.fields.items()
    if not (
        all(text is None or isinstance(text, str) for text in texts)
        and all(map(_is_number, (*numbers, *optional, *record.recent, *record.aborted)))
        and isinstance(record.dropped, bool)
        and all(isinstance(name, str) and isinstance(type, str) for name, type in fields)
    ):
        raise TypeError("a value has an unexpected type")
    return record


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < _NUMBERS


def _key_of(format: str, id: str, root: str) -> str:
    return hashlib.sha256(json.dumps([format, id, root]).encode()).hexdigest()


@lru_cache(maxsize=4096)
def _key_in(definition: str) -> str:
    """Return the document id of the table in a definition."""
    table = json.loads(definition)["table"]
    return _key_of(table["format"], table["id"], table["root"])


def _no_store(client: Client, name: str) -> NoStore:
    return NoStore(f"there is no {name} at {client.server}: create the index again")


def _encode_id(index: IndexId) -> str:
    """Return an index id as part of an OpenSearch index name, which allows few characters."""
    plain = index.replace("-", "").isalnum() and index.isascii() and index == index.lower()
    return index if plain and len(index) <= 64 else hashlib.sha256(index.encode()).hexdigest()
