"""Sketch files: the work of a build task, without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import FileSystem

from providers.base import Collector, Field, Layout, SkippingProvider
from skipping.indexing.parquet_reader import Part, Unreadable, read_columns
from skipping.indexing.partition_values import partition_value
from skipping.model.definition import IndexedColumn
from skipping.stores import IDENTITY
from skipping.tables import TableColumn
from skipping.tables.filesystem import Locate, locate


@dataclass(frozen=True, slots=True)
class Work:
    """One sketch to build: its column in the index, its column in the table, and its index type."""

    indexed: IndexedColumn
    column: TableColumn
    provider: SkippingProvider


class Build(Protocol):
    """Sketches files, in batches of any size."""

    def locate(self, path: str) -> tuple[FileSystem, str]:
        """Return a file's file system and its path there; raise TableError if it is unknown."""

    def __call__(self, files: pa.Table, work: Sequence[Work]) -> Iterator[pa.Table]:
        """Yield entries for files with the IDENTITY columns."""


def entry_schema(work: Sequence[Work]) -> pa.Schema:
    """Return the columns of the entries that `sketch_files` returns (`skipping.stores`)."""
    fields = list(IDENTITY)
    for each in work:
        sketch = each.indexed.sketch
        parts: set[str] = set()
        for field in each.provider.fields():
            if field.part not in parts:
                parts.add(field.part)
                fields.append(pa.field(f"{sketch}{field.part}_known", pa.bool_()))
            fields.append(pa.field(f"{sketch}{field.column}", _store_type(field)))
    return pa.schema(fields)


def _store_type(field: Field) -> pa.DataType:
    match field.layout:
        case Layout.TERMS:
            return pa.list_(field.type)
        case Layout.BYTES:
            return pa.large_binary()
        case Layout.SCALAR:
            return field.type


def sketch_files(
    files: pa.RecordBatch,
    work: Sequence[Work],
    *,
    dated: bool = False,
    locate: Locate = locate,
    at_once: int = 1,
) -> pa.RecordBatch:
    """Return entries for files with the IDENTITY columns, reading each file once.

    `dated`: the files' stamps are modification times, which must be the same before and after.
    `at_once`: number of files that are read concurrently, for storage with high latency.

    A column that cannot be read exactly is unknown. A file that cannot be read now gets an entry
    without sketches, so that a later refresh tries again. Neither raises an error. Raises
    TableError for storage that Python cannot open.
    """

    def read(file: Mapping[str, Any], columns: Sequence[TableColumn]) -> Iterable[Part]:
        modified = file["stamp"] if dated else None
        return read_columns(
            file["path"], columns, size=file["size"], modified=modified, locate=locate
        )

    def row(file: Mapping[str, Any]) -> dict[str, Any]:
        return {**file, **sketch(file, work, read)}

    if at_once == 1:
        return make_entries(list(map(row, files.to_pylist())), work)
    with ThreadPoolExecutor(at_once) as pool:
        return make_entries(list(pool.map(row, files.to_pylist())), work)


def make_entries(rows: Sequence[Mapping[str, Any]], work: Sequence[Work]) -> pa.RecordBatch:
    """Return files with their sketches as a batch with `entry_schema`."""
    schema = entry_schema(work)
    arrays = [_array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: Sequence[Any], type: pa.DataType) -> pa.Array:
    if not pa.types.is_list(type):
        return pa.array(values, type)
    terms = [value for value in values if value is not None]
    ends = accumulate((0 if value is None else len(value) for value in values), initial=0)
    return pa.ListArray.from_arrays(
        pa.array(ends, pa.int32()),
        pa.concat_arrays([pa.array([], type.value_type), *terms]),
        type=type,
        mask=pa.array([value is None for value in values], pa.bool_()),
    )


Read: TypeAlias = Callable[[Mapping[str, Any], Sequence[TableColumn]], Iterable[Part]]
"""Yields the parts of a file's columns."""


def sketch(file: Mapping[str, Any], work: Sequence[Work], read: Read) -> dict[str, Any]:
    """Return the sketches of one file; an empty dict if it cannot be read now."""
    collectors: dict[str, list[tuple[Work, Collector]]] = {}
    for each in work:
        collectors.setdefault(each.column.identity, []).append((each, each.provider.collector()))
    unreadable = _collect(file, [each.column for each in work], collectors, read)
    if unreadable is None:
        return {}
    row: dict[str, Any] = {}
    for identity, collecting in collectors.items():
        for each, collector in collecting:
            row.update(sketch_columns(each, None if identity in unreadable else collector.finish()))
    return row


def sketch_columns(work: Work, values: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the result of a collector as columns of an entry."""
    sketch = work.indexed.sketch
    row: dict[str, Any] = {f"{sketch}_known": False}
    if values is None:
        return row
    for field in work.provider.fields():
        name = field.column if field.part else field.name
        if name in values:
            row[f"{sketch}{field.column}"] = values[name]
            row[f"{sketch}{field.part}_known"] = True
    return row


def is_unread(entries: pa.Table, work: Sequence[Work]) -> pa.ChunkedArray:
    """Return for each entry whether its file could not be read."""
    return reduce(pc.and_, (pc.is_null(entries[f"{w.indexed.sketch}_known"]) for w in work))


def _collect(
    file: Mapping[str, Any],
    columns: Sequence[TableColumn],
    collectors: Mapping[str, Sequence[tuple[Work, Collector]]],
    read: Read,
) -> set[str] | None:
    """Feed the collectors; return the identities of unreadable columns, None if the file is."""
    unreadable: set[str] = set()
    distinct = {column.identity: column for column in columns}
    logged = json.loads(file["partition"] or "{}")
    # If the log has a value, some readers use it and others use the file's, which may differ in
    # imported files. So collect both.
    stored = [column for column in distinct.values() if column.opened]
    for column in distinct.values():
        if any(read.logged_as in logged for read in column.reads):
            unreadable.add(column.identity)
        if column.opened and column.logged_as not in logged:
            continue
        value = None
        if column.logged_as in logged:
            value = partition_value(logged[column.logged_as], column.type)
        if value is None:
            unreadable.add(column.identity)
            continue
        for _, collector in collectors[column.identity]:
            collector.add(value.drop_null(), value.null_count)
    for part in read(file, stored) if stored else ():
        if isinstance(part, Unreadable):
            if part.of_file:
                return None
            unreadable.add(part.column.identity)
            continue
        for each, collector in collectors[part.column.identity]:
            provider = each.provider
            values = part.extremes() if provider.only_extremes else part.distinct(provider.most)
            collector.add(values, part.nulls)
    return unreadable
