"""What bloom filters cost: `python -m tests.benchmarks.bloom [files ...]`.

Building, against pybloom-live's own `add`; room; and asking, through the reference evaluator and
the SQLite store, of files whose filters are full.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from pybloom_live import BloomFilter as Pybloom

from providers import BloomFilter, Column, Domain, In
from providers.evaluate import find_prunable_rows
from providers.index_predicate import BitsSet
from skipping.model.definition import Definition, IndexedColumn, TableId
from skipping.stores import IndexStore
from skipping.stores.memory.store import MemoryStore
from skipping.stores.sqlite.store import SqliteStore
from tests.benchmarks.report import heading, spread, table

__all__ = ["main"]

FULL = 1_024  # distinct values of a file that is asked
ROUNDS = 5
INDEX = "00000000-0000-0000-0000-000000000000"
COLUMN = IndexedColumn(1, "k", "k", "bigint", "BLOOM_FILTER")
KIND = BloomFilter.of((Column("k", Domain("integer", pa.int64())),), {})
TEXT = BloomFilter.of((Column("k", Domain("string", pa.string())),), {})


def main(*sizes: int) -> None:
    """Print the tables."""
    random = np.random.default_rng(7)
    _build(random)
    _ask(random, sizes or (1_000, 10_000, 100_000))


def _build(random: np.random.Generator) -> None:
    rows = []
    for count in (1_000, 30_000, 500_000):
        numbers = pa.array(random.choice(2**40, count))
        texts = pa.array([f"customer-{n:013d}" for n in numbers.to_pylist()])
        for kind, values in ((KIND, numbers), (TEXT, texts)):
            objects = values.to_pylist()
            capacity = next(c for c in kind.ladder() if c >= count)
            ours = _cpu(lambda k=kind, v=values: _sketch(k, v))
            add = _cpu(lambda c=capacity, o=objects: _added(c, o))
            size = 8 * len(_sketch(kind, values)) / count
            per_million = [[1e6 * s / count for s in seconds] for seconds in (ours, add)]
            name = f"{count:,} {values.type}"
            rows.append((name, *(spread(s) for s in per_million), f"{size:.1f}"))
    heading("Building a filter, CPU seconds per million distinct values", rounds=ROUNDS)
    table(("values", "BLOOM_FILTER", "pybloom's add", "bits a value"), rows)


def _sketch(kind: BloomFilter, values: pa.Array) -> bytes:
    collector = kind.collector()
    for start in range(0, len(values), 1 << 16):
        collector.add(values.slice(start, 1 << 16), 0)
    found = collector.finish()
    assert found is not None
    return bytes(found["filter"])


def _added(capacity: int, values: list[object]) -> None:
    filter = Pybloom(capacity, KIND.fpp)
    for value in values:
        filter.add(value, skip_check=True)


def _ask(random: np.random.Generator, sizes: tuple[int, ...]) -> None:
    some = [_sketch(KIND, pa.array(random.choice(2**40, FULL))) for _ in range(100)]
    layout = _layout(random)
    rows = []
    for files in sizes:
        with TemporaryDirectory() as folder:
            entries = _entries(files, some, layout)
            stores = (MemoryStore("bloom"), SqliteStore(Path(folder) / "store.sqlite"))
            for store in stores:
                store.define(
                    Definition(INDEX, TableId("delta", "b", "file:/b"), "b", (COLUMN,)), expect=None
                )
                store.reserve(INDEX, files)
                store.write(INDEX, entries, revision=1)
            room = (Path(folder) / "store.sqlite").stat().st_size / files
            for count in (1, 10, 100):
                test = _test(random, count)
                sketches = entries.select(["s1_known", "s1_filter", "s1_layout"])
                kept = 1 - find_prunable_rows(test, sketches).mean()
                runs: list[Callable[[], object]] = [
                    lambda t=test, s=sketches: find_prunable_rows(t, s),
                    *(lambda t=test, s=store, n=files: _asked(s, t, n) for store in stores),
                ]
                times = [spread([1e3 * s for s in _wall(run)], 1) for run in runs]
                expected = KIND.survival(In("k", pa.array(range(count))))
                name = f"{files:,} x {count}"
                rows.append((name, *times, f"{kept:.3f} of {expected:.3f}", f"{room:.0f}"))
    heading("IndexQuery, ms", values_of_a_file=FULL, bytes_of_a_filter=len(some[0]), rounds=ROUNDS)
    table(("files x keys", "evaluator", "memory", "SQLite", "kept", "bytes a file"), rows)


def _test(random: np.random.Generator, count: int) -> BitsSet:
    """About values that no file has."""
    keys = pa.array(np.sort(random.choice(2**40, count, replace=False) + 2**41))
    test = KIND.rewrite(In("k", keys))
    assert isinstance(test, BitsSet)
    return replace(test, sketch="s1")


def _layout(random: np.random.Generator) -> int:
    collector = KIND.collector()
    collector.add(pa.array(random.choice(2**40, FULL)), 0)
    found = collector.finish()
    assert found is not None
    return int(found["layout"])


def _entries(files: int, filters: list[bytes], layout: int) -> pa.Table:
    numbers = np.arange(files)
    size = len(filters[0])
    data = np.frombuffer(b"".join(filters), np.uint8).reshape(-1, size)[numbers % len(filters)]
    ends = np.arange(0, (files + 1) * size, size)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.table(
        {
            "ordinal": pa.array(numbers),
            "path": pa.array([f"file:/b/part-{i:06}-c000.snappy.parquet" for i in range(files)]),
            "size": pa.array(numbers + 1_000_000),
            "stamp": pa.nulls(files, pa.int64()),
            "partition": pa.array(["{}"] * files),
            "s1_known": pa.array(np.ones(files, np.bool_)),
            "s1_filter": pa.LargeBinaryArray.from_buffers(pa.large_binary(), files, buffers),
            "s1_layout": pa.array(np.full(files, layout)),
            "s1_nulls": pa.array(np.zeros(files, np.int64)),
        }
    )


def _asked(store: IndexStore, test: BitsSet, files: int) -> None:
    store.find_prunable(INDEX, [test], below=files, timeout=600)


def _cpu(run: Callable[[], object]) -> list[float]:
    return [_since(run, time.process_time) for _ in range(ROUNDS)]


def _wall(run: Callable[[], object]) -> list[float]:
    run()
    return [_since(run, time.perf_counter) for _ in range(ROUNDS)]


def _since(run: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    run()
    return clock() - start


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
