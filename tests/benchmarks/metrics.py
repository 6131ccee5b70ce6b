"""What a query that has run read, from Spark's own metrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

__all__ = ["Read", "broadcasts", "opened", "reads"]


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
    return [_read(scan, filtered) for scan, filtered in _scans(df)]


def opened(df: DataFrame) -> dict[str, set[str]]:
    """The paths of the files that the last run of `df` opened, by the location of their table."""
    paths: dict[str, set[str]] = {}
    for scan, _ in _scans(df):
        if _kind(scan) == FILES:
            found = paths.setdefault(_location(scan), set())
            partitions = scan.inputRDDs().head().filePartitions()
            for i in range(partitions.size()):
                found.update(
                    file.filePath().toPath().toString() for file in partitions.apply(i).files()
                )
    return paths


def broadcasts(df: DataFrame) -> int:
    """How many joins of the last run of `df` broadcast a side."""
    plan = df._jdf.queryExecution().executedPlan()
    return sum(_kind(node).startswith("Broadcast") for node in _joins(plan))


def _joins(plan: Any) -> Iterator[Any]:
    name = _kind(plan)
    if name == "AdaptiveSparkPlanExec":
        yield from _joins(plan.executedPlan())
        return
    if name.endswith("QueryStageExec"):
        yield from _joins(plan.plan())
        return
    if name.endswith("JoinExec"):
        yield plan
    if not name.startswith("Reused"):
        for inner in (plan.children(), plan.subqueries()):
            for i in range(inner.size()):
                yield from _joins(inner.apply(i))


FILES = "FileSourceScanExec"
CONNECTOR = "BatchScanExec"


def _kind(plan: Any) -> str:
    return str(plan.getClass().getSimpleName())


def _location(scan: Any) -> str:
    return str(scan.relation().location().rootPaths().head().toString())


def _read(scan: Any, filtered: int | None) -> Read:
    rows = _metric(scan, "numOutputRows")
    joined = rows if filtered is None else filtered
    if _kind(scan) == CONNECTOR:
        return Read(scan.table().name(), 0, 0, rows, joined)
    files, size = _metric(scan, "numFiles"), _metric(scan, "filesSize")
    return Read(_location(scan), files, size, rows, joined)


def _scans(df: DataFrame) -> Iterator[tuple[Any, int | None]]:
    found = _Found()
    yield from _below(df._jdf.queryExecution().executedPlan(), None, found)
    # What a join and its keys share may have been computed for the keys, beside the plan.
    for exchange in found.reused:
        if exchange.id() not in found.exchanges:
            yield from _below(exchange, None, found)


@dataclass(slots=True)
class _Found:
    """The exchanges of a plan by number, and those that it uses again."""

    exchanges: set[int] = field(default_factory=set)
    reused: list[Any] = field(default_factory=list)


def _below(plan: Any, filtered: int | None, found: _Found) -> Iterator[tuple[Any, int | None]]:
    """`filtered`: the rows out of the filter above, with nothing but projections between."""
    name = _kind(plan)
    if name == "AdaptiveSparkPlanExec":
        yield from _below(plan.executedPlan(), None, found)
        return
    if name.endswith("QueryStageExec"):
        yield from _below(plan.plan(), None, found)
        return
    if name == "ReusedExchangeExec":
        found.reused.append(plan.child())
    if name.startswith("Reused"):
        return
    if name.endswith("ExchangeExec"):
        found.exchanges.add(plan.id())
    if name in (FILES, CONNECTOR):
        yield plan, filtered
    if name == "FilterExec":
        filtered = _metric(plan, "numOutputRows") if filtered is None else filtered
    elif name not in ("ProjectExec", "WholeStageCodegenExec", "InputAdapter", "ColumnarToRowExec"):
        filtered = None
    for inner in (plan.children(), plan.subqueries()):
        for i in range(inner.size()):
            yield from _below(inner.apply(i), filtered, found)


def _metric(plan: Any, name: str) -> int:
    found = plan.metrics().get(name)
    return int(found.get().value()) if found.isDefined() else 0
