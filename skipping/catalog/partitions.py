"""Select the partitions that satisfy a filter: exactly, and many at a time.

The values of a partition field are sorted once a snapshot, and each partition has the place of its
value among them. So a comparison is one of places, whatever the type: a condition finds its literal
by bisection, and compares numbers. Orders are Python's own, by which PyIceberg compares, but for
NaN: it is greater than all else, as Iceberg has it in Java, and Spark in SQL.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import BoundBooleanExpressionVisitor, visit

__all__ = ["Mask", "PartitionColumn", "matching"]

Mask: TypeAlias = npt.NDArray[np.bool_]

_ABSENT = -1
"""The place of null. That of NaN is after the last value."""


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """The values of one partition field: `places[n]` is where partition `n` has its in `values`."""

    values: Sequence[Any]
    places: npt.NDArray[np.int64]

    @classmethod
    def of(cls, given: Iterable[Any]) -> PartitionColumn:
        """Create a column from each partition's value; raises TypeError for unordered ones."""
        # A literal of a UUID has its bytes.
        all = [value.bytes if isinstance(value, uuid.UUID) else value for value in given]
        values = sorted({value for value in all if value is not None and value == value})
        place = {value: number for number, value in enumerate(values)}
        place[None] = _ABSENT
        # NaN is equal to nothing, so it is the only one that is not found.
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
        # In order, all that begin with it stand together.
        end = bisect_right(self.values, prefix, lo=start, key=lambda v: v[: len(prefix)])
        return (self.places >= start) & (self.places < end)

    @property
    def is_null(self) -> Mask:
        """The partitions without a value."""
        found: Mask = self.places == _ABSENT
        return found

    @property
    def is_nan(self) -> Mask:
        """The partitions with NaN."""
        found: Mask = self.places == len(self.values)
        return found


def matching(
    bound: BooleanExpression, column: Callable[[int], PartitionColumn], count: int
) -> Mask:
    """Return for each of `count` partitions whether it satisfies an expression on their fields.

    `column` returns a field's column by its position. Raises TypeError for values that cannot be
    compared with each other, or with the literals.
    """
    return visit(bound, _Visitor(column, count))


class _Visitor(BoundBooleanExpressionVisitor[Mask]):
    """As PyIceberg's `_ExpressionEvaluationVisitor`, for all partitions in one go."""

    def __init__(self, column: Callable[[int], PartitionColumn], count: int) -> None:
        self._column = column
        self._count = count

    def _of(self, term: Any) -> PartitionColumn:
        return self._column(term.ref().accessor.position)

    def visit_in(self, term: Any, literals: Any) -> Mask:
        return self._of(term).among(literals)

    def visit_not_in(self, term: Any, literals: Any) -> Mask:
        return ~self._of(term).among(literals)

    def visit_is_nan(self, term: Any) -> Mask:
        return self._of(term).is_nan

    def visit_not_nan(self, term: Any) -> Mask:
        return ~self._of(term).is_nan

    def visit_is_null(self, term: Any) -> Mask:
        return self._of(term).is_null

    def visit_not_null(self, term: Any) -> Mask:
        return ~self._of(term).is_null

    def visit_equal(self, term: Any, literal: Any) -> Mask:
        return self._of(term).among([literal.value])

    def visit_not_equal(self, term: Any, literal: Any) -> Mask:
        return ~self._of(term).among([literal.value])

    def visit_greater_than_or_equal(self, term: Any, literal: Any) -> Mask:
        return self._of(term).at_least(literal.value)

    def visit_greater_than(self, term: Any, literal: Any) -> Mask:
        return self._of(term).above(literal.value)

    def visit_less_than(self, term: Any, literal: Any) -> Mask:
        column = self._of(term)
        return ~(column.at_least(literal.value) | column.is_null)

    def visit_less_than_or_equal(self, term: Any, literal: Any) -> Mask:
        column = self._of(term)
        return ~(column.above(literal.value) | column.is_null)

    def visit_starts_with(self, term: Any, literal: Any) -> Mask:
        return self._of(term).beginning(literal.value)

    def visit_not_starts_with(self, term: Any, literal: Any) -> Mask:
        return ~self._of(term).beginning(literal.value)

    def visit_true(self) -> Mask:
        return np.ones(self._count, bool)

    def visit_false(self) -> Mask:
        return np.zeros(self._count, bool)

    def visit_not(self, child_result: Mask) -> Mask:
        return ~child_result

    def visit_and(self, left_result: Mask, right_result: Mask) -> Mask:
        return left_result & right_result

    def visit_or(self, left_result: Mask, right_result: Mask) -> Mask:
        return left_result | right_result
