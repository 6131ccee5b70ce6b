"""Normalise typed values for storing and comparing.

A *domain* is a set of values with one total order, the order Spark compares by. Two types share a
domain when every comparison between them is a comparison of the normalised values: all integers
do, decimals of one scale do, decimals of two scales do not (unscaled 150 is 1.50 in one and 15.0
in the other). Stores only ever see three physical types, each ordered as the domain is:

=====================================  ========  ===================================================
Spark types                            stored    as
=====================================  ========  ===================================================
tinyint, smallint, int, bigint         int64     the number
boolean                                int64     0, 1
float, double                          int64     IEEE bits made monotone: -0.0 = 0.0, NaN max
date, timestamp, timestamp_ntz         int64     days, microseconds (UTC), microseconds
decimal(p <= 18, s)                    int64     the unscaled number; one domain a scale
decimal(p > 18, s)                     binary    the unscaled number, 16 bytes, big-endian, biased
string                                 string    UTF-8; byte order is code point order, as in Spark
binary                                 binary    the bytes, unsigned
=====================================  ========  ===================================================

Unsigned integers of Arrow are read as Spark does: a wider INT, BIGINT, or DECIMAL(20,0).
Other types have no domain: CREATE refuses them, and lookups treat them as unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Value: TypeAlias = int | str | bytes
"""One normalised value, as a Python object."""

_COMPARE: dict[str, Any] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_INTEGERS = {"tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64()}
_TYPES: dict[str, pa.DataType] = {
    **_INTEGERS,
    "boolean": pa.bool_(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "string": pa.string(),
    "binary": pa.binary(),
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_NAN_BITS = 0x7FF8000000000000
_WIDE = 18  # more digits than this do not fit 64 bits


@dataclass(frozen=True, slots=True)
class Domain:
    """A set of values with one total order; `stored` is the physical type in stores."""

    name: str
    stored: pa.DataType


def arrow_type(spark: str) -> pa.DataType | None:
    """Return the Arrow type of a Spark type in SQL (`bigint`, `decimal(10,2)`), if indexable.

    Strings with a collation other than UTF8_BINARY (`string collate X`) are not indexable, nor is
    CHAR(n), whose values are padded in comparisons.
    """
    if spark.startswith("varchar("):
        return pa.string()
    if match := _DECIMAL.fullmatch(spark):
        return pa.decimal128(int(match[1]), int(match[2]))
    return _TYPES.get(spark)


def canonical_type(type: pa.DataType) -> pa.DataType:
    """Return the plain type to which an Arrow type is converted for indexing; others are unchanged.

    Dictionaries, views and large types become the plain type of their values; unsigned integers
    become int64, or decimal(20, 0) for uint64.

    >>> canonical_type(pa.dictionary(pa.int8(), pa.large_string())), canonical_type(pa.uint64())
    (DataType(string), Decimal128Type(decimal128(20, 0)))
    """
    types = pa.types
    if types.is_dictionary(type):
        return canonical_type(type.value_type)
    if types.is_uint64(type):
        return pa.decimal128(20, 0)
    if types.is_unsigned_integer(type):
        return pa.int64()
    if types.is_large_string(type) or types.is_string_view(type):
        return pa.string()
    if types.is_large_binary(type) or types.is_binary_view(type):
        return pa.binary()
    return type


def domain_of(type: pa.DataType) -> Domain | None:
    """Return the domain of an Arrow type; None if it is not indexable."""
    types, type = pa.types, canonical_type(type)
    if types.is_signed_integer(type):
        return Domain("integer", pa.int64())
    if types.is_boolean(type):
        return Domain("boolean", pa.int64())
    if types.is_float32(type) or types.is_float64(type):
        return Domain("float", pa.int64())
    if types.is_date32(type):
        return Domain("date", pa.int64())
    if types.is_timestamp(type) and type.unit != "ns":
        # The name of the zone does not matter: with any zone the value counts from the UTC epoch.
        return Domain("timestamp" if type.tz else "timestamp_ntz", pa.int64())
    if types.is_decimal128(type):
        if type.precision <= _WIDE:
            return Domain(f"decimal({type.scale})", pa.int64())
        return Domain(f"wide decimal({type.scale})", pa.binary())
    if types.is_string(type):
        return Domain("string", pa.string())
    if types.is_binary(type):
        return Domain("binary", pa.binary())
    return None


def compare(values: pa.Array, op: str, value: object) -> pa.Array:
    """Compare normalised values with a value (None is null); null if either is null."""
    return _COMPARE[op](values, pa.scalar(value, values.type))


def encode(values: pa.Array) -> pa.Array:
    """Normalise an Arrow array or chunked array to its domain's stored type; nulls stay null.

    Raises pa.ArrowInvalid for values outside the domain: text that is not UTF-8, timestamps that
    overflow microseconds. Callers treat that as unknown.
    """
    if isinstance(values, pa.ChunkedArray):
        chunks = values.chunks or [pa.nulls(0, values.type)]
        return pa.concat_arrays([encode(chunk) for chunk in chunks])
    if pa.types.is_dictionary(values.type):
        return encode(values.dictionary).take(values.indices)
    domain = domain_of(values.type)
    if domain is None:
        raise pa.ArrowInvalid(f"no domain for {values.type}")
    if domain.name == "float":
        return _encode_float(values)
    if "decimal" in domain.name:
        return _encode_decimal(values.cast(canonical_type(values.type)), domain)
    if domain.name == "string":
        values.validate(full=True)
    elif domain.name == "boolean":
        values = values.cast(pa.int8())
    elif domain.name == "date":
        values = values.cast(pa.int32())
    elif domain.name.startswith("timestamp"):
        values = values.cast(pa.timestamp("us", values.type.tz))
    return values.cast(domain.stored)


def _encode_float(values: pa.Array) -> pa.Array:
    nulls = values.is_null()
    doubles = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
    bits = doubles.view(np.int64)
    bits = np.where(bits == np.int64(-(2**63)), np.int64(0), bits)  # -0.0
    bits = np.where(np.isnan(doubles), np.int64(_NAN_BITS), bits)
    # The bits of negative floats sort backwards: invert the lower 63.
    ordered = np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)
    return _apply_mask(ordered, nulls)


def _encode_decimal(values: pa.Array, domain: Domain) -> pa.Array:
    nulls = values.is_null()
    filled = pc.fill_null(values, pa.scalar(0, values.type))
    words = np.frombuffer(filled.buffers()[1], dtype="<i8")
    words = words[2 * filled.offset : 2 * (filled.offset + len(filled))].reshape(-1, 2)
    if domain.stored == pa.int64():
        return _apply_mask(words[:, 0].copy(), nulls)
    flipped = words.copy()
    flipped[:, 1] ^= np.int64(-(2**63))
    data = np.ascontiguousarray(flipped.view(np.uint8).reshape(-1, 16)[:, ::-1])
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(16), len(values), [None, pa.py_buffer(data.tobytes())]
    )
    return pc.if_else(nulls, pa.scalar(None, pa.binary()), fixed.cast(pa.binary()))


def _apply_mask(numbers: npt.NDArray[np.int64], nulls: pa.Array) -> pa.Array:
    return pa.array(numbers, pa.int64(), mask=nulls.to_numpy(zero_copy_only=False))


def common_prefix(low: Any, high: Any) -> int:
    """Return the length in bytes of the common prefix of two values; 0 for numbers.

    >>> common_prefix("https://a/1", "https://a/2"), common_prefix("\u00e9", "\u00e8")
    (10, 1)
    """
    a, b = (v.encode() if isinstance(v, str) else v for v in (low, high))
    if not isinstance(a, bytes) or not isinstance(b, bytes):
        return 0
    ends = (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
    return next(ends, min(len(a), len(b)))


def truncate(value: Any, limit: int) -> Any:
    """Return the longest prefix of a text or binary value with at most `limit` bytes.

    A number is returned unchanged. A prefix never sorts after its value, so a cut min is still a
    lower bound.
    """
    if isinstance(value, bytes):
        return value[:limit]
    if isinstance(value, str) and len(value.encode()) > limit:
        return value.encode()[:limit].decode(errors="ignore")
    return value


def successor(prefix: str | bytes) -> str | bytes | None:
    r"""Return the smallest value above all values with a prefix; None if no value is above.

    >>> successor("az"), successor(b"a\xff"), successor("")
    ('a{', b'b', None)
    """
    if isinstance(prefix, bytes):
        stripped = prefix.rstrip(b"\xff")
        return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None
    kept = prefix.rstrip("\U0010ffff")
    if not kept:
        return None
    after = ord(kept[-1]) + 1
    # U+D800 to U+DFFF are surrogates, which UTF-8 cannot hold: the next text character is U+E000.
    return kept[:-1] + chr(0xE000 if after == 0xD800 else after)
