"""Evaluate tests on a table of sketches. This is the reference: every store must equal it.

The table has one row for each file. A sketch `s3` with the fields `low` and `values` has the
columns `s3_known` (bool; null: never built), `s3_low` and, for TERMS, `s3_values` as a list. BYTES
have a column like SCALAR.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
from providers.predicate import Op
from providers.values import Value, compare

Mask = npt.NDArray[np.bool_]
_Numbers = npt.NDArray[np.int64]


def find_prunable_rows(test: Test, sketches: pa.Table) -> Mask:
    """Return which rows (files) are pruned: they are known, and the test does not hold."""
    known = _mask(_column(sketches, f"{test.sketch}_known"))
    return known & ~holds(test, sketches)


def holds(test: Test, sketches: pa.Table) -> Mask:
    """Return for which rows the test holds, known or not."""

    def field(name: str) -> pa.Array:
        return _column(sketches, f"{test.sketch}_{name}")

    match test:
        case FieldCompare(name, op, value):
            return _compare(field(name), op, value)
        case Overlaps(low, high, keys):
            lows, highs = field(low), field(high)
            # Some key is in [low, high] iff the first key that is not below low is not above high.
            first = _search(keys, lows, "left")
            return _are_valid(lows, highs) & _at_least(highs, keys, first)
        case OverlapsRange(low, high, starts, ends, includes_low, includes_high):
            lows, highs = field(low), field(high)
            # The first range that does not end below low is the one that can begin below high.
            first = _search(ends, lows, "left" if includes_high else "right")
            return _are_valid(lows, highs) & _at_least(highs, starts, first, or_equal=includes_low)
        case NotWithin(low, high, starts, ends):
            lows, highs = field(low), field(high)
            # Only the last range that starts at or before low can hold [low, high].
            last = _search(starts, lows, "right") - 1
            return _are_valid(lows, highs) & ~_at_most(highs, ends, last)
        case Contains(name, keys):
            return _any_term(field(name), lambda terms: pc.is_in(terms, value_set=keys))
        case ContainsOther(name, keys):
            return _any_term(field(name), lambda terms: pc.invert(pc.is_in(terms, value_set=keys)))
        case ContainsRange(name):
            return _any_term(field(name), lambda terms: _within(terms, test))
        case BitsSet(name, layout, probes):
            columns = [f"{test.sketch}_{name}", f"{test.sketch}_{layout}"]
            # Keep the chunks: one Arrow array cannot hold the bytes of many files.
            batches = sketches.select(columns).to_batches()
            parts = [_bits(batch.column(0), batch.column(1), probes) for batch in batches]
            return np.concatenate([np.zeros(0, np.bool_), *parts])


def _column(sketches: pa.Table, name: str) -> pa.Array:
    column = sketches.column(name)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _mask(values: pa.Array) -> Mask:
    filled: Mask = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    return filled


def _compare(values: pa.Array, op: Op, value: Value) -> Mask:
    return _mask(compare(values, op, value))


def _are_valid(lows: pa.Array, highs: pa.Array) -> Mask:
    return _mask(pc.and_(lows.is_valid(), highs.is_valid()))


def _search(
    keys: pa.Array, values: pa.Array, side: Literal["left", "right"]
) -> npt.NDArray[np.int64]:
    """Search normalised values like np.searchsorted; the result for null has no meaning."""
    if pa.types.is_integer(values.type):
        return np.searchsorted(_numbers(keys), _numbers(values), side=side)
    # Text and bytes: one binary search for all values, each step a comparison in Arrow.
    # As Python objects (for np.searchsorted) a million keys took seven times as long.
    is_before = pc.less if side == "left" else pc.less_equal
    low = np.zeros(len(values), np.int64)
    high = np.full(len(values), len(keys), np.int64)
    for _ in range(len(keys).bit_length()):
        middle = (low + high) // 2
        is_open = low < high
        picked = keys.take(pa.array(np.where(is_open, middle, 0)))
        before = _mask(is_before(picked, values))
        low = np.where(is_open & before, middle + 1, low)
        high = np.where(is_open & ~before, middle, high)
    return low


def _numbers(values: pa.Array) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
    return numbers


def _at_least(
    highs: pa.Array, keys: pa.Array, index: npt.NDArray[np.int64], *, or_equal: bool = True
) -> Mask:
    inside = index < len(keys)
    picked = keys.take(pa.array(np.where(inside, index, 0))) if len(keys) else highs
    return inside & _mask((pc.greater_equal if or_equal else pc.greater)(highs, picked))


def _at_most(highs: pa.Array, ends: pa.Array, index: npt.NDArray[np.int64]) -> Mask:
    inside = index >= 0
    picked = ends.take(pa.array(np.where(inside, index, 0))) if len(ends) else highs
    return inside & _mask(pc.less_equal(highs, picked))


def _any_term(lists: pa.Array, accept: Callable[[pa.Array], pa.Array]) -> Mask:
    """Return which lists have a term that `accept` accepts; null and empty lists have none."""
    terms = pc.list_flatten(lists)
    accepted = _mask(accept(terms))
    # Not pc.list_parent_indices: unlike list_flatten, it counts values beneath null lists.
    parents = np.repeat(np.arange(len(lists)), _numbers(pc.list_value_length(lists)))
    found = np.zeros(len(lists), dtype=np.bool_)
    found[parents[accepted]] = True
    return found


def _within(terms: pa.Array, test: ContainsRange) -> pa.Array:
    accepted = terms.is_valid()
    if test.low is not None:
        above = pc.greater_equal if test.includes_low else pc.greater
        accepted = pc.and_(accepted, above(terms, pa.scalar(test.low, terms.type)))
    if test.high is not None:
        below = pc.less_equal if test.includes_high else pc.less
        accepted = pc.and_(accepted, below(terms, pa.scalar(test.high, terms.type)))
    return accepted


def _bits(
    values: pa.Array, layouts: pa.Array, probes: Sequence[tuple[int, pa.FixedSizeListArray]]
) -> Mask:
    """Return which values have all bits of some key set, or have no probes for their layout."""
    if not len(values):
        return np.zeros(0, np.bool_)
    values = values.cast(pa.large_binary())
    _, ends, data = values.buffers()
    edges = np.frombuffer(ends, np.int64, len(values) + 1, 8 * values.offset)
    starts, lengths = edges[:-1], np.diff(edges)
    octets = np.frombuffer(data or b"", np.uint8)
    there = _are_valid(values, layouts)
    numbers = _numbers(layouts)
    holding = np.ones(len(values), np.bool_)
    for layout, keys in probes:
        bits = keys.flatten().to_numpy().reshape(len(keys), keys.type.list_size)
        needed = bits.max() // 8 + 1 if bits.size else 0
        rows = np.flatnonzero(there & (numbers == layout) & (lengths >= needed))
        if len(rows):
            holding[rows] = _some_key(octets, starts[rows], bits)
    return holding


def _some_key(octets: npt.NDArray[np.uint8], starts: _Numbers, bits: _Numbers) -> Mask:
    """Return which values (bytes at `starts`) have all bits of some key (a row of `bits`) set."""
    found = np.zeros(len(starts), np.bool_)
    masks = (1 << (bits & 7)).astype(np.uint8)
    # For each key, test a bit only in the files that have all bits before it: usually, each bit
    # halves them.
    for places, mask in zip((bits >> 3).tolist(), masks, strict=True):
        rows = np.arange(len(starts))
        for place, bit in zip(places, mask, strict=True):
            rows = rows[octets.take(starts.take(rows) + place) & bit != 0]
        found[rows] = True
    return found
