"""Create syntax errors: where the wrong word is, what was expected there, and a suggestion."""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import get_close_matches

from providers.errors import StatementError
from skipping.parser.lexer import TOKEN, tokenize

_MOVES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_WINDOW = 88  # number of characters that are shown of a longer line
_NAMES = {
    "TABLE": "a table name",
    "SCOPE": "a catalog or catalog.database",
    "COLUMN": "a column name",
    "JOB_NAME": "the name of a job",
    "KIND": "an index type such as MIN_MAX",
    "OPTION": "the name of an option",
    "BY_COLUMN": "COLUMN",
}
_VALUES = ("NUMBER", "STRING", "TRUE", "FALSE")
_SIGNS = {"LPAR": "an opening (", "RPAR": "a closing )", "COMMA": "a comma", "EQ": "="}
_CONDITION = ("WORD", "QUOTED", "OTHER")
# Accepted after every name or statement. In an error message they would hide what is missing.
_SILENT = (
    *("DOT", "SEMICOLON", "ARROW", "PARAM", "IDENTIFIER", "TABLE_WORD", "$END"),
    *("EXPRESSION", "DROPPED_EXPRESSION"),
)
_NO_KEYWORDS = {*_NAMES, *_VALUES, *_SIGNS, *_CONDITION, *_SILENT}


def point_at(text: str, position: int, message: str) -> StatementError:
    """Return an error with the message, line and column, the line, and a mark under the word.

    `position` is the word's offset in the text; the length of the text marks its end.
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
    # Repeat tabs in the line below, so that the mark is under the word.
    lead = "".join("\t" if character == "\t" else " " for character in before)
    if first:
        shown, lead = f"...{shown}", f"   {lead}"
    if first + _WINDOW < len(line):
        shown += "..."
    return StatementError(
        f"{message}\nline {number}, column {column + 1}\n  {shown}\n  {lead}{mark}",
        problem=message,
        position=position,
    )


def mask_controls(text: str) -> str:
    r"""Replace control and bidirectional characters with `?`, so that a text is safe to print.

    >>> mask_controls("a\x1b[2Jb")
    'a?[2Jb'
    """
    return _MOVES.sub("?", text)


def describe_token(text: str, position: int, expected: Collection[str]) -> StatementError:
    """Return the error for an unexpected token at `position`; `expected` has the valid terminals.

    If `position` is the end of the text, the text ends too early.
    """
    before = tokenize(text[:position])
    previous = before[-1][0].upper() if before else ""
    match = TOKEN.match(text, position)
    found = match[0] if match else ""
    if found == ")" and "OTHER" in expected:
        return point_at(text, position, "this ) has no matching ( in the condition")
    if previous == ";":
        return point_at(text, position, "expected a single statement, but more follows the ;")
    what = f"not {_short(found)}" if found else "but the statement ends here"
    message = f"expected {_in_words(expected)}, {what}"
    if hint := _hint(found, expected, previous):
        message += f": {hint}"
    return point_at(text, position, message)


def _in_words(expected: Collection[str]) -> str:
    """Describe terminals in words: `= or a value`, `EXTENDED, IN or the end`."""
    names = set(expected)
    words = []
    if "OTHER" in names:
        words.append("a condition")
        # Nearly anything may follow inside a condition.
        names &= {"RPAR"}
    if "OPTION" in names:
        names.discard("STRING")
    if "COLUMN" in names:
        names.discard("LPAR")  # which begins a composite
    if "LPAR" in names:
        names.discard("FOR")  # FOR COLUMNS is optional
    words += [text for name, text in _NAMES.items() if name in names]
    words += [text for name, text in _SIGNS.items() if name in names]
    if not names.isdisjoint(_VALUES):
        words.append("a value (a number, 'text', true or false)")
    words += sorted(names - _NO_KEYWORDS)
    if "$END" in names:
        words.append("the end")
    return " or ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def _hint(found: str, expected: Collection[str], previous: str) -> str:
    keywords = sorted(set(expected) - _NO_KEYWORDS)
    if near := get_close_matches(found.upper(), keywords, n=1):
        return f"did you mean {near[0]}?"
    if found.upper() == "WHERE" and "$END" in expected:
        return "write WHERE before WITH"
    if "ON" in expected and previous == "INDEX" and re.match(r"[\w`]", found):
        return "a skipping index has no name; write ON and the name of its table"
    if found[:1] in ("'", '"') and not set(expected).isdisjoint(_NAMES):
        return "quote names with backticks"
    if not {"DOT", *_NAMES}.isdisjoint(expected) and re.match(
        r"\w*[^\x00-\x7f]|[-/:$@#%&~]", found
    ):
        return "quote a name with other characters than letters, digits and _ with backticks"
    if {"LPAR", "AUTO"} <= set(expected):
        return "write the columns after the table, such as (a MIN_MAX, b VALUE_LIST)"
    return ""


def _short(found: str) -> str:
    return found if len(found) <= 40 else f"{found[:37]}..."
