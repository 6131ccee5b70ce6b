"""Decode filters from Java: a JSON tree, and columns of values as Arrow buffers.

`PredicateEncoder.java` and `MessageWriter.java` write them. The tree is exact and may contain NOT.
This module pushes each NOT down to the leaves, before it replaces an unsupported leaf with Unknown.
A condition without an exact form is a WEAK node with two predicates: HOLDS is true wherever the
condition is true, and FAILS is true wherever the condition is false. Under an odd number of NOTs
the reader uses FAILS, else HOLDS.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from providers.errors import SkippingError
from providers.predicate import (
    And,
    Compare,
    Contains,
    ContainsAnyCase,
    EndsWith,
    In,
    IsNull,
    Or,
    Predicate,
    StartsWith,
    Unknown,
    negate,
)
from providers.tuples import ARRAY, domain_of_type, encode_tuples
from providers.values import arrow_type, encode
from rewrite.bridge import protocol
from skipping.lookup.translate import QueryColumn, composite_column
from skipping.model.definition import IndexedColumn

Message: TypeAlias = tuple[dict[str, Any], list[memoryview]]
"""A header and its buffers."""

_TEXTS: dict[str, type[StartsWith | EndsWith | Contains | ContainsAnyCase]] = {
    protocol.PREFIX: StartsWith,
    protocol.SUFFIX: EndsWith,
    protocol.CONTAINS: Contains,
    protocol.ANY_CASE: ContainsAnyCase,
}


def read_message(message: bytes) -> Message:
    """Split a message into its JSON header and its buffers (layout: see `protocol`).

    Raises SkippingError if the lengths in the header do not add up to the length of the message.
    """
    view = memoryview(message)
    end = 4 + int.from_bytes(view[:4], "little")
    if len(view) < end:
        raise SkippingError("the message from Java is truncated")
    try:
        header = json.loads(bytes(view[4:end]))
    except (ValueError, RecursionError) as error:
        raise SkippingError(
            f"the message from Java has an invalid JSON header: {type(error).__name__}"
        ) from error
    lengths = header.get(protocol.LENGTHS, []) if isinstance(header, dict) else None
    if not isinstance(lengths, list) or not all(type(n) is int and n >= 0 for n in lengths):
        raise SkippingError("the message from Java has no valid buffer lengths in its header")
    if end + sum(lengths) != len(view):
        raise SkippingError(
            f"the message from Java has {len(view)} bytes, expected {end + sum(lengths)}"
        )
    buffers = []
    for length in lengths:
        buffers.append(view[end : end + length])
        end += length
    return header, buffers


class Reader:
    """Reads one tree of conditions. After `read`, `columns` has the columns in it, by identity.

    `indexed` has the columns of the index; the multi-column ones are used for tuples.
    """

    def __init__(
        self, buffers: Sequence[memoryview], indexed: Sequence[IndexedColumn] = ()
    ) -> None:
        self._buffers = buffers
        self._composites = {i.identity: i for i in indexed if i.parts}
        self.columns: dict[str, QueryColumn] = {}

    def read(self, node: dict[str, Any]) -> Predicate:
        """Return the predicate for a tree of any depth, with normalised values."""
        order: list[tuple[dict[str, Any], bool]] = []
        todo = [(node, False)]
        while todo:
            node, negated = todo.pop()
            if node[protocol.OP] == protocol.NOT:
                todo.append((node[protocol.OPERAND], not negated))
                continue
            if node[protocol.OP] == protocol.WEAK:
                todo.append((node[protocol.FAILS if negated else protocol.HOLDS], False))
                continue
            order.append((node, negated))
            if node[protocol.OP] in (protocol.AND, protocol.OR):
                todo.extend((operand, negated) for operand in node[protocol.OPERANDS])
        built: list[Predicate] = []  # reversed, so that operands are built before their node
        for node, negated in reversed(order):
            if node[protocol.OP] in (protocol.AND, protocol.OR):
                first = len(built) - len(node[protocol.OPERANDS])
                operands = tuple(built[first:])
                is_and = (node[protocol.OP] == protocol.AND) != negated
                built[first:] = [And(operands) if is_and else Or(operands)]
            elif node[protocol.OP] == protocol.UNKNOWN:
                built.append(Unknown(node[protocol.WHY]))
            elif node[protocol.OP] == protocol.TUPLES:
                # Java never negates tuples: `=` of structs is never null, unlike `=` of a leaf.
                built.append(Unknown("tuples") if negated else And(tuple(self._tuples(node))))
            else:
                leaf = self._leaf(node, negated=negated)
                built.append(negate(leaf) if negated else leaf)
        return built[0]

    def _leaf(self, node: dict[str, Any], *, negated: bool) -> Predicate:
        is_array = node[protocol.OP] == protocol.ELEMENTS
        column = self._column(node[protocol.COLUMN], is_array=is_array)
        if column is None:
            named = node[protocol.COLUMN]
            return Unknown(f"{named[protocol.NAME]} of type {named[protocol.TYPE]}")
        if node[protocol.OP] == protocol.NULL:
            return IsNull(column)
        values = self._values(node[protocol.VALUES], column, is_array=is_array)
        if values is None:
            return Unknown(f"{self.columns[column].name} compared with another type")
        if is_array:
            # Java never negates it.
            return Unknown("elements") if negated else In.of(column, values)
        if node[protocol.OP] == protocol.IN:
            # `a NOT IN (1, NULL)` is never true, so the null must not be dropped.
            return (
                And(())  # negated: Or(())
                if negated and node[protocol.NULLS]
                else replace(In.of(column, values), source=node.get(protocol.OF, ""))
            )
        (value,) = values.to_pylist()
        if node[protocol.OP] in _TEXTS:
            return _TEXTS[node[protocol.OP]](column, value)
        return Compare(column, node[protocol.COMPARE], value, node.get(protocol.OF, ""))

    def _tuples(self, node: dict[str, Any]) -> Iterator[In]:
        """Yield an In for each multi-column index column whose columns are all in the tuples."""
        arrays: dict[str, pa.Array] = {}
        for named, given in zip(node[protocol.COLUMNS], node[protocol.VALUES], strict=True):
            column = self._column(named)
            values = None if column is None else self._values(given, column)
            if column is not None and values is not None:
                arrays[column] = values
        for composite in self._composites.values():
            seen = composite_column(composite, {i: self.columns[i] for i in arrays})
            if seen is None:
                continue
            self.columns[composite.identity] = seen
            tuples = encode_tuples([arrays[part] for part in composite.part_identities])
            yield replace(In.of(composite.identity, tuples), source=node.get(protocol.OF, ""))

    def _column(self, column: dict[str, str], *, is_array: bool = False) -> str | None:
        identity = column[protocol.IDENTITY]
        domain = domain_of_type(column[protocol.TYPE])
        if domain is None or domain.name.startswith(ARRAY) != is_array:
            return None
        seen = QueryColumn(column[protocol.NAME], domain, column[protocol.TYPE])
        if self.columns.setdefault(identity, seen).domain != domain:
            return None
        return identity

    def _values(
        self, values: dict[str, Any], column: str, *, is_array: bool = False
    ) -> pa.Array | None:
        type = values[protocol.TYPE]
        arrow = arrow_type(type)
        domain = domain_of_type(f"array<{type}>" if is_array else type)
        if arrow is None or domain != self.columns[column].domain:
            return None
        try:
            return encode(_array(arrow, values[protocol.N], self._parts(values[protocol.BUFFERS])))
        except pa.ArrowInvalid:
            return None

    def _parts(self, numbers: Sequence[int]) -> list[memoryview]:
        if not all(type(i) is int and 0 <= i < len(self._buffers) for i in numbers):
            raise SkippingError(
                f"the message from Java refers to buffers {numbers}, but has {len(self._buffers)}"
            )
        return [self._buffers[i] for i in numbers]


def _array(type: pa.DataType, n: int, buffers: Sequence[memoryview]) -> pa.Array:
    """Return an Arrow array over buffers that `MessageWriter.values` in Java wrote.

    Raises SkippingError if the buffers do not have the expected sizes.
    """
    if n == 0:
        return pa.array([], type)
    types = pa.types
    if types.is_string(type) or types.is_binary(type):
        offsets, data = buffers
        starts = np.frombuffer(offsets, "<i4")
        within = len(starts) == n + 1 and starts[0] == 0 and starts[-1] <= len(data)
        if not within or bool((np.diff(starts) < 0).any()):
            raise SkippingError("the message from Java has invalid string offsets")
        return pa.Array.from_buffers(type, n, [None, *map(pa.py_buffer, buffers)])
    (values,) = buffers
    if len(values) != n * (16 if types.is_decimal(type) else 8):
        raise SkippingError(f"the message from Java does not have {n} values, as in its header")
    if types.is_decimal(type):
        return pa.Array.from_buffers(type, n, [None, pa.py_buffer(values)])
    if types.is_floating(type):
        return pa.array(np.frombuffer(values, "<f8")).cast(type, safe=False)
    numbers = pa.array(np.frombuffer(values, "<i8"))
    if types.is_date(type):
        numbers = numbers.cast(pa.int32())
    return numbers.cast(type)
