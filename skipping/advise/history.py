"""List conditions of queries that no index could evaluate, from the workload of all drivers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from providers.errors import DefinitionError
from skipping.model.definition import TableId
from skipping.model.workload import PredicateWorkload, WorkloadRecord, merge_tables
from skipping.tables import Columns, TableColumn

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
    found = []
    for each in history:
        column = find_cased_column(each, columns)
        if column is not None:
            each = replace(
                each,
                identity=column.identity,
                sql=column.name,
                computed=False,
                ignores_case=True,
            )
        found.append(each)
    return found


def find_cased_column(
    predicate: RecordedPredicate | PredicateWorkload, columns: Columns
) -> TableColumn | None:
    """Return the column `c` of a search in `lower(c)` or `upper(c)`; None for other predicates."""
    is_search = predicate.form == TEXT and predicate.computed
    inner = _CASED.fullmatch(predicate.sql) if is_search else None
    try:
        return None if inner is None else columns.resolve(inner[1])
    except DefinitionError:  # not a column, but another expression
        return None


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
