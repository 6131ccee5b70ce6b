"""Code that all stores share: check entries, and decide which tests a store can evaluate."""

from __future__ import annotations

from array import array
from collections.abc import Container, Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from providers.errors import StoreError
from providers.index_predicate import (
    BitsSet,
    Contains,
    ContainsOther,
    ContainsRange,
    FieldCompare,
    NotWithin,
    Overlaps,
    OverlapsRange,
    Test,
)
from providers.values import Value
from skipping.stores import IDENTITY

ORDINALS = 2**31
"""The number of ordinals of an index: bitmaps in Spark have 31 bits."""

PORTION = 1 << 30
"""Maximum of bytes of entries in one chunk: Arrow's offsets end at 2 GiB."""

_SCALARS = {pa.int64(): int, pa.string(): str, pa.binary(): bytes}
_NAMED = {"bool": pa.bool_(), "int64": pa.int64(), "string": pa.string(), "binary": pa.binary()}
TYPES = {
    **_NAMED,
    **{f"list<{name}>": pa.list_(type) for name, type in _NAMED.items()},
    "large_binary": pa.large_binary(),
}
"""The types of fields by their names in a store."""
_NAMES = {type: name for name, type in TYPES.items()}
_NOT_NULL = ("ordinal", "path", "size")


def check_entries(entries: pa.Table) -> pa.Table:
    """Return the entries with the types that stores use (`large_string` becomes `string`).

    Raises StoreError for a missing or null identity, a duplicate ordinal or one out of range, a
    sketch without its `known` flag, an unsupported type, and a null among terms.

    >>> check_entries(pa.table({"ordinal": [1], "path": ["a"]}))
    Traceback (most recent call last):
    providers.errors.StoreError: entries lack the column size
    """
    columns: dict[str, pa.ChunkedArray] = {}
    for name in IDENTITY.names:
        if name not in entries.schema.names:
            raise StoreError(f"entries lack the column {name}")
    for name in entries.schema.names:
        if name in columns:
            raise StoreError(f"entries have two columns {name}")
        column = entries.column(name)
        stored = _stored_type_of(name, column.type, entries.schema)
        try:
            columns[name] = column if column.type == stored else _cast(column, stored)
        except pa.ArrowInvalid as error:
            raise StoreError(f"column {name} of the entries: {error}") from error
        if name in _NOT_NULL and column.null_count:
            raise StoreError(f"column {name} of the entries has nulls")
        if pa.types.is_list(stored) and pc.list_flatten(columns[name]).null_count:
            raise StoreError(f"column {name} of the entries has nulls among its terms")
    ordinals = columns["ordinal"].to_numpy()
    if len(np.unique(ordinals)) != len(ordinals):
        raise StoreError("the entries contain an ordinal twice")
    if len(ordinals) and not 0 <= ordinals.min() <= ordinals.max() < ORDINALS:
        raise StoreError(
            f"the entries have an ordinal outside 0 to {ORDINALS - 1:,}: "
            f"{ordinals.min():,} to {ordinals.max():,}"
        )
    return compact(pa.table(columns))


def compact(table: pa.Table) -> pa.Table:
    """Return the table in one chunk, unless it is larger than PORTION."""
    return table.combine_chunks() if table.nbytes <= PORTION else table


def portions(table: pa.Table, rows: npt.NDArray[np.int64]) -> Iterator[pa.Table]:
    """Yield these rows (sorted) in tables of one chunk, not much larger than PORTION."""
    chosen, bytes, start = list[pa.RecordBatch](), 0, 0
    for batch in table.to_batches():
        first, last = np.searchsorted(rows, (start, start + len(batch)))
        mine = rows[first:last] - start
        start += len(batch)
        for piece in _pieces(batch.take(pa.array(mine))) if len(mine) else ():
            if chosen and bytes + piece.nbytes > PORTION:
                yield pa.Table.from_batches(chosen).combine_chunks()
                chosen, bytes = [], 0
            chosen.append(piece)
            bytes += piece.nbytes
    if chosen:
        yield pa.Table.from_batches(chosen).combine_chunks()


def take_rows(column: pa.ChunkedArray, rows: pa.Array) -> pa.ChunkedArray:
    """Return these rows of a column. Arrow's `take` fails if the chunks have more than 2 GiB."""
    if column.nbytes <= PORTION:
        return column.take(rows)
    wide = column.cast(_wide(column.type)).combine_chunks().take(rows)
    return _cast(pa.chunked_array([wide]), column.type)


def _wide(type: pa.DataType) -> pa.DataType:
    if pa.types.is_list(type):
        return pa.large_list(_wide(type.value_type))
    return {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(type, type)


def _cast(column: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    # A slice of lists refers to the values of all rows, so each piece is copied before the cast.
    pieces = (piece for chunk in column.chunks for piece in _pieces(chunk))
    return pa.chunked_array([p.take(pa.array(np.arange(len(p)))).cast(type) for p in pieces], type)


_Sliced = TypeVar("_Sliced", pa.Array, pa.RecordBatch)
_Identity = TypeVar("_Identity", bound=Hashable)


def _pieces(whole: _Sliced) -> Iterator[_Sliced]:
    """Yield slices of at most PORTION bytes, or of one row."""
    if whole.nbytes <= PORTION or len(whole) < 2:
        yield whole
        return
    half = len(whole) // 2
    yield from _pieces(whole.slice(0, half))
    yield from _pieces(whole.slice(half))


def _stored_type_of(name: str, type: pa.DataType, schema: pa.Schema) -> pa.DataType:
    if name in IDENTITY.names:
        return IDENTITY.field(name).type
    sketch, _, field_name = name.partition("_")
    if not field_name or f"{sketch}_known" not in schema.names:
        raise StoreError(f"column {name} of the entries belongs to no sketch with a known flag")
    if field_name == "known":
        stored = pa.bool_()
    elif pa.types.is_list(type) or pa.types.is_large_list(type):
        stored = pa.list_(_scalar(type.value_type))
    elif pa.types.is_large_binary(type):  # BYTES
        stored = type
    else:
        stored = _scalar(type)
    if stored is None or (field_name == "known" and not pa.types.is_boolean(type)):
        raise StoreError(
            f"column {name} of the entries has type {type}, which stores do not support"
        )
    return stored


def _scalar(type: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(type):
        return pa.string()
    if pa.types.is_large_binary(type):
        return pa.binary()
    if type not in _SCALARS:
        raise StoreError(f"entries have values of type {type}, which stores do not support")
    return type


def is_scalar(type: pa.DataType) -> bool:
    """Return whether a column of this type is a SCALAR field, a known flag or null."""
    return not (pa.types.is_list(type) or pa.types.is_large_binary(type))


def declare_fields(fields: dict[str, str], entries: pa.Table) -> dict[str, str]:
    """Add the types of the entries' fields to `fields`; raise StoreError if one is different."""
    grown = dict(fields)
    for field in entries.schema:
        if field.name not in IDENTITY.names:
            type = _NAMES[field.type]
            if grown.setdefault(field.name, type) != type:
                raise StoreError(f"{field.name} has type {grown[field.name]}, not {type}")
    return grown


def place_rows(
    ordinals: Sequence[int],
    identities: Sequence[_Identity],
    holders: Mapping[_Identity, int],
    owners: Mapping[int, _Identity],
    *,
    removed: Container[int],
    end: int,
) -> list[int]:
    """Return the positions of the rows to store; each row is a file with its ordinal.

    A row is left out if its file already has another ordinal (another writer was first), or if its
    ordinal is in `removed` (it had an entry before). `holders` maps the existing files to ordinals,
    and `owners` maps ordinals to files. Raises StoreError for an ordinal that belongs to another
    file or was not reserved; `end` is the first such ordinal.
    """
    held, named = dict(holders), dict(owners)
    placed = []
    for row, (ordinal, identity) in enumerate(zip(ordinals, identities, strict=True)):
        if ordinal >= end:
            raise StoreError(f"ordinal {ordinal} was never reserved")
        if held.setdefault(identity, ordinal) != ordinal:  # it lost a race
            continue
        if ordinal in removed:  # from a late writer: the file has to be written again
            del held[identity]
            continue
        if named.setdefault(ordinal, identity) != identity:
            raise StoreError(f"ordinal {ordinal} belongs to another file")
        placed.append(row)
    return placed


def sketches(names: Sequence[str]) -> dict[str, list[str]]:
    """Return the full column names of each sketch, the known flag first.

    >>> sketches(["ordinal", "s3_low", "s3_known"])
    {'s3': ['s3_known', 's3_low']}
    """
    found: dict[str, list[str]] = {}
    for name in sorted(names, key=lambda name: not name.endswith("_known")):
        if name not in IDENTITY.names:
            found.setdefault(name.partition("_")[0], []).append(name)
    return found


def bitmap_of(ordinals: npt.NDArray[np.int64]) -> BitMap:
    """Return the ordinals as a bitmap."""
    packed = array("I")  # from this type a BitMap is made seven times as fast
    packed.frombytes(ordinals.astype(np.uint32).tobytes())
    return BitMap(packed)


def bitmap_where(ordinals: npt.NDArray[np.int64], rows: npt.NDArray[np.bool_]) -> BitMap:
    """Return the ordinals where `rows` is true; nearly complete ranges take a tenth of the time.

    >>> bitmap_where(np.array([3, 4, 5]), np.array([True, False, True]))
    BitMap([3, 5])
    """
    left = ordinals[~rows]
    is_long = len(ordinals) and 2 * len(left) <= len(ordinals)
    if is_long and np.all(ordinals[1:] == ordinals[:-1] + 1):
        return BitMap(range(int(ordinals[0]), int(ordinals[-1]) + 1)) - bitmap_of(left)
    return bitmap_of(ordinals[rows])


def can_answer(test: Test, types: Mapping[str, pa.DataType]) -> bool:
    """Return whether a store can evaluate a test; `types` has its fields by full name.

    A test prunes nothing if it compares another type than the stored one, or if its sketch has no
    known flag or a field that it needs has no values.
    """

    def type_of(name: str) -> pa.DataType | None:
        return types.get(f"{test.sketch}_{name}")

    if type_of("known") is None:
        return False
    match test:
        case FieldCompare(name, _, value):
            return _fits(value, type_of(name))
        case Overlaps(low, high, keys):
            return bool(keys.type in _SCALARS and type_of(low) == type_of(high) == keys.type)
        case NotWithin(low, high, starts, ends) | OverlapsRange(low, high, starts, ends):
            same = starts.type == ends.type and len(starts) == len(ends)
            return bool(
                same and starts.type in _SCALARS and type_of(low) == type_of(high) == starts.type
            )
        case Contains(name, keys) | ContainsOther(name, keys):
            return bool(type_of(name) == pa.list_(keys.type))
        case ContainsRange(name, low_value, high_value):
            terms = type_of(name)
            if terms is None or not pa.types.is_list(terms):
                return False
            bounds = [value for value in (low_value, high_value) if value is not None]
            return all(_fits(value, terms.value_type) for value in bounds)
        case BitsSet(name, layout, probes):
            asked = all(
                pa.types.is_fixed_size_list(bits.type) and bits.type.value_type == pa.int64()
                for _, bits in probes
            )
            return bool(
                asked and type_of(name) == pa.large_binary() and type_of(layout) == pa.int64()
            )


def _fits(value: Value, type: pa.DataType | None) -> bool:
    if not isinstance(value, _SCALARS.get(type, ())):
        return False
    try:
        pa.scalar(value, type)
    except (pa.ArrowException, OverflowError, ValueError):  # 2**70, lone surrogates
        return False
    return True
