"""A scan as a DataFrame of Daft, read when it is collected."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import daft
import pyarrow as pa
from daft.io.source import DataSource, DataSourceTask

from providers.predicate import And
from skipping.tables.arrow_types import replace_leaves, without_dictionary

if TYPE_CHECKING:
    from skipping.scans.engines import EngineScan

__all__ = ["data_frame"]


def data_frame(scan: EngineScan) -> Any:
    """The rows."""
    return _Source(scan).read()


def _schema(scan: EngineScan) -> pa.Schema:
    """The columns as Daft reads them from a file: it has no dictionaries."""
    return pa.schema(
        [f.with_type(replace_leaves(f.type, without_dictionary)) for f in scan.arrow_schema]
    )


class _Source(DataSource):  # type: ignore[misc]
    """One task: the scan's own reader opens several files at a time."""

    def __init__(self, scan: EngineScan) -> None:
        self._scan = scan

    @property
    def name(self) -> str:
        return "file skipping"

    @property
    def schema(self) -> Any:
        return daft.Schema.from_pyarrow_schema(_schema(self._scan))

    async def get_tasks(self, pushdowns: Any) -> AsyncIterator[DataSourceTask]:
        yield _Task(self._scan)


class _Task(DataSourceTask):  # type: ignore[misc]
    def __init__(self, scan: EngineScan) -> None:
        self._scan = scan

    @property
    def schema(self) -> Any:
        return daft.Schema.from_pyarrow_schema(_schema(self._scan))

    async def read(self) -> AsyncIterator[Any]:
        names, schema = self._scan.arrow_schema.names, _schema(self._scan)
        with self._scan.narrowed(names, And(())).to_arrow_batch_reader() as reader:
            for batch in reader:
                plain = batch.cast(schema)
                yield daft.recordbatch.RecordBatch.from_arrow_record_batches([plain], schema)
