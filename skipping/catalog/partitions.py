"""Select the partitions that satisfy a filter: exactly, and many at a time.

The values of a partition field are sorted once for each snapshot, and each partition has the
position of its value among them. A condition finds its literal by bisection, and then compares
positions, for every type. Values have Python's order, as in PyIceberg, except that NaN is the
largest value, as in Iceberg's Java and in Spark.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from pyiceberg import expressions as iceberg

from skipping.filters.pyiceberg import NEGATIONS

Mask: TypeAlias = npt.NDArray[np.bool_]

_ABSENT = -1
"""The position of null; that of NaN is after the last value."""


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """The values of one partition field, sorted; that of partition `n` is `values[places[n]]`."""

    values: Sequence[Any]
    places: npt.NDArray[np.int64]

    @classmethod
    def of(cls, given: Iterable[Any]) -> PartitionColumn:
        """Create a column from each partition's value; raise TypeError for unordered ones."""
        # UUID literals are bytes.
        all = [value.bytes if isinstance(value, uuid.UUID) else value for value in given]
        values = sorted({value for value in all if value is not None and value == value})
        place = {value: number for number, value in enumerate(values)}
        place[None] = _ABSENT
        # Only NaN is not found, because it equals nothing.
        return cls(values, np.array([place.get(value, len(values)) for value in all], np.int64))

    def at_least(self, value: Any) -> Mask:
        """Return the partitions with at least this value."""
        return self.places >= bisect_left(self.values, value)

    def above(self, value: Any) -> Mask:
        """Return the partitions with a larger value."""
        return self.places >= bisect_right(self.values, value)

    def among(self, values: Iterable[Any]) -> Mask:
        """Return the partitions with one of these values."""
        found = np.zeros(len(self.values) + 2, bool)
        for value in values:
            place = bisect_left(self.values, value)
            found[place] |= place < len(self.values) and self.values[place] == value
        return found[self.places]  # null takes the last, NaN the one before it

    def beginning(self, prefix: Any) -> Mask:
        """Return the partitions whose value begins with a text or bytes."""
        start = bisect_left(self.values, prefix)
        # Sorted values with the same prefix are adjacent.
        end = bisect_right(self.values, prefix, lo=start, key=lambda v: v[: len(prefix)])
        return (self.places >= start) & (self.places < end)

    @property
    def is_null(self) -> Mask:
        """The partitions without a value."""
        mask: Mask = self.places == _ABSENT
        return mask

    @property
    def is_nan(self) -> Mask:
        """The partitions with NaN."""
        mask: Mask = self.places == len(self.values)
        return mask


def matching(bound: Any, column: Callable[[int], PartitionColumn], count: int) -> Mask:
    """Return for each of `count` partitions whether it satisfies an expression on their fields.

    `column` returns a field's column by its position. Raises TypeError for values that cannot be
    compared with each other, or with the literals.
    """
    match bound:
        case iceberg.AlwaysTrue():
            return np.ones(count, bool)
        case iceberg.AlwaysFalse():
            return np.zeros(count, bool)
        case iceberg.Not():
            return ~matching(bound.child, column, count)
        case iceberg.And():
            return matching(bound.left, column, count) & matching(bound.right, column, count)
        case iceberg.Or():
            return matching(bound.left, column, count) | matching(bound.right, column, count)
        case _ if isinstance(bound, NEGATIONS):
            return ~matching(~bound, column, count)
    return _test(bound, column(bound.term.ref().accessor.position))


def _test(bound: Any, values: PartitionColumn) -> Mask:
    match bound:
        case iceberg.BoundIsNull():
            return values.is_null
        case iceberg.BoundIsNaN():
            return values.is_nan
        case iceberg.BoundIn():
            return values.among(bound.value_set)
        case iceberg.BoundEqualTo():
            return values.among([bound.literal.value])
        case iceberg.BoundGreaterThanOrEqual():
            return values.at_least(bound.literal.value)
        case iceberg.BoundGreaterThan():
            return values.above(bound.literal.value)
        case iceberg.BoundLessThan():
            return ~(values.at_least(bound.literal.value) | values.is_null)
        case iceberg.BoundLessThanOrEqual():
            return ~(values.above(bound.literal.value) | values.is_null)
        case iceberg.BoundStartsWith():
            return values.beginning(bound.literal.value)
    raise TypeError(f"unknown predicate {type(bound).__name__}")
