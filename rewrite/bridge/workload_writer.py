"""Write what this driver's queries read and skipped to the stores of its sessions.

Java counts (`Workload.java`), after a query has ended. The thread that watches the stores writes,
at most once a minute, so no query waits for it. What cannot be written stays in memory.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone
from typing import Any

from providers.errors import NoStore, first_line
from rewrite.bridge.callbacks import parse_table_key
from rewrite.bridge.lookup_cache import LookupCache
from skipping.config.settings import Settings
from skipping.extensions import OwnWorkload
from skipping.lookup.lookup import Lookup
from skipping.model.identifiers import shown_path
from skipping.model.workload import (
    WorkloadRecord,
    collect_table,
    first_kept_day,
    merge_joins,
    merge_records,
)

log = logging.getLogger("skipping")

INTERVAL = 60.0
"""Minimum of seconds between two writes."""

_CHECK = 5.0
"""Seconds between two checks whether queries have ended since."""

_TIMEOUT = 10.0

_RECENT = timedelta(7)
"""Age of the records of other drivers whose joins count."""

_RESTORED = 50
"""Maximum number of these records."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The store that a session's setting names, and whether its counts may be written there."""

    store: str
    is_stored: bool


class WorkloadWriter:
    """Writes the counts of one driver, whose id is random.

    `clock` is the time of day (Unix seconds), `timer` a monotonic clock.
    """

    def __init__(
        self,
        java: Any,
        lookups: LookupCache,
        *,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._java = java
        self._lookups = lookups
        self._clock = clock
        self._timer = timer
        self._driver = secrets.token_hex(8)
        self._checked = self._written = float("-inf")
        self._changes = 0
        self._last: dict[tuple[str, date], str] = {}
        self._problems: dict[str, str] = {}

    def write_if_due(self) -> None:
        """Write what queries added, if the last write was a minute ago or earlier."""
        now = self._timer()
        if now - self._checked < _CHECK or now - self._written < INTERVAL:
            return
        self._checked = now
        changes = int(self._java.executions().workload().changes())
        if changes != self._changes:
            self._changes, self._written = changes, now
            self.write()

    def restore(self) -> None:
        """Tell Java which join keys pruned too little in the queries of other drivers."""
        today = self._today()
        for settings, lookup in self._lookups.items():
            if settings.workload:
                records = lookup.store.workload(
                    since=today - _RECENT, until=today, most=_RESTORED, timeout=_TIMEOUT
                )
                self._java.feedback().restore(json.dumps(merge_joins(records)))

    def write(self) -> None:
        """Write the record of each day and store that has changed; log errors only."""
        joins = json.loads(self._java.feedback().json())
        for place, records in self._read().items():
            found = self._find(place) if place.is_stored else None
            if found is None:
                continue
            settings, lookup = found
            oldest = first_kept_day(self._today(), settings.workload_retention)
            try:
                newest = max(record.day for record in records)
                for record in records:
                    if record.day == newest:
                        record = replace(record, joins=joins)
                    if record.day >= oldest:
                        self._write(lookup, record, oldest)
                self._problems.pop(place.store, None)
            except Exception as error:  # of a store of another project, too
                self._report(place, error)

    def read(self, settings: Settings) -> OwnWorkload:
        """Return what this driver counted for a store, and why it is not there."""
        store = settings.store or ""
        places = self._read().items()
        records = merge_records(
            record for place, some in places if place.store == store for record in some
        )
        problem = None if settings.workload else "spark.skipping.workload is false"
        return OwnWorkload(records, problem or self._problems.get(store))

    def _write(self, lookup: Lookup, record: WorkloadRecord, oldest: date) -> None:
        key, text = (lookup.store.location, record.day), record.to_json()
        if self._last.get(key) != text:
            lookup.store.record_workload(record, oldest=oldest, timeout=_TIMEOUT)
            self._last[key] = text
            while len(self._last) > 8:
                del self._last[next(iter(self._last))]

    def _report(self, place: _Place, error: Exception) -> None:
        text = first_line(error)
        is_new = self._problems.get(place.store) != text
        self._problems[place.store] = text
        # Before the first index is created, there is nothing to write to.
        if is_new and not isinstance(error, NoStore):
            log.info("the counts of queries stay in memory: %s", text)

    def _find(self, place: _Place) -> tuple[Settings, Lookup] | None:
        found = self._lookups.items()
        return next((each for each in found if (each[0].store or "") == place.store), None)

    def _read(self) -> Mapping[_Place, Sequence[WorkloadRecord]]:
        records: dict[_Place, list[WorkloadRecord]] = {}
        for day in json.loads(self._java.executions().workload().json()):
            place = _Place(day["store"], day["stored"])
            records.setdefault(place, []).append(_record(self._driver, day))
        return records

    def _today(self) -> date:
        return datetime.fromtimestamp(self._clock(), timezone.utc).date()


def _record(driver: str, day: Mapping[str, Any]) -> WorkloadRecord:
    tables = (
        collect_table(
            parse_table_key(table["table"]), shown_path(table["name"]), table, _predicates(table)
        )
        for table in day["tables"]
    )
    return WorkloadRecord(
        driver=driver,
        day=date.fromisoformat(day["day"]),
        tables=tuple(table for table in tables if table is not None),
    )


def _predicates(table: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    return ({**each, **each["sums"]} for each in table["predicates"])
