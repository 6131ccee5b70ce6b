"""What can happen to a cluster: killed, hung, busy, in part, deleted, forbidden."""

from __future__ import annotations

import json
import multiprocessing
import random
import signal
import ssl
import subprocess
import threading
import time
import traceback
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from providers.errors import Conflict, NoStore, StoreError
from providers.index_predicate import (
    BitsSet,
    Contains,
    ContainsOther,
    ContainsRange,
    Escapes,
    FieldCompare,
    Overlaps,
    Test,
)
from skipping.model.definition import Definition, State, TableId
from skipping.stores import IDENTITY
from skipping.stores.copy import Copied, copy
from skipping.stores.open import open_store
from skipping.stores.opensearch import pages as opensearch_pages
from skipping.stores.opensearch import scripts as opensearch_scripts
from skipping.stores.opensearch.access import PASSWORD, STORE, USER, Access
from skipping.stores.opensearch.attempts import Attempt, attempt
from skipping.stores.opensearch.index import Entries
from skipping.stores.opensearch.store import OpenSearchStore
from skipping.stores.sqlite.store import SqliteStore
from tests.opensearch import Node
from tests.skipping.stores.proxy import Answer, Front, Request, forward, front
from tests.skipping.test_copying import built, rows

DEFINITION = Definition("i", TableId("delta", "t", "file:/t"), "t", ())
TESTS: list[Test] = [
    FieldCompare("low", ">", 1, "s1"),
    Contains("values", pa.array(["t7"]), "s2"),
]
EXPECTED = [[0, 1, 3, 4, 6, 7, 9], [0, 1, 2, 3, 4, 8, 9]]


def entries(ordinals: range, *, terms: int = 3) -> pa.Table:
    n = len(ordinals)
    return pa.table(
        {
            "ordinal": pa.array(ordinals, pa.int64()),
            "path": [f"f{o}" for o in ordinals],
            "size": pa.array([1] * n, pa.int64()),
            "stamp": pa.nulls(n, pa.int64()),
            "partition": ["{}"] * n,
            "s1_known": pa.array([True] * n),
            "s1_low": pa.array([o % 3 for o in ordinals], pa.int64()),
            "s1_high": pa.array([o % 3 for o in ordinals], pa.int64()),
            "s2_known": pa.array([True] * n),
            "s2_values": pa.array([[f"t{o + k}" for k in range(terms)] for o in ordinals]),
        }
    )


def make(address: str, *, files: int = 10, **more: Any) -> OpenSearchStore:
    """A store with one index, under a prefix of its own, which reads nothing ahead."""
    access = Access(prefix=f"faults-{uuid.uuid4().hex[:12]}-")
    store = OpenSearchStore(f"http://{address}", access, **{"kept": 0, **more})
    store.define(DEFINITION, expect=None)
    if files:
        store.write("i", entries(store.reserve("i", files)), revision=1)
    return store


def at(store: OpenSearchStore, address: str, **more: Any) -> OpenSearchStore:
    """The same store, reached in another way."""
    access = Access(prefix=store._access.prefix)
    return OpenSearchStore(f"http://{address}", access, **{"kept": 0, **more})


def answers(store: OpenSearchStore, *, timeout: float = 30) -> list[list[int]]:
    return [list(a) for a in store.disproved("i", TESTS, below=10, timeout=timeout)]


def ordinals(store: OpenSearchStore) -> list[int]:
    found: list[int] = store.catalogue("i").files["ordinal"].to_pylist()
    return found


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


@pytest.fixture(autouse=True, scope="module")
def _tidy(opensearch: str) -> Iterator[None]:
    yield
    request = urllib.request.Request(f"http://{opensearch}/faults-*", method="DELETE")
    urllib.request.urlopen(request, timeout=60).close()


@pytest.fixture
def between(opensearch: str) -> Iterator[Front]:
    with front(opensearch) as made:
        yield made


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
                with pytest.raises(StoreError, match="did not answer within"):
                    use()
        assert time.monotonic() - began < 8
    finally:
        mortal.signal(signal.SIGCONT)
    assert ordinals(store) == list(range(10))  # who names no time-out asks during a pause, too,
    assert answers(store) == EXPECTED  # and the answer ends it


def test_nobody_there() -> None:
    store = OpenSearchStore("http://127.0.0.1:9", Access())
    with pytest.raises(StoreError, match="cannot be reached"):
        store.definitions()


# Where scripts are forbidden


def test_without_scripts(mortal: Node) -> None:
    n = 10_100  # more than a page
    store = make(mortal.address, files=n)
    assert answers(store) == EXPECTED
    (first, _) = store.disproved("i", TESTS, below=n, timeout=60)
    assert list(first) == [o for o in range(n) if o % 3 != 2]


def bits_of(ordinals: range) -> pa.Table:
    """Entries with their ordinals as bytes, of two layouts."""
    n = len(ordinals)
    return (
        entries(ordinals)
        .append_column("s3_known", pa.array([True] * n))
        .append_column("s3_filter", pa.array([bytes([o]) for o in ordinals], pa.large_binary()))
        .append_column("s3_layout", pa.array([o // 5 for o in ordinals], pa.int64()))
    )


def bit(n: int) -> BitsSet:
    """Bit `n` of layout 0, of 1 the next."""
    keys = [pa.array([[n + layout]], pa.list_(pa.int64(), 1)) for layout in (0, 1)]
    return BitsSet("filter", "layout", tuple(enumerate(keys)), "s3")


def test_bits_are_asked_with_the_rest(opensearch: str, between: Front) -> None:
    store = at(make(opensearch, files=0), between.address)
    store.write("i", bits_of(store.reserve("i", 10)), revision=1)
    assert store.catalogue("i", fields=["s3_layout"]).files["s3_layout"].to_pylist()[4:6] == [0, 1]
    between.seen.clear()
    found = store.disproved("i", [*TESTS, bit(0)], below=10, timeout=30)
    assert [list(a) for a in found] == [*EXPECTED, [0, 2, 4, 5, 8, 9]]
    assert [r.method for r in between.seen] == ["GET", "POST"]


def test_bits_without_scripts(mortal: Node) -> None:
    store = make(mortal.address, files=0)
    store.write("i", bits_of(store.reserve("i", 10)), revision=1)
    found = store.disproved("i", [bit(0), *TESTS], below=10, timeout=60)
    assert [list(a) for a in found] == [[], *EXPECTED]


def test_bits_where_only_aggregations_may_be_scripts(opensearch: str, between: Front) -> None:
    store = at(make(opensearch, files=0), between.address)
    store.write("i", bits_of(store.reserve("i", 10)), revision=1)
    no = Answer(400, {"error": {"type": "search_phase_execution_exception"}, "status": 400})

    def rule(request: Request, to_node: Callable[[bytes], Answer]) -> Answer:
        return no if b'"script":' in request.body else to_node(request.body)

    between.rule = rule
    for _ in range(2):
        found = store.disproved("i", [bit(0), *TESTS], below=10, timeout=60)
        assert [list(a) for a in found] == [[], *EXPECTED]
    assert any(b"scripted_metric" in r.body for r in between.seen[-1:])


def test_a_page_that_fails_is_no_answer(mortal: Node) -> None:
    store = make(mortal.address, files=10_100)
    with front(mortal.address) as between:
        between.rule = _altered(
            lambda answer: answer["_shards"].update(failed=1), body=b'"search_after"'
        )
        with pytest.raises(StoreError, match="shards"):
            at(store, between.address).disproved("i", TESTS, below=10_100, timeout=60)


# In part


def _altered(change: Callable[[Any], object], *, body: bytes = b"scripted_metric") -> Any:
    """A rule that changes the answers to searches with these words in them."""

    def rule(request: Request, to_node: Callable[[bytes], Answer]) -> Answer:
        answer = to_node(request.body)
        if "_search" in request.path and body in request.body:
            change(answer.body)
        return answer

    return rule


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
    between.rule = _altered(change)
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
    with pytest.raises(StoreError, match="not all" if partial == "true" else "search_phase"):
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
    assert [r.method for r in between.seen] == ["GET", "POST"]  # the head, then the question


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
    between.rule = lambda request, to_node: BUSY
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
    assert [list(a) for a in store.disproved("i", TESTS, below=99, timeout=30)] == EXPECTED
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


# Writers that die, sleep or come too late


def test_what_a_dead_writer_left_is_never_seen(opensearch: str) -> None:
    store = make(opensearch, lease=0.3)
    asleep = at(store, opensearch)
    lost = attempt(asleep._catalogues, "i", lambda head: None, lease=0.3, patience=5)
    held = lost.__enter__()

    def create(ordinal: int, low: int) -> None:
        identity = f"{ordinal}.{held.number}"
        document = {"ordinal": ordinal, "generation": held.number, "s1_known": True, "s1_low": low}
        items = [({"create": {"_id": identity}}, document)]
        asleep._client.bulk(held.head.entries, items)
        asleep._client.call("POST", f"/{held.head.entries}/_refresh")

    create(5, 9)
    before = store.catalogue("i")
    assert ordinals(store) == list(range(10))
    # Somebody else takes over after the lease, and commits under a later number.
    store.write("i", entries(store.reserve("i", 1)), revision=1)
    assert answers(store) == EXPECTED
    # It wakes up and writes on.
    create(2, 0)
    assert answers(store) == EXPECTED
    for use in (held.commit, held.release, held.abort):
        with pytest.raises(StoreError, match="took over"):
            use()
    store.write("i", entries(store.reserve("i", 1)), revision=1)
    assert answers(store) == EXPECTED
    changed = store.catalogue("i", since=before.generation)
    assert changed.files["ordinal"].to_pylist() == [10, 11]


def test_a_writer_that_moves_is_waited_for(opensearch: str) -> None:
    store = make(opensearch, lease=0.4, patience=0.5)
    with attempt(store._catalogues, "i", lambda head: None, lease=0.4, patience=5) as held:
        began = time.monotonic()
        with pytest.raises(StoreError, match="all the time"), _beating(held):
            store.write("i", entries(store.reserve("i", 1)), revision=1)
        assert time.monotonic() - began > 0.5
    store.write("i", entries(store.reserve("i", 1)), revision=1)


@contextmanager
def _beating(held: Attempt) -> Iterator[None]:
    """Moves a lock from another thread."""
    done = threading.Event()

    def run() -> None:
        while not done.wait(0.1):
            held.beat()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("change", [{"where": "x"}, {"dropped": True}])
def test_a_definition_that_changes_under_a_write(
    opensearch: str, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    store = make(opensearch)
    create = Entries.create

    def meanwhile(self: Entries, items: Any, **more: Any) -> None:
        create(self, items, **more)
        store.define(replace(DEFINITION, **change), expect=1)

    before = store.catalogue("i")
    reserved = store.reserve("i", 3)
    with monkeypatch.context() as patch:
        patch.setattr(Entries, "create", meanwhile)
        with pytest.raises(Conflict):
            store.write("i", entries(reserved), revision=1)
    assert store.catalogue("i") == before
    assert [list(a) for a in store.disproved("i", TESTS, below=99, timeout=30)] == EXPECTED
    store.remove("i", pa.array([0]))
    assert ordinals(store) == list(range(1, 10))


def test_a_removal_that_is_cut_short(opensearch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make(opensearch)
    before = store.catalogue("i").generation

    def dies(*args: object, **more: object) -> None:
        raise StoreError("the line is cut")

    with monkeypatch.context() as patch:
        patch.setattr(Entries, "sweep", dies)
        with pytest.raises(StoreError, match="cut"):
            store.remove("i", pa.array([0, 9]))
    for _ in range(2):  # before somebody finished it, and after
        found = store.catalogue("i", since=before)
        assert (found.removed.to_pylist(), len(found.files), found.below) == ([0, 9], 0, 9)
        assert ordinals(store) == list(range(1, 9))
        assert answers(store) == [[o for o in e if o not in (0, 9)] for e in EXPECTED]
        store.write("i", entries(range(1, 2)), revision=1)
    assert store._catalogues.head("i").unswept is None


# Gone


def test_entries_deleted_under_who_asks(opensearch: str) -> None:
    store = make(opensearch)
    assert answers(store) == EXPECTED
    name = store._catalogues.head("i").entries
    store._client.call("DELETE", f"/{name}")
    for use in (
        lambda: answers(store),
        lambda: store.catalogue("i"),
        lambda: store.write("i", entries(range(1)), revision=1),
    ):
        with pytest.raises(StoreError, match=r"no longer has index .*: drop"):
            use()


def test_catalogue_deleted_under_who_asks(opensearch: str) -> None:
    store = make(opensearch)
    store._client.call("DELETE", f"/{store._access.prefix}catalogue")
    for use in (store.definitions, lambda: answers(store), lambda: store.reserve("i", 1)):
        with pytest.raises(NoStore, match="create the index anew"):
            use()
    with pytest.raises(NoStore):
        at(store, opensearch).state("i")
    assert store.define(replace(DEFINITION, index="j"), expect=None) == 1


def said(store: OpenSearchStore, change: Callable[[Any], object], *, id: str = "") -> None:
    """Change what stands in the catalogue about index i, or copy it so under another id."""
    name, key = f"{store._access.prefix}catalogue", store._catalogues._keys["i"]
    found = store._client.document(name, key)["_source"]
    change(found)
    store._client.call("PUT", f"/{name}/_doc/{id or key}", found, refresh="true")


def faults(store: OpenSearchStore) -> list[str]:
    """Why what the store holds in place of definitions cannot be used."""
    return [found.value.fault for found in store.definitions() if found.value.fault]


def test_what_a_newer_release_wrote(opensearch: str) -> None:
    store = make(opensearch)
    other = replace(DEFINITION, index="j", table=TableId("delta", "u", "file:/u"), name="u")
    store.define(other, expect=None)
    said(store, lambda source: source.update(format=99))
    for use in (lambda: answers(store), lambda: store.reserve("i", 1)):
        with pytest.raises(StoreError, match=r"format 99.*upgrade"):
            use()
    with pytest.raises(StoreError, match=r"format 99.*upgrade"):
        store.define(replace(DEFINITION, index="k"), expect=None)
    assert [d.value for d in store.definitions() if d.value.fault is None] == [other]
    (fault,) = faults(store)
    assert "is of format 99" in fault


def test_what_an_older_release_wrote(opensearch: str) -> None:
    store = make(opensearch)
    said(store, lambda source: source.update(format=0))
    assert answers(at(store, opensearch)) == EXPECTED
    assert len(store.definitions()) == 1


@pytest.mark.parametrize(
    "entries", ["payroll", "*", "_all", "faults-*", "a,b", "<a-{now/d}>", None]
)
def test_only_indices_of_a_derived_name_are_deleted(
    opensearch: str, between: Front, entries: Any
) -> None:
    store = at(make(opensearch), between.address)
    store.define(replace(DEFINITION, dropped=True), expect=1)
    name = store._catalogues.head("i").entries
    said(store, lambda source: source["heads"]["i"].update(entries=entries))
    between.seen.clear()
    with pytest.raises(StoreError, match=r"document '[0-9a-f]{64}'"):
        store.erase("i")
    assert len(store.definitions()) == len(faults(store)) == 1
    assert not any(r.method == "DELETE" for r in between.seen)
    with pytest.raises(StoreError, match="names no index"):
        store._client.call("DELETE", f"/{entries}" if entries != "payroll" else "/payroll,x")
    said(store, lambda source: source["heads"]["i"].update(entries=name))
    store.erase("i")
    (deleted,) = (r.path for r in between.seen if r.method == "DELETE")
    assert deleted.startswith(f"/{name}?expand_wildcards=none")


@pytest.mark.parametrize(
    "change",
    [
        lambda source: source.update(heads=[]),
        lambda source: source.update(format="1"),
        lambda source: source["heads"]["i"].update(generation="9"),
        lambda source: source["heads"]["i"].update(next=2**70),
        lambda source: source["heads"]["i"].update(recent=[[]]),
        lambda source: source["heads"]["i"].update(fields=[1]),
        lambda source: source["heads"]["i"].update(definition="[" * 20_000),
        lambda source: source["heads"]["i"].update(definition=5),
        lambda source: source["heads"]["i"].update(surprise=True),
    ],
)
def test_what_nobody_writes_is_left_alone(opensearch: str, change: Callable[[Any], object]) -> None:
    store = make(opensearch)
    said(store, change)
    with pytest.raises(StoreError, match="holds what no release wrote"):
        answers(store)
    (fault,) = faults(store)
    assert "holds what no release wrote" in fault


def test_an_index_claimed_by_a_foreign_document(opensearch: str) -> None:
    for id in ("payroll", "f" * 64):
        store = make(opensearch)
        said(store, lambda source: source.update(key="0"), id=id)
        kept = f"/{store._access.prefix}catalogue/_doc/{store._catalogues._keys['i']}"
        store._client.call("DELETE", kept, refresh="true")
        with pytest.raises(StoreError, match=r"no index of ours|nobody we know"):
            at(store, opensearch).erase("i")


def test_types_of_a_newer_release(opensearch: str) -> None:
    store = make(opensearch)
    said(store, lambda source: source["heads"]["i"]["fields"].update(s9_x="decimal"))
    with pytest.raises(StoreError, match=r"decimal.*upgrade"):
        answers(store)


# Forked


@pytest.mark.parametrize("questions", [200, pytest.param(2_000, marks=pytest.mark.soak)])
def test_forked_children_get_their_own_answers(opensearch: str, questions: int) -> None:
    n = 64
    store = make(opensearch, files=n)

    def wrong(seed: int, questions: int = questions) -> int:
        draw = random.Random(seed)
        bad = 0
        for _ in range(questions):
            x = draw.randrange(n)
            (found,) = store.disproved(
                "i", [Contains("values", pa.array([f"t{x}"]), "s2")], below=n, timeout=30
            )
            bad += set(range(n)) - set(found) != {o for o in range(x - 2, x + 1) if o >= 0}
        return bad

    assert wrong(0, 5) == 0  # now there is a connection
    context = multiprocessing.get_context("fork")
    told = context.SimpleQueue()
    children = [
        context.Process(target=lambda seed=seed: told.put(wrong(seed))) for seed in range(4)
    ]
    for child in children:
        child.start()
    assert wrong(9) == 0
    for child in children:
        child.join()
    assert [told.get() for _ in children if not told.empty()] == [0] * 4


def test_every_search_carries_its_number(opensearch: str, between: Front) -> None:
    store = at(make(opensearch), between.address, kept=1 << 20)
    kept: list[Answer] = []

    def rule(request: Request, to_node: Callable[[bytes], Answer]) -> Answer:
        """The answer to the search before, as on a line that two share."""
        answer = to_node(request.body)
        if "_search" not in request.path:
            return answer
        kept.append(answer)
        return kept[-2] if len(kept) > 1 else answer

    store.definitions()
    between.rule = rule
    for use in (store.definitions, lambda: answers(store), lambda: store.catalogue("i")):
        kept[:] = [Answer(200, {**to_any(store), "_shards": {}})]
        with pytest.raises(StoreError, match="another request"):
            use()


def to_any(store: OpenSearchStore) -> Any:
    """A whole answer of another search."""
    direct = f"/{store._access.prefix}catalogue/_search"
    body = {"aggs": {"asked": {"max": {"field": "asked"}, "meta": {"number": "another"}}}}
    return store._client.call("POST", direct, body) | {"timed_out": False}


def test_a_document_is_known_by_its_id(opensearch: str, between: Front) -> None:
    store = at(make(opensearch), between.address)
    answers(store)

    def rule(request: Request, to_node: Callable[[bytes], Answer]) -> Answer:
        answer = to_node(request.body)
        if "_doc/" in request.path:
            answer.body["_id"] = "0" * 64
        return answer

    between.rule = rule
    with pytest.raises(StoreError, match="another request"):
        answers(store)


def test_a_catalogue_older_than_its_entries(opensearch: str) -> None:
    """As after a restore of one of the two: numbers would be given twice."""
    store = make(opensearch)
    path = f"/{store._access.prefix}catalogue/_doc/{store._catalogues._keys['i']}"
    old = store._client.call("GET", path)["_source"]
    store.write("i", entries(store.reserve("i", 5)), revision=1)
    store._client.call("PUT", path, old, refresh="true")
    reserved = store.reserve("i", 5)
    assert reserved == range(10, 15)
    again = entries(reserved).set_column(1, "path", pa.array([f"g{o}" for o in reserved]))
    with pytest.raises(StoreError, match="older than"):
        store.write("i", again, revision=1)
    assert ordinals(store) == list(range(10))
    # What was committed under that number is aborted now, so whoever tries again goes on from here.
    store.write("i", again, revision=1)
    found = store.catalogue("i").files["path"].to_pylist()
    assert found == [*(f"f{o}" for o in range(10)), *(f"g{o}" for o in reserved)]
    head = store._catalogues.head("i")
    counted = {"query": head.visible, "size": 0, "track_total_hits": True}
    answer = store._client.call("POST", f"/{head.entries}/_search", counted)
    assert answer["hits"]["total"]["value"] == 15 + 2  # nothing of the lost write; two pages


# Pages


def test_pages_say_what_documents_say(opensearch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opensearch_pages, "_FILES", 4)
    store = make(opensearch, files=0)
    fields = ["s1_known", "s1_low", "s2_known", "s3_raw", "s3_known", "s9_none"]

    def seen() -> pa.Table:
        """By pages, and the same without."""
        kept = store._entries(store._catalogues.head("i"))
        packed = kept._packed(fields)
        assert packed is not None
        whole = store.catalogue("i", fields=fields)
        assert (whole.files, whole.below) == packed
        ours = kept.scalars(["s1_known", "s1_low"])
        with monkeypatch.context() as patch:
            patch.setattr(Entries, "_packed", lambda *args, **more: None)
            slow = store.catalogue("i", fields=fields)
            others = kept.scalars(["s1_known", "s1_low"])
        assert slow.files.to_pydict() == whole.files.to_pydict()
        assert (slow.files.schema, slow.below) == (whole.files.schema, whole.below)
        assert (ours.files.to_pydict(), ours.below) == (others.files.to_pydict(), others.below)
        return whole.files

    identity = entries(store.reserve("i", 10))
    store.write("i", identity.select(IDENTITY.names), revision=1)
    assert seen()["s1_low"].null_count == 10
    store.write("i", identity.slice(3, 6), revision=1)  # they get sketches
    assert seen()["s1_known"].to_pylist() == [None] * 3 + [True] * 6 + [None]
    raw = pa.array([b"\x00\xff", None, b"y" * 40_000])
    some = entries(store.reserve("i", 3)).append_column("s3_known", pa.array([True] * 3))
    store.write("i", some.append_column("s3_raw", raw), revision=1)
    assert seen()["s3_raw"].to_pylist()[10:] == [b"\x00\xff", None, None]
    assert seen()["s3_known"].to_pylist()[10:] == [True, True, False]
    store.remove("i", pa.array([0, 4, 12]))
    assert seen()["ordinal"].to_pylist() == [1, 2, 3, 5, 6, 7, 8, 9, 10, 11]
    store.remove("i", pa.array(range(13)))
    assert len(seen()) == 0


@pytest.mark.parametrize("damage", ["", "bm8=", None])
def test_without_its_pages_an_index_is_read_all_the_same(
    opensearch: str, damage: str | None
) -> None:
    store = make(opensearch)
    name = store._catalogues.head("i").entries
    (page,) = store._client.search(name, {"query": {"exists": {"field": "page_number"}}})["hits"][
        "hits"
    ]
    path = f"/{name}/_doc/{page['_id']}"
    if damage is None:
        store._client.call("DELETE", path, refresh="true")
    else:
        store._client.call("PUT", path, {**page["_source"], "page": damage}, refresh="true")
    assert store._entries(store._catalogues.head("i"))._packed([]) is None
    assert ordinals(store) == list(range(10))
    assert answers(store) == EXPECTED


# Values


def test_a_value_too_long_for_a_term_is_unknown(opensearch: str) -> None:
    store = make(opensearch, files=0)
    longest = ["x" * 32_766, "x" * 32_767, "\u00e9" * 16_384]
    table = entries(store.reserve("i", 3)).drop_columns(["s2_values", "s1_low", "s1_high"])
    table = table.append_column("s2_values", pa.array([["a", text] for text in longest]))
    table = table.append_column("s1_low", pa.array(longest))
    raw = pa.array([[b"y" * 16_383], [b"y" * 16_384], [b"y" * 40_000]])
    table = table.append_column("s3_known", pa.array([True] * 3)).append_column("s3_raw", raw)
    store.write("i", table, revision=1)
    asked: list[Test] = [
        Contains("values", pa.array(["b"]), "s2"),
        Contains("values", pa.array(longest), "s2"),
        ContainsOther("values", pa.array(["a"]), "s2"),
        ContainsOther("values", pa.array(["a", *longest]), "s2"),
        ContainsRange("values", longest[0], sketch="s2"),
        ContainsRange("values", "z" * 40_000, sketch="s2"),
        FieldCompare("low", "<", longest[0], "s1"),
        FieldCompare("low", "=", longest[1], "s1"),
        FieldCompare("low", "<", longest[1], "s1"),
        Contains("raw", pa.array([b"z" * 40_000]), "s3"),
        Contains("raw", pa.array([b"y" * 16_383]), "s3"),
    ]
    found = [list(a) for a in store.disproved("i", asked, below=9, timeout=30)]
    assert found == [[0], [], [], [0], [], [], [0], [0], [], [0], []]


@pytest.mark.parametrize("kept", [0, 1 << 20])
def test_many_keys_are_evaluated_on_fields_that_follow_the_store(
    opensearch: str, kept: int
) -> None:
    store = make(opensearch, kept=kept)
    keys = pa.array(range(2, 5000))
    asked: list[Test] = [
        Overlaps("low", "high", keys, "s1"),
        Escapes("low", "high", keys, keys, "s1"),
    ]

    def ask() -> list[list[int]]:
        return [list(a) for a in store.disproved("i", asked, below=99, timeout=30)]

    assert ask() == [[0, 1, 3, 4, 6, 7, 9], [2, 5, 8]]
    store.remove("i", pa.array([0, 8]))
    store.write("i", entries(store.reserve("i", 2)), revision=1)
    assert ask() == [[1, 3, 4, 6, 7, 9, 10], [2, 5, 11]]
    other = at(store, opensearch)
    other.remove("i", pa.array([1]))
    assert ask() == [[3, 4, 6, 7, 9, 10], [2, 5, 11]]


def test_fields_are_read_ahead(opensearch: str, between: Front) -> None:
    """What a query can answer is answered without one as soon as the fields are there."""
    store = at(make(opensearch), between.address, kept=1 << 20)

    def ask() -> list[int]:
        return list(store.disproved("i", TESTS[:1], below=10, timeout=30)[0])

    assert ask() == EXPECTED[0]
    end = time.monotonic() + 30
    while store._fields.held("i", "s1") is None:
        assert time.monotonic() < end
        time.sleep(0.01)
    between.seen.clear()
    assert ask() == EXPECTED[0]
    assert [r.method for r in between.seen] == ["GET"]  # the head, whose generation is asked


def test_who_cannot_wait_for_fields_is_answered_without_them(
    opensearch: str, between: Front
) -> None:
    store = at(make(opensearch), between.address)
    go = threading.Event()

    def rule(request: Request, to_node: Callable[[bytes], Answer]) -> Answer:
        if b"page_number" in request.body:
            go.wait(30)
        return to_node(request.body)

    between.rule = rule
    keys = pa.array(range(2, 5000))
    asked = [*TESTS, Overlaps("low", "high", keys, "s1")]
    try:
        found = [list(a) for a in store.disproved("i", asked, below=99, timeout=2)]
        assert found == [*EXPECTED, []]
    finally:
        go.set()
    found = [list(a) for a in store.disproved("i", asked, below=99, timeout=30)]
    assert found == [*EXPECTED, EXPECTED[0]]


# Secrets and certificates


def _pair(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


def _guarded(request: Request, to_node: Callable[[bytes], Answer]) -> Answer:
    # me:s3cr\u20act, as UTF-8
    if request.headers.get("authorization") == "Basic bWU6czNjcuKCrHQ=":
        return to_node(request.body)
    return Answer(401, {"error": {"type": "security_exception"}, "status": 401})


def test_tls_and_passwords(opensearch: str, tmp_path: Path) -> None:
    certificate, key = _pair(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    good = Access(
        prefix=f"faults-{uuid.uuid4().hex[:12]}-",
        user="me",
        password="s3cr\u20act",
        ca=str(certificate),
        certificate=str(certificate),
        key=str(key),
    )
    with front(opensearch, tls=tls) as between:
        between.rule = _guarded
        server = f"https://{between.address}"
        store = OpenSearchStore(server, good)
        store.define(DEFINITION, expect=None)
        assert len(store.definitions()) == 1
        assert "s3cr" not in repr((good, store.location))
        for access, message in (
            (replace(good, password="wr0ng"), "does not accept the user or the password of me"),
            (replace(good, user=None, password=None), "does not accept"),
            (replace(good, ca=None), "not trusted"),
            (replace(good, ca=str(key)), "cannot be asked|not trusted"),
            (replace(good, ca="/nowhere.pem"), "cannot be asked|not trusted"),
        ):
            with pytest.raises(StoreError, match=message) as raised:
                OpenSearchStore(server, access).definitions()
            assert "s3cr" not in str(raised.value)
            assert "wr0ng" not in str(raised.value)
        with pytest.raises(StoreError, match="cannot be reached"):
            OpenSearchStore(f"http://{between.address}", good).definitions()
    with pytest.raises(StoreError, match=r"not trusted|cannot be reached"):
        OpenSearchStore(f"https://{opensearch}", good).definitions()


def test_forbidden(opensearch: str, between: Front) -> None:
    store = at(make(opensearch), between.address)
    no = Answer(403, {"error": {"type": "security_exception", "reason": "t7"}, "status": 403})
    between.rule = lambda request, to_node: no
    with pytest.raises(StoreError, match="does not allow") as raised:
        answers(store)
    assert "t7" not in str(raised.value)


def test_a_store_that_is_named_later_is_told_nothing(
    opensearch: str, between: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(USER, "svc")
    monkeypatch.setenv(PASSWORD, "s3cret")
    between.rule = _guarded
    store = open_store(f"opensearch://{between.address}")
    with pytest.raises(StoreError, match=f"named at start-up, in {STORE}") as raised:
        store.definitions()
    assert "s3cret" not in "".join(traceback.format_exception(raised.value))
    (asked,) = between.seen
    assert "authorization" not in asked.headers


def test_a_copy_there_and_back(opensearch: str, tmp_path: Path) -> None:
    one = SqliteStore(tmp_path / "one.db")
    built(one)
    access = Access(prefix=f"copy-{uuid.uuid4().hex[:12]}-")
    there = OpenSearchStore(f"http://{opensearch}", access, kept=0)
    assert copy(one, there) == Copied(1, 4)
    back = SqliteStore(tmp_path / "back.db")
    assert copy(there, back) == Copied(1, 4)
    assert rows(back) == rows(one)
    assert there.reserve("i", 1).start >= 7
    with pytest.raises(StoreError, match="has indexes already"):
        copy(one, there)


def test_columns_in_parts(opensearch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too large for one Arrow array comes in several."""
    monkeypatch.setattr("skipping.stores.entries.PORTION", 1)
    store = make(opensearch, files=0)
    one = entries(store.reserve("i", 3))
    other = entries(store.reserve("i", 3))
    store.write("i", pa.concat_tables([one, other]), revision=1)
    assert ordinals(store) == [0, 1, 2, 3, 4, 5]
