"""Golden pairs in plain text: sections, and cases of two lines."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pyarrow as pa

from providers import (
    And,
    Between,
    Compare,
    Contains,
    EndsWith,
    In,
    IsNull,
    Or,
    Predicate,
    StartsWith,
    Unknown,
)
from providers.predicate import StartsWithAny, Within

_OPS: dict[type[ast.cmpop], Any] = {
    ast.Eq: "=", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="
}  # fmt: skip
_TEXTS: dict[str, Any] = {"startswith": StartsWith, "endswith": EndsWith, "contains": Contains}


def cases(path: Path) -> list[tuple[str, str, str]]:
    """(section, input, outcome), in the order of the file."""
    found, section, given = [], "", ""
    for line in path.read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line.startswith("=> "):
            found.append((section, given, line.removeprefix("=> ")))
        elif line and not line.startswith("# "):
            given = line
    return found


def predicate(text: str, *, array: Any = pa.array) -> Predicate:
    """Read a predicate written as a Python expression; `array` makes the keys of an `in`."""

    def read(node: ast.expr) -> Predicate:
        match node:
            case ast.BoolOp(ast.And(), legs):
                return And(tuple(map(read, legs)))
            case ast.BoolOp(ast.Or(), legs):
                return Or(tuple(map(read, legs)))
            case ast.Constant(value) if value is ...:
                return Unknown()
            case ast.Constant(bool(value)):
                return And(()) if value else Or(())
            case ast.UnaryOp(ast.Not(), ast.Call(ast.Attribute(ast.Name(column), test), [text])):
                return _TEXTS[test](column, ast.literal_eval(text), negated=True)
            case ast.Call(ast.Attribute(ast.Name(column), test), given):
                return _called(column, test, [ast.literal_eval(each) for each in given])
            case ast.Compare(ast.Name(column), [ast.Is() | ast.IsNot() as op], _):
                return IsNull(column, negated=isinstance(op, ast.IsNot))
            case ast.Compare(ast.Name(column), [ast.In() | ast.NotIn() as op], [keys]):
                listed = In.of(column, array(list(ast.literal_eval(keys))))
                return In(column, listed.values, negated=isinstance(op, ast.NotIn))
            case ast.Compare(low, [first, second], [ast.Name(column), high]):
                ends = ast.literal_eval(low), ast.literal_eval(high)
                return Between(
                    column, *ends, isinstance(first, ast.LtE), isinstance(second, ast.LtE)
                )
            case ast.Compare(ast.Name(column), [op], [value]):
                return Compare(column, _OPS[type(op)], ast.literal_eval(value))
        raise ValueError(f"no predicate: {ast.unparse(node)}")

    return read(ast.parse(text, mode="eval").body)


def _called(column: str, test: str, given: list[Any]) -> Predicate:
    if test == "within":
        return Within(column, *(pa.array(ends) for ends in zip(*given, strict=True)))
    if len(given) > 1:
        return StartsWithAny(column, pa.array(given))
    return _TEXTS[test](column, *given)  # type: ignore[no-any-return]
