"""Syntax errors: where the wrong word is, what was expected there, and a suggestion."""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import get_close_matches

from providers.errors import StatementError
from skipping.parser.lexer import TOKEN, tokenize

_MOVES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_WINDOW = 88
"""Characters shown of a longer line."""

_NAMES = {
    "TABLE": "a table name",
    "SCOPE": "a catalog or catalog.database",
    "COLUMN": "a column name",
    "JOB_NAME": "the name of a job",
    "KIND": "an index type such as MIN_MAX",
    "OPTION": "the name of an option",
}
_VALUES = ("NUMBER", "STRING", "TRUE", "FALSE")
_SIGNS = {"LPAR": "an opening (", "RPAR": "a closing )", "COMMA": "a comma", "EQ": "="}
_CONDITION = ("WORD", "QUOTED", "OTHER")
# Allowed after every name or statement: naming them would hide what is missing.
_SILENT = (
    *("DOT", "SEMICOLON", "ARROW", "PARAM", "IDENTIFIER", "TABLE_WORD", "$END"),
    *("EXPRESSION", "DROPPED_EXPRESSION"),
)
_NO_KEYWORDS = {*_NAMES, *_VALUES, *_SIGNS, *_CONDITION, *_SILENT}


def point_at(text: str, position: int, message: str) -> StatementError:
    """Return the error: message, line and column (from 1), the line, and a mark under the word.

    `position` counts from 0; one past the end marks the end.
    """
    position = max(0, min(position, len(text)))
    begin = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    line = text[begin : len(text) if end < 0 else end].rstrip("\r")
    number = text.count("\n", 0, position) + 1
    column = position - begin

    first = max(0, column - _WINDOW // 2) if len(line) > _WINDOW else 0
    shown = line[first : first + _WINDOW]
    before = shown[: column - first]
    word = TOKEN.match(line, column)
    mark = "^" * max(1, min(word.end() - column if word else 1, len(shown) - len(before)))
    # A tab stays a tab below, or the mark would not be under the word.
    lead = "".join("\t" if character == "\t" else " " for character in before)
    if first:
        shown, lead = f"...{shown}", f"   {lead}"
    if first + _WINDOW < len(line):
        shown += "..."
    return StatementError(
        f"{message}\nline {number}, column {column + 1}\n  {shown}\n  {lead}{mark}"
    )


def mask_controls(text: str) -> str:
    r"""Replace control and bidirectional characters by ?, so that a text is safe to print.

    >>> mask_controls("a\x1b[2Jb")
    'a?[2Jb'
    """
    return _MOVES.sub("?", text)


def describe_token(text: str, position: int, expected: Collection[str]) -> StatementError:
    """Return the error for an unexpected token at `position`, where `expected` terminals fit.

    A position at the end means that the text ends too early.
    """
    before = tokenize(text[:position])
    previous = before[-1][0].upper() if before else ""
    match = TOKEN.match(text, position)
    found = match[0] if match else ""
    if found == ")" and "OTHER" in expected:
        return point_at(text, position, "this ) closes nothing that the condition opened")
    if previous == ";":
        return point_at(text, position, "expected one statement, there is more after the ;")
    what = f"not {_short(found)}" if found else "but the text ends"
    message = f"expected {_spoken(expected)}, {what}"
    if hint := _hint(found, expected, previous):
        message += f": {hint}"
    return point_at(text, position, message)


def _spoken(expected: Collection[str]) -> str:
    """Return terminals in words: `= or a value`, `EXTENDED, IN or the end`."""
    names = set(expected)
    said = []
    if "OTHER" in names:
        said.append("a condition")
        # Nearly anything may follow inside a condition.
        names &= {"RPAR"}
    if "OPTION" in names:
        names.discard("STRING")
    if "COLUMN" in names:
        names.discard("LPAR")  # of a composite
    if "LPAR" in names:
        names.discard("FOR")  # COLUMNS, which may be left out
    said += [words for name, words in _NAMES.items() if name in names]
    said += [words for name, words in _SIGNS.items() if name in names]
    if not names.isdisjoint(_VALUES):
        said.append("a value (a number, 'text', true or false)")
    said += sorted(names - _NO_KEYWORDS)
    if "$END" in names:
        said.append("the end")
    return " or ".join(filter(None, (", ".join(said[:-1]), *said[-1:])))


def _hint(found: str, expected: Collection[str], previous: str) -> str:
    keywords = sorted(set(expected) - _NO_KEYWORDS)
    if near := get_close_matches(found.upper(), keywords, n=1):
        return f"did you mean {near[0]}?"
    if found.upper() == "WHERE" and "$END" in expected:
        return "WHERE stands before WITH"
    if "ON" in expected and previous == "INDEX" and re.match(r"[\w`]", found):
        return "a skipping index has no name of its own, it is ON a table"
    if found[:1] in ("'", '"') and not set(expected).isdisjoint(_NAMES):
        return "names are quoted with backticks"
    if not {"DOT", *_NAMES}.isdisjoint(expected) and re.match(
        r"\w*[^\x00-\x7f]|[-/:$@#%&~]", found
    ):
        return "a name with more than letters, digits and _ is quoted with backticks"
    if set(expected) - {"DOT", "FOR"} == {"LPAR"} and previous not in ("WITH", "ADD", "DROP"):
        return "the columns follow the table, as in (a MIN_MAX, b VALUE_LIST)"
    return ""


def _short(found: str) -> str:
    return found if len(found) <= 40 else f"{found[:37]}..."
