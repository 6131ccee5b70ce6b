"""Write entries into the parts of an index in an SQLite store, and read them back.

The table ``entry`` only maps identities to ordinals, so that each file gets one. Tests read the
parts (`fields`, `inverted_index`, `bit_slices`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from providers.errors import Damaged, StoreError
from skipping.stores import IDENTITY, Generation, find_identities, identities
from skipping.stores.entries import is_scalar, portions, sketches
from skipping.stores.sqlite.bit_slices import insert_bytes, sweep_bytes, values_of
from skipping.stores.sqlite.fields import (
    FILES,
    TYPES,
    append,
    read_tombstones,
    replace_rows,
    table_of,
)
from skipping.stores.sqlite.index_rows import IndexRow
from skipping.stores.sqlite.inverted_index import insert_terms, postings_of, sweep_terms
from skipping.stores.sqlite.segments import delete_orphans

Numbers: TypeAlias = npt.NDArray[np.int64]

_NAMES = {type: name for name, type in TYPES.items()}
_VARIABLES = 500  # of one statement
_FILES = 4_096  # in a table of complete entries, or more if they have less than
_TOGETHER = 1 << 26  # bytes
_RECLAIMED = 1_024  # blocks of some 16 KB, and entries


@dataclass(frozen=True, slots=True)
class Placed:
    """The rows of a write that have the ordinal of their file: new entries, and earlier ones.

    `below` is one more than the greatest ordinal that the index has ever had.
    """

    created: Numbers
    before: Numbers
    below: int


def find_holders(connection: sqlite3.Connection, record: IndexRow, files: pa.Table) -> pa.Array:
    """Return the ordinal of each file (path, size, stamp), or null."""
    found: dict[tuple[str, int, int | None], int] = {}
    paths = files["path"].to_pylist()
    for start in range(0, len(paths), _VARIABLES):
        some = paths[start : start + _VARIABLES]
        for ordinal, *identity in connection.execute(
            # Without the hint SQLite scans all entries of the index.
            "SELECT ordinal, path, size, stamp FROM entry INDEXED BY entry_identity"
            f" WHERE index_ = ? AND path IN ({', '.join('?' * len(some))})",
            (record.id, *some),
        ):
            found[tuple(identity)] = ordinal
    return pa.array([found.get(identity) for identity in identities(files)], pa.int64())


def place(
    connection: sqlite3.Connection, record: IndexRow, entries: pa.Table, generation: Generation
) -> Placed:
    """Create entries for new files.

    Raises StoreError for an ordinal that belongs to another file.
    """
    connection.execute(
        "CREATE TEMP TABLE incoming (row INTEGER PRIMARY KEY, ordinal INTEGER,"
        " path TEXT, size INTEGER, stamp INTEGER, removed INTEGER)"
    )
    columns = [entries[name].to_pylist() for name in IDENTITY.names[:4]]
    gone = np.isin(entries["ordinal"].to_numpy(), read_tombstones(connection, record)).tolist()
    connection.executemany(
        "INSERT INTO temp.incoming VALUES (?, ?, ?, ?, ?, ?)",
        zip(range(len(entries)), *columns, gone, strict=True),
    )
    there = connection.execute(
        "SELECT i.row FROM temp.incoming i CROSS JOIN entry e"
        " ON e.index_ = ? AND e.ordinal = i.ordinal",
        (record.id,),
    ).fetchall()
    # Ignore identities that exist (a lost race, or an addition) and ordinals that exist (an
    # addition, or an error that is found below).
    connection.execute(
        "INSERT OR IGNORE INTO entry (index_, ordinal, path, size, stamp)"
        " SELECT ?, ordinal, path, size, stamp FROM temp.incoming"
        " WHERE NOT removed ORDER BY row",
        (record.id,),
    )
    rows = []
    for row, ordinal, holder, removed in connection.execute(
        "SELECT i.row, i.ordinal, e.ordinal, i.removed"
        " FROM temp.incoming i LEFT JOIN entry e ON e.index_ = ?1 AND e.path = i.path"
        " AND e.size = i.size AND (e.stamp IS NULL) = (i.stamp IS NULL)"
        " AND ifnull(e.stamp, 0) = ifnull(i.stamp, 0) ORDER BY i.row",
        (record.id,),
    ):
        if holder is None and not removed:
            raise StoreError(f"ordinal {ordinal} belongs to another file")
        if holder == ordinal:
            rows.append(row)
    old = np.isin(rows, np.array(there, np.int64).reshape(len(there)))
    held = np.array(rows, np.int64)
    created, before = held[~old], held[old]
    named = entries.select(IDENTITY.names)
    new = named.take(pa.array(created)).combine_chunks().sort_by("ordinal")
    append(connection, record, FILES, new, generation)
    _compare(connection, record, named.take(pa.array(before)))
    below = 1 + new["ordinal"][-1].as_py() if len(new) else 0
    return Placed(created, before, max(record.below, below))


def _compare(connection: sqlite3.Connection, record: IndexRow, entries: pa.Table) -> None:
    """Raise Damaged unless the part has the same identities: ``entry`` has no checksum."""
    if len(entries):
        files = table_of(connection, record, FILES)
        at = find_identities(entries, files)
        kept = files["ordinal"].combine_chunks().take(at)
        if not entries["ordinal"].combine_chunks().equals(kept):
            raise Damaged(f"the ordinals of index {record.index} are damaged: create it again")


def take(connection: sqlite3.Connection, record: IndexRow, ordinals: pa.Array) -> Numbers:
    """Delete these ordinals from ``entry``; return those that existed, sorted."""
    connection.execute("CREATE TEMP TABLE incoming (ordinal INTEGER PRIMARY KEY)")
    connection.executemany(
        "INSERT OR IGNORE INTO temp.incoming VALUES (?)", zip(ordinals.to_pylist(), strict=True)
    )
    rows = connection.execute(
        "SELECT i.ordinal FROM temp.incoming i"
        " CROSS JOIN entry e ON e.index_ = ? AND e.ordinal = i.ordinal",
        (record.id,),
    ).fetchall()
    connection.execute(
        "DELETE FROM entry WHERE index_ = ? AND ordinal IN temp.incoming", (record.id,)
    )
    return np.sort(np.array(rows, np.int64).reshape(len(rows)))


def store_sketches(
    connection: sqlite3.Connection,
    record: IndexRow,
    entries: pa.Table,
    placed: Placed,
    generation: Generation,
) -> bool:
    """Store the sketches that entries do not have yet; return whether there was one."""
    ordinals = entries["ordinal"].to_numpy()
    rows = np.sort(np.concatenate([placed.created, placed.before]))
    stored = False
    for sketch, names in sketches(entries.schema.names).items():
        for name in names:
            _declare(record, name, entries.schema.field(name).type)
        there: Numbers = np.zeros(0, np.int64)
        if len(placed.before):
            there = table_of(connection, record, sketch)["ordinal"].to_numpy()
        comes = entries[names[0]].is_valid().to_numpy()
        fresh = rows[comes[rows] & ~np.isin(ordinals[rows], there)]
        stored |= bool(len(fresh))
        for some in portions(entries.select(["ordinal", *names]), fresh):
            _insert(connection, record, sketch, some.sort_by("ordinal"), generation)
    return stored


def _declare(record: IndexRow, name: str, type: pa.DataType) -> None:
    found = TYPES[record.fields.setdefault(name, _NAMES[type])]
    if found != type:
        raise StoreError(f"{name} has type {found}, not {type}")


def _insert(
    connection: sqlite3.Connection,
    record: IndexRow,
    sketch: str,
    rows: pa.Table,
    generation: Generation,
) -> None:
    files = rows["ordinal"].to_numpy()
    scalars = {"ordinal": rows["ordinal"]}
    for name in rows.schema.names[1:]:
        values = rows[name].combine_chunks()
        if pa.types.is_list(values.type):
            counts = insert_terms(connection, record, name, generation, files, values)
            scalars[name] = pa.array(counts, pa.int64())
        elif is_scalar(values.type):
            scalars[name] = values
        else:
            insert_bytes(connection, record, name, generation, files, values)
    append(connection, record, sketch, pa.table(scalars), generation)


def sweep(connection: sqlite3.Connection, record: IndexRow, removed: Numbers) -> bool:
    """Delete the data of removed files; return whether it did.

    Removed files are never reported, so their data is harmless. Rewriting all parts waits until
    more files were removed since the last sweep than are left.
    """
    (there,) = connection.execute(
        "SELECT count(*) FROM entry WHERE index_ = ?", (record.id,)
    ).fetchone()
    if len(read_tombstones(connection, record, since=record.swept)) <= there:
        return False
    files = table_of(connection, record, FILES)["ordinal"].to_numpy()
    stay = np.setdiff1d(files, removed)
    live = BitMap(stay.astype(np.uint32))
    for part in (FILES, *{name.partition("_")[0] for name in record.fields}):
        replace_rows(connection, record, part, stay)
    for name, spelled in record.fields.items():
        type = TYPES[spelled]
        if pa.types.is_list(type):
            sweep_terms(connection, record, name, term_type(type), live)
        elif not is_scalar(type):
            sweep_bytes(connection, record, name, live)
    return True


def term_type(type: pa.DataType) -> pa.DataType:
    """Return the stored type of terms: text is stored as bytes."""
    return pa.binary() if type.value_type == pa.string() else type.value_type


def reclaim(connection: sqlite3.Connection, record: IndexRow) -> bool:
    """Delete some MB that an index no longer uses; return whether more may be left."""
    left = delete_orphans(connection, record, _RECLAIMED)
    if record.dropped:
        deleted = connection.execute(
            "DELETE FROM entry WHERE index_ = ?1 AND ordinal IN"
            " (SELECT ordinal FROM entry WHERE index_ = ?1 LIMIT ?2)",
            (record.id, _RECLAIMED),
        ).rowcount
        left |= deleted == _RECLAIMED
    return left


def entries_of(connection: sqlite3.Connection, record: IndexRow, bytes: int) -> Iterator[pa.Table]:
    """Yield complete entries, sorted, in tables of a few thousand; together they have `bytes`."""
    gone = read_tombstones(connection, record)
    files = table_of(connection, record, FILES)
    # Each table reads all terms: with a million files, tables of 4,096 took an hour.
    most = max(_FILES, _TOGETHER * len(files) // (bytes + 1))
    for start in range(0, len(files), most):
        some = files.slice(start, most)
        some = some.filter(pa.array(~np.isin(some["ordinal"].to_numpy(), gone)))
        if len(some):
            yield _add_sketches(connection, record, some.select(IDENTITY.names))


def _add_sketches(connection: sqlite3.Connection, record: IndexRow, files: pa.Table) -> pa.Table:
    ordinals = files["ordinal"].to_numpy()
    for sketch, names in sketches(list(record.fields)).items():
        rows = table_of(connection, record, sketch)
        at = np.searchsorted(rows["ordinal"].to_numpy(), ordinals)
        missing = np.append(rows["ordinal"].to_numpy(), -1)[at] != ordinals
        for name in names:
            type = TYPES[record.fields[name]]
            kept: pa.Array = pa.nulls(len(ordinals), type if is_scalar(type) else pa.int64())
            if name in rows.schema.names:
                kept = rows[name].combine_chunks().take(pa.array(at, mask=missing))
            if pa.types.is_list(type):
                kept = _lists(connection, record, name, type, ordinals, kept)
            elif not is_scalar(type):
                kept = _values(connection, record, name, ordinals)
            files = files.append_column(name, kept)
    return files


def _lists(
    connection: sqlite3.Connection,
    record: IndexRow,
    name: str,
    type: pa.DataType,
    ordinals: Numbers,
    counts: pa.Array,
) -> pa.Array:
    """Return the terms of each file, without order and duplicates."""
    found: list[pa.Array] = []
    owners: list[Numbers] = []
    for postings in postings_of(connection, record, name, term_type(type)):
        terms, numbers = postings.pairs()
        at = np.searchsorted(ordinals, numbers)
        asked = np.append(ordinals, -1)[at] == numbers
        found.append(terms.filter(pa.array(asked)))
        owners.append(at[asked])
    terms = pa.concat_arrays(found) if found else pa.array([], term_type(type))
    owner = np.concatenate(owners) if owners else np.zeros(0, np.int64)
    order = np.argsort(owner, kind="stable")
    lengths = np.bincount(owner, minlength=len(ordinals))
    if np.any(lengths != counts.fill_null(0).to_numpy()):
        raise Damaged(f"the terms of {name} of index {record.index} are damaged: create it again")
    ends = pa.array(np.append(0, np.cumsum(lengths)).astype(np.int32))
    values = terms.take(pa.array(order)).cast(type.value_type)
    return pa.ListArray.from_arrays(ends, values, type=type, mask=counts.is_null())


def _values(
    connection: sqlite3.Connection, record: IndexRow, name: str, ordinals: Numbers
) -> pa.Array:
    """Return the bytes of each file."""
    found: list[bytes | None] = [None] * len(ordinals)
    for numbers, values in values_of(connection, record, name, ordinals):
        at = np.searchsorted(ordinals, numbers)
        asked = np.append(ordinals, -1)[at] == numbers
        for place_, value in zip(at[asked].tolist(), np.flatnonzero(asked).tolist(), strict=True):
            found[place_] = values[value]
    return pa.array(found, pa.large_binary())
