"""A folder store on S3 beside SQLite: `python -m tests.benchmarks.folder [files ...]`.

Requests to the S3 server on this machine take 30 ms longer, except while the index is built.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from providers.index_predicate import Contains, Overlaps, Test
from skipping.model.definition import Definition, State, TableId
from skipping.stores import IndexStore
from skipping.stores.folder.objects import ObstoreObjects
from skipping.stores.folder.store import FolderStore
from skipping.stores.folder.upkeep import checkpoint
from skipping.stores.sqlite.store import SqliteStore
from tests.benchmarks.report import heading, interleaved, ratio, spread, table
from tests.benchmarks.synthetic import KEYS, PART, entries
from tests.faults import Proxy, proxy
from tests.object_store import ObjectStore, options_at

__all__ = ["main"]

DELAY, ROUNDS, REFRESHED = 0.03, 15, 10


class Counting(ObstoreObjects):
    """Objects that count their requests."""

    count = 0

    def get(self, name: str, *, most: int) -> bytes | None:
        self.count += 1
        return super().get(name, most=most)

    def create(self, name: str, data: bytes) -> bool:
        self.count += 1
        return super().create(name, data)

    def replace(self, name: str, data: bytes) -> None:
        self.count += 1
        super().replace(name, data)


def main(*sizes: int) -> None:
    """Print the tables."""
    with ObjectStore() as server, proxy(server.port) as between, TemporaryDirectory() as folder:
        measure(between, Path(folder), sizes or (1_000, 100_000))


def measure(between: Proxy, folder: Path, sizes: tuple[int, ...]) -> None:
    """Measure through a proxy before a server."""
    rows, asked = [], []
    for files in sizes:
        url = f"s3://lake/{files}"
        options = options_at(between.port)
        objects = Counting(url, options)
        sqlite = SqliteStore(folder / f"{files}.sqlite")
        store = FolderStore(objects, folder / f"{files}.replica", ttl=3_600)
        built = [f"{_fill(each, files):.1f}" for each in (sqlite, store)]
        made = checkpoint(objects, store._replica)
        assert made is not None
        live = sum(each.bytes for each in store.segments("i")) + len(made.to_bytes())
        size = (folder / f"{files}.sqlite").stat().st_size

        between.delay = DELAY
        cold = FolderStore(Counting(url, options), folder / f"{files}.cold", ttl=3_600)
        between.requests.clear()
        start = time.perf_counter()
        assert len(cold.definitions(timeout=60)) == 1
        (first,) = cold.find_prunable("i", _tests(1)[:1], below=files, timeout=60)
        seconds = time.perf_counter() - start
        requests = len(between.requests)
        assert len(first) > files * 0.9 or files < 100

        for name, few in (("bounds", 1), ("bounds and list", 2)):
            stores = {
                "sqlite": partial(_ask, sqlite, files, few, iter(range(100))),
                "folder": partial(_ask, cold, files, few, iter(range(100))),
            }
            walls = interleaved(stores, rounds=ROUNDS, warm=3)
            shown = [spread(walls[each], 2, 1e3) for each in stores]
            asked.append((f"{files:,} {name}", *shown, ratio(walls["folder"], walls["sqlite"])))

        store.state("i")
        between.requests.clear()
        objects.count = 0
        took = _refresh(store, files)
        counted = f"{objects.count} / {len(between.requests)}"
        between.delay = 0.0
        rows.append(
            (
                f"{files:,}",
                *built,
                f"{seconds:.2f} ({requests})",
                f"{took:.2f} ({counted})",
                *(f"{each / 2**20:.1f}" for each in (live, size)),
            )
        )
    heading("A folder store on S3 and SQLite", delay=DELAY, entries_a_write=PART)
    table(
        (
            *("files", "build SQLite, s", "folder, s", "cold bounds, s (requests)"),
            *("refresh of 10, s (client / server)", "live, MiB", "SQLite, MiB"),
        ),
        rows,
    )
    heading("Lookups, no two equal, ms", rounds=ROUNDS)
    table(("files, tests", "SQLite", "folder", "ratio"), asked)


def _tests(turn: int) -> list[Test]:
    keys = pa.array([turn * KEYS + 7])
    return [Overlaps("low", "high", keys, "s1"), Contains("values", keys, "s2")]


def _ask(store: IndexStore, files: int, few: int, turns: Iterator[int]) -> None:
    store.find_prunable("i", _tests(next(turns))[:few], below=files, timeout=60)


def _refresh(store: FolderStore, files: int) -> float:
    """Call a store as REFRESH does; return the seconds."""
    start = time.perf_counter()
    state = store.state("i")
    store.report("i", State("refreshing", state.covered))
    new = store.reserve("i", REFRESHED)
    (more,) = entries(files + REFRESHED, files)
    store.write("i", more.set_column(0, "ordinal", pa.array(new)), revision=1)
    store.report("i", State("active", 2))
    return time.perf_counter() - start


def _fill(store: Any, files: int) -> float:
    store.define(Definition("i", TableId("delta", "i", "file:/b"), "b", ()), expect=None)
    store.reserve("i", files)
    seconds = 0.0
    for part in entries(files):
        began = time.perf_counter()
        store.write("i", part, revision=1)
        seconds += time.perf_counter() - began
    return seconds


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
