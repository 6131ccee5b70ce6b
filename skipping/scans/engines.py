"""Pass the rows of a scan's remaining files to other engines.

Every method reads as lazily as its engine allows: the engine names its columns and its filter, the
index prunes files by that filter, too, and only then are files opened. The scan's own reader
applies deletes, partition columns and evolved schemas as the format specifies.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pyarrow as pa

from skipping.scans.base import Scan
from skipping.scans.dataset import DuckDBDataset, ScanDataset
from skipping.scans.row_filters import KeyTest, RowTest


class EngineScan(Scan):
    """A scan with the methods that hand its rows to engines."""

    tests: tuple[RowTest, ...] = ()

    def key_tests(self) -> list[KeyTest]:
        """Return the tests of the join keys that the scan was given."""
        return [test for test in self.tests if isinstance(test, KeyTest)]

    def to_arrow(self) -> pa.Table:
        """Read the rows; raise TableError for a file that does not fit the table."""
        return self.to_arrow_batch_reader().read_all()

    def to_pandas(self, **kwargs: Any) -> Any:
        """Read the rows as a DataFrame; options are those of `pyarrow.Table.to_pandas`."""
        return self.to_arrow().to_pandas(**kwargs)

    def to_dataset(self) -> ScanDataset:
        """Return the rows as a `pyarrow.dataset.Dataset`, which many libraries read.

        For Arrow's own operations on a Dataset (`join`, `sort_by`), use `to_arrow`.
        """
        return ScanDataset(self)

    def to_duckdb(self, table_name: str, connection: Any = None) -> Any:
        """Register the rows as a view; return the connection, by default a new one in memory.

        Each query on the view reads only its columns, from the files that can match its filter and
        the keys of its joins (DuckDB passes on 50 keys at most; `keys=` takes any number).
        """
        con = connection if connection is not None else _import("duckdb").connect(":memory:")
        con.register(table_name, DuckDBDataset(self))
        return con

    def to_polars(self) -> Any:
        """Return the rows as a LazyFrame, which reads only what it selects when it is collected."""
        _import("polars")
        from skipping.scans.polars import lazy_frame

        return lazy_frame(self)


def _import(library: str) -> Any:
    try:
        return import_module(library)
    except ImportError as error:
        raise ImportError(
            f"{library} is not installed: pip install 'lakehouse-file-skipping[{library}]'"
        ) from error
