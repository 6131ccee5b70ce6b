"""Who may read an SQLite store."""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pytest

from providers.errors import Conflict, StoreError
from skipping.stores.sqlite import schema as sqlite_schema
from skipping.stores.sqlite.store import SqliteStore
from tests.conftest import RunPython
from tests.skipping.stores.file import NOBODY, answers, changes, make, readings, root_only
from tests.skipping.stores.small import DEFINITION, EXPECTED

# Readers who may not write

AsNobody: TypeAlias = Callable[[Path], list[str]]

READER = """
import os, sys
import pyarrow as pa
from providers.errors import Conflict, Damaged, Rewound, StoreError
from providers.index_predicate import Contains, FieldCompare
from skipping.stores.sqlite.store import SqliteStore
store = SqliteStore(sys.argv[1], patience=5)
tests = [FieldCompare("low", ">", 1, "s1"), Contains("values", pa.array(["t7"]), "s2")]
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
try:
    print([list(a) for a in store.find_prunable("i", tests, below=10, timeout=30)])
    print(len(store.definitions()), len(store.catalogue("i", fields=["s1_low"]).files))
except StoreError as error:
    print("error:", error)
try:
    store.reserve("i", 1)
except StoreError as error:
    print("error:", error)
"""


def share(path: Path) -> None:
    """Let the group of `as_nobody` read a store."""
    os.chown(path, -1, NOBODY)
    path.chmod(0o640)


@pytest.fixture
def as_nobody(run_python: RunPython) -> AsNobody:
    """Run `READER` on a store; return the lines that it prints."""

    def run(path: Path) -> list[str]:
        done = run_python("-W", "error", "-c", READER, path)
        assert done.stderr == ""
        return done.stdout.splitlines()

    return run


@root_only
def test_a_reader_without_rights_reads_a_store_at_rest(as_nobody: AsNobody, public: Path) -> None:
    make(public / "store.db")
    share(public / "store.db")
    lines = as_nobody(public / "store.db")
    assert lines[:2] == [str(EXPECTED), "1 10"]
    assert "may not write" in lines[2]
    assert [p.name for p in public.iterdir()] == ["store.db"]


@root_only
def test_a_reader_without_rights_sees_what_a_writer_has_not_merged_yet(
    as_nobody: AsNobody, public: Path
) -> None:
    path = public / "store.db"
    store = make(path)
    share(path)
    with closing(sqlite3.connect(path)) as holder:
        holder.execute("SELECT * FROM block").fetchall()
        store.remove("i", pa.array([0]))
        assert Path(f"{path}-wal").stat().st_size > 0
        lines = as_nobody(path)
    assert lines[:2] == [str([a[1:] for a in EXPECTED]), "1 9"]


@root_only
def test_a_reader_in_a_folder_of_others_with_rights_to_the_file(
    as_nobody: AsNobody, public: Path
) -> None:
    path = public / "store.db"
    make(path)
    share(path)
    path.chmod(0o660)
    lines = as_nobody(path)
    assert lines[:2] == [str(EXPECTED), "1 10"]
    assert lines[2].startswith("error:")


@root_only
def test_a_reader_without_any_rights(as_nobody: AsNobody, public: Path) -> None:
    path = public / "store.db"
    make(path)
    lines = as_nobody(path)
    assert len(lines) == 2
    assert all("may be read" in line or "may not write" in line for line in lines), lines


@pytest.mark.parametrize("merged", [True, False])
def test_a_store_written_under_a_reader_at_rest_is_an_error(
    path: Path, merged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader of an immutable file locks nothing, so it looks afterwards whether it was one."""
    store = make(path)
    connected = sqlite_schema._connect

    def refuse(path: Path, mode: str, wait: float, limit: float) -> sqlite3.Connection:
        if "immutable" not in mode:
            raise sqlite3.OperationalError("unable to open database file")
        return connected(path, mode, wait, limit)

    monkeypatch.setattr(sqlite_schema, "_connect", refuse)
    assert answers(store) == EXPECTED
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:

        def reading() -> list[object]:
            with sqlite_schema.open_connection(path, wait=5) as connection:
                found = connection.execute("SELECT count(*) FROM block").fetchall()
                writer.execute("DELETE FROM run WHERE id = 1")
                if merged:
                    writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                    Path(f"{path}-wal").unlink()
            return found

        with pytest.raises(StoreError, match="written while it was read"):
            reading()


def test_many_small_operations_do_not_leak(path: Path) -> None:
    store = make(path)
    before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    for _ in range(50):
        store.reserve("i", 1)
        store.state("i")
    after = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    assert after <= before


# Who may read it


def test_it_is_its_owners(path: Path) -> None:
    old = os.umask(0)
    try:
        store = make(path)
        with closing(sqlite3.connect(path)) as holder:
            holder.execute("SELECT * FROM block").fetchall()
            store.reserve("i", 1)
            modes = {p.name: p.stat().st_mode & 0o777 for p in path.parent.iterdir()}
    finally:
        os.umask(old)
    assert modes == dict.fromkeys(["store.db", "store.db-wal", "store.db-shm"], 0o600)


@pytest.mark.parametrize(("before", "after"), [(0o644, 0o640), (0o664, 0o660), (0o660, 0o660)])
def test_a_writer_closes_it_to_everybody_but_the_group(
    path: Path, before: int, after: int, caplog: pytest.LogCaptureFixture
) -> None:
    store = make(path)
    path.chmod(before)
    assert answers(store) == EXPECTED
    assert path.stat().st_mode & 0o777 == before
    store.reserve("i", 1)
    store.reserve("i", 1)
    assert path.stat().st_mode & 0o777 == after
    said = [record.getMessage() for record in caplog.records]
    assert [text for text in said if "every user could open" in text] == [
        f"every user could open the store {path}: now only its owner and group can"
    ] * (before != after)


# Who else could write it


def expect_trust(path: Path) -> list[str]:
    """What a store, which was in use before, says of itself; nothing if it is trusted."""
    store, found = SqliteStore(path), set[str]()
    for use in [*readings(store), *changes(store)[:2]]:
        try:
            use()
        except StoreError as error:
            found.add(str(error))
    return sorted(found)


@pytest.mark.parametrize("folder", [0o777, 0o1777, 0o757])
def test_a_folder_that_every_user_may_write_is_refused(path: Path, folder: int) -> None:
    make(path)
    path.parent.chmod(folder)
    (text,) = expect_trust(path)
    assert f"chmod o-w {path.parent}" in text
    with pytest.raises(StoreError, match="chmod o-w"):
        SqliteStore(path.with_name("new.db")).define(DEFINITION, expect=None)
    assert os.listdir(path.parent) == [path.name]
    path.parent.chmod(0o775)
    assert expect_trust(path) == []


def test_a_file_that_every_user_may_write_is_refused(path: Path) -> None:
    make(path)
    path.chmod(0o666)
    (text,) = expect_trust(path)
    assert f"chmod o-w {path}" in text
    path.chmod(0o660)
    assert expect_trust(path) == []


@root_only
@pytest.mark.parametrize("name", ["", "store.db", "store.db-journal", "store.db-wal"])
def test_what_belongs_to_another_user_is_refused(public: Path, name: str) -> None:
    """A journal is replayed by SQLite, whoever made it: it is the attack, the others are ways."""
    path = public / "folder" / "store.db"
    make(path)
    found = path.parent / name
    found.touch()
    os.chown(found, NOBODY, NOBODY)
    (text,) = expect_trust(path)
    assert str(found) in text
    assert "belongs to another user (nobody)" in text
    os.chown(found, 0, 0)
    assert expect_trust(path) == [] or name == "store.db-wal"


@root_only
def test_a_side_file_that_is_a_link_is_refused(public: Path) -> None:
    path = public / "store.db"
    make(path)
    (public / "other").touch()
    (public / "store.db-journal").symlink_to(public / "other")
    (text,) = expect_trust(path)
    assert "not a file" in text


@root_only
def test_members_of_the_group_share_a_folder(public: Path) -> None:
    path = public / "store.db"
    make(path)
    os.chown(path, NOBODY, NOBODY)
    os.chown(public, 0, NOBODY)
    assert len(expect_trust(path)) == 1
    public.chmod(0o775)
    assert expect_trust(path) == []
    os.chown(public, 0, 1)  # a group that nobody is not of
    assert len(expect_trust(path)) == 1


@root_only
def test_a_reader_of_the_group_trusts_who_shares_with_it(as_nobody: AsNobody, public: Path) -> None:
    path = public / "folder" / "store.db"
    make(path)
    for each in (path, path.parent):
        os.chown(each, 1, NOBODY)
    path.chmod(0o640)
    path.parent.chmod(0o750)
    assert as_nobody(path)[:2] == [str(EXPECTED), "1 10"]
    path.chmod(0o644)
    path.parent.chmod(0o755)
    os.chown(path.parent, 1, 1)
    assert "belongs to another user" in as_nobody(path)[0]


@root_only
def test_folders_above_are_not_for_others_to_exchange(tmp_path: Path) -> None:
    above = tmp_path / "above"
    path = above / "folder" / "store.db"
    make(path)
    above.chmod(0o777)
    (text,) = expect_trust(path)
    assert f"chmod o-w {above}" in text
    with pytest.raises(StoreError, match=f"chmod o-w {above}"):
        SqliteStore(path.with_name("new.db")).define(DEFINITION, expect=None)
    with pytest.raises(StoreError, match="chmod o-w"):
        SqliteStore(above / "new" / "store.db").define(DEFINITION, expect=None)
    above.chmod(0o1777)  # as /tmp is
    assert expect_trust(path) == []
    os.chown(path.parent, NOBODY, 0)
    (text,) = expect_trust(path)
    assert "made by another user (nobody)" in text


@root_only
def test_links_are_followed_if_nobody_can_exchange_them(tmp_path: Path) -> None:
    path, above = tmp_path / "folder" / "store.db", tmp_path / "above"
    make(path)
    above.mkdir()
    (above / "link").symlink_to("../folder")
    (above / "file").symlink_to(above / "link" / "store.db")
    for each in (above / "link" / "store.db", above / "file", above / ".." / "above" / "file"):
        assert expect_trust(each) == []
    above.chmod(0o1777)
    assert expect_trust(above / "file") == []
    os.chown(above / "link", NOBODY, NOBODY, follow_symlinks=False)
    for each in (above / "link" / "store.db", above / "file"):
        assert "made by another user (nobody)" in expect_trust(each)[0]
    (above / "link").unlink()
    assert "does not exist" in expect_trust(above / "file")[0]
    (above / "loop").symlink_to("loop")
    assert len(expect_trust(above / "loop")) == 1


def test_a_folder_is_made_for_its_user_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        make(tmp_path / "a" / "b" / "store.db")
    finally:
        os.umask(old)
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o775


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP])
def test_where_there_are_no_hard_links(
    path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*names: object) -> None:
        raise OSError(number, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    gate, stores = threading.Barrier(8), [SqliteStore(path) for _ in range(8)]

    def define(store: SqliteStore) -> int:
        gate.wait()
        try:
            return store.define(DEFINITION, expect=None)
        except Conflict:
            return 0

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(define, stores)) == [0] * 7 + [1]
    assert [p.name for p in path.parent.iterdir()] == ["store.db"]
    monkeypatch.setattr(os, "link", lambda *names: (_ for _ in ()).throw(OSError(errno.EIO, "x")))
    with pytest.raises(StoreError, match="cannot be used"):
        SqliteStore(path.with_name("other.db")).define(DEFINITION, expect=None)
