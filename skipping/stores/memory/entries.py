"""Add written rows to the entries of the store in memory."""

from __future__ import annotations

from collections.abc import Container

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from providers.errors import StoreError
from skipping.stores import IDENTITY
from skipping.stores.entries import PORTION, sketches, take_rows


def place_entries(
    base: pa.Table, entries: pa.Table, *, end: int, removed: Container[int]
) -> tuple[pa.Table, list[int], list[int]]:
    """Append the new entries; return all entries, and for each accepted row its place and number.

    `end` is the first ordinal that is not reserved; `removed` are ordinals that had an entry.
    """
    # Only entries with the ordinal or path of a row matter, and those are few.
    near = np.flatnonzero(
        np.isin(base["ordinal"].to_numpy(), entries["ordinal"].to_numpy())
        | pc.is_in(base["path"], value_set=entries["path"].combine_chunks()).to_numpy()
    )
    some = base.select(IDENTITY.names[:4]).take(pa.array(near))
    found = list(zip(*(some[n].to_pylist() for n in IDENTITY.names[:4]), strict=True))
    at = {identity[0]: row for row, identity in zip(near.tolist(), found, strict=True)}
    held_by = {identity[0]: identity for identity in found}
    holder = {identity[1:]: identity[0] for identity in found}
    created: list[int] = []
    places: list[int] = []
    rows: list[int] = []
    incoming = zip(*(entries[name].to_pylist() for name in IDENTITY.names[:4]), strict=True)
    for row, identity in enumerate(incoming):
        ordinal = identity[0]
        if ordinal >= end:
            raise StoreError(f"ordinal {ordinal} was never reserved")
        held = holder.setdefault(identity[1:], ordinal)
        if held != ordinal:  # a race was lost
            continue
        if ordinal in removed:  # from a late writer: the file has to be written again
            del holder[identity[1:]]
            continue
        if ordinal not in at:
            at[ordinal] = len(base) + len(created)
            held_by[ordinal] = identity
            created.append(row)
        elif held_by[ordinal] != identity:
            raise StoreError(f"ordinal {ordinal} belongs to another file")
        places.append(at[ordinal])
        rows.append(row)
    new = entries.select(IDENTITY.names).take(pa.array(created, pa.int64()))
    return pa.concat_tables([base, new], promote_options="default"), places, rows


def fill_sketches(
    base: pa.Table, entries: pa.Table, places: list[int], rows: list[int], *, old: int
) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
    """Add the missing sketches; return the entries, and a mask of those that changed.

    The first `old` entries existed before. If none of them changes, they are not copied.
    """
    touched = np.zeros(len(base), np.bool_)
    to, source = np.array(places, np.int64), np.array(rows, np.int64)
    for names in sketches(entries.schema.names).values():
        has = np.zeros(len(base), np.bool_)
        if names[0] in base.schema.names:
            has = base[names[0]].is_valid().to_numpy()
        comes = entries[names[0]].is_valid().to_numpy()
        fresh = comes[source] & ~has[to]
        pick = np.arange(len(base))
        pick[to[fresh]] = len(base) + source[fresh]
        touched[to[fresh]] = True
        for name in names:
            new = entries[name]
            there = pa.chunked_array([pa.nulls(len(base), new.type)])
            if name in base.schema.names:
                there = base[name]
            if there.type != new.type:
                raise StoreError(f"{name} has type {there.type}, not {new.type}")
            start = 0 if touched[:old].any() else old
            both = pa.chunked_array([*there.chunks, *new.chunks], new.type)
            both = take_rows(both.slice(start), pa.array(pick[start:] - start))
            both = pa.chunked_array([*there.slice(0, start).chunks, *both.chunks], new.type)
            if name in base.schema.names:
                base = base.set_column(base.schema.get_field_index(name), name, both)
            else:
                base = base.append_column(name, both)
    return base, touched


def merge_chunks(entries: pa.Table) -> pa.Table:
    """Merge chunks of up to PORTION, so that each is larger than all later ones together."""
    batches = entries.to_batches()
    while len(batches) > 1 and len(batches[-2]) <= len(batches[-1]):
        both = pa.Table.from_batches(batches[-2:])
        if both.nbytes > PORTION:
            break
        batches[-2:] = both.combine_chunks().to_batches()
    return pa.Table.from_batches(batches, entries.schema)
