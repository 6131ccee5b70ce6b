"""Predicates made smaller before they are asked: fewer and stronger leaves, no nesting."""

from __future__ import annotations

import pyarrow as pa

from providers.predicate import And, Between, Compare, In, Or, Predicate, Unknown, fold

__all__ = ["simplify"]

_BOUNDS = ("<", "<=", ">", ">=")


def simplify(predicate: Predicate) -> Predicate:
    """An equivalent or weaker predicate without nesting of like in like.

    Equalities of one column under an Or become one `In`, so that two thousand legs are one
    question; bounds of one column under an And become one `Between`, because they are about one
    value. An Or with an unknown leg is unknown as a whole; an And only loses that leg. Weaker, so
    never negate the outcome.
    """
    return fold(predicate, legs=_spine, leaf=lambda leaf: leaf, join=_simplify_node)


def _simplify_node(node: And | Or, legs: tuple[Predicate, ...]) -> Predicate:
    # A leg that was `And((Or(...),))` is a bare Or by now; its own legs are flat already.
    flat: list[Predicate] = []
    for leg in legs:
        flat.extend(leg.legs if isinstance(leg, And | Or) and type(leg) is type(node) else (leg,))
    unknown = next((leg for leg in flat if isinstance(leg, Unknown)), None)
    if isinstance(node, And):
        kept: list[Predicate] = [leg for leg in flat if not isinstance(leg, Unknown)]
        if unknown and not kept:
            return unknown  # rather than And(()): it says why
        kept = _merge_bounds(kept)
        return kept[0] if len(kept) == 1 else And(tuple(kept))
    if unknown:
        return unknown
    if And(()) in flat:
        return Unknown("a leg that is always true")
    merged = _merge_equalities(flat)
    return merged[0] if len(merged) == 1 else Or(tuple(merged))


def _merge_bounds(legs: list[Predicate]) -> list[Predicate]:
    """The legs of an And, with the tightest bounds of a column on both sides as one leg."""
    # Python's type is part of the key: 1 and "1" cannot be compared; True counts as no number.
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


def _spine(node: And | Or) -> tuple[Predicate, ...]:
    """The legs of the node and of all nodes of its kind right below it."""
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
    # Arrow's type is part of the key: 1 and 1.5, or 1 and "1", cannot stand in one array.
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


def _keys(leaf: Compare | In) -> pa.Array | None:
    """The values the column may equal; None where it is no equality, or no value for Arrow."""
    if isinstance(leaf, In):
        return None if leaf.negated else leaf.values
    if leaf.op != "=":
        return None
    try:
        return pa.array([leaf.value])
    except (OverflowError, UnicodeEncodeError, pa.ArrowException):
        return None
