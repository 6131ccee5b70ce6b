"""A scan as a DataFrame of Daft, read when it is collected."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import daft
from daft.io.source import DataSource, DataSourceTask

from providers.predicate import And

if TYPE_CHECKING:
    from skipping.tables.engine_scan import EngineScan

__all__ = ["data_frame"]


def data_frame(scan: EngineScan) -> Any:
    """The rows."""
    return _Source(scan).read()


class _Source(DataSource):  # type: ignore[misc]
    """One task: the scan's own reader opens several files at a time."""

    def __init__(self, scan: EngineScan) -> None:
        self._scan = scan

    @property
    def name(self) -> str:
        return "file skipping"

    @property
    def schema(self) -> Any:
        return daft.Schema.from_pyarrow_schema(self._scan.arrow_schema)

    async def get_tasks(self, pushdowns: Any) -> AsyncIterator[DataSourceTask]:
        yield _Task(self._scan)


class _Task(DataSourceTask):  # type: ignore[misc]
    def __init__(self, scan: EngineScan) -> None:
        self._scan = scan

    @property
    def schema(self) -> Any:
        return daft.Schema.from_pyarrow_schema(self._scan.arrow_schema)

    async def read(self) -> AsyncIterator[Any]:
        names = self._scan.arrow_schema.names
        with self._scan.narrowed(names, And(())).to_arrow_batch_reader() as reader:
            for batch in reader:
                yield daft.recordbatch.RecordBatch.from_arrow_record_batches([batch], reader.schema)
