"""The time of an answer from the SQLite store: `python -m tests.benchmarks.lookup [files ...]`.

From the message that Java sends to the message it gets, without the JVM. Entries are synthetic:
file `i` holds the 500 keys from 500 i on, and 20 values that live in five files each.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from rewrite.bridge import Answers, table_key
from skipping.definition import Definition, IndexedColumn, TableId
from skipping.lookup import Lookup
from skipping.stores import IDENTITY
from skipping.stores.sqlite import SqliteStore
from tests.benchmarks.report import heading, spread, table

__all__ = ["main"]

KEYS, VALUES, SHARED = 500, 20, 5
TABLE = TableId("delta", "b0", "file:/star")
INDEX = "00000000-0000-0000-0000-000000000000"
COLUMNS = (
    IndexedColumn(1, "k", "k", "bigint", "MIN_MAX"),
    IndexedColumn(2, "h", "h", "bigint", "VALUE_LIST"),
)
PATIENT = {"spark.skipping.timeout": "600s", "spark.skipping.mode": "strict"}
ASKED = (("k", 1), ("k", 1_000), ("k", 1_000_000), ("h", 1), ("h", 1_000))
WARM = 9


def main(*sizes: int) -> None:
    """Print the table."""
    rows = []
    for files in sizes or (365, 10_000, 100_000):
        with TemporaryDirectory() as folder:
            path = Path(folder) / "store.sqlite"
            start = time.process_time()
            _fill(SqliteStore(path), files)
            filled = time.process_time() - start
            print(f"  {files:,} entries: written with {filled:.1f} s of CPU, ", end="")
            print(f"{path.stat().st_size / files:.0f} bytes a file")
            for name, message in _questions(files):
                answers = _answers(path)  # new: nothing is remembered
                (cold, *warm) = (_timed(answers, message) for _ in range(1 + WARM))
                kept = {files - disproved for _, _, disproved in (cold, *warm)}
                walls, cpus = ([1e3 * run[i] for run in warm] for i in (0, 1))
                shown = f"{1e3 * cold[0]:.1f}", spread(walls, 1), spread(cpus, 1)
                rows.append((f"{files:,} {name}", *kept, *shown))
    heading("An answer of the SQLite store, ms", warm_runs=WARM)
    table(("files, question", "left", "cold", "warm", "warm, CPU"), rows)


def _questions(files: int) -> Iterator[tuple[str, bytes]]:
    for column, n in ASKED:
        keys = _keys(column, n, files)
        kind = next(c.kind for c in COLUMNS if c.name == column)
        yield f"{kind}, {len(keys):,} keys", _message(column, keys)
    yield (
        "numbers, once a generation",
        _header({"op": "files", "index": INDEX, "settings": PATIENT}),
    )


def _fill(store: SqliteStore, files: int) -> None:
    revision = store.define(Definition(INDEX, TABLE, "star", COLUMNS), expect=None)
    store.reserve(INDEX, files)
    numbers = np.arange(files)
    values = np.random.default_rng(7).permutation(files * VALUES) % _distinct(files)
    ends = pa.array(np.arange(files + 1, dtype=np.int32) * VALUES)
    nulls = pa.array(np.zeros(files, np.int64))
    known = pa.array(np.ones(files, np.bool_))
    columns = {
        "ordinal": pa.array(numbers),
        "path": pa.array([f"file:/star/part-{i:06}-c000.snappy.parquet" for i in range(files)]),
        "size": pa.array(numbers + 1_000_000),
        "stamp": pa.nulls(files, pa.int64()),
        "partition": pa.array(["{}"] * files),
        "s1_known": known,
        "s1_low": pa.array(numbers * KEYS),
        "s1_high": pa.array(numbers * KEYS + KEYS - 1),
        "s1_nulls": nulls,
        "s2_known": known,
        "s2_values": pa.ListArray.from_arrays(ends, pa.array(values)),
        "s2_nulls": nulls,
    }
    entries = pa.table(columns)
    assert entries.select(IDENTITY.names).schema.equals(IDENTITY)
    store.write(INDEX, entries, revision=revision)


def _distinct(files: int) -> int:
    return files * VALUES // SHARED


def _keys(column: str, n: int, files: int) -> np.ndarray:
    """Keys of a tenth of the range, in no order; every value of it where there are fewer."""
    span = files * KEYS if column == "k" else _distinct(files)
    tenth = max(span // 10, 1)
    return np.random.default_rng(7).choice(tenth, min(n, tenth), replace=False).astype("<i8")


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


def _answers(path: Path) -> Answers:
    lookup = Lookup(SqliteStore(path), ttl=3_600)
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
