"""Register functions of `rewrite`: they need its plan hooks, and this package cannot import it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from skipping.model.workload import WorkloadRecord
from skipping.parser.statements import Report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Analysed(Protocol):
    """An analyzed SQL expression: the Java object `IndexedExpression`, called by py4j."""

    def refusal(self) -> str | None:
        """Return why the expression cannot be indexed, or None."""

    def text(self) -> str:
        """Return the identity of the expression."""

    def type(self) -> str:
        """Return the Spark type of its values."""

    def read(self) -> str:
        """Return the dotted names of its columns, as a JSON list."""

    def over(self, flat: str) -> Any:
        """Return it as a Java Column over renamed columns; `flat` is a JSON object, old to new."""


@dataclass(frozen=True, slots=True)
class OwnWorkload:
    """What this driver counted of its queries; `problem` is why the store does not have it."""

    records: Sequence[WorkloadRecord] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Extensions:
    """Functions that need a session with hooks."""

    analyze_expression: Callable[[DataFrame, str, Mapping[str, str]], Analysed]
    """Analyzes a SQL expression over a frame; the mapping has the identities of its columns.

    Raises DefinitionError without hooks.
    """

    report: Callable[[SparkSession, Report], Sequence[tuple[Any, ...]]]
    """Runs a statement such as EXPLAIN SKIPPING; returns its rows. SessionError without hooks."""

    render_section: Callable[[SparkSession, str, float], str]
    """Returns a section of the tab in Spark's UI as HTML, within some seconds."""

    own_workload: Callable[[SparkSession], OwnWorkload]
    """Returns what the queries of this driver read and skipped; empty without hooks."""


_extensions: Extensions | None = None


def extend(extensions: Extensions) -> None:
    """Set the extensions of this process."""
    global _extensions
    _extensions = extensions


def find_extensions() -> Extensions | None:
    """Return the extensions of this process; None if it never imported `rewrite`."""
    return _extensions
