"""Text to statement: the grammar finds the parts, what it cannot say is checked here."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files

from lark import Lark
from lark.exceptions import UnexpectedInput, UnexpectedToken

from providers.errors import StatementError
from skipping.parser.ast_builder import Reader
from skipping.parser.errors import describe_unexpected, point_at
from skipping.parser.lexer import Unclosed, blank_comments, is_ours
from skipping.parser.statements import Statement

__all__ = ["parse"]

_LONGEST = 1 << 16
"""Characters of a statement. Some texts take the grammar time that grows with their square."""


def parse(text: str) -> Statement | None:
    """The statement a text is, or None when it is not ours and belongs to Spark (`is_ours`).

    Raises StatementError, with a mark under the word, for a wrong text that is ours.
    """
    if not is_ours(text):
        return None
    if len(text) > _LONGEST:
        raise StatementError(
            f"a statement has at most {_LONGEST:,} characters, not {len(text):,}: "
            "ALTER SKIPPING INDEX adds columns a few at a time"
        )
    try:
        blanked = blank_comments(text)
        tree = _grammar().parse(blanked)
    except Unclosed as error:
        raise point_at(text, error.position, str(error)) from None
    except UnexpectedInput as error:
        raise _explained(text, blanked, error) from None
    return Reader(text).statement(tree)


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
