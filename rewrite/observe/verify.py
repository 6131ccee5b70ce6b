"""Run a query with its indexes and without, and compare the rows.

Rows are compared as a multiset, by sums of their hashes, which Spark's executors compute. So each
run returns one row to the driver, however large the result is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructType

from providers.errors import SkippingError, WrongAnswer
from rewrite.bridge.background_verification import Alarm
from rewrite.observe.explain import Explanation, explain, require_frame, require_hooks
from rewrite.observe.queries import active_session, frame_of
from skipping.spark_api import classic

_CLOSE = 1e-11
"""Maximum relative difference between two sums of the same floats, added in different orders."""

_ORDER_DEPENDENT = re.compile(
    r"\b(any_value|approx_percentile|array_agg|collect_list|collect_set|first|first_value|last"
    r"|last_value|listagg|max_by|min_by|mode|nth_value|percentile_approx|string_agg)\("
)
"""Functions whose result depends on the order of rows."""

_GROUPING = ("Aggregate", "Window")
_ANY_ROWS = ("GlobalLimit", "LocalLimit", "Offset", "Tail", "Sample", "Deduplicate")


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of two runs that returned the same rows.

    `rows` is the number of rows, `opened` the number of files opened with indexes, `without` the
    number of files opened without them. `note` is set if floats differ in their last digits.
    """

    rows: int
    opened: int
    without: int
    explained: Explanation
    note: str | None = None

    def __str__(self) -> str:
        same = f"same {self.rows:,} rows, opened {self.opened:,} of {self.without:,} files"
        return f"{same}; {self.note}" if self.note else same


def verify(df: DataFrame | str) -> Verification:
    """Run a query with its indexes and without; raise WrongAnswer if the rows differ.

    Rows are compared as by Spark's GROUP BY: NaN equals NaN, -0.0 equals 0.0, and the order does
    not matter. Sums of floats may differ in their last digits, because Spark adds them in another
    order. Data in `df.cache()` is not computed again. SQL text runs in the active session.

    Raises SkippingError for a non-repeatable query (rand(), LIMIT without ORDER BY), SessionError
    without `rewrite.enable`, and StatementError for a command, which is not run.
    """
    if isinstance(df, str):
        df = frame_of(active_session(), df)
    require_frame(df, "verify")
    require_hooks(df.sparkSession)
    plan: Any = df._jdf.queryExecution().analyzed()
    reason = _find_nondeterminism(plan)
    if reason is not None:
        raise SkippingError(f"cannot verify a query that is not deterministic: {reason}")
    ours, explained = _run(df, plan, enabled=True)
    control, without = _run(df, plan, enabled=False)
    note = _compare(ours, control, df, explained)
    return Verification(
        ours["rows"], _count_files(explained), _count_files(without), explained, note
    )


def _run(df: DataFrame, plan: Any, *, enabled: bool) -> tuple[Row, Explanation]:
    """Run a plan in a clone of the session; return the digest of its rows, and its scans."""
    spark = df.sparkSession
    clone = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    clone.conf.set("spark.skipping.enabled", str(enabled).lower())
    jvm: Any = spark.sparkContext._jvm
    again = classic(jvm).Dataset.ofRows(clone._jsparkSession, plan)
    digest = _digest(DataFrame(again, clone))
    (row,) = digest.collect()
    return row, explain(digest)


def _digest(df: DataFrame) -> DataFrame:
    """Return one row: the number of rows, sums of their hashes, and sums of their floats.

    `whole` hashes all values. `coarse` leaves out finite floats, which `_close` compares by sums.
    """
    types = [field.dataType for field in df.schema]
    named = df.toDF(*(f"c{i}" for i in range(len(types))))
    whole, coarse, sums = [F.lit(len(types))], [F.lit(len(types))], []
    for i, type in enumerate(types):
        column = F.col(f"c{i}")
        whole.append(_hashable(column, type))
        if isinstance(type, FloatType | DoubleType):
            finite = F.abs(column) < F.lit(float("inf"))  # NaN is greater than anything
            coarse.append(F.when(~finite, column))
            number = F.when(finite, column.cast("double"))
            sums += [F.sum(number).alias(f"sum{i}"), F.sum(F.abs(number)).alias(f"size{i}")]
        else:
            coarse.append(_hashable(column, type))
    return named.agg(
        F.count(F.lit(1)).alias("rows"),
        F.struct(*_sum_hashes(whole)).alias("whole"),
        F.struct(*_sum_hashes(coarse)).alias("coarse"),
        *sums,
    )


def _hashable(column: Column, type: DataType) -> Column:
    """Return a column that Spark can hash: JSON text if the type contains maps or variants."""
    return F.to_json(F.struct(column)) if _is_unhashable(type) else column


def _is_unhashable(type: DataType) -> bool:
    match type:
        case StructType():
            return any(_is_unhashable(field.dataType) for field in type)
        case ArrayType():
            return _is_unhashable(type.elementType)
        case _:
            return isinstance(type, MapType) or type.typeName() == "variant"


def _sum_hashes(values: list[Column]) -> list[Column]:
    """Return the sums of two hashes over all rows, which do not depend on the order of rows."""
    # The sums have the type decimal(30,0), which does not overflow.
    hashes = F.xxhash64(*values), F.xxhash64(F.lit("again"), *values)
    return [F.sum(h.cast("decimal(20,0)")).alias(f"h{i}") for i, h in enumerate(hashes)]


def _compare(ours: Row, control: Row, df: DataFrame, explained: Explanation) -> str | None:
    """Compare two digests: return None or a note if they agree, raise WrongAnswer if not."""
    if ours["rows"] == control["rows"]:
        if ours["whole"] == control["whole"]:
            return None
        floats = [
            i for i, f in enumerate(df.schema) if isinstance(f.dataType, FloatType | DoubleType)
        ]
        if ours["coarse"] == control["coarse"] and all(_close(ours, control, i) for i in floats):
            return "floats differ in their last digits, because rows are added in another order"
        counts = f"{ours['rows']:,} rows with the indexes and without, but not the same rows"
    else:
        counts = f"{ours['rows']:,} rows with the indexes, {control['rows']:,} without"
    raise WrongAnswer(
        f"{counts}. An index is wrong: set spark.skipping.enabled to false for correct results, "
        "rebuild the index with DROP and CREATE SKIPPING INDEX, and please report this\n"
        f"{explained}"
    )


def _close(ours: Row, control: Row, i: int) -> bool:
    one, other, size = ours[f"sum{i}"], control[f"sum{i}"], control[f"size{i}"]
    if one is None or other is None:
        return one is other
    return bool(abs(one - other) <= _CLOSE * (size or 0.0))


def _count_files(explained: Explanation) -> int:
    return sum(scan.opened or 0 for scan in explained.scans)


def _find_nondeterminism(plan: Any) -> str | None:
    """Return the reason why two runs of a plan may return different rows, or None."""
    if not plan.deterministic():
        return "it has a function whose result differs from run to run"
    todo = [plan]
    while todo:
        node = todo.pop()
        name = str(node.nodeName())
        if name in _ANY_ROWS and not (name.endswith("Limit") and _is_sorted(node)):
            return f"{name} may return different rows in each run"
        match = _ORDER_DEPENDENT.search(str(node.expressions())) if name in _GROUPING else None
        if match is not None:
            return f"the result of {match[1]} depends on the order of rows"
        children = node.children()
        todo.extend(children.apply(i) for i in range(children.size()))
    return None


def _is_sorted(node: Any) -> bool:
    while str(node.nodeName()) in ("GlobalLimit", "LocalLimit", "Project", "SubqueryAlias"):
        node = node.children().apply(0)
    return str(node.nodeName()) == "Sort"


def alarms(spark: SparkSession) -> tuple[Alarm, ...]:
    """Return the wrongly pruned files that sampled verification found, oldest first.

    `spark.skipping.verification.sampleRate` is the fraction of pruned files that are verified.
    Raises SessionError without `rewrite.enable`.
    """
    return tuple(require_hooks(spark).verification.alarms)
