"""Definitions, entries and questions for every store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from providers.errors import StoreError
from providers.index_predicate import BitsSet, Test
from skipping.model.definition import Definition, IndexedColumn, TableId
from skipping.stores import IndexStore

Values = dict[str, Sequence[Any]]
INTS = pa.int64()
TYPES: dict[str, pa.DataType] = {
    "s1_known": pa.bool_(),
    "s1_low": INTS,
    "s1_high": INTS,
    "s1_nulls": INTS,
    "s2_known": pa.bool_(),
    "s2_values": pa.list_(pa.string()),
    "s2_nulls": INTS,
    "s3_known": pa.bool_(),
    "s3_filter": pa.large_binary(),
    "s3_layout": INTS,
}


def definition(index: str = "i", *, table: str = "t", **more: Any) -> Definition:
    column = IndexedColumn(1, "x", "col-1", "bigint", "MIN_MAX", (("limit", 3),))
    return Definition(index, TableId("delta", table, "file:/t"), "default.t", (column,), **more)


def entries(ordinals: Sequence[int], values: Values | None = None, **more: Any) -> pa.Table:
    """Entries of the files f<ordinal>, with the sketches' fields in `values`."""
    columns = {
        "ordinal": pa.array(ordinals, INTS),
        "path": pa.array(more.get("path", [f"f{o}" for o in ordinals]), pa.string()),
        "size": pa.array(more.get("size", [100 + o for o in ordinals]), INTS),
        "stamp": pa.array(more.get("stamp", [None] * len(ordinals)), INTS),
        "partition": pa.array(['{"day": 1}'] * len(ordinals), pa.string()),
    }
    for name, column in (values or {}).items():
        columns[name] = column if isinstance(column, pa.Array) else pa.array(column, TYPES[name])
    return pa.table(columns)


def bounds(lows: Sequence[int | None], known: Sequence[bool | None] | None = None) -> Values:
    return {"s1_known": known or [True] * len(lows), "s1_low": lows, "s1_high": lows}


def filters(values: Sequence[bytes | None], layouts: Sequence[int | None]) -> Values:
    return {"s3_known": [True] * len(values), "s3_filter": values, "s3_layout": layouts}


def bits(keys: Sequence[Sequence[int]], *, layout: int = 1, sketch: str = "s3") -> BitsSet:
    """Whether all bits of one of the keys are set."""
    slices = len(keys[0]) if keys else 2
    return BitsSet("filter", "layout", ((layout, pa.array(keys, pa.list_(INTS, slices))),), sketch)


def fill(store: IndexStore, values: Values, *, index: str = "i") -> range:
    """A new index with entries of these sketches."""
    n = len(next(iter(values.values())))
    store.define(definition(index, table=index), expect=None)
    ordinals = store.reserve(index, n)
    store.write(index, entries(ordinals, values), revision=1)
    return ordinals


def ask(store: IndexStore, test: Test, *, below: int = 2**31, index: str = "i") -> list[int]:
    return list(store.find_prunable(index, [test], below=below, timeout=60)[0])


def race(count: int, step: Callable[[int], Any]) -> list[Any]:
    """What `step(0)`, `step(1)`, ... gave or raised, run by threads that start together."""
    gate = threading.Barrier(count)

    def run(i: int) -> Any:
        gate.wait()
        try:
            return step(i)
        except StoreError as error:
            return error

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(run, range(count)))


def outcome(future: Future[Any]) -> Any:
    return future.exception(60) or future.result()
