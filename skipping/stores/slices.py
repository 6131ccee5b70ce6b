"""BYTES fields kept on the driver, laid down by bit: of all files bit 0, then of all files bit 1.

A question of bits is then an AND of a few rows a key, 64 files a machine word: 10,000 keys of 17
bits take half a second for 100,000 files, where every file's own bytes take a minute. It needs all
rows, so it is for questions of many keys; those of few are asked of OpenSearch
(`opensearch.scripts`). SQLite lays its bytes down so in the file (`sqlite.bytes`).

A file that is not here, or is of another layout or too short, is not pruned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from providers.errors import StoreError
from providers.index_predicate import BitsSet
from skipping.stores import Generation
from skipping.stores.entries import bitmap_of

__all__ = [
    "Block",
    "Slices",
    "TooLarge",
    "block_of",
    "collect_slices",
    "prefers_bit_slices",
    "slices_name",
]

_Numbers = npt.NDArray[np.int64]
_Octets = npt.NDArray[np.uint8]
_Words = npt.NDArray[np.uint64]

HEAVY = 100_000_000
"""Keys times files that are looked at one by one for one test, which takes up to a second."""

NOBODY = -1
"""In the place of an ordinal, where there is no file, or none any more."""

_TURNED = 1 << 22  # bytes that are turned round at a time
_LOOK = 256  # keys after which the clock is looked at
_STEPS = 4  # rows after which it is looked whether a file is left


class TooLarge(StoreError):
    """It is more than may be kept, so it is not read to its end."""


@dataclass(frozen=True, slots=True)
class Block:
    """The values of files that have one layout and one length.

    `rows` has a row a bit, and in a word 64 files; `files` their ordinals, in that order.
    """

    layout: int
    files: _Numbers
    rows: _Words

    @property
    def nbytes(self) -> int:
        """Bytes it takes."""
        return int(self.files.nbytes + self.rows.nbytes)

    @property
    def shape(self) -> tuple[int, int]:
        """What blocks that can be put together have in common."""
        return self.layout, len(self.rows)

    def without_key(self, keys: pa.FixedSizeListArray, in_time: Callable[[], object]) -> _Numbers:
        """The ordinals of the files that have, of every key, some bit not set.

        None at all if some position is in no value.
        """
        bits = keys.flatten().to_numpy().reshape(len(keys), keys.type.list_size)
        if bits.size and not 0 <= bits.min() <= bits.max() < len(self.rows):
            return self.files[:0]
        found = np.zeros(self.rows.shape[1], np.uint64)
        held = np.empty_like(found)
        for number, key in enumerate(bits.tolist()):
            if not number % _LOOK:
                in_time()
            held.fill(~np.uint64(0))
            for step, position in enumerate(key, 1):
                held &= self.rows[position]
                if not step % _STEPS and not held.any():
                    break
            found |= held
        has_none = np.unpackbits(found.view(np.uint8), bitorder="little") == 0
        files: _Numbers = self.files[has_none & (self.files != NOBODY)]
        return files


@dataclass(frozen=True, slots=True)
class Slices:
    """The BYTES of one field, of all files whose sketch is known, as of one generation."""

    generation: Generation
    blocks: tuple[Block, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes they take."""
        return sum(block.nbytes for block in self.blocks)

    def after(self, change: Slices, removed: Sequence[int]) -> Slices:
        """Brought up to what came since, and what went."""
        came = [block.files for block in change.blocks]
        gone = np.concatenate([np.array(removed, np.int64), *came])
        left = [_without(block, gone) for block in self.blocks]
        return Slices(change.generation, tuple(_merge_blocks([*left, *change.blocks])))

    def find_prunable(self, test: BitsSet, *, below: int, in_time: Callable[[], object]) -> BitMap:
        """The ordinals under `below` that the test prunes; `in_time` is called now and then."""
        probes = dict(test.probes)
        found = [
            block.without_key(probes[block.layout], in_time)
            for block in self.blocks
            if block.layout in probes
        ]
        files = np.concatenate([np.zeros(0, np.int64), *found])
        return bitmap_of(files[files < below])


def collect_slices(generation: Generation, blocks: Iterable[Block], *, most: int) -> Slices:
    """Slices of these blocks, taken one by one; raises TooLarge for more than `most` bytes."""
    held: list[Block] = []
    for block in blocks:
        held.append(block)
        if sum(each.nbytes for each in held) > most:
            raise TooLarge(f"the values of a field are more than the {most >> 20} MB to be kept")
    return Slices(generation, tuple(_merge_blocks(held)))


def prefers_bit_slices(test: BitsSet, files: int) -> bool:
    """Whether so many files had better be asked of slices."""
    return files * max((len(keys) for _, keys in test.probes), default=0) > HEAVY


def slices_name(test: BitsSet) -> str:
    """The field a test asks about, in its full spelling."""
    return f"{test.sketch}_{test.field}"


def block_of(layout: int, files: _Numbers, turned: _Octets) -> Block:
    """A block of these files; `turned` has a row a byte of the values, and a column a file."""
    length, n = turned.shape
    places = np.full(-(-n // 64) * 64, NOBODY, np.int64)
    places[:n] = files
    octets = np.zeros((8 * length, len(places) // 8), np.uint8)
    step = max(64, _TURNED // max(length, 1) // 64 * 64)
    for start in range(0, n, step):
        some = np.ascontiguousarray(turned[:, start : start + step])
        to = slice(start // 8, start // 8 + -(-some.shape[1] // 8))
        for bit in range(8):
            mask = np.uint8(1 << bit)
            octets[bit::8, to] = np.packbits(some & mask, axis=1, bitorder="little")
    return Block(layout, places, octets.view(np.uint64))


def _without(block: Block, gone: _Numbers) -> Block:
    is_gone = np.isin(block.files, gone)
    if not is_gone.any():
        return block
    return replace(block, files=np.where(is_gone, NOBODY, block.files))


def _merge_blocks(blocks: Iterable[Block]) -> list[Block]:
    """Without empty blocks, and so few that a question's steps are long.

    Of one shape each has twice as many places as the next, so that a file is moved now and then.
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
    """Blocks of one shape as one; without the places of nobody if those are half of them."""
    files = np.concatenate([block.files for block in blocks])
    live = files != NOBODY
    n = int(np.count_nonzero(live))
    if 2 * n > len(files) or -(-n // 64) * 64 == len(files):
        if len(blocks) == 1:
            return blocks[0]
        return Block(blocks[0].layout, files, np.concatenate([b.rows for b in blocks], axis=1))
    places = np.full(-(-n // 64) * 64, NOBODY, np.int64)
    places[:n] = files[live]
    octets = np.zeros((len(blocks[0].rows), len(places) // 8), np.uint8)
    step = max(1, _TURNED // len(files))
    for start in range(0, len(octets), step):
        some = np.concatenate([block.rows[start : start + step] for block in blocks], axis=1)
        bits = np.unpackbits(some.view(np.uint8), axis=1, bitorder="little")[:, live]
        packed = np.packbits(bits, axis=1, bitorder="little")
        octets[start : start + step, : packed.shape[1]] = packed
    return Block(blocks[0].layout, places, octets.view(np.uint64))
