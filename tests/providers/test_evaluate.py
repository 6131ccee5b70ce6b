"""Tests of sketches against brute force over every file, and what they cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap, FrozenBitMap

from providers.evaluate import find_prunable_rows, holds
from providers.index_predicate import (
    AllOf,
    BitsSet,
    Contains,
    ContainsOther,
    ContainsRange,
    FieldCompare,
    IndexPredicate,
    NotWithin,
    Overlaps,
    OverlapsRange,
    Test,
    find_prunable,
    map_tests,
)
from providers.index_predicate import AnyOf as Some
from providers.index_predicate import tests as every_test
from tests.providers.spark_oracle import OPS, VALUES, compare, order

STORED = {"int64": VALUES["bigint"], "string": VALUES["string"], "binary": VALUES["binary"]}
TYPES = {"int64": pa.int64(), "string": pa.string(), "binary": pa.binary()}
EVERY_STORED = pytest.mark.parametrize("stored", STORED)


def _sorted(values: Sequence[Any]) -> list[Any]:
    return sorted({order(v): v for v in values}.values(), key=order)


def _files(stored: str, lows: list[Any], highs: list[Any]) -> pa.Table:
    return pa.table(
        {
            "s_known": pa.array([True] * len(lows), pa.bool_()),
            "s_low": pa.array(lows, TYPES[stored]),
            "s_high": pa.array(highs, TYPES[stored]),
        }
    )


@EVERY_STORED
def test_bounds_against_brute_force(stored: str) -> None:
    value = STORED[stored]

    @given(
        st.lists(st.none() | st.tuples(value, value), max_size=8),
        st.lists(value, max_size=9),
        st.integers(0, 8),
        value,
    )
    def run(bounds: list[Any], some_keys: list[Any], start: int, one: Any) -> None:
        pairs = [(None, None) if b is None else sorted(b, key=order) for b in bounds]
        # Hit the bounds themselves, not only what lies around them.
        keys = _sorted([*some_keys, *(p[0] for p in pairs[::2] if p[0] is not None)])
        lows, highs = [p[0] for p in pairs], [p[1] for p in pairs]
        files = _files(stored, lows, highs).slice(start)
        lows, highs = lows[start:], highs[start:]
        array = pa.array(keys, TYPES[stored])
        assert holds(Overlaps("low", "high", array, "s"), files).tolist() == [
            low is not None and any(order(low) <= order(k) <= order(high) for k in keys)
            for low, high in zip(lows, highs, strict=True)
        ]
        # Ranges: keys 0..1, 2..3, ...; the last may be a single point.
        ranges = [(keys[i], keys[min(i + 1, len(keys) - 1)]) for i in range(0, len(keys), 2)]
        starts = pa.array([r[0] for r in ranges], TYPES[stored])
        ends = pa.array([r[1] for r in ranges], TYPES[stored])
        assert holds(NotWithin("low", "high", starts, ends, "s"), files).tolist() == [
            low is not None
            and not any(order(a) <= order(low) and order(high) <= order(b) for a, b in ranges)
            for low, high in zip(lows, highs, strict=True)
        ]
        for closed in product([False, True], repeat=2):
            first, last = (("<=" if side else "<") for side in closed)
            test = OverlapsRange("low", "high", starts, ends, *closed, "s")
            assert holds(test, files).tolist() == [
                low is not None
                and any(compare(a, first, high) and compare(low, last, b) for a, b in ranges)
                for low, high in zip(lows, highs, strict=True)
            ]
        for op in OPS:
            assert holds(FieldCompare("low", op, one, "s"), files).tolist() == [
                compare(low, op, one) is True for low in lows
            ]

    run()


@EVERY_STORED
def test_terms_against_brute_force(stored: str) -> None:
    value = STORED[stored]

    @given(
        st.lists(st.none() | st.lists(value, max_size=4), max_size=8),
        st.lists(value, max_size=5),
        st.tuples(st.none() | value, st.none() | value),
        st.tuples(st.booleans(), st.booleans()),
        st.integers(0, 8),
    )
    def run(
        lists: list[Any],
        some_keys: list[Any],
        bounds: tuple[Any, Any],
        closed: tuple[bool, bool],
        start: int,
    ) -> None:
        keys = _sorted([*some_keys, *(terms[0] for terms in lists[::2] if terms)])
        array = pa.array(keys, TYPES[stored])
        files = pa.table(
            {"s_known": [True] * len(lists), "s_v": pa.array(lists, pa.list_(TYPES[stored]))}
        )
        files = files.slice(start)
        low, high = bounds
        above, below = (">=" if closed[0] else ">"), ("<=" if closed[1] else "<")
        expectations: list[tuple[Test, Callable[[Any], bool]]] = [
            (Contains("v", array, "s"), lambda term: term in keys),
            (ContainsOther("v", array, "s"), lambda term: term not in keys),
            (
                ContainsRange("v", low, high, *closed, "s"),
                lambda term: (
                    (low is None or compare(term, above, low) is True)
                    and (high is None or compare(term, below, high) is True)
                ),
            ),
            (ContainsRange("v", sketch="s"), lambda term: True),
        ]
        for test, accepts in expectations:
            expected = [any(map(accepts, terms or [])) for terms in lists[start:]]
            assert holds(test, files).tolist() == expected, test

    run()


def _probes(*layouts: tuple[int, int, list[list[int]]]) -> tuple[tuple[int, pa.Array], ...]:
    """Of each layout its number, the bits of a key, and the keys."""
    return tuple(
        (layout, pa.array(keys, pa.list_(pa.int64(), slices))) for layout, slices, keys in layouts
    )


@given(
    st.lists(
        st.tuples(st.none() | st.binary(max_size=3), st.none() | st.sampled_from([1, 2, 3])),
        max_size=9,
    ),
    st.lists(st.lists(st.integers(0, 25), min_size=2, max_size=2), max_size=4),
    st.lists(st.lists(st.integers(0, 15), min_size=3, max_size=3), max_size=4),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_bits_against_brute_force(
    rows: list[Any], ones: list[list[int]], twos: list[list[int]], start: int, cut: int
) -> None:
    known = pa.array([True] * len(rows), pa.bool_())
    test = BitsSet("f", "c", _probes((1, 2, ones), (2, 3, twos)), "s")

    def expected(value: bytes | None, layout: int | None) -> bool:
        keys = {1: ones, 2: twos}.get(layout or 0)
        if value is None or keys is None:
            return True
        number, greatest = int.from_bytes(value, "little"), max(map(max, keys), default=-1)
        return greatest >= 8 * len(value) or any(
            all(number >> bit & 1 for bit in key) for key in keys
        )

    for type in (pa.binary(), pa.large_binary()):
        values, layouts = pa.array([v for v, _ in rows], type), pa.array([c for _, c in rows])
        files = pa.table({"s_known": known, "s_f": values, "s_c": layouts.cast(pa.int64())})
        chunked = pa.concat_tables([files.slice(0, cut), files.slice(cut)]).slice(start)
        assert holds(test, chunked).tolist() == [expected(*row) for row in rows[start:]]


def test_values_beneath_a_null_list_belong_to_nobody() -> None:
    terms = pa.array([1, 2, 3, 4])
    mask = pa.array([True, False, False])
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 4, 4], pa.int32()), terms, mask=mask)
    files = pa.table({"_known": [True] * 3, "_v": lists})
    assert holds(Contains("v", pa.array([1])), files).tolist() == [False, False, False]
    assert holds(Contains("v", pa.array([4])), files).tolist() == [False, True, False]
    assert find_prunable_rows(Contains("v", pa.array([4])), files).tolist() == [True, False, True]


def test_columns_may_be_chunked_sliced_and_empty() -> None:
    one = pa.table({"_known": [True, None], "_low": [1, None], "_high": [5, None], "_v": [[1], []]})
    test = Overlaps("low", "high", pa.array([3]))
    chunked = pa.concat_tables([one, one.slice(1), one])
    assert holds(test, chunked).tolist() == [True, False, False, True, False]
    assert holds(Contains("v", pa.array([1])), chunked).tolist() == [
        True,
        False,
        False,
        True,
        False,
    ]
    for empty in (one.slice(0, 0), one.schema.empty_table()):
        for question in (test, Contains("v", pa.array([1])), FieldCompare("low", "=", 1)):
            assert find_prunable_rows(question, empty).tolist() == []


@pytest.mark.parametrize(
    "test",
    [
        FieldCompare("low", "=", 9),
        Overlaps("low", "high", pa.array([9])),
        Overlaps("low", "high", pa.array([], pa.int64())),
        NotWithin("low", "high", pa.array([0]), pa.array([6])),
        Contains("v", pa.array([9])),
        Contains("v", pa.array([], pa.int64())),
        ContainsOther("v", pa.array([1])),
        ContainsRange("v", 7, None),
    ],
    ids=lambda test: type(test).__name__,
)
def test_only_known_files_are_pruned(test: Test) -> None:
    files = pa.table(
        {
            # known; known without values; overflow; never built
            "_known": pa.array([True, True, False, None]),
            "_low": pa.array([1, None, None, None], pa.int64()),
            "_high": pa.array([5, None, None, None], pa.int64()),
            "_v": pa.array([[1], [], None, None], pa.list_(pa.int64())),
        }
    )
    assert not holds(test, files).any()
    assert find_prunable_rows(test, files).tolist() == [True, True, False, False]


def test_bytes_that_are_not_there_prove_nothing() -> None:
    files = pa.table(
        {
            "_known": pa.array([True, True, True, True, True, False, None]),
            "_f": pa.array([b"\0", b"\0", b"\0", b"", None, b"\0", b"\0"], pa.large_binary()),
            "_c": pa.array([1, 9, None, 1, 1, 1, 1], pa.int64()),
        }
    )
    test = BitsSet("f", "c", _probes((1, 1, [[0]])))
    assert find_prunable_rows(test, files).tolist() == [True] + [False] * 6
    nothing = BitsSet("f", "c", ())
    assert not find_prunable_rows(nothing, files).any()


def test_no_keys_at_all() -> None:
    for stored in TYPES:
        nothing = pa.array([], TYPES[stored])
        sample = {"int64": 1, "string": "a", "binary": b"a"}[stored]
        files = _files(stored, [sample, None], [sample, None])
        assert holds(Overlaps("low", "high", nothing, "s"), files).tolist() == [False, False]
        assert holds(NotWithin("low", "high", nothing, nothing, "s"), files).tolist() == [
            True,
            False,
        ]


# And, Or


def _answer(test: Test) -> BitMap:
    assert isinstance(test, FieldCompare)
    return BitMap(map(int, str(test.value)))


A, B, NOBODY = FieldCompare("f", "=", 12), FieldCompare("f", "=", 23), AllOf(())


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (A, {1, 2}),
        (AllOf((A, B)), {1, 2, 3}),
        (Some((A, B)), {2}),
        (AllOf((A,)), {1, 2}),
        (Some((A,)), {1, 2}),
        (NOBODY, set()),
        (AllOf((A, NOBODY)), {1, 2}),
        (Some((A, NOBODY)), set()),
        (AllOf((Some((A, NOBODY)), B)), {2, 3}),
        (Some((AllOf((A, B)), B)), {2, 3}),
        (Some(()), set()),  # must not exist; if it does, nothing is skipped
    ],
)
def test_pruned_is_a_union_under_all_and_an_intersection_under_any(
    predicate: IndexPredicate, expected: set[int]
) -> None:
    assert set(find_prunable(predicate, _answer)) == expected
    frozen = find_prunable(predicate, lambda test: FrozenBitMap(_answer(test)))
    assert set(frozen) == expected


def test_answers_are_not_changed_in_place() -> None:
    answers = {A: BitMap([1, 2]), B: BitMap([2, 3])}
    find_prunable(AllOf((A, Some((B, A)), B)), answers.__getitem__)
    find_prunable(Some((A, AllOf((B, A)))), answers.__getitem__)
    assert answers == {A: BitMap([1, 2]), B: BitMap([2, 3])}


def test_tests_come_from_left_to_right() -> None:
    predicate = AllOf((A, Some((B, A)), NOBODY))
    assert list(every_test(predicate)) == [A, B, A]
    assert map_tests(predicate, lambda test: B) == AllOf((B, Some((B, B)), NOBODY))


# Cost: ceilings that only a change of order of magnitude breaks (measured: 40 and 75 ms)


def _names(numbers: np.ndarray[Any, Any]) -> pa.Array:
    return pa.array([f"customer-{n:013d}" for n in numbers.tolist()])


@pytest.mark.parametrize(("of", "seconds"), [(pa.array, 1.0), (_names, 1.0)], ids=["int", "text"])
def test_a_million_keys_against_100000_files(of: Callable[..., pa.Array], seconds: float) -> None:
    random = np.random.default_rng(1)
    lows = random.integers(0, 2**40, 100_000)
    keys = of(np.unique(random.integers(0, 2**40, 1_000_000)))
    files = pa.table({"_known": [True] * len(lows), "_low": of(lows), "_high": of(lows + 10**6)})
    began = time.process_time()  # of the processor: a busy machine is no failure
    found = holds(Overlaps("low", "high", keys), files)
    assert time.process_time() - began < seconds
    assert 0 < found.sum() < len(lows)


def test_ten_keys_against_the_filters_of_100000_files() -> None:
    """100 MB of filters that are half full (measured: 60 ms)."""
    random = np.random.default_rng(1)
    count, size, slices, width = 100_000, 1_024, 7, 1_170
    octets = random.integers(0, 256, (100, size), np.uint8)[random.integers(0, 100, count)]
    filters = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(),
        count,
        [None, pa.py_buffer(np.arange(0, (count + 1) * size, size)), pa.py_buffer(octets)],
    )
    keys = random.integers(0, width, (10, slices)) + np.arange(slices) * width
    files = pa.table({"_known": [True] * count, "_f": filters, "_c": np.ones(count, np.int64)})
    began = time.process_time()
    found = holds(BitsSet("f", "c", _probes((1, slices, keys.tolist()))), files)
    assert time.process_time() - began < 1.0
    assert 0 < found.sum() < 0.2 * count
