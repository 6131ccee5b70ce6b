"""Translate filters of Arrow (`pyarrow.compute.Expression`) to predicates for an index.

The predicate holds for each row that Arrow's filter returns. The rules below keep it so; each names
the rows that a plain translation would lose:

=============================  =====================================================================
NaN                            Arrow compares NaN as false, except for `!=`. Under a NOT that is
                               true, so `~(x > 5)` returns NaN. An index sorts NaN last: the
                               predicate is `x <= 5 OR x = NaN`. A comparison with NaN is unknown.
nulls                          A comparison of null is null, `is_in` is false: `~x.isin([1])`
                               returns nulls, and `x.isin([None])` may.
-0.0                           `==` treats both zeros as equal, `is_in` compares bits:
                               `~x.isin([0.0])` returns -0.0, so no zero and no NaN is excluded.
is_null(nan_is_null=True)      also returns NaN.
types                          If the value's type differs from the column's, Arrow casts one of
                               them: unknown, except for integers of any width, and integers that a
                               float column represents exactly. Unknown too if the rows have another
                               type than the index, such as times with and without a zone.
dictionaries                   A Polars Enum orders them by position, Arrow by value: only equality
                               is translated.
fields of structs              Below a null struct Arrow reads whatever is stored: unknown.
=============================  =====================================================================

Functions, casts, comparisons of two columns and everything else are unknown: they prune no file,
and only Arrow evaluates them.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from providers.predicate import FLIPPED, OPPOSITE, And, Op, Or, Predicate, Unknown
from skipping.filters.arrow_tree import (
    Call,
    Field,
    Node,
    conjuncts,
    field_names,
    parse_expression,
    path_of,
)
from skipping.filters.leaves import ColumnLeaves, TextTest, indexed_leaves, is_nan
from skipping.tables import TableColumn

_OPS: dict[str, Op] = {
    "equal": "=",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_FUNCTIONS = {op: name for name, op in _OPS.items()}
_BUILT: dict[str, Any] = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "and_kleene": operator.and_,
    "or_kleene": operator.or_,
    "invert": operator.invert,
    "is_valid": lambda x: x.is_valid(),
    "is_nan": pc.is_nan,
}
_BOTH = ("and", "and_kleene")
_EITHER = ("or", "or_kleene")
_TEXTS: dict[str, TextTest] = {
    "starts_with": "starts_with",
    "ends_with": "ends_with",
    "match_substring": "contains",
}
_NULL = pa.scalar(None, pa.bool_())


@dataclass(frozen=True, slots=True)
class Translated:
    """A predicate that holds for the rows of an expression, and its columns (None if unknown)."""

    predicate: Predicate
    columns: frozenset[str] | None


def translate(expression: Any, columns: Mapping[str, TableColumn]) -> Translated:
    """Translate an expression on the rows of a table; `columns` are by name in the rows."""
    try:
        tree = parse_expression(expression)
        named = frozenset(field_names(tree))
    except Exception as error:  # another release of Arrow may write another form
        return Translated(Unknown(f"an expression of Arrow: {error}"), None)
    try:
        return Translated(_Rows(columns).predicate(tree, wanted=True), named)
    except (RecursionError, pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        return Translated(Unknown(f"an expression of Arrow: {error}"), named)


def in_total_order(expression: Any, schema: pa.Schema) -> Any:
    """Rewrite a filter of DuckDB so that Arrow returns the rows that DuckDB would.

    DuckDB does not filter again. For DuckDB, NaN is the largest value; Arrow compares it as false.
    For DuckDB, 0.0 equals -0.0 in lists, too; Arrow compares their bits. In SQL, `NOT IN` is null
    for a null; in Arrow it is true. An expression that cannot be parsed is returned unchanged.
    """
    floats = set(_float_paths(schema))
    try:
        return _Ordered(floats).expression(parse_expression(expression))
    except Exception:
        return expression


def not_null_beside_nan(expression: Any, fields: Iterable[pa.Field]) -> Any:
    """Exclude nulls from a filter of DuckDB that contains `x <= NaN` for a float.

    DuckDB passes a plain `true` to Arrow for that condition. This is right except for null, does
    not name the column, and DuckDB may not evaluate the condition again. So require that one of the
    float columns that are read is not null. With several float columns, the result may have more
    rows than DuckDB returns on its own tables, never fewer.
    """
    try:
        conditions = list(conjuncts(parse_expression(expression)))
    except Exception:  # another release of Arrow may write another form
        return expression
    if not any(isinstance(c, pa.Scalar) and c.as_py() is True for c in conditions):
        return expression
    valid = [pc.field(path).is_valid() for path in _float_paths(fields)]
    return expression & functools.reduce(operator.or_, valid) if valid else expression


def _float_paths(fields: Iterable[pa.Field]) -> Iterator[tuple[str, ...]]:
    for field in fields:
        if pa.types.is_floating(field.type):
            yield (field.name,)
        elif pa.types.is_struct(field.type):
            yield from ((field.name, *below) for below in _float_paths(field.type))


class _Ordered:
    def __init__(self, floats: Set[tuple[str, ...]]) -> None:
        self._floats = floats

    def expression(self, node: Node, *, nulls: bool = False) -> Any:
        """Rebuild a node; if `nulls`, the result must distinguish null from false."""
        if isinstance(node, pa.Scalar):
            return pc.scalar(node)
        if isinstance(node, Field):
            return pc.field(node.path)
        function, arguments = node.function, node.arguments
        is_float = any(isinstance(a, Field) and a.path in self._floats for a in arguments)
        if function == "is_in":
            column, listed = pc.field(path_of(arguments[0])), node.options["value_set"]
            some = listed.drop_null()
            found = self._in(column, some) if is_float else column.isin(some)
            if not nulls:
                return found
            found = found | pc.if_else(column.is_null(), _NULL, False)
            return found | _NULL if listed.null_count else found
        if is_float and function in _OPS:
            left, right = arguments
            op = _OPS[function]
            if isinstance(left, pa.Scalar):
                left, right, op = right, left, FLIPPED[op]
            if isinstance(right, pa.Scalar):
                return self._compare(pc.field(path_of(left)), op, right)
        nulls = nulls or function not in _BOTH + _EITHER
        built = [self.expression(argument, nulls=nulls) for argument in arguments]
        if function == "is_null":
            return built[0].is_null(nan_is_null=node.options["nan_is_null"])
        return _BUILT[function](*built)

    def _in(self, column: Any, values: pa.Array) -> Any:
        given = values.to_pylist()
        if any(value == 0 for value in given):
            values = pa.array([*given, 0.0, -0.0], values.type)
        return column.isin(values)

    def _compare(self, column: Any, op: Op, scalar: pa.Scalar) -> Any:
        plain = _BUILT[_FUNCTIONS[op]](column, pc.scalar(scalar))
        if not scalar.is_valid:
            return plain
        if is_nan(scalar):
            nan = pc.is_nan(column)  # null where the column is
            never, always = nan & ~nan, nan | ~nan
            return {"=": nan, ">=": nan, "!=": ~nan, "<": ~nan, ">": never, "<=": always}[op]
        return plain | pc.is_nan(column) if op in (">", ">=") else plain


class _Rows:
    def __init__(self, columns: Mapping[str, TableColumn]) -> None:
        self._columns = columns

    def predicate(self, node: Node, *, wanted: bool) -> Predicate:
        """Return a predicate for the rows where the node is true, or false unless `wanted`."""
        if isinstance(node, pa.Scalar):
            if not pa.types.is_boolean(node.type) and node.is_valid:
                return Unknown("a constant that is not a boolean")
            return And(()) if node.is_valid and node.as_py() is wanted else Or(())
        if isinstance(node, Field):
            column = self._column(node)
            if column is None or column.value(pa.scalar(True)) is None:
                return Unknown(f"{node.name} as a condition")
            return column.is_true(wanted)
        function, arguments = node.function, node.arguments
        if function == "invert":
            return self.predicate(arguments[0], wanted=not wanted)
        if function in _BOTH + _EITHER:
            operands = tuple(self.predicate(operand, wanted=wanted) for operand in arguments)
            return And(operands) if (function in _BOTH) == wanted else Or(operands)
        return self._leaf(node, wanted)

    def _leaf(self, node: Call, wanted: bool) -> Predicate:
        function, arguments = node.function, node.arguments
        if function in _OPS and len(arguments) == 2:
            left, right, op = *arguments, _OPS[function]
            if isinstance(left, pa.Scalar):
                left, right, op = right, left, FLIPPED[op]
            column = self._column(left)
            if column is not None and isinstance(right, pa.Scalar):
                return _compare(column, op, right, wanted)
            return Unknown("a comparison other than of a column with a constant")
        column = self._column(arguments[0]) if arguments else None
        if column is None:
            return Unknown(f"{function} of something other than a column")
        match function:
            case "is_null":
                nan = wanted and column.floats and bool(node.options.get("nan_is_null", True))
                is_null = column.is_null(wanted)
                return Or((is_null, column.is_nan())) if nan else is_null
            case "is_valid":
                return column.is_null(not wanted)
            case "is_nan" if wanted and column.floats:
                return column.is_nan()
            case "is_in":
                return _in_list(column, node.options["value_set"], wanted)
            case "starts_with" | "ends_with" | "match_substring" if (
                node.options.get("ignore_case") is False
            ):
                return column.has_text(_TEXTS[function], node.options["pattern"], wanted)
        return Unknown(f"{function} of {column.name}")

    def _column(self, node: object) -> ColumnLeaves | None:
        if not isinstance(node, Field) or node.nested:
            return None
        return indexed_leaves(self._columns, node.name)


def _compare(column: ColumnLeaves, op: Op, scalar: pa.Scalar, wanted: bool) -> Predicate:
    if not scalar.is_valid:
        return Or(())
    value = column.value(scalar)
    if value is None:
        return Unknown(f"{column.name} compared with a {scalar.type}")
    if wanted:
        return column.compare(op, value)
    other = column.compare(OPPOSITE[op], value)
    return Or((other, column.is_nan())) if column.floats and op != "!=" else other


def _in_list(column: ColumnLeaves, given: pa.Array, wanted: bool) -> Predicate:
    values = column.comparable(given.drop_null())
    if values is None or (column.floats and given.type != column.type):
        return Unknown(f"{column.name} in a list of {given.type}")
    found = column.is_in(values, wanted)
    return Or((found, column.is_null(True))) if wanted and given.null_count else found
