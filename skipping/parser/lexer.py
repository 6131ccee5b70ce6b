"""What is done to a text before the grammar sees it: whose it is, and where its comments are.

The rule of `is_ours`, for twins in other languages (`leading_words` is the whole of it):

1. Skip a gap: white space, comments from `--` to the end of the line, and comments `/* ... */`,
   which nest. A comment that never ends, and a hint `/*+`, is no gap. A backslash at the end of a
   `--` line takes the next line into the comment.
2. Read a word, the longest run of A-Z, a-z, 0-9 and _; put it in upper case (ASCII only).
3. Do so up to four times, stopping where no word stands, and compare with `is_ours`.
"""

from __future__ import annotations

import re

__all__ = [
    "Unclosed",
    "after_gap",
    "after_words",
    "blank_comments",
    "first_line",
    "is_ours",
    "leading_words",
]

# White space as Spark's lexer has it; Python's \s differs in both directions.
SPACE = "\t\n\x0b\f\r \xa0\u1680\u2000-\u200a\u2028\u202f\u205f\u3000"
_SPACES = re.compile(f"[{SPACE}]+")
_LINE_COMMENT = re.compile(r"--(?:\\\n|[^\r\n])*")
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_WORD = re.compile(r"[A-Za-z0-9_]+")
# A word before a quote is part of no string, but for the lone r of a raw one.
_OPAQUE = re.compile(
    r"""[rR]'[^']*'|[rR]"[^"]*"|[0-9]+\.[eE][0-9]+[A-Za-z]*|[A-Za-z0-9_]+"""
    r"""|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`""",
    re.DOTALL,
)
_NUMBER = re.compile(r"\?(?:\.\?)+")  # 2.5 is two words
_LINE = 100  # characters of a statement in reports
_REPORTS = ("INDEX", "INDEXES", "HISTORY", "STREAMS", "COUNTERS")
_MAKERS = ("CREATE", "REFRESH", "ALTER", "ANALYZE", "DROP", "VACUUM")


class Unclosed(Exception):
    """A quote, backtick or comment that never ends; `position` is where it begins."""

    def __init__(self, position: int, opening: str) -> None:
        super().__init__(f"this {opening} is never closed")
        self.position = position


def is_ours(text: str) -> bool:
    r"""Whether a text is a statement of ours, right or wrong; Spark gets the others untouched.

    Looks at no more than four words. `DESC skipping index` with nothing after it, or with AS JSON,
    is Spark's: the column `index` of a table `skipping`; and so with `files`.

    >>> is_ours("-- daily\ncreate skipping /* sic */ index broken")
    True
    >>> is_ours("CREATE SKIPING INDEX ON flights (tailnum VALUE_LIST)")
    False
    """
    match leading_words(text, 4):
        case [maker, "SKIPPING", "INDEX", *_] if maker in _MAKERS:
            return True
        case ["CREATE" | "DROP", "BLOOMFILTER" | "DATASKIPPING", "INDEX", *_]:
            return True
        case ["DESC" | "DESCRIBE", "SKIPPING", "INDEX" | "FILES", fourth]:
            return fourth != "AS"
        case ["SHOW", "FLINT", "INDEX" | "INDEXES", *_]:
            return True
        case ["SHOW", "SKIPPING", what, *_]:
            return what in _REPORTS
        case ["EXPLAIN" | "VERIFY", "SKIPPING", *_]:
            return True
        case ["RECOVER", "INDEX", "JOB", *_]:
            return True
    return False


def leading_words(text: str, limit: int) -> list[str]:
    """The words a text begins with, at most `limit`, in upper case."""
    found: list[str] = []
    position = 0
    while len(found) < limit:
        word = _WORD.match(text, after_gap(text, position))
        if word is None:
            break
        found.append(word[0].upper())
        position = word.end()
    return found


def after_words(text: str, count: int) -> int:
    """Where the text goes on after so many leading words and the gap behind them."""
    position = after_gap(text, 0)
    for _ in range(count):
        word = _WORD.match(text, position)
        position = after_gap(text, word.end() if word else position)
    return position


def after_gap(text: str, position: int) -> int:
    """Where the white space and comments that may begin here end."""
    while True:
        end = _gap(text, position)
        if end is None:
            return position
        position = end


def _gap(text: str, position: int) -> int | None:
    """The end of the white space or comment that begins here, if one does."""
    if space := _SPACES.match(text, position) or _LINE_COMMENT.match(text, position):
        return space.end()
    if not text.startswith("/*", position) or text.startswith("/*+", position):
        return None
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, position):
        opens = edge[0] == "/*"
        if opens and text.startswith("+", edge.end()):
            continue  # Spark does not nest a hint
        depth += 1 if opens else -1
        if depth == 0:
            return edge.end()
    return None


def blank_comments(text: str) -> str:
    """The text with a space for every character of a comment; positions and lines stay.

    Raises Unclosed.
    """
    pieces: list[str] = []
    position = 0
    while position < len(text):
        end = _gap(text, position)
        if end is not None:
            gap = text[position:end]
            pieces.append("".join("\n" if c == "\n" else " " for c in gap))
        elif opaque := _OPAQUE.match(text, position):
            end = opaque.end()
            pieces.append(opaque[0])
        elif text[position] in "'\"`":
            raise Unclosed(position, text[position])
        elif text.startswith("/*", position) and not text.startswith("/*+", position):
            raise Unclosed(position, "/*")
        else:
            end = position + 1
            pieces.append(text[position])
        position = end
    return "".join(pieces)


def first_line(text: str, *, values: bool) -> str:
    r"""Return the beginning of a statement on one line, without comments.

    Literals become `?` unless `values`: they are data.

    >>> first_line("-- daily\nSELECT *\nFROM t WHERE k = 'x' AND n < 2.5", values=False)
    'SELECT * FROM t WHERE k = ? AND n < ?'
    """
    try:
        text = blank_comments(text)
    except Unclosed as unclosed:  # where the quotes end, nobody knows
        text = text[: unclosed.position]
    if not values:
        text = _NUMBER.sub("?", _OPAQUE.sub(_mask_literal, text))
    line = " ".join(text.split())
    return line if len(line) <= _LINE else f"{line[:_LINE]}..."


def _mask_literal(token: re.Match[str]) -> str:
    """A number or string as `?`; a word, or a name in backticks, as it is."""
    is_string = token[0][-1] in "'\""
    return "?" if is_string or token[0][0].isdigit() else token[0]
