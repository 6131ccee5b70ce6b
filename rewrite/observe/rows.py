"""Convert scans to the rows that EXPLAIN SKIPPING and the history return."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from skipping.lookup.scan_plan import ScanPlan
from skipping.spark_api import parse_schema


def describe_scan(scan: ScanPlan) -> dict[str, Any]:
    """Return a scan as one row of a report: a value for each column name.

    If the lookup failed or none ran, its results are None and `reason` says why.
    """
    has_lookup = scan.total is not None
    read, left = scan.rows or (None, None)
    return {
        "table": scan.table,
        "files": scan.total,
        "pruned": scan.pruned if has_lookup else None,
        "unknown": scan.unknown if has_lookup else None,
        "to_read": scan.kept,
        "opened": scan.opened,
        "bytes": scan.bytes,
        "pruned_bytes": scan.pruned_bytes if has_lookup else None,
        "opened_bytes": scan.opened_bytes,
        "rows_read": read,
        "rows_left": left,
        "lookup_seconds": scan.seconds,
        "conditions": [{"condition": label, "pruned": count} for label, count in scan.legs],
        "pruned_by": [label for label, count in scan.legs if count],
        "keys": [str(keys) for keys in scan.keys],
        "reason": scan.reason,
        "unused": list(scan.unused),
    }


def rows_of(schema: str, described: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return each mapping as a tuple with the columns of `schema` (Spark DDL), in its order."""
    names = parse_schema(schema).names
    return [tuple(row[name] for name in names) for row in described]
