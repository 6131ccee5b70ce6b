"""Conditions of queries that no index answered, without their values; the driver counts them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from skipping.extensions import find_extensions
from skipping.model.definition import TableId

__all__ = ["RANGE", "TEXT", "VALUES", "RecordedPredicate", "list_unused_predicates"]

VALUES, RANGE, TEXT = "values", "range", "text"
"""Forms of questions: for values, for all between two or with a beginning, and for substrings."""


@dataclass(frozen=True, slots=True)
class RecordedPredicate:
    """A condition that `scans` had, of a column or expression, and what these scans opened.

    `identity` is the column's, or the text of the expression that `sql` is; `keys` is the mean
    number of values that it named, 0 where that is not known. One of several columns together has
    the identities of these as `parts`, and none of its own.
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
    """Return the predicates on a table that no index answered, the most frequent first."""
    extensions = find_extensions()
    if extensions is None:
        return []
    counted = extensions.list_unindexed_conditions(spark, table)
    predicates = [RecordedPredicate(**_read(each)) for each in counted]
    return sorted(predicates, key=lambda each: (-each.scans, each.condition))


def _read(told: Mapping[str, Any]) -> dict[str, Any]:
    names = ("condition", "identity", "sql", "computed", "form", "scans", "opened", "bytes")
    read = {name: told[name] for name in names}
    return {**read, "keys": told["keys"] / told["scans"], "parts": tuple(told["parts"])}
