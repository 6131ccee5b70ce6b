"""Parse the values of settings: each function parses text, or raises KeyError or ValueError."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

Mode: TypeAlias = Literal["fallback", "strict"]

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([a-z]*)")
_SECONDS = {
    "": 1.0,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "millisecond": 1e-3,
    "milliseconds": 1e-3,
    "second": 1.0,
    "seconds": 1.0,
    "minute": 60.0,
    "minutes": 60.0,
    "hour": 3600.0,
    "hours": 3600.0,
    "day": 86400.0,
    "days": 86400.0,
}
_SIZE = re.compile(r"(-?[0-9]+)\s*([a-z]*)")
_SHIFTS = {"": 0, "b": 0} | {
    unit: 10 * n for n, c in enumerate("kmgtp", 1) for unit in (c, f"{c}b", f"{c}ib")
}
_CLASS = re.compile(r"\w+(?:\.\w+)*:\w+(?:\.\w+)*")


def boolean(text: str) -> bool:
    """Parse `true` or `false`, in any case."""
    choices = {"true": True, "false": False}
    return choices[text.lower()]


def mode(text: str) -> Mode:
    """Parse `fallback` or `strict`, in any case."""
    choices: dict[str, Mode] = {"fallback": "fallback", "strict": "strict"}
    return choices[text.lower()]


def text(text: str) -> str | None:
    """Return the text; None if it is empty."""
    return text or None


def required_text(text: str) -> str:
    """Return the text; raise ValueError if it is empty."""
    if not text:
        raise ValueError(text)
    return text


def duration(text: str) -> float:
    """Parse a duration such as `5s`, `1min` or `200 ms`; return seconds."""
    match = _DURATION.fullmatch(text.lower())
    if match is None:
        raise ValueError(text)
    seconds = float(match[1]) * _SECONDS[match[2]]
    if seconds == float("inf"):
        raise ValueError(text)
    return seconds


def budget(text: str) -> float:
    """Parse a duration above zero; return seconds."""
    seconds = duration(text)
    if seconds == 0:
        raise ValueError(text)
    return seconds


def share(text: str) -> float:
    """Parse a number from 0 to 1."""
    number = float(text)
    if not 0 <= number <= 1:
        raise ValueError(text)
    return number


def amount(text: str) -> float:
    """Parse a number of at least 0."""
    number = float(text)
    if not 0 <= number < float("inf"):
        raise ValueError(text)
    return number


def size(text: str) -> int:
    """Parse a size such as `256m` or `512k`; return bytes."""
    match = _SIZE.fullmatch(text.lower())
    if match is None:
        raise ValueError(text)
    return int(match[1]) << _SHIFTS[match[2]]


def folders(text: str) -> tuple[str, ...]:
    """Parse paths that are separated by commas."""
    return tuple(path.strip() for path in text.split(",") if path.strip())


def classes(text: str) -> tuple[str, ...]:
    """Parse class paths `module:Class` that are separated by commas."""
    paths = tuple(path.strip() for path in text.split(",") if path.strip())
    for path in paths:
        if not _CLASS.fullmatch(path):
            raise ValueError(path)
    return paths
