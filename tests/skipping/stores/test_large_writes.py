"""More in one write than one Arrow array can hold: 2 GiB of text, or less if told so."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from providers.index_predicate import Contains, ContainsOther, Overlaps
from skipping.stores import IndexStore
from skipping.stores import entries as stored
from skipping.stores.memory.store import MemoryStore
from skipping.stores.sqlite.store import SqliteStore
from tests.skipping.stores.samples import ask, definition, entries

pytestmark = pytest.mark.nightly


def write(store: IndexStore, lists: pa.ChunkedArray) -> int:
    n = len(lists)
    store.define(definition(), expect=None)
    table = entries(store.reserve("i", n), {"s1_known": [True] * n, "s1_low": range(n)})
    table = table.append_column("s1_high", table["s1_low"])
    table = table.append_column("s2_known", table["s1_known"])
    store.write("i", table.append_column("s2_values", lists), revision=1)
    return n


def check_rows(store: IndexStore, n: int) -> None:
    assert ask(store, Overlaps("low", "high", pa.array([1, n - 1]), "s1")) == [0, *range(2, n - 1)]
    assert ask(store, Contains("values", pa.array(["own 1", f"own {n - 1}"]), "s2")) == [
        0,
        *range(2, n - 1),
    ]
    assert ask(store, Contains("values", pa.array(["all"]), "s2")) == []
    assert ask(store, ContainsOther("values", pa.array(["all", "own 3"]), "s2")) == [3]


@pytest.mark.parametrize("type", [pa.list_(pa.string()), pa.large_list(pa.large_string())], ids=str)
@pytest.mark.parametrize("chunks", [1, 30])
def test_more_than_one_chunk_takes(
    store: IndexStore, type: pa.DataType, chunks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "PORTION", 500)
    rows = [["all", f"own {n}"] for n in range(60)]
    size = len(rows) // chunks
    parts = [pa.array(rows[a : a + size], type) for a in range(0, len(rows), size)]
    check_rows(store, write(store, pa.chunked_array(parts)))
    store.remove("i", pa.array([5]))
    assert ask(store, Contains("values", pa.array(["none"]), "s2")) == [*range(5), *range(6, 60)]


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_more_than_two_gibibytes(kind: str, tmp_path: Path) -> None:
    long = pa.array([f"{i:05d}" + "x" * 8_187 for i in range(1_000)])
    one = pa.ListArray.from_arrays(pa.array([0, 1_000], pa.int32()), long)
    own = [pa.array([["all", f"own {n}"]]) for n in range(5)]
    store = MemoryStore("large") if kind == "memory" else SqliteStore(tmp_path / "store.db")
    write(store, pa.chunked_array([*own, *[one] * 270]))
    assert ask(store, Contains("values", pa.array(["own 3"]), "s2")) == [0, 1, 2, *range(4, 275)]
    assert ask(store, Contains("values", long.slice(3, 1), "s2")) == [*range(5)]
