"""What was skipped, by what, and why not more."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from providers.errors import SessionError
from rewrite.hooks import installed
from skipping.scan_plan import ScanPlan

__all__ = ["Explanation", "explain"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The scans of a DataFrame: of its last execution, or of its plan if it has not run.

    `execution` is the name and id that Spark gave the execution, None for a plan.
    """

    scans: tuple[ScanPlan, ...]
    execution: tuple[str, int] | None = None

    def __str__(self) -> str:
        if self.execution is None:
            head = "plan (not executed; what a run would read)"
        else:
            head = "execution {1} ({0})".format(*self.execution)
        body = "\n".join(map(str, self.scans)) or "no file scan"
        return f"{head}\n{body}"


def explain(df: DataFrame) -> Explanation:
    """The scans of `df`, with the files that were or would be skipped.

    Shows the last execution that `df` was part of (by show, collect, count, write, ...); if there
    is none, the plan, which runs no job. Raises SessionError without `rewrite.enable`.
    """
    spark = df.sparkSession
    hooks = installed(spark)
    if hooks is None:
        raise SessionError("the session does not skip files: spark = rewrite.enable(spark)")
    query = df._jdf.queryExecution()
    # Executions are noted on a thread of Spark's, which may still be behind.
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    executions = json.loads(hooks.java.executions().of(query))
    if executions:
        # A write runs as a command around the execution that reads.
        last = next((e for e in reversed(executions) if e["scans"]), executions[-1])
        return Explanation(_plans(last["scans"]), (last["name"], last["id"]))
    return Explanation(_plans(json.loads(hooks.java.scans().json(query.executedPlan()))))


def _plans(scans: Sequence[Mapping[str, Any]]) -> tuple[ScanPlan, ...]:
    return tuple(map(_plan, scans))


def _plan(scan: Mapping[str, Any]) -> ScanPlan:
    labels = [leg["label"] for leg in scan.get("legs", ())]
    return ScanPlan(
        scan["table"],
        total=scan.get("total"),
        disproved=scan.get("disproved", 0),
        unknown=scan.get("unknown", 0),
        legs=tuple(zip(labels, scan.get("counts", ()), strict=True)),
        opened=scan.get("opened"),
        reason=scan.get("reason"),
        unused=tuple(scan.get("unused", ())),
    )
