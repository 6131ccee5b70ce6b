"""Write entries into the parts of an index in an SQLite store, and read them back.

The table ``entry`` only maps identities to ordinals, so that each file gets one. Tests read the
parts (`fields`, `inverted_index`, `bit_slices`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from providers.errors import Damaged
from skipping.stores import IDENTITY, Generation, Identity, find_identities, identities
from skipping.stores.entries import TYPES, declare_fields, is_scalar, place_rows, portions, sketches
from skipping.stores.epochs import next_generation
from skipping.stores.sqlite.bit_slices import insert_bytes, sweep_bytes, values_of
from skipping.stores.sqlite.fields import (
    FILES,
    REMOVED,
    append,
    ordinals_of,
    replace_rows,
    table_of,
    take_values,
)
from skipping.stores.sqlite.index_rows import IndexRow
from skipping.stores.sqlite.inverted_index import insert_terms, postings_of, sweep_terms
from skipping.stores.sqlite.segments import Parts, delete_orphans

Numbers: TypeAlias = npt.NDArray[np.int64]

_VARIABLES = 500  # of one statement
_FILES = 4_096  # in a table of complete entries, or more if they have less than
_TOGETHER = 1 << 26  # bytes
_RECLAIMED = 1_024  # blocks of some 16 KB, and entries


@dataclass(frozen=True, slots=True)
class Placed:
    """The rows of a write that are stored: for new entries (`created`), and for existing ones.

    `below` is one more than the greatest ordinal that the index has ever had.
    """

    created: Numbers
    before: Numbers
    below: int


def add_entries(parts: Parts, entries: pa.Table) -> IndexRow:
    """Store new entries and missing sketches; return the record to save."""
    generation = next_generation(parts.record.generation)
    placed = _place(parts, entries, generation)
    return _store(parts, entries, placed, generation)


def add_sketches(parts: Parts, rows: pa.Table) -> IndexRow:
    """Store the missing sketches of existing entries; return the record to save.

    `rows` has the column `ordinal` and fields of sketches. Rows without an entry are ignored.
    """
    ordinals = rows["ordinal"].to_numpy()
    there = np.setdiff1d(ordinals_of(parts[FILES]), ordinals_of(parts[REMOVED]))
    before = np.flatnonzero(np.isin(ordinals, there))
    placed = Placed(np.zeros(0, np.int64), before, parts.record.below)
    return _store(parts, rows, placed, next_generation(parts.record.generation))


def _store(parts: Parts, entries: pa.Table, placed: Placed, generation: Generation) -> IndexRow:
    record = parts.record
    if _store_sketches(parts, entries, placed, generation) or len(placed.created):
        record = record.with_generation(generation)
    return replace(record, below=placed.below)


def remove_entries(parts: Parts, ordinals: pa.Array) -> IndexRow:
    """Remove entries; return the record to save."""
    record = parts.record
    # A dropped index has no parts any more; `reclaim` deletes the rest of it.
    if not record.dropped and len(gone := _take(parts, ordinals)):
        generation = next_generation(record.generation)
        append(parts[REMOVED], pa.table({"ordinal": gone}), generation)
        record = record.with_generation(generation)
        if _sweep(parts):
            record = replace(record, swept=generation)
    return record


def _find_entries(
    parts: Parts, column: str, values: Sequence[int | str]
) -> Iterator[tuple[int, Identity]]:
    """Yield ordinal and identity of the entries with one of these ordinals or paths."""
    # Without the hint SQLite scans all entries of the index.
    hint = " INDEXED BY entry_identity" if column == "path" else ""
    for start in range(0, len(values), _VARIABLES):
        some = values[start : start + _VARIABLES]
        places = ", ".join("?" * len(some))
        for ordinal, *identity in parts.connection.execute(
            f"SELECT ordinal, path, size, stamp FROM entry{hint}"
            f" WHERE index_ = ? AND {column} IN ({places})",
            (parts.record.id, *some),
        ):
            yield ordinal, tuple(identity)


def find_holders(parts: Parts, files: pa.Table) -> pa.Array:
    """Return the ordinal of each file (path, size, stamp), or null."""
    entries = _find_entries(parts, "path", files["path"].to_pylist())
    found = {identity: ordinal for ordinal, identity in entries}
    return pa.array([found.get(identity) for identity in identities(files)], pa.int64())


def _place(parts: Parts, entries: pa.Table, generation: Generation) -> Placed:
    """Create entries for new files.

    Raises StoreError for an ordinal that belongs to another file.
    """
    named, record = entries.select(IDENTITY.names), parts.record
    ordinals, files = entries["ordinal"].to_pylist(), list(identities(entries))
    used = [ordinal for ordinal in ordinals if ordinal < record.below]
    owners = dict(_find_entries(parts, "ordinal", used))
    holders = {i: o for o, i in _find_entries(parts, "path", entries["path"].to_pylist())}
    gone = set(np.intersect1d(ordinals_of(parts[REMOVED]), ordinals).tolist())
    rows = place_rows(ordinals, files, holders, owners, removed=gone, end=record.next)
    created = [row for row in rows if ordinals[row] not in owners]
    parts.connection.executemany(
        "INSERT INTO entry (index_, ordinal, path, size, stamp) VALUES (?, ?, ?, ?, ?)",
        ((record.id, ordinals[row], *files[row]) for row in created),
    )
    before = np.array([row for row in rows if ordinals[row] in owners], np.int64)
    new = named.take(pa.array(created, pa.int64())).combine_chunks().sort_by("ordinal")
    append(parts[FILES], new, generation)
    _compare(parts, named.take(pa.array(before)))
    below = 1 + new["ordinal"][-1].as_py() if len(new) else 0
    return Placed(np.array(created, np.int64), before, max(record.below, below))


def _compare(parts: Parts, entries: pa.Table) -> None:
    """Raise Damaged unless the part has the same identities: ``entry`` has no checksum."""
    if len(entries):
        files = table_of(parts[FILES])
        at = find_identities(entries, files)
        kept = files["ordinal"].combine_chunks().take(at)
        if not entries["ordinal"].combine_chunks().equals(kept):
            raise Damaged(
                f"the ordinals of index {parts.record.index} are damaged: create it again"
            )


def _take(parts: Parts, ordinals: pa.Array) -> Numbers:
    """Delete these ordinals from ``entry``; return those that existed, sorted."""
    there = sorted({o for o, _ in _find_entries(parts, "ordinal", ordinals.to_pylist())})
    parts.connection.executemany(
        "DELETE FROM entry WHERE index_ = ? AND ordinal = ?",
        ((parts.record.id, ordinal) for ordinal in there),
    )
    return np.array(there, np.int64)


def _store_sketches(
    parts: Parts, entries: pa.Table, placed: Placed, generation: Generation
) -> bool:
    """Store the sketches that entries do not have yet; return whether there was one."""
    parts.record.fields.update(declare_fields(parts.record.fields, entries))
    ordinals = entries["ordinal"].to_numpy()
    rows = np.sort(np.concatenate([placed.created, placed.before]))
    stored = False
    for sketch, names in sketches(entries.schema.names).items():
        there: Numbers = np.zeros(0, np.int64)
        if len(placed.before):
            there = ordinals_of(parts[sketch])
        comes = entries[names[0]].is_valid().to_numpy()
        fresh = rows[comes[rows] & ~np.isin(ordinals[rows], there)]
        stored |= bool(len(fresh))
        for some in portions(entries.select(["ordinal", *names]), fresh):
            _insert(parts, sketch, some.sort_by("ordinal"), generation)
    return stored


def _insert(parts: Parts, sketch: str, rows: pa.Table, generation: Generation) -> None:
    files = rows["ordinal"].to_numpy()
    scalars = {"ordinal": rows["ordinal"]}
    for name in rows.schema.names[1:]:
        values = rows[name].combine_chunks()
        if pa.types.is_list(values.type):
            counts = insert_terms(parts[name], generation, files, values)
            scalars[name] = pa.array(counts, pa.int64())
        elif is_scalar(values.type):
            scalars[name] = values
        else:
            insert_bytes(parts[name], generation, files, values)
    append(parts[sketch], pa.table(scalars), generation)


def _sweep(parts: Parts) -> bool:
    """Delete the data of removed files; return whether it did.

    Removed files are never reported, so their data is harmless. Rewriting all parts waits until
    more files were removed since the last sweep than are left.
    """
    record = parts.record
    (there,) = parts.connection.execute(
        "SELECT count(*) FROM entry WHERE index_ = ?", (record.id,)
    ).fetchone()
    if len(ordinals_of(parts[REMOVED], since=record.swept)) <= there:
        return False
    stay = np.setdiff1d(ordinals_of(parts[FILES]), ordinals_of(parts[REMOVED]))
    live = BitMap(stay.astype(np.uint32))
    for name in (FILES, *sketches(list(record.fields))):
        replace_rows(parts[name], stay)
    for name, spelled in record.fields.items():
        type = TYPES[spelled]
        if pa.types.is_list(type):
            sweep_terms(parts[name], term_type(type), live)
        elif not is_scalar(type):
            sweep_bytes(parts[name], live)
    return True


def term_type(type: pa.DataType) -> pa.DataType:
    """Return the stored type of terms: text is stored as bytes."""
    return pa.binary() if type.value_type == pa.string() else type.value_type


def reclaim(parts: Parts) -> bool:
    """Delete some MB that an index no longer uses; return whether more may be left."""
    record = parts.record
    left = delete_orphans(parts.connection, record, _RECLAIMED)
    if record.dropped:
        deleted = parts.connection.execute(
            "DELETE FROM entry WHERE index_ = ?1 AND ordinal IN"
            " (SELECT ordinal FROM entry WHERE index_ = ?1 LIMIT ?2)",
            (record.id, _RECLAIMED),
        ).rowcount
        left |= deleted == _RECLAIMED
    return left


def entries_of(parts: Parts, bytes: int) -> Iterator[pa.Table]:
    """Yield complete entries, sorted, a few thousand in a table; the index has `bytes` bytes."""
    gone = ordinals_of(parts[REMOVED])
    files = table_of(parts[FILES])
    # Each table reads all terms: with a million files, tables of 4,096 took an hour.
    most = max(_FILES, _TOGETHER * len(files) // (bytes + 1))
    for start in range(0, len(files), most):
        some = files.slice(start, most)
        some = some.filter(pa.array(~np.isin(some["ordinal"].to_numpy(), gone)))
        if len(some):
            yield _add_sketches(parts, some.select(IDENTITY.names))


def _add_sketches(parts: Parts, files: pa.Table) -> pa.Table:
    ordinals = files["ordinal"].to_numpy()
    for sketch, names in sketches(list(parts.record.fields)).items():
        rows = table_of(parts[sketch])
        for name in names:
            type = TYPES[parts.record.fields[name]]
            kept: pa.Array = pa.nulls(len(ordinals), type if is_scalar(type) else pa.int64())
            if name in rows.schema.names:
                kept = take_values(rows, name, ordinals)
            if pa.types.is_list(type):
                kept = _lists(parts, name, type, ordinals, kept)
            elif not is_scalar(type):
                kept = _values(parts, name, ordinals)
            files = files.append_column(name, kept)
    return files


def _lists(
    parts: Parts, name: str, type: pa.DataType, ordinals: Numbers, counts: pa.Array
) -> pa.Array:
    """Return the terms of each file, without order and duplicates."""
    found: list[pa.Array] = [pa.array([], term_type(type))]
    owners: list[Numbers] = [np.zeros(0, np.int64)]
    for postings in postings_of(parts[name], term_type(type)):
        terms, numbers = postings.pairs()
        at = np.searchsorted(ordinals, numbers)
        asked = np.append(ordinals, -1)[at] == numbers
        found.append(terms.filter(pa.array(asked)))
        owners.append(at[asked])
    owner = np.concatenate(owners)
    order = np.argsort(owner, kind="stable")
    lengths = np.bincount(owner, minlength=len(ordinals))
    if np.any(lengths != counts.fill_null(0).to_numpy()):
        raise parts[name].damage_error("has too many or too few terms: create it again")
    ends = pa.array(np.append(0, np.cumsum(lengths)).astype(np.int32))
    values = pa.concat_arrays(found).take(pa.array(order)).cast(type.value_type)
    return pa.ListArray.from_arrays(ends, values, type=type, mask=counts.is_null())


def _values(parts: Parts, name: str, ordinals: Numbers) -> pa.Array:
    found = {
        ordinal: value
        for numbers, values in values_of(parts[name], ordinals)
        for ordinal, value in zip(numbers.tolist(), values, strict=True)
    }
    return pa.array(map(found.get, ordinals.tolist()), pa.large_binary())
