"""What every store promises of the counts that drivers write: docs/observability.md."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from providers.errors import NoStore
from skipping.model.definition import TableId
from skipping.model.workload import (
    _LEAST_CHARACTERS,
    LONGEST,
    PredicateWorkload,
    TableWorkload,
    WorkloadRecord,
    _count_least_characters,
    collect_table,
    merge_records,
    merge_tables,
    parse_records,
)
from skipping.stores import IndexStore
from skipping.stores.folder.objects import ObstoreObjects
from skipping.stores.folder.store import FolderStore
from skipping.stores.memory.store import MemoryStore
from skipping.stores.sqlite.store import SqliteStore
from tests.conftest import RunPython
from tests.skipping.stores.file import NOBODY, root_only
from tests.skipping.stores.samples import definition

DAY = date(2026, 3, 1)
T, U = TableId("delta", "t", "file:/t"), TableId("parquet", "", "s3a://b/u")
LEAF = PredicateWorkload(
    condition="id = ?",
    identity="col-1",
    sql="id",
    computed=False,
    form="values",
    scans=3,
    keys=3,
    pruned_scans=2,
    pruned_files=8,
    pruned_bytes=800,
    missed_files=5,
    missed_bytes=500,
)
TABLE = TableWorkload(
    table=T,
    name="spark_catalog.default.t",
    queries=3,
    pruned_queries=2,
    files=15,
    bytes=1_500,
    pruned_files=8,
    pruned_bytes=800,
    opened_files=7,
    opened_bytes=700,
    unmatched_files=4,
    unmatched_bytes=400,
    predicates=(LEAF,),
)


def record(driver: int = 1, day: date = DAY, *tables: TableWorkload) -> WorkloadRecord:
    return WorkloadRecord(driver=f"{driver:016x}", day=day, tables=tables or (TABLE,))


def read(store: IndexStore, days: int = 30) -> list[WorkloadRecord]:
    found = store.workload(since=DAY - timedelta(days), until=DAY + timedelta(days))
    return sorted(found, key=lambda each: each.key)


def test_a_record_comes_back_and_is_replaced(store: IndexStore) -> None:
    store.define(definition(), expect=None)
    assert read(store) == []
    store.record_workload(record(), oldest=DAY)
    assert read(store) == [record()]
    more = record(1, DAY, replace(TABLE, queries=9), replace(TABLE, table=U, name="/b/u"))
    more = replace(more, joins={"a" * 16: 2})
    store.record_workload(more, oldest=DAY, timeout=60)
    assert read(store) == [more]
    other, before = record(2), record(1, DAY - timedelta(1))
    for each in (other, before):
        store.record_workload(each, oldest=DAY - timedelta(9))
    assert read(store) == [before, more, other]
    assert list(store.workload(since=DAY - timedelta(1), until=DAY - timedelta(1), timeout=60)) == [
        before
    ]
    assert not store.workload(since=DAY + timedelta(1), until=DAY + timedelta(9))
    assert [each.value for each in store.definitions()] == [definition()]


def test_records_before_the_retention_are_deleted(store: IndexStore) -> None:
    store.define(definition(), expect=None)
    for days in (0, 5, 10):
        store.record_workload(record(1, DAY - timedelta(days)), oldest=DAY - timedelta(30))
    tomorrow = record(1, DAY + timedelta(1))
    store.record_workload(tomorrow, oldest=DAY - timedelta(5))
    assert [each.day for each in read(store)] == [DAY - timedelta(5), DAY, tomorrow.day]
    assert list(store.workload(since=DAY - timedelta(9), until=DAY, most=1)) == [record()]


def test_a_driver_with_a_wrong_clock_deletes_nothing(store: IndexStore) -> None:
    store.define(definition(), expect=None)
    store.record_workload(record(), oldest=DAY)
    ahead = DAY + timedelta(200)
    store.record_workload(record(2, ahead), oldest=ahead - timedelta(90))
    assert read(store, 300) == [record(), record(2, ahead)]
    later = record(3, ahead + timedelta(1))  # a store may clean once a day
    store.record_workload(later, oldest=ahead - timedelta(90))
    assert read(store, 300) == [record(2, ahead), later]


def test_a_store_that_does_not_exist_is_not_created(reachable: IndexStore, tmp_path: Path) -> None:
    with pytest.raises(NoStore):
        reachable.record_workload(record(), oldest=DAY)
    with pytest.raises(NoStore):
        reachable.workload(since=DAY, until=DAY)
    with pytest.raises(NoStore):
        reachable.definitions()


def test_a_record_of_another_process(reachable: IndexStore, processes: object) -> None:
    reachable.define(definition(), expect=None)
    task = processes.submit(reachable.record_workload, record(), oldest=DAY)  # type: ignore[attr-defined]
    task.result(timeout=60)
    reachable.record_workload(record(2), oldest=DAY)
    assert read(reachable) == [record(1), record(2)]
    (merged,) = merge_tables(read(reachable)).values()
    assert (merged.queries, merged.pruned_files, merged.pruned_bytes) == (6, 16, 1_600)
    (leaf,) = merged.predicates
    assert (leaf.scans, leaf.pruned_scans, leaf.missed_scans, leaf.missed_bytes) == (6, 4, 2, 1_000)


def forge(change: Callable[[dict[str, Any]], object]) -> str:
    data = json.loads(record().to_json())
    change(data)
    return json.dumps(data)


FORGED = {
    "no JSON": "{",
    "a list": "[]",
    "deep": "[" * 100_000,
    "deeper inside": '{"format": 1, "tables": ' + '{"a":' * 60_000 + "1" + "}" * 60_000 + "}",
    "huge": json.dumps({"format": 1, "x": "y" * LONGEST}),
    "a huge number": record().to_json().replace('"queries": 3', '"queries": 1' + "0" * 5_000),
    "a large number": record().to_json().replace('"queries": 3', '"queries": ' + str(1 << 50)),
    "negative": record().to_json().replace('"queries": 3', '"queries": -3'),
    "NaN": record().to_json().replace('"queries": 3', '"queries": NaN'),
    "infinite": record().to_json().replace('"queries": 3', '"queries": 1e999'),
    "a fraction": record().to_json().replace('"queries": 3', '"queries": 3.5'),
    "true": record().to_json().replace('"queries": 3', '"queries": true'),
    "text": record().to_json().replace('"queries": 3', '"queries": "3"'),
    "a newer format": forge(lambda data: data.update(format=2)),
    "another driver": forge(lambda data: data.update(driver="f" * 16)),
    "another day": forge(lambda data: data.update(day="2026-03-02")),
    "no day": forge(lambda data: data.update(day=7)),
    "no tables": forge(lambda data: data.pop("tables")),
    "a table that is no object": forge(lambda data: data.update(tables=[7])),
    "many tables": forge(lambda data: data.update(tables=[{}] * 257)),
    "controls in a name": record().to_json().replace("default.t", "\\u001b[2J"),
    "another form": record().to_json().replace('"values"', '"sql injection"'),
    "parts that are no list": record().to_json().replace('"parts": []', '"parts": "abc"'),
    "joins that are no object": forge(lambda data: data.update(joins=[1])),
    "a join without a digest": forge(lambda data: data.update(joins={"x": 1})),
    "a negative join": forge(lambda data: data.update(joins={"a" * 16: -1})),
    "many joins": forge(lambda data: data.update(joins={f"{n:016x}": 1 for n in range(257)})),
    "a table twice": forge(lambda data: data.update(tables=data["tables"] * 2)),
    "a condition twice": forge(
        lambda data: data["tables"][0].update(predicates=data["tables"][0]["predicates"] * 2)
    ),
    "a table id of numbers": record().to_json().replace('"file:/t"', "7"),
}


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in FORGED.items()])
def test_a_forged_record_is_left_out(text: str) -> None:
    assert parse_records([(record().key, record().to_json())]) == [record()]
    assert text != record().to_json()
    assert parse_records([(record().key, text), (record(2).key, record(2).to_json())]) == [
        record(2)
    ]


@pytest.mark.parametrize("key", ["", "x", "2026-03-01-", "9999-99-99-0123456789abcdef", None, 7])
def test_a_forged_key_is_left_out(key: str) -> None:
    assert parse_records([(key, record().to_json())]) == []


def test_forged_objects_in_a_folder(tmp_path: Path) -> None:
    store = FolderStore(ObstoreObjects(f"file://{tmp_path}/shared"), tmp_path / "replica.db")
    store.define(definition(), expect=None)
    store.record_workload(record(), oldest=DAY)
    folder = tmp_path / "shared" / "workload"
    for number, text in enumerate(FORGED.values(), 100):
        (folder / f"{record(number).key}.json").write_text(text)
    (folder / f"{record(99).key}.json").write_bytes(b"\xff\xfe")
    (folder / "mine.json").write_text("not ours")
    (folder / f"{record(98).key}.json").symlink_to("/etc/passwd")
    assert read(store) == [record()]
    later = FolderStore(ObstoreObjects(f"file://{tmp_path}/shared"), tmp_path / "replica.db")
    (folder / f"{record(97, DAY + timedelta(9)).key}.json").write_text("{")
    later.record_workload(record(1, DAY + timedelta(9)), oldest=DAY + timedelta(1))
    assert sorted(each.name for each in folder.iterdir()) == [
        f"{record(98).key}.json",  # a link is not ours
        f"{record(1, DAY + timedelta(9)).key}.json",
        f"{record(97, DAY + timedelta(9)).key}.json",
        "mine.json",
    ]


def test_forged_rows_in_sqlite(path: Path) -> None:
    store = SqliteStore(path)
    store.define(definition(), expect=None)
    store.record_workload(record(), oldest=DAY)
    with sqlite3.connect(path) as connection:
        for number, text in enumerate([*FORGED.values(), b"\xff", 7], 100):
            row = record(number).key, text
            connection.execute("INSERT INTO workload (name, data) VALUES (?, ?)", row)
        connection.execute("INSERT INTO workload (name, data) VALUES (?, ?)", (b"x", "y"))
    connection.close()
    assert read(store) == [record()]


READER = """
import os, sys
from datetime import date
from providers.errors import StoreError
from skipping.model.workload import WorkloadRecord
from skipping.stores.folder.objects import ObstoreObjects
from skipping.stores.folder.store import FolderStore
from skipping.stores.sqlite.store import SqliteStore
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
path, replica = sys.argv[1:]
folder = lambda: FolderStore(ObstoreObjects("file://" + path), replica)
store = folder() if replica else SqliteStore(path, patience=5)
day = date(2026, 3, 1)
print(len(store.workload(since=day, until=day)))
try:
    store.record_workload(WorkloadRecord(driver="f" * 16, day=day), oldest=day)
except StoreError as error:
    print("error:", error)
"""


@root_only
@pytest.mark.parametrize("sort", ["sqlite", "folder"])
def test_without_write_permission_nothing_is_written(
    run_python: RunPython, public: Path, tmp_path: Path, sort: str
) -> None:
    path, replica = public / "store", ""
    store: IndexStore = SqliteStore(path)
    if sort == "folder":
        store = FolderStore(ObstoreObjects(f"file://{path}"), tmp_path / "replica.db")
        own = public / "own"
        own.mkdir()
        os.chown(own, NOBODY, NOBODY)
        replica = str(own / "replica.db")
    store.define(definition(), expect=None)
    store.record_workload(record(), oldest=DAY)
    for each in [path, *path.rglob("*")]:
        os.chown(each, -1, NOBODY)
        each.chmod(0o750 if each.is_dir() else 0o640)
    read_count, error = run_python("-c", READER, str(path), replica).stdout.splitlines()
    assert read_count == "1"
    assert error.startswith("error: ")
    assert read(store) == [record()]


def test_merging_two_drivers() -> None:
    other = replace(LEAF, condition="text LIKE '%?%'", form="text", scans=1, pruned_scans=1)
    second = replace(TABLE, name="renamed", predicates=(LEAF, other))
    merged = merge_tables(
        [record(1), record(2, DAY, second), record(3, DAY, replace(TABLE, table=U))]
    )
    assert set(merged) == {T, U}
    assert merged[U] == replace(TABLE, table=U)
    assert (merged[T].queries, merged[T].bytes, merged[T].unmatched_files) == (6, 3_000, 8)
    by_condition = {each.condition: each for each in merged[T].predicates}
    assert by_condition["id = ?"].scans == 6
    assert by_condition[other.condition] == other
    twice = merge_records([record(1), record(1), record(2)])
    assert [(each.driver[-1], each.tables[0].queries) for each in twice] == [("1", 6), ("2", 3)]


def test_a_record_is_bounded() -> None:
    """A driver that reads many tables with long conditions keeps what it uses most."""
    leaves = tuple(
        replace(LEAF, condition=f"{'x' * 900} {n} = ?", scans=n, pruned_scans=0) for n in range(90)
    )
    tables = [
        replace(TABLE, table=replace(T, id=str(n)), queries=n, predicates=leaves)
        for n in range(300)
    ]
    large = record(1, DAY, *tables)
    text = large.to_json()
    assert len(text) <= LONGEST
    (small,) = parse_records([(large.key, text)])
    assert small.tables[0].queries == 299
    kept = [table.queries for table in small.tables]
    assert kept == sorted(kept, reverse=True)
    assert len(kept) > 50
    few = record(1, DAY, *tables[-2:])
    (small,) = parse_records([(few.key, few.to_json())])
    scans = [each.scans for each in small.tables[0].predicates]
    assert scans[0] == 89
    assert len(scans) >= 32


def test_collecting_leaves_out_what_no_record_can_have() -> None:
    leaf = {"condition": "a = ?", "identity": "a", "sql": "a", "computed": False, "form": "values"}
    leaves = [{**leaf, "parts": [], "scans": 2}, {**leaf, "condition": "\x1b[2J", "parts": []}]
    table = collect_table(T, "t", {"queries": 2}, leaves)
    assert table is not None
    assert [(each.condition, each.scans) for each in table.predicates] == [("a = ?", 2)]
    assert collect_table(T, "t\x1b", {}, []) is None
    assert collect_table(replace(T, root="\x1b"), "t", {}, []) is None
    assert collect_table(replace(T, root="ftp://u:secret@host/t"), "t", {}, []) is None
    assert collect_table(replace(T, root="abfss://c@account/t"), "t", {}, []) is not None


def test_collecting_cuts_large_counts() -> None:
    table = collect_table(T, "t", {"bytes": 1 << 60, "queries": 2}, [])
    assert table is not None
    assert table.queries == 2
    large = record(1, DAY, table)
    assert parse_records([(large.key, large.to_json())]) == [large]


@pytest.mark.parametrize("tables", [1, 256])
def test_a_large_record_is_dumped_at_most_twice(
    monkeypatch: pytest.MonkeyPatch, tables: int
) -> None:
    """The thread that watches the stores writes it once a minute."""
    dumps, sizes = json.dumps, list[int]()

    def count(data: object) -> str:
        text = dumps(data)
        sizes.append(len(text))
        return text

    monkeypatch.setattr("skipping.model.workload.json.dumps", count)
    leaves = tuple(replace(LEAF, condition=f"{'x' * 900} {n}", sql="y" * 900) for n in range(64))
    large = [replace(TABLE, table=replace(T, id=str(n)), predicates=leaves) for n in range(tables)]
    text = record(1, DAY, *large).to_json()
    assert len(sizes) <= 2
    assert sizes[-1] == len(text) > LONGEST / 4
    assert max(sizes) < 2 * LONGEST


def test_the_bound_of_characters_is_one() -> None:
    empty = PredicateWorkload(condition="", identity="", sql="", computed=True, form="text")
    table = TableWorkload(table=TableId("", "", ""), name="", predicates=(empty,))
    assert len(json.dumps(asdict(empty))) >= _LEAST_CHARACTERS
    assert len(json.dumps(asdict(table))) >= _count_least_characters(table, 1)


def test_memory_keeps_it_as_long_as_the_process() -> None:
    store = MemoryStore("workload")
    store.record_workload(record(), oldest=DAY)
    assert read(store) == [record()]
