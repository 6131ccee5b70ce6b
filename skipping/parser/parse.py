"""Parse statements."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from lark.exceptions import UnexpectedInput, UnexpectedToken

from providers.errors import StatementError
from skipping.parser.ast_builder import StatementReader
from skipping.parser.errors import describe_token, point_at
from skipping.parser.grammar import parse_tree
from skipping.parser.lexer import TextError, after_words, is_ours, leading_words, tokenize
from skipping.parser.statements import Explain, Statement, Verify

_LONGEST = 1 << 16
"""Characters of a statement. Parsing time can grow with their square."""

_LONGEST_QUERY = 1 << 20
"""Characters of a statement with a query: Spark parses the query, and reports show it."""


@lru_cache(maxsize=8)  # Java needs a statement's columns, then runs it
def parse(text: str) -> Statement | None:
    """Return the statement of a text, or None if the text belongs to Spark (`is_ours`).

    Raises StatementError, with a mark under the wrong word.
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
        tokens = tokenize(text)
        tree = parse_tree("grammar.lark", text, tokens)
        return StatementReader(text).statement(tree)
    except TextError as error:
        raise point_at(text, error.position, str(error)) from None
    except UnexpectedInput as error:
        raise _explain(text, tokens, error) from None


def _about_query(text: str) -> Explain | Verify | None:
    """Return EXPLAIN SKIPPING or VERIFY SKIPPING with the text of its query, which Spark parses."""
    match leading_words(text, 4):
        case ["EXPLAIN", "SKIPPING", "DRY", "RUN"]:
            query, marks = _query(text, 4)
            return Explain(query, dry_run=True, marks=marks)
        case ["EXPLAIN", "SKIPPING", "DRY", *_]:
            position = after_words(text, 3)
            raise describe_token(text, position, ["RUN"])
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


def _explain(text: str, tokens: Sequence[re.Match[str]], error: UnexpectedInput) -> StatementError:
    assert isinstance(error, UnexpectedToken), "the lexer raises nothing"
    position = error.token.start_pos or 0
    if error.token.type == "$END":
        # The mark goes to the end of the last word, not of a comment behind it.
        position = tokens[-1].end()
        text = text[:position]
    # `accepts` is exact; `expected` has what other statements take after the same word.
    return describe_token(text, position, error.accepts or error.expected)
