"""The condition of WHERE as Spark evaluates it: made of its tree, never of its text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import reduce
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # as everybody calls it

from skipping.model.identifiers import sql_name
from skipping.parser.condition import (
    Between,
    Both,
    ColumnName,
    Comparison,
    Condition,
    Either,
    Like,
    Membership,
    Negation,
    NullTest,
    Operand,
    TupleMembership,
    Value,
    parse_condition,
)

__all__ = ["spark_condition"]

_OPS: dict[str, Callable[[Column, Column], Column]] = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "<=>": Column.eqNullSafe,
}


def spark_condition(text: str) -> Column:
    """What a condition's text says; raises StatementError for what WHERE does not take."""
    return _column(parse_condition(text))


def _column(condition: Condition) -> Column:
    match condition:
        case Both(legs):
            return _balanced(lambda one, other: one & other, [_column(leg) for leg in legs])
        case Either(legs):
            return _balanced(lambda one, other: one | other, [_column(leg) for leg in legs])
        case Negation(leg):
            return ~_column(leg)
        case Comparison(left, op, right):
            return _OPS[op](_operand(left), _operand(right))
        case Membership(operand, values, negated):
            found = _operand(operand).isin(*map(_operand, values))
        case Like(operand, pattern, escape, negated):
            found = F.like(_operand(operand), F.lit(pattern), F.lit(escape))
        case TupleMembership(operands, rows, negated):
            found = _tuple(operands).isin(*map(_tuple, rows))
        case Between(operand, low, high, negated):
            found = _operand(operand).between(_operand(low), _operand(high))
        case NullTest(operand, negated):
            found = _operand(operand).isNull()
    return ~found if negated else found


def _tuple(operands: Sequence[Operand]) -> Column:
    return F.struct(*(_operand(each).alias(f"c{i}") for i, each in enumerate(operands)))


def _operand(operand: Operand) -> Column:
    if isinstance(operand, ColumnName):
        return F.col(sql_name(operand.parts))
    constant = F.lit(_java(operand.value))
    return constant if operand.type is None else constant.cast(operand.type)


def _java(value: Value) -> Any:
    """As py4j takes it."""
    match value:
        case bool():
            return value
        case int() if not -(1 << 63) <= value < 1 << 63:
            return Decimal(value)
        case bytes():
            return bytearray(value)
    return value


def _balanced(join: Callable[[Column, Column], Column], legs: Sequence[Column]) -> Column:
    """All of them, as a tree of little depth: Spark walks it by recursion."""
    if len(legs) <= 2:
        return reduce(join, legs)
    half = len(legs) // 2
    return join(_balanced(join, legs[:half]), _balanced(join, legs[half:]))
