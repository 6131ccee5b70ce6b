"""Turn the text of a query into a plan, and refuse commands.

Spark runs a command right after the analysis, and CALL and EXECUTE IMMEDIATE during it. So the plan
is checked twice: after parsing and after the analysis.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from providers.errors import SessionError, StatementError
from skipping.parser.errors import point_at
from skipping.parser.lexer import after_gap

__all__ = ["active_session", "frame_of", "plan_of"]

_WRITES = (
    "org.apache.spark.sql.catalyst.plans.logical.Command",
    "org.apache.spark.sql.catalyst.plans.logical.ParsedStatement",
    "org.apache.spark.sql.catalyst.plans.logical.CompoundPlanStatement",
    "org.apache.spark.sql.catalyst.plans.logical.ExecutableDuringAnalysis",
)
"""Classes of nodes that no query contains, also not below its root, where the plan of
`FROM t INSERT INTO a ... INSERT INTO b` has them: its root is a union."""

_AT_ONCE = "ExecuteImmediate"
"""Part of the class name of plans that run another text."""


def active_session() -> SparkSession:
    """Return the session for SQL text; raises SessionError without an active session."""
    spark = SparkSession.getActiveSession()
    if spark is None:
        raise SessionError("there is no active session: spark = rewrite.session()")
    return spark


@contextmanager
def _as_deep_as_java_is() -> Iterator[None]:
    """Raise StatementError for text that overflows the stack of Spark's parser or analysis.

    For some such texts Spark itself raises FAILED_TO_PARSE_TOO_COMPLEX.
    """
    try:
        yield
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() != "java.lang.StackOverflowError":
            raise
        # Without its cause: the trace of a stack overflow has a thousand lines.
        raise StatementError(
            "the query nests too deep for Spark: divide it into simpler queries, or give the "
            "driver a larger stack (spark.driver.extraJavaOptions=-Xss16m)"
        ) from None


@_as_deep_as_java_is()
def plan_of(spark: SparkSession, text: str) -> Any:
    """Return the parsed logical plan of a query; raises StatementError for a command.

    If Spark cannot parse or analyze the text, for example for an unknown table, raises its error.
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
            "a report about a query takes no parameters: write their values into the query"
        ) from error
    _require_query(jvm, analyzed, text)
    return plan


@_as_deep_as_java_is()
def frame_of(spark: SparkSession, text: str) -> DataFrame:
    """Return the DataFrame of a query; raises the same errors as `plan_of`."""
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
                "expected a query, this is a command and was not run: run it without this "
                "statement, then use SHOW SKIPPING HISTORY to see its scans",
            )
        for below in (node.children(), node.innerChildren()):
            todo.extend(below.apply(i) for i in range(below.size()))
