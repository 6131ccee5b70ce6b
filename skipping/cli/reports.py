"""The commands that only read: list, describe, analyze, verify."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from providers.errors import NoStore
from skipping.advise.savings import compute_savings
from skipping.advise.workload import merge_workload
from skipping.cli.output import Output, format_table, print_error
from skipping.cli.session import resolve_above
from skipping.cli.tables import list_indexes, open_tables, spark_name
from skipping.extensions import OwnWorkload
from skipping.index import SkippingIndex
from skipping.indexing.describe import summarize
from skipping.model.identifiers import shown_name
from skipping.stores import IndexStore

_SAVED = ("since", "queries", "pruned_queries", "files", "bytes", "seconds", "saved", "cost")
_LISTED = ("table", "format", "status", "covered", "files", "bytes", "index bytes", "types")


def list_all(given: argparse.Namespace, output: Output) -> int:
    """List the indexes of the store; one that cannot be read has its reason."""
    with open_tables(given) as tables:
        store = tables.store
        indexes: list[dict[str, Any]] = []
        for definition in list_indexes(store):
            summary = summarize(store, definition, count_files=True)
            indexes.append(
                {
                    "table": shown_name(definition.name),
                    "format": definition.table.format,
                    "status": summary.status,
                    "covered": summary.covered,
                    "files": summary.files,
                    "bytes": summary.bytes,
                    "index_bytes": summary.index_bytes,
                    "columns": [{"name": i.name, "type": i.kind} for i in definition.columns],
                    "error": summary.error,
                    "index": definition.index,
                }
            )
    rows = []
    for each in indexes:
        types = ", ".join(f"{column['name']} {column['type']}" for column in each["columns"])
        rows.append([*(each[n.replace(" ", "_")] for n in _LISTED[:-1]), each["error"] or types])
    text = format_table(_LISTED, rows) if rows else _describe_empty(store)
    output.show({"store": store.location, "indexes": indexes}, text)
    return 0


def _describe_empty(store: IndexStore) -> str:
    try:
        store.definitions()
    except NoStore:
        return f"no indexes: the store {store.location} does not exist yet"
    return f"no indexes in {store.location}"


def describe(given: argparse.Namespace, output: Output) -> int:
    """Show what `DESCRIBE SKIPPING INDEX EXTENDED` shows."""
    with open_tables(given, [given.table]) as tables:
        facts = tables.open(given.table).describe()
    shown = [(item, value) for item, value in facts.items() if value is not None]
    width = max(len(item) for item, _ in shown)
    output.show(facts, "\n".join(f"{item:<{width}}  {value}" for item, value in shown))
    return 0


def analyze(given: argparse.Namespace, output: Output) -> int:
    """Recommend an index, as `ANALYZE SKIPPING INDEX` does."""
    columns = None if given.columns is None else [c.strip() for c in given.columns.split(",")]
    with open_tables(given, needs_spark=True) as tables:
        assert tables.spark is not None
        advice = SkippingIndex.analyze(
            tables.spark, spark_name(given.table), columns=columns, files=given.files
        )
    document = {
        "table": advice.table,
        "files": advice.files,
        "bytes": advice.bytes,
        "sampled_files": advice.sampled_files,
        "sampled_bytes": advice.sampled_bytes,
        "columns": [
            {
                "name": column.name,
                "type": column.type,
                "reason": column.reason,
                "advised": [kind.spelling for kind in column.all_advised],
            }
            for column in advice.columns
        ],
        "statement": advice.ddl,
    }
    output.show(document, str(advice))
    return 0


def show_savings(given: argparse.Namespace, output: Output) -> int:
    """Show what `SHOW SKIPPING SAVINGS` shows, except what drivers have not written yet."""
    with open_tables(given) as tables:
        today = datetime.now(timezone.utc).date()
        workload = merge_workload(tables.store, tables.settings, OwnWorkload(), today=today)
        found = compute_savings(workload, tables.store, tables.settings, by=given.by)
    if workload.problem and not workload.records:
        print_error(workload.problem)
        return 1
    names = ["table", *([given.by] if given.by else []), *_SAVED]
    rows = [[_format(getattr(each, name)) for name in names] for each in found]
    titles = [name.replace("_", " ") for name in names]
    text = (
        format_table(titles, rows) if rows else f"no queries are counted in {tables.store.location}"
    )
    document = {"since": workload.since, "problem": workload.problem}
    output.show({**document, "savings": [asdict(each) for each in found]}, text)
    if workload.problem:
        output.warn(workload.problem)
    return 0


def _format(value: object) -> object:
    return f"{value:.4g}" if isinstance(value, float) else value


def verify(given: argparse.Namespace, output: Output) -> int:
    """Compare the rows with and without indexes; raise WrongAnswer if they differ."""
    names = [given.table] if given.query is None else []
    with open_tables(given, names, needs_spark=given.query is not None) as tables:
        if tables.spark is None:
            found = tables.open(given.table).verify(given.where)
        else:
            query = given.query
            if query is None:
                tables.open(given.table)  # raises NoIndex; the query would read all files
                query = f"SELECT * FROM {spark_name(given.table)} WHERE {given.where}"
            found = resolve_above("rewrite:verify")(query)
    document = {
        "rows": found.rows,
        "opened": found.opened,
        "opened_without": found.without,
        "note": found.note,
    }
    output.show(document, str(found))
    return 0
