"""NGRAM's questions to every store: of some files each, in one search, as the reference says."""

from __future__ import annotations

import random
import string
from dataclasses import replace

import numpy as np
import pyarrow as pa

from providers import Contains, Ngram, SkippingProvider
from providers.evaluate import find_prunable_rows
from providers.index_predicate import Test, map_tests
from providers.index_predicate import tests as each_test
from skipping.stores import IndexStore
from tests.providers.spark_oracle import sketch, table
from tests.skipping.stores.samples import definition, entries

FILES = 30


def test_each_store_answers_as_the_reference(store: IndexStore) -> None:
    rng = random.Random(4)
    provider: SkippingProvider = Ngram(fpp=0.1)
    # From a handful of n-grams to more than fit: files of several layouts.
    texts = [
        ["".join(rng.choices(string.ascii_letters, k=12)) for _ in range(3 + 8 * f * f)]
        for f in range(FILES)
    ]
    kept = table(provider, [sketch(provider, [pa.array(each)]) for each in texts], "s1")
    assert len(set(kept["s1_layout"].to_pylist())) > 3
    columns = dict(zip(kept.column_names, map(pa.ChunkedArray.combine_chunks, kept), strict=True))
    store.define(definition(), expect=None)
    columns["s1_filter"] = columns["s1_filter"].cast(pa.large_binary())
    store.write("i", entries(store.reserve("i", FILES), columns), revision=1)

    literals = [each[0][2:8] for each in texts[:6]] + ["no such", "ab"]
    asked: list[Test] = []
    for literal in literals:
        rewritten = provider.rewrite(Contains("x", literal))
        assert rewritten is not None
        asked += each_test(map_tests(rewritten, lambda test: replace(test, sketch="s1")))
    answers = store.find_prunable("i", asked, below=FILES, timeout=60)
    skipped = 0
    for test, answer in zip(asked, answers, strict=True):
        expected = np.flatnonzero(find_prunable_rows(test, kept)).tolist()
        assert list(answer) == expected
        skipped += len(expected)
    assert skipped > FILES
