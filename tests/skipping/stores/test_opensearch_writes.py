"""What writers leave behind, and what others do to the indices of a store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from providers.errors import Conflict, NoStore, StoreError
from skipping.model.definition import TableId
from skipping.stores.opensearch.commits import Attempt, attempt
from skipping.stores.opensearch.index import Entries
from skipping.stores.opensearch.store import OpenSearchStore
from tests.skipping.stores.cluster import answers, at, make, ordinals
from tests.skipping.stores.proxy import Answer, Front, refuse
from tests.skipping.stores.small import DEFINITION, EXPECTED, TESTS, entries

pytestmark = [pytest.mark.usefixtures("delete_indexes"), pytest.mark.nightly]

# Writers that die, sleep or come too late


def test_what_a_dead_writer_left_is_never_seen(opensearch: str) -> None:
    store = make(opensearch, lease=0.3)
    asleep = at(store, opensearch)
    lost = attempt(asleep._registry, "i", lambda record: None, lease=0.3, patience=5)
    held = lost.__enter__()

    def create(ordinal: int, low: int) -> None:
        identity = f"{ordinal}.{held.number}"
        document = {"ordinal": ordinal, "generation": held.number, "s1_known": True, "s1_low": low}
        items = [({"create": {"_id": identity}}, document)]
        asleep._client.bulk(held.record.entries, items)
        asleep._client.call("POST", f"/{held.record.entries}/_refresh")

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
    with attempt(store._registry, "i", lambda record: None, lease=0.4, patience=5) as held:
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
    assert [list(a) for a in store.find_prunable("i", TESTS, below=99, timeout=30)] == EXPECTED
    store.remove("i", pa.array([0]))
    assert ordinals(store) == list(range(1, 10))


def test_a_removal_that_is_cut_short(opensearch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make(opensearch)
    before = store.catalogue("i")

    def dies(*args: object, **more: object) -> None:
        raise StoreError("the line is cut")

    with monkeypatch.context() as patch:
        patch.setattr(Entries, "sweep", dies)
        with pytest.raises(StoreError, match="cut"):
            store.remove("i", pa.array([0, 9]))
    for _ in range(2):  # before somebody finished it, and after
        found = store.catalogue("i", since=before.generation)
        assert (found.removed.to_pylist(), len(found.files)) == ([0, 9], 0)
        assert before.after(found).files["ordinal"].to_pylist() == list(range(1, 9))
        assert ordinals(store) == list(range(1, 9))
        assert answers(store) == [[o for o in e if o not in (0, 9)] for e in EXPECTED]
        store.write("i", entries(range(1, 2)), revision=1)
    assert store._registry.read("i").unswept is None


# Space


def test_a_removal_gives_space_back(opensearch: str) -> None:
    store = make(opensearch, files=0)
    store.write("i", entries(store.reserve("i", 3_000), terms=30), revision=1)
    before = store.size("i")
    assert before is not None
    store.remove("i", pa.array(range(2_900)))
    deadline = time.monotonic() + 120
    while (size := store.size("i")) is not None and size > before / 4:
        assert time.monotonic() < deadline, size
        time.sleep(1)  # the server remembers what was deleted for a while
        store.remove("i", pa.array([], pa.int64()))
    assert ordinals(store) == list(range(2_900, 3_000))


def test_space_is_asked_back_where_there_is_some(opensearch: str, between: Front) -> None:
    store = at(make(opensearch), between.address)
    store.write("i", entries(store.reserve("i", 5)), revision=1)
    assert not any("_forcemerge" in request.path for request in between.seen)
    store.remove("i", pa.array([0, 1, 2]))
    (asked,) = (request.path for request in between.seen if "_forcemerge" in request.path)
    assert "only_expunge_deletes=true&wait_for_completion=false" in asked
    forbidden = Answer(403, {"error": {"type": "security_exception"}, "status": 403})
    between.rule = refuse(forbidden, b"/_stats")
    store.remove("i", pa.array([3]))
    assert ordinals(store) == list(range(4, 15))


def test_what_dead_writers_left_is_deleted(opensearch: str) -> None:
    store = make(opensearch)
    numbers: list[int] = []

    def die() -> None:
        with store._attempt("i", lambda record: None) as held:
            numbers.append(held.number)
            document = {"ordinal": 0, "generation": held.number}
            items = [({"create": {"_id": f"0.{held.number}"}}, document)]
            store._entries(held.record).create(items, generation=held.number, beat=held.beat)
            raise StoreError("it dies")

    with pytest.raises(StoreError, match="dies"):
        die()
    name = store._registry.read("i").entries
    lost = {"query": {"terms": {"generation": numbers}}, "_source": False}
    assert len(store._client.search(name, lost)["hits"]["hits"]) == 1
    store.write("i", entries(store.reserve("i", 1)), revision=1)
    assert store._client.search(name, lost)["hits"]["hits"] == []
    assert ordinals(store) == list(range(11))


# Gone


def test_entries_deleted_under_who_asks(opensearch: str) -> None:
    store = make(opensearch)
    assert answers(store) == EXPECTED
    name = store._registry.read("i").entries
    store._client.call("DELETE", f"/{name}")
    for use in (
        lambda: answers(store),
        lambda: store.catalogue("i"),
        lambda: store.write("i", entries(range(1)), revision=1),
    ):
        with pytest.raises(StoreError, match=r"no longer has index .*: run DROP"):
            use()


def test_catalogue_deleted_under_who_asks(opensearch: str) -> None:
    store = make(opensearch)
    store._client.call("DELETE", f"/{store._access.prefix}catalogue")
    for use in (store.definitions, lambda: answers(store), lambda: store.reserve("i", 1)):
        with pytest.raises(NoStore, match="create the index again"):
            use()
    with pytest.raises(NoStore):
        at(store, opensearch).state("i")
    assert store.define(replace(DEFINITION, index="j"), expect=None) == 1


def alter_registry(
    store: OpenSearchStore, change: Callable[[Any], object], *, id: str = ""
) -> None:
    """Change what stands in the catalogue about index i, or copy it so under another id."""
    name, key = f"{store._access.prefix}catalogue", store._registry._keys["i"]
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
    alter_registry(store, lambda source: source.update(format=99))
    for use in (lambda: answers(store), lambda: store.reserve("i", 1)):
        with pytest.raises(StoreError, match=r"format 99.*upgrade"):
            use()
    with pytest.raises(StoreError, match=r"format 99.*upgrade"):
        store.define(replace(DEFINITION, index="k"), expect=None)
    assert [d.value for d in store.definitions() if d.value.fault is None] == [other]
    (fault,) = faults(store)
    assert "has format 99" in fault


def test_registry_document_of_an_older_format_names_the_command(opensearch: str) -> None:
    store = make(opensearch)
    alter_registry(store, lambda source: source.update(format=0))
    with pytest.raises(StoreError, match=r"format 0, .*: name another.*CREATE SKIPPING INDEX"):
        answers(at(store, opensearch))
    assert len(store.definitions()) == len(faults(store)) == 1


@pytest.mark.parametrize(
    "entries", ["payroll", "*", "_all", "faults-*", "a,b", "<a-{now/d}>", None]
)
def test_only_indices_of_a_derived_name_are_deleted(
    opensearch: str, between: Front, entries: Any
) -> None:
    store = at(make(opensearch), between.address)
    store.define(replace(DEFINITION, dropped=True), expect=1)
    name = store._registry.read("i").entries
    alter_registry(store, lambda source: source["heads"]["i"].update(entries=entries))
    between.seen.clear()
    with pytest.raises(StoreError, match=r"document '[0-9a-f]{64}'"):
        store.erase("i")
    assert len(store.definitions()) == len(faults(store)) == 1
    assert not any(r.method == "DELETE" for r in between.seen)
    with pytest.raises(StoreError, match="is not the path of an index"):
        store._client.call("DELETE", f"/{entries}" if entries != "payroll" else "/payroll,x")
    alter_registry(store, lambda source: source["heads"]["i"].update(entries=name))
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
    alter_registry(store, change)
    with pytest.raises(StoreError, match="has values that no release writes"):
        answers(store)
    (fault,) = faults(store)
    assert "has values that no release writes" in fault


def test_an_index_claimed_by_a_foreign_document(opensearch: str) -> None:
    for id in ("payroll", "f" * 64):
        store = make(opensearch)
        alter_registry(store, lambda source: source.update(key="0"), id=id)
        kept = f"/{store._access.prefix}catalogue/_doc/{store._registry._keys['i']}"
        store._client.call("DELETE", kept, refresh="true")
        with pytest.raises(
            StoreError, match=r"not an index of this store|not a document of this store"
        ):
            at(store, opensearch).erase("i")


def test_types_of_a_newer_release(opensearch: str) -> None:
    store = make(opensearch)
    alter_registry(store, lambda source: source["heads"]["i"]["fields"].update(s9_x="decimal"))
    with pytest.raises(StoreError, match=r"decimal.*upgrade"):
        answers(store)
