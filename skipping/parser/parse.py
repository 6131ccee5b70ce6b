"""Text to statement: the grammar finds the parts, what it cannot say is checked here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType

from lark import Lark
from lark.exceptions import UnexpectedInput, UnexpectedToken

from providers.errors import StatementError
from skipping.parser.ast_builder import Reader
from skipping.parser.errors import describe_unexpected, point_at
from skipping.parser.expressions import hide_expressions
from skipping.parser.lexer import Unclosed, after_words, blank_comments, is_ours, leading_words
from skipping.parser.statements import Explain, Statement, Verify

__all__ = ["parse"]

_LONGEST = 1 << 16
"""Characters of a statement. Some texts take the grammar time that grows with their square."""

_LONGEST_QUERY = 1 << 20
"""Characters of a statement that holds a query: Spark parses the query, and reports show it."""


def parse(text: str) -> Statement | None:
    """The statement a text is, or None when it is not ours and belongs to Spark (`is_ours`).

    Raises StatementError, with a mark under the word, for a wrong text that is ours.
    """
    if not is_ours(text):
        return None
    if (about := _about_query(text)) is not None:
        if len(text) > _LONGEST_QUERY:
            raise StatementError(
                f"EXPLAIN SKIPPING and VERIFY SKIPPING take at most {_LONGEST_QUERY:,} characters; "
                "run a longer query itself, then SHOW SKIPPING HISTORY reports its scans"
            )
        return about
    if len(text) > _LONGEST:
        raise StatementError(
            f"a statement has at most {_LONGEST:,} characters, not {len(text):,}: "
            "ALTER SKIPPING INDEX adds columns a few at a time"
        )
    try:
        blanked = blank_comments(text)
        tree = _grammar().parse(hide_expressions(blanked))
    except Unclosed as error:
        raise point_at(text, error.position, str(error)) from None
    except UnexpectedInput as error:
        raise _explained(text, blanked, error) from None
    return Reader(text).statement(tree)


def _about_query(text: str) -> Explain | Verify | None:
    """EXPLAIN SKIPPING or VERIFY SKIPPING, with the query as it stands: Spark is to read it."""
    match leading_words(text, 4):
        case ["EXPLAIN", "SKIPPING", "DRY", "RUN"]:
            query, marks = _query(text, 4)
            return Explain(query, dry_run=True, marks=marks)
        case ["EXPLAIN", "SKIPPING", "DRY", *_]:
            position = after_words(text, 3)
            raise describe_unexpected(text, position, ["RUN"], text[:position])
        case ["EXPLAIN", "SKIPPING", *_]:
            query, marks = _query(text, 2)
            return Explain(query, marks=marks)
        case ["VERIFY", "SKIPPING", *_]:
            query, marks = _query(text, 2)
            return Verify(query, marks=marks)
    return None


def _query(text: str, words: int) -> tuple[str, Mapping[str, int]]:
    position = after_words(text, words)
    query = text[position:]
    if not query.strip(" \t\r\n;"):
        raise point_at(text, position, "expected a query, but the text ends")
    return query, MappingProxyType({"query": position})


@lru_cache(maxsize=1)
def _grammar() -> Lark:
    grammar = files("skipping.parser").joinpath("grammar.lark").read_text(encoding="utf-8")
    # ASCII, or the sign of Kelvin would be a K in SKIPPING.
    return Lark(grammar, parser="lalr", propagate_positions=True, g_regex_flags=re.ASCII)


def _explained(text: str, blanked: str, error: UnexpectedInput) -> StatementError:
    position = error.pos_in_stream or 0
    expected: set[str] = set(getattr(error, "allowed", None) or ())
    if isinstance(error, UnexpectedToken):
        # `accepts` is exact; `expected` has what other statements take after the same word.
        expected = set(error.accepts or error.expected)
        if error.token.type == "$END":
            position = len(blanked.rstrip())
    if position == len(blanked.rstrip()):
        # The mark goes to the end of the words, not of a comment behind them.
        return describe_unexpected(text[:position], position, expected, blanked[:position])
    return describe_unexpected(text, position, expected, blanked[:position])
