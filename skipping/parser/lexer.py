"""Split SQL text into tokens, and decide which statements this project parses.

The algorithm of `is_ours`, for implementations in other languages (here: `leading_words`):

1. Skip a gap: white space, comments from `--` to the end of the line, and comments `/* ... */`,
   which nest. An unclosed comment and a hint `/*+` are not gaps. A backslash at the end of a `--`
   line continues the comment on the next line.
2. Read a word, the longest run of A-Z, a-z, 0-9 and _; convert it to upper case (ASCII only).
3. Repeat this up to four times, stop if there is no word, and compare the words as `is_ours` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

TOKEN = re.compile(
    r"""[rR]'[^']*'|[rR]"[^"]*"|(?:'(?:[^'\\]|\\.)*')+|(?:"(?:[^"\\]|\\.)*")+|`(?:[^`]|``)*`"""
    r"""|[0-9]+\.[eE][0-9]+[A-Za-z]*|\w+|<=>|<=|>=|<>|!=|==|=>|.""",
    re.DOTALL,
)
"""A string (in which a doubled quote is one quote), a name in backticks, a word or a sign."""

# The white space of Spark's lexer. Python's \s includes other characters, and misses some of these.
SPACE = "\t\n\x0b\f\r \xa0\u1680\u2000-\u200a\u2028\u202f\u205f\u3000"
_SPACES = re.compile(f"[{SPACE}]+")
_LINE_COMMENT = re.compile(r"--(?:\\\n|[^\r\n])*")
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_WORD = re.compile(r"[A-Za-z0-9_]+")
_NUMBER = re.compile(r"\?(?:\.\?)+")  # 2.5 is three tokens
_LINE = 100  # characters that `first_line` returns at most
_AFTER_SHOW = ("INDEX", "INDEXES", "HISTORY", "STREAMS", "COUNTERS", "SAVINGS", "DECISIONS")
_BEFORE_INDEX = ("CREATE", "REFRESH", "ALTER", "ANALYZE", "DROP", "VACUUM")


class TextError(Exception):
    """An error in a text at `position`, such as a quote that is never closed."""

    def __init__(self, position: int, message: str) -> None:
        super().__init__(message)
        self.position = position


def tokenize(text: str) -> Sequence[re.Match[str]]:
    """Return the tokens of a text, without white space and comments; raise TextError."""
    tokens = []
    position = after_gap(text, 0)
    while token := TOKEN.match(text, position):
        if token[0] in ("'", '"', "`"):
            raise TextError(position, f"this {token[0]} is never closed")
        if text.startswith("/*", position) and not text.startswith("/*+", position):
            raise TextError(position, "this /* is never closed")
        tokens.append(token)
        position = after_gap(text, token.end())
    return tokens


def is_ours(text: str) -> bool:
    r"""Return whether a text is a skipping-index statement, valid or not; Spark parses the others.

    This reads at most four words. `DESC skipping index` belongs to Spark if nothing or AS JSON
    follows: it describes the column `index` of a table `skipping`. So does `DESC skipping files`.

    >>> is_ours("-- daily\ncreate skipping /* sic */ index broken")
    True
    >>> is_ours("CREATE SKIPING INDEX ON flights (tailnum VALUE_LIST)")
    False
    """
    match leading_words(text, 4):
        case [first, "SKIPPING", "INDEX", *_] if first in _BEFORE_INDEX:
            return True
        case ["CREATE" | "DROP", "BLOOMFILTER" | "DATASKIPPING", "INDEX", *_]:
            return True
        case ["DESC" | "DESCRIBE", "SKIPPING", "INDEX" | "FILES", fourth]:
            return fourth != "AS"
        case ["SHOW", "FLINT", "INDEX" | "INDEXES", *_]:
            return True
        case ["SHOW", "SKIPPING", what, *_]:
            return what in _AFTER_SHOW
        case ["EXPLAIN" | "VERIFY", "SKIPPING", *_]:
            return True
        case ["RECOVER", "INDEX", "JOB", *_]:
            return True
    return False


def leading_words(text: str, limit: int) -> list[str]:
    """Return the first words of a text in upper case, at most `limit`; stop at any other token."""
    words: list[str] = []
    position = 0
    while len(words) < limit:
        word = _WORD.match(text, after_gap(text, position))
        if word is None:
            break
        words.append(word[0].upper())
        position = word.end()
    return words


def after_words(text: str, count: int) -> int:
    """Return the position after the first `count` words and the gap that follows them."""
    position = after_gap(text, 0)
    for _ in range(count):
        word = _WORD.match(text, position)
        position = after_gap(text, word.end() if word else position)
    return position


def after_gap(text: str, position: int) -> int:
    """Return the position after white space and comments at `position`, if there are any."""
    while True:
        end = _gap(text, position)
        if end is None:
            return position
        position = end


def _gap(text: str, position: int) -> int | None:
    """Return the end of the white space or comment at `position`, or None."""
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


def one_line(text: str) -> str:
    r"""Remove comments, and replace each gap with one space; raise TextError.

    >>> one_line("concat(a,\n  'x  y')")
    "concat(a, 'x  y')"
    """
    return "".join(_pieces(text, values=True))


def first_line(text: str, *, values: bool) -> str:
    r"""Return the beginning of a statement as one line, without comments.

    Literals are data, so each becomes `?` unless `values` is true.

    >>> first_line("-- daily\nSELECT *\nFROM t WHERE k = 'x' AND n < 2.5", values=False)
    'SELECT * FROM t WHERE k = ? AND n < ?'
    """
    try:
        line = "".join(_pieces(text, values=values))
    except TextError as error:  # stop there: the rest may be data
        line = "".join(_pieces(text[: error.position], values=values))
    line = " ".join((line if values else _NUMBER.sub("?", line)).split())
    return line if len(line) <= _LINE else f"{line[:_LINE]}..."


def _pieces(text: str, *, values: bool) -> Iterator[str]:
    end = None
    for token in tokenize(text):
        if end is not None and token.start() > end:
            yield " "
        end = token.end()
        is_literal = token[0][-1] in "'\"" or token[0][0].isdigit()
        yield "?" if is_literal and not values else token[0]
