"""BYTES laid down by bit: what the reference evaluator says of the files' own bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from providers.errors import StoreError
from providers.evaluate import find_prunable_rows
from providers.index_predicate import BitsSet
from skipping.stores import slices
from skipping.stores.slices import Slices, block_of
from tests.skipping.stores.samples import bits

LENGTHS = {1: 1, 2: 9, 3: 40}  # of each layout


def values(random: np.random.Generator, ordinals: np.ndarray) -> dict[int, tuple[int, bytes]]:
    """Of each file a layout and bytes, mostly ones."""
    found = {}
    for ordinal in ordinals.tolist():
        layout = int(random.integers(1, 4))
        octets = random.integers(0, 256, (2, LENGTHS[layout]), np.uint8)
        found[ordinal] = layout, bytes(octets[0] | octets[1])
    return found


def laid(generation: int, files: dict[int, tuple[int, bytes]]) -> Slices:
    blocks = []
    for layout, length in LENGTHS.items():
        mine = [(o, v) for o, (of, v) in files.items() if of == layout]
        if mine:
            octets = np.frombuffer(b"".join(v for _, v in mine), np.uint8).reshape(-1, length)
            blocks.append(block_of(layout, np.array([o for o, _ in mine]), octets))
    return Slices(generation, tuple(blocks))


def evaluate_reference(test: BitsSet, files: dict[int, tuple[int, bytes]], below: int) -> list[int]:
    table = pa.table(
        {
            "s3_known": pa.array([True] * len(files)),
            "s3_filter": pa.array([v for _, v in files.values()], pa.large_binary()),
            "s3_layout": pa.array([layout for layout, _ in files.values()], pa.int64()),
        }
    )
    found = np.array(list(files), np.int64)[find_prunable_rows(test, table)]
    return sorted(found[found < below].tolist())


def question(random: np.random.Generator) -> BitsSet:
    """Some layouts, some keys; here and there a position that is in no value."""
    probes = []
    for layout, length in LENGTHS.items():
        end = 8 * length + (random.random() < 0.1)
        keys = random.integers(0, end, (random.integers(0, 9), 6))
        if random.random() < 0.9:
            probes.append((layout, pa.array(keys.tolist(), pa.list_(pa.int64(), 6))))
    return BitsSet("filter", "layout", tuple(probes), "s3")


@pytest.mark.parametrize("seed", range(10))
def test_what_came_and_went(seed: int) -> None:
    random = np.random.default_rng(seed)
    kept, files, end, skipped = Slices(0), {}, 0, 0
    for generation in range(1, 12):
        n = int(random.choice([1, 10, 64, 200]))
        came = values(random, np.arange(end, end + n))
        end += n
        removed = [o for o in files if random.random() < 0.4]
        files = {o: v for o, v in files.items() if o not in removed} | came
        kept = kept.after(laid(generation, came), removed)
        test, below = question(random), int(random.integers(0, end + 2))
        found = list(kept.find_prunable(test, below=below, in_time=lambda: None))
        assert found == evaluate_reference(test, files, below)
        skipped += len(found)
        assert kept.generation == generation
    assert skipped
    assert kept.nbytes == sum(block.nbytes for block in kept.blocks)


def test_many_small_changes_are_put_together() -> None:
    random = np.random.default_rng(3)
    kept, files = Slices(0), {}
    for generation in range(1, 301):
        came = values(random, np.arange(10 * generation, 10 * generation + 10))
        files |= came
        kept = kept.after(laid(generation, came), ())
    assert len(kept.blocks) <= 3 * 9  # of each layout, twice as many files each time
    own = sum(len(v) for _, v in files.values())
    ordinals = 8 * len(files)
    assert kept.nbytes <= 2.5 * (own + ordinals)
    test = bits([[0, 1, 2, 3]], layout=2)
    found = list(kept.find_prunable(test, below=10**6, in_time=lambda: None))
    assert found == evaluate_reference(test, files, 10**6) != []


def test_most_files_gone_leave_no_room_behind() -> None:
    files = values(np.random.default_rng(3), np.arange(10_000))
    whole = laid(1, files)
    left = whole.after(Slices(2), range(100, 10_000))
    assert left.nbytes < whole.nbytes / 50
    assert Slices(2).after(Slices(3), ()).nbytes == left.after(Slices(3), range(100)).nbytes == 0


def test_turned_round_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "_AT_ONCE", 8_000)
    files = values(np.random.default_rng(4), np.arange(3_000))
    kept = laid(1, files).after(Slices(2), range(2_000))
    files = {o: v for o, v in files.items() if o >= 2_000}
    test = bits([[0, 1, 2, 3], [300, 301, 302, 303]], layout=3)
    assert list(kept.find_prunable(test, below=9_999, in_time=lambda: None)) == evaluate_reference(
        test, files, 9_999
    )


@pytest.mark.parametrize("key", [[-1, 0], [0, 8 * LENGTHS[2]], [2**62, 0]])
def test_positions_that_are_in_no_value_prove_nothing(key: list[int]) -> None:
    kept = laid(1, values(np.random.default_rng(5), np.arange(100)))
    assert not kept.find_prunable(bits([key], layout=2), below=100, in_time=lambda: None)


def test_it_ends_by_its_deadline() -> None:
    kept = laid(1, values(np.random.default_rng(6), np.arange(100)))
    asked = iter(range(10))

    def in_time() -> None:
        if next(asked) == 9:
            raise StoreError("late")

    with pytest.raises(StoreError, match="late"):
        kept.find_prunable(bits([[7, 8]] * 10_000, layout=2), below=100, in_time=in_time)
