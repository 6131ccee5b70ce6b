"""A small index, and what it answers."""

from __future__ import annotations

import pyarrow as pa

from providers.index_predicate import BitsSet, Contains, FieldCompare, Test
from skipping.model.definition import Definition, TableId

DEFINITION = Definition("i", TableId("delta", "t", "file:/t"), "t", ())


TESTS: list[Test] = [
    FieldCompare("low", ">", 1, "s1"),
    Contains("values", pa.array(["t7"]), "s2"),
]


EXPECTED = [[0, 1, 3, 4, 6, 7, 9], [0, 1, 2, 3, 4, 8, 9]]


def entries(ordinals: range, *, terms: int = 3) -> pa.Table:
    n = len(ordinals)
    return pa.table(
        {
            "ordinal": pa.array(ordinals, pa.int64()),
            "path": [f"f{o}" for o in ordinals],
            "size": pa.array([1] * n, pa.int64()),
            "stamp": pa.nulls(n, pa.int64()),
            "partition": ["{}"] * n,
            "s1_known": pa.array([True] * n),
            "s1_low": pa.array([o % 3 for o in ordinals], pa.int64()),
            "s1_high": pa.array([o % 3 for o in ordinals], pa.int64()),
            "s2_known": pa.array([True] * n),
            "s2_values": pa.array([[f"t{o + k}" for k in range(terms)] for o in ordinals]),
        }
    )


def bits_of(ordinals: range) -> pa.Table:
    """Entries with their ordinals as bytes, of two layouts."""
    n = len(ordinals)
    return (
        entries(ordinals)
        .append_column("s3_known", pa.array([True] * n))
        .append_column("s3_filter", pa.array([bytes([o]) for o in ordinals], pa.large_binary()))
        .append_column("s3_layout", pa.array([o // 5 for o in ordinals], pa.int64()))
    )


def bit(n: int) -> BitsSet:
    """Bit `n` of layout 0, of 1 the next."""
    keys = [pa.array([[n + layout]], pa.list_(pa.int64(), 1)) for layout in (0, 1)]
    return BitsSet("filter", "layout", tuple(enumerate(keys)), "s3")
