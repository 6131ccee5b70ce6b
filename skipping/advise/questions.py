"""Draw the predicates that measure index types, from a sample of one column.

Keys are distinct values of random files. If the sample is only a part of the table, keys come from
one half of the sampled files and are looked up in the other half. The estimate for the table is the
number of files that the keys came from, plus a fraction of all other files: the fraction that the
index type keeps in the second half. Substrings are taken from such keys. A range covers a tenth of
the sampled values.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from providers.evaluate import find_prunable_rows
from providers.index_predicate import AnyOf, IndexPredicate, find_prunable, map_tests
from providers.predicate import Between, Compare, Contains, In, Leaf, StartsWith
from providers.values import successor
from skipping.advise.sample import Sample
from skipping.indexing.sketch import Work, entry_schema
from skipping.lookup.translate import USELESS
from skipping.stores import IDENTITY

KEYS = (1, 10, 100)
"""Numbers of keys for which index types are measured."""

_DRAWS = {1: 48, 10: 24, 100: 12}
_RANGES = 24

_SEARCHED = 6
"""The length of a substring in characters; of a shorter value, all characters are used."""

_NETWORK = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}\.|[0-9a-fA-F]{1,4}:[0-9a-fA-F]{1,4}:")

_WIDTH = 0.1
"""The fraction of the sampled values in a range."""


@dataclass(frozen=True, slots=True)
class Draw:
    """Leaves joined by OR, and the rows (files) of the sample to look up.

    `keys` are the values in the leaves: one leaf has all of them, or each leaf has one. `sources`
    is the number of the table's files that the keys came from; 0 if all files are looked up.
    """

    leaves: tuple[Leaf, ...]
    keys: pa.Array
    rows: npt.NDArray[np.int64]
    sources: float

    def scale(self, kept: int, files: int) -> float:
        """Extrapolate a number of rows (files of the sample) to the files of the table."""
        return self.sources + kept * (files - self.sources) / len(self.rows)


def values(sample: Sample, files: int, k: int) -> Iterator[Draw]:
    """Draw predicates for `k` values, in a table with `files` files."""
    measured = sample.files
    rng = np.random.default_rng(k)
    with_values = np.flatnonzero(measured["distinct"].to_numpy() > 0)
    if not len(with_values):
        return
    keys = measured["keys"].combine_chunks()
    is_complete = len(measured) == files or len(measured) < 4
    for _ in range(_DRAWS[k]):
        looked_up, from_ = np.arange(len(measured)), with_values
        if not is_complete:
            # One half provides the keys, the other half is looked up.
            order = rng.permutation(len(measured))
            from_, looked_up = order[: len(measured) // 2], order[len(measured) // 2 :]
            from_ = from_[np.isin(from_, with_values)]
            if not len(from_):
                continue
        found = [keys[int(i)].values for i in rng.choice(from_, k)]
        picked = [v.slice(int(rng.integers(len(v))), 1) for v in found]
        sources = 0.0 if is_complete else files * (1 - (1 - 1 / files) ** k)
        one = In.of("", pa.concat_arrays(picked))
        alone = len(one.values) == 1
        leaf: Leaf = Compare("", "=", one.values[0].as_py()) if alone else one
        yield Draw((leaf,), one.values, looked_up, sources)


def substrings(draws: Sequence[Draw]) -> list[Draw]:
    """Draw the same predicates for a substring of each of their values."""
    rng = np.random.default_rng(0)
    return [replace(draw, leaves=tuple(_parts(draw.keys, rng))) for draw in draws]


def _parts(texts: pa.Array, rng: np.random.Generator) -> Iterator[Contains]:
    for text in texts.to_pylist():
        start = int(rng.integers(max(1, len(text) - _SEARCHED + 1)))
        yield Contains("", text[start : start + _SEARCHED])


def ranges(sample: Sample) -> list[Draw]:
    """Draw predicates for ranges of values."""
    found = sample.files["keys"].combine_chunks().flatten()
    if not len(found):
        return []
    ordered = found.take(pc.sort_indices(found))
    width = int(len(ordered) * _WIDTH)
    rng = np.random.default_rng(0)
    every = np.arange(len(sample.files))
    starts = rng.integers(len(ordered) - width, size=_RANGES)
    ends = [ordered.take(pa.array([at, at + width])) for at in map(int, starts)]
    return [Draw((Between("", *pair.to_pylist()),), pair, every, 0.0) for pair in ends]


def prefixes(sample: Sample) -> list[Draw]:
    """Draw predicates for prefixes of text values.

    Of an address in text, the prefix has the first two parts, as for a network; of another text, it
    has the first half of its characters.
    """
    found = sample.files["keys"].combine_chunks().flatten()
    if not len(found) or not pa.types.is_string(found.type):
        return []
    rng = np.random.default_rng(0)
    every = np.arange(len(sample.files))
    draws = []
    for text in found.take(pa.array(rng.integers(len(found), size=_RANGES))).to_pylist():
        address = _NETWORK.match(text)
        prefix = address[0] if address else text[: (len(text) + 1) // 2]
        end = successor(prefix)
        if prefix and end is not None:
            keys = pa.array([prefix, end], found.type)
            draws.append(Draw((StartsWith("", prefix),), keys, every, 0.0))
    return draws


def estimate_remaining(work: Work, draws: Sequence[Draw], seen: pa.Table, files: int) -> float:
    """Estimate how many files of the table the sketches keep, as an average over the draws."""
    sketches = sketches_of(work, seen)
    return mean(
        [
            estimate_remaining_by_tests(translate_leaves(work, draw.leaves), draw, sketches, files)
            for draw in draws
        ]
    )


def sketches_of(work: Work, seen: pa.Table) -> pa.Table:
    """Return the columns of a sample that contain the sketches of the work."""
    return seen.select(entry_schema([work]).names[len(IDENTITY) :]).combine_chunks()


def estimate_remaining_by_tests(
    tests: IndexPredicate | None, draw: Draw, sketches: pa.Table, files: int
) -> float:
    """Estimate how many files of the table the tests of one draw keep."""
    if tests is None:
        return float(files)
    gone = find_prunable(
        tests, lambda test: BitMap(np.flatnonzero(find_prunable_rows(test, sketches)))
    )
    return draw.scale(int((~np.isin(draw.rows, np.array(gone, np.int64))).sum()), files)


def translate_leaves(work: Work, leaves: Sequence[Leaf], *, of: str = "") -> IndexPredicate | None:
    """Translate leaves, joined by OR, to tests; None if one has no tests.

    The sketches' names get the prefix `of`.
    """
    provider, sketch = work.provider, f"{of}{work.indexed.sketch}"
    legs = [
        provider.rewrite(leaf) if provider.survival(leaf) <= USELESS else None for leaf in leaves
    ]
    answered = tuple(leg for leg in legs if leg is not None)
    if not answered or len(answered) < len(legs):
        return None
    return map_tests(AnyOf(answered), lambda test: replace(test, sketch=f"{sketch}{test.sketch}"))


def estimate_remaining_by_bounds(sample: Sample, draws: Sequence[Draw], files: int) -> float | None:
    """Estimate how many files the table's own bounds keep; None if the column has no bounds.

    Bounds may be truncated. Keys are truncated to the same length, so the comparison stays correct.
    """
    most = sample.work[0].column.bounded
    if most is None:
        return None
    lows, highs = (_truncate(sample.files[name], most) for name in ("low", "high"))

    def count_remaining(draw: Draw) -> float:
        keys = sorted(_truncate(draw.keys, most))
        if any(key != key for key in keys):  # NaN has no bounds
            return float(files)
        spans = isinstance(draw.leaves[0], (Between, StartsWith))

        def may_hold(row: int) -> bool:
            if lows[row] is None:
                return False
            if spans:
                return bool(keys[0] <= highs[row] and lows[row] <= keys[1])
            first = bisect_left(keys, lows[row])
            return first < len(keys) and bool(keys[first] <= highs[row])

        return draw.scale(sum(map(may_hold, draw.rows)), files)

    return mean([count_remaining(draw) for draw in draws])


def _truncate(values: pa.Array | pa.ChunkedArray, most: int) -> list[Any]:
    if pa.types.is_string(values.type):
        values = pc.utf8_slice_codeunits(values, 0, most)
    elif pa.types.is_binary(values.type):
        values = pc.binary_slice(values, 0, most)
    return list(values.to_pylist())


def mean(numbers: Sequence[float]) -> float:
    """Return the mean; 0 for no numbers."""
    return float(np.mean(numbers)) if numbers else 0.0
