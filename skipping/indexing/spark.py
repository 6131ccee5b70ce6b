"""Sketch files on Spark: the list of files is distributed, and tasks read Parquet with Arrow.

No row is shuffled or becomes a Python object; the result has one row for each file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import FileSystem
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from providers.errors import TableError
from skipping.indexing.expressions import ExpressionBuild, merge
from skipping.indexing.preflight import require_executors
from skipping.indexing.sketch import Work, entry_schema, is_unread, make_entries, sketch_files
from skipping.indexing.spark_reader import ReaderBuild
from skipping.indexing.storage import Storage, root_of, session_storage
from skipping.indexing.tasks import as_task
from skipping.spark_api import collect_arrow, create_frame
from skipping.tables.filesystem import Locate, locate

MADE = 64 << 20
"""Approximate bytes of entries that the driver receives at a time: the memory that a build takes.
The size of the first batch's entries is not known in advance, so `SLOT` limits its files.
"""

READ = 1 << 30
"""Bytes of files for each slot in a batch. Each batch is a job, so it gets a lot of small files."""

SLOT = (128, 1024)
"""Min and max of files for each slot, in a batch whose entries have no known size."""

_WAITING = 16
_HELD = 1 << 30
"""Bytes of files that a task reads concurrently; it has one row group of each in memory."""


class SparkBuild:
    """Builds in tasks of a Spark session, a job for each batch of files.

    Python opens the files with the session's credentials, which is fastest. Spark reads the files
    that Python cannot open.
    """

    def __init__(self, spark: SparkSession, *, dated: bool = False) -> None:
        """`dated`: the files' stamps are modification times (`Table.has_log`)."""
        self._spark = spark
        self._dated = dated

    def __call__(self, files: pa.Table, work: Sequence[Work]) -> Iterator[pa.Table]:
        """Yield entries in batches, so that stored batches are safe and progress is visible."""
        require_executors(self._spark, [w.provider for w in work])
        stored = [w for w in work if w.column.expression is None]
        computed = [w for w in work if w.column.expression is not None]
        compute = ExpressionBuild(self._spark, dated=self._dated)
        if not stored:
            yield from compute(files, computed)
            return
        for entries in self._sketch_in_batches(files, stored):
            some = [entries]
            if computed and len(entries):
                some += compute(entries.select(files.column_names), computed)
            yield merge(some, work)

    def locate(self, path: str) -> tuple[FileSystem, str]:
        """Return a file's file system in the session, and the path in it; raises TableError."""
        return session_storage(self._spark, pa.chunked_array([[path]]))(path)

    def _sketch_in_batches(self, files: pa.Table, work: Sequence[Work]) -> Iterator[pa.Table]:
        slots = self._spark.sparkContext.defaultParallelism
        mean = max(1, (pc.sum(files["size"]).as_py() or 0) // max(len(files), 1))
        least, most = (slots * each for each in SLOT)
        usual = max(min(max(slots * READ // mean, least), most), len(files) // 20)
        size, start = min(usual, most), 0
        while start < len(files):
            some = files.slice(start, size)
            made = 0
            for entries in self._sketch_batch(some, work, slots):
                made += entries.nbytes
                yield entries
            start += size
            size = max(slots, min(usual, MADE * len(some) // max(made, 1)))

    def _sketch_batch(
        self, files: pa.Table, work: Sequence[Work], slots: int
    ) -> Iterator[pa.Table]:
        # For each batch, because the session's credentials may expire after an hour.
        storage = session_storage(self._spark, files["path"])
        if any(w.column.opened for w in work):
            near = _find_readable(storage, files["path"])
            yield from self._sketch_with_reader(files.filter(pc.invert(near)), work)
            files = files.filter(near)
        if not len(files):
            return
        entries = self._sketch_in_tasks(_balance_by_size(files, slots), work, storage)
        left = is_unread(entries, work)
        yield entries.filter(pc.invert(left))
        yield from self._sketch_with_reader(entries.filter(left).select(files.column_names), work)

    def _sketch_with_reader(self, files: pa.Table, work: Sequence[Work]) -> Iterator[pa.Table]:
        if len(files):
            yield from ReaderBuild(self._spark, dated=self._dated)(files, work)

    def _sketch_in_tasks(self, files: pa.Table, work: Sequence[Work], storage: Storage) -> pa.Table:
        dated = self._dated
        at_once = _choose_concurrency(files)

        def sketch(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                try:
                    yield sketch_files(batch, work, dated=dated, locate=storage, at_once=at_once)
                except TableError:  # this executor lacks something that the driver has
                    yield make_entries(batch.to_pylist(), work)

        # Not repartitioned: a local relation already has one partition for each slot.
        frame = create_frame(self._spark, files)
        schema = entry_schema(work)
        found = frame.mapInArrow(as_task(sketch), from_arrow_schema(schema))
        return collect_arrow(found).cast(schema)


def can_open(path: str, locate: Locate = locate) -> bool:
    """Return whether Python can open a file with the credentials that it has."""
    try:
        filesystem, inner = locate(path)
        with filesystem.open_input_file(inner):
            return True
    except FileNotFoundError:
        return True  # the file is gone, but its storage can be opened
    except (TableError, OSError, pa.ArrowException):
        return False


def _find_readable(storage: Storage, paths: pa.ChunkedArray) -> pa.Array:
    roots = root_of(paths)
    shut = [
        root
        for root in pc.unique(roots).to_pylist()
        if not can_open(paths.filter(pc.equal(roots, root))[0].as_py(), storage)
    ]
    return pc.invert(pc.is_in(roots, value_set=pa.array(shut, pa.string())))


def _choose_concurrency(files: pa.Table) -> int:
    """Choose how many files a task reads concurrently: several for storage with high latency."""
    if not any(root_of(files["path"]).unique().to_pylist()):
        return 1
    longest: int = pc.max(files["size"]).as_py()
    return max(2, min(_WAITING, _HELD // max(longest, 1)))


def _balance_by_size(files: pa.Table, hands: int) -> pa.Table:
    """Order the files so that equal slices have about the same number of bytes."""
    order = np.argsort(-files["size"].to_numpy(), kind="stable")
    return files.take(pa.array(np.concatenate([order[i::hands] for i in range(hands)])))
