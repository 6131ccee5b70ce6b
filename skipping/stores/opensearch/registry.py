"""The catalogue of an OpenSearch store: what there is, and how it stands.

One document a table holds the records of all indexes the table ever had. Every change of one is a
compare-and-set of that document (`if_seq_no`), so each is atomic: that a table has one live index,
that ordinals are reserved once, that a commit meets the revision it was made for. How the lock in a
record makes a write whole stands in `attempts`.

Others may write into a cluster too, so what a document says is checked: its id, and the names of
the indices with entries, follow from the table, the incarnation and the store's prefix alone. One
that says something else, or nothing that a release would write, is foreign: it is left alone, and
stands among the definitions as one with a fault. So is one of a newer release.
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
from skipping.model.definition import Definition, IndexId, Revision
from skipping.stores.index_record import IndexRecord, require_record
from skipping.stores.opensearch import limits
from skipping.stores.opensearch.client import Body, Client, Refused
from skipping.stores.opensearch.http import TooMuch

__all__ = ["FORMAT", "Foreign", "Registry", "RegistryRecord"]

FORMAT = 1
"""The format of documents. A document with any other is refused."""

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
_NUMBERS = 2**63  # are below
_PAGE = 1_000  # documents at once, each with every index that its table ever had
_UNAVAILABLE = 503
_NOT_FOUND = "index_not_found_exception"
_SETTINGS: Body = {"number_of_shards": 1, "auto_expand_replicas": "0-1"}


class Foreign(StoreError):
    """A document that this release did not write, or not so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryRecord(IndexRecord):
    """An index as its registry document has it; `entries` is the OpenSearch index of its files."""

    entries: str
    attempt: int = 0
    writer: int | None = None
    beat: int = 0
    aborted: tuple[int, ...] = ()
    unswept: int | None = None
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def visible(self) -> Body:
        """What selects the documents that count."""
        counted: Body = {"filter": [{"range": {"generation": {"lte": self.generation}}}]}
        if self.aborted:
            counted["must_not"] = [{"terms": {"generation": list(self.aborted)}}]
        return {"bool": counted}


class Registry:
    """The records of all indexes of a store. Safe to use from several threads and processes."""

    def __init__(self, client: Client, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._name = f"{prefix}catalogue"
        self._keys: dict[IndexId, str] = {}  # of documents; an index never moves to another
        # Documents that no release wrote, as of a sequence number, and why.
        self._foreign: dict[str, tuple[int, Foreign]] = {}

    def list_records(
        self, *, timeout: float | None = None
    ) -> Sequence[tuple[IndexId, RegistryRecord | Foreign]]:
        """Every index with its record; of a document that no release wrote, its id and why.

        Raises NoStore where nothing was created yet.
        """
        deadline = time.monotonic() + (self._client.patience if timeout is None else timeout)
        found: list[tuple[IndexId, RegistryRecord | Foreign]] = []
        with self._there():
            listing = self._client.pages(
                self._name, {"_source": False}, by=["_seq_no"], timeout=timeout
            )
            there = {str(hit.get("_id")): hit["sort"][0] for hit in listing}
            # What is not ours is read once, not whenever somebody asks: it may be much.
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
        """What documents say, so many at a time that an answer is not too large."""
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
                yield some[0], Foreign(f"{what} is too large to be one of ours: {error}")
            else:
                for hit in answer["hits"]["hits"]:
                    id = str(hit.get("_id"))
                    try:
                        yield id, self._parse(hit)
                    except Foreign as error:
                        yield id, Foreign(str(error))  # without what it was raised of
            ids = ids[len(some) :]
            count = min(_PAGE, 2 * count)

    def define(self, definition: Definition, *, expect: Revision | None) -> RegistryRecord:
        """Write a definition if its revision still is `expect`; raises Conflict if not."""
        index, table = definition.index, definition.table
        key = _key_of(table.format, table.id, table.root)
        if expect is None:
            self._create()
            if self._key(index, default=key) != key:
                raise Conflict(f"index {index} is there already, of another table")

        def change(records: dict[IndexId, RegistryRecord]) -> dict[IndexId, RegistryRecord]:
            live = (i for i, r in records.items() if i != index and r.definition and not r.dropped)
            record = records.get(index)
            if record is None:
                record = RegistryRecord(index=index, entries=self._folder(key, index))
            record = record.with_definition(definition, expect=expect, live=next(live, None))
            return {**records, index: record}

        # Refreshed, so that `list_records` finds it, and who asks for the index by its id.
        return self._change(key, change, refresh="true")[index]

    def read(self, index: IndexId, *, timeout: float | None = None) -> RegistryRecord:
        """How an index stands now; raises StoreError if it was erased or never was here."""
        return require_record(self.find(index, timeout=timeout), index)

    def find(self, index: IndexId, *, timeout: float | None = None) -> RegistryRecord | None:
        """The same; None if it was erased or never was here."""
        deadline = None if timeout is None else time.monotonic() + timeout
        key = self._key(index, default="", timeout=timeout)
        if not key:
            return None
        left = None if deadline is None else deadline - time.monotonic()
        record = self._read(key, timeout=left)[0].get(index)
        return None if record is None or record.definition is None else record

    def update(
        self,
        index: IndexId,
        change: Callable[[RegistryRecord], RegistryRecord],
        *,
        timeout: float | None = None,
    ) -> RegistryRecord:
        """The record after a change, which may be asked for more than once."""

        def at(records: dict[IndexId, RegistryRecord]) -> dict[IndexId, RegistryRecord]:
            return {**records, index: change(require_record(records.get(index), index))}

        deadline = None if timeout is None else time.monotonic() + timeout
        key = self._key(index, timeout=timeout)
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        return self._change(key, at, timeout=left)[index]

    def erase(self, index: IndexId) -> RegistryRecord:
        """Mark a dropped index as erased, again if need be."""

        def at(records: dict[IndexId, RegistryRecord]) -> dict[IndexId, RegistryRecord]:
            record = require_record(records.get(index), index, erased=True)
            return {**records, index: replace(record.with_nothing(), fields={})}

        return self._change(self._key(index), at, refresh="true")[index]

    def _folder(self, key: str, index: IndexId) -> str:
        """The index that holds the entries of an incarnation."""
        return f"{self._prefix}{key[:16]}-{_encode_id(index)}"

    def _parse(self, hit: Body) -> dict[IndexId, RegistryRecord]:
        """What a document of the catalogue says; raises Foreign if no release wrote it."""
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
                    raise Foreign(f"{what} names {str(record.entries)[:255]!r}, no index of ours")
                if record.definition is not None and _key_in(record.definition) != key:
                    raise Foreign(f"{what} has an index of another table")
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise Foreign(f"{what} holds what no release wrote: {str(error)[:200]}") from error
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
            body: Body = {"query": {"term": {"indexes": index}}, "_source": False, "size": 2}
            with self._there():
                hits = self._client.search(self._name, body, timeout=timeout)["hits"]["hits"]
            if not hits and default is not None:
                return default
            if not hits:
                raise StoreError(f"the store has no index {index}: it was never here")
            key = hits[0].get("_id")
            if len(hits) > 1:  # some of them were written by others
                self.list_records(timeout=timeout)
                key = self._keys.get(index, key)
            if not isinstance(key, str) or not _KEY.fullmatch(key):
                raise Foreign(f"document {key!r:.90} of {self._name} was written by nobody we know")
            self._keys[index] = key
        return self._keys[index]

    def _read(
        self, key: str, *, timeout: float | None = None
    ) -> tuple[dict[IndexId, RegistryRecord], dict[str, int]]:
        """The records of a table, and what to name when changing them."""
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
    """Raises TypeError, ValueError or LookupError for what no release wrote."""
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
        raise TypeError("a value of another type")
    return record


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < _NUMBERS


def _key_of(format: str, id: str, root: str) -> str:
    """The document that has the indexes of a table."""
    return hashlib.sha256(json.dumps([format, id, root]).encode()).hexdigest()


@lru_cache(maxsize=4096)
def _key_in(definition: str) -> str:
    """That of the table in a definition."""
    table = json.loads(definition)["table"]
    return _key_of(table["format"], table["id"], table["root"])


def _no_store(client: Client, name: str) -> NoStore:
    return NoStore(f"there is no {name} at {client.server}: create the index anew")


def _encode_id(index: IndexId) -> str:
    """An incarnation as part of the name of an index, which takes little else than a UUID does."""
    plain = index.replace("-", "").isalnum() and index.isascii() and index == index.lower()
    return index if plain and len(index) <= 64 else hashlib.sha256(index.encode()).hexdigest()
