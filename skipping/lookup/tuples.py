"""Composites in a predicate: what it says of several columns of one row, as a leaf on their tuple.

`a = 1 AND b IN (2, 3)` holds only in rows whose (a, b) is one of (1, 2), (1, 3); of an Or of such
conditions the tuples are those of all its legs. The leaf is added to an And, where it takes nothing
away: each file with a match satisfies it beside the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from providers.predicate import And, Compare, In, Leaf, Or, Predicate, Unknown, fits, fold
from providers.tuples import encode_tuples
from providers.values import Domain

__all__ = ["Composite", "with_tuples"]

MOST = 100_000
"""Tuples of one leaf that follow from an Or; it is one question."""

MOST_COMBINED = 1_000
"""Tuples that follow from an And: most combinations of many values are in no row."""


@dataclass(frozen=True, slots=True)
class Composite:
    """Identity, and of each of its columns identity and domain, as the query has them."""

    identity: str
    parts: Mapping[str, Domain]


@dataclass(frozen=True, slots=True)
class _Found:
    """A predicate, and leaves on tuples that it implies, by identity, which are not in it yet."""

    predicate: Predicate
    tuples: Mapping[str, In]

    def added(self, but: Sequence[str] = ()) -> Predicate:
        """The predicate with them."""
        leaves = [leaf for identity, leaf in self.tuples.items() if identity not in but]
        if not leaves:
            return self.predicate
        own = self.predicate.legs if isinstance(self.predicate, And) else (self.predicate,)
        return And((*leaves, *own))  # first, for of very many leaves not all are asked


def with_tuples(predicate: Predicate, composites: Sequence[Composite]) -> Predicate:
    """An equivalent predicate with a leaf for each composite whose tuples it tells."""
    if not composites:
        return predicate
    found = fold(
        predicate,
        legs=lambda node: node.legs,
        leaf=lambda leaf: _Found(leaf, {}),
        join=lambda node, legs: (
            _of_all(legs, composites) if isinstance(node, And) else _of_one(legs)
        ),
    )
    return found.added()


def _of_all(legs: Sequence[_Found], composites: Sequence[Composite]) -> _Found:
    """An And: of several legs that tell the tuples of a composite the least is enough."""
    leaves = [leg.predicate for leg in legs if not isinstance(leg.predicate, And | Or | Unknown)]
    told = {leaf.column for leaf in leaves}
    tuples: dict[str, In] = {}
    for composite in composites:
        if composite.identity in told:
            continue  # by a join
        known = [leg.tuples[composite.identity] for leg in legs if composite.identity in leg.tuples]
        if (product := _product(leaves, composite)) is not None:
            known.append(product)
        if known:
            tuples[composite.identity] = min(known, key=lambda leaf: len(leaf.values))
    return _Found(And(tuple(leg.predicate for leg in legs)), tuples)


def _of_one(legs: Sequence[_Found]) -> _Found:
    """An Or: what all its legs tell is told by it, and the rest is added to the legs."""
    tuples: dict[str, In] = {}
    for identity in legs[0].tuples if legs else ():
        leaves = [leg.tuples[identity].values for leg in legs if identity in leg.tuples]
        if len(leaves) == len(legs) and sum(map(len, leaves)) <= MOST:
            tuples[identity] = In.of(identity, pa.concat_arrays(leaves))
    return _Found(Or(tuple(leg.added(but=list(tuples)) for leg in legs)), tuples)


def _product(leaves: Sequence[Leaf], composite: Composite) -> In | None:
    """The tuples of the values that columns are compared with; None where not all are, or many."""
    keys: list[pa.Array] = []
    for column, domain in composite.parts.items():
        values = [
            values
            for leaf in leaves
            if leaf.column == column and (values := _values(leaf, domain)) is not None
        ]
        if not values:
            return None
        keys.append(min(values, key=len))
    if math.prod(map(len, keys)) > MOST_COMBINED:
        return None
    places = np.meshgrid(*(np.arange(len(values)) for values in keys), indexing="ij")
    rows = [v.take(pa.array(p.ravel())) for v, p in zip(keys, places, strict=True)]
    return In.of(composite.identity, encode_tuples(rows))


def _values(leaf: Leaf, domain: Domain) -> pa.Array | None:
    """What a column equals where a leaf holds; None where that is no list of its values."""
    if not fits(leaf, domain):
        return None
    match leaf:
        case Compare(op="=", value=value):
            return pa.array([value], domain.stored)
        case In(values=values, negated=False):
            return values
    return None
