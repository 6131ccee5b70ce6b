"""The condition of a query: And and Or over leaves, each about one column.

There is no Not. A negation is moved to the leaves (`negate`) before any leaf is weakened: weakening
`LIKE 'x%y'` to "starts with x" is sound, negating the weakened leaf is not.

A predicate selects the rows for which it is *true*, as a SQL filter does, not false or null ones.
That is why `negate` may turn `a = 5` into `a != 5`: a null `a` satisfies neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from providers.values import Domain

_T = TypeVar("_T")
Op: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">="]

OPPOSITE: dict[Op, Op] = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
"""The negation of each operator, for values that are ordered and not null."""

FLIPPED: dict[Op, Op] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The comparison with its sides exchanged."""


@dataclass(frozen=True, slots=True)
class Compare:
    """`column op value`; the value is not null.

    `source` names the join that collected the value, for reports only.
    """

    column: str
    op: Op
    value: Any
    source: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Between:
    """`low <= column <= high`, or `<` if a bound is not included; made by `simplify`.

    It is stronger than its two comparisons: a file with the values 1 and 9 has one above 4 and one
    below 6, and none between them.
    """

    column: str
    low: Any
    high: Any
    includes_low: bool = True
    includes_high: bool = True
    source: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Within:
    """`column` is within one of several ranges: an Or of `Between`, made by `simplify`.

    Starts and ends are Arrow arrays without nulls. The ranges are sorted; they share no value and
    no included end.
    """

    column: str
    starts: pa.Array
    ends: pa.Array
    includes_low: bool = True
    includes_high: bool = True
    source: str = field(default="", compare=False)

    def legs(self) -> Iterator[Between]:
        """Return each range as a leaf."""
        sides = self.includes_low, self.includes_high
        for start, end in zip(self.starts.to_pylist(), self.ends.to_pylist(), strict=True):
            yield Between(self.column, start, end, *sides, source=self.source)


@dataclass(frozen=True, slots=True)
class In:
    """`column [NOT] IN values`; the values are one sorted, distinct, null-free Arrow array.

    `NOT IN ()` is true for every row, even if the column is null (Spark 4). `source` as in
    `Compare`.
    """

    column: str
    values: pa.Array
    negated: bool = False
    source: str = field(default="", compare=False)

    @classmethod
    def of(cls, column: str, values: pa.Array) -> In:
        """Create an `In` from values in any order, with duplicates and nulls.

        Dropping nulls is right for `IN`: `a IN (1, NULL)` is true exactly where `a = 1` is. The
        negation becomes weaker (`a != 1`, where SQL's is never true), which loses no row.
        """
        values = values.drop_null()
        if pa.types.is_integer(values.type):
            # A million keys of a join take 11 ms, in Arrow 260.
            numbers = np.sort(values.to_numpy())
            repeats = numbers[1:] == numbers[:-1]
            if repeats.any():
                numbers = numbers[np.append(True, ~repeats)]
            return cls(column, pa.array(numbers, values.type))
        distinct = pc.unique(values)
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
class StartsWithAny:
    """`column LIKE ANY ('a%', 'b%')`: an Or of `StartsWith`, made by `simplify`.

    The prefixes are one sorted Arrow array; none begins with another.
    """

    column: str
    prefixes: pa.Array

    def legs(self) -> Iterator[StartsWith]:
        """Return each prefix as a leaf."""
        return (StartsWith(self.column, prefix) for prefix in self.prefixes.to_pylist())


@dataclass(frozen=True, slots=True)
class EndsWith:
    """`column [NOT] LIKE '%suffix'`, the suffix taken literally."""

    column: str
    suffix: Any
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Contains:
    """`column [NOT] LIKE '%substring%'`, the substring taken literally."""

    column: str
    substring: Any
    negated: bool = False


@dataclass(frozen=True, slots=True)
class ContainsAnyCase:
    """`lower(column)` or `upper(column)`, of any engine, contains the substring.

    It implies too little to be negated, and no row can be tested for it.
    """

    column: str
    substring: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """A condition that no index type supports, and the reason."""

    reason: str = ""


class Joined:
    """A node over operands."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class And(Joined):
    """True where every operand is. `And(())` is true for all rows."""

    legs: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or(Joined):
    """True where some operand is. `Or(())` is true for no row."""

    legs: tuple[Predicate, ...]


Leaf: TypeAlias = (
    Compare
    | Between
    | Within
    | In
    | IsNull
    | StartsWith
    | StartsWithAny
    | EndsWith
    | Contains
    | ContainsAnyCase
)
Predicate: TypeAlias = And | Or | Leaf | Unknown


def negate(predicate: Predicate) -> Predicate:
    """Return the predicate that is true exactly where `predicate` is false (not null)."""
    return fold(
        predicate,
        leaf=_negate_leaf,
        join=lambda node, legs: Or(legs) if isinstance(node, And) else And(legs),
    )


def _negate_leaf(leaf: Leaf | Unknown) -> Predicate:
    match leaf:
        case Compare(op=op):
            return replace(leaf, op=OPPOSITE[op])
        case Between(column, low, high, includes_low, includes_high):
            below = Compare(column, "<" if includes_low else "<=", low)
            return Or((below, Compare(column, ">" if includes_high else ">=", high)))
        case Within() | StartsWithAny():
            return And(tuple(map(_negate_leaf, leaf.legs())))
        case Unknown():
            return leaf
        case ContainsAnyCase():
            return Unknown("NOT ILIKE")
        case _:
            return replace(leaf, negated=not leaf.negated)


def map_leaves(predicate: Predicate, change: Callable[[Leaf], Predicate]) -> Predicate:
    """Replace every leaf by `change(leaf)`."""
    mapped: Predicate = fold(
        predicate,
        leaf=lambda leaf: leaf if isinstance(leaf, Unknown) else change(leaf),
        join=lambda node, legs: replace(node, legs=legs),
    )
    return mapped


def leaves(predicate: Predicate) -> Iterable[Leaf]:
    """Return every leaf, from left to right."""
    return (leaf for leaf in walk(predicate) if not isinstance(leaf, Unknown))


def fits(leaf: Leaf, domain: Domain) -> bool:
    """Return whether the values of a leaf are normalised values of a domain.

    Index types only get leaves that fit. Arrow would turn 1.5 into the integer 1, so that `x < 1.5`
    would lose the 1, and a store may compare text with numbers in its own way.

    >>> from providers.values import domain_of
    >>> integers = domain_of(pa.int32())
    >>> fits(Compare("x", "<", 1), integers), fits(Compare("x", "<", 1.5), integers)
    (True, False)
    """
    match leaf:
        case Compare(value=value):
            return _is_value(value, domain)
        case Between(low=low, high=high):
            return _is_value(low, domain) and _is_value(high, domain)
        case In(values=values):
            return bool(values.type == domain.stored and not values.null_count)
        case Within(_, starts, ends):
            return bool(starts.type == ends.type == domain.stored)
        case StartsWithAny(_, prefixes):
            return domain.name in ("string", "binary") and bool(prefixes.type == domain.stored)
        case StartsWith(_, literal) | EndsWith(_, literal) | Contains(_, literal):
            return domain.name in ("string", "binary") and _is_value(literal, domain)
        case ContainsAnyCase(_, literal):
            return domain.name == "string" and _is_value(literal, domain)
        case IsNull():
            return True


def label(leaf: Leaf, column: str) -> str:
    """Return a leaf as text, without its values, which are data."""
    match leaf:
        case Compare(_, op, _, source):
            return f"{column} {op} ?{_of_source(source)}"
        case Between(source=source):
            return f"{column} BETWEEN ? AND ?{_of_source(source)}"
        case In(_, values, negated, source):
            keys, origin = "key" if len(values) == 1 else "keys", _of_source(source)
            return f"{column} {'NOT ' if negated else ''}IN ({len(values):,} {keys}{origin})"
        case Within(_, starts, source=source):
            return f"{column} IN ({len(starts):,} ranges{_of_source(source)})"
        case StartsWithAny(_, prefixes):
            return f"{column} LIKE ANY ({len(prefixes):,} prefixes)"
        case IsNull(_, negated):
            return f"{column} IS {'NOT ' if negated else ''}NULL"
        case ContainsAnyCase():
            return f"{column} ILIKE '%?%'"
        case _:
            before, after = wildcards(leaf)
            return f"{column} {'NOT ' if leaf.negated else ''}LIKE '{before}?{after}'"


def wildcards(leaf: StartsWith | EndsWith | Contains) -> tuple[str, str]:
    """Return the wildcards before and after the literal in the pattern of LIKE."""
    return "" if isinstance(leaf, StartsWith) else "%", "" if isinstance(leaf, EndsWith) else "%"


def _of_source(source: str) -> str:
    return f" of {source}" if source else ""


def _is_value(value: object, domain: Domain) -> bool:
    if type(value) is not {pa.int64(): int, pa.string(): str, pa.binary(): bytes}[domain.stored]:
        return False
    try:
        pa.scalar(value, domain.stored)
    except (OverflowError, UnicodeEncodeError):  # as 2**63 and half of a surrogate pair
        return False
    return True


def walk(root: Any) -> Iterator[Any]:
    """Yield the nodes without operands, from left to right."""
    todo = [root]
    while todo:
        node = todo.pop()
        if isinstance(node, Joined):
            todo.extend(reversed(node.legs))  # type: ignore[attr-defined]  # And, Or and their kin
        else:
            yield node


def fold(
    root: Any,
    *,
    leaf: Callable[[Any], _T],
    join: Callable[[Any, tuple[_T, ...]], _T],
    legs: Callable[[Any], Sequence[Any]] = attrgetter("legs"),
) -> _T:
    """Compute a result from the leaves up, without recursion: 2,000 conditions joined one by one
    with `|` in a DataFrame are nested 2,000 deep.
    """
    order: list[tuple[Any, int]] = []
    todo = [root]
    while todo:
        node = todo.pop()
        below = legs(node) if isinstance(node, Joined) else ()
        order.append((node, len(below)))
        todo.extend(below)
    built: list[_T] = []  # in reversed order, operands precede their node, left to right
    for node, count in reversed(order):
        if isinstance(node, Joined):
            first = len(built) - count
            built[first:] = [join(node, tuple(built[first:]))]
        else:
            built.append(leaf(node))
    return built[0]
