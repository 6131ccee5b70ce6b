"""An index that was written bit by bit: it has few parts, and answers like one written at once."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from providers.evaluate import find_prunable_rows
from providers.index_predicate import BitsSet, Contains, ContainsOther, Overlaps, Test
from skipping.stores import IndexStore, find_identities
from skipping.stores.memory.entries import merge_chunks
from skipping.stores.memory.store import MemoryStore
from skipping.stores.sqlite.store import SqliteStore
from tests.skipping.stores.samples import entries
from tests.skipping.stores.small import DEFINITION

WRITES, LENGTH = 40, 16


def some(ordinals: range, random: np.random.Generator) -> pa.Table:
    n = len(ordinals)
    numbers = [random.choice(500, random.integers(0, 9), replace=False) for _ in range(n)]
    columns = {
        "s1_known": pa.array(random.random(n) < 0.9),
        "s1_low": pa.array(random.integers(0, 100, n)),
        "s1_high": pa.array(random.integers(100, 200, n)),
        "s2_known": pa.array([True] * n),
        "s2_values": pa.array([each.tolist() for each in numbers], pa.list_(pa.int64())),
        "s3_known": pa.array([True] * n),
        "s3_words": pa.array([[f"w{i}" for i in each] for each in numbers], pa.list_(pa.string())),
        "s4_known": pa.array([True] * n),
        "s4_filter": pa.array([random.bytes(LENGTH) for _ in range(n)], pa.large_binary()),
        "s4_layout": pa.array([1] * n),
    }
    return entries(ordinals, columns)


def questions(random: np.random.Generator) -> list[Test]:
    numbers = np.sort(random.choice(500, 20, replace=False))
    words = pa.array(sorted(f"w{i}" for i in numbers.tolist()))
    bits = pa.array(random.integers(0, 8 * LENGTH, (9, 3)).tolist(), pa.list_(pa.int64(), 3))
    return [
        Overlaps("low", "high", pa.array(numbers[:3]), "s1"),
        Contains("values", pa.array(numbers), "s2"),
        ContainsOther("values", pa.array(numbers), "s2"),
        Contains("words", words, "s3"),
        ContainsOther("words", words, "s3"),
        BitsSet("filter", "layout", ((1, bits),), "s4"),
    ]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_many_writes(kind: str, tmp_path: Path) -> None:
    path, random = tmp_path / "store.db", np.random.default_rng(11)
    store: IndexStore = MemoryStore() if kind == "memory" else SqliteStore(path)
    store.define(DEFINITION, expect=None)
    parts = []
    for _ in range(WRITES):
        parts.append(some(store.reserve("i", int(random.integers(1, 12))), random))
        store.write("i", parts[-1], revision=1)
    whole = pa.concat_tables(parts)
    gone = [3, 50, 51]
    store.remove("i", pa.array(gone))
    for _ in range(5):
        asked = questions(random)
        for test, found in zip(
            asked, store.find_prunable("i", asked, below=10_000, timeout=30), strict=True
        ):
            expected = set(np.flatnonzero(find_prunable_rows(test, whole)).tolist()) - set(gone)
            assert set(found) == expected
    if kind == "sqlite":
        with closing(sqlite3.connect(path)) as other:
            runs = dict(other.execute("SELECT part, count(*) FROM run GROUP BY part"))
        assert max(runs.values()) <= 10, runs  # log2 of what there is, not a run a write
    kept = pa.concat_tables(store.entries("i")).sort_by("ordinal")
    assert kept["ordinal"].to_pylist() == [o for o in range(len(whole)) if o not in gone]
    stay = whole.filter(pa.array(~np.isin(np.arange(len(whole)), gone)))
    assert kept["s4_filter"].to_pylist() == stay["s4_filter"].to_pylist()
    assert [set(v or ()) for v in kept["s3_words"].to_pylist()] == [
        set(v) for v in stay["s3_words"].to_pylist()
    ]


def test_identities_of_many_files() -> None:
    """Numbers and names do not run into each other, and a null is no number."""
    rows = [("1 a", 1, None), ("a", 1, 1), ("a", 11, None), ("- a", 1, None), ("a", 1, None)]
    names = ("path", "size", "stamp")
    types = (pa.string(), pa.int64(), pa.int64())
    columns = zip(names, zip(*rows, strict=True), types, strict=True)
    files = pa.table({name: pa.array(values, type) for name, values, type in columns})
    assert find_identities(files, files).to_pylist() == [0, 1, 2, 3, 4]
    for n in range(len(rows)):
        others = pa.concat_tables([files.slice(0, n), files.slice(n + 1)])
        assert find_identities(files.slice(n, 1), others).to_pylist() == [None]
    assert find_identities(files, files.slice(0, 0)).to_pylist() == [None] * len(rows)


@pytest.mark.parametrize(
    ("portion", "lengths"), [(1 << 30, [64, 32, 4]), (100, [8] * 12 + [4])], ids=["few", "small"]
)
def test_merge_chunks_leaves_few_chunks(
    monkeypatch: pytest.MonkeyPatch, portion: int, lengths: list[int]
) -> None:
    monkeypatch.setattr("skipping.stores.memory.entries.PORTION", portion)
    merged = pa.table({"ordinal": pa.array([], pa.int64())})
    for n in range(100):
        merged = merge_chunks(pa.concat_tables([merged, pa.table({"ordinal": [n]})]))
    assert [len(batch) for batch in merged.to_batches()] == lengths
    assert merged["ordinal"].to_pylist() == list(range(100))
