"""Questions to sketches, and why no answer can lose a row.

The rule. A file may be skipped only if it is *pruned*: proven to hold no row that satisfies the
query. Everything here answers "which files are pruned", never "which survive", so whatever goes
missing on the way (an entry, a page, a whole store) leaves files unproven, and they are read.

Tests. A `Test` is a question to one sketch of one file. A provider promises: if some row of the
file satisfies the leaf, the test holds. So, for a file whose sketch is *known*,

    find_prunable(test) = known and not holds(test)

A sketch that is not known (never built, over its cap, unreadable) prunes nothing. A column of
only nulls is known and has no values: no comparison holds for it, so it is pruned, as is due.

And, Or. Let D(p) be the set of files pruned for p. A row satisfying `a AND b` satisfies both, so
one proof is enough; a row satisfying `a OR b` satisfies one of them, so it takes both proofs:

    D(a AND b) = D(a) | D(b)            D(a OR b) = D(a) & D(b)

A leg nobody can answer has D = {}: And loses nothing by it, Or loses everything.

===============  ===============  ===================  ==================
a                b                a AND b skips        a OR b skips
===============  ===============  ===================  ==================
pruned        pruned        yes                  yes
pruned        not known        yes                  no
pruned        holds            yes                  no
not known        not known        no                   no
===============  ===============  ===================  ==================

Not. There is none, ever. D(NOT a) is not the complement of D(a): {1, 3} is pruned neither for
`x = 2` by its bounds (1 <= 2 <= 3) nor for `x != 2`, and calling it pruned for the second
because the first holds would lose rows. Negation is done on the predicate, before anything becomes
a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

import pyarrow as pa
from pyroaring import BitMap

from providers.predicate import Op
from providers.values import Value

__all__ = [
    "AllOf",
    "AlwaysFalse",
    "AnyOf",
    "BitsSet",
    "Contains",
    "ContainsOther",
    "ContainsRange",
    "FieldCompare",
    "IndexPredicate",
    "NotWithin",
    "Overlaps",
    "OverlapsRange",
    "Test",
    "find_prunable",
    "fold",
    "has_always_false",
    "map_tests",
    "tests",
]


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class FieldCompare:
    """SCALAR: the field is there and `field op value`."""

    field: str
    op: Op
    value: Value
    sketch: str = ""


@dataclass(frozen=True, slots=True)
class Overlaps:
    """SCALAR: the bounds are there and some key lies in [low, high]. Keys are sorted, distinct."""

    low: str
    high: str
    keys: pa.Array
    sketch: str = ""


@dataclass(frozen=True, slots=True)
class OverlapsRange:
    """SCALAR: the bounds are there and [low, high] has a value in common with some of the ranges
    from starts[i] to ends[i], which are sorted and disjoint; their own ends count as they say.
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
    """SCALAR: the bounds are there and [low, high] does not lie within one of the closed ranges
    [starts[i], ends[i]]. Ranges are sorted and disjoint. Without ranges: the bounds are there.
    """

    low: str
    high: str
    starts: pa.Array
    ends: pa.Array
    sketch: str = ""


@dataclass(frozen=True, slots=True)
class Contains:
    """TERMS: some term is one of the keys. Keys are sorted, distinct."""

    field: str
    keys: pa.Array
    sketch: str = ""


@dataclass(frozen=True, slots=True)
class ContainsOther:
    """TERMS: some term is none of the keys. Keys are sorted, distinct."""

    field: str
    keys: pa.Array
    sketch: str = ""


@dataclass(frozen=True, slots=True)
class ContainsRange:
    """TERMS: some term lies between low and high; a None bound is open, others as they say."""

    field: str
    low: Value | None = None
    high: Value | None = None
    includes_low: bool = True
    includes_high: bool = True
    sketch: str = ""


@dataclass(frozen=True, slots=True)
class BitsSet:
    """BYTES: for some key all of its bits are set, bit `p` being `bytes[p // 8] >> p % 8 & 1`.

    Which bits are a key's depends on how the file's bytes are laid out, which the SCALAR field
    `layout` says (int64). `probes` has for each layout the positions, a fixed-size list of int64 a
    key. It holds as well where the bytes are not there or too short, or of a layout that is not
    among these: such bytes prove nothing.
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
"""All that a store has to know. `sketch` names whose fields are meant; the framework sets it."""


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every leg holds. `All(())` holds for every file: nothing is pruned."""

    legs: tuple[IndexPredicate, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Some leg holds. Never empty; without a leg it would prune nothing, to be safe."""

    legs: tuple[IndexPredicate, ...]


@dataclass(frozen=True, slots=True)
class AlwaysFalse:
    """No row satisfies it, whatever a file holds: every file is pruned, known or not.

    What a condition that is never true becomes (`x IN ()`, `x NOT IN (1, NULL)`), not what an Any
    without legs does: that may have lost them.
    """


IndexPredicate: TypeAlias = AllOf | AnyOf | AlwaysFalse | Test


def fold(
    predicate: IndexPredicate,
    *,
    leaf: Callable[[AlwaysFalse | Test], _T],
    join: Callable[[AllOf | AnyOf, tuple[_T, ...]], _T],
) -> _T:
    """Rebuild from the tests up, without recursion: predicates are as deep as people nest them."""
    order: list[IndexPredicate] = []
    todo = [predicate]
    while todo:
        node = todo.pop()
        order.append(node)
        if isinstance(node, AllOf | AnyOf):
            todo.extend(node.legs)
    built: list[_T] = []  # in reversed order, legs stand before their node, left to right
    for node in reversed(order):
        if isinstance(node, AllOf | AnyOf):
            first = len(built) - len(node.legs)
            built[first:] = [join(node, tuple(built[first:]))]
        else:
            built.append(leaf(node))
    return built[0]


def tests(predicate: IndexPredicate) -> Iterable[Test]:
    """Every test, from left to right."""
    todo = [predicate]
    while todo:
        node = todo.pop()
        if isinstance(node, AllOf | AnyOf):
            todo.extend(reversed(node.legs))
        elif not isinstance(node, AlwaysFalse):
            yield node


def has_always_false(predicate: IndexPredicate) -> bool:
    """Whether something in it is AlwaysFalse, so that all files there are have to be known."""
    return fold(
        predicate, leaf=lambda test: isinstance(test, AlwaysFalse), join=lambda _, legs: any(legs)
    )


def map_tests(predicate: IndexPredicate, change: Callable[[Test], Test]) -> IndexPredicate:
    """The predicate with every test replaced by `change(test)`."""
    return fold(
        predicate,
        leaf=lambda test: test if isinstance(test, AlwaysFalse) else change(test),
        join=lambda node, legs: replace(node, legs=legs),
    )


def find_prunable(
    predicate: IndexPredicate, answer: Callable[[Test], BitMap], every: BitMap | None = None
) -> BitMap:
    """The files pruned for `predicate`, given those pruned for each of its tests.

    `every` are all files there are, which AlwaysFalse prunes; none where they are not given.
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
