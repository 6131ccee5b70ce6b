"""A month of automatic indexes: `python -m tests.benchmarks.automatic [refreshes a day] [days]`.

Three Delta tables, whose queries change. Before each part of a day the index is refreshed, and
decides if that is due. Each part runs one query of each sort in Spark, and counts it as often as
planned.
Bytes are those of opened files, plus OPEN_COST for each. From day 8 on they are compared with the
best fixed index of all subsets of columns whose sizes are within the budget.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from datetime import date, datetime, timedelta, timezone
from itertools import chain, combinations
from tempfile import TemporaryDirectory
from typing import Any, TypeVar
from unittest.mock import patch

from pyspark.sql import SparkSession

import rewrite
import skipping.index
from rewrite.bridge.install import find_hooks
from skipping import SkippingIndex
from skipping.advise.choose import OPEN_COST
from skipping.advise.workload import read_workload
from skipping.model.workload import (
    PredicateWorkload,
    TableWorkload,
    WorkloadRecord,
    merge_records,
)
from tests.benchmarks.report import heading, table
from tests.benchmarks.session import benchmark_session

__all__ = ["main"]

FILES, ROWS = 40, 4_000
BUDGET = 0.1
FIRST = 7  # the first day that counts, from 0
DRIVER = "0" * 16
Counted = TypeVar("Counted", TableWorkload, PredicateWorkload)
START = datetime.now(timezone.utc).date() + timedelta(30)

CONDITIONS = {
    "customer": "customer = 1234",
    "product": "product IN ('p77', 'p78')",
    "created": "created BETWEEN DATE'2026-01-10' AND DATE'2026-01-12'",
    "mixed": "mixed = xxhash64(777L)",
    "flag": "flag = 1",
}
TYPES = {
    "customer": "VALUE_LIST",
    "product": "VALUE_LIST",
    "created": "MIN_MAX",
    "mixed": "BLOOM_FILTER",
    "flag": "VALUE_LIST",
}
Day = Mapping[str, int]
"""How many queries of a day have a condition on a column."""

PLANS: Mapping[str, Sequence[Day]] = {
    "steady": [{"customer": 20, "created": 5, "flag": 9}] * 30,
    "changing": [{"customer": 20}] * 12
    + [{"product": 20, "customer": 1}] * 9
    + [{"created": 20, "mixed": 2}] * 9,
    "weekends": [{} if n % 7 > 4 else {"product": 4, "mixed": 30} for n in range(30)],
}


def main(refreshes: int = 1, days: int = 30) -> None:
    """Print the table."""
    with TemporaryDirectory() as folder, benchmark_session() as spark:
        spark.conf.set("spark.skipping.store", f"sqlite:{folder}/index.db")
        hooks = find_hooks(spark)
        assert hooks is not None
        hooks.workload.write_if_due = lambda: None  # type: ignore[method-assign]  # see `_record`
        rows = []
        for name, plan in PLANS.items():
            rows.append(_run(spark, name, plan[:days], refreshes))
            print(*rows[-1], flush=True)
        facts = {"files": FILES, "rows": FILES * ROWS, "budget": f"{BUDGET:.0%}", "days": days}
        facts["refreshes a day"] = refreshes
        heading("Bytes read from day 8 on, in GB", **facts)
        head = ("table", "without", "automatic", "best fixed index", "ratio", "changes", "largest")
        table(head, rows)


def _run(spark: SparkSession, name: str, plan: Sequence[Day], refreshes: int) -> tuple[object, ...]:
    _write(spark, name)
    full, best = _find_best(spark, name, plan)
    options = f"budget = '{BUDGET:.0%}', build = false"
    spark.sql(f"CREATE SKIPPING INDEX ON {name} AUTO WITH ({options})")
    index = SkippingIndex.on(spark, name)
    read, changes, largest = 0, 0, 0.0
    for n, day in enumerate(plan):
        today = START + timedelta(n)
        counts: list[TableWorkload] = []
        for part in range(refreshes):
            before = index.definition.decisions
            with patch.object(skipping.index, "_today", lambda: today):  # noqa: B023  # called here
                index.refresh()
            changes += sum(each not in before for each in index.definition.decisions)
            size = index.store.size(index.definition.index) or 0
            largest = max(largest, size / _size(spark, name))
            for column, in_all in day.items():
                times = in_all * (part + 1) // refreshes - in_all * part // refreshes
                if not times:
                    continue
                counted = _count(spark, index)
                cost = _query(spark, name, column)
                read += cost * times if n >= FIRST else 0
                counts.append(_multiply(counted, _count(spark, index), times))
            _record(index, today, counts)
    index.drop()
    gb = [f"{size / 1e9:.1f}" for size in (full, read, best)]
    return (name, *gb, f"{read / best:.2f}", changes, f"{largest:.1%}")


def _write(spark: SparkSession, name: str) -> None:
    rows = spark.range(0, FILES * ROWS, 1, FILES).selectExpr(
        f"int(id div {ROWS} * 200 + id % 250) AS customer",
        f"'p' || (id div {ROWS} % 20 * 15 + id % 17) AS product",
        f"date_add(DATE'2026-01-01', int(id div {2 * ROWS})) AS created",
        "xxhash64(id) AS mixed",
        "int(id % 3) AS flag",
        "rand(7) * 1000 AS price",
    )
    writer = rows.write.format("delta").option("delta.dataSkippingNumIndexedCols", "0")
    writer.saveAsTable(name)


def _query(spark: SparkSession, name: str, column: str) -> int:
    """Return what a query reads: bytes, and OPEN_COST for each file."""
    frame = spark.sql(f"SELECT sum(price) FROM {name} WHERE {CONDITIONS[column]}")
    frame.collect()
    (scan,) = rewrite.explain(frame).scans
    return (scan.opened_bytes or 0) + OPEN_COST * (scan.opened or 0)


def _find_best(spark: SparkSession, name: str, plan: Sequence[Day]) -> tuple[int, int]:
    """Return what is read without an index, and with the best fixed one, from FIRST on."""
    full = {column: _query(spark, name, column) for column in CONDITIONS}
    left, sizes = {}, {}
    for column, kind in TYPES.items():
        spark.sql(f"CREATE SKIPPING INDEX ON {name} ({column} {kind})")
        index = SkippingIndex.on(spark, name)
        sizes[column] = index.store.size(index.definition.index) or 0
        left[column] = _query(spark, name, column)
        index.drop()
    budget = BUDGET * _size(spark, name)

    def read(some: Collection[str]) -> int:
        return sum(
            times * (left if column in some else full)[column]
            for day in plan[FIRST:]
            for column, times in day.items()
        )

    subsets = chain.from_iterable(combinations(TYPES, n) for n in range(len(TYPES) + 1))
    return read(()), min(read(some) for some in subsets if sum(sizes[c] for c in some) <= budget)


def _size(spark: SparkSession, name: str) -> int:
    return int(spark.sql(f"DESCRIBE DETAIL {name}").first()["sizeInBytes"])  # type: ignore[index]


def _count(spark: SparkSession, index: SkippingIndex) -> TableWorkload | None:
    """Return what this driver counted of the table until now."""
    records = read_workload(spark).records
    own = [each for record in records if record.driver != DRIVER for each in record.tables]
    return next((each for each in own if each.table == index.table.id), None)


def _multiply(
    before: TableWorkload | None, after: TableWorkload | None, times: int
) -> TableWorkload:
    """Return what was counted in between, `times` times."""
    assert after is not None
    old = {} if before is None else {each.condition: each for each in before.predicates}
    predicates = []
    for each in after.predicates:
        earlier = old.get(each.condition)
        if earlier != each:
            predicates.append(_difference(earlier, each, times))
    return replace(_difference(before, after, times), predicates=tuple(predicates))


def _difference(before: Counted | None, after: Counted, times: int) -> Counted:
    numbers: dict[str, Any] = {
        field.name: times * (getattr(after, field.name) - getattr(before, field.name, 0))
        for field in fields(after)
        if field.type == "int"
    }
    return replace(after, **numbers)


def _record(index: SkippingIndex, today: date, counts: Sequence[TableWorkload]) -> None:
    """Store the counts of a day until now, as a driver would."""
    records = [WorkloadRecord(driver=DRIVER, day=today, tables=(each,)) for each in counts]
    for record in merge_records(records):
        index.store.record_workload(record, oldest=START - timedelta(99))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
