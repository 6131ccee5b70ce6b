"""The tokens of a text, for all who read one; and which statements are ours.

The rule of `is_ours`, for twins in other languages (`leading_words` implements it):

1. Skip a gap: white space, comments from `--` to the end of the line, and comments `/* ... */`,
   which nest. A comment that never ends, and a hint `/*+`, is no gap. A backslash at the end of a
   `--` line takes the next line into the comment.
2. Read a word, the longest run of A-Z, a-z, 0-9 and _; put it in upper case (ASCII only).
3. Repeat this up to four times, stop where there is no word, and compare with `is_ours`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

TOKEN = re.compile(
    r"""[rR]'[^']*'|[rR]"[^"]*"|(?:'(?:[^'\\]|\\.)*')+|(?:"(?:[^"\\]|\\.)*")+|`(?:[^`]|``)*`"""
    r"""|[0-9]+\.[eE][0-9]+[A-Za-z]*|\w+|<=>|<=|>=|<>|!=|==|=>|.""",
    re.DOTALL,
)
"""A string, a name in backticks, a word or a sign. Of strings, a pair of quotes is one quote."""

# White space as Spark's lexer has it; Python's \s differs in both directions.
SPACE = "\t\n\x0b\f\r \xa0\u1680\u2000-\u200a\u2028\u202f\u205f\u3000"
_SPACES = re.compile(f"[{SPACE}]+")
_LINE_COMMENT = re.compile(r"--(?:\\\n|[^\r\n])*")
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_WORD = re.compile(r"[A-Za-z0-9_]+")
_NUMBER = re.compile(r"\?(?:\.\?)+")  # 2.5 is three tokens
_LINE = 100  # characters of a statement in reports
_REPORTS = ("INDEX", "INDEXES", "HISTORY", "STREAMS", "COUNTERS")
_MAKERS = ("CREATE", "REFRESH", "ALTER", "ANALYZE", "DROP", "VACUUM")


class TextError(Exception):
    """What is wrong in a text at `position`, such as a quote that never ends."""

    def __init__(self, position: int, message: str) -> None:
        super().__init__(message)
        self.position = position


def tokenize(text: str) -> Sequence[re.Match[str]]:
    """Return the tokens of a text, without white space and comments; raises TextError."""
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
    r"""Return whether a text is a statement of ours, right or wrong; the rest belongs to Spark.

    Reads at most four words. `DESC skipping index` with nothing after it, or with AS JSON, is
    Spark's: it describes the column `index` of a table `skipping`. So is `DESC skipping files`.

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
    """Return the words that a text begins with, at most `limit`, in upper case."""
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
    """Return where the text goes on after `count` leading words and the gap behind them."""
    position = after_gap(text, 0)
    for _ in range(count):
        word = _WORD.match(text, position)
        position = after_gap(text, word.end() if word else position)
    return position


def after_gap(text: str, position: int) -> int:
    """Return where the white space and comments that may begin here end."""
    while True:
        end = _gap(text, position)
        if end is None:
            return position
        position = end


def _gap(text: str, position: int) -> int | None:
    """Return the end of the white space or comment that begins here, if one does."""
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
    r"""Return a text without comments, with one blank in the place of each gap; raises TextError.

    >>> one_line("concat(a,\n  'x  y')")
    "concat(a, 'x  y')"
    """
    return "".join(_pieces(text, values=True))


def first_line(text: str, *, values: bool) -> str:
    r"""Return the beginning of a statement on one line, without comments.

    Literals become `?` unless `values`: they are data.

    >>> first_line("-- daily\nSELECT *\nFROM t WHERE k = 'x' AND n < 2.5", values=False)
    'SELECT * FROM t WHERE k = ? AND n < ?'
    """
    try:
        line = "".join(_pieces(text, values=values))
    except TextError as error:  # nobody knows where the quotes end
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
