"""Estimate what queries saved: files and bytes not read, requests, time and money.

Counts are measured; requests, seconds and money are estimates (docs/observability.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any, Literal

from providers.errors import StoreError
from skipping.config.settings import Settings
from skipping.model.definition import IndexId, TableId
from skipping.model.identifiers import name_parts, plain_name, qualify_name
from skipping.model.workload import TableWorkload, WorkloadRecord, add_counts, merge_tables
from skipping.stores import IndexStore, list_definitions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from skipping.advise.workload import RememberedWorkload

MOST_TABLES = 1_000
"""Maximum number of tables in a report."""

REQUESTS = 2
"""Requests for a file in object storage: its footer, and at least one range of columns."""

_OBJECT_STORAGE = ("s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs")
_SECONDS = {True: (0.03, 100e6), False: (0.001, 500e6)}
"""Seconds of a request, and bytes a second, of one task: from object storage, or a disk."""

_MONTH = 30  # days


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """What queries did not read of a table: in all, with conditions on one `column`, or on a `day`.

    `files` and `bytes` were skipped; `requests`, `seconds` (of one task) and `saved` (the price of
    the requests) are estimates. `cost` is the price of storing `index_bytes` over these days.
    `unmatched_files` is a lower bound of those of `opened_files` that had no matching row. For a
    column, `opened_files` are those of scans in which its conditions skipped nothing. `note` is why
    the store does not have all of it.
    """

    table: str
    column: str | None = None
    day: date | None = None
    since: date
    queries: int = 0
    pruned_queries: int = 0
    files: int = 0
    bytes: int = 0
    requests: int = 0
    seconds: float = 0.0
    saved: float = 0.0
    index_bytes: int | None = None
    cost: float | None = None
    opened_files: int = 0
    opened_bytes: int = 0
    unmatched_files: int = 0
    note: str | None = None


def estimate(root: str, files: int, bytes: int, settings: Settings) -> tuple[int, float, float]:
    """Return the requests, seconds of a task, and price of reading files of a table.

    >>> estimate("s3a://bucket/t", 1_000, 10**9, Settings())
    (2000, 70.0, 0.0008)
    """
    is_remote = _is_remote(root)
    requests = REQUESTS * files
    seconds_of_request, bytes_a_second = _SECONDS[is_remote]
    seconds = requests * seconds_of_request + bytes / bytes_a_second
    return requests, seconds, requests * settings.price_get / 1_000 if is_remote else 0.0


def savings(
    spark: SparkSession, table: str | None = None, *, by: Literal["column", "day"] | None = None
) -> tuple[Saving, ...]:
    """Return what the queries of all drivers did not read since the first counted day.

    There is one for each table, or for each of its columns or days, of all tables or of `table`.
    """
    from skipping.advise.workload import read_workload
    from skipping.sources.spark import settings_of, store_of

    name = None if table is None else plain_name(qualify_name(spark, name_parts(table)))
    settings = settings_of(spark)
    store = store_of(spark, settings)
    return compute_savings(read_workload(spark), store, settings, table=name, by=by)


def compute_savings(
    workload: RememberedWorkload,
    store: IndexStore,
    settings: Settings,
    *,
    table: str | None = None,
    by: Literal["column", "day"] | None = None,
) -> tuple[Saving, ...]:
    """Return what queries saved, the largest tables first, or the days in order.

    At most MOST_TABLES tables are shown, those with the most skipped bytes. `table` is the name of
    a table as queries show it, in any case. The size of an index is None if the store does not
    respond.
    """
    days = sorted({record.day for record in workload.records}) if by == "day" else [None]
    found: list[Saving] = []
    sizes = _IndexSizes(store, settings)
    since: dict[TableId, date] = {}
    for record in workload.records:
        for counted in record.tables:
            since[counted.table] = min(record.day, since.get(counted.table, record.day))
    shown = _choose_tables(workload.records, table)
    last = max((record.day for record in workload.records), default=workload.since)
    price = settings.price_storage if _is_remote(store.location) else 0.0
    for day in days:
        records = [each for each in workload.records if day in (None, each.day)]
        for each in merge_tables(records).values():
            if each.table not in shown:
                continue
            first = since[each.table]
            if by == "column":
                found += _by_column(each, first, settings)
                continue
            saving = _saving(each, first, settings)
            count = (last - first).days + 1 if day is None else 1
            size = sizes.find(each.table)
            cost = None if size is None else size / 2**30 * price * count / _MONTH
            found.append(replace(saving, day=day, index_bytes=size, cost=cost))
    note = (
        None if workload.problem is None else f"in memory of this driver only: {workload.problem}"
    )
    ordered = found if by == "day" else sorted(found, key=lambda each: (-each.bytes, each.table))
    return tuple(replace(each, note=note) for each in ordered)


def rows_of_savings(savings: Iterable[Saving], schema: str) -> Sequence[tuple[Any, ...]]:
    """Return savings as rows with the columns of a schema (Spark DDL without nested types)."""
    names = [column.split(" ")[0].strip("`") for column in schema.split(", ")]
    return [tuple(getattr(each, name) for name in names) for each in savings]


def _saving(table: TableWorkload, since: date, settings: Settings) -> Saving:
    files, bytes = table.pruned_files, table.pruned_bytes
    requests, seconds, saved = estimate(table.table.root, files, bytes, settings)
    return Saving(
        table=table.name,
        since=since,
        queries=table.queries,
        pruned_queries=table.pruned_queries,
        files=files,
        bytes=bytes,
        requests=requests,
        seconds=seconds,
        saved=saved,
        opened_files=table.opened_files,
        opened_bytes=table.opened_bytes,
        unmatched_files=table.unmatched_files,
    )


def _by_column(table: TableWorkload, since: date, settings: Settings) -> Iterator[Saving]:
    """Yield the savings of each column, or expression, by its conditions of all shapes."""
    for name in sorted({each.sql for each in table.predicates}):
        some = [each for each in table.predicates if each.sql == name]
        column = TableWorkload(
            table=table.table,
            name=table.name,
            queries=add_counts(each.scans for each in some),
            pruned_queries=add_counts(each.pruned_scans for each in some),
            pruned_files=add_counts(each.pruned_files for each in some),
            pruned_bytes=add_counts(each.pruned_bytes for each in some),
            opened_files=add_counts(each.missed_files for each in some),
            opened_bytes=add_counts(each.missed_bytes for each in some),
            unmatched_files=add_counts(each.unmatched_files for each in some),
        )
        yield replace(_saving(column, since, settings), column=name)


def _choose_tables(records: Iterable[WorkloadRecord], table: str | None) -> set[TableId]:
    """Return the tables with the most skipped bytes, of those with a name (in any case)."""
    name = None if table is None else table.casefold()
    merged = merge_tables(records).values()
    some = [each for each in merged if name in (None, each.name.casefold())]
    some.sort(key=lambda each: (-each.pruned_bytes, -each.queries, each.name))
    return {each.table for each in some[:MOST_TABLES]}


class _IndexSizes:
    """The bytes of the indexes of tables; None from the first failure of the store on."""

    def __init__(self, store: IndexStore, settings: Settings) -> None:
        self._store, self._settings = store, settings
        self._indexes: dict[TableId, IndexId] | None = None
        self._sizes: dict[TableId, int | None] = {}
        self._has_failed = False

    def find(self, table: TableId) -> int | None:
        """Return the size of a table's index, 0 without one."""
        if table not in self._sizes and not self._has_failed:
            try:
                self._sizes[table] = self._read(table)
            except StoreError:
                self._has_failed = True  # the next ones would wait for the timeout, too
        return self._sizes.get(table)

    def _read(self, table: TableId) -> int | None:
        if self._indexes is None:
            listed = list_definitions(self._store, timeout=self._settings.timeout)
            found = [each.value for each in listed]
            self._indexes = {each.table: each.index for each in found if not each.dropped}
        index = self._indexes.get(table)
        return 0 if index is None else self._store.size(index)


def _is_remote(address: str) -> bool:
    return address.partition("://")[0].lower() in _OBJECT_STORAGE
