"""Sketch files in threads of this process, without Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from skipping.indexing.sketch import Work, sketch_files
from skipping.tables.filesystem import Locate, locate

_BATCH = 256
"""Number of files between two writes to the store, and updates of the progress."""


class LocalBuild:
    """Builds with one thread for each file: Arrow decodes without the interpreter's lock."""

    def __init__(self, *, locate: Locate = locate, dated: bool = False) -> None:
        """`locate` opens a path's file system, with credentials; `dated` as in `sketch_files`."""
        self.locate = locate
        self._dated = dated

    def __call__(self, files: pa.Table, work: Sequence[Work]) -> Iterator[pa.Table]:
        """Yield entries for the files."""
        with ThreadPoolExecutor(min(32, 4 + (os.cpu_count() or 1))) as pool:
            for start in range(0, len(files), _BATCH):
                batch = files.slice(start, _BATCH).combine_chunks()
                rows = [batch.slice(i, 1).to_batches()[0] for i in range(len(batch))]
                yield pa.Table.from_batches(pool.map(lambda row: self._sketch(row, work), rows))

    def _sketch(self, file: pa.RecordBatch, work: Sequence[Work]) -> pa.RecordBatch:
        return sketch_files(file, work, dated=self._dated, locate=self.locate)
