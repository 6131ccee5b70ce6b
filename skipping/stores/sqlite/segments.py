"""How an SQLite store keeps the parts of an index, so that what it reads can be verified.

A part is what questions read by itself: the identities of the files, the numbers of those removed,
the SCALAR fields of a sketch, the terms of a TERMS field, the bytes of a BYTES field. It consists
of runs, each what one write brought (or what several small ones did, put together), and a run of
blocks of some KiB. Nothing is changed in place: runs are added and deleted.

A run has the checksums of its blocks, the row of the index (`index_rows`) the sum of those of the
runs. A block that is not what was written, a run too few or too many, a run of another commit: all
are Damaged.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from providers.errors import Damaged
from skipping.stores import Generation
from skipping.stores.sqlite.index_rows import IndexRow, digest

__all__ = [
    "Run",
    "add",
    "blocks",
    "count_bytes",
    "delete",
    "delete_orphans",
    "runs",
    "small_runs",
]

_MASK = 2**63 - 1
_AT_ONCE = 500  # rows of one statement


@dataclass(slots=True)
class _Room:
    """The bytes that what is read of a part can have at most: those of the file.

    Rows may share their pages in a forged file, so a few MB of it can be any number of GB.
    """

    left: int

    @classmethod
    def of(cls, connection: sqlite3.Connection) -> _Room:
        """That of a file."""
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        return cls(pages * size)

    def take(self, bytes: int) -> None:
        """Raise Damaged if so many more are more than there can be."""
        self.left -= bytes
        if self.left < 0:
            raise Damaged("it has more bytes than its file: create the indexes anew")


@dataclass(frozen=True, slots=True)
class Run:
    """Blocks from number `first` on; `about` is what their part says of them.

    `items` is how much it has, in whatever the part counts; `generation` that of its newest item.
    """

    id: int
    generation: Generation
    items: int
    first: int
    checksums: npt.NDArray[np.uint32]
    about: bytes
    room: _Room  # of all runs of the part
    read: npt.NDArray[np.bool_]  # which blocks were, and counted


def _checksum(record: IndexRow, part: str, row: tuple[int | bytes, ...]) -> int:
    return digest(record.index, part, *row)


def add(
    connection: sqlite3.Connection,
    record: IndexRow,
    part: str,
    blocks: Sequence[bytes],
    *,
    generation: Generation,
    items: int,
    about: bytes = b"",
) -> None:
    """Add a run to a part, which is made if need be; save the record then."""
    (id,) = connection.execute("SELECT ifnull(max(id), 0) + 1 FROM run").fetchone()
    (first,) = connection.execute("SELECT ifnull(max(id), 0) + 1 FROM block").fetchone()
    connection.executemany("INSERT INTO block (id, data) VALUES (?, ?)", enumerate(blocks, first))
    checksums = np.array([zlib.crc32(block) for block in blocks], "<u4").tobytes()
    row = (id, generation, items, first, checksums, about)
    connection.execute(
        "INSERT INTO run (id, generation, items, first, checksums, about, index_, part)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (*row, record.id, part),
    )
    record.sums[part] = (record.sums.get(part, 0) + _checksum(record, part, row)) & _MASK


def runs(connection: sqlite3.Connection, record: IndexRow, part: str) -> list[Run]:
    """The runs of a part, oldest first; raises Damaged if they are not those of the record.

    A part that the record no longer has, has none: `delete_orphans` deletes what is left of it.
    """
    if part not in record.sums:
        return []
    rows: list[tuple[int, Generation, int, int, bytes, bytes]] = []
    room = _Room.of(connection)
    for row in connection.execute(
        "SELECT id, generation, items, first, checksums, about FROM run"
        " WHERE index_ = ? AND part = ? ORDER BY id",
        (record.id, part),
    ):
        if rows and row[0] <= rows[-1][0]:  # pages that refer to each other: it would never end
            raise Damaged(f"part {part} of index {record.index} has a run twice: create it anew")
        room.take(len(row[4]) + len(row[5]))
        rows.append(row)
    if sum(_checksum(record, part, row) for row in rows) & _MASK != record.sums.get(part, 0):
        raise Damaged(
            f"part {part} of index {record.index} is not what was written: it is damaged, or a "
            "copy made while it was written; create the indexes anew"
        )
    found = []
    for id, generation, items, first, packed, about in rows:
        checksums = np.frombuffer(packed, "<u4")
        read = np.zeros(len(checksums), np.bool_)
        found.append(Run(id, generation, items, first, checksums, about, room, read))
    end = 0
    for run in sorted(found, key=lambda run: run.first):
        if run.first < end:  # a few blocks would be as many as the runs say
            raise Damaged(f"part {part} of index {record.index} has a block twice: create it anew")
        end = run.first + len(run.checksums)
    return found


def delete(connection: sqlite3.Connection, record: IndexRow, part: str, run: Run) -> None:
    """Delete a run; save the record then."""
    connection.execute(
        "DELETE FROM block WHERE id >= ? AND id < ?", (run.first, run.first + len(run.checksums))
    )
    connection.execute("DELETE FROM run WHERE id = ?", (run.id,))
    checksums = run.checksums.tobytes()
    row = (run.id, run.generation, run.items, run.first, checksums, run.about)
    record.sums[part] = (record.sums.get(part, 0) - _checksum(record, part, row)) & _MASK


def delete_orphans(connection: sqlite3.Connection, record: IndexRow, most: int) -> bool:
    """Delete up to `most` blocks of parts that the record has no more; whether some may be left.

    A run goes with the last of its blocks: their numbers are given anew, and what names them still
    would delete those of another index.
    """
    found: list[tuple[str, int, int, int]] = []
    for row in connection.execute(
        "SELECT part, id, first, length(checksums) / 4 FROM run WHERE index_ = ? ORDER BY part, id",
        (record.id,),
    ):
        if found and row[:2] <= found[-1][:2]:  # pages that refer to each other: without end
            raise Damaged(f"index {record.index} has a run twice: create it anew")
        found.append(row)
    for part, id, first, length in found:
        if part in record.sums:
            continue
        place = first, first + length
        most -= connection.execute(
            "DELETE FROM block WHERE id IN"
            " (SELECT id FROM block WHERE id >= ? AND id < ? ORDER BY id LIMIT ?)",
            (*place, most),
        ).rowcount
        if connection.execute(
            "SELECT 1 FROM block WHERE id >= ? AND id < ? LIMIT 1", place
        ).fetchone():
            return True
        connection.execute("DELETE FROM run WHERE id = ?", (id,))
    return False


def blocks(
    connection: sqlite3.Connection, run: Run, numbers: Sequence[int] | None = None
) -> Iterator[tuple[int, bytes]]:
    """Blocks of a run with their numbers in it, all or these; raises Damaged."""
    wanted = range(len(run.checksums)) if numbers is None else numbers
    for start in range(0, len(wanted), _AT_ONCE):
        some = wanted[start : start + _AT_ONCE]
        listed = ", ".join(str(run.first + number) for number in some)
        found = 0
        for id, data in connection.execute(
            f"SELECT id, data FROM block WHERE id IN ({listed}) ORDER BY id"
        ):
            number = id - run.first
            if type(data) is not bytes or zlib.crc32(data) != run.checksums[number]:
                raise Damaged(f"block {id} is not what was written: create the indexes anew")
            if not run.read[number]:
                run.read[number] = True
                run.room.take(len(data))
            found += 1
            yield number, data
        if found != len(some):
            raise Damaged(f"{len(some) - found} blocks are missing: create the indexes anew")


def small_runs(found: Sequence[Run], items: int, *, most: int) -> list[Run]:
    """The newest runs that are to be put together with so many new items, oldest first.

    None has more than all that come after it, so an item is put together with others no more than
    log2(`most`) times, and of runs that are smaller than `most` there are about as many.
    """
    chosen: list[Run] = []
    for run in reversed(found):
        if run.items > items or run.items + items > most:
            break
        chosen.append(run)
        items += run.items
    return chosen[::-1]


def count_bytes(connection: sqlite3.Connection, index: int) -> int:
    """Bytes of the blocks of an index, and of the names of its files, which are there twice."""
    (blocks,) = connection.execute(
        "SELECT ifnull(sum(length(b.data)), 0) FROM run r"
        " JOIN block b ON b.id >= r.first AND b.id < r.first + length(r.checksums) / 4"
        " WHERE r.index_ = ?",
        (index,),
    ).fetchone()
    (names,) = connection.execute(
        "SELECT ifnull(sum(2 * length(path) + 32), 0) FROM entry WHERE index_ = ?", (index,)
    ).fetchone()
    return int(blocks + names)
