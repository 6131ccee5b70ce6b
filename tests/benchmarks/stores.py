"""Writing to and asking the stores: `python -m tests.benchmarks.stores [files ...]`.

Entries are those of `synthetic`, each with its numbers as words, too. OpenSearch is a node on this
machine ($OPENSEARCH, if it is set).
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from providers.index_predicate import Contains, ContainsRange, FieldCompare, Overlaps, Test
from skipping.model.definition import Definition, TableId
from skipping.stores import IndexStore
from skipping.stores.opensearch.credentials import Access
from skipping.stores.opensearch.store import OpenSearchStore
from skipping.stores.sqlite.store import SqliteStore
from tests.benchmarks.report import heading, spread, table
from tests.benchmarks.synthetic import KEYS, PART, cluster, distinct, entries

__all__ = ["main"]

WARM = 9


def main(*sizes: int) -> None:
    """Print the tables."""
    written, asked = [], []
    with TemporaryDirectory() as folder, cluster() as address:
        for files in sizes or (1_000, 10_000, 100_000):
            stores: dict[str, IndexStore] = {
                "sqlite": SqliteStore(Path(folder) / f"{files}.sqlite"),
                "opensearch": OpenSearchStore(
                    address, Access(prefix=f"{uuid.uuid4().hex[:8]}-"), patience=600
                ),
            }
            for name, store in stores.items():
                index, seconds = _fill(store, files)
                start = time.perf_counter()
                assert len(store.catalogue(index).files) == files
                read = time.perf_counter() - start
                written.append((f"{files:,} {name}", f"{seconds:.2f}", f"{1e3 * read:.0f}"))
                for question, tests in _questions(files):
                    walls, answers = [], []
                    for turn in range(1 + WARM):
                        start = time.perf_counter()
                        answers.append(
                            store.find_prunable(index, tests(turn), below=files, timeout=600)
                        )
                        walls.append(1e3 * (time.perf_counter() - start))
                    least = min(len(bitmap) for answer in answers for bitmap in answer)
                    shown = f"{walls[0]:.1f}", spread(walls[1:], 1)
                    asked.append((f"{files:,} {question}, {name}", files - least, *shown))
    heading("Writing, s, and reading all of the catalogue, ms", entries_a_write=PART)
    table(("files, store", "write, s", "catalogue, ms"), written)
    heading("IndexQuery for what is pruned, ms; no two questions are equal", warm_runs=WARM)
    table(("files, question, store", "left", "first", "later"), asked)


def _questions(files: int) -> Iterator[tuple[str, object]]:
    span = files * KEYS

    def keys(n: int, end: int, turn: int) -> pa.Array:
        """Keys of a tenth of the range, others at each turn."""
        tenth = max(end // 10, 1)
        chosen = np.random.default_rng(turn).choice(tenth, min(n, tenth), replace=False)
        return pa.array(np.sort(chosen) + turn)

    def bounds(n: int, turn: int) -> Test:
        return Overlaps("low", "high", keys(n, span, turn), "s1")

    def numbers(n: int, turn: int) -> Test:
        return Contains("values", keys(n, distinct(files), turn), "s2")

    def words(n: int, turn: int) -> Test:
        named = [f"w{key:09}" for key in keys(n, distinct(files), turn).to_pylist()]
        return Contains("words", pa.array(named), "s3")

    yield "bounds, 1 key", lambda turn: [bounds(1, turn)]
    for n in (1_000, 100_000, 1_000_000):
        yield f"bounds, {n:,} keys", lambda turn, n=n: [bounds(n, turn)]
    for n in (1, 1_000, 100_000):
        yield f"list of numbers, {n:,} keys", lambda turn, n=n: [numbers(n, turn)]
    for n in (1, 1_000, 100_000):
        yield f"list of words, {n:,} keys", lambda turn, n=n: [words(n, turn)]
    yield (
        "six tests",
        lambda turn: [
            FieldCompare("low", ">", turn * KEYS, "s1"),
            bounds(10, turn),
            numbers(100, turn),
            numbers(1_000, turn + 50),
            words(100, turn),
            ContainsRange("words", f"w{turn:09}", f"w{turn + 500:09}", sketch="s3"),
        ],
    )


def _fill(store: IndexStore, files: int) -> tuple[str, float]:
    index = str(uuid.uuid4())
    store.define(Definition(index, TableId("delta", index, "file:/b"), "b", ()), expect=None)
    store.reserve(index, files)
    seconds = 0.0
    for part in entries(files):
        lists = part["s2_values"].combine_chunks()
        words = pa.array([f"w{value:09}" for value in lists.values.to_pylist()])
        part = part.append_column("s3_known", part["s1_known"])
        part = part.append_column("s3_words", pa.ListArray.from_arrays(lists.offsets, words))
        began = time.perf_counter()
        store.write(index, part, revision=1)
        seconds += time.perf_counter() - began
    return index, seconds


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
