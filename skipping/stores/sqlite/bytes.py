"""BYTES fields in an SQLite store: laid down by position, so that a question reads what it asks.

A question of bits looks at a few bytes of every file (a bloom filter of a KiB: at 70 of them for
ten keys). So the values of one length that a write brings are put side by side and turned round:
first of all files the byte at position 0, then of all the byte at position 1, and so on, cut into
slices of some KiB, each a block. What a question reads are the slices of its positions; whole
values would be 14 times as much for those ten keys.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from skipping.stores import Generation
from skipping.stores.sqlite.heads import Head
from skipping.stores.sqlite.runs import Run, add, blocks, delete, runs

__all__ = [
    "Group",
    "holds_for_some_key",
    "insert_bytes",
    "meeting",
    "read_groups",
    "sweep_bytes",
    "turned_values",
    "values_of",
]

_Numbers = npt.NDArray[np.int64]
_Octets = npt.NDArray[np.uint8]

_FILES = 1 << 14  # of a group; also the bytes of a slice, unless one position has more
_TURNED = 1 << 24  # bytes of a group, unless those of one file are more
_LOOK = 256  # slices after which the clock is looked at
_ABOUT = struct.Struct("<QQ")  # length and width of a group, before its ordinals


@dataclass(frozen=True, slots=True)
class Group:
    """The values of some files of one write; `ordinals` are sorted, each value has `length`.

    The blocks of its run are slices of `width` positions each.
    """

    run: Run
    ordinals: _Numbers
    length: int
    width: int


def insert_bytes(
    connection: sqlite3.Connection,
    head: Head,
    part: str,
    generation: Generation,
    ordinals: _Numbers,
    values: pa.Array,
) -> None:
    """Store the values of files (sorted ordinals); nulls are left out."""
    lengths = pc.fill_null(pc.binary_length(values), -1).to_numpy()
    for length in np.unique(lengths[lengths >= 0]).tolist():
        rows = np.flatnonzero(lengths == length)
        most = max(1, min(_FILES, _TURNED // max(length, 1)))
        for start in range(0, len(rows), most):
            some = rows[start : start + most]
            octets = b"".join(values.take(pa.array(some)).to_pylist())
            turned = np.frombuffer(octets, np.uint8).reshape(len(some), length).T
            width = max(1, _FILES // len(some))
            slices = [turned[at : at + width].tobytes() for at in range(0, length, width)]
            about = _ABOUT.pack(length, width) + ordinals[some].astype("<u4").tobytes()
            add(
                connection,
                head,
                part,
                slices,
                generation=generation,
                items=len(some),
                about=about,
            )


def read_groups(connection: sqlite3.Connection, head: Head, part: str) -> Iterator[Group]:
    """What is stored of a field."""
    for run in runs(connection, head, part):
        length, width = _ABOUT.unpack_from(run.about)
        files = np.frombuffer(run.about, "<u4", offset=_ABOUT.size).astype(np.int64)
        yield Group(run, files, length, width)


def values_of(
    connection: sqlite3.Connection, head: Head, part: str
) -> Iterator[tuple[_Numbers, list[bytes]]]:
    """The whole values, with the ordinals of their files, a group at a time."""
    for group in read_groups(connection, head, part):
        yield group.ordinals, [row.tobytes() for row in turned_values(connection, group).T]


def turned_values(connection: sqlite3.Connection, group: Group) -> _Octets:
    """All bytes of a group: a row a position, a column a file."""
    turned = b"".join(data for _, data in blocks(connection, group.run))
    return np.frombuffer(turned, np.uint8).reshape(group.length, len(group.ordinals))


def meeting(ordinals: _Numbers, some: _Numbers) -> tuple[_Numbers, _Numbers]:
    """Where the ordinals are that both have (sorted), in the one and in the other."""
    start, n = int(np.searchsorted(ordinals, some[0])), len(some)
    if np.array_equal(ordinals[start : start + n], some):  # as mostly, and a tenth of the time
        return np.arange(start, start + n), np.arange(n)
    at = np.searchsorted(ordinals, some)
    asked = np.append(ordinals, -1)[at] == some
    return at[asked], np.flatnonzero(asked)


def sweep_bytes(connection: sqlite3.Connection, head: Head, part: str, live: BitMap) -> None:
    """Delete the groups of which no file is live."""
    for group in read_groups(connection, head, part):
        if live.isdisjoint(BitMap(group.ordinals.astype(np.uint32))):
            delete(connection, head, part, group.run)


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
    for read, (number, data) in enumerate(blocks(connection, group.run, numbers)):
        if not read % _LOOK:
            in_time()
        found[number] = np.frombuffer(data, np.uint8).reshape(-1, len(group.ordinals))
    return found
