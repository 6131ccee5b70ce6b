"""TERMS fields in an SQLite store, as an inverted index in runs of blocks (docs/sqlite-format.md).

A test reads only the blocks that can contain its keys, about one of each run for each key. A key
that is not in them is in no file: blocks have checksums (`segments`), so none can lose a term.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from providers.errors import Damaged
from providers.index_predicate import ContainsRange
from skipping.stores import Generation
from skipping.stores.entries import PORTION
from skipping.stores.sqlite.segments import Part, Run, small_runs
from skipping.stores.untrusted import read_array

_Numbers = npt.NDArray[np.int64]
_Ordinals: TypeAlias = npt.NDArray[np.uint32]

_BLOCK = 1 << 14  # bytes of a block, about
_MOST = 1 << 25  # pairs of term and file above which a run is not merged
_MOST_BLOCKS = 1 << 15  # blocks above which it is not merged: half a GiB
_HEADER = struct.Struct("<IIQ")  # terms, pairs and bytes of the terms of a block
_LOOK = 64  # blocks between two checks of the time
_MASK = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Postings:
    """Sorted distinct terms; the files of term `i` are `ordinals[edges[i]:edges[i + 1]]`."""

    terms: pa.Array
    edges: _Numbers
    ordinals: _Ordinals

    @classmethod
    def of(cls, terms: pa.Array, ordinals: _Numbers) -> Postings:
        """Return the postings of pairs in any order; duplicates are allowed."""
        encoded = terms.dictionary_encode()
        order = pc.sort_indices(encoded.dictionary).to_numpy()
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        # Pairs as one number: term above, file below.
        pairs = np.sort(rank[encoded.indices.to_numpy()] << 31 | ordinals)
        pairs = pairs[np.diff(pairs, prepend=-1) > 0]  # np.unique takes three times as long
        edges = np.searchsorted(pairs >> 31, np.arange(len(order) + 1))
        numbers = (pairs & _MASK).astype("<u4")
        return cls(encoded.dictionary.take(pa.array(order)), edges, numbers)

    @classmethod
    def merge(cls, parts: Sequence[Postings]) -> Postings:
        """Merge postings that have no pair in common."""
        terms = pa.concat_arrays([part.terms for part in parts])
        ordinals = np.concatenate([part.ordinals for part in parts])
        lengths = np.concatenate([np.diff(part.edges) for part in parts])
        if terms.type == pa.int64():
            order = np.argsort(terms.to_numpy(), kind="stable")  # runs are sorted: one pass
        else:
            order = pc.sort_indices(terms).to_numpy()
        terms = terms.take(pa.array(order))
        # The old and new positions of each term's files.
        starts, sizes = (np.cumsum(lengths) - lengths)[order], lengths[order]
        ends = np.cumsum(sizes)
        moved = np.repeat(starts - (ends - sizes), sizes) + np.arange(len(ordinals))
        is_first = np.ones(len(terms), np.bool_)
        is_first[1:] = pc.not_equal(terms[1:], terms[:-1]).to_numpy(zero_copy_only=False)
        edges = np.append((ends - sizes)[is_first], len(ordinals))
        return cls(terms.filter(pa.array(is_first)), edges, ordinals[moved])

    def pairs(self) -> tuple[pa.Array, _Numbers]:
        """Return the term and the ordinal of each pair."""
        rows = np.repeat(np.arange(len(self.terms)), np.diff(self.edges))
        return self.terms.take(pa.array(rows)), self.ordinals.astype(np.int64)


def insert_terms(
    part: Part, generation: Generation, ordinals: _Numbers, lists: pa.Array
) -> _Numbers:
    """Store the lists of files (sorted ordinals); return the number of distinct terms of each."""
    # Not pc.list_parent_indices: it counts what lies beneath null lists, list_flatten does not.
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    new = Postings.of(_plain(pc.list_flatten(lists)), np.repeat(ordinals, lengths))
    counts = np.bincount(np.searchsorted(ordinals, new.ordinals), minlength=len(ordinals))
    if len(new.ordinals):
        old = small_runs(part.runs(), len(new.ordinals), most=_MOST)
        while sum(len(run.checksums) for run in old) > _MOST_BLOCKS:
            old = old[1:]
        parts = [*(_whole(part, run, new.terms.type) for run in old), new]
        # Terms can be larger than blocks, and Arrow's offsets end at 2 GiB.
        if old and sum(each.terms.nbytes for each in parts) <= PORTION:
            for run in old:
                part.delete(run)
            new = Postings.merge(parts)
        _add(part, generation, new)
    return counts


def _plain(terms: pa.Array) -> pa.Array:
    """Return text as bytes, which have the same order."""
    return terms.cast(pa.binary()) if terms.type == pa.string() else terms


def _add(part: Part, generation: Generation, all: Postings) -> None:
    sizes = 4 + 4 * np.diff(all.edges)
    fixed = all.terms.type == pa.int64()
    sizes = sizes + (8 if fixed else 4 + pc.binary_length(all.terms).to_numpy())
    numbers = np.cumsum(sizes) // _BLOCK
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    cuts = zip(starts.tolist(), [*starts[1:].tolist(), len(all.terms)], strict=True)
    packed = []
    for start, end in cuts:
        terms = _pack(all.terms.slice(start, end - start))
        edges = all.edges[start : end + 1]
        ordinals = all.ordinals[edges[0] : edges[-1]]
        head_ = _HEADER.pack(end - start, len(ordinals), len(terms))
        inner = (edges - edges[0]).astype("<u4").tobytes()
        packed.append(b"".join((head_, terms, inner, ordinals.tobytes())))
    part.add(
        packed,
        generation=generation,
        items=len(all.ordinals),
        about=_pack(all.terms.take(pa.array(starts))),
    )


def _pack(terms: pa.Array) -> bytes:
    if terms.type == pa.int64():
        numbers: bytes = terms.to_numpy().astype("<i8").tobytes()
        return numbers
    _, offsets, data = terms.buffers()
    ends = np.frombuffer(offsets, "<i4")[terms.offset : terms.offset + len(terms) + 1]
    octets: bytes = (
        b"" if data is None else data.slice(int(ends[0]), int(ends[-1] - ends[0])).to_pybytes()
    )
    return b"".join(((ends - ends[0]).astype("<i4").tobytes(), octets, bytes(-len(octets) % 4)))


def _unpack(data: bytes | memoryview, n: int, type: pa.DataType) -> pa.Array:
    view, cut = memoryview(data), 4 * (n + 1)
    if type == pa.int64():
        return read_array(type, n, view)
    return read_array(pa.binary(), n, view[:cut], view[cut:])


def _block(data: bytes, type: pa.DataType) -> Postings:
    n, pairs, length = _HEADER.unpack_from(data)
    end = _HEADER.size + length
    terms = _unpack(memoryview(data)[_HEADER.size : end], n, type)
    edges = np.frombuffer(data, "<u4", n + 1, end)
    if edges[0] != 0 or edges[-1] != pairs or np.any(edges[1:] < edges[:-1]):
        raise Damaged("a block of terms has invalid edges: create the indexes again")
    return Postings(terms, edges, np.frombuffer(data, "<u4", pairs, end + 4 * (n + 1)))


def _whole(part: Part, run: Run, type: pa.DataType) -> Postings:
    parts = [_block(data, type) for _, data in part.blocks(run)]
    starts = np.cumsum([0, *(len(each.ordinals) for each in parts)])
    edges = [p.edges[:-1] + start for p, start in zip(parts, starts, strict=False)]
    return Postings(
        pa.concat_arrays([each.terms for each in parts]),
        np.concatenate([*edges, starts[-1:]]),
        np.concatenate([each.ordinals for each in parts]),
    )


def postings_of(part: Part, type: pa.DataType) -> Iterator[Postings]:
    """Yield the postings of a field, a run at a time; text is bytes."""
    for run in part.runs():
        yield _whole(part, run, type)


def sweep_terms(part: Part, type: pa.DataType, live: BitMap) -> None:
    """Delete the pairs of files that are not live."""
    alive = np.array(live, np.int64)
    for run in part.runs():
        whole = _whole(part, run, type)
        stay = np.isin(whole.ordinals, alive)
        if not stay.all():
            terms, ordinals = whole.pairs()
            part.delete(run)
            if stay.any():
                left = Postings.of(terms.filter(pa.array(stay)), ordinals[stay])
                _add(part, run.generation, left)


class Keys:
    """The sorted distinct keys of a test."""

    def __init__(self, keys: pa.Array) -> None:
        keys = _plain(keys.drop_null())
        if keys.type == pa.int64():
            numbers = keys.to_numpy()
            # They are usually sorted; checking a million takes a hundredth of sorting them.
            self._numbers = numbers if np.all(numbers[1:] > numbers[:-1]) else np.unique(numbers)
        else:
            keys = pc.unique(keys)
            self._array = keys.take(pc.sort_indices(keys))
            self._list = self._array.to_pylist()
        self._fixed = keys.type == pa.int64()
        self._all = len(self._numbers) if self._fixed else len(keys)

    def places(self, firsts: pa.Array) -> list[int]:
        """Return the number of keys before the first term of each block."""
        if self._fixed:
            places: list[int] = np.searchsorted(self._numbers, firsts.to_numpy()).tolist()
            return places
        return [bisect_left(self._list, first) for first in firsts.to_pylist()]

    def matching(self, part: Part, run: Run, type: pa.DataType) -> Iterator[_Ordinals]:
        """Yield a file's ordinal once for each of its terms that is a key."""
        firsts = _unpack(run.about, len(run.checksums), type)
        starts = self.places(firsts)
        ends = [*starts[1:], self._all]
        asked = [n for n, (a, b) in enumerate(zip(starts, ends, strict=True)) if a < b]
        for number, data in part.blocks(run, asked):
            block = _block(data, type)
            yield _of(block, self._rows(block.terms, starts[number], ends[number]))

    def _rows(self, terms: pa.Array, start: int, end: int) -> _Numbers:
        """Return the positions of terms that are among the keys from `start` to `end`."""
        if not self._fixed:
            some = self._array.slice(start, end - start)
            return np.flatnonzero(pc.is_in(terms, value_set=some).to_numpy(zero_copy_only=False))
        there, keys = terms.to_numpy(), self._numbers[start:end]
        if len(keys) < len(there):
            at = np.searchsorted(there, keys)
            at = at[at < len(there)]
            rows: _Numbers = at[there[at] == keys[: len(at)]]
            return rows
        at = np.searchsorted(keys, there)
        same = keys[np.minimum(at, len(keys) - 1)] == there
        return np.flatnonzero(same)


def _of(block: Postings, rows: _Numbers) -> _Ordinals:
    if len(rows) == len(block.terms):
        return block.ordinals
    chosen = np.zeros(len(block.terms), np.bool_)
    chosen[rows] = True
    return block.ordinals[np.repeat(chosen, np.diff(block.edges))]


def match_keys(
    part: Part, type: pa.DataType, keys: pa.Array, in_time: Callable[[], None]
) -> Iterator[_Ordinals]:
    """Yield a file's ordinal once for each of its terms that is a key."""
    asked = Keys(keys)
    for run in part.runs():
        yield from _check_time(asked.matching(part, run, type), in_time)


def match_range(
    part: Part, type: pa.DataType, test: ContainsRange, in_time: Callable[[], None]
) -> Iterator[_Ordinals]:
    """Yield a file's ordinal once for each of its terms within the bounds."""
    for run in part.runs():
        yield from _check_time(_matching_range(part, run, type, test), in_time)


def _matching_range(
    part: Part, run: Run, type: pa.DataType, test: ContainsRange
) -> Iterator[_Ordinals]:
    low, high = (v.encode() if isinstance(v, str) else v for v in (test.low, test.high))
    above = bisect_left if test.includes_low else bisect_right
    below = bisect_right if test.includes_high else bisect_left
    firsts: Sequence[object] = _unpack(run.about, len(run.checksums), type).to_pylist()
    # The first matching term may be in the block before the first matching start.
    start = 0 if low is None else max(0, above(firsts, low) - 1)  # type: ignore[type-var]
    end = len(firsts) if high is None else below(firsts, high)  # type: ignore[type-var]
    for number, data in part.blocks(run, range(start, end)):
        block = _block(data, type)
        if start < number < end - 1:  # all of its terms are within the bounds
            yield block.ordinals
            continue
        terms = block.terms.to_pylist()
        a = 0 if low is None else above(terms, low)
        b = len(terms) if high is None else below(terms, high)
        yield block.ordinals[block.edges[a] : block.edges[max(a, b)]]


def _check_time(found: Iterator[_Ordinals], in_time: Callable[[], None]) -> Iterator[_Ordinals]:
    for number, ordinals in enumerate(found):
        if not number % _LOOK:
            in_time()
        yield ordinals
