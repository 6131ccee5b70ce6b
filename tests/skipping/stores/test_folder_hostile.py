"""A folder store whose objects others forge: one index may lose its skipping, nothing else."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from providers.errors import StoreError
from providers.index_predicate import FieldCompare
from skipping.model.lease import Lease
from skipping.stores.folder import log, upkeep
from skipping.stores.folder.follower import boot_time
from skipping.stores.folder.objects import ObstoreObjects, local_folder
from skipping.stores.folder.replica import IDENTITIES
from skipping.stores.folder.segments import write_segments
from skipping.stores.folder.store import FolderStore
from tests.skipping.stores.samples import ask, bounds, definition, entries, fill
from tests.skipping.stores.test_folder import Failing, driver, state_of, url

__all__ = ["url"]

HIGH = FieldCompare("low", ">", 3, "s1")
DAYS = 2 * upkeep.RETENTION.total_seconds()


def folder_of(url: str) -> Path:
    found = local_folder(url)
    assert found is not None
    return found


def commit_raw(url: str, index: str, **changes: Any) -> None:
    """Append a commit as anyone who can write the folder may, whatever it says."""
    objects, version = ObstoreObjects(url), 1
    last = None
    while data := objects.get(log.commit_name(version), most=log.MOST_COMMIT):
        last, version = json.loads(data), version + 1
    assert last is not None
    made = log.Commit(last["store"], version, last["id"], index)
    objects.replace(
        log.commit_name(version), json.dumps({**json.loads(made.to_bytes()), **changes}).encode()
    )


def make_old(url: str) -> None:
    past = time.time() - DAYS
    for path in folder_of(url).rglob("*.*"):
        os.utime(path, (past, past))


def test_an_index_without_its_objects_leaves_others_loaded(url: str) -> None:
    one = driver(url, "one")
    fill(one, bounds([1, 2]), index="i")
    fill(one, bounds([3, 4]), index="j")
    (path,) = (each.id for each in one.segments("i"))
    ObstoreObjects(url).replace(path, b"x" * 100)
    objects = Failing(ObstoreObjects(url))
    other = driver(url, "other", objects, ttl=60.0)
    assert len(other.catalogue("j").files) == 2
    for _ in range(3):
        assert ask(other, HIGH, index="j") == [0]
        with pytest.raises(StoreError, match="lacks objects of index i"):
            ask(other, HIGH, index="i")
    assert ask(other, HIGH, index="j") == [0]
    (of_j,) = (each.id for each in one.segments("j"))
    assert objects.requests.count(f"get {of_j}") == 1


@pytest.mark.parametrize("place", ["too large", "a folder", "duplicates", "another type"])
def test_a_forged_object_of_an_index_in_use_does_not_stop_the_log(url: str, place: str) -> None:
    one, other = driver(url, "one"), driver(url, "other")
    fill(one, bounds([1, 20]), index="i")
    fill(one, bounds([3, 4]), index="j")
    for index in ("i", "j"):
        assert len(other.catalogue(index, fields=["s1_low"]).files) == 2
    ((segment, _),) = write_segments(entries([2, 3], bounds([5, 6])))
    (part,) = segment.parts
    path = folder_of(url) / part.name
    if place == "too large":
        with path.open("wb") as file:
            file.truncate((1 << 30) + 1)  # a hole
    elif place == "a folder":
        path.mkdir()
    else:
        wrong = {
            "duplicates": pa.table(
                {"ordinal": [0, 0, 1], "s1_known": [True] * 3, "s1_low": [1, 2, 3]}
            ),
            "another type": pa.table({"ordinal": [0], "s1_known": [5], "s1_low": [["a"]]}),
        }[place]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, wrong.schema) as writer:
            writer.write_table(wrong)
        data = sink.getvalue().to_pybytes()
        path.write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        part = replace(part, bytes=len(data), digest=digest, identities=False)
        segment = log.Segment(len(wrong), (part,))
    forged = json.loads(log.Commit("s", 1, "", "i", add=(segment,)).to_bytes())["add"]
    commit_raw(url, "i", add=forged, set={"next": 9})
    one.reserve("j", 1)
    assert len(other.definitions()) == 2
    assert ask(other, HIGH, index="j") == [0]
    (ordinal,) = other.reserve("j", 1)
    other.write("j", entries([ordinal], bounds([9])), revision=1)
    assert ask(other, HIGH, index="j") == [0]
    if place != "duplicates":  # which has no new sketches
        with pytest.raises(StoreError):
            other.catalogue("i", fields=["s1_low"])


def test_a_commit_has_a_whole_number(url: str) -> None:
    one = driver(url, "one")
    fill(one, bounds([1, 2]))
    commit_raw(url, "i", version=4.0)
    with pytest.raises(StoreError, match=r"commit 4 is invalid: says that it is 4\.0"):
        driver(url, "other").definitions()


def test_a_commit_with_a_lone_surrogate_is_damaged(url: str) -> None:
    fill(driver(url, "one"), bounds([1, 2]))
    commit_raw(url, "\ud800")
    with pytest.raises(StoreError, match="commit 4 is invalid"):
        driver(url, "other").definitions()


def test_a_commit_larger_than_readers_accept_is_not_written(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = driver(url, "one")
    fill(one, bounds(range(100)))
    monkeypatch.setattr(log, "MOST_COMMIT", 500)
    with pytest.raises(StoreError, match="too large"):
        one.remove("i", pa.array(range(0, 100, 2)))
    monkeypatch.undo()
    assert len(driver(url, "other").catalogue("i").files) == 100


def test_a_checkpoint_larger_than_readers_accept_is_not_written(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = driver(url, "one")
    fill(one, bounds([1, 2]))
    for n in range(10):
        fill(one, bounds([1]), index=f"i{n}")
    with monkeypatch.context() as patched:
        patched.setattr(log, "MOST_COMMIT", 2_000)
        for _ in range(upkeep.CHECKPOINT):
            one.reserve("i", 1)
        assert ObstoreObjects(url).get(log.HINT, most=999) is None
    assert state_of(driver(url, "other")) == state_of(one)


def test_a_linked_folder_in_the_store_does_not_delete_files_elsewhere(
    url: str, tmp_path: Path
) -> None:
    one = driver(url, "one")
    fill(one, bounds([1, 2]))
    precious = tmp_path / "home"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    (precious / f"{'0' * 32}").write_text("also")
    os.utime(precious / "thesis.txt", (1, 1))
    os.utime(precious / f"{'0' * 32}", (1, 1))
    for linked in ("probe", "data"):
        path = folder_of(url) / linked
        if path.exists():
            path.rename(tmp_path / linked)
        path.symlink_to(precious)
        try:
            for _ in range(upkeep.CHECKPOINT):
                one.reserve("i", 1)
        except StoreError:
            pass
        assert len(list(precious.glob("*"))) == 2
        path.unlink()


def test_objects_that_no_release_writes_are_not_deleted(url: str) -> None:
    one = driver(url, "one")
    fill(one, bounds([1, 2]))
    mine = folder_of(url) / "data/README.txt"
    mine.write_text("what this folder is")
    os.utime(mine, (1, 1))
    for _ in range(upkeep.CHECKPOINT):
        one.reserve("i", 1)
    assert mine.exists()


@pytest.mark.parametrize("name", ["log/0000000004.json", log.HINT])
def test_a_pipe_in_the_store_does_not_hang(url: str, name: str) -> None:
    fill(driver(url, "one"), bounds([1, 2]))
    os.mkfifo(folder_of(url) / name)
    with pytest.raises(StoreError, match="is not a file"):
        driver(url, "other").definitions()


def test_a_part_of_the_folder_that_every_user_may_write_is_refused(url: str) -> None:
    fill(driver(url, "one"), bounds([1, 2]))
    folder = folder_of(url)
    folder.chmod(0o755)
    for path in (folder / "log", folder / "data", folder / "log/0000000002.json"):
        before = path.stat().st_mode
        path.chmod(before | 0o002)
        with pytest.raises(StoreError, match="every user may write"):
            driver(url, f"other{path.name}").catalogue("i")
        path.chmod(before)


def test_maintenance_goes_on_if_an_index_lacks_objects(url: str) -> None:
    one = driver(url, "one")
    for index in ("i", "j"):
        one.define(definition(index, table=index), expect=None)
        one.reserve(index, 100)
        for n in range(10):
            one.write(index, entries([n], bounds([n])), revision=1)
    ObstoreObjects(url).replace(one.segments("i")[3].id, b"damaged")
    for _ in range(upkeep.CHECKPOINT):
        one.reserve("j", 1)
    assert ObstoreObjects(url).get(log.HINT, most=999) is not None
    assert len(one.segments("j")) == 1
    assert len(one.segments("i")) == 10


def test_a_host_suspended_in_maintenance_deletes_nothing_that_is_live(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two days pass between the checkpoint that it makes and its list of old objects."""
    one, other = driver(url, "one"), driver(url, "other")
    fill(one, bounds([1, 2]))
    made = one._replica.checkpoint()
    assert made is not None
    (ordinal,) = other.reserve("i", 1)
    other.write("i", entries([ordinal], bounds([5])), revision=1)
    make_old(url)
    ObstoreObjects(url).replace(made.name, made.to_bytes())
    ObstoreObjects(url).replace(log.HINT, log.hint_of(made))
    upkeep.collect(ObstoreObjects(url), made)
    assert len(driver(url, "cold").catalogue("i").files) == 3


def test_a_host_suspended_in_maintenance_does_not_set_readers_back(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = driver(url, "one"), driver(url, "other")
    fill(one, bounds([1, 2]))
    made = one._replica.checkpoint()
    assert made is not None
    for _ in range(upkeep.CHECKPOINT):
        other.reserve("i", 1)
    make_old(url)
    for _ in range(upkeep.CHECKPOINT):
        other.reserve("i", 1)
    # It wakes up.
    monkeypatch.setattr(one._replica, "checkpoint", lambda: made)
    one._writer.maintain()
    cold = driver(url, "cold")
    assert state_of(cold) == state_of(other)
    assert cold.reserve("i", 1).start == 2 + 2 * upkeep.CHECKPOINT


def test_old_commits_are_deleted_in_order(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a collection that ends halfway leaves no gap that a reader takes for the end."""
    one = driver(url, "one")
    fill(one, bounds([1, 2]))
    make_old(url)
    deleted: list[str] = []
    monkeypatch.setattr(ObstoreObjects, "delete", lambda _, names: deleted.extend(names))
    for _ in range(upkeep.CHECKPOINT):
        one.reserve("i", 1)
    logged = [name for name in deleted if name.startswith("log/")]
    assert logged
    assert logged == sorted(logged)


def test_two_stores_with_one_replica_do_not_write_into_each_other(tmp_path: Path) -> None:
    """As with one address at two endpoints."""
    urls = [f"file://{tmp_path}/{name}" for name in ("prod", "dev")]
    one, other = (FolderStore(ObstoreObjects(each), tmp_path / "same.sqlite") for each in urls)
    fill(one, bounds([1, 2]))
    fill(other, bounds([3, 4, 5]))
    for _ in range(3):
        for store in (one, other):
            (ordinal,) = store.reserve("i", 1)
            store.write("i", entries([ordinal], bounds([ordinal])), revision=1)
    cold = [FolderStore(ObstoreObjects(url), tmp_path / f"{n}") for n, url in enumerate(urls)]
    assert [len(each.catalogue("i").files) for each in cold] == [5, 6]
    assert len({each._replica.position().store for each in cold}) == 2  # type: ignore[union-attr]
    assert [len(each.catalogue("i").files) for each in (one, other)] == [5, 6]


def test_a_host_suspended_before_its_commit_writes_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = driver(url, "one")
    fill(one, bounds([1, 2]))
    (ordinal,) = one.reserve("i", 1)
    passed = 0.0
    for module in ("store", "writer"):
        name = f"skipping.stores.folder.{module}.boot_time"
        monkeypatch.setattr(name, lambda: boot_time() + passed)
    upload = one._writer.upload

    def suspend(given: pa.Table) -> Any:
        nonlocal passed
        yield from upload(given)
        passed = DAYS
        (folder_of(url) / one_part(url)).unlink()

    monkeypatch.setattr(one._writer, "upload", suspend)
    with pytest.raises(StoreError, match="try again"):
        one.write("i", entries([ordinal], bounds([5])), revision=1)
    monkeypatch.setattr(one._writer, "upload", upload)
    one.write("i", entries([ordinal], bounds([5])), revision=1)
    assert len(driver(url, "cold").catalogue("i").files) == 3


def one_part(url: str) -> str:
    """The newest object."""
    return max(ObstoreObjects(url).list("data/"), key=lambda each: each.modified).name


def test_a_lost_hint_does_not_hide_the_store(url: str) -> None:
    one = driver(url, "one")
    fill(one, bounds([1, 2]))
    for _ in range(upkeep.CHECKPOINT):
        one.reserve("i", 1)
    make_old(url)
    for _ in range(upkeep.CHECKPOINT):
        one.reserve("i", 1)
    (folder_of(url) / log.HINT).unlink()
    cold = driver(url, "cold")
    assert state_of(cold) == state_of(one)
    fill(driver(url, "new"), bounds([1]), index="j")
    assert not (folder_of(url) / log.commit_name(1)).exists()


def test_a_commit_with_endless_values_is_refused_before_it_is_parsed(url: str) -> None:
    fill(driver(url, "one"), bounds([1, 2]))
    wide = b"[" + b"[]," * (log.MOST_VALUES // 2) + b"[]]"
    ObstoreObjects(url).create(log.commit_name(4), wide)
    with pytest.raises(StoreError, match="too large"):
        driver(url, "other").definitions()


def test_queries_do_not_read_an_invalid_log_each_time(url: str) -> None:
    fill(driver(url, "one"), bounds([1, 20]))
    objects = Failing(ObstoreObjects(url))
    other = driver(url, "other", objects, ttl=0.2)
    assert len(other.catalogue("i", fields=["s1_low"]).files) == 2
    ObstoreObjects(url).create(log.commit_name(4), b"{}")
    time.sleep(0.3)
    for _ in range(3):
        other._follower.ttl = 0.2
        assert ask(other, HIGH) == [0]
        other._follower.ttl = 60.0
        time.sleep(0.5)
        objects.requests.clear()
        for _ in range(5):
            assert ask(other, HIGH) == [0]
        time.sleep(0.1)
        assert objects.requests == []


def test_a_lease_does_not_wait_for_maintenance(url: str) -> None:
    one = driver(url, "one")
    fill(one, bounds([1, 2]))
    gate = threading.Event()

    class Slow(ObstoreObjects):
        def list(self, prefix: str) -> Any:
            assert gate.wait(60)
            return super().list(prefix)

    other = driver(url, "other", Slow(url))
    other.definitions()
    lease = Lease()
    for n in range(upkeep.CHECKPOINT):
        taken = replace(lease, owner=f"driver-{n}")
        other.hold("i", taken, expect=lease, timeout=30)
        lease = taken
    gate.set()
    deadline = time.monotonic() + 60
    while ObstoreObjects(url).get(log.HINT, most=999) is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_queries_do_not_wait_for_a_writer_of_their_host(url: str) -> None:
    """It has the replica's lock while its commit is sent."""
    fill(driver(url, "one"), bounds([1, 20]))
    writer, reader = driver(url, "one", Failing(ObstoreObjects(url))), driver(url, "one")
    held, gate = threading.Event(), threading.Event()

    def create(commit: log.Commit) -> bool:
        held.set()
        return gate.wait(60)

    def publish() -> None:
        writer._replica.publish(
            lambda at: (
                log.Commit(at.store, at.version + 1, at.commit, "i", {"next": 9}) if at else None
            ),
            {},
            create,
        )

    thread = threading.Thread(target=publish)
    thread.start()
    assert held.wait(60)
    try:
        began = time.monotonic()
        assert ask(reader, FieldCompare("low", ">", 10, "s1")) == [0]
        assert len(reader.catalogue("i", timeout=60).files) == 2
        assert time.monotonic() - began < 20
    finally:
        gate.set()
        thread.join()


@pytest.mark.parametrize("call", ["catalogue", "ordinals", "remove"])
def test_a_replica_that_another_process_empties_is_loaded_again(
    url: str, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    one, other = driver(url, "one"), driver(url, "one")
    fill(one, bounds([1, 20]))
    checkpoint = one._replica.checkpoint()
    ensure, emptied = one._follower.ensure, list[bool]()

    def empty_once(index: str, wanted: Any) -> bool:
        found = ensure(index, wanted)
        if not emptied:
            emptied.append(True)
            other._replica.restart(checkpoint)
        return found

    monkeypatch.setattr(one._follower, "ensure", empty_once)
    if call == "catalogue":
        assert len(one.catalogue("i").files) == 2
    elif call == "ordinals":
        assert one.ordinals("i", entries([0, 1])).to_pylist() == [0, 1]
    else:
        one.remove("i", pa.array([0]))
        assert driver(url, "cold").catalogue("i").files["ordinal"].to_pylist() == [1]


def test_objects_are_loaded_some_at_a_time(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = driver(url, "one")
    one.define(definition(), expect=None)
    one.reserve("i", 20)
    for n in range(20):
        values = {**bounds([n]), "s2_known": [True], "s2_values": [["a" * 100_000]]}
        one.write("i", entries([n], values), revision=1)
    other = driver(url, "other")
    sizes: list[int] = []
    load = other._replica.load

    def spy(index: str, tables: dict[str, pa.Table]) -> None:
        sizes.append(sum(each.nbytes for each in tables.values()))
        load(index, tables)

    monkeypatch.setattr(other._replica, "load", spy)
    monkeypatch.setattr("skipping.stores.folder.follower._AT_ONCE", 1 << 18)
    assert state_of(other) == state_of(one)
    assert max(sizes) < 1 << 19
    assert IDENTITIES in other._replica.progress("i").in_use
