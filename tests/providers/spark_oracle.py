"""Spark's semantics in plain Python, and a file's way through a kind: what the tests here share.

Values are Python's own: numbers, bool, Decimal, str, bytes; dates and timestamps are days and
microseconds. Nothing here asks `providers` how values compare.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st
from pyroaring import BitMap

from providers import (
    Between,
    Column,
    Compare,
    Contains,
    EndsWith,
    In,
    IsNull,
    Layout,
    SkippingProvider,
    StartsWith,
)
from providers.evaluate import find_prunable_rows
from providers.index_predicate import find_prunable, map_tests
from providers.predicate import Leaf, StartsWithAny, Within, fits
from providers.values import arrow_type, domain_of, encode

OPS = ("=", "!=", "<", "<=", ">", ">=")
FILE = Sequence[Any]  # the values of one column, None being null


# Spark's semantics


def order(value: Any) -> Any:
    """A key that sorts and equals as Spark compares."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value + 0.0)
    return value.encode() if isinstance(value, str) else value


def compare(left: Any, op: str, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    a, b = order(left), order(right)
    return {"=": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[op]


def holds_for(leaf: Leaf, value: Any) -> bool | None:
    """A leaf over typed values (In: a list that may hold nulls) for one row; None is SQL's null."""
    match leaf:
        case Compare(_, op, other):
            return compare(value, op, other)
        case Between(_, low, high, includes_low, includes_high):
            sides = [
                compare(value, ">=" if includes_low else ">", low),
                compare(value, "<=" if includes_high else "<", high),
            ]
            return None if None in sides else all(sides)
        case Within() | StartsWithAny():
            sides = [holds_for(leg, value) for leg in leaf.legs()]
            return None if None in sides else any(sides)
        case In(_, values, negated):
            found = [compare(value, "=", other) for other in values]
            answer = True if True in found else None if None in found else False
        case StartsWith(_, prefix, negated):
            answer = None if value is None else order(value).startswith(order(prefix))
        case EndsWith(_, suffix, negated):
            answer = None if value is None else order(value).endswith(order(suffix))
        case Contains(_, text, negated):
            answer = None if value is None else order(text) in order(value)
        case IsNull(_, negated):
            answer = value is None
    return answer if answer is None else answer != negated


def matches(leaf: Leaf, file: FILE) -> bool:
    return any(holds_for(leaf, value) is True for value in file)


# A file's way through a kind


def normalised(values: Iterable[Any], type: pa.DataType) -> pa.Array:
    return encode(pa.array(list(values), type))


def normalise(leaf: Leaf, type: pa.DataType) -> Leaf:
    """The leaf as kinds see it."""
    match leaf:
        case Compare(_, _, value):
            return replace(leaf, value=normalised([value], type)[0].as_py())
        case Between(_, low, high):
            low, high = normalised([low, high], type).to_pylist()
            return replace(leaf, low=low, high=high)
        case In(column, values, negated):
            return replace(In.of(column, normalised(values, type)), negated=negated)
        case StartsWith(_, prefix):
            return replace(leaf, prefix=normalised([prefix], type)[0].as_py())
        case _:
            return leaf


def sketch(provider: SkippingProvider, parts: Iterable[pa.Array]) -> Mapping[str, Any] | None:
    collector = provider.collector()
    for part in parts:
        values = encode(part)
        collector.add(pc.unique(values.drop_null()), values.null_count)
    return collector.finish()


def table(provider: SkippingProvider, sketches: Sequence[Mapping[str, Any] | None]) -> pa.Table:
    """Sketches as `providers.evaluate` wants them; None is a file that is not known."""
    columns: dict[str, pa.Array] = {}
    for field in provider.fields():
        key = field.column if field.part else field.name
        known = [s is not None and key in s for s in sketches]
        columns[f"s0{field.part}_known"] = pa.array(known, pa.bool_())
        values = [s[key] if s is not None and key in s else None for s in sketches]
        column = f"s0{field.column}"
        if field.layout is Layout.TERMS:
            values = [v if v is None else v.to_pylist() for v in values]
            columns[column] = pa.array(values, pa.list_(field.type))
        else:
            columns[column] = pa.array(values, field.type)
    return pa.table(columns)


@dataclass(frozen=True)
class Index:
    """Files of one column under one kind."""

    provider: SkippingProvider
    type: pa.DataType
    sketches: tuple[Mapping[str, Any] | None, ...]

    @classmethod
    def of(
        cls,
        kind: type[SkippingProvider],
        spark_type: str,
        files: Sequence[FILE],
        *,
        cut: Callable[[FILE], Sequence[FILE]] = lambda file: [file],
        **params: Any,
    ) -> Index:
        """Sketch the files; `cut` says in which parts the collector meets each."""
        type_ = arrow_type(spark_type)
        assert type_ is not None
        domain = domain_of(type_)
        assert domain is not None
        provider = kind.of((Column("x", domain, partition=True),), params)
        return cls(
            provider,
            type_,
            tuple(sketch(provider, (pa.array(p, type_) for p in cut(file))) for file in files),
        )

    @cached_property
    def table(self) -> pa.Table:
        return table(self.provider, self.sketches)

    def skipped(self, leaf: Leaf) -> set[int]:
        """The files pruned for a leaf over typed values."""
        return self.skipped_raw(normalise(leaf, self.type))

    def skipped_raw(self, leaf: Leaf) -> set[int]:
        """The files pruned for a leaf over normalised values."""
        domain = domain_of(self.type)
        assert domain is not None
        # As the lookup does: a leaf that does not fit the column is shown to no kind.
        rewritten = self.provider.rewrite(leaf) if fits(leaf, domain) else None
        if rewritten is None:
            return set()
        named = map_tests(rewritten, lambda test: replace(test, sketch=f"s0{test.sketch}"))
        sketches = self.table
        answer = find_prunable(
            named, lambda test: BitMap(np.flatnonzero(find_prunable_rows(test, sketches)))
        )
        return set(answer)


# Values that bite


def _float32(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def _integers(bits: int) -> st.SearchStrategy[int]:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    edges = [least, least + 1, -1, 0, 1, most - 1, most]
    return st.sampled_from(edges) | st.integers(-4, 4) | st.integers(least, most)


def _floats(width: int) -> st.SearchStrategy[float]:
    edges = [math.nan, -math.nan, 0.0, -0.0, math.inf, -math.inf, 1.0, -1.0, _float32(1)]
    return st.sampled_from(edges) | st.floats(width=width)  # type: ignore[arg-type]


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    unscaled = (
        st.sampled_from([-most, -1, 0, 1, most, 2**64, -(2**64), 2**63] if precision > 18 else [0])
        | st.sampled_from([-most, -100, 100, most])
        | st.integers(-most, most)
    )
    return unscaled.map(lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale)))


LONG = "x" * 70
_PIECES = [
    "",
    "a",
    "b",
    "ab",
    "a\0",
    "\0",
    " ",
    "'",
    "\\",
    "\n",
    "é",
    "e\u0301",
    "\ud7ff",
    "\ue000",
]
_PIECES += ["\uffff", "\U00010000", "\U0010ffff", "\U0010ffff" * 20, "SELECT", '{"a": [1]}', ".*"]
_TEXT = st.builds(
    lambda a, b, c: a + b + c,
    st.sampled_from(["", "", LONG[:63], LONG, "\U0010ffff" * 17]),
    st.sampled_from(_PIECES) | st.text(max_size=3),
    st.sampled_from(_PIECES),
)
_BYTES = st.builds(
    lambda a, b: a + b,
    st.sampled_from([b"", b"", b"x" * 70, b"\xff" * 70, b"x" * 63]),
    st.sampled_from([b"", b"\0", b"\xff", b"a\xff", b"a\xff\xff", b"\x7f", b"\x80"])
    | st.binary(max_size=3),
)

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "tinyint": _integers(8),
    "smallint": _integers(16),
    "int": _integers(32),
    "bigint": _integers(64),
    "boolean": st.booleans(),
    "float": _floats(32),
    "double": _floats(64),
    "date": _integers(32),
    "timestamp": _integers(64),
    "timestamp_ntz": _integers(64),
    "decimal(9,2)": _decimals(9, 2),
    "decimal(18,4)": _decimals(18, 4),
    "decimal(38,10)": _decimals(38, 10),
    "string": _TEXT,
    "varchar(90)": _TEXT,
    "binary": _BYTES,
}
"""Every Spark type that can be indexed, with values that bite."""


def is_text(spark_type: str) -> bool:
    return spark_type in ("string", "binary") or spark_type.startswith("varchar")


def leaves_over(value: Any, keys: Sequence[Any], *, text: bool, prefix: Any = None) -> list[Leaf]:
    """Every leaf there is, over one value and some keys."""
    found: list[Leaf] = [Compare("x", op, value) for op in OPS]
    found += [
        Between("x", value, other, includes, not includes)
        for other in keys
        if other is not None
        for includes in (False, True)
    ]
    found += [In("x", list(keys), negated) for negated in (False, True)]
    found += [In("x", [value], True), IsNull("x"), IsNull("x", negated=True)]
    if text:
        starts = [prefix if prefix is not None else value]
        found += [StartsWith("x", p, negated) for p in starts for negated in (False, True)]
        ends = [value[len(value) // 2 :]]
        found += [EndsWith("x", e, negated) for e in ends for negated in (False, True)]
        inner = [value[len(value) // 4 :][: max(1, len(value) // 2)]]
        found += [Contains("x", i, negated) for i in inner for negated in (False, True)]
    return found
