"""A copy of a store is all of it, as it was at one moment, or nothing."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from providers.errors import Damaged, NoStore, StoreError
from skipping.__main__ import main
from skipping.model.definition import State
from skipping.stores import IndexStore
from skipping.stores.copy import CopyResult, copy
from skipping.stores.folder.objects import ObstoreObjects
from skipping.stores.folder.store import FolderStore
from skipping.stores.memory.store import MemoryStore
from skipping.stores.sqlite.store import SqliteStore
from tests.conftest import RunPython
from tests.skipping.stores.samples import bounds, definition, entries, fill, filters
from tests.skipping.stores.test_damaged import false_skips, grown


def build_store(store: IndexStore) -> None:
    values = bounds([1, None, 3], [True, False, True])
    values |= {"s2_known": [True] * 3, "s2_values": [["b", "a"], None, []]}
    fill(store, values | filters([b"\0\xff", None, b"a"], [1, 2, None]))
    store.reserve("i", 4)
    store.write("i", entries([6, 5], stamp=[7, None]), revision=1)
    store.remove("i", pa.array([5]))
    store.report("i", State("active", 4, revision=1, at=1.5))
    store.define(definition("gone", table="gone", dropped=True), expect=None)


def rows(store: IndexStore) -> list[dict[str, object]]:
    whole = pa.concat_tables(store.entries("i"), promote_options="default")
    return [
        {k: (sorted(v) or None) if isinstance(v, list) else v for k, v in sorted(row.items())}
        for row in whole.to_pylist()
    ]


@pytest.mark.parametrize("source", ["memory", "sqlite", "folder"])
@pytest.mark.parametrize("target", ["memory", "sqlite", "folder"])
def test_all_of_it(source: str, target: str, tmp_path: Path) -> None:
    def make_store(kind: str, name: str) -> IndexStore:
        if kind == "folder":
            replica = tmp_path / "replicas" / f"{name}.db"
            return FolderStore(ObstoreObjects((tmp_path / name).as_uri()), replica)
        return MemoryStore(name) if kind == "memory" else SqliteStore(tmp_path / f"{name}.db")

    one, other = make_store(source, "one"), make_store(target, "other")
    build_store(one)
    assert copy(one, other) == CopyResult(1, 4)
    assert rows(other) == rows(one)
    assert [row["ordinal"] for row in rows(other)] == [0, 1, 2, 6]
    (found,) = (each for each in other.definitions() if not each.value.dropped)
    assert found.value == definition(table="i")
    assert other.state("i") == State("active", 4, revision=found.revision, at=1.5)
    assert other.reserve("i", 1).start >= 7
    # And it can be written to.
    other.write("i", entries([7]), revision=found.revision)
    left = [p.name for p in tmp_path.iterdir() if p.is_file()]
    assert sorted(left) == sorted(
        f"{name}.db" for kind, name in ((source, "one"), (target, "other")) if kind == "sqlite"
    )


def test_while_it_is_written(tmp_path: Path) -> None:
    store = grown(tmp_path / "one.db", random.Random(1), 2)
    ended = threading.Event()

    def write() -> None:
        while not ended.is_set():
            grown(tmp_path / "one.db", random.Random(2), 5)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for n in range(3):
            copy(store, SqliteStore(tmp_path / f"copy{n}.db"))
            assert false_skips(tmp_path / f"copy{n}.db", range(0, 400, 90)) == 0
    finally:
        ended.set()
        thread.join()
    assert (tmp_path / "copy0.db").stat().st_mode & 0o777 == 0o600


def test_what_is_there_is_left_alone(tmp_path: Path) -> None:
    one, other = SqliteStore(tmp_path / "one.db"), SqliteStore(tmp_path / "other.db")
    build_store(one)
    build_store(other)
    before = (tmp_path / "other.db").read_bytes()
    for target in (other, one):
        with pytest.raises(StoreError, match="name an"):
            copy(one, target)
    (tmp_path / "text.db").write_text("mine")
    with pytest.raises(StoreError):
        copy(one, SqliteStore(tmp_path / "text.db"))
    assert (tmp_path / "text.db").read_text() == "mine"
    assert (tmp_path / "other.db").read_bytes() == before
    with pytest.raises(NoStore):
        copy(SqliteStore(tmp_path / "none.db"), SqliteStore(tmp_path / "new.db"))
    assert not (tmp_path / "new.db").exists()


@pytest.mark.parametrize("target", ["memory", "sqlite"])
def test_of_a_damaged_store_there_is_no_copy(target: str, tmp_path: Path) -> None:
    path = tmp_path / "one.db"
    store = grown(path, random.Random(1), 2)
    data = path.read_bytes()
    for at in range(len(data) - 3_000, 0, -4_096):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        try:
            false_skips(path, range(1))
        except Damaged:
            break
    other = MemoryStore("x") if target == "memory" else SqliteStore(tmp_path / "other.db")
    with pytest.raises(StoreError):
        copy(store, other)
    assert [p.name for p in tmp_path.iterdir()] == ["one.db"]
    if target == "memory":
        assert not any(each.value.enabled for each in other.definitions())


def test_on_the_command_line(run_python: RunPython, tmp_path: Path) -> None:
    build_store(SqliteStore(tmp_path / "one.db"))
    command = ("-m", "skipping", "copy", tmp_path / "one.db", f"sqlite:{tmp_path}/other.db")
    done = run_python(*command)
    assert (done.returncode, done.stdout) == (
        0,
        f"copied 1 indexes with 4 files to sqlite:{tmp_path}/other.db\n",
    )
    again = run_python(*command)
    assert again.returncode == 1
    assert "has indexes already" in again.stderr
    assert rows(SqliteStore(tmp_path / "other.db")) == rows(SqliteStore(tmp_path / "one.db"))


def test_copy_of_a_folder_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    build_store(SqliteStore(tmp_path / "one.db"))
    shared = (tmp_path / "shared").as_uri()
    assert main(["copy", f"sqlite:{tmp_path}/one.db", shared]) == 0
    assert main(["copy", shared, f"sqlite:{tmp_path}/other.db"]) == 0
    assert rows(SqliteStore(tmp_path / "other.db")) == rows(SqliteStore(tmp_path / "one.db"))
    assert main(["copy", "hdfs://name:8020/index", shared]) == 1
    assert "can only be opened in a Spark session" in capsys.readouterr().err
