"""Tests of sketches, and why pruning by them never loses a row.

The rule. A file may be skipped only if it is *pruned*: proven to hold no row that satisfies the
query. Everything here returns "which files are pruned", never "which survive". So if anything is
missing (an entry, a page, a whole store), files are not proven, and they are read.

Tests. A `Test` evaluates one sketch of one file. An index type guarantees: if some row of the file
satisfies the leaf, the test holds. So, for a file whose sketch is *known*,

    find_prunable(test) = known and not holds(test)

A sketch that is not known (never built, over its limit, unreadable) prunes nothing. A column of
only nulls is known and has no values: no comparison holds, so it is pruned, correctly.

And, Or. Let D(p) be the set of files pruned for p. A row satisfying `a AND b` satisfies both, so
one proof is enough; a row satisfying `a OR b` satisfies one of them, so it takes both proofs:

    D(a AND b) = D(a) | D(b)            D(a OR b) = D(a) & D(b)

An operand that no index type supports has D = {}: an And ignores it, an Or prunes nothing.

=========  =========  =============  ============
a          b          a AND b skips  a OR b skips
=========  =========  =============  ============
pruned     pruned     yes            yes
pruned     not known  yes            no
pruned     holds      yes            no
not known  not known  no             no
=========  =========  =============  ============

Not. It has no rule. D(NOT a) is not the complement of D(a): {1, 3} is pruned neither for
`x = 2` by its bounds (1 <= 2 <= 3) nor for `x != 2`, and calling it pruned for the second
because the first holds would lose rows. The predicate is negated before leaves become tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa
from pyroaring import BitMap

from providers.predicate import Joined, Op, fold, walk
from providers.values import Value


@dataclass(frozen=True, slots=True)
class FieldCompare:
    """SCALAR: the field is not null and `field op value`."""

    field: str
    op: Op
    value: Value
    sketch: str = ""


@dataclass(frozen=True, slots=True)
class Overlaps:
    """SCALAR: the bounds are not null and a key is in [low, high]. Keys are sorted, distinct."""

    low: str
    high: str
    keys: pa.Array
    sketch: str = ""


@dataclass(frozen=True, slots=True)
class OverlapsRange:
    """SCALAR: the bounds are not null and [low, high] overlaps one of the ranges from starts[i] to
    ends[i]. Ranges are sorted and disjoint; flags say whether they include their ends.
    """

    low: str
    high: str
    starts: pa.Array
    ends: pa.Array
    includes_low: bool = True
    includes_high: bool = True
    sketch: str = ""


@dataclass(frozen=True, slots=True)
class NotWithin:
    """SCALAR: the bounds are not null and [low, high] is not within one of the closed ranges
    [starts[i], ends[i]]. Ranges are sorted and disjoint. Without ranges: the bounds are not null.
    """

    low: str
    high: str
    starts: pa.Array
    ends: pa.Array
    sketch: str = ""


@dataclass(frozen=True, slots=True)
class Contains:
    """TERMS: a term is one of the keys. Keys are sorted, distinct."""

    field: str
    keys: pa.Array
    sketch: str = ""


@dataclass(frozen=True, slots=True)
class ContainsOther:
    """TERMS: a term is not one of the keys. Keys are sorted, distinct."""

    field: str
    keys: pa.Array
    sketch: str = ""


@dataclass(frozen=True, slots=True)
class ContainsRange:
    """TERMS: a term is between low and high. The flags include the bounds; None means no bound."""

    field: str
    low: Value | None = None
    high: Value | None = None
    includes_low: bool = True
    includes_high: bool = True
    sketch: str = ""


@dataclass(frozen=True, slots=True)
class BitsSet:
    """BYTES: all bits of some key are set; bit `p` is `bytes[p // 8] >> p % 8 & 1`.

    The bits of a key depend on the layout of the file's bytes, in the SCALAR field `layout`
    (int64). `probes` has the positions for each layout, a fixed-size list of int64 for each key.
    The test holds, too, if the bytes are null or too short, or their layout is not among the
    probes: such bytes prove nothing.
    """

    field: str
    layout: str
    probes: tuple[tuple[int, pa.FixedSizeListArray], ...]
    sketch: str = ""


Test: TypeAlias = (
    FieldCompare
    | Overlaps
    | OverlapsRange
    | NotWithin
    | Contains
    | ContainsOther
    | ContainsRange
    | BitsSet
)
"""A test that a store evaluates. The framework sets `sketch`, the sketch that has the fields."""


@dataclass(frozen=True, slots=True)
class AllOf(Joined):
    """Every operand holds. `AllOf(())` holds for every file: nothing is pruned."""

    legs: tuple[IndexPredicate, ...]


@dataclass(frozen=True, slots=True)
class AnyOf(Joined):
    """Some operand holds. It is never empty; if it were, it would prune nothing, to be safe."""

    legs: tuple[IndexPredicate, ...]


@dataclass(frozen=True, slots=True)
class AlwaysFalse:
    """No row satisfies it: every file is pruned, known or not.

    Conditions that are never true (`x IN ()`, `x NOT IN (1, NULL)`) become this. An AnyOf without
    operands does not, because it may have lost them.
    """


IndexPredicate: TypeAlias = AllOf | AnyOf | AlwaysFalse | Test


def tests(predicate: IndexPredicate) -> Iterable[Test]:
    """Return every test, from left to right."""
    return (test for test in walk(predicate) if not isinstance(test, AlwaysFalse))


def has_always_false(predicate: IndexPredicate) -> bool:
    """Return whether a part is AlwaysFalse, which needs the list of all files."""
    return any(isinstance(test, AlwaysFalse) for test in walk(predicate))


def map_tests(predicate: IndexPredicate, change: Callable[[Test], Test]) -> IndexPredicate:
    """Replace every test by `change(test)`."""
    mapped: IndexPredicate = fold(
        predicate,
        leaf=lambda test: test if isinstance(test, AlwaysFalse) else change(test),
        join=lambda node, legs: replace(node, legs=legs),
    )
    return mapped


def find_prunable(
    predicate: IndexPredicate, answer: Callable[[Test], BitMap], every: BitMap | None = None
) -> BitMap:
    """Return the files pruned for `predicate`; `answer` returns the files pruned for a test.

    AlwaysFalse prunes `every` file, or none if `every` is None.
    """

    def join(node: AllOf | AnyOf, legs: tuple[BitMap, ...]) -> BitMap:
        if isinstance(node, AllOf) or not legs:
            return BitMap().union(*legs)
        return BitMap.intersection(*legs)

    def leaf(test: AlwaysFalse | Test) -> BitMap:
        if isinstance(test, AlwaysFalse):
            return BitMap() if every is None else every
        return answer(test)

    return fold(predicate, leaf=leaf, join=join)
