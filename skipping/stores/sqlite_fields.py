"""SCALAR fields out of an SQLite store, as Arrow columns."""

from __future__ import annotations

import sqlite3

import numpy as np
import pyarrow as pa

from providers.errors import StoreError
from skipping.stores import Catalogue, Generation
from skipping.stores.entries import is_scalar
from skipping.stores.sqlite_entries import Fields, Numbers, fields_of, from_sql, ordinals_of

__all__ = ["column", "sketch_fields"]


def column(
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
    # The unary plus as in `SqliteStore.catalogue`.
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
