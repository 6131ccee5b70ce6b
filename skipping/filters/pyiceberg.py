"""What the row filter of a PyIceberg scan asks of an index.

The filter that PyIceberg evaluates is not the one that SQL would. `ArrowScan` binds it to each
file's own schema and hands it to Arrow, and the index has to be asked what *that* returns: a file
is skipped only if no row of it makes the filter true there. The rules, with what would be lost:

=============================  =====================================================================
`NOT` of an ordering           Arrow says of NaN that no ordering is true, so each negation is:
                               `NOT x > 5` returns NaN, `x <= 5` does not. Here NaN is the greatest
                               value, so it is asked for beside `x <= 5`.
a file without the column      Each leaf becomes true or false, as of Python's None: false for `=`,
                               IN and orderings, true for `!=`, `NOT IN`, `IS NULL`, `NOT STARTS
                               WITH`. False under NOT is true. The index has such a file as one of
                               nulls, so they are asked for wherever it would be true.
nulls                          A comparison of null is null, also under NOT; but `NOT IN` is true.
-0.0                           `=` takes the zeros for one, IN compares bits: `NOT IN (0.0, 1.0)`
                               returns -0.0. Here they are one value, so no zero is excluded.
a file older than a widening   The literal is narrowed to the file's type. DOUBLE 0.1 is 0.1 as a
                               FLOAT there, a little more: `x <= 0.1` returns that. Both are asked
                               for, the wider bound of the two. What does not fit becomes true or
                               false, for null, NaN and infinity as well (`x < 2**40` of an INT
                               file), and in a list the greatest or least value that does.
IS NOT NULL below a struct     is true of all rows where the file says that the leaf is required,
                               and a struct above it may be null nevertheless.
partition columns              A file without the column reads the value in the log, but only if the
                               scan selects the column; else it reads null. Python compares it with
                               the literal as it was given, no FLOAT of it.
`case_sensitive=False`         The name in the file is looked up in any case, so a column may read
                               another one whose name differs in case only.
=============================  =====================================================================

What else can be said of a leaf is unknown. And, Or and Not are Kleene's, in Arrow as here.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    BooleanExpression,
    BoundEqualTo,
    BoundGreaterThan,
    BoundGreaterThanOrEqual,
    BoundIn,
    BoundIsNaN,
    BoundIsNull,
    BoundLessThan,
    BoundLessThanOrEqual,
    BoundLiteralPredicate,
    BoundNotEqualTo,
    BoundNotIn,
    BoundNotNaN,
    BoundNotNull,
    BoundNotStartsWith,
    BoundPredicate,
    BoundReference,
    BoundSetPredicate,
    BoundStartsWith,
    Not,
)
from pyiceberg.expressions import And as Both
from pyiceberg.expressions import Or as Either
from pyiceberg.expressions.literals import AboveMax, BelowMin
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import FloatType, IntegerType

from providers.predicate import (
    OPPOSITE,
    And,
    Compare,
    In,
    IsNull,
    Op,
    Or,
    Predicate,
    StartsWith,
    Unknown,
)
from providers.values import arrow_type
from skipping.tables import Columns, TableColumn

__all__ = ["Reading", "translate_pyiceberg"]

_OPS: dict[type, Op] = {
    BoundEqualTo: "=",
    BoundNotEqualTo: "!=",
    BoundLessThan: "<",
    BoundLessThanOrEqual: "<=",
    BoundGreaterThan: ">",
    BoundGreaterThanOrEqual: ">=",
}
_NARROWER = {
    "bigint": (IntegerType.min, IntegerType.max),
    "double": (FloatType.min, FloatType.max),
}
"""The least and the greatest value that a file older than a widening takes as a literal."""

_NAN = math.nan
_ODD = (math.inf, -math.inf, _NAN)
"""What a float may be beside what its type takes as a literal."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What else than the filter decides what a leaf is in a file: ids of columns.

    `partitioned`: some spec has the column as it is. `unselected`: of these, what the scan does not
    return. `confused`: a file may have another column of that name in another case.
    """

    partitioned: Set[int] = field(default_factory=frozenset)
    unselected: Set[int] = field(default_factory=frozenset)
    confused: Set[int] = field(default_factory=frozenset)

    @classmethod
    def of(cls, metadata: TableMetadata, *, selected: Set[int], case_sensitive: bool) -> Reading:
        """That of a scan which returns the columns with the ids `selected`."""
        partitioned = {f.source_id for spec in metadata.partition_specs for f in spec.fields}
        confused = set() if case_sensitive else _find_ambiguous(metadata)
        return cls(partitioned, partitioned - selected, confused)


def _find_ambiguous(metadata: TableMetadata) -> set[int]:
    """The columns whose name, in some schema or as the name mapping has it, is not alone."""
    alike: defaultdict[tuple[int, str], set[int]] = defaultdict(set)
    for schema in metadata.schemas:
        for id in schema.field_ids:
            alike[schema.schema_id, str(schema.find_column_name(id)).lower()].add(id)
    # A mapping has fields by the names that they ever had, so its names are not those of one file.
    mapping = metadata.name_mapping()
    todo = [] if mapping is None else [("", mapping.root)]
    while todo:
        above, fields = todo.pop()
        for mapped in fields:
            for name in mapped.names:
                path = f"{above}.{name}".lower()
                alike[-1, path].add(mapped.field_id or -1)
                todo.append((path, mapped.fields))
    return {id for ids in alike.values() if len(ids) > 1 for id in ids}


def translate_pyiceberg(
    bound: BooleanExpression, columns: Columns, reading: Reading | None = None
) -> Predicate:
    """A bound filter as a predicate that holds for every row that PyIceberg would return."""
    by_id = {c.physical.field_id: c for c in columns.values() if c.physical.field_id is not None}
    return _translate(bound, by_id, reading or Reading(), wanted=True)


def _translate(
    bound: BooleanExpression, columns: Mapping[int, TableColumn], reading: Reading, *, wanted: bool
) -> Predicate:
    """Holds for every row of which the expression is true, or, with `wanted` False, is false."""
    match bound:
        case AlwaysTrue():
            return And(()) if wanted else Or(())
        case AlwaysFalse():
            return Or(()) if wanted else And(())
        case Not():
            return _translate(bound.child, columns, reading, wanted=not wanted)
        case Both() | Either():
            legs = tuple(
                _translate(leg, columns, reading, wanted=wanted)
                for leg in (bound.left, bound.right)
            )
            return And(legs) if isinstance(bound, Both) == wanted else Or(legs)
        case BoundPredicate():
            term = bound.term
            column = columns.get(term.field.field_id) if isinstance(term, BoundReference) else None
            if column is None or column.refusal is not None or column.physical.field_id is None:
                return Unknown(f"a condition on {term}")
            if column.physical.field_id in reading.confused:
                return Unknown(f"{column.name} in any case")
            if column.physical.backfilled and column.physical.field_id in reading.partitioned:
                return Unknown(f"{column.name}, a partition column with a default")
            return _Leaf(column, reading).translate(bound, wanted=wanted)
        case _:
            return Unknown(type(bound).__name__)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """Leaves on one column, by the rules of this module."""

    column: TableColumn
    reading: Reading

    @property
    def name(self) -> str:
        return self.column.name

    def translate(self, bound: BoundPredicate, *, wanted: bool) -> Predicate:
        """Holds for every row of which the leaf is true, or false if that is `wanted`."""
        match bound:
            case BoundIsNull() | BoundNotNull():
                return self._null(null=isinstance(bound, BoundIsNull) == wanted)
            case BoundIsNaN() | BoundNotNaN():
                if isinstance(bound, BoundIsNaN) == wanted:
                    return Compare(self.name, "=", _NAN)
                return self._or_null(Compare(self.name, "<", _NAN))
            case BoundStartsWith() | BoundNotStartsWith():
                if isinstance(bound, BoundStartsWith) == wanted:
                    return StartsWith(self.name, bound.literal.value)
                return self._or_null(StartsWith(self.name, bound.literal.value, negated=True))
            case BoundIn() | BoundNotIn():
                return self._list(bound, negated=isinstance(bound, BoundIn) != wanted)
            case BoundEqualTo() | BoundNotEqualTo() if isinstance(
                bound.literal, AboveMax | BelowMin
            ):
                # A list of one value that the type has not: bound again it is like no value.
                never = isinstance(bound, BoundEqualTo) == wanted
                return Or(()) if never else Unknown(f"{self.name} is not what it cannot be")
            case BoundLiteralPredicate() if type(bound) in _OPS:
                return self._compare(_OPS[type(bound)], bound.literal.value, wanted=wanted)
            case _:
                return Unknown(f"{type(bound).__name__} of {self.name}")

    def _or_null(self, *legs: Predicate) -> Predicate:
        """The legs, or null: what a file without the column has."""
        if self.column.physical.field_id in self.reading.unselected:
            return Unknown(f"{self.name}, a partition column that is not selected")
        return Or((*legs, IsNull(self.name)))

    def _null(self, *, null: bool) -> Predicate:
        if null:
            return self._or_null()
        if len(self.column.physical.path) > 1:
            return Unknown(f"{self.name} IS NOT NULL, below a struct")
        return IsNull(self.name, negated=True)

    def _compare(self, op: Op, value: Any, *, wanted: bool) -> Predicate:
        if self._is_loose([value]):
            return Unknown(f"{self.name}, a float that is a partition column")
        asked = op if wanted else OPPOSITE[op]
        compared = self._compare_in_file(asked, value)
        low, high = _NARROWER.get(self.column.type, (value, value))
        if not low <= value <= high:
            folded = op == "!=" or ((op in ("<", "<=")) == (value > high) and op != "=")
            if folded == wanted:  # for all rows of a file of the narrower type
                return self._or_null(compared, *map(self._equals, self._odd()))
        if asked == "!=" or (not wanted and asked != "="):
            odd = (_NAN,) if self._floats and asked in ("<", "<=") else ()
            return self._or_null(compared, *map(self._equals, odd))
        return compared

    def _compare_in_file(self, op: Op, value: Any) -> Predicate:
        """The comparison with the value, and with what it is as a FLOAT."""
        if self.column.type != "double" or op == "!=":
            # Typed, as reading has it; a float of Python's would be compared as the double it is.
            return Compare(self.name, op, pa.scalar(value, arrow_type(self.column.type)))
        values = sorted({value, _as_float(value)})
        if op == "=":
            return In.of(self.name, pa.array(values))
        return Compare(self.name, op, values[-1 if op in ("<", "<=") else 0])

    def _list(self, bound: BoundSetPredicate, *, negated: bool) -> Predicate:
        values = [literal.value for literal in bound.literals]
        if self._is_loose(values):
            return Unknown(f"{self.name}, a float that is a partition column")
        if negated:
            kept = self._drop_inexact(values)
            if not kept:
                return Unknown(f"{self.name} NOT IN values that may be others in a file")
            listed = In.of(self.name, self._array(kept))
            return self._or_null(In(self.name, listed.values, negated=True))
        if self.column.type == "double":
            values += [_as_float(value) for value in values]
        if self.column.type in _NARROWER:
            low, high = _NARROWER[self.column.type]
            if any(not low <= value <= high for value in values):
                values += [low, high, *map(_as_float, (low, high) if self._floats else ())]
        return In.of(self.name, self._array(values))

    def _drop_inexact(self, values: list[Any]) -> list[Any]:
        """Those that NOT IN excludes in every file: no zero, nothing that FLOATs have not."""
        if not self._floats:
            return values
        return [value for value in values if value != 0 and abs(value) <= FloatType.max]

    def _array(self, values: list[Any]) -> pa.Array:
        return pa.array(values, arrow_type(self.column.type))

    def _equals(self, value: float) -> Compare:
        return Compare(self.name, "=", pa.scalar(value, arrow_type(self.column.type)))

    @property
    def _floats(self) -> bool:
        return self.column.type in ("float", "double")

    def _odd(self) -> tuple[float, ...]:
        return _ODD if self._floats else ()

    def _is_loose(self, values: list[Any]) -> bool:
        """Whether Python compares a FLOAT of the log with more digits than it has."""
        if (
            self.column.type != "float"
            or self.column.physical.field_id not in self.reading.partitioned
        ):
            return False
        return any(_as_float(value) != value for value in values)


def _as_float(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))
