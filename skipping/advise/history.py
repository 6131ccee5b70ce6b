"""List conditions of queries that no index could evaluate; the driver counts them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from skipping.extensions import find_extensions
from skipping.model.definition import TableId

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
    extensions = find_extensions()
    if extensions is None:
        return []
    counted = extensions.list_unindexed_conditions(spark, table)
    predicates = [RecordedPredicate(**_read(each)) for each in counted]
    return sorted(predicates, key=lambda each: (-each.scans, each.condition))


def _read(recorded: Mapping[str, Any]) -> dict[str, Any]:
    names = ("condition", "identity", "sql", "computed", "form", "scans", "opened", "bytes")
    read = {name: recorded[name] for name in names}
    return {**read, "keys": recorded["keys"] / recorded["scans"], "parts": tuple(recorded["parts"])}
