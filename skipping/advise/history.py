"""List conditions of queries that no index could evaluate, from the workload of all drivers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from providers.errors import DefinitionError
from skipping.model.definition import TableId
from skipping.model.workload import PredicateWorkload, WorkloadRecord, merge_tables
from skipping.tables import Columns

VALUES, RANGE, TEXT = "values", "range", "text"
"""Forms of conditions: on values, on ranges (also with one end, and prefixes), on substrings."""

_CASED = re.compile(r"(?:lower|upper)\((.+)\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RecordedPredicate:
    """A condition on a column or expression: how many `scans` had it, and what they opened.

    Its values are not recorded. `identity` is that of the column `sql`, or the normal form of the
    expression `sql`; `keys` is the mean number of values, 0 if unknown. A condition on several
    columns has their identities as `parts`, and none of its own. A search in `lower(c)` or
    `upper(c)` is a condition on the column `c` that `ignores_case`.
    """

    condition: str
    identity: str
    sql: str
    computed: bool
    form: str
    scans: int
    opened: float
    bytes: float
    keys: float
    parts: tuple[str, ...] = ()
    ignores_case: bool = False

    @property
    def is_prefix(self) -> bool:
        """Whether it is a condition on prefixes: `LIKE 'a%'`, or a network."""
        return self.form == RANGE and self.condition.endswith(" LIKE '?%'")


def list_unused_predicates(
    records: Iterable[WorkloadRecord], table: TableId
) -> list[RecordedPredicate]:
    """Return the predicates on a table that no index could evaluate, most frequent first."""
    counted = merge_tables(records).get(table)
    missed = [] if counted is None else [p for p in counted.predicates if p.missed_scans]
    return sorted(map(_read, missed), key=lambda each: (-each.scans, each.condition))


def attribute_to_columns(
    history: Sequence[RecordedPredicate], columns: Columns
) -> list[RecordedPredicate]:
    """Return the predicates, with searches in `lower(c)` and `upper(c)` as predicates on `c`."""
    return [_attribute(each, columns) if each.form == TEXT else each for each in history]


def _attribute(recorded: RecordedPredicate, columns: Columns) -> RecordedPredicate:
    inner = _CASED.fullmatch(recorded.sql) if recorded.computed else None
    if inner is None:
        return recorded
    try:
        column = columns.resolve(inner[1])
    except DefinitionError:  # not a column, but another expression
        return recorded
    return replace(
        recorded, identity=column.identity, sql=column.name, computed=False, ignores_case=True
    )


def _read(counted: PredicateWorkload) -> RecordedPredicate:
    return RecordedPredicate(
        condition=counted.condition,
        identity=counted.identity,
        sql=counted.sql,
        computed=counted.computed,
        form=counted.form,
        scans=counted.missed_scans,
        opened=counted.missed_files,
        bytes=counted.missed_bytes,
        keys=counted.keys / counted.scans,
        parts=counted.parts,
    )
