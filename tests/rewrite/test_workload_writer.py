"""When counts are written, and what happens if they cannot; without a JVM."""

from __future__ import annotations

import json
from datetime import date, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from providers.errors import NoStore, StoreError
from rewrite.bridge.workload_writer import WorkloadWriter
from rewrite.observe.prometheus import savings_metrics
from skipping.config.settings import Settings
from skipping.lookup.lookup import Lookup
from skipping.model.definition import TableId
from skipping.model.workload import TableWorkload, WorkloadRecord
from skipping.stores.memory.store import MemoryStore

DAY = date(2026, 3, 31)
PRICE = Settings(price_get=0.4)
NOON = 1_774_958_400.0  # of that day


class Driver:
    """A writer with what Java would count, and clocks that tests move."""

    def __init__(self, **given: Any) -> None:
        self.settings = Settings(**given)
        self.store = MemoryStore("writer")
        self.days: list[dict[str, Any]] = []
        self.changes, self.now, self.reads = 0, 0.0, 0
        lookup = Lookup(self.store, ttl=60)
        workload = SimpleNamespace(changes=lambda: self.changes, json=self._json)
        self.joins: dict[str, int] = {}
        self.restored: dict[str, int] = {}
        feedback = SimpleNamespace(
            json=lambda: json.dumps(self.joins),
            restore=lambda text: self.restored.update(json.loads(text)),
        )
        java = SimpleNamespace(
            executions=lambda: SimpleNamespace(workload=lambda: workload),
            feedback=lambda: feedback,
        )
        lookups: Any = SimpleNamespace(items=lambda: [(self.settings, lookup)])
        self.writer = WorkloadWriter(
            java, lookups, clock=lambda: NOON + self.now, timer=lambda: self.now
        )

    def _json(self) -> str:
        self.reads += 1
        return json.dumps(self.days)

    def query(self, n: int, day: date = DAY, *, stored: bool = True, store: str = "") -> None:
        """Count `n` queries in all on a day."""
        leaf = {
            "condition": "id = ?",
            "identity": "id",
            "sql": "id",
            "name": "id",
            "computed": False,
            "form": "values",
            "parts": [],
            "sums": {"scans": n, "keys": n},
        }
        table = {"table": "delta\nt\nfile:/t", "name": "c.d.t", "queries": n, "predicates": [leaf]}
        place = {"day": day.isoformat(), "store": store, "stored": stored}
        others = [each for each in self.days if {**each, "tables": 0} != {**place, "tables": 0}]
        self.days = [*others, {**place, "tables": [table]}]
        self.changes += 1

    def records(self) -> list[WorkloadRecord]:
        return list(self.store.workload(since=DAY - timedelta(99), until=DAY + timedelta(99)))


def test_at_most_once_a_minute() -> None:
    driver = Driver()
    written = []
    for second in range(200):
        driver.now = second
        if second % 3 == 0:
            driver.query(second)
        before = [each.to_json() for each in driver.records()]
        driver.writer.write_if_due()
        if [each.to_json() for each in driver.records()] != before:
            written.append(second)
    assert written == [0, 60, 120, 180]
    (record,) = driver.records()
    assert (record.day, record.tables[0].queries) == (DAY, 180)
    assert record.tables[0].predicates[0].condition == "id = ?"


def test_an_idle_driver_writes_nothing() -> None:
    driver = Driver()
    driver.query(1)
    for second in range(0, 400, 5):
        driver.now = second
        driver.writer.write_if_due()
    assert driver.reads == 1
    assert len(driver.records()) == 1


def test_midnight_begins_another_record() -> None:
    driver = Driver(workload_retention=2 * 86_400.0)
    driver.query(3)
    driver.writer.write()
    driver.query(1, DAY + timedelta(1))
    driver.now = 86_400
    driver.writer.write()
    records = sorted(driver.records(), key=lambda each: each.day)
    assert [(each.day, each.tables[0].queries) for each in records] == [
        (DAY, 3),
        (DAY + timedelta(1), 1),
    ]
    assert len({each.driver for each in records}) == 1
    for days, left in [(4, 3), (40, 1)]:  # the store is not only this driver's
        driver.now = days * 86_400
        driver.query(1, DAY + timedelta(days))
        driver.writer.write()
        assert len(driver.records()) == left
    assert driver.records()[0].day == DAY + timedelta(40)


def test_a_wrong_clock_deletes_nothing_of_others() -> None:
    driver = Driver()
    other = WorkloadRecord(driver="f" * 16, day=DAY)
    driver.store.record_workload(other, oldest=DAY)
    driver.now = 3_650 * 86_400
    driver.query(1, DAY + timedelta(3_650))
    driver.writer.write()
    assert driver.records() == [other]  # and one in ten years


@pytest.mark.parametrize("error", [StoreError("read only"), NoStore("none"), AttributeError("old")])
def test_what_cannot_be_written_stays_in_memory(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver()
    driver.query(7)

    def fail(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(MemoryStore, "record_workload", fail)
        driver.writer.write_if_due()
    own = driver.writer.read(driver.settings)
    assert [each.tables[0].queries for each in own.records] == [7]
    assert own.problem == str(error)
    driver.now = 60
    driver.query(8)
    driver.writer.write_if_due()
    assert driver.writer.read(driver.settings).problem is None
    assert driver.records()[0].tables[0].queries == 8


def test_the_switch() -> None:
    driver = Driver(workload=False)
    driver.query(7, stored=False)
    driver.writer.write()
    assert driver.records() == []
    own = driver.writer.read(driver.settings)
    assert [each.tables[0].queries for each in own.records] == [7]
    assert own.problem == "spark.skipping.workload is false"


def test_counts_of_another_store_are_not_mixed_in() -> None:
    driver = Driver()
    driver.query(7, store="sqlite:/elsewhere.db")
    driver.writer.write()
    assert driver.records() == []
    assert driver.writer.read(driver.settings).records == []
    assert len(driver.writer.read(Settings(store="sqlite:/elsewhere.db")).records) == 1


def test_joins_of_other_drivers() -> None:
    """The newest count of a shape is used; older than a week, none."""
    ours, theirs = "a" * 16, "b" * 16
    driver = Driver()
    driver.query(1)
    driver.joins = {ours: 3}
    driver.writer.write()
    assert driver.records()[0].joins == {ours: 3}
    for number, (days, joins) in enumerate(
        [(1, {ours: 1, theirs: 2}), (0, {ours: 4}), (9, {"c" * 16: 1})]
    ):
        other = WorkloadRecord(driver=f"{number:016x}", day=DAY - timedelta(days), joins=joins)
        driver.store.record_workload(other, oldest=DAY - timedelta(99))
    driver.writer.restore()
    assert driver.restored == {ours: 3, theirs: 2}
    for number in range(100, 160):
        other = WorkloadRecord(driver=f"{number:016x}", day=DAY)
        driver.store.record_workload(other, oldest=DAY - timedelta(99))
    driver.restored.clear()
    driver.writer.restore()
    assert theirs not in driver.restored, "it reads the newest records only"
    silent = Driver(workload=False)
    silent.store = driver.store
    silent.writer.restore()
    assert silent.restored == {}


def test_metrics_of_savings() -> None:
    table = TableWorkload(
        table=TableId("delta", "t", "s3a://bucket/t"),
        name="c.d.t",
        pruned_files=500,
        pruned_bytes=10**9,
    )
    record = WorkloadRecord(driver="a" * 16, day=DAY, tables=(table,))
    registry = CollectorRegistry()
    collector = type("Saved", (), {"collect": lambda _: savings_metrics([record], PRICE)})
    registry.register(collector())
    labels = {"table": "c.d.t", "day": "2026-03-31"}
    values = [
        registry.get_sample_value(f"skipping_saved_{name}", labels)
        for name in ("requests", "seconds", "price")
    ]
    assert values == [1_000, 40, 0.4]


def test_the_end_writes_the_rest() -> None:
    driver = Driver()
    driver.query(1)
    driver.writer.write_if_due()
    driver.query(2)
    driver.writer.write()
    assert driver.records()[0].tables[0].queries == 2
