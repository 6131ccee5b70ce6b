"""Questions that kinds are measured by, drawn from a sample of one column.

Keys are distinct values of some files, each file as likely as another, asked of *other* files
where only a part of the table was seen: of the files that hold a key there is one for sure, and
every other file is kept as often as the others that were seen. Substrings are parts of such keys. A
range goes from one of the sampled values to another, a tenth of them later.
"""

from __future__ import annotations

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
from providers.predicate import Between, Compare, Contains, In, Leaf
from skipping.advise.sample import Sample
from skipping.indexing.sketch import Work, entry_schema
from skipping.lookup.translate import USELESS
from skipping.stores import IDENTITY

__all__ = [
    "KEYS",
    "Draw",
    "ask",
    "estimate_remaining",
    "estimate_remaining_by_bounds",
    "estimate_remaining_by_tests",
    "mean",
    "ranges",
    "sketches_of",
    "substrings",
    "values",
]

KEYS = (1, 10, 100)
"""Keys of the questions that kinds are measured by."""

_DRAWS = {1: 48, 10: 24, 100: 12}
_RANGES = 24

_SEARCHED = 6
"""The length of a substring to search for, in characters, or that of the value if shorter."""

_WIDTH = 0.1
"""Of the sampled values, how many lie in a range."""


@dataclass(frozen=True, slots=True)
class Draw:
    """Leaves of which one has to hold, and which rows (files) of the sample to ask about.

    `keys` are the values in the leaves: one leaf has all, or each has one of its own. `sources` of
    the table's files have a key because it was taken from them; 0 where all are asked.
    """

    leaves: tuple[Leaf, ...]
    keys: pa.Array
    rows: npt.NDArray[np.int64]
    sources: float

    def scale(self, kept: int, files: int) -> float:
        """Extrapolate a number of kept rows (files of the sample) to the files of the table."""
        return self.sources + kept * (files - self.sources) / len(self.rows)


def values(sample: Sample, files: int, k: int) -> Iterator[Draw]:
    """Questions for `k` values, in a table of `files` files."""
    seen = sample.files
    rng = np.random.default_rng(k)
    held = np.flatnonzero(seen["distinct"].to_numpy() > 0)
    if not len(held):
        return
    keys = seen["keys"].combine_chunks()
    whole = len(seen) == files or len(seen) < 4
    for _ in range(_DRAWS[k]):
        asked, from_ = np.arange(len(seen)), held
        if not whole:
            # One half provides the keys, the other is searched for them.
            order = rng.permutation(len(seen))
            from_, asked = order[: len(seen) // 2], order[len(seen) // 2 :]
            from_ = from_[np.isin(from_, held)]
            if not len(from_):
                continue
        found = [keys[int(i)].values for i in rng.choice(from_, k)]
        picked = [v.slice(int(rng.integers(len(v))), 1) for v in found]
        sources = 0.0 if whole else files * (1 - (1 - 1 / files) ** k)
        one = In.of("", pa.concat_arrays(picked))
        alone = len(one.values) == 1
        leaf: Leaf = Compare("", "=", one.values[0].as_py()) if alone else one
        yield Draw((leaf,), one.values, asked, sources)


def substrings(draws: Sequence[Draw]) -> list[Draw]:
    """The same questions for a part of each of their values, which are texts."""
    rng = np.random.default_rng(0)
    return [replace(draw, leaves=tuple(_parts(draw.keys, rng))) for draw in draws]


def _parts(texts: pa.Array, rng: np.random.Generator) -> Iterator[Contains]:
    for text in texts.to_pylist():
        start = int(rng.integers(max(1, len(text) - _SEARCHED + 1)))
        yield Contains("", text[start : start + _SEARCHED])


def ranges(sample: Sample) -> list[Draw]:
    """Questions for all values between two."""
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


def estimate_remaining(work: Work, draws: Sequence[Draw], seen: pa.Table, files: int) -> float:
    """Estimate how many files of the table the sketches keep, as an average over the draws."""
    sketches = sketches_of(work, seen)
    return mean(
        [
            estimate_remaining_by_tests(ask(work, draw.leaves), draw, sketches, files)
            for draw in draws
        ]
    )


def sketches_of(work: Work, seen: pa.Table) -> pa.Table:
    """The columns of a sample that are the work's."""
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


def ask(work: Work, leaves: Sequence[Leaf], *, of: str = "") -> IndexPredicate | None:
    """What a kind is asked where one of the leaves has to hold; None if it has no opinion.

    The sketches' names begin with `of`.
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
    """Files that the table's own bounds keep: cut alike, keys compare with bounds as cut ones.

    None where the table keeps no bounds of the column.
    """
    most = sample.work[0].column.bounded
    if most is None:
        return None
    lows, highs = (_truncate(sample.files[name], most) for name in ("low", "high"))

    def count_remaining(draw: Draw) -> float:
        keys = sorted(_truncate(draw.keys, most))
        if any(key != key for key in keys):  # NaN has no bounds
            return float(files)
        spans = isinstance(draw.leaves[0], Between)

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
    """Their mean; 0 of none."""
    return float(np.mean(numbers)) if numbers else 0.0
