"""Sketch files on Spark: the file list is distributed, the tasks read Parquet as Arrow themselves.

No row is shuffled and none becomes a Python object; what comes back is one row a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from skipping.sketching import Work, entry_schema, sketch_files

__all__ = ["Build", "SparkBuild"]


class Build(Protocol):
    """Sketches files, in batches as large as it likes."""

    def __call__(self, files: pa.Table, work: Sequence[Work]) -> Iterator[pa.Table]:
        """Entries for files with the IDENTITY columns."""


class SparkBuild:
    """Builds in tasks of a Spark session, a job for each batch of files."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __call__(self, files: pa.Table, work: Sequence[Work]) -> Iterator[pa.Table]:
        """Entries for the files. Each batch is safe once it is stored, and progress can be seen."""
        slots = self._spark.sparkContext.defaultParallelism
        batch = max(128 * slots, len(files) // 20)
        for start in range(0, len(files), batch):
            yield self._batch(_dealt(files.slice(start, batch), slots), work)

    def _batch(self, files: pa.Table, work: Sequence[Work]) -> pa.Table:
        def sketch(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield sketch_files(batch, work)

        # Not repartitioned: a local relation has a partition a slot, and a Python task costs some
        # 0.2 s of CPU before it begins, so more tasks than slots would only cost.
        frame = self._spark.createDataFrame(files)
        schema = entry_schema(work)
        return frame.mapInArrow(sketch, from_arrow_schema(schema)).toArrow().cast(schema)


def _dealt(files: pa.Table, hands: int) -> pa.Table:
    """The files in an order of which equal slices have about the same number of bytes."""
    order = np.argsort(-files["size"].to_numpy(), kind="stable")
    return files.take(pa.array(np.concatenate([order[i::hands] for i in range(hands)])))
