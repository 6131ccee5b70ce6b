"""Remove dropped indexes, and entries of files that no version of the table can read any more."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow.compute as pc

from skipping.model.definition import Definition, IndexId
from skipping.stores import IndexStore, find_identities, list_definitions
from skipping.tables import Table


def vacuum(store: IndexStore, table: Table, index: IndexId) -> int:
    """Remove entries of files that no live version of the table can read; return their number."""
    files = store.catalogue(index).files
    listed = table.files()
    candidates = files.filter(find_identities(files, listed).is_null())
    paths = candidates["path"].combine_chunks()
    # If only the path of an entry is listed, not its identity, the file was replaced.
    replaced = pc.is_in(paths, value_set=listed["path"].combine_chunks())
    gone = pc.or_(replaced, pc.invert(table.find_reachable(paths)))
    ordinals = candidates["ordinal"].combine_chunks().filter(gone)
    # Even without ordinals: the store then frees the space of earlier removals.
    store.remove(index, ordinals)
    return len(ordinals)


def erase_indexes(store: IndexStore, is_wanted: Callable[[Definition], bool]) -> int:
    """Erase dropped indexes for which `is_wanted` is true; return their number."""
    dropped = [d.value for d in list_definitions(store) if d.value.dropped and is_wanted(d.value)]
    for definition in dropped:
        store.erase(definition.index)
    return len(dropped)
