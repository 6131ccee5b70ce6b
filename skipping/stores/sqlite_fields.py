"""Identities and SCALAR fields out of an SQLite store, as Arrow columns."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from providers.errors import StoreError
from skipping.stores import IDENTITY, Catalogue, Generation
from skipping.stores.entries import is_scalar
from skipping.stores.sqlite_entries import Fields, Numbers, fields_of, from_sql, ordinals_of

__all__ = ["catalogue", "sketch_fields"]


def catalogue(
    connection: sqlite3.Connection,
    index: int,
    generation: Generation,
    *,
    since: Generation | None,
    fields: Sequence[str],
) -> Catalogue:
    """What `IndexStore.catalogue` gives."""
    (last,) = connection.execute(
        "SELECT max(ordinal) FROM entry WHERE index_ = ?", (index,)
    ).fetchone()
    # The unary plus keeps the planner from sorting: by generation only where that helps.
    by = "+generation" if since is None else "generation"
    rows = connection.execute(
        f"SELECT ordinal, path, size, stamp, partition FROM entry"
        f" WHERE index_ = ? AND {by} > ? ORDER BY ordinal",
        (index, -1 if since is None else since),
    ).fetchall()
    columns = list(zip(*rows, strict=True)) or [()] * len(IDENTITY.names)
    files = pa.table(columns, schema=IDENTITY)
    ordinals = files["ordinal"].to_numpy()
    known = fields_of(connection, index)
    for name in fields:
        files = files.append_column(name, _column(connection, known, name, ordinals))
    removed: Numbers = np.zeros(0, np.int64)
    if since is not None:
        sql = "SELECT ordinal FROM removed WHERE index_ = ? AND generation > ? ORDER BY ordinal"
        removed = ordinals_of(connection, sql, (index, since))
    return Catalogue(generation, 0 if last is None else last + 1, files, pa.array(removed))


def _column(
    connection: sqlite3.Connection, fields: Fields, name: str, ordinals: Numbers
) -> pa.Array:
    """A SCALAR field or known flag of these ordinals (sorted); nulls where nobody wrote it."""
    if name not in fields:
        return pa.nulls(len(ordinals))
    field, type = fields[name]
    if not is_scalar(type):
        raise StoreError(f"{name} is no SCALAR field: a catalogue has only those")
    return _values(connection, field, type, ordinals)


def sketch_fields(
    connection: sqlite3.Connection,
    index: int,
    sketch: str,
    generation: Generation,
    *,
    since: Generation | None = None,
) -> Catalogue:
    """`ordinal` and the SCALAR fields of a sketch, of all entries or of those changed `since`.

    A TERMS field is there as how many terms a file has.
    """
    asked = index, -1 if since is None else since
    # The unary plus as in `catalogue`.
    by = "+generation" if since is None else "generation"
    ordinals = ordinals_of(
        connection,
        f"SELECT ordinal FROM entry WHERE index_ = ? AND {by} > ? ORDER BY ordinal",
        asked,
    )
    columns = {"ordinal": pa.array(ordinals)}
    for name, (field, type) in fields_of(connection, index).items():
        if name.startswith(f"{sketch}_") and not pa.types.is_large_binary(type):
            counted = pa.int64() if pa.types.is_list(type) else type
            columns[name] = _values(connection, field, counted, ordinals)
    removed: Numbers = np.zeros(0, np.int64)
    if since is not None:
        sql = "SELECT ordinal FROM removed WHERE index_ = ? AND generation > ?"
        removed = ordinals_of(connection, sql, asked)
    below = int(ordinals[-1]) + 1 if len(ordinals) else 0
    return Catalogue(generation, below, pa.table(columns), pa.array(removed))


def _values(
    connection: sqlite3.Connection, field: int, type: pa.DataType, ordinals: Numbers
) -> pa.Array:
    if not len(ordinals):
        return pa.array([], type)
    rows = connection.execute(
        "SELECT ordinal, value FROM scalar WHERE field = ? AND ordinal BETWEEN ? AND ?"
        " ORDER BY ordinal",
        (field, int(ordinals[0]), int(ordinals[-1])),
    ).fetchall()
    if not rows:
        return pa.nulls(len(ordinals), type)
    there, values = zip(*rows, strict=True)
    numbers = np.array(there, np.int64)
    at = np.searchsorted(numbers, ordinals)
    missing = np.append(numbers, -1)[at] != ordinals
    return from_sql(values, type).take(pa.array(at, mask=missing))
