"""BYTES fields in an SQLite store: laid down by position, so that a question reads what it asks.

A question of bits looks at a few bytes of every file (a bloom filter of a KiB: at 70 of them for
ten keys). So the values of one length that a write brings are put side by side and turned round:
first of all files the byte at position 0, then of all the byte at position 1, and so on, cut into
slices of some KiB, each a row. What a question reads are the slices of its positions; whole values
would be 14 times as much for those ten keys.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Group", "delete_groups", "groups", "holds_for_some_key", "insert_bytes"]

_Numbers = npt.NDArray[np.int64]
_Octets = npt.NDArray[np.uint8]

_FILES = 1 << 14  # of a group; also the bytes of a slice, unless one position has more
_TURNED = 1 << 24  # bytes of a group, unless those of one file are more
_AT_ONCE = 500  # rows of one statement


@dataclass(frozen=True, slots=True)
class Group:
    """The values of some files of one write; `ordinals` are sorted, each value has `length`.

    Its slices have `width` positions each and are the rows from `first` on.
    """

    id: int
    ordinals: _Numbers
    length: int
    width: int
    first: int

    @property
    def rows(self) -> range:
        """The numbers of its slices."""
        return range(self.first, self.first + -(-self.length // self.width))


def insert_bytes(
    connection: sqlite3.Connection, field: int, ordinals: _Numbers, values: pa.Array
) -> None:
    """Store the values of files (sorted ordinals); nulls are left out."""
    lengths = pc.fill_null(pc.binary_length(values), -1).to_numpy()
    (last,) = connection.execute("SELECT ifnull(max(id), 0) FROM slices").fetchone()
    for length in np.unique(lengths[lengths >= 0]).tolist():
        rows = np.flatnonzero(lengths == length)
        most = max(1, min(_FILES, _TURNED // max(length, 1)))
        for start in range(0, len(rows), most):
            some = rows[start : start + most]
            octets = b"".join(values.take(pa.array(some)).to_pylist())
            turned = np.frombuffer(octets, np.uint8).reshape(len(some), length).T
            width = max(1, _FILES // len(some))
            connection.execute(
                "INSERT INTO bytes (field, ordinals, length, width, first) VALUES (?, ?, ?, ?, ?)",
                (field, ordinals[some].astype("<u4").tobytes(), length, width, last + 1),
            )
            slices = [turned[at : at + width].tobytes() for at in range(0, length, width)]
            connection.executemany(
                "INSERT INTO slices (id, data) VALUES (?, ?)",
                zip(range(last + 1, last + 1 + len(slices)), slices, strict=True),
            )
            last += len(slices)


def groups(connection: sqlite3.Connection, field: int) -> Iterator[Group]:
    """What is stored of a field; raises ValueError for what nobody stored."""
    for id, ordinals, length, width, first in connection.execute(
        "SELECT id, ordinals, length, width, first FROM bytes WHERE field = ?", (field,)
    ).fetchall():
        files = np.frombuffer(ordinals, "<u4").astype(np.int64)
        if length < 0 or width < 1 or not len(files) or np.any(files[1:] <= files[:-1]):
            raise ValueError(f"group {id} of a BYTES field is damaged")
        yield Group(id, files, length, width, first)


def delete_groups(
    connection: sqlite3.Connection, field: int, which: Callable[[_Numbers], bool]
) -> None:
    """Delete the groups whose ordinals `which` accepts."""
    for group in list(groups(connection, field)):
        if which(group.ordinals):
            rows = group.rows
            connection.execute(
                "DELETE FROM slices WHERE id >= ? AND id < ?", (rows.start, rows.stop)
            )
            connection.execute("DELETE FROM bytes WHERE id = ?", (group.id,))


def holds_for_some_key(
    connection: sqlite3.Connection,
    group: Group,
    files: _Numbers,
    keys: pa.FixedSizeListArray,
    in_time: Callable[[], None],
) -> npt.NDArray[np.bool_]:
    """Which of a group's files (by their place in it) have all bits of some key set.

    A group too short for the positions of the keys proves nothing: it holds for all.
    """
    bits = keys.flatten().to_numpy().reshape(len(keys), keys.type.list_size)
    places = bits >> 3
    if bits.size and places.max() >= group.length:
        return np.ones(len(files), np.bool_)
    slices = _slices(connection, group, np.unique(places // group.width).tolist(), in_time)
    masks = (1 << (bits & 7)).astype(np.uint8)
    whole = len(files) == len(group.ordinals)
    found = np.zeros(len(files), np.bool_)
    for positions, wanted in zip(places.tolist(), masks, strict=True):
        held = np.ones(len(files), np.bool_)
        for position, mask in zip(positions, wanted, strict=True):
            row = slices[position // group.width][position % group.width]
            held &= ((row if whole else row[files]) & mask) != 0
            if not held.any():
                break
        found |= held
    return found


def _slices(
    connection: sqlite3.Connection,
    group: Group,
    numbers: Sequence[int],
    in_time: Callable[[], None],
) -> dict[int, _Octets]:
    """Slices of a group by their number in it: a row a position, a column a file."""
    found: dict[int, _Octets] = {}
    for start in range(0, len(numbers), _AT_ONCE):
        in_time()
        some = numbers[start : start + _AT_ONCE]
        listed = ", ".join(str(group.first + number) for number in some)
        for id, data in connection.execute(f"SELECT id, data FROM slices WHERE id IN ({listed})"):
            found[id - group.first] = np.frombuffer(data, np.uint8).reshape(-1, len(group.ordinals))
    return found
