"""Describe an index: its state, how stale it is, and what it stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from html import escape

import pyarrow as pa
import pyarrow.compute as pc

from providers.errors import DefinitionError, SkippingError, StoreError, first_line
from skipping.config.options import IndexOptions
from skipping.config.settings import Settings
from skipping.model.definition import Definition
from skipping.model.identifiers import shown_name
from skipping.stores import IDENTITY, IndexStore
from skipping.tables import Table


def is_replaced(definition: Definition, table: Table) -> bool:
    """Return whether the table was replaced since the index was defined, or carried over."""
    return definition.table != table.id


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """An index in a list: its state, and for an unreadable one the error.

    `follows` is true if a stream or a scheduler refreshes it. `covered` is the indexed version,
    None for a table without a log, and `at` the time of that refresh (Unix seconds). `files`,
    `bytes` (of these files) and `index_bytes` are None if they were not counted.
    """

    status: str
    error: str | None
    follows: bool = False
    covered: int | None = None
    at: float | None = None
    files: int | None = None
    bytes: int | None = None
    index_bytes: int | None = None


def summarize(store: IndexStore, definition: Definition, *, count_files: bool) -> IndexSummary:
    """Return the state of an index from its store alone, without opening the table."""
    index = definition.index
    if definition.fault is not None:
        return IndexSummary("unreadable", definition.fault)
    follows = False
    try:
        follows = IndexOptions.of(dict(definition.options)).auto_refresh
        state = store.state(index)
        counted: tuple[int | None, ...] = ()
        if count_files:
            files = store.catalogue(index).files
            counted = len(files), pc.sum(files["size"]).as_py() or 0, store.size(index)
    except (DefinitionError, StoreError) as failure:
        return IndexSummary("unreadable", str(failure), follows)
    status = state.status if definition.enabled else "disabled"
    # The version of a table without a log is a digest, which means nothing to users.
    covered = state.covered if definition.table.has_log else None
    return IndexSummary(status, state.error, follows, covered, state.at, *counted)


def describe(
    store: IndexStore,
    table: Table,
    definition: Definition,
    files: pa.Table,
    gaps: Mapping[int, str],
    settings: Settings,
) -> dict[str, str | None]:
    """Return the facts for `SkippingIndex.describe`; `files` are those of `SkippingIndex.files`.

    `gaps` has the reason why new files get no sketch, by the column's number in the index. A store
    in a folder has prices in addition, by those of `settings`.
    """
    state, version = store.state(definition.index), table.version()
    replaced = is_replaced(definition, table)
    describe_place, size = getattr(store, "describe", None), store.size(definition.index)
    facts: dict[str, object] = {
        "table": shown_name(definition.name),
        "store": store.location,
        "index": definition.index,
        "state": "table was replaced: refresh" if replaced else state.status,
        "enabled": str(definition.enabled).lower(),
        "maintained by": _maintainer(IndexOptions.of(dict(definition.options))),
        "columns": _chooser(IndexOptions.of(dict(definition.options))),
        "owner": store.lease(definition.index).describe(),
        "version": version if table.has_log else _newest(table.files()),
        "version covered": state.covered if table.has_log else _moment(state.at),
        "lag": None if replaced else _lag(table, version, state.covered),
        "files": len(files),
        "bytes": pc.sum(files["size"]).as_py() or 0,
        "index bytes": size,
        **(describe_place(definition.index) | _prices(size, settings) if describe_place else {}),
        "where": definition.where,
        "files not read": state.unread,
        "last error": state.error,
    }
    for column, known in zip(definition.columns, files.columns[len(IDENTITY) :], strict=True):
        count, name = pc.sum(known.cast(pa.bool_())).as_py() or 0, f"column {column.name}"
        text = f"{column.type} {column.kind}, known in {count}"
        if column.number in gaps:
            text += f", unknown in new files: {gaps[column.number]}"
        facts[name] = f"{facts[name]}; {text}" if name in facts else text
    return {item: None if value is None else str(value) for item, value in facts.items()}


def standing(store: IndexStore, table: Table, definition: Definition) -> str:
    """Return the number of files and how stale the index is, or the error if it cannot be read."""
    try:
        state, version = store.state(definition.index), table.version()
        count = len(store.catalogue(definition.index).files)
        if is_replaced(definition, table):
            fresh = "its table was replaced: refresh"
        elif state.covered is None:
            fresh = "not built yet: refresh"
        elif definition.dropped:
            fresh = "dropped"
        elif state.covered == version:
            fresh = "up to date"
        else:
            lag = _lag(table, version, state.covered)
            fresh = f"{lag} behind" if table.has_log else f"{lag}"
    except SkippingError as error:
        return first_line(error)
    return f"{count:,} file{'' if count == 1 else 's'}, {fresh}"


def as_html(facts: Mapping[str, str | None]) -> str:
    """Return an HTML table of facts, for notebooks."""
    cell = "style='text-align:left;padding:1px 10px 1px 0'"
    rows = "".join(
        f"<tr><th {cell}>{escape(item)}</th><td {cell}>{escape(value)}</td></tr>"
        for item, value in facts.items()
        if value is not None
    )
    return f"<table style='border-collapse:collapse'>{rows}</table>"


def _prices(size: int | None, settings: Settings) -> dict[str, object]:
    """Return what an index in a folder costs; the requests are those of docs/maintenance.md."""
    storage = (size or 0) / 2**30 * settings.price_storage
    refresh = (5 * settings.price_put + settings.price_get) / 1_000
    return {"price of a month": f"{storage:.2g}", "price of a refresh": f"{refresh:.2g}"}


def _maintainer(options: IndexOptions) -> str:
    if not options.auto_refresh:
        return "REFRESH"
    if options.streamed:
        return f"a stream, every {options.refresh_interval:g} s"
    return "your own scheduler: python -m skipping refresh"


def _chooser(options: IndexOptions) -> str | None:
    if not options.automatic:
        return None
    return f"chosen automatically, with at most {options.budget} of the data"


def _lag(table: Table, version: int, covered: int | None) -> str | None:
    if covered is None:
        return None
    if not table.has_log:
        return "none" if version == covered else "files were added, changed or removed"
    behind = version - covered
    return f"{behind} version" if behind == 1 else f"{behind} versions"


def _newest(files: pa.Table) -> str | None:
    stamp = pc.max(files["stamp"]).as_py()
    return None if stamp is None else _moment(stamp / 1_000)


def _moment(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
