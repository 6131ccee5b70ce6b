"""The time of an answer from the stores: `python -m tests.benchmarks.lookup [files ...]`.

From the message that Java sends to the message it gets, without the JVM. Entries are synthetic:
file `i` holds the 500 keys from 500 i on, 20 values that live in five files each, and one of a
hundred full bloom filters of about a KiB. No two questions are equal. OpenSearch is a node on this
machine ($OPENSEARCH, if it is set).
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from providers import BloomFilter, Column, Domain
from rewrite.bridge import Answers, table_key
from skipping.definition import Definition, IndexedColumn, TableId
from skipping.lookup import Lookup
from skipping.stores import IDENTITY, IndexStore
from skipping.stores.opensearch import OpenSearchStore
from skipping.stores.opensearch_access import Access
from skipping.stores.sqlite import SqliteStore
from tests.benchmarks.report import heading, spread, table
from tests.opensearch import Node

__all__ = ["main"]

KEYS, VALUES, SHARED = 500, 20, 5
FULL, FPP = 512, 0.001  # so that the gate lets pass a hundred keys
PART = 10_000  # entries of one write
TABLE = TableId("delta", "b0", "file:/star")
INDEX = "00000000-0000-0000-0000-000000000000"
COLUMNS = (
    IndexedColumn(1, "k", "k", "bigint", "MIN_MAX"),
    IndexedColumn(2, "h", "h", "bigint", "VALUE_LIST"),
    IndexedColumn(3, "b", "b", "bigint", "BLOOM_FILTER", (("fpp", FPP),)),
)
PATIENT = {"spark.skipping.timeout": "600s", "spark.skipping.mode": "strict"}
MANY = (1, 1_000, 100_000, 1_000_000)
ASKED = (*(("k", n) for n in MANY), *(("h", n) for n in MANY), ("b", 1), ("b", 10), ("b", 100))
WARM = 9


def main(*sizes: int) -> None:
    """Print the table."""
    rows = []
    with _cluster() as cluster, TemporaryDirectory() as folder:
        for files in sizes or (1_000, 10_000, 100_000):
            for name, opened in _stores(cluster, Path(folder), files).items():
                start = time.perf_counter()
                _fill(opened(), files)
                filled = time.perf_counter() - start
                print(f"  {files:,} entries into {name}: {filled:.1f} s", flush=True)
                for question, asked in _questions(files):
                    # A new store and a new lookup: nothing is remembered.
                    answers = _answers(opened())
                    cold, *warm = (_timed(answers, asked(turn)) for turn in range(1 + WARM))
                    left = files - int(np.median([disproved for _, _, disproved in warm]))
                    walls, cpus = ([1e3 * run[i] for run in warm] for i in (0, 1))
                    shown = f"{1e3 * cold[0]:.0f}", spread(walls, 1), spread(cpus, 1)
                    rows.append((f"{files:,} {name}, {question}", left, *shown))
        server = _server(cluster)
    heading("An answer of the stores, ms", warm_runs=WARM, OpenSearch=server)
    table(("files, store, question", "left", "cold", "warm", "CPU here"), rows)


@contextmanager
def _cluster() -> Iterator[str]:
    running = os.environ.get("OPENSEARCH", "").rpartition("/")[2]
    if running:
        yield f"http://{running}"
        return
    node = Node(fast=True)
    try:
        yield f"http://{node.start()}"
    finally:
        node.stop()


def _server(cluster: str) -> str:
    """Version and Java of the first node."""
    with urllib.request.urlopen(f"{cluster}/_nodes/jvm", timeout=60) as response:
        node = next(iter(json.load(response)["nodes"].values()))
    return f"{node['version']} on JDK {node['jvm']['version']}"


def _stores(cluster: str, folder: Path, files: int) -> dict[str, Callable[[], IndexStore]]:
    access = Access(prefix=f"{uuid.uuid4().hex[:8]}-")
    return {
        "SQLite": lambda: SqliteStore(folder / f"{files}.sqlite"),
        "OpenSearch": lambda: OpenSearchStore(cluster, access, patience=600),
    }


def _questions(files: int) -> Iterator[tuple[str, Callable[[int], bytes]]]:
    for column, n in ASKED:
        kind = next(c.kind for c in COLUMNS if c.name == column)
        yield (
            f"{kind}, {n:,} keys",
            lambda turn, c=column, n=n: _message(c, _keys(c, n, files, turn)),
        )
    numbers = _header({"op": "files", "index": INDEX, "settings": PATIENT})
    yield "numbers, once a generation", lambda turn: numbers


def _fill(store: IndexStore, files: int) -> None:
    revision = store.define(Definition(INDEX, TABLE, "star", COLUMNS), expect=None)
    store.reserve(INDEX, files)
    values = np.random.default_rng(7).permutation(files * VALUES) % _distinct(files)
    filters, layout = _filters()
    for start in range(0, files, PART):
        numbers = np.arange(start, min(start + PART, files))
        n = len(numbers)
        some = values[start * VALUES : (start + n) * VALUES]
        nulls = pa.array(np.zeros(n, np.int64))
        known = pa.array(np.ones(n, np.bool_))
        ends = pa.array(np.arange(n + 1, dtype=np.int32) * VALUES)
        full = pa.array([filters[i % len(filters)] for i in numbers], pa.large_binary())
        columns = {
            "ordinal": pa.array(numbers),
            "path": pa.array([f"file:/star/part-{i:06}-c000.snappy.parquet" for i in numbers]),
            "size": pa.array(numbers + 1_000_000),
            "stamp": pa.nulls(n, pa.int64()),
            "partition": pa.array(["{}"] * n),
            "s1_known": known,
            "s1_low": pa.array(numbers * KEYS),
            "s1_high": pa.array(numbers * KEYS + KEYS - 1),
            "s1_nulls": nulls,
            "s2_known": known,
            "s2_values": pa.ListArray.from_arrays(ends, pa.array(some)),
            "s2_nulls": nulls,
            "s3_known": known,
            "s3_filter": full,
            "s3_layout": pa.array(np.full(n, layout)),
            "s3_nulls": nulls,
        }
        entries = pa.table(columns)
        assert entries.select(IDENTITY.names).schema.equals(IDENTITY)
        store.write(INDEX, entries, revision=revision)


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


def _distinct(files: int) -> int:
    return files * VALUES // SHARED


def _keys(column: str, n: int, files: int, turn: int) -> np.ndarray:
    """Keys of a tenth of the range or more, in no order, others at each turn.

    No file has those for the bloom filters.
    """
    random = np.random.default_rng(turn)
    if column == "b":
        return (random.choice(2**40, n, replace=False) + 2**41).astype("<i8")
    span = files * KEYS if column == "k" else _distinct(files)
    return (random.choice(max(span // 10, n), n, replace=False) + turn).astype("<i8")


def _message(column: str, keys: np.ndarray) -> bytes:
    """As rewrite.jvm.Question writes `column IN (keys)`."""
    values = {"type": "bigint", "n": len(keys), "buffers": [0]}
    named = {"identity": column, "name": column, "type": "bigint"}
    leaf = {"op": "in", "column": named, "nulls": False, "values": values}
    tree = {"op": "and", "legs": [leaf]}
    head = {"op": "disproved", "table": table_key(TABLE), "settings": PATIENT, "filters": tree}
    return _header({"lengths": [keys.nbytes], **head}) + keys.tobytes()


def _header(header: dict[str, object]) -> bytes:
    head = json.dumps({"lengths": [], **header}).encode()
    return len(head).to_bytes(4, "little") + head


def _answers(store: IndexStore) -> Answers:
    lookup = Lookup(store, ttl=3_600)
    return Answers(lambda settings: lookup)


def _timed(answers: Answers, message: bytes) -> tuple[float, float, int]:
    """Seconds, seconds of CPU, and how many files are disproved."""
    wall, cpu = time.perf_counter(), time.process_time()
    answer = answers.apply(message)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    end = 4 + int.from_bytes(answer[:4], "little")
    length = json.loads(answer[4:end]).get("length", 0)
    return wall, cpu, len(BitMap.deserialize(answer[end : end + length])) if length else 0


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
