"""BYTES fields in the driver, stored by bit: bit 0 of all files, then bit 1 of all files.

A test of bits is then an AND of a few rows for each key, 64 files in a machine word: 10,000 keys of
17 bits take half a second for 100,000 files, where the bytes of each file take a minute. It needs
all rows in memory, so it is for tests with many keys; OpenSearch evaluates those with few
(`opensearch.scripts`). SQLite stores its bytes like this in the file (`sqlite.bit_slices`).

A file that is not here, has another layout or too few bytes is not pruned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from providers.errors import StoreError
from providers.index_predicate import BitsSet
from skipping.stores import Generation
from skipping.stores.entries import bitmap_of

_Numbers = npt.NDArray[np.int64]
_Octets = npt.NDArray[np.uint8]
_Words = npt.NDArray[np.uint64]
_Word = TypeVar("_Word", np.uint8, np.uint64)

HEAVY = 100_000_000
"""Keys times files above which a test needs bit slices; below, a script takes up to a second."""

NOBODY = -1
"""The ordinal in a column of bits that belongs to no file."""

_AT_ONCE = 1 << 23  # bits to unpack at a time, a byte for each
_LOOK = 256  # keys between two checks of the time
_STEPS = 4  # rows between two checks whether any file is left


class TooLarge(StoreError):
    """The values do not fit into the cache, so reading them ends early."""


@dataclass(frozen=True, slots=True)
class Block:
    """The values of files with the same layout and length.

    `rows` has one row for each bit, with 64 files in a word; `files` has the files' ordinals in the
    same order.
    """

    layout: int
    files: _Numbers
    rows: _Words

    @property
    def nbytes(self) -> int:
        """Its bytes in memory."""
        return int(self.files.nbytes + self.rows.nbytes)

    @property
    def shape(self) -> tuple[int, int]:
        """The layout and the number of bits: blocks with the same shape can be merged."""
        return self.layout, len(self.rows)

    def without_key(self, keys: pa.FixedSizeListArray, in_time: Callable[[], object]) -> _Numbers:
        """Return the ordinals of files in which every key has a bit that is not set.

        Returns no files if a position is outside the values.
        """
        bits = keys.flatten().to_numpy().reshape(len(keys), keys.type.list_size)
        if bits.size and not 0 <= bits.min() <= bits.max() < len(self.rows):
            return self.files[:0]
        blank = np.zeros(self.rows.shape[1], np.uint64)
        has_none = ~match_some_key(bits, self.rows.__getitem__, blank, in_time)
        files: _Numbers = self.files[has_none & (self.files != NOBODY)]
        return files


@dataclass(frozen=True, slots=True)
class Slices:
    """One BYTES field of all files with a known sketch, at one generation."""

    generation: Generation
    blocks: tuple[Block, ...] = ()

    @property
    def nbytes(self) -> int:
        """Their bytes in memory."""
        return sum(block.nbytes for block in self.blocks)

    def after(self, change: Slices, removed: Sequence[int]) -> Slices:
        """Return these slices with files added and removed."""
        came = [block.files for block in change.blocks]
        gone = np.concatenate([np.array(removed, np.int64), *came])
        left = [_without(block, gone) for block in self.blocks]
        return Slices(change.generation, tuple(_merge_blocks([*left, *change.blocks])))

    def find_prunable(self, test: BitsSet, *, below: int, in_time: Callable[[], object]) -> BitMap:
        """Return the ordinals under `below` that the test prunes; `in_time` raises if late."""
        probes = dict(test.probes)
        found = [
            block.without_key(probes[block.layout], in_time)
            for block in self.blocks
            if block.layout in probes
        ]
        files = np.concatenate([np.zeros(0, np.int64), *found])
        return bitmap_of(files[files < below])


def collect_slices(generation: Generation, blocks: Iterable[Block], *, most: int) -> Slices:
    """Return the slices of blocks; raise TooLarge as soon as they exceed `most` bytes."""
    held: list[Block] = []
    for block in blocks:
        held.append(block)
        if sum(each.nbytes for each in held) > most:
            raise TooLarge(f"the values of a field exceed the {most >> 20} MB of the cache")
    return Slices(generation, tuple(_merge_blocks(held)))


def prefers_bit_slices(test: BitsSet, files: int) -> bool:
    """Return whether the test on this number of files should use bit slices."""
    return files * max((len(keys) for _, keys in test.probes), default=0) > HEAVY


def slices_name(test: BitsSet) -> str:
    """Return the full name of the field that a test reads."""
    return f"{test.sketch}_{test.field}"


def block_of(layout: int, files: _Numbers, values: _Octets) -> Block:
    """Return a block; `values` has a row for each file."""
    n, length = values.shape
    places = np.full(-(-n // 64) * 64, NOBODY, np.int64)
    places[:n] = files
    rows = np.zeros((8 * length, len(places) // 8), np.uint8)
    rows[:, : -(-n // 8)] = transpose(values)
    return Block(layout, places, rows.view(np.uint64))


def transpose(values: _Octets) -> _Octets:
    """Return the bits of values: a row for each position, a column for eight values."""
    n, length = values.shape
    rows = np.empty((8 * length, -(-n // 8)), np.uint8)
    step = max(64, _AT_ONCE // (2 * max(length, 1)) // 64 * 64)
    for start in range(0, n, step):
        # Not unpackbits, which takes ten times as long.
        some = np.ascontiguousarray(values[start : start + step].T)
        to = slice(start // 8, start // 8 + -(-some.shape[1] // 8))
        for bit in range(8):
            octets = some & np.uint8(1 << bit)
            rows[bit::8, to] = np.packbits(octets, axis=1, bitorder="little")
    return rows


def transpose_back(rows: _Octets) -> _Octets:
    """Undo `transpose`: return the values, one in each row."""
    length, n = len(rows) // 8, 8 * rows.shape[1]
    values = np.empty((n, length), np.uint8)
    for start, end in _steps(length, 8 * n):
        bits = np.unpackbits(rows[8 * start : 8 * end], axis=1, bitorder="little")
        values[:, start:end] = np.packbits(bits.T, axis=1, bitorder="little")
    return values


def select_columns(rows: _Octets, stay: npt.NDArray[np.bool_]) -> _Octets:
    """Return the rows with only the columns where `stay` is true, packed again."""
    left = np.empty((len(rows), -(-np.count_nonzero(stay) // 8)), np.uint8)
    for start, end in _steps(len(rows), len(stay)):
        bits = np.unpackbits(rows[start:end], axis=1, bitorder="little")[:, stay]
        left[start:end] = np.packbits(bits, axis=1, bitorder="little")
    return left


def _steps(rows: int, bits: int) -> Iterator[tuple[int, int]]:
    """Split rows of `bits` bits into ranges to unpack, a byte for each bit."""
    step = max(1, _AT_ONCE // max(bits, 1))
    return ((start, min(start + step, rows)) for start in range(0, rows, step))


def match_some_key(
    keys: _Numbers,
    row_of: Callable[[int], npt.NDArray[_Word]],
    like: npt.NDArray[_Word],
    in_time: Callable[[], object],
) -> npt.NDArray[np.bool_]:
    """Return the places whose bits are set at all positions of some key; `like` is any row."""
    found = np.zeros_like(like)
    held = np.empty_like(like)
    for number, key in enumerate(keys.tolist()):
        if not number % _LOOK:
            in_time()
        held.view(np.uint8).fill(0xFF)
        for step, position in enumerate(key, 1):
            held &= row_of(position)
            if not step % _STEPS and not held.any():
                break
        found |= held
    return np.unpackbits(found.view(np.uint8), bitorder="little").astype(np.bool_)


def _without(block: Block, gone: _Numbers) -> Block:
    is_gone = np.isin(block.files, gone)
    if not is_gone.any():
        return block
    return replace(block, files=np.where(is_gone, NOBODY, block.files))


def _merge_blocks(blocks: Iterable[Block]) -> list[Block]:
    """Merge blocks so that few remain, and drop empty ones.

    Each block of a shape has at least twice the places of the next, so a file is rarely moved.
    """
    of_shape: dict[tuple[int, int], list[Block]] = {}
    for block in blocks:
        of_shape.setdefault(block.shape, []).append(_join_blocks([block]))
    merged: list[Block] = []
    for alike in of_shape.values():
        stack: list[Block] = []
        for block in sorted(alike, key=lambda block: -len(block.files)):
            while stack and len(stack[-1].files) < 2 * len(block.files):
                block = _join_blocks([stack.pop(), block])
            stack.append(block)
        merged += [block for block in stack if len(block.files)]
    return merged


def _join_blocks(blocks: Sequence[Block]) -> Block:
    """Join blocks of one shape; drop empty places once they are half of all."""
    files = np.concatenate([block.files for block in blocks])
    live = files != NOBODY
    n = int(np.count_nonzero(live))
    if 2 * n > len(files) or -(-n // 64) * 64 == len(files):
        if len(blocks) == 1:
            return blocks[0]
        return Block(blocks[0].layout, files, np.concatenate([b.rows for b in blocks], axis=1))
    places = np.full(-(-n // 64) * 64, NOBODY, np.int64)
    places[:n] = files[live]
    rows = np.zeros((len(blocks[0].rows), len(places) // 8), np.uint8)
    both = np.concatenate([block.rows for block in blocks], axis=1).view(np.uint8)
    rows[:, : -(-n // 8)] = select_columns(both, live)
    return Block(blocks[0].layout, places, rows.view(np.uint64))
