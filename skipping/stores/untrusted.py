"""Read Arrow data from a store that others may have written.

Arrow trusts its input: an offset outside the data ends the process, and a compressed buffer of a
few KiB can unpack to GiB. So data from a store is checked first: columns have the few types that
stores use, and the unpacked size of each buffer is added up before anything is unpacked. Arrow
checks that the parts of a message lie within it, but not their content. The schema is parsed here,
because a forged one can grow without limit while Arrow reads it: fields may share their parts.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

import pyarrow as pa

from providers.errors import Damaged

# Arrow also raises OSError and MemoryError for bytes that are not a message.
_REFUSALS = (pa.ArrowException, struct.error, ValueError, OverflowError, OSError, MemoryError)
INVALID = (
    *(pa.ArrowException, struct.error, ValueError, TypeError, LookupError, AttributeError),
    *(ArithmeticError, RecursionError),
)
"""Errors that data of another form raises where it is used."""

_MOST_COLUMNS = 10_000
_MOST_NAME = 1_000  # bytes
_CACHED = 1 << 14  # bytes of a schema

# Arrow's format as a flatbuffer: the slots of Message, Schema, Field, Int and RecordBatch, and the
# numbers of types (format/Message.fbs and Schema.fbs).
_HEADER, _FIELDS, _NAME, _TYPE_NUMBER, _TYPE, _DICTIONARY, _CHILDREN = 2, 1, 0, 2, 3, 4, 5
_BIT_WIDTH, _IS_SIGNED, _BUFFERS, _COMPRESSION = 0, 1, 2, 3
_INT, _LIST = 2, 12
_TYPES = {4: pa.binary(), 5: pa.string(), 6: pa.bool_(), 19: pa.large_binary()}


def read_stream(data: bytes | pa.Buffer, *, most: int) -> pa.Table:
    """Return the table of an Arrow IPC stream whose columns have the types that stores use.

    These are bool, int64, string, binary, lists of them, and large_binary.

    `most` limits the bytes of its buffers after unpacking: `len(data)` if the writer does not
    compress. Every value is checked (offsets, UTF-8), so the table is safe to use. Raises Damaged
    for anything else, before it is unpacked.

    >>> sink, table = pa.BufferOutputStream(), pa.table({"ordinal": [1, 2]})
    >>> with pa.ipc.new_stream(sink, table.schema) as writer:
    ...     writer.write_table(table)
    >>> read_stream(sink.getvalue(), most=64)["ordinal"].to_pylist()
    [1, 2]
    """
    try:
        messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(data))
        first, *rest = islice(messages, _MOST_COLUMNS + 2)
        if first.type != "schema":
            raise Damaged(f"a block begins with a {first.type}, not a schema")
        schema = _schema(first.metadata.to_pybytes())
        # An empty message has no bytes to count, but each of its columns becomes an array.
        if len(rest) * len(schema) > _MOST_COLUMNS:
            raise Damaged("a block has more messages than any release writes")
        for message in rest:
            if message.type != "record batch":
                raise Damaged(f"a block has a {message.type} instead of a record batch")
            most -= sum(_unpacked_sizes(message))
            if most < 0:
                raise Damaged("a block unpacks to more bytes than allowed")
        batches = [pa.ipc.read_record_batch(message, schema) for message in rest]
        table = pa.Table.from_batches(batches, schema)
        table.validate(full=True)
    except _REFUSALS as error:
        raise Damaged(f"a stored block is invalid: {error}") from error
    return table


def read_array(type: pa.DataType, n: int, *buffers: memoryview) -> pa.Array:
    """Return the array of `n` values without nulls in these Arrow buffers.

    Raises Damaged if the buffers have fewer values, or invalid ones.
    """
    try:
        found = pa.Array.from_buffers(type, n, [None, *map(pa.py_buffer, buffers)])
        found.validate(full=True)
    except _REFUSALS as error:
        raise Damaged(f"a stored block is invalid: {error}") from error
    return found


def _schema(metadata: bytes) -> pa.Schema:
    # Usually all blocks of a part have the same schema.
    return (_read_schema if len(metadata) <= _CACHED else _read_schema.__wrapped__)(metadata)


@lru_cache(maxsize=64)
def _read_schema(metadata: bytes) -> pa.Schema:
    view = memoryview(metadata)
    at, n = _vector(view, _table(view, _header(view), _FIELDS))
    if not 0 < n <= _MOST_COLUMNS:
        raise Damaged(f"a block has {n:,} columns, not 1 to {_MOST_COLUMNS:,}")
    columns = [_column(view, at + 4 * i) for i in range(n)]
    if len({name for name, _ in columns}) < n:
        raise Damaged("a block has two columns with the same name")
    return pa.schema(columns)


def _column(view: memoryview, at: int) -> tuple[str, pa.DataType]:
    field = at + _number(view, "<I", at)
    start, length = _vector(view, _table(view, field, _NAME))
    if length > _MOST_NAME:
        raise Damaged(f"a block has a column name of {length:,} bytes, more than {_MOST_NAME:,}")
    name = bytes(view[start : start + length]).decode()
    type = _type(view, field)
    if type is None:
        raise Damaged(f"column {name!r} of a block has a type that no store uses")
    return name, type


def _type(view: memoryview, field: int, *, within: bool = False) -> pa.DataType | None:
    """Return the type of a column, or of the values `within` a list; None for other types."""
    if _slot(view, field, _DICTIONARY):
        return None
    number = _value(view, "<B", field, _TYPE_NUMBER)
    children = _slot(view, field, _CHILDREN)
    at, n = _vector(view, children + _number(view, "<I", children)) if children else (0, 0)
    if number == _LIST and n == 1 and not within:
        item = _type(view, at + _number(view, "<I", at), within=True)
        return None if item in (None, pa.large_binary()) else pa.list_(item)
    if n:
        return None
    if number == _INT:
        about = _table(view, field, _TYPE)
        width, signed = _value(view, "<i", about, _BIT_WIDTH), _value(view, "<B", about, _IS_SIGNED)
        return pa.int64() if (width, signed) == (64, 1) else None
    return _TYPES.get(number)


def _unpacked_sizes(message: pa.ipc.Message) -> Iterator[int]:
    """Yield the unpacked size that each buffer of a record batch states."""
    view, body = memoryview(message.metadata), memoryview(message.body)
    batch = _header(view)
    compressed = bool(_slot(view, batch, _COMPRESSION))
    start, n = _vector(view, _table(view, batch, _BUFFERS))
    for offset, length in struct.iter_unpack("<qq", view[start : start + 16 * n]):
        if offset < 0 or length < 0:
            raise Damaged("a buffer of a block lies outside it")
        size = length
        if compressed and length:
            # A compressed buffer begins with its unpacked size, or -1 if it is not compressed.
            size = _number(body, "<q", offset)
            size = length if size == -1 else size
        if size < 0:
            raise Damaged("a buffer of a block has a size below zero")
        yield size


def _header(view: memoryview) -> int:
    return _table(view, _number(view, "<I", 0), _HEADER)


def _slot(view: memoryview, table: int, slot: int) -> int:
    """Return the position of a field in a flatbuffer table; 0 if it has its default."""
    about = table - _number(view, "<i", table)
    at = 4 + 2 * slot
    inside = at < _number(view, "<H", about)
    offset = _number(view, "<H", about + at) if inside else 0
    return table + offset if offset else 0


def _value(view: memoryview, format: str, table: int, slot: int) -> int:
    at = _slot(view, table, slot)
    return _number(view, format, at) if at else 0


def _table(view: memoryview, table: int, slot: int) -> int:
    """Return the position of the table, text or vector that a field refers to."""
    at = _slot(view, table, slot)
    if not at:
        raise Damaged("a message in a block lacks a required field")
    return at + _number(view, "<I", at)


def _vector(view: memoryview, at: int) -> tuple[int, int]:
    """Return the position of a vector's items, and their number."""
    return at + 4, _number(view, "<I", at)


def _number(view: memoryview, format: str, at: int) -> int:
    if at < 0:
        raise Damaged("a block refers to a position outside it")
    (found,) = struct.unpack_from(format, view, at)
    return int(found)
