"""BYTES fields in an SQLite store, stored by bit, so that a test reads only the bits it needs.

A test looks at a few bits of every file: 10 of the 8,000 bits of a bloom filter for a key. So the
values of one length are transposed: a row has the bit at position 0 of all files, the next row the
bit at position 1, and so on. Blocks of some KiB have a few rows each. A test reads the rows of its
positions and combines them with AND and OR.

A group of files is merged with a new one that is at least as large, so there are few groups. A
group fills whole bytes of a row, so a merge copies rows without another transposition.

docs/sqlite-format.md has a picture, and the measurement that decided for this layout.
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

from providers.errors import Damaged
from skipping.stores import Generation
from skipping.stores.sqlite.index_rows import IndexRow
from skipping.stores.sqlite.segments import Run, add, blocks, delete, runs, small_runs

_Numbers = npt.NDArray[np.int64]
_Octets = npt.NDArray[np.uint8]

_FILES = 1 << 17  # in a group
_SLICE = 1 << 14  # bytes of a slice, unless one row has more
_TURNED = 1 << 27  # bytes of a group, unless one file has more
_AT_ONCE = 1 << 23  # bits to transpose at a time, a byte for each
_LOOK = 256  # slices between two looks at the clock
_ABOUT = struct.Struct("<QQQ")  # slots, length, width of a group
_NONE = 2**32 - 1  # the ordinal of a slot without a file


@dataclass(frozen=True, slots=True)
class Group:
    """Values of `length` bytes of some files. Each file has a slot, which is one bit of each row.

    `slots` is a multiple of eight. The first block of the run has the ordinals of the files; the
    other blocks have `width` rows each.
    """

    run: Run
    slots: int
    length: int
    width: int

    @classmethod
    def of(cls, run: Run) -> Group:
        """Return the group of a run; raise Damaged if its numbers do not match its blocks."""
        if len(run.about) == _ABOUT.size:
            slots, length, width = _ABOUT.unpack(run.about)
            if slots % 8 == 0 < width and len(run.checksums) == 1 + -(-8 * length // width):
                return cls(run, slots, length, width)
        raise Damaged("a group of bytes is invalid: create the indexes again")

    def ordinals(self, connection: sqlite3.Connection) -> _Numbers:
        """Return the ordinal of the file in each slot; -1 for an empty slot."""
        ((_, data),) = blocks(connection, self.run, [0])
        if len(data) != 4 * self.slots:
            raise Damaged("a group of bytes has another number of files: create the indexes again")
        found = np.frombuffer(data, "<u4").astype(np.int64)
        found[found == _NONE] = -1
        return found

    def rows(self, connection: sqlite3.Connection) -> _Octets:
        """Return all bits: a row for each position, a column for eight slots."""
        numbers = range(1, len(self.run.checksums))
        data = b"".join(data for _, data in blocks(connection, self.run, numbers))
        return np.frombuffer(data, np.uint8).reshape(8 * self.length, self.slots // 8)


def insert_bytes(
    connection: sqlite3.Connection,
    record: IndexRow,
    part: str,
    generation: Generation,
    ordinals: _Numbers,
    values: pa.Array,
) -> None:
    """Store the values of files (sorted ordinals), except nulls."""
    lengths = pc.fill_null(pc.binary_length(values), -1).to_numpy()
    for length in np.unique(lengths[lengths >= 0]).tolist():
        places = np.flatnonzero(lengths == length)
        most = _max_slots(length)
        for start in range(0, len(places), most):
            some = places[start : start + most]
            rows = _transpose(values.take(pa.array(some)), length)
            _insert(connection, record, part, generation, _fill_slots(ordinals[some]), rows)


def _max_slots(length: int) -> int:
    """Return the most slots of a group of values with this length."""
    return max(8, min(_FILES, _TURNED // max(length, 1)) & ~7)


def _transpose(values: pa.Array, length: int) -> _Octets:
    """Return the rows of bits of values with the same length."""
    octets = np.frombuffer(b"".join(values.to_pylist()), np.uint8).reshape(len(values), length)
    rows = np.empty((8 * length, -(-len(values) // 8)), np.uint8)
    for start, end in _steps(length, 8 * len(values)):
        bits = np.unpackbits(octets[:, start:end], axis=1, bitorder="little")
        rows[8 * start : 8 * end] = np.packbits(bits.T, axis=1, bitorder="little")
    return rows


def _transpose_back(rows: _Octets, slots: int, length: int) -> _Octets:
    """Return the values of all slots, a row for each."""
    values = np.empty((slots, length), np.uint8)
    for start, end in _steps(length, 8 * slots):
        bits = np.unpackbits(rows[8 * start : 8 * end], axis=1, count=slots, bitorder="little")
        values[:, start:end] = np.packbits(bits.T, axis=1, bitorder="little")
    return values


def _steps(length: int, bits: int) -> Iterator[tuple[int, int]]:
    """Split the bytes of values into ranges to transpose; a byte has `bits` bits in all values."""
    step = max(1, _AT_ONCE // max(bits, 1))
    return ((start, min(start + step, length)) for start in range(0, length, step))


def _insert(
    connection: sqlite3.Connection,
    record: IndexRow,
    part: str,
    generation: Generation,
    ordinals: npt.NDArray[np.uint32],
    rows: _Octets,
) -> None:
    """Add a group, merged with the small groups of its length."""
    length = len(rows) // 8
    alike = [r for r in runs(connection, record, part) if Group.of(r).length == length]
    old = small_runs(alike, len(ordinals), most=_max_slots(length))
    numbers, tables = [], []
    for group in map(Group.of, old):
        numbers.append(group.ordinals(connection).astype("<u4"))  # -1 becomes _NONE
        tables.append(group.rows(connection))
        delete(connection, record, part, group.run)
    named = np.concatenate([*numbers, ordinals])
    _add(connection, record, part, generation, named, *tables, rows)


def _add(
    connection: sqlite3.Connection,
    record: IndexRow,
    part: str,
    generation: Generation,
    ordinals: npt.NDArray[np.uint32],
    *tables: _Octets,
) -> None:
    """Add a group whose rows are the rows of all tables side by side."""
    positions = len(tables[0])
    width = max(1, _SLICE // max(len(ordinals) // 8, 1))
    slices = [
        np.concatenate([table[at : at + width] for table in tables], axis=1).tobytes()
        for at in range(0, positions, width)
    ]
    about = _ABOUT.pack(len(ordinals), positions // 8, width)
    add(
        connection,
        record,
        part,
        [ordinals.tobytes(), *slices],
        generation=generation,
        items=len(ordinals),
        about=about,
    )


def read_groups(connection: sqlite3.Connection, record: IndexRow, part: str) -> Iterator[Group]:
    """Yield the groups of a field."""
    return map(Group.of, runs(connection, record, part))


def values_of(
    connection: sqlite3.Connection, record: IndexRow, part: str, ordinals: _Numbers
) -> Iterator[tuple[_Numbers, list[bytes]]]:
    """Yield the values of these files with their ordinals, a group at a time."""
    for group in read_groups(connection, record, part):
        named = group.ordinals(connection)
        asked = np.flatnonzero(np.isin(named, ordinals))
        if len(asked):
            octets = _transpose_back(group.rows(connection), group.slots, group.length)
            yield named[asked], [row.tobytes() for row in octets[asked]]


def sweep_bytes(connection: sqlite3.Connection, record: IndexRow, part: str, live: BitMap) -> None:
    """Delete the values of files that are not live."""
    alive = np.array(live, np.int64)
    for group in read_groups(connection, record, part):
        named = group.ordinals(connection)
        stay = np.isin(named, alive)
        if np.array_equal(stay, named >= 0):
            continue
        rows = group.rows(connection)
        delete(connection, record, part, group.run)
        if stay.any():
            kept = np.empty((len(rows), -(-np.count_nonzero(stay) // 8)), np.uint8)
            for start, end in _steps(len(rows), len(named)):
                bits = np.unpackbits(rows[start:end], axis=1, bitorder="little")[:, stay]
                kept[start:end] = np.packbits(bits, axis=1, bitorder="little")
            _add(connection, record, part, group.run.generation, _fill_slots(named[stay]), kept)


def _fill_slots(ordinals: _Numbers) -> npt.NDArray[np.uint32]:
    """Return the ordinal of each slot, padded with empty slots."""
    return np.append(ordinals, np.full(-len(ordinals) % 8, _NONE)).astype("<u4")


def holds_for_some_key(
    connection: sqlite3.Connection,
    group: Group,
    keys: pa.FixedSizeListArray,
    in_time: Callable[[], None],
) -> npt.NDArray[np.bool_]:
    """Return the slots whose value has all bits of some key set.

    Values that are too short for the positions of the keys prove nothing, so all slots match.
    """
    bits = keys.flatten().to_numpy().reshape(len(keys), keys.type.list_size)
    if bits.size and bits.max() >= 8 * group.length:
        return np.ones(group.slots, np.bool_)
    slices = _slices(connection, group, np.unique(bits // group.width).tolist(), in_time)
    found = np.zeros(group.slots // 8, np.uint8)
    held = np.empty_like(found)
    for number, positions in enumerate(bits.tolist()):
        if not number % _LOOK:
            in_time()
        held.fill(0xFF)
        for position in positions:
            held &= slices[position // group.width][position % group.width]
        found |= held
    return np.unpackbits(found, bitorder="little").astype(np.bool_)


def _slices(
    connection: sqlite3.Connection,
    group: Group,
    numbers: Sequence[int],
    in_time: Callable[[], None],
) -> dict[int, _Octets]:
    """Read slices of a group, by their number."""
    found: dict[int, _Octets] = {}
    asked = [1 + number for number in numbers]
    for read, (number, data) in enumerate(blocks(connection, group.run, asked)):
        if not read % _LOOK:
            in_time()
        found[number - 1] = np.frombuffer(data, np.uint8).reshape(-1, group.slots // 8)
    return found
