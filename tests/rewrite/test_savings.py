"""What queries saved: counted by Java, written by the watcher's thread, shown by SHOW SAVINGS."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

import rewrite
import skipping
from rewrite.bridge.classes import Classes
from rewrite.bridge.install import Hooks, find_hooks
from skipping.advise.history import list_unused_predicates
from skipping.advise.workload import read_workload
from skipping.model.workload import WorkloadRecord
from skipping.sources.spark import settings_of, store_of
from skipping.stores.sqlite.store import SqliteStore
from skipping.tables.open import open_table
from tests.rewrite.differential import make_table, settings

FILES = 5
TODAY = datetime.now(timezone.utc).date()


@pytest.fixture
def hooks(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Hooks:
    """The hooks of the session, whose watcher does not write while a test runs."""
    found = find_hooks(spark)
    assert found is not None
    monkeypatch.setattr(found.workload, "write_if_due", lambda: None)
    return found


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """A table with an index in a store of its own."""
    with settings(spark, {"spark.skipping.store": f"sqlite:{tmp_path}/index.db"}):
        rows = f"SELECT id AS _f, id, 'text' || id AS name FROM range({FILES})"
        yield make_table(spark, "saved", rows, "id MIN_MAX")
        spark.sql("DROP SKIPPING INDEX ON saved")
        spark.sql("DROP TABLE saved")


def show(spark: SparkSession, by: str = "") -> list[Row]:
    return spark.sql(f"SHOW SKIPPING SAVINGS FOR saved {by}").collect()


def test_savings_of_queries(
    spark: SparkSession, hooks: Hooks, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files and bytes are those that explain counts; they are the same from memory and store."""
    assert show(spark) == []
    scans = []
    for id in (1, 3):
        frame = spark.sql(f"SELECT * FROM {table} WHERE id = {id}")
        assert len(frame.collect()) == 1
        scans += rewrite.explain(frame).scans
    missed = spark.sql(f"SELECT * FROM {table} WHERE name = 'nowhere'")
    assert missed.collect() == []
    (unindexed,) = rewrite.explain(missed).scans
    bytes = sum(scan.pruned_bytes for scan in scans)
    assert bytes > 0
    assert [scan.pruned for scan in scans] == [FILES - 1] * 2

    (before,) = show(spark)
    assert (before.table, before.since) == ("spark_catalog.default.saved", TODAY)
    assert (before.queries, before.pruned_queries) == (3, 2)
    assert (before.files, before.bytes) == (2 * (FILES - 1), bytes)
    assert (before.requests, before.saved, before.cost) == (4 * (FILES - 1), 0, 0)
    assert before.seconds > 0
    assert before.index_bytes > 0
    assert before.opened_files == 2 + FILES
    assert before.opened_bytes == sum(s.opened_bytes or 0 for s in (*scans, unindexed))
    assert before.unmatched_files == FILES  # of the last query
    assert before.note is None

    written: list[str] = []
    write = SqliteStore.record_workload

    def record(store: SqliteStore, record: WorkloadRecord, **more: Any) -> None:
        written.append(store.location)  # the session may have counts of other stores, too
        write(store, record, **more)

    monkeypatch.setattr(SqliteStore, "record_workload", record)
    hooks.workload.write()
    hooks.workload.write()
    location = store_of(spark, settings_of(spark)).location
    assert written.count(location) == 1, "the second time, nothing has changed"
    assert show(spark) == [before], "what is in the store is not counted twice"

    columns = {row.column: row for row in show(spark, "BY COLUMN")}
    assert (columns["id"].queries, columns["id"].pruned_queries) == (2, 2)
    assert (columns["id"].files, columns["id"].bytes) == (before.files, before.bytes)
    assert (columns["name"].queries, columns["name"].files) == (1, 0)
    assert columns["name"].opened_files == columns["name"].unmatched_files == FILES
    (day,) = show(spark, "BY DAY")
    assert (day.day, day.files, day.bytes) == (TODAY, before.files, before.bytes)

    (advised,) = list_unused_predicates(read_workload(spark).records, open_table(spark, table).id)
    assert (advised.condition, advised.scans, advised.opened) == ("name = ?", 1, FILES)
    (saving,) = skipping.savings(spark, "saved")
    assert (saving.files, saving.bytes) == (before.files, before.bytes)
    assert skipping.savings(spark, "nowhere") == ()


def test_no_value_is_stored(spark: SparkSession, hooks: Hooks, table: str) -> None:
    spark.sql(f"SELECT * FROM {table} WHERE name = 'top secret' OR id IN (4711, 4712)").collect()
    hooks.workload.write()
    stored = _read_store(spark)
    text = stored[0].to_json()
    assert "name = ?" in text
    assert not any(value in text for value in ("secret", "4711", "4712"))


def test_nothing_is_written_while_a_query_runs(
    spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the watcher's thread writes, and only what has ended; then not for a minute."""
    hooks = find_hooks(spark)
    assert hooks is not None
    location = store_of(spark, settings_of(spark)).location
    written: list[tuple[str, float]] = []
    now = [1_000.0]
    monkeypatch.setattr(hooks.workload, "_timer", lambda: now[0])
    monkeypatch.setattr(hooks.workload, "_written", now[0])  # just now
    monkeypatch.setattr(hooks.workload, "_checked", 0.0)

    def record(store: SqliteStore, record: WorkloadRecord, **more: Any) -> None:
        if store.location == location:
            written.append((threading.current_thread().name, now[0]))

    monkeypatch.setattr(SqliteStore, "record_workload", record)
    for _ in range(3):
        spark.sql(f"SELECT * FROM {table} WHERE id = 1").collect()
    assert (show(spark)[0].queries, written) == (3, [])
    now[0] += 59
    _wait(lambda: False, seconds=0.7)
    assert written == []
    now[0] += 2
    _wait(lambda: bool(written), seconds=20)
    spark.sql(f"SELECT * FROM {table} WHERE id = 2").collect()
    now[0] += 30
    _wait(lambda: False, seconds=0.7)
    assert written == [("skipping", 1_061.0)]


def test_other_drivers_and_earlier_days(spark: SparkSession, hooks: Hooks, table: str) -> None:
    spark.sql(f"SELECT * FROM {table} WHERE id = 1").collect()
    (own,) = hooks.workload.read(settings_of(spark)).records
    store = store_of(spark, settings_of(spark))
    for driver, days in ((1, 0), (2, 3), (3, 89), (4, 91)):
        day = TODAY - timedelta(days)
        other = WorkloadRecord(driver=f"{driver:016x}", day=day, tables=own.tables)
        store.record_workload(other, oldest=date(2000, 1, 1))
    (all,) = show(spark)
    assert (all.queries, all.files, all.since) == (4, 4 * (FILES - 1), TODAY - timedelta(89))
    by_day = [(row.day, row.queries) for row in show(spark, "BY DAY")]
    assert by_day == [(TODAY - timedelta(89), 1), (TODAY - timedelta(3), 1), (TODAY, 2)]
    hooks.workload.write()
    assert len(_read_store(spark)) == 4, "the record beyond the retention is deleted"
    with settings(spark, {"spark.skipping.workload.retention": "2d"}):
        assert show(spark)[0].queries == 2


def test_without_the_store(
    spark: SparkSession, hooks: Hooks, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts that may not be written are shown, and SHOW says that they are in memory only."""

    def refuse(*_: object, **__: object) -> None:
        raise skipping.SkippingError("this user may not write it")

    monkeypatch.setattr(SqliteStore, "record_workload", refuse)
    spark.sql(f"SELECT * FROM {table} WHERE id = 1").collect()
    hooks.workload.write()
    (row,) = show(spark)
    assert row.files == FILES - 1
    assert row.note == "in memory of this driver only: this user may not write it"
    monkeypatch.undo()
    hooks.workload.write()
    assert show(spark)[0].note is None
    with settings(spark, {"spark.skipping.workload": "false"}):
        spark.sql(f"SELECT * FROM {table} WHERE id = 1").collect()
        hooks.workload.write()
        (row,) = show(spark)
    assert row.files == 2 * (FILES - 1)
    assert row.note == "in memory of this driver only: spark.skipping.workload is false"
    assert _read_store(spark)[0].tables[0].queries == 1


def test_the_records_of_java_are_json(spark: SparkSession, hooks: Hooks, table: str) -> None:
    spark.sql(f"SELECT * FROM {table} WHERE id = 1 AND name > 'a'").collect()
    spark.sql(f"SELECT * FROM {table}").collect()  # no predicate, but a query
    days = json.loads(hooks.java.executions().workload().json())
    mine = [day for day in days if str(day["store"]).endswith("index.db")][-1]
    (counted,) = mine["tables"]
    assert (mine["day"], mine["stored"], counted["queries"]) == (str(TODAY), True, 2)
    assert {each["condition"] for each in counted["predicates"]} == {
        "id = ?",
        "name BETWEEN ? AND ?",
    }


def test_joins_that_pruned_too_little_elsewhere(spark: SparkSession, hooks: Hooks) -> None:
    """The first query tries; the counts of others only make the pauses after it longer."""
    feedback = hooks.java.feedback()
    classes, unknown = Classes(spark.sparkContext._gateway), spark._jvm.java.lang.ref.WeakReference
    for seen, stored in [(2, 3), (2**31 - 1, 11)]:
        shape = f"delta\nid\nfile:/somewhere\nk\n{seen}"
        digest = hashlib.sha256(shape.encode()).hexdigest()[:16]
        feedback.restore(json.dumps({digest: seen}))
        assert feedback.rejectReason(shape, "", 1) is None
        assert digest not in json.loads(feedback.json()), "it was not used here"
        args = ("d", shape, "10", 1, None, "a join", False, False, None, unknown(None))
        source = classes.new("keys.KeySource", *args)
        feedback.recordBenefit(source, 0.0, 0.0)
        assert json.loads(feedback.json())[digest] == stored
        assert "saved less than 1 %" in feedback.rejectReason(shape, "", 1)
        feedback.recordBenefit(source, 1.0, 0.0)
        assert json.loads(feedback.json())[digest] == 0
        assert feedback.rejectReason(shape, "", 1) is None
    assert feedback.rejectReason("another", "", 1) is None


def _read_store(spark: SparkSession) -> Sequence[WorkloadRecord]:
    store = store_of(spark, settings_of(spark))
    return store.workload(since=date(2000, 1, 1), until=TODAY)


def _wait(is_done: Any, *, seconds: float) -> None:
    until = threading.Event()
    for _ in range(int(seconds / 0.1)):
        if is_done():
            return
        until.wait(0.1)
