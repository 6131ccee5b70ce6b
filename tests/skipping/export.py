"""All that SQLite or a folder keeps of live files, to compare with an index built from scratch."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from skipping import SkippingIndex
from skipping.indexing.column_sync import current_columns
from skipping.stores import identities
from skipping.stores.folder.store import FolderStore
from skipping.stores.sqlite.store import SqliteStore

Export = list[tuple[Any, ...]]


def export(index: SkippingIndex) -> Export:
    """Of each live file its identity, its partition and what the current sketches say, sorted."""
    store = index.store
    assert isinstance(store, SqliteStore | FolderStore)
    names = {
        f"s{indexed.number}": f"{indexed.name} {indexed.kind}"
        for indexed, _ in current_columns(index.definition, index.table.columns())
    }
    live = set(identities(index.table.files()))
    exported = []
    for part in store.entries(index.definition.index):
        for row in part.to_pylist():
            identity = (row["path"], row["size"], row["stamp"])
            if identity in live:
                said = [
                    (f"{names[sketch]} {what}", _said(value))
                    for name, value in row.items()
                    for sketch, _, what in [name.partition("_")]
                    if sketch in names
                ]
                exported.append(
                    (*identity, row["partition"], *sorted(said, key=lambda pair: pair[0]))
                )
    return sorted(exported, key=repr)


def scratch(spark: SparkSession, index: SkippingIndex, folder: Path) -> Export:
    """The export of an index of the same columns that is built anew, in a store of its own."""
    columns = ", ".join(
        f"{indexed.name} {indexed.kind}"
        + (f"({', '.join(f'{k} => {v}' for k, v in indexed.params)})" if indexed.params else "")
        for indexed, _ in current_columns(index.definition, index.table.columns())
    )
    store = SqliteStore(folder / f"{len(list(folder.iterdir()))}.sqlite")
    where = index.definition.where
    return export(SkippingIndex.create(spark, index.table.name, columns, where=where, store=store))


def _said(value: object) -> object:
    """A value, the terms of a list in order, or a digest of bytes."""
    if isinstance(value, list):
        return sorted(map(repr, value))
    return hashlib.sha256(value).hexdigest() if isinstance(value, bytes) else value
