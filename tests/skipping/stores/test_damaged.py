"""Damage to the file of an SQLite store: it answers right, or says that it cannot."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import struct
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest

from providers.errors import Damaged, StoreError
from providers.index_predicate import BitsSet, Contains, ContainsOther, Overlaps, Test
from skipping.stores.sqlite import index_rows, segments
from skipping.stores.sqlite.store import SqliteStore
from tests.conftest import RunPython
from tests.skipping.stores import forged, samples
from tests.skipping.stores.samples import bounds, filters
from tests.skipping.stores.small import DEFINITION

pytestmark = pytest.mark.nightly

FILES, SPAN = 300, 400


def truth(path: str) -> set[int]:
    """The values of a file, which its path tells."""
    return set(map(int, path.rpartition("/")[2].split(",")))


def entries(ordinals: range, chosen: random.Random) -> pa.Table:
    n = len(ordinals)
    values = [sorted(chosen.sample(range(SPAN), chosen.randint(1, 20))) for _ in ordinals]
    paths = [f"{chosen.random()}/{','.join(map(str, each))}" for each in values]
    columns = bounds([each[0] for each in values]) | filters([bits(v) for v in values], [1] * n)
    columns |= {"s1_high": [each[-1] for each in values], "s2_known": [True] * n}
    columns |= {"s2_values": [list(map(str, each)) for each in values]}
    return samples.entries(ordinals, columns, path=paths)


def bits(values: list[int]) -> bytes:
    return sum(1 << value for value in values).to_bytes(SPAN // 8, "little")


def grown(path: Path, chosen: random.Random, writes: int) -> SqliteStore:
    store = SqliteStore(path)
    if not path.exists():
        store.define(DEFINITION, expect=None)
    for _ in range(writes):
        ordinals = store.reserve("i", FILES // writes)
        store.write("i", entries(ordinals, chosen), revision=1)
    return store


def false_skips(path: Path, keys: range = range(0, SPAN, 7)) -> int:
    """How many files with a match a fresh store says are pruned; raises StoreError."""
    store = SqliteStore(path)
    (found,) = store.definitions()
    if found.value.fault is not None:
        raise Damaged(found.value.fault)
    assert found.value == DEFINITION
    catalogue = store.catalogue("i")
    files = catalogue.files.select(["ordinal", "path"]).to_pydict()
    held = {o: truth(p) for o, p in zip(files["ordinal"], files["path"], strict=True)}
    asked: list[tuple[int, Test]] = []
    for key in keys:
        probe = pa.array([[key]], pa.list_(pa.int64(), 1))
        some = [str(v) for v in range(SPAN) if v != key]
        tests: list[Test] = [
            Overlaps("low", "high", pa.array([key]), "s1"),
            Contains("values", pa.array([str(key)]), "s2"),
            ContainsOther("values", pa.array(some), "s2"),
            BitsSet("filter", "layout", ((1, probe),), "s3"),
        ]
        asked += ((key, test) for test in tests)
    answers = store.find_prunable(
        "i",
        [test for _, test in asked],
        below=catalogue.below,
        timeout=60,
        generation=catalogue.generation,
    )
    return sum(
        key in held.get(o, ())
        for (key, _), answer in zip(asked, answers, strict=True)
        for o in answer
    )


def run_damaged(path: Path, keys: range = range(0, SPAN, 40)) -> str:
    try:
        return "WRONG" if false_skips(path, keys) else "right"
    except Damaged:
        return "damaged"
    except StoreError:
        return "refused"


@pytest.fixture
def made(tmp_path: Path) -> Path:
    path = tmp_path / "made.db"
    store = grown(path, random.Random(5), 3)
    store.remove("i", pa.array([1, 2]))
    assert false_skips(path) == 0
    return path


def flip_bytes(made: Path, flips: int) -> Counter[str]:
    whole, chosen, seen = made.read_bytes(), random.Random(7), Counter[str]()
    place = made.with_name("flipped.db")
    for n in range(flips):
        data = bytearray(whole)
        # In turn over the whole file, so that every page is met.
        at = (n * len(whole) // flips + chosen.randrange(64)) % len(whole)
        data[at] ^= 1 << chosen.randrange(8)
        place.write_bytes(data)
        seen[run_damaged(place)] += 1
    return seen


def test_flipped_bits(made: Path) -> None:
    seen = flip_bytes(made, 300)
    assert seen["WRONG"] == 0
    assert seen["damaged"] > 100
    assert seen["damaged"] + seen["refused"] + seen["right"] == 300


@pytest.mark.soak
def test_many_flipped_bits(made: Path) -> None:
    assert flip_bytes(made, 10_000)["WRONG"] == 0


def test_pages_of_two_copies(made: Path) -> None:
    """Each page of an older copy, in place of the newer one, and the other way round."""
    older = made.read_bytes()
    grown(made, random.Random(6), 2)
    newer = made.read_bytes()
    size, place, seen = 4_096, made.with_name("mixed.db"), Counter[str]()
    pages = min(len(older), len(newer)) // size
    for page in range(0, pages, max(1, pages // 60)):
        there = slice(page * size, (page + 1) * size)
        for base, other in ((newer, older), (older, newer)):
            data = bytearray(base)
            data[there] = other[there]
            place.write_bytes(data)
            seen[run_damaged(place)] += 1
    for cut in range(1, pages, max(1, pages // 30)):
        place.write_bytes(older[: cut * size] + newer[cut * size :])
        seen[run_damaged(place)] += 1
    assert seen["WRONG"] == 0
    assert seen["damaged"] > 10


def test_cut_off(made: Path) -> None:
    whole, seen = made.read_bytes(), Counter[str]()
    place = made.with_name("cut.db")
    for size in range(0, len(whole), len(whole) // 40):
        for cut in (size, size // 4_096 * 4_096):
            place.write_bytes(whole[:cut])
            seen[run_damaged(place)] += 1
    assert seen["WRONG"] == seen["right"] == 0


WRITER = """
import random, sqlite3, sys
import pyarrow as pa
from pathlib import Path
from tests.skipping.stores.test_damaged import entries, grown
from skipping.stores.sqlite import index_rows, segments
from skipping.stores.sqlite.store import SqliteStore
from tests.skipping.stores import forged, samples
from tests.skipping.stores.samples import bounds, filters
from tests.skipping.stores.small import DEFINITION
path, chosen = Path(sys.argv[1]), random.Random(3)
store = SqliteStore(path)
holder = sqlite3.connect(path)  # so that the log is not merged at every close
holder.execute("SELECT count(*) FROM block").fetchall()
print("up", flush=True)
while True:
    store.write("i", entries(store.reserve("i", chosen.choice([5, 60])), chosen), revision=1)
    if chosen.random() < 0.2:
        there = store.catalogue("i").files["ordinal"].to_pylist()
        store.remove("i", pa.array(chosen.sample(there, len(there) // 3), pa.int64()))
"""


@pytest.fixture
def writer(made: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", WRITER, str(made)]
    root = Path(__file__).parents[3]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process
        process.kill()


def test_a_copy_taken_while_it_is_written(made: Path, writer: subprocess.Popen[bytes]) -> None:
    chosen, seen, place = random.Random(2), Counter[str](), made.with_name("copy.db")
    until = time.monotonic() + 8
    while time.monotonic() < until:
        with made.open("rb") as source, place.open("wb") as target:
            while part := source.read(1 << 15):
                target.write(part)
                time.sleep(chosen.choice([0, 0, 0.003]))
        seen[run_damaged(place)] += 1
        for each in made.parent.glob("copy.db*"):
            each.unlink()
    assert writer.poll() is None
    assert seen["WRONG"] == 0
    assert sum(seen.values()) > 5


def test_a_backup_put_beside_a_log_that_was_left(made: Path) -> None:
    seen = Counter[str]()
    for round in range(6):
        path = made.with_name(f"{round}.db")
        shutil.copy(made, path)
        chosen = random.Random(round)
        with closing(sqlite3.connect(path)) as holder:
            holder.execute("SELECT count(*) FROM block").fetchall()
            store = grown(path, chosen, 2 + 4 * round)
            store.remove("i", pa.array(range(round * 20)))
            for side in ("-wal", "-shm"):
                shutil.copy(f"{path}{side}", made.with_name(f"kept{side}"))
        shutil.copy(made, path)
        shutil.copy(made.with_name("kept-wal"), f"{path}-wal")
        seen[run_damaged(path)] += 1
    assert seen["WRONG"] == 0


def test_forged_blocks_never_end_the_process(run_python: RunPython, tmp_path: Path) -> None:
    """Checksums have no secret: whoever may write the file can give any bytes the right ones."""
    run = run_python("-m", "tests.skipping.stores.forged", tmp_path, 37, 8)
    assert run.returncode == 0, run.stderr[-2_000:]
    seen = json.loads(run.stdout)
    assert seen["refused"] > 20
    assert sum(seen.values()) == 8 * len(forged.PARTS)


def _far(data: list[bytes], about: bytes) -> tuple[list[bytes], bytes]:
    """Offsets of text that lead out of the block, by 2 GB."""
    block = bytearray(data[0])
    block[20:24] = (2_000_000_000).to_bytes(4, "little")
    return [bytes(block), *data[1:]], about


def _short(data: list[bytes], about: bytes) -> tuple[list[bytes], bytes]:
    """Forty million numbers in eight bytes, each in no file."""
    n = 40_000_000
    return [struct.pack("<IIQ", n, 0, 8) + bytes(8) + bytes(4 * (n + 1))], about


def _files(data: list[bytes], about: bytes) -> tuple[list[bytes], bytes]:
    """Terms that have more files than there are, and then fewer."""
    block = bytearray(data[0])
    (length,) = struct.unpack_from("<Q", block, 8)
    block[20 + length : 24 + length] = b"\xff" * 4
    return [bytes(block), *data[1:]], about


def _group(place: int, value: int) -> forged.Change:
    def change(data: list[bytes], about: bytes) -> tuple[list[bytes], bytes]:
        numbers = list(struct.unpack("<QQQ", about))
        numbers[place] = value
        return data, struct.pack("<QQQ", *numbers)

    return change


def _bomb(data: list[bytes], about: bytes) -> tuple[list[bytes], bytes]:
    """Arrow data that unpacks to a thousand times its size."""
    table = pa.ipc.open_stream(data[0]).read_all()
    table = table.set_column(1, "path", [pa.array(["x" * 1_000_000] * len(table))])
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return [sink.getvalue().to_pybytes()], about


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("s2_values", _far),
        ("s2_values", _files),
        ("s3_values", _short),
        ("s3_values", _files),
        *(("s4_filter", _group(place, value)) for place in (0, 1) for value in (0, 8, 1 << 37)),
        *(("s4_filter", _group(2, value)) for value in (0, 1)),
        ("files", _bomb),
    ],
)
def test_a_forged_block_is_damaged(tmp_path: Path, part: str, change: forged.Change) -> None:
    path = tmp_path / "store.db"
    forged.make(path)
    forged.forge(path, part, change)
    with pytest.raises(Damaged):
        forged.ask(path)


def test_runs_that_share_blocks_are_damaged(tmp_path: Path) -> None:
    """A run names its blocks by four bytes each, so a small file could have any number of them."""
    path = tmp_path / "store.db"
    forged.make(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        record = index_rows.read_record(connection, "i")
        part = segments.Part(connection, record, "s2_values")
        (run, *_) = part.runs()
        row = (99, run.generation, run.items, run.first, run.checksums.tobytes(), run.about)
        connection.execute(
            "INSERT INTO run (id, generation, items, first, checksums, about, index_, part)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*row, record.id, "s2_values"),
        )
        part._count(part._checksum(row))
        index_rows.save(connection, record)
    with pytest.raises(Damaged, match="a block twice"):
        forged.ask(path)


def test_blocks_that_share_their_pages_are_damaged(tmp_path: Path) -> None:
    """A file of some KB could be any number of MB: each row names the pages of its end."""
    path = tmp_path / "store.db"
    forged.make(path)
    # Of both SQLite keeps 589 bytes in the row, and the rest in one page, or in three.
    large, small = b"<large>" + bytes(12_853), b"<small>" + bytes(4_670)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        record = index_rows.read_record(connection, "i")
        part = segments.Part(connection, record, "s4_filter")
        part.add([large, *[small] * 60], generation=1, items=1)
        run = part.runs()[-1]
        sums = zlib.crc32(large).to_bytes(4, "little") * 61
        row = (run.id, run.generation, run.items, run.first, sums, run.about)
        connection.execute("UPDATE run SET checksums = ? WHERE id = ?", (sums, run.id))
        part._count(part._checksum(row))
        part._count(-part._checksum((*row[:4], run.checksums.tobytes(), run.about)))
        index_rows.save(connection, record)
        connection.execute("VACUUM")  # no page has what was there before
        assert connection.execute("PRAGMA page_size").fetchone() == (4_096,)
    data = bytearray(path.read_bytes())
    at = data.index(b"<large>") - 8  # the size of the row, in two bytes, its number, a header
    size, kept = data[at : at + 2], data[at + 3 : at + 3 + 589 + 4]
    at = 0  # some are before the large one, on its page
    while (at := data.find(b"<small>", at)) >= 0:
        data[at - 7 : at - 5] = size
        data[at - 4 : at - 4 + len(kept)] = kept
    path.write_bytes(data)
    with closing(sqlite3.connect(path)) as connection:
        record = index_rows.read_record(connection, "i")
        part = segments.Part(connection, record, "s4_filter")
        run = part.runs()[-1]
        read = (block for n in range(61) for _, block in part.blocks(run, [n]))
        assert all(block == large for block in islice(read, 20))
        with pytest.raises(Damaged, match="more bytes than the file"):
            list(read)


def test_rows_without_end_end_with_the_time(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    forged.make(path)
    forged.make_endless(path, "run_part")
    store = SqliteStore(path, patience=0.5)
    for use in (lambda: store.size("i"), lambda: list(store.entries("i"))):
        began = time.monotonic()
        with pytest.raises(StoreError, match="did not answer within"):
            use()
        assert time.monotonic() - began < 30
    began = time.monotonic()
    store.define(replace(DEFINITION, dropped=True), expect=1)
    assert time.monotonic() - began < 30
