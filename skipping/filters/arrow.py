"""Filters as Arrow evaluates them (`pyarrow.compute.Expression`), as predicates for an index.

Arrow's filter decides which rows there are; the index is asked a predicate that holds for each of
them. The rules, with what would be lost without them:

=============================  =====================================================================
NaN                            No comparison of it is true but `!=`. Under a NOT each is, so
                               `~(x > 5)` returns NaN, which here is the greatest value: it is asked
                               for beside `x <= 5`. What is compared with NaN is unknown.
nulls                          A comparison of null is null, `is_in` is false: `~x.isin([1])`
                               returns nulls, and `x.isin([None])` may.
-0.0                           `==` takes the zeros for one, `is_in` compares bits: `~x.isin([0.0])`
                               returns -0.0, so no zero and no NaN is excluded.
is_null(nan_is_null=True)      asks for NaN, too.
types                          A value of another kind than the column is cast, or the column is:
                               unknown, but for integers of any width, and those beside floats that
                               have them exactly. Rows of another kind than the index has, such as
                               times of which only one has a zone, are unknown.
dictionaries                   A Polars Enum orders them by their places, Arrow by their values:
                               only equality is known.
fields of structs              Arrow reads below a null struct what lies there: unknown.
=============================  =====================================================================

Functions, casts, comparisons of two columns and everything else are unknown: they prune no file,
and Arrow evaluates them all the same.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from providers.predicate import (
    OPPOSITE,
    And,
    Compare,
    Contains,
    EndsWith,
    In,
    IsNull,
    Op,
    Or,
    Predicate,
    StartsWith,
    Unknown,
)
from providers.values import arrow_type, canonical_type, domain_of
from skipping.filters.arrow_tree import (
    Call,
    Field,
    Node,
    conjuncts,
    field_names,
    parse_expression,
    path_of,
)
from skipping.tables import TableColumn

__all__ = ["Comparison", "Translated", "in_total_order", "not_null_beside_nan", "translate"]

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
_FLIPPED: dict[Op, Op] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_BOTH = ("and", "and_kleene")
_EITHER = ("or", "or_kleene")
_EXACT = 2**53
_NULL = pa.scalar(None, pa.bool_())


@dataclass(frozen=True, slots=True)
class Translated:
    """What holds for each row that an expression is true of, and the top-level columns it names.

    `columns` is None where they are not known: then it may name any.
    """

    predicate: Predicate
    columns: frozenset[str] | None


def translate(expression: Any, columns: Mapping[str, TableColumn]) -> Translated:
    """An Arrow expression on the rows of a table; `columns` by the names that it has for them."""
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
    """A filter that an engine handed to Arrow, evaluated as the engine would.

    DuckDB takes NaN for the greatest value, and relies on a dataset to filter as it would; Arrow's
    comparisons leave NaN out. It takes the zeros for one, also in lists, where Arrow compares bits.
    In SQL no null is outside of a list, in Arrow each is. An expression that cannot be read stays
    as it is.
    """
    floats = set(_float_paths(schema))
    try:
        return _Ordered(floats).expression(parse_expression(expression))
    except Exception:
        return expression


def not_null_beside_nan(expression: Any, fields: Iterable[pa.Field]) -> Any:
    """A filter of DuckDB's without the nulls that are in it where a float is asked to be `<= NaN`.

    DuckDB hands Arrow a plain `true` for that, which is so but for null, and does not say of which
    column, nor whether it compares the rows again. So one at least of the floats that are read has
    a value: of several, more rows may be left than DuckDB's own tables give, and never less. Also
    of those with a condition beside it: in `d BETWEEN 1 AND NaN` it is of d again.
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
    """An expression built again, node by node; raises KeyError for what it cannot build."""

    def __init__(self, floats: Set[tuple[str, ...]]) -> None:
        self._floats = floats

    def expression(self, node: Node, *, nulls: bool = False) -> Any:
        """With `nulls` it makes a difference whether the node is null or false."""
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
                left, right, op = right, left, _FLIPPED[op]
            if isinstance(right, pa.Scalar):
                return self._compared(pc.field(path_of(left)), op, right)
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

    def _compared(self, column: Any, op: Op, scalar: pa.Scalar) -> Any:
        plain = _BUILT[_FUNCTIONS[op]](column, pc.scalar(scalar))
        if not scalar.is_valid:
            return plain
        if _is_nan(scalar):
            nan = pc.is_nan(column)  # null where the column is
            never, always = nan & ~nan, nan | ~nan
            return {"=": nan, ">=": nan, "!=": ~nan, "<": ~nan, ">": never, "<=": always}[op]
        return plain | pc.is_nan(column) if op in (">", ">=") else plain


class Comparison:
    """Leaves on one column, by what a value of an engine's is beside it."""

    def __init__(self, column: TableColumn) -> None:
        self.name = column.name
        indexed = arrow_type(column.type) if column.refusal is None else None
        rows = column.read_as or indexed
        domain = None if rows is None else domain_of(rows)
        self.known = indexed is not None and domain is not None and domain == domain_of(indexed)
        self.type: pa.DataType = canonical_type(rows) if self.known else pa.null()
        self.floats = pa.types.is_floating(self.type)
        self.ordered = not pa.types.is_dictionary(rows)
        self._widest = self.known and canonical_type(pa.uint64()) == self.type != rows

    def compare(self, op: Op, value: Any) -> Predicate:
        """The column compared with a value that `value` gave; unknown where orders differ."""
        if self.ordered or op in ("=", "!="):
            return Compare(self.name, op, value)
        return Unknown(f"the order of {self.name}, which is a dictionary")

    def listed(self, values: pa.Array) -> pa.Array | None:
        """Values, none of them null, that the column is compared with; None if they are others."""
        if self._widest and pa.types.is_integer(values.type):
            return values.cast(self.type)
        return values if domain_of(values.type) == domain_of(self.type) else None

    def value(self, scalar: pa.Scalar) -> pa.Scalar | None:
        """The scalar as a value that the column is compared with, exactly; None if it is none."""
        if not self.known or not scalar.is_valid:
            return None
        if pa.types.is_dictionary(scalar.type) or _is_nan(scalar):
            return None
        if self.type == pa.float32() and pa.types.is_floating(scalar.type):
            # Of a wider one it depends on who casts which.
            narrow = scalar.cast(pa.float32(), safe=False)
            return scalar if narrow.as_py() == scalar.as_py() else None
        if domain_of(scalar.type) == domain_of(self.type):
            return scalar
        if self._widest and pa.types.is_integer(scalar.type):
            return scalar
        if pa.types.is_unsigned_integer(scalar.type) and pa.types.is_integer(self.type):
            return pa.scalar(scalar.as_py(), pa.int64()) if scalar.as_py() < 2**63 else None
        if self.floats and pa.types.is_integer(scalar.type):
            most = _EXACT if pa.types.is_float64(self.type) else 2**24
            return pa.scalar(float(scalar.as_py())) if abs(scalar.as_py()) <= most else None
        return None

    def nan(self) -> Compare:
        """The column is NaN."""
        return Compare(self.name, "=", pa.scalar(math.nan, self.type))


class _Rows:
    def __init__(self, columns: Mapping[str, TableColumn]) -> None:
        self._columns = columns

    def predicate(self, node: Node, *, wanted: bool) -> Predicate:
        """Holds for each row of which the node is true, or, with `wanted` False, is false."""
        if isinstance(node, pa.Scalar):
            if not pa.types.is_boolean(node.type) and node.is_valid:
                return Unknown("a constant that is no boolean")
            return And(()) if node.is_valid and node.as_py() is wanted else Or(())
        if isinstance(node, Field):
            column = self._column(node)
            if column is None or column.value(pa.scalar(True)) is None:
                return Unknown(f"{node.name} as a condition")
            return Compare(column.name, "=", wanted)
        function, arguments = node.function, node.arguments
        if function == "invert":
            return self.predicate(arguments[0], wanted=not wanted)
        if function in _BOTH + _EITHER:
            legs = tuple(self.predicate(leg, wanted=wanted) for leg in arguments)
            return And(legs) if (function in _BOTH) == wanted else Or(legs)
        return self._leaf(node, wanted)

    def _leaf(self, node: Call, wanted: bool) -> Predicate:
        function, arguments = node.function, node.arguments
        if function in _OPS and len(arguments) == 2:
            left, right, op = *arguments, _OPS[function]
            if isinstance(left, pa.Scalar):
                left, right, op = right, left, _FLIPPED[op]
            column = self._column(left)
            if column is not None and isinstance(right, pa.Scalar):
                return _compared(column, op, right, wanted)
            return Unknown("a comparison that is not of a column with a constant")
        column = self._column(arguments[0]) if arguments else None
        if column is None:
            return Unknown(f"{function} of what is no column")
        match function:
            case "is_null":
                nan = column.floats and bool(node.options.get("nan_is_null", True))
                if not wanted:
                    return IsNull(column.name, negated=True)
                return Or((IsNull(column.name), column.nan())) if nan else IsNull(column.name)
            case "is_valid":
                return IsNull(column.name, negated=wanted)
            case "is_nan" if wanted and column.floats:
                return column.nan()
            case "is_in":
                return _listed(column, node.options, wanted)
            case "starts_with" if node.options.get("ignore_case") is False:
                return StartsWith(column.name, node.options["pattern"], negated=not wanted)
            case "ends_with" if node.options.get("ignore_case") is False:
                return EndsWith(column.name, node.options["pattern"], negated=not wanted)
            case "match_substring" if node.options.get("ignore_case") is False:
                return Contains(column.name, node.options["pattern"], negated=not wanted)
        return Unknown(f"{function} of {column.name}")

    def _column(self, node: object) -> Comparison | None:
        if not isinstance(node, Field) or node.nested or node.name not in self._columns:
            return None
        column = Comparison(self._columns[node.name])
        return column if column.known else None


def _compared(column: Comparison, op: Op, scalar: pa.Scalar, wanted: bool) -> Predicate:
    if not scalar.is_valid:
        return Or(())
    value = column.value(scalar)
    if value is None:
        return Unknown(f"{column.name} beside a {scalar.type}")
    if wanted:
        return column.compare(op, value)
    other = column.compare(OPPOSITE[op], value)
    return Or((other, column.nan())) if column.floats and op != "!=" else other


def _listed(column: Comparison, options: Mapping[str, Any], wanted: bool) -> Predicate:
    given: pa.Array = options["value_set"]
    listed = column.listed(given.drop_null())
    if listed is None or (column.floats and given.type != column.type):
        return Unknown(f"{column.name} in a list of {given.type}")
    if wanted:
        some = In(column.name, listed)
        return Or((some, IsNull(column.name))) if given.null_count else some
    if column.floats:
        listed = pa.array([v for v in listed.to_pylist() if v != 0 and v == v], listed.type)
    if not len(listed):
        return Unknown(f"{column.name} not in a list")
    return Or((In(column.name, listed, negated=True), IsNull(column.name)))


def _is_nan(scalar: pa.Scalar) -> bool:
    return pa.types.is_floating(scalar.type) and math.isnan(scalar.as_py())
