"""Sketch a few files of a table as a build would, and measure the cost of each index type.

The files are chosen at random, but always the same ones, up to a number and a size. Tasks read one
column at a time, to time each column, and return sketches and a few values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from providers.errors import TableError
from skipping.indexing.parquet_columns import find, indexed_domain
from skipping.indexing.parquet_reader import ROWS, Chunk, Unreadable, part_of, read_columns
from skipping.indexing.sketch import Work, entry_schema, make_entries, sketch_columns
from skipping.indexing.spark import can_open
from skipping.indexing.storage import session_storage
from skipping.indexing.tasks import as_task
from skipping.progress import progress
from skipping.spark_api import collect_arrow, create_frame
from skipping.stores import IDENTITY
from skipping.tables import TableColumn
from skipping.tables.filesystem import Locate, locate

FILES = 64
BYTES = 1 << 30
"""The default limits of a sample: files, and bytes of files."""

KEYS = 200
"""Maximum of distinct values of a file that a task returns, as keys to look up."""

DRAWN = 1_000
"""Maximum number of rows that a file contributes to the estimate of a sorted table."""

COUNTED = 1 << 20
"""Maximum count of distinct values of a file."""

_TOGETHER = 4
"""Columns of one job; it returns their sketches of all sampled files to the driver at once."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Measurements of one column: a row for each readable file, and the number of unreadable ones.

    `files` has the columns of entries for `work` (`skipping.stores`); `rows`, `nulls`, `distinct`;
    `low` and `high`, the file's range; `keys`, some distinct values, and `drawn`, the values of
    some rows, both null-free and normalised; the time `reading`, and `s1_building` etc. for each
    item of `work`, in nanoseconds.
    """

    work: tuple[Work, ...]
    files: pa.Table
    unreadable: int


def choose_files(files: pa.Table, most: int) -> pa.Table:
    """Choose at most `most` random files of a table, with at most BYTES bytes, but at least one.

    A copy of the table with the same names of files has the same ones, in whatever order they are.
    """
    files = files.sort_by("path")
    order = np.random.default_rng(0).permutation(len(files))[:most]
    taken = np.cumsum(files["size"].to_numpy()[order]) <= BYTES
    taken[:1] = True
    return files.take(pa.array(np.sort(order[taken])))


def measure_files(
    spark: SparkSession, files: pa.Table, columns: Sequence[Sequence[Work]], *, name: str
) -> list[Sample]:
    """Measure the work on each column in these files of a table; none is a partition column.

    Raises TableError for storage that Python cannot open.
    """
    storage = session_storage(spark, files["path"])
    if len(files) and not can_open(files["path"][0].as_py(), storage):
        raise TableError(
            f"ANALYZE reads files with Python, which cannot open {files['path'][0]} with the "
            "session's storage settings"
        )
    numbered = files.select(["path", "size", "stamp"]).append_column(
        "file", pa.array(range(len(files)), pa.int64())
    )
    samples: list[Sample] = []
    with progress(len(columns), "columns", f"analyze {name}") as bar:
        for start in range(0, len(columns), _TOGETHER):
            together = columns[start : start + _TOGETHER]
            seen = _measure(spark, numbered, together, storage)
            for work, blobs in zip(together, seen, strict=True):
                rows = [pa.ipc.open_stream(blob).read_all() for blob in blobs]
                files_seen = pa.concat_tables(rows) if rows else _schema(work).empty_table()
                samples.append(Sample(tuple(work), files_seen, len(files) - len(rows)))
            bar.update(len(together))
    return samples


def _measure(
    spark: SparkSession, files: pa.Table, columns: Sequence[Sequence[Work]], locate: Locate
) -> list[list[bytes]]:
    def measure(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for file in batch.to_pylist():
                found = [measure_file(file, work, locate) for work in columns]
                numbers = pa.array(range(len(columns)), pa.int64())
                yield pa.RecordBatch.from_arrays(
                    [numbers, pa.array(found, pa.binary())], ["column", "measured"]
                )

    frame = create_frame(spark, files)
    measured = frame.mapInArrow(as_task(measure), "column long, measured binary")
    rows = collect_arrow(measured)
    return [
        rows.filter(pc.equal(rows["column"], number))["measured"].drop_null().to_pylist()
        for number in range(len(columns))
    ]


def measure_file(
    file: Mapping[str, Any], work: Sequence[Work], locate: Locate = locate
) -> bytes | None:
    """Measure one file; return its row of a Sample as an Arrow stream, None if it is unreadable."""
    column = work[0].column
    # Index types that stop early come first: after others, they would find values hashed.
    cheapest = sorted(range(len(work)), key=lambda i: work[i].provider.most or 0)
    collectors = [w.provider.collector() for w in work]
    building = [0] * len(work)
    stored = indexed_domain(column).stored
    seen = ValuesCollector(stored)
    reading = 0
    # Without `modified`: unlike an entry, advice may use a file that was written just now.
    parts = read_columns(file["path"], [column], size=file["size"], locate=locate)
    while True:
        began = perf_counter_ns()
        part = next(parts, None)
        reading += perf_counter_ns() - began
        if part is None:
            break
        if isinstance(part, Unreadable):
            return None
        hashing = 0
        for i in cheapest:
            provider = work[i].provider
            began = perf_counter_ns()
            values = part.extremes() if provider.only_extremes else part.distinct(provider.most)
            got = perf_counter_ns() - began
            if not provider.only_extremes:
                got = hashing = max(hashing, got)  # alone, this index type would hash, too
            began = perf_counter_ns()
            collectors[i].add(values, part.nulls)
            building[i] += got + perf_counter_ns() - began
        seen.add(part.distinct(), part.nulls)
    row: dict[str, Any] = dict.fromkeys(IDENTITY.names)
    row.update(ordinal=file["file"], path=file["path"], size=file["size"], stamp=file["stamp"])
    for i, each in enumerate(work):
        began = perf_counter_ns()
        values = collectors[i].finish()
        building[i] += perf_counter_ns() - began
        row.update(sketch_columns(each, values))
    try:
        rows, drawn = _draw_values(file["path"], column, locate)
    except (OSError, pa.ArrowException):
        return None  # the file was deleted meanwhile
    figures = [rows, seen.nulls, len(seen.values), reading, *building]
    rng = np.random.default_rng(file["file"])
    batch = pa.RecordBatch.from_arrays(
        [
            *make_entries([row], work).columns,
            *(pa.array([n], pa.int64()) for n in figures),
            *(pa.array([bound], stored) for bound in seen.bounds),
            _to_list(some_of(seen.values, KEYS, rng)),
            _to_list(some_of(drawn, DRAWN, rng)),
        ],
        schema=_schema(work),
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def _schema(work: Sequence[Work]) -> pa.Schema:
    stored = indexed_domain(work[0].column).stored
    building = (f"{w.indexed.sketch}_building" for w in work)
    numbers = ("rows", "nulls", "distinct", "reading", *building)
    return pa.schema(
        [
            *entry_schema(work),
            *((name, pa.int64()) for name in numbers),
            ("low", stored),
            ("high", stored),
            ("keys", pa.list_(stored)),
            ("drawn", pa.list_(stored)),
        ]
    )


class ValuesCollector:
    """Counts of one column of one file, and its distinct values until there are COUNTED."""

    def __init__(self, stored: pa.DataType) -> None:
        self.values = self._bounds = pa.array([], stored)
        self.nulls = 0

    def add(self, distinct: pa.Array, nulls: int) -> None:
        """Add the distinct values of a part of the file."""
        self.nulls += nulls
        if not len(distinct):
            return
        seen = pc.min_max(pa.concat_arrays([self._bounds, distinct]))
        self._bounds = pa.array([seen["min"], seen["max"]], distinct.type)
        if len(self.values) < COUNTED:
            self.values = pc.unique(pa.concat_arrays([self.values, distinct]))

    @property
    def bounds(self) -> tuple[Any, Any]:
        """The min and max, None without a value."""
        low, high = self._bounds.to_pylist() or (None, None)
        return low, high


def some_of(values: pa.Array, most: int, rng: np.random.Generator) -> pa.Array:
    """Return at most `most` random values, in their order."""
    if len(values) <= most:
        return values
    return values.take(pa.array(np.sort(rng.choice(len(values), most, replace=False))))


def _to_list(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)


def _draw_values(path: str, column: TableColumn, locate: Locate) -> tuple[int, pa.Array]:
    """Return a file's number of rows, and a few thousand values, with duplicates.

    It returns no values of a multi-column index, because tables are not sorted by tuples.
    """
    filesystem, inner = locate(path)
    with filesystem.open_input_file(inner) as source:
        file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
        place = None if column.is_composite else find(file, column)
        rows = file.metadata.num_rows
        drawn = [pa.array([], indexed_domain(column).stored)]
        step = max(1, rows // (4 * DRAWN))
        names = [".".join(place.path)] if place is not None else []
        for batch in file.iter_batches(ROWS, columns=names, use_threads=False) if names else ():
            assert place is not None, "it has a name"
            array = batch.column(place.path[0])
            if len(place.path) > 1:
                array = pc.struct_field(array, list(place.path[1:]))
            array = array.take(pa.array(range(0, len(array), step)))
            if pa.types.is_dictionary(array.type):
                array = array.dictionary_decode()
            part = part_of(place, array)
            if isinstance(part, Chunk):
                drawn.append(part.values)
        return rows, pa.concat_arrays(drawn)
