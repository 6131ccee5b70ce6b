"""The OpenSearch index with the entries of one skipping index."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from providers.errors import Damaged, StoreError
from skipping.model.definition import Definition
from skipping.stores import IDENTITY, Catalogue, Generation
from skipping.stores.entries import is_scalar
from skipping.stores.epochs import epoch_of
from skipping.stores.opensearch.client import PAGE_SIZE, Body, Client, Refused
from skipping.stores.opensearch.commits import LostHistory
from skipping.stores.opensearch.documents import (
    Found,
    decode_values,
    describe_mapping,
    folder_of,
    table_of,
    types_of,
)
from skipping.stores.opensearch.names import name_fields
from skipping.stores.opensearch.packed_entries import NUMBER, PAGE, unpack_pages
from skipping.stores.opensearch.registry import RegistryRecord

log = logging.getLogger("skipping")

_MANY = 10_000  # terms of one query
_ENTRY: Body = {"exists": {"field": "ordinal"}}
_DELETED = 0.1  # deleted documents for each live one, above which they are merged away
_PACKED = 16  # pages in one request, each up to a few MB

ORDER = ("ordinal", "generation")
"""The order of hits: of two writes for a file, the later one is last."""


class Entries:
    """The documents of one index that are visible at a record's generation."""

    def __init__(self, client: Client, record: RegistryRecord) -> None:
        self._client = client
        self.record = record
        self._name = record.entries

    def prepare(self, fields: dict[str, str]) -> None:
        """Create the OpenSearch index, or extend its mapping, and describe its columns."""
        assert self.record.definition is not None
        # A build reserves the ordinals of all files before it writes the first.
        made = Definition.from_json(self.record.definition)
        body = describe_mapping(made, fields, files=self.record.next)
        grown = {name: body["mappings"][name] for name in ("_meta", "properties")}
        if not self.record.generation:
            try:
                self._client.call("PUT", f"/{self._name}", body)
                return
            except Refused as error:  # an attempt before this one was aborted
                if error.kind != "resource_already_exists_exception":
                    raise
        with self._there():
            self._client.call("PUT", f"/{self._name}/_mapping", grown)

    def name_columns(self, definition: Definition, fields: Mapping[str, str]) -> None:
        """Add aliases with column names (`names`), except those that fail."""
        named = name_fields(definition, fields)
        try:
            if named:
                self._map(reduce(_merge_trees, named))
        except Refused as error:
            # One conflicts with an earlier alias: add the others one by one.
            log.info("some column aliases of %s were not created: error=%s", self._name, error)
            if error.status == 400:
                for one in named:
                    with suppress(Refused):
                        self._map(one)

    def _map(self, properties: Body) -> None:
        self._client.call("PUT", f"/{self._name}/_mapping", {"properties": properties})

    def find(self, ordinals: Sequence[int], names: Sequence[str]) -> Found:
        """Find the documents of files with these ordinals or identities."""
        found = Found({}, {}, {}, set())
        if not self.record.generation:
            return found
        for field, values in (("ordinal", ordinals), ("identity", names)):
            wanted = ["ordinal", "identity", "*_known"]
            for source in self._with(field, values, wanted, ORDER):
                ordinal = source["ordinal"]
                flags = {name for name in source if name.endswith("_known")}
                found.flags.setdefault(ordinal, set()).update(flags)
                if "identity" in source:
                    found.entries[ordinal] = source["identity"]
                    found.holders[source["identity"]] = ordinal
        tombs = self._with("removed", ordinals, ["removed"], ("removed", "generation"))
        found.removed.update(source["removed"] for source in tombs)
        return found

    def create(
        self,
        items: Sequence[tuple[Body, Body]],
        *,
        generation: Generation,
        beat: Callable[[], None],
    ) -> None:
        """Create documents and refresh the index; call `beat` between requests.

        Raises LostHistory if documents of this or a later generation exist: then the registry is
        older than they are, and would give their numbers to other documents.
        """
        newer: Body = {"filter": [{"range": {"generation": {"gte": epoch_of(generation)}}}]}
        if self.record.aborted:
            newer["must_not"] = [{"terms": {"generation": list(self.record.aborted)}}]
        body = {
            "query": {"bool": newer},
            "size": 1,
            "track_total_hits": True,
            "_source": False,
            "aggs": {"lost": {"terms": {"field": "generation", "size": _MANY}}},
        }
        answer = self.search(body, timeout=self._client.patience)
        if answer["hits"]["hits"]:
            raise LostHistory(
                f"the registry at {self._client.server} is older than {self._name}: restore both "
                "from one backup, or run DROP SKIPPING INDEX, then CREATE SKIPPING INDEX again",
                [bucket["key"] for bucket in answer["aggregations"]["lost"]["buckets"]],
            )
        self._client.bulk(self._name, items, beat=beat)
        beat()
        self._client.call("POST", f"/{self._name}/_refresh")

    def sweep(self, generation: Generation, *, beat: Callable[[], None]) -> None:
        """Delete the documents of entries removed at a generation; keep the tombstones."""
        ordinals = self.find_tombstones({"term": {"generation": generation}})
        for start in range(0, len(ordinals), _MANY):
            beat()
            part = ordinals[start : start + _MANY]
            query = {"terms": {"ordinal": part}}
            body = {"query": query, "_source": False}
            items = [({"delete": {"_id": hit["_id"]}}, None) for hit in self.pages(body, ORDER)]
            self._client.bulk(self._name, items, beat=beat)
        self._client.call("POST", f"/{self._name}/_refresh")

    def purge(self, *, beat: Callable[[], None]) -> None:
        """Delete invisible documents of aborted writes, a few thousand at a time."""
        if not self.record.aborted or not self.record.generation:
            return
        beat()
        query = {"terms": {"generation": list(self.record.aborted)}}
        body = {"query": query, "_source": False, "size": PAGE_SIZE, "track_total_hits": False}
        hits = self.search(body, timeout=self._client.patience)["hits"]["hits"]
        self._client.bulk(
            self._name, [({"delete": {"_id": hit["_id"]}}, None) for hit in hits], beat=beat
        )

    def reclaim(self) -> None:
        """Let the server merge deleted documents away in the background, if there are many."""
        docs = self._client.call("GET", f"/{self._name}/_stats/docs")["_all"]["primaries"]["docs"]
        if docs["deleted"] > _DELETED * docs["count"]:
            self._client.call(
                *("POST", f"/{self._name}/_forcemerge"),
                only_expunge_deletes="true",
                wait_for_completion="false",
            )

    def catalogue(
        self,
        fields: Sequence[str],
        *,
        since: Generation | None = None,
        timeout: float | None = None,
    ) -> Catalogue:
        """Return the entries, or those that changed after a generation."""
        record = self.record
        types = types_of(record.fields)
        if any(not is_scalar(types.get(name, pa.null())) for name in fields):
            raise StoreError(f"{', '.join(fields)}: only SCALAR fields can be read here")
        record.require_generation(since, self._client.server)
        if not record.generation:
            return Catalogue(0, 0, table_of((), fields, types), pa.array([], pa.int64()))
        if since is None and (packed := self._read_pages(fields, timeout=timeout)) is not None:
            return Catalogue(record.generation, _below(packed), packed, pa.array([], pa.int64()))
        wanted = [*IDENTITY.names, *fields]
        after = {"range": {"generation": {"gt": since or 0}}}
        # A complete source is faster than parts of it; it has no terms or bytes.
        body = {"query": self.visible(after, _ENTRY)}
        sources = [_source(hit) for hit in self.pages(body, ORDER, timeout=timeout)]
        # If an entry only got more sketches, earlier documents have the rest.
        whole = {source["ordinal"] for source in sources if "path" in source}
        partial = sorted({source["ordinal"] for source in sources} - whole)
        sources[:0] = self._with("ordinal", partial, wanted, ORDER, timeout=timeout)
        gone = set(self.unswept(timeout=timeout))
        files = table_of((s for s in sources if s["ordinal"] not in gone), fields, types)
        removed = [] if since is None else self.find_tombstones(after, timeout=timeout)
        return Catalogue(record.generation, _below(files), files, pa.array(removed, pa.int64()))

    def entries(self) -> Iterator[pa.Table]:
        """Yield all entries with all their sketches, in tables that `write` accepts.

        The source has no lists and filters; they are read from doc values, which are sets.
        """
        types = types_of(self.record.fields)
        whole = self.catalogue([name for name, type in types.items() if is_scalar(type)])
        packed = {f"{folder_of(t)}.{name}": (name, t) for name, t in types.items() if folder_of(t)}
        ordinals = whole.files["ordinal"]
        for start in range(0, whole.below, _MANY):
            within = pc.and_(pc.greater_equal(ordinals, start), pc.less(ordinals, start + _MANY))
            part = whole.files.filter(within)
            some = {"range": {"ordinal": {"gte": start, "lt": start + _MANY}}}
            body = {
                "query": self.visible(some),
                "_source": False,
                "stored_fields": "_none_",
                "docvalue_fields": list(packed),
            }
            found: dict[str, dict[int, Any]] = {field: {} for field in packed}
            for hit in self.pages(body, ORDER):
                for field, values in hit.get("fields", {}).items():
                    found[field][hit["sort"][0]] = decode_values(packed[field][1], values)
            for field, (name, type) in packed.items():
                column = [found[field].get(ordinal) for ordinal in part["ordinal"].to_pylist()]
                part = part.append_column(name, pa.array(column, type))
            if len(part):
                yield part

    def size(self) -> int | None:
        """Return the bytes of its primary shards; None without the permission for that."""
        if not self.record.generation:
            return 0
        try:
            found = self._client.call("GET", f"/{self._name}/_stats/store")
        except Refused as error:
            if error.status in (401, 403):
                return None
            raise
        return int(found["_all"]["primaries"]["store"]["size_in_bytes"])

    def unswept(self, *, timeout: float | None = None) -> list[int]:
        """Return removed ordinals that may still have documents."""
        if self.record.unswept is None:
            return []
        return self.find_tombstones({"term": {"generation": self.record.unswept}}, timeout=timeout)

    def visible(self, *also: Body) -> Body:
        """Return a query for the visible documents that match all of these queries."""
        return {"bool": {"filter": [self.record.visible, *also]}}

    def find_tombstones(self, which: Body, *, timeout: float | None = None) -> list[int]:
        """Return the ordinals of the tombstones that match a query."""
        query = self.visible(which, {"exists": {"field": "removed"}})
        body = {"query": query, "_source": False}
        hits = self.pages(body, ("removed", "generation"), timeout=timeout)
        return [hit["sort"][0] for hit in hits]

    def search(self, body: Body, *, timeout: float) -> Body:
        """Run a search; raise StoreError unless every shard responded."""
        with self._there():
            answer: Body = self._client.search(self._name, body, timeout=timeout)
            return answer

    def pages(
        self,
        body: Body,
        order: Sequence[str],
        *,
        size: int = PAGE_SIZE,
        timeout: float | None = None,
    ) -> Iterator[Body]:
        """Yield every hit, `size` in a request, sorted by fields that together are unique."""
        with self._there():
            yield from self._client.pages(self._name, body, by=order, size=size, timeout=timeout)

    def ordinals(self, query: Body, *, timeout: float) -> list[int]:
        """Return the ordinals of all documents that match a query."""
        hits = self.pages({"query": query, "_source": False}, ORDER, timeout=timeout)
        return [hit["sort"][0] for hit in hits]

    def drop(self) -> None:
        """Delete the OpenSearch index if it exists; its name is derived and has no wildcards."""
        try:
            self._client.call(
                *("DELETE", f"/{self._name}"), expand_wildcards="none", allow_no_indices="false"
            )
        except Refused as error:
            if error.status != 404:
                raise

    def _read_pages(
        self, fields: Sequence[str], *, timeout: float | None = None
    ) -> pa.Table | None:
        """Return the entries from pages.

        Returns None if the pages are invalid, or lack files, as during a removal.
        """
        removed = self.find_tombstones({"range": {"generation": {"gt": 0}}}, timeout=timeout)
        counted = {
            "query": self.visible(_ENTRY),
            "_source": False,
            "size": 1,
            "track_total_hits": True,
            "aggs": {"files": {"filter": {"exists": {"field": "identity"}}}},
        }
        left = self._client.patience if timeout is None else timeout
        answer = self.search(counted, timeout=left)
        # A page has a row for each document of its write; removed entries have no documents.
        rows = answer["hits"]["total"]["value"] + len(removed) * (1 + len(self.record.fields))
        body = {"query": self.visible({"exists": {"field": NUMBER}}), "_source": [PAGE]}
        hits = self.pages(body, ("generation", NUMBER), size=_PACKED, timeout=timeout)
        types = types_of(self.record.fields)
        try:
            sources = (hit["_source"] for hit in hits)
            files = unpack_pages(sources, removed, fields, types, most=rows)
        except (Damaged, ValueError, LookupError, TypeError, pa.ArrowException) as error:
            log.warning(
                "pages of %s are invalid, reading its documents instead: error=%s",
                self._name,
                error,
            )
            return None
        if answer["aggregations"]["files"]["doc_count"] != len(files):
            return None
        return files

    def _with(
        self,
        field: str,
        values: Sequence[int | str],
        wanted: Sequence[str],
        order: Sequence[str],
        *,
        timeout: float | None = None,
    ) -> Iterator[Body]:
        for start in range(0, len(values), _MANY):
            some = {"terms": {field: list(values[start : start + _MANY])}}
            body = {"query": self.visible(some), "_source": list(wanted)}
            for hit in self.pages(body, order, timeout=timeout):
                yield _source(hit)

    @contextmanager
    def _there(self) -> Iterator[None]:
        try:
            yield
        except Refused as error:
            if error.kind != "index_not_found_exception":
                raise
            raise StoreError(
                f"{self._client.server} no longer has index {self._name}: run DROP SKIPPING INDEX, "
                "then CREATE SKIPPING INDEX again"
            ) from error


def _merge_trees(one: Body, other: Body) -> Body:
    merged = dict(one)
    for name, value in other.items():
        both = isinstance(value, dict) and isinstance(merged.get(name), dict)
        merged[name] = _merge_trees(merged[name], value) if both else value
    return merged


def _below(files: pa.Table) -> int:
    return files["ordinal"][-1].as_py() + 1 if len(files) else 0


def _source(hit: Body) -> Body:
    """Return the source of a hit; raise StoreError for a list in it.

    The server accepts a list for any field, and its numbers take nine times their bytes in memory.
    """
    source: Body = hit["_source"]
    if any(isinstance(value, list) for value in source.values()):
        raise StoreError(f"document {hit['_id']!r:.90} has a list where a value should be")
    return source
