"""What a query pays that no index can help: `python -m tests.benchmarks.no_index [rows]`.

The rule, hook entry to exit, is timed inside the JVM; planning and whole queries are timed in
pairs, with the hooks attached and detached. Python must not be called.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median, quantiles
from typing import Any

from pyspark.sql import SparkSession

from rewrite.bridge.callbacks import Answers
from rewrite.bridge.install import find_hooks
from skipping import SkippingIndex
from tests.benchmarks.report import heading, interleaved, ratio, spread, table
from tests.benchmarks.session import benchmark_session
from tests.benchmarks.star import FILES, write_star

__all__ = ["main"]

LOOP = """
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;

public class Loop {
  public static long[] nanos(Rule rule, TreeNode plan, int n) {
    long[] out = new long[n];
    for (int i = 0; i < n; i++) {
      long start = System.nanoTime();
      rule.apply(plan);
      out[i] = System.nanoTime() - start;
    }
    return out;
  }
}
"""
"""py4j costs more than the rule, so the calls are made and timed in Java."""

PAIRED = ("Delta, no index, condition", "Delta, index, no condition")
SUM = "SELECT count(*), sum(price) FROM {}"


def main(rows: int = 1_000) -> None:
    """Print the tables."""
    with benchmark_session() as spark:
        plain, indexed = (write_star(spark, "star", rows, statistics=s) for s in (True, False))
        SkippingIndex.create(spark, f"delta.`{indexed}`", "k MIN_MAX")
        spark.read.format("delta").load(str(plain)).createOrReplaceTempView("plain")
        spark.read.format("delta").load(str(indexed)).createOrReplaceTempView("indexed")
        spark.read.parquet(str(plain)).createOrReplaceTempView("files")
        where = "WHERE k = 5 AND price > 1 AND note LIKE 'a%'"
        joins = " ".join(f"JOIN plain AS p{i} ON p{i}.k = plain.k AND p{i}.oid = 3" for i in (1, 2))
        free = {
            "no file scan": "SELECT count(*) FROM range(9)",
            "Parquet, condition": f"{SUM.format('files')} {where}",
            "Delta, no index, condition": f"{SUM.format('plain')} {where}",
            "Delta, no index, three scans": f"SELECT count(*), sum(plain.price) FROM plain {joins}",
            "Delta, no index, 50 scans": " UNION ALL ".join(
                50 * [f"{SUM.format('plain')} {where}"]
            ),
            "Delta, index, no condition": SUM.format("indexed"),
        }
        facts = {"files": FILES, "rows_a_file": rows}

        with _calls_to_python() as calls:
            heading("The rule on plans that no index can help, hook entry to exit, ms", **facts)
            table(
                ("plan", "median", "99 %", "greatest"),
                [(name, *_rule(spark, sql)) for name, sql in free.items()],
            )
            heading("Planning with the hooks and without, ms", **facts)
            table(
                ("plan", "with", "without", "added", "ratio"),
                [(name, *_pairs(spark, free[name], run=False)) for name in PAIRED],
            )
            heading("Whole queries with the hooks and without, ms", **facts)
            table(
                ("query", "with", "without", "added", "ratio"),
                [(name, *_pairs(spark, free[name], run=True)) for name in PAIRED],
            )
        assert not calls, f"Python was asked {len(calls)} times"
        print("  calls to Python: 0")

        asked = {"Delta, index, condition": f"{SUM.format('indexed')} {where}"}
        heading("For comparison, where the index is asked, ms", **facts)
        table(
            ("plan", "median", "99 %", "greatest"),
            [(name, *_rule(spark, sql, n=50)) for name, sql in asked.items()],
        )


def _rule(spark: SparkSession, sql: str, *, n: int = 3_000) -> tuple[str, str, str]:
    jvm: Any = spark.sparkContext._jvm
    loop = jvm.org.codehaus.janino.SimpleCompiler()
    loop.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    loop.cook(LOOP)
    method = loop.getClassLoader().loadClass("Loop").getMethods()[0]
    given = jvm.java.util.ArrayList()
    # Not executedPlan: behind adaptive execution it is one leaf.
    for each in (_installed_rule(spark), spark.sql(sql)._jdf.queryExecution().sparkPlan(), n):
        given.add(each)

    for _ in range(2):  # the first warms up
        nanos = [t / 1e6 for t in method.invoke(None, given.toArray())]
    return f"{median(nanos):.4f}", f"{quantiles(nanos, n=100)[98]:.4f}", f"{max(nanos):.4f}"


def _installed_rule(spark: SparkSession) -> Any:
    rules = spark._jsparkSession.sessionState().columnarRules()
    found = [rules.apply(i).preColumnarTransitions() for i in range(rules.size())]
    (rule,) = (r for r in found if r.getClass().getName() == "rewrite.jvm.scan.FilePruningRule")
    return rule


def _pairs(spark: SparkSession, sql: str, *, run: bool) -> tuple[str, str, str, str]:
    hooks = find_hooks(spark)
    assert hooks is not None

    def once(*, attached: bool) -> None:
        hooks.java.client().attach(attached)
        query = spark.sql(sql)
        if run:
            query.collect()
        else:
            query._jdf.queryExecution().executedPlan()

    seconds = interleaved(
        {"with": partial(once, attached=True), "without": partial(once, attached=False)},
        rounds=9,
        warm=1,
    )
    hooks.java.client().attach(True)
    added = [a - b for a, b in zip(seconds["with"], seconds["without"], strict=True)]
    shown = [spread(s, 1, 1e3) for s in (seconds["with"], seconds["without"], added)]
    return (*shown, ratio(seconds["with"], seconds["without"]))


@contextmanager
def _calls_to_python() -> Iterator[list[bytes]]:
    """The questions that Java asks within."""
    calls: list[bytes] = []
    apply = Answers.apply

    def counted(self: Answers, envelope: str, message: bytes) -> bytes:
        calls.append(message)
        return apply(self, envelope, message)

    Answers.apply = counted  # type: ignore[method-assign]
    try:
        yield calls
    finally:
        Answers.apply = apply  # type: ignore[method-assign]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
