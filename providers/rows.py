"""Evaluate a predicate on normalised values of rows; a file with a matching row is not pruned."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from providers.errors import DefinitionError
from providers.predicate import (
    And,
    Between,
    Compare,
    Contains,
    ContainsAnyCase,
    EndsWith,
    In,
    IsNull,
    Leaf,
    Predicate,
    StartsWith,
    StartsWithAny,
    Unknown,
    Within,
    fold,
)
from providers.values import compare


def matching_rows(predicate: Predicate, values: Mapping[str, pa.Array], rows: int) -> pa.Array:
    """Return for each row whether the predicate is true, as Spark compares.

    `values` has the values of each column of a leaf, normalised (`providers.values`) like the
    leaf's own. Raises DefinitionError for a predicate with an Unknown part.
    """

    def leaf(node: Leaf | Unknown) -> pa.Array:
        if isinstance(node, Unknown):
            raise DefinitionError(f"this condition cannot be evaluated: {node.reason}")
        return _holds(node, values[node.column])

    found = fold(
        predicate,
        leaf=leaf,
        join=lambda node, legs: (
            reduce(pc.and_kleene, legs, pa.repeat(True, rows))
            if isinstance(node, And)
            else reduce(pc.or_kleene, legs, pa.repeat(False, rows))
        ),
    )
    return pc.fill_null(found, False)


def _holds(leaf: Leaf, values: pa.Array) -> pa.Array:
    """Return true, false or null for each value, as SQL does."""
    match leaf:
        case Compare(_, op, value):
            return compare(values, op, value)
        case Between(_, low, high, includes_low, includes_high):
            above = compare(values, ">=" if includes_low else ">", low)
            return pc.and_kleene(above, compare(values, "<=" if includes_high else "<", high))
        case Within() | StartsWithAny():
            return reduce(pc.or_kleene, (_holds(leg, values) for leg in leaf.legs()))
        case In(_, listed, negated):
            if not len(listed):
                return pa.repeat(negated, len(values))  # for nulls, too
            found = pc.is_in(values, value_set=listed)
            found = pc.invert(found) if negated else found
            return pc.if_else(pc.is_valid(values), found, pa.scalar(None, pa.bool_()))
        case IsNull(_, negated):
            return pc.is_valid(values) if negated else pc.is_null(values)
        case StartsWith(_, literal, negated):
            found = pc.starts_with(values, pattern=literal)
        case EndsWith(_, literal, negated):
            found = pc.ends_with(values, pattern=literal)
        case Contains(_, literal, negated):
            found = pc.match_substring(values, pattern=literal)
        case ContainsAnyCase():
            raise DefinitionError("a condition that ignores case cannot be evaluated")
    return pc.invert(found) if negated else found
