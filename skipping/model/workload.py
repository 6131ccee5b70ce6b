"""Define what queries read and skipped: counts by table and by shape of predicate, without values.

A driver counts its own queries by day (UTC) and writes one record for each day, which replaces its
earlier one. Readers add up the records of all drivers. A record says nothing about single files, so
a lost or forged one prunes no file. A forged one can mislead advice and reports, and delay the use
of join keys that pruned too little once (`rewrite/jvm/keys/PruningFeedback.java`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import date, timedelta
from typing import Any, TypeVar
from urllib.parse import urlsplit

from providers.errors import StoreError
from skipping.model.definition import TableId, is_name, parse_object

FORMAT = 1
"""The format of a record. Records with another number are ignored."""

LONGEST = 1 << 17
"""Maximum number of characters of a record."""

MOST_RECORDS = 1_000
"""Maximum number of records that a store returns: the newest."""

FORMS = ("values", "range", "text")

_LEAST_RETENTION = 30 * 86_400.0
_LONGEST_RETENTION = 3_650 * 86_400.0
_MOST_COUNT = (1 << 50) - 1
"""Maximum count of a record: a petabyte of one table in a day."""

_MOST_SUM = (1 << 62) - 1
"""Maximum sum: twice of it is still a BIGINT."""

_MOST_TABLES = 256
_MOST_PREDICATES = 64  # of a table
_MOST_PARTS = 16
_MOST_JOINS = 256
_KEY = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})-([0-9a-f]{16})", re.ASCII)

_DIGEST = re.compile(r"[0-9a-f]{16}", re.ASCII)

_LEAST_CHARACTERS = 250
"""Lower bound for the characters of a table or predicate in JSON without its texts."""

_C = TypeVar("_C", "PredicateWorkload", "TableWorkload")


@dataclass(frozen=True, slots=True, kw_only=True)
class PredicateWorkload:
    """A shape of predicate: `scans` had it, and in `pruned_scans` it pruned files.

    Its first fields are those of `rewrite/jvm/predicate/AskedLeaves.java`. `pruned_files` counts
    files that it pruned alone; `missed_files` those opened by scans in which it pruned none;
    `unmatched_files` is a lower bound of those opened without a matching row. `keys` is the sum of
    its numbers of values.
    """

    condition: str
    identity: str
    sql: str
    computed: bool
    form: str
    parts: tuple[str, ...] = ()
    scans: int = 0
    keys: int = 0
    pruned_scans: int = 0
    pruned_files: int = 0
    pruned_bytes: int = 0
    missed_files: int = 0
    missed_bytes: int = 0
    unmatched_files: int = 0
    unmatched_bytes: int = 0

    @property
    def missed_scans(self) -> int:
        """The scans in which it pruned no file."""
        return max(0, self.scans - self.pruned_scans)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWorkload:
    """What queries read and skipped of one table; `name` is its name in the queries.

    `queries` counts executions that scanned it, and `pruned_queries` those that skipped a file.
    `files` counts the files of scans that compared them with an index or statistics.
    """

    table: TableId
    name: str
    queries: int = 0
    pruned_queries: int = 0
    files: int = 0
    bytes: int = 0
    pruned_files: int = 0
    pruned_bytes: int = 0
    opened_files: int = 0
    opened_bytes: int = 0
    unmatched_files: int = 0
    unmatched_bytes: int = 0
    predicates: tuple[PredicateWorkload, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRecord:
    """What one driver counted on one day.

    `joins` has for each shape of join keys, by its digest, how many of the last lookups pruned too
    little (`rewrite/jvm/keys/PruningFeedback.java`).
    """

    driver: str
    day: date
    tables: tuple[TableWorkload, ...] = ()
    joins: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def key(self) -> str:
        """The name of the record in a store, such as `2026-11-29-0123456789abcdef`."""
        return f"{self.day.isoformat()}-{self.driver}"

    def to_json(self) -> str:
        """Return the record as JSON of at most LONGEST characters, without what is used least."""
        most = _MOST_PREDICATES
        busiest = sorted(self.tables, key=lambda table: -table.queries)[:_MOST_TABLES]
        ranked = [replace(each, predicates=_rank(each)) for each in busiest]
        while True:
            # Most of a large record is left out: first by a cheap bound, so this dumps little.
            if sum(_count_least_characters(table, most) for table in ranked) <= LONGEST:
                text = json.dumps(
                    {
                        "format": FORMAT,
                        "driver": self.driver,
                        "day": self.day.isoformat(),
                        "tables": [_describe(table, most) for table in ranked],
                        "joins": dict(list(self.joins.items())[:_MOST_JOINS]),
                    }
                )
                if len(text) <= LONGEST:
                    return text
            if most:
                most //= 2
            else:
                ranked = ranked[: len(ranked) // 2]

    @classmethod
    def from_json(cls, text: str, key: str) -> WorkloadRecord:
        """Parse the JSON of `to_json` with this key; ignore fields of newer releases.

        Raises StoreError for anything that no release writes.
        """
        data = parse_object(text, "workload record", longest=LONGEST)
        try:
            if data["format"] != FORMAT:
                raise ValueError("it has another format")
            tables = _parse_list(data["tables"], _MOST_TABLES)
            record = cls(
                driver=str(data["driver"]),
                day=date.fromisoformat(data["day"]),
                tables=tuple(map(_parse_table, tables)),
                joins=_parse_joins(data.get("joins", {})),
            )
            if record.key != key:
                raise ValueError("it belongs to another driver or day")
            _require_distinct(table.table for table in record.tables)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise StoreError(f"a stored workload record is invalid: {error!s:.200}") from None
        return record


def first_kept_day(today: date, retention: float) -> date:
    """Return the first day whose records no driver deletes: of the last month, at least.

    >>> first_kept_day(date(2026, 3, 31), 2 * 86400)
    datetime.date(2026, 3, 1)
    """
    return first_day(today, max(retention, _LEAST_RETENTION))


def first_day(today: date, retention: float) -> date:
    """Return the first day whose records are kept for `retention` seconds.

    >>> first_day(date(2026, 3, 3), 2 * 86400)
    datetime.date(2026, 3, 1)
    """
    return today - timedelta(seconds=min(retention, _LONGEST_RETENTION))


def list_old_keys(keys: Iterable[str], record: WorkloadRecord, oldest: date) -> list[str]:
    """Return the keys of records before `oldest`, which the writer of a record may delete.

    If other drivers wrote nothing since, the writer's clock may be wrong: return no key.

    >>> mine = WorkloadRecord(driver="0" * 16, day=date(2030, 1, 1))
    >>> old, new = "2026-01-01-0123456789abcdef", "2030-01-01-0123456789abcdef"
    >>> list_old_keys([old], mine, date(2029, 1, 1))
    []
    >>> list_old_keys([old, new], mine, date(2029, 1, 1))
    ['2026-01-01-0123456789abcdef']
    """
    first = oldest.isoformat()
    found = list(filter(is_key, keys))
    newest = max((key for key in found if not key.endswith(record.driver)), default=first)
    return [key for key in found if key < first] if newest >= first else []


def select_keys(
    keys: Iterable[str], *, since: date, until: date, most: int = MOST_RECORDS
) -> list[str]:
    """Return the keys of records from `since` to `until`, the newest `most` of them.

    >>> select_keys(
    ...     ["2026-01-02-0123456789abcdef", "2026-01-01-0123456789abcdef", "x"],
    ...     since=date(2026, 1, 2),
    ...     until=date(2026, 1, 9),
    ... )
    ['2026-01-02-0123456789abcdef']
    """
    first, last = since.isoformat(), until.isoformat()
    found = (key for key in keys if is_key(key) and first <= key[:10] <= last)
    return sorted(found, reverse=True)[:most]


def is_key(text: object) -> bool:
    """Return whether a text can be the key of a record."""
    return isinstance(text, str) and _KEY.fullmatch(text) is not None


def parse_records(found: Iterable[tuple[str, Any]]) -> list[WorkloadRecord]:
    """Parse (key, JSON) pairs; leave out the invalid ones, because others may have written them."""
    records = []
    for key, text in found:
        try:
            if isinstance(text, str) and is_key(key):
                records.append(WorkloadRecord.from_json(text, key))
        except StoreError:
            continue
    return records


def merge_tables(records: Iterable[WorkloadRecord]) -> dict[TableId, TableWorkload]:
    """Return the sums of several records by table."""
    merged: dict[TableId, TableWorkload] = {}
    for record in records:
        for table in record.tables:
            before = merged.get(table.table)
            merged[table.table] = table if before is None else _add_table(before, table)
    return merged


def merge_records(records: Iterable[WorkloadRecord]) -> list[WorkloadRecord]:
    """Return one record for each key, with the sums of those that have it."""
    by_key: dict[str, WorkloadRecord] = {}
    for record in records:
        before = by_key.get(record.key)
        if before is not None:
            record = replace(before, tables=tuple(merge_tables([before, record]).values()))
        by_key[record.key] = record
    return list(by_key.values())


def merge_joins(records: Iterable[WorkloadRecord]) -> dict[str, int]:
    """Return the newest counts of several records; of one day, the least."""
    merged: dict[str, tuple[date, int]] = {}
    for record in records:
        for digest, useless in record.joins.items():
            day, least = merged.get(digest, (record.day, useless))
            if day <= record.day:
                merged[digest] = record.day, min(least, useless) if day == record.day else useless
    return {digest: useless for digest, (_, useless) in merged.items()}


def _add_table(one: TableWorkload, other: TableWorkload) -> TableWorkload:
    predicates = {each.condition: each for each in one.predicates}
    for each in other.predicates:
        before = predicates.get(each.condition)
        predicates[each.condition] = each if before is None else _add(before, each)
    return replace(_add(one, other), predicates=tuple(predicates.values()))


def _add(one: _C, other: _C) -> _C:
    sums: dict[str, Any] = {
        name: add_counts((getattr(one, name), getattr(other, name))) for name in _counts(type(one))
    }
    return replace(one, **sums)


def add_counts(counts: Iterable[int]) -> int:
    """Return the sum of counts, which others may have written, as a BIGINT can have it.

    >>> add_counts([2**61, 2**61, 2**61]) == 2**62 - 1
    True
    """
    return min(sum(counts), _MOST_SUM)


def _counts(type: type[PredicateWorkload] | type[TableWorkload]) -> list[str]:
    """Return the names of the fields that are sums."""
    return [field.name for field in fields(type) if field.default == 0 and field.type == "int"]


def collect_table(
    table: TableId, name: str, counts: Mapping[str, Any], predicates: Iterable[Mapping[str, Any]]
) -> TableWorkload | None:
    """Return what a driver counted of a table, without predicates that no record can have.

    Names of columns and tables are chosen by their writers. None if the table's name is not valid,
    or its path has a password. Counts that are too large for a record are cut.
    """
    valid = []
    for each in predicates:
        with suppress(ValueError):
            valid.append(_parse_predicate(_clamp(each)))
    data = {**_clamp(counts), "table": asdict(table), "name": name, "predicates": []}
    try:
        if urlsplit(table.root).password is not None:
            return None
        return replace(_parse_table(data), predicates=tuple(valid))
    except ValueError:
        return None


def _clamp(data: Mapping[str, Any]) -> dict[str, Any]:
    return {k: min(v, _MOST_COUNT) if type(v) is int else v for k, v in data.items()}


def _describe(table: TableWorkload, most: int) -> dict[str, Any]:
    return asdict(replace(table, predicates=table.predicates[:most]))


def _rank(table: TableWorkload) -> tuple[PredicateWorkload, ...]:
    ranked = sorted(table.predicates, key=lambda each: (-each.scans, each.condition))
    return tuple(ranked[:_MOST_PREDICATES])


def _count_least_characters(table: TableWorkload, most: int) -> int:
    """Return a lower bound for the characters of a table in JSON with `most` predicates."""
    some = table.predicates[:most]
    texts = sum(len(each.condition) + len(each.sql) + len(each.identity) for each in some)
    return _LEAST_CHARACTERS * (1 + len(some)) + len(table.name) + texts


def _parse_table(data: Mapping[str, Any]) -> TableWorkload:
    table, name = TableId(**data["table"]), data["name"]
    if not (table.is_sound and is_name(name)):
        raise ValueError("a table has no valid id or name")
    predicates = tuple(map(_parse_predicate, _parse_list(data["predicates"], _MOST_PREDICATES)))
    _require_distinct(each.condition for each in predicates)
    return TableWorkload(
        table=table,
        name=name,
        predicates=predicates,
        **_parse_counts(TableWorkload, data),
    )


def _parse_predicate(data: Mapping[str, Any]) -> PredicateWorkload:
    parts = tuple(_parse_list(data["parts"], _MOST_PARTS))
    condition, sql = data["condition"], data["sql"]
    identity, form, computed = data["identity"], data["form"], data["computed"]
    # A condition on several columns has no identity of its own.
    if not all(map(is_name, (condition, sql, *parts))) or not (identity == "" or is_name(identity)):
        raise ValueError("a predicate has a name that no release writes")
    if form not in FORMS or type(computed) is not bool:
        raise ValueError("a predicate has a form that no release writes")
    return PredicateWorkload(
        condition=condition,
        sql=sql,
        identity=identity,
        form=form,
        computed=computed,
        parts=parts,
        **_parse_counts(PredicateWorkload, data),
    )


def _parse_counts(
    type_: type[PredicateWorkload] | type[TableWorkload], data: Mapping[str, Any]
) -> dict[str, int]:
    counts = {name: data.get(name, 0) for name in _counts(type_)}
    for name, value in counts.items():
        if type(value) is not int or not 0 <= value <= _MOST_COUNT:
            raise ValueError(f"{name} is not a count")
    return counts


def _parse_joins(data: Any) -> dict[str, int]:
    if not isinstance(data, dict) or len(data) > _MOST_JOINS:
        raise ValueError("the joins are no object, or too many")
    for digest, useless in data.items():
        if not _DIGEST.fullmatch(digest) or type(useless) is not int or not 0 <= useless < 1 << 31:
            raise ValueError("a join has no valid digest or count")
    return data


def _require_distinct(items: Iterable[Hashable]) -> None:
    found = list(items)
    if len(set(found)) < len(found):
        raise ValueError("a table or condition is in it twice")


def _parse_list(data: Any, most: int) -> Sequence[Any]:
    if not isinstance(data, list) or len(data) > most:
        raise ValueError(f"a list is missing, or has more than {most} items")
    return data
