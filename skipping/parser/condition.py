"""Parse the condition of WHERE into a tree of tests; its text is never executed.

The condition is in the store, to which others may write. So the grammar accepts only comparisons,
null tests, IN, LIKE, BETWEEN, in_network, AND, OR and NOT over columns and constants. Conditions
for Spark and PyIceberg are built from this tree (`skipping.tables.spark_where`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Literal, TypeAlias

from lark import Token, Tree
from lark.exceptions import UnexpectedInput

from skipping.parser import literals
from skipping.parser.errors import point_at
from skipping.parser.grammar import parse_tree, read_token, start_of, subtrees, tokens_of
from skipping.parser.lexer import TextError, tokenize
from skipping.parser.networks import read_network, texts_of

LONGEST = 1 << 13
"""Maximum number of characters of a condition; parsing them takes 0.1 s."""

_MOST = 1_000  # maximum number of tests in one condition: Spark plans a chain of tests recursively
_DEEPEST = 50  # maximum number of parentheses and NOTs around one test

Typed: TypeAlias = Literal["date", "timestamp", "timestamp_ntz", "timestamp_ltz"]
Value: TypeAlias = bool | int | float | Decimal | str | bytes | None
Compared: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">=", "<=>"]


@dataclass(frozen=True, slots=True)
class ColumnName:
    """A column or a nested field, as the parts of its name."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant; with `type`, `value` is the text of a typed literal such as DATE '2024-02-29'."""

    value: Value
    type: Typed | None = None


Operand: TypeAlias = ColumnName | Constant


@dataclass(frozen=True, slots=True)
class Comparison:
    """`left op right`."""

    left: Operand
    op: Compared
    right: Operand


@dataclass(frozen=True, slots=True)
class Membership:
    """`operand [NOT] IN (values)`."""

    operand: Operand
    values: tuple[Operand, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class TupleMembership:
    """`(operand, ...) [NOT] IN ((value, ...), ...)`; each row has a value for each operand.

    Spark compares the tuples as structs: if a column is null, the result is false, not null.
    """

    operands: tuple[Operand, ...]
    rows: tuple[tuple[Operand, ...], ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Like:
    """`operand [NOT] LIKE pattern [ESCAPE escape]`."""

    operand: Operand
    pattern: str
    escape: str
    negated: bool


@dataclass(frozen=True, slots=True)
class Between:
    """`operand [NOT] BETWEEN low AND high`."""

    operand: Operand
    low: Operand
    high: Operand
    negated: bool


@dataclass(frozen=True, slots=True)
class NullTest:
    """`operand IS [NOT] NULL`."""

    operand: Operand
    negated: bool


@dataclass(frozen=True, slots=True)
class Negation:
    """`NOT condition`."""

    leg: Condition


@dataclass(frozen=True, slots=True)
class Both:
    """`condition AND condition ...`."""

    legs: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """`condition OR condition ...`."""

    legs: tuple[Condition, ...]


Test: TypeAlias = Comparison | Membership | TupleMembership | Like | Between | NullTest
Condition: TypeAlias = Test | Negation | Both | Either

_TAKES = (
    "WHERE supports =, <>, <, <=, >, >=, <=>, IS [NOT] NULL, IN, LIKE, BETWEEN and in_network over "
    "columns and constants, with AND, OR, NOT and parentheses"
)
_SPELLED: dict[str, Compared] = {"==": "=", "<>": "!="}
_TYPED: dict[str, Typed] = {
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_NTZ": "timestamp_ntz",
    "TIMESTAMP_LTZ": "timestamp_ltz",
}


def parse_condition(text: str) -> Condition:
    """Parse a condition; raise StatementError that points at the word that WHERE does not support.

    >>> parse_condition("a.b IS NOT NULL")
    NullTest(operand=ColumnName(parts=('a', 'b')), negated=True)
    """
    try:
        return read_condition(text)
    except TextError as error:
        raise point_at(text, error.position, str(error)) from None


def read_condition(text: str) -> Condition:
    """Parse the condition of a statement; raise TextError with a position in the condition."""
    read = _read(text)
    if isinstance(read, TextError):
        raise TextError(read.position, str(read))
    return read


@dataclass(frozen=True, slots=True)
class Strings:
    """How Spark parses strings in a session; the defaults are the behaviour of this parser."""

    stand: bool = False
    """Whether backslashes are not escapes: `spark.sql.parser.escapedStringLiterals`."""
    name: bool = False
    """Whether double quotes enclose names: `spark.sql.ansi.doubleQuotedIdentifiers`, ANSI mode."""


def require_same_strings(text: str, strings: Strings) -> None:
    """Raise StatementError if Spark in this session parses a string of a condition differently.

    An invalid condition raises StatementError, too.
    """
    parse_condition(text)
    if strings == Strings():
        return
    for token in tokenize(text):
        each, at = token[0], token.start()
        if each[-1] not in "'\"":
            continue
        if strings.name and each[0] == '"':
            raise point_at(
                text,
                at,
                f"spark.sql.ansi.doubleQuotedIdentifiers is true, so Spark reads {each} as a name: "
                "write a string as '...', and a name as `...`, which mean the same in every "
                "session",
            )
        if strings.stand and each[0] not in "rR" and each[1:-1] != literals.parse_string(each):
            raise point_at(
                text,
                at,
                "spark.sql.parser.escapedStringLiterals is true, so Spark does not replace the "
                f"escapes in {each}: write it as r'...' or r\"...\", which mean the same in every "
                "session",
            )


# Stored conditions are parsed again every few seconds. Errors are cached, too, because an invalid
# condition takes as long to parse.
@lru_cache(maxsize=512)
def _read(text: str) -> Condition | TextError:
    try:
        return _parse(text)
    except TextError as error:
        return TextError(error.position, str(error))  # without its traceback


def _parse(text: str) -> Condition:
    if len(text) > LONGEST:
        raise TextError(0, f"a condition has at most {LONGEST:,} characters, not {len(text):,}")
    try:
        tokens = tokenize(text)
        tree = parse_tree("condition.lark", text, tokens)
    except UnexpectedInput as error:
        is_end = getattr(error, "token", None) == ""
        raise _explain_token(text, None if is_end else error.pos_in_stream, tokens) from None
    (top,) = subtrees(tree)  # parentheses around it are tokens, not trees
    return _ConditionReader().condition(top)


def _explain_token(text: str, position: int | None, tokens: Sequence[re.Match[str]]) -> TextError:
    if position is None:
        end = tokens[-1].end() if tokens else 0
        return TextError(end, f"the condition ends too early: {_TAKES}")
    word = next(token for token in tokens if token.start() == position)
    if word[0] == "(" and (function := re.search(r"\w+\s*\Z", text[:position])):
        return TextError(function.start(), f"{function[0].strip()} is a function: {_TAKES}")
    return TextError(position, f"unexpected {word[0]}: {_TAKES}")


class _ConditionReader:
    def __init__(self) -> None:
        self._tests = 0

    def condition(self, node: Tree[Token], depth: int = 0) -> Condition:
        if depth > _DEEPEST:
            message = f"the condition is nested more than {_DEEPEST} levels deep: simplify it"
            raise TextError(start_of(node), message)
        match node.data:
            case "either":
                return Either(self._legs(node, depth))
            case "both":
                return Both(self._legs(node, depth))
            case "negation":
                return Negation(self._legs(node, depth)[0])
            case "network":
                read = _network(node)
                self._count(node, len(read.legs) if isinstance(read, Either) else 1)
                return read
        self._count(node)
        return _test(node)

    def _count(self, node: Tree[Token], tests: int = 1) -> None:
        self._tests += tests
        if self._tests > _MOST:
            raise TextError(start_of(node), f"the condition has more than {_MOST:,} tests")

    def _legs(self, node: Tree[Token], depth: int) -> tuple[Condition, ...]:
        return tuple(self.condition(leg, depth + 1) for leg in subtrees(node))


def _test(node: Tree[Token]) -> Test:
    if node.data == "tuples":
        return _tuples(node)
    operands = tuple(_operand(each) for each in subtrees(node))
    words = tokens_of(node)
    negated = any(token.type == "NOT" for token in words)
    match node.data:
        case "comparison":
            sign = str(words[0])
            return Comparison(operands[0], _SPELLED.get(sign, sign), operands[1])  # type: ignore[arg-type]
        case "membership":
            return Membership(operands[0], operands[1:], negated)
        case "between":
            operand, low, high = operands
            return Between(operand, low, high, negated)
        case "like":
            pattern, *escape = [token for token in words if token.type == "STRING"]
            return Like(operands[0], _string(pattern), _escape(escape), negated)
    return NullTest(operands[0], negated)


def _network(node: Tree[Token]) -> Condition:
    """Return the same condition as the text that `networks.in_network` returns."""
    (given,) = subtrees(node)
    operand = _operand(given)
    if isinstance(operand, Constant) and (
        operand.type is not None or not isinstance(operand.value, str | None)
    ):
        raise TextError(start_of(given), "the first argument of in_network must be a text column")
    (text,) = [token for token in tokens_of(node) if token.type == "STRING"]
    texts = texts_of(read_token(lambda given: read_network(_string(text)), text))
    if not texts[0].endswith("."):
        return Membership(operand, tuple(map(Constant, texts)), negated=False)
    legs = tuple(Like(operand, f"{each}%", "\\", negated=False) for each in texts)
    return legs[0] if len(legs) == 1 else Either(legs)


def _tuples(node: Tree[Token]) -> TupleMembership:
    first, *rows = (tuple(map(_operand, subtrees(each))) for each in subtrees(node))
    for each, row in zip(subtrees(node)[1:], rows, strict=True):
        if len(row) != len(first):
            sizes = f"{len(row)} values, the left side {len(first)}"
            raise TextError(start_of(each), f"this tuple has {sizes}")
        if Constant(None) in row:
            raise TextError(start_of(each), "a tuple of constants cannot contain NULL")
    negated = any(token.type == "NOT" for token in tokens_of(node))
    return TupleMembership(first, tuple(rows), negated)


def _operand(node: Tree[Token]) -> Operand:
    tokens = tokens_of(node)
    (first, *_) = tokens
    match node.data:
        case "column":
            return ColumnName(
                tuple(read_token(literals.unquote, t) for t in tokens if t.type == "NAME")
            )
        case "typed":
            return _read_typed_literal(first, tokens[1])
        case "number":
            return Constant(_number(first))
        case "text":
            return Constant(_string(first))
        case "truth":
            return Constant(first.type == "TRUE")
    return Constant(None)


def _read_typed_literal(name: Token, text: Token) -> Constant:
    kind = name.upper()
    if kind in _TYPED:
        return Constant(_string(text), _TYPED[kind])
    if kind == "X":
        return Constant(read_token(_parse_hex, text))
    known = ", ".join((*_TYPED, "X"))
    raise TextError(start_of(name), f"unknown type of constant {name}: the types are {known}")


def _number(token: Token) -> int | float | Decimal:
    value = read_token(literals.parse_number, token)
    # Spark reads a number without an exponent as a decimal.
    return value if isinstance(value, int) or "e" in token.lower() else Decimal(str(token))


def _escape(tokens: Sequence[Token]) -> str:
    if not tokens:
        return "\\"
    escape = _string(tokens[0])
    if len(escape) != 1:
        raise TextError(start_of(tokens[0]), "ESCAPE takes one character, as in ESCAPE '!'")
    return escape


def _parse_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(literals.parse_string(text))
    except ValueError:
        raise ValueError("X takes pairs of hexadecimal digits") from None


def _string(token: Token) -> str:
    return read_token(literals.parse_string, token)
