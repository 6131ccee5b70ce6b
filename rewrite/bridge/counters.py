"""Count lookups, skipped files and fallbacks for each table since the session was enabled.

The logger `skipping.counters` writes the counters at INFO, at most once a minute: one line for each
table whose counters have changed. `metrics` converts them for prometheus-client.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from skipping.model.identifiers import printable, shown_path

log = logging.getLogger("skipping.counters")


@dataclass(frozen=True, slots=True)
class TableCounters:
    """Sums over the scans of one table in completed queries.

    `lookups` is the number of scans with a successful lookup. The fields from `files` to
    `skipped_bytes` and `lookup_seconds` are sums over these scans. `fallbacks` counts the other
    scans, by the reason why they did not use an index. `opened` counts the files that all scans
    opened.
    """

    table: str
    scans: int
    lookups: int
    files: int
    skipped: int
    unknown: int
    bytes: int
    skipped_bytes: int
    opened: int
    lookup_seconds: float
    fallbacks: Mapping[str, int]

    def __str__(self) -> str:
        details = (
            f", {self.lookups:,} looked up in {self.lookup_seconds:.3f} s, "
            f"skipped {self.skipped:,} of {self.files:,} files "
            f"and {self.skipped_bytes:,} of {self.bytes:,} bytes"
        )
        parts = [
            f"{self.table}: {self.scans:,} scans{details if self.lookups else ''}",
            *(f"{count:,} without lookup: {reason}" for reason, count in self.fallbacks.items()),
        ]
        return "; ".join(parts)


def totals(java: Any) -> tuple[TableCounters, ...]:
    """Read the counters of all tables from Java."""
    return tuple(map(_counters, json.loads(java.executions().totals().json())))


def _counters(sums: Mapping[str, Any]) -> TableCounters:
    def count(name: str) -> int:
        return int(sums.get(name, 0))

    return TableCounters(
        shown_path(sums["table"]),
        count("scans"),
        count("asked"),
        count("total"),
        count("pruned"),
        count("unknown"),
        count("bytes"),
        count("pruned bytes"),
        count("opened"),
        float(sums.get("seconds", 0.0)),
        {printable(reason): int(n) for reason, n in sums.get("reasons", {}).items()},
    )


class Counting:
    """Logs the counters that have changed since they were last logged."""

    def __init__(self) -> None:
        self._logged: dict[str, TableCounters] = {}

    def log(self, java: Any) -> None:
        """Log a line for each table whose counters have changed."""
        if not log.isEnabledFor(logging.INFO):
            return
        for counters in totals(java):
            if self._logged.get(counters.table) != counters:
                self._logged[counters.table] = counters
                log.info("%s", counters)


def metrics(tables: tuple[TableCounters, ...], alarms: int, rechecked: int) -> Iterator[Any]:
    """Yield the counters as metric families of prometheus-client.

    `rechecked` is the number of pruned files that sampled verification has read, and `alarms` the
    number of those that contain a match.
    """
    from prometheus_client.core import CounterMetricFamily

    table = ["table"]
    meanings = {
        "scans": "file scans of completed queries",
        "lookups": "scans with a successful index lookup",
        "files": "files of the scans with a successful lookup",
        "skipped": "files that an index pruned",
        "unknown": "files without an entry in the index",
        "bytes": "bytes of the files of the scans with a successful lookup",
        "skipped_bytes": "bytes of the files that an index pruned",
        "opened": "files that Spark opened",
        "lookup_seconds": "seconds that index lookups took",
    }
    for name, meaning in meanings.items():
        family = CounterMetricFamily(f"skipping_{name}", meaning, labels=table)
        for each in tables:
            family.add_metric([each.table], getattr(each, name))
        yield family
    family = CounterMetricFamily(
        "skipping_fallbacks", "scans without a successful lookup", labels=["table", "reason"]
    )
    for each in tables:
        for reason, count in each.fallbacks.items():
            family.add_metric([each.table, reason], count)
    yield family
    yield CounterMetricFamily(
        "skipping_alarms", "wrongly pruned files: they contain a match", value=alarms
    )
    yield CounterMetricFamily(
        "skipping_rechecked", "pruned files that verification read", value=rechecked
    )
