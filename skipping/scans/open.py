"""Open a table's scan without Spark: the rows that match, from the files that can match."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from providers.errors import StatementError, TableError
from skipping.lookup.query import IndexQuery
from skipping.scans.file_scan import FileScan
from skipping.tables import Table

if TYPE_CHECKING:
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
    from pyparsing import ParseBaseException

    from skipping.scans.iceberg_scan import IndexedScan

    own: Any = ""
    if not isinstance(row_filter, str | BooleanExpression):
        own = row_filter
    elif row_filter != "":  # PyIceberg cannot parse an empty text
        options["row_filter"] = row_filter
    try:
        scan = table.table.scan(**options)
    except ParseBaseException as error:  # its text has the whole grammar
        raise StatementError(
            f"PyIceberg cannot read the filter {row_filter!r}: it takes text in "
            "single quotes, as in name = 'x', and joins conditions by AND, OR and NOT"
        ) from error
    return IndexedScan.of(scan, query.find_prunable, row_filter=own, keys=keys)
