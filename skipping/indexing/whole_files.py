"""The second source of a build where files are small: Spark's tasks fetch whole files, as bytes.

What is in them is found as by the first source. A small file costs its requests, which are fewer
for all of it than for some of its columns, and it costs no look at its footer from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from skipping.indexing.known_files import read_known
from skipping.indexing.parquet_reader import Part, read_content
from skipping.indexing.sketch import Read, Work, entry_schema, make_entries, sketch
from skipping.indexing.tasks import as_task
from skipping.tables import TableColumn
from skipping.tables.filesystem import is_unchanged
from skipping.tables.paths import resolve_path

__all__ = ["SMALL", "WholeFileBuild"]

SMALL = 8 << 20
"""Bytes of a file up to which all of it is fetched."""

_BATCH = 32 << 20
"""Bytes of files that a task holds at once, about, and as much again on their way to it."""

_AT_ONCE = 16

_OPTIONS = {"ignoreMissingFiles": "true", "ignoreCorruptFiles": "true"}
"""A file comes as a whole or not at all: then it is not built."""


class WholeFileBuild:
    """Builds with Spark's `binaryFile`, in tasks of a session; a file that fails is not built."""

    def __init__(self, spark: SparkSession, *, dated: bool = False) -> None:
        """`dated`: the files' stamps are modification times (`Table.has_log`)."""
        # A clone has the session's credentials, and its settings are nobody else's.
        self._spark = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
        self._dated = dated

    def __call__(self, files: pa.Table, work: Sequence[Work]) -> Iterator[pa.Table]:
        """Entries for the files, unread those that could not be fetched."""
        batch = 256 * self._spark.sparkContext.defaultParallelism
        for start in range(0, len(files), batch):
            some = files.slice(start, batch)
            made = self._read(some.to_pylist(), work)
            if self._dated:
                made = made.filter(pa.array(self._are_same(made), pa.bool_()))
            gone = pc.invert(pc.is_in(some["path"], value_set=made["path"].combine_chunks()))
            left = some.filter(gone).to_pylist()
            yield pa.concat_tables([made, pa.Table.from_batches([make_entries(left, work)])])

    def _read(self, files: Sequence[dict[str, Any]], work: Sequence[Work]) -> pa.Table:
        """Entries of those files that came; none where the job fails all the same."""
        try:
            return self._job(files, work)
        except (PySparkException, Py4JError):
            return entry_schema(work).empty_table()

    def _job(self, files: Sequence[dict[str, Any]], work: Sequence[Work]) -> pa.Table:
        spark, jvm = self._spark, self._spark._jvm
        assert jvm is not None, "the session runs"
        slots = spark.sparkContext.defaultParallelism
        total, longest = (f(file["size"] for file in files) for f in (sum, max))
        spark.conf.set("spark.sql.files.maxPartitionBytes", str(total // slots + longest + 1))
        spark.conf.set("spark.sql.files.minPartitionNum", str(slots))
        spark.conf.set("spark.sql.files.openCostInBytes", str(1 << 20))
        spark.conf.set(
            "spark.sql.execution.arrow.maxRecordsPerBatch", str(max(1, _BATCH // max(longest, 1)))
        )
        binary = jvm.org.apache.spark.sql.execution.datasources.binaryfile.BinaryFileFormat
        by_path = dict(zip(_spelled([file["path"] for file in files]), files, strict=True))
        dated = self._dated

        def sketched(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                paths = resolve_path("", batch.column(0).cast(pa.string())).to_pylist()
                rows = []
                for path, modified, content in zip(paths, *batch.columns[1:], strict=True):
                    if file := by_path.get(path):
                        found = int(modified.value) * 1_000 if dated else None
                        rows.append({**file, **sketch(file, work, _reader(content, found))})
                yield make_entries(rows, work)

        schema = entry_schema(work)
        known = [(file["path"], file["size"]) for file in files]
        return (
            read_known(spark, known, binary(), binary.schema(), _OPTIONS)
            .select("_metadata.file_path", "modificationTime", "content")
            .coalesce(slots)
            .mapInArrow(as_task(sketched), from_arrow_schema(schema))
            .toArrow()
            .cast(schema)
        )

    def _are_same(self, entries: pa.Table) -> list[bool]:
        """Of each file whether its time is, after it was read, still as it was listed."""
        hadoop = self._spark._jsparkSession.sessionState().newHadoopConf()
        jvm: Any = self._spark._jvm

        def is_same(path: str, stamp: int) -> bool:
            try:
                found = jvm.org.apache.hadoop.fs.Path(path)
                status = found.getFileSystem(hadoop).getFileStatus(found)
                return is_unchanged(int(status.getModificationTime()) * 1_000_000, stamp)
            except (Py4JError, PySparkException):
                return False

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(
                pool.map(is_same, entries["path"].to_pylist(), entries["stamp"].to_pylist())
            )


def _spelled(paths: Sequence[str]) -> list[str]:
    """Paths as they come back from Spark."""
    encoded = pa.array([quote(path, safe="/:") for path in paths], pa.string())
    return list(resolve_path("", encoded).to_pylist())


def _reader(content: pa.BinaryScalar, found: int | None) -> Read:
    """Of one file, from its bytes and the time in nanoseconds that it had, if times count."""

    def read(file: Mapping[str, Any], columns: Sequence[TableColumn]) -> Iterator[Part]:
        modified = None if found is None else file["stamp"]
        return read_content(
            content.as_buffer(), columns, size=file["size"], found=found, modified=modified
        )

    return read
