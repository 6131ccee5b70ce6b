"""Report past queries and the files that they skipped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from rewrite.bridge.install import find_hooks
from rewrite.observe.explain import (
    read_action,
    read_scans,
    statement_of,
    wait_for_records,
)
from rewrite.observe.rows import describe_scan, rows_of
from skipping.extensions import OwnWorkload
from skipping.lookup.scan_plan import ScanPlan
from skipping.parser.statements import ShowHistory
from skipping.sources.rows import frame_of_rows
from skipping.sources.spark import settings_of


def history(spark: SparkSession) -> DataFrame:
    """Return one row for each file scan of the application's last 100 executions, oldest first.

    `root` is the id of the enclosing command's execution, or of this one. `statement` is the
    beginning of the SQL. If the lookup failed or none ran, the columns from `files` to
    `pruned_bytes` are null, and `reason` says why. Conditions are shown without values, as in
    `explain`. Scans of files that cannot have an index, and reads of a cached DataFrame, are left
    out. Raises SessionError without `rewrite.enable`.
    """
    return frame_of_rows(spark, ShowHistory.schema, rows_of_history(spark))


def rows_of_history(spark: SparkSession, table: str | None = None) -> list[tuple[Any, ...]]:
    """Return the rows of `history`; with `table` (full name, case-insensitive), only its rows."""
    executions = json.loads(wait_for_records(spark).java.executions().recent())
    statements = {execution["id"]: statement_of(execution) for execution in executions}
    described = (
        {
            **_describe(execution, scan),
            "statement": statements.get(execution["id"]) or statements.get(execution["root"]),
        }
        for execution in executions
        for scan in read_scans([s for s in execution["scans"] if s["counted"]])
    )
    return rows_of(
        ShowHistory.schema,
        (d for d in described if table is None or d["table"].casefold() == table.casefold()),
    )


def own_workload(spark: SparkSession) -> OwnWorkload:
    """Return what the queries of this driver read and skipped; empty without hooks."""
    if find_hooks(spark) is None:
        return OwnWorkload()
    return wait_for_records(spark).workload.read(settings_of(spark))


def _describe(execution: Mapping[str, Any], scan: ScanPlan) -> dict[str, Any]:
    return {
        "execution": execution["id"],
        "root": execution["root"],
        "action": read_action(execution),
        "ended": datetime.fromtimestamp(execution["ended"] / 1_000, timezone.utc),
        "seconds": execution["seconds"],
        **describe_scan(scan),
    }
