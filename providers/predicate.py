"""What a query asks of its rows: And and Or over leaves, each about one column.

There is no Not. A negation goes to the leaves at once (`negate`), before anything is widened:
weakening `LIKE 'x%y'` to "starts with x" is sound, negating the weakened leaf is not.

A predicate keeps the rows for which it is *true*, as a SQL filter does; false and null rows fall.
That is why `negate` may turn `a = 5` into `a != 5`: a null `a` satisfies neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "And",
    "Compare",
    "In",
    "IsNull",
    "Leaf",
    "Op",
    "Or",
    "Predicate",
    "StartsWith",
    "Unknown",
    "leaves",
    "map_leaves",
    "negate",
    "simplify",
]

Op: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">="]
_OPPOSITE: dict[Op, Op] = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


@dataclass(frozen=True, slots=True)
class Compare:
    """`column op value`; the value is not null."""

    column: str
    op: Op
    value: Any


@dataclass(frozen=True, slots=True)
class In:
    """`column [NOT] IN values`; the values are one sorted, distinct, null-free Arrow array."""

    column: str
    values: pa.Array
    negated: bool = False

    @classmethod
    def of(cls, column: str, values: pa.Array) -> In:
        """An `In` from values in any order, with duplicates and nulls.

        Dropping nulls is right for `IN` (`a IN (1, NULL)` is true exactly where `a = 1` is) and
        wrong for `NOT IN` (never true), so whoever negates has to look for nulls first.
        """
        distinct = pc.unique(values.drop_null())
        return cls(column, distinct.take(pc.sort_indices(distinct)))


@dataclass(frozen=True, slots=True)
class IsNull:
    """`column IS [NOT] NULL`."""

    column: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class StartsWith:
    """`column [NOT] LIKE 'prefix%'`, the prefix taken literally."""

    column: str
    prefix: Any
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """A condition that no index can say anything about, and why."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class And:
    """True where every leg is. `And(())` is true for all rows."""

    legs: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """True where some leg is."""

    legs: tuple[Predicate, ...]


Leaf: TypeAlias = Compare | In | IsNull | StartsWith
Predicate: TypeAlias = And | Or | Leaf | Unknown


def negate(predicate: Predicate) -> Predicate:
    """The predicate that is true exactly where `predicate` is false (not where it is null)."""
    match predicate:
        case And(legs):
            return Or(tuple(map(negate, legs)))
        case Or(legs):
            return And(tuple(map(negate, legs)))
        case Compare(op=op):
            return replace(predicate, op=_OPPOSITE[op])
        case Unknown():
            return predicate
        case _:
            return replace(predicate, negated=not predicate.negated)


def map_leaves(predicate: Predicate, change: Callable[[Leaf], Predicate]) -> Predicate:
    """The predicate with every leaf replaced by `change(leaf)`."""
    match predicate:
        case And(legs):
            return And(tuple(map_leaves(leg, change) for leg in legs))
        case Or(legs):
            return Or(tuple(map_leaves(leg, change) for leg in legs))
        case Unknown():
            return predicate
        case _:
            return change(predicate)


def leaves(predicate: Predicate) -> Iterable[Leaf]:
    """Every leaf, from left to right."""
    match predicate:
        case And(legs) | Or(legs):
            for leg in legs:
                yield from leaves(leg)
        case Unknown():
            return
        case _:
            yield predicate


def simplify(predicate: Predicate) -> Predicate:
    """An equivalent or weaker predicate without nesting of like in like.

    Equalities of one column under an Or become one `In`, so that two thousand legs are one
    question. An Or with an unknown leg is unknown as a whole; an And only loses that leg.
    """
    match predicate:
        case And(legs):
            kept = [leg for leg in _flat(And, legs) if not isinstance(leg, Unknown)]
            return kept[0] if len(kept) == 1 else And(tuple(kept))
        case Or(legs):
            flat = _flat(Or, legs)
            for leg in flat:
                if isinstance(leg, Unknown) or leg == And(()):
                    return leg if isinstance(leg, Unknown) else Unknown("a leg that is always true")
            merged = _merge_equalities(flat)
            return merged[0] if len(merged) == 1 else Or(tuple(merged))
        case _:
            return predicate


def _flat(kind: type[And] | type[Or], legs: tuple[Predicate, ...]) -> list[Predicate]:
    flat: list[Predicate] = []
    for leg in map(simplify, legs):
        if isinstance(leg, kind):
            flat.extend(leg.legs)
        else:
            flat.append(leg)
    return flat


def _merge_equalities(legs: list[Predicate]) -> list[Predicate]:
    rest: list[Predicate] = []
    keys: dict[str, list[pa.Array]] = {}
    for leg in legs:
        match leg:
            case Compare(column, "=", value):
                keys.setdefault(column, []).append(pa.array([value]))
            case In(column, values, False):
                keys.setdefault(column, []).append(values)
            case _:
                rest.append(leg)
    merged: list[Predicate] = [In.of(c, pa.concat_arrays(arrays)) for c, arrays in keys.items()]
    return merged + rest
