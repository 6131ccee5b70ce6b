"""A question of thousands of keys, whether a field has more terms than that or fewer."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

from providers.evaluate import find_prunable_rows
from providers.index_predicate import BitsSet, Contains, ContainsOther, Test
from skipping.stores import IndexStore, slices
from skipping.stores.memory import store as memory
from skipping.stores.memory.store import MemoryStore
from tests.skipping.stores.samples import ask, definition, entries, fill, filters
from tests.skipping.stores.small import DEFINITION, TESTS, bit, bits_of

FILES, NOISE = 4, 5_000


def store_terms(store: IndexStore, terms: list[list[object]], type: pa.DataType) -> None:
    values = {
        "s1_known": pa.array([True] * len(terms)),
        "s1_values": pa.array(terms, pa.list_(type)),
    }
    fill(store, values)


@pytest.mark.parametrize("each", [2, 2_000], ids=["few terms", "many terms"])
@pytest.mark.parametrize("type", [pa.int64(), pa.string(), pa.binary()], ids=str)
def test_keys_among_noise(store: IndexStore, type: pa.DataType, each: int) -> None:
    def term(number: int) -> object:
        return number if type == pa.int64() else pa.scalar(f"é{number}").cast(type).as_py()

    # File f has the terms of [each f, each (f + 1)), and all have -1; -2 and so on are noise.
    files = [[-1, *range(each * f, each * (f + 1))] for f in range(FILES)]
    store_terms(store, [[term(number) for number in file] for file in files], type)
    noise = [term(-2 - n) for n in range(NOISE)]

    def query_store(test: type[Test], *numbers: int) -> list[int]:
        keys = [*noise, *map(term, numbers), *map(term, numbers), None]
        return ask(store, test("values", pa.array(keys, type), "s1"))

    assert query_store(Contains, each, 3 * each) == [0, 2]
    assert query_store(Contains) == [0, 1, 2, 3]
    assert query_store(Contains, -1) == []
    assert query_store(ContainsOther, *files[1]) == [1]
    assert query_store(ContainsOther, *files[1][1:]) == []
    assert query_store(ContainsOther, *files[0], *files[3]) == [0, 3]


@pytest.mark.parametrize("least", [-(2**63), -2_000, 0])
def test_numbers_of_both_signs(store: IndexStore, least: int) -> None:
    numbers = [*range(least, least + 1_500), *range(-750, 750), *range(2**63 - 1_500, 2**63)]
    store_terms(store, [[number, number] for number in numbers], pa.int64())
    keys = sorted(numbers[::2])
    left = set(keys)
    asked = Contains("values", pa.array(keys, pa.int64()), "s1")
    assert ask(store, asked) == [f for f, number in enumerate(numbers) if number not in left]


@pytest.mark.parametrize("heavy", [0, slices.HEAVY], ids=["kept here", "asked there"])
def test_bits_follow_what_is_written_and_removed(
    store: IndexStore, monkeypatch: pytest.MonkeyPatch, heavy: int
) -> None:
    """Of several layouts and lengths, some unknown, some without a value or a layout."""
    monkeypatch.setattr(slices, "HEAVY", heavy)
    random = np.random.default_rng(3)
    store.define(definition(), expect=None)
    tables, gone, skipped = [], set(), 0
    for n in (1, 300, 7, 70):
        ordinals = store.reserve("i", n)
        layouts = [None if random.random() < 0.1 else int(x) for x in random.integers(1, 4, n)]
        values = [
            None if random.random() < 0.1 else random.bytes((layout or 1) * random.choice([20, 9]))
            for layout in layouts
        ]
        table = entries(ordinals, filters(values, layouts))
        known = pa.array(random.random(n) < 0.9)
        table = table.set_column(table.schema.get_field_index("s3_known"), "s3_known", known)
        tables.append(table)
        store.write("i", table, revision=1)
        removed = [o for o in range(ordinals.stop) if o not in gone and random.random() < 0.2]
        store.remove("i", pa.array(removed, pa.int64()))
        gone.update(removed)
        whole = pa.concat_tables(tables)
        for _ in range(3):
            probes = []
            for layout in (1, 2, 3):
                keys = random.integers(0, 8 * layout * 20, (random.integers(0, 5), 3))
                probes.append((layout, pa.array(keys.tolist(), pa.list_(pa.int64(), 3))))
            test = BitsSet("filter", "layout", tuple(probes), "s3")
            expected = set(np.flatnonzero(find_prunable_rows(test, whole)).tolist()) - gone
            assert set(ask(store, test)) == expected
            assert ask(store, test, below=50) == sorted(o for o in expected if o < 50)
            skipped += len(expected)
    assert skipped


def test_bits_that_take_too_long_are_given_up_and_not_the_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    store.define(DEFINITION, expect=None)
    store.write("i", bits_of(store.reserve("i", 10)), revision=1)
    asked = [TESTS[0], bit(2)]
    lists, bits = store.find_prunable("i", asked, below=10, timeout=10)
    assert bits
    assert lists
    seconds = SimpleNamespace(monotonic=count(step=3).__next__)
    monkeypatch.setattr(memory, "time", seconds)
    assert store.find_prunable("i", asked, below=10, timeout=10) == [lists, BitMap()]
