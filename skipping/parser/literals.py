"""Names and constants of a statement as Spark reads them."""

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
_LONGEST = 400
"""Digits; a double has at most 309 before the point, and Python refuses very long numbers."""


def unquote(name: str) -> str:
    """Remove the backticks of a name; two inside are one. Raises ValueError for an empty name.

    >>> unquote("`a``b`")
    'a`b'
    """
    if not name.startswith("`"):
        return str(name)  # the text of a lark token
    inner = name[1:-1].replace("``", "`")
    if not inner:
        raise ValueError("a name cannot be empty: write it between the backticks")
    return inner


def quote(name: str) -> str:
    """Put a name in backticks.

    >>> quote("a`b")
    '`a``b`'
    """
    return f"`{name.replace('`', '``')}`"


def join_name(parts: Iterable[str]) -> str:
    r"""Join the parts by dots; backticks enclose only a part with a dot or a backtick.

    >>> join_name(("a", "b c")), join_name(("a.b", "c"))
    ('a.b c', '`a.b`.c')
    """
    return ".".join(quote(part) if "." in part or "`" in part else part for part in parts)


def split_parts(name: str) -> list[str]:
    """Split a dotted name into its parts; the opposite of `join_name`.

    >>> split_parts("a.b c"), split_parts("`a.b`.c")
    (['a', 'b c'], ['a.b', 'c'])
    """
    return [unquote(part) for part in re.findall(r"`(?:[^`]|``)+`|[^.`]+", name)]


def parse_number(text: str) -> int | float:
    """Return an int if there is no point and no exponent, else a float; ValueError if too large."""
    if len(text) <= _LONGEST:
        if re.fullmatch(r"[+-]?[0-9]+", text):
            return int(text)
        value = float(text)
        if math.isfinite(value):
            return value
    raise ValueError("this number is too large for a double")


def parse_string(text: str) -> str:
    r"""Return the characters of a quoted string; r'...' is raw, a doubled quote is one quote.

    Raises ValueError for an escape that names no character.

    >>> parse_string(r"'it''s\t'"), parse_string(r"r'\d'")
    ("it's\t", '\\d')
    """
    if text[0] in "rR":
        return text[2:-1]
    quote = text[0]
    # A quote inside is doubled or escaped; split on escapes so that \'' is not taken for a pair.
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
        raise ValueError(f"{match[0]} is not a character: write a code point such as \\u00e9")
    return chr(code)
