"""Filters of Ibis as expressions of Polars: Ibis's own Polars backend says what they mean.

Lists and ranges are put in another form than it puts them, which the index can be asked about. The
rows are the same.
"""

from __future__ import annotations

from typing import Any

import ibis
import ibis.expr.operations as ops
import pyarrow as pa
from ibis.backends.polars.compiler import translate
from ibis.common.exceptions import IbisError

from providers.errors import first_line

__all__ = ["as_polars"]


def as_polars(expression: Any, schema: pa.Schema) -> Any:
    """An expression on one table, or one with `ibis._`, as an expression of Polars.

    Columns are taken by name. Raises TypeError for what is no condition on a table's own columns,
    or is none that Ibis can put to Polars.
    """
    try:
        if isinstance(expression, ibis.Table):
            raise NotImplementedError("a table")
        if not isinstance(expression, ibis.Expr):  # with `_`, which is resolved by a table
            (expression,) = ibis.table(ibis.Schema.from_pyarrow(schema), name="t").bind(expression)
        condition = expression.op()
        relations = condition.find(ops.Relation)
        tables = [each for each in relations if isinstance(each, ops.PhysicalTable)]
        if len(relations) != len(tables) or len(tables) > 1 or not condition.dtype.is_boolean():
            raise NotImplementedError(
                "it has to be a condition on the columns of one table, which is no query"
            )
        return _translated(condition)
    except (IbisError, NotImplementedError, AttributeError) as error:
        raise TypeError(f"not a filter of Ibis: {first_line(error)}") from error


def _translated(op: Any) -> Any:
    match op:
        case ops.And():
            return _translated(op.left) & _translated(op.right)
        case ops.Or():
            return _translated(op.left) | _translated(op.right)
        case ops.Not():
            return ~_translated(op.arg)
        case ops.Between():
            value = translate(op.arg)
            return (value >= translate(op.lower_bound)) & (value <= translate(op.upper_bound))
        case ops.InValues() if _are_plain(op):
            return translate(op.value).is_in([each.value for each in op.options])
    return translate(op)


def _are_plain(op: ops.InValues) -> bool:
    """Whether the values of a list are compared as they stand: integers, or text; and no null."""
    kind = op.value.dtype
    return all(
        isinstance(each, ops.Literal)
        and each.value is not None
        and (
            (kind.is_integer() and each.dtype.is_integer())
            or (kind.is_string() and each.dtype.is_string())
        )
        for each in op.options
    )
