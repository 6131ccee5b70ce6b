"""The time of an answer from the stores: `python -m tests.benchmarks.lookup [files ...]`.

From the message that Java sends to the message it gets, without the JVM. Entries are those of
`synthetic`, each with one of a hundred full bloom filters of about a KiB. No two questions are
equal. OpenSearch is a node on this machine ($OPENSEARCH, if it is set).
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from providers import BloomFilter, Column, Domain
from rewrite.bridge.callbacks import Answers, table_key
from rewrite.bridge.protocol import CURRENT
from skipping.config.settings import Settings
from skipping.lookup.lookup import Lookup
from skipping.model.definition import Definition, IndexedColumn, TableId
from skipping.stores import IndexStore
from skipping.stores.opensearch.access import Access
from skipping.stores.opensearch.store import OpenSearchStore
from skipping.stores.sqlite.store import SqliteStore
from tests.benchmarks.report import heading, spread, table
from tests.benchmarks.synthetic import KEYS, cluster, distinct, entries, server

__all__ = ["main"]

FULL, FPP = 512, 0.001  # so that the gate lets pass a hundred keys
TABLE = TableId("delta", "b0", "file:/star")
INDEX = "00000000-0000-0000-0000-000000000000"
COLUMNS = (
    IndexedColumn(1, "k", "k", "bigint", "MIN_MAX"),
    IndexedColumn(2, "h", "h", "bigint", "VALUE_LIST"),
    IndexedColumn(3, "b", "b", "bigint", "BLOOM_FILTER", (("fpp", FPP),)),
)
PATIENCE = 600_000_000
PATIENT = {"spark.skipping.timeout": "600s", "spark.skipping.mode": "strict"}
MANY = (1, 1_000, 100_000, 1_000_000)
ASKED = (*(("k", n) for n in MANY), *(("h", n) for n in MANY), ("b", 1), ("b", 10), ("b", 100))
WARM = 9


def main(*sizes: int) -> None:
    """Print the table."""
    rows = []
    with cluster() as address, TemporaryDirectory() as folder:
        for files in sizes or (1_000, 10_000, 100_000):
            for name, opened in _stores(address, Path(folder), files).items():
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
        version = server(address)
    heading("An answer of the stores, ms", warm_runs=WARM, OpenSearch=version)
    table(("files, store, question", "left", "cold", "warm", "CPU here"), rows)


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
    asked = {"op": "files", "index": INDEX, "table": table_key(TABLE)}
    numbers = _header(asked)
    yield "numbers, once a generation", lambda turn: numbers


def _fill(store: IndexStore, files: int) -> None:
    revision = store.define(Definition(INDEX, TABLE, "star", COLUMNS), expect=None)
    store.reserve(INDEX, files)
    filters, layout = _filters()
    for part in entries(files):
        numbers = part["ordinal"].to_pylist()
        full = pa.array([filters[i % len(filters)] for i in numbers], pa.large_binary())
        columns = {
            "s3_known": part["s1_known"],
            "s3_filter": full,
            "s3_layout": pa.array(np.full(len(part), layout)),
            "s3_nulls": part["s1_nulls"],
        }
        for name, column in columns.items():
            part = part.append_column(name, column)
        store.write(INDEX, part, revision=revision)


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


def _keys(column: str, n: int, files: int, turn: int) -> np.ndarray:
    """Keys of a tenth of the range or more, in no order, others at each turn.

    No file has those for the bloom filters.
    """
    random = np.random.default_rng(turn)
    if column == "b":
        return (random.choice(2**40, n, replace=False) + 2**41).astype("<i8")
    span = files * KEYS if column == "k" else distinct(files)
    return (random.choice(max(span // 10, n), n, replace=False) + turn).astype("<i8")


def _message(column: str, keys: np.ndarray) -> bytes:
    """As rewrite.jvm.bridge.MessageWriter writes `column IN (keys)`."""
    values = {"type": "bigint", "n": len(keys), "buffers": [0]}
    named = {"identity": column, "name": column, "type": "bigint"}
    leaf = {"op": "in", "column": named, "nulls": False, "values": values}
    tree = {"op": "and", "legs": [leaf]}
    head = {"op": "disproved", "table": table_key(TABLE), "settings": PATIENT, "filters": tree}
    return _header({"lengths": [keys.nbytes], **head}) + keys.tobytes()


def _header(header: dict[str, object]) -> bytes:
    head = json.dumps({"version": CURRENT, "lengths": [], **header}).encode()
    return len(head).to_bytes(4, "little") + head


def _answers(store: IndexStore) -> Answers:
    lookup = Lookup(store, ttl=3_600)
    settings = Settings.of(PATIENT)
    return Answers(lambda name: (settings, lookup))


def _timed(answers: Answers, message: bytes) -> tuple[float, float, int]:
    """Seconds, seconds of CPU, and how many files are disproved."""
    wall, cpu = time.perf_counter(), time.process_time()
    answer = answers.apply(f"0 {PATIENCE}", message)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    end = 4 + int.from_bytes(answer[:4], "little")
    length = json.loads(answer[4:end]).get("length", 0)
    return wall, cpu, len(BitMap.deserialize(answer[end : end + length])) if length else 0


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
