"""The parts of an index in an SQLite store, as runs of blocks with checksums.

A part is what a test reads separately (docs/sqlite-format.md). A run has the checksums of its
blocks; the row of the index (`index_rows`) has the sum of the runs' checksums. A changed block, a
missing or additional run and a run of another commit are Damaged.
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

_MASK = 2**63 - 1
_AT_ONCE = 500  # rows of one statement


@dataclass(slots=True)
class _Room:
    """Limits the bytes read from a part to the size of the file.

    In a forged file rows can share pages, so that a few MB read as any number of GB.
    """

    left: int

    @classmethod
    def of(cls, connection: sqlite3.Connection) -> _Room:
        """Return the limit for the file of a connection."""
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        return cls(pages * size)

    def take(self, bytes: int) -> None:
        """Count these bytes; raise Damaged above the limit."""
        self.left -= bytes
        if self.left < 0:
            raise Damaged("its rows have more bytes than the file: create the indexes again")


@dataclass(frozen=True, slots=True)
class Run:
    """Blocks from number `first` on; the part defines `about` and the unit of `items`.

    `generation` is that of the newest item.
    """

    id: int
    generation: Generation
    items: int
    first: int
    checksums: npt.NDArray[np.uint32]
    about: bytes
    room: _Room  # of all runs of the part
    read: npt.NDArray[np.bool_]  # which blocks were, and counted


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an index in a transaction. The caller saves the record after a change."""

    connection: sqlite3.Connection
    record: IndexRow
    name: str

    def add(
        self, blocks: Sequence[bytes], *, generation: Generation, items: int, about: bytes = b""
    ) -> None:
        """Add a run; the part may be new."""
        execute = self.connection.execute
        (id,) = execute("SELECT ifnull(max(id), 0) + 1 FROM run").fetchone()
        (first,) = execute("SELECT ifnull(max(id), 0) + 1 FROM block").fetchone()
        self.connection.executemany(
            "INSERT INTO block (id, data) VALUES (?, ?)", enumerate(blocks, first)
        )
        checksums = np.array([zlib.crc32(block) for block in blocks], "<u4").tobytes()
        row = (id, generation, items, first, checksums, about)
        execute(
            "INSERT INTO run (id, generation, items, first, checksums, about, index_, part)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*row, self.record.id, self.name),
        )
        self._count(self._checksum(row))

    def delete(self, run: Run) -> None:
        """Delete a run."""
        end = run.first + len(run.checksums)
        self.connection.execute("DELETE FROM block WHERE id >= ? AND id < ?", (run.first, end))
        self.connection.execute("DELETE FROM run WHERE id = ?", (run.id,))
        checksums = run.checksums.tobytes()
        row = (run.id, run.generation, run.items, run.first, checksums, run.about)
        self._count(-self._checksum(row))

    def runs(self) -> list[Run]:
        """Return the runs, oldest first; raise Damaged if they do not match the record.

        A part that is not in the record has no runs; `delete_orphans` deletes what is left of it.
        """
        if self.name not in self.record.sums:
            return []
        rows: list[tuple[int, Generation, int, int, bytes, bytes]] = []
        room = _Room.of(self.connection)
        for row in self.connection.execute(
            "SELECT id, generation, items, first, checksums, about FROM run"
            " WHERE index_ = ? AND part = ? ORDER BY id",
            (self.record.id, self.name),
        ):
            if rows and row[0] <= rows[-1][0]:  # forged pages that refer to each other never end
                raise self.damage_error("has a run twice: create it again")
            room.take(len(row[4]) + len(row[5]))
            rows.append(row)
        if sum(map(self._checksum, rows)) & _MASK != self.record.sums[self.name]:
            raise self.damage_error(
                "is not what was written: it is damaged, or a copy made during a write; create "
                "the indexes again"
            )
        found = []
        for id, generation, items, first, packed, about in rows:
            checksums = np.frombuffer(packed, "<u4")
            read = np.zeros(len(checksums), np.bool_)
            found.append(Run(id, generation, items, first, checksums, about, room, read))
        end = 0
        for run in sorted(found, key=lambda run: run.first):
            if run.first < end:  # a few shared blocks could have any size
                raise self.damage_error("has a block twice: create it again")
            end = run.first + len(run.checksums)
        return found

    def blocks(self, run: Run, numbers: Sequence[int] | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield blocks of a run with their numbers, all or these; raise Damaged."""
        wanted = range(len(run.checksums)) if numbers is None else numbers
        for start in range(0, len(wanted), _AT_ONCE):
            some = wanted[start : start + _AT_ONCE]
            listed = ", ".join(str(run.first + number) for number in some)
            found = 0
            for id, data in self.connection.execute(
                f"SELECT id, data FROM block WHERE id IN ({listed}) ORDER BY id"
            ):
                number = id - run.first
                if type(data) is not bytes or zlib.crc32(data) != run.checksums[number]:
                    raise Damaged(f"block {id} is not what was written: create the indexes again")
                if not run.read[number]:
                    run.read[number] = True
                    run.room.take(len(data))
                found += 1
                yield number, data
            if found != len(some):
                raise Damaged(f"{len(some) - found} blocks are missing: create the indexes again")

    def _checksum(self, row: tuple[int | bytes, ...]) -> int:
        return digest(self.record.index, self.name, *row)

    def _count(self, checksum: int) -> None:
        self.record.sums[self.name] = (self.record.sums.get(self.name, 0) + checksum) & _MASK

    def damage_error(self, what: str) -> Damaged:
        """Return the error for a part that no release has written like this."""
        return Damaged(f"part {self.name} of index {self.record.index} {what}")


@dataclass(frozen=True, slots=True)
class Parts:
    """An index in a transaction: its parts by name."""

    connection: sqlite3.Connection
    record: IndexRow

    def __getitem__(self, name: str) -> Part:
        return Part(self.connection, self.record, name)


def delete_orphans(connection: sqlite3.Connection, record: IndexRow, most: int) -> bool:
    """Delete up to `most` blocks of parts that are not in the record; return whether some are left.

    A run is deleted with its last block: block numbers are used again, so a run that outlives its
    blocks would later delete blocks of another index.
    """
    found: list[tuple[str, int, int, int]] = []
    for row in connection.execute(
        "SELECT part, id, first, length(checksums) / 4 FROM run WHERE index_ = ? ORDER BY part, id",
        (record.id,),
    ):
        if found and row[:2] <= found[-1][:2]:  # forged pages that refer to each other never end
            raise Damaged(f"index {record.index} has a run twice: create it again")
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


def small_runs(found: Sequence[Run], items: int, *, most: int) -> list[Run]:
    """Return the newest runs to merge with this number of new items, oldest first.

    No chosen run has more items than all newer ones together. So an item is merged at most
    log2(`most`) times, and about log2(`most`) runs are smaller than `most`.
    """
    chosen: list[Run] = []
    for run in reversed(found):
        if run.items > items or run.items + items > most:
            break
        chosen.append(run)
        items += run.items
    return chosen[::-1]


def count_bytes(connection: sqlite3.Connection, index: int) -> int:
    """Return the bytes of an index's blocks."""
    (blocks,) = connection.execute(
        "SELECT ifnull(sum(length(b.data)), 0) FROM run r"
        " JOIN block b ON b.id >= r.first AND b.id < r.first + length(r.checksums) / 4"
        " WHERE r.index_ = ?",
        (index,),
    ).fetchone()
    return int(blocks)
