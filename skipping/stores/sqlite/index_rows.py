"""The row of an index in an SQLite store: what all the rest is verified against.

Beside the definition, the state and the lease it has, for each part of the index (`runs`),
the sum of the checksums of its runs, and the last generations; and a checksum of the row itself. So
whatever a question reads is what one commit left, or is refused: pages of two copies, or of a file
and a log that do not belong together, never agree on all of it.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from array import array
from dataclasses import dataclass, field
from typing import TypeVar

from providers.errors import Conflict, Damaged, StoreError
from skipping.model.definition import Definition, IndexId, Revision, State, TableId
from skipping.model.lease import Lease
from skipping.stores import Generation

__all__ = ["Head", "define", "digest", "find_head", "heads", "hold", "open_head", "require", "save"]

_MOST = 1 << 23  # bytes of a row: a definition has at most 1 MB
_REMEMBERED = 256  # generations back; whoever is further behind reads everything again
_COLUMNS = (
    "id, name, table_, definition, revision, dropped, state, lease, next, below, swept,"
    " generations, fields, sums"
)

_Value = TypeVar("_Value", str, int)


@dataclass(slots=True)
class Head:
    """An index as one transaction sees it; `save` writes what was changed."""

    id: int
    name: IndexId
    table: str
    definition: str | None
    revision: Revision
    dropped: bool = False
    state: str | None = None
    lease: str | None = None
    next: int = 0
    below: int = 0  # one more than the greatest ordinal that ever had an entry
    swept: Generation = 0
    generations: list[Generation] = field(default_factory=lambda: [0])
    fields: dict[str, str] = field(default_factory=dict)
    sums: dict[str, int] = field(default_factory=dict)

    @property
    def generation(self) -> Generation:
        """The present one."""
        return self.generations[-1]

    def has_been(self, generation: Generation) -> bool:
        """Whether a generation is the present one, or one of those before it."""
        return generation in self.generations

    def advance(self, generation: Generation) -> None:
        """Make a generation the present one."""
        self.generations = [*self.generations[-_REMEMBERED:], generation]

    def columns(self) -> tuple[int | str | bytes | None, ...]:
        """As they are stored."""
        return (
            self.id,
            self.name,
            self.table,
            self.definition,
            self.revision,
            int(self.dropped),
            self.state,
            self.lease,
            self.next,
            self.below,
            self.swept,
            array("q", self.generations).tobytes(),
            json.dumps(self.fields, sort_keys=True),
            json.dumps(self.sums, sort_keys=True),
        )

    def held_by(self) -> Lease:
        """Who keeps it up to date."""
        return Lease() if self.lease is None else Lease.from_json(self.lease)

    def stands(self) -> State:
        """How it stands."""
        return State() if self.state is None else State.from_json(self.state)


def digest(*values: int | str | bytes | None) -> int:
    """A checksum of 63 bits; of bytes, which may be many, 32."""
    said = [(len(v), zlib.crc32(v)) if isinstance(v, bytes) else v for v in values]
    found = hashlib.blake2b(repr(said).encode(), digest_size=8).digest()
    return int.from_bytes(found, "little") >> 1


def _verified(row: tuple[object, ...]) -> Head:
    *columns, checksum = row
    if sum(len(each) for each in columns if isinstance(each, str | bytes)) > _MOST:
        raise Damaged(f"the row of index {columns[1]!r:.100} is too large: create the indexes anew")
    if digest(*columns) != checksum:  # type: ignore[arg-type]  # whatever a damaged file has there
        raise Damaged(f"the row of index {columns[1]!r} is damaged: create the indexes anew")
    id, name, table, definition, revision, dropped, state, lease, next, below, *packed = columns
    past = array("q")
    try:
        past.frombytes(packed[1])  # type: ignore[arg-type]  # or it is a TypeError
        fields, sums = _object(packed[2], str), _object(packed[3], int)
    except (TypeError, ValueError, RecursionError) as error:
        # A checksum has no secret: whoever can write the file can give it any row.
        raise Damaged(f"the row of index {name!r} is no index: create it anew") from error
    return Head(
        *(id, name, table, definition, revision, bool(dropped), state, lease, next, below),  # type: ignore[arg-type]
        swept=packed[0],  # type: ignore[arg-type]
        generations=past.tolist(),
        fields=fields,
        sums=sums,
    )


def _object(text: object, type: type[_Value]) -> dict[str, _Value]:
    """A JSON object whose values are of this type; raises TypeError or ValueError."""
    found = json.loads(text)  # type: ignore[arg-type]  # or it is a TypeError
    if not isinstance(found, dict) or not all(isinstance(each, type) for each in found.values()):
        raise ValueError("other values than were written")
    return found


def heads(connection: sqlite3.Connection) -> list[Head | tuple[IndexId, Damaged]]:
    """Of every index that was not erased, as they came; of a damaged row its name and why."""
    found: list[Head | tuple[IndexId, Damaged]] = []
    last = 0
    # Not fetchall: pages that refer to each other can give rows without end.
    for row in connection.execute(f"SELECT {_COLUMNS}, checksum FROM index_ ORDER BY id"):
        if row[0] <= last:
            raise Damaged("an index is there twice: create the indexes anew")
        last = row[0]
        try:
            head = _verified(row)
        except Damaged as error:
            found.append((f"{row[1]!s:.100}", error))
            continue
        if head.definition is not None:
            found.append(head)
    return found


def _found(connection: sqlite3.Connection, index: IndexId) -> Head | None:
    row = connection.execute(
        f"SELECT {_COLUMNS}, checksum FROM index_ WHERE name = ?", (index,)
    ).fetchone()
    return None if row is None else _verified(row)


def find_head(connection: sqlite3.Connection, index: IndexId) -> Head | None:
    """That of an index; None if it was erased or never was here. Raises Damaged."""
    found = _found(connection, index)
    return None if found is None or found.definition is None else found


def open_head(connection: sqlite3.Connection, index: IndexId, *, erased: bool = False) -> Head:
    """That of an index; raises Damaged, and StoreError if it was erased or never was here."""
    found = (_found if erased else find_head)(connection, index)
    if found is None:
        raise StoreError(f"the store has no index {index}: it was erased, or never was here")
    return found


def save(connection: sqlite3.Connection, head: Head) -> None:
    """Write the row of an index."""
    columns = head.columns()
    places = ", ".join("?" * (len(columns) + 1))
    if connection.execute("SELECT 1 FROM index_ WHERE id = ?", (head.id,)).fetchone():
        sql = f"UPDATE index_ SET ({_COLUMNS}, checksum) = ({places}) WHERE id = {head.id}"
    else:
        sql = f"INSERT INTO index_ ({_COLUMNS}, checksum) VALUES ({places})"
    connection.execute(sql, (*columns, digest(*columns)))


def define(
    connection: sqlite3.Connection, definition: Definition, expect: Revision | None
) -> Revision:
    """Write a definition if its revision still is `expect`; raises Conflict if not."""
    key, text, dropped = _key(definition.table), definition.to_json(), definition.dropped
    found = _found(connection, definition.index)
    revision = None if found is None else found.revision
    if revision != expect or (found is not None and found.definition is None):
        raise Conflict(f"index {definition.index} is at revision {revision}, not {expect}")
    other = connection.execute(
        "SELECT name FROM index_ WHERE table_ = ? AND NOT dropped AND name <> ?",
        (key, definition.index),
    ).fetchone()
    if other and not dropped:
        raise Conflict(f"there is an index on {definition.name} already: {other[0]}")
    if found is None:
        (id,) = connection.execute("SELECT ifnull(max(id), 0) + 1 FROM index_").fetchone()
        found = Head(id, definition.index, key, text, 0)
    elif dropped:
        found.fields, found.sums = {}, {}
    else:
        before = Definition.read(found.definition or "", found.name).columns
        _abandon(found, {c.sketch for c in before} - {c.sketch for c in definition.columns})
    found.table, found.definition, found.dropped = key, text, dropped
    found.revision += 1
    save(connection, found)
    return found.revision


def _abandon(head: Head, sketches: set[str]) -> None:
    """Keep no more of sketches. Their numbers are not used again; `reclaim` deletes the runs."""
    for kept in (head.fields, head.sums):
        for name in [name for name in kept if name.partition("_")[0] in sketches]:
            del kept[name]


def hold(connection: sqlite3.Connection, index: IndexId, lease: Lease, expect: Lease) -> None:
    """Write a lease if it still is `expect`; raises Conflict if not."""
    head = open_head(connection, index)
    found = head.held_by()
    if found != expect:
        raise Conflict(f"index {index} has another lease by now: {found.described()}")
    head.lease = lease.to_json()
    save(connection, head)


def require(head: Head, token: int | None) -> None:
    """Raise Conflict if somebody else keeps the index by now."""
    if token is not None and not head.held_by().admits(token):
        raise Conflict(f"index {head.name} was taken over by another owner")


def _key(table: TableId) -> str:
    return json.dumps([table.format, table.id, table.root])
