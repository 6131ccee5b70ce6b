"""Parse the text of a skipping-index statement."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType

from lark.exceptions import UnexpectedInput, UnexpectedToken

from providers.errors import StatementError
from skipping.parser.ast_builder import StatementReader
from skipping.parser.errors import describe_token, point_at
from skipping.parser.grammar import parse_tree
from skipping.parser.lexer import (
    TextError,
    after_gap,
    after_words,
    is_ours,
    leading_words,
    tokenize,
)
from skipping.parser.statements import (
    Alter,
    ColumnDrop,
    ColumnSpec,
    Create,
    DropColumns,
    Explain,
    Statement,
    Verify,
)

_LONGEST = 1 << 16
"""Maximum number of characters of a statement. Parsing time can grow with its square."""

_LONGEST_QUERY = 1 << 20  # the same for statements with a query, which Spark parses


@lru_cache(maxsize=8)  # Java first asks for the result's columns of a statement, then runs it
def parse(text: str) -> Statement | None:
    """Parse a skipping-index statement; return None for text that Spark must parse (`is_ours`).

    Raises StatementError, with a mark under the wrong word.
    """
    if not is_ours(text):
        return None
    if (statement := _parse_query_statement(text)) is not None:
        if len(text) > _LONGEST_QUERY:
            raise StatementError(
                f"EXPLAIN SKIPPING and VERIFY SKIPPING take at most {_LONGEST_QUERY:,} characters, "
                f"not {len(text):,}: run the query on its own, then use SHOW SKIPPING HISTORY to "
                "see its scans"
            )
        return statement
    if len(text) > _LONGEST:
        raise StatementError(
            f"a statement has at most {_LONGEST:,} characters, not {len(text):,}: "
            "use ALTER SKIPPING INDEX to add a few columns at a time"
        )
    try:
        tokens = tokenize(text)
        tree = parse_tree("grammar.lark", text, tokens)
        return StatementReader(text).statement(tree)
    except TextError as error:
        raise point_at(text, error.position, str(error)) from None
    except UnexpectedInput as error:
        raise _explain(text, tokens, error) from None


def column_specs(columns: str | Sequence[ColumnSpec]) -> Sequence[ColumnSpec]:
    """Parse columns as in CREATE: `"a MIN_MAX, b.c VALUE_LIST(10)"`; raise StatementError."""
    if not isinstance(columns, str):
        return columns
    statement = parse(f"CREATE SKIPPING INDEX ON t ({columns})")
    assert isinstance(statement, Create), "the text above is a CREATE"
    return statement.columns


def column_drops(columns: str | Sequence[ColumnDrop]) -> Sequence[ColumnDrop]:
    """Parse columns as in ALTER ... DROP: `"a, b.c MIN_MAX"`; raise StatementError."""
    if not isinstance(columns, str):
        return columns
    statement = parse(f"ALTER SKIPPING INDEX ON t DROP ({columns})")
    assert isinstance(statement, Alter), "the text above is an ALTER"
    assert isinstance(statement.action, DropColumns), "the text above has DROP"
    return statement.action.columns


def _parse_query_statement(text: str) -> Explain | Verify | None:
    """Parse EXPLAIN SKIPPING or VERIFY SKIPPING; the query is kept as text, for Spark's parser.

    Returns None for other statements.
    """
    match leading_words(text, 4):
        case ["EXPLAIN", "SKIPPING", "DRY", "RUN"]:
            return _explain_statement(text, 4, dry_run=True)
        case ["EXPLAIN", "SKIPPING", "DRY", *_]:
            position = after_words(text, 3)
            raise describe_token(text, position, ["RUN"])
        case ["EXPLAIN", "SKIPPING", *_]:
            return _explain_statement(text, 2, dry_run=False)
        case ["VERIFY", "SKIPPING", *_]:
            query, marks = _query(text, after_words(text, 2))
            return Verify(query, marks=marks)
    return None


def _explain_statement(text: str, words: int, *, dry_run: bool) -> Explain:
    """Return EXPLAIN; `WITH (` begins the columns of an index, because a CTE has a name there."""
    start = after_words(text, words)
    inner = after_words(text, words + 1)
    columns: tuple[ColumnSpec, ...] = ()
    if leading_words(text[start:], 1) == ["WITH"] and text.startswith("(", inner):
        columns, start = _hypothetical_columns(text, inner)
    query, marks = _query(text, start)
    return Explain(query, dry_run=dry_run, columns=columns, marks=marks)


_CREATE = "CREATE SKIPPING INDEX ON t "


def _hypothetical_columns(text: str, start: int) -> tuple[tuple[ColumnSpec, ...], int]:
    """Parse `(a MIN_MAX, ...)` as in CREATE; return the columns and the position after them."""
    end = _closing_parenthesis(text, start)
    moved = start - len(_CREATE)
    try:
        statement = parse(_CREATE + text[start:end])
    except StatementError as error:
        if error.position is None:
            raise
        raise point_at(text, error.position + moved, error.problem) from None
    assert isinstance(statement, Create), "the text above is a CREATE"
    columns = tuple(
        replace(spec, position=spec.position + moved, kind_position=spec.kind_position + moved)
        for spec in statement.columns
    )
    return columns, after_gap(text, end)


def _closing_parenthesis(text: str, start: int) -> int:
    depth = 0
    try:
        for token in tokenize(text):
            if token.start() < start:
                continue
            depth += {"(": 1, ")": -1}.get(token[0], 0)
            if depth == 0:
                return token.end()
    except TextError as error:
        raise point_at(text, error.position, str(error)) from None
    raise point_at(text, start, "this parenthesis is not closed")


def _query(text: str, position: int) -> tuple[str, Mapping[str, int]]:
    query = text[position:]
    if not query.strip(" \t\r\n;"):
        raise point_at(text, position, "expected a query, but the statement ends here")
    return query, MappingProxyType({"query": position})


def _explain(text: str, tokens: Sequence[re.Match[str]], error: UnexpectedInput) -> StatementError:
    assert isinstance(error, UnexpectedToken), "the lexer raises no errors"
    position = error.token.start_pos or 0
    if error.token.type == "$END":
        # Mark the end of the last word, not the end of a comment after it.
        position = tokens[-1].end()
        text = text[:position]
    # `expected` includes terminals that only other statements accept after the same word.
    return describe_token(text, position, error.accepts or error.expected)
