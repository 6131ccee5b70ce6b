"""Overlaps, depth and the sorted table, against counting one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skipping.advise.clustering import Clustering, SortedLayout, clustering

RANGES = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 5)).map(lambda r: (r[0], r[0] + r[1])), min_size=1
)


@settings(deadline=None)
@given(RANGES)
def test_overlaps_and_depth(ranges: list[tuple[int, int]]) -> None:
    found = clustering(*(pa.array(bounds, pa.int64()) for bounds in zip(*ranges, strict=True)))
    overlaps, depths = [], []
    for i, (low, high) in enumerate(ranges):
        others = [r for j, r in enumerate(ranges) if j != i]
        overlaps.append(sum(r[0] <= high and r[1] >= low for r in others))
        depths.append(max(sum(a <= v <= b for a, b in ranges) for v in range(low, high + 1)))
    assert found.overlaps == pytest.approx(np.mean(overlaps))
    assert found.depth == pytest.approx(np.mean(depths))
    assert found.constant == sum(low == high for low, high in ranges)


def test_text_and_files_without_values() -> None:
    found = clustering(pa.array(["a", None, "é", "b"]), pa.array(["b", None, "ê", "b"]))
    assert found == Clustering(files=3, constant=1, overlaps=2 / 3, depth=5 / 3)
    nothing = clustering(pa.array([None], pa.binary()), pa.array([None], pa.binary()))
    assert nothing == Clustering(0, 0, 0.0, 0.0)


def test_of_a_part_of_the_files() -> None:
    rng = np.random.default_rng(7)
    lows = rng.integers(0, 10_000, 2_000)
    highs = lows + rng.integers(0, 100, 2_000)
    whole = clustering(pa.array(lows), pa.array(highs))
    some = rng.choice(2_000, 200, replace=False)
    part = clustering(pa.array(lows[some]), pa.array(highs[some])).scale(2_000)
    assert part.overlaps == pytest.approx(whole.overlaps, rel=0.15)
    assert part.files == 2_000
    assert part.depth > 1
    alone = Clustering(1, 1, 0.0, 1.0)
    assert alone.scale(50) == alone


@settings(deadline=None)
@given(
    st.lists(st.sampled_from("aabbbbbbcdefg"), min_size=1, max_size=60),
    st.integers(1, 9),
    st.sets(st.sampled_from("abcdefg"), min_size=1),
)
def test_the_sorted_table(rows: list[str], files: int, keys: set[str]) -> None:
    rows = sorted(rows * files)  # so that every file has as many
    cut = np.array_split(np.array(rows), files)
    there = keys & set(rows)
    layout = SortedLayout(pa.array(rows[::files]), np.full(len(rows) // files, files), files=files)
    assert layout.count_files(pa.array(sorted(there), pa.string())) == sum(
        bool(there & set(part)) for part in cut
    )


def test_a_value_of_which_no_row_was_sampled_takes_a_file() -> None:
    layout = SortedLayout(pa.array([1, 2]), np.ones(2), files=4)
    assert [layout.count_files(pa.array(keys)) for keys in ([1], [9], [1, 9], [1, 2, 9])] == [
        2,
        1,
        3,
        4,
    ]
    assert (
        SortedLayout(pa.array([], pa.int64()), np.ones(0), files=4).count_files(pa.array([7])) == 1
    )
