"""CREATE SKIPPING INDEX ... AUTO: columns from the data, from queries, and after a week without."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

import rewrite
from providers.errors import DefinitionError, StatementError
from rewrite.bridge.install import find_hooks
from skipping import SkippingIndex
from skipping.advise import adapt
from skipping.model.definition import TableId
from skipping.model.workload import TableWorkload, WorkloadRecord
from skipping.sources.spark import settings_of, store_of
from tests.rewrite.differential import make_table, settings

FILES = 20
ROWS = f"""SELECT id div 30 AS _f, id AS k, 'k' || id div 60 AS name, xxhash64(id) AS mixed,
    id % 7 AS flag FROM range({FILES * 30})"""
TODAY = datetime.now(timezone.utc).date()


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A table whose index is in a store of its own, in which the session writes no counts."""
    hooks = find_hooks(spark)
    assert hooks is not None
    monkeypatch.setattr(hooks.workload, "write_if_due", lambda: None)
    with settings(spark, {"spark.skipping.store": f"sqlite:{tmp_path}/index.db"}):
        yield make_table(spark, "automatic", ROWS)
        spark.sql("DROP SKIPPING INDEX IF EXISTS ON automatic")
        spark.sql("DROP TABLE automatic")


def create(spark: SparkSession, columns: str = "AUTO") -> SkippingIndex:
    spark.sql(f"CREATE SKIPPING INDEX ON automatic {columns} WITH (budget = '300%')")
    return SkippingIndex.on(spark, "automatic")


def decisions(spark: SparkSession) -> list[Row]:
    return spark.sql("SHOW SKIPPING DECISIONS FOR automatic").collect()


def files_read(spark: SparkSession, condition: str) -> int | None:
    frame = spark.sql(f"SELECT * FROM automatic WHERE {condition}")
    frame.collect()
    (scan,) = rewrite.explain(frame).scans
    return scan.opened


def remember(spark: SparkSession, day: date, table: TableId) -> None:
    """Record that there was a query on a day."""
    counted = TableWorkload(table=table, name="x", queries=1)
    record = WorkloadRecord(driver="0" * 16, day=day, tables=(counted,))
    store_of(spark, settings_of(spark)).record_workload(record, oldest=TODAY - timedelta(99))


@pytest.mark.smoke
def test_it_begins_with_what_the_data_recommends(spark: SparkSession, table: str) -> None:
    index = create(spark)
    added = {(column.name, column.kind) for column in index.definition.columns}
    assert added, "a value of k is in one file"
    rows = decisions(spark)
    assert {(row.column, row.skipping_type) for row in rows} == added
    assert {(row.action, row.day) for row in rows} == {("add", TODAY)}
    assert {row.reason for row in rows} == {"the data recommends it, and there are no queries yet"}
    assert "k" in {name for name, _ in added}
    assert files_read(spark, "k = 77") == 1
    (found,) = spark.sql(f"SELECT * FROM {table} WHERE k = 77").collect()
    assert (found.k, found.name, found.flag) == (77, "k1", 0)
    size = sum(
        row["size"]
        for row in spark.sql(f"DESCRIBE DETAIL {table}").selectExpr("sizeInBytes AS size").collect()
    )
    assert sum(decision.bytes for decision in index.definition.decisions) <= 3 * size
    facts = index.describe()
    assert facts["columns"] == "chosen automatically, with at most 300% of the data"
    with pytest.raises(StatementError, match="takes a percentage"):
        spark.sql(f"ALTER SKIPPING INDEX ON {table} WITH (budget = 'much')")
    with pytest.raises(StatementError, match="AUTO means automatic = true"):
        spark.sql(f"CREATE SKIPPING INDEX ON {table} AUTO WITH (automatic = false)")


def test_it_adds_what_queries_need(spark: SparkSession, table: str) -> None:
    index = create(spark, "(flag MIN_MAX)")
    with pytest.raises(DefinitionError, match=r"WITH \(automatic = true\)"):
        spark.sql(f"REFRESH SKIPPING INDEX ON {table} DRY RUN")
    spark.sql(f"ALTER SKIPPING INDEX ON {table} WITH (automatic = true)")
    assert spark.sql(f"REFRESH SKIPPING INDEX ON {table} DRY RUN").collect() == []
    for condition in ("name = 'k3'", "flag = 3"):
        assert files_read(spark, condition) == FILES
    (planned,) = spark.sql(f"REFRESH SKIPPING INDEX ON {table} DRY RUN").collect()
    assert (planned.action, planned.column) == ("add", "name")
    assert planned.benefit > planned.cost
    assert planned.reason.startswith("queries would read ")
    assert decisions(spark) == []

    spark.sql(f"REFRESH SKIPPING INDEX ON {table}")
    (made,) = decisions(spark)
    assert made == planned
    assert files_read(spark, "name = 'k3'") == 2
    index.reread()
    assert [column.name for column in index.definition.columns] == ["flag", "name"]
    assert len(index.definition.automatic_columns) == 1
    index.add(f"name {made.skipping_type}")  # by hand
    assert index.definition.automatic_columns == {}
    assert [column.name for column in index.definition.columns] == ["flag", "name"]


@pytest.mark.nightly
def test_frequent_refreshes_sample_the_table_once(
    spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = create(spark, "(mixed MIN_MAX)")
    spark.sql(f"ALTER SKIPPING INDEX ON {table} WITH (automatic = true)")
    samples = []
    measure = adapt.measure
    monkeypatch.setattr(adapt, "measure", lambda *a, **k: samples.append(1) or measure(*a, **k))
    expected = [0, 1, 2, 2, 3, 3]  # when there are 1, 2, 4, ... missed scans
    for n in range(1, len(expected) + 1):  # `flag` cannot be helped
        index.refresh()
        assert len(samples) == expected[n - 1]
        assert files_read(spark, "flag = 3") == FILES
    assert decisions(spark) == []


def test_it_drops_what_queries_do_not_need(spark: SparkSession, table: str) -> None:
    index = create(spark)
    chosen = {column.name for column in index.definition.columns}
    spark.sql(f"ALTER SKIPPING INDEX ON {table} ADD (flag VALUE_LIST)")
    index.reread()
    later = TODAY + timedelta(9)
    assert index.adapt(today=later) == [], "no queries are recorded at all"
    other = TableId("delta", "x", "file:/x")
    remember(spark, later - timedelta(8), other)
    remember(spark, later - timedelta(1), other)
    assert index.adapt(today=later) == [], "nobody reads the table"
    remember(spark, later - timedelta(1), index.table.id)
    assert index.adapt(today=TODAY + timedelta(6)) == []
    planned = index.adapt(today=later, dry_run=True)
    assert {(each.action, each.column) for each in planned} == {("drop", name) for name in chosen}
    assert {column.name for column in index.definition.columns} == {*chosen, "flag"}
    assert list(index.adapt(today=later)) == list(planned)
    assert [column.name for column in index.definition.columns] == ["flag"]
    assert {row.action for row in decisions(spark)} == {"add", "drop"}
    assert files_read(spark, "k = 77") == FILES


@pytest.mark.nightly
def test_the_holder_of_the_lease_decides(spark: SparkSession, table: str) -> None:
    index = create(spark, "(flag MIN_MAX)")
    spark.sql(f"ALTER SKIPPING INDEX ON {table} WITH (automatic = true)")
    assert files_read(spark, "name = 'k3'") == FILES
    free = index.store.lease(index.definition.index)
    lease = free.claim("another process")
    index.store.hold(index.definition.index, lease, expect=free)
    index.refresh()
    assert decisions(spark) == []
    index.refresh(token=lease.token)
    assert [row.column for row in decisions(spark)] == ["name"]
    index.store.hold(index.definition.index, lease.release(), expect=lease)


@pytest.mark.nightly
def test_the_columns_of_a_replaced_table_stay_automatic(spark: SparkSession, table: str) -> None:
    index = create(spark)
    chosen = set(index.definition.automatic_columns)
    old = tuple(replace(each, day=TODAY - timedelta(20)) for each in index.definition.decisions)
    index.alter(lambda definition: replace(definition, decisions=old))
    remember(spark, TODAY - timedelta(30), index.table.id)
    spark.sql(f"CREATE OR REPLACE TABLE {table} USING delta AS SELECT * FROM {table}")
    files_read(spark, "name = 'k3'")  # so there is a query on the new one
    spark.sql(f"REFRESH SKIPPING INDEX ON {table}")
    again = SkippingIndex.on(spark, table)
    assert again.definition.index != index.definition.index
    assert {kind for _, kind in again.definition.automatic_columns} == {kind for _, kind in chosen}
    assert len(again.definition.automatic_columns) == len(again.definition.columns)


@pytest.mark.nightly
def test_an_empty_table_gets_columns_later(spark: SparkSession, table: str) -> None:
    spark.sql(f"DELETE FROM {table}")
    index = create(spark)
    assert index.definition.columns == ()
    assert index.state.status == "active"
    assert spark.sql(f"SELECT * FROM {table} WHERE k = 3").collect() == []
    spark.sql(f"INSERT INTO {table} SELECT k, name, mixed, flag FROM ({ROWS})")
    index.refresh()
    assert index.definition.columns
    assert spark.sql(f"SELECT name FROM {table} WHERE k = 3").collect() == [Row(name="k0")]


def test_a_failure_keeps_the_columns(
    spark: SparkSession,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    index = create(spark, "(flag MIN_MAX)")
    spark.sql(f"ALTER SKIPPING INDEX ON {table} WITH (automatic = true)")

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no executor\n  at java")

    monkeypatch.setattr(adapt, "collect_evidence", fail)
    index.reread()
    assert index.is_adaptation_due
    assert index.refresh().status == "active"
    assert not index.is_adaptation_due, "it would fail again"
    assert "keeps its columns: no executor" in caplog.text
    assert [column.name for column in index.definition.columns] == ["flag"]


@pytest.mark.nightly
def test_a_stream_decides_once_a_day(spark: SparkSession, table: str) -> None:
    index = create(spark, "(flag MIN_MAX)")
    stream = "automatic = true, auto_refresh = true, refresh_interval = '1 second'"
    spark.sql(f"ALTER SKIPPING INDEX ON {table} WITH ({stream})")

    def wait(is_done: Callable[[], bool]) -> None:
        until = time.monotonic() + 90
        while not is_done():
            assert time.monotonic() < until, index.state
            time.sleep(0.5)

    wait(lambda: index.state.adapted == TODAY.isoformat())
    assert files_read(spark, "name = 'k3'") == FILES
    yesterday = (TODAY - timedelta(1)).isoformat()
    lease = index.store.lease(index.definition.index)
    index.store.report(
        index.definition.index, replace(index.state, adapted=yesterday), token=lease.token
    )
    wait(lambda: bool(decisions(spark)))  # although the table has no new version
    assert [row.column for row in decisions(spark)] == ["name"]
    wait(lambda: files_read(spark, "name = 'k3'") == 2)
    spark.sql(f"ALTER SKIPPING INDEX ON {table} WITH (auto_refresh = false)")
