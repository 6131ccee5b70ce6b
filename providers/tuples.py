r"""Tuples: the values of several columns of one row as one value, for tests of equality.

A tuple is encoded as bytes, an injective encoding of normalised values: a number as 8 bytes, biased
and big-endian; text and bytes after their length in 4 bytes. A tuple with a null is null, because
`a = 1 AND b = 2` is never true for it. The column types are part of the domain: tuples of other
types are other values.

>>> encode_tuples([pa.array([1, None]), pa.array(["x", "y"])]).to_pylist()
[b'\x80\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01x', None]
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from providers.base import Column
from providers.errors import DefinitionError
from providers.values import Domain, Value, arrow_type, domain_of

TUPLE, ARRAY = "tuple(", "array("
"""The prefixes of the names of a domain of tuples, and of elements of arrays."""

_TYPE = re.compile(r"tuple<(.+)>")
_ARRAY = re.compile(r"array<(.+)>")
_PART = re.compile(r"(?:[^,()]|\([^()]*\))+")
_BIAS = np.uint64(1 << 63)


def tuple_type(types: Sequence[str]) -> str:
    """Return the name of the type of tuples of columns with these Spark types.

    >>> tuple_type(["int", "decimal(10,2)"])
    'tuple<int, decimal(10,2)>'
    """
    return f"tuple<{', '.join(types)}>"


def part_types(type: str) -> list[str]:
    """Return the Spark types of the columns of a tuple type; empty for any other type.

    >>> part_types("tuple<int, decimal(10,2)>"), part_types("int")
    (['int', 'decimal(10,2)'], [])
    """
    match = _TYPE.fullmatch(type)
    return [part.strip() for part in _PART.findall(match[1])] if match else []


def element_type(type: str) -> str | None:
    """Return the Spark type of the elements of an array type; None for any other type."""
    match = _ARRAY.fullmatch(type)
    return match[1] if match else None


def tuple_domain(domains: Sequence[Domain]) -> Domain:
    """Return the domain of tuples of values with these types."""
    return Domain(f"{TUPLE}{', '.join(domain.name for domain in domains)})", pa.binary())


def domain_of_type(type: str) -> Domain | None:
    """Return the domain of a Spark type or a tuple type; None if no index type supports it.

    The domain of an array is that of its elements, under another name.

    >>> domain_of_type("array<int>"), domain_of_type("array<array<int>>")
    (Domain(name='array(integer)', stored=DataType(int64)), None)
    """
    if element := element_type(type):
        domain = _domain(element)  # arrays do not nest
        return None if domain is None else Domain(f"{ARRAY}{domain.name})", domain.stored)
    if parts := part_types(type):
        domains = [_domain(part) for part in parts]  # tuples do not nest
        known = [domain for domain in domains if domain is not None]
        return tuple_domain(known) if len(known) == len(domains) else None
    return _domain(type)


def _domain(type: str) -> Domain | None:
    arrow = arrow_type(type)
    return None if arrow is None else domain_of(arrow)


def refuse_tuples(kind: str, column: Column) -> None:
    """Raise DefinitionError for tuples and elements of arrays, which only equality tests."""
    if column.domain.name.startswith(ARRAY):
        raise DefinitionError(
            f"{kind} does not support {column.name}: elements of arrays are only tested for "
            "equality. Use VALUE_LIST or BLOOM_FILTER"
        )
    if column.domain.name.startswith(TUPLE):
        raise DefinitionError(
            f"{kind} does not support {column.name}: tuples are only tested for equality. "
            f"Use VALUE_LIST or BLOOM_FILTER, and {kind} on each column"
        )


def encode_tuples(parts: Sequence[pa.Array]) -> pa.Array:
    """Encode each row of these columns (normalised values) as a tuple; null if a value is null."""
    pieces: list[pa.Array] = []
    for part in parts:
        if part.type == pa.int64():
            numbers = part.fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64)
            pieces.append(_apply_mask((numbers ^ _BIAS).astype(">u8"), part))
        else:
            part = part.cast(pa.binary())
            lengths = pc.binary_length(part).fill_null(0).to_numpy(zero_copy_only=False)
            pieces += [_apply_mask(lengths.astype(">u4"), part), part]
    return pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.binary()))


def decode_tuple(value: bytes, types: Sequence[str]) -> tuple[Value, ...]:
    """Decode the normalised values of a tuple of columns with these Spark types."""
    out: list[Value] = []
    for type in types:
        domain = _domain(type)
        assert domain is not None, "tuples are of indexed columns"
        if domain.stored == pa.int64():
            out.append(int.from_bytes(value[:8], "big") - (1 << 63))
            value = value[8:]
            continue
        end = 4 + int.from_bytes(value[:4], "big")
        out.append(value[4:end].decode() if domain.stored == pa.string() else value[4:end])
        value = value[end:]
    return tuple(out)


def _apply_mask(numbers: npt.NDArray[np.generic], part: pa.Array) -> pa.Array:
    width = numbers.dtype.itemsize
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), len(numbers), [None, pa.py_buffer(numbers.tobytes())]
    ).cast(pa.binary())
    if not part.null_count:
        return fixed
    return pc.if_else(part.is_valid(), fixed, pa.scalar(None, pa.binary()))
