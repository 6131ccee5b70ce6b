"""What can happen to a cluster: killed, hung, without scripts, in part, busy."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from providers.errors import Conflict, StoreError
from skipping.model.definition import State
from skipping.stores.opensearch import scripts as opensearch_scripts
from tests.opensearch import Node
from tests.skipping.stores.cluster import answers, at, make, ordinals
from tests.skipping.stores.proxy import Answer, Front, Request, alter, forward, front, refuse
from tests.skipping.stores.small import DEFINITION, EXPECTED, TESTS, bit, bits_of, entries

pytestmark = [pytest.mark.usefixtures("delete_indexes"), pytest.mark.nightly]


@pytest.fixture(scope="module")
def mortal() -> Iterator[Node]:
    """A node for what nobody does to the shared one; it runs no scripts, and queues one search."""
    queue = "thread_pool.search.size: 1\nthread_pool.search.queue_size: 1\n"
    node = Node(config=f"script.allowed_types: none\n{queue}")
    try:
        node.start()
        yield node
    finally:
        node.stop()


# Away


def test_killed_and_started_again(mortal: Node) -> None:
    store = make(mortal.address)
    assert answers(store) == EXPECTED
    mortal.signal(signal.SIGKILL)
    for use in (
        lambda: answers(store),
        store.definitions,
        lambda: store.catalogue("i"),
        lambda: store.report("i", State()),
        lambda: store.write("i", entries(range(1)), revision=1),
    ):
        with pytest.raises(StoreError, match="cannot be reached"):
            use()
    mortal.start()
    assert answers(store) == EXPECTED
    assert store.reserve("i", 1) == range(10, 11)


def test_hung(mortal: Node) -> None:
    store = make(mortal.address)
    mortal.signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        for asked in (store, at(store, mortal.address)):  # who knows the index, and who does not
            for use in (
                lambda asked=asked: answers(asked, timeout=0.5),
                lambda asked=asked: asked.definitions(timeout=0.5),
                lambda asked=asked: asked.catalogue("i", timeout=0.5),
            ):
                with pytest.raises(StoreError, match="did not answer"):
                    use()
        assert time.monotonic() - began < 8
    finally:
        mortal.signal(signal.SIGCONT)
    assert ordinals(store) == list(range(10))  # who names no time-out asks during a pause, too,
    assert answers(store) == EXPECTED  # and the answer ends it


# Where scripts are forbidden


def test_without_scripts(mortal: Node) -> None:
    n = 10_100  # more than a page
    store = make(mortal.address, files=n)
    assert answers(store) == EXPECTED
    (first, _) = store.find_prunable("i", TESTS, below=n, timeout=60)
    assert list(first) == [o for o in range(n) if o % 3 != 2]


def test_bits_are_asked_with_the_rest(opensearch: str, between: Front) -> None:
    store = at(make(opensearch, files=0), between.address)
    store.write("i", bits_of(store.reserve("i", 10)), revision=1)
    assert store.catalogue("i", fields=["s3_layout"]).files["s3_layout"].to_pylist()[4:6] == [0, 1]
    answers(store)  # which probes the cluster
    between.seen.clear()
    found = store.find_prunable("i", [*TESTS, bit(0)], below=10, timeout=30)
    assert [list(a) for a in found] == [*EXPECTED, [0, 2, 4, 5, 8, 9]]
    assert [r.method for r in between.seen] == ["GET", "POST"]


def test_bits_without_scripts(mortal: Node) -> None:
    store = make(mortal.address, files=0)
    store.write("i", bits_of(store.reserve("i", 10)), revision=1)
    found = store.find_prunable("i", [bit(0), *TESTS], below=10, timeout=60)
    assert [list(a) for a in found] == [[], *EXPECTED]


def test_bits_where_only_aggregations_may_be_scripts(opensearch: str, between: Front) -> None:
    store = at(make(opensearch, files=0), between.address)
    store.write("i", bits_of(store.reserve("i", 10)), revision=1)
    no = Answer(400, {"error": {"type": "search_phase_execution_exception"}, "status": 400})
    between.rule = refuse(no, b'"script":')
    for _ in range(2):
        found = store.find_prunable("i", [bit(0), *TESTS], below=10, timeout=60)
        assert [list(a) for a in found] == [[], *EXPECTED]
    assert any(b"scripted_metric" in r.body for r in between.seen[-1:])
    assert sum(b"return false" in r.body for r in between.seen) == 1


def test_capabilities_are_probed_again_after_a_refused_search(
    opensearch: str, between: Front
) -> None:
    """As after a restart of the cluster without scripts."""
    store = at(make(opensearch), between.address)
    assert answers(store) == EXPECTED
    no = Answer(400, {"error": {"type": "search_phase_execution_exception"}, "status": 400})
    between.rule = refuse(no, b"scripted_metric")
    with pytest.raises(StoreError, match="search_phase_execution"):
        answers(store)
    assert answers(store) == EXPECTED


def test_a_page_that_fails_is_no_answer(mortal: Node) -> None:
    store = make(mortal.address, files=10_100)
    with front(mortal.address) as between:
        between.rule = alter(lambda a: a["_shards"].update(failed=1), b'"search_after"')
        with pytest.raises(StoreError, match="shards"):
            at(store, between.address).find_prunable("i", TESTS, below=10_100, timeout=60)


# In part


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda a: a["_shards"].update(failed=1), id="a shard failed"),
        pytest.param(lambda a: a["_shards"].update(successful=0), id="a shard is missing"),
        pytest.param(lambda a: a.update(timed_out=True), id="out of time"),
        pytest.param(lambda a: a.update(terminated_early=True), id="ended early"),
        pytest.param(lambda a: a.pop("aggregations"), id="no tests"),
        pytest.param(lambda a: a["aggregations"]["tests"]["buckets"].pop("1"), id="a test less"),
        pytest.param(
            lambda a: a["aggregations"]["tests"]["buckets"]["0"]["words"].update(value=[2**63]),
            id="no words",
        ),
    ],
)
def test_an_answer_in_part_is_no_answer(
    opensearch: str, between: Front, change: Callable[[Any], object]
) -> None:
    store = at(make(opensearch), between.address)
    assert answers(store) == EXPECTED
    between.rule = alter(change)
    with pytest.raises(StoreError):
        answers(store)


@pytest.mark.parametrize("partial", ["false", "true"])
def test_a_shard_that_fails(opensearch: str, between: Front, partial: str) -> None:
    """Of two shards one has no ordinals; whether the server gives what it has, or nothing."""
    store = at(make(opensearch, files=0), between.address)
    name = f"{store._access.prefix}two"
    integer = {"properties": {"ordinal": {"type": "integer"}}}
    settings = {"index": {"number_of_shards": 1, "number_of_replicas": 0}}
    for part, mapping in (("a", integer), ("b", {})):
        made = {"mappings": mapping, "settings": settings, "aliases": {name: {}}}
        store._client.call("PUT", f"/{name}-{part}", made)
        store._client.call("PUT", f"/{name}-{part}/_doc/1", {"ordinal": "1"}, refresh="true")

    def rule(request: Request, to_node: Callable[[bytes], Answer]) -> Answer:
        request.path = request.path.replace("results=false", f"results={partial}")
        return to_node(request.body)

    between.rule = rule
    body = {"size": 1, "aggs": {"words": opensearch_scripts.bitmap(1)}}
    store._client.search(f"{name}-a", body)
    why = "only 1 of 2 shards" if partial == "true" else "search_phase"
    with pytest.raises(StoreError, match=why):
        store._client.search(name, body)


def test_one_search_for_all_tests(opensearch: str, between: Front) -> None:
    store = at(make(opensearch), between.address)
    answers(store)
    between.seen.clear()
    assert answers(store) == EXPECTED
    searches = [r for r in between.seen if "_search" in r.path]
    assert len(searches) == 1
    assert "allow_partial_search_results=false" in searches[0].path
    assert json.loads(searches[0].body)["timeout"].endswith("ms")
    assert [r.method for r in between.seen] == ["GET", "POST"]  # the record, then the question


# Busy

BUSY = Answer(429, {"error": {"type": "rejected_execution_exception"}, "status": 429})


def test_busy_for_a_while(opensearch: str, between: Front) -> None:
    store = at(make(opensearch), between.address)
    refused: list[str] = []

    def rule(request: Request, to_node: Callable[[bytes], Answer]) -> Answer:
        if refused.count(request.path) < 2:
            refused.append(request.path)
            return BUSY
        return to_node(request.body)

    between.rule = rule
    store.write("i", entries(store.reserve("i", 5)), revision=1)
    assert ordinals(store) == list(range(15))
    assert any("_bulk" in path for path in refused)


def test_busy_all_the_time(opensearch: str, between: Front) -> None:
    store = at(make(opensearch), between.address, patience=0.5)
    between.rule = refuse(BUSY)
    with pytest.raises(StoreError, match="too busy"):
        answers(store, timeout=0.5)
    with pytest.raises(StoreError, match="too busy"):
        store.reserve("i", 1)


def test_a_server_that_refuses_for_load_is_asked_again(mortal: Node) -> None:
    """Its queue is short: of many at a time it refuses some, and they come again."""
    made = make(mortal.address)
    statuses: list[int] = []

    def rule(request: Request, to_node: Callable[[bytes], Answer]) -> Answer:
        answer = to_node(request.body)
        statuses.append(answer.status)
        return answer

    with front(mortal.address) as between:
        between.rule = rule
        store = at(made, between.address)
        end = time.monotonic() + 30
        with ThreadPoolExecutor(16) as pool:
            while 429 not in statuses and time.monotonic() < end:
                assert all(pool.map(lambda _: answers(store) == EXPECTED, range(64)))
    assert 429 in statuses


def test_items_refused_for_load_are_sent_again_alone(opensearch: str, between: Front) -> None:
    store = at(make(opensearch, files=1), between.address)
    sent: list[int] = []

    def rule(request: Request, to_node: Callable[[bytes], Answer]) -> Answer:
        if "_bulk" not in request.path:
            return to_node(request.body)
        lines = request.body.splitlines(keepends=True)
        sent.append(len(lines) // 2)
        if len(lines) <= 2:
            return to_node(request.body)
        taken = to_node(b"".join(lines[: len(lines) // 4 * 2])).body
        actions = [json.loads(line) for line in lines[::2]][len(taken["items"]) :]
        busy = [{"create": {"_id": a["create"]["_id"], "status": 429}} for a in actions]
        return Answer(200, {"errors": True, "items": [*taken["items"], *busy]})

    between.rule = rule
    store.write("i", entries(store.reserve("i", 9)), revision=1)
    assert sent == [10, 5, 3, 2, 1]  # nine files and their page
    assert ordinals(store) == list(range(10))


def test_a_write_that_fails_half_way_is_not_seen(opensearch: str, between: Front) -> None:
    store = at(make(opensearch), between.address)
    broken = Answer(503, {"error": {"type": "unavailable_shards_exception"}, "status": 503})

    def rule(request: Request, to_node: Callable[[bytes], Answer]) -> Answer:
        answer = to_node(request.body)
        return broken if "_bulk" in request.path else answer

    between.rule = rule
    before = store.catalogue("i")
    late = entries(store.reserve("i", 5))
    with pytest.raises(StoreError, match="unavailable_shards"):
        store.write("i", late, revision=1)
    between.rule = forward
    assert store.catalogue("i") == before
    assert [list(a) for a in store.find_prunable("i", TESTS, below=99, timeout=30)] == EXPECTED
    store.write("i", late, revision=1)
    assert ordinals(store) == list(range(15))


def test_an_answer_that_is_lost(opensearch: str, between: Front) -> None:
    """What was done without its doer hearing of it is done once."""
    store = at(make(opensearch), between.address, lease=0.3)

    def rule(request: Request, to_node: Callable[[bytes], Answer]) -> Answer | None:
        answer = to_node(request.body)
        return None if request.method == "PUT" and "_doc" in request.path else answer

    reserved = store.reserve("i", 5)
    between.rule = rule
    for use in (
        lambda: store.reserve("i", 5),
        lambda: store.report("i", State("active", 3)),
        lambda: store.write("i", entries(reserved), revision=1),
        lambda: store.define(replace(DEFINITION, where="x = 1"), expect=1),
    ):
        with pytest.raises(StoreError):
            use()
    between.rule = forward
    assert store.reserve("i", 1) == range(20, 21)
    assert store.state("i") == State("active", 3)
    with pytest.raises(Conflict):
        store.define(replace(DEFINITION, where="y = 1"), expect=1)
    store.write("i", entries(reserved), revision=2)
    assert ordinals(store) == list(range(15))
