"""Normalise the values of partition columns: the table's log has them as text, no file has them."""

from __future__ import annotations

import re

import pyarrow as pa

from providers.values import arrow_type, encode

_PARTITION = {
    **dict.fromkeys(["tinyint", "smallint", "int", "bigint"], r"-?\d+"),
    **dict.fromkeys(["float", "double"], r"-?(\d+(\.\d+)?(E-?\d+)?|Infinity)|NaN"),
    **dict.fromkeys(["string", "varchar"], r"(?s:.+)"),
    "boolean": "true|false",
    "decimal": r"-?\d+(\.\d+)?",
    "date": r"\d{4}-\d\d-\d\d",
    # Without Z it is in the time zone of the session that wrote it, which the log does not name.
    "timestamp": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z",
    "timestamp_ntz": r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?",
}
"""Unambiguous forms of partition values; all others are unknown."""


def partition_value(text: str | None, type: str) -> pa.Array | None:
    """Normalise a partition value from a log, by its Spark type; return an array of length 1.

    Null and, except for strings, the empty text become null. (By the protocol, the empty text is
    null for strings, too, but Spark reads it unchanged.) None means that the text is ambiguous, so
    the value is unknown.

    >>> partition_value("2024-05-01T10:00:00Z", "timestamp").to_pylist()
    [1714557600000000]
    >>> partition_value("2024-05-01 10:00:00", "timestamp") is None
    True
    """
    arrow = arrow_type(type)
    pattern = _PARTITION.get(type.partition("(")[0])
    if arrow is None or pattern is None:
        return None
    if text == "" and not pa.types.is_string(arrow):
        text = None
    if text is not None and not re.fullmatch(pattern, text, re.ASCII):
        return None
    try:
        return encode(pa.array([text], pa.string()).cast(arrow))
    except pa.ArrowInvalid:
        return None
