"""BLOOM_FILTER against pybloom-live itself; its ladder, its parameters, what it lets through."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pybloom_live
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pybloom_live.pybloom import make_hashfuncs

from providers import BloomFilter, Column, Compare, In, IsNull, bloom_filter
from providers.bloom_hashes import hashes, keys_of, word
from providers.errors import DefinitionError
from providers.index_predicate import BitsSet
from providers.values import domain_of
from tests.conftest import RunPython
from tests.providers.spark_oracle import VALUES, Index, normalised

STORED = {"bigint": pa.int64(), "string": pa.string(), "binary": pa.binary()}
EVERY_STORED = pytest.mark.parametrize("spark_type", STORED)


def kind(type: pa.DataType = STORED["bigint"], **params: Any) -> BloomFilter:
    domain = domain_of(type)
    assert domain is not None
    return BloomFilter.of((Column("x", domain),), params)


def sketch(provider: BloomFilter, *parts: list[Any]) -> Mapping[str, Any] | None:
    collector = provider.collector()
    for part in parts:
        collector.add(pa.array(part, provider.domain.stored), 0)
    return collector.finish()


def opened(sketch: Mapping[str, Any] | None) -> Any:
    """The filter as pybloom-live reads it."""
    assert sketch is not None
    return pybloom_live.BloomFilter.fromfile(io.BytesIO(sketch["filter"]))


# The same as pybloom-live


@EVERY_STORED
def test_the_filter_is_the_one_pybloom_makes(spark_type: str) -> None:
    value = VALUES[spark_type]

    @given(
        st.lists(value, max_size=90, unique=True),
        st.lists(value, min_size=1, max_size=20, unique=True),
        st.sampled_from([0.3, 0.01, 1e-4, 1e-9]),
    )
    def run(values: list[Any], others: list[Any], fpp: float) -> None:
        index = Index.of(BloomFilter, spark_type, [values], fpp=fpp)
        filter = opened(index.sketches[0])
        theirs, file = pybloom_live.BloomFilter(filter.capacity, fpp), io.BytesIO()
        for each in values:
            theirs.add(each, skip_check=True)
        theirs.tofile(file)
        assert index.sketches[0] is not None
        assert index.sketches[0]["filter"] == file.getvalue()
        for each in (*values, *others):
            assert (each in filter) == (not index.skipped(Compare("x", "=", each)))
        assert index.skipped(In("x", others)) == (
            set() if any(each in filter for each in others) else {0}
        )

    run()


@pytest.mark.parametrize("fpp", [0.4, 0.1, 0.03, 0.01, 0.001, 1e-4, 1e-5, 1e-6, 1e-9])
@pytest.mark.parametrize("width", [1, 2, 1_000, (1 << 15) - 1, 1 << 15, 1 << 26])
def test_hashes_are_those_of_pybloom(fpp: float, width: int) -> None:
    """Each of the five hash functions that it takes, and several rounds of one."""
    slices = math.ceil(math.log2(1 / fpp))
    theirs, _ = make_hashfuncs(slices, width)
    keys = ["", "a\0b", "\u00e9", 0, -(2**63), 2**63 - 1, b"", b"\0'\xff"]
    for key in keys:
        words = hashes(keys_of(pa.array([key])), slices=slices, word=word(width))
        assert (words % width).tolist() == [list(theirs(key))], key


def test_many_values_are_hashed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    provider, values = kind(), list(range(-50, 250))
    whole = sketch(provider, values)
    monkeypatch.setattr(bloom_filter, "_BLOCK", 7)
    assert sketch(provider, values) == whole


# The ladder


@pytest.mark.parametrize(
    ("params", "ladder"),
    [
        ({"num_items": 1}, (1,)),
        ({"num_items": 64}, (64,)),
        ({"num_items": 65}, (64, 65)),
        ({"num_items": 1_000}, (64, 128, 256, 512, 1_000)),
        ({"num_items": 1_000, "adaptive": False}, (1_000,)),
        ({"adaptive": False}, (10_000,)),
        ({"num_candidates": 1}, (64, 128, 256, 512, 1_024)),
        ({"num_candidate": 2}, (64, 128, 256, 512, 1_024, 2_048)),
    ],
)
def test_capacities(params: dict[str, Any], ladder: tuple[int, ...]) -> None:
    assert kind(**params).ladder() == ladder


def test_one_question_has_no_more_than_twenty_sets_of_probes() -> None:
    longest = kind(num_items=bloom_filter.MOST)
    assert len(longest.ladder()) == 17
    assert longest.ladder()[-1] == bloom_filter.MOST == kind(num_candidates=20).ladder()[-1]
    asked = longest.rewrite(In("x", pa.array([1, 2])))
    assert isinstance(asked, BitsSet)
    assert len({layout for layout, _ in asked.probes}) == len(asked.probes) == 17
    assert {len(keys) for _, keys in asked.probes} == {2}


def test_a_file_takes_the_smallest_filter_that_fits() -> None:
    provider = kind(num_items=300)
    for n, capacity in [(0, 64), (1, 64), (64, 64), (65, 128), (129, 256), (257, 300), (300, 300)]:
        found = sketch(provider, list(range(n)))
        assert found is not None
        assert (opened(found).capacity, len(opened(found))) == (capacity, n)


def test_a_file_with_more_values_than_fit_is_unknown() -> None:
    provider = kind(num_items=300)
    assert sketch(provider, list(range(301))) is None
    assert sketch(provider, list(range(200)), list(range(150, 301))) is None
    assert sketch(provider, list(range(5_000)), [1]) is None


def test_parts_repeat_each_others_values() -> None:
    provider = kind(num_items=300)
    parts = [list(range(start, start + 100)) for start in (0, 50, 100, 150, 200, 0, 200, 1, 199)]
    assert sketch(provider, *parts) == sketch(provider, list(range(300)))


def test_values_of_too_many_bytes_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bloom_filter, "LARGEST", 1_000)
    provider = kind(pa.string())
    assert sketch(provider, ["x" * 2_000]) is None
    assert sketch(provider, *([str(i) * 300] for i in range(10))) is None
    assert sketch(provider, *(["x" * 300] for i in range(10))) == sketch(provider, ["x" * 300])


def test_no_values_and_nulls() -> None:
    files: list[list[int | None]] = [[None, None], [], [None, 5], [5]]
    index = Index.of(BloomFilter, "int", files)
    assert index.skipped(Compare("x", "=", 5)) == {0, 1}
    assert index.skipped(In("x", [])) == {0, 1, 2, 3}
    assert index.skipped(IsNull("x")) == {1, 3}
    assert all(
        len(opened(each)) == len({*file} - {None})
        for each, file in zip(index.sketches, files, strict=True)
    )


def test_a_filter_of_other_slices_is_kept() -> None:
    """0.25 is 2 slices or 3, as a logarithm is rounded; both fill the same number of bits."""
    provider = kind(num_items=64, fpp=0.25)
    layout = bloom_filter._layout(64, 0.25)
    other = bloom_filter._Layout(64, 0.25, layout.slices + 1, layout.width * 2 // 3)
    assert other.slices * other.width == layout.slices * layout.width
    values = pa.array(range(64))
    found = {"filter": other.fill(values), "layout": other.number, "nulls": 0}
    index = Index(provider, pa.int64(), (found,))
    assert not any(index.skipped(Compare("x", "=", value)) for value in range(64))


def test_a_file_under_another_definition_is_kept() -> None:
    """A layout that was not asked about: nothing is proven, whatever its bits say."""
    odd, even = kind(num_items=1_000), kind(num_items=1_001)
    found = sketch(odd, list(range(900)))
    index = Index(even, pa.int64(), (found,))
    assert index.skipped(Compare("x", "=", 12345)) == set()
    assert Index(odd, pa.int64(), (found,)).skipped(Compare("x", "=", 12345)) == {0}


# Parameters


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ((), {}),
        ((0.02,), {"fpp": 0.02}),
        ((0.02, 500), {"fpp": 0.02, "num_items": 500}),
        ((20,), {"num_candidates": 20}),
        ((20, 0.02), {"num_candidates": 20, "fpp": 0.02}),
        ((True, 20, 0.02), {"adaptive": True, "num_candidates": 20, "fpp": 0.02}),
        ((False,), {"adaptive": False}),
        ((False, 500), {"adaptive": False, "num_items": 500}),
        ((False, 500, 0.02), {"adaptive": False, "num_items": 500, "fpp": 0.02}),
    ],
)
def test_values_without_names(given: tuple[Any, ...], named: dict[str, Any]) -> None:
    names = BloomFilter.signature(given)
    assert dict(zip(names, given, strict=False)) == named
    assert len(names) >= len(given)
    kind(**named)


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"fpp": 0}, "an fpp from 1e-9 to below 0.5, not 0"),
        ({"fpp": 0.5}, "an fpp"),
        ({"fpp": 1e-10}, "an fpp"),
        ({"fpp": "0.1"}, "an fpp"),
        ({"fpp": True}, "an fpp"),
        ({"fpp": math.nan}, "an fpp"),
        ({"num_items": 0}, "a num_items from 1 to 4,194,304, not 0"),
        ({"num_items": 1 << 23}, "a num_items"),
        ({"num_items": 1.5}, "a num_items"),
        ({"num_items": True}, "a num_items"),
        ({"num_candidates": 0}, "a num_candidates from 1 to 64"),
        ({"num_candidates": 9_000}, "a num_candidates"),
        ({"adaptive": 1}, "adaptive = true or false, not 1"),
        ({"num_items": 9, "num_candidates": 9}, "num_items together with num_candidates"),
        ({"adaptive": False, "num_candidates": 9}, "num_candidates together with adaptive = false"),
        ({"num_candidate": 9, "num_candidates": 9}, "both num_candidate and num_candidates"),
        ({"hashes": 9}, "takes fpp, num_items, num_candidates, adaptive, not hashes"),
    ],
)
def test_what_makes_no_filter_is_refused(params: dict[str, Any], says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        kind(**params)


# pybloom-live itself


@pytest.fixture
def forgotten() -> Iterator[None]:
    """What is known of pybloom-live's layouts is asked anew."""
    bloom_filter._layout.cache_clear()
    yield
    bloom_filter._layout.cache_clear()


@pytest.mark.usefixtures("forgotten")
def test_without_pybloom_a_definition_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = kind()
    bloom_filter._layout.cache_clear()
    monkeypatch.setitem(sys.modules, "pybloom_live", None)
    for use in (kind, made.collector, lambda: made.rewrite(Compare("x", "=", 1))):
        with pytest.raises(DefinitionError, match=r"driver and the executors.*\[bloom\]"):
            use()


@pytest.mark.usefixtures("forgotten")
def test_a_release_that_hashes_in_another_way_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(pybloom_live.BloomFilter):  # type: ignore[misc]
        def _setup(self, *args: Any) -> None:
            super()._setup(*args)
            hashes = self.make_hashes
            self.make_hashes = lambda key: reversed(list(hashes(key)))

    monkeypatch.setattr(pybloom_live, "BloomFilter", Other)
    with pytest.raises(DefinitionError, match="hashes differently"):
        kind()


def test_the_kinds_can_be_imported_without_it(run_python: RunPython) -> None:
    program = (
        "import sys; sys.modules['pybloom_live'] = sys.modules['xxhash'] = None\n"
        "import providers; from providers.registry import find\n"
        "assert find('bloom_filter') is providers.BloomFilter"
    )
    run_python("-c", program, check=True)


# What is let through


@pytest.mark.parametrize("fpp", [0.01, 0.05])
@pytest.mark.parametrize("distinct", [64, 700, 1_024], ids=lambda n: f"{n} values")
def test_files_kept_without_a_match(fpp: float, distinct: int) -> None:
    files, provider = 600, kind(fpp=fpp)
    random = np.random.default_rng(distinct)
    held = random.permutation(files * distinct) * 2  # even: no key is in any file
    sketches = [sketch(provider, held[i::files].tolist()) for i in range(files)]
    index = Index(provider, pa.int64(), tuple(sketches))
    for keys in (1, 10, 100):
        odd = (random.permutation(10**6)[:keys] * 2 + 1).tolist()
        leaf = In.of("x", normalised(odd, pa.int64()))
        kept = files - len(index.skipped_raw(leaf))
        expected = 1 - (1 - fpp) ** keys
        assert provider.survival(leaf) == pytest.approx(expected)
        spread = math.sqrt(files * expected * (1 - expected))
        assert kept <= 1.2 * expected * files + 3 * spread, keys
        if distinct in (64, 1_024):  # full: neither is the filter larger than it has to be
            assert kept >= 0.5 * expected * files - 3 * spread, keys


def test_more_keys_than_every_file_should_be_asked_about() -> None:
    provider = kind(fpp=1e-6)
    assert provider.rewrite(In("x", pa.array(range(10_000)))) is not None
    assert provider.rewrite(In("x", pa.array(range(10_001)))) is None
