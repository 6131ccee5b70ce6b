"""Convert join keys from other libraries to values of a column.

A key equals a value if both have the same normalised value (`providers.values`): NaN equals itself,
-0.0 equals 0.0, and null equals nothing. A key outside the column's type, such as 2.5 or 2**40 for
an INT, matches no row. Keys that engines would cast differently (text for a number) raise
TypeError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from providers.predicate import In
from providers.values import canonical_type, domain_of, encode

_EXACT = 2**53
"""Doubles represent all integers up to this exactly."""

_DIGITS = {pa.int64(): 18, pa.binary(): 38}
"""Digits of a decimal, by the stored type of its domain."""


@dataclass(frozen=True)
class Keys:
    """Join keys: as given, and as normalised, distinct, sorted values.

    `given` has a type of the column's domain, with null for a key that equals no value.
    """

    given: pa.Array
    values: pa.Array

    @classmethod
    def of(cls, name: str, values: Any, type: pa.DataType) -> Keys:
        """Convert keys (see `as_column`) for the column `name`, which has `type`.

        Raises TypeError if they cannot be compared with the column.
        """
        column = as_column(values, name)
        try:
            given = _conform(column, type)
            return cls(given, In.of(name, encode(given)).values)
        except _ForeignError:
            raise TypeError(
                f"{name} is {type}, but its keys are {column.type}: cast the keys"
            ) from None
        except pa.ArrowInvalid as error:
            raise TypeError(f"keys of {name}: {error}") from error

    def positions(self, values: pa.Array) -> npt.NDArray[np.int64]:
        """Return the position of each normalised value in `values`; -1 if it is not a key."""
        if not len(self.values):
            return np.full(len(values), -1, np.int64)
        if self.values.type != pa.int64():
            found = pc.index_in(values, value_set=self.values, skip_nulls=True)
            return np.asarray(found.fill_null(-1), np.int64)
        # Arrow would hash all keys for each batch: 90 ms for a million.
        keys, numbers = self.values.to_numpy(), values.fill_null(0).to_numpy(zero_copy_only=False)
        places = np.searchsorted(keys, numbers)
        places[places == len(keys)] = 0
        there = (keys[places] == numbers) & values.is_valid().to_numpy(zero_copy_only=False)
        return np.where(there, places, -1)

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """The position of each given key in `values`; -1 for null."""
        return self.positions(encode(self.given))


def as_column(values: Any, name: str = "") -> pa.ChunkedArray:
    """Convert one column to Arrow: an Arrow or NumPy array, a column of pandas or Polars, a list.

    From a table with several columns (Arrow, Polars, pandas, a DuckDB relation, a scan) it takes
    the column `name`. Python values must have the same type. It decodes dictionaries (categories of
    pandas and Polars) and converts UUIDs to bytes. Raises TypeError for anything else.
    """
    if hasattr(values, "collect") and not hasattr(values, "__arrow_c_stream__"):
        values = values.collect()  # a LazyFrame
    try:
        column = _as_arrow(values, name)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise TypeError(f"keys of {name} must be a column of values: {error}") from error
    if isinstance(column, pa.Array):
        column = pa.chunked_array([column])
    if pa.types.is_struct(column.type):
        column = _of_struct(column, name)
    return plain_values(column)


def _as_arrow(values: Any, name: str) -> Any:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if (library := type(values).__module__.partition(".")[0]) == "pandas":
        if values.ndim == 2:
            values = values[name if name in values else values.columns[0]]
            if values.ndim == 2:
                raise TypeError(f"there are several columns {name}: rename one")
        return of_pandas(values)
    if hasattr(values, "__arrow_c_stream__"):
        return pa.chunked_array(values)
    if isinstance(values, np.ndarray):
        return pa.array(values)
    if library == "duckdb":
        return pa.chunked_array(values.to_arrow_table().to_batches())
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise TypeError(f"keys of {name} must be a column of values, not {type(values).__name__}")
    plain = (value.as_py() if isinstance(value, pa.Scalar) else value for value in values)
    return _of_python([value.bytes if isinstance(value, UUID) else value for value in plain])


def _of_python(values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except OverflowError:  # an integer of more than 64 bits, which no BIGINT equals
        if not all(isinstance(value, int | None) for value in values):
            raise
        most = 10**38
        kept = [None if v is None or not -most < v < most else Decimal(v) for v in values]
        return pa.array(kept, pa.decimal128(38, 0))


def of_pandas(values: Any) -> pa.Array:
    """Convert a column of pandas. NaN of floats stays NaN."""
    try:
        return pa.array(values, from_pandas=False)
    except OverflowError:
        return _of_python([None if v != v else v for v in values])
    except pa.ArrowException:  # where text is missing, objects have NaN or NA
        return pa.array(values, from_pandas=True)


def _of_struct(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    names = [field.name for field in column.type]
    if names.count(name) != 1 and len(names) != 1:
        raise TypeError(f"keys of {name}: choose one of the columns {', '.join(names)}")
    place = names.index(name) if name in names else 0
    return pa.chunked_array(
        [pc.struct_field(chunk, [place]) for chunk in column.chunks], column.type.field(place).type
    )


class _ForeignError(Exception):
    pass


def _conform(column: pa.ChunkedArray, type: pa.DataType) -> pa.Array:
    type = canonical_type(type)
    domain = domain_of(type)
    if domain is None:
        raise _ForeignError
    keys = column.combine_chunks()
    if isinstance(keys, pa.ChunkedArray):
        keys = pa.concat_arrays(keys.chunks) if keys.num_chunks else pa.array([], column.type)
    if pa.types.is_null(keys.type):
        return pa.nulls(len(keys), type)
    match domain.name:
        case "integer":
            return _integers(keys)
        case "float":
            return _floats(keys)
        case "date":
            return _dates(keys)
        case "timestamp" | "timestamp_ntz":
            return _times(keys, type)
        case name if "decimal" in name:
            return _decimals(keys, pa.decimal128(_DIGITS[domain.stored], type.scale))
    if domain_of(keys.type) != domain:
        raise _ForeignError
    return keys


def _null_unless(condition: pa.Array, keys: pa.Array) -> pa.Array:
    return pc.if_else(condition, keys, pa.scalar(None, keys.type))


def plain_values(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Convert Arrow's variants of text, bytes and numbers to their plain types.

    UUIDs and fixed-size bytes become binary.
    """
    types = pa.types
    if isinstance(values, pa.ChunkedArray):
        chunks = values.chunks or [pa.nulls(0, values.type)]
        return pa.chunked_array([plain_values(chunk) for chunk in chunks])
    if types.is_dictionary(values.type):
        return plain_values(values.dictionary).take(values.indices)
    if isinstance(values, pa.ExtensionArray):
        return plain_values(values.storage)
    if types.is_fixed_size_binary(values.type):
        return values.cast(pa.binary())
    if types.is_float16(values.type):
        return values.cast(pa.float32())
    plain = canonical_type(values.type)
    return values.cast(plain) if types.is_string(plain) or types.is_binary(plain) else values


def _integers(keys: pa.Array) -> pa.Array:
    if pa.types.is_signed_integer(keys.type):
        return keys.cast(pa.int64())
    if pa.types.is_unsigned_integer(keys.type):
        wide = keys.cast(pa.uint64())
        return _null_unless(pc.less_equal(wide, pa.scalar(2**63 - 1, pa.uint64())), wide).cast(
            pa.int64()
        )
    if pa.types.is_decimal128(keys.type) and keys.type.scale == 0:
        least, end = (pa.scalar(Decimal(n), pa.decimal128(38)) for n in (-(2**63), 2**63))
        fits = pc.and_(pc.greater_equal(keys, least), pc.less(keys, end))
        return _null_unless(fits, keys).cast(pa.int64())
    if not pa.types.is_floating(keys.type):
        raise _ForeignError
    # pandas stores integers with missing values as floats.
    numbers = keys.cast(pa.float64())
    whole = _null_unless(
        pc.and_(pc.is_finite(numbers), pc.equal(numbers, pc.floor(numbers))), numbers
    )
    if pc.any(pc.greater(pc.abs(whole), float(_EXACT))).as_py():
        raise _ForeignError  # the original integer is unknown
    return whole.cast(pa.int64())


def _floats(keys: pa.Array) -> pa.Array:
    if pa.types.is_floating(keys.type):
        return keys
    if not pa.types.is_integer(keys.type):
        raise _ForeignError
    ends = pc.min_max(keys).as_py()
    if any(end is not None and abs(end) > _EXACT for end in ends.values()):
        raise _ForeignError
    return keys.cast(pa.float64())


def _dates(keys: pa.Array) -> pa.Array:
    if pa.types.is_date(keys.type):
        return keys.cast(pa.date32())
    if not pa.types.is_timestamp(keys.type) or keys.type.tz:
        raise _ForeignError
    # pandas and NumPy store days as times.
    return _null_unless(pc.equal(pc.floor_temporal(keys, unit="day"), keys), keys).cast(pa.date32())


def _times(keys: pa.Array, type: pa.DataType) -> pa.Array:
    if not pa.types.is_timestamp(keys.type) or bool(keys.type.tz) != bool(type.tz):
        raise _ForeignError
    if keys.type.unit == "ns":
        # No indexed column is finer than microseconds.
        micros = keys.cast(pa.timestamp("us", keys.type.tz), safe=False)
        keys = _null_unless(pc.equal(micros.cast(keys.type), keys), micros)
    return keys.cast(pa.timestamp("us", type.tz))


def _decimals(keys: pa.Array, type: pa.DataType) -> pa.Array:
    if not (pa.types.is_decimal(keys.type) or pa.types.is_integer(keys.type)):
        raise _ForeignError
    try:
        return keys.cast(type)  # fails if a key has more digits
    except pa.ArrowInvalid:
        with localcontext(Context(prec=160)):
            most, unit = 10 ** (type.precision - type.scale), Decimal(1).scaleb(-type.scale)
            given = (None if key is None else Decimal(key) for key in keys.to_pylist())
            fitting = [
                n if n is not None and abs(n) < most and n % unit == 0 else None for n in given
            ]
            return pa.array([None if n is None else n.quantize(unit) for n in fitting], type)
