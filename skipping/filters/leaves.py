"""Build leaves on one column for filters of Arrow and Polars."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from providers.predicate import (
    Compare,
    Contains,
    EndsWith,
    In,
    IsNull,
    Op,
    Or,
    Predicate,
    StartsWith,
    Unknown,
)
from providers.values import arrow_type, canonical_type, domain_of
from skipping.tables import TableColumn

TextTest: TypeAlias = Literal["starts_with", "ends_with", "contains"]
_TEXTS: dict[TextTest, type[StartsWith | EndsWith | Contains]] = {
    "starts_with": StartsWith,
    "ends_with": EndsWith,
    "contains": Contains,
}
_EXACT = 2**53
"""Doubles represent all integers up to this exactly."""


def indexed_leaves(columns: Mapping[str, TableColumn], name: str) -> ColumnLeaves | None:
    """Return the column's leaves; None if the index and the rows compare its values differently."""
    if name not in columns:
        return None
    column = ColumnLeaves(columns[name])
    return column if column.known else None


def is_nan(scalar: pa.Scalar) -> bool:
    """Return whether a scalar is NaN."""
    return pa.types.is_floating(scalar.type) and math.isnan(scalar.as_py())


class ColumnLeaves:
    """Builds leaves on one column that match how Arrow or Polars compares its values."""

    def __init__(self, column: TableColumn) -> None:
        self.name = column.name
        indexed = arrow_type(column.type) if column.refusal is None else None
        rows = column.read_as or indexed
        domain = None if rows is None else domain_of(rows)
        self.known = indexed is not None and domain is not None and domain == domain_of(indexed)
        self.type: pa.DataType = canonical_type(rows) if self.known else pa.null()
        self.floats = pa.types.is_floating(self.type)
        self.ordered = not pa.types.is_dictionary(rows)
        self._widest = self.known and canonical_type(pa.uint64()) == self.type != rows

    def compare(self, op: Op, value: Any) -> Predicate:
        """Compare the column with a scalar from `value`; Unknown if the index has another order."""
        if self.ordered or op in ("=", "!="):
            return Compare(self.name, op, value)
        return Unknown(f"the order of {self.name}, which is a dictionary")

    def is_true(self, wanted: bool) -> Predicate:
        """Require that a boolean column is true, or false unless `wanted`."""
        return Compare(self.name, "=", wanted)

    def is_null(self, wanted: bool) -> Predicate:
        """Require that the column is null, or not null unless `wanted`."""
        return IsNull(self.name, negated=not wanted)

    def is_nan(self) -> Predicate:
        """Require that the column is NaN."""
        return Compare(self.name, "=", pa.scalar(math.nan, self.type))

    def has_text(self, test: TextTest, text: Any, wanted: bool) -> Predicate:
        """Require the prefix, suffix or substring `text`, or its absence unless `wanted`."""
        return _TEXTS[test](self.name, text, negated=not wanted)

    def is_in(self, values: pa.Array, wanted: bool) -> Predicate:
        """Require one of these values (see `comparable`), or none of them unless `wanted`.

        The engines compare bits, and null is in no list. So the negation excludes no null and, for
        floats, no zero and no NaN.
        """
        if wanted:
            return In(self.name, values)
        if self.floats:
            values = pa.array([v for v in values.to_pylist() if v != 0 and v == v], values.type)
        if not len(values):
            return Unknown(f"{self.name} not in a list")
        return Or((In(self.name, values, negated=True), IsNull(self.name)))

    def comparable(self, values: pa.Array) -> pa.Array | None:
        """Return null-free values in a type comparable with the column's, or None."""
        if self._widest and pa.types.is_integer(values.type):
            return values.cast(self.type)
        return values if domain_of(values.type) == domain_of(self.type) else None

    def value(self, scalar: pa.Scalar) -> pa.Scalar | None:
        """Return the scalar that the column is compared with, exactly; None if that is unclear."""
        if not self.known or not scalar.is_valid:
            return None
        if pa.types.is_dictionary(scalar.type) or is_nan(scalar):
            return None
        if self.type == pa.float32() and pa.types.is_floating(scalar.type):
            # With a wider float, it depends on which side is cast.
            narrow = scalar.cast(pa.float32(), safe=False)
            return scalar if narrow.as_py() == scalar.as_py() else None
        if domain_of(scalar.type) == domain_of(self.type):
            return scalar
        if self._widest and pa.types.is_integer(scalar.type):
            return scalar
        if pa.types.is_unsigned_integer(scalar.type) and pa.types.is_integer(self.type):
            return pa.scalar(scalar.as_py(), pa.int64()) if scalar.as_py() < 2**63 else None
        if self.floats and pa.types.is_integer(scalar.type):
            most = _EXACT if pa.types.is_float64(self.type) else 2**24
            return pa.scalar(float(scalar.as_py())) if abs(scalar.as_py()) <= most else None
        return None
