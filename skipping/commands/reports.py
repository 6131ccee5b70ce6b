"""Statements about what queries skip, which only a session with hooks can answer.

The hooks are `rewrite`'s, which this package does not know: it hands in who answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from pyspark.sql import SparkSession

from providers.errors import SessionError
from skipping.parser.statements import Report

__all__ = ["Reporter", "answer_with", "report"]

Reporter: TypeAlias = Callable[[SparkSession, Report], Sequence[tuple[Any, ...]]]

_reporters: list[Reporter] = []
"""None or one: that of `rewrite`, from its import on."""


def answer_with(reporter: Reporter) -> None:
    """Let statements about queries be answered by this one, which raises for other sessions."""
    _reporters[:] = [reporter]


def report(spark: SparkSession, statement: Report) -> Sequence[tuple[Any, ...]]:
    """The rows that answer a statement; raises SessionError without `rewrite.enable`."""
    for reporter in _reporters:
        return reporter(spark, statement)
    raise SessionError(
        "the session does not skip files: import rewrite; spark = rewrite.enable(spark)"
    )
