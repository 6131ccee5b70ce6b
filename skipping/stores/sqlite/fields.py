"""Identities and SCALAR fields in an SQLite store, as runs of Arrow tables.

============  =========================================================
part          columns, in addition to `ordinal` and the `generation` of the row
============  =========================================================
``files``     the identities
``removed``   none: these ordinals had an entry
``s3``, ...   the SCALAR fields of a sketch, its known flag, and the number of terms of each TERMS
              field; no row for a file whose flag is null
============  =========================================================
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from providers.errors import Damaged, StoreError
from skipping.stores import IDENTITY, Catalogue, Generation, Told
from skipping.stores.entries import compact, is_scalar
from skipping.stores.sqlite.index_rows import IndexRow
from skipping.stores.sqlite.segments import Run, add, blocks, delete, runs, small_runs
from skipping.stores.untrusted import read_stream

FILES, REMOVED = "files", "removed"
"""The parts of every index."""

_SCALARS = {"bool": pa.bool_(), "int64": pa.int64(), "string": pa.string(), "binary": pa.binary()}
TYPES = {
    **_SCALARS,
    **{f"list<{name}>": pa.list_(type) for name, type in _SCALARS.items()},
    "large_binary": pa.large_binary(),
}
"""The types of fields by their names in the row of an index."""

_ROWS = 1 << 14  # in a block
_MOST = 1 << 13  # rows above which a run is not merged


def append(
    connection: sqlite3.Connection,
    record: IndexRow,
    part: str,
    rows: pa.Table,
    generation: Generation,
) -> None:
    """Add rows to a part, with this generation."""
    if not len(rows):
        return
    rows = rows.append_column("generation", pa.array(np.full(len(rows), generation)))
    old = small_runs(runs(connection, record, part), len(rows), most=_MOST)
    tables = [table for run in old for table in _read(connection, run)]
    for run in old:
        delete(connection, record, part, run)
    _add(connection, record, part, pa.concat_tables([*tables, rows], promote_options="default"))


def replace_rows(
    connection: sqlite3.Connection, record: IndexRow, part: str, stay: npt.NDArray[np.int64]
) -> None:
    """Keep only the rows of these ordinals."""
    rows = table_of(connection, record, part)
    kept = rows.filter(pa.array(np.isin(rows["ordinal"].to_numpy(), stay)))
    if len(kept) < len(rows):
        for run in runs(connection, record, part):
            delete(connection, record, part, run)
        _add(connection, record, part, kept)


def _add(connection: sqlite3.Connection, record: IndexRow, part: str, rows: pa.Table) -> None:
    packed = []
    rows = compact(rows)  # one message, even for rows from many small writes
    for start in range(0, len(rows), _ROWS):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows.slice(start, _ROWS))
        packed.append(sink.getvalue().to_pybytes())
    if packed:
        newest = pc.max(rows["generation"]).as_py()
        add(connection, record, part, packed, generation=newest, items=len(rows))


def _read(connection: sqlite3.Connection, run: Run) -> Iterator[pa.Table]:
    # Blocks are not compressed: one that unpacks to more bytes is forged.
    return (read_stream(data, most=len(data)) for _, data in blocks(connection, run))


def table_of(
    connection: sqlite3.Connection,
    record: IndexRow,
    part: str,
    *,
    since: Generation | None = None,
    told: Callable[[Callable[[], pa.Table]], object] | None = None,
) -> pa.Table:
    """Return the rows of a part sorted by ordinal: all, or those written after `since`.

    `told` receives a function that returns the rows read so far. Raises Damaged for a duplicate
    ordinal.
    """
    after = -1 if since is None else since
    found: list[pa.Table] = []
    for run in runs(connection, record, part):
        if run.generation <= after:
            continue
        for table in _read(connection, run):
            found.append(table)
            if told is not None:
                told(partial(_sort_rows, record, part, tuple(found)))
    rows = _sort_rows(record, part, found)
    return rows if since is None else rows.filter(pc.greater(rows["generation"], since))


def _sort_rows(record: IndexRow, part: str, found: Sequence[pa.Table]) -> pa.Table:
    if not found:
        return pa.table(
            {"ordinal": pa.array([], pa.int64()), "generation": pa.array([], pa.int64())}
        )
    rows = pa.concat_tables(found, promote_options="default")
    if rows["ordinal"].null_count or rows["generation"].null_count:
        raise Damaged(
            f"part {part} of index {record.index} has a row without ordinal: create it again"
        )
    ordinals = rows["ordinal"].to_numpy()
    if np.any(ordinals[1:] <= ordinals[:-1]):
        rows = rows.sort_by("ordinal")
        ordinals = rows["ordinal"].to_numpy()
        if np.any(ordinals[1:] == ordinals[:-1]):
            raise Damaged(
                f"part {part} of index {record.index} has an ordinal twice: create it again"
            )
    return rows


def read_tombstones(
    connection: sqlite3.Connection, record: IndexRow, *, since: Generation | None = None
) -> npt.NDArray[np.int64]:
    """Return the removed ordinals: all, or those removed after `since`."""
    found: npt.NDArray[np.int64] = (
        table_of(connection, record, REMOVED, since=since)["ordinal"].combine_chunks().to_numpy()
    )
    return found


def _live(rows: pa.Table, gone: npt.NDArray[np.int64]) -> pa.Table:
    if not len(gone):
        return rows
    return rows.filter(pa.array(~np.isin(rows["ordinal"].to_numpy(), gone)))


def catalogue(
    connection: sqlite3.Connection,
    record: IndexRow,
    *,
    since: Generation | None,
    fields: Sequence[str],
    told: Told | None = None,
) -> Catalogue:
    """Return the entries; see `IndexStore.catalogue`."""
    gone = read_tombstones(connection, record)

    def live(rows: pa.Table) -> pa.Table:
        return _live(rows, gone).select(IDENTITY.names)

    files, removed = IDENTITY.empty_table(), pa.array([], pa.int64())
    if since is None or since != record.generation:
        telling = None if told is None or fields else _telling(record, live, told)
        rows = table_of(connection, record, FILES, since=since, told=telling)
        if since is not None:
            removed = pa.array(read_tombstones(connection, record, since=since))
            touched = _find_changes(connection, record, since)
            if not np.isin(touched, rows["ordinal"].to_numpy()).all():
                came = np.union1d(touched, rows["ordinal"].to_numpy())
                rows = table_of(connection, record, FILES)
                rows = rows.filter(pa.array(np.isin(rows["ordinal"].to_numpy(), came)))
        if len(rows):
            files = live(rows).combine_chunks()
    ordinals = files["ordinal"].to_numpy()
    for name in fields:
        files = files.append_column(name, _column(connection, record, name, ordinals))
    return Catalogue(record.generation, record.below, files, removed)


def _telling(
    record: IndexRow, live: Callable[[pa.Table], pa.Table], told: Told
) -> Callable[[Callable[[], pa.Table]], object]:
    """Turn rows read so far into a partial `Catalogue` for `told`."""
    generation, below = record.generation, record.below

    def make(rows: Callable[[], pa.Table]) -> Catalogue:
        return Catalogue(generation, below, live(rows()), pa.array([], pa.int64()), whole=False)

    return lambda rows: told(partial(make, rows))


def _find_changes(
    connection: sqlite3.Connection, record: IndexRow, since: Generation
) -> npt.NDArray[np.int64]:
    """Return the ordinals that got a sketch after `since`."""
    parts = {name.partition("_")[0] for name in record.fields}
    found = [
        table_of(connection, record, part, since=since)["ordinal"].to_numpy() for part in parts
    ]
    return np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)


def _column(
    connection: sqlite3.Connection, record: IndexRow, name: str, ordinals: npt.NDArray[np.int64]
) -> pa.Array:
    """Return a SCALAR field or known flag of these ordinals (sorted); null if it is not written."""
    if name in record.fields and not is_scalar(TYPES[record.fields[name]]):
        raise StoreError(f"{name} is not a SCALAR field, and only those can be read here")
    rows = table_of(connection, record, name.partition("_")[0])
    if name not in rows.schema.names or name not in record.fields:
        return pa.nulls(len(ordinals))
    there = rows["ordinal"].to_numpy()
    at = np.searchsorted(there, ordinals)
    missing = np.append(there, -1)[at] != ordinals
    return rows[name].combine_chunks().take(pa.array(at, mask=missing))


def sketch_fields(
    connection: sqlite3.Connection,
    record: IndexRow,
    sketch: str,
    *,
    since: Generation | None = None,
    told: Told | None = None,
) -> Catalogue:
    """Return `ordinal` and the SCALAR fields of a sketch: of all entries, or those changed `since`.

    A TERMS field is the number of its terms.
    """
    gone = read_tombstones(connection, record)

    def live(rows: pa.Table) -> pa.Table:
        return _live(rows, gone).drop_columns("generation")

    telling = None if told is None else _telling(record, live, told)
    rows = live(table_of(connection, record, sketch, since=since, told=telling)).combine_chunks()
    removed: npt.NDArray[np.int64] = np.zeros(0, np.int64)
    if since is not None:
        removed = read_tombstones(connection, record, since=since)
    return Catalogue(record.generation, record.below, rows, pa.array(removed))
