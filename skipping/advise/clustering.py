"""Measure how well a table is clustered by a column.

The *range* of a file goes from its minimum to its maximum. Two files *overlap* if their ranges
share a value. The *depth* at a file is the largest number of files, itself included, whose ranges
share one value in its range. If the depth is 1 everywhere, the column is perfectly clustered: each
value is in at most one range. A *constant* file has one value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Clustering:
    """Averages over the files with a value; `constant` counts the files with exactly one."""

    files: int
    constant: int
    overlaps: float
    depth: float

    def scale(self, files: int) -> Clustering:
        """Extrapolate the averages from this random sample to a table with `files` files."""
        if self.files < 2 or files <= self.files:
            return self
        more = (files - 1) / (self.files - 1)
        constant = round(self.constant * files / self.files)
        return Clustering(files, constant, self.overlaps * more, 1 + (self.depth - 1) * more)


def clustering(lows: pa.Array, highs: pa.Array) -> Clustering:
    """Measure ranges given by normalised bounds; files without values (null) are left out.

    >>> clustering(pa.array([1, 2, 9]), pa.array([4, 3, 9]))
    Clustering(files=3, constant=1, overlaps=0.6666666666666666, depth=1.6666666666666667)
    """
    valid = lows.is_valid()
    lows, highs = lows.filter(valid), highs.filter(valid)
    files = len(lows)
    if not files:
        return Clustering(0, 0, 0.0, 0.0)
    # Ranks make text and numbers one case.
    ranks = pc.rank(pa.concat_arrays([lows, highs]), tiebreaker="dense").to_numpy().astype(int) - 1
    first, last = ranks[:files], ranks[files:]
    starts, ends = np.sort(first), np.sort(last)
    apart = files - np.searchsorted(starts, last, "right") + np.searchsorted(ends, first, "left")
    ranges = np.bincount(first, minlength=ranks.max() + 2) - np.bincount(
        last + 1, minlength=ranks.max() + 2
    )
    depths = _max_of_each_range(np.cumsum(ranges), first, last)
    constant = int((first == last).sum())
    return Clustering(files, constant, float((files - 1 - apart).mean()), float(depths.mean()))


def _max_of_each_range(values: _Numbers, first: _Numbers, last: _Numbers) -> _Numbers:
    """Return the max of `values[first[i] : last[i] + 1]` for each i, with a sparse table."""
    levels = [values]
    while 2 << len(levels) - 1 <= len(values):
        below, step = levels[-1], 1 << len(levels) - 1
        levels.append(np.maximum(below[:-step], below[step:]))
    out = np.zeros(len(first), np.int64)
    height = np.floor(np.log2(last - first + 1)).astype(int)
    for n, level in enumerate(levels):
        rows = np.flatnonzero(height == n)
        out[rows] = np.maximum(level[first[rows]], level[last[rows] - (1 << n) + 1])
    return out


class SortedLayout:
    """Estimate, from sampled rows, the table sorted by the column into `files` equal files.

    Each sampled row represents `weights` rows of the table.

    >>> SortedLayout(pa.array([1, 1, 1, 2]), np.ones(4), files=8).count_files(pa.array([1]))
    6
    """

    def __init__(self, rows: pa.Array, weights: npt.NDArray[np.float64], *, files: int) -> None:
        self._files = files
        order = pc.sort_indices(rows)
        runs = pc.run_end_encode(rows.take(order))
        ends = np.cumsum(weights[order.to_numpy()], dtype=float)
        ends *= files / (ends[-1] if len(ends) else 1)
        self._values = runs.values
        # The end of each value's rows, counted in files; they begin where those before end.
        self._ends = np.append(0.0, ends[np.asarray(runs.run_ends.to_numpy(), np.int64) - 1])

    def count_files(self, keys: pa.Array) -> int:
        """Return how many files contain one of the keys; a key not in the sample counts as one."""
        at = pc.index_in(keys, value_set=self._values)
        found = at.drop_null().to_numpy()
        marks = np.zeros(self._files, np.bool_)
        for begin, end in zip(self._ends[found], self._ends[found + 1], strict=True):
            low = min(int(begin + 1e-9), self._files - 1)
            marks[low : max(low + 1, int(np.ceil(end - 1e-9)))] = True
        return min(self._files, int(marks.sum()) + int(at.null_count))
