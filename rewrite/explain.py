"""What was skipped, by what, and why not more."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame

from providers.errors import SessionError
from rewrite.hooks import installed
from skipping.scan_plan import KeySet, ScanPlan

__all__ = ["Explanation", "explain"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The scans of a DataFrame: of its last execution, or of its plan if it has not run.

    `execution` is the name and id that Spark gave the execution. It is None for a plan, and for
    what ran as an RDD (`foreach`, `rdd`), which Spark counts as no execution; then the scans say
    what was opened.
    """

    scans: tuple[ScanPlan, ...]
    execution: tuple[str, int] | None = None

    def __str__(self) -> str:
        if self.execution is not None:
            head = "execution {1} ({0})".format(*self.execution)
        elif any(scan.opened is not None for scan in self.scans):
            head = "run as an RDD"
        else:
            head = "plan (not executed; what a run would read)"
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
    scans = _plans(json.loads(hooks.java.scans().foresee(query.executedPlan())))
    # Where nothing ran, Spark's metric is there, and zero.
    ran = any(scan.opened for scan in scans)
    return Explanation(scans if ran else tuple(replace(scan, opened=None) for scan in scans))


def _plans(scans: Sequence[Mapping[str, Any]]) -> tuple[ScanPlan, ...]:
    return tuple(map(_plan, scans))


def _plan(scan: Mapping[str, Any]) -> ScanPlan:
    keys = tuple(KeySet(**each) for each in scan.get("keys", ()))
    labels = [leg["label"] for leg in scan.get("legs", ())]
    return ScanPlan(
        scan["table"],
        total=scan.get("total"),
        disproved=scan.get("disproved", 0),
        unknown=scan.get("unknown", 0),
        legs=tuple(zip(labels, scan.get("counts", ()), strict=True)),
        opened=scan.get("opened"),
        reason=scan.get("reason"),
        unused=(
            *scan.get("unused", ()),
            *(f"keys of a join: {why}" for why in scan.get("without keys", ()) if not keys),
        ),
        keys=keys,
        rows=tuple(scan["rows"]) if keys and "rows" in scan else None,
    )
