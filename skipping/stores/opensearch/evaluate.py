"""Find the files that tests prune, with one OpenSearch search for all tests that fit into a query.

A test with too many keys for a query is evaluated in this process on cached fields (`fields`), if
its fields are SCALAR or BYTES. Once these fields are cached, tests with few keys are evaluated
there, too. `ContainsOther` with too many keys reads the terms of the few files that it could prune.
Any other test with too many keys prunes nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow.compute as pc
from pyroaring import BitMap

from providers.errors import StoreError
from providers.evaluate import find_prunable_rows
from providers.index_predicate import (
    BitsSet,
    ContainsOther,
    FieldCompare,
    NotWithin,
    Overlaps,
    OverlapsRange,
    Test,
)
from skipping.model.definition import IndexId
from skipping.stores import Catalogue
from skipping.stores.entries import bitmap_where, can_answer, is_scalar
from skipping.stores.fields import Fields, apply_change
from skipping.stores.opensearch.bitmap_fields import read_slices
from skipping.stores.opensearch.capabilities import Capabilities, CapabilityCache
from skipping.stores.opensearch.client import Body, Refused
from skipping.stores.opensearch.documents import TERMS, encode_values, types_of
from skipping.stores.opensearch.index import Entries
from skipping.stores.opensearch.queries import (
    candidates_query,
    count_clauses,
    has_many_numbers,
    ordinals_query,
    pruned_query,
)
from skipping.stores.opensearch.scripts import WORDS, bitmap, bitmap_words
from skipping.stores.slices import Slices, TooLarge, prefers_bit_slices, slices_name

_CANDIDATES = 10_000
_RANGES = 512
"""Maximum of ranges in one search; for more, the fields are read. With 20,000 files, 128 of them
took 0.3 s of a core of the node, 512 took 0.6 s and 2,048 took 4.3 s; here, each number takes 0.03
s.
"""

_RANGED = 3_000_000  # ranges times files in one search, where the fields can be kept: those 0.3 s
_Scalar: TypeAlias = FieldCompare | Overlaps | OverlapsRange | NotWithin
_Local: TypeAlias = _Scalar | BitsSet

CachedFields: TypeAlias = Mapping[str, Catalogue | Slices | None]
"""The cached fields of tests by the name of their cache entry (`_cache_name`)."""


def cached_fields(fields: Fields, index: IndexId, tests: Sequence[Test]) -> CachedFields:
    """Return the cached fields of the tests. Call it before the record is read (`fields`)."""
    found: dict[str, Catalogue | Slices | None] = {}
    for test in tests:
        if isinstance(test, BitsSet):
            found[_cache_name(test)] = fields.get(index, _cache_name(test), Slices)
        elif isinstance(test, _Scalar):
            found[_cache_name(test)] = fields.get(index, _cache_name(test), Catalogue)
    return found


@dataclass(frozen=True, slots=True)
class IndexSearch:
    """One request to one index: finds the files under the ordinal `below` that its tests prune."""

    entries: Entries
    fields: Fields
    cached: CachedFields
    cluster: CapabilityCache
    below: int
    deadline: float

    def find_prunable(self, tests: Sequence[Test]) -> Sequence[BitMap]:
        """Return for each test the ordinals that it prunes; see `IndexStore`."""
        record = self.entries.record
        pruned = [BitMap() for _ in tests]
        if self.below <= 0 or not record.generation:
            return pruned
        types = types_of(record.fields)
        asked = {i: test for i, test in enumerate(tests) if can_answer(test, types)}
        queries = self._choose_queries(asked)
        for i, found in self._search(queries).items():
            pruned[i] = found
        for i, test in asked.items():
            if isinstance(test, ContainsOther) and i not in queries:
                pruned[i] = self._find_without_other(test)
            if not isinstance(test, _Local):
                continue
            if i not in queries:
                current = self._read_fields(test, self.deadline)
                if current is not None:
                    pruned[i] = self._evaluate(test, current)
                self._require_time()
            # Bytes are large: they are read for a test with many keys, and then kept up to date.
            elif self.fields.fits(record.index, _cache_name(test)) and not (
                isinstance(test, BitsSet) and self.cached[_cache_name(test)] is None
            ):
                # Read ahead for later requests; this one neither waits for it nor fails with it.
                with suppress(StoreError):
                    self._read_fields(test, -math.inf)
        gone = BitMap(self.entries.unswept(timeout=self._require_time()))
        return [found - gone for found in pruned]

    def _choose_queries(self, tests: Mapping[int, Test]) -> dict[int, Body]:
        """Return the query of each test that the cluster should evaluate."""
        queries: dict[int, Body] = {}
        ranges = 0
        for i, test in tests.items():
            ranges += count_clauses(test)
            if isinstance(test, _Local):
                name = _cache_name(test)
                if self._is_current(self.cached[name]):
                    continue
                if isinstance(test, BitsSet):
                    is_local = prefers_bit_slices(test, self.below)
                    is_local = is_local or not self._capabilities().filters_by_script
                else:
                    is_local = ranges > _RANGES or (
                        ranges * self.below > _RANGED
                        and self.fields.fits(self.entries.record.index, name)
                    )
                if is_local:
                    continue
            bitmaps = has_many_numbers(test) and self._capabilities().matches_bitmaps
            query = pruned_query(test, bitmaps=bitmaps)
            if query is not None:
                queries[i] = query
        return queries

    def _capabilities(self) -> Capabilities:
        return self.cluster.get(self.entries, self._require_time)

    def _search(self, queries: Mapping[int, Body]) -> dict[int, BitMap]:
        if not queries:
            return {}
        words = (self.below + 63) // 64
        scope = ordinals_query(self.entries.record.visible, self.below)
        try:
            # Words for mostly empty numbers would cost more than the few numbers themselves.
            if words <= WORDS and self._capabilities().aggregates_by_script:
                return self._search_by_script(scope, queries, words)
            return {
                i: BitMap(
                    self.entries.ordinals(
                        {"bool": {"filter": [scope, query]}}, timeout=self._require_time()
                    )
                )
                for i, query in queries.items()
            }
        except Refused as error:
            self.cluster.forget(error)
            raise

    def _search_by_script(
        self, scope: Body, queries: Mapping[int, Body], words: int
    ) -> dict[int, BitMap]:
        filters = {str(i): query for i, query in queries.items()}
        body = {
            # Without hits or their total, the counting of hits ends early and the answer says so.
            "size": 1,
            "track_total_hits": True,
            "_source": False,
            "query": scope,
            "aggs": {"tests": {"filters": {"filters": filters}, "aggs": {"words": bitmap(words)}}},
        }
        answer = self.entries.search(body, timeout=self._require_time())
        try:
            buckets = answer["aggregations"]["tests"]["buckets"]
            found = {i: bitmap_words(buckets[str(i)]["words"]["value"], words) for i in queries}
        except (LookupError, TypeError) as error:
            raise StoreError(f"the response lacks a test: {error}") from error
        self._require_time()
        return found

    def _find_without_other(self, test: ContainsOther) -> BitMap:
        """Return the files whose terms are all among many keys; none for too many candidates."""
        field = f"{TERMS}.{test.sketch}_{test.field}"
        scope = ordinals_query(self.entries.record.visible, self.below)
        body = {
            "query": {"bool": {"filter": [scope, candidates_query(test)]}},
            "size": _CANDIDATES,
            "sort": ["ordinal"],
            "_source": False,
            "docvalue_fields": [field],
            "track_total_hits": False,
        }
        hits = self.entries.search(body, timeout=self._require_time())["hits"]["hits"]
        if len(hits) == _CANDIDATES:
            return BitMap()
        keys = set(encode_values(test.keys))
        return BitMap(
            hit["sort"][0] for hit in hits if keys.issuperset(hit.get("fields", {}).get(field, ()))
        )

    def _read_fields(self, test: _Local, deadline: float) -> Catalogue | Slices | None:
        """Return a test's fields at the record's generation; None if late or too large to cache."""
        record, name = self.entries.record, _cache_name(test)
        cached = self.cached[name]
        if cached is not None and not record.has_been(cached.generation):  # from before a restore
            self.fields.drop(record.index)
            cached = None
        if self._is_current(cached):
            return cached
        if isinstance(test, BitsSet) and not self.fields.fits(record.index, name):
            return None

        def read() -> Catalogue | Slices:
            if isinstance(test, BitsSet):
                slices = cached if isinstance(cached, Slices) else None
                return read_slices(self.entries, test, slices, most=self.fields.most)
            types = types_of(record.fields)
            names = [n for n in types if n.startswith(f"{name}_") and is_scalar(types[n])]
            since = cached.generation if isinstance(cached, Catalogue) else None
            found = self.entries.catalogue(names, since=since)
            found = replace(found, files=found.files.select(["ordinal", *names]))
            return apply_change(cached, found) if isinstance(cached, Catalogue) else found

        try:
            newest = self.fields.load(record.index, name, read, deadline=deadline)
        except TooLarge:
            return None
        return newest if self._is_current(newest) else None

    def _evaluate(self, test: Test, fields: Catalogue | Slices) -> BitMap:
        if isinstance(fields, Slices):
            assert isinstance(test, BitsSet)
            return fields.find_prunable(test, below=self.below, in_time=self._require_time)
        asked = pc.less(fields.files["ordinal"], self.below)
        files = fields.files if pc.all(asked).as_py() else fields.files.filter(asked)
        files = files.combine_chunks()
        return bitmap_where(files["ordinal"].to_numpy(), find_prunable_rows(test, files))

    def _is_current(self, fields: Catalogue | Slices | None) -> bool:
        return fields is not None and fields.generation == self.entries.record.generation

    def _require_time(self) -> float:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise StoreError("the store did not answer in time")
        return left


def _cache_name(test: _Local) -> str:
    return slices_name(test) if isinstance(test, BitsSet) else test.sketch
