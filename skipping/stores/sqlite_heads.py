"""The row of an index in an SQLite store: its definition, its revision, and who keeps it."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from providers.errors import Conflict, StoreError
from skipping.definition import Definition, IndexId, Revision, TableId
from skipping.lease import Lease

__all__ = ["define", "hold", "lease_of", "require", "row"]

_LEASES = "CREATE TABLE IF NOT EXISTS lease (index_ INTEGER PRIMARY KEY, lease TEXT NOT NULL)"


def row(connection: sqlite3.Connection, index: IndexId, columns: str) -> tuple[Any, ...]:
    """These columns of an index; raises StoreError if it was erased or never was here."""
    found: tuple[Any, ...] | None = connection.execute(
        f"SELECT {columns} FROM index_ WHERE name = ? AND definition IS NOT NULL", (index,)
    ).fetchone()
    if found is None:
        raise StoreError(f"the store has no index {index}: it was erased, or never was here")
    return found


def define(
    connection: sqlite3.Connection, definition: Definition, expect: Revision | None
) -> Revision:
    """Write a definition if its revision still is `expect`; raises Conflict if not."""
    key, text, dropped = _key(definition.table), definition.to_json(), definition.dropped
    there = connection.execute(
        "SELECT revision, definition IS NULL FROM index_ WHERE name = ?", (definition.index,)
    ).fetchone()
    found, erased = there or (None, False)
    if found != expect or erased:
        raise Conflict(f"index {definition.index} is at revision {found}, not {expect}")
    other = connection.execute(
        "SELECT name FROM index_ WHERE table_ = ? AND NOT dropped AND name <> ?",
        (key, definition.index),
    ).fetchone()
    if other and not dropped:
        raise Conflict(f"there is an index on {definition.name} already: {other[0]}")
    if expect is None:
        connection.execute(
            "INSERT INTO index_ (name, table_, definition, revision, dropped)"
            " VALUES (?, ?, ?, 1, ?)",
            (definition.index, key, text, dropped),
        )
        return 1
    connection.execute(
        "UPDATE index_ SET table_ = ?, definition = ?, dropped = ?, revision = ? WHERE name = ?",
        (key, text, dropped, expect + 1, definition.index),
    )
    return expect + 1


def lease_of(connection: sqlite3.Connection, index: IndexId) -> Lease:
    """Who keeps an index; a file that an earlier release made has no table of it."""
    (id,) = row(connection, index, "id")
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'lease'").fetchone():
        return Lease()
    found = connection.execute("SELECT lease FROM lease WHERE index_ = ?", (id,)).fetchone()
    return Lease() if found is None else Lease.from_json(found[0])


def hold(connection: sqlite3.Connection, index: IndexId, lease: Lease, expect: Lease) -> None:
    """Write a lease if it still is `expect`; raises Conflict if not."""
    found = lease_of(connection, index)
    if found != expect:
        raise Conflict(f"index {index} has another lease by now: {found.described()}")
    (id,) = row(connection, index, "id")
    connection.execute(_LEASES)
    connection.execute("INSERT OR REPLACE INTO lease VALUES (?, ?)", (id, lease.to_json()))


def require(connection: sqlite3.Connection, index: IndexId, token: int | None) -> None:
    """Raise Conflict if somebody else keeps the index by now."""
    if token is not None and not lease_of(connection, index).admits(token):
        raise Conflict(f"index {index} was taken over by another owner")


def _key(table: TableId) -> str:
    return json.dumps([table.format, table.id, table.root])
