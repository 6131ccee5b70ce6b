"""Explain which files a query skipped, by which condition, and why it read the others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from providers.errors import SessionError
from rewrite.bridge.install import Hooks, find_hooks
from rewrite.observe.html import render
from rewrite.observe.queries import active_session, plan_of
from skipping.lookup.scan_plan import FunnelStep, KeySet, ScanPlan
from skipping.model.identifiers import hide_passwords, printable, shown_path
from skipping.parser.lexer import first_line


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """The scans in the last execution of a DataFrame, or in its plan if it has not run.

    `execution` is Spark's name and id of the execution, and `seconds` its duration. Both are None
    for a plan. They are also None after `foreach` or `rdd`, which Spark does not record as an
    execution; the scans then still show the opened files. `statement` is the beginning of the SQL
    text, if there is one. Notebooks display an explanation as a chart.
    """

    scans: tuple[ScanPlan, ...]
    execution: tuple[str, int] | None = None
    seconds: float | None = field(default=None, compare=False)
    statement: str | None = field(default=None, compare=False)

    @property
    def title(self) -> str:
        """The heading: the execution's id with its statement or action, or that this is a plan."""
        if self.execution is not None:
            name, id = self.execution
            return f"execution {id}" + (f": {self.statement}" if self.statement else f" ({name})")
        if any(scan.opened is not None for scan in self.scans):
            return "run as an RDD"
        return "plan (not executed; what a run would read)"

    @property
    def times(self) -> tuple[tuple[str, float], ...]:
        """(name, seconds) pairs: total time of lookups, collecting keys, and the execution."""
        lookups = [scan.seconds for scan in self.scans if scan.seconds is not None]
        keys = [k.seconds for scan in self.scans for k in scan.keys if k.keys is not None]
        ran = [] if self.seconds is None else [self.seconds]
        named = (("looked up", lookups), ("collected keys", keys), ("ran", ran))
        return tuple((name, sum(seconds)) for name, seconds in named if seconds)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as plain values, for JSON."""
        name, id = self.execution or (None, None)
        ran = {"name": name, "id": id, "seconds": self.seconds, "statement": self.statement}
        scans = [scan.to_dict() for scan in self.scans]
        return {"execution": ran if self.execution else None, "scans": scans}

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines = [self.title, *(map(str, self.scans) if self.scans else ["no file scan"])]
        if self.seconds is not None and self.scans:
            times = ", ".join(f"{name} in {seconds:.3f} s" for name, seconds in self.times)
            lines.append(f"in all: {times}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return render(self.title, self.scans, self.times)


def explain(query: DataFrame | str, *, dry_run: bool = False) -> Explanation:
    """Return the scans of a query, with the files that were or would be skipped.

    By default, explain the last execution of the DataFrame (by show, collect, count, write, ...).
    For a command, this includes all its scans: those that find the affected rows, then those that
    rewrite files. If there was no execution, or with `dry_run`, explain the plan: the index
    evaluates the conditions, but no data is read and nothing is executed. SQL text is planned in
    the active session. Join keys are shown only for an execution, because a plan collects none.
    Values in conditions are shown only if `spark.skipping.explain.values` is true when the query is
    planned.

    Raises SessionError without `rewrite.enable` and for a DataFrame of Spark Connect,
    StatementError for SQL that is not a query, TypeError for other arguments.
    """
    if isinstance(query, str):
        spark = active_session()
        return explain_plan(spark, plan_of(spark, query))
    require_frame(query, "explain")
    spark = query.sparkSession
    execution = query._jdf.queryExecution()
    if dry_run:
        return explain_plan(spark, execution.logical())
    hooks = wait_for_records(spark)
    executions = json.loads(hooks.java.executions().of(execution))
    if executions:
        return _of_last(executions)
    scans = read_scans(json.loads(hooks.java.scans().foresee(execution.executedPlan())))
    # Spark's metric is zero, not missing, before a run.
    ran = any(scan.opened for scan in scans)
    return Explanation(scans if ran else _without_read_counts(scans))


def _of_last(executions: Sequence[Mapping[str, Any]]) -> Explanation:
    """Explain the last execution that has scans; if a command started it, the whole command."""
    with_scans = [e for e in executions if _scans(e)] or executions
    last = with_scans[-1]
    root = next((e for e in executions if e["id"] == last["root"]), last)
    scans = [scan for e in with_scans if e["root"] == last["root"] for scan in _scans(e)]
    return Explanation(
        read_scans(scans), (read_action(root), root["id"]), root["seconds"], statement_of(root)
    )


def read_action(execution: Mapping[str, Any]) -> str:
    """Return the execution's action under its name in Python: `collect`, not `collectToPython`."""
    return str(execution["name"]).removesuffix("ToPython")


def statement_of(execution: Mapping[str, Any]) -> str | None:
    """Return the beginning of the execution's SQL; values are `?` unless they may be shown."""
    text = execution.get("statement")
    if text is None:
        return None
    # Hide passwords before the text is cut: the end of a URL could be missing then.
    return printable(first_line(hide_passwords(text), values=execution["values"]))


def _scans(execution: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    # Leave out the scans with which Delta reads its log.
    return [scan for scan in execution["scans"] if "/_delta_log/" not in scan["table"]]


def require_hooks(spark: SparkSession) -> Hooks:
    """Return the hooks of a session; raise SessionError without `rewrite.enable`."""
    hooks = find_hooks(spark)
    if hooks is None:
        raise SessionError("the session does not skip files: run spark = rewrite.enable(spark)")
    return hooks


def wait_for_records(spark: SparkSession) -> Hooks:
    """Wait until all executions are recorded, then return the hooks; raise as `require_hooks`."""
    hooks = require_hooks(spark)
    # Spark's listener thread may record an execution only after the query has returned.
    with suppress(Py4JJavaError):  # on a busy server the wait times out: use what is recorded
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    return hooks


def _type_name(value: object) -> str:
    """Return such as `int`, or `pandas.DataFrame`, which is not Spark's."""
    package = type(value).__module__.partition(".")[0]
    name = type(value).__name__
    return name if package == "builtins" else f"{package}.{name}"


def require_frame(given: object, use: str) -> None:
    """Raise TypeError unless `given` is a DataFrame, SessionError for one of Spark Connect."""
    if not isinstance(given, DataFrame):
        raise TypeError(
            f"{use} takes a Spark DataFrame or the SQL text of a query, not {_type_name(given)}"
        )
    if not hasattr(given, "_jdf"):
        raise SessionError(
            "the plan of a Spark Connect DataFrame is on its server: use "
            f"spark.sql('{use.upper()} SKIPPING SELECT ...')"
        )


def explain_plan(spark: SparkSession, plan: Any) -> Explanation:
    """Plan this logical plan again and explain it, without executing its commands."""
    hooks = require_hooks(spark)
    jvm: Any = spark.sparkContext._jvm
    skip = jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
    execution = spark._jsparkSession.sessionState().executePlan(plan, skip)
    scans = json.loads(hooks.java.scans().foresee(execution.executedPlan()))
    return Explanation(_without_read_counts(read_scans(scans)))


def _without_read_counts(scans: Sequence[ScanPlan]) -> tuple[ScanPlan, ...]:
    nothing: dict[str, Any] = {"opened": None, "opened_bytes": None, "rows": None}
    return tuple(replace(scan, without_match=0, **nothing) for scan in scans)


def read_scans(scans: Sequence[Mapping[str, Any]]) -> tuple[ScanPlan, ...]:
    """Convert the scans in Java's JSON to ScanPlan."""
    return tuple(_plan(_printable(scan)) for scan in scans)


def _printable(value: Any) -> Any:
    """Return a JSON value whose strings are safe to print on a terminal."""
    if isinstance(value, Mapping):
        return {key: _printable(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return list(map(_printable, value))
    return printable(value) if isinstance(value, str) else value


def _without_match(scan: Mapping[str, Any]) -> int:
    """Return a lower bound for the number of opened files without a matching row.

    Spark counts the rows after the filter for all files together. With n such rows, at most n files
    have a match. Returns 0 if an operator such as LIMIT stopped the scan early, because then its
    row count is incomplete.
    """
    if not scan.get("drained") or "rows" not in scan:
        return 0
    return max(0, (scan.get("opened") or 0) - int(scan["rows"][1]))


def _plan(scan: Mapping[str, Any]) -> ScanPlan:
    keys = tuple(KeySet(**each) for each in scan.get("keys", ()))
    without_keys = scan.get("without keys", ())
    collected = any(key.keys is not None for key in keys)
    labels = [operand["label"] for operand in scan.get("operands", ())]
    return ScanPlan(
        shown_path(scan["table"]),
        total=scan.get("total"),
        pruned=scan.get("pruned", 0),
        unknown=scan.get("unknown", 0),
        legs=tuple(zip(labels, scan.get("counts", ()), strict=True)),
        opened=scan.get("opened"),
        reason=scan.get("reason"),
        unused=(
            *scan.get("unused", ()),
            *(() if collected else (f"keys of a join: {reason}" for reason in without_keys)),
        ),
        keys=keys,
        rows=tuple(scan["rows"]) if keys and "rows" in scan else None,
        bytes=scan.get("bytes"),
        pruned_bytes=scan.get("pruned bytes", 0),
        opened_bytes=scan.get("opened bytes"),
        format=tuple(FunnelStep(*step) for step in scan.get("format", ())),
        seconds=scan.get("seconds"),
        cached=scan.get("cached", False),
        without_match=_without_match(scan),
    )
