"""A file of the format before: what is carried over, and what has to be indexed again.

Format 1 had no checksums, so nothing that disproves a file can be trusted to be what was written.
Definitions, leases and the ordinals given out are carried over; the entries are not, so every file
is unknown until the next REFRESH. Who only reads such a file sees it like that; the first to write
makes it a file of the present format.
"""

from __future__ import annotations

import logging
import sqlite3

from skipping.stores.generations import next_generation
from skipping.stores.sqlite.heads import Head, save

__all__ = ["BEFORE", "upgrade", "view_old"]

BEFORE = 1
"""The format that can be carried over."""

_TABLES = ("entry", "history", "removed", "field", "scalar", "terms", "bytes", "slices", "lease")
_log = logging.getLogger(__name__)


def _carried(connection: sqlite3.Connection) -> list[Head]:
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
            generations=[next_generation(generation)],
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
    if connection.execute("PRAGMA user_version").fetchone() != (BEFORE,):
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
        "the store %s was of format %d, whose entries cannot be verified: REFRESH indexes the "
        "files of its %d indexes again, until then queries read all of them",
        place,
        BEFORE,
        sum(not head.dropped for head in found),
    )
