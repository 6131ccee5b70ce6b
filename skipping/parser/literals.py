"""Parse and quote names and constants as Spark does."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)
# \% and \_ keep their backslash: they are escapes of LIKE, not of strings.
_LETTERS = {
    "0": "\0",
    "b": "\b",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "Z": "\x1a",
    "%": "\\%",
    "_": "\\_",
}
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*%")
_LONGEST = 400
"""Maximum digits of a number. A double has at most 309 before the point, and Python raises an error
for very long numbers."""


def unquote(name: str) -> str:
    """Remove the backticks around a name, and halve doubled ones in it; ValueError if it is empty.

    >>> unquote("`a``b`")
    'a`b'
    """
    if not name.startswith("`"):
        return str(name)  # the text of a lark token
    inner = name[1:-1].replace("``", "`")
    if not inner:
        raise ValueError("the name between the backticks is empty")
    return inner


def quote(name: str) -> str:
    """Put a name in backticks.

    >>> quote("a`b")
    '`a``b`'
    """
    return f"`{name.replace('`', '``')}`"


def join_name(parts: Iterable[str]) -> str:
    r"""Join the parts of a name with dots; quote only parts that contain a dot or a backtick.

    >>> join_name(("a", "b c")), join_name(("a.b", "c"))
    ('a.b c', '`a.b`.c')
    """
    return ".".join(quote(part) if "." in part or "`" in part else part for part in parts)


def split_parts(name: str) -> list[str]:
    """Split a dotted name into its parts; this is the inverse of `join_name`.

    >>> split_parts("a.b c"), split_parts("`a.b`.c")
    (['a', 'b c'], ['a.b', 'c'])
    """
    return [unquote(part) for part in re.findall(r"`(?:[^`]|``)+`|[^.`]+", name)]


def parse_number(text: str) -> int | float:
    """Parse an int, or with a point or exponent a float; raise ValueError if it is too large."""
    if len(text) <= _LONGEST:
        if re.fullmatch(r"[+-]?[0-9]+", text):
            return int(text)
        value = float(text)
        if math.isfinite(value):
            return value
    raise ValueError("this number is too large for a double")


def parse_percent(text: str) -> float:
    """Parse a percentage above zero; return a fraction, or raise ValueError.

    >>> parse_percent("2.5 %")
    0.025
    """
    match = _PERCENT.fullmatch(text.strip())
    if match is None or float(match[1]) == 0:
        raise ValueError(f"{text!r:.100} is not a percentage")
    return float(match[1]) / 100


def parse_string(text: str) -> str:
    r"""Return the content of a quoted string; r'...' is raw, and a doubled quote is one quote.

    Raises ValueError for an escape that is not a valid code point.

    >>> parse_string(r"'it''s\t'"), parse_string(r"r'\d'")
    ("it's\t", '\\d')
    """
    if text[0] in "rR":
        return text[2:-1]
    quote = text[0]
    # A quote in the text is doubled or escaped. Split at escapes, so that the quotes of \'' are not
    # read as a doubled quote.
    pieces: list[str] = []
    end = 0
    inner = text[1:-1]
    for match in _ESCAPE.finditer(inner):
        pieces.append(inner[end : match.start()].replace(quote * 2, quote))
        pieces.append(_character(match))
        end = match.end()
    pieces.append(inner[end:].replace(quote * 2, quote))
    return "".join(pieces)


def _character(match: re.Match[str]) -> str:
    four, eight, octal, letter = match.groups()
    if letter is not None:
        return _LETTERS.get(letter, letter)
    code = int(octal, 8) if octal else int(four or eight, 16)
    # A surrogate is half a character, which UTF-8 cannot encode.
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise ValueError(f"{match[0]} is not a valid code point: write one such as \\u00e9")
    return chr(code)
