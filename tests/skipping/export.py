"""All that an SQLite store keeps of live files, to compare with an index built from scratch."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from skipping import SkippingIndex
from skipping.refresh import current
from skipping.stores import identities
from skipping.stores.sqlite import SqliteStore
from skipping.stores.sqlite_bytes import groups

Export = list[tuple[Any, ...]]


def export(index: SkippingIndex) -> Export:
    """Of each live file its identity, its partition and what the current sketches say, sorted."""
    path = index.store.location.removeprefix("sqlite:")
    names = {
        f"s{indexed.number}": f"{indexed.name} {indexed.kind}"
        for indexed, _ in current(index.definition, index.table.columns())
    }
    live = set(identities(index.table.files()))
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        (id,) = connection.execute(
            "SELECT id FROM index_ WHERE name = ?", (index.definition.index,)
        ).fetchone()
        fields = connection.execute("SELECT id, name FROM field WHERE index_ = ?", (id,)).fetchall()
        values = {number: _values(connection, number) for number, _ in fields}
        rows = connection.execute(
            "SELECT ordinal, path, size, stamp, partition FROM entry WHERE index_ = ?", (id,)
        ).fetchall()
    exported = []
    for ordinal, *identity, partition in rows:
        if tuple(identity) in live:
            said = [
                (f"{names[sketch]} {what}", values[number].get(ordinal))
                for number, name in fields
                for sketch, _, what in [name.partition("_")]
                if sketch in names
            ]
            exported.append((*identity, partition, *sorted(said, key=lambda pair: pair[0])))
    return sorted(exported, key=repr)


def scratch(spark: SparkSession, index: SkippingIndex, folder: Path) -> Export:
    """The export of an index of the same columns that is built anew, in a store of its own."""
    columns = ", ".join(
        f"{indexed.name} {indexed.kind}"
        + (f"({', '.join(f'{k} => {v}' for k, v in indexed.params)})" if indexed.params else "")
        for indexed, _ in current(index.definition, index.table.columns())
    )
    store = SqliteStore(folder / f"{len(list(folder.iterdir()))}.sqlite")
    where = index.definition.where
    return export(SkippingIndex.create(spark, index.table.name, columns, where=where, store=store))


def _values(connection: sqlite3.Connection, field: int) -> Mapping[int, object]:
    """What a field has of each ordinal: a value, or its terms, or a digest of its bytes."""
    scalars = dict(
        connection.execute("SELECT ordinal, value FROM scalar WHERE field = ?", (field,))
    )
    terms: dict[int, list[object]] = {}
    for value, ordinals in connection.execute(
        "SELECT value, ordinals FROM terms WHERE field = ?", (field,)
    ):
        for ordinal in np.frombuffer(ordinals, "<u4").tolist():
            terms.setdefault(ordinal, []).append(value)
    digests: dict[int, object] = {}
    for group in groups(connection, field):
        rows = (group.rows.start, group.rows.stop)
        slices = connection.execute(
            "SELECT data FROM slices WHERE id >= ? AND id < ? ORDER BY id", rows
        )
        turned = np.frombuffer(b"".join(data for (data,) in slices), np.uint8)
        values = turned.reshape(group.length, len(group.ordinals)).T
        for ordinal, value in zip(group.ordinals.tolist(), values, strict=True):
            digests[ordinal] = hashlib.sha256(value.tobytes()).hexdigest()
    counts = {o: sorted(map(repr, found)) for o, found in terms.items()}
    return {o: (v, counts.get(o)) for o, v in scalars.items()} | digests
