"""Read the tree of a `pyarrow.compute.Expression`: its calls, fields, literals and options.

pyarrow has no API to inspect an expression, so the tree is read from its pickled form: a record
batch whose schema metadata lists the nodes, with literals and options as columns.

Keys of that metadata repeat, but pyarrow returns metadata as a dict, so this module reads it
through Arrow's C data interface.

Substrait (`Expression.to_substrait` of pyarrow 26) is no substitute. It writes `is_in` as a chain
of `=`, cast to the column's type, but the two differ for -0.0, NaN and null. It rejects the whole
expression for one `is_null(nan_is_null=True)`, safe cast or dictionary literal. Its bytes need a
Protobuf schema, which this package does not depend on.

Another release may pickle in another form. So the first call parses an expression with a known
tree, and every call fails if the result was not that tree.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as ipc


@dataclass(frozen=True, slots=True)
class Field:
    """A column, or a field of a struct, by its path of names."""

    path: tuple[str, ...]

    @property
    def name(self) -> str:
        """The top-level column."""
        return self.path[0]

    @property
    def nested(self) -> bool:
        """Whether it is a field of a struct."""
        return len(self.path) > 1


@dataclass(frozen=True, slots=True)
class Call:
    """A function of Arrow with its arguments; the option `value_set` is an array."""

    function: str
    arguments: tuple[Node, ...]
    options: Mapping[str, Any]


Node: TypeAlias = "Field | Call | pa.Scalar"


def parse_expression(expression: Any) -> Node:
    """Return the tree of an expression; raise an error of any type if it cannot be read."""
    if not _is_readable():
        raise ValueError(f"pyarrow {pa.__version__} pickles expressions in an unknown form")
    return _parse(expression)


def field_names(node: Node) -> Iterator[str]:
    """Yield the top-level columns that a tree names."""
    todo = [node]
    while todo:
        match todo.pop():
            case Field() as field:
                yield field.name
            case Call(_, arguments, _):
                todo.extend(arguments)


def conjuncts(node: Node) -> Iterator[Node]:
    """Yield the operands of a tree's outermost ANDs."""
    todo = [node]
    while todo:
        each = todo.pop()
        if isinstance(each, Call) and each.function in ("and", "and_kleene"):
            todo.extend(each.arguments)
        else:
            yield each


def path_of(node: Node) -> tuple[str, ...]:
    """Return the path of a field; raise KeyError for any other node."""
    if not isinstance(node, Field):
        raise KeyError("a call")
    return node.path


@cache
def _is_readable() -> bool:
    """Return whether this pyarrow pickles expressions in the form that `_parse` reads."""
    given = ~(pc.field("s", "x") == 1) & pc.field("i").isin([2, None])
    try:
        match _parse(given):
            case Call(
                "and_kleene",
                (
                    Call("invert", (Call("equal", (Field(("s", "x")), pa.Scalar() as one), _),), _),
                    Call("is_in", (Field(("i",)),), options),
                ),
                _,
            ):
                return bool(one.as_py() == 1 and options["value_set"].to_pylist() == [2, None])
    except Exception:  # an unknown form may fail anywhere
        return False
    return False


def _parse(expression: Any) -> Node:
    _, (written,) = expression.__reduce__()
    batch = ipc.open_file(written).get_batch(0)
    return _read_node(iter(_metadata_pairs(batch.schema)), batch)


def _read_node(pairs: Iterator[tuple[str, str]], batch: pa.RecordBatch) -> Node:
    open_calls: list[tuple[str, list[Node], dict[str, Any]]] = []  # no recursion: Python limits it
    for key, value in pairs:
        match key:
            case "field_ref":
                node: Node = Field((value,))
            case "nested_field_ref":
                node = Field(tuple(next(pairs)[1] for _ in range(int(value))))
            case "literal":
                node = batch.column(int(value))[0]
            case "call":
                open_calls.append((value, [], {}))
                continue
            case "options":
                open_calls[-1][2].update(_read_options(batch.column(int(value))[0]))
                continue
            case "end":
                function, arguments, options = open_calls.pop()
                node = Call(function, tuple(arguments), options)
            case _:
                raise ValueError(f"unknown key {key}")
        if not open_calls:
            return node
        open_calls[-1][1].append(node)
    raise ValueError("the expression has no end")


def _read_options(scalar: pa.StructScalar) -> dict[str, Any]:
    return {
        name: scalar[name].values if name == "value_set" else scalar[name].as_py()
        for name in scalar
    }


class _ArrowSchema(ctypes.Structure):
    """The first members of `struct ArrowSchema` in Arrow's C data interface."""

    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_void_p),
    )


def _metadata_pairs(schema: pa.Schema) -> list[tuple[str, str]]:
    capsule = schema.__arrow_c_schema__()
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    at = _ArrowSchema.from_address(get(capsule, b"arrow_schema")).metadata

    def read(size: int) -> bytes:
        nonlocal at
        found = ctypes.string_at(at, size)
        at += size
        return found

    def read_number() -> int:
        return int(struct.unpack("=i", read(4))[0])

    def read_text() -> str:
        return read(read_number()).decode()

    pairs = [(read_text(), read_text()) for _ in range(read_number())] if at else []
    del capsule  # it owned the memory that was read
    return pairs
