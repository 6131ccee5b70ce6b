"""The text of a query as a plan: a query that reads, never one that writes.

Spark runs a command as soon as it has analysed it, CALL and EXECUTE IMMEDIATE while it does. So the
plan is looked at as it comes from the parser, and again when it is analysed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from providers.errors import SessionError, StatementError
from skipping.parser import point_at
from skipping.parser.lexer import after_gap

__all__ = ["active_session", "frame_of", "plan_of"]

_WRITES = (
    "org.apache.spark.sql.catalyst.plans.logical.Command",
    "org.apache.spark.sql.catalyst.plans.logical.ParsedStatement",
    "org.apache.spark.sql.catalyst.plans.logical.CompoundPlanStatement",
    "org.apache.spark.sql.catalyst.plans.logical.ExecutableDuringAnalysis",
)
"""What no query has, below its root neither: of `FROM t INSERT INTO a ... INSERT INTO b` it is a
union."""

_AT_ONCE = "ExecuteImmediate"
"""Begins or ends the name of a plan that runs another text."""


def active_session() -> SparkSession:
    """The session that text without one is meant for; raises SessionError if there is none."""
    spark = SparkSession.getActiveSession()
    if spark is None:
        raise SessionError("there is no active session: spark = rewrite.session()")
    return spark


@contextmanager
def _as_deep_as_java_is() -> Iterator[None]:
    """Spark says FAILED_TO_PARSE_TOO_COMPLEX of some texts, and of others its stack overflows."""
    try:
        yield
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() != "java.lang.StackOverflowError":
            raise
        # Not from it: the trace of a stack that overflowed is a thousand lines.
        raise StatementError(
            "the query nests too deep for Spark: divide it into less complex parts, or give the "
            "driver a larger stack (spark.driver.extraJavaOptions=-Xss16m)"
        ) from None


@_as_deep_as_java_is()
def plan_of(spark: SparkSession, text: str) -> Any:
    """The logical plan of a query, as the parser has it; raises StatementError for other text.

    Text that Spark cannot parse, or that names what is not there, raises what Spark raises.
    """
    jvm: Any = spark.sparkContext._jvm
    state: Any = spark._jsparkSession.sessionState()
    plan = state.sqlParser().parsePlan(text)
    _require_query(jvm, plan, text)
    skip = jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
    try:
        analyzed = state.executePlan(plan, skip).analyzed()
    except PySparkException as error:
        if error.getCondition() != "UNBOUND_SQL_PARAMETER":
            raise
        raise StatementError(
            "a statement about a query takes no parameters: write their values into the query"
        ) from error
    _require_query(jvm, analyzed, text)
    return plan


@_as_deep_as_java_is()
def frame_of(spark: SparkSession, text: str) -> DataFrame:
    """The DataFrame of a query; raises what `plan_of` does."""
    jvm: Any = spark.sparkContext._jvm
    rows = jvm.org.apache.spark.sql.classic.Dataset.ofRows(
        spark._jsparkSession, plan_of(spark, text)
    )
    return DataFrame(rows, spark)


def _require_query(jvm: Any, plan: Any, text: str) -> None:
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    writes = [loader.loadClass(name) for name in _WRITES]
    todo = [plan]
    while todo:
        node = todo.pop()
        name = str(node.getClass().getSimpleName())
        if _AT_ONCE in name or any(kind.isInstance(node) for kind in writes):
            raise point_at(
                text,
                after_gap(text, 0),
                "expected a query, this is a command and was not run: run it by itself, and "
                "SHOW SKIPPING HISTORY says what it read",
            )
        for below in (node.children(), node.innerChildren()):
            todo.extend(below.apply(i) for i in range(below.size()))
