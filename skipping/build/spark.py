"""Sketch files on Spark: the file list is distributed, the tasks read Parquet as Arrow themselves.

No row is shuffled and none becomes a Python object; what comes back is one row a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from providers.errors import TableError
from skipping.build.expressions import ExpressionBuild, merge
from skipping.build.preflight import require_executors
from skipping.build.sketch import Work, entry_schema, is_unread, sketch_files
from skipping.build.spark_reader import ReaderBuild
from skipping.tables.filesystem import locate

__all__ = ["SparkBuild", "opens"]


class SparkBuild:
    """Builds in tasks of a Spark session, a job for each batch of files.

    Python opens the files itself, which is the fastest; those that it cannot open are left to
    Spark's own reader, which has the session's credentials.
    """

    def __init__(self, spark: SparkSession, *, dated: bool = False) -> None:
        """`dated`: the files' stamps are modification times (`Table.has_log`)."""
        self._spark = spark
        self._dated = dated

    def __call__(self, files: pa.Table, work: Sequence[Work]) -> Iterator[pa.Table]:
        """Entries for the files. Each batch is safe once it is stored, and progress can be seen."""
        require_executors(self._spark, [w.provider for w in work])
        stored = [w for w in work if w.column.expression is None]
        computed = [w for w in work if w.column.expression is not None]
        compute = ExpressionBuild(self._spark, dated=self._dated)
        if not stored:
            yield from compute(files, computed)
            return
        for entries in self._stored(files, stored):
            some = [entries]
            if computed and len(entries):
                some += compute(entries.select(files.column_names), computed)
            yield merge(some, work)

    def _stored(self, files: pa.Table, work: Sequence[Work]) -> Iterator[pa.Table]:
        if any(w.column.opened for w in work) and not opens(files["path"][0].as_py()):
            yield from self._by_reader(files, work)
            return
        slots = self._spark.sparkContext.defaultParallelism
        batch = max(128 * slots, len(files) // 20)
        for start in range(0, len(files), batch):
            entries = self._batch(_dealt(files.slice(start, batch), slots), work)
            left = is_unread(entries, work)
            yield entries.filter(pc.invert(left))
            if pc.any(left).as_py():
                yield from self._by_reader(entries.filter(left).select(files.column_names), work)

    def _by_reader(self, files: pa.Table, work: Sequence[Work]) -> Iterator[pa.Table]:
        return ReaderBuild(self._spark, dated=self._dated)(files, work)

    def _batch(self, files: pa.Table, work: Sequence[Work]) -> pa.Table:
        dated = self._dated

        def sketch(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield sketch_files(batch, work, dated=dated)

        # Not repartitioned: a local relation has a partition a slot, and a Python task costs some
        # 0.2 s of CPU before it begins, so more tasks than slots would only cost.
        frame = self._spark.createDataFrame(files)
        schema = entry_schema(work)
        return frame.mapInArrow(sketch, from_arrow_schema(schema)).toArrow().cast(schema)


def opens(path: str) -> bool:
    """Whether Python can open a file of the table's storage, with what it knows of credentials."""
    try:
        filesystem, inner = locate(path)
        with filesystem.open_input_file(inner):
            return True
    except FileNotFoundError:
        return True  # it is gone, and not out of reach
    except (TableError, OSError, pa.ArrowException):
        return False


def _dealt(files: pa.Table, hands: int) -> pa.Table:
    """The files in an order of which equal slices have about the same number of bytes."""
    order = np.argsort(-files["size"].to_numpy(), kind="stable")
    return files.take(pa.array(np.concatenate([order[i::hands] for i in range(hands)])))
