"""Derive predicates on multi-column indexes from predicates on single columns.

`a = 1 AND b IN (2, 3)` holds only in rows whose (a, b) is one of (1, 2), (1, 3). An Or has the
tuples of all its operands. The leaf on the tuples is added to the And. This does not change what
the And means: each row that satisfies the other operands satisfies the leaf, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from providers.keys import Keys
from providers.predicate import And, Compare, In, Leaf, Or, Predicate, Unknown, fits, fold, leaves
from providers.tuples import encode_tuples
from providers.values import Domain, encode
from skipping.model.definition import Definition

MANY = 32
"""Operands of an Or from which on they become lists of tuples."""

MOST = 200_000
"""Maximum of tuples in a lookup; tuples of nested Ors count once for each level."""

MOST_BYTES = 1 << 25
"""Maximum of bytes of these tuples."""

MOST_COMBINED = 1_000
"""Maximum of tuples of one And: with many values, most combinations occur in no row."""


@dataclass(frozen=True, slots=True)
class Composite:
    """A multi-column index: its identity, and the domains of its columns in the query."""

    identity: str
    parts: Mapping[str, Domain]


@dataclass(slots=True)
class _Budget:
    """The leaves, tuples and bytes of tuples that a lookup may still add."""

    leaves: int
    tuples: int = MOST
    bytes: int = MOST_BYTES

    def takes(self, tuples: int, size: int) -> bool:
        """Return whether these tuples may still be built; if so, count them."""
        if tuples > self.tuples or size > self.bytes:
            return False
        self.tuples -= tuples
        self.bytes -= size
        return True


@dataclass(frozen=True, slots=True)
class _Found:
    """A predicate, and the leaves on tuples that it implies but does not contain, by identity."""

    predicate: Predicate
    tuples: Mapping[str, In]

    def with_tuple_leaves(self, but: Sequence[str] = ()) -> Predicate:
        """Return the predicate with these leaves added, except for the identities `but`."""
        leaves = [leaf for identity, leaf in self.tuples.items() if identity not in but]
        if not leaves:
            return self.predicate
        own = self.predicate.legs if isinstance(self.predicate, And) else (self.predicate,)
        return And((*leaves, *own))  # first, because a limit drops the last leaves of a long list


def joined_tuples(definition: Definition, keys: Mapping[str, Keys]) -> tuple[In, ...]:
    """Return leaves on the multi-column indexes whose columns all have keys.

    `keys` are columns of one dimension, by identity of the table's column. A row with a null has no
    tuple.
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
    own = predicate.legs if isinstance(predicate, And) else (predicate,)
    provided = {leaf.column for leaf in own if isinstance(leaf, In)}  # by a join
    without = [each for each in composites if each.identity not in provided]
    predicate = _list_tuples(predicate, without, most_leaves)
    if not composites:
        return predicate
    budget = _Budget(most_leaves - sum(1 for _ in leaves(predicate)))
    found = fold(
        predicate,
        leaf=lambda leaf: _Found(leaf, {}),
        join=lambda node, legs: (
            _fold_and(legs, composites, budget) if isinstance(node, And) else _fold_or(legs, budget)
        ),
    )
    return found.with_tuple_leaves()


def _list_tuples(
    predicate: Predicate, composites: Sequence[Composite], most_leaves: int
) -> Predicate:
    """Replace each long Or of `a = 1 AND b = 2`, which has a leaf for each value.

    It becomes lists: of the tuples if a multi-column index has these columns, and of each column.
    Without such an index this is weaker than the Or, which is kept unless it has too many leaves.
    """

    def join(node: And | Or, legs: tuple[Predicate, ...]) -> Predicate:
        if isinstance(node, And) or len(legs) < MANY:
            return replace(node, legs=legs)
        values = _by_column(legs)
        tuples = [
            In.of(c.identity, encode_tuples([values[part] for part in c.parts]))
            for c in composites
            if c.parts.keys() <= values.keys()
            and all(values[part].type == domain.stored for part, domain in c.parts.items())
        ]
        if not values or not (tuples or len(legs) * len(values) > most_leaves):
            return replace(node, legs=legs)
        return And((*tuples, *(In.of(column, array) for column, array in values.items())))

    listed: Predicate = fold(predicate, leaf=lambda leaf: leaf, join=join)
    return listed


def _by_column(legs: Sequence[Predicate]) -> dict[str, pa.Array]:
    """Return the values of each column if each operand is `=` for the same columns; else nothing.

    Values at the same position belong to the same operand.
    """
    found: dict[str, list[Any]] = {}
    for leg in legs:
        equal = leg.legs if isinstance(leg, And) else ()
        if not all(isinstance(leaf, Compare) and leaf.op == "=" for leaf in equal):
            return {}
        values = {leaf.column: leaf.value for leaf in equal if isinstance(leaf, Compare)}
        if len(values) < len(equal) or len(values) < 2 or (found and values.keys() != found.keys()):
            return {}
        for column, value in values.items():
            found.setdefault(column, []).append(value)
    try:
        return {column: pa.array(several) for column, several in found.items()}
    except (pa.ArrowException, OverflowError):  # values of several domains
        return {}


def _fold_and(legs: Sequence[_Found], composites: Sequence[Composite], budget: _Budget) -> _Found:
    """Fold an And: of several operands with tuples, use the one with the fewest."""
    own = [leg.predicate for leg in legs if not isinstance(leg.predicate, And | Or | Unknown)]
    has_leaf = {leaf.column for leaf in own}
    tuples: dict[str, In] = {}
    for composite in composites:
        if composite.identity in has_leaf:
            continue  # a join has provided its tuples
        known = [leg.tuples[composite.identity] for leg in legs if composite.identity in leg.tuples]
        if (product := _product(own, composite, budget)) is not None:
            known.append(product)
        if known:
            tuples[composite.identity] = min(known, key=lambda leaf: len(leaf.values))
    return _Found(And(tuple(leg.predicate for leg in legs)), tuples)


def _fold_or(legs: Sequence[_Found], budget: _Budget) -> _Found:
    """Fold an Or: it has tuples if all operands do; else they are added to the operands."""
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
    """Return all combinations of the columns' values; None if there are too many.

    Also None if a column has no list of values.
    """
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
    """Return the values that a leaf allows for its column; None if it has no list of values."""
    if not fits(leaf, domain):
        return None
    match leaf:
        case Compare(op="=", value=value):
            return pa.array([value], domain.stored)
        case In(values=values, negated=False):
            return values
    return None
