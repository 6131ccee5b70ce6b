"""Add written rows to the entries of the store in memory."""

from __future__ import annotations

from collections.abc import Container

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from providers.errors import StoreError
from skipping.stores import IDENTITY, identities
from skipping.stores.entries import PORTION, place_rows, sketches, take_rows


def place_entries(
    base: pa.Table, entries: pa.Table, *, end: int, removed: Container[int]
) -> tuple[pa.Table, list[int], list[int]]:
    """Append the new entries; return all, each accepted row's place in them, and its row number.

    `end` and `removed` as in `place_rows`.
    """
    # Only entries with the ordinal or path of a row matter, and those are few.
    near = np.flatnonzero(
        np.isin(base["ordinal"].to_numpy(), entries["ordinal"].to_numpy())
        | pc.is_in(base["path"], value_set=entries["path"].combine_chunks()).to_numpy()
    )
    some = base.select(IDENTITY.names).take(pa.array(near))
    at = dict(zip(some["ordinal"].to_pylist(), near.tolist(), strict=True))
    owners = dict(zip(at, identities(some), strict=True))
    holders = {identity: ordinal for ordinal, identity in owners.items()}
    ordinals = entries["ordinal"].to_pylist()
    rows = place_rows(
        ordinals, list(identities(entries)), holders, owners, removed=removed, end=end
    )
    created = [row for row in rows if ordinals[row] not in owners]
    at |= {ordinals[row]: place for place, row in enumerate(created, len(base))}
    new = entries.select(IDENTITY.names).take(pa.array(created, pa.int64()))
    merged = pa.concat_tables([base, new], promote_options="default")
    return merged, [at[ordinals[row]] for row in rows], rows


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
