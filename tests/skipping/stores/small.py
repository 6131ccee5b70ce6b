"""A small index, and what it answers."""

from __future__ import annotations

import pyarrow as pa

from providers.index_predicate import BitsSet, Contains, FieldCompare, Test
from skipping.model.definition import Definition, TableId
from tests.skipping.stores import samples

DEFINITION = Definition("i", TableId("delta", "t", "file:/t"), "t", ())


TESTS: list[Test] = [FieldCompare("low", ">", 1, "s1"), Contains("values", pa.array(["t7"]), "s2")]


EXPECTED = [[0, 1, 3, 4, 6, 7, 9], [0, 1, 2, 3, 4, 8, 9]]


def entries(ordinals: range, *, terms: int = 3) -> pa.Table:
    return samples.entries(ordinals, _values(ordinals, terms))


def bits_of(ordinals: range) -> pa.Table:
    """Entries with their ordinals as bytes, of two layouts."""
    bits = samples.filters([bytes([o]) for o in ordinals], [o // 5 for o in ordinals])
    return samples.entries(ordinals, _values(ordinals) | bits)


def _values(ordinals: range, terms: int = 3) -> samples.Values:
    lists = [[f"t{o + k}" for k in range(terms)] for o in ordinals]
    bounds = samples.bounds([o % 3 for o in ordinals])
    return bounds | {"s2_known": [True] * len(ordinals), "s2_values": lists}


def bit(n: int) -> BitsSet:
    """Bit `n` of layout 0, of 1 the next."""
    keys = [pa.array([[n + layout]], pa.list_(pa.int64(), 1)) for layout in (0, 1)]
    return BitsSet("filter", "layout", tuple(enumerate(keys)), "s3")
