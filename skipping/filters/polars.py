"""Translate filters of Polars (`polars.Expr`) to predicates for an index.

Polars compares like Spark: NaN is the largest value and equals itself, -0.0 equals 0.0, text is
ordered by its bytes, and a comparison with null is null, which a filter drops. The rules below name
the rows that a plain translation would lose:

=============================  =====================================================================
literals                       A plain number is cast to the column's type, or both to a wider one.
                               So only integers on integer columns are translated, and floats that
                               the column's type represents exactly.
`is_in`                        Polars ignores a null in the list, so `~x.is_in([1, None])` returns
                               2; with `nulls_equal` nulls are values. Its negation excludes no null
                               and no zero.
non-booleans                   `&`, `|` and `~` of numbers are bitwise: unknown.
=============================  =====================================================================

Functions, casts, arithmetic, comparisons of two columns and everything else are unknown: they prune
no file, and Polars evaluates them anyway. Expressions are read from their JSON form.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc

from providers.predicate import FLIPPED, OPPOSITE, And, Op, Or, Predicate, Unknown
from skipping.filters.leaves import ColumnLeaves, TextTest, indexed_leaves
from skipping.tables import TableColumn

_OPS: dict[str, Op] = {"Eq": "=", "NotEq": "!=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_INTEGERS = {f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)}
_ELEMENTWISE = {
    "Boolean": {
        "Not",
        "IsNull",
        "IsNotNull",
        "IsNan",
        "IsNotNan",
        "IsFinite",
        "IsIn",
        "IsBetween",
        "AnyHorizontal",
        "AllHorizontal",
    },
    "StringExpr": {"StartsWith", "EndsWith", "Contains", "Uppercase", "Lowercase", "LenBytes"},
}
"""Functions that read one row; an aggregate reads all."""
_TEXTS: dict[str, TextTest] = {
    "StartsWith": "starts_with",
    "EndsWith": "ends_with",
    "Contains": "contains",
}


def is_elementwise(expression: Any) -> bool:
    """Return whether an expression is known to read one row at a time."""
    try:
        return all(map(_reads_one_row, _nodes(_tree(expression))))
    except Exception:  # another release may write another form
        return False


def translate_polars(expression: Any, columns: Mapping[str, TableColumn]) -> Predicate:
    """Translate an expression to a predicate for its rows; `columns` are by name in the rows."""
    try:
        return _Rows(columns).predicate(_tree(expression), wanted=True)
    except Exception as error:  # another release may write another form
        return Unknown(f"an expression of Polars: {error}")


def _tree(expression: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "the form may change": handled
        return json.loads(expression.meta.serialize(format="json"))


def _nodes(tree: Any) -> Iterator[Any]:
    todo = [tree]
    while todo:
        node = todo.pop()
        yield node
        ((kind, inner),) = node.items()
        match kind:
            case "BinaryExpr":
                todo += [inner["left"], inner["right"]]
            case "Function":
                todo += inner["input"]
            case "Cast":
                todo.append(inner["expr"])
            case "Alias":
                todo.append(inner[0])


def _reads_one_row(node: Any) -> bool:
    ((kind, inner),) = node.items()
    if kind == "Function":
        family, name = _function(inner)
        return name in _ELEMENTWISE.get(family, ())
    if kind == "Literal":
        # A Series has rows of its own, unless it is one list of values (`Series.implode`).
        return set(inner) <= {"Dyn", "Scalar"} or _is_one_list(_read_series(inner["Series"]))
    return kind in ("BinaryExpr", "Column", "Cast")


def _function(inner: Any) -> tuple[str, str]:
    if not isinstance(inner["function"], dict):
        return "", str(inner["function"])
    ((family, name),) = inner["function"].items()
    return family, next(iter(name)) if isinstance(name, dict) else str(name)


class _Rows:
    def __init__(self, columns: Mapping[str, TableColumn]) -> None:
        self._columns = columns

    def predicate(self, node: Any, *, wanted: bool) -> Predicate:
        """Return a predicate for the rows where the node is true, or false unless `wanted`."""
        ((kind, inner),) = node.items()
        if kind == "BinaryExpr":
            return self._binary(inner["op"], inner["left"], inner["right"], wanted)
        if kind == "Function":
            return self._call(inner, wanted)
        if kind == "Column":
            column = self._column(node)
            if column is not None and pa.types.is_boolean(column.type):
                return column.is_true(wanted)
        return Unknown(f"{kind} as a condition")

    def _binary(self, op: str, left: Any, right: Any, wanted: bool) -> Predicate:
        if op in ("And", "LogicalAnd", "Or", "LogicalOr"):
            operands = tuple(self.predicate(operand, wanted=wanted) for operand in (left, right))
            return And(operands) if op.endswith("And") == wanted else Or(operands)
        if op not in _OPS:
            return Unknown(f"{op} in Polars")
        compared = _OPS[op]
        if "Literal" in left:
            left, right, compared = right, left, FLIPPED[compared]
        return self._compare(left, compared if wanted else OPPOSITE[compared], right)

    def _compare(self, left: Any, op: Op, right: Any) -> Predicate:
        column = self._column(left)
        if column is None or "Literal" not in right:
            return Unknown("a comparison other than of a column with a constant")
        value = _value(right["Literal"], column)
        if value is None:
            return Unknown(f"{column.name} compared with another type")
        return column.compare(op, value)

    def _call(self, inner: Any, wanted: bool) -> Predicate:
        (family, name), arguments = _function(inner), inner["input"]
        if (family, name) == ("Boolean", "Not"):
            return self.predicate(arguments[0], wanted=not wanted)
        if (family, name) in (("Boolean", "AnyHorizontal"), ("Boolean", "AllHorizontal")):
            operands = tuple(self.predicate(operand, wanted=wanted) for operand in arguments)
            return And(operands) if (name == "AllHorizontal") == wanted else Or(operands)
        column = self._column(arguments[0])
        if column is None:
            return Unknown(f"{name} of something other than a column")
        match family, name:
            case "Boolean", "IsNull" | "IsNotNull":
                return column.is_null((name == "IsNull") == wanted)
            case "Boolean", "IsNan" if wanted and column.floats:
                return column.is_nan()
            case "Boolean", "IsIn" if inner["function"]["Boolean"]["IsIn"]["nulls_equal"] is False:
                return _in_list(column, arguments[1], wanted)
            case "Boolean", "IsBetween" if wanted:
                closed = inner["function"]["Boolean"]["IsBetween"]["closed"]
                low: Op = ">=" if closed in ("Both", "Left") else ">"
                high: Op = "<=" if closed in ("Both", "Right") else "<"
                first = self._compare(arguments[0], low, arguments[1])
                return And((first, self._compare(arguments[0], high, arguments[2])))
            case "StringExpr", "StartsWith" | "EndsWith" | "Contains" if pa.types.is_string(
                column.type
            ):
                text = _value(arguments[1]["Literal"], column)
                exact = name != "Contains" or inner["function"]["StringExpr"][name]["literal"]
                if text is not None and exact is True:
                    return column.has_text(_TEXTS[name], text.as_py(), wanted)
        return Unknown(f"{name} of {column.name}")

    def _column(self, node: Any) -> ColumnLeaves | None:
        return indexed_leaves(self._columns, node["Column"]) if "Column" in node else None


def _value(literal: Any, column: ColumnLeaves) -> pa.Scalar | None:
    """Return the scalar that the column is compared with, exactly; None if that is unclear."""
    ((form, inner),) = literal.items()
    kind: str
    value: Any
    ((kind, value),) = inner.items() if isinstance(inner, dict) else ((inner, None),)
    scalar: pa.Scalar | None = None
    if (form, kind) == ("Dyn", "Int") or kind in _INTEGERS:
        scalar = pa.scalar(int(value), pa.uint64() if int(value) >= 2**63 else pa.int64())
    elif (form, kind) == ("Dyn", "Float") or kind in ("Float32", "Float64"):
        scalar = pa.scalar(float(value), pa.float64())
        with np.errstate(over="ignore"):
            narrowed = float(np.float32(value))
        if column.type == pa.float32() and narrowed != value:
            return None
    elif kind in ("Str", "String"):
        scalar = pa.scalar(str(value))
    elif kind == "Boolean" and isinstance(value, bool):
        scalar = pa.scalar(value)
    elif kind == "Date":
        scalar = pa.scalar(int(value), pa.int32()).cast(pa.date32())
    return None if scalar is None else column.value(scalar)


def _read_series(written: Any) -> pa.Array:
    (batch,) = ipc.open_stream(bytes(written)).read_all().to_batches()
    return batch.column(0)


def _is_one_list(values: pa.Array) -> bool:
    return len(values) == 1 and (
        pa.types.is_list(values.type) or pa.types.is_large_list(values.type)
    )


def _in_list(column: ColumnLeaves, node: Any, wanted: bool) -> Predicate:
    literal = node["Literal"]
    if "Series" in literal:
        values = _read_series(literal["Series"])
        if not _is_one_list(values) or not values.is_valid()[0].as_py():
            return Unknown(f"{column.name} in a Series")
        values = values.flatten()
    else:
        values = _read_series(literal["Scalar"]["List"])
    if pa.types.is_large_string(values.type) or pa.types.is_string_view(values.type):
        values = values.cast(pa.string())
    comparable = column.comparable(values.drop_null())
    if comparable is None or column.type == pa.float32():
        return Unknown(f"{column.name} in a list of {values.type}")
    return column.is_in(comparable, wanted)
