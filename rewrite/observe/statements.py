"""Run EXPLAIN SKIPPING, VERIFY SKIPPING, SHOW SKIPPING HISTORY and SHOW SKIPPING COUNTERS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from pyspark.sql import SparkSession

from rewrite.bridge.counters import TableCounters
from rewrite.observe.explain import explain, explain_plan, require_hooks
from rewrite.observe.history import rows_of_history
from rewrite.observe.hypothetical import estimate_scans
from rewrite.observe.prometheus import counters
from rewrite.observe.queries import frame_of, plan_of
from rewrite.observe.rows import describe_scan, rows_of
from rewrite.observe.verify import verify
from skipping.model.identifiers import plain_name, qualify_name
from skipping.parser.statements import (
    ColumnSpec,
    Explain,
    Report,
    ShowCounters,
    ShowHistory,
    Verify,
)


def report(spark: SparkSession, statement: Report) -> Sequence[tuple[Any, ...]]:
    """Run a statement and return its rows; raise SessionError without `rewrite.enable`."""
    require_hooks(spark)
    match statement:
        case Explain(query, _, columns) if columns:
            return _estimated_rows(spark, query, columns)
        case Explain(query, dry_run):
            return _explain_rows(spark, query, dry_run=dry_run)
        case Verify(query):
            result = verify(frame_of(spark, query))
            return [(result.rows, result.opened, result.without, result.note)]
        case ShowHistory(table):
            full_name = None if table is None else plain_name(qualify_name(spark, table))
            return rows_of_history(spark, full_name)
        case ShowCounters():
            names = [field.name for field in fields(TableCounters)]
            return [tuple(_plain(getattr(row, name)) for name in names) for row in counters(spark)]


def _plain(value: object) -> object:
    return list(value.items()) if isinstance(value, dict) else value


def _estimated_rows(
    spark: SparkSession, query: str, columns: Sequence[ColumnSpec]
) -> list[tuple[Any, ...]]:
    return rows_of(
        Explain.schema,
        (
            {
                "scan": number,
                **describe_scan(scan),
                "reason": note,
                "explanation": f"{scan}\n  {note}",
            }
            for number, (scan, note) in enumerate(estimate_scans(spark, query, columns))
        ),
    )


def _explain_rows(spark: SparkSession, query: str, *, dry_run: bool) -> list[tuple[Any, ...]]:
    if dry_run:
        explanation = explain_plan(spark, plan_of(spark, query))
    else:
        frame = frame_of(spark, query)
        require_hooks(spark).java.executions().run(frame._jdf.queryExecution())
        explanation = explain(frame)
    return rows_of(
        Explain.schema,
        (
            {"scan": number, **describe_scan(scan), "explanation": str(scan)}
            for number, scan in enumerate(explanation.scans)
        ),
    )
