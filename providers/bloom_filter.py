"""BLOOM_FILTER: a bloom filter of a file's values. Good if a file has many distinct values.

The filters have the serialised form of pybloom-live: `BloomFilter.fromfile` opens a stored filter,
and its `in` returns the same results for normalised values. This module sets bits in bulk, which
takes a quarter to a third of the time of pybloom-live's `add`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import calcsize, pack
from typing import Any as Anything
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from providers.base import BaseProvider, Column, Field, Layout, Param
from providers.bloom_hashes import Words, hashes, keys_of, word
from providers.errors import DefinitionError
from providers.index_predicate import BitsSet, FieldCompare, IndexPredicate
from providers.predicate import Compare as Comparison
from providers.predicate import In, IsNull, Leaf
from providers.values import Domain

FPP = 0.001
"""Default false-positive rate: the fraction of files without a key that it does not prune.

0.01 would save a third of the bytes, but a query opens a file for each false positive, and a join
has many keys.
"""

LEAST, MOST = 64, 1 << 22
"""Capacity of the smallest filter, and of the largest (7.5 MB with the default fpp)."""

CANDIDATES, FIXED = 10, 10_000
"""Flint's defaults: steps in which filters grow from 1,024 values, or a fixed capacity."""

MOST_KEYS = 10_000
"""Maximum of keys in a lookup; each file is tested for each key, so more cost more than they save.
"""

LARGEST = 1 << 27
"""Maximum of bytes of a file's distinct values in memory. A file with more is unknown."""

_HEADER = "<dQQQQ"  # pybloom's: fpp, slices, bits of a slice, capacity, count
_COUNT = 8 * calcsize("<dQQQ")  # the position of its first bit
_BLOCK = 1 << 16  # keys hashed at a time


@dataclass(frozen=True, slots=True)
class BloomFilter(BaseProvider):
    """A filter of the distinct values of one column, and the number of nulls.

    If `adaptive`, each file has the smallest filter for its values; the capacities are 64, 128,
    ..., `num_items`. If not, each filter has the capacity `num_items`. A file with more values is
    unknown: an overfull filter would silently exceed the false-positive rate.
    """

    kind: ClassVar[str] = "BLOOM_FILTER"
    takes: ClassVar[tuple[str, ...]] = ("fpp", "num_items", "num_candidates", "adaptive")
    only_extremes: ClassVar[bool] = False
    domain: Domain
    fpp: float = FPP
    num_items: int = 1024 << CANDIDATES - 1
    adaptive: bool = True

    @classmethod
    def signature(cls, given: Sequence[Param] = ()) -> tuple[str, ...]:
        """Return the names for `BLOOM_FILTER(fpp, num_items)` or for a form of Flint.

        Flint's forms are `(num_candidates, fpp)` and `(false, num_items, fpp)`. The type of the
        first value decides.
        """
        match given:
            case [bool(adaptive), *_]:
                return ("adaptive", "num_candidates" if adaptive else "num_items", "fpp")
            case [int(), *_]:
                return ("num_candidates", "fpp")
            case _:
                return ("fpp", "num_items")

    @classmethod
    def of(cls, columns: tuple[Column, ...], params: Mapping[str, Param]) -> BloomFilter:
        """Index one column; raise DefinitionError for wrong parameters.

        Also raises it if pybloom-live is not installed, or if its release hashes differently.
        """
        given = dict(params)
        if "num_candidate" in given:  # as in Flint's manual, not its code
            if "num_candidates" in given:
                raise DefinitionError(
                    "BLOOM_FILTER has both num_candidate and num_candidates: leave one out"
                )
            given["num_candidates"] = given.pop("num_candidate")
        cls.refuse_others(given)
        fpp, adaptive = given.get("fpp", FPP), given.get("adaptive", True)
        if isinstance(fpp, bool) or not isinstance(fpp, float) or not 1e-9 <= fpp < 0.5:
            raise DefinitionError(f"BLOOM_FILTER takes an fpp from 1e-9 to below 0.5, not {fpp!r}")
        if not isinstance(adaptive, bool):
            raise DefinitionError(f"BLOOM_FILTER takes adaptive = true or false, not {adaptive!r}")
        made = cls(columns[0].domain, fpp, _items(given, adaptive=adaptive), adaptive)
        _layout(made.ladder()[0], fpp)  # raises if pybloom-live is missing or different
        return made

    def ladder(self) -> tuple[int, ...]:
        """Return the possible capacities of a file's filter, in ascending order."""
        if not self.adaptive:
            return (self.num_items,)
        rungs = (LEAST << step for step in range((MOST // LEAST).bit_length()))
        return (*(rung for rung in rungs if rung < self.num_items), self.num_items)

    @property
    def most(self) -> int:
        """The `num_items`."""
        return self.num_items

    def fields(self) -> tuple[Field, ...]:
        """Return `filter` (bytes in pybloom-live's format), `layout` (its number) and `nulls`."""
        return (
            Field("filter", pa.binary(), Layout.BYTES),
            Field("layout", pa.int64()),
            Field("nulls", pa.int64()),
        )

    def collector(self) -> BloomFilterCollector:
        """Return a new collector, for one file; raises DefinitionError without pybloom-live."""
        _layout(self.ladder()[0], self.fpp)
        return BloomFilterCollector(self)

    def rewrite(self, leaf: Leaf) -> IndexPredicate | None:
        """Return a test for filters of all capacities: `=`, IN up to MOST_KEYS, and null tests."""
        match leaf:
            case Comparison(_, "=", value):
                return self._test_keys(pa.array([value], self.domain.stored))
            case In(_, keys, False) if len(keys) <= MOST_KEYS:
                return self._test_keys(keys)
            case IsNull(_, False):
                return FieldCompare("nulls", ">", 0)
            case IsNull(_, True):
                return self._any_value()
            case _:
                return None

    def survival(self, leaf: Leaf) -> float:
        """Return 1 - (1 - fpp)^k: one false positive among k keys is enough to read a file."""
        match leaf:
            case Comparison(_, "=", _):
                return self.fpp
            case In(_, keys, False):
                return float(1 - (1 - self.fpp) ** len(keys))
            case _:
                return 0.0

    def sharper(self, leaf: Leaf, most: float) -> str | None:
        """Return the largest power of ten as `fpp` for which `survival` is at most `most`."""
        if not isinstance(leaf, In) or not 0 < len(leaf.values) <= MOST_KEYS:
            return None
        exponent = math.floor(math.log10(1 - (1 - most) ** (1 / len(leaf.values))))
        return f"fpp => {10.0**exponent:.{-exponent}f}"

    def _any_value(self) -> BitsSet:
        """Return a test that a file has values: a bit of the count in the header is set."""
        bits = _COUNT + np.arange(self.num_items.bit_length(), dtype=np.int64)
        matrix = pa.FixedSizeListArray.from_arrays(pa.array(bits), 1)
        numbers = dict.fromkeys(_layout(rung, self.fpp).number for rung in self.ladder())
        return BitsSet("filter", "layout", tuple((number, matrix) for number in numbers))

    def _test_keys(self, keys: pa.Array) -> BitsSet:
        texts = keys_of(keys)
        words: dict[int, Words] = {}
        probes = []
        for capacity in self.ladder():
            layout = _layout(capacity, self.fpp)
            size = word(layout.width)
            if size not in words:
                words[size] = hashes(texts, slices=layout.slices, word=size)
            bits = layout.positions(words[size]) + 8 * calcsize(_HEADER)
            matrix = pa.FixedSizeListArray.from_arrays(pa.array(bits.ravel()), layout.slices)
            probes.append((layout.number, matrix))
        return BitsSet("filter", "layout", tuple(probes))


def _items(given: Mapping[str, Param], *, adaptive: bool) -> int:
    wrong = "num_candidates" if not adaptive else "num_items" if "num_candidates" in given else ""
    if wrong in given:
        other = "num_candidates" if adaptive else "adaptive = false"
        raise DefinitionError(f"BLOOM_FILTER does not take {wrong} together with {other}")
    for name, most in (("num_items", MOST), ("num_candidates", 64)):
        n = given.get(name, 1)
        if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= most:
            raise DefinitionError(f"BLOOM_FILTER takes a {name} from 1 to {most:,}, not {n!r}")
    if not adaptive:
        return int(given.get("num_items", FIXED))
    # There are no candidates above MOST: a file that needs one is unknown.
    candidates = int(given.get("num_candidates", CANDIDATES))
    return int(given.get("num_items", min(1024 << candidates - 1, MOST)))


class BloomFilterCollector:
    """Collects the distinct values until there are too many; `finish` chooses the filter."""

    def __init__(self, provider: BloomFilter) -> None:
        self._provider = provider
        self._parts: list[pa.Array] | None = [pa.array([], provider.domain.stored)]
        self._room = 2 * provider.num_items
        self._nulls = 0

    def add(self, distinct: pa.Array, nulls: int) -> None:
        """Add a part's values; drop all values once there are too many."""
        self._nulls += nulls
        if self._parts is None:
            return
        if len(distinct) > self._provider.num_items or distinct.nbytes > LARGEST:
            self._parts = None
            return
        self._parts.append(distinct)
        # Parts repeat values. As merges are rare, each is hashed at most twice on average.
        if sum(map(len, self._parts)) > self._room or _bytes(self._parts) > 2 * LARGEST:
            self._parts = self._merge()

    def _merge(self) -> list[pa.Array] | None:
        if self._parts is None:
            return None
        merged = pc.unique(pa.concat_arrays(self._parts))
        if len(merged) > self._provider.num_items or merged.nbytes > LARGEST:
            return None
        return [merged]

    def finish(self) -> Mapping[str, Anything] | None:
        """Return the filter, empty without values; None (unknown) if there were too many values."""
        self._parts = self._merge()
        if self._parts is None:
            return None
        (values,) = self._parts
        capacity = next(c for c in self._provider.ladder() if len(values) <= c)
        layout = _layout(capacity, self._provider.fpp)
        return {"filter": layout.fill(values), "layout": layout.number, "nulls": self._nulls}


def _bytes(parts: Sequence[pa.Array]) -> int:
    return sum(int(part.nbytes) for part in parts)


@dataclass(frozen=True, slots=True)
class _Layout:
    """The layout of a filter in pybloom-live: a slice of `width` bits for each hash."""

    capacity: int
    fpp: float
    slices: int
    width: int

    @property
    def number(self) -> int:
        """The id of the layout: one capacity can have several numbers of slices, as a logarithm may
        be rounded differently.
        """
        return self.slices << 32 | self.width

    def positions(self, words: Words) -> npt.NDArray[np.int64]:
        return (words % self.width).astype(np.int64) + np.arange(self.slices) * self.width

    def fill(self, values: pa.Array) -> bytes:
        bits = np.zeros(self.slices * self.width, np.bool_)
        for start in range(0, len(values), _BLOCK):
            keys = keys_of(values.slice(start, _BLOCK))
            words = hashes(keys, slices=self.slices, word=word(self.width))
            bits[self.positions(words).ravel()] = True
        head = pack(_HEADER, self.fpp, self.slices, self.width, self.capacity, len(values))
        return head + np.packbits(bits, bitorder="little").tobytes()


@lru_cache(maxsize=256)
def _layout(capacity: int, fpp: float) -> _Layout:
    """Return pybloom-live's layout for a capacity; raises DefinitionError if it cannot be used."""
    try:
        from pybloom_live import BloomFilter as Pybloom
    except ImportError as error:
        raise DefinitionError(
            "BLOOM_FILTER needs the package pybloom-live where the driver and the executors run: "
            "pip install 'lakehouse-file-skipping[bloom]'"
        ) from error
    model = Pybloom(capacity, fpp)
    layout = _Layout(capacity, fpp, model.num_slices, model.bits_per_slice)
    # Releases hash differently. Building with one and testing with another would lose rows.
    texts = ["", "a", "\u00e9\0"]
    words = hashes(keys_of(pa.array(texts)), slices=layout.slices, word=word(layout.width))
    if (words % layout.width).tolist() != [list(model.make_hashes(text)) for text in texts]:
        raise DefinitionError(
            "BLOOM_FILTER cannot use the installed release of pybloom-live, which hashes "
            "differently: pip install 'lakehouse-file-skipping[bloom]'"
        )
    return layout
