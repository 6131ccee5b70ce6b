"""Define the interface of scans without Spark: they return the matching rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from providers.predicate import Predicate
from skipping.tables import TableColumn


def take_rows(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """Yield the first `limit` rows, all if it is None; read no batch after them."""
    left = limit
    for batch in batches if left != 0 else ():
        yield batch if left is None else batch.slice(0, left)
        left = None if left is None else left - min(left, len(batch))
        if left == 0:
            return


class Scan(ABC):
    """The matching rows of a table, which are read on demand."""

    @property
    @abstractmethod
    def arrow_schema(self) -> pa.Schema:
        """The columns of the rows."""

    @abstractmethod
    def to_arrow_batch_reader(self) -> pa.RecordBatchReader:
        """Read the rows, a few files at a time as batches are consumed."""

    @abstractmethod
    def project_and_prune(self, names: Sequence[str], predicate: Predicate) -> Scan:
        """Return this scan with these columns only, without files that cannot match the predicate.

        It does not filter the remaining rows by the predicate: the caller does.
        """

    @abstractmethod
    def indexable_columns(self) -> Mapping[str, TableColumn]:
        """Return the table's non-struct columns, by their names in the rows."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Export the rows as an Arrow stream, which most libraries read.

        For example `pyarrow.table(scan)`, `pandas.DataFrame.from_arrow(scan)`,
        `daft.from_arrow(scan)`, or `context.from_arrow(scan, "t")` with DataFusion.
        """
        return self.to_arrow_batch_reader().__arrow_c_stream__(requested_schema)
