"""Who may read an SQLite store, and the format before."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from providers.errors import Conflict, Rewound, StoreError
from skipping.model.definition import State
from skipping.model.lease import Lease
from skipping.stores.sqlite import schema as sqlite_schema
from skipping.stores.sqlite.store import SqliteStore
from tests.skipping.stores.file import NOBODY, answers, make, root_only
from tests.skipping.stores.small import DEFINITION, EXPECTED, TESTS, entries

# Readers who may not write

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
    print([list(a) for a in store.disproved("i", tests, below=10, timeout=30)])
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


def as_nobody(path: Path) -> list[str]:
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(READER), str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.stderr == ""
    return run.stdout.splitlines()


@root_only
def test_a_reader_without_rights_reads_a_store_at_rest(public: Path) -> None:
    make(public / "store.db")
    share(public / "store.db")
    lines = as_nobody(public / "store.db")
    assert lines[:2] == [str(EXPECTED), "1 10"]
    assert "may not write" in lines[2]
    assert [p.name for p in public.iterdir()] == ["store.db"]


@root_only
def test_a_reader_without_rights_sees_what_a_writer_has_not_merged_yet(public: Path) -> None:
    path = public / "store.db"
    store = make(path)
    share(path)
    with closing(sqlite3.connect(path)) as holder:
        holder.execute("SELECT * FROM entry").fetchall()
        store.remove("i", pa.array([0]))
        assert Path(f"{path}-wal").stat().st_size > 0
        lines = as_nobody(path)
    assert lines[:2] == [str([a[1:] for a in EXPECTED]), "1 9"]


@root_only
def test_a_reader_in_a_folder_of_others_with_rights_to_the_file(public: Path) -> None:
    path = public / "store.db"
    make(path)
    path.chmod(0o666)
    lines = as_nobody(path)
    assert lines[:2] == [str(EXPECTED), "1 10"]
    assert lines[2].startswith("error:")


@root_only
def test_a_reader_without_any_rights(public: Path) -> None:
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
    connected = sqlite_schema._connected

    def refuse(path: Path, mode: str, wait: float) -> sqlite3.Connection:
        if "immutable" not in mode:
            raise sqlite3.OperationalError("unable to open database file")
        return connected(path, mode, wait)

    monkeypatch.setattr(sqlite_schema, "_connected", refuse)
    assert answers(store) == EXPECTED
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:

        def reading() -> list[object]:
            with sqlite_schema.open_connection(path, wait=5) as connection:
                found = connection.execute("SELECT count(*) FROM entry").fetchall()
                writer.execute("DELETE FROM entry WHERE ordinal = 0")
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
            holder.execute("SELECT * FROM entry").fetchall()
            store.reserve("i", 1)
            modes = {p.name: p.stat().st_mode & 0o777 for p in path.parent.iterdir()}
    finally:
        os.umask(old)
    assert modes == dict.fromkeys(["store.db", "store.db-wal", "store.db-shm"], 0o600)


@pytest.mark.parametrize(("before", "after"), [(0o644, 0o640), (0o666, 0o660), (0o660, 0o660)])
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
    assert [text for text in said if "open to every user" in text] == [
        f"the store {path} was open to every user: now to its owner and group"
    ] * (before != after)


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


# The format before

OLD = """
CREATE TABLE index_ (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, table_ TEXT NOT NULL, definition TEXT,
    revision INTEGER NOT NULL, dropped INTEGER NOT NULL, state TEXT,
    generation INTEGER NOT NULL DEFAULT 0, next INTEGER NOT NULL DEFAULT 0,
    swept INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX index_live ON index_ (table_) WHERE NOT dropped;
CREATE TABLE entry (
    index_ INTEGER NOT NULL, ordinal INTEGER NOT NULL, path TEXT NOT NULL, size INTEGER NOT NULL,
    stamp INTEGER, partition TEXT, generation INTEGER NOT NULL, PRIMARY KEY (index_, ordinal)
) WITHOUT ROWID;
CREATE TABLE field (
    id INTEGER PRIMARY KEY, index_ INTEGER NOT NULL, name TEXT NOT NULL, type TEXT NOT NULL
);
CREATE TABLE scalar (
    field INTEGER NOT NULL, ordinal INTEGER NOT NULL, value NOT NULL, PRIMARY KEY (field, ordinal)
) WITHOUT ROWID;
CREATE TABLE lease (index_ INTEGER PRIMARY KEY, lease TEXT NOT NULL);
INSERT INTO entry VALUES (1, 0, 'f0', 1, NULL, '{}', 5000000000);
INSERT INTO field VALUES (1, 1, 's1_known', 'bool'), (2, 1, 's1_low', 'int64');
INSERT INTO scalar VALUES (1, 0, 1), (2, 0, 99);
PRAGMA application_id = 0x736B6970;
PRAGMA user_version = 1;
PRAGMA journal_mode = WAL;
"""


def test_a_file_of_the_format_before(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Definitions, states, leases and ordinals are carried over, entries are not: no checksums."""
    held = Lease(3, "me", 7, 1.5)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.executescript(OLD)
        row = ("i", '["delta", "t", "file:/t"]', DEFINITION.to_json(), State("active", 4).to_json())
        sql = "INSERT INTO index_ VALUES (1, ?, ?, ?, 2, 0, ?, 5000000000, 1, 0)"
        other.execute(sql, row)
        other.execute("INSERT INTO lease VALUES (1, ?)", (held.to_json(),))
    store = SqliteStore(path)
    for _ in range(2):
        (found,) = store.definitions()
        assert (found.value, found.revision) == (DEFINITION, 2)
        assert (store.state("i"), store.lease("i")) == (State(), held)
        seen = store.catalogue("i", fields=["s1_low"])
        assert len(seen.files) == 0
        asked = {"below": 9, "timeout": 30, "generation": seen.generation}
        assert list(store.disproved("i", TESTS[:1], **asked)[0]) == []
        with pytest.raises(Rewound):
            store.catalogue("i", since=5_000_000_000)
    assert not caplog.records
    assert store.reserve("i", 1) == range(1, 2)
    assert "REFRESH" in caplog.text
    store.write("i", entries(range(1, 2)), revision=2)
    assert list(store.disproved("i", TESTS[:1], below=9, timeout=30)[0]) == [1]
    assert store.lease("i") == held
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA user_version").fetchone() == (sqlite_schema.VERSION,)


def test_a_file_of_the_second_format(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its bytes lie in another order, in which bits would be found unset that are set."""
    store, held = make(path), Lease(3, "me", 7, 1.5)
    store.hold("i", held, expect=Lease())
    before = store.catalogue("i").generation
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA user_version = 2")
    store = SqliteStore(path)
    for _ in range(2):
        assert [found.value for found in store.definitions()] == [DEFINITION]
        assert (store.state("i"), store.lease("i")) == (State(), held)
        seen = store.catalogue("i")
        assert len(seen.files) == 0
        asked = {"below": 9, "timeout": 30, "generation": seen.generation}
        assert [list(a) for a in store.disproved("i", TESTS, **asked)] == [[], []]
        with pytest.raises(Rewound):
            store.catalogue("i", since=before)
    assert not caplog.records
    start = store.reserve("i", 1).start
    assert start > 0
    assert "format 2" in caplog.text
    store.write("i", entries(range(start, start + 1)), revision=1)
    assert store.catalogue("i").files["ordinal"].to_pylist() == [start]
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA user_version").fetchone() == (sqlite_schema.VERSION,)
