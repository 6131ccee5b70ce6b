"""BYTES fields in an SQLite store, stored by bit, so that a test reads only the bits it needs.

docs/sqlite-format.md has the layout, and the measurement that decided for it. A group of files is
merged with a new one that is at least as large, so there are few groups. A group fills whole bytes
of a row, so a merge copies rows without another transposition.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from providers.errors import Damaged
from skipping.stores import Generation
from skipping.stores.slices import match_some_key, select_columns, transpose, transpose_back
from skipping.stores.sqlite.segments import Part, Run, small_runs

_Numbers = npt.NDArray[np.int64]
_Octets = npt.NDArray[np.uint8]

_FILES = 1 << 17  # in a group
_SLICE = 1 << 14  # bytes of a slice, unless one row has more
_TURNED = 1 << 27  # bytes of a group, unless one file has more
_LOOK = 256  # slices between two checks of the time
_ABOUT = struct.Struct("<QQQ")  # slots, length, width of a group
_NONE = 2**32 - 1  # the ordinal of a slot without a file


@dataclass(frozen=True, slots=True)
class Group:
    """Values of `length` bytes of some files. Each file has a slot, which is one bit of each row.

    `slots` is a multiple of eight. The first block of the run has the ordinals of the files; the
    other blocks have `width` rows each.
    """

    part: Part
    run: Run
    slots: int
    length: int
    width: int

    @classmethod
    def of(cls, part: Part, run: Run) -> Group:
        """Return the group of a run; raise Damaged if its numbers do not match its blocks."""
        if len(run.about) == _ABOUT.size:
            slots, length, width = _ABOUT.unpack(run.about)
            if slots % 8 == 0 < width and len(run.checksums) == 1 + -(-8 * length // width):
                return cls(part, run, slots, length, width)
        raise Damaged("a group of filters is invalid: create the indexes again")

    def ordinals(self) -> _Numbers:
        """Return the ordinal of the file in each slot; -1 for an empty slot."""
        ((_, data),) = self.part.blocks(self.run, [0])
        if len(data) != 4 * self.slots:
            raise Damaged("a group of filters has invalid ordinals: create the indexes again")
        found = np.frombuffer(data, "<u4").astype(np.int64)
        found[found == _NONE] = -1
        return found

    def rows(self) -> _Octets:
        """Return all bits: a row for each position, a column for eight slots."""
        numbers = range(1, len(self.run.checksums))
        data = b"".join(data for _, data in self.part.blocks(self.run, numbers))
        return np.frombuffer(data, np.uint8).reshape(8 * self.length, self.slots // 8)

    def holds_for_some_key(
        self, keys: pa.FixedSizeListArray, in_time: Callable[[], None]
    ) -> npt.NDArray[np.bool_]:
        """Return the slots whose value has all bits of some key set.

        Values that are too short for the positions of the keys prove nothing, so all slots match.
        """
        bits = keys.flatten().to_numpy().reshape(len(keys), keys.type.list_size)
        if bits.size and not 0 <= bits.min() <= bits.max() < 8 * self.length:
            return np.ones(self.slots, np.bool_)
        slices: dict[int, _Octets] = {}
        asked = (1 + np.unique(bits // self.width)).tolist()
        for read, (number, data) in enumerate(self.part.blocks(self.run, asked)):
            if not read % _LOOK:
                in_time()
            slices[number - 1] = np.frombuffer(data, np.uint8).reshape(-1, self.slots // 8)

        def row_of(position: int) -> _Octets:
            row: _Octets = slices[position // self.width][position % self.width]
            return row

        return match_some_key(bits, row_of, np.zeros(self.slots // 8, np.uint8), in_time)


def read_groups(part: Part) -> list[Group]:
    """Return the groups of a field."""
    return [Group.of(part, run) for run in part.runs()]


def insert_bytes(part: Part, generation: Generation, ordinals: _Numbers, values: pa.Array) -> None:
    """Store the values of files (sorted ordinals), except nulls."""
    lengths = pc.fill_null(pc.binary_length(values), -1).to_numpy()
    for length in np.unique(lengths[lengths >= 0]).tolist():
        places = np.flatnonzero(lengths == length)
        most = _max_slots(length)
        for start in range(0, len(places), most):
            some = places[start : start + most]
            data = b"".join(values.take(pa.array(some)).to_pylist())
            rows = transpose(np.frombuffer(data, np.uint8).reshape(len(some), length))
            _insert(part, generation, _fill_slots(ordinals[some]), rows)


def _max_slots(length: int) -> int:
    return max(8, min(_FILES, _TURNED // max(length, 1)) & ~7)


def _insert(
    part: Part, generation: Generation, ordinals: npt.NDArray[np.uint32], rows: _Octets
) -> None:
    """Add a group, merged with the small groups of its length."""
    length = len(rows) // 8
    alike = [group.run for group in read_groups(part) if group.length == length]
    numbers, tables = [], []
    for run in small_runs(alike, len(ordinals), most=_max_slots(length)):
        group = Group.of(part, run)
        numbers.append(group.ordinals().astype("<u4"))  # -1 becomes _NONE
        tables.append(group.rows())
        part.delete(run)
    _add(part, generation, np.concatenate([*numbers, ordinals]), *tables, rows)


def _add(
    part: Part, generation: Generation, ordinals: npt.NDArray[np.uint32], *tables: _Octets
) -> None:
    """Add a group whose rows are the rows of all tables side by side."""
    positions = len(tables[0])
    width = max(1, _SLICE // max(len(ordinals) // 8, 1))
    slices = [
        np.concatenate([table[at : at + width] for table in tables], axis=1).tobytes()
        for at in range(0, positions, width)
    ]
    about = _ABOUT.pack(len(ordinals), positions // 8, width)
    blocks = [ordinals.tobytes(), *slices]
    part.add(blocks, generation=generation, items=len(ordinals), about=about)


def values_of(part: Part, ordinals: _Numbers) -> Iterator[tuple[_Numbers, list[bytes]]]:
    """Yield the values of these files with their ordinals, a group at a time."""
    for group in read_groups(part):
        named = group.ordinals()
        asked = np.flatnonzero(np.isin(named, ordinals))
        if len(asked):
            octets = transpose_back(group.rows())
            yield named[asked], [row.tobytes() for row in octets[asked]]


def sweep_bytes(part: Part, live: BitMap) -> None:
    """Delete the values of files that are not live."""
    alive = np.array(live, np.int64)
    for group in read_groups(part):
        named = group.ordinals()
        stay = np.isin(named, alive)
        if np.array_equal(stay, named >= 0):
            continue
        rows = group.rows()
        part.delete(group.run)
        if stay.any():
            kept = select_columns(rows, stay)
            _add(part, group.run.generation, _fill_slots(named[stay]), kept)


def _fill_slots(ordinals: _Numbers) -> npt.NDArray[np.uint32]:
    """Return the ordinal of each slot, padded with empty slots."""
    return np.append(ordinals, np.full(-len(ordinals) % 8, _NONE)).astype("<u4")
