"""The folder store: two drivers, failing requests, lost responses, forged objects."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyarrow.dataset import dataset

from providers.errors import NoStore, StoreError
from providers.index_predicate import Contains, FieldCompare
from skipping import SkippingIndex
from skipping.model.definition import State
from skipping.stores.folder import log, upkeep
from skipping.stores.folder.objects import Listed, ObstoreObjects, local_folder
from skipping.stores.folder.replica import Replica
from skipping.stores.folder.store import FolderStore
from skipping.stores.memory.store import MemoryStore
from tests.object_store import options_at
from tests.skipping.stores.samples import ask, bounds, definition, entries, fill, race

LARGE = 1 << 21


@dataclass
class Failing:
    """Objects where one request fails: before it is sent, or after it was answered."""

    objects: ObstoreObjects
    fails_at: int = -1
    answered: bool = False
    requests: list[str] = field(default_factory=list)

    @property
    def location(self) -> str:
        return self.objects.location

    def get(self, name: str, *, most: int) -> bytes | None:
        return self._send(f"get {name}", lambda: self.objects.get(name, most=most))

    def create(self, name: str, data: bytes) -> bool:
        return self._send(f"create {name}", lambda: self.objects.create(name, data))

    def replace(self, name: str, data: bytes) -> None:
        self._send(f"replace {name}", lambda: self.objects.replace(name, data))

    def list(self, prefix: str) -> Iterator[Listed]:
        return iter(self._send(f"list {prefix}", lambda: [*self.objects.list(prefix)]))

    def delete(self, names: Sequence[str]) -> None:
        self._send("delete", lambda: self.objects.delete(names))

    def _send(self, request: str, send: Any) -> Any:
        self.requests.append(request)
        fails = len(self.requests) - 1 == self.fails_at
        if fails and not self.answered:
            raise StoreError("the connection is closed")
        found = send()
        if fails:
            raise StoreError("the response is lost")
        return found


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/shared"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "CHECKPOINT", 16)


@pytest.fixture(
    params=["file", pytest.param("s3", marks=[pytest.mark.process, pytest.mark.nightly])]
)
def any_url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue("url" if request.param == "file" else "s3_url")
    return found


def driver(url: str, name: str = "a", objects: Any = None, **more: Any) -> FolderStore:
    """A driver on a host of its own."""
    folder = local_folder(url)
    path = (folder.parent if folder else Path.cwd()) / f"{name}-{crc32(url.encode())}.sqlite"
    return FolderStore(objects or ObstoreObjects(url), path, **more)


def state_of(store: FolderStore) -> object:
    """Everything that a reader can see."""
    found = []
    for each in store.definitions():
        index = each.value.index
        rows = [row for table in store.entries(index) for row in table.to_pylist()]
        rows.sort(key=lambda row: int(row["ordinal"]))
        for row in rows:
            terms = row.get("s2_values")
            row["s2_values"] = sorted(terms) if terms else None
        found.append((each, store.state(index), store.lease(index), rows))
    return found


def test_two_drivers_see_what_the_other_wrote(any_url: str) -> None:
    url = any_url
    one, other = driver(url, "one"), driver(url, "other")
    ordinals = fill(one, bounds([1, 20]))
    with pytest.raises(NoStore):
        driver(url, "empty", ObstoreObjects(f"{url}/of-nobody")).definitions()
    assert ask(other, FieldCompare("low", ">", 10, "s1")) == [0]
    assert other.definition("i") == one.definition("i")
    more = other.reserve("i", 1)
    assert more.start == ordinals.stop
    other.write("i", entries(more, bounds([30])), revision=1)
    one.remove("i", pa.array([1]))
    assert state_of(one) == state_of(other)
    assert ask(one, FieldCompare("low", ">", 10, "s1")) == [0]
    assert ask(one, FieldCompare("low", "<", 10, "s1")) == [2]
    other.define(definition(table="i", dropped=True), expect=1)
    other.erase("i")
    assert one.definition("i") is None


def test_a_reader_of_a_new_store_leaves_what_a_writer_of_its_replica_has(url: str) -> None:
    """It looks for a log before the first commit, and continues after it."""
    writer, positions = driver(url), list[object]()

    class Slow(Failing):
        def list(self, prefix: str) -> Iterator[Listed]:
            found = super().list(prefix)
            if prefix == "log/" and not positions:
                writer.define(definition(), expect=None)
                positions.append(writer._replica.position())
            return found

        def get(self, name: str, *, most: int) -> bytes | None:
            if positions:
                positions.append(writer._replica.position())
            return super().get(name, most=most)

    reader = driver(url, objects=Slow(ObstoreObjects(url)))
    assert [each.value.index for each in reader.definitions()] == ["i"]
    assert len(positions) > 1
    assert None not in positions


def test_sketches_are_read_when_they_are_needed(url: str) -> None:
    one, failing = driver(url, "one"), Failing(ObstoreObjects(url))
    large = {
        **bounds([1, 2]),
        "s3_known": [True] * 2,
        "s3_filter": [os.urandom(LARGE)] * 2,
        "s3_layout": [1, 1],
        "s2_known": [True] * 2,
        "s2_values": [["a"], ["b"]],
    }
    fill(one, large)
    other = driver(url, "other", failing)
    assert len(other.catalogue("i", fields=["s1_low"]).files) == 2
    read = [request for request in failing.requests if ".arrow" in request]
    assert len(read) == 1, "the identities and bounds only"
    assert ask(other, Contains("values", pa.array(["a"]), "s2")) == [1]
    assert sum(".arrow" in request for request in failing.requests) == 2
    assert state_of(one) == state_of(other)
    assert sum(".arrow" in request for request in failing.requests) == 3


@pytest.mark.parametrize("answered", [False, True], ids=["not sent", "response lost"])
def test_a_writer_that_ends_at_any_request_leaves_all_or_nothing(
    any_url: str, answered: bool
) -> None:
    for fails_at in range(100):
        url = f"{any_url}-{fails_at}"
        fill(driver(url, "one"), bounds([1, 2]))
        objects = Failing(ObstoreObjects(url))
        writer = driver(url, "writer", objects)
        writer.definitions()
        objects.requests.clear()
        objects.fails_at, objects.answered = fails_at, answered
        steps = (
            partial(writer.reserve, "i", 2),
            partial(writer.write, "i", entries([2, 3], bounds([3, 4])), revision=1),
            partial(writer.report, "i", State("active", 7)),
            partial(writer.remove, "i", pa.array([0])),
        )
        failed = False
        for step in steps:
            try:
                step()
            except StoreError:
                failed = True
                break
        reader = driver(url, "reader")
        kept = [row.as_py() for row in reader.catalogue("i").files["ordinal"]]
        assert kept in ([0, 1], [0, 1, 2, 3], [1, 2, 3])
        assert state_of(reader) == state_of(driver(url, "one")) == state_of(driver(url, "writer"))
        if not failed and fails_at >= len(objects.requests):
            assert kept == [1, 2, 3]
            break
    else:
        pytest.fail("the steps have more than 100 requests")
    assert fails_at > 4


def test_of_many_writers_no_commit_is_lost(url: str) -> None:
    driver(url, "one").define(definition(), expect=None)

    def write(number: int) -> list[int]:
        mine = driver(url, f"w{number}")
        mine.definitions()
        got = []
        for _ in range(10):
            (ordinal,) = mine.reserve("i", 1)
            mine.write("i", entries([ordinal], bounds([ordinal])), revision=1)
            got.append(ordinal)
        return got

    done = race(6, write)
    assert sorted(ordinal for got in done for ordinal in got) == list(range(60))
    reader = driver(url, "reader")
    assert reader.catalogue("i").files["ordinal"].to_pylist() == list(range(60))
    commits = [each for each in ObstoreObjects(url).list("log/") if "check" not in each.name]
    assert len(commits) == 1 + 60 + 60 + sum(
        len(log.Commit.parse(data, n).merged) > 0
        for n in range(1, len(commits) + 1)
        if (data := ObstoreObjects(url).get(log.commit_name(n), most=LARGE)) is not None
    )


def test_checkpoints_merge_segments_and_old_objects_are_deleted(url: str) -> None:
    one, other = driver(url, "one"), driver(url, "other")
    one.define(definition(), expect=None)
    other.definitions()
    one.reserve("i", 70)
    for n in range(50):
        values = {"s2_known": [True], "s2_values": [[f"v{n}"]], **bounds([n])}
        one.write("i", entries([n], values), revision=1)
        if n % 10 == 0:
            one.remove("i", pa.array([n]))
    assert len(one.segments("i")) < 24
    cold = driver(url, "cold")
    assert state_of(one) == state_of(other) == state_of(cold)
    assert ask(cold, FieldCompare("low", "<", 48, "s1")) == [48, 49]
    folder = Path(url.removeprefix("file://"))
    before = len(list(folder.rglob("*.*")))
    past = time.time() - 2 * 86_400
    for path in folder.rglob("*.*"):
        os.utime(path, (past, past))
    for n in range(50, 50 + upkeep.CHECKPOINT):
        one.write("i", entries([n], bounds([n])), revision=1)
    assert len(list(folder.rglob("*.*"))) < before / 2
    assert state_of(one) == state_of(other) == state_of(driver(url, "late")) == state_of(cold)


def test_options_of_the_http_client_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    assert ObstoreObjects("s3://lake/x")._store().client_options["allow_http"] == "true"
    objects = ObstoreObjects(
        "s3://lake/x", {**options_at(1), "timeout": "9s", "AWS_CONNECT_TIMEOUT": "1s"}
    )
    options = objects._store().client_options
    assert (options["timeout"], options["connect_timeout"]) == ("9s", "1s")


def test_staged_files_of_killed_writers_are_deleted(url: str) -> None:
    one = driver(url, "one")
    fill(one, bounds([1, 2]))
    folder = Path(url.removeprefix("file://"))
    # As Rust's object_store leaves them.
    staged = [
        folder / "log/0000000009.json#1",
        folder / f"data/{'0' * 32}.arrow#1",
        folder / f"log/{'1' * 10}.json#2",
    ]
    past = time.time() - 2 * upkeep.RETENTION.total_seconds()
    for path in staged:
        path.write_bytes(b"half")
    for path in staged[:2]:
        os.utime(path, (past, past))
    for _ in range(upkeep.CHECKPOINT):
        one.reserve("i", 1)
    assert [path.exists() for path in staged] == [False, False, True]
    assert len(driver(url, "other").catalogue("i").files) == 2


def test_an_object_of_the_future_ages_no_other(url: str) -> None:
    one = driver(url, "one")
    fill(one, bounds([1, 2]))
    # Uploaded, but not committed yet.
    ObstoreObjects(url).create(f"data/{'0' * 32}.arrow", b"new")
    ObstoreObjects(url).create(f"data/{'f' * 32}.arrow", b"of another clock")
    folder = Path(url.removeprefix("file://"))
    future = time.time() + 2 * upkeep.RETENTION.total_seconds()
    os.utime(folder / f"data/{'f' * 32}.arrow", (future, future))
    for _ in range(upkeep.CHECKPOINT):
        one.reserve("i", 1)
    assert (folder / f"data/{'0' * 32}.arrow").exists()


def test_a_folder_that_was_made_again_is_read_again(url: str, tmp_path: Path) -> None:
    one, other = driver(url, "one"), driver(url, "other")
    fill(one, bounds([1, 2]))
    assert len(other.catalogue("i").files) == 2
    (tmp_path / "shared").rename(tmp_path / "old")
    again = driver(url, "again")
    fill(again, bounds([5]), index="j")
    # As after ten minutes.
    other._follower._confirmed_at = one._follower._confirmed_at = -1e9
    assert state_of(other) == state_of(again) == state_of(one)


def test_a_change_is_a_request_and_one_for_entries(url: str) -> None:
    fill(driver(url, "one"), bounds([1, 2]))
    objects = Failing(ObstoreObjects(url))
    other = driver(url, "other", objects)
    other.definitions()
    objects.requests.clear()
    (ordinal,) = other.reserve("i", 1)
    assert len(objects.requests) == 1
    other.write("i", entries([ordinal], bounds([3])), revision=1)
    assert len(objects.requests) == 3
    other.report("i", State("active", 2))
    assert len(objects.requests) == 4


def test_a_warm_lookup_reads_the_replica_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = driver(url, "one"), driver(url, "other", ttl=60.0)
    fill(one, bounds([1, 20]))
    assert len(other.catalogue("i").files) == 2
    warm = FieldCompare("low", ">", 10, "s1")
    deadline = time.monotonic() + 60
    # The first lookup notes in background what it uses.
    while ("i", "s1") not in other._follower._loaded:
        assert time.monotonic() < deadline
        assert ask(other, warm) == [0]
    with monkeypatch.context() as patched:
        for name in ("position", "progress"):
            patched.setattr(Replica, name, None)
        assert ask(other, warm) == [0]
    one.write("i", entries(one.reserve("i", 1), bounds([5])), revision=1)
    other._follower._read_at -= 1  # a second later
    assert len(other.catalogue("i").files) == 3
    assert ask(other, warm) == [0, 2]


def test_commit_after_a_long_suspension_is_taken_back(url: str) -> None:
    class Suspended(ObstoreObjects):
        """Others go on, and the log is collected, before a commit is sent."""

        store: FolderStore | None = None

        def create(self, name: str, data: bytes) -> bool:
            store, self.store = self.store, None
            if store is not None:
                folder = Path(url.removeprefix("file://"))
                for path in (folder / "log").iterdir():
                    path.unlink()
                store._follower._confirmed_at -= 86_400
            return super().create(name, data)

    fill(driver(url, "one"), bounds([1, 2]))
    objects = Suspended(url)
    writer = driver(url, "writer", objects)
    writer.definitions()
    objects.store = writer
    with pytest.raises(StoreError, match="while this process was suspended: try again"):
        writer.reserve("i", 1)
    assert [each.name for each in objects.list("log/")] == []


def test_storage_without_conditional_writes_is_refused(url: str) -> None:
    class Overwrites(ObstoreObjects):
        def create(self, name: str, data: bytes) -> bool:
            self.replace(name, data)
            return True

    with pytest.raises(StoreError, match="does not support conditional writes"):
        driver(url, objects=Overwrites(url)).define(definition(), expect=None)


def test_a_conflict_is_not_taken_for_an_object_that_exists(url: str) -> None:
    """As Amazon's 409 for a key that is being written or deleted; Rust's object_store hides it."""

    class Conflicts(ObstoreObjects):
        conflicts = 0

        def create(self, name: str, data: bytes) -> bool:
            self.conflicts += not name.startswith("probe/")
            return self.conflicts % 2 == 0 and super().create(name, data)

    one = driver(url, "one", Conflicts(url))
    one.define(definition(), expect=None)
    one.reserve("i", upkeep.CHECKPOINT)
    for n in range(upkeep.CHECKPOINT):
        one.write("i", entries([n], bounds([n])), revision=1)
    cold = driver(url, "cold")
    assert state_of(cold) == state_of(one)
    assert len(cold.catalogue("i").files) == upkeep.CHECKPOINT


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"[" * 100_000,
        b'{"format": 1}',
        b'{"format": 1, "store": 5}',
        pytest.param({"version": 9}, id="another version"),
        pytest.param({"set": {"next": -1}}, id="a negative number"),
        pytest.param({"set": {"rm": "-rf"}}, id="an unknown field"),
        pytest.param({"removed": [[5, 1]]}, id="a range backwards"),
        pytest.param({"merged": ["../../etc/passwd"]}, id="a path outside"),
        pytest.param(
            {"add": [{"rows": 1, "parts": [{"name": "data/../../x.arrow"}]}]}, id="a part outside"
        ),
        pytest.param({"store": "other"}, id="another store"),
        pytest.param({"previous": "other"}, id="another past"),
    ],
)
def test_a_forged_commit_leaves_what_was_there(url: str, wrong: bytes | dict[str, Any]) -> None:
    one = driver(url, "one")
    fill(one, bounds([1, 2]))
    position = one._replica.position()
    assert position is not None
    objects, version = ObstoreObjects(url), position.version + 1
    commit = log.Commit(position.store, version, position.commit, "i", {"next": 9})
    if isinstance(wrong, dict):
        wrong = json.dumps({**json.loads(commit.to_bytes()), **wrong}).encode()
    objects.create(log.commit_name(version), wrong)
    with pytest.raises(StoreError):
        one.definitions()
    warm = driver(url, "one", ttl=60)
    warm._follower._read_at = time.monotonic()
    assert ask(warm, FieldCompare("low", ">", 1, "s1")) == [0]


def test_a_reader_starts_again_after_a_restore(url: str) -> None:
    """The log has other commits of the same numbers."""
    one, reader = driver(url, "one"), driver(url, "reader")
    fill(one, bounds([1, 2]))
    folder = local_folder(url)
    assert folder is not None
    kept = {path: path.read_bytes() for path in folder.rglob("*.*")}

    def add(store: FolderStore, low: int) -> None:
        (ordinal,) = store.reserve("i", 1)
        store.write("i", entries([ordinal], bounds([low])), revision=1)

    add(one, 3)
    assert ask(reader, FieldCompare("low", "<", 3, "s1")) == [2]
    for path in set(folder.rglob("*.*")) - set(kept):
        path.unlink()
    new = driver(url, "new")
    for low in (9, 3):
        add(new, low)
    assert state_of(reader) == state_of(new)
    assert ask(reader, FieldCompare("low", "<", 4, "s1")) == [2]


def test_a_newer_format_names_the_way_out(url: str) -> None:
    one = driver(url, "one")
    fill(one, bounds([1, 2]))
    newer = {"format": log.FORMAT + 1, "anything": "else"}
    ObstoreObjects(url).create(log.commit_name(4), json.dumps(newer).encode())
    with pytest.raises(StoreError, match="has format 2, but this release reads format 1: upgrade"):
        one.definitions()


@pytest.mark.parametrize("forged", ["damaged", "missing"])
def test_a_forged_object_costs_its_index_the_skipping_only(url: str, forged: str) -> None:
    one = driver(url, "one")
    fill(one, bounds([1, 2]), index="i")
    fill(one, bounds([3, 4]), index="j")
    (path,) = (each.parts[0].name for each in one.segments("i"))
    if forged == "damaged":
        ObstoreObjects(url).replace(path, b"x" * 100)
    else:
        ObstoreObjects(url).delete([path])
    other = driver(url, "other")
    assert len(other.definitions()) == 2
    with pytest.raises(StoreError, match="objects of index i: run DROP SKIPPING INDEX"):
        other.catalogue("i")
    assert len(other.catalogue("j").files) == 2
    assert ask(other, FieldCompare("low", ">", 3, "s1"), index="j") == [0]


def test_the_format_can_be_read_with_pyarrow_alone(url: str) -> None:
    """As docs/folder-format.md describes it."""
    one = driver(url, "one")
    one.define(definition(), expect=None)
    one.reserve("i", 400)
    for n in range(0, 300, 3):
        one.write("i", entries(range(n, n + 3), bounds([n, n + 1, n + 2])), revision=1)
    one.remove("i", pa.array([4, 5, 90]))
    root = Path(url.removeprefix("file://"))

    indexes: dict[str, Any] = {}
    version = 0
    hint = root / "log/_last_checkpoint"
    if hint.exists():
        version = json.loads(hint.read_text())["version"]
        indexes = json.loads((root / f"log/{version:010}.checkpoint.json").read_text())["indexes"]
    while (path := root / f"log/{version + 1:010}.json").exists():
        version += 1
        commit = json.loads(path.read_text())
        index = indexes.setdefault(commit["index"], {"record": {}, "segments": [], "removed": []})
        index["record"].update(commit["set"])
        gone = set(commit["merged"])
        index["segments"] = [s for s in index["segments"] if s["parts"][0]["name"] not in gone]
        index["segments"] += commit["add"]
        index["removed"] = commit["removed"] + (index["removed"] if index["segments"] else [])
        if index["record"].get("dropped"):
            index["segments"] = []
    found = {}
    for segment in indexes["i"]["segments"]:
        for part in segment["parts"]:
            table = pa.ipc.open_stream((root / part["name"]).read_bytes()).read_all()
            for row in table.to_pylist():
                if not any(a <= row["ordinal"] <= b for a, b in indexes["i"]["removed"]):
                    found.setdefault(row["ordinal"], {}).update(row)
    (expected,) = (rows for _, _, _, rows in state_of(one))
    assert [
        {name: value for name, value in row.items() if name != "s2_values"} for row in expected
    ] == [found[ordinal] for ordinal in sorted(found)]


def test_a_folder_that_others_may_write_is_refused(url: str, tmp_path: Path) -> None:
    fill(driver(url, "one"), bounds([1]))
    (tmp_path / "shared").chmod(0o777)
    with pytest.raises(StoreError, match="every user may write"):
        driver(url, "other").definitions()


def test_queries_do_not_wait_for_the_log(url: str) -> None:
    fill(driver(url, "one"), bounds([1, 2]))
    objects = Failing(ObstoreObjects(url))
    other = driver(url, "other", objects, ttl=60.0)
    assert len(other.catalogue("i", timeout=60).files) == 2
    objects.requests.clear()
    for _ in range(3):
        assert len(other.definitions(timeout=60)) == 1
        assert ask(other, FieldCompare("low", ">", 1, "s1")) == [0]
    assert objects.requests == []
    other._follower._read_at -= 1
    assert len(other.definitions()) == 1, "a command reads the log, unless it was read just now"
    assert len(objects.requests) == 1


def test_queries_load_no_sketches_into_a_full_replica(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = driver(url, "one")
    large = {"s3_known": [True] * 2, "s3_filter": [os.urandom(LARGE)] * 2, "s3_layout": [1, 1]}
    terms = {"s2_known": [True] * 2, "s2_values": [["a"], ["b"]]}
    fill(one, {**bounds([1, 20]), **terms, **large})
    full, has_a = (
        driver(url, "full", replica_max_bytes=0),
        Contains("values", pa.array(["a"]), "s2"),
    )
    for _ in range(2):
        assert ask(full, has_a) == [], "unknown, so no file is pruned"
    assert ask(full, FieldCompare("low", ">", 10, "s1")) == [0], "bounds are loaded with the paths"
    assert caplog.text.count("spark.skipping.store.replica.maxBytes") == 1
    assert len(full.catalogue("i").files) == 2
    assert ask(driver(url, "roomy"), has_a) == [1]
    more = one.reserve("i", 1)
    one.write("i", entries(more, bounds([2])), revision=1)
    assert full.catalogue("i").files["ordinal"].to_pylist() == [0, 1, 2]
    assert state_of(full) == state_of(one), "commands read all sketches"


def test_describe_has_the_place_in_the_log(url: str, caplog: pytest.LogCaptureFixture) -> None:
    one = driver(url, "one")
    one.define(definition(), expect=None)
    assert caplog.text.count("can read values of the indexed columns") == 1
    assert one.describe("i") == {"segments": 0, "log version": 1, "last checkpoint": None}
    one.reserve("i", 20)
    for n in range(20):
        one.write("i", entries([n], bounds([n])), revision=1)
    found = driver(url, "other").describe("i")
    assert found["last checkpoint"] == 17, "after the commit that merges segments"
    assert found["segments"] == len(one.segments("i")) < 20
    assert one.size("i") == sum(each.bytes for each in one.segments("i"))


def test_create_where_nobody_may_write_names_the_setting(url: str) -> None:
    objects = Failing(ObstoreObjects(url), fails_at=0)
    with pytest.raises(StoreError, match=r"set spark\.skipping\.store to a folder that this user"):
        driver(url, objects=objects).define(definition(), expect=None)


def test_describe_of_an_index_has_what_its_store_adds(url: str, tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    parquet.write_table(pa.table({"id": [1]}), tmp_path / "table" / "a.parquet")
    table = dataset(tmp_path / "table", format="parquet")
    facts = SkippingIndex.create(table, "id MIN_MAX", store=driver(url)).describe()
    assert (facts["store"], facts["segments"], facts["last checkpoint"]) == (url, "1", None)
    assert int(facts["log version"] or 0) > 1
    there = SkippingIndex.create(table, "id MIN_MAX", store=MemoryStore("describe")).describe()
    more = {"segments", "log version", "last checkpoint", "price of a month", "price of a refresh"}
    assert list(there) == [name for name in facts if name not in more]
    month = int(facts["index bytes"] or 0) / 2**30 * 0.023
    assert float(facts["price of a month"] or 0) == pytest.approx(month, rel=0.05)
    assert facts["price of a refresh"] == "2.5e-05"


def test_refresh_sends_six_requests(url: str, tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()

    def add(n: int) -> Any:
        parquet.write_table(pa.table({"id": [n], "name": ["x"]}), tmp_path / f"table/{n}.parquet")
        return dataset(tmp_path / "table", format="parquet")

    objects = Failing(ObstoreObjects(url))
    store = driver(url, objects=objects, ttl=60)
    SkippingIndex.create(add(0), "id MIN_MAX, name VALUE_LIST", store=store)
    store._follower._read_at = -1e9  # a minute later
    for n in range(1, 11):
        table = add(n)
    objects.requests.clear()
    index = SkippingIndex.on(table, store=store)
    index.refresh()
    assert len(objects.requests) == 6, objects.requests
    assert len(index.files()) == 11
