"""Entries on their way from Arrow into the rows of an SQLite store.

Text goes in as its bytes (`to_sql`, `from_sql`). The terms of a write are turned round once: for
each term the ordinals that have it, as one packed array, so that a write of many files costs as
many rows as it has distinct terms. Beside them stands how many terms each file has. How BYTES are
laid down stands in `sqlite_bytes`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from providers.errors import StoreError
from skipping.stores import IDENTITY, Generation, identities
from skipping.stores.entries import is_scalar, sketches
from skipping.stores.sqlite_bytes import delete_groups, insert_bytes

__all__ = [
    "Fields",
    "Numbers",
    "advance",
    "fields_of",
    "forget",
    "from_sql",
    "has_been",
    "holders",
    "ordinals_of",
    "place",
    "store_sketches",
    "sweep",
    "to_sql",
]

Numbers: TypeAlias = npt.NDArray[np.int64]
Fields: TypeAlias = dict[str, tuple[int, pa.DataType]]

_SCALARS = {"bool": pa.bool_(), "int64": pa.int64(), "string": pa.string(), "binary": pa.binary()}
_TYPES = {**_SCALARS, **{f"list<{name}>": pa.list_(type) for name, type in _SCALARS.items()}}
_TYPES["large_binary"] = pa.large_binary()
_NAMES = {type: name for name, type in _TYPES.items()}
_MASK = 2**31 - 1
_VARIABLES = 500  # of a query at a time


def fields_of(connection: sqlite3.Connection, index: int) -> Fields:
    """Number and type of every field that was ever written, by its full name."""
    rows = connection.execute("SELECT name, id, type FROM field WHERE index_ = ?", (index,))
    return {name: (id, _TYPES[type]) for name, id, type in rows}


def advance(connection: sqlite3.Connection, index: int, generation: Generation) -> None:
    """Make a generation the present one."""
    connection.execute("UPDATE index_ SET generation = ? WHERE id = ?", (generation, index))
    connection.execute("INSERT INTO history VALUES (?, ?)", (index, generation))


def has_been(connection: sqlite3.Connection, index: int, generation: Generation) -> bool:
    """Whether a generation is the present one or came before it."""
    found = connection.execute(
        "SELECT 1 FROM history WHERE index_ = ? AND generation = ?", (index, generation)
    ).fetchone()
    return not generation or found is not None


def ordinals_of(connection: sqlite3.Connection, sql: str, values: tuple[int, ...]) -> Numbers:
    """The only column of a query."""
    rows = connection.execute(sql, values).fetchall()
    return np.array(rows, np.int64).reshape(len(rows))


def holders(connection: sqlite3.Connection, index: int, files: pa.Table) -> pa.Array:
    """Of each file (path, size, stamp) the ordinal of its entry, or null."""
    found: dict[tuple[str, int, int | None], int] = {}
    paths = files["path"].to_pylist()
    for start in range(0, len(paths), _VARIABLES):
        some = paths[start : start + _VARIABLES]
        for ordinal, *identity in connection.execute(
            "SELECT ordinal, path, size, stamp FROM entry"
            f" WHERE index_ = ? AND path IN ({', '.join('?' * len(some))})",
            (index, *some),
        ):
            found[tuple(identity)] = ordinal
    return pa.array([found.get(identity) for identity in identities(files)], pa.int64())


def place(
    connection: sqlite3.Connection, index: int, entries: pa.Table, generation: Generation
) -> Numbers:
    """Create the entries that are new; the rows of all that hold their ordinal, new or not.

    Leaves the ordinals of `entries` in `temp.incoming`. Raises StoreError for an ordinal that
    belongs to another file.
    """
    connection.execute(
        "CREATE TEMP TABLE incoming (row INTEGER PRIMARY KEY, ordinal INTEGER,"
        " path TEXT, size INTEGER, stamp INTEGER, partition TEXT)"
    )
    columns = [entries[name].to_pylist() for name in IDENTITY.names]
    connection.executemany(
        "INSERT INTO temp.incoming VALUES (?, ?, ?, ?, ?, ?)",
        zip(range(len(entries)), *columns, strict=True),
    )
    # Ignored: an identity that is there (a race was lost, or this adds to it) and an ordinal that
    # is there (it adds to it, or is an error found below).
    connection.execute(
        "INSERT OR IGNORE INTO entry (index_, ordinal, path, size, stamp, partition, generation)"
        " SELECT ?, i.ordinal, i.path, i.size, i.stamp, i.partition, ? FROM temp.incoming i"
        " WHERE NOT EXISTS (SELECT 1 FROM removed r WHERE r.index_ = ? AND r.ordinal = i.ordinal)"
        " ORDER BY i.row",
        (index, generation, index),
    )
    rows = []
    for row, ordinal, holder, removed in connection.execute(
        "SELECT i.row, i.ordinal, e.ordinal, EXISTS"
        " (SELECT 1 FROM removed r WHERE r.index_ = ?1 AND r.ordinal = i.ordinal)"
        " FROM temp.incoming i LEFT JOIN entry e ON e.index_ = ?1 AND e.path = i.path"
        " AND e.size = i.size AND (e.stamp IS NULL) = (i.stamp IS NULL)"
        " AND ifnull(e.stamp, 0) = ifnull(i.stamp, 0) ORDER BY i.row",
        (index,),
    ):
        if holder is None and not removed:
            raise StoreError(f"ordinal {ordinal} belongs to another file")
        if holder == ordinal:
            rows.append(row)
    return np.array(rows, np.int64)


def store_sketches(
    connection: sqlite3.Connection,
    index: int,
    entries: pa.Table,
    rows: Numbers,
    generation: Generation,
) -> None:
    """Give the entries of these rows the sketches they have not yet."""
    fields = fields_of(connection, index)
    ordinals = entries["ordinal"].to_numpy()
    for names in sketches(entries.schema.names).values():
        for name in names:
            _declare(connection, index, fields, name, entries.schema.field(name).type)
        known, _ = fields[names[0]]
        there = ordinals_of(
            connection,
            "SELECT s.ordinal FROM temp.incoming i"
            " CROSS JOIN scalar s ON s.field = ? AND s.ordinal = i.ordinal",
            (known,),
        )
        comes = entries[names[0]].is_valid().to_numpy()
        fresh = rows[comes[rows] & ~np.isin(ordinals[rows], there)]
        fresh = fresh[np.argsort(ordinals[fresh])]
        sketch = entries.select(["ordinal", *names]).take(pa.array(fresh)).combine_chunks()
        files = sketch["ordinal"].to_numpy()
        for name in names:
            _insert(connection, fields[name][0], files, sketch[name].combine_chunks(), generation)
        connection.executemany(
            "UPDATE entry SET generation = ? WHERE index_ = ? AND ordinal = ?",
            ((generation, index, ordinal) for ordinal in files.tolist()),
        )


def _declare(
    connection: sqlite3.Connection, index: int, fields: Fields, name: str, type: pa.DataType
) -> None:
    if name not in fields:
        id = connection.execute(
            "INSERT INTO field (index_, name, type) VALUES (?, ?, ?)", (index, name, _NAMES[type])
        ).lastrowid
        assert id is not None
        fields[name] = id, type
    if fields[name][1] != type:
        raise StoreError(f"{name} is of type {fields[name][1]}, not {type}")


def _insert(
    connection: sqlite3.Connection,
    field: int,
    ordinals: Numbers,
    values: pa.Array,
    generation: Generation,
) -> None:
    if pa.types.is_large_binary(values.type):
        insert_bytes(connection, field, ordinals, values)
        return
    if pa.types.is_list(values.type):
        rows, counts = _postings(ordinals, values)
        connection.executemany(
            "INSERT INTO terms (field, value, generation, ordinals) VALUES (?, ?, ?, ?)",
            ((field, value, generation, numbers) for value, numbers in rows),
        )
        pairs = zip(ordinals.tolist(), counts.tolist(), strict=True)
    else:
        there = values.is_valid().to_numpy(zero_copy_only=False)
        kept = to_sql(values.drop_null())
        pairs = zip(ordinals[there].tolist(), kept, strict=True)
    connection.executemany(
        "INSERT INTO scalar (field, ordinal, value) VALUES (?, ?, ?)",
        ((field, ordinal, value) for ordinal, value in pairs),
    )


def _postings(ordinals: Numbers, lists: pa.Array) -> tuple[Iterator[tuple[Any, bytes]], Numbers]:
    """The ordinals of each distinct term, in the order of the terms, and each file's terms."""
    encoded = pc.list_flatten(lists).dictionary_encode()
    # Not pc.list_parent_indices: it counts what lies beneath null lists, list_flatten does not.
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    owners = np.repeat(np.arange(len(lists)), lengths)
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    # Pairs as one number: term above, file below. A list may name a term twice, the index does not.
    # Files are in the order of their ordinals.
    pairs = np.unique(rank[encoded.indices.to_numpy()] << 31 | owners)
    terms, files = pairs >> 31, pairs & _MASK
    numbers = ordinals[files].astype("<u4").tobytes()
    edges = np.searchsorted(terms, np.arange(len(order) + 1)) * 4
    blobs = (numbers[a:b] for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
    values = to_sql(encoded.dictionary.take(pa.array(order)))
    return zip(values, blobs, strict=True), np.bincount(files, minlength=len(lists))


def sweep(connection: sqlite3.Connection, index: int, *, since: Generation) -> None:
    """Delete terms and bytes that only removed files had, once as many files left as there are.

    Those of removed files are harmless (a file without a known flag is never reported), so the
    walk over the whole inverted index can wait until it is paid for by what was removed.
    """
    (left,) = connection.execute(
        "SELECT count(*) FROM removed WHERE index_ = ? AND generation > ?", (index, since)
    ).fetchone()
    (there,) = connection.execute(
        "SELECT count(*) FROM entry WHERE index_ = ?", (index,)
    ).fetchone()
    if left <= there:
        return
    live = BitMap(ordinals_of(connection, "SELECT ordinal FROM entry WHERE index_ = ?", (index,)))

    def dead(numbers: bytes) -> bool:
        return live.isdisjoint(BitMap(np.frombuffer(numbers, "<u4")))

    connection.create_function("dead", 1, dead, deterministic=True)
    for field, type in fields_of(connection, index).values():
        if pa.types.is_list(type):
            connection.execute("DELETE FROM terms WHERE field = ? AND dead(ordinals)", (field,))
        elif not is_scalar(type):
            delete_groups(connection, field, lambda files: live.isdisjoint(BitMap(files)))
    connection.execute("UPDATE index_ SET swept = generation WHERE id = ?", (index,))


def forget(connection: sqlite3.Connection, index: int) -> None:
    """Delete all entries of an index and what there is about them."""
    for field, _ in fields_of(connection, index).values():
        for table in ("scalar", "terms"):
            connection.execute(f"DELETE FROM {table} WHERE field = ?", (field,))
        delete_groups(connection, field, lambda files: True)
    for table in ("entry", "history", "removed", "field"):
        connection.execute(f"DELETE FROM {table} WHERE index_ = ?", (index,))


def to_sql(array: pa.Array) -> list[Any]:
    """As SQLite takes them: text as bytes."""
    values: list[Any] = (
        array.cast(pa.binary()) if array.type == pa.string() else array
    ).to_pylist()
    return values


def from_sql(values: Iterable[Any], type: pa.DataType) -> pa.Array:
    """The opposite of `to_sql`; raises pa.ArrowInvalid for what is of another type."""
    if type == pa.string():
        return pa.array(values, pa.binary()).cast(type)  # looks whether it is UTF-8
    if type == pa.bool_():
        return pa.array(values, pa.int64()).cast(type)
    return pa.array(values, type)
