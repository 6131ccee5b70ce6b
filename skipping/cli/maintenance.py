"""The commands that write to a store: refresh, vacuum, copy."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from providers.errors import DefinitionError, TableError
from skipping.cli.output import Output
from skipping.cli.tables import Tables, list_indexes, open_tables
from skipping.config.settings import Settings
from skipping.index import SkippingIndex
from skipping.indexing.vacuum import erase_indexes
from skipping.model.definition import Definition
from skipping.model.identifiers import shown_name
from skipping.sources.environment import environment_objects
from skipping.stores.copy import copy
from skipping.stores.open import open_store


def refresh(given: argparse.Namespace, output: Output) -> int:
    """Index the new files of each table; continue after a failure.

    A dry run shows what automatic indexes would decide.
    """
    # Spark builds on executors, and computes indexed expressions: only an option replaces it.
    with open_tables(given, given.tables, needs_spark=not given.without_spark) as tables:
        return _run_each(tables, given.tables, output, _plan if given.dry_run else _refresh)


def vacuum(given: argparse.Namespace, output: Output) -> int:
    """Remove entries that no version of a table needs, and dropped indexes."""
    with open_tables(given, given.tables) as tables:
        run = partial(_vacuum, tables)
        if not given.all:
            return _run_each(tables, given.tables, output, run)
        erased = erase_indexes(tables.store, lambda definition: True)
        output.report(f"removed {erased} dropped indexes")
        return _run_each(tables, (), output, run, erased_indexes=erased)


def copy_store(given: argparse.Namespace, output: Output) -> int:
    """Copy a store, and read the copy back."""
    settings = Settings.of_environment(os.environ)
    open = partial(
        open_store,
        objects=environment_objects,
        replicas=settings.store_replica,
        replica_max_bytes=settings.store_replica_max_bytes,
    )
    source, target = open(given.source), open(given.target)
    copied = copy(source, target)
    document = {
        "source": source.location,
        "target": target.location,
        "indexes": copied.indexes,
        "files": copied.entries,
    }
    text = f"copied {copied.indexes} indexes with {copied.entries} files to {target.location}"
    output.report(text)
    if output.json:
        output.show(document, text)
    return 0


_Open = Callable[[], SkippingIndex]


def _refresh(name: str, open: _Open) -> tuple[dict[str, Any], str]:
    start = time.monotonic()
    index = open()
    before = len(index.files())
    state = index.refresh()
    added, seconds = len(index.files()) - before, time.monotonic() - start
    table = shown_name(index.table.name)
    # The version of a table without a log is a digest, which means nothing to users.
    covered = state.covered if index.table.has_log else None
    record = {
        "table": table,
        "added": added,
        "covered": covered,
        "seconds": round(seconds, 3),
        "files_not_read": state.unread,
    }
    covers = "all files" if covered is None else f"version {covered}"
    text = f"{table}: {added} files, covers {covers}, {seconds:.1f} s"
    if state.unread:
        text += f"; {state.unread} files could not be read: {state.error}"
    return record, text


def _plan(name: str, open: _Open) -> tuple[dict[str, Any], str]:
    index = open()
    decisions = index.adapt(dry_run=True) if index.options.automatic else ()
    table = shown_name(index.table.name)
    changes = [f"{each.action} {each.column} {each.kind}: {each.reason}" for each in decisions]
    record = {"table": table, "decisions": [each.describe() for each in decisions]}
    return record, "\n  ".join((f"{table}: {len(changes)} changes", *changes))


def _vacuum(tables: Tables, name: str, open: _Open) -> tuple[dict[str, Any], str]:
    erased = erase_indexes(tables.store, lambda definition: tables.has_name(definition, name))
    try:
        removed = open().vacuum()
    except (TableError, DefinitionError):
        if not erased:
            raise
        removed = 0
    text = f"{name}: removed {removed} entries and {erased} dropped indexes"
    return {"table": name, "removed": removed, "erased_indexes": erased}, text


def _run_each(
    tables: Tables,
    names: Sequence[str],
    output: Output,
    run: Callable[[str, _Open], tuple[Mapping[str, Any], str]],
    **more: object,
) -> int:
    """Run on the named tables, or on all indexes of the store; return the exit code.

    The JSON document has `more`, too. An error of one table does not stop the others.
    Names in a store may repeat: anyone with write access to the store can choose them.
    """
    definitions = () if names else list_indexes(tables.store)
    work: list[tuple[str, Definition | None]] = [
        *((name, None) for name in names),
        *((shown_name(definition.name), definition) for definition in definitions),
    ]
    records: list[Mapping[str, Any]] = []
    failed = 0
    for n, (name, definition) in enumerate(work, start=1):
        place = f"[{n}/{len(work)}] "
        try:
            if definition is None:
                record, text = run(name, partial(tables.open, name))
            elif obstacle := tables.find_obstacle(definition):
                output.warn(f"{place}skipped {name}: {obstacle}")
                continue
            else:
                record, text = run(name, partial(tables.open_definition, definition))
        except Exception as error:
            failed += 1
            error_text = output.fail(error, f"{place}{name}: ")
            records.append({"table": name, "error": error_text})
        else:
            records.append({**record, "error": None})
            output.report(place + text)
    if output.json:
        output.show({"indexes": records, "failed": failed, **more}, "")
    return 1 if failed else 0
