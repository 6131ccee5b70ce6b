"""What can happen to a file: deleted, damaged, too new, locked, not ours to write."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

from providers.errors import Damaged, StoreError
from providers.evaluate import find_prunable_rows
from providers.index_predicate import BitsSet, Contains, ContainsOther, Test
from skipping.model.definition import Definition, IndexedColumn, State, TableId
from skipping.stores import IDENTITY, slices
from skipping.stores.sqlite import bit_slices, evaluate, index_rows, segments
from skipping.stores.sqlite import entries as sqlite_entries
from skipping.stores.sqlite import schema as sqlite_schema
from skipping.stores.sqlite import store as sqlite_store
from skipping.stores.sqlite.store import SqliteStore
from tests.skipping.stores.file import answers, changes, make, readings
from tests.skipping.stores.small import DEFINITION, EXPECTED, TESTS, bit, bits_of, entries


def test_another_process_sees_what_this_one_wrote(
    path: Path, processes: ProcessPoolExecutor
) -> None:
    store = make(path)
    there = processes.submit(store.find_prunable, "i", TESTS, below=10, timeout=30).result(60)
    assert [list(a) for a in there] == EXPECTED == answers(SqliteStore(path))
    processes.submit(store.remove, "i", pa.array([0])).result(60)
    assert answers(store)[0] == EXPECTED[0][1:]
    assert sorted(p.name for p in path.parent.iterdir()) == ["store.db"]


def test_nothing_is_made_before_the_first_index(path: Path) -> None:
    store = SqliteStore(path)
    for use in readings(store) + changes(store):
        with pytest.raises(StoreError, match="does not exist"):
            use()
    assert list(path.parent.iterdir()) == []


def test_a_deleted_store_is_an_error_and_not_an_empty_one(path: Path) -> None:
    store = make(path)
    path.unlink()
    for use in readings(store) + changes(store):
        with pytest.raises(StoreError, match="does not exist"):
            use()
    assert list(path.parent.iterdir()) == []
    store.define(DEFINITION, expect=None)
    assert store.reserve("i", 1) == range(1)


def test_what_a_deleted_store_left_is_not_replayed(path: Path) -> None:
    store = make(path)
    with closing(sqlite3.connect(path)) as holder:
        holder.execute("SELECT * FROM block").fetchall()
        store.reserve("i", 5)
        shutil.copy(f"{path}-wal", f"{path}-kept")
    path.unlink()
    Path(f"{path}-kept").rename(f"{path}-wal")
    with pytest.raises(StoreError, match="delete it too"):
        store.define(DEFINITION, expect=None)
    assert not path.exists()


def test_a_name_that_a_uri_would_misread(tmp_path: Path) -> None:
    store = make(tmp_path / "a b?mode=memory#%41" / "s'\u00e9.db")
    assert answers(store) == EXPECTED
    assert (tmp_path / "a b?mode=memory#%41" / "s'\u00e9.db").is_file()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an index store"),
        (b"PAR1" * 5_000, "not an SQLite file, or damaged"),
        (None, "is not a file"),
    ],
)
def test_what_is_no_store_is_left_alone(path: Path, content: bytes | None, message: str) -> None:
    path.mkdir() if content is None else path.write_bytes(content)
    store = SqliteStore(path)
    create = [lambda: store.define(DEFINITION, expect=None)]
    for use in [*readings(store), *changes(store), *create]:
        with pytest.raises(StoreError, match=message):
            use()
    assert content is None or path.read_bytes() == content


def test_somebody_elses_database_is_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE index_ (id)")
    before = path.read_bytes()
    store = SqliteStore(path)
    with pytest.raises(StoreError, match="name another file"):
        store.define(DEFINITION, expect=None)
    assert path.read_bytes() == before


@pytest.mark.parametrize(("format", "advice"), [(1, "move"), (5, "move"), (7, "upgrade, or move")])
def test_store_of_another_format_names_the_command_that_rebuilds_it(
    path: Path, format: int, advice: str
) -> None:
    advice = rf"format {format}, this release reads format 6: {advice}"
    advice += r".*CREATE SKIPPING INDEX again for each table"
    store = make(path)
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA user_version = {format}")
    for use in readings(store) + changes(store):
        with pytest.raises(StoreError, match=advice):
            use()


def test_index_with_a_definition_of_an_older_format_leaves_the_others_usable(path: Path) -> None:
    store = make(path)
    other = replace(DEFINITION, index="j", table=TableId("delta", "u", "file:/u"), name="u")
    store.define(other, expect=None)
    with sqlite_schema.open_connection(path, wait=5, write=True) as connection:
        record = index_rows.read_record(connection, "j")
        older = other.to_json().replace('"format": 4', '"format": 3')
        index_rows.save(connection, replace(record, definition=older))
        connection.execute("COMMIT")
    usable, unusable = store.definitions()
    assert usable.value == DEFINITION
    assert "format 3" in (unusable.value.fault or "")
    assert "run DROP SKIPPING INDEX ON u" in (unusable.value.fault or "")
    assert answers(store) == EXPECTED


_ENDLESS = (
    "(WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c)"
)


@pytest.mark.parametrize(
    "script",
    [
        "ALTER TABLE index_ RENAME TO real;"
        f"CREATE VIEW index_ AS SELECT * FROM real WHERE {_ENDLESS} > 0",
        f"CREATE TRIGGER t AFTER UPDATE ON index_ BEGIN SELECT {_ENDLESS}; END",
        "ALTER TABLE block ADD g GENERATED ALWAYS AS (hex(zeroblob(9)))",
        "CREATE INDEX g ON run (length(hex(zeroblob(9))))",
        "CREATE INDEX g ON run (first)",
        "CREATE TABLE other (a)",
        "DROP INDEX run_part",
        "PRAGMA writable_schema = ON;"
        "UPDATE sqlite_master SET sql = replace(sql, 'items INTEGER', 'items TEXT')",
    ],
)
def test_a_schema_that_no_release_makes_is_refused(path: Path, script: str) -> None:
    store = make(path)
    answers(store)  # what is kept does not answer either
    with closing(sqlite3.connect(path)) as other:
        other.executescript(script)
    start = time.monotonic()
    for use in readings(store) + changes(store):
        with pytest.raises(Damaged, match="not those that a release makes"):
            use()
    assert time.monotonic() - start < 10


def test_a_change_that_takes_too_long_is_interrupted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(path)
    monkeypatch.setattr(sqlite_schema, "_LONGEST_WRITE", 0.2)
    start = time.monotonic()
    with (
        pytest.raises(StoreError, match=r"interrupted.*within 0.2 s"),
        sqlite_schema.open_connection(path, wait=30, write=True) as connection,
    ):
        connection.execute(f"SELECT {_ENDLESS}").fetchall()
    assert time.monotonic() - start < 10


def test_a_changed_block_is_damaged(path: Path) -> None:
    make(path)
    with closing(sqlite3.connect(path)) as other:
        other.execute("UPDATE block SET data = CAST(zeroblob(length(data)) AS BLOB)")
        other.commit()
    with pytest.raises(Damaged, match="is not what was written"):
        SqliteStore(path).catalogue("i")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("definition", "x" * (9 << 20)),
        ("fields", "[" * 100_000),
        ("fields", '{"s1_low": 3}'),
        ("sums", "[]"),
        ("generations", b"123"),
    ],
)
def test_a_row_that_no_release_wrote_disables_its_own_index(
    path: Path, column: str, value: str | bytes
) -> None:
    store = make(path)
    other = replace(DEFINITION, index="j", table=TableId("delta", "u", "file:/u"))
    store.define(other, expect=None)
    with closing(sqlite3.connect(path, isolation_level=None)) as forger:
        forger.execute(f"UPDATE index_ SET {column} = ? WHERE name = 'i'", (value,))
        (row,) = forger.execute(
            f"SELECT {index_rows._COLUMNS} FROM index_ WHERE name = 'i'"
        ).fetchall()
        forger.execute(
            "UPDATE index_ SET checksum = ? WHERE name = 'i'", (index_rows.digest(*row),)
        )
    assert {v.value.index: v.value.fault is None for v in store.definitions()} == {
        "i": False,
        "j": True,
    }
    for use in [*readings(store)[1:], *changes(store)]:
        with pytest.raises(Damaged, match="create"):
            use()
    assert store.state("j") == State()


def test_a_truncated_store_never_answers_wrongly(path: Path) -> None:
    store = make(path, files=300)
    expected = [list(a) for a in store.find_prunable("i", TESTS, below=300, timeout=30)]
    whole, refused = path.read_bytes(), 0
    for size in range(0, len(whole), 1_000):
        path.write_bytes(whole[:size])
        try:
            found = [list(a) for a in store.find_prunable("i", TESTS, below=300, timeout=30)]
        except StoreError:
            refused += 1
        else:
            assert found == expected
    assert refused > 3


def test_garbage_in_the_middle_is_a_store_error(path: Path) -> None:
    store = make(path, files=300)
    expected = store.find_prunable("i", TESTS, below=10, timeout=5)
    whole = path.read_bytes()
    refused = 0
    for page in range(1, len(whole) // 4_096):
        data = bytearray(whole)
        data[page * 4_096 : (page + 1) * 4_096] = b"\xa5" * 4_096
        path.write_bytes(data)
        for use in readings(store):
            try:
                found = use()
            except StoreError as error:
                refused += "damaged" in str(error)
            else:
                assert not isinstance(found, list) or found == expected
    assert refused > 3


def test_what_is_kept_is_not_read_again(path: Path) -> None:
    store = make(path)
    assert store.find_prunable("i", TESTS[:1], below=10, timeout=30)[0] == BitMap(EXPECTED[0])
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("DELETE FROM block")
    assert list(store.find_prunable("i", TESTS[:1], below=10, timeout=30)[0]) == EXPECTED[0]
    for fresh in (SqliteStore(path), SqliteStore(path, kept=0)):
        with pytest.raises(Damaged, match="missing"):
            answers(fresh)


def test_with_no_room_to_keep_it_is_read_each_time(path: Path) -> None:
    make(path)
    store = SqliteStore(path, kept=0)
    assert answers(store) == EXPECTED
    store.remove("i", pa.array([0]))
    assert answers(store) == [answer[1:] for answer in EXPECTED]


def test_what_is_kept_of_a_store_that_went_back_is_dropped(path: Path) -> None:
    store = make(path)
    shutil.copy(path, f"{path}-kept")
    store.remove("i", pa.array([0, 1]))
    assert answers(store) == [answer[2:] for answer in EXPECTED]
    shutil.copy(f"{path}-kept", path)
    assert answers(store) == EXPECTED


HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
for statement in sys.argv[2:]:
    connection.execute(statement).fetchall()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("every", [False, True], ids=["writers", "everybody"])
def test_a_lock_is_waited_for_and_then_an_error(path: Path, every: bool) -> None:
    store = make(path, patience=0.3)
    statements = ["BEGIN EXCLUSIVE", "UPDATE index_ SET state = NULL"]
    if every:
        statements.insert(0, "PRAGMA locking_mode = EXCLUSIVE")
    command = [sys.executable, "-c", HOLDER, str(path), *statements]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        for use in changes(store) + readings(store)[: 3 * every]:
            start = time.monotonic()
            with pytest.raises(StoreError, match="another process has locked it"):
                use()
            assert 0.2 < time.monotonic() - start < 5
        if every:
            start = time.monotonic()
            with pytest.raises(StoreError, match="another process has locked it"):
                store.find_prunable("i", TESTS, below=10, timeout=0.2)
            assert time.monotonic() - start < 5
        else:
            assert answers(store) == EXPECTED  # readers do not wait for writers
        holder.communicate()
    assert store.reserve("i", 1) == range(10, 11)


def test_a_writer_waits_for_a_short_lock(path: Path) -> None:
    store = make(path)
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(0.3, other.execute, ["ROLLBACK"])
        timer.start()
        assert store.reserve("i", 1) == range(10, 11)
        timer.join()


def test_the_budget_of_a_question_is_kept(path: Path) -> None:
    store = make(path)
    store.write("i", entries(store.reserve("i", 500), terms=200), revision=1)
    keys = pa.array([f"{i:08}" for i in range(300_000)])
    tests: list[Test] = [Contains("values", keys, "s2"), ContainsOther("values", keys, "s2")] * 20
    start = time.monotonic()
    with pytest.raises(StoreError, match="answer"):
        store.find_prunable("i", tests, below=10, timeout=0.5)
    assert time.monotonic() - start < 5
    assert answers(store) == EXPECTED


def test_terms_of_removed_files_are_swept(path: Path) -> None:
    store = make(path, files=100)
    store.remove("i", pa.array(range(90)))
    with closing(sqlite3.connect(path)) as other:
        parts = dict(other.execute("SELECT part, sum(items) FROM run GROUP BY part"))
    assert parts == {"files": 10, "hashes": 10, "s1": 10, "s2": 10, "s2_values": 30, "removed": 90}
    assert list(store.find_prunable("i", TESTS[1:], below=100, timeout=30)[0]) == list(
        range(90, 100)
    )
    definition = Definition("i", DEFINITION.table, "t", (), dropped=True)
    store.define(definition, expect=1)
    store.erase("i")
    with closing(sqlite3.connect(path)) as other:
        for table in ("run", "block"):
            assert other.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table


COLUMNS = tuple(IndexedColumn(n, f"c{n}", f"id{n}", "string", "VALUE_LIST") for n in (1, 2))


def _large(path: Path) -> SqliteStore:
    """A store of an index of two columns, each with some MB."""
    store = SqliteStore(path)
    store.define(replace(DEFINITION, columns=COLUMNS), expect=None)
    random = np.random.default_rng(3)
    for _ in range(2):
        ordinals = store.reserve("i", 500)
        values = [[f"{n:020}" for n in random.integers(0, 1 << 60, 150)] for _ in ordinals]
        table = entries(ordinals).select(IDENTITY.names)
        table = table.append_column("s1_known", pa.array([True] * 500))
        table = table.append_column("s1_values", pa.array(values))
        table = table.append_column("s2_known", table["s1_known"])
        filters = pa.array([random.bytes(4_096) for _ in ordinals], pa.large_binary())
        table = table.append_column("s2_filter", filters)
        table = table.append_column("s2_layout", pa.array([1] * 500))
        store.write("i", table, revision=1)
    return store


def _megabytes(path: Path) -> float:
    return sum(each.stat().st_size for each in path.parent.iterdir()) / 1e6


def test_space_is_given_back(path: Path) -> None:
    """By a column that is dropped, by files that are forgotten, and by an index that is dropped."""
    store = _large(path)
    size, bytes = _megabytes(path), store.size("i") or 0
    assert size > 8
    left = replace(DEFINITION, columns=COLUMNS[1:])
    assert store.define(left, expect=1) == 2
    assert _megabytes(path) < 0.6 * size
    assert (store.size("i") or 0) < 0.6 * bytes
    assert (store.size("i") or 0) / 1e6 == pytest.approx(_megabytes(path), rel=0.1)
    probe = pa.array([[0]], pa.list_(pa.int64(), 1))
    tests: list[Test] = [
        BitsSet("filter", "layout", ((1, probe),), "s2"),
        Contains("values", pa.array(["x"]), "s1"),
    ]
    filters, dropped = store.find_prunable("i", tests, below=1_000, timeout=30)
    assert 300 < len(filters) < 700
    assert list(dropped) == []
    store.remove("i", pa.array(range(900)))
    assert _megabytes(path) < 0.1 * size
    assert list(store.find_prunable("i", tests, below=1_000, timeout=30)[0]) == [
        o for o in filters if o >= 900
    ]
    store.define(replace(left, dropped=True), expect=2)
    assert _megabytes(path) < 0.1
    assert len(store.catalogue("i").files) == 0
    store.erase("i")
    assert store.definitions() == ()


def test_space_is_given_back_a_little_at_a_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a call leaves, as when its time is over or others write, the next one does."""
    store = _large(path)
    size = _megabytes(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        count = reader.execute("SELECT count(*) FROM block").fetchone()
        monkeypatch.setattr(sqlite_store, "_RECLAIMING", 0.0)
        store.define(replace(DEFINITION, columns=COLUMNS, dropped=True), expect=1)
        monkeypatch.undo()
        monkeypatch.setattr(sqlite_entries, "_RECLAIMED", 7)
        monkeypatch.setattr(sqlite_schema, "_SHRUNK", 7)
        asked: list[float] = []
        with ThreadPoolExecutor(1) as threads:
            erased = threads.submit(store.erase, "i")
            while not erased.done():
                start = time.monotonic()
                assert len(SqliteStore(path, patience=5).definitions()) < 2
                asked.append(time.monotonic() - start)
            erased.result()
        assert max(asked) < 5
        assert reader.execute("SELECT count(*) FROM block").fetchone() == count
    monkeypatch.undo()
    store.erase("i")
    assert _megabytes(path) < 0.1 < size


def test_what_is_given_back_of_one_index_is_not_what_another_wrote_meanwhile(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks get the numbers of those deleted, between one part of giving back and the next."""
    store = SqliteStore(path)
    other = replace(DEFINITION, index="o", table=TableId("delta", "u", "file:/u"), name="u")
    store.define(other, expect=None)
    make(path)
    with closing(sqlite3.connect(path)) as connection:
        (blocks,) = connection.execute("SELECT count(*) FROM block").fetchone()
    for most in range(1, blocks + 1):
        monkeypatch.setattr(sqlite_entries, "_RECLAIMED", most)
        shutil.copy(path, each := path.with_name(f"{most}.db"))
        store = SqliteStore(each)
        with monkeypatch.context() as now:
            now.setattr(sqlite_store, "_RECLAIMING", 0.0)
            store.define(replace(DEFINITION, dropped=True), expect=1)
        with sqlite_schema.open_connection(each, wait=5, write=True) as connection:
            record = index_rows.read_record(connection, "i")
            sqlite_entries.reclaim(segments.Parts(connection, record))
            connection.execute("COMMIT")
        store.write("o", entries(store.reserve("o", 10)), revision=1)
        store.erase("i")
        found = SqliteStore(each).find_prunable("o", TESTS, below=10, timeout=30)
        assert [list(a) for a in found] == EXPECTED, most


def test_rows_written_one_by_one_are_read_together(path: Path) -> None:
    store = make(path, files=1)
    for _ in range(7):
        store.write("i", entries(store.reserve("i", 1)), revision=1)
    with closing(sqlite3.connect(path)) as other:
        sql = "SELECT data FROM block b JOIN run r ON r.first = b.id WHERE part IN ('files', 's1')"
        for (data,) in other.execute(sql).fetchall():
            _, *batches = pa.ipc.MessageReader.open_stream(data)
            assert len(batches) == 1


def test_a_dropped_index_has_nothing_to_forget(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when it is dropped while another process refreshes it."""
    store = make(path)
    store.remove("i", pa.array([1]))
    monkeypatch.setattr(sqlite_store, "_RECLAIMING", 0.0)
    store.define(replace(DEFINITION, dropped=True), expect=1)
    store.remove("i", pa.array([2]))
    monkeypatch.undo()
    store.remove("i", pa.array([3]))
    with closing(sqlite3.connect(path)) as other:
        for table in ("run", "block"):
            assert other.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table


_FIRST_BIT = pa.array([[0]], pa.list_(pa.int64(), 1))
ODD = BitsSet("filter", "layout", tuple((layout, _FIRST_BIT) for layout in range(4)), "s3")


def test_bytes_of_removed_files_are_swept(path: Path) -> None:
    store = make(path, files=0)
    for _ in range(2):
        store.write("i", bits_of(store.reserve("i", 10)), revision=1)
    assert list(store.find_prunable("i", [ODD], below=99, timeout=30)[0]) == list(range(0, 20, 2))
    runs = "SELECT count(*), sum(items) FROM run WHERE part = 's3_filter'"
    with closing(sqlite3.connect(path)) as other:
        assert other.execute(runs).fetchone() == (1, 32)  # slots: each write's begin at a byte
    store.remove("i", pa.array(range(11)))
    with closing(sqlite3.connect(path)) as other:
        assert other.execute(runs).fetchone() == (1, 16)
    assert list(store.find_prunable("i", [ODD], below=99, timeout=30)[0]) == [12, 14, 16, 18]


def test_bits_that_take_too_long_are_given_up_and_not_the_question(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make(path, files=0)
    store.write("i", bits_of(store.reserve("i", 10)), revision=1)
    tests = [bit(2), TESTS[0]]
    bits, lists = store.find_prunable("i", tests, below=10, timeout=30)
    assert bits
    assert lists
    monkeypatch.setattr(evaluate, "_SHARE", 0)
    assert store.find_prunable("i", tests, below=10, timeout=30) == [BitMap(), lists]


def test_keys_that_take_too_long_are_given_up_and_not_the_other_keys(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make(path)
    match_keys = evaluate.match_keys

    def match_slowly(part: Any, type: pa.DataType, keys: pa.Array, check: Any) -> Any:
        while len(keys) > 1:
            check()
        return match_keys(part, type, keys, check)

    monkeypatch.setattr(evaluate, "match_keys", match_slowly)
    few, many = (Contains("values", pa.array(["t7"] * n), "s2") for n in (1, 2))
    found = store.find_prunable("i", [many, few, TESTS[0]], below=10, timeout=0.5)
    assert [list(each) for each in found] == [[], EXPECTED[1], EXPECTED[0]]
    with pytest.raises(StoreError, match="in time"):
        store.find_prunable("i", [many], below=10, timeout=0.5)


def test_bits_of_many_files_and_lengths(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In several groups and slices, and asked below a bound, as the evaluator says."""
    monkeypatch.setattr(bit_slices, "_FILES", 64)
    monkeypatch.setattr(bit_slices, "_SLICE", 24)
    monkeypatch.setattr(slices, "_AT_ONCE", 3_000)
    monkeypatch.setattr(bit_slices, "_TURNED", 4_096)
    random = np.random.default_rng(3)
    store = SqliteStore(path)
    store.define(DEFINITION, expect=None)
    tables = []
    for n in (1, 300, 7):
        table = entries(store.reserve("i", n)).select(IDENTITY.names)
        lengths = random.choice([0, 1, 40, 129], n)
        values = [None if random.random() < 0.1 else random.bytes(length) for length in lengths]
        layouts = [None if random.random() < 0.1 else int(length) for length in lengths]
        table = table.append_column("s3_known", pa.array(random.random(n) < 0.9))
        table = table.append_column("s3_filter", pa.array(values, pa.large_binary()))
        tables.append(table.append_column("s3_layout", pa.array(layouts, pa.int64())))
        store.write("i", tables[-1], revision=1)
    whole = pa.concat_tables(tables)
    for _ in range(20):
        bits = {n: random.integers(0, 8 * n + 2, (random.integers(0, 9), 3)) for n in (1, 40, 129)}
        probes = tuple(
            (n, pa.array(some.tolist(), pa.list_(pa.int64(), 3))) for n, some in bits.items()
        )
        test = BitsSet("filter", "layout", probes, "s3")
        expected = np.flatnonzero(find_prunable_rows(test, whole))
        for below in (0, 77, 999):
            (found,) = store.find_prunable("i", [test], below=below, timeout=30)
            assert list(found) == expected[expected < below].tolist()
