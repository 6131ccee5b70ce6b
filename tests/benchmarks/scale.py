"""A catalogue as it grows: `python -m tests.benchmarks.scale [--store sqlite ...] [files ...]`.

Of each size and store one table row: what it takes to index files that are not there (build: all of
REFRESH; write: the store's share of it), to ask from the message that Java sends to the message it
gets (cold: a new driver's first answer; full: until it has everything; warm: by column and number
of keys), to bring up ten new files and to be asked after that, to DESCRIBE and to VACUUM; the
memory of a driver that asks, and the bytes in the store. Times are of the clock, then in brackets
of this process's CPU, which a busy machine changes less. Beside each row how it grows with each ten
times as many files (its CPU, if it has that; with OpenSearch, whose CPU is its own, its clock):
1.0x is flat, 10x linear.

Entries are those of `synthetic`, with bounds, 20 values and a bloom filter of a KiB. Each measures
in a process of its own. The memory of the store in memory includes all that it keeps. OpenSearch is
a node on this machine ($OPENSEARCH, if it is set).
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import ClassVar, TypeAlias
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from providers import BloomFilter, Column, Domain
from rewrite.bridge.callbacks import Answers, table_key
from rewrite.bridge.protocol import CURRENT
from skipping.config.settings import Settings
from skipping.index import SkippingIndex
from skipping.indexing.refresh import refresh
from skipping.indexing.sketch import Work
from skipping.indexing.vacuum import vacuum
from skipping.lookup.lookup import Lookup
from skipping.model.definition import Definition, IndexedColumn, TableId, Versioned
from skipping.sources.base import Source
from skipping.stores import IndexStore
from skipping.stores.memory.store import MemoryStore
from skipping.stores.opensearch.credentials import Access
from skipping.stores.opensearch.store import OpenSearchStore
from skipping.stores.sqlite.store import SqliteStore
from skipping.tables import FILES, Columns, PhysicalColumn, TableColumn
from tests.benchmarks.report import heading, table
from tests.benchmarks.synthetic import KEYS, PART, cluster, distinct, entries, identities

__all__ = ["driver", "in_process", "keys", "main", "question", "resident", "store_at", "timed"]

Value: TypeAlias = list[float]
"""What was measured: a number, or milliseconds of the clock and of the CPU."""

Row: TypeAlias = dict[str, Value]

SIZES = (1_000, 10_000, 100_000, 1_000_000)
STORES = ("sqlite", "memory", "opensearch")
NEW, ROUNDS, WARM = 10, 5, 5
FULL, FPP = 512, 0.001  # so that the gate lets pass a hundred keys
TABLE = TableId("delta", "b0", "file:/star")
INDEX = "00000000-0000-0000-0000-000000000000"
COLUMNS = (
    IndexedColumn(1, "k", "k", "bigint", "MIN_MAX"),
    IndexedColumn(2, "h", "h", "bigint", "VALUE_LIST"),
    IndexedColumn(3, "b", "b", "bigint", "BLOOM_FILTER", (("fpp", FPP),)),
)
SPELLED = {"k": "bounds", "h": "list", "b": "bloom"}
MANY = (1, 1_000, 100_000, 1_000_000)
ASKED = (*(("k", n) for n in MANY), *(("h", n) for n in MANY), *(("b", n) for n in (1, 10, 100)))
PATIENCE = 600.0  # seconds
PATIENT = {"spark.skipping.timeout": f"{PATIENCE:g}s", "spark.skipping.mode": "strict"}
TIMEOUT = 2.0  # seconds that a query's question has, unless told otherwise


def main(sizes: Sequence[int], stores: Sequence[str]) -> None:
    """Print a table for each store."""
    with ExitStack() as open:
        folder = open.enter_context(TemporaryDirectory())
        address = open.enter_context(cluster()) if "opensearch" in stores else ""
        for store in stores:
            rows = {}
            for files in sizes:
                place = {
                    "sqlite": f"{folder}/{files}.sqlite",
                    "memory": "",
                    "opensearch": f"{address} {uuid.uuid4().hex[:8]}-",
                }[store]
                rows[files] = _measured(store, place, files)
                print(f"  {store}, {files:,} files: {json.dumps(rows[files])}", flush=True)
                if store == "sqlite":
                    Path(place).unlink()
            _print(store, rows)


def _measured(store: str, place: str, files: int) -> Row:
    """The columns of a row: writing and asking in two processes, unless memory is to be asked."""
    steps = ("fill+ask",) if store == "memory" else ("fill", "ask")
    found: Row = {}
    for step in steps:
        found |= in_process(step, store, place, files)
    return found


def in_process(step: str, store: str, place: str, files: int) -> Row:
    """What a process of its own measures."""
    command = [sys.executable, "-m", "tests.benchmarks.scale", "--step", step, "--place", place]
    command += ["--store", store, str(files)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: Row = json.loads(printed.splitlines()[-1])
    return found


def _print(store: str, rows: dict[int, Row]) -> None:
    heading(f"Of so many files, in {store}; growth for ten times as many", warm_runs=WARM)
    lines = []
    for column in dict.fromkeys(name for row in rows.values() for name in row):
        values = [rows[files][column] for files in rows]
        shown = [f"{value[0]:,.1f}{f' ({value[1]:,.1f})' if value[1:] else ''}" for value in values]
        grows = 0 if store == "opensearch" else -1
        points = pairwise((files, value[grows]) for files, value in zip(rows, values, strict=True))
        growth = (_growth(b / max(a, 1e-9), n / m) for (m, a), (n, b) in points)
        lines.append((column, *shown, " ".join(growth)))
    table(("", *(f"{files:,}" for files in rows), "growth"), lines)


def _growth(value: float, files: float) -> str:
    """By how much it grows while files become ten times as many."""
    return f"{max(value, 0) ** (1 / math.log10(files)):.1f}x"


class _Clock:
    """Milliseconds of the clock and of this process since it was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter(), time.process_time()

    def read(self) -> Value:
        """Both of them."""
        now = time.perf_counter(), time.process_time()
        return [1e3 * (b - a) for a, b in zip(self._start, now, strict=True)]


def _median(values: Sequence[Value]) -> Value:
    return [median(each) for each in zip(*values, strict=True)]


# One process.


def step(step: str, store: str, place: str, files: int) -> Row:
    """What one process measures."""
    _filters()
    base = resident()
    opened = store_at(store, place)
    found: Row = {}
    if "fill" in step:
        found |= _fill(opened(), files)
    if "ask" in step:
        found |= _ask(opened(), files, base)
        found |= _refresh(opened(), files)
        found |= _keep(opened(), files)
    return found


def store_at(name: str, place: str) -> Callable[[], IndexStore]:
    """What opens the store anew, so that nothing is remembered."""
    if name == "memory":
        kept = MemoryStore()
        return lambda: kept
    if name == "sqlite":
        return lambda: SqliteStore(place)
    address, prefix = place.split(" ")
    return lambda: OpenSearchStore(address, Access(prefix=prefix), patience=PATIENCE)


def _fill(store: IndexStore, files: int) -> Row:
    """REFRESH of a table that has all these files from the start."""
    store.define(Definition(INDEX, TABLE, "star", COLUMNS), expect=None)
    whole = Synthetic(files)
    write, writes = store.write, []

    def timed(*given: object, **named: object) -> None:
        clock = _Clock()
        write(*given, **named)  # type: ignore[arg-type]
        writes.append(clock.read())

    clock = _Clock()
    with patch.object(store, "write", timed):
        refresh(whole.build, store, whole, _definition(store))
    return {
        "build, ms": clock.read(),
        "write, ms": [sum(each) for each in zip(*writes, strict=True)],
        "longest write, ms": max(writes),
        "index, MB": [(store.size(INDEX) or 0) / 1e6],
        "builder's memory, MiB": [_peak() / 2**20],
    }


def _ask(store: IndexStore, files: int, base: int) -> Row:
    found: Row = {}
    answers, lookup = driver(store, ttl=3_600)
    clock = _Clock()
    _, gone = timed(answers, question("k", keys("k", 1, files, 99)), TIMEOUT)
    found["cold, first answer, ms"] = clock.read()
    found["of it pruned, %"] = [100 * gone / files]
    for column in SPELLED:
        timed(answers, question(column, keys(column, 1, files, 99)), PATIENCE)
    while not (known := lookup.entries.get(INDEX, timeout=PATIENCE)).entries.whole:
        time.sleep(0.05)
    for first in range(0, files, PART):
        timed(answers, _files(known.id, first), PATIENCE)
    found["cold, everything, ms"] = clock.read()
    for column, n in ASKED:
        messages = (question(column, keys(column, n, files, turn)) for turn in range(WARM))
        runs = [timed(answers, message, PATIENCE) for message in messages]
        assert min(gone for _, gone in runs) > 0 or files < n
        found[f"warm, {SPELLED[column]}, {n:,} keys, ms"] = _median([took for took, _ in runs])
    found["driver's memory, MiB"] = [(resident() - base) / 2**20]
    found["driver's peak, MiB"] = [(_peak() - base) / 2**20]
    return found


def driver(store: IndexStore, ttl: float) -> tuple[Answers, Lookup]:
    """What Java asks, of a driver that knows nothing."""
    lookup, settings = Lookup(store, ttl=ttl), Settings.of(PATIENT)
    return Answers(lambda name: (settings, lookup)), lookup


def _files(entries_id: str, first: int) -> bytes:
    asked = {"op": "files", "index": INDEX, "table": table_key(TABLE)}
    return _header({**asked, "entries_id": entries_id, "first": first})


def _refresh(store: IndexStore, files: int) -> Row:
    """REFRESH of ten more files, and the first answer after it, of a driver that was up to date."""
    answers, _ = driver(store, ttl=0)
    message = question("k", keys("k", 1, files, 0))
    for _ in range(3):  # until all is read
        timed(answers, message, PATIENCE)
    refreshes, after = [], []
    for turn in range(ROUNDS):
        grown = Synthetic(files, NEW * turn, NEW)
        clock = _Clock()
        state = refresh(grown.build, store, grown, _definition(store))
        refreshes.append(clock.read())
        assert (state.status, state.covered) == ("active", grown.version())
        after.append(timed(answers, message, PATIENCE)[0])
    return {
        "refresh of 10, ms": _median(refreshes),
        "first answer after it, ms": _median(after),
    }


def _keep(store: IndexStore, files: int) -> Row:
    """DESCRIBE, and VACUUM that finds a hundredth of the files gone."""
    grown = Synthetic(files, NEW * (ROUNDS - 1), NEW)
    source = Source(grown, grown.build, lambda: Settings.of(PATIENT), lambda: store)
    index = SkippingIndex(source, store, _definition(store))
    clock = _Clock()
    assert index.describe()["files"] == str(files + NEW * ROUNDS)
    described = clock.read()
    grown.lost = files // 100
    clock = _Clock()
    assert vacuum(store, grown, INDEX) == grown.lost
    return {"DESCRIBE, ms": described, "VACUUM, ms": clock.read()}


def _definition(store: IndexStore) -> Versioned[Definition]:
    return next(d for d in store.definitions() if d.value.index == INDEX)


@dataclass(slots=True)
class Synthetic:
    """A table of files that are not there: `files`, then `before` newer, and then `new` more.

    The first `lost` of them are not in it any more.
    """

    files_: int
    before: int = 0
    new: int = 0
    lost: int = 0
    id: TableId = TABLE
    name: str = "star"
    has_log: ClassVar[bool] = True

    def columns(self) -> Columns:
        return Columns(
            TableColumn(c.name, c.identity, c.type, PhysicalColumn((c.name,))) for c in COLUMNS
        )

    def version(self) -> int:
        return self.before // NEW + bool(self.new)

    def files(self, version: int | None = None, *, where: str | None = None) -> pa.Table:
        return _listed(self.lost, self.files_ + self.before + self.new)

    def changes(self, since: int, until: int) -> pa.Table | None:
        end = self.files_ + self.before
        return _listed(end, end + self.new)

    def find_reachable(self, paths: pa.Array) -> pa.Array:
        return pa.repeat(False, len(paths))

    def build(self, files: pa.Table, work: Sequence[Work]) -> Iterator[pa.Table]:
        start = self.files_ + self.before if self.new else 0
        filters, layout = _filters()
        done = 0
        for part in entries(start + len(files), start):
            n = len(part)
            ordinals = files["ordinal"].slice(done, n)
            full = [filters[i % len(filters)] for i in range(n)]
            columns = {
                "s2o_known": pa.nulls(n, pa.bool_()),  # a part that only long lists have
                "s3_known": part["s1_known"],
                "s3_filter": pa.array(full, pa.large_binary()),
                "s3_layout": pa.array(np.full(n, layout)),
                "s3_nulls": part["s1_nulls"],
            }
            part = part.set_column(0, "ordinal", ordinals)
            for name, column in columns.items():
                part = part.append_column(name, column)
            yield part
            done += n


def _listed(start: int, end: int) -> pa.Table:
    """As the table lists files from number `start` to `end`."""
    n = end - start
    nothing = pa.array([], pa.string())
    partition = pa.MapArray.from_arrays(pa.array(np.zeros(n + 1, np.int32)), nothing, nothing)
    named = identities(np.arange(start, end))
    columns = [named["path"], named["size"], named["stamp"], partition, pa.repeat("parquet", n)]
    return pa.table(columns, schema=FILES)


@cache
def _filters() -> tuple[list[bytes], int]:
    """A hundred filters of FULL values each, and their layout."""
    kind = BloomFilter.of((Column("b", Domain("integer", pa.int64())),), {"fpp": FPP})
    random = np.random.default_rng(7)
    made, layout = [], 0
    for _ in range(100):
        collector = kind.collector()
        collector.add(pa.array(random.choice(2**40, FULL)), 0)
        found = collector.finish()
        assert found is not None
        made.append(bytes(found["filter"]))
        layout = int(found["layout"])
    return made, layout


def keys(column: str, n: int, files: int, turn: int) -> np.ndarray:
    """Keys of a tenth of the range or more, in no order, others at each turn.

    No file has those for the bloom filters.
    """
    random = np.random.default_rng(turn)
    if column == "b":
        return (random.integers(0, 2**40, n) + 2**41).astype("<i8")
    span = files * KEYS if column == "k" else distinct(files)
    return (random.choice(max(span // 10, n), n, replace=False) + turn).astype("<i8")


def question(column: str, keys: np.ndarray) -> bytes:
    """As rewrite.jvm.bridge.MessageWriter writes `column IN (keys)`."""
    values = {"type": "bigint", "n": len(keys), "buffers": [0]}
    named = {"identity": column, "name": column, "type": "bigint"}
    leaf = {"op": "in", "column": named, "nulls": False, "values": values}
    tree = {"op": "and", "operands": [leaf]}
    head = {"op": "pruned", "table": table_key(TABLE), "settings": PATIENT, "filters": tree}
    return _header({"lengths": [keys.nbytes], **head}) + keys.tobytes()


def _header(header: dict[str, object]) -> bytes:
    head = json.dumps({"version": CURRENT, "lengths": [], **header}).encode()
    return len(head).to_bytes(4, "little") + head


def timed(answers: Answers, message: bytes, timeout: float) -> tuple[Value, int]:
    """Milliseconds, and how many files are pruned."""
    clock = _Clock()
    answer = answers.apply(f"0 {1e6 * timeout:.0f}", message)
    took = clock.read()
    end = 4 + int.from_bytes(answer[:4], "little")
    header = json.loads(answer[4:end])
    length = header.get("length", 0)
    return took, len(BitMap.deserialize(answer[end : end + length])) if length else 0


def resident() -> int:
    """Bytes of memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _peak() -> int:
    """The most that it had."""
    return 1_024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("sizes", nargs="*", type=int, metavar="files")
    parser.add_argument("--store", action="append", choices=STORES)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--place", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        print(json.dumps(step(given.step, given.store[0], given.place, given.sizes[0])))
    else:
        main(given.sizes or SIZES, given.store or STORES)
