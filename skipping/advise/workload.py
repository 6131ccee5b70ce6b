"""Read what the queries of all drivers read and skipped: from the store, and of this driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from typing import TYPE_CHECKING

from providers.errors import NoStore, StoreError, first_line
from skipping.config.settings import Settings
from skipping.extensions import OwnWorkload, find_extensions
from skipping.model.workload import WorkloadRecord, first_day
from skipping.stores import IndexStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class RememberedWorkload:
    """The records since the day `since`; `problem` is why some are missing or in memory only."""

    records: Sequence[WorkloadRecord]
    since: date
    problem: str | None = None


def read_workload(spark: SparkSession, *, today: date | None = None) -> RememberedWorkload:
    """Return what the session's store has, and what this driver counted since it last wrote.

    `today` is the day in UTC, by default that of the clock. If the store fails, this is what the
    driver counted, and `problem` has the error.
    """
    from skipping.sources.spark import settings_of, store_of  # imports Spark

    extensions = find_extensions()
    own = OwnWorkload() if extensions is None else extensions.own_workload(spark)
    settings = settings_of(spark)
    today = datetime.now(timezone.utc).date() if today is None else today
    return merge_workload(store_of(spark, settings), settings, own, today=today)


def merge_workload(
    store: IndexStore, settings: Settings, own: OwnWorkload, *, today: date
) -> RememberedWorkload:
    """Return the records of a store, replaced by a driver's own ones of the same days."""
    since, problem = first_day(today, settings.workload_retention), own.problem
    stored: Sequence[WorkloadRecord] = ()
    try:
        stored = store.workload(since=since, until=today, timeout=settings.timeout)
        # The clock of another host may be a little ahead. They have a limit of their own.
        next_day = today + timedelta(1)
        ahead = store.workload(since=next_day, until=next_day, timeout=settings.timeout)
        stored = [*ahead, *stored]
    except NoStore:
        pass
    except StoreError as error:
        problem = problem or first_line(error)
    found = {record.key: record for record in stored}
    found |= {record.key: record for record in own.records if record.day >= since}
    return RememberedWorkload(tuple(found.values()), since, problem)
