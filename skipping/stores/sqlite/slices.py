"""BYTES fields of an SQLite store read whole, to be kept on the driver (`slices`)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from providers.index_predicate import BitsSet
from skipping.stores.slices import Block, Slices, block_of, gathered
from skipping.stores.sqlite.bytes import meeting, read_groups, turned_values
from skipping.stores.sqlite.fields import removed_of, sketch_fields
from skipping.stores.sqlite.heads import Head

__all__ = ["read_slices"]


def read_slices(
    connection: sqlite3.Connection,
    head: Head,
    test: BitsSet,
    kept: Slices | None,
    *,
    most: int,
    in_time: Callable[[], object] = lambda: None,
) -> Slices:
    """The values of all files whose sketch is known; what is `kept` is brought up to the head.

    Raises TooLarge for more than `most` bytes.
    """
    since = None if kept is None else kept.generation
    rows = sketch_fields(connection, head, test.sketch, since=since).files
    names = [f"{test.sketch}_known", f"{test.sketch}_{test.layout}"]
    found: Iterator[Block] = iter(())
    if set(names) <= set(rows.schema.names):  # else nobody gave a value
        rows = rows.filter(pc.and_(pc.fill_null(rows[names[0]], False), rows[names[1]].is_valid()))
        found = _blocks(connection, head, test, rows.combine_chunks(), since or 0, in_time)
    read = gathered(head.generation, found, most=most)
    if kept is None:
        return read
    return kept.after(read, removed_of(connection, head, since=since).tolist())


def _blocks(
    connection: sqlite3.Connection,
    head: Head,
    test: BitsSet,
    rows: pa.Table,
    since: int,
    in_time: Callable[[], object],
) -> Iterator[Block]:
    ordinals = rows["ordinal"].to_numpy()
    layouts = rows[f"{test.sketch}_{test.layout}"].to_numpy()
    for group in read_groups(connection, head, f"{test.sketch}_{test.field}"):
        in_time()
        at, places = meeting(ordinals, group.ordinals)
        if group.run.generation <= since or not len(at):
            continue
        turned = turned_values(connection, group)
        for layout in np.unique(layouts[at]).tolist():
            mine = layouts[at] == layout
            yield block_of(layout, ordinals[at[mine]], turned[:, places[mine]])
