"""Blocks that somebody forged in an SQLite store, with the checksums that belong to them.

`python -m tests.skipping.stores.forged FOLDER SEED ROUNDS` changes random bytes of each part of an
index, asks everything that reads the part, and prints how often what happened. What ends this
process would end a driver.
"""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import struct
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from providers.errors import StoreError
from providers.index_predicate import (
    BitsSet,
    Contains,
    ContainsOther,
    ContainsRange,
    Overlaps,
    Test,
)
from skipping.stores.sqlite import index_rows, segments
from skipping.stores.sqlite.store import SqliteStore
from tests.skipping.stores.samples import bounds, entries
from tests.skipping.stores.small import DEFINITION

Change = Callable[[list[bytes], bytes], tuple[list[bytes], bytes]]

PARTS = ("files", "hashes", "removed", "s1", "s2_values", "s3_values", "s4_filter")
_PROBE = pa.array([[3, 17], [4, 40]], pa.list_(pa.int64(), 2))
TESTS: list[Test] = [
    Overlaps("low", "high", pa.array([3, 40]), "s1"),
    Contains("values", pa.array(["t3", "t40"]), "s2"),
    ContainsRange("values", "t3", "t40", True, False, "s2"),
    Contains("values", pa.array([3, 40]), "s3"),
    ContainsOther("values", pa.array([3, 40]), "s3"),
    ContainsRange("values", 3, 40, True, False, "s3"),
    BitsSet("filter", "layout", ((1, _PROBE),), "s4"),
]
_WORDS = [b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\xff" * 4, b"\0" * 4, b"\xff" * 8, b"\0\x10\0\0"]
_WORDS += [n.to_bytes(8, "little") for n in (2_000_000_000, 1 << 36, 1 << 62)]


def make(path: Path) -> SqliteStore:
    """A store with two runs of each part, and a file removed."""
    store = SqliteStore(path)
    store.define(DEFINITION, expect=None)
    for n in (60, 30):
        ordinals = store.reserve("i", n)
        values = bounds(ordinals) | {
            "s1_high": [o + 9 for o in ordinals],
            "s2_known": [True] * n,
            "s2_values": [[f"t{o % 50}", f"t{o % 7}"] for o in ordinals],
            "s3_known": pa.array([True] * n),
            "s3_values": pa.array([[o % 50, o % 7] for o in ordinals]),
            "s4_known": pa.array([True] * n),
            "s4_filter": pa.array([bytes([o % 250] * 40) for o in ordinals], pa.large_binary()),
            "s4_layout": pa.array([1] * n),
        }
        store.write("i", entries(ordinals, values), revision=1)
    store.remove("i", pa.array([5]))
    return store


def forge(path: Path, part: str, change: Change) -> None:
    """Change the blocks of the newest run of a part, and all checksums of them."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        record = index_rows.read_record(connection, "i")
        forged = segments.Part(connection, record, part)
        run = forged.runs()[-1]
        data = [
            block
            for (block,) in connection.execute(
                "SELECT data FROM block WHERE id >= ? AND id < ? ORDER BY id",
                (run.first, run.first + len(run.checksums)),
            )
        ]
        changed, about = change(data, run.about)
        forged.delete(run)
        forged.add(changed, generation=run.generation, items=run.items, about=about)
        index_rows.save(connection, record)
        connection.execute("COMMIT")


def make_endless(path: Path, index: str) -> None:
    """Make pages of one of SQLite's indexes name the same pages again and again: rows without end.

    A page of the first level names the last page 41 times, one of the next level that page, ...
    """
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        ((root,),) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = ?", (index,)
        ).fetchall()
    data, size = path.read_bytes(), 4_096
    pages = [data[at : at + size] for at in range(0, len(data), size)]
    made = leaf = pages[root - 1]
    first = int.from_bytes(leaf[8:10], "big")
    cell = leaf[first : first + 1 + leaf[first]]
    for _ in range(7):
        pages.append(made)
        body = (len(pages).to_bytes(4, "big") + cell) * 40
        at = [size - len(body) + n * (4 + len(cell)) for n in range(40)]
        made = struct.pack(">BHHHBI40H", 2, 0, 40, at[0], 0, len(pages), *at)
        made += bytes(size - len(made) - len(body)) + body
    pages[root - 1] = made
    header = bytearray(pages[0])
    header[28:32], header[92:96] = len(pages).to_bytes(4, "big"), header[24:28]
    path.write_bytes(b"".join([bytes(header), *pages[1:]]))


def ask(path: Path) -> list[object]:
    """All that reads blocks, and at last what writes them anew."""
    store = SqliteStore(path)
    found: list[object] = [store.catalogue("i", fields=["s1_low"]).files.to_pylist()]
    found += [list(a) for a in store.find_prunable("i", TESTS, below=90, timeout=30)]
    found += [table.to_pylist() for table in store.entries("i")]
    found.append(store.ordinals("i", store.catalogue("i").files).to_pylist())
    store.remove("i", pa.array(range(70)))
    return found


def ask_each(path: Path) -> list[object]:
    """Each test by itself: the first that is refused does not hide the others."""
    found: list[object] = []
    store = SqliteStore(path)
    for test in TESTS:
        try:
            found.append(list(store.find_prunable("i", [test], below=90, timeout=30)[0]))
        except StoreError:
            found.append("refused")
    return found


def _mutation(chosen: random.Random) -> Change:
    def change(data: list[bytes], about: bytes) -> tuple[list[bytes], bytes]:
        blocks = [bytearray(each) for each in (*data, about)]
        for _ in range(chosen.choice((1, 1, 2, 3))):
            block = chosen.choice([each for each in blocks if len(each) > 8])
            at = chosen.randrange(len(block) - 8)
            if chosen.random() < 0.4:
                block[at] = chosen.randrange(256)
            elif chosen.random() < 0.9:
                word = chosen.choice(_WORDS)
                block[at & ~3 : (at & ~3) + len(word)] = word
            else:
                del block[at:]
        *changed, last = map(bytes, blocks)
        return changed, last

    return change


def main(folder: Path, seed: int, rounds: int) -> Counter[str]:
    """How often a forged store was refused, and how often it answered as before or otherwise."""
    chosen, seen = random.Random(seed), Counter[str]()
    good, forged = folder / "good.db", folder / "forged.db"
    make(good)
    shutil.copy(good, forged)
    truth, each = ask_each(good), ask(forged)
    for part in PARTS:
        for _ in range(rounds):
            shutil.copy(good, forged)
            forge(forged, part, _mutation(chosen))
            found = ask_each(forged)
            try:
                outcome = "same" if (found, ask(forged)) == (truth, each) else "other"
            except StoreError:
                outcome = "refused"
            seen[outcome] += 1
    return seen


if __name__ == "__main__":
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
