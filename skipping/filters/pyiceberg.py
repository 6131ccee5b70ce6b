"""Translate the row filter of a PyIceberg scan to a predicate for an index.

PyIceberg does not evaluate a filter as SQL does: `ArrowScan` binds it to each file's own schema and
passes it to Arrow. The predicate must hold for each row that Arrow returns. The rules below name
the rows that a plain translation would lose:

=============================  =====================================================================
`NOT` of an ordering           Arrow compares NaN as false, so `NOT x > 5` returns NaN, and `x <= 5`
                               does not. An index sorts NaN last: the predicate is `x <= 5 OR
                               x = NaN`.
a file without the column      Each leaf is true or false, as for Python's None: false for `=`, IN
                               and orderings, true for `!=`, `NOT IN`, `IS NULL`, `NOT STARTS WITH`.
                               False under NOT is true. To the index all values of such a file are
                               null, so the predicate includes null wherever the leaf is true.
nulls                          A comparison with null is null, also under NOT; but `NOT IN` is true.
-0.0                           `=` treats both zeros as equal, IN compares bits: `NOT IN (0.0, 1.0)`
                               returns -0.0. To an index they are one value: no zero is excluded.
a file older than a widening   PyIceberg narrows the literal to the file's type. DOUBLE 0.1 becomes
                               FLOAT 0.1, a slightly larger number, which `x <= 0.1` returns. The
                               predicate takes the wider of the two bounds. A literal that does not
                               fit makes the leaf true or false for all rows, also for null, NaN and
                               infinity (`x < 2**40` in an INT file); in a list it becomes the
                               smallest or largest value that fits.
IS NOT NULL below a struct     is true for all rows if the file declares the leaf required, though a
                               struct above it may be null.
partition columns              A file without the column reads the value in the log, but only if the
                               scan selects the column; else it reads null. Python compares it with
                               the literal as given, not narrowed to a FLOAT.
`case_sensitive=False`         PyIceberg finds names in the file in any case, so it may read another
                               column whose name differs in case only.
delete                         `Transaction.delete` filters the rows as read, by the complement: it
                               keeps rows for which the filter is false, and those with a null or
                               NaN in a column. Not so if the filter contains `IS NULL` of this
                               column: then it deletes rows for which the filter is null. So each
                               leaf on such a column includes null.
=============================  =====================================================================

Every other leaf is unknown. And, Or and Not follow Kleene's logic, as in Arrow.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg import expressions as iceberg
from pyiceberg.expressions.literals import AboveMax, BelowMin
from pyiceberg.expressions.parser import parse
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import FloatType, IntegerType
from pyparsing import ParseBaseException

from providers.errors import StatementError
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

_OPS: dict[type, Op] = {
    iceberg.BoundEqualTo: "=",
    iceberg.BoundLessThan: "<",
    iceberg.BoundLessThanOrEqual: "<=",
    iceberg.BoundGreaterThan: ">",
    iceberg.BoundGreaterThanOrEqual: ">=",
}
NEGATIONS = (
    *(iceberg.BoundNotNull, iceberg.BoundNotNaN, iceberg.BoundNotIn),
    *(iceberg.BoundNotEqualTo, iceberg.BoundNotStartsWith),
)
"""Predicates that are the negation of another, which `~` returns."""

_NARROWER = {"bigint": (IntegerType.min, IntegerType.max), "double": (FloatType.min, FloatType.max)}
"""For each widened type, the range of literals that fit the type before."""

_NAN = math.nan
_ODD = (math.inf, -math.inf, _NAN)
"""Floats that no literal can have."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Ids of columns whose leaves depend on more than the filter.

    `partitioned`: some spec partitions by the column itself. `unselected`: such columns that the
    scan does not return. `ambiguous`: a file may have another column whose name differs in case
    only. `deleting`: a row is also wanted if such a column's null makes the filter null.
    """

    partitioned: Set[int] = field(default_factory=frozenset)
    unselected: Set[int] = field(default_factory=frozenset)
    ambiguous: Set[int] = field(default_factory=frozenset)
    deleting: Set[int] = field(default_factory=frozenset)

    @classmethod
    def of(cls, metadata: TableMetadata, *, selected: Set[int], case_sensitive: bool) -> Reading:
        """Describe a scan that returns the columns with the ids `selected`."""
        partitioned = {f.source_id for spec in metadata.partition_specs for f in spec.fields}
        ambiguous = set() if case_sensitive else _find_ambiguous(metadata)
        return cls(partitioned, partitioned - selected, ambiguous)

    @classmethod
    def of_delete(cls, metadata: TableMetadata, bound: iceberg.BooleanExpression) -> Reading:
        """Describe a delete by a bound filter, which reads all columns of the current schema."""
        whole = cls.of(metadata, selected=metadata.schema().field_ids, case_sensitive=True)
        return replace(whole, deleting=frozenset(_find_null_tests(bound)))


def _find_null_tests(bound: Any) -> Iterator[int]:
    """Yield the ids of the columns that have an `IS NULL` or `IS NOT NULL` in a bound filter."""
    match bound:
        case iceberg.Not():
            yield from _find_null_tests(bound.child)
        case iceberg.And() | iceberg.Or():
            yield from _find_null_tests(bound.left)
            yield from _find_null_tests(bound.right)
        case iceberg.BoundIsNull() | iceberg.BoundNotNull():
            yield bound.term.ref().field.field_id


def _find_ambiguous(metadata: TableMetadata) -> set[int]:
    """Find columns whose names differ in case only, in a schema or in the name mapping."""
    alike: defaultdict[tuple[int, str], set[int]] = defaultdict(set)
    for schema in metadata.schemas:
        for id in schema.field_ids:
            alike[schema.schema_id, str(schema.find_column_name(id)).lower()].add(id)
    # A mapping has every name that a field ever had, so its names are not those of one file.
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


def parse_filter(row_filter: str | iceberg.BooleanExpression) -> iceberg.BooleanExpression:
    """Parse the text of a filter; raise StatementError if PyIceberg cannot."""
    if isinstance(row_filter, iceberg.BooleanExpression):
        return row_filter
    try:
        return parse(row_filter)
    except ParseBaseException as error:  # its text has the whole grammar
        raise StatementError(
            f"PyIceberg cannot read the filter {row_filter!r}: it takes text in "
            "single quotes, as in name = 'x', and joins conditions by AND, OR and NOT"
        ) from error


def translate_pyiceberg(
    bound: iceberg.BooleanExpression, columns: Columns, reading: Reading | None = None
) -> Predicate:
    """Translate a bound filter to a predicate that holds for each row that PyIceberg returns."""
    reading = reading or Reading()
    by_id = {c.physical.field_id: c for c in columns.values() if c.physical.field_id is not None}

    def translate(bound: Any, *, wanted: bool) -> Predicate:
        """Return a predicate for the rows where it is true, or false unless `wanted`."""
        match bound:
            case iceberg.AlwaysTrue():
                return And(()) if wanted else Or(())
            case iceberg.AlwaysFalse():
                return Or(()) if wanted else And(())
            case iceberg.Not():
                return translate(bound.child, wanted=not wanted)
            case iceberg.And() | iceberg.Or():
                pair = bound.left, bound.right
                operands = tuple(translate(operand, wanted=wanted) for operand in pair)
                return And(operands) if isinstance(bound, iceberg.And) == wanted else Or(operands)
            case _ if isinstance(bound, NEGATIONS):
                return translate(~bound, wanted=not wanted)
            case iceberg.BoundPredicate():
                return leaf(bound, wanted)
        return Unknown(type(bound).__name__)

    def leaf(bound: iceberg.BoundPredicate, wanted: bool) -> Predicate:
        term = bound.term
        column = None
        if isinstance(term, iceberg.BoundReference):
            column = by_id.get(term.field.field_id)
        if column is None or column.refusal is not None:
            return Unknown(f"a condition on {term}")
        if column.physical.field_id in reading.ambiguous:
            return Unknown(f"{column.name} is a name in several cases")
        if column.physical.backfilled and column.physical.field_id in reading.partitioned:
            return Unknown(f"{column.name}, a partition column with a default")
        return _Leaf(column, reading).translate(bound, wanted=wanted)

    return translate(bound, wanted=True)


@dataclass(frozen=True, slots=True)
class _Leaf:
    column: TableColumn
    reading: Reading

    @property
    def name(self) -> str:
        return self.column.name

    def translate(self, bound: iceberg.BoundPredicate, *, wanted: bool) -> Predicate:
        """Return a predicate for the rows where the leaf is true, or false unless `wanted`."""
        found = self._translate(bound, wanted=wanted)
        can_be_null = not isinstance(bound, iceberg.BoundIsNull)
        if can_be_null and self.column.physical.field_id in self.reading.deleting:
            return Or((found, IsNull(self.name)))
        return found

    def _translate(self, bound: iceberg.BoundPredicate, *, wanted: bool) -> Predicate:
        match bound:
            case iceberg.BoundIsNull():
                return self._null(null=wanted)
            case iceberg.BoundIsNaN() if wanted:
                return Compare(self.name, "=", _NAN)
            case iceberg.BoundIsNaN():
                return self._or_null(Compare(self.name, "<", _NAN))
            case iceberg.BoundStartsWith():
                test = StartsWith(self.name, bound.literal.value, negated=not wanted)
                return test if wanted else self._or_null(test)
            case iceberg.BoundIn():
                return self._list(bound, negated=not wanted)
            case iceberg.BoundEqualTo(literal=AboveMax() | BelowMin()):
                # A list of one value outside the type: bound to a file, it is like an empty list.
                return Or(()) if wanted else Unknown(f"{self.name}, a value outside its type")
            case iceberg.BoundLiteralPredicate() if type(bound) in _OPS:
                return self._compare(_OPS[type(bound)], bound.literal.value, wanted=wanted)
            case _:
                return Unknown(f"{type(bound).__name__} of {self.name}")

    def _or_null(self, *operands: Predicate) -> Predicate:
        """Join the operands with IS NULL, which holds in a file without the column."""
        if self.column.physical.field_id in self.reading.unselected:
            return Unknown(f"{self.name}, a partition column that is not selected")
        return Or((*operands, IsNull(self.name)))

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
            folded = op != "=" and (op in ("<", "<=")) == (value > high)
            if folded == wanted:  # for all rows of a file with the narrower type
                return self._or_null(compared, *map(self._equals, _ODD if self._floats else ()))
        if asked == "!=" or (not wanted and asked != "="):
            odd = (_NAN,) if self._floats and asked in ("<", "<=") else ()
            return self._or_null(compared, *map(self._equals, odd))
        return compared

    def _compare_in_file(self, op: Op, value: Any) -> Predicate:
        """Compare with the value, and with the FLOAT it becomes in an older file."""
        if self.column.type != "double" or op == "!=":
            # Typed, as in PyIceberg's reader; a Python float would be compared as a double.
            return Compare(self.name, op, pa.scalar(value, arrow_type(self.column.type)))
        values = sorted({value, _as_float(value)})
        if op == "=":
            return In.of(self.name, pa.array(values))
        return Compare(self.name, op, values[-1 if op in ("<", "<=") else 0])

    def _list(self, bound: iceberg.BoundSetPredicate, *, negated: bool) -> Predicate:
        values = [literal.value for literal in bound.literals]
        if self._is_loose(values):
            return Unknown(f"{self.name}, a float that is a partition column")
        if negated:
            kept = self._drop_inexact(values)
            if not kept:
                return Unknown(f"{self.name} NOT IN zeros or values beyond FLOAT")
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
        """Return the values that NOT IN excludes in every file: no zero, none beyond FLOAT."""
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

    def _is_loose(self, values: list[Any]) -> bool:
        """Return whether Python compares a FLOAT from the log with a literal of more digits."""
        if (
            self.column.type != "float"
            or self.column.physical.field_id not in self.reading.partitioned
        ):
            return False
        return any(_as_float(value) != value for value in values)


def _as_float(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))
