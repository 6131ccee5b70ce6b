"""Rewrite comparisons with literals of any type as comparisons of normalised values, exactly.

Spark compares in a common type: an INT with 1.5 as doubles, a DATE with a time as times. A column's
values keep their order there, so a literal has a *place* among them: those before it, those equal
to it (none, one, or several if the common type rounds), those after it. Every comparison becomes a
comparison with the ends of that place; no literal is cast to the column's type.

============================  ==================================================================
column                        literals, and what both are compared as
============================  ==================================================================
tinyint ... bigint            int, Decimal: numbers; float: doubles; text of an integer
float, double                 int, float, Decimal: doubles
decimal(p, s)                 int, Decimal: decimals of up to 38 digits; float: doubles
boolean                       bool
date, timestamp_ntz           date, datetime without a zone: times; text in ISO's form
timestamp                     datetime with a zone: instants; text in ISO's form, with Z
date, timestamp*              int: days, microseconds, as they are normalised
string; binary                str; bytes
============================  ==================================================================

Comparisons that depend on a session setting (time zone, ANSI) are Unknown. A comparison with null
is true for no row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from providers.predicate import (
    And,
    Between,
    Compare,
    Contains,
    ContainsAnyCase,
    EndsWith,
    In,
    IsNull,
    Leaf,
    Or,
    Predicate,
    StartsWith,
    StartsWithAny,
    Unknown,
    Within,
    negate,
)
from providers.values import Domain, domain_of, encode

_DAY = 86_400_000_000
_DIGITS = 38  # digits of Spark's decimals
_NEVER = Or(())
_ALWAYS = And(())
_TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{3}|\.[0-9]{6})?"


class _Incomparable(Exception):
    pass


@dataclass(frozen=True, slots=True)
class _Place:
    """The normalised values equal to a literal: `at <= n < after`. Text has `exact` instead.

    `folds`: the literal is a DECIMAL outside the range of BIGINT. For it, Spark folds the
    comparison to a constant, for nulls, too (`DecimalPrecision.integralAndDecimalLiteral`).
    """

    at: int = 0
    after: int = 0
    exact: str | bytes | None = None
    folds: bool = False


def normalise_leaf(leaf: Leaf, type: pa.DataType) -> Predicate:
    """Rewrite a leaf with literals of any type to normalised values of a column of `type`.

    The result is equivalent or weaker, at worst Unknown. Literals are Python, NumPy or Arrow
    scalars; the values of an `In` are an Arrow array or a sequence. Raises ValueError or TypeError
    for a value that is not a literal, or a text that is not a value of the column.

    >>> normalise_leaf(Compare("x", "<", 1.5), pa.int32())
    Compare(column='x', op='<', value=2, source='')
    >>> normalise_leaf(Compare("x", "=", 1.5), pa.int32())
    Or(legs=())
    """
    try:
        match leaf:
            case IsNull() | ContainsAnyCase():
                return leaf
            case Within() | StartsWithAny():
                return Or(tuple(normalise_leaf(leg, type) for leg in leaf.legs()))
            case StartsWith(_, None) | EndsWith(_, None) | Contains(_, None):
                return _NEVER
            case StartsWith(column, text) | EndsWith(column, text) | Contains(column, text):
                if not (pa.types.is_string(type) or pa.types.is_binary(type)):
                    raise _Incomparable(_kind_of(text))
                return leaf.__class__(column, _place(text, type).exact, leaf.negated)
            case In():
                return _among(leaf, type)
            case Between(low=low, high=high):
                if low is None or high is None:
                    return _NEVER
                return _between(leaf, _place(low, type), _place(high, type), type)
            case Compare(value=value):
                place = None if _is_null(value) else _place(value, type)
                return _NEVER if place is None else _compare(leaf, place, type)
    except _Incomparable as error:
        return Unknown(f"{leaf.column} compared with {error}")


def _compare(leaf: Compare, place: _Place, type: pa.DataType) -> Predicate:
    column = leaf.column
    if place.exact is not None:
        return replace(leaf, value=place.exact)
    least, most = _range(type)
    at, after = (min(max(end, least), most + 1) for end in (place.at, place.after))
    if after - at == 1:
        return replace(leaf, value=_to_stored_value(at, type))
    match leaf.op:
        case "<" | "<=":
            end = at if leaf.op == "<" else after
            return _within(column, least, end, type, nulls=place.folds)
        case ">" | ">=":
            first = at if leaf.op == ">=" else after
            return _within(column, first, most + 1, type, nulls=place.folds)
        case "=":
            return _within(column, at, after, type)
        case "!=":
            if at == after:
                return IsNull(column, negated=True)
            outside = (_within(column, least, at, type), _within(column, after, most + 1, type))
            return Or(tuple(side for side in outside if side != _NEVER))


def _between(leaf: Between, low: _Place, high: _Place, type: pa.DataType) -> Predicate:
    if low.exact is not None:
        return replace(leaf, low=low.exact, high=high.exact)
    first = low.at if leaf.includes_low else low.after
    end = high.after if leaf.includes_high else high.at
    return _within(leaf.column, first, end, type, nulls=low.folds and high.folds)


def _within(
    column: str, first: int, end: int, type: pa.DataType, *, nulls: bool = False
) -> Predicate:
    """Return `first <= column < end`; with `nulls`, true for nulls if it is for every number."""
    least, most = _range(type)
    if first >= end or first > most or end <= least:
        return _NEVER
    if first <= least and end > most:
        return _ALWAYS if nulls else IsNull(column, negated=True)
    if first <= least:
        return Compare(column, "<", _to_stored_value(end, type))
    if end > most:
        return Compare(column, ">=", _to_stored_value(first, type))
    if end - first == 1:
        return Compare(column, "=", _to_stored_value(first, type))
    return Between(column, _to_stored_value(first, type), _to_stored_value(end - 1, type))


def _among(leaf: In, type: pa.DataType) -> Predicate:
    column, stored = leaf.column, _domain(type).stored
    values: Any = leaf.values
    ranges: list[Predicate] = []
    if isinstance(values, pa.Array | pa.ChunkedArray) and domain_of(values.type) == _domain(type):
        nulls, keys = values.null_count, encode(values)
    else:
        listed = _to_list(values)
        there = [value for value in listed if not _is_null(value)]
        places = [_place(value, type) for value in _in_common_type(there, type)]
        nulls = len(listed) - len(places)
        singles: list[Any] = []
        for place in places:
            match _compare(Compare(column, "=", None), place, type):
                case Compare(op="=", value=value):
                    singles.append(value)
                case Compare() | Between() as several:
                    ranges.append(several)
        keys = pa.array(singles, stored)
    if leaf.negated and nulls:
        return _NEVER
    some: Predicate = replace(In.of(column, keys), negated=leaf.negated, source=leaf.source)
    if not leaf.negated:
        return Or((some, *ranges)) if ranges else some
    if not len(keys) and len(values):
        some = IsNull(column, negated=True)
    return And((some, *map(negate, ranges))) if ranges else some


def _to_list(values: Any) -> Sequence[Any]:
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        return list(values)
    if pa.types.is_floating(values.type) and not pa.types.is_float64(values.type):
        return [None if v is None else np.float32(v) for v in values.to_pylist()]
    if pa.types.is_timestamp(values.type):
        try:
            values = values.cast(pa.timestamp("us", values.type.tz))
        except pa.ArrowInvalid:
            raise _Incomparable("nanoseconds") from None
    return list(values.to_pylist())


def _in_common_type(values: list[Any], type: pa.DataType) -> list[Any]:
    """Convert literals to the type in which Spark compares the list and the column."""
    if any(isinstance(v, float) for v in values):
        return [float(v) if _is_number(v) else v for v in values]
    if any(isinstance(v, str) for v in values) and not pa.types.is_string(type):
        for value in values:
            _place(value, type)  # raises for a text that is not a value of the column
        raise _Incomparable("text")  # compared as text, or as its value
    if any(isinstance(v, Decimal) for v in values) and pa.types.is_decimal(type):
        exact = [Decimal(v) for v in values if _is_number(v)]
        finest = min((e for v in exact if isinstance(e := v.as_tuple().exponent, int)), default=0)
        _place_decimal(max(exact, key=abs), max(type.scale, -finest), type.precision - type.scale)
    return values


def _is_null(value: object) -> bool:
    return value is None or (isinstance(value, pa.Scalar) and not value.is_valid)


def _domain(type: pa.DataType) -> Domain:
    domain = domain_of(type)
    if domain is None:
        raise TypeError(f"no value of {type} can be compared")
    return domain


def _range(type: pa.DataType) -> tuple[int, int]:
    """Return the min and max of the domain; the column's type may be widened later."""
    bits = 63 if _domain(type).stored == pa.int64() else 127
    return -(2**bits), 2**bits - 1


def _to_stored_value(n: int, type: pa.DataType) -> int | bytes:
    return n if _domain(type).stored == pa.int64() else (n + 2**127).to_bytes(16, "big")


def _place(literal: Any, type: pa.DataType) -> _Place:
    """Return the place of a literal among the column's values; raises as `normalise_leaf`."""
    domain = _domain(type)
    if isinstance(literal, pa.Scalar):
        if domain_of(literal.type) == domain:
            (value,) = encode(pa.array([literal.as_py()], literal.type)).to_pylist()
            return _at(value)
        (literal,) = _to_list(pa.array([literal.as_py()], literal.type))
    elif isinstance(literal, np.generic) and not isinstance(literal, np.float32):
        literal = literal.item()
    given = _kind_of(literal)
    if domain.name in ("string", "binary"):
        wanted = str if domain.name == "string" else bytes
        if isinstance(literal, wanted) and not _has_surrogates(literal):
            return _Place(exact=literal)
        raise _Incomparable(given)
    if isinstance(literal, str) and domain.name != "boolean":
        literal = _parse_text(literal, type)
    if isinstance(literal, bool) or domain.name == "boolean":
        if isinstance(literal, bool) and domain.name == "boolean":
            return _at(int(literal))
    elif domain.name in ("date", "timestamp", "timestamp_ntz"):
        if isinstance(literal, int):
            return _at(literal)
        if isinstance(literal, date):
            return _moment(literal, domain.name)
    elif _is_number(literal):
        return _of_number(literal, type)
    raise _Incomparable(given)


def _kind_of(value: object) -> str:
    """Return the type of a literal in words; raise TypeError if it is not a literal."""
    known = (bool, int, float, np.float32, Decimal, str, bytes, date)
    if not isinstance(value, known):
        raise TypeError(f"{type(value).__name__} is not a literal")
    return f"a {type(value).__name__}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal | np.float32) and not isinstance(value, bool)


def _has_surrogates(value: object) -> bool:
    return isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value)


def _at(value: Any) -> _Place:
    if isinstance(value, int):
        return _Place(value, value + 1)
    return _Place(exact=value)


def _of_number(literal: Any, type: pa.DataType) -> _Place:
    if pa.types.is_integer(type):
        return _among_integers(literal, type)
    if pa.types.is_floating(type):
        return _double(literal, narrow=pa.types.is_float32(type))
    return _decimal(literal, type)


def _among_integers(literal: Any, type: pa.DataType) -> _Place:
    if isinstance(literal, int | Decimal):
        place = _at(literal) if isinstance(literal, int) else _place_decimal(literal, 0, 20)
        least, most = _range(type)
        return replace(place, folds=place.at > most or place.after <= least)
    if isinstance(literal, np.float32) and type.bit_width > 16:
        raise _Incomparable("a float")  # compared as floats, or as doubles
    return _place_double(float(literal), float, type)


def _double(literal: Any, *, narrow: bool) -> _Place:
    if isinstance(literal, Decimal) and not literal.is_finite():
        raise _Incomparable("a Decimal")
    if not isinstance(literal, float | np.float32) and abs(literal) >= 10**_DIGITS:
        raise _Incomparable("a number of too many digits")
    value = float(literal)
    if narrow and isinstance(literal, int) and float(np.float32(value)) != literal:
        raise _Incomparable("an int")  # compared as floats, or as doubles
    return _at(encode(pa.array([value]))[0].as_py())


def _decimal(literal: Any, type: pa.DataType) -> _Place:
    if isinstance(literal, float | np.float32):
        unit = 10**type.scale
        return _place_double(float(literal), lambda n: n / unit, type)
    return _place_decimal(Decimal(literal), type.scale, type.precision - type.scale)


def _place_decimal(literal: Decimal, scale: int, whole: int) -> _Place:
    if not literal.is_finite():
        raise _Incomparable("a Decimal")
    sign, digits, exponent = literal.as_tuple()
    assert isinstance(exponent, int)
    before, after = max(len(digits) + exponent, 0), max(-exponent, 0)
    if max(before, whole) + max(after, scale) > _DIGITS:
        raise _Incomparable("a number of too many digits")  # both are rounded
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    power = exponent + scale
    if power >= 0:
        return _at(unscaled * 10**power)
    quotient, rest = divmod(unscaled, 10**-power)
    return _Place(quotient + 1, quotient + 1) if rest else _at(quotient)


def _place_double(literal: float, double: Callable[[int], float], type: pa.DataType) -> _Place:
    """Return the place of a double among numbers that are compared as their nearest doubles."""
    least, most = _range(type)

    def first(is_reached: Callable[[float], bool]) -> int:
        low, high = least, most + 1
        while low < high:
            middle = (low + high) // 2
            if is_reached(double(middle)):
                high = middle
            else:
                low = middle + 1
        return low

    if literal != literal:  # NaN is above all numbers
        return _Place(most + 1, most + 1)
    return _Place(first(lambda n: n >= literal), first(lambda n: n > literal))


def _moment(literal: date, domain: str) -> _Place:
    if not isinstance(literal, datetime):
        if domain == "timestamp":
            raise _Incomparable("a date: midnight is another instant in each time zone")
        days = literal.toordinal() - date(1970, 1, 1).toordinal()
        return _at(days if domain == "date" else days * _DAY)
    if (literal.tzinfo is not None) != (domain == "timestamp"):
        raise _Incomparable(f"a datetime with{'out' if literal.tzinfo is None else ''} a time zone")
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc if literal.tzinfo is not None else None)
    quotient, rest = divmod(
        (literal - epoch) // timedelta(microseconds=1), _DAY if domain == "date" else 1
    )
    if rest or getattr(literal, "nanosecond", 0):  # pandas has nanoseconds
        return _Place(quotient + 1, quotient + 1)
    return _at(quotient)


def _parse_text(text: str, type: pa.DataType) -> Any:
    """Return the value of a text if its cast does not depend on session settings."""
    name = _domain(type).name
    if name == "integer":
        most = 2 ** (type.bit_width - 1)
        if re.fullmatch(r"-?[0-9]{1,19}", text) and -most <= int(text) < most:
            return int(text)
        raise ValueError(f"{text!r} is not a valid {name}")
    if name == "date" and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return date.fromisoformat(text)
    zone = "Z" if name == "timestamp" else ""
    if name.startswith("timestamp") and re.fullmatch(_TIME + zone, text):
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    raise _Incomparable("a str")
