"""Offer a scan as an Arrow Dataset, which libraries read with their own filters.

DuckDB's filters arrive as Arrow expressions, including those that its joins find at run time: a
join with a small dimension opens only the files that hold the dimension's keys.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs

from providers.predicate import And, Predicate
from skipping.filters.arrow import Translated, in_total_order, not_null_beside_nan, translate
from skipping.scans.base import Scan

_NO_FILE = pads.ParquetFileFormat().make_fragment(
    f"{os.devnull}/this needs a table: call to_table first", pafs.LocalFileSystem()
)


class ScanDataset(pads.FileSystemDataset):  # type: ignore[misc]
    """A scan as a Dataset: `scanner` reads the requested columns of the files that can match.

    The dataset is its own only fragment, because its reader opens several files at a time. Arrow
    operations that bypass `scanner` (`join`, `sort_by`, Acero) would crash the process on a Dataset
    without C++ state. So it has one C++ file that cannot be opened; the error shows its name, which
    says what to do.
    """

    def __init__(self, scan: Scan) -> None:
        super().__init__([_NO_FILE], scan.arrow_schema, _NO_FILE.format, _NO_FILE.filesystem)
        self._scan = scan

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._scan.arrow_schema

    def scanner(
        self, columns: Any = None, filter: Any = None, batch_size: int | None = None, **options: Any
    ) -> DatasetScanner:
        """Return a scanner of the matching rows, which opens no file before its first batch.

        `columns` and `filter` are those of `Dataset.scanner`; other options are ignored.
        """
        if filter is not None:
            filter = self._adapt_filter(filter, columns)
        names, predicate = _plan_read(self._scan, columns, filter)
        named = self.schema.names if columns is None else columns
        if not isinstance(named, dict):
            named = {name: pc.field(name) for name in named}
        return DatasetScanner(
            self._scan.project_and_prune(names, predicate), named, filter, batch_size
        )

    def _adapt_filter(self, filter: Any, columns: Any) -> Any:
        """Adapt the filter to the semantics of the engine, which reads `columns`."""
        return filter

    def filter(self, expression: Any) -> Any:
        """Raise: a filter is an argument of `scanner` and `to_table`, or of `index.scan`."""
        raise NotImplementedError("pass the filter to to_table, scanner or index.scan")

    def replace_schema(self, schema: pa.Schema) -> Any:
        """Raise: the columns are the table's."""
        raise NotImplementedError("the columns cannot be replaced: they are the table's")

    @property
    def partition_expression(self) -> Any:
        """A condition that holds for all rows: true."""
        return pc.scalar(True)

    def get_fragments(self, filter: Any = None) -> Iterator[ScanDataset]:
        """Yield the dataset itself: `scanner` decides what is read."""
        return iter((self,))

    def __reduce__(self) -> Any:
        return type(self), (self._scan,)

    def __repr__(self) -> str:
        return f"ScanDataset({self._scan!r})"


class DuckDBDataset(ScanDataset):
    """A dataset that evaluates filters as DuckDB does."""

    def _adapt_filter(self, filter: Any, columns: Any) -> Any:
        read = [f for f in self.schema if columns is None or f.name in columns]
        return in_total_order(not_null_beside_nan(filter, read), self.schema)


class DatasetScanner:
    """The part of `pyarrow.dataset.Scanner` that engines use, run in the caller's threads.

    Arrow's own scanner reads ahead in its thread pools, even after a query has enough rows. Reading
    our files needs threads of the same pools, so both wait for each other: after a few queries with
    LIMIT, the next query or the exit of the process hung.
    """

    def __init__(
        self,
        scan: Scan,
        columns: Mapping[str, pc.Expression],
        filter: pc.Expression | None,
        batch_size: int | None,
    ) -> None:
        self._scan, self._columns, self._batch_size = scan, columns, batch_size
        filters = [] if filter is None else [("filter", acero.FilterNodeOptions(filter))]
        # At least one column: rows without columns cannot be counted.
        named = columns or {name: pc.field(name) for name in scan.arrow_schema.names[:1]}
        project = acero.ProjectNodeOptions(list(named.values()), list(named))
        self._steps = [acero.Declaration(*step) for step in [*filters, ("project", project)]]

    @cached_property
    def projected_schema(self) -> pa.Schema:
        """The columns of the rows."""
        made = self._project(self._scan.arrow_schema.empty_table()).schema
        return made if self._columns else pa.schema([])

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows as they are read."""
        with self._scan.to_arrow_batch_reader() as reader:
            for batch in reader:
                made = self._project(pa.Table.from_batches([batch]))
                for part in made.to_batches(max_chunksize=self._batch_size):
                    yield part if self._columns else part.select([])

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the rows."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """Read all rows."""
        return pa.Table.from_batches(self.to_batches(), self.projected_schema)

    def count_rows(self) -> int:
        """Count the rows."""
        return sum(map(len, self.to_batches()))

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows."""
        found, batches = [], self.to_batches()
        while num_rows > 0 and (batch := next(batches, None)) is not None:
            found.append(batch.slice(0, num_rows))
            num_rows -= len(batch)
        return pa.Table.from_batches(found, self.projected_schema)

    def take(self, indices: Any) -> pa.Table:
        """Return the rows at these positions."""
        return self.to_table().take(indices)

    def _project(self, table: pa.Table) -> pa.Table:
        source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
        return acero.Declaration.from_sequence([source, *self._steps]).to_table(use_threads=False)


def _plan_read(scan: Scan, columns: Any, filter: Any) -> tuple[list[str], Predicate]:
    there = scan.arrow_schema.names
    found = (
        Translated(And(()), frozenset())
        if filter is None
        else translate(filter, scan.indexable_columns())
    )
    if columns is None or found.columns is None:
        return there, found.predicate
    named: set[str] | None = set(found.columns)
    for column in columns.values() if isinstance(columns, dict) else columns:
        fields = {column} if isinstance(column, str) else translate(column, {}).columns
        named = None if named is None or fields is None else named | fields
    if named is None:
        return there, found.predicate
    # At least one column: rows without columns cannot be counted.
    return [name for name in there if name in named] or there[:1], found.predicate
