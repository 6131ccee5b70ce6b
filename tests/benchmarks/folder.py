"""A folder store on S3 beside SQLite and OpenSearch: `python -m tests.benchmarks.folder [files ...]`.

Requests to the S3 server on this machine take 30 ms longer, except while the index is built. Those
to OpenSearch, a node on this machine or $OPENSEARCH, are not delayed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from providers.index_predicate import Contains, Overlaps, Test
from skipping.model.definition import Definition, Revision, State, TableId
from skipping.stores import IndexStore
from skipping.stores.folder.objects import ObstoreObjects
from skipping.stores.folder.store import FolderStore
from skipping.stores.folder.upkeep import checkpoint
from skipping.stores.opensearch.credentials import Access
from skipping.stores.opensearch.store import OpenSearchStore
from skipping.stores.sqlite.store import SqliteStore
from tests.benchmarks.report import heading, interleaved, ratio, spread, table
from tests.benchmarks.synthetic import KEYS, PART, cluster, entries
from tests.faults import Proxy, proxy
from tests.object_store import ObjectStore, options_at

__all__ = ["main"]

DELAY, ROUNDS, REFRESHED, PATIENCE = 0.03, 15, 10, 600.0


@dataclass(frozen=True)
class Candidate:
    """A store that is measured: `open` opens it as a driver that knows nothing of it."""

    open: Callable[[], IndexStore]
    count_bytes: Callable[[IndexStore], int]
    proxy: Proxy | None = None
    delay: float = 0.0

    def delayed(self, seconds: float) -> None:
        """Start to count requests, each of which takes so much longer."""
        if self.proxy is not None:
            self.proxy.delay = seconds
            self.proxy.requests.clear()

    def requests(self) -> str:
        """Return how many its server has had since."""
        return "" if self.proxy is None else f" ({len(self.proxy.requests)})"


def main(*sizes: int) -> None:
    """Print the tables."""
    with ExitStack() as stack:
        server = stack.enter_context(ObjectStore())
        s3 = stack.enter_context(proxy(server.port))
        node = stack.enter_context(cluster())
        search = stack.enter_context(proxy(int(node.rpartition(":")[2])))
        folder = Path(stack.enter_context(TemporaryDirectory()))
        rows, asked = [], []
        for files in sizes or (1_000, 100_000, 1_000_000):
            candidates = _candidates(files, folder, s3, search)
            stores = {}
            for name, each in candidates.items():
                row, stores[name] = _measure(each, files)
                rows.append((f"{files:,} {name}", *row))
                print(f"  {rows[-1]}", flush=True)
            asked += [_lookups(stores, files, few) for few in (1, 2)]
            print(f"  {asked[-2:]}", flush=True)
    heading("Three stores", delay=DELAY, entries_a_write=PART)
    head = ("files", "build, s", "first answer, s (requests)", "refresh of 10, s (requests)", "MiB")
    table(head, rows)
    heading("Lookups, no two equal, ms", rounds=ROUNDS)
    table(("files, tests", *candidates, "folder / SQLite"), asked)


def _candidates(files: int, folder: Path, s3: Proxy, search: Proxy) -> dict[str, Candidate]:
    drivers = iter(range(1_000))

    def open_folder() -> FolderStore:
        objects = ObstoreObjects(f"s3://lake/{files}", options_at(s3.port))
        return FolderStore(objects, folder / f"{files}.{next(drivers)}", ttl=3_600)

    def open_node() -> OpenSearchStore:
        access = Access(prefix=f"folder-{files}-")
        return OpenSearchStore(f"http://127.0.0.1:{search.port}", access, patience=PATIENCE)

    file = folder / f"{files}.sqlite"
    return {
        "SQLite": Candidate(lambda: SqliteStore(file), lambda store: file.stat().st_size),
        "folder": Candidate(open_folder, _live_bytes, s3, DELAY),
        "OpenSearch": Candidate(open_node, lambda store: store.size("i") or 0, search),
    }


def _measure(candidate: Candidate, files: int) -> tuple[tuple[str, ...], IndexStore]:
    """Return a row of the table, and a store that has answered."""
    built = candidate.open()
    took, revision = _fill(built, files)
    size = candidate.count_bytes(built)

    cold = candidate.open()
    candidate.delayed(candidate.delay)
    start = time.perf_counter()
    assert len(cold.definitions(timeout=PATIENCE)) >= 1
    (first,) = cold.find_prunable("i", _tests(1)[:1], below=files, timeout=PATIENCE)
    answered = f"{time.perf_counter() - start:.2f}{candidate.requests()}"
    assert len(first) > files * 0.9

    built.state("i")
    candidate.delayed(candidate.delay)
    refreshed = f"{_refresh(built, files, revision):.2f}{candidate.requests()}"
    candidate.delayed(0.0)
    return (f"{took:.1f}", answered, refreshed, f"{size / 2**20:.1f}"), cold


def _lookups(stores: dict[str, IndexStore], files: int, few: int) -> tuple[str, ...]:
    def ask(store: IndexStore, turns: Iterator[int]) -> None:
        store.find_prunable("i", _tests(next(turns))[:few], below=files, timeout=PATIENCE)

    runs = {name: partial(ask, store, iter(range(100))) for name, store in stores.items()}
    walls = interleaved(runs, rounds=ROUNDS, warm=3)
    shown = [spread(each, 2, 1e3) for each in walls.values()]
    kind = "bounds" if few == 1 else "bounds and list"
    return f"{files:,} {kind}", *shown, ratio(walls["folder"], walls["SQLite"])


def _live_bytes(store: IndexStore) -> int:
    assert isinstance(store, FolderStore)
    made = checkpoint(store._objects, store._replica)
    assert made is not None
    return sum(each.bytes for each in store.segments("i")) + len(made.to_bytes())


def _tests(turn: int) -> list[Test]:
    keys = pa.array([turn * KEYS + 7])
    return [Overlaps("low", "high", keys, "s1"), Contains("values", keys, "s2")]


def _refresh(store: IndexStore, files: int, revision: Revision) -> float:
    """Call a store as REFRESH does; return the seconds."""
    start = time.perf_counter()
    state = store.state("i")
    store.report("i", State("refreshing", state.covered))
    new = store.reserve("i", REFRESHED)
    (more,) = entries(files + REFRESHED, files)
    store.write("i", more.set_column(0, "ordinal", pa.array(new)), revision=revision)
    store.report("i", State("active", 2))
    return time.perf_counter() - start


def _fill(store: IndexStore, files: int) -> tuple[float, Revision]:
    empty = Definition("i", TableId("delta", "i", "file:/b"), "b", ())
    revision = store.define(empty, expect=None)
    store.reserve("i", files)
    seconds = 0.0
    for part in entries(files):
        began = time.perf_counter()
        store.write("i", part, revision=revision)
        seconds += time.perf_counter() - began
    return seconds, revision


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
