"""Derive predicates on multi-column indexes from predicates on single columns.

`a = 1 AND b IN (2, 3)` holds only in rows whose (a, b) is one of (1, 2), (1, 3). An Or has the
tuples of all its operands. The leaf on the tuples is added to an And, which keeps its meaning:
each row that satisfies the other conditions satisfies it as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from providers.keys import Keys
from providers.predicate import And, Compare, In, Leaf, Or, Predicate, Unknown, fits, fold, leaves
from providers.tuples import encode_tuples
from providers.values import Domain, encode
from skipping.model.definition import Definition

MOST = 200_000
"""The most tuples of one lookup; nested Ors count each time that they are built."""

MOST_BYTES = 1 << 25
"""The most bytes of these tuples."""

MOST_COMBINED = 1_000
"""The most tuples of one And: most combinations of many values are in no row."""


@dataclass(frozen=True, slots=True)
class Composite:
    """A multi-column index: its identity, and the query's domains of its columns by identity."""

    identity: str
    parts: Mapping[str, Domain]


@dataclass(slots=True)
class _Budget:
    """The tuples, their bytes, and the leaves that one lookup may still add."""

    leaves: int
    tuples: int = MOST
    bytes: int = MOST_BYTES

    def takes(self, tuples: int, size: int) -> bool:
        """Return whether these may still be built; if so, count them."""
        if tuples > self.tuples or size > self.bytes:
            return False
        self.tuples -= tuples
        self.bytes -= size
        return True


@dataclass(frozen=True, slots=True)
class _Found:
    """A predicate, and leaves on tuples that it implies, by identity, which are not in it yet."""

    predicate: Predicate
    tuples: Mapping[str, In]

    def with_tuple_leaves(self, but: Sequence[str] = ()) -> Predicate:
        """Return the predicate with the leaves on tuples."""
        leaves = [leaf for identity, leaf in self.tuples.items() if identity not in but]
        if not leaves:
            return self.predicate
        own = self.predicate.legs if isinstance(self.predicate, And) else (self.predicate,)
        return And((*leaves, *own))  # first, because a limit drops the last leaves of a long list


def joined_tuples(definition: Definition, keys: Mapping[str, Keys]) -> tuple[In, ...]:
    """Return leaves on multi-column indexes, for those whose columns all have keys.

    Keys are the rows of one dimension, by identity: a row with a null has no tuple.
    """
    found: dict[str, In] = {}
    for indexed in definition.columns:
        parts = [keys[identity].given for identity in indexed.part_identities if identity in keys]
        if parts and len(parts) == len(indexed.parts) and indexed.identity not in found:
            tuples = encode_tuples([encode(part) for part in parts])
            found[indexed.identity] = In.of(indexed.identity, tuples)
    return tuple(found.values())


def with_tuples(
    predicate: Predicate, composites: Sequence[Composite], most_leaves: int
) -> Predicate:
    """Return an equivalent predicate with a leaf for each multi-column index that it limits.

    In an operand of an Or, no leaf is added beyond `most_leaves`: the translator drops the leaves
    beyond this limit, and with one of them the complete Or.
    """
    if not composites:
        return predicate
    budget = _Budget(most_leaves - sum(1 for _ in leaves(predicate)))
    found = fold(
        predicate,
        leaf=lambda leaf: _Found(leaf, {}),
        join=lambda node, legs: (
            _of_all(legs, composites, budget) if isinstance(node, And) else _of_one(legs, budget)
        ),
    )
    return found.with_tuple_leaves()


def _of_all(legs: Sequence[_Found], composites: Sequence[Composite], budget: _Budget) -> _Found:
    """Fold an And: of several operands with tuples, the one with the fewest is enough."""
    own = [leg.predicate for leg in legs if not isinstance(leg.predicate, And | Or | Unknown)]
    told = {leaf.column for leaf in own}
    tuples: dict[str, In] = {}
    for composite in composites:
        if composite.identity in told:
            continue  # a join has provided its tuples
        known = [leg.tuples[composite.identity] for leg in legs if composite.identity in leg.tuples]
        if (product := _product(own, composite, budget)) is not None:
            known.append(product)
        if known:
            tuples[composite.identity] = min(known, key=lambda leaf: len(leaf.values))
    return _Found(And(tuple(leg.predicate for leg in legs)), tuples)


def _of_one(legs: Sequence[_Found], budget: _Budget) -> _Found:
    """Fold an Or: it has the tuples that all operands have; others are added to their operands."""
    tuples: dict[str, In] = {}
    for identity in legs[0].tuples if legs else ():
        known = [leg.tuples[identity].values for leg in legs if identity in leg.tuples]
        size = sum(values.nbytes for values in known)
        if len(known) == len(legs) and budget.takes(sum(map(len, known)), size):
            tuples[identity] = In.of(identity, pa.concat_arrays(known))
    made = []
    for leg in legs:
        more = len(leg.tuples.keys() - tuples.keys())
        fits_in = more <= budget.leaves
        budget.leaves -= more if fits_in else 0
        made.append(leg.with_tuple_leaves(but=list(tuples)) if fits_in else leg.predicate)
    return _Found(Or(tuple(made)), tuples)


def _product(own: Sequence[Leaf], composite: Composite, budget: _Budget) -> In | None:
    """Return all tuples of the columns' values; None if one has none, or there are too many."""
    keys: list[pa.Array] = []
    for column, domain in composite.parts.items():
        values = [
            values
            for leaf in own
            if leaf.column == column and (values := _values(leaf, domain)) is not None
        ]
        if not values:
            return None
        keys.append(min(values, key=len))
    count = math.prod(map(len, keys))
    # Each value occurs in one tuple for each combination of the others.
    size = sum(count // len(values) * values.nbytes for values in keys if len(values))
    if count > MOST_COMBINED or not budget.takes(count, size):
        return None
    places = np.meshgrid(*(np.arange(len(values)) for values in keys), indexing="ij")
    rows = [v.take(pa.array(p.ravel())) for v, p in zip(keys, places, strict=True)]
    return In.of(composite.identity, encode_tuples(rows))


def _values(leaf: Leaf, domain: Domain) -> pa.Array | None:
    """Return the values that a leaf allows for its column; None without a list of values."""
    if not fits(leaf, domain):
        return None
    match leaf:
        case Compare(op="=", value=value):
            return pa.array([value], domain.stored)
        case In(values=values, negated=False):
            return values
    return None
