"""What was opened before a fork answers right in the child."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from providers.errors import StoreError
from providers.index_predicate import Contains, FieldCompare, Overlaps, Test
from providers.predicate import Compare
from providers.values import Domain
from skipping.lookup.lookup import Lookup
from skipping.lookup.translate import QueryColumn
from skipping.model.definition import IndexedColumn
from skipping.stores import IndexStore
from skipping.stores.folder.objects import ObstoreObjects
from skipping.stores.folder.store import FolderStore
from skipping.stores.fork_safety import Gate, Lock, reset_after_fork
from skipping.stores.single_flight import SingleFlight
from skipping.stores.sqlite import schema as sqlite_schema
from skipping.stores.sqlite.store import SqliteStore
from tests.skipping.stores.samples import ask, bounds, definition, entries, fill

# Python says of every fork beside threads that it may hang: that it does not is what is shown.
pytestmark = [pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"), pytest.mark.nightly]

FILES, CHILDREN, QUESTIONS = 200, 4, 2_000


def run_in_fork(work: Callable[[], object], *, timeout: float = 120) -> Callable[[], object]:
    """Begin some work in a child of this process; what it gives, or said when it failed."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            said = work()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writing, json.dumps(said).encode())
        os._exit(0)
    os.close(writing)

    def result() -> object:
        with open(reading, "rb") as pipe:
            killer = threading.Timer(timeout, os.kill, (child, 9))
            killer.start()
            said = pipe.read()
            killer.cancel()
        os.waitpid(child, 0)
        return json.loads(said) if said else "it hung"

    return result


def wrong(store: IndexStore, questions: int, seed: int) -> Counter[str]:
    """How many of so many questions were answered otherwise than file by file."""
    chosen, found = random.Random(seed), Counter[str](asked=0)
    for _ in range(questions):
        key = chosen.randrange(FILES)
        keys, text = pa.array([key]), pa.array([f"t{key}"])
        test: Test = Overlaps("low", "high", keys, "s1")
        if chosen.random() < 0.5:
            test = Contains("values", text, "s2")
        found["asked"] += 1
        try:
            (answer,) = store.find_prunable("i", [test], below=FILES, timeout=60)
        except StoreError as error:
            found[str(error)] += 1
        else:
            if key in answer or len(answer) != FILES - 1:
                found["wrong"] += 1
    return found


@pytest.fixture
def numbered(store: IndexStore) -> IndexStore:
    """File f has the bounds f and f, and the term t<f>."""
    values = {"s2_known": [True] * FILES, "s2_values": [[f"t{f}"] for f in range(FILES)]}
    fill(store, bounds(range(FILES)) | values)
    return store


def test_children_ask_what_the_parent_opened(numbered: IndexStore) -> None:
    """While other threads of the parent ask, too: their locks are held, their files are open."""
    assert wrong(numbered, 10, 0) == {"asked": 10}
    ended, seen = threading.Event(), Counter[str]()

    def ask() -> None:
        while not ended.is_set():
            seen.update(wrong(numbered, 10, 1))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        results = [
            run_in_fork(lambda seed=seed: wrong(numbered, QUESTIONS, seed))
            for seed in range(CHILDREN)
        ]
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert [result() for result in results] == [{"asked": QUESTIONS}] * CHILDREN
    assert set(seen) == {"asked"}


def test_a_lookup_made_before(numbered: IndexStore) -> None:
    column = IndexedColumn(1, "x", "col-1", "bigint", "MIN_MAX")
    made = replace(definition(table="i"), columns=(column,))
    lookup = Lookup(numbered, ttl=3_600)
    columns = {"col-1": QueryColumn("x", Domain("integer", pa.int64()), "bigint")}

    def remaining(key: int) -> int:
        found = lookup.find(made, Compare("col-1", "=", key), columns, timeout=60)
        return FILES - len(found.pruned)

    assert remaining(1) == 1
    results = [run_in_fork(lambda key=key: remaining(key)) for key in range(4)]
    assert [result() for result in results] == [1] * 4


def test_both_write_after_a_fork(reachable: IndexStore) -> None:
    if isinstance(reachable, FolderStore):
        pytest.skip("the next test has what it does")
    fill(reachable, bounds(range(FILES)))

    def write() -> int:
        ordinals = reachable.reserve("i", 5)
        reachable.write("i", entries(ordinals, bounds([1] * 5)), revision=1)
        return ordinals.start

    results = [run_in_fork(write) for _ in range(3)]
    starts = [write(), *(result() for result in results)]
    there = reachable.catalogue("i").files["ordinal"].to_pylist()
    assert sorted(map(str, starts)) == [str(FILES + 5 * n) for n in range(4)]
    assert there == [*range(FILES + 20)]


def test_a_child_reads_the_replica_of_a_folder_store(tmp_path: Path) -> None:
    """The threads of its client are its parent's: it neither follows the log nor writes."""
    url = (tmp_path / "shared").as_uri()
    store = FolderStore(ObstoreObjects(url), tmp_path / "replica.sqlite")
    other = FolderStore(ObstoreObjects(url), tmp_path / "other.sqlite")
    cold = FolderStore(ObstoreObjects(url), tmp_path / "cold.sqlite")
    fill(store, bounds([1, 2]))
    assert len(other.definitions()) == 1
    low = FieldCompare("low", ">", 1, "s1")

    def child() -> object:
        store.write("i", entries([2], bounds([3])), revision=1)
        return "written"

    assert str(run_in_fork(child)()).startswith("StoreError: the store file:")
    assert "spawn" in str(run_in_fork(child)())
    assert run_in_fork(lambda: ask(store, low))() == [0]
    assert run_in_fork(lambda: ask(other, low))() == [], "unknown: its sketches are not loaded"
    assert "spawn" in str(run_in_fork(lambda: len(cold.definitions()))()), "it has no replica"
    store.reserve("i", 1)
    store.write("i", entries([2], bounds([0])), revision=1)
    assert ask(store, low) == ask(other, low) == [0, 2], "the parent goes on"


def test_a_load_under_way_is_the_parents() -> None:
    loading, go = SingleFlight[str](), threading.Event()
    assert loading.result("key", lambda: str(go.wait(60)), timeout=0) is None
    result = run_in_fork(lambda: loading.result("key", lambda: "mine", timeout=60), timeout=20)
    assert result() == "mine"
    go.set()
    assert loading.result("key", lambda: "again", timeout=60) in ("True", "again")


def test_a_lock_is_free_in_a_child() -> None:
    lock, held, go = Lock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            go.wait(60)

    def take() -> str:
        with lock:
            return "taken"

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    assert run_in_fork(take, timeout=20)() == "taken"
    go.set()
    thread.join()
    with lock:
        pass


def test_what_is_gone_is_not_called() -> None:
    class Counted:
        calls = 0

        def _after_fork(self) -> None:
            Counted.calls += 1

    kept, gone = Counted(), Counted()
    for each in (kept, kept, gone):
        reset_after_fork(each)
    del gone, each
    assert run_in_fork(lambda: Counted.calls)() == 1
    assert Counted.calls == 0


def test_a_fork_waits_for_what_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(tmp_path / "store.db")
    fill(store, bounds([1, 2]))
    gate = Gate(patience=0.5)
    monkeypatch.setattr(sqlite_schema, "_open", gate)
    opened = threading.Event()

    def read(seconds: float) -> None:
        with sqlite_schema.open_connection(tmp_path / "store.db", wait=30):
            opened.set()
            time.sleep(seconds)

    def query_store() -> int:
        return len(store.definitions())

    for seconds, said in (
        (0.2, 1),
        (2.0, None),  # it did not end: the child knows that it must not open it
    ):
        opened.clear()
        thread = threading.Thread(target=read, args=(seconds,))
        thread.start()
        opened.wait()
        start = time.monotonic()
        result = run_in_fork(query_store)
        assert 0.1 < time.monotonic() - start < 1.5
        found = result()
        assert found == said if said == 1 else "was forked" in str(found)
        assert query_store() == 1
        thread.join()
