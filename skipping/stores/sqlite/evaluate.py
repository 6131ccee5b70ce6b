"""Evaluate tests on an SQLite store within one transaction.

SCALAR fields and known flags are cached in Arrow (`fields`), and the reference evaluator tests
them. BYTES are too large for memory: only the positions of the keys are read. Tests of TERMS use
the inverted index and count how many of a file's terms are among the keys.

    Contains(keys), ContainsRange     hits > 0
    ContainsOther(keys)               hits < terms of the file

so even "some other term" reads no more of the index than its keys.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from providers.errors import StoreError
from providers.evaluate import find_prunable_rows
from providers.index_predicate import BitsSet, Contains, ContainsOther, ContainsRange, Test
from skipping.stores import Catalogue
from skipping.stores.entries import TYPES, bitmap_where, can_answer
from skipping.stores.sqlite.bit_slices import read_groups
from skipping.stores.sqlite.entries import Numbers, term_type
from skipping.stores.sqlite.inverted_index import match_keys, match_range
from skipping.stores.sqlite.segments import Parts

_WIDE = 8  # ordinals for each file, up to which a lookup table is used
_NO_LAYOUT = -1
_SHARE = 0.5  # of the remaining time for bits; files that are not tested by then are read
_SHARE_OF_TERMS = 0.9  # of the remaining time for terms; then the test prunes nothing

_TOO_LATE = "the store did not answer in time"


class _GivenUp(Exception):
    """A test takes too long, and there are others."""


class Snapshot:
    """One index in a read transaction; `held` are the cached fields of its generation."""

    def __init__(
        self, parts: Parts, held: Mapping[str, Catalogue | None], *, below: int, deadline: float
    ) -> None:
        self._parts = parts
        self._held = held
        self._deadline = deadline
        self._types = {name: TYPES[spelled] for name, spelled in parts.record.fields.items()}
        self._below = below
        self._files: dict[str, pa.Table] = {}

    def find_prunable(self, tests: Sequence[Test]) -> list[BitMap]:
        """Return the ordinals under the bound that each test prunes; none if it cannot run.

        Tests with few keys come first. If one takes too long, it and those after it prune nothing,
        so that they do not cost what the others prune. Raises StoreError if that is the first one.
        """
        found = {}
        for i in sorted(range(len(tests)), key=lambda i: _count_keys(tests[i])):
            try:
                found[i] = self._find_prunable(tests[i], self._limit(_SHARE_OF_TERMS))
            except _GivenUp:
                if not found:
                    raise StoreError(_TOO_LATE) from None
                break
        return [found.get(i, BitMap()) for i in range(len(tests))]

    def _find_prunable(self, test: Test, in_time: Callable[[], None]) -> BitMap:
        self._in_time()
        held = self._held[test.sketch]
        if held is None:
            return BitMap()
        # A write may declare a field without values; then it is not cached.
        there = {n: t for n, t in self._types.items() if n in held.files.schema.names}
        there |= {n: t for n, t in self._types.items() if pa.types.is_large_binary(t)}
        if not can_answer(test, there):
            return BitMap()
        files = self._select_files(test.sketch, held.files)
        ordinals = files["ordinal"].to_numpy()
        if isinstance(test, Contains | ContainsOther | ContainsRange):
            rows = ~self._terms_hold(test, files, ordinals, in_time)
        elif isinstance(test, BitsSet):
            rows = ~self._bits_hold(test, files, ordinals)
        else:
            rows = find_prunable_rows(test, files)
        self._in_time()
        return bitmap_where(ordinals, rows)

    def _in_time(self) -> None:
        # SQLite interrupts itself; this checks the time of work in Arrow.
        if time.monotonic() >= self._deadline:
            raise StoreError(_TOO_LATE)

    def _limit(self, share: float) -> Callable[[], None]:
        """Return a check that raises _GivenUp after a fraction of the remaining time."""
        began = time.monotonic()
        until = began + share * (self._deadline - began)

        def in_time() -> None:
            if time.monotonic() >= until:
                raise _GivenUp

        return in_time

    def _select_files(self, sketch: str, files: pa.Table) -> pa.Table:
        """Return the files under the bound whose sketch is known."""
        if sketch not in self._files:
            asked = pc.less(files["ordinal"], self._below)
            asked = pc.and_(asked, pc.fill_null(files[f"{sketch}_known"], False))
            self._files[sketch] = files if pc.all(asked).as_py() else files.filter(asked)
        return self._files[sketch]

    def _bits_hold(
        self, test: BitsSet, files: pa.Table, ordinals: Numbers
    ) -> npt.NDArray[np.bool_]:
        names = [f"{test.sketch}_{name}" for name in (test.field, test.layout)]
        # Missing bytes and other layouts prove nothing.
        # The last row stands for empty slots, and for files that are not requested.
        held = np.ones(len(ordinals) + 1, np.bool_)
        layouts = np.append(pc.fill_null(files[names[1]], _NO_LAYOUT).to_numpy(), _NO_LAYOUT)
        places = _Places(ordinals)
        in_time = self._limit(_SHARE)
        with suppress(_GivenUp):
            for group in read_groups(self._parts[names[0]]):
                in_time()
                rows = places.of(group.ordinals())
                laid_out = layouts[rows]
                for layout, keys in test.probes:
                    asked = laid_out == layout
                    if asked.any():
                        some = group.holds_for_some_key(keys, in_time)
                        held[rows[asked]] = some[asked]
        return held[:-1]

    def _terms_hold(
        self,
        test: Contains | ContainsOther | ContainsRange,
        files: pa.Table,
        ordinals: Numbers,
        in_time: Callable[[], None],
    ) -> npt.NDArray[np.bool_]:
        name = f"{test.sketch}_{test.field}"
        counts = np.asarray(pc.fill_null(files[name], 0))
        if isinstance(test, ContainsRange):
            if test.low is None and test.high is None:
                return counts > 0
            return self._have_term_within(name, test, ordinals, counts > 0, in_time)
        hits = self._hits(name, test, ordinals, in_time)
        return hits < counts if isinstance(test, ContainsOther) else hits > 0

    def _have_term_within(
        self,
        name: str,
        test: ContainsRange,
        ordinals: Numbers,
        have_terms: npt.NDArray[np.bool_],
        in_time: Callable[[], None],
    ) -> npt.NDArray[np.bool_]:
        """Return which files have a term within the bounds; `have_terms`: those that have any."""
        found = np.zeros(len(ordinals) + 1, np.bool_)
        found[-1] = True  # stands for ordinals that are not requested
        left = np.count_nonzero(have_terms)
        places = _Places(ordinals)
        part, type = self._parts[name], term_type(self._types[name])
        for matches in match_range(part, type, test, in_time):
            rows = places.of(matches.astype(np.int64))
            new = np.unique(rows[~found[rows]])
            found[new] = True
            # Not all of `new`: a file without a count must not stand for another one.
            left -= np.count_nonzero(have_terms[new])
            if not left:
                break
        return found[:-1]

    def _hits(
        self,
        name: str,
        test: Contains | ContainsOther,
        ordinals: Numbers,
        in_time: Callable[[], None],
    ) -> Numbers:
        """Return how many terms of each file are among the keys."""
        part, type = self._parts[name], term_type(self._types[name])
        matches = match_keys(part, type, test.keys, in_time)
        found = np.concatenate([np.zeros(0, np.uint32), *matches]).astype(np.int64)
        rows = _Places(ordinals).of(found)
        hits: Numbers = np.bincount(rows, minlength=len(ordinals) + 1)[:-1]
        return hits


def _count_keys(test: Test) -> int:
    return len(test.keys) if isinstance(test, Contains | ContainsOther) else 0


class _Places:
    """Finds ordinals in a sorted list; the position of a missing one is the list's length."""

    def __init__(self, ordinals: Numbers) -> None:
        self._ordinals = ordinals
        self._first = int(ordinals[0]) if len(ordinals) else 0
        self._span = int(ordinals[-1]) + 1 - self._first if len(ordinals) else 0
        self._is_whole = self._span == len(ordinals)
        # A table, unless ordinals are far apart: a binary search takes ten times as long.
        self._table = None
        if not self._is_whole and self._span <= _WIDE * len(ordinals):
            self._table = np.full(self._span + 1, len(ordinals))
            self._table[ordinals - self._first] = np.arange(len(ordinals))

    def of(self, some: Numbers) -> Numbers:
        """Return the position of each of these ordinals, in any order."""
        if self._table is None and not self._is_whole:
            at = np.searchsorted(self._ordinals, some)
            return np.where(np.append(self._ordinals, -1)[at] == some, at, len(self._ordinals))
        at = some - self._first
        at[(at < 0) | (at >= self._span)] = self._span
        places: Numbers = at if self._table is None else self._table[at]
        return places
