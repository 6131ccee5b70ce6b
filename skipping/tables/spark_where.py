"""Render the WHERE of an index as Spark SQL, from its parsed tree, never from its text."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial, reduce
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # as everybody calls it

from skipping.model.identifiers import sql_name
from skipping.parser.condition import ColumnName, Operand, Value
from skipping.tables.where import WhereRenderer

_OPS: dict[str, Callable[[Any, Any], Column]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "<=>": Column.eqNullSafe,
}


def spark_condition(text: str) -> Column:
    """Render a condition's text; raise StatementError for text that WHERE does not support."""
    return _RENDERER.render(text)


def _tuple(operands: Sequence[Operand]) -> Column:
    return F.struct(*(_column(each).alias(f"c{i}") for i, each in enumerate(operands)))


def _column(operand: Operand) -> Column:
    if isinstance(operand, ColumnName):
        return F.col(sql_name(operand.parts))
    constant = F.lit(_to_py4j(operand.value))
    return constant if operand.type is None else constant.cast(operand.type)


def _to_py4j(value: Value) -> Any:
    match value:
        case bool():
            return value
        case int() if not -(1 << 63) <= value < 1 << 63:
            return Decimal(value)
        case bytes():
            return bytearray(value)
    return value


def _join_in_halves(join: Callable[[Column, Column], Column], operands: Sequence[Column]) -> Column:
    """Join all operands in a shallow tree, because Spark walks it by recursion."""
    if len(operands) <= 2:
        return reduce(join, operands)
    half = len(operands) // 2
    return join(_join_in_halves(join, operands[:half]), _join_in_halves(join, operands[half:]))


_RENDERER: WhereRenderer[Column] = WhereRenderer(
    all_of=partial(_join_in_halves, operator.and_),
    any_of=partial(_join_in_halves, operator.or_),
    negate=operator.invert,
    compare=lambda left, op, right: _OPS[op](_column(left), _column(right)),
    is_in=lambda operand, values: _column(operand).isin(*map(_column, values)),
    is_null=lambda operand: _column(operand).isNull(),
    like=lambda operand, *texts: F.like(_column(operand), *map(F.lit, texts)),
    in_tuples=lambda operands, rows: _tuple(operands).isin(*map(_tuple, rows)),
)
