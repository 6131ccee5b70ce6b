"""A few closed intervals that cover all values of a file: fields, collector and tests.

RANGES and ADDRESSES use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any as Anything
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from providers import bounds
from providers.base import BaseProvider, Field, Param
from providers.errors import DefinitionError
from providers.index_predicate import AnyOf, IndexPredicate
from providers.predicate import Compare as Comparison
from providers.predicate import IsNull, Leaf
from providers.values import Domain, common_prefix, successor, truncate

COUNT = 16
"""Default number of intervals of a file."""

MOST = 32
"""Maximum of intervals of a file: each is two fields of an entry and one test of every lookup."""

SPARE = 8
"""While it reads a file, a collector keeps this many times `n` intervals: a gap that is not among
the widest yet may be in the end, when values have filled the others.
"""

TELLING = 32
"""Bytes of a text or binary end that are stored after the common prefix of min and max."""

_Mask = npt.NDArray[np.bool_]
_Widths = npt.NDArray[np.float64] | npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class IntervalsProvider(BaseProvider):
    """Base class of index types that store up to `n` intervals."""

    takes: ClassVar[tuple[str, ...]] = ("n",)
    only_extremes: ClassVar[bool] = False
    most: ClassVar[int | None] = None
    domain: Domain
    n: int = COUNT

    @classmethod
    def count_of(cls, params: Mapping[str, Param]) -> int:
        """Return the parameter `n`; raises DefinitionError unless it is from 2 to MOST."""
        cls.refuse_others(params)
        n = params.get("n", COUNT)
        if isinstance(n, bool) or not isinstance(n, int) or not 2 <= n <= MOST:
            raise DefinitionError(
                f"{cls.kind} takes an n of 2 to {MOST} intervals, not {n!r}: "
                "MIN_MAX stores one, VALUE_LIST every value"
            )
        return n


def fields(stored: pa.DataType, n: int) -> tuple[Field, ...]:
    """Return `low0`, `high0`, `low1`, ... in ascending order; null if the file has no values.

    A file with fewer intervals repeats its last one, so that stores find a value in every field.
    """
    return tuple(Field(f"{end}{i}", stored) for i in range(n) for end in ("low", "high"))


def rewrite(leaf: Leaf, domain: Domain, n: int) -> IndexPredicate | None:
    """Return the tests of bounds for each interval, joined by OR.

    A matching row's value is in one of the intervals, so the tests of that interval hold.
    """
    rough = bounds.rewrite(leaf, domain)
    if rough is None:
        return None
    match leaf:
        case IsNull(_, False):
            return rough
        case IsNull() | Comparison(_, "<" | "<="):
            return bounds.rename(rough, "{}0".format)  # the interval with the min
        case Comparison(_, ">" | ">="):
            return bounds.rename(rough, f"{{}}{n - 1}".format)  # the interval with the max
    return AnyOf(tuple(bounds.rename(rough, f"{{}}{i}".format) for i in range(n)))


class IntervalsCollector:
    """Collects the values of a file as up to `n` closed intervals, cut at the widest gaps."""

    def __init__(self, domain: Domain, n: int) -> None:
        self._domain = domain
        self._n = n
        self._ends = pa.array([], domain.stored)
        # _ends is sorted; _inside[i]: an interval covers the values from _ends[i] to _ends[i + 1].
        self._inside: _Mask = np.zeros(0, np.bool_)
        self._is_bounded = True

    def add(self, distinct: pa.Array) -> None:
        """Add the values of a part, and join the closest intervals if there are too many."""
        points, lows, highs = _shorten(distinct)
        if highs.null_count:
            self._is_bounded = False
        if not len(distinct) or not self._is_bounded:
            return
        starts = pa.concat_arrays([self._ends[:-1].filter(pa.array(self._inside)), lows])
        stops = pa.concat_arrays([self._ends[1:].filter(pa.array(self._inside)), highs])
        self._ends = _in_order(pa.concat_arrays([self._ends, points, lows, highs]))
        depth = np.zeros(len(self._ends), np.int64)
        np.add.at(depth, _places(starts, self._ends), 1)
        np.add.at(depth, _places(stops, self._ends), -1)
        self._inside = np.cumsum(depth)[:-1] > 0
        self._join(SPARE * self._n)

    def _join(self, most: int) -> None:
        gaps = np.flatnonzero(~self._inside)
        if len(gaps) >= most:
            widths = _widths(self._ends, self._domain)[gaps]
            least = len(gaps) - (most - 1)
            gaps = np.sort(gaps[np.argpartition(widths, least)[least:]])
        kept = np.unique(np.concatenate([[0, len(self._ends) - 1], gaps, gaps + 1]))
        self._ends = self._ends.take(pa.array(kept))
        self._inside = ~np.isin(kept[:-1], gaps)

    def finish(self) -> Mapping[str, Anything] | None:
        """Return the fields' values; None if a cut end cannot be rounded up."""
        if not self._is_bounded:
            return None
        if not len(self._ends):
            return {}
        self._join(self._n)
        apart = pa.array(~self._inside)
        outer = pa.array([True])
        lows = self._ends.filter(pa.concat_arrays([outer, apart])).to_pylist()
        highs = self._ends.filter(pa.concat_arrays([apart, outer])).to_pylist()
        limit = min(common_prefix(lows[0], highs[-1]) + TELLING, bounds.LONGEST)
        ends: dict[str, Anything] = {}
        for i in range(self._n):
            at = min(i, len(lows) - 1)
            ends[f"low{i}"] = truncate(lows[at], limit)
            ends[f"high{i}"] = bounds.round_up(highs[at], limit)
            if ends[f"high{i}"] is None:
                return None
        return ends


def _shorten(values: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the short values, and the lower and upper ends of an interval around each long value.

    An upper end is null if no text or binary value of that length is above it.
    """
    none = values.slice(0, 0)
    if pa.types.is_integer(values.type):
        return values, none, none
    is_long = pc.greater(pc.binary_length(values), bounds.LONGEST)
    if not pc.any(is_long).as_py():
        return values, none, none
    lows = [truncate(value, bounds.LONGEST) for value in values.filter(is_long).to_pylist()]
    highs = [successor(low) for low in lows]
    short = values.filter(pc.invert(is_long))
    return short, pa.array(lows, values.type), pa.array(highs, values.type)


def _places(some: pa.Array, among: pa.Array) -> npt.NDArray[np.int64]:
    encoded = some.dictionary_encode()
    found = pc.index_in(among, value_set=encoded.dictionary)
    places = np.zeros(len(encoded.dictionary), np.int64)
    places[found.drop_null().to_numpy()] = np.flatnonzero(found.is_valid())
    repeated: npt.NDArray[np.int64] = places[encoded.indices.to_numpy()]
    return repeated


def _in_order(values: pa.Array) -> pa.Array:
    if pa.types.is_integer(values.type):
        numbers = np.sort(values.to_numpy())  # np.unique hashes first, which is slower
        return pa.array(numbers[np.append(True, numbers[1:] != numbers[:-1])], values.type)
    distinct = pc.unique(values)
    return distinct.take(pc.sort_indices(distinct))


def _widths(values: pa.Array, domain: Domain) -> _Widths:
    if domain.name == "float":
        bits = values.to_numpy()
        doubles = np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits).view(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            floats: _Widths = np.nan_to_num(np.diff(doubles), nan=np.inf, posinf=np.inf)
        return floats
    if pa.types.is_integer(values.type):
        apart: _Widths = np.diff(values.to_numpy().view(np.uint64))  # correct for all signs
        return apart
    start = common_prefix(values[0].as_py(), values[-1].as_py())
    above, below = (np.diff(_digits(values, at)) for at in (start, start + 8))
    # If the first eight bytes differ, the next ones hardly matter.
    return np.where(above > 0, above.astype(np.float64) * 2.0**64, below)


def _digits(values: pa.Array, start: int) -> npt.NDArray[np.uint64]:
    """Return eight bytes from `start` of each text or binary value as a number; 0 past its end."""
    _, offsets, data = values.buffers()
    edges = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    octets = np.append(np.frombuffer(data or b"", np.uint8), np.uint8(0))
    numbers = np.zeros(len(values), np.uint64)
    for at in range(start, start + 8):
        places = edges[:-1] + at
        digits = np.where(places < edges[1:], octets.take(places, mode="clip"), np.uint8(0))
        numbers = numbers << np.uint64(8) | digits.astype(np.uint64)
    return numbers
