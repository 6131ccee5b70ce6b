"""NGRAM: a Bloom filter of the n-grams in a file's text, for `LIKE '%abc%'` and similar conditions.

A text that contains a literal contains every n-gram of it (n consecutive code points). So a file
whose filter lacks one of these n-grams has no matching value. The filter grows with the number of
distinct n-grams, up to a share of the text's bytes. From there on, its false-positive rate grows
instead. A literal with many n-grams stays selective even then, because all of them are tested.

With `fold`, the n-grams are those of the text in folded case (`providers.case_folding`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import ceil, exp, log, log2, prod
from typing import Any as Anything
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from providers.base import BaseProvider, Column, Field, Layout, Param
from providers.case_folding import CUT, UNASSIGNED, fold_case, fold_cases
from providers.errors import DefinitionError
from providers.index_predicate import AllOf, BitsSet, FieldCompare, IndexPredicate
from providers.predicate import Compare as Comparison
from providers.predicate import (
    Contains,
    ContainsAnyCase,
    EndsWith,
    In,
    IsNull,
    Leaf,
    StartsWith,
    StartsWithAny,
)

N, SHORTEST, LONGEST = 3, 2, 8
"""Code points of an n-gram: the default, and the limits."""

FPP = 0.01
"""Default false-positive rate of one n-gram, in a filter of full size."""

SHARE = 0.05
"""Default limit of a filter, as a share of the bytes of a file's distinct values."""

LEAST, FREE, MOST = 1 << 9, 1 << 13, 1 << 24
"""Bits of the smallest filter, of the largest that may exceed its share, and of the largest."""

USEFUL = 0.75
"""False-positive rate of one n-gram above which a filter is useless: the file is unknown."""

GRAMS = 1 << 22
"""Distinct n-grams of a file, 8 bytes each in memory. A file with more is unknown."""

ASKED = 32
"""Maximum of n-grams tested for a literal: with half of the bits set, one file in 2^32 passes."""

MOST_KEYS = 16
"""Maximum of keys in a lookup; each is a literal."""

_FEW = 2  # hashes in a filter that is too small for its fpp
_BLOCK = 1 << 20  # bytes of text, or n-grams, processed at a time

_Hashes: TypeAlias = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Ngram(BaseProvider):
    """A Bloom filter of the n-grams of one text column, its longest length and the null count."""

    kind: ClassVar[str] = "NGRAM"
    takes: ClassVar[tuple[str, ...]] = ("n", "fpp", "share", "fold")
    only_extremes: ClassVar[bool] = False
    most: ClassVar[int | None] = None
    n: int = N
    fpp: float = FPP
    share: float = SHARE
    fold: bool = False

    @classmethod
    def of(cls, columns: tuple[Column, ...], params: Mapping[str, Param]) -> Ngram:
        """Index one text column; raises DefinitionError for another type, or wrong parameters."""
        (column,) = columns
        cls.refuse_others(params)
        if column.domain.name != "string":
            raise DefinitionError(
                f"NGRAM requires a STRING column; {column.name} has values of type "
                f"{column.domain.name}: use MIN_MAX or VALUE_LIST"
            )
        n, fpp, share = (params.get(*given) for given in (("n", N), ("fpp", FPP), ("share", SHARE)))
        if isinstance(n, bool) or not isinstance(n, int) or not SHORTEST <= n <= LONGEST:
            raise DefinitionError(f"NGRAM takes an n from {SHORTEST} to {LONGEST}, not {n!r}")
        if isinstance(fpp, bool) or not isinstance(fpp, float) or not 1e-4 <= fpp < 0.5:
            raise DefinitionError(f"NGRAM takes an fpp from 1e-4 to below 0.5, not {fpp!r}")
        if isinstance(share, bool) or not isinstance(share, float) or not 0.001 <= share <= 0.5:
            raise DefinitionError(f"NGRAM takes a share from 0.001 to 0.5, not {share!r}")
        fold = params.get("fold", False)
        if not isinstance(fold, bool):
            raise DefinitionError(f"NGRAM takes fold = true or false, not {fold!r}")
        return cls(n, fpp, share, fold)

    def fields(self) -> tuple[Field, ...]:
        """Return `filter`, its `layout`, `longest` (code points; null: no values) and `nulls`."""
        return (
            Field("filter", pa.binary(), Layout.BYTES),
            Field("layout", pa.int64()),
            Field("longest", pa.int64()),
            Field("nulls", pa.int64()),
        )

    def collector(self) -> NgramCollector:
        """Return a new collector, for one file."""
        return NgramCollector(self)

    def rewrite(self, leaf: Leaf) -> IndexPredicate | None:
        """Return tests that a value is long enough for a literal, and that its n-grams are there.

        Negations have no test: other values of the file may lack the substring.
        """
        match leaf:
            case IsNull(_, False):
                return FieldCompare("nulls", ">", 0)
            case IsNull(_, True):
                return FieldCompare("longest", ">=", 0)
        literals = _literals(leaf)
        any_case = isinstance(leaf, ContainsAnyCase)
        if not 0 < len(literals) <= MOST_KEYS or (any_case and not self.fold):
            return None
        # The upper case of a text may be longer.
        long_enough = FieldCompare("longest", ">=", 0 if any_case else min(map(len, literals)))
        grams = list(map(self._grams_of, literals))
        if not all(map(len, grams)):
            return long_enough
        return AllOf((long_enough, self._test_literals(grams)))

    def survival(self, leaf: Leaf) -> float:
        """Return the chance that a literal passes by false positives: fpp^g if it has g n-grams."""
        if isinstance(leaf, ContainsAnyCase) and not self.fold:
            return 1.0
        grams = (len(self._grams_of(literal)) for literal in _literals(leaf))
        return float(1 - prod(1 - self.fpp**g for g in grams))

    def sharper(self, leaf: Leaf, most: float) -> str | None:
        """Return the parameter for conditions that ignore case."""
        return "fold => true" if isinstance(leaf, ContainsAnyCase) and not self.fold else None

    def _grams_of(self, literal: str) -> _Hashes:
        if not self.fold:
            return _grams_of(literal, self.n)[:ASKED]
        parts = fold_case(literal).replace(UNASSIGNED, CUT).split(CUT)
        return np.unique(np.concatenate([_grams_of(part, self.n) for part in parts]))[:ASKED]

    def _test_literals(self, literals: Sequence[_Hashes]) -> BitsSet:
        """Return a test with one key for each literal: the bits of its n-grams, padded."""
        size = max(map(len, literals))
        fill = np.stack([np.pad(grams, (0, size - len(grams)), "edge") for grams in literals])
        probes = []
        for layout in self.layouts():
            bits = layout.positions(_mix(fill.ravel())).reshape(len(literals), -1)
            keys = pa.FixedSizeListArray.from_arrays(pa.array(bits.ravel()), bits.shape[1])
            probes.append((layout.number, keys))
        return BitsSet("filter", "layout", tuple(probes))

    def layouts(self) -> tuple[_Layout, ...]:
        """Return the possible layouts: each size with few hashes, and with `hashes` of them."""
        sizes = [LEAST << step for step in range((MOST // LEAST).bit_length())]
        few = min(_FEW, self.hashes)
        return tuple(_Layout(bits, k) for bits in sizes for k in sorted({few, self.hashes}))

    @property
    def hashes(self) -> int:
        """How many bits an n-gram sets in a filter that is large enough for the `fpp`."""
        return max(1, round(log2(1 / self.fpp)))

    def layout(self, grams: int, text: int) -> _Layout | None:
        """Return the layout for `grams` n-grams of `text` bytes; None if it would be useless."""
        room = max(FREE, 8 * self.share * text)
        needs = max(1, ceil(grams * log(1 / self.fpp) / log(2) ** 2))
        bits = min(1 << (needs - 1).bit_length(), 1 << int(log2(room)), MOST)
        sized = (each for each in self.layouts() if each.bits == max(bits, LEAST))
        best = min(sized, key=lambda layout: layout.fpp(grams))
        return best if best.fpp(grams) <= USEFUL else None


def _literals(leaf: Leaf) -> list[str]:
    """Return literals; a matching value has one of them. Empty if the leaf requires no literal."""
    match leaf:
        case Comparison(_, "=", value):
            return [value]
        case In(_, keys, False) if len(keys) <= MOST_KEYS:
            return list(keys.to_pylist())
        case StartsWithAny(_, prefixes) if len(prefixes) <= MOST_KEYS:
            return list(prefixes.to_pylist())
        case StartsWith(_, literal, False) | EndsWith(_, literal, False):
            return [literal]
        case Contains(_, literal, False) | ContainsAnyCase(_, literal):
            return [literal]
    return []


@dataclass(frozen=True, slots=True)
class _Layout:
    bits: int
    hashes: int

    @property
    def number(self) -> int:
        return self.hashes << 32 | self.bits

    def positions(self, mixed: _Hashes) -> npt.NDArray[np.int64]:
        """Return the bits of each n-gram (a row): double hashing with the halves of its hash."""
        first, second = mixed & np.uint64(0xFFFFFFFF), mixed >> np.uint64(32) | np.uint64(1)
        steps = np.arange(self.hashes, dtype=np.uint64)
        found = first[:, None] + steps * second[:, None] & np.uint64(self.bits - 1)
        return found.astype(np.int64)

    def fill(self, mixed: _Hashes) -> bytes:
        bits = np.zeros(self.bits, np.bool_)
        for start in range(0, len(mixed), _BLOCK):
            bits[self.positions(mixed[start : start + _BLOCK]).ravel()] = True
        return np.packbits(bits, bitorder="little").tobytes()

    def fpp(self, grams: int) -> float:
        """Return the false-positive rate of one n-gram, in a filter of `grams` n-grams."""
        return float((1 - exp(-self.hashes * grams / self.bits)) ** self.hashes)


class NgramCollector:
    """Collects the distinct n-grams as 64-bit numbers, until there are too many."""

    def __init__(self, provider: Ngram) -> None:
        self._provider = provider
        self._grams: list[pa.Array] | None = [pa.array([], pa.uint64())]
        self._room = _BLOCK
        self._text = 0
        self._longest: int | None = None
        self._nulls = 0

    def add(self, distinct: pa.Array, nulls: int) -> None:
        """Add a part's values; drop all n-grams once there are too many."""
        self._nulls += nulls
        for values in _blocks(distinct):
            lengths = pc.utf8_length(values).to_numpy()
            self._longest = max(int(lengths.max()), self._longest or 0)
            self._text += int(pc.sum(pc.binary_length(values)).as_py())
            if self._grams is None:
                continue
            if self._provider.fold:
                values = fold_cases(values)
                if values is None:
                    self._grams = None
                    continue
                lengths = pc.utf8_length(values).to_numpy()
            sizes = lengths.astype(np.int64)
            for grams in _grams(values, sizes, self._provider.n, cut=self._provider.fold):
                self._grams.append(pc.unique(pa.array(grams)))
            if sum(map(len, self._grams)) > self._room:
                merged = self._merge(self._grams)
                self._room = 2 * len(merged) + _BLOCK
                self._grams = [merged] if len(merged) <= GRAMS else None

    @staticmethod
    def _merge(grams: Sequence[pa.Array]) -> pa.Array:
        return pc.unique(pa.concat_arrays(grams))

    def finish(self) -> Mapping[str, Anything] | None:
        """Return the filter; None (unknown) if there were too many n-grams for a useful one."""
        if self._grams is None:
            return None
        grams = self._merge(self._grams).to_numpy()
        layout = self._provider.layout(len(grams), self._text) if len(grams) <= GRAMS else None
        if layout is None:
            return None
        return {
            "filter": layout.fill(_mix(grams)),
            "layout": layout.number,
            "longest": self._longest,
            "nulls": self._nulls,
        }


def _blocks(values: pa.Array) -> Iterator[pa.Array]:
    """Yield slices of about _BLOCK bytes, or with one longer value."""
    if not len(values):
        return
    ends = np.cumsum(pc.binary_length(values).to_numpy(), dtype=np.int64)
    start = 0
    while start < len(values):
        before = ends[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + _BLOCK, "right")))
        yield values.slice(start, end - start)
        start = end


def _grams(
    values: pa.Array, lengths: npt.NDArray[np.int64], n: int, *, cut: bool
) -> Iterator[_Hashes]:
    """Yield the n-grams of values in parts; they may repeat. `cut`: leave out those with a CUT."""
    # Join all values, and leave out n-grams that begin in one value and end in another.
    joined = b"".join(values.cast(pa.binary()).to_numpy(zero_copy_only=False)).decode()
    points = np.frombuffer(joined.encode("utf-32-le"), "<u4")
    ends = np.cumsum(lengths)
    within = np.ones(len(points), np.bool_)
    for back in range(1, n):
        within[ends[lengths >= back] - back] = False
    cuts = np.flatnonzero(points == ord(CUT)) if cut else ends[:0]
    for back in range(n):
        within[np.maximum(cuts - back, 0)] = False
    for start in range(0, len(points) - n + 1, _BLOCK):
        found = _hash_runs(points[start : start + _BLOCK + n - 1], n)
        yield found[within[start : start + len(found)]]


def _grams_of(literal: str, n: int) -> _Hashes:
    """Return the distinct n-grams of a literal; empty if it is shorter than n."""
    points = np.frombuffer(literal.encode("utf-32-le"), "<u4")
    return np.unique(_hash_runs(points, n)) if len(points) >= n else np.zeros(0, np.uint64)


def _hash_runs(points: npt.NDArray[np.uint32], n: int) -> _Hashes:
    wide = points.astype(np.uint64)
    last = len(wide) - n + 1
    runs = [wide[at : at + last] for at in range(n)]
    return reduce(lambda number, run: number * np.uint64(0x9E3779B97F4A7C15) + run, runs)


def _mix(numbers: _Hashes) -> _Hashes:
    """Mix the bits of numbers: the last step of SplitMix64."""
    mixed = (numbers ^ numbers >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return mixed ^ mixed >> np.uint64(31)
