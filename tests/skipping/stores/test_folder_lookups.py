"""Random lookups: a folder store answers as the store in memory does."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from providers.index_predicate import (
    BitsSet,
    Contains,
    ContainsOther,
    ContainsRange,
    FieldCompare,
    NotWithin,
    Overlaps,
    OverlapsRange,
    Test,
)
from skipping.stores.folder.objects import ObstoreObjects
from skipping.stores.folder.store import FolderStore
from skipping.stores.memory.store import MemoryStore
from tests.skipping.stores.samples import Values, bits, definition, entries

FILES, AT_ONCE = 300, 500
WORDS = [f"w{n:03}" for n in range(200)]


def values_of(drawn: random.Random, files: int) -> Values:
    """Return sketches of some files: bounds, words and bytes; some of them unknown."""

    def some(make: object, chance: float = 0.95) -> list[object]:
        return [make() if drawn.random() < chance else None for _ in range(files)]  # type: ignore[operator]

    lows = some(lambda: drawn.randrange(1_000))
    return {
        "s1_known": some(lambda: drawn.random() < 0.97),
        "s1_low": lows,
        "s1_high": [None if low is None else low + drawn.randrange(60) for low in lows],  # type: ignore[operator]
        "s2_known": some(lambda: drawn.random() < 0.97),
        "s2_values": some(lambda: drawn.sample(WORDS, drawn.randrange(8))),
        "s3_known": some(lambda: drawn.random() < 0.97),
        "s3_filter": some(lambda: drawn.randbytes(2)),
        "s3_layout": some(lambda: drawn.choice([1, 1, 1, 2])),
    }


def lookup(drawn: random.Random) -> Test:
    """Return a random test of one of the sketches."""
    numbers = pa.array(sorted(drawn.sample(range(1_100), drawn.randrange(1, 6))))
    words = pa.array(sorted(drawn.sample(WORDS, drawn.randrange(1, 6))))
    low, high = sorted(drawn.sample(WORDS, 2))
    flags = {name: drawn.random() < 0.5 for name in ("includes_low", "includes_high")}
    ends = pa.array((numbers.to_numpy() + drawn.randrange(30)).astype(np.int64))
    op = drawn.choice(["=", "!=", "<", "<=", ">", ">="])
    found: Test = drawn.choice(
        [
            FieldCompare(drawn.choice(["low", "high"]), op, drawn.randrange(1_100), "s1"),
            Overlaps("low", "high", numbers, "s1"),
            OverlapsRange("low", "high", numbers, ends, sketch="s1", **flags),
            NotWithin("low", "high", numbers[:1], ends[:1], "s1"),
            Contains("values", words, "s2"),
            ContainsOther("values", words, "s2"),
            ContainsRange("values", low, high, sketch="s2", **flags),
            bits([(drawn.randrange(16), drawn.randrange(16))]),
        ]
    )
    assert isinstance(found, BitsSet) or found.sketch
    return found


@pytest.mark.parametrize(
    "count",
    [2_000, pytest.param(1_000_000, marks=[pytest.mark.process, pytest.mark.soak])],
)
def test_random_lookups_are_equal_to_those_in_memory(tmp_path: Path, count: int) -> None:
    drawn = random.Random(int(os.environ.get("SKIPPING_TEST_SEED", "1")))
    memory = MemoryStore("m")
    objects = ObstoreObjects(f"file://{tmp_path}/shared")
    writer = FolderStore(objects, tmp_path / "writer")
    reader = FolderStore(objects, tmp_path / "reader", ttl=0.5)
    for store in (memory, writer):
        store.define(definition(), expect=None)
        store.reserve("i", FILES)
    asked = pruned = 0
    while asked < count:
        # Between the lookups entries are written, written again, and removed.
        files = sorted(drawn.sample(range(FILES), drawn.randrange(1, 40)))
        new = entries(files, values_of(drawn, len(files)))
        gone = pa.array(sorted(drawn.sample(range(FILES), drawn.randrange(0, 3))), pa.int64())
        for store in (memory, writer):
            store.write("i", new, revision=1)
            store.remove("i", gone)
        reader.catalogue("i")
        for _ in range(min(20, -(-(count - asked) // AT_ONCE))):
            tests = [lookup(drawn) for _ in range(AT_ONCE)]
            below = drawn.choice([FILES, FILES // 2, 2**31])
            found = reader.find_prunable("i", tests, below=below, timeout=60)
            expected = memory.find_prunable("i", tests, below=below, timeout=60)
            for test, ours, theirs in zip(tests, found, expected, strict=True):
                assert ours == theirs, test
            asked += len(tests)
            pruned += sum(map(len, found))
    assert pruned > count
