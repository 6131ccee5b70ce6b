"""Write and read predicates as JSON: a worker process sends them, the service looks them up.

A forged manifest may have taken over a worker, so `read_predicate` checks the form of each part,
and the index rejects values that do not fit its columns. Binary values are hexadecimal, decimals
are text, dates and times are numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, get_args

import pyarrow as pa

from providers.predicate import (
    And,
    Compare,
    In,
    IsNull,
    Op,
    Or,
    Predicate,
    StartsWith,
    Unknown,
    fold,
)
from providers.values import arrow_type
from skipping.tables import Columns, TableColumn

_DEEPEST = 200


def write_predicate(predicate: Predicate, columns: Columns) -> dict[str, Any]:
    """Convert a predicate and the columns of its leaves to JSON."""
    named: dict[str, Any] = {}

    def leaf(leaf: Any) -> Any:
        node = _encode_leaf(leaf)
        if "column" in node:
            column = columns[node["column"]]
            named[column.name] = [column.identity, column.type, column.refusal]
        return node

    def join(node: Any, legs: Sequence[Any]) -> Any:
        return {"is": "and" if isinstance(node, And) else "or", "legs": list(legs)}

    tree = fold(predicate, leaf=leaf, join=join)
    return {"predicate": tree, "columns": named}


def _encode_leaf(leaf: Any) -> dict[str, Any]:
    match leaf:
        case Compare(column, op, value):
            typed = isinstance(value, pa.Scalar)
            value = _plain(pa.array([value]))[0] if typed else value
            return {"is": "compare", "column": column, "op": op, "value": value, "typed": typed}
        case In(column, values, negated):
            return {"is": "in", "column": column, "values": _plain(values), "not": negated}
        case IsNull(column, negated):
            return {"is": "null", "column": column, "not": negated}
        case StartsWith(column, str() | bytes() as prefix, negated):
            prefix = prefix.hex() if isinstance(prefix, bytes) else prefix
            return {"is": "starts", "column": column, "value": prefix, "not": negated}
        case _:
            return {"is": "unknown"}


def _plain(values: pa.Array) -> list[Any]:
    if pa.types.is_decimal(values.type):
        return [str(value) for value in values.to_pylist()]
    if pa.types.is_binary(values.type):
        return [value.hex() for value in values.to_pylist()]
    if counted := _integer_type(values.type):
        values = values.cast(counted)
    return list(values.to_pylist())


def _integer_type(type: pa.DataType) -> pa.DataType | None:
    if pa.types.is_date32(type):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(type) else None


def read_predicate(said: Mapping[str, Any]) -> tuple[Predicate, Columns]:
    """Read a predicate and its columns from JSON; raise ValueError for any other JSON."""
    try:
        columns = Columns(
            TableColumn(_text(name), _text(identity), _text(type), refusal=refusal)
            for name, (identity, type, refusal) in said["columns"].items()
        )
        return _read_node(said["predicate"], columns), columns
    except (KeyError, TypeError, AttributeError, ArithmeticError, pa.ArrowException) as error:
        raise ValueError(f"not a predicate: {type(error).__name__}") from error


def _read_node(node: Any, columns: Columns, depth: int = 0) -> Predicate:
    if depth > _DEEPEST:
        raise ValueError("the predicate is nested too deeply")
    if node["is"] in ("and", "or"):
        operands = tuple(_read_node(each, columns, depth + 1) for each in node["legs"])
        return And(operands) if node["is"] == "and" else Or(operands)
    if node["is"] == "unknown":
        return Unknown("a condition that no index supports")
    read: Callable[[str, pa.DataType, Any], Predicate] = _LEAVES[node["is"]]
    column = columns[node["column"]]
    type = arrow_type(column.type)
    if type is None:
        raise ValueError(f"{column.type} cannot be indexed")
    return read(column.name, type, node)


def _compare(column: str, type: pa.DataType, node: Any) -> Compare:
    value = node["value"]
    if node["op"] not in get_args(Op):
        raise ValueError("not a comparison")
    if node["typed"] is True:
        return Compare(column, node["op"], _array([value], type)[0])
    if not isinstance(value, float | int):
        raise ValueError("not a number")
    return Compare(column, node["op"], value)


def _in(column: str, type: pa.DataType, node: Any) -> In:
    return replace(In.of(column, _array(node["values"], type)), negated=node["not"] is True)


def _null(column: str, type: pa.DataType, node: Any) -> IsNull:
    return IsNull(column, negated=node["not"] is True)


def _starts(column: str, type: pa.DataType, node: Any) -> StartsWith:
    text = _text(node["value"])
    prefix = bytes.fromhex(text) if pa.types.is_binary(type) else text
    return StartsWith(column, prefix, negated=node["not"] is True)


_LEAVES: Mapping[str, Any] = {"compare": _compare, "in": _in, "null": _null, "starts": _starts}


def _array(values: Any, type: pa.DataType) -> pa.Array:
    if not isinstance(values, list) or None in values:
        raise ValueError("not a list of values")
    if pa.types.is_decimal(type):
        return pa.array([Decimal(_text(value)) for value in values], type)
    if pa.types.is_binary(type):
        return pa.array([bytes.fromhex(_text(value)) for value in values], type)
    counted = _integer_type(type)
    return pa.array(values, type) if counted is None else pa.array(values, counted).cast(type)


def _text(given: Any) -> str:
    if not isinstance(given, str):
        raise ValueError("not text")
    return given
