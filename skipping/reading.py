"""Read the indexed columns of one physical Parquet file as Spark would, without Spark.

A file gives chunks of normalised values (`providers.values`), or says of a column that nothing is
known of it, and why. What cannot be read exactly as Spark reads it is never guessed. Deletion
vectors are passed over on purpose: a restored version shows the deleted rows again.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from providers.values import Domain, arrow_type, domain_of, encode
from skipping.storage import locate
from skipping.tables import TableColumn

__all__ = ["Chunk", "Part", "Unreadable", "read_columns"]

ROWS = 1 << 16
"""Rows of a chunk: few enough that a list past its cap is noticed early, many enough to be fast."""

_OLDEST = {"date": -141_427, "timestamp": -2_208_988_800_000_000}
"""From here on no rebase changes a value: 1582-10-15 in days, 1900-01-01 in microseconds.

`RebaseDateTime.lastSwitchJulianDay` and `lastSwitchJulianTs` (the last over all zones) in Spark.
timestamp_ntz is not here: no legacy writer knew it and Spark rebases none.
"""


class Chunk:
    """Some rows of one column, normalised: ask for as little as the kinds of the column need."""

    __slots__ = ("_distinct", "_values", "column", "nulls")

    def __init__(self, column: TableColumn, values: pa.Array, nulls: int) -> None:
        self.column = column
        self.nulls = nulls
        self._values = values
        self._distinct: pa.Array | None = None

    def distinct(self, most: int | None = None) -> pa.Array:
        """The distinct values, null-free, in no order. Hashes every value once.

        Where there are more than `most`, maybe not all, but more than that: of a column with too
        many values only the first of every chunk are hashed.
        """
        if self._distinct is None and most is not None and 2 * most < len(self._values):
            first = pc.unique(self._values.slice(0, 2 * most))
            if len(first) > most:
                return first
        if self._distinct is None:
            self._distinct = pc.unique(self._values)
        return self._distinct

    def extremes(self) -> pa.Array:
        """The least and the greatest value, or nothing; 20 to 200 times cheaper than `distinct`."""
        if not len(self._values):
            return self._values
        bounds = pc.min_max(self._values)
        low, high = bounds["min"], bounds["max"]
        return pa.array([low] if low == high else [low, high], self._values.type)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Nothing is known of the column in this file, whatever chunks of it came before.

    `of_file`: the file could not be read at all, now; another time it may.
    """

    column: TableColumn
    reason: str
    of_file: bool = False


Part: TypeAlias = Chunk | Unreadable


class _UnknownError(Exception):
    """Why a column is unknown."""


def read_columns(
    path: str, columns: Sequence[TableColumn], *, size: int | None = None
) -> Iterator[Part]:
    """Read the columns of a file; every column yields a chunk or is said to be unreadable.

    `path` is spelled as in FILES (`file:/tmp/x y`, `s3a://bucket/key`, not URL-encoded). With
    `size`, a file of another length is unreadable. Memory: one row group of these columns,
    compressed, and ROWS rows. Raises TableError for storage that Arrow cannot open; one bad file
    never raises.
    """
    filesystem, inner = locate(path)
    return _guarded(filesystem, inner, tuple(columns), size)


def _guarded(
    filesystem: pafs.FileSystem, inner: str, columns: Sequence[TableColumn], size: int | None
) -> Iterator[Part]:
    try:
        with filesystem.open_input_file(inner) as source:
            if size is not None and source.size() != size:
                raise _UnknownError(f"it has {source.size()} bytes, the table says {size}")
            yield from _read(source, columns, local=filesystem.type_name == "local")
    except Exception as error:
        # Anything a broken file can make a decoder do costs its skipping, never the build.
        for column in columns:
            yield Unreadable(column, f"the file cannot be read: {_short(error)}", of_file=True)


def _short(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0]
    return text if isinstance(error, _UnknownError) else f"{type(error).__name__}: {text}"


@dataclass(frozen=True, slots=True)
class _Found:
    """A column and its path in the file; values below `oldest` may be in another calendar."""

    column: TableColumn
    path: tuple[str, ...]
    oldest: int | None


def _read(source: pa.NativeFile, columns: Sequence[TableColumn], *, local: bool) -> Iterator[Part]:
    open_file = functools.partial(
        pq.ParquetFile,
        source,
        coerce_int96_timestamp_unit="us",  # nanoseconds would wrap beyond 1677 and 2262
        pre_buffer=not local,  # fewer, larger requests where each of them costs
    )
    file = open_file()
    rows = file.metadata.num_rows
    found: list[_Found] = []
    for column in columns:
        try:
            place = _find(file, column)
        except _UnknownError as unknown:
            yield Unreadable(column, str(unknown))
            continue
        # Every column gives at least one chunk: with no rows it is known and has no values.
        stored = _domain(column).stored
        yield Chunk(column, pa.array([], stored), rows if place is None else 0)
        if place is not None:
            found.append(place)
    if not file.num_row_groups:
        return
    file = open_file(metadata=file.metadata, read_dictionary=_in_dictionaries(file, found))
    for group in range(file.num_row_groups):
        # Where names have dots this may select more than was asked for, never less.
        names = sorted({".".join(place.path) for place in found})
        for batch in file.iter_batches(ROWS, [group], names, use_threads=False) if names else ():
            for place in tuple(found):
                part = _part(place, batch)
                if isinstance(part, Unreadable):
                    found.remove(place)
                yield part


def _part(place: _Found, batch: pa.RecordBatch) -> Part:
    array = batch.column(place.path[0])
    if len(place.path) > 1:
        # Not StructArray.field(): a child under a null parent keeps bytes that are no value.
        array = pc.struct_field(array, list(place.path[1:]))
    nulls = array.null_count
    try:
        if pa.types.is_dictionary(array.type):
            values = encode(array.dictionary.take(pc.unique(array.indices.drop_null())))
        else:
            values = encode(array.drop_null() if nulls else array)
    except pa.ArrowInvalid as error:
        return Unreadable(place.column, f"a value cannot be normalised: {_short(error)}")
    chunk = Chunk(place.column, values, nulls)
    if place.oldest is not None and len(values) and chunk.extremes()[0].as_py() < place.oldest:
        return Unreadable(place.column, "it holds old dates, maybe of another calendar")
    return chunk


def _in_dictionaries(file: pq.ParquetFile, found: Sequence[_Found]) -> list[str]:
    """Text columns that are dictionary-coded throughout: their values are read once each.

    The footer does not say so of the pages, so it is told by the size: a dictionary has up to a
    megabyte, its indices up to 18 bits, and plain text takes 4 bytes a value before its own.
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


def _domain(column: TableColumn) -> Domain:
    arrow = arrow_type(column.type)
    domain = domain_of(arrow) if arrow is not None else None
    if domain is None or column.refusal is not None:
        raise _UnknownError(column.refusal or f"type {column.type} cannot be indexed")
    return domain


def _find(file: pq.ParquetFile, column: TableColumn) -> _Found | None:
    """Where the column is; None where all rows read null; raises _UnknownError where in doubt."""
    domain = _domain(column)
    fields = list(file.schema_arrow)
    branch = _by_name(fields, column) if column.field_id is None else _by_id(fields, column)
    if branch is None:
        if column.backfilled:
            raise _UnknownError("it is not in the file, whose rows read a default")
        return None
    path = tuple(field.name for field in branch)
    type = branch[-1].type
    if pa.types.is_dictionary(type):
        type = type.value_type
    leaves = map(file.metadata.schema.column, range(file.metadata.num_columns))
    int96 = pa.types.is_timestamp(type) and ("INT96", ".".join(path)) in [
        (leaf.physical_type, leaf.path) for leaf in leaves
    ]
    if int96:
        if not (file.metadata.created_by or "").startswith("parquet-mr"):
            raise _UnknownError(f"INT96 timestamps of {file.metadata.created_by}")
        type = pa.timestamp("us", "UTC")
    if domain_of(type) != domain or _width(type) > _width(arrow_type(column.type)):
        raise _UnknownError(f"the file has type {type}, the table {column.type}")
    corrected = _is_corrected(file.metadata.metadata or {}, int96=int96)
    return _Found(column, path, None if corrected else _OLDEST.get(domain.name))


def _by_name(fields: list[pa.Field], column: TableColumn) -> list[pa.Field] | None:
    branch: list[pa.Field] = []
    for name in column.physical:
        if branch:
            parent = branch[-1]
            if not pa.types.is_struct(parent.type):
                raise _UnknownError(f"{parent.name} is no struct in the file")
            fields = list(parent.type)
        alike = [field for field in fields if field.name.lower() == name.lower()]
        if not alike:
            return None
        if len(alike) > 1 or alike[0].name != name:
            # Whether Spark takes these for one column depends on a setting of the query's session.
            raise _UnknownError(f"the file has {', '.join(f.name for f in alike)} for {name}")
        branch.append(alike[0])
    return branch


def _by_id(fields: list[pa.Field], column: TableColumn) -> list[pa.Field] | None:
    branches = list(_branches(fields, []))
    ids = [(branch[-1].metadata or {}).get(b"PARQUET:field_id") for branch in branches]
    wanted = str(column.field_id).encode()
    found = [branch for branch, id in zip(branches, ids, strict=True) if id == wanted]
    if not any(ids):
        raise _UnknownError("the file has no field ids")
    if len(found) > 1 or any(len(branch) != len(column.physical) for branch in found):
        raise _UnknownError(f"field id {column.field_id} is not where the table has it")
    return found[0] if found else None


def _branches(fields: list[pa.Field], above: list[pa.Field]) -> Iterator[list[pa.Field]]:
    for field in fields:
        yield [*above, field]
        if pa.types.is_struct(field.type):
            yield from _branches(list(field.type), [*above, field])


def _width(type: pa.DataType) -> int:
    """How much a numeric type holds: Spark may cut values of a wider one, or refuse the file."""
    if pa.types.is_decimal(type):
        return int(type.precision)
    return int(type.bit_width) if pa.types.is_primitive(type) else 0


def _is_corrected(footer: dict[bytes, bytes], *, int96: bool) -> bool:
    """Whether Spark takes dates as they stand (`DataSourceUtils.getRebaseSpec`)."""
    least, legacy = ((3, 1), b"legacyINT96") if int96 else ((3, 0), b"legacyDateTime")
    version = re.match(rb"(\d+)\.(\d+)", footer.get(b"org.apache.spark.version", b""))
    return (
        version is not None
        and (int(version[1]), int(version[2])) >= least
        and b"org.apache.spark." + legacy not in footer
    )
