"""Questions of bits and ranges: in the cluster, of what is kept, and where neither can be."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from skipping.stores import slices
from skipping.stores.opensearch import evaluate
from tests.skipping.stores.cluster import answers, at, make
from tests.skipping.stores.proxy import Front, alter
from tests.skipping.stores.small import EXPECTED, TESTS, bit, bits_of

pytestmark = pytest.mark.usefixtures("delete_indexes")


def _scripts(between: Front) -> int:
    return sum(b'"script":' in request.body for request in between.seen)


def test_bits_of_many_keys_are_asked_of_a_copy(
    opensearch: str, between: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It follows what is written and removed; then questions of few keys need no script either."""
    store = at(make(opensearch, files=0), between.address, kept=1 << 20)
    store.write("i", bits_of(store.reserve("i", 10)), revision=1)
    answers(store)  # which probes the cluster
    between.seen.clear()
    assert list(store.find_prunable("i", [bit(0)], below=99, timeout=30)[0]) == [0, 2, 4, 5, 8, 9]
    assert _scripts(between) == 1
    monkeypatch.setattr(slices, "HEAVY", 0)
    assert list(store.find_prunable("i", [bit(0)], below=99, timeout=30)[0]) == [0, 2, 4, 5, 8, 9]
    store.write("i", bits_of(store.reserve("i", 10)), revision=1)
    store.remove("i", pa.array([2, 12]))
    found = [0, 4, 5, 8, 9]
    assert list(store.find_prunable("i", [bit(0)], below=10, timeout=30)[0]) == found
    monkeypatch.undo()
    between.seen.clear()
    (first, *_) = store.find_prunable("i", [bit(0), *TESTS], below=10, timeout=30)
    assert list(first) == found
    assert _scripts(between) == 0


def test_bits_of_more_bytes_than_are_kept(
    opensearch: str, between: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = at(make(opensearch, files=0), between.address, kept=100)
    store.write("i", bits_of(store.reserve("i", 10)), revision=1)
    monkeypatch.setattr(slices, "HEAVY", 0)
    for _ in range(2):
        found = store.find_prunable("i", [bit(0), *TESTS], below=10, timeout=30)
        assert [list(a) for a in found] == [[], *EXPECTED]
    monkeypatch.undo()
    assert list(store.find_prunable("i", [bit(0)], below=99, timeout=30)[0]) == [0, 2, 4, 5, 8, 9]


@pytest.mark.parametrize("cut", ["", None])
def test_bits_that_are_cut_or_lost_keep_their_files(
    opensearch: str, between: Front, monkeypatch: pytest.MonkeyPatch, cut: str | None
) -> None:
    store = at(make(opensearch, files=0), between.address, kept=1 << 20)
    store.write("i", bits_of(store.reserve("i", 10)), revision=1)
    monkeypatch.setattr(slices, "HEAVY", 0)

    def spoil(answer: dict[str, Any]) -> None:
        for hit in answer["hits"]["hits"]:
            if hit["sort"][0] == 4 and cut is None:
                del hit["fields"]
            elif hit["sort"][0] == 4:
                hit["fields"]["bytes.s3_filter"] = [cut]

    between.rule = alter(spoil, b'"docvalue_fields"')
    found = list(store.find_prunable("i", [bit(0)], below=99, timeout=30)[0])
    assert found == [0, 2, 5, 8, 9]


def test_ranges_of_many_files_are_asked_of_what_is_kept(
    opensearch: str, between: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate, "_RANGED", 0)
    store = make(opensearch)
    for kept, asks in ((0, True), (1 << 20, False)):
        between.seen.clear()
        assert answers(at(store, between.address, kept=kept)) == EXPECTED
        assert any(b'"range":{"s1_low"' in request.body for request in between.seen) is asks
