"""What DESCRIBE says of an index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skipping.index import SkippingIndex
from skipping.model.definition import Definition, State
from skipping.stores import IDENTITY
from skipping.tables import Table

__all__ = ["column_rows", "extended_rows"]


def column_rows(definition: Definition) -> Sequence[tuple[Any, ...]]:
    """A row for each column and kind."""
    return [
        (i.name, i.type, i.kind, ", ".join(f"{key} = {value}" for key, value in i.params))
        for i in definition.columns
    ]


def extended_rows(index: SkippingIndex) -> Sequence[tuple[Any, ...]]:
    """Facts about an index as `item`, `value`, then its columns."""
    definition, state = index.definition, index.state
    files = index.files()
    version = index.table.version()
    facts: list[tuple[str, object]] = [
        ("table", definition.name),
        ("store", index.store.location),
        ("index", definition.index),
        ("state", _status(index, state)),
        ("enabled", "true" if definition.enabled else "false"),
        ("maintained by", _maintainer(index)),
        ("owner", index.store.lease(definition.index).described()),
        ("version", version),
        ("version covered", state.covered),
        ("lag", None if index.replaced else _lag(index.table, version, state.covered)),
        ("files", len(files)),
        ("bytes", sum(files["size"].to_pylist())),
        ("where", definition.where),
        ("files not read", state.unread),
        ("last error", state.error),
    ]
    for column, known in zip(definition.columns, files.columns[len(IDENTITY) :], strict=True):
        count = sum(filter(None, known.to_pylist()))
        facts.append((f"column {column.name}", f"{column.type} {column.kind}, known in {count}"))
    return [(item, None if value is None else str(value)) for item, value in facts]


def _status(index: SkippingIndex, state: State) -> str:
    return "table was replaced: refresh" if index.replaced else state.status


def _maintainer(index: SkippingIndex) -> str:
    options = index.options
    if not options.auto_refresh:
        return "REFRESH"
    if options.streamed:
        return f"a stream, every {options.refresh_interval:g} s"
    return "your own scheduler: python -m skipping refresh"


def _lag(table: Table, version: int, covered: int | None) -> str | None:
    if covered is None:
        return None
    if not table.has_log:
        return "none" if version == covered else "files came, changed or went"
    behind = version - covered
    return f"{behind} version" if behind == 1 else f"{behind} versions"
