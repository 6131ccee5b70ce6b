"""Convert scans to rows of reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql.types import StructType

from skipping.lookup.scan_plan import ScanPlan

__all__ = ["describe_scan", "rows_of"]


def describe_scan(scan: ScanPlan) -> dict[str, Any]:
    """Return the columns of reports for a scan, by name.

    Without a successful lookup its results are None, and `reason` has the reason.
    """
    asked = scan.total is not None
    read, left = scan.rows or (None, None)
    return {
        "table": scan.table,
        "files": scan.total,
        "pruned": scan.pruned if asked else None,
        "unknown": scan.unknown if asked else None,
        "kept": scan.kept,
        "opened": scan.opened,
        "bytes": scan.bytes,
        "pruned_bytes": scan.pruned_bytes if asked else None,
        "opened_bytes": scan.opened_bytes,
        "rows_read": read,
        "rows_left": left,
        "asked_seconds": scan.seconds,
        "conditions": [{"condition": label, "pruned": count} for label, count in scan.legs],
        "pruned_by": [label for label, count in scan.legs if count],
        "keys": [str(keys) for keys in scan.keys],
        "reason": scan.reason,
        "unused": list(scan.unused),
    }


def rows_of(schema: str, described: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the rows of a report with the columns of `schema` (Spark DDL), in its order."""
    columns = StructType.fromDDL(schema)
    assert isinstance(columns, StructType), "it has names"
    return [tuple(each[name] for name in columns.names) for each in described]
