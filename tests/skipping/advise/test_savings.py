"""What queries saved, computed from records of drivers; no Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import numpy as np
import pytest

from providers.errors import StoreError
from skipping.advise.savings import MOST_TABLES, Saving, compute_savings, estimate, rows_of_savings
from skipping.advise.workload import RememberedWorkload, merge_workload
from skipping.config.settings import Settings
from skipping.extensions import OwnWorkload
from skipping.model.definition import TableId
from skipping.model.workload import PredicateWorkload, TableWorkload, WorkloadRecord
from skipping.parser.statements import ShowSavings
from skipping.plots import draw_savings
from skipping.stores.memory.store import MemoryStore
from tests.skipping.stores.samples import bounds, definition, fill

TODAY = date(2026, 3, 31)
LOCAL = definition(table="i").table  # file:/t
REMOTE = TableId("iceberg", "u", "s3a://bucket/u")
SETTINGS = Settings(price_get=0.0004, price_storage=0.023)


def make_counts(
    table: TableId, name: str, *, queries: int = 2, bytes: int = 1_000
) -> TableWorkload:
    leaf = PredicateWorkload(
        condition="id = ?",
        identity="id",
        sql="id",
        computed=False,
        form="values",
        scans=queries,
        pruned_scans=queries,
        pruned_files=10 * queries,
        pruned_bytes=bytes,
        unmatched_files=1,
    )
    missed = replace(
        leaf,
        condition="name LIKE '%?%'",
        sql="name",
        form="text",
        scans=1,
        pruned_scans=0,
        pruned_files=0,
        pruned_bytes=0,
        missed_files=7,
        missed_bytes=700,
    )
    ranges = replace(leaf, condition="id BETWEEN ? AND ?", form="range")
    return TableWorkload(
        table=table,
        name=name,
        queries=queries,
        pruned_queries=1,
        files=12 * queries,
        bytes=2 * bytes,
        pruned_files=10 * queries,
        pruned_bytes=bytes,
        opened_files=2 * queries,
        opened_bytes=bytes,
        unmatched_files=1,
        predicates=(leaf, missed, ranges),
    )


def record(driver: int, days: int, *tables: TableWorkload) -> WorkloadRecord:
    return WorkloadRecord(driver=f"{driver:016x}", day=TODAY - timedelta(days), tables=tables)


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore("savings")
    fill(made, bounds([1, 2]))
    return made


WORKLOAD = RememberedWorkload(
    (
        record(1, 14, make_counts(LOCAL, "c.db.t")),
        record(1, 0, make_counts(LOCAL, "c.db.t"), make_counts(REMOTE, "c.db.u", bytes=10**9)),
        record(2, 0, make_counts(LOCAL, "c.db.t", queries=3)),
    ),
    TODAY - timedelta(90),
)


def test_savings_by_table(store: MemoryStore) -> None:
    remote, local = compute_savings(WORKLOAD, store, SETTINGS)
    assert (remote.table, local.table) == ("c.db.u", "c.db.t")
    assert (local.queries, local.pruned_queries, local.files, local.bytes) == (7, 3, 70, 3_000)
    assert (local.since, local.opened_files, local.unmatched_files) == (
        TODAY - timedelta(14),
        14,
        3,
    )
    # A local store and table cost nothing, and u has no index.
    assert (local.saved, local.cost, local.index_bytes) == (0, 0, store.size("i"))
    assert (remote.requests, remote.saved) == (40, pytest.approx(40 * 0.0004 / 1_000))
    assert remote.seconds == pytest.approx(40 * 0.03 + 10)
    assert (remote.index_bytes, remote.note) == (0, None)
    assert compute_savings(WORKLOAD, store, SETTINGS, table="C.DB.T") == (local,)
    assert compute_savings(WORKLOAD, store, SETTINGS, table="t") == ()


def test_savings_by_day(store: MemoryStore) -> None:
    found = compute_savings(WORKLOAD, store, SETTINGS, table="c.db.t", by="day")
    assert [(each.day, each.queries, each.files) for each in found] == [
        (TODAY - timedelta(14), 2, 20),
        (TODAY, 5, 50),
    ]


def test_savings_by_column(store: MemoryStore) -> None:
    found = compute_savings(WORKLOAD, store, SETTINGS, table="c.db.t", by="column")
    assert [(each.column, each.queries, each.pruned_queries, each.files) for each in found] == [
        ("id", 14, 14, 140),  # two shapes of conditions
        ("name", 3, 0, 0),
    ]
    assert (found[1].opened_files, found[1].opened_bytes) == (21, 2_100)
    assert found[0].index_bytes is None


def test_the_price_of_an_index(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryStore, "location", "s3a://bucket/store")
    monkeypatch.setattr(MemoryStore, "size", lambda self, index: 1 << 30)
    _, local = compute_savings(WORKLOAD, store, SETTINGS)
    assert local.cost == pytest.approx(0.023 * 15 / 30)
    days = compute_savings(WORKLOAD, store, SETTINGS, table="c.db.t", by="day")
    assert [each.cost for each in days] == [pytest.approx(0.023 / 30)] * 2

    def fail(*_: object, **__: object) -> None:
        raise StoreError("away")

    monkeypatch.setattr(MemoryStore, "definitions", fail)
    _, local = compute_savings(WORKLOAD, store, SETTINGS)
    assert (local.index_bytes, local.cost, local.files) == (None, None, 70)


@pytest.mark.parametrize("by", [None, "column", "day"])
def test_the_rows_of_the_statement(store: MemoryStore, by: str | None) -> None:
    statement = ShowSavings(None, by)  # type: ignore[arg-type]
    found = compute_savings(WORKLOAD, store, SETTINGS, by=statement.by)
    rows = rows_of_savings(found, statement.schema)
    assert len(rows) == len(found) > 0
    assert all(len(row) == statement.schema.count(",") + 1 for row in rows)
    assert rows[0][0] == "c.db.t" if by == "day" else "c.db.u"


def test_many_tables(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forged records can name any number of tables; the store is read once."""
    calls = 0
    read = MemoryStore.definitions

    def count(self: MemoryStore, *, timeout: float | None = None) -> Any:
        nonlocal calls
        calls += 1
        return read(self, timeout=timeout)

    monkeypatch.setattr(MemoryStore, "definitions", count)
    one = replace(make_counts(LOCAL, "c.db.t"), predicates=())
    forged = [replace(one, table=replace(LOCAL, id=str(n)), pruned_bytes=n) for n in range(1_100)]
    workload = RememberedWorkload((record(1, 0, one, *forged),), TODAY)
    found = compute_savings(workload, store, SETTINGS)
    assert (len(found), calls) == (MOST_TABLES, 1)
    assert found[0].bytes == 1_099
    assert [each.index_bytes for each in found if each.index_bytes] == [store.size("i")]


def test_large_sums_are_bigints(store: MemoryStore) -> None:
    most = 1 << 61
    leaves = tuple(
        replace(each, condition=f"{n}", pruned_files=most, pruned_bytes=most)
        for n, each in enumerate(make_counts(REMOTE, "u").predicates * 20)
    )
    large = replace(
        make_counts(REMOTE, "u"), pruned_files=most, pruned_bytes=most, predicates=leaves
    )
    records = tuple(record(n, 0, large) for n in range(3))
    merged = RememberedWorkload(records, TODAY)
    (table,) = compute_savings(merged, store, SETTINGS)
    columns = compute_savings(merged, store, SETTINGS, by="column")
    assert table.files == (1 << 62) - 1
    assert {each.column for each in columns} == {"id", "name"}
    for each in (table, *columns):
        assert max(each.files, each.bytes, each.requests, each.opened_bytes) < 1 << 63


def test_estimates() -> None:
    assert estimate("file:/t", 100, 0, SETTINGS)[2] == 0
    assert estimate("hdfs://h/t", 100, 0, SETTINGS)[2] == 0
    assert estimate("abfss://c@a/t", 500, 0, SETTINGS)[::2] == (1_000, pytest.approx(0.0004))
    assert estimate("S3://b/t", 0, 0, SETTINGS) == (0, 0, 0)


class TestRemembered:
    def test_own_records_replace_those_in_the_store(self, store: MemoryStore) -> None:
        for days in (0, 1, 30):
            old = record(1, days, make_counts(LOCAL, "t", queries=2))
            store.record_workload(old, oldest=TODAY - timedelta(99))
        other = record(2, 0, make_counts(LOCAL, "t", queries=5))
        store.record_workload(other, oldest=TODAY - timedelta(99))
        own = OwnWorkload([record(1, 0, make_counts(LOCAL, "t", queries=9))])
        found = _merge(store, own, retention=7)
        assert found.problem is None
        assert sorted((r.driver[-1], r.day, r.tables[0].queries) for r in found.records) == [
            ("1", TODAY - timedelta(1), 2),
            ("1", TODAY, 9),
            ("2", TODAY, 5),
        ]

    def test_records_ahead_of_time_hide_no_others(self, store: MemoryStore) -> None:
        real = record(1, 0, make_counts(LOCAL, "t"))
        store.record_workload(real, oldest=TODAY)
        for number in range(1_001):
            store.record_workload(record(number, -1), oldest=TODAY)
        merged = _merge(store, OwnWorkload(), retention=7)
        assert real.key in {each.key for each in merged.records}

    def test_a_store_that_fails(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object, **__: object) -> None:
            raise StoreError("away\nat java")

        monkeypatch.setattr(MemoryStore, "workload", fail)
        own = OwnWorkload(
            [record(1, 0, make_counts(LOCAL, "t")), record(1, 9, make_counts(LOCAL, "t"))]
        )
        found = _merge(MemoryStore(), own, retention=7)
        assert (found.problem, len(found.records)) == ("away", 1)
        savings = compute_savings(found, MemoryStore(), SETTINGS)
        assert [each.note for each in savings] == ["in memory of this driver only: away"]
        assert _merge(MemoryStore(), OwnWorkload((), "off"), retention=7).problem == "off"


def _merge(store: MemoryStore, own: OwnWorkload, *, retention: int) -> RememberedWorkload:
    kept = Settings(workload_retention=retention * 86_400.0)
    return merge_workload(store, kept, own, today=TODAY)


class TestPlot:
    def test_bytes_by_day(self, store: MemoryStore) -> None:
        ax = draw_savings(compute_savings(WORKLOAD, store, SETTINGS, by="day"))
        heights = {tuple(np.round(bar.get_facecolor(), 3)): 0.0 for bar in ax.patches}
        for bar in ax.patches:
            heights[tuple(np.round(bar.get_facecolor(), 3))] += bar.get_height()
        assert len(ax.patches) == 4  # two days
        assert sorted(heights.values()) == [3_000 + 10**9] * 2
        assert [text.get_text() for text in ax.get_xticklabels()] == ["2026-03-17", "2026-03-31"]
        places = [bar.get_x() for bar in ax.patches[:2]]
        assert places[1] - places[0] == pytest.approx(14)
        title = ax.get_title(loc="left")
        assert "about 180 requests" in title

    @pytest.mark.parametrize("savings", [(), (Saving(table="t", since=TODAY, day=TODAY),)])
    def test_little_to_draw(self, savings: Sequence[Saving]) -> None:
        ax = draw_savings(savings)
        assert len(ax.patches) == 2 * len(savings)
