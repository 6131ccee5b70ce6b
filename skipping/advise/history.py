"""What queries asked of a table in vain: conditions that no index answered, without their values.

The session's driver counts them; the hooks are `rewrite`'s, which this package does not know: it
hands in who tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyspark.sql import SparkSession

from skipping.model.definition import TableId

__all__ = ["RANGE", "TEXT", "VALUES", "Asked", "Teller", "asked_of", "learn_from"]

VALUES, RANGE, TEXT = "values", "range", "text"
"""Forms of questions: for values, for all between two or with a beginning, and for substrings."""


@dataclass(frozen=True, slots=True)
class Asked:
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


Teller: TypeAlias = Callable[[SparkSession, TableId], Sequence[Mapping[str, Any]]]
"""Gives the questions of a table, as `VainQuestions.java` has them; none without hooks."""

_tellers: list[Teller] = []
"""None or one: that of `rewrite`, from its import on."""


def learn_from(teller: Teller) -> None:
    """Let this one tell what was asked."""
    _tellers[:] = [teller]


def asked_of(spark: SparkSession, table: TableId) -> list[Asked]:
    """What was asked of a table in vain, most often first."""
    told = [Asked(**_read(each)) for teller in _tellers for each in teller(spark, table)]
    return sorted(told, key=lambda asked: (-asked.scans, asked.condition))


def _read(told: Mapping[str, Any]) -> dict[str, Any]:
    names = ("condition", "identity", "sql", "computed", "form", "scans", "opened", "bytes")
    read = {name: told[name] for name in names}
    return {**read, "keys": told["keys"] / told["scans"], "parts": tuple(told["parts"])}
