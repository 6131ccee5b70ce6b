"""Read the filters of Iceberg scan requests: JSON from any client.

An unsupported part is replaced with true, also below NOT. So the result holds for each row that the
client's filter returns. Conditions on partitions must be exact, because Spark does not evaluate
them again, and may compute counts from the planned files alone. So partition values are compared
exactly, also through transforms (`bucket[16](id) = 3`). A filter with an unsupported condition on
partition columns is not `exact`.

A client may use column names of the current schema, of the snapshot's schema, or from before a
rename. A name is resolved only if it has always belonged to the same column.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from decimal import Context, Decimal, localcontext
from typing import Any, TypeAlias

import numpy as np
from pyiceberg import expressions as iceberg
from pyiceberg.expressions.visitors import bind, inclusive_projection
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import (
    DayTransform,
    IdentityTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
    parse_transform,
)
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    TimeType,
)

from skipping.tables.bounds import find_transform

_DEEPEST = 60
"""Maximum depth of alternating And, Or and Not; chains of one operator may have any length."""

_MOST = 200_000
"""Maximum of values in all lists of a filter: a second or two of work."""

_LEAF = 50
"""The cost of a condition, in values of a list."""

_UNARY: dict[str, Any] = {
    "is-null": iceberg.IsNull,
    "not-null": iceberg.NotNull,
    "is-nan": iceberg.IsNaN,
    "not-nan": iceberg.NotNaN,
}
_BINARY: dict[str, Any] = {
    "eq": iceberg.EqualTo,
    "not-eq": iceberg.NotEqualTo,
    "lt": iceberg.LessThan,
    "lt-eq": iceberg.LessThanOrEqual,
    "gt": iceberg.GreaterThan,
    "gt-eq": iceberg.GreaterThanOrEqual,
    "starts-with": iceberg.StartsWith,
    "not-starts-with": iceberg.NotStartsWith,
}
_LISTS: dict[str, Any] = {"in": iceberg.In, "not-in": iceberg.NotIn}


class Names:
    """Resolves names in filters to columns of the current schema, by every name they ever had.

    Names are case-insensitive: columns whose names differ only in case are ambiguous.
    """

    def __init__(self, metadata: TableMetadata) -> None:
        self.schema: Schema = metadata.schema()
        self._ids: defaultdict[str, set[int]] = defaultdict(set)
        for schema in metadata.schemas:
            for id in schema.field_ids:
                self._ids[str(schema.find_column_name(id)).lower()].add(id)
        self._sources = {f.source_id for spec in metadata.partition_specs for f in spec.fields}

    def column(self, name: str) -> int | None:
        """Return the id of a column; None if the table has dropped it, or the name is ambiguous."""
        ids = self._ids.get(name.lower(), set())
        id = next(iter(ids), None) if len(ids) == 1 else None
        return id if id is not None and self.schema.find_column_name(id) is not None else None

    def is_partitioned(self, name: str) -> bool:
        """Return whether a column with this name, now or earlier, is a source of partitions."""
        return not self._sources.isdisjoint(self._ids.get(name.lower(), ()))

    @property
    def any_partitioned(self) -> bool:
        """Whether some spec has partitions."""
        return bool(self._sources)

    @property
    def unclear(self) -> bool:
        """Whether a source column of partitions has an ambiguous name, or is gone."""
        return any(
            len(ids) > 1 or any(self.schema.find_column_name(id) is None for id in ids)
            for ids in self._ids.values()
            if not self._sources.isdisjoint(ids)
        )


@dataclass(frozen=True, slots=True)
class _Leaf:
    id: int
    predicate: Any
    negated: bool
    transform: Transform[Any, Any]

    def rows(self) -> Any:
        if not isinstance(self.transform, IdentityTransform):
            return iceberg.AlwaysTrue()
        # Keep the Not: `NOT x > 5` is not `x <= 5` if x is NaN (`filters.pyiceberg`).
        return iceberg.Not(self.predicate) if self.negated else self.predicate

    def partitions(self, schema: Schema, spec: PartitionSpec) -> Any:
        predicate = ~self.predicate if self.negated else self.predicate
        if isinstance(self.transform, IdentityTransform):
            if self._is_truncated(schema, spec):
                return iceberg.AlwaysTrue()
            projected = inclusive_projection(schema, spec, True)(predicate)
            of = schema.find_type(self.id)
            early = {part.name for part in spec.fields if _is_early(part.transform, of)}
            return _with_early(projected, early)
        for part in spec.fields:
            if part.source_id == self.id and part.transform == self.transform:
                return _rename(predicate, part.name)
        return iceberg.AlwaysTrue()

    def _is_truncated(self, schema: Schema, spec: PartitionSpec) -> bool:
        """Return whether a value is so small that Java's truncation overflows to a large one."""
        of = schema.find_type(self.id)
        if not isinstance(of, IntegerType | LongType):
            return False
        widths = [
            part.transform.width
            for part in spec.fields
            if part.source_id == self.id and isinstance(part.transform, TruncateTransform)
        ]
        return any(
            not isinstance(value, int) or value < type(of).min + width
            for width in widths
            for value in _literals(self.predicate)
        )


@dataclass(frozen=True, slots=True)
class _Joined:
    """All operands hold if `every`, else at least one."""

    every: bool
    operands: tuple[_Node, ...] = ()


_Node: TypeAlias = "_Joined | _Leaf"
_TRUE, _FALSE = _Joined(True), _Joined(False)


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter without NOT above its leaves, on the columns of `schema`.

    `understood`: every part was supported. `exact`: no unsupported part can select partitions.
    """

    schema: Schema
    _root: _Node = _TRUE
    understood: bool = True
    exact: bool = True
    column: str | None = None
    """A column that the filter reads, by the client's name; None if no name was found."""

    @property
    def rows(self) -> Any:
        """A filter that holds for every row that the client's filter returns."""
        return _fold(self._root, _Leaf.rows)

    def partitions(self, spec: PartitionSpec) -> Any:
        """Project the filter to the partition fields of `spec`; the result has their names."""
        return _fold(self._root, lambda leaf: leaf.partitions(self.schema, spec))


def read_filter(given: Any, names: Names) -> Filter:
    """Convert a filter from `json.loads`. None is a filter that all rows satisfy. Never raises."""
    if given is None:
        return Filter(names.schema)
    reader = _Reader(names)
    root = reader.node(given, wanted=True, depth=0)
    return Filter(names.schema, root, reader.understood, reader.exact, reader.column)


@dataclass(slots=True)
class _Reader:
    names: Names
    understood: bool = field(default=True)
    exact: bool = field(default=True)
    column: str | None = field(default=None)
    values: int = field(default=0)

    def node(self, given: Any, *, wanted: bool, depth: int) -> _Node:
        """Return a node that holds wherever the expression is true (false if not `wanted`)."""
        if isinstance(given, bool):
            return _TRUE if given == wanted else _FALSE
        if not isinstance(given, Mapping) or depth > _DEEPEST:
            return self._unknown(None)
        type = str(given.get("type")).lower().replace("_", "-")
        if type in ("and", "or"):
            inner = _chain(given, type)
            operands = tuple(self.node(each, wanted=wanted, depth=depth + 1) for each in inner)
            return _Joined((type == "and") == wanted, operands)
        if type == "not":
            return self.node(given.get("child"), wanted=not wanted, depth=depth + 1)
        if type in ("literal", "true", "false"):
            value = given.get("value") if type == "literal" else type == "true"
            return self.node(value if isinstance(value, bool) else None, wanted=wanted, depth=depth)
        return self._leaf(type, given, wanted=wanted)

    def _leaf(self, type: str, given: Mapping[str, Any], *, wanted: bool) -> _Node:
        name, transform = _term(given.get("term", given.get("left")))
        self.column = name or self.column
        self.values += _LEAF
        id = None if name is None else self.names.column(name)
        if id is None or transform is None or self.values > _MOST:
            return self._unknown(name)
        column = str(self.names.schema.find_column_name(id))
        source = self.names.schema.find_type(id)
        try:
            typed = transform.result_type(source)
            predicate = self._predicate(type, column, typed, given)
            if isinstance(transform, IdentityTransform):
                bind(self.names.schema, predicate, True)
            elif not isinstance(predicate, iceberg.AlwaysTrue | iceberg.AlwaysFalse):
                field = NestedField(1, "transformed", typed, required=False)
                bind(Schema(field), _rename(predicate, field.name), True)
        except Exception:  # PyIceberg raises many types of errors
            return self._unknown(name)
        if isinstance(predicate, iceberg.AlwaysTrue | iceberg.AlwaysFalse):  # empty lists
            return self.node(isinstance(predicate, iceberg.AlwaysTrue), wanted=wanted, depth=0)
        return _Leaf(id, predicate, not wanted, transform)

    def _predicate(self, type: str, column: str, of: IcebergType, given: Mapping[str, Any]) -> Any:
        if type in _UNARY:
            return _UNARY[type](column)
        if type not in _LISTS:
            return _BINARY[type](column, _value(given.get("value", given.get("right")), of))
        values = given.get("values", given.get("right"))
        if not isinstance(values, list):
            raise TypeError("no list of values")
        self.values += len(values)
        if self.values > _MOST:
            raise ValueError("too many values")
        return _LISTS[type](column, [_value(value, of) for value in values])

    def _unknown(self, name: str | None) -> _Node:
        names = self.names
        self.understood = False
        if names.any_partitioned if name is None else names.is_partitioned(name):
            self.exact = False
        return _TRUE


def _chain(given: Mapping[str, Any], type: str) -> Iterator[Any]:
    todo: list[Any] = [given]
    while todo:
        each = todo.pop()
        if isinstance(each, Mapping) and str(each.get("type")).lower() == type:
            todo += [each.get("right"), each.get("left")]
        else:
            yield each


def _term(given: Any) -> tuple[str | None, Transform[Any, Any] | None]:
    """Return the column and the transform of a term; None for an unsupported one."""
    if isinstance(given, str):
        return given, IdentityTransform()
    if not isinstance(given, Mapping):
        return None, None
    type = str(given.get("type")).lower()
    inner = given.get("term", given.get("name"))
    if type == "reference":
        return _term(inner if isinstance(inner, str) else None)
    name, _ = _term(inner)
    try:
        transform = parse_transform(given.get("transform")) if type == "transform" else None
    except Exception:  # PyIceberg raises many types of errors
        transform = None
    known = isinstance(transform, Transform) and not isinstance(transform, UnknownTransform)
    return name, transform if known else None


def _value(given: Any, of: IcebergType) -> Any:
    """Convert a JSON value for a PyIceberg column of a type; raise TypeError or ValueError."""
    if isinstance(given, Mapping) and str(given.get("type")).lower() == "literal":
        given = given.get("value")
    if given is None or isinstance(given, list | dict):
        raise TypeError("no value")
    if isinstance(given, str) and isinstance(of, BinaryType | FixedType):
        return bytes.fromhex(given)
    if isinstance(given, str) and isinstance(of, IntegerType | LongType):
        return int(given)  # PyIceberg would parse a double and truncate it
    if isinstance(of, TimeType) and re.search(r"\.[0-9]{7}", str(given)):
        raise ValueError("finer than microseconds")
    if isinstance(given, str | float) and isinstance(of, DecimalType):
        exact = Decimal(str(given))
        with localcontext(Context(prec=80)):
            scaled = round(exact, of.scale)
        if exact != scaled:  # PyIceberg would round it: x < 1.005 would lose 1.00
            raise ValueError("more digits than the column has")
        return str(scaled)
    if isinstance(given, float) and not math.isfinite(given):
        raise ValueError("not a number in JSON")
    if isinstance(of, FloatType) and isinstance(given, int | float):
        # JSON has a FLOAT in decimals, which Python parses to a DOUBLE near it.
        with np.errstate(over="ignore"):
            narrowed = float(np.float32(given))
        return narrowed if math.isfinite(narrowed) else given
    return given


def _is_early(transform: Transform[Any, Any], of: IcebergType) -> bool:
    """Return whether old writers put rows before 1970 into the next partition."""
    exact = isinstance(transform, DayTransform) and isinstance(of, DateType)
    return find_transform(str(transform).partition("[")[0]).early and not exact


def _with_early(projected: Any, early: Set[str]) -> Any:
    """Extend a condition on partitions to the next partition, for fields in `early`.

    It follows Iceberg's Java (`ProjectionUtil.fixInclusiveTimeProjection`): clients treat what it
    selects completely as exact.
    """
    if isinstance(projected, iceberg.And):
        return iceberg.And(_with_early(projected.left, early), _with_early(projected.right, early))
    name = getattr(getattr(projected, "term", None), "name", None)
    values = _literals(projected)
    if name not in early or not any(value < 0 for value in values):
        return projected
    if isinstance(projected, iceberg.LessThanOrEqual):
        return _BINARY["lt-eq"](name, values[0] + 1)
    if isinstance(projected, iceberg.EqualTo | iceberg.In):
        return _LISTS["in"](name, {*values, *(value + 1 for value in values if value < 0)})
    return projected


def _literals(predicate: Any) -> list[Any]:
    one = getattr(predicate, "literal", None)
    return [each.value for each in getattr(predicate, "literals", () if one is None else (one,))]


def _rename(predicate: Any, name: str) -> Any:
    values = [getattr(predicate, a) for a in ("literal", "literals") if hasattr(predicate, a)]
    return type(predicate)(name, *values)


def _fold(node: _Node, leaf: Callable[[_Leaf], Any]) -> Any:
    if isinstance(node, _Leaf):
        return leaf(node)
    # PyIceberg joins many operands to a balanced tree, because its visitors are recursive.
    join, none = (
        (iceberg.And, iceberg.AlwaysTrue()) if node.every else (iceberg.Or, iceberg.AlwaysFalse())
    )
    operands = [_fold(each, leaf) for each in node.operands]
    return join(*operands) if len(operands) > 1 else next(iter(operands), none)
