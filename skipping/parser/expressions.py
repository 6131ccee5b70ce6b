"""Expressions among the columns of a statement: found before the grammar reads it.

An expression may be almost anything, so no LALR grammar tells where it ends and the kind begins;
but its tokens do: it is what stands before the last word of an item. In its place the grammar is
handed a name of the same length, so every position stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from skipping.parser.lexer import blank_comments, leading_words

__all__ = ["MARK", "hide_expressions", "one_line"]

MARK = "\0"
"""What the name of a hidden expression begins with; in a text that has it, none is hidden."""

_NAME = r"(?:[0-9]*[A-Za-z_][A-Za-z0-9_]*|`(?:[^`]|``)*`)"
_PLAIN = re.compile(rf"\s*{_NAME}(?:\s*\.\s*{_NAME})*(?:\s+[A-Za-z_][A-Za-z0-9_]*)?\s*")
_COLUMN = rf"\s*{_NAME}(?:\s*\.\s*{_NAME})*\s*"
_COMPOSITE = re.compile(rf"\({_COLUMN}(?:,{_COLUMN})+\)")
_TOKEN = re.compile(
    r"""[rR]'[^']*'|[rR]"[^"]*"|[A-Za-z0-9_]+"""
    r"""|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`|\s+|.""",
    re.DOTALL,
)
_TABLE = rf"(?:IDENTIFIER\s*\(\s*r?['\"][^()]*\)|{_NAME}(?:\s*\.\s*{_NAME})*)"
_LIST = re.compile(
    rf"\s*ALTER\s+SKIPPING\s+INDEX\s+ON\s+{_TABLE}\s+(ADD|DROP)\s*\("
    rf"|\s*CREATE\s+SKIPPING\s+INDEX\s+(?:IF\s+NOT\s+EXISTS\s+)?ON\s+{_TABLE}"
    r"\s*(?:\bFOR\s+COLUMNS\s*)?\(",
    re.IGNORECASE | re.ASCII,
)
_SIGNS = "()[]+-*/%|&^~:<>=!"
"""What tells an expression from names that were misspelled."""

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def hide_expressions(text: str) -> str:
    r"""A text without comments with a name in the place of each expression.

    What is no expression for certain, a wrong one too, is left for the grammar to complain about.

    >>> hide_expressions("CREATE SKIPPING INDEX ON t (a MIN_MAX, lower(b) VALUE_LIST(9))")
    'CREATE SKIPPING INDEX ON t (a MIN_MAX, `\x00_____` VALUE_LIST(9))'
    """
    if MARK in text or leading_words(text, 1) not in (["CREATE"], ["ALTER"]):
        return text
    found = _LIST.match(text)
    if found is None:
        return text
    drops = (found[1] or "").upper() == "DROP"
    for start, end in list(_items(text, found.end())):
        length = _expression(text[start:end], drops=drops)
        if length is not None:
            first = start + len(text[start:end]) - len(text[start:end].lstrip())
            # The shortest, `-a`, has not the room of a name but with the blank behind it.
            last = first + max(length, 3)
            if text[first + length : last].strip():
                continue
            text = f"{text[:first]}`{MARK}{'_' * (last - first - 3)}`{text[last:]}"
    return text


def _items(text: str, position: int) -> Iterator[tuple[int, int]]:
    """Where each item of a list begins and ends; none of a list that does not end."""
    depth, start, items = 0, position, []
    for token in _TOKEN.finditer(text, position):
        if token[0] in ("(", "["):
            depth += 1
        elif token[0] in (")", "]"):
            depth -= 1
        if depth < 0 or (depth == 0 and token[0] == ","):
            items.append((start, token.start()))
            start = token.end()
        if depth < 0:
            yield from items
            return


def _expression(item: str, *, drops: bool) -> int | None:
    """How long the expression that an item begins with is, without blanks; None: there is none."""
    if _PLAIN.fullmatch(item):
        return None
    tokens = [t for t in _TOKEN.finditer(item) if not t[0].isspace()]
    if len(tokens) < 2:
        return None
    end = len(tokens)
    if tokens[-1][0] == ")" and (opens := _opening(tokens)) is not None and opens >= 2:
        # Parameters of a kind: a word with more before it than an operator.
        before = tokens[opens - 1]
        if _WORD.fullmatch(before[0]) and _ends_operand(tokens[opens - 2][0]):
            end = opens
    has_kind = _WORD.fullmatch(tokens[end - 1][0]) and _ends_operand(tokens[end - 2][0])
    if has_kind:
        end -= 1
    elif not drops or end < len(tokens):
        return None
    if not any(t[0][0] in _SIGNS or t[0][-1] in "'\"" for t in tokens[:end]):
        return None
    if _COMPOSITE.fullmatch(item, tokens[0].start(), tokens[end - 1].end()):
        return None
    return tokens[end - 1].end() - tokens[0].start()


def one_line(text: str) -> str:
    r"""An expression as it is kept: white space and comments between its words are one blank.

    >>> one_line("concat(a,\n  'x  y')")
    "concat(a, 'x  y')"
    """
    tokens = _TOKEN.findall(blank_comments(text.strip()))
    return "".join(" " if token.isspace() else token for token in tokens)


def _opening(tokens: list[re.Match[str]]) -> int | None:
    """The place of the bracket that the last one closes."""
    depth = 0
    for i in range(len(tokens) - 1, -1, -1):
        depth += (tokens[i][0] in (")", "]")) - (tokens[i][0] in ("(", "["))
        if depth == 0:
            return i
    return None


def _ends_operand(token: str) -> bool:
    """Whether an expression may end with it: what follows is a word of its own."""
    return token in (")", "]") or bool(re.match(r"[\w'\"`]", token))
