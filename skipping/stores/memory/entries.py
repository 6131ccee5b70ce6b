"""How the store in memory adds what is written to the entries that it has."""

from __future__ import annotations

from collections.abc import Container

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.errors import StoreError
from skipping.stores import IDENTITY
from skipping.stores.entries import sketches, take_rows

__all__ = ["fill_sketches", "place_entries"]


def place_entries(
    base: pa.Table, entries: pa.Table, *, end: int, removed: Container[int]
) -> tuple[pa.Table, list[int], list[int]]:
    """The entries with the new ones at the end, and which of them which row is about.

    `end` is the first ordinal that was not reserved, `removed` are ordinals that had an entry.
    """
    identities = list(zip(*(base[n].to_pylist() for n in IDENTITY.names[:4]), strict=True))
    at = {identity[0]: row for row, identity in enumerate(identities)}
    holder = {identity[1:]: identity[0] for identity in identities}
    created, places, rows = [], [], []
    incoming = zip(*(entries[name].to_pylist() for name in IDENTITY.names[:4]), strict=True)
    for row, identity in enumerate(incoming):
        ordinal = identity[0]
        if ordinal >= end:
            raise StoreError(f"ordinal {ordinal} was never reserved")
        held = holder.setdefault(identity[1:], ordinal)
        if held != ordinal:  # a race was lost
            continue
        if ordinal in removed:  # a straggler's: the file has to be offered anew
            del holder[identity[1:]]
            continue
        if ordinal not in at:
            at[ordinal] = len(identities)
            identities.append(identity)
            created.append(row)
        elif identities[at[ordinal]] != identity:
            raise StoreError(f"ordinal {ordinal} belongs to another file")
        places.append(at[ordinal])
        rows.append(row)
    new = entries.select(IDENTITY.names).take(pa.array(created, pa.int64()))
    return pa.concat_tables([base, new], promote_options="default"), places, rows


def fill_sketches(
    base: pa.Table, entries: pa.Table, places: list[int], rows: list[int]
) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
    """The entries with every sketch that was not there yet, and which entries were changed."""
    touched = np.zeros(len(base), np.bool_)
    to, source = np.array(places, np.int64), np.array(rows, np.int64)
    for names in sketches(entries.schema.names).values():
        there = np.zeros(len(base), np.bool_)
        if names[0] in base.schema.names:
            there = base[names[0]].is_valid().to_numpy()
        comes = entries[names[0]].is_valid().to_numpy()
        fresh = comes[source] & ~there[to]
        pick = np.arange(len(base))
        pick[to[fresh]] = len(base) + source[fresh]
        touched[to[fresh]] = True
        for name in names:
            new = entries[name]
            old = base[name] if name in base.schema.names else pa.nulls(len(base), new.type)
            if old.type != new.type:
                raise StoreError(f"{name} is of type {old.type}, not {new.type}")
            chunks = old.chunks if isinstance(old, pa.ChunkedArray) else [old]
            both = take_rows(pa.chunked_array([*chunks, *new.chunks], new.type), pa.array(pick))
            if name in base.schema.names:
                base = base.set_column(base.schema.get_field_index(name), name, both)
            else:
                base = base.append_column(name, both)
    return base, touched
