"""Sketch files that Python cannot open: the driver fetches footers, Spark reads the columns.

The session's Hadoop file systems open the files by path, because a table's own relation would leave
out deleted rows. The driver finds the columns in each footer, as Python's reader does, so both make
equal sketches. It sketches a small file itself: it fetches all of the file with the footer, with
fewer requests than a task needs. No row is shuffled: a task reads complete files, one by one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from providers.tuples import element_type
from skipping.indexing.known_files import read_files
from skipping.indexing.parquet_columns import Found, UnknownError
from skipping.indexing.parquet_reader import (
    Part,
    Place,
    Unreadable,
    find_place,
    is_read,
    parts_of,
    read_content,
    require_same_time,
    stored_columns,
    unread_parts,
)
from skipping.indexing.sketch import Read, Work, entry_schema, make_entries, sketch
from skipping.indexing.tasks import as_task
from skipping.parser.literals import quote
from skipping.spark_api import collect_arrow, parse_type
from skipping.tables import TableColumn
from skipping.tables.paths import resolve_path
from skipping.tables.spark_schema import nested_schema

_TAIL = 1 << 16
"""Bytes to fetch from the end of a file; most footers fit in."""

_SMALL = 1 << 20
"""The driver sketches files of at most this number of bytes itself."""

_THREADS = 16
_DAY = 86_400_000_000

_SETTINGS = {
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.fieldId.read.enabled": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
}


@dataclass(frozen=True, slots=True)
class Footer:
    """A file's path in Hadoop, number of rows, modification time (ns), and place of each column.

    Hadoop's paths always have a scheme; Iceberg's locations may lack one. Only a small file has
    `sketches`.
    """

    path: str
    rows: int
    modified: int
    places: Mapping[str, Place]
    sketches: Mapping[str, Any] | None = None

    @property
    def found(self) -> list[Found]:
        """The columns that the file has."""
        return [place for place in self.places.values() if isinstance(place, Found)]

    @property
    def shape(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The columns' paths: files with the same shape are read together."""
        return tuple((place.column.identity, place.path) for place in self.found)


class ReaderBuild:
    """Builds with Spark's Parquet format, in tasks of a Spark session."""

    def __init__(self, spark: SparkSession, *, dated: bool = False) -> None:
        """`dated`: the files' stamps are modification times (`Table.has_log`)."""
        # A clone has the session's credentials, and no other code uses its settings.
        self._spark = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
        self._dated = dated

    def __call__(self, files: pa.Table, work: Sequence[Work]) -> Iterator[pa.Table]:
        """Yield entries for the files."""
        batch = 256 * self._spark.sparkContext.defaultParallelism
        for start in range(0, len(files), batch):
            yield self._batch(files.slice(start, batch).to_pylist(), work)

    def _batch(self, files: Sequence[dict[str, Any]], work: Sequence[Work]) -> pa.Table:
        columns = list(self._columns(work).values())
        hadoop = self._spark._jsparkSession.sessionState().newHadoopConf()
        with ThreadPoolExecutor(_THREADS) as pool:
            footers = list(pool.map(lambda file: self._footer(hadoop, file, columns, work), files))
        rows = []
        groups: dict[object, list[tuple[dict[str, Any], Footer]]] = {}
        for file, footer in zip(files, footers, strict=True):
            if footer is None:
                continue
            if footer.sketches is not None:
                rows.append({**file, **footer.sketches})
            elif footer.rows and (footer.found or self._reads_all):
                groups.setdefault(footer.shape, []).append((file, footer))
            else:
                rows.append({**file, **self._sketch(file, footer, work, ())})
        made = pa.concat_tables(
            [
                pa.Table.from_batches([make_entries(rows, work)]),
                *(table for group in groups.values() for table in self._read(group, work)),
            ]
        )
        stay = {f["path"] for f, footer in zip(files, footers, strict=True) if footer is not None}
        if self._dated:
            with ThreadPoolExecutor(_THREADS) as pool:
                same = pool.map(
                    lambda pair: self._is_same(hadoop, *pair), zip(files, footers, strict=True)
                )
                stay &= {file["path"] for file, is_same in zip(files, same, strict=True) if is_same}
        made = made.filter(pc.is_in(made["path"], value_set=pa.array(sorted(stay), pa.string())))
        done = set(made["path"].to_pylist())
        left = [file for file in files if file["path"] not in done]
        return pa.concat_tables([made, pa.Table.from_batches([make_entries(left, work)])])

    _reads_all = False
    """Whether files without any of the columns are read."""

    def _columns(self, work: Sequence[Work]) -> dict[str, TableColumn]:
        return {c.identity: c for w in work if w.column.opened for c in stored_columns(w.column)}

    @staticmethod
    def _sketch(
        file: Mapping[str, Any],
        footer: Footer,
        work: Sequence[Work],
        batches: Iterable[pa.RecordBatch],
    ) -> dict[str, Any]:
        def read(_: Mapping[str, Any], columns: Sequence[TableColumn]) -> Iterator[Part]:
            yield from unread_parts(columns, footer.places, footer.rows)
            left = [c for c in columns if is_read(c, footer.places)]
            rows = 0
            for batch in batches:
                rows += batch.num_rows
                found = enumerate(footer.found, start=1)
                arrays = {place.column.identity: batch.column(i) for i, place in found}
                yield from parts_of(left, footer.places, arrays)
            if footer.found and rows != footer.rows:
                yield Unreadable(columns[0], f"{rows} of {footer.rows} rows", of_file=True)

        return sketch(file, work, read)

    def _rows(self, read: DataFrame, found: Sequence[Found], work: Sequence[Work]) -> DataFrame:
        """Select the input of `_sketch`: the path, then the columns to read."""
        leaves = [F.col(quote_path(place.path)).alias(f"c{i}") for i, place in enumerate(found)]
        return read.select("_metadata.file_path", *leaves)

    def _footer(
        self,
        hadoop: Any,
        file: Mapping[str, Any],
        columns: Sequence[TableColumn],
        work: Sequence[Work],
    ) -> Footer | None:
        """Read a footer; None if the file is missing, or differs from what the table lists."""
        try:
            path, system, status = self._status(hadoop, file)
            size, modified = int(status.getLen()), int(status.getModificationTime()) * 1_000_000
            if size != file["size"]:
                return None
            if self._dated:
                require_same_time(modified, file["stamp"])
            # Passing the status saves a request for it.
            stream = system.openFile(path).withFileStatus(status).build().get()
            is_small = size <= _SMALL and not self._reads_all
            try:
                tail = self._tail(stream, size, size if is_small else _TAIL)
            finally:
                stream.close()
            name = str(status.getPath().toString())
            if is_small:
                return Footer(name, 0, modified, {}, sketch(file, work, _reader(tail)))
            footer = pq.ParquetFile(pa.BufferReader(tail))
            places = {column.identity: _place(footer, column) for column in columns}
            return Footer(name, footer.metadata.num_rows, modified, places)
        except (Py4JError, PySparkException, UnknownError, pa.ArrowException, OSError):
            return None

    def _status(self, hadoop: Any, file: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        jvm: Any = self._spark._jvm
        path = jvm.org.apache.hadoop.fs.Path(file["path"])
        system = path.getFileSystem(hadoop)
        return path, system, system.getFileStatus(path)

    def _tail(self, stream: Any, size: int, first: int) -> bytes:
        """Return a Parquet file's footer as a file without data; fetch `first` bytes first."""
        jvm: Any = self._spark._jvm

        def last(n: int) -> bytes:
            stream.seek(max(size - n, 0))
            return bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream, min(n, size)))

        end = last(first)
        if len(end) == size:
            return end
        length = int.from_bytes(end[-8:-4], "little") + 8
        if length > len(end):
            end = last(length)
        return b"PAR1" + end[-length:]

    def _is_same(self, hadoop: Any, file: Mapping[str, Any], footer: Footer | None) -> bool:
        try:
            _, _, status = self._status(hadoop, file)
        except (Py4JError, PySparkException):
            return False
        return footer is None or int(status.getModificationTime()) * 1_000_000 == footer.modified

    def _read(
        self, group: Sequence[tuple[dict[str, Any], Footer]], work: Sequence[Work]
    ) -> list[pa.Table]:
        """Build entries; if Spark fails on a file, those of the others."""
        try:
            return [self._job(group, work)]
        except (PySparkException, Py4JError):
            half = len(group) // 2
            return self._read(group[:half], work) + self._read(group[half:], work) if half else []

    def _read_of(self, group: Sequence[tuple[dict[str, Any], Footer]]) -> DataFrame:
        found = group[0][1].found
        conf = self._spark.conf
        for key, value in _SETTINGS.items():
            conf.set(key, value)
        # Never split a file: a sketch is built in one piece.
        for key in ("maxPartitionBytes", "openCostInBytes"):
            conf.set(f"spark.sql.files.{key}", str(max(file["size"] for file, _ in group) + 1))
        jvm: Any = self._spark._jvm
        parquet = jvm.org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat()
        schema = nested_schema({p.path: parse_type(p.column.type) for p in found})
        # Paths with a scheme: `_job` assigns rows to files by Spark's own path.
        paths = [(footer.path, file["size"]) for file, footer in group]
        return read_files(self._spark, paths, parquet, schema, {"mergeSchema": "false"})

    def _job(
        self, group: Sequence[tuple[dict[str, Any], Footer]], work: Sequence[Work]
    ) -> pa.Table:
        by_path = {footer.path: (file, footer) for file, footer in group}
        read = self._read_of(group)
        sketch = self._sketch  # so that the session is not sent to executors

        def sketch_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for path, parts in itertools.groupby(_runs(batches), key=lambda run: run[0]):
                file, footer = by_path[path]
                row = {**file, **sketch(file, footer, work, (rows for _, rows in parts))}
                yield make_entries([row], work)

        schema = entry_schema(work)
        entries = (
            self._rows(read, group[0][1].found, work)
            .coalesce(self._spark.sparkContext.defaultParallelism)
            .mapInArrow(as_task(sketch_batches), from_arrow_schema(schema))
        )
        return collect_arrow(entries).cast(schema)


def _place(footer: pq.ParquetFile, column: TableColumn) -> Place:
    place = find_place(footer, column)
    if not isinstance(place, Found):
        return place
    written = footer.metadata.metadata or {}
    zoned = b"org.apache.spark.version" not in written or b"org.apache.spark.timeZone" in written
    is_time = (element_type(column.type) or column.type) == "timestamp"
    if place.oldest is not None and is_time and not zoned:
        # Spark rebased these in a time zone that it did not record: keep a day's distance.
        return replace(place, oldest=place.oldest + _DAY)
    return place


def _reader(content: bytes) -> Read:
    def read(file: Mapping[str, Any], columns: Sequence[TableColumn]) -> Iterator[Part]:
        return read_content(content, columns, size=file["size"])

    return read


def _runs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Split batches at the beginning of each file, and yield them with the file's path."""
    for batch in batches:
        if not batch.num_rows:
            continue
        runs = pc.run_end_encode(batch.column(0))
        start = 0
        paths = resolve_path("", runs.values.cast(pa.string())).to_pylist()
        for path, end in zip(paths, runs.run_ends.to_pylist(), strict=True):
            yield path, batch.slice(start, end - start)
            start = end


def quote_path(path: Sequence[str]) -> str:
    """Return a nested column's names as one quoted name for Spark: `` `a`.`b` ``."""
    return ".".join(map(quote, path))
