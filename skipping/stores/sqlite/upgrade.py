"""A file of a format before: what is carried over, and what has to be indexed again.

Format 1 had no checksums, so nothing that disproves a file can be trusted to be what was written;
format 2 had bytes by position instead of by bit.
Definitions, leases and the ordinals given out are carried over; the entries are not, so every file
is unknown until the next REFRESH. Who only reads such a file sees it like that; the first to write
makes it a file of the present format.
"""

from __future__ import annotations

import logging
import sqlite3
from dataclasses import replace

from skipping.stores.generations import empty_generation
from skipping.stores.sqlite.heads import Head, open_head, save

__all__ = ["BEFORE", "upgrade", "view_old"]

BEFORE = (1, 2)
"""The formats that can be carried over."""

_TABLES = (
    *("entry", "history", "removed", "field", "scalar", "terms", "bytes", "slices", "lease"),
    *("run", "block"),
)
_log = logging.getLogger(__name__)


def _carried(connection: sqlite3.Connection) -> list[Head]:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return _of_first(connection) if version == 1 else _of_second(connection)


def _of_second(connection: sqlite3.Connection) -> list[Head]:
    names = connection.execute("SELECT name FROM main.index_ ORDER BY id").fetchall()
    found = [open_head(connection, name, erased=True) for (name,) in names]
    return [
        replace(
            head,
            state=None,  # what it covered is not covered any more
            below=0,
            swept=0,
            generations=[empty_generation(head.generation)],
            fields={},
            sums={},
        )
        for head in found
    ]


def _of_first(connection: sqlite3.Connection) -> list[Head]:
    leases: dict[int, str] = {}
    if connection.execute("SELECT 1 FROM main.sqlite_master WHERE name = 'lease'").fetchone():
        leases = dict(connection.execute("SELECT index_, lease FROM main.lease"))
    return [
        Head(
            id,
            name,
            table,
            definition,
            revision,
            bool(dropped),
            None,  # what it covered is not covered any more
            leases.get(id),
            next=next,
            generations=[empty_generation(generation)],
        )
        for id, name, table, definition, revision, dropped, next, generation in (
            connection.execute(
                "SELECT id, name, table_, definition, revision, dropped, next, generation"
                " FROM main.index_"
            ).fetchall()
        )
    ]


def view_old(connection: sqlite3.Connection, schema: str) -> None:
    """Let a connection that only reads see an old file as one of the present format."""
    found = _carried(connection)
    connection.executescript(
        schema.replace("INDEX ", "INDEX temp.").replace("CREATE TABLE ", "CREATE TEMP TABLE ")
    )
    for head in found:
        save(connection, head)


def upgrade(connection: sqlite3.Connection, schema: str, version: int, place: str) -> None:
    """Make an old file one of the present format; within a transaction that writes."""
    (before,) = connection.execute("PRAGMA user_version").fetchone()
    if before not in BEFORE:
        return  # somebody else was first
    found = _carried(connection)
    for table in ("index_", *_TABLES):
        connection.execute(f"DROP TABLE IF EXISTS {table}")
    for statement in schema.split(";"):
        connection.execute(statement)  # not executescript, which would commit
    for head in found:
        save(connection, head)
    connection.execute(f"PRAGMA user_version = {version}")
    _log.warning(
        "the store %s was of format %d, whose entries this release does not read: REFRESH indexes "
        "the files of its %d indexes again, until then queries read all of them",
        place,
        before,
        sum(not head.dropped for head in found),
    )
