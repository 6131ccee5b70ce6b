"""Format conditions with their values, if `explain.values` allows it."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from decimal import Decimal
from struct import pack, unpack

from providers.predicate import (
    Between,
    Compare,
    Contains,
    EndsWith,
    In,
    Leaf,
    StartsWith,
    StartsWithAny,
    Within,
    label,
    wildcards,
)
from providers.tuples import decode_tuple, element_type, part_types
from providers.values import Value

_SHOWN = 3  # maximum of keys, ranges or prefixes to show
_EPOCH = datetime(1970, 1, 1)


def format_leaf(leaf: Leaf, column: str, type: str) -> str:
    """Format a leaf with its values; `type` is the column's Spark type, of an array if its elements
    are tested.

    >>> format_leaf(Compare("", "<", 19_723), "day", "date")
    "day < '2024-01-01'"
    """
    type = element_type(type) or type
    match leaf:
        case Compare(_, op, value):
            return f"{column} {op} {format_value(value, type)}"
        case Between(_, low, high):
            return f"{column} BETWEEN {format_value(low, type)} AND {format_value(high, type)}"
        case In(_, values, negated, source):
            some = [format_value(v, type) for v in values.slice(0, _SHOWN).to_pylist()]
            whose = f" of {source}" if source else ""
            return (
                f"{column} {'NOT ' if negated else ''}IN ({_abbreviate(some, len(values))}{whose})"
            )
        case Within(_, starts, ends, source=source):
            pairs = zip(*(a.slice(0, _SHOWN).to_pylist() for a in (starts, ends)), strict=True)
            some = [f"{format_value(a, type)} to {format_value(b, type)}" for a, b in pairs]
            whose = f" of {source}" if source else ""
            return f"{column} IN ranges ({_abbreviate(some, len(starts))}{whose})"
        case StartsWithAny(_, prefixes):
            texts = [format_value(p, type) for p in prefixes.slice(0, _SHOWN).to_pylist()]
            patterns = [f"{text[:-1]}%'" for text in texts]
            return f"{column} LIKE ANY ({_abbreviate(patterns, len(prefixes))})"
        case StartsWith(_, text, negated) | EndsWith(_, text, negated) | Contains(_, text, negated):
            before, after = wildcards(leaf)
            opening, rest = format_value(text, type).split("'", 1)
            pattern = f"{opening}'{before}{rest[:-1]}{after}'"
            return f"{column} {'NOT ' if negated else ''}LIKE {pattern}"
        case _:
            return label(leaf, column)


def _abbreviate(some: list[str], count: int) -> str:
    return ", ".join([*some, f"... {count:,} in all"] if count > len(some) else some)


def format_value(value: Value, type: str) -> str:
    """Format a normalised value (`providers.values`) as SQL.

    >>> format_value(150, "decimal(5,2)"), format_value("it's", "string")
    ('1.50', "'it''s'")
    """
    if isinstance(value, bytes) and (types := part_types(type)):
        values = zip(decode_tuple(value, types), types, strict=True)
        return f"({', '.join(format_value(*each) for each in values)})"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    decimal = re.fullmatch(r"decimal\(\d+,\s*(\d+)\)", type)
    if decimal is not None:
        if isinstance(value, bytes):
            value = int.from_bytes(value, "big") - (1 << 127)
        return str(Decimal(value).scaleb(-int(decimal[1])))
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    match type:
        case "boolean":
            return str(bool(value)).lower()
        case "float" | "double":
            bits = value if value >= 0 else value ^ 0x7FFFFFFFFFFFFFFF
            return repr(unpack("<d", pack("<q", bits))[0])
        case "date":
            return _moment(value, "days").replace(" 00:00:00", "")
        case "timestamp" | "timestamp_ntz":
            return _moment(value, "microseconds")
    return str(value)


def _moment(value: int, unit: str) -> str:
    try:
        return f"'{(_EPOCH + timedelta(**{unit: value})).isoformat(sep=' ')}'"
    except OverflowError:  # outside of Python's years
        return str(value)
