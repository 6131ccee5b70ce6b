"""Which files tests prune, asked of one index: one search for all that a query can say.

The others have too many keys. Those on SCALAR and BYTES fields are evaluated here, on the fields
that are kept (`fields`), and so are those with few keys once the fields are there. "Some term is
none of these many keys" is answered from the terms of the few files that it could prune. What is
left prunes nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from providers.errors import StoreError
from providers.evaluate import find_prunable_rows
from providers.index_predicate import (
    BitsSet,
    ContainsOther,
    Escapes,
    FieldCompare,
    Overlaps,
    OverlapsRange,
    Test,
)
from skipping.model.definition import IndexId
from skipping.stores import Catalogue
from skipping.stores.entries import answerable, bitmap_where, is_scalar
from skipping.stores.fields import Fields, apply_change
from skipping.stores.opensearch.bitmap_fields import read_slices
from skipping.stores.opensearch.client import Body, Refused
from skipping.stores.opensearch.documents import TERMS, encode_values, types_of
from skipping.stores.opensearch.index import Entries
from skipping.stores.opensearch.queries import (
    candidates_query,
    clauses,
    has_many_numbers,
    numbers_query,
    ordinals_query,
    pruned_query,
)
from skipping.stores.opensearch.registry import RegistryRecord
from skipping.stores.opensearch.scripts import ANY_FILTER, WORDS, bitmap, bitmap_words
from skipping.stores.slices import Slices, TooLarge, is_heavy, slices_name

__all__ = ["Answers"]

_CANDIDATES = 10_000
_RANGES = 512
"""Ranges of values in one search; for more the fields are read. With 20,000 files 128 of them took
0.3 s of a core of the node, 512 took 0.6 s and 2,048 took 4.3 s; here each number takes 0.03 s."""

_RANGED = 3_000_000
"""Ranges times files in one search, where the fields can be kept: those 0.3 s."""

_Scalar: TypeAlias = FieldCompare | Overlaps | OverlapsRange | Escapes
_Held: TypeAlias = _Scalar | BitsSet

Held: TypeAlias = Mapping[str, Catalogue | Slices | None]
"""What was kept for tests before the record was read, by their `_name`."""


class Answers:
    """Asks the indexes of one store; knows what the cluster can, and keeps fields."""

    def __init__(self, fields: Fields) -> None:
        self._runs_aggregations = True  # scripts as such, until a question fails for it
        self._runs_filters = True
        self._has_bitmaps: bool | None = None
        self._fields = fields

    def held(self, index: IndexId, tests: Sequence[Test]) -> Held:
        """What is kept for tests; to be asked before the record is read."""
        found: dict[str, Catalogue | Slices | None] = {}
        for test in tests:
            if isinstance(test, BitsSet):
                found[_name(test)] = self._fields.held(index, _name(test), Slices)
            elif isinstance(test, _Scalar):
                found[_name(test)] = self._fields.held(index, _name(test), Catalogue)
        return found

    def find_prunable(
        self,
        index: IndexId,
        record: RegistryRecord,
        entries: Entries,
        tests: Sequence[Test],
        held: Held,
        *,
        below: int,
        deadline: float,
    ) -> Sequence[BitMap]:
        """For each test the ordinals under `below` that it prunes; see `IndexStore`."""
        below = min(below, record.next)
        answers = [BitMap() for _ in tests]
        if below <= 0 or not record.generation:
            return answers
        types = types_of(record.fields)
        asked = {i: test for i, test in enumerate(tests) if answerable(test, types)}
        queries = self._queries(index, record, entries, asked, held, below, deadline)
        scripted = {i for i in queries if isinstance(tests[i], BitsSet)}
        for i, found in self._searched(record, entries, queries, scripted, below, deadline).items():
            answers[i] = found
        for i, test in asked.items():
            if isinstance(test, ContainsOther) and i not in queries:
                answers[i] = _without_other(record, entries, test, below, deadline)
            if not isinstance(test, _Held):
                continue
            kept = held[_name(test)]
            if i not in queries:
                kept = self._kept(index, record, entries, test, kept, deadline)
                if kept is not None:
                    answers[i] = _evaluated(test, kept, below, deadline)
                _left(deadline)
            # Bytes are much: they are read for who asks about many keys, and then kept up.
            elif self._fields.fits(index, _name(test)) and not (i in scripted and kept is None):
                # For the questions to come; nobody waits for it, or minds if it fails.
                with suppress(StoreError):
                    self._kept(index, record, entries, test, kept, -math.inf)
        gone = BitMap(entries.unswept(timeout=_left(deadline)))
        return [answer - gone for answer in answers]

    def _queries(
        self,
        index: IndexId,
        record: RegistryRecord,
        entries: Entries,
        tests: Mapping[int, Test],
        held: Held,
        below: int,
        deadline: float,
    ) -> dict[int, Body]:
        """Of each test that the cluster had better answer the query."""
        queries: dict[int, Body] = {}
        ranges = 0
        for i, test in tests.items():
            ranges += clauses(test)
            if isinstance(test, _Held):
                is_many = ranges > _RANGES or (
                    ranges * below > _RANGED and self._fields.fits(index, _name(test))
                )
                if isinstance(test, BitsSet):
                    is_many = not self._runs_filters or is_heavy(test, below)
                if is_many or _is_of(record, held[_name(test)]):
                    continue
            bitmaps = has_many_numbers(test) and self._knows_bitmaps(record, entries, deadline)
            query = pruned_query(test, bitmaps=bitmaps)
            if query is not None:
                queries[i] = query
        return queries

    def _kept(
        self,
        index: IndexId,
        record: RegistryRecord,
        entries: Entries,
        test: _Held,
        held: Catalogue | Slices | None,
        deadline: float,
    ) -> Catalogue | Slices | None:
        """The fields of a test at the record's generation; None if late, or too large to keep."""
        if held is not None and not record.has_been(held.generation):  # of before a restore
            self._fields.drop(index)
            held = None
        if _is_of(record, held):
            return held
        newest: Catalogue | Slices | None
        if isinstance(test, BitsSet):
            newest = self._slices(
                index, record, entries, test, held if isinstance(held, Slices) else None, deadline
            )
        else:
            newest = self._scalars(
                index,
                record,
                entries,
                test,
                held if isinstance(held, Catalogue) else None,
                deadline,
            )
        return newest if _is_of(record, newest) else None

    def _scalars(
        self,
        index: IndexId,
        record: RegistryRecord,
        entries: Entries,
        test: _Scalar,
        held: Catalogue | None,
        deadline: float,
    ) -> Catalogue | None:
        types = types_of(record.fields)
        names = [n for n in types if n.startswith(f"{test.sketch}_") and is_scalar(types[n])]

        def read() -> Catalogue:
            if held is None:
                return entries.scalars(names)
            return apply_change(held, entries.scalars(names, since=held.generation))

        return self._fields.loaded(index, _name(test), read, deadline=deadline)

    def _slices(
        self,
        index: IndexId,
        record: RegistryRecord,
        entries: Entries,
        test: BitsSet,
        held: Slices | None,
        deadline: float,
    ) -> Slices | None:
        if not self._fields.fits(index, _name(test)):
            return None

        def read() -> Slices:
            return read_slices(record, entries, test, held, most=self._fields.most)

        try:
            return self._fields.loaded(index, _name(test), read, deadline=deadline)
        except TooLarge:
            return None

    def _searched(
        self,
        record: RegistryRecord,
        entries: Entries,
        queries: Mapping[int, Body],
        scripted: Set[int],
        below: int,
        deadline: float,
    ) -> dict[int, BitMap]:
        n = (below + 63) // 64
        scope = ordinals_query(record.visible, below)
        while True:
            known = self._runs_aggregations, self._runs_filters
            asked = {i: q for i, q in queries.items() if self._runs_filters or i not in scripted}
            if not asked:
                return {}
            try:
                # Words for mostly empty numbers would cost more than the few numbers themselves.
                if self._runs_aggregations and n <= WORDS:
                    return _by_script(entries, scope, asked, n, deadline)
                return _by_pages(entries, scope, asked, deadline)
            except Refused as error:
                learned = known != (self._runs_aggregations, self._runs_filters)  # by another
                if not learned and not self._runs_less(entries, error, deadline):
                    raise

    def _knows_bitmaps(self, record: RegistryRecord, entries: Entries, deadline: float) -> bool:
        """Whether 64-bit bitmaps match: some document has the record's generation."""
        if self._has_bitmaps is None:
            query = numbers_query("generation", pa.array([record.generation]))
            body = {"query": query, "size": 1, "_source": False}
            try:
                answer = entries.search(body, timeout=_left(deadline))
                self._has_bitmaps = bool(answer["hits"]["hits"])
            except Refused as error:
                if error.status != 400:
                    raise
                self._has_bitmaps = False
        return self._has_bitmaps

    def _runs_less(self, entries: Entries, error: Refused, deadline: float) -> bool:
        """Whether it was for a script that a question failed: ask simple ones."""
        if error.status not in (400, 403, 500):
            return False
        before = self._runs_aggregations, self._runs_filters
        words = {"query": {"match_none": {}}, "aggs": {"words": bitmap(1)}}
        if before[0]:
            self._runs_aggregations = _is_taken(entries, words, error, deadline)
        if before[1]:
            self._runs_filters = _is_taken(entries, {"query": ANY_FILTER}, error, deadline)
        return before != (self._runs_aggregations, self._runs_filters)


def _name(test: _Held) -> str:
    """What is kept for a test is kept under this name."""
    return slices_name(test) if isinstance(test, BitsSet) else test.sketch


def _is_of(record: RegistryRecord, kept: Catalogue | Slices | None) -> bool:
    return kept is not None and kept.generation == record.generation


def _is_taken(entries: Entries, body: Body, error: Refused, deadline: float) -> bool:
    try:
        entries.search(body, timeout=_left(deadline))
    except Refused as again:
        return again.status != error.status
    return True


def _evaluated(test: Test, kept: Catalogue | Slices, below: int, deadline: float) -> BitMap:
    if isinstance(kept, Slices):
        assert isinstance(test, BitsSet)
        return kept.find_prunable(test, below=below, in_time=lambda: _left(deadline))
    asked = pc.less(kept.files["ordinal"], below)
    files = kept.files if pc.all(asked).as_py() else kept.files.filter(asked)
    files = files.combine_chunks()
    return bitmap_where(files["ordinal"].to_numpy(), find_prunable_rows(test, files))


def _by_script(
    entries: Entries, scope: Body, queries: Mapping[int, Body], n: int, deadline: float
) -> dict[int, BitMap]:
    filters = {str(i): query for i, query in queries.items()}
    body = {
        # Without hits or their total, the counting of hits ends early and the answer says so.
        "size": 1,
        "track_total_hits": True,
        "_source": False,
        "query": scope,
        "aggs": {"tests": {"filters": {"filters": filters}, "aggs": {"words": bitmap(n)}}},
    }
    answer = entries.search(body, timeout=_left(deadline))
    try:
        buckets = answer["aggregations"]["tests"]["buckets"]
        found = {i: bitmap_words(buckets[str(i)]["words"]["value"], n) for i in queries}
    except (LookupError, TypeError) as error:
        raise StoreError(f"the answer lacks a test: {error}") from error
    _left(deadline)
    return found


def _by_pages(
    entries: Entries, scope: Body, queries: Mapping[int, Body], deadline: float
) -> dict[int, BitMap]:
    found = {}
    for i, query in queries.items():
        both = {"bool": {"filter": [scope, query]}}
        found[i] = BitMap(entries.ordinals(both, timeout=_left(deadline)))
    return found


def _without_other(
    record: RegistryRecord, entries: Entries, test: ContainsOther, below: int, deadline: float
) -> BitMap:
    """The files all of whose terms are among many keys; none if too many files could be."""
    field = f"{TERMS}.{test.sketch}_{test.field}"
    body = {
        "query": {
            "bool": {"filter": [ordinals_query(record.visible, below), candidates_query(test)]}
        },
        "size": _CANDIDATES,
        "sort": ["ordinal"],
        "_source": False,
        "docvalue_fields": [field],
        "track_total_hits": False,
    }
    hits = entries.search(body, timeout=_left(deadline))["hits"]["hits"]
    if len(hits) == _CANDIDATES:
        return BitMap()
    keys = set(encode_values(test.keys))
    return BitMap(
        hit["sort"][0] for hit in hits if keys.issuperset(hit.get("fields", {}).get(field, ()))
    )


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise StoreError("the store did not answer in time")
    return left
