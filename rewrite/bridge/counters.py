"""Counters by table: what was asked, skipped and not, since the session was enabled.

They are in the log of `skipping.counters` (INFO, a line a table where something changed, each
minute at most), and in Prometheus' form where prometheus-client is installed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from skipping.model.identifiers import printable, shown_path

__all__ = ["Counting", "TableCounters", "metrics", "totals"]

log = logging.getLogger("skipping.counters")


@dataclass(frozen=True, slots=True)
class TableCounters:
    """Sums over the scans of one table in queries that have run to their end.

    `asked` are the scans whose index answered; `files` to `skipped_bytes` are theirs, as is
    `lookup_seconds`, the time that asking took. `fallbacks` counts the other scans by the reason
    why no index was asked or none answered. `opened` files are those of all scans.
    """

    table: str
    scans: int
    asked: int
    files: int
    skipped: int
    unknown: int
    bytes: int
    skipped_bytes: int
    opened: int
    lookup_seconds: float
    fallbacks: Mapping[str, int]

    def __str__(self) -> str:
        asked = (
            f", {self.asked:,} asked in {self.lookup_seconds:.3f} s, skipped {self.skipped:,} of "
            f"{self.files:,} files and {self.skipped_bytes:,} of {self.bytes:,} bytes"
        )
        parts = [
            f"{self.table}: {self.scans:,} scans{asked if self.asked else ''}",
            *(f"{count:,} not: {reason}" for reason, count in self.fallbacks.items()),
        ]
        return "; ".join(parts)


def totals(java: Any) -> tuple[TableCounters, ...]:
    """The counters that the Java half holds."""
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
    """Writes counters to the log, those that have changed since the last time."""

    def __init__(self) -> None:
        self._logged: dict[str, TableCounters] = {}

    def log(self, java: Any) -> None:
        """A line a table with news."""
        if not log.isEnabledFor(logging.INFO):
            return
        for counters in totals(java):
            if self._logged.get(counters.table) != counters:
                self._logged[counters.table] = counters
                log.info("%s", counters)


def metrics(tables: tuple[TableCounters, ...], alarms: int, rechecked: int) -> Iterator[Any]:
    """The counters as metric families of prometheus-client."""
    from prometheus_client.core import CounterMetricFamily

    table = ["table"]
    named = {
        "scans": "file scans of queries that ran to their end",
        "asked": "scans whose index answered",
        "files": "files of the scans whose index answered",
        "skipped": "files that their indexes pruned",
        "unknown": "files that their indexes did not know",
        "bytes": "bytes of the files of the scans whose index answered",
        "skipped_bytes": "bytes of the files that were pruned",
        "opened": "files that Spark opened",
        "lookup_seconds": "seconds that asking took",
    }
    for name, meaning in named.items():
        family = CounterMetricFamily(f"skipping_{name}", meaning, labels=table)
        for each in tables:
            family.add_metric([each.table], getattr(each, name))
        yield family
    family = CounterMetricFamily(
        "skipping_fallbacks", "scans of which no index answered", labels=["table", "reason"]
    )
    for each in tables:
        for reason, count in each.fallbacks.items():
            family.add_metric([each.table, reason], count)
    yield family
    yield CounterMetricFamily("skipping_alarms", "files wrongly pruned", value=alarms)
    yield CounterMetricFamily("skipping_rechecked", "files read again to check", value=rechecked)
