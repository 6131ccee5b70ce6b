"""Three nodes, one of which is killed while others write and ask through the two that stay."""

from __future__ import annotations

import json
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator

import pyarrow as pa
import pytest

from providers.errors import StoreError
from providers.index_predicate import Contains, FieldCompare, Test
from skipping.stores.opensearch.credentials import Access
from skipping.stores.opensearch.store import OpenSearchStore
from tests.opensearch import Node, nodes
from tests.skipping.stores.samples import bits, definition, entries

pytestmark = pytest.mark.nightly

FILES, BATCH = 400, 20
TESTS: list[Test] = [
    FieldCompare("low", ">", 3, "s1"),
    Contains("values", pa.array(["v1", "v3"]), "s2"),
    bits([[0, 1], [2, 3]]),
]


@pytest.fixture
def three() -> Iterator[list[Node]]:
    with nodes(3) as made:
        yield made


def batch(ordinals: range) -> pa.Table:
    n = len(ordinals)
    values = {
        "s1_known": [True] * n,
        "s1_low": [o % 7 for o in ordinals],
        "s2_known": [True] * n,
        "s2_values": [[f"v{o % 5}"] for o in ordinals],
        "s3_known": [True] * n,
        "s3_filter": [bytes([o % 16]) for o in ordinals],
        "s3_layout": [1] * n,
    }
    return entries(ordinals, values)


def true_of(ordinal: int) -> tuple[bool, bool, bool]:
    """Whether each test prunes a file."""
    nibble = ordinal % 16
    return ordinal % 7 <= 3, ordinal % 5 not in (1, 3), nibble & 3 != 3 and nibble & 12 != 12


def whole_answer(below: int) -> list[set[int]]:
    return [{o for o in range(below) if true_of(o)[test]} for test in range(3)]


def store_at(node: Node, *, kept: int) -> OpenSearchStore:
    return OpenSearchStore(f"http://{node.address}", Access(prefix="three-"), kept=kept, lease=5)


def wait_for(node: Node, health: str) -> None:
    url = f"http://{node.address}/_cluster/health?wait_for_status={health}&timeout=100s"
    with urllib.request.urlopen(url, timeout=120) as response:
        assert not json.load(response)["timed_out"]


@pytest.mark.parametrize("killed", [0, 1], ids=["the cluster manager", "another"])
def test_a_node_killed_under_load(three: list[Node], killed: int) -> None:
    left = [node for number, node in enumerate(three) if number != killed]
    writer, asker = (
        store_at(node, kept=kept) for node, kept in zip(left, (0, 1 << 20), strict=True)
    )
    options = (("index_settings", '{"number_of_shards": 3}'),)
    writer.define(definition(options=options), expect=None)
    assert writer.reserve("i", FILES) == range(FILES)
    writer.write("i", batch(range(BATCH)), revision=1)
    wait_for(left[0], "green")  # each shard has its replica

    written, failed, over = BATCH, list[str](), threading.Event()
    complete = {"before": 0, "after": 0}
    is_killed = threading.Event()

    def ask() -> None:
        while not over.is_set():
            there, phase = written, "after" if is_killed.is_set() else "before"
            try:
                answers = asker.find_prunable("i", TESTS, below=FILES, timeout=20)
            except StoreError as error:
                failed.append(f"ask: {error}")
                continue
            for found, known, most in zip(
                answers, whole_answer(there), whole_answer(FILES), strict=True
            ):
                assert known <= set(found) <= most
            complete[phase] += 1

    def ask_all() -> None:
        try:
            ask()
        except AssertionError as error:
            wrong.append(error)

    wrong: list[AssertionError] = []
    threads = [threading.Thread(target=ask_all) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        deadline = time.monotonic() + 300
        while written < FILES:
            if written >= FILES // 4 and not is_killed.is_set():
                three[killed].signal(signal.SIGKILL)
                is_killed.set()
            try:
                writer.write("i", batch(range(written, written + BATCH)), revision=1)
            except StoreError as error:
                failed.append(f"write: {error}")
                assert time.monotonic() < deadline, failed
                continue
            written += BATCH
        time.sleep(1)
    finally:
        over.set()
        for thread in threads:
            thread.join(60)
    assert not wrong, wrong[0]
    assert complete["before"] > 0 < complete["after"], failed
    fresh = store_at(left[1], kept=0)
    assert [set(found) for found in fresh.find_prunable("i", TESTS, below=FILES, timeout=60)] == (
        whole_answer(FILES)
    )
    assert fresh.catalogue("i").files["ordinal"].to_pylist() == list(range(FILES))
    assert sum(map(len, fresh.entries("i"))) == FILES
