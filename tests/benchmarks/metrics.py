"""What a query that has run read, from Spark's own metrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

__all__ = ["Read", "reads"]


@dataclass(frozen=True, slots=True)
class Read:
    """One scan: where its files are, files and bytes, rows out of it and out of its filters.

    Of a connector's scan `location` is the table's name, and files and bytes are zero: those are in
    `rewrite.explain`.
    """

    location: str
    files: int
    bytes: int
    rows: int
    joined: int


def reads(df: DataFrame) -> list[Read]:
    """The scans of files of the last run of `df`; one that was reused counts once."""
    return list(_below(df._jdf.queryExecution().executedPlan(), None))


def _below(plan: Any, filtered: int | None) -> Iterator[Read]:
    """`filtered`: the rows out of the filter above, with nothing but projections between."""
    name = plan.getClass().getSimpleName()
    if name == "AdaptiveSparkPlanExec":
        yield from _below(plan.executedPlan(), None)
        return
    if name.endswith("QueryStageExec"):
        yield from _below(plan.plan(), None)
        return
    if name.startswith("Reused"):
        return
    if name == "FileSourceScanExec":
        rows = _metric(plan, "numOutputRows")
        yield Read(
            plan.relation().location().rootPaths().head().toString(),
            _metric(plan, "numFiles"),
            _metric(plan, "filesSize"),
            rows,
            rows if filtered is None else filtered,
        )
    if name == "BatchScanExec":
        rows = _metric(plan, "numOutputRows")
        yield Read(plan.table().name(), 0, 0, rows, rows if filtered is None else filtered)
    if name == "FilterExec":
        filtered = _metric(plan, "numOutputRows") if filtered is None else filtered
    elif name not in ("ProjectExec", "WholeStageCodegenExec", "InputAdapter", "ColumnarToRowExec"):
        filtered = None
    for inner in (plan.children(), plan.subqueries()):
        for i in range(inner.size()):
            yield from _below(inner.apply(i), filtered)


def _metric(plan: Any, name: str) -> int:
    found = plan.metrics().get(name)
    return int(found.get().value()) if found.isDefined() else 0
