"""Copy the present state of a store into another store, of the same or another type.

Queries can use a copy only after it was read back and compared: an SQLite file gets its name last;
in other stores, the definitions stay disabled until the copy is complete.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import pyarrow as pa

from providers.errors import NoStore, StoreError
from skipping.model.definition import Definition
from skipping.progress import progress
from skipping.stores import IndexStore
from skipping.stores.sqlite.store import SqliteStore


@dataclass(frozen=True, slots=True)
class CopyResult:
    """The number of indexes in a copy, and of entries in all of them."""

    indexes: int
    entries: int


def copy(source: IndexStore, target: IndexStore) -> CopyResult:
    """Copy every index that is not dropped.

    Raises StoreError if the target has indexes, if the source cannot be read completely, or if the
    copy, when it is read back, differs from the source.
    """
    if source.location == target.location:
        raise StoreError(f"{target.location} is the source of the copy: name another target")
    try:
        there = target.definitions()
    except NoStore:
        there = ()
    if there:
        names = ", ".join(sorted(each.value.name for each in there))
        raise StoreError(f"{target.location} has indexes already ({names}): name an empty target")
    if isinstance(target, SqliteStore):
        if isinstance(source, SqliteStore):
            with source.copy_to(target) as draft:
                return _verify(draft)
        with target.create_draft() as draft:
            return _copy_entries(source, draft)
    return _copy_entries(source, target)


def _copy_entries(source: IndexStore, target: IndexStore) -> CopyResult:
    """Copy entry by entry, from a store of another type."""
    live = [each for each in source.definitions() if not each.value.dropped]
    for each in live:
        if each.value.fault is not None:
            raise StoreError(
                f"the index of {each.value.name} cannot be copied: {each.value.fault}. "
                "Run DROP SKIPPING INDEX first"
            )
    total, written = 0, []
    for each in live:
        index = each.value.index
        state = source.state(index)
        before = source.catalogue(index)
        revision = target.define(replace(each.value, enabled=False), expect=None)
        target.reserve(index, before.below)
        digests = _Digest()
        with progress(len(before.files), "files", f"copy {each.value.name}") as bar:
            for part in source.entries(index):
                target.write(index, part, revision=revision)
                digests.add(part)
                bar.update(len(part))
        if source.catalogue(index).generation != before.generation:
            raise StoreError(f"the index of {each.value.name} changed during the copy: copy again")
        _compare(target, each.value, digests)
        total += digests.rows
        written.append((each, revision, state))
    for each, revision, state in written:
        last = target.define(each.value, expect=revision)
        same = state.revision == each.revision
        target.report(each.value.index, replace(state, revision=last if same else None))
    return CopyResult(len(written), total)


def _compare(target: IndexStore, definition: Definition, wanted: _Digest) -> None:
    found = _Digest()
    for part in target.entries(definition.index):
        found.add(part)
    if found.value != wanted.value:
        raise StoreError(
            f"the copy of the index of {definition.name} in {target.location} differs from what "
            "was written: drop it there, and copy again"
        )


def _verify(draft: SqliteStore) -> CopyResult:
    live = [each.value for each in draft.definitions() if not each.value.dropped]
    total = 0
    for definition in live:
        files, read = len(draft.catalogue(definition.index).files), 0
        with progress(files, "files", f"verify {definition.name}") as bar:
            for part in draft.entries(definition.index):  # which verifies their checksums
                bar.update(len(part))
                read += len(part)
        if read != files:
            raise StoreError(f"the copy {draft.location} lacks entries: copy again")
        total += read
    return CopyResult(len(live), total)


class _Digest:
    """A checksum of entries that ignores their order; lists are sets, an empty list is null."""

    def __init__(self) -> None:
        self.value = self.rows = 0

    def add(self, entries: pa.Table) -> None:
        for row in entries.to_pylist():
            fields = sorted(
                (name, sorted(set(value)) if isinstance(value, list) else value)
                for name, value in row.items()
                if value is not None and value != []
            )
            found = hashlib.blake2b(repr(fields).encode(), digest_size=8).digest()
            self.value = (self.value + int.from_bytes(found, "little")) & (2**64 - 1)
            self.rows += 1
