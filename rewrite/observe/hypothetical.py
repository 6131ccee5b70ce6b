"""Estimate what a query would read with an index that does not exist (EXPLAIN SKIPPING WITH)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from providers.errors import SessionError
from rewrite.observe.explain import explain_plan, require_hooks
from rewrite.observe.queries import plan_of
from skipping.advise.hypothetical import build_hypothetical
from skipping.config.settings import PREFIX
from skipping.indexing.vacuum import erase_indexes
from skipping.lookup.scan_plan import ScanPlan
from skipping.model.identifiers import shown_path
from skipping.parser.statements import ColumnSpec
from skipping.stores import IndexStore
from skipping.stores.open import open_store

_NO_COLUMN = "the table has none of the columns in WITH, so this is no estimate"
_NO_SAMPLE = "no estimate: the query reads none of the sampled files"
_NO_CONDITION = "no condition on these columns"
_KEYS = "keys of joins are known only when the query runs, so they prune nothing here"


def estimate_scans(
    spark: SparkSession, query: str, columns: Sequence[ColumnSpec]
) -> list[tuple[ScanPlan, str]]:
    """Plan a query as if its tables had an index on these columns; return scans with notes.

    The index is built in memory, from a sample of the files of each table that has one of the
    columns. Counts of sampled files are extrapolated to all files that the scan lists. The query
    does not run, and nothing is written to the store. Raises the errors of CREATE and of a query.
    """
    hooks = require_hooks(spark)
    plan = plan_of(spark, query)
    tables = _list_tables(spark, plan)
    with _session_with_store(spark) as (clone, store):
        sampled = build_hypothetical(spark, store, tables, columns)
        hooks.publish(clone)
        explained = explain_plan(clone, plan_of(clone, query))
    has_join = _has_join(plan)
    found = []
    for scan in explained.scans:
        if scan.total is None:
            is_sampled = scan.table in map(shown_path, sampled)
            # Without a condition of its own, a scan is not compared with the index while planning.
            reason = (_KEYS if has_join else _NO_CONDITION) if is_sampled else _NO_COLUMN
            found.append((replace(scan, reason=reason), reason))
            continue
        evaluated = scan.total - scan.unknown
        if scan.total and not evaluated:
            found.append((replace(scan, reason=_NO_SAMPLE), _NO_SAMPLE))
            continue
        notes = [f"estimated from {evaluated:,} of {scan.total:,} files, without building an index"]
        notes += [_KEYS] if has_join else []
        found.append((_extrapolate(scan, evaluated), "; ".join(notes)))
    return found


def _list_tables(spark: SparkSession, plan: Any) -> list[str]:
    """Return the names of the tables that a query scans."""
    hooks = require_hooks(spark)
    jvm: Any = spark.sparkContext._jvm
    skip = jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
    execution = spark._jsparkSession.sessionState().executePlan(plan, skip)
    scans = json.loads(hooks.java.scans().foresee(execution.executedPlan()))
    return [scan["table"] for scan in scans]


def _extrapolate(scan: ScanPlan, evaluated: int) -> ScanPlan:
    """Return a scan whose counts for the sampled files are counts for all files."""
    if not evaluated:
        return replace(scan, unknown=0)
    assert scan.total is not None
    times = scan.total / evaluated
    return replace(
        scan,
        pruned=round(times * scan.pruned),
        unknown=0,
        legs=tuple((label, round(times * count)) for label, count in scan.legs),
        pruned_bytes=round(times * scan.pruned_bytes),
    )


def _has_join(plan: Any) -> bool:
    children = plan.children()
    return plan.nodeName() == "Join" or any(
        _has_join(children.apply(n)) for n in range(children.size())
    )


ADDRESS = "memory:hypothetical"
"""The store of all indexes that do not exist."""

_one_at_a_time = threading.Lock()
_LONGEST_WAIT = 60.0  # seconds


@contextmanager
def _session_with_store(spark: SparkSession) -> Iterator[tuple[SparkSession, IndexStore]]:
    """Yield a clone of a session, and the empty store in memory that only such clones have.

    All have the same store, one at a time: the driver caches what it reads of each store.
    """
    if not _one_at_a_time.acquire(timeout=_LONGEST_WAIT):
        raise SessionError("another EXPLAIN SKIPPING WITH is still running: try again later")
    try:
        clone = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
        clone.conf.set(f"{PREFIX}store", ADDRESS)
        clone.conf.set(f"{PREFIX}enabled", "true")
        store = open_store(ADDRESS)
        _erase(store)  # an interrupt may have left something
        try:
            yield clone, store
        finally:
            _erase(store)
    finally:
        _one_at_a_time.release()


def _erase(store: IndexStore) -> None:
    for found in store.definitions():
        if not found.value.dropped:
            store.define(replace(found.value, dropped=True), expect=found.revision)
    erase_indexes(store, lambda definition: True)
