"""PyIceberg's scans, less the files that an index disproves for their row filter."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    BooleanExpression,
    BoundEqualTo,
    BoundGreaterThan,
    BoundGreaterThanOrEqual,
    BoundIn,
    BoundIsNull,
    BoundLessThan,
    BoundLessThanOrEqual,
    BoundLiteralPredicate,
    BoundNotEqualTo,
    BoundNotIn,
    BoundNotNull,
    BoundNotStartsWith,
    BoundReference,
    BoundSetPredicate,
    BoundStartsWith,
    BoundUnaryPredicate,
)
from pyiceberg.expressions import And as Both
from pyiceberg.expressions import Or as Either
from pyiceberg.expressions.visitors import bind, rewrite_not
from pyiceberg.table import DataScan, FileScanTask

from providers.predicate import (
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
from skipping.stores import Identity
from skipping.tables import Columns, TableColumn
from skipping.tables.iceberg_metadata import Metadata

__all__ = ["Disproved", "IndexedScan", "predicate_of"]

log = logging.getLogger("skipping")

Disproved: TypeAlias = Callable[[Predicate, Columns], set[Identity]]
"""The files without a match for a predicate on columns."""

_OPS: dict[type, Op] = {
    BoundEqualTo: "=",
    BoundNotEqualTo: "!=",
    BoundLessThan: "<",
    BoundLessThanOrEqual: "<=",
    BoundGreaterThan: ">",
    BoundGreaterThanOrEqual: ">=",
}


class IndexedScan(DataScan):
    """A scan as PyIceberg's own (`to_arrow`, `to_pandas`, `select`, `count`), over fewer files.

    Where the index cannot be asked it plans every file, as PyIceberg does, and says so in the log.
    """

    _disproved: Disproved

    @classmethod
    def of(cls, scan: DataScan, disproved: Disproved) -> IndexedScan:
        """The scan, cut by what an index disproves."""
        made = cls(
            scan.table_metadata,
            scan.io,
            scan.row_filter,
            scan.selected_fields,
            scan.case_sensitive,
            scan.snapshot_id,
            scan.options,
            scan.limit,
            scan.catalog,
            scan.table_identifier,
        )
        made._disproved = disproved
        return made

    def update(self, **overrides: Any) -> IndexedScan:
        """A copy with other settings."""
        made: IndexedScan = super().update(**overrides)
        made._disproved = self._disproved
        return made

    def plan_files(self) -> Iterable[FileScanTask]:
        """The tasks of the files that may have a matching row."""
        tasks = list(super().plan_files())
        try:
            columns = Metadata(self.table_metadata.model_dump_json()).columns()
            schema = self.table_metadata.schema()
            bound = bind(schema, rewrite_not(self.row_filter), self.case_sensitive)
            disproved = self._disproved(predicate_of(bound, columns), columns)
        except Exception as error:  # reading never fails because of an index
            log.warning("no file is skipped: %s", error)
            return tasks
        return [task for task in tasks if _identity(task) not in disproved]


def _identity(task: FileScanTask) -> Identity:
    return task.file.file_path, task.file.file_size_in_bytes, task.file.record_count


def predicate_of(bound: BooleanExpression, columns: Columns) -> Predicate:
    """A bound filter without Not as a predicate that holds for every row PyIceberg would return."""
    return _translated(bound, {c.field_id: c for c in columns.values() if c.field_id is not None})


def _translated(bound: BooleanExpression, columns: Mapping[int, TableColumn]) -> Predicate:
    match bound:
        case AlwaysTrue():
            return And(())
        case AlwaysFalse():
            return Or(())
        case Both():
            return And((_translated(bound.left, columns), _translated(bound.right, columns)))
        case Either():
            return Or((_translated(bound.left, columns), _translated(bound.right, columns)))
        case BoundUnaryPredicate() | BoundLiteralPredicate() | BoundSetPredicate():
            term = bound.term
            column = columns.get(term.field.field_id) if isinstance(term, BoundReference) else None
            arrow = arrow_type(column.type) if column is not None else None
            if column is None or column.refusal is not None or arrow is None:
                return Unknown(f"a condition on {term}")
            return _leaf(bound, column.name, arrow)
        case _:
            return Unknown(type(bound).__name__)


def _leaf(
    bound: BoundUnaryPredicate | BoundLiteralPredicate | BoundSetPredicate,
    name: str,
    arrow: pa.DataType,
) -> Predicate:
    match bound:
        case BoundIsNull():
            return IsNull(name)
        case BoundNotNull():
            return IsNull(name, negated=True)
        case BoundStartsWith():
            return StartsWith(name, bound.literal.value)
        case BoundNotStartsWith():
            return _or_null(StartsWith(name, bound.literal.value, negated=True))
        case BoundIn():
            return In.of(name, _values(bound, arrow))
        case BoundNotIn():
            return _or_null(In(name, In.of(name, _values(bound, arrow)).values, negated=True))
        case BoundLiteralPredicate() if type(bound) in _OPS:
            literal = bound.literal.value
            # Reading narrows it; a float of Python's would be compared as the double it is.
            value = pa.scalar(literal, arrow) if pa.types.is_float32(arrow) else literal
            compare = Compare(name, _OPS[type(bound)], value)
            return _or_null(compare) if compare.op == "!=" else compare
        case _:
            return Unknown(f"{type(bound).__name__} of {name}")  # NaN, as Arrow sees it


def _values(bound: BoundSetPredicate, arrow: pa.DataType) -> pa.Array:
    return pa.array([literal.value for literal in bound.literals], arrow)


def _or_null(leaf: Compare | In | StartsWith) -> Predicate:
    """A negation as PyIceberg evaluates it: `NOT IN` returns the rows with null too."""
    return Or((leaf, IsNull(leaf.column)))
