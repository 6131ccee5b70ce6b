"""Write entries into the parts of an index in an SQLite store, and read them back.

Tests read the parts (`fields`, `inverted_index`, `bit_slices`). Only writes read the part of the
identities' hashes, so that each file gets one ordinal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from skipping.stores import IDENTITY, Generation, find_identities, identities, identity_keys
from skipping.stores.entries import TYPES, declare_fields, is_scalar, place_rows, portions, sketches
from skipping.stores.epochs import next_generation
from skipping.stores.sqlite.bit_slices import insert_bytes, sweep_bytes, values_of
from skipping.stores.sqlite.fields import (
    FILES,
    HASHES,
    REMOVED,
    append,
    ordinals_of,
    replace_rows,
    table_of,
    take_values,
)
from skipping.stores.sqlite.index_rows import IndexRow
from skipping.stores.sqlite.inverted_index import (
    insert_terms,
    match_keys,
    postings_of,
    sweep_terms,
)
from skipping.stores.sqlite.segments import Parts, delete_orphans

Numbers: TypeAlias = npt.NDArray[np.int64]

_FILES = 4_096  # in a table of complete entries, or more if they have less than
_TOGETHER = 1 << 26  # bytes
_RECLAIMED = 1_024  # blocks of some 16 KB


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
    before = np.flatnonzero(np.isin(ordinals, _live_ordinals(parts)))
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
    there = _live_ordinals(parts)
    if not record.dropped and len(gone := np.intersect1d(there, ordinals)):
        generation = next_generation(record.generation)
        append(parts[REMOVED], pa.table({"ordinal": gone}), generation)
        record = record.with_generation(generation)
        if _sweep(parts, stay=np.setdiff1d(there, gone)):
            record = replace(record, swept=generation)
    return record


def find_holders(parts: Parts, files: pa.Table) -> pa.Array:
    """Return the ordinal of each file (path, size, stamp), or null."""
    there = _entries_at(parts, _candidates(parts, _hashes(files)))
    return there["ordinal"].combine_chunks().take(find_identities(files, there))


def _hashes(files: pa.Table) -> Numbers:
    """Return a number for each identity; few identities have equal numbers."""
    keys = identity_keys(files).cast(pa.large_binary()).to_pylist()
    return np.frombuffer(b"".join(blake2b(key, digest_size=8).digest() for key in keys), "<i8")


def _candidates(parts: Parts, hashes: Numbers) -> Numbers:
    """Return the ordinals of the entries with one of these hashes."""
    found = match_keys(parts[HASHES], pa.int64(), pa.array(hashes), lambda: None)
    return np.concatenate([np.zeros(0, np.int64), *found])


def _entries_at(parts: Parts, ordinals: Numbers) -> pa.Table:
    """Return the identities of the entries with one of these ordinals."""
    if not len(ordinals):  # as for new files: reading the identities of all files takes long
        return IDENTITY.empty_table()
    files = table_of(parts[FILES])
    there = files["ordinal"].to_numpy()
    rows = np.isin(there, ordinals) & ~np.isin(there, ordinals_of(parts[REMOVED]))
    return files.filter(pa.array(rows))


def _place(parts: Parts, entries: pa.Table, generation: Generation) -> Placed:
    """Create entries for new files.

    Raises StoreError for an ordinal that belongs to another file.
    """
    named, record = entries.select(IDENTITY.names), parts.record
    ordinals, hashes = entries["ordinal"].to_numpy(), _hashes(entries)
    used = ordinals[ordinals < record.below]
    there = _entries_at(parts, np.concatenate([_candidates(parts, hashes), used]))
    is_new = not len(there) and not len(used) and len(np.unique(hashes)) == len(hashes)
    if is_new and ordinals.max(initial=-1) < record.next:
        placed = np.arange(len(entries))
    else:
        owners = dict(zip(there["ordinal"].to_pylist(), identities(there), strict=True))
        rows = place_rows(
            ordinals.tolist(),
            list(identities(entries)),
            {identity: ordinal for ordinal, identity in owners.items()},
            owners,
            removed=set(np.intersect1d(ordinals_of(parts[REMOVED]), used).tolist()),
            end=record.next,
        )
        placed = np.array(rows, np.int64)
    is_old = np.isin(ordinals[placed], there["ordinal"].to_numpy())
    created = placed[~is_old]
    created = created[np.argsort(ordinals[created])]
    append(parts[FILES], named.take(pa.array(created)), generation)
    ends = pa.array(np.arange(len(created) + 1, dtype=np.int32))
    lists = pa.ListArray.from_arrays(ends, pa.array(hashes[created]))
    insert_terms(parts[HASHES], generation, ordinals[created], lists)
    below = 1 + ordinals[created].max(initial=-1)
    return Placed(created, placed[is_old], max(record.below, int(below)))


def _live_ordinals(parts: Parts) -> Numbers:
    return np.setdiff1d(ordinals_of(parts[FILES]), ordinals_of(parts[REMOVED]))


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


def _sweep(parts: Parts, *, stay: Numbers) -> bool:
    """Delete the data of removed files, so that those in `stay` are left; return whether it did.

    Removed files are never reported, so their data is harmless. Rewriting all parts waits until
    more files were removed since the last sweep than are left.
    """
    record = parts.record
    if len(ordinals_of(parts[REMOVED], since=record.swept)) <= len(stay):
        return False
    live = BitMap(stay.astype(np.uint32))
    for name in (FILES, *sketches(list(record.fields))):
        replace_rows(parts[name], stay)
    sweep_terms(parts[HASHES], pa.int64(), live)
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
    return delete_orphans(parts.connection, parts.record, _RECLAIMED)


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
