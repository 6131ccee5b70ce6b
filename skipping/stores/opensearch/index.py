"""The OpenSearch index that holds the entries of one incarnation."""

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
from skipping.stores.epochs import alike, rewound_error
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

__all__ = ["ORDER", "Entries"]

log = logging.getLogger("skipping")

_MANY = 10_000  # terms of one query
_ENTRY: Body = {"exists": {"field": "ordinal"}}
_DELETED = 0.1  # deleted documents for each that is there, from which on they are merged away
_PACKED = 16  # pages at once, each of which may have MB

ORDER = ("ordinal", "generation")
"""Of two writes about one file the later comes later."""


class Entries:
    """The documents of one index, as far as a record shows them."""

    def __init__(self, client: Client, record: RegistryRecord) -> None:
        self._client = client
        self.record = record
        self._name = record.entries

    def prepare(self, fields: dict[str, str]) -> None:
        """Make place for documents with these fields, and say in words what they are about."""
        assert self.record.definition is not None
        # Who builds an index reserves the ordinals of all files before the first is written.
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
        """Name the fields after their columns, for people (`names`); what fails is left out."""
        named = name_fields(definition, fields)
        try:
            if named:
                self._map(reduce(_merge_trees, named))
        except Refused as error:
            # One is in the way of what was named before: the others are named one by one.
            log.info("columns of %s are not all named: %s", self._name, error)
            if error.status == 400:
                for one in named:
                    with suppress(Refused):
                        self._map(one)

    def _map(self, properties: Body) -> None:
        self._client.call("PUT", f"/{self._name}/_mapping", {"properties": properties})

    def find(self, ordinals: Sequence[int], names: Sequence[str]) -> Found:
        """What there is about files of these ordinals or these identities."""
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
        """Create documents and let searches see them; `beat` is called now and then.

        Raises LostHistory if there are documents that count as many changes, or more: the catalogue
        is older than they are, and would number others like them.
        """
        newer: Body = {"filter": [{"range": {"generation": {"gte": alike(generation)}}}]}
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
                f"the catalogue at {self._client.server} is older than {self._name}: restore both "
                "from one backup, or drop the skipping index and create it anew",
                [bucket["key"] for bucket in answer["aggregations"]["lost"]["buckets"]],
            )
        self._client.bulk(self._name, items, beat=beat)
        beat()
        self._client.call("POST", f"/{self._name}/_refresh")

    def sweep(self, generation: Generation, *, beat: Callable[[], None]) -> None:
        """Delete the documents of what was removed at a generation; the tombstones stay."""
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
        """Delete documents that are never seen, of writers that died; some thousands at a time."""
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
        """Let the server give back the room of deleted documents, where that is worth while.

        The server does it on its own time.
        """
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
        """The entries, or those that changed after a generation."""
        record = self.record
        types = types_of(record.fields)
        if any(not is_scalar(types.get(name, pa.null())) for name in fields):
            raise StoreError(f"{', '.join(fields)}: a catalogue has only SCALAR fields")
        if since is not None and not record.has_been(since):
            raise rewound_error(self._client.server, self._name)
        if not record.generation:
            return Catalogue(0, 0, table_of((), fields, types), pa.array([], pa.int64()))
        if since is None and (packed := self._read_pages(fields, timeout=timeout)) is not None:
            return Catalogue(record.generation, _below(packed), packed, pa.array([], pa.int64()))
        wanted = [*IDENTITY.names, *fields]
        after = {"range": {"generation": {"gt": since or 0}}}
        # All of a source takes less time than parts of it; no terms or bytes are in it.
        body = {"query": self.visible(after, _ENTRY)}
        sources = [_source(hit) for hit in self.pages(body, ORDER, timeout=timeout)]
        # Of an entry that only got more sketches, the rest was written before.
        whole = {source["ordinal"] for source in sources if "path" in source}
        partial = sorted({source["ordinal"] for source in sources} - whole)
        sources[:0] = self._with("ordinal", partial, wanted, ORDER, timeout=timeout)
        gone = set(self.unswept(timeout=timeout))
        files = table_of((s for s in sources if s["ordinal"] not in gone), fields, types)
        removed = [] if since is None else self.find_tombstones(after, timeout=timeout)
        return Catalogue(record.generation, _below(files), files, pa.array(removed, pa.int64()))

    def scalars(self, fields: Sequence[str], *, since: Generation | None = None) -> Catalogue:
        """As `catalogue`, with `ordinal` and SCALAR fields only, which is a third of the work."""
        record = self.record
        if since is None and (packed := self._read_pages(fields)) is not None:
            files = packed.select(["ordinal", *fields])
            return Catalogue(record.generation, record.next, files, pa.array([], pa.int64()))
        wanted = [name for name in fields if name in record.fields]
        after = {"range": {"generation": {"gt": since or 0}}}
        body = {
            "query": self.visible(after, _ENTRY),
            "_source": False,
            "stored_fields": "_none_",
            "docvalue_fields": wanted,
        }
        sources = [_flat(hit) for hit in self.pages(body, ORDER)]
        if since is not None:
            # What was written before about the same entries.
            ordinals = sorted({source["ordinal"] for source in sources})
            before = {"range": {"generation": {"lte": since}}}
            for start in range(0, len(ordinals), _MANY):
                some = {"terms": {"ordinal": ordinals[start : start + _MANY]}}
                body["query"] = self.visible(before, some)
                sources[:0] = [_flat(hit) for hit in self.pages(body, ORDER)]
        gone = set(self.unswept())
        kept = [source for source in sources if source["ordinal"] not in gone]
        files = table_of(kept, fields, types_of(record.fields), identity=("ordinal",))
        removed = [] if since is None else self.find_tombstones(after)
        return Catalogue(record.generation, record.next, files, pa.array(removed, pa.int64()))

    def entries(self) -> Iterator[pa.Table]:
        """All entries with all their sketches, as `write` takes them, so many at a time.

        The source has no lists and no filters; they are read out of doc values, which are sets.
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
        """Bytes of its primary shards; None where that may not be asked."""
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
        """Ordinals that were removed and may still have documents."""
        if self.record.unswept is None:
            return []
        return self.find_tombstones({"term": {"generation": self.record.unswept}}, timeout=timeout)

    def visible(self, *also: Body) -> Body:
        """What selects the documents that count, and that these queries select."""
        return {"bool": {"filter": [self.record.visible, *also]}}

    def find_tombstones(self, which: Body, *, timeout: float | None = None) -> list[int]:
        """Ordinals whose tombstones a query selects."""
        query = self.visible(which, {"exists": {"field": "removed"}})
        body = {"query": query, "_source": False}
        hits = self.pages(body, ("removed", "generation"), timeout=timeout)
        return [hit["sort"][0] for hit in hits]

    def search(self, body: Body, *, timeout: float) -> Body:
        """One complete answer."""
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
        """Every hit, in the order of fields that together are unique; `size` at once."""
        with self._there():
            yield from self._client.pages(self._name, body, by=order, size=size, timeout=timeout)

    def ordinals(self, query: Body, *, timeout: float) -> list[int]:
        """The ordinals of all documents that a query selects."""
        hits = self.pages({"query": query, "_source": False}, ORDER, timeout=timeout)
        return [hit["sort"][0] for hit in hits]

    def drop(self) -> None:
        """Delete it, if it is there; its name was derived, and stands for itself only."""
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
        """The entries out of pages.

        None if the pages do not tell of all files: some writer left none, or a removal goes on.
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
        # A page has a row for each document of its write; those of removed entries are gone.
        rows = answer["hits"]["total"]["value"] + len(removed) * (1 + len(self.record.fields))
        body = {"query": self.visible({"exists": {"field": NUMBER}}), "_source": [PAGE]}
        hits = self.pages(body, ("generation", NUMBER), size=_PACKED, timeout=timeout)
        types = types_of(self.record.fields)
        try:
            sources = (hit["_source"] for hit in hits)
            files = unpack_pages(sources, removed, fields, types, most=rows)
        except (Damaged, ValueError, LookupError, TypeError, pa.ArrowException) as error:
            log.warning(
                "pages of %s are passed over, its documents are read: %s", self._name, error
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
                f"{self._client.server} no longer has index {self._name}: drop the skipping "
                "index and create it anew"
            ) from error


def _merge_trees(one: Body, other: Body) -> Body:
    """Two trees as one."""
    merged = dict(one)
    for name, value in other.items():
        both = isinstance(value, dict) and isinstance(merged.get(name), dict)
        merged[name] = _merge_trees(merged[name], value) if both else value
    return merged


def _below(files: pa.Table) -> int:
    """One more than the greatest ordinal; a search for it would take as long as a test."""
    return files["ordinal"][-1].as_py() + 1 if len(files) else 0


def _source(hit: Body) -> Body:
    """The source of a hit, which is kept for long; raises StoreError for a list in it.

    The server takes a list for any field, and in memory its numbers have nine times their bytes.
    """
    source: Body = hit["_source"]
    if any(isinstance(value, list) for value in source.values()):
        raise StoreError(f"document {hit['_id']!r:.90} has a list where a value should be")
    return source


def _flat(hit: Body) -> Body:
    """A hit with doc values as if it were a source."""
    values = {name: value[0] for name, value in hit.get("fields", {}).items()}
    return {"ordinal": hit["sort"][0], **values}
