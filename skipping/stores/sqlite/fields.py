"""Identities and SCALAR fields in an SQLite store, as runs of Arrow tables.

Besides its columns, each row has the `ordinal` of the file and its own `generation`. The part of a
sketch has no row for a file whose known flag is null (docs/sqlite-format.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from providers.errors import StoreError
from skipping.stores import IDENTITY, Catalogue, Generation, OnProgress
from skipping.stores.entries import TYPES, compact, is_scalar
from skipping.stores.sqlite.index_rows import IndexRow
from skipping.stores.sqlite.segments import Part, Parts, Run, small_runs
from skipping.stores.untrusted import read_stream

FILES, HASHES, REMOVED = "files", "hashes", "removed"
"""The parts of every index."""

_ROWS = 1 << 14  # in a block
_MOST = 1 << 13  # rows above which a run is not merged


def append(part: Part, rows: pa.Table, generation: Generation) -> None:
    """Add rows to a part, with this generation."""
    if not len(rows):
        return
    rows = rows.append_column("generation", pa.array(np.full(len(rows), generation)))
    old = small_runs(part.runs(), len(rows), most=_MOST)
    tables = [table for run in old for table in _read(part, run)]
    for run in old:
        part.delete(run)
    _add(part, pa.concat_tables([*tables, rows], promote_options="default"))


def replace_rows(part: Part, stay: npt.NDArray[np.int64]) -> None:
    """Keep only the rows of these ordinals."""
    rows = table_of(part)
    kept = rows.filter(pa.array(np.isin(rows["ordinal"].to_numpy(), stay)))
    if len(kept) < len(rows):
        for run in part.runs():
            part.delete(run)
        _add(part, kept)


def _add(part: Part, rows: pa.Table) -> None:
    packed = []
    rows = compact(rows)  # one message, even for rows from many small writes
    for start in range(0, len(rows), _ROWS):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows.slice(start, _ROWS))
        packed.append(sink.getvalue().to_pybytes())
    if packed:
        part.add(packed, generation=pc.max(rows["generation"]).as_py(), items=len(rows))


def _read(part: Part, run: Run) -> Iterator[pa.Table]:
    # Blocks are not compressed: one that unpacks to more bytes is forged.
    return (read_stream(data, most=len(data)) for _, data in part.blocks(run))


def table_of(
    part: Part,
    *,
    since: Generation | None = None,
    on_progress: Callable[[Callable[[], pa.Table]], object] | None = None,
) -> pa.Table:
    """Return the rows of a part sorted by ordinal: all, or those written after `since`.

    `on_progress` receives a function that returns the rows read so far. Raises Damaged for a
    duplicate ordinal.
    """
    after = -1 if since is None else since
    found: list[pa.Table] = []
    for run in part.runs():
        if run.generation <= after:
            continue
        for table in _read(part, run):
            found.append(table)
            if on_progress is not None:
                on_progress(partial(_sort_rows, part, tuple(found)))
    rows = _sort_rows(part, found)
    return rows if since is None else rows.filter(pc.greater(rows["generation"], since))


def _sort_rows(part: Part, found: Sequence[pa.Table]) -> pa.Table:
    if not found:
        return pa.table({name: pa.array([], pa.int64()) for name in ("ordinal", "generation")})
    rows = pa.concat_tables(found, promote_options="default")
    if rows["ordinal"].null_count or rows["generation"].null_count:
        raise part.damage_error("has a row without ordinal: create it again")
    ordinals = rows["ordinal"].to_numpy()
    if np.any(ordinals[1:] <= ordinals[:-1]):
        rows = rows.sort_by("ordinal")
        ordinals = rows["ordinal"].to_numpy()
        if np.any(ordinals[1:] == ordinals[:-1]):
            raise part.damage_error("has an ordinal twice: create it again")
    return rows


def ordinals_of(part: Part, *, since: Generation | None = None) -> npt.NDArray[np.int64]:
    """Return the ordinals in a part, sorted: all, or those written after `since`."""
    found: npt.NDArray[np.int64] = table_of(part, since=since)["ordinal"].to_numpy()
    return found


def _live(rows: pa.Table, gone: npt.NDArray[np.int64]) -> pa.Table:
    if not len(gone):
        return rows
    return rows.filter(pa.array(~np.isin(rows["ordinal"].to_numpy(), gone)))


def catalogue(
    parts: Parts,
    *,
    since: Generation | None,
    fields: Sequence[str],
    on_progress: OnProgress | None = None,
) -> Catalogue:
    """Return the entries; see `IndexStore.catalogue`."""
    record, gone = parts.record, ordinals_of(parts[REMOVED])

    def live(rows: pa.Table) -> pa.Table:
        return _live(rows, gone).select(IDENTITY.names)

    files, removed = IDENTITY.empty_table(), pa.array([], pa.int64())
    if since is None or since != record.generation:
        reporting = None if fields else _report_entries(record, live, on_progress)
        rows = table_of(parts[FILES], since=since, on_progress=reporting)
        if since is not None:
            removed = pa.array(ordinals_of(parts[REMOVED], since=since))
            came = rows["ordinal"].to_numpy()
            sketches = {name.partition("_")[0] for name in record.fields}
            changed = [came, *(ordinals_of(parts[name], since=since) for name in sketches)]
            touched = np.unique(np.concatenate(changed))
            if len(touched) > len(came):
                rows = table_of(parts[FILES])
                rows = rows.filter(pa.array(np.isin(rows["ordinal"].to_numpy(), touched)))
        if len(rows):
            files = live(rows).combine_chunks()
    ordinals = files["ordinal"].to_numpy()
    for name in fields:
        files = files.append_column(name, _column(parts, name, ordinals))
    return Catalogue(record.generation, record.below, files, removed)


def _report_entries(
    record: IndexRow, live: Callable[[pa.Table], pa.Table], on_progress: OnProgress | None
) -> Callable[[Callable[[], pa.Table]], object] | None:
    """Turn rows read so far into a partial `Catalogue` for `on_progress`."""
    if on_progress is None:
        return None
    generation, below = record.generation, record.below

    def make(rows: Callable[[], pa.Table]) -> Catalogue:
        return Catalogue(generation, below, live(rows()), pa.array([], pa.int64()), whole=False)

    return lambda rows: on_progress(partial(make, rows))


def _column(parts: Parts, name: str, ordinals: npt.NDArray[np.int64]) -> pa.Array:
    """Return a SCALAR field or known flag of these ordinals (sorted); null if it is not written."""
    stored = parts.record.fields.get(name)
    if stored is not None and not is_scalar(TYPES[stored]):
        raise StoreError(f"{name} is not a SCALAR field: only these can be read here")
    rows = table_of(parts[name.partition("_")[0]])
    if stored is None or name not in rows.schema.names:
        return pa.nulls(len(ordinals))
    return take_values(rows, name, ordinals)


def take_values(rows: pa.Table, name: str, ordinals: npt.NDArray[np.int64]) -> pa.Array:
    """Return the values of these ordinals from rows sorted by ordinal; null for missing ones."""
    there = rows["ordinal"].to_numpy()
    at = np.searchsorted(there, ordinals)
    missing = np.append(there, -1)[at] != ordinals
    return rows[name].combine_chunks().take(pa.array(at, mask=missing))


def sketch_fields(
    parts: Parts,
    sketch: str,
    *,
    since: Generation | None = None,
    on_progress: OnProgress | None = None,
) -> Catalogue:
    """Return `ordinal` and the SCALAR fields of a sketch: of all entries, or those changed `since`.

    A TERMS field is returned as its number of terms.
    """
    record, gone = parts.record, ordinals_of(parts[REMOVED])

    def live(rows: pa.Table) -> pa.Table:
        return _live(rows, gone).drop_columns("generation")

    reporting = _report_entries(record, live, on_progress)
    rows = live(table_of(parts[sketch], since=since, on_progress=reporting)).combine_chunks()
    removed = np.zeros(0, np.int64) if since is None else ordinals_of(parts[REMOVED], since=since)
    return Catalogue(record.generation, record.below, rows, pa.array(removed))
