"""The row of an index in an SQLite store, from which everything else is verified.

So a reader gets exactly what one commit wrote, or an error: pages of two copies, or of a file and
another file's log, never match.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

from providers.errors import Damaged
from skipping.model.definition import Definition, IndexId, Revision, TableId
from skipping.stores import Generation
from skipping.stores.index_record import IndexRecord, require_record

_MOST = 1 << 23  # bytes of a row: a definition has at most 1 MB
_PLAIN = (
    *("id", "index", "table", "definition", "revision", "dropped"),
    *("state", "lease", "next", "below", "swept"),
)
_COLUMNS = (
    "id, name, table_, definition, revision, dropped, state, lease, next, below, swept,"
    " generations, fields, sums"
)

_Value = TypeVar("_Value", str, int)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRow(IndexRecord):
    """An index as one transaction sees it.

    `below` is one more than the largest ordinal that ever had an entry, `fields` has the types of
    fields, `sums` the checksums of parts. A transaction changes these two in place.
    """

    REMEMBERED: ClassVar[int] = 256

    id: int
    table: str
    below: int = 0
    swept: Generation = 0
    fields: dict[str, str] = field(default_factory=dict)
    sums: dict[str, int] = field(default_factory=dict)

    def columns(self) -> tuple[Any, ...]:
        """Return the columns of the row, without its checksum."""
        plain = {name: getattr(self, name) for name in _PLAIN} | {"dropped": int(self.dropped)}
        return (
            *plain.values(),
            array("q", self.recent).tobytes(),
            json.dumps(self.fields, sort_keys=True),
            json.dumps(self.sums, sort_keys=True),
        )


def digest(*values: int | str | bytes | None) -> int:
    """Return a checksum of 63 bits; large `bytes` are first reduced to 32 bits."""
    said = [(len(v), zlib.crc32(v)) if isinstance(v, bytes) else v for v in values]
    found = hashlib.blake2b(repr(said).encode(), digest_size=8).digest()
    return int.from_bytes(found, "little") >> 1


def _parse_row(row: tuple[Any, ...]) -> IndexRow:
    *columns, checksum = row
    name = f"{columns[1]!r:.100}"
    if sum(len(each) for each in columns if isinstance(each, str | bytes)) > _MOST:
        raise Damaged(f"the row of index {name} is too large: create the indexes again")
    if digest(*columns) != checksum:
        raise Damaged(f"the row of index {name} is damaged: create the indexes again")
    *plain, generations, fields, sums = columns
    values = dict(zip(_PLAIN, plain, strict=True))
    past = array("q")
    try:
        past.frombytes(generations)
        values |= {"fields": _object(fields, str), "sums": _object(sums, int)}
    except (TypeError, ValueError, RecursionError) as error:
        # A checksum is not a secret: anyone who can write the file can forge a row.
        raise Damaged(f"the row of index {name} is invalid: create the index again") from error
    values["dropped"] = bool(values["dropped"])
    return IndexRow(**values, generation=past[-1] if past else 0, recent=tuple(past))


def _object(text: Any, type: type[_Value]) -> dict[str, _Value]:
    """Parse a JSON object with values of this type; raise TypeError or ValueError."""
    found = json.loads(text)
    if not isinstance(found, dict) or not all(isinstance(each, type) for each in found.values()):
        raise ValueError("values of an unexpected type")
    return found


def list_records(connection: sqlite3.Connection) -> list[IndexRow | tuple[IndexId, Damaged]]:
    """Return every index that is not erased, by age; for a damaged row, its name and the error."""
    found: list[IndexRow | tuple[IndexId, Damaged]] = []
    for row in _rows(connection):
        try:
            record = _parse_row(row)
        except Damaged as error:
            found.append((f"{row[1]!s:.100}", error))
            continue
        if record.definition is not None:
            found.append(record)
    return found


def all_rows(connection: sqlite3.Connection) -> Iterator[IndexRow]:
    """Yield every index, erased ones too; raise Damaged for a damaged row."""
    return map(_parse_row, _rows(connection))


def _rows(connection: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    last = 0
    # Not fetchall: forged pages that refer to each other give endless rows.
    for row in connection.execute(f"SELECT {_COLUMNS}, checksum FROM index_ ORDER BY id"):
        if row[0] <= last:
            raise Damaged("an index exists twice: create the indexes again")
        last = row[0]
        yield row


def find_row(connection: sqlite3.Connection, index: IndexId) -> IndexRow | None:
    """Return the record of an index, even if it was erased; None if it never existed."""
    row = connection.execute(
        f"SELECT {_COLUMNS}, checksum FROM index_ WHERE name = ?", (index,)
    ).fetchone()
    return None if row is None else _parse_row(row)


def find_record(connection: sqlite3.Connection, index: IndexId) -> IndexRow | None:
    """Return the record of an index, or None if it does not exist; raise Damaged."""
    found = find_row(connection, index)
    return None if found is None or found.definition is None else found


def find_live_record(connection: sqlite3.Connection, table: TableId) -> IndexRow | None:
    """Return the record of a table's live index; None if it has no valid one."""
    row = connection.execute(
        f"SELECT {_COLUMNS}, checksum FROM index_ WHERE table_ = ? AND NOT dropped",
        (table_key(table),),
    ).fetchone()
    with suppress(Damaged):  # it is listed with the error
        if row is not None and (record := _parse_row(row)).is_of(table):
            return record
    return None


def table_key(table: TableId) -> str:
    """Return the text that identifies a table."""
    return json.dumps([table.format, table.id, table.root])


def read_record(
    connection: sqlite3.Connection, index: IndexId, *, erased: bool = False
) -> IndexRow:
    """Return the record of an index; raise Damaged, and StoreError if it does not exist."""
    return require_record(find_row(connection, index), index, erased=erased)


def save(connection: sqlite3.Connection, record: IndexRow) -> None:
    """Write the row of an index."""
    columns = record.columns()
    places = ", ".join("?" * (len(columns) + 1))
    if connection.execute("SELECT 1 FROM index_ WHERE id = ?", (record.id,)).fetchone():
        sql = f"UPDATE index_ SET ({_COLUMNS}, checksum) = ({places}) WHERE id = {record.id}"
    else:
        sql = f"INSERT INTO index_ ({_COLUMNS}, checksum) VALUES ({places})"
    connection.execute(sql, (*columns, digest(*columns)))


def define(
    connection: sqlite3.Connection, definition: Definition, expect: Revision | None
) -> Revision:
    """Write a definition if its revision still is `expect`; raise Conflict if not."""
    record = find_row(connection, definition.index)
    if record is None:
        record = new_row(connection, definition.index)
    before = record
    live = find_live(connection, definition)
    record = record.with_definition(definition, expect=expect, live=live)
    record = without_sketches(replace(record, table=table_key(definition.table)), before)
    save(connection, record)
    return record.revision


def new_row(connection: sqlite3.Connection, index: IndexId) -> IndexRow:
    """Return a row for an index that the store does not have."""
    (id,) = connection.execute("SELECT ifnull(max(id), 0) + 1 FROM index_").fetchone()
    return IndexRow(id=id, index=index, table="")


def find_live(connection: sqlite3.Connection, definition: Definition) -> IndexId | None:
    """Return another index on the same table that is not dropped."""
    live = connection.execute(
        "SELECT name FROM index_ WHERE table_ = ? AND NOT dropped AND name <> ?",
        (table_key(definition.table), definition.index),
    ).fetchone()
    return None if live is None else str(live[0])


def without_sketches(record: IndexRow, before: IndexRow) -> IndexRow:
    """Return a changed row without the sketches of the columns that it lost since `before`."""
    if record.dropped:
        return replace(record, fields={}, sums={})
    old, new = (
        {c.sketch for c in each.versioned.value.columns} if each.revision else set()
        for each in (before, record)
    )
    # Numbers of sketches are not used again; `reclaim` deletes the runs.
    for kept in (record.fields, record.sums):
        for name in [name for name in kept if name.partition("_")[0] in old - new]:
            del kept[name]
    return record
