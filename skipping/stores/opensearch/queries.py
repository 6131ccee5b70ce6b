"""Translate tests into queries for the documents that they prune.

A file is pruned if its sketch is known and the test fails: `bool {filter: [known], must_not:
[holds]}`. So a document that is missing in a response is a file that is read.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from providers.index_predicate import (
    BitsSet,
    Contains,
    ContainsOther,
    ContainsRange,
    FieldCompare,
    NotWithin,
    Overlaps,
    OverlapsRange,
    Test,
)
from providers.values import Value
from skipping.stores.opensearch.client import Body
from skipping.stores.opensearch.documents import BYTES, LONGEST, TERMS, encode_values
from skipping.stores.opensearch.scripts import unset_bits

MANY = 1_000
"""A query has a bitmap for more numbers than this, if the cluster supports it."""

_TERMS = 65_536  # maximum of terms in a `terms` query
_CLAUSES = 256  # of the 1,024 that a query may have, each with two ranges
_BOUND = 500  # bytes; 2.19 takes ranges to 1,000 ("input automaton is too large")

_NOTHING: Body = {"match_none": {}}
_OPS = {"<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}


class _Unasked(Exception):
    """A query cannot express this test."""


def _require_few(ranges: pa.Array) -> None:
    if len(ranges) > _CLAUSES:
        raise _Unasked


def ordinals_query(visible: Body, below: int) -> Body:
    """Return a query for the visible documents of ordinals under `below`."""
    return {"bool": {"filter": [visible, {"range": {"ordinal": {"lte": below - 1}}}]}}


def has_many_numbers(test: Test) -> bool:
    """Return whether a bitmap is better than terms for the keys of a test."""
    return isinstance(test, Contains) and test.keys.type == pa.int64() and len(test.keys) > MANY


def count_clauses(test: Test) -> int:
    """Return how many clauses the query of a test on SCALAR fields has; 0 for other tests."""
    match test:
        case Overlaps(_, _, keys):
            return len(keys)
        case NotWithin(_, _, starts) | OverlapsRange(_, _, starts):
            return len(starts)
        case FieldCompare():
            return 1
    return 0


def pruned_query(test: Test, *, bitmaps: bool = False) -> Body | None:
    """Return a query for the documents that a test prunes, or None.

    The result is None for too many keys or a bound that is too long. With `bitmaps`, many numbers
    are sent as a bitmap.
    """
    if isinstance(test, BitsSet):
        return _bits_query(test)
    try:
        if bitmaps and isinstance(test, Contains) and has_many_numbers(test):
            holds = numbers_query(f"{TERMS}.{test.sketch}_{test.field}", test.keys)
        else:
            holds = _holds(test)
    except _Unasked:
        return None
    return {"bool": {"filter": [{"term": {f"{test.sketch}_known": True}}], "must_not": [holds]}}


def _bits_query(test: BitsSet) -> Body:
    asked = [
        {"bool": {"filter": [{"term": {f"{test.sketch}_{test.layout}": layout}}, script]}}
        for layout, keys in test.probes
        if (script := unset_bits(f"{BYTES}.{test.sketch}_{test.field}", keys)) is not None
    ]
    return {"bool": {"filter": [{"term": {f"{test.sketch}_known": True}}, _some(asked)]}}


def numbers_query(field: str, numbers: pa.Array) -> Body:
    """Return a query for documents with one of many numbers, as a 64-bit bitmap for each sign.

    A server merges a bitmap with its own sorted numbers, but a bitmap sorts -1 after all positive
    numbers: with {-1, 2} in one bitmap, release 3.8 finds only the 2.
    """
    found = numbers.drop_null().to_numpy()
    signs = [part for part in (found[found < 0], found[found >= 0]) if len(part)]
    return _some({"terms": {field: [_pack_bitmap(part)], "value_type": "bitmap"}} for part in signs)


def _pack_bitmap(numbers: npt.NDArray[np.int64]) -> str:
    return base64.b64encode(BitMap64(numbers.view(np.uint64)).serialize()).decode()


def candidates_query(test: ContainsOther) -> Body:
    """Return a query for known documents whose terms are all within the range of the keys."""
    field = f"{TERMS}.{test.sketch}_{test.field}"
    ends = pc.min_max(_possible(test.keys))
    outside = [
        _within(field, [(op, end)])
        for op, end in (("<", ends["min"].as_py()), (">", ends["max"].as_py()))
        if end is not None and not _is_too_long(end)
    ]
    known = {"term": {f"{test.sketch}_known": True}}
    return {"bool": {"filter": [known], "must_not": outside}}


def _is_too_long(value: Value | None) -> bool:
    return isinstance(value, str | bytes) and len(_to_bytes(value)) > _BOUND


def _holds(test: Test) -> Body:
    sketch = f"{test.sketch}_"
    match test:
        case FieldCompare(name, op, value):
            return _compare(sketch + name, op, value)
        case Overlaps(low, high, keys):
            return _overlaps(sketch + low, sketch + high, keys, keys)
        case OverlapsRange(low, high, starts, ends, includes_low, includes_high):
            sides = "<=" if includes_high else "<", ">=" if includes_low else ">"
            return _overlaps(sketch + low, sketch + high, starts, ends, *sides)
        case NotWithin(low, high, starts, ends):
            return _escapes(sketch + low, sketch + high, starts, ends)
        case Contains(name, keys):
            return _contains(f"{TERMS}.{sketch}{name}", keys)
        case ContainsOther(name, keys):
            return _contains_other(f"{TERMS}.{sketch}{name}", keys)
        case ContainsRange(name, low_value, high_value, includes_low, includes_high):
            bounds: list[tuple[str, Value]] = []
            if low_value is not None:
                bounds.append((">=" if includes_low else ">", low_value))
            if high_value is not None:
                bounds.append(("<=" if includes_high else "<", high_value))
            return _within(f"{TERMS}.{sketch}{name}", bounds)
        case BitsSet():
            raise _Unasked


def _compare(field: str, op: str, value: Value) -> Body:
    if _is_too_long(value):
        raise _Unasked
    if op == "=":
        return {"term": {field: _json(value)}}
    if op == "!=":
        different = {"term": {field: _json(value)}}
        return {"bool": {"filter": [{"exists": {"field": field}}], "must_not": [different]}}
    return _within(field, [(op, value)])


def _within(field: str, bounds: Sequence[tuple[str, Value]]) -> Body:
    if any(_is_too_long(value) for _, value in bounds):
        raise _Unasked
    if not bounds:
        return {"exists": {"field": field}}
    return {"range": {field: {_OPS[op]: _json(value) for op, value in bounds}}}


def _overlaps(
    low: str, high: str, starts: pa.Array, ends: pa.Array, below: str = "<=", above: str = ">="
) -> Body:
    _require_few(starts)
    return _some(
        {"bool": {"filter": [_within(low, [(below, end)]), _within(high, [(above, start)])]}}
        for start, end in zip(starts.to_pylist(), ends.to_pylist(), strict=True)
    )


def _escapes(low: str, high: str, starts: pa.Array, ends: pa.Array) -> Body:
    _require_few(starts)
    within = [
        {"bool": {"filter": [_within(low, [(">=", start)]), _within(high, [("<=", end)])]}}
        for start, end in zip(starts.to_pylist(), ends.to_pylist(), strict=True)
    ]
    there = [{"exists": {"field": low}}, {"exists": {"field": high}}]
    return {"bool": {"filter": there, "must_not": within}}


def _contains(field: str, keys: pa.Array) -> Body:
    values = encode_values(_possible(keys))
    parts = [values[i : i + _TERMS] for i in range(0, len(values), _TERMS)]
    return _some({"terms": {field: part}} for part in parts)


def _contains_other(field: str, keys: pa.Array) -> Body:
    """Return a query for documents with a term below, between or above the keys."""
    keys = _possible(keys)
    _require_few(keys)
    if not len(keys):
        return {"exists": {"field": field}}
    values = keys.to_pylist()
    gaps = [_within(field, [(">", a), ("<", b)]) for a, b in pairwise(values)]
    outside = [_within(field, [("<", values[0])]), _within(field, [(">", values[-1])])]
    return _some([*outside, *gaps])


def _some(queries: Iterable[Body]) -> Body:
    should = list(queries)
    return {"bool": {"should": should, "minimum_should_match": 1}} if should else _NOTHING


def _possible(keys: pa.Array) -> pa.Array:
    """Return the keys that are not longer than a term can be."""
    keys = keys.drop_null()
    if keys.type == pa.int64():
        return keys
    longest = LONGEST if keys.type == pa.string() else LONGEST // 2
    return keys.filter(pc.less_equal(pc.binary_length(keys), longest))


def _json(value: Value) -> int | str:
    return value if isinstance(value, int) else _to_bytes(value).decode()


def _to_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value.hex().encode()
