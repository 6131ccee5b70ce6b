"""Simplify predicates before a lookup: fewer and stronger leaves, no nesting."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import pyarrow as pa

from providers.predicate import (
    And,
    Between,
    Compare,
    In,
    Or,
    Predicate,
    StartsWith,
    StartsWithAny,
    Unknown,
    Within,
    fold,
)

_BOUNDS = ("<", "<=", ">", ">=")

_Range: TypeAlias = tuple[Any, Any]
"""The start and end of a range."""


def simplify(predicate: Predicate) -> Predicate:
    """Return an equivalent or weaker predicate without an And in an And or an Or in an Or.

    Under an Or, equalities of one column become one `In`, so that two thousand of them are one
    test; prefixes become one `StartsWithAny`, ranges one `Within`. Under an And, bounds of one
    column become one `Between`, because one value must satisfy both. An Or with an unknown operand
    is unknown; an And drops that operand. The result can be weaker, so never negate it.
    """
    simple: Predicate = fold(predicate, legs=_flatten, leaf=lambda leaf: leaf, join=_simplify_node)
    return simple


def _simplify_node(node: And | Or, legs: tuple[Predicate, ...]) -> Predicate:
    # The operand `And((Or(...),))` is already the Or; its operands are flat.
    flat: list[Predicate] = []
    for leg in legs:
        flat.extend(leg.legs if isinstance(leg, And | Or) and type(leg) is type(node) else (leg,))
    unknown = next((leg for leg in flat if isinstance(leg, Unknown)), None)
    if isinstance(node, And):
        kept: list[Predicate] = [leg for leg in flat if not isinstance(leg, Unknown)]
        if unknown and not kept:
            return unknown  # not And(()): it has the reason
        kept = _merge_bounds(kept)
        return kept[0] if len(kept) == 1 else And(tuple(kept))
    if unknown:
        return unknown
    if And(()) in flat:
        return Unknown("an operand that is always true")
    merged = _merge_ranges(_merge_prefixes(_merge_equalities(flat)))
    return merged[0] if len(merged) == 1 else Or(tuple(merged))


def _merge_bounds(legs: list[Predicate]) -> list[Predicate]:
    # The Python type is part of the key: 1 and "1" cannot be compared, nor 1 and True.
    bounds: dict[tuple[str, type], dict[bool, list[Compare]]] = {}
    for leg in legs:
        if isinstance(leg, Compare) and leg.op in _BOUNDS and type(leg.value) in (int, str, bytes):
            sides = bounds.setdefault((leg.column, type(leg.value)), {True: [], False: []})
            sides[leg.op in (">", ">=")].append(leg)
    merged: list[Predicate] = []
    done: set[int] = set()
    for (column, _), sides in bounds.items():
        if sides[True] and sides[False]:
            low = max(sides[True], key=lambda c: (c.value, c.op == ">"))
            high = min(sides[False], key=lambda c: (c.value, c.op == "<="))
            ends = (low.value, high.value, low.op == ">=", high.op == "<=")
            merged.append(Between(column, *ends, source=low.source or high.source))
            done.update(map(id, sides[True] + sides[False]))
    return [leg for leg in legs if id(leg) not in done] + merged


def _flatten(node: And | Or) -> tuple[Predicate, ...]:
    flat: list[Predicate] = []
    todo = [*reversed(node.legs)]
    while todo:
        leg = todo.pop()
        if isinstance(leg, And | Or) and type(leg) is type(node):
            todo.extend(reversed(leg.legs))
        else:
            flat.append(leg)
    return tuple(flat)


def _merge_equalities(legs: list[Predicate]) -> list[Predicate]:
    rest: list[Predicate] = []
    # The Arrow type is part of the key: one array cannot hold 1 and 1.5, or 1 and "1".
    equal: dict[tuple[str, pa.DataType], list[tuple[Predicate, pa.Array]]] = {}
    for leg in legs:
        if isinstance(leg, Compare | In) and (keys := _keys(leg)) is not None:
            equal.setdefault((leg.column, keys.type), []).append((leg, keys))
        else:
            rest.append(leg)
    merged = [
        group[0][0] if len(group) == 1 else In.of(column, pa.concat_arrays([k for _, k in group]))
        for (column, _), group in equal.items()
    ]
    return merged + rest


def _merge_prefixes(legs: list[Predicate]) -> list[Predicate]:
    found: dict[tuple[str, pa.DataType], list[tuple[Predicate, pa.Array]]] = {}
    rest: list[Predicate] = []
    for leg in legs:
        match leg:
            case StartsWith(column, prefix, False) if (some := _array([prefix])) is not None:
                found.setdefault((column, some.type), []).append((leg, some))
            case StartsWithAny(column, some):
                found.setdefault((column, some.type), []).append((leg, some))
            case _:
                rest.append(leg)
    merged: list[Predicate] = []
    for (column, type), group in found.items():
        if len(group) == 1:
            merged.append(group[0][0])
            continue
        listed: list[Any] = []
        for prefix in sorted(prefix for _, some in group for prefix in some.to_pylist()):
            if not listed or not prefix.startswith(listed[-1]):
                listed.append(prefix)
        one = len(listed) == 1
        merged.append(
            StartsWith(column, listed[0]) if one else StartsWithAny(column, pa.array(listed, type))
        )
    return merged + rest


def _merge_ranges(legs: list[Predicate]) -> list[Predicate]:
    found: dict[tuple[str, pa.DataType, bool, bool], list[Between | Within]] = {}
    rest: list[Predicate] = []
    for leg in legs:
        type = _type_of_ends(leg)
        if isinstance(leg, Between | Within) and type is not None:
            key = leg.column, type, leg.includes_low, leg.includes_high
            found.setdefault(key, []).append(leg)
        else:
            rest.append(leg)
    merged: list[Predicate] = []
    for (column, type, low, high), group in found.items():
        ranges = _disjoint((r for leg in group for r in _ranges(leg)), touching=low or high)
        sources = {leg.source for leg in group}
        source = sources.pop() if len(sources) == 1 else ""
        if len(group) == 1 or not ranges:
            merged += group
        elif len(ranges) == 1:
            merged.append(Between(column, *ranges[0], low, high, source))
        else:
            starts, ends = (pa.array(some, type) for some in zip(*ranges, strict=True))
            merged.append(Within(column, starts, ends, low, high, source))
    return merged + rest


def _disjoint(ranges: Iterable[_Range], *, touching: bool) -> list[_Range]:
    """Sort ranges and join those that overlap, or with `touching` those that touch."""
    joined: list[_Range] = []
    for low, high in sorted(r for r in ranges if r[0] <= r[1]):
        if joined and (low < joined[-1][1] or (touching and low == joined[-1][1])):
            joined[-1] = joined[-1][0], max(joined[-1][1], high)
        else:
            joined.append((low, high))
    return joined


def _ranges(leg: Between | Within) -> Iterable[_Range]:
    if isinstance(leg, Between):
        return [(leg.low, leg.high)]
    return zip(leg.starts.to_pylist(), leg.ends.to_pylist(), strict=True)


def _type_of_ends(leg: Predicate) -> pa.DataType | None:
    """Return the Arrow type of a range's ends; None for anything else, or if Arrow has no type."""
    match leg:
        case Within(starts=starts):
            return starts.type
        case Between(low=low, high=high) if type(low) is type(high):
            ends = _array([low, high])
            return None if ends is None else ends.type
    return None


def _keys(leaf: Compare | In) -> pa.Array | None:
    """Return the values of an equality; None if it is not one, or Arrow cannot hold the value."""
    if isinstance(leaf, In):
        return None if leaf.negated else leaf.values
    return _array([leaf.value]) if leaf.op == "=" else None


def _array(values: list[Any]) -> pa.Array | None:
    try:
        return pa.array(values)
    except (OverflowError, UnicodeEncodeError, pa.ArrowException):
        return None
