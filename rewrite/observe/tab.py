"""Render the tab "File skipping" of Spark's UI: executions, indexes, decisions.

`SkippingTab.java` requests one section after the other. A section is an HTML fragment without
scripts, between Spark's header and footer. All text in it is escaped. At widths below 768 px each
row of a table is shown as a block, so that nothing is wider than a phone.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from html import escape
from typing import Any

from pyspark.sql import SparkSession

from providers.errors import SkippingError, first_line
from rewrite.bridge.install import Hooks
from rewrite.observe.explain import read_action, read_scans, require_hooks, statement_of
from rewrite.observe.html import DARK, LIGHT, STYLE, count_files, render_funnel
from rewrite.observe.hypothetical import ADDRESS
from skipping.advise.savings import estimate
from skipping.config.settings import Settings
from skipping.indexing.describe import IndexSummary, summarize
from skipping.lookup.scan_plan import ScanPlan, format_bytes
from skipping.model.decision import Decision
from skipping.model.definition import Definition
from skipping.model.identifiers import plain_name, printable, shown_name
from skipping.model.workload import TableWorkload, merge_tables
from skipping.stores import IndexStore, list_definitions

_MOST_SCANS = 20
"""Maximum number of scans shown for an execution."""

_MOST_CHARACTERS = 1_000_000
"""Older executions are left out once the section is this long."""

_permits = threading.Semaphore(2)

_MOST_TABLES = 100
_MOST_DECISIONS = 100
_LONGEST = 300  # characters of a text that others write

_TAB_STYLE = (
    STYLE
    + f"<style>.skipping-tab .skipping-explain{{{LIGHT}}}"
    + f"[data-bs-theme=dark] .skipping-tab .skipping-explain{{{DARK}}}"
    + """
.skipping-tab .skipping-explain{max-width:none;padding:2px 0 6px;border:0;background:none}
.skipping-tab td{overflow-wrap:anywhere}
.skipping-tab .number{overflow-wrap:normal}
.skipping-tab summary{cursor:pointer}
.skipping-tab code{color:inherit}
.skipping-tab .share{display:inline-block;width:80px;height:8px;border-radius:2px;
 background:rgba(127,127,127,.25)}
.skipping-tab .share i{display:block;height:8px;border-radius:2px;background:#4878a8}
@media (max-width:767.98px){
.skipping-tab .list,.skipping-tab .list>tbody,.skipping-tab .list>tbody>tr,
.skipping-tab .list>tbody>tr>td{display:block;width:100%}
.skipping-tab .list>thead{display:none}
.skipping-tab .list>tbody>tr>td{border-width:0;padding:2px 6px}
.skipping-tab .list>tbody>tr>td:before{content:attr(data-label) ": ";font-weight:600}
.skipping-tab .skipping-explain .track{display:none}
.skipping-tab .skipping-explain th,.skipping-tab .skipping-explain .number{min-width:0}
}</style>"""
)


def render_section(spark: SparkSession, name: str, seconds: float) -> str:
    """Return the HTML of a section within about `seconds`; raise KeyError for an unknown name."""
    render = _SECTIONS[name]
    hooks = require_hooks(spark)
    # A store that is slow must not keep the threads that queries need for lookups.
    if not _permits.acquire(blocking=False):
        return f"<p>No {name}: earlier pages still wait for a store.</p>"
    try:
        return f"<div class='skipping-tab'>{render(hooks, time.monotonic() + seconds)}</div>"
    finally:
        _permits.release()


def _render_executions(hooks: Hooks, _: float) -> str:
    executions = _read_executions(hooks)
    statements = {execution["id"]: statement_of(execution) for execution in executions}
    rows: list[str] = []
    length = 0
    note = (
        "Scans of tables in the last 100 executions, newest first. "
        "A click on a scan shows its steps."
    )
    for execution in reversed(executions):
        statement = statements[execution["id"]] or statements.get(execution["root"])
        row = _execution_row(execution, statement)
        length += len(row)
        if length > _MOST_CHARACTERS:
            note += " Older ones are left out: SHOW SKIPPING HISTORY lists all."
            break
        if row:
            rows.append(row)
    names = ("Execution", "Description", "Ended", "Duration", "Scans")
    return f"{_TAB_STYLE}<h4>Executions ({len(rows)})</h4><p>{note}</p>{_table(names, rows)}"


def _read_executions(hooks: Hooks) -> list[Mapping[str, Any]]:
    """Return the last executions, oldest first, as `history` reads them."""
    executions: list[Mapping[str, Any]] = json.loads(hooks.java.executions().recent())
    return executions


def _read_table_scans(execution: Mapping[str, Any]) -> tuple[ScanPlan, ...]:
    return read_scans([scan for scan in execution["scans"] if scan["counted"]])


def _execution_row(execution: Mapping[str, Any], statement: str | None) -> str:
    """Return the row of an execution; empty if it read no table that may have an index."""
    scans = _read_table_scans(execution)
    if not scans:
        return ""
    id = int(execution["id"])
    shown = "".join(map(_scan, scans[:_MOST_SCANS]))
    if len(scans) > _MOST_SCANS:
        shown += f"and {len(scans) - _MOST_SCANS:,} more scans: SHOW SKIPPING HISTORY lists all"
    return _row(
        {
            # Relative to /skipping/, also behind a proxy that adds a prefix.
            "Execution": f"<a href='../SQL/execution/?id={id}'>{id}</a>",
            "Description": _text(statement or read_action(execution)),
            "Ended": _moment(execution["ended"] / 1_000),
            "Duration": _duration(execution["seconds"]),
            "Scans": shown,
        }
    )


def _scan(scan: ScanPlan) -> str:
    """Render a scan as one line, with its funnel below when a user opens it."""
    counts = count_files(scan)
    share = ""
    if counts is not None:
        left, files, what = counts
        bar = f"<span class='share'><i style='width:{100 * left / (files or 1):.1f}%'></i></span>"
        share = f" {bar} <strong>{left:,}</strong> of {files:,} files {what}"
    causes = [label for label, count in scan.legs if count]
    why = f"by {', '.join(causes)}" if causes else scan.reason or next(iter(scan.unused), "")
    return (
        f"<details><summary><code>{_text(scan.table)}</code>{share}"
        f"{f'; {_text(why)}' if why else ''}</summary>"
        f"<div class='skipping-explain'>{render_funnel(scan)}</div></details>"
    )


def _render_tables(hooks: Hooks, deadline: float) -> str:
    unknown = _read_unknown(hooks)
    parts = [
        _render_store(hooks, settings, store, unknown, deadline)
        for settings, store in _list_stores(hooks)
    ]
    note = (
        "Skipped: by the queries of this driver in the last days. "
        "SHOW SKIPPING SAVINGS adds up all drivers."
    )
    return f"<h4>Tables with an index</h4><p>{note}</p>{''.join(parts)}"


def _render_decisions(hooks: Hooks, deadline: float) -> str:
    found: list[tuple[Decision, str]] = []
    for _, store in _list_stores(hooks):
        # A store that does not respond is named by the tables above.
        with suppress(SkippingError):
            for each in list_definitions(store, timeout=max(0.1, deadline - time.monotonic())):
                if not each.value.dropped:
                    found += [(decision, each.value.name) for decision in each.value.decisions]
    if not found:
        return ""
    found.sort(key=lambda item: item[0].day, reverse=True)
    rows = [
        _row(
            {
                "Day": decision.day.isoformat(),
                "Table": f"<code>{_text(shown_name(name))}</code>",
                "Decision": _text(f"{decision.action} {decision.column} {decision.kind}"),
                "Benefit a day": format_bytes(round(decision.benefit)),
                "Cost a day": format_bytes(round(decision.cost)),
                "Reason": _text(decision.reason),
            }
        )
        for decision, name in found[:_MOST_DECISIONS]
    ]
    names = ("Day", "Table", "Decision", "Benefit a day", "Cost a day", "Reason")
    note = "The newest decisions of automatic indexes. SHOW SKIPPING DECISIONS lists all."
    return f"<h4>Decisions</h4><p>{note}</p>{_table(names, rows)}"


def _list_stores(hooks: Hooks) -> list[tuple[Settings, IndexStore]]:
    """Return the stores that sessions use, with the settings of one session."""
    used = [(s, lookup.store) for s, lookup in hooks.lookups.items() if s.store != ADDRESS]
    return list({store.location: (settings, store) for settings, store in used}.values())


def _read_unknown(hooks: Hooks) -> dict[str, tuple[int, int]]:
    """Return (unknown files, files) in the newest lookup of each table, by its folded name."""
    return {
        scan.table.casefold(): (scan.unknown, scan.total)
        for execution in _read_executions(hooks)
        for scan in _read_table_scans(execution)
        if scan.total is not None
    }


def _render_store(
    hooks: Hooks,
    settings: Settings,
    store: IndexStore,
    unknown: Mapping[str, tuple[int, int]],
    deadline: float,
) -> str:
    place = f"<p>Store <code>{_text(store.location)}</code></p>"
    try:
        stored = list_definitions(store, timeout=max(0.1, (deadline - time.monotonic()) / 2))
    except SkippingError as error:
        return f"{place}<p>The store did not respond: {_text(first_line(error))}</p>"
    definitions = sorted(
        (each.value for each in stored if not each.value.dropped), key=lambda each: each.name
    )
    if not definitions:
        return f"{place}<p>No table has an index.</p>"
    workloads = merge_tables(hooks.workload.read(settings).records)
    rows = []
    for definition in definitions[:_MOST_TABLES]:
        if time.monotonic() > deadline:
            break
        rows.append(
            _table_row(
                definition,
                summarize(store, definition, count_files=False),
                _read_size(store, definition),
                unknown.get(plain_name(definition.name).casefold()),
                _describe_savings(workloads.get(definition.table), settings),
            )
        )
    table = _table(("Table", "Index", "Freshness", "Size", "Skipped"), rows)
    left = len(definitions) - len(rows)
    more = f"<p>and {left:,} more: SHOW SKIPPING INDEXES lists all</p>" if left else ""
    return f"{place}{table}{more}"


def _table_row(
    definition: Definition,
    summary: IndexSummary,
    size: int | None,
    unknown: tuple[int, int] | None,
    savings: str,
) -> str:
    columns = ", ".join(f"{column.name} {column.kind}" for column in definition.columns)
    state = summary.status if summary.error is None else f"{summary.status}: {summary.error}"
    return _row(
        {
            "Table": f"<code>{_text(shown_name(definition.name))}</code>",
            "Index": f"{_text(state)}<br>{_text(columns)}",
            "Freshness": "<br>".join(map(_text, _describe_freshness(summary, unknown))),
            "Size": "unknown" if size is None else format_bytes(size),
            "Skipped": _text(savings),
        }
    )


def _describe_freshness(summary: IndexSummary, unknown: tuple[int, int] | None) -> Iterator[str]:
    if summary.at is None:
        yield "not built yet"
    else:
        version = "" if summary.covered is None else f"version {summary.covered}, "
        yield f"{version}refreshed {_moment(summary.at)}"
    if unknown is not None:
        files, total = unknown
        known = "all files are in the index" if not files else f"{files:,} files are not"
        yield f"last lookup: of {total:,} files, {known}" if files else f"last lookup: {known}"


def _describe_savings(workload: TableWorkload | None, settings: Settings) -> str:
    if workload is None:
        return "no query yet"
    files, bytes = workload.pruned_files, workload.pruned_bytes
    requests, seconds, price = estimate(workload.table.root, files, bytes, settings)
    worth = f", price {price:.2g}" if price else ""
    return (
        f"{files:,} files ({format_bytes(bytes)}) in {workload.pruned_queries:,} of "
        f"{workload.queries:,} queries; about {requests:,} requests, {seconds:.1f} s{worth}"
    )


def _read_size(store: IndexStore, definition: Definition) -> int | None:
    try:
        return store.size(definition.index)
    except SkippingError:
        return None


_SECTIONS: Mapping[str, Callable[[Hooks, float], str]] = {
    "executions": _render_executions,
    "tables": _render_tables,
    "decisions": _render_decisions,
}
"""By the name that Java requests: each returns its HTML, the second argument is its deadline."""


def _table(names: Sequence[str], rows: Sequence[str]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{name}</th>" for name in names)
    return (
        f"<table class='list table table-bordered table-sm table-striped'>"
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _row(cells: Mapping[str, str]) -> str:
    shown = "".join(f"<td data-label='{name}'>{cell}</td>" for name, cell in cells.items())
    return f"<tr>{shown}</tr>"


def _text(text: str) -> str:
    """Escape the beginning of a text that others write."""
    text = printable(text)
    return escape(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")


def _moment(seconds: float) -> str:
    """Format a time as Spark's pages do, in the driver's time zone."""
    return time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(seconds))


def _duration(seconds: float) -> str:
    """Format a duration as Spark's pages do.

    >>> _duration(0.0123), _duration(2.34), _duration(90)
    ('12 ms', '2 s', '1.5 min')
    """
    if seconds < 0.1:
        return f"{1_000 * seconds:.0f} ms"
    if seconds < 1:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3_600 else f"{seconds / 3_600:.1f} h"
