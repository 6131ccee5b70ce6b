"""Plan the SQL text of a query, and raise StatementError for a command instead of running it.

Spark runs a command right after the analysis, and CALL and EXECUTE IMMEDIATE during the analysis.
So the plan is checked twice: after parsing and after the analysis.
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
from skipping.spark_api import RELEASE, classic, error_condition

_WRITES = [
    "org.apache.spark.sql.catalyst.plans.logical.Command",
    "org.apache.spark.sql.catalyst.plans.logical.ParsedStatement",
]
"""Classes of plan nodes that only commands contain.

They can be below the root: the plan of `FROM t INSERT INTO a ... INSERT INTO b` is a union of them.
"""

if RELEASE >= (4, 0):  # 3.5 has neither scripts nor EXECUTE IMMEDIATE
    _WRITES += [
        "org.apache.spark.sql.catalyst.plans.logical.CompoundPlanStatement",
        "org.apache.spark.sql.catalyst.plans.logical.ExecutableDuringAnalysis",
    ]
_EXECUTE_IMMEDIATE = "ExecuteImmediate"
"""Part of the class name of plan nodes that run SQL given as a string."""


def active_session() -> SparkSession:
    """Return the active session, which plans SQL text; raise SessionError without one."""
    spark = SparkSession.getActiveSession()
    if spark is None:
        raise SessionError("there is no active session: run spark = rewrite.session()")
    return spark


@contextmanager
def _convert_stack_overflow() -> Iterator[None]:
    """Raise StatementError for text that overflows the stack of Spark's parser or analysis.

    For other deeply nested texts Spark itself raises FAILED_TO_PARSE_TOO_COMPLEX.
    """
    try:
        yield
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() != "java.lang.StackOverflowError":
            raise
        # Leave out the cause: the trace of a stack overflow has a thousand lines.
        raise StatementError(
            "the query is nested too deeply for Spark: divide it into simpler queries, or give the "
            "driver a larger stack (spark.driver.extraJavaOptions=-Xss16m)"
        ) from None


@_convert_stack_overflow()
def plan_of(spark: SparkSession, text: str) -> Any:
    """Return the parsed logical plan of a query; raise StatementError for a command.

    If Spark cannot parse or analyze the text (for example, the table is unknown), raise its error.
    """
    jvm: Any = spark.sparkContext._jvm
    state: Any = spark._jsparkSession.sessionState()
    plan = state.sqlParser().parsePlan(text)
    _require_query(jvm, plan, text)
    skip = jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
    try:
        analyzed = state.executePlan(plan, skip).analyzed()
    except PySparkException as error:
        if error_condition(error) != "UNBOUND_SQL_PARAMETER":
            raise
        raise StatementError(
            "the query has parameters without values: write them into the query, or pass them "
            "as args to spark.sql('EXPLAIN SKIPPING ...')"
        ) from error
    _require_query(jvm, analyzed, text)
    return plan


@_convert_stack_overflow()
def frame_of(spark: SparkSession, text: str) -> DataFrame:
    """Return the DataFrame of a query; raises the same errors as `plan_of`."""
    jvm: Any = spark.sparkContext._jvm
    rows = classic(jvm).Dataset.ofRows(spark._jsparkSession, plan_of(spark, text))
    return DataFrame(rows, spark)


def _require_query(jvm: Any, plan: Any, text: str) -> None:
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    writes = [loader.loadClass(name) for name in _WRITES]
    todo = [plan]
    while todo:
        node = todo.pop()
        name = str(node.getClass().getSimpleName())
        if _EXECUTE_IMMEDIATE in name or any(kind.isInstance(node) for kind in writes):
            raise point_at(
                text,
                after_gap(text, 0),
                "expected a query, but this is a command, and it was not run: run it on its "
                "own, then use SHOW SKIPPING HISTORY to see its scans",
            )
        for below in (node.children(), node.innerChildren()):
            todo.extend(below.apply(i) for i in range(below.size()))
