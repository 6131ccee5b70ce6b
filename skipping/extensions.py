"""Register functions of `rewrite`, which need plan hooks and which this package cannot import."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from skipping.model.definition import TableId
from skipping.parser.statements import Report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Analysed", "Extensions", "extend", "find_extensions"]


class Analysed(Protocol):
    """An `IndexedExpression`, by py4j."""

    def refusal(self) -> str | None:
        """Return why it cannot be indexed, or None."""

    def text(self) -> str:
        """Return its identity."""

    def type(self) -> str:
        """Return the Spark type of its values."""

    def read(self) -> str:
        """Return the columns in it, a list of dotted names in JSON."""

    def over(self, flat: str) -> Any:
        """Return it as a Java Column, over other names for its columns, an object in JSON."""


@dataclass(frozen=True, slots=True)
class Extensions:
    """Functions for sessions with hooks; in other sessions they raise SessionError."""

    analyze_expression: Callable[[DataFrame, str, Mapping[str, str]], Analysed]
    """Analyses an expression over a frame whose columns have these identities."""

    report: Callable[[SparkSession, Report], Sequence[tuple[Any, ...]]]
    """Returns the rows of EXPLAIN SKIPPING, VERIFY SKIPPING and the like."""

    list_unindexed_conditions: Callable[[SparkSession, TableId], Sequence[Mapping[str, Any]]]
    """Returns the conditions on a table that no index supported, as Java counts them."""


_extensions: Extensions | None = None


def extend(extensions: Extensions) -> None:
    """Set the extensions of this process."""
    global _extensions
    _extensions = extensions


def find_extensions() -> Extensions | None:
    """Return the extensions of this process; None if it never imported `rewrite`."""
    return _extensions
