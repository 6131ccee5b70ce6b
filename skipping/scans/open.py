"""Open a table's scan or transaction without Spark, over the files that can match."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from providers.errors import TableError
from skipping.lookup.query import IndexQuery
from skipping.scans.file_scan import FileScan
from skipping.tables import Table

if TYPE_CHECKING:
    from pyiceberg.table import Transaction

    from skipping.scans.iceberg_scan import IndexedScan
    from skipping.tables.iceberg.pyiceberg import PyIcebergTable


def open_scan(query: IndexQuery, table: Table, **options: Any) -> IndexedScan | FileScan:
    """Return a scan of `table` without the files that the index prunes.

    `options` are those of `SkippingIndex.scan`. Raises TableError for a table that was opened with
    Spark.
    """
    opened: Any = table
    if hasattr(table, "snapshot"):
        return FileScan.of(opened.snapshot(), query, opened.locate, **options)
    if hasattr(table, "locate"):
        return _open_iceberg(query, opened, **options)
    raise TableError(f"{table.name} was opened with Spark: query it with Spark")


def _open_iceberg(
    query: IndexQuery,
    table: PyIcebergTable,
    *,
    row_filter: Any = "",
    keys: Mapping[str, Any] | None = None,
    **options: Any,
) -> IndexedScan:
    """Return PyIceberg's `Table.scan`; `keys` and filters of other libraries are applied here."""
    from pyiceberg.expressions import BooleanExpression

    from skipping.filters.pyiceberg import parse_filter
    from skipping.scans.iceberg_scan import IndexedScan

    own: Any = ""
    if not isinstance(row_filter, str | BooleanExpression):
        own = row_filter
    elif row_filter != "":  # PyIceberg cannot parse an empty text
        options["row_filter"] = parse_filter(row_filter)
    scan = table.table.scan(**options)
    return IndexedScan.of(scan, query.find_prunable, row_filter=own, keys=keys)


def open_transaction(query: IndexQuery, table: Table) -> Transaction:
    """Return PyIceberg's transaction, whose commands read only the files that the index leaves.

    Raises TableError for other tables, with the reason.
    """
    opened: Any = table
    if hasattr(table, "snapshot"):
        raise TableError(
            f"{table.name} cannot be written through an index: a folder of Parquet files has no "
            "commits, and delta-rs has no call that takes the files of a delete and checks for "
            "conflicts by its condition. For Delta, use DeltaTable.delete and DeltaTable.merge"
        )
    if not hasattr(table, "locate"):
        raise TableError(f"{table.name} was opened with Spark: use DELETE, UPDATE and MERGE")
    from skipping.scans.iceberg_transaction import begin

    return begin(opened.table, query.find_prunable)
