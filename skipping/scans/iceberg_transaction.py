"""Run PyIceberg's `delete`, `overwrite` and `upsert` without the files that an index prunes.

PyIceberg has no call that takes files, so `IndexedTransaction` replaces the scans with which these
commands find the files to rewrite. Planning of the commit, conflict detection and retries are
PyIceberg's, with the complete filter. The list of files is that of the transaction's own metadata
and branch; the index can only remove files from it, by their identity.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from decimal import Decimal
from types import FunctionType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyiceberg
from pyiceberg import expressions as iceberg
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import ALWAYS_TRUE, DataScan, Table, Transaction

from providers.errors import DefinitionError
from providers.keys import Keys
from providers.values import domain_of
from skipping.filters.pyiceberg import Reading, parse_filter
from skipping.requirements import require_release
from skipping.scans.iceberg_scan import IndexedScan, Pruned
from skipping.scans.row_filters import leaf_values

log = logging.getLogger("skipping")

_any: Any = iceberg
"""PyIceberg's classes, which take more than their signatures say."""


class _DeleteScan(IndexedScan):
    """Plans the files that `Transaction.delete` reads, and rewrites without the deleted rows."""

    def _reading(self, bound: iceberg.BooleanExpression) -> Reading:
        return Reading.of_delete(self.table_metadata, bound)


class IndexedTransaction(Transaction):
    """PyIceberg's transaction; `delete`, `overwrite` and `upsert` read only files that can match.

    If the index is unavailable, they read the files that PyIceberg reads, and a warning is logged.
    """

    def __init__(self, table: Table, find_prunable: Pruned) -> None:
        super().__init__(table)
        self._find_prunable = find_prunable

    def _scan(
        self, row_filter: str | iceberg.BooleanExpression = ALWAYS_TRUE, case_sensitive: bool = True
    ) -> DataScan:
        return _DeleteScan.of(super()._scan(row_filter, case_sensitive), self._find_prunable)

    def upsert(self, *args: Any, **kwargs: Any) -> Any:
        """Run PyIceberg's `upsert`."""
        # It creates the scan of the matching rows itself, so its code runs with another DataScan.
        own = Transaction.upsert
        if own.__closure__ is not None:
            log.warning("no file is skipped: another library has replaced PyIceberg's upsert")
            return super().upsert(*args, **kwargs)
        names = {**own.__globals__, "DataScan": self._scan_matches}
        code = FunctionType(own.__code__, names, own.__name__, own.__defaults__)
        code.__kwdefaults__ = own.__kwdefaults__
        return code(self, *args, **kwargs)

    def _scan_matches(self, **options: Any) -> DataScan:
        return IndexedScan.of(DataScan(**options), self._find_prunable)


def begin(table: Table, find_prunable: Pruned) -> Transaction:
    """Return a transaction that reads only the files that the index leaves.

    With another release of PyIceberg than the tested one, PyIceberg's own, and log a warning.
    """
    try:
        require_release(
            "PyIceberg",
            pyiceberg.__version__,
            "0.12",
            install="pip install 'lakehouse-file-skipping[iceberg]'",
        )
    except ImportError as error:
        log.warning("no file is skipped: %s", error)
        return table.transaction()
    return IndexedTransaction(table, find_prunable)


def delete_filter(
    schema: Schema, row_filter: Any, keys: Mapping[str, Any] | None
) -> iceberg.BooleanExpression:
    """Return PyIceberg's expression for the rows that meet the filter and have one of the keys.

    Raises StatementError for text that PyIceberg cannot parse, DefinitionError for neither filter
    nor keys, for an unknown column and for one whose type cannot be compared, TypeError for keys
    that cannot be compared with their column.
    """
    if not isinstance(row_filter, str | iceberg.BooleanExpression):
        raise TypeError(
            f"the filter is a {type(row_filter).__name__}: PyIceberg deletes by text, or by an "
            "expression of PyIceberg"
        )
    if row_filter == "" and not keys:
        raise DefinitionError(
            "give a condition or keys. To delete all rows, pass AlwaysTrue() of PyIceberg"
        )
    operands = [] if row_filter == "" else [parse_filter(row_filter)]
    rows = schema_to_pyarrow(schema, include_field_ids=False).empty_table()
    for name, given in (keys or {}).items():
        operands.append(_key_filter(schema, name, given, rows))
    return _any.And(*operands) if len(operands) > 1 else operands[0]


def _key_filter(schema: Schema, name: str, given: Any, rows: pa.Table) -> iceberg.BooleanExpression:
    """Return the filter for the rows whose column equals a key, as for the keys of a scan."""
    try:
        name = str(schema.find_column_name(schema.find_field(name).field_id))
    except ValueError:
        raise DefinitionError(
            f"no column {name}: there are {', '.join(rows.column_names)}"
        ) from None
    type = leaf_values(rows, name).type
    if domain_of(type) is None:
        raise DefinitionError(f"{name} is {type}: its values cannot be compared with keys")
    values = _fitting(Keys.of(name, given, type).given.drop_null().unique(), type)
    if not pa.types.is_floating(type):
        listed = _any.In(name, values.to_pylist())
    else:
        # PyIceberg compares the bits of values in a list, and replaces an infinity by the maximum.
        end = float(np.finfo(type.to_pandas_dtype()).max)
        special = [
            (pc.equal(values, 0.0), _any.EqualTo(name, 0.0)),
            (pc.is_nan(values), _any.IsNaN(name)),
            (pc.equal(values, math.inf), _any.GreaterThan(name, end)),
            (pc.equal(values, -math.inf), _any.LessThan(name, -end)),
        ]
        usual = pc.and_(pc.is_finite(values), pc.not_equal(values, 0.0))
        listed = _any.In(name, values.filter(usual).to_pylist())
        for found, condition in special:
            listed = _any.Or(listed, condition) if pc.any(found).as_py() else listed
    # Null would make the filter null, and a delete may remove these rows: see the filter's module.
    matching: iceberg.BooleanExpression = _any.And(_any.NotNull(name), listed)
    return matching


def _fitting(values: pa.Array, type: pa.DataType) -> pa.Array:
    """Return the keys that a column of this type can have.

    PyIceberg rounds a key to the column's type, replaces it by the type's minimum or maximum, which
    would delete other rows, or fails.
    """
    if pa.types.is_integer(type):
        return values.filter(pc.equal(values.cast(type, safe=False), values))
    if pa.types.is_float32(type):
        wide, values = values.cast(pa.float64()), values.cast(pa.float32())
        return values.filter(pc.or_(pc.equal(values.cast(pa.float64()), wide), pc.is_nan(wide)))
    if pa.types.is_decimal(type) and type.precision < values.type.precision:
        end = pa.scalar(Decimal(f"1E{type.precision - type.scale}"), values.type)
        return values.filter(pc.less(pc.abs(values), end))
    return values
