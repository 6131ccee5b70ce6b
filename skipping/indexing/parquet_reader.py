"""Read the indexed columns of one physical Parquet file as Spark would, without Spark.

A file yields chunks of normalised values (`providers.values`), or for a column the reason why it
cannot be read exactly as Spark reads it. Nothing is guessed. Deletion vectors are ignored on
purpose: a restored version shows the deleted rows again.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from providers.errors import first_line
from providers.tuples import encode_tuples
from providers.values import encode
from skipping.indexing.parquet_columns import Found, UnknownError, find, indexed_domain
from skipping.tables import TableColumn
from skipping.tables.arrow_types import without_view
from skipping.tables.filesystem import Locate, is_unchanged, locate

ROWS = 1 << 16
"""Rows of a chunk: few, to notice early that a list exceeds its limit; many, to be fast."""

WHOLE = 1 << 20
"""A file up to this number of bytes is fetched with one request, not one for each part."""

TUPLES = 1 << 26
"""Approximate maximum of bytes of a chunk's tuples, which repeat what a dictionary has once."""

_FAR = (1 << 63) // 1000
"""Milliseconds from which on microseconds do not fit 64 bits."""

SETTLED = 2.0
"""Seconds after which a further write is sure to change a file's coarse modification time."""


class Chunk:
    """Normalised values of some rows of one column. Call only the methods that you need."""

    __slots__ = ("_distinct", "_values", "column", "nulls")

    def __init__(self, column: TableColumn, values: pa.Array, nulls: int) -> None:
        self.column = column
        self.nulls = nulls
        self._values = values
        self._distinct: pa.Array | None = None

    @property
    def values(self) -> pa.Array:
        """The values without nulls; of dictionary-coded text, each value once."""
        return self._values

    def distinct(self, most: int | None = None) -> pa.Array:
        """Return the distinct values without nulls, in no order, by hashing every value once.

        If there are more than `most`, the result may be incomplete, but it has more than `most`
        values, with the minimum and maximum. Then only the first values of the chunk are hashed.
        """
        if self._distinct is None and most is not None and 2 * most < len(self._values):
            first = pc.unique(self._values.slice(0, 2 * most))
            if len(first) > most:
                return pc.unique(pa.concat_arrays([first, self.extremes()]))
        if self._distinct is None:
            self._distinct = pc.unique(self._values)
        return self._distinct

    def extremes(self) -> pa.Array:
        """Return min and max, or nothing; 20 to 200 times cheaper than `distinct`."""
        if not len(self._values):
            return self._values
        bounds = pc.min_max(self._values)
        low, high = bounds["min"], bounds["max"]
        return pa.array([low] if low == high else [low, high], self._values.type)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The column is unknown in this file, even if chunks of it came before.

    `of_file`: the file could not be read now, but perhaps it can be later.
    """

    column: TableColumn
    reason: str
    of_file: bool = False


Part: TypeAlias = Chunk | Unreadable

Place: TypeAlias = Found | Unreadable | None
"""The place of a column in a file; None if all rows read null."""


def read_columns(
    path: str,
    columns: Sequence[TableColumn],
    *,
    size: int | None = None,
    modified: int | None = None,
    locate: Locate = locate,
) -> Iterator[Part]:
    """Read the columns of a file; yield chunks of each column, or why it is unreadable.

    `path` is written as in FILES (`file:/tmp/x y`, `s3a://bucket/key`, not URL-encoded). A file is
    unreadable if its length is not `size`, or if its modification time before or after the read is
    not `modified` (milliseconds). If `modified` is given, so is a file that is so young that its
    next write could go unnoticed. Memory: one compressed row group of these columns, and ROWS rows.
    Raises TableError for storage that Arrow cannot open, but never for one bad file.
    """
    filesystem, inner = locate(path)
    return _read_safely(filesystem, inner, tuple(columns), size, modified)


def _read_safely(
    filesystem: pafs.FileSystem,
    inner: str,
    columns: Sequence[TableColumn],
    size: int | None,
    modified: int | None,
) -> Iterator[Part]:
    try:
        if modified is not None:
            before = _read_mtime(filesystem, inner)
            require_same_time(before, modified)
        with filesystem.open_input_file(inner) as source:
            if size is not None and source.size() != size:
                raise UnknownError(f"it has {source.size()} bytes, not {size} as listed")
            local = filesystem.type_name == "local"
            if not local and source.size() <= WHOLE:
                yield from _read(pa.BufferReader(source.read_buffer()), columns, local=True)
            else:
                yield from _read(source, columns, local=local)
        if modified is not None and _read_mtime(filesystem, inner) != before:
            raise UnknownError("it was written while it was read")
    except Exception as error:
        yield from _mark_unreadable(columns, error)


def read_content(content: bytes, columns: Sequence[TableColumn], *, size: int) -> Iterator[Part]:
    """Read the columns of a file from its bytes, as `read_columns` does from its path."""
    try:
        if len(content) != size:
            raise UnknownError(f"it has {len(content)} bytes, not {size} as listed")
        yield from _read(pa.BufferReader(content), columns, local=True)
    except Exception as error:
        yield from _mark_unreadable(columns, error)


def _mark_unreadable(columns: Sequence[TableColumn], error: Exception) -> Iterator[Unreadable]:
    # Whatever a broken file causes in a decoder, the file is unknown, and the build goes on.
    # Storage may respond later; bad content of the right size stays bad.
    is_temporary = not isinstance(error, pa.ArrowInvalid)
    for column in columns:
        yield Unreadable(column, f"the file cannot be read: {_short(error)}", of_file=is_temporary)


def _read_mtime(filesystem: pafs.FileSystem, inner: str) -> int:
    return int(filesystem.get_file_info(inner).mtime_ns or 0)


def require_same_time(found: int, listed: int) -> None:
    """Raise unless a file's time (nanoseconds) is the listed one (milliseconds) and old enough."""
    if not is_unchanged(found, listed):
        raise UnknownError("it was written since it was listed")
    if time.time() * 1_000 < listed + SETTLED * 1_000:
        raise UnknownError(f"it was written within the last {SETTLED:.0f} seconds")


def _short(error: Exception) -> str:
    text = first_line(error)
    return text if isinstance(error, UnknownError) else f"{type(error).__name__}: {text}"


def _read(source: pa.NativeFile, columns: Sequence[TableColumn], *, local: bool) -> Iterator[Part]:
    open_file = functools.partial(
        pq.ParquetFile,
        source,
        coerce_int96_timestamp_unit="us",  # nanoseconds would wrap beyond 1677 and 2262
        pre_buffer=not local,  # fewer, larger requests where each of them costs
    )
    file = open_file()
    read = [each for column in columns for each in stored_columns(column)]
    places = {each.identity: _proleptic(find_place(file, each)) for each in read}
    yield from unread_parts(columns, places, file.metadata.num_rows)
    found = [place for place in places.values() if isinstance(place, Found)]
    if not file.num_row_groups:
        return
    file = open_file(metadata=file.metadata, read_dictionary=_in_dictionaries(file, found))
    left = [column for column in columns if is_read(column, places)]
    int96 = [place for place in found if place.int96]
    coarse = open_file(metadata=file.metadata, coerce_int96_timestamp_unit="ms") if int96 else None
    for group in range(file.num_row_groups):
        if coarse is not None:
            for place in int96:
                if is_read(place.column, places) and _is_far(coarse, group, place):
                    why = "it holds INT96 timestamps that Arrow cannot read"
                    places[place.column.identity] = Unreadable(place.column, why)
            gone = [column for column in left if not is_read(column, places)]
            yield from unread_parts(gone, places, 0)
            left = [column for column in left if column not in gone]
        # With dots in names this may select more than these columns, never less.
        wanted = {each.identity for column in left for each in stored_columns(column)}
        names = sorted({".".join(p.path) for p in found if p.column.identity in wanted})
        for batch in file.iter_batches(ROWS, [group], names, use_threads=False) if names else ():
            arrays = {
                p.column.identity: _array(p, batch) for p in found if p.column.identity in wanted
            }
            for part in parts_of(left, places, arrays):
                if isinstance(part, Unreadable):
                    left.remove(part.column)
                yield part


def _is_far(file: pq.ParquetFile, group: int, place: Found) -> bool:
    """Return whether a row group has a time that overflows microseconds; read it in milliseconds.

    Spark writes the Julian day as a signed number, but Arrow reads it as unsigned: times before
    4714 BC and from the year 290,000 on become 11 million years too late. In microseconds, this
    overflows to an arbitrary time. To decode milliseconds, too, takes 10 % of the time.
    """
    for batch in file.iter_batches(ROWS, [group], [".".join(place.path)], use_threads=False):
        latest = pc.max(_elements(_array(place, batch)).cast(pa.int64())).as_py()
        if latest is not None and latest > _FAR:
            return True
    return False


def find_place(file: pq.ParquetFile, column: TableColumn) -> Place:
    """Find a column in a file, or return the reason why its place is unknown."""
    try:
        return find(file, column)
    except UnknownError as unknown:
        return Unreadable(column, str(unknown))


def _proleptic(place: Place) -> Place:
    # Not in `find`: Spark's own Parquet reader may rebase dates during a build.
    if isinstance(place, Found) and place.column.physical.proleptic:
        return replace(place, oldest=None)
    return place


def _array(place: Found, batch: pa.RecordBatch) -> pa.Array:
    array = batch.column(place.path[0])
    if len(place.path) > 1:
        # Not StructArray.field(): a child of a null parent has bytes that are not its value.
        array = pc.struct_field(array, list(place.path[1:]))
    return array


def _elements(array: pa.Array) -> pa.Array:
    """Return the elements of arrays, without null arrays; other values unchanged."""
    is_list = pa.types.is_list(array.type) or pa.types.is_large_list(array.type)
    return array.flatten() if is_list else array


def stored_columns(column: TableColumn) -> tuple[TableColumn, ...]:
    """Return the columns to read: the column itself, or those of a multi-column index."""
    return column.reads if column.is_composite else (column,)


def is_read(column: TableColumn, places: Mapping[str, Place]) -> bool:
    """Return whether a file has all `stored_columns` of a column."""
    return all(isinstance(places[each.identity], Found) for each in stored_columns(column))


def unread_parts(
    columns: Sequence[TableColumn], places: Mapping[str, Place], rows: int
) -> Iterator[Part]:
    """Yield at least one part of each column before any value is read.

    A column without rows, or that the file lacks, is known to have no values.
    """
    for column in columns:
        found = [places[each.identity] for each in stored_columns(column)]
        unreadable = next((place for place in found if isinstance(place, Unreadable)), None)
        if unreadable is not None:
            yield replace(unreadable, column=column)
        else:
            nulls = rows if None in found else 0
            yield Chunk(column, pa.array([], indexed_domain(column).stored), nulls)


def parts_of(
    columns: Sequence[TableColumn], places: Mapping[str, Place], arrays: Mapping[str, pa.Array]
) -> Iterator[Part]:
    """Yield rows of columns whose `stored_columns` are in the file; `arrays` are by identity."""
    for column in tuple(columns):
        found = [places[each.identity] for each in stored_columns(column)]
        parts = [(p, arrays[p.column.identity]) for p in found if isinstance(p, Found)]
        if column.is_composite:
            yield from _tuples_of(column, parts)
        else:
            yield part_of(*parts[0])


def _tuples_of(column: TableColumn, parts: Sequence[tuple[Found, pa.Array]]) -> Iterator[Part]:
    for place, array in parts:
        if place.oldest is not None:
            part = part_of(place, array)
            if isinstance(part, Unreadable):
                yield replace(part, column=column)
                return
    try:
        values = [_decode_dictionary(array) for _, array in parts]
        width = sum(_widest(of) for of, _ in values)
        step = max(1, TUPLES // max(width, 1))
        for start in range(0, len(parts[0][1]), step):
            rows = [_rows(of, which, start, step) for of, which in values]
            tuples = encode_tuples(rows)
            yield Chunk(column, tuples.drop_null(), tuples.null_count)
    except pa.ArrowException as error:
        yield Unreadable(column, f"a value cannot be normalised: {_short(error)}")


def _decode_dictionary(array: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    if pa.types.is_dictionary(array.type):
        return encode(_without_view(array.dictionary)), array.indices
    return encode(_without_view(array)), None


def _widest(values: pa.Array) -> int:
    """Estimate the size of the longest value in a tuple in bytes."""
    if pa.types.is_integer(values.type) or not len(values):
        return 8
    return 4 + int(pc.max(pc.binary_length(values)).as_py() or 0)


def _rows(values: pa.Array, which: pa.Array | None, start: int, count: int) -> pa.Array:
    if which is None:
        return values.slice(start, count)
    return values.take(which.slice(start, count))


def part_of(place: Found, array: pa.Array) -> Part:
    """Normalise some rows of a column; Unreadable if a value cannot be normalised."""
    array = _elements(array)
    nulls = array.null_count
    try:
        if pa.types.is_dictionary(array.type):
            dictionary = _without_view(array.dictionary)
            values = encode(dictionary.take(pc.unique(array.indices.drop_null())))
        else:
            array = _without_view(array)
            values = encode(array.drop_null() if nulls else array)
    except pa.ArrowInvalid as error:
        return Unreadable(place.column, f"a value cannot be normalised: {_short(error)}")
    chunk = Chunk(place.column, values, nulls)
    if place.oldest is not None and len(values) and chunk.extremes()[0].as_py() < place.oldest:
        return Unreadable(place.column, "it has old dates, which may be in another calendar")
    return chunk


def _without_view(array: pa.Array) -> pa.Array:
    return array.cast(without_view(array.type))  # Polars and DuckDB write views


def _in_dictionaries(file: pq.ParquetFile, found: Sequence[Found]) -> list[str]:
    """Return the text columns with only dictionary-coded pages: each value is read once.

    The footer has no encoding of single pages, so the size decides: a dictionary has up to 1 MB,
    its indices up to 18 bits, and plain text needs 4 bytes per value in addition to the text.
    """
    names = {".".join(place.path) for place in found}
    group = file.metadata.row_group(0)
    return [
        chunk.path_in_schema
        for chunk in map(group.column, range(group.num_columns))
        if chunk.path_in_schema in names
        and chunk.physical_type == "BYTE_ARRAY"
        and chunk.has_dictionary_page
        and chunk.total_uncompressed_size <= (5 << 18) + 3 * chunk.num_values
    ]
