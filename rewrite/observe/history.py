"""Queries that have run, and what they skipped."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from rewrite.observe.explain import read_scans, require_settled_hooks
from skipping.engines.rows import frame_of_rows
from skipping.lookup.scan_plan import ScanPlan
from skipping.parser import ShowHistory

__all__ = ["history", "rows_of_history"]


def history(spark: SparkSession) -> DataFrame:
    """The file scans of the last 100 executions of the application, oldest first, a row a scan.

    `root` is the execution of the command that it is part of, or its own. `files` to
    `disproved_bytes` are null where no index was asked, and `reason` says why. Values of conditions
    are not in it, as in `explain`. Raises SessionError without `rewrite.enable`.
    """
    return frame_of_rows(spark, ShowHistory.schema, rows_of_history(spark))


def rows_of_history(spark: SparkSession) -> list[tuple[Any, ...]]:
    """The rows of `history`."""
    executions = json.loads(require_settled_hooks(spark).java.executions().recent())
    return [_row(e, scan) for e in executions for scan in read_scans(e["scans"])]


def _row(execution: dict[str, Any], scan: ScanPlan) -> tuple[Any, ...]:
    asked = scan.total is not None
    return (
        execution["id"],
        execution["root"],
        execution["name"],
        datetime.fromtimestamp(execution["ended"] / 1_000, timezone.utc),
        execution["seconds"],
        scan.table,
        scan.total,
        scan.disproved if asked else None,
        scan.unknown if asked else None,
        scan.opened,
        scan.bytes,
        scan.disproved_bytes if asked else None,
        scan.opened_bytes,
        scan.seconds,
        [label for label, count in scan.legs if count],
        [str(keys) for keys in scan.keys],
        scan.reason,
        list(scan.unused),
    )
