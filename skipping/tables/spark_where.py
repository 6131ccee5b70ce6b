"""The condition of WHERE as Spark evaluates it: made of its tree, never of its text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import reduce
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # as everybody calls it

from skipping.model.identifiers import sql_name
from skipping.parser.condition import ColumnName, Compared, Operand, TupleMembership, Value
from skipping.tables.where import WhereRenderer

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
    """Render a condition's text; raise StatementError for what WHERE does not take."""
    return _SparkWhere().render_text(text)


class _SparkWhere(WhereRenderer[Column]):
    def both(self, operands: Sequence[Column]) -> Column:
        return _join_in_halves(lambda one, other: one & other, operands)

    def either(self, operands: Sequence[Column]) -> Column:
        return _join_in_halves(lambda one, other: one | other, operands)

    def negate(self, operand: Column) -> Column:
        return ~operand

    def compare(self, left: Operand, op: Compared, right: Operand) -> Column:
        return _OPS[op](_column(left), _column(right))

    def is_in(self, operand: Operand, values: Sequence[Operand]) -> Column:
        return _column(operand).isin(*map(_column, values))

    def is_null(self, operand: Operand) -> Column:
        return _column(operand).isNull()

    def like(self, operand: Operand, pattern: str, escape: str) -> Column:
        return F.like(_column(operand), F.lit(pattern), F.lit(escape))

    def other(self, node: TupleMembership) -> Column:
        return _tuple(node.operands).isin(*map(_tuple, node.rows))


def _tuple(operands: Sequence[Operand]) -> Column:
    return F.struct(*(_column(each).alias(f"c{i}") for i, each in enumerate(operands)))


def _column(operand: Operand) -> Column:
    if isinstance(operand, ColumnName):
        return F.col(sql_name(operand.parts))
    constant = F.lit(_as_py4j_takes_it(operand.value))
    return constant if operand.type is None else constant.cast(operand.type)


def _as_py4j_takes_it(value: Value) -> Any:
    match value:
        case bool():
            return value
        case int() if not -(1 << 63) <= value < 1 << 63:
            return Decimal(value)
        case bytes():
            return bytearray(value)
    return value


def _join_in_halves(join: Callable[[Column, Column], Column], legs: Sequence[Column]) -> Column:
    """Join all in a shallow tree: Spark walks it by recursion."""
    if len(legs) <= 2:
        return reduce(join, legs)
    half = len(legs) // 2
    return join(_join_in_halves(join, legs[:half]), _join_in_halves(join, legs[half:]))
