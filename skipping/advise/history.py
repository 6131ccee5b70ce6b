"""List conditions of queries that no index could evaluate, of all drivers (`read_workload`)."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from skipping.advise.workload import read_workload
from skipping.model.definition import TableId
from skipping.model.workload import PredicateWorkload, merge_tables

VALUES, RANGE, TEXT = "values", "range", "text"
"""Forms of conditions: on values, on ranges (also with one end, and prefixes), on substrings."""


@dataclass(frozen=True, slots=True)
class RecordedPredicate:
    """A condition on a column or expression: how many `scans` had it, and what they opened.

    Its values are not recorded. `identity` is that of the column `sql`, or the normal form of the
    expression `sql`; `keys` is the mean number of values, 0 if unknown. A condition on several
    columns has their identities as `parts`, and none of its own.
    """

    condition: str
    identity: str
    sql: str
    computed: bool
    form: str
    scans: int
    opened: int
    bytes: int
    keys: float
    parts: tuple[str, ...] = ()


def list_unused_predicates(spark: SparkSession, table: TableId) -> list[RecordedPredicate]:
    """Return the predicates on a table that no index could evaluate, most frequent first."""
    counted = merge_tables(read_workload(spark).records).get(table)
    missed = [] if counted is None else [p for p in counted.predicates if p.missed_scans]
    return sorted(map(_read, missed), key=lambda each: (-each.scans, each.condition))


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
