"""Questions of index types to every store, as the reference says."""

from __future__ import annotations

import random
import string
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

from providers import (
    Addresses,
    Between,
    Column,
    Compare,
    Contains,
    In,
    IsNull,
    Ngram,
    Ranges,
    SkippingProvider,
    StartsWith,
)
from providers.evaluate import find_prunable_rows
from providers.index_predicate import Test, find_prunable, map_tests
from providers.index_predicate import tests as each_test
from providers.predicate import Leaf
from providers.values import domain_of
from skipping.stores import IndexStore
from tests.providers.spark_oracle import sketch, table
from tests.skipping.stores.samples import definition, entries

FILES = 30


@pytest.mark.parametrize("type", [pa.int64(), pa.string()], ids=str)
def test_ranges_are_asked_as_the_reference_says(store: IndexStore, type: pa.DataType) -> None:
    rng = random.Random(4)

    def to_text(numbers: Sequence[int]) -> list[Any]:
        return list(numbers) if type == pa.int64() else [f"{number:06}" for number in numbers]

    # Clusters in some places of a hundred; a file has from none to five of them.
    files = [
        to_text([1000 * c + rng.randrange(9) for c in rng.sample(range(100), f % 6) * 4])
        for f in range(FILES)
    ]
    some = [value for each in files for value in each[:1]]
    (low, high), many = to_text([4_000, 5_500]), to_text(range(0, 100_000, 50))
    leaves: list[Leaf] = [Compare("x", "=", value) for value in some[:4]]
    leaves += [Compare("x", op, high) for op in ("!=", "<", "<=", ">", ">=")]
    leaves += [Between("x", low, high), In.of("x", pa.array(some[:3])), IsNull("x")]
    leaves += [In.of("x", pa.array(many)), In.of("x", pa.array(many[:200]))]
    leaves += [IsNull("x", negated=True)]
    leaves += [replace(In.of("x", pa.array(files[1])), negated=True)]
    if type == pa.string():
        leaves += [StartsWith("x", "05"), StartsWith("x", "05", negated=True)]
    domain = domain_of(type)
    assert domain is not None
    provider = Ranges.of((Column("x", domain),), {"n": 3 if type == pa.string() else 16})
    assert (
        count_skipped(store, provider, [pa.array(each, type) for each in files], leaves) > 5 * FILES
    )


@pytest.mark.parametrize("junk", [[], ["-"]], ids=["addresses", "mixed"])
def test_addresses_are_asked_as_the_reference_says(store: IndexStore, junk: list[str]) -> None:
    files = [[f"10.{f}.{i}.1" for i in range(4)] + junk * (f % 2) for f in range(FILES)]
    leaves: list[Leaf] = [Compare("x", "=", text) for text in ("10.7.0.1", "10.7.9.9", "-", "x")]
    leaves += [StartsWith("x", start) for start in ("10.7.", "10.", "-", "2001:db8:")]
    leaves += [In.of("x", pa.array(["10.7.0.1", "10.8.0.2", "-"])), IsNull("x")]
    leaves += [IsNull("x", negated=True)]
    domain = domain_of(pa.string())
    assert domain is not None
    provider = Addresses.of((Column("x", domain),), {"n": 2})
    assert count_skipped(store, provider, [pa.array(each) for each in files], leaves) > 5 * FILES


def test_texts_are_asked_as_the_reference_says(store: IndexStore) -> None:
    rng = random.Random(4)
    # From a handful of n-grams to more than fit: files of several layouts.
    files = [
        ["".join(rng.choices(string.ascii_letters, k=12)) for _ in range(3 + 8 * f * f)]
        for f in range(FILES)
    ]
    literals = [each[0][2:8] for each in files[:6]] + ["no such", "ab"]
    leaves: list[Leaf] = [Contains("x", literal) for literal in literals]
    assert count_skipped(store, Ngram(fpp=0.1), [pa.array(each) for each in files], leaves) > FILES


def count_skipped(
    store: IndexStore, provider: SkippingProvider, files: Sequence[pa.Array], leaves: list[Leaf]
) -> int:
    """How many files in all are pruned for the leaves; each answer is the reference's."""
    kept = table(provider, [sketch(provider, [each]) for each in files], "s1")
    columns = dict(zip(kept.column_names, map(pa.ChunkedArray.combine_chunks, kept), strict=True))
    if "s1_filter" in columns:
        assert len(set(columns["s1_layout"].to_pylist())) > 3
        columns["s1_filter"] = columns["s1_filter"].cast(pa.large_binary())
    store.define(definition(), expect=None)
    store.write("i", entries(store.reserve("i", len(files)), columns), revision=1)
    count = 0
    for leaf in leaves:
        rewritten = provider.rewrite(leaf)
        if rewritten is None:
            continue
        named = map_tests(rewritten, lambda test: replace(test, sketch="s1"))
        asked: list[Test] = list(each_test(named))
        answers = store.find_prunable("i", asked, below=len(files), timeout=60)
        of_test = dict(zip(map(id, asked), answers, strict=True))
        found = find_prunable(named, lambda test, answers=of_test: answers[id(test)])
        expected = find_prunable(
            named, lambda t: BitMap(np.flatnonzero(find_prunable_rows(t, kept)))
        )
        assert found == expected, leaf
        count += len(found)
    return count
