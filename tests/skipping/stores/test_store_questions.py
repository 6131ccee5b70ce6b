"""Which files a store says are pruned: the same for every store."""

from __future__ import annotations

import pickle
import random
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from providers.errors import StoreError
from providers.evaluate import find_prunable_rows
from providers.index_predicate import (
    AllOf,
    AnyOf,
    Contains,
    ContainsOther,
    ContainsRange,
    FieldCompare,
    NotWithin,
    Overlaps,
    OverlapsRange,
    Test,
    find_prunable,
)
from skipping.stores import IDENTITY, IndexStore
from tests.skipping.stores.samples import (
    INTS,
    ask,
    bits,
    bounds,
    definition,
    entries,
    fill,
    filters,
)

# Which files are pruned


@st.composite
def questions(draw: st.DrawFn) -> tuple[pa.Table, list[Test]]:
    """Sketches of one type (s1 with bounds, s2 terms, s3 bytes), and tests of every class."""
    type, values = draw(
        st.sampled_from(
            [
                (pa.int64(), st.sampled_from([-(2**63), -1, 0, 1, 2, 3, 2**63 - 1])),
                # U+FFFF sorts before U+10348 as UTF-8 and after it as UTF-16.
                (pa.string(), st.text("\0a\u00e9\uffff\U00010348", max_size=2)),
                (pa.binary(), st.text("\0\x7f\xff", max_size=2).map(lambda t: t.encode("latin1"))),
            ]
        )
    )
    maybe = st.none() | values
    n = draw(st.integers(0, 8))

    def column(each: st.SearchStrategy[Any], type: pa.DataType) -> pa.Array:
        return pa.array(draw(st.lists(each, min_size=n, max_size=n)), type)

    flag = st.sampled_from([True, True, True, False, None])
    sketches = {
        "s1_known": column(flag, pa.bool_()),
        "s1_low": column(maybe, type),
        "s1_high": column(maybe, type),
        "s2_known": column(flag, pa.bool_()),
        "s2_values": column(st.none() | st.lists(values, max_size=4), pa.list_(type)),
        "s3_known": column(flag, pa.bool_()),
        "s3_filter": column(st.none() | st.binary(max_size=2), pa.large_binary()),
        "s3_layout": column(st.sampled_from([1, 1, 1, 2, None]), INTS),
    }

    def keys() -> list[Any]:
        return sorted(draw(st.sets(values, max_size=5)))

    edges = keys()
    edges = edges[: len(edges) // 2 * 2]
    flags = st.booleans()
    op = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="]))
    tests: list[Test] = [
        FieldCompare(draw(st.sampled_from(["low", "high"])), op, draw(values), "s1"),
        Overlaps("low", "high", pa.array(keys(), type), "s1"),
        NotWithin("low", "high", pa.array(edges[::2], type), pa.array(edges[1::2], type), "s1"),
        OverlapsRange(
            *("low", "high", pa.array(edges[::2], type), pa.array(edges[1::2], type)),
            *(draw(flags), draw(flags), "s1"),
        ),
        Contains("values", pa.array(keys(), type), "s2"),
        ContainsOther("values", pa.array(keys(), type), "s2"),
        ContainsRange("values", draw(maybe), draw(maybe), draw(flags), draw(flags), "s2"),
        ContainsRange("values", sketch="s2"),
        bits(draw(st.lists(st.tuples(*[st.integers(0, 15)] * 2), max_size=3))),
    ]
    return entries(range(n), sketches), tests


@given(question=questions(), data=st.data())
def test_pruned_is_what_the_reference_says(
    shared: IndexStore, question: tuple[pa.Table, list[Test]], data: st.DataObject
) -> None:
    table, tests = question
    index = str(uuid.uuid4())
    shared.define(definition(index, table=index), expect=None)
    n = len(shared.reserve(index, len(table)))
    # In any order, over several writes, sketches after entries.
    order = data.draw(st.permutations(range(n)))
    cut = data.draw(st.integers(0, n))
    shuffled = table.take(pa.array(order, INTS))
    first = data.draw(st.sampled_from(["s1", "s2", "s3"]))
    names = [c for c in table.schema.names if c in IDENTITY.names or c.startswith(first)]
    for part in (shuffled[:cut].select(names), shuffled[:cut], shuffled[cut:]):
        shared.write(index, part, revision=1)
    gone = data.draw(st.sets(st.integers(0, n), max_size=3))
    shared.remove(index, pa.array(sorted(gone), INTS))
    below = data.draw(st.integers(0, n + 1) | st.just(2**31))

    answers = shared.find_prunable(index, tests, below=below, timeout=60)
    for test, answer in zip(tests, answers, strict=True):
        expected = set(np.flatnonzero(find_prunable_rows(test, table)).tolist()) - gone
        assert set(answer) == {o for o in expected if o < below}, test


@pytest.mark.smoke
def test_both_ends_of_a_range_are_in_or_out(store: IndexStore) -> None:
    fill(store, {"s2_known": [True] * 4, "s2_values": [["a"], ["a\0"], ["c"], ["d"]]})

    def prune(low: str | None, high: str | None, *ends: bool) -> list[int]:
        return ask(store, ContainsRange("values", low, high, *ends, sketch="s2"))

    assert prune("a", "c", True, True) == [3]
    assert prune("a", "c", False, True) == [0, 3]
    assert prune("a", "c", True, False) == [2, 3]
    assert prune("a", "c", False, False) == [0, 2, 3]
    assert prune(None, "c", True, False) == [2, 3]
    assert prune("c", None, False, True) == [0, 1, 2]


@pytest.mark.smoke
def test_bytes_come_back_as_they_were(store: IndexStore) -> None:
    """Every bit of some files, and of one that is larger than whatever a store reads at once."""
    long = random.Random(1).randbytes(9_000)
    kept = [bytes(range(256)), b"", b"\0" * 5, b"\xff" * (5 << 20), b"\0\x80", long]
    fill(store, filters([*kept, None], [1] * 7))
    for bit in (0, 7, 8, 15, 39, 2_047, *range(32_760, 32_776), *range(65_530, 65_542), 0xD800):
        expected = [
            i
            for i, value in enumerate(kept)
            if bit < 8 * len(value) and not value[bit // 8] >> bit % 8 & 1
        ]
        assert ask(store, bits([[bit]])) == expected
    assert ask(store, bits([[8 * (5 << 20) - 1]])) == []
    assert ask(store, bits([])) == [0, 1, 2, 3, 4, 5]
    assert ask(store, bits([[0]], layout=2)) == []


def test_bytes_of_several_writes_and_sketches(store: IndexStore) -> None:
    fill(store, filters([b"\0", b"\1"], [1, 1]))
    store.reserve("i", 4)
    later = filters([b"\1", b"\0", b"\0"], [1, 1, 2])
    store.write("i", entries([5, 3, 4], later), revision=1)
    again = filters([b"\1"], [1]) | {"s4_known": pa.array([True])}
    more = {"s4_filter": pa.array([b"\0"], pa.large_binary()), "s4_layout": pa.array([1])}
    store.write("i", entries([0], again | more), revision=1)
    assert ask(store, bits([[0]])) == [0, 3]
    assert ask(store, bits([[0]], layout=2)) == [4]
    assert ask(store, bits([[0]], sketch="s4")) == [0]
    assert ask(store, bits([[0]]), below=3) == [0]
    store.remove("i", pa.array([0, 5]))
    assert ask(store, bits([[0]])) == [3]
    assert ask(store, bits([])) == [1, 3]


def test_only_entries_under_the_bound_are_answered_for(store: IndexStore) -> None:
    fill(store, bounds([1, 2, 3, 4]) | {"s2_known": [True] * 4, "s2_values": [[]] * 4})
    for test in (FieldCompare("low", ">", 9, "s1"), Contains("values", pa.array(["a"]), "s2")):
        assert [ask(store, test, below=b) for b in (0, 1, 3, 9)] == [
            [],
            [0],
            [0, 1, 2],
            [0, 1, 2, 3],
        ]


def test_what_was_removed_is_never_reported(store: IndexStore) -> None:
    fill(store, bounds([1] * 6) | {"s2_known": [True] * 6, "s2_values": [["a"]] * 6})
    tests = [FieldCompare("low", ">", 9, "s1"), Contains("values", pa.array(["b"]), "s2")]
    store.remove("i", pa.array([0, 3, 4, 5]))
    for test in tests:
        assert ask(store, test) == [1, 2]
    assert ask(store, Contains("values", pa.array(["a"]), "s2")) == []
    store.remove("i", pa.array([1, 2]))
    assert [ask(store, test) for test in tests] == [[], []]


def test_a_test_that_cannot_be_answered_prunes_nothing(store: IndexStore) -> None:
    values = bounds([1, 2]) | {"s2_known": [True] * 2, "s2_values": [["a"], []]}
    fill(store, values | filters([b"\0", b"\0"], [1, 1]))
    ints, texts = pa.array([5]), pa.array(["b"])
    nobody: list[Test] = [
        FieldCompare("low", ">", 9, "s7"),
        FieldCompare("other", ">", 9, "s1"),
        FieldCompare("low", ">", "9", "s1"),
        FieldCompare("low", ">", 2**70, "s1"),
        FieldCompare("values", "=", "b", "s2"),
        Overlaps("low", "high", texts, "s1"),
        Overlaps("low", "other", ints, "s1"),
        NotWithin("low", "high", texts, texts, "s1"),
        Contains("values", ints, "s2"),
        Contains("low", ints, "s1"),
        ContainsOther("values", pa.array([b"b"]), "s2"),
        ContainsRange("values", 5, sketch="s2"),
        ContainsRange("values", "\ud800", sketch="s2"),
        ContainsRange("low", 5, sketch="s1"),
        Contains("values", texts, ""),
        bits([[0]], sketch="s1"),
        replace(bits([[0]]), field="layout"),
        replace(bits([[0]]), layout="filter"),
        replace(bits([[0]]), probes=((1, pa.array([0])),)),
        replace(bits([[0]]), probes=((1, pa.array([[0]], pa.list_(pa.int32(), 1))),)),
        FieldCompare("filter", "=", b"\0", "s3"),
        Overlaps("filter", "filter", pa.array([b"a"]), "s3"),
    ]
    answers = store.find_prunable(
        "i", [*nobody, FieldCompare("low", ">", 9, "s1")], below=9, timeout=60
    )
    assert [list(a) for a in answers] == [[]] * len(nobody) + [[0, 1]]


def test_unknown_empty_and_absent_are_three_things(store: IndexStore) -> None:
    """Rule 7. Three files: s1 unknown, s1 known without values, s1 not looked at; s2 says no."""
    values = bounds([None] * 3, [False, True, None])
    fill(store, values | {"s2_known": [True] * 3, "s2_values": [["a"]] * 3})
    unknown = FieldCompare("low", "=", 5, "s1")
    false = Contains("values", pa.array(["b"]), "s2")
    true = Contains("values", pa.array(["a"]), "s2")

    def answer(test: Test) -> BitMap:
        return store.find_prunable("i", [test], below=9, timeout=60)[0]

    assert list(find_prunable(AnyOf((unknown, false)), answer)) == [1]
    assert list(find_prunable(AllOf((unknown, false)), answer)) == [0, 1, 2]
    assert list(find_prunable(AnyOf((unknown, true)), answer)) == []
    assert list(find_prunable(AllOf((unknown, true)), answer)) == [1]


def test_many_keys(store: IndexStore) -> None:
    numbers = pa.array([[2 * i, 2 * i + 400_001] for i in range(50)], pa.list_(INTS))
    texts = pa.array([[f"{2 * i:07}\0"] for i in range(50)], pa.list_(pa.string()))
    columns = {"s3_known": pa.array([True] * 50), "s3_values": numbers}
    columns |= {"s4_known": pa.array([True] * 50), "s4_values": texts}
    fill(store, columns | bounds([2 * i for i in range(50)]))
    keys = pa.array(range(1, 400_001, 2))
    some = pa.array([f"{i:07}\0" for i in range(20, 200_020)])
    assert ask(store, Contains("values", keys, "s3")) == list(range(50))
    assert ask(store, ContainsOther("values", keys, "s3")) == []
    assert ask(store, Overlaps("low", "high", keys, "s1")) == list(range(50))
    assert ask(store, Contains("values", some, "s4")) == list(range(10))
    assert ask(store, ContainsOther("values", some, "s4")) == list(range(10, 50))


@pytest.mark.parametrize("copied", [False, True])
def test_what_is_kept_of_an_index_follows_it(reachable: IndexStore, copied: bool) -> None:
    """Asked again and again, while this or another copy of the store changes the entries."""
    store = pickle.loads(pickle.dumps(reachable)) if copied else reachable
    fill(reachable, bounds([1, 2, 3], [True, False, None]))
    keys = pa.array(range(100, 200_000))

    def find_files(below: int = 99) -> list[list[int]]:
        tests: list[Test] = [
            FieldCompare("low", ">", 2, "s1"),
            Overlaps("low", "high", keys, "s1"),
            NotWithin("low", "high", keys, keys, "s1"),
            FieldCompare("nulls", ">", 0, "s2"),
            ContainsOther("values", pa.array(["a"]), "s2"),
        ]
        return [list(a) for a in reachable.find_prunable("i", tests, below=below, timeout=60)]

    assert find_files() == find_files() == [[0], [0], [], [], []]
    store.reserve("i", 3)
    store.write("i", entries([4, 5], bounds([100, 5])), revision=1)
    assert find_files() == [[0], [0, 5], [4], [], []]
    more = {"s2_known": [True, True, False], "s2_values": [["a"], ["b"], []], "s2_nulls": [0, 1, 0]}
    store.write("i", entries([2, 0, 4], more | bounds([9, 9, 9])), revision=1)
    assert find_files() == [[0], [0, 2, 5], [4], [2], [2]]
    assert find_files(below=3) == [[0], [0, 2], [], [2], [2]]
    store.remove("i", pa.array([0]))
    assert find_files() == [[], [2, 5], [4], [2], [2]]
    store.write("i", entries([3], bounds([0])), revision=1)
    assert find_files() == [[3], [2, 3, 5], [4], [2], [2]]


def test_no_tests(store: IndexStore) -> None:
    fill(store, bounds([1]))
    assert list(store.find_prunable("i", [], below=9, timeout=60)) == []


def test_an_empty_budget_is_an_error(store: IndexStore) -> None:
    fill(store, bounds([1]))
    with pytest.raises(StoreError, match=r"answer|locked"):
        store.find_prunable("i", [FieldCompare("low", ">", 9, "s1")], below=9, timeout=0)
    assert len(store.definitions(timeout=60)) == len(store.catalogue("i", timeout=60).files) == 1


def test_readers_see_whole_writes(store: IndexStore) -> None:
    """One writes and removes while others ask: each answer fits one state of the store."""
    store.define(definition(), expect=None)
    done = threading.Event()
    size, rounds = 40, 25

    def writer() -> None:
        try:
            for _ in range(rounds):
                ordinals = store.reserve("i", size)
                values = bounds([1] * size) | {"s2_known": [True] * size}
                terms = pa.array([["a"]] * size)
                store.write("i", entries(ordinals, values | {"s2_values": terms}), revision=1)
                store.remove("i", pa.array(ordinals[::2]))
        finally:
            done.set()

    def reader() -> int:
        test: list[Test] = [
            FieldCompare("low", ">", 1, "s1"),
            Contains("values", pa.array(["b"]), "s2"),
            FieldCompare("low", ">", 2, "s1"),
        ]
        files: set[int] = set()
        since, asked, below = None, 0, 0
        while not (done.is_set() and asked):
            found = store.catalogue("i", since=since)
            below = max(below, found.below)
            files |= set(found.files["ordinal"].to_pylist())
            files -= set(found.removed.to_pylist())
            since, asked = found.generation, asked + 1
            a, b, c = store.find_prunable("i", test, below=below, timeout=60)
            assert a == b == c
            assert not a or a.max() < below
        found = store.catalogue("i", since=since)
        files = (files | set(found.files["ordinal"].to_pylist())) - set(found.removed.to_pylist())
        assert files == set(store.catalogue("i").files["ordinal"].to_pylist())
        return len(files)

    with ThreadPoolExecutor(3) as threads:
        readers = [threads.submit(reader) for _ in range(2)]
        threads.submit(writer).result(60)
        assert [r.result(60) for r in readers] == [size // 2 * rounds] * 2
