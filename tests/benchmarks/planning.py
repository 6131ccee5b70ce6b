"""What planning costs: `python -m tests.benchmarks.planning [rounds]`.

From the text to the executed plan, nothing is run: with skipping and without it, in turns. A
condition on a table without an index; a star of twelve tables; chains (a snowflake in a row) of
more and more tables, and of tables with more and more files, where the first plan reads bounds.

Most of it is Delta reading its log, by jobs. On a busy machine look at the time of the processor
instead, of the thread that plans: it has neither those jobs nor waits, nor what Python does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import SparkSession

from tests.benchmarks.report import Timing, heading, interleaved, spread, table
from tests.benchmarks.session import benchmark_session, checkpoint

__all__ = ["main"]

DIMENSIONS = 11
LENGTHS = (2, 4, 6, 8, 10, 12)
FILES = 4
MORE_FILES = (1_000, 100_000)
ROWS = 4_000
STEP = 4
"""How many times greater each table of a chain is than the next: so its keys are collected."""

WARM = 4
PLANS = 10
TIMEOUT = "spark.skipping.timeout"
DEFAULT = "2s"

RULE = "rewrite.JoinPruningRule"
ENABLED = "spark.skipping.enabled"
SMJ = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
QUIET = {"spark.databricks.delta.stalenessLimit": "1h"}
"""Delta does not look for new commits: as many look-ups as tables, with and without."""


def main(rounds: int = 9) -> None:
    """Print the tables."""
    with benchmark_session(QUIET) as spark:
        _write(spark)
        facts = {"files_a_table": FILES, "rounds": rounds, "in ms": "median (least to greatest)"}

        heading("A table without an index", **facts)
        _print(spark, {"k = 5": {}, "k IN (ten)": {}, "k = 5 OR v > 7": {}}, _filter, rounds)
        heading(f"A star of a fact and {DIMENSIONS} filtered dimensions", **facts)
        _print(spark, {"broadcast": {}, "sort-merge": SMJ}, lambda _: _star(), rounds)
        for name, conf, each in (
            ("a condition on the last table", {}, False),
            ("a condition on each table but the first", {}, True),
            ("the same without broadcasts", SMJ, True),
        ):
            heading(f"Chains of so many tables, {name}", **facts)
            chains = {str(n): conf for n in LENGTHS}
            added = _print(spark, chains, partial(_chain, each=each), rounds)
            grown = ", ".join(
                f"{a} to {b}: {(added[str(b)] - added[str(a)]) / (b - a):.1f}"
                for a, b in pairwise(LENGTHS)
            )
            print(f"  added by each further table, ms of the processor: {grown}")
        for files in MORE_FILES:
            _print_large(spark, files, rounds)


def _print_large(spark: SparkSession, files: int, rounds: int) -> None:
    """Print chains of tables with `files` files each, and their first plans."""
    for n in range(max(LENGTHS)):
        _link(spark, f"link{n}", STEP ** (max(LENGTHS) - n) * 1_000, files)
    few_and_all = {str(n): {} for n in (min(LENGTHS), max(LENGTHS))}
    heading("The first plans of large tables", files_a_table=f"{files:,}", timeout=DEFAULT)
    rows = [(n, *_first_plans(spark, _chain(n, each=True))) for n in few_and_all]
    table(("query", "without", *(f"plan {n + 1}" for n in range(PLANS))), rows)
    heading("Chains of large tables", files_a_table=f"{files:,}", rounds=rounds)
    _print(spark, few_and_all, partial(_chain, each=True), rounds)


def _write(spark: SparkSession) -> None:
    """`plain` without an index; `fact` and its `dim<n>`; the chain `link0`, `link1`, ..."""
    rows = spark.range(0, ROWS, 1, FILES)
    rows.selectExpr("id AS k", "id % 1000 AS v").write.format("delta").saveAsTable("plain")
    keys = [f"k{n}" for n in range(DIMENSIONS)]
    mixed = [f"pmod(xxhash64(id, {n}), 400) AS k{n}" for n in range(DIMENSIONS)]
    rows.selectExpr("id", *mixed).write.format("delta").saveAsTable("fact")
    _index(spark, "fact", keys)
    some = spark.range(0, 400, 1, FILES)
    for n in range(DIMENSIONS):
        dimension = some.selectExpr("id AS k", "id % 40 AS a")
        dimension.write.format("delta").saveAsTable(f"dim{n}")
    for n in range(max(LENGTHS)):
        _link(spark, f"link{n}", STEP ** (max(LENGTHS) - n) * 1_000)


def _link(spark: SparkSession, name: str, size: int, files: int = FILES) -> None:
    """A table of which only the log is there, with bounds: nobody opens its files."""
    columns = ("k", "next", "a")
    spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.sql(f"CREATE TABLE {name} ({', '.join(f'{c} BIGINT' for c in columns)}) USING delta")
    adds = []
    for n in range(files):
        bounds = {
            "numRecords": size,
            "minValues": dict.fromkeys(columns, 100 * n),
            "maxValues": dict.fromkeys(columns, 100 * n + 99),
            "nullCount": dict.fromkeys(columns, 0),
        }
        add = {"path": f"{n}.parquet", "partitionValues": {}, "size": size, "dataChange": True}
        adds.append(
            json.dumps({"add": {**add, "modificationTime": 0, "stats": json.dumps(bounds)}})
        )
    (location,) = (row.location for row in spark.sql(f"DESCRIBE DETAIL {name}").collect())
    log = Path(location.removeprefix("file:")) / "_delta_log"
    (log / f"{1:020}.json").write_text("\n".join(adds))
    checkpoint(spark, location.removeprefix("file:"))
    spark.sql("REFRESH TABLE " + name)


def _first_plans(spark: SparkSession, query: str) -> list[str]:
    """Milliseconds of plans without skipping, and of each of the first that read bounds."""
    plain, ours = (Plans(spark, query, enabled) for enabled in ("false", "true"))
    for _ in range(WARM):  # Delta reads its log, too
        plain.plan()
    patient = spark.conf.get(TIMEOUT)
    spark.conf.set(TIMEOUT, DEFAULT)
    wall = interleaved({"ours": ours.plan, "plain": plain.plan}, rounds=PLANS, warm=0)
    spark.conf.set(TIMEOUT, patient)
    return [spread(wall["plain"], 0, 1e3), *(f"{1e3 * each:.0f}" for each in wall["ours"])]


def _index(spark: SparkSession, name: str, columns: list[str]) -> None:
    kinds = ", ".join(f"{column} VALUE_LIST" for column in columns)
    spark.sql(f"CREATE SKIPPING INDEX ON {name} ({kinds})")


def _filter(condition: str) -> str:
    listed = ", ".join(str(37 * n) for n in range(10))
    return f"SELECT sum(v) FROM plain WHERE {condition.replace('ten', listed)}"


def _star() -> str:
    joins = [f"JOIN dim{n} ON fact.k{n} = dim{n}.k" for n in range(DIMENSIONS)]
    where = [f"dim{n}.a = {n}" for n in range(DIMENSIONS)]
    return f"SELECT sum(fact.id) FROM fact {' '.join(joins)} WHERE {' AND '.join(where)}"


def _chain(length: str, *, each: bool) -> str:
    last = max(LENGTHS) - 1
    first = last - int(length) + 1
    further = range(first + 1, last + 1)
    joins = [f"JOIN link{n} ON link{n - 1}.next = link{n}.k" for n in further]
    # Not such that bounds answer it: a table without files is a shorter chain.
    where = [f"link{n}.a % 40 = 3" for n in (further if each else [last])]
    return f"SELECT count(*) FROM link{first} {' '.join(joins)} WHERE {' AND '.join(where)}"


def _print(
    spark: SparkSession,
    cases: Mapping[str, Mapping[str, str]],
    query: Callable[[str], str],
    rounds: int,
) -> dict[str, float]:
    """Print a row a case; the milliseconds of the processor that skipping adds, by case."""
    rows, medians = [], {}
    for name, conf in cases.items():
        for key, value in conf.items():
            spark.conf.set(key, value)
        plans = {enabled: Plans(spark, query(name), enabled) for enabled in ("true", "false")}
        wall = interleaved(
            {enabled: each.plan for enabled, each in plans.items()}, rounds=rounds, warm=WARM
        )
        for key in conf:
            spark.conf.unset(key)
        ours, theirs = plans["true"], plans["false"]
        added = _added(wall["true"], wall["false"])
        cpu = _added(ours.cpu[WARM:], theirs.cpu[WARM:])
        medians[name] = 1e3 * median(cpu)
        timings = (wall["true"], wall["false"], added, cpu, ours.in_rule[WARM:])
        rows.append((name, *(spread(t, 1, 1e3) for t in timings), ours.keys))
    head = ("query", "with", "without", "added", "added, processor", "in the join rule", "keys")
    table(head, rows)
    return medians


def _added(ours: Timing, theirs: Timing) -> list[float]:
    return [a - b for a, b in zip(ours, theirs, strict=True)]


class Plans:
    """Plans a query, and notes what that took of the processor, and in the join rule; seconds."""

    def __init__(self, spark: SparkSession, text: str, enabled: str) -> None:
        self._spark = spark
        self._text = text
        self._enabled = enabled
        jvm: Any = spark.sparkContext._jvm
        self._threads = jvm.java.lang.management.ManagementFactory.getThreadMXBean()
        self.cpu: list[float] = []
        self.in_rule: list[float] = []
        self.keys = 0

    def plan(self) -> None:
        """Plan it once."""
        self._spark.conf.set(ENABLED, self._enabled)
        start = self._threads.getCurrentThreadCpuTime()  # Python's thread has one in Java
        execution: Any = self._spark.sql(self._text)._jdf.queryExecution()
        execution.executedPlan()
        self.cpu.append((self._threads.getCurrentThreadCpuTime() - start) / 1e9)
        self._spark.conf.unset(ENABLED)
        rule = execution.tracker().rules().get(RULE)
        self.in_rule.append(rule.get().totalTimeNs() / 1e9 if rule.isDefined() else 0.0)
        self.keys = execution.optimizedPlan().toString().count("dynamicpruning")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
