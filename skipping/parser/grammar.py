"""Parse the tokens of the lexer into trees, with one of two grammars.

The type of a token depends on what the grammar accepts at its position. So no keyword is reserved:
where a name is expected, INDEX or WITH is a name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any, TypeVar

from lark import Lark, Token, Tree
from lark.lexer import Lexer

from skipping.parser.lexer import TextError

_T = TypeVar("_T")

_NAMES = ("TABLE", "SCOPE", "COLUMN", "PARAM", "OPTION", "JOB_NAME", "NAME")
_CLASSES = {*_NAMES, "KIND", "NUMBER", "STRING", "WORD", "QUOTED", "OTHER", "COMPARE", "EXPRESSION"}
"""Terminals that match many words. All others are one keyword or sign."""

_SIGNS = {
    **dict.fromkeys(("<=>", "<=", ">=", "<>", "!=", "<", ">"), ("COMPARE",)),
    **dict.fromkeys(("=", "=="), ("EQ", "COMPARE")),
    "=>": ("ARROW",),
    ",": ("COMMA",),
    ".": ("DOT",),
    ";": ("SEMICOLON",),
    "(": ("LPAR",),
    ")": ("RPAR",),
}
_NAME = re.compile(r"[0-9]*[A-Za-z_][A-Za-z0-9_]*|`(?:[^`]|``)*`")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_.])")

_FOLLOWED_BY = {"IDENTIFIER": "(s", "WITH": "(", "IN_NETWORK": "("}
"""Words that are keywords only if these tokens (as letters, see below) follow."""

# Tokens as letters: w is a word, n another name, d a word that is not a name, s a string; a sign
# stands for itself.
_COLUMN = r"[wn](?:\.[wn])*"
_COMPOSITE = re.compile(rf"\({_COLUMN}(?:,{_COLUMN})+\)")
_WITH_KIND = re.compile(r"(.*[wnds)\]])w(?:\([^()]*\))?", re.DOTALL)
_OPERATOR = re.compile(r"[][s()+*/%|&^~:<>=!-]")
"""Operators: they distinguish an expression from a misspelled name."""


def parse_tree(grammar: str, text: str, tokens: Sequence[re.Match[str]]) -> Tree[Token]:
    """Parse with `grammar.lark` or `condition.lark`; raise UnexpectedInput for a syntax error."""
    return _load(grammar).parse((text, tokens))  # lark passes the tuple to `_Lexer.lex` unchanged


def subtrees(node: Tree[Token]) -> list[Tree[Token]]:
    """Return the trees directly below a node."""
    return [child for child in node.children if isinstance(child, Tree)]


def tokens_of(node: Tree[Token]) -> list[Token]:
    """Return the tokens directly below a node."""
    return [child for child in node.children if isinstance(child, Token)]


def start_of(node: Tree[Token] | Token) -> int:
    """Return the position in the text where a node begins."""
    return (node.start_pos if isinstance(node, Token) else node.meta.start_pos) or 0


def read_token(read: Callable[[str], _T], token: Token) -> _T:
    """Parse a token with `read`; if that raises ValueError, raise TextError at the token."""
    try:
        return read(token)
    except ValueError as error:
        raise TextError(start_of(token), str(error)) from None


@lru_cache
def _load(name: str) -> Lark:
    grammar = files("skipping.parser").joinpath(name).read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer=_Lexer, propagate_positions=True)


class _Lexer(Lexer):
    __future_interface__ = 1

    def __init__(self, conf: object) -> None:
        pass

    def lex(self, lexer_state: Any, parser_state: Any) -> Iterator[Token]:
        text, tokens = lexer_state.text
        at = 0
        while at < len(tokens):
            accepts = parser_state.parse_conf.states[parser_state.position]
            type, after = _classify(text, tokens, at, accepts)
            start, end = tokens[at].start(), tokens[after - 1].end()
            yield Token(type, text[start:end], start_pos=start, end_pos=end)
            at = after


def _classify(
    text: str, tokens: Sequence[re.Match[str]], at: int, accepts: Collection[str]
) -> tuple[str, int]:
    """Return the type of the terminal that begins with token `at`, and the index after its end."""
    for type in ("EXPRESSION", "DROPPED_EXPRESSION"):
        if type in accepts and (count := _expression(tokens, at, has_kind=type == "EXPRESSION")):
            return type, at + count
    if "NUMBER" in accepts and (number := _NUMBER.match(text, tokens[at].start())):
        after = at + 1
        while after < len(tokens) and tokens[after].start() < number.end():
            after += 1
        return "NUMBER", after
    return next((t for t in _types(tokens, at) if t in accepts), "UNKNOWN"), at + 1


def _types(tokens: Sequence[re.Match[str]], at: int) -> Iterator[str]:
    """Yield the possible types of a token, the most specific first."""
    token, shape = tokens[at][0], _shape(tokens[at : at + 3])
    word, follow = token.upper(), shape[1:]
    is_name = shape[0] in "wn"
    if is_name and word not in _CLASSES and follow.startswith(_FOLLOWED_BY.get(word, "")):
        yield word
    if word == "TABLE" and follow[:1] in ("w", "n", "d") and not _starts_columns(tokens[at + 1 :]):
        yield "TABLE_WORD"
    if word == "COLUMN":
        yield "BY_COLUMN"
    if is_name:
        yield from _NAMES
    if shape[0] == "w":
        yield "KIND"
    if shape[0] == "s":
        yield "STRING"
    yield from _SIGNS.get(token, ())
    if token[0] == "`":
        yield "QUOTED"
    elif shape[0] in "wnd":
        if (word, follow[:1]) != ("WITH", "("):
            yield "WORD"
        if word == "WITH":
            yield word
    elif shape[0] not in "s();":
        yield "OTHER"


def _starts_columns(rest: Sequence[re.Match[str]]) -> bool:
    return [token[0].upper() for token in rest[:2]] == ["FOR", "COLUMNS"]


def _shape(tokens: Sequence[re.Match[str]]) -> str:
    return "".join(map(_letter, tokens))


def _letter(token: re.Match[str]) -> str:
    text = token[0]
    if _NAME.fullmatch(text):
        return "n" if text[0] in "`0123456789" else "w"
    if text[-1] in "'\"":
        return "s"
    return "d" if text[0].isalnum() or text[0] == "_" else text[0]


def _expression(tokens: Sequence[re.Match[str]], at: int, *, has_kind: bool) -> int:
    """Return the number of tokens of the expression that begins at token `at`; 0 for no expression.

    A LALR grammar cannot find the end of an expression, which may contain almost anything. But the
    index type follows it, as the last word of the list item; in DROP the index type is optional.
    """
    item = _item(tokens, at)
    match = _WITH_KIND.fullmatch(item)
    if match is None and (has_kind or len(item) < 2):
        return 0
    expression = match[1] if match else item
    if _COMPOSITE.fullmatch(expression) or not _OPERATOR.search(expression):
        return 0
    return len(expression)


def _item(tokens: Sequence[re.Match[str]], at: int) -> str:
    """Return the tokens of a list item as letters; empty if the list is not closed."""
    depth = 0
    shape: list[str] = []
    for i in range(at, len(tokens)):
        letter = _letter(tokens[i])
        depth += (letter in "([") - (letter in ")]")
        if depth < 0 or (depth == 0 and letter == ","):
            return "".join(shape)
        shape.append(letter)
    return ""
