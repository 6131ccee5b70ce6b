"""The embedded store: one SQLite file for the threads and processes of one host.

Every operation opens and closes the file, so no lock stays between operations and a deleted file is
noticed. Writers wait for each other, readers never wait for a writer (WAL).
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyroaring import BitMap

from providers.errors import Damaged, StoreError
from providers.index_predicate import Test
from skipping.model.definition import Definition, IndexId, Revision, Versioned
from skipping.progress import progress
from skipping.stores import Catalogue, Generation, Told
from skipping.stores.entries import check_entries
from skipping.stores.epochs import next_generation, rewound_error
from skipping.stores.fields import KEPT, Fields, apply_change
from skipping.stores.index_record import RecordStore
from skipping.stores.sqlite import index_rows
from skipping.stores.sqlite.entries import (
    entries_of,
    find_holders,
    place,
    reclaim,
    store_sketches,
    sweep,
    take,
)
from skipping.stores.sqlite.evaluate import Snapshot
from skipping.stores.sqlite.fields import REMOVED, append, catalogue, read_tombstones, sketch_fields
from skipping.stores.sqlite.index_rows import IndexRow, read_record
from skipping.stores.sqlite.schema import copy_into, create, draft_store, open_connection, shrink
from skipping.stores.sqlite.segments import count_bytes

_log = logging.getLogger(__name__)
_PATIENCE = 30.0
_RECLAIMING = 10.0  # seconds that a call spends on shrinking the file, after its own work


class SqliteStore(RecordStore[IndexRow]):
    """An `IndexStore` in one file, which the first `define` of a new index creates.

    `patience` is the time to wait for a lock of another process, in seconds; `kept` limits the
    cache of fields, in bytes.

    >>> SqliteStore("/tmp/not there.db").definitions()
    Traceback (most recent call last):
    providers.errors.NoStore: the store /tmp/not there.db is not there: create the index again
    """

    def __init__(self, path: str | Path, *, patience: float = _PATIENCE, kept: int = KEPT) -> None:
        self._path = Path(path).absolute()
        self._patience = patience
        self._fields = Fields(kept)

    def __reduce__(self) -> tuple[object, ...]:
        return _store, (self._path, self._patience, self._fields.most)

    @property
    def location(self) -> str:
        """`sqlite:` and the absolute path."""
        return f"sqlite:{self._path}"

    def definitions(self, *, timeout: float | None = None) -> Sequence[Versioned[Definition]]:
        """Return every definition; see `IndexStore`."""
        with self._reading(wait=timeout) as connection:
            rows = index_rows.list_records(connection)
        found = tuple(
            row.versioned
            if isinstance(row, IndexRow)
            else Versioned(Definition.unreadable(row[0], str(row[1])), 0)
            for row in rows
        )
        self._fields.retain({each.value.index for each in found if not each.value.dropped})
        return found

    def definition(
        self, index: IndexId, *, timeout: float | None = None
    ) -> Versioned[Definition] | None:
        """Return the definition of an index; see `IndexStore`."""
        with self._reading(wait=timeout) as connection:
            try:
                record = index_rows.find_record(connection, index)
            except Damaged as error:
                return Versioned(Definition.unreadable(index, str(error)), 0)
        return None if record is None else record.versioned

    def define(self, definition: Definition, *, expect: Revision | None) -> Revision:
        """Write a definition if its revision still is `expect`; see `IndexStore`."""
        if expect is None and not self._path.exists():
            create(self._path)
        with self._writing() as connection:
            revision = index_rows.define(connection, definition, expect)
        if expect is not None:
            self._reclaim(definition.index)
        else:
            self._fields.drop(definition.index)  # of a file that was deleted
        return revision

    def _read(self, index: IndexId, *, timeout: float | None = None) -> IndexRow:
        with self._reading(wait=timeout) as connection:
            return read_record(connection, index)

    def _update(
        self,
        index: IndexId,
        change: Callable[[IndexRow], IndexRow],
        *,
        timeout: float | None = None,
    ) -> IndexRow:
        with self._writing(wait=timeout) as connection:
            record = change(read_record(connection, index))
            index_rows.save(connection, record)
            return record

    def write(
        self,
        index: IndexId,
        entries: pa.Table,
        *,
        revision: Revision,
        token: int | None = None,
    ) -> None:
        """Add entries and sketches, all or nothing; see `IndexStore`."""
        entries = check_entries(entries)
        with self._writing() as connection:
            record = read_record(connection, index)
            record.require_writable(revision, token)
            ordinals = entries["ordinal"].to_numpy()
            if len(ordinals) and ordinals.max() >= record.next:
                raise StoreError(f"ordinal {ordinals.max()} was never reserved")
            generation = next_generation(record.generation)
            placed = place(connection, record, entries, generation)
            stored = store_sketches(connection, record, entries, placed, generation)
            if stored or len(placed.created):
                record = record.with_generation(generation)
            index_rows.save(connection, replace(record, below=placed.below))

    def remove(self, index: IndexId, ordinals: pa.Array) -> None:
        """Remove entries; ignore ordinals without an entry."""
        with self._writing() as connection:
            record = read_record(connection, index)
            # A dropped index has no parts any more; `reclaim` deletes the rest of it.
            if not record.dropped and len(gone := take(connection, record, ordinals)):
                generation = next_generation(record.generation)
                append(connection, record, REMOVED, pa.table({"ordinal": gone}), generation)
                record = record.with_generation(generation)
                if sweep(connection, record, read_tombstones(connection, record)):
                    record = replace(record, swept=generation)
                index_rows.save(connection, record)
        self._reclaim(index)

    def erase(self, index: IndexId) -> None:
        """Delete a dropped index; raise StoreError while it is live."""
        with self._writing() as connection:
            record = read_record(connection, index, erased=True)
            index_rows.save(connection, replace(record.with_nothing(), fields={}, sums={}))
        self._fields.drop(index)
        self._reclaim(index)

    def _reclaim(self, index: IndexId) -> None:
        """Shrink the file by what was deleted, some MB at a time so that others can write.

        The next call continues with the rest. Errors are logged: the change itself is committed.
        """
        until, wait, left = time.monotonic() + _RECLAIMING, min(1.0, self._patience), True
        try:
            while left and time.monotonic() < until:
                with open_connection(self._path, wait=wait, write=True) as connection:
                    left = reclaim(connection, read_record(connection, index, erased=True))
                    connection.execute("COMMIT")
                    left |= shrink(connection)
        except StoreError as error:
            _log.info("store=%s index=%s space not given back yet: %s", self._path, index, error)

    def catalogue(
        self,
        index: IndexId,
        *,
        since: Generation | None = None,
        fields: Sequence[str] = (),
        timeout: float | None = None,
        told: Told | None = None,
    ) -> Catalogue:
        """Return the entries sorted by ordinal, or those changed after `since`."""
        with self._reading(wait=timeout) as connection:
            if told is not None:
                connection.set_progress_handler(None, 0)  # no caller waits for all of it
            record = read_record(connection, index)
            if since is not None and not record.has_been(since):
                raise rewound_error(self.location, index)
            return catalogue(connection, record, since=since, fields=fields, told=told)

    def size(self, index: IndexId) -> int | None:
        """Return the bytes of the blocks and of the file names."""
        with self._reading() as connection:
            return count_bytes(connection, read_record(connection, index).id)

    def ordinals(self, index: IndexId, files: pa.Table) -> pa.Array:
        """Return the ordinal of each file, or null."""
        with self._reading() as connection:
            return find_holders(connection, read_record(connection, index), files)

    def entries(self, index: IndexId) -> Iterator[pa.Table]:
        """Yield all entries with all their sketches."""
        with self._reading() as connection:
            record = read_record(connection, index)
            bytes = count_bytes(connection, record.id)  # a forged file has endless rows
            connection.set_progress_handler(None, 0)  # it takes as long as it takes
            yield from entries_of(connection, record, bytes)

    def find_prunable(
        self,
        index: IndexId,
        tests: Sequence[Test],
        *,
        below: int,
        timeout: float,
        generation: Generation | None = None,
    ) -> Sequence[BitMap]:
        """Return for each test the ordinals that it prunes; see `IndexStore`."""
        deadline = time.monotonic() + timeout
        held = {test.sketch: self._load_fields(index, test.sketch, deadline) for test in tests}
        with self._reading(wait=deadline - time.monotonic()) as connection:
            record = read_record(connection, index)
            if generation is not None and not record.has_been(generation):
                raise rewound_error(self.location, index)
            for sketch, kept in held.items():
                if kept is not None and kept.generation != record.generation:
                    # Partial fields are updated once they are complete.
                    held[sketch] = (
                        self._newest(connection, record, sketch, kept) if kept.whole else None
                    )
            snapshot = Snapshot(connection, record, held, below=below, deadline=deadline)
            return [snapshot.find_prunable(test) for test in tests]

    def _load_fields(self, index: IndexId, sketch: str, deadline: float) -> Catalogue | None:
        """Return the fields of a sketch, current or older; partial ones if reading is slow."""

        def on_progress(partial: Callable[[], Catalogue]) -> None:
            self._fields.tell(index, sketch, partial)

        def read() -> Catalogue:
            with self._reading() as connection:
                connection.set_progress_handler(None, 0)  # nobody waits for all of it
                return sketch_fields(
                    connection, read_record(connection, index), sketch, told=on_progress
                )

        held = self._fields.get(index, sketch, Catalogue)
        return held or self._fields.load(index, sketch, read, deadline=deadline)

    def _newest(
        self, connection: sqlite3.Connection, record: IndexRow, sketch: str, kept: Catalogue
    ) -> Catalogue:
        """Update cached fields to what a transaction sees."""
        if record.has_been(kept.generation):
            change = sketch_fields(connection, record, sketch, since=kept.generation)
            newest = apply_change(kept, change)
        else:
            self._fields.drop(record.index)
            newest = sketch_fields(connection, record, sketch)
        self._fields.keep(record.index, sketch, newest)
        return newest

    @contextmanager
    def copy_to(self, target: SqliteStore) -> Iterator[SqliteStore]:
        """Copy the store as it is now; the copy becomes `target` at the end."""
        with target.create_draft() as draft:
            with (
                open_connection(self._path, wait=self._patience) as connection,
                progress(None, "pages", "copy") as bar,
            ):

                def on_step(status: int, left: int, total: int) -> None:
                    bar.total = total
                    bar.update(total - left - bar.n)

                connection.set_progress_handler(None, 0)  # it takes as long as it takes
                copy_into(draft._path, connection, on_step)
            yield draft

    @contextmanager
    def create_draft(self) -> Iterator[SqliteStore]:
        """Create an empty store that becomes this one at the end, unless an error occurs."""
        with draft_store(self._path) as draft:
            yield SqliteStore(draft, patience=self._patience, kept=self._fields.most)

    @contextmanager
    def _reading(self, *, wait: float | None = None) -> Iterator[sqlite3.Connection]:
        with open_connection(
            self._path, wait=self._patience if wait is None else wait
        ) as connection:
            yield connection

    @contextmanager
    def _writing(self, *, wait: float | None = None) -> Iterator[sqlite3.Connection]:
        with open_connection(
            self._path, wait=self._patience if wait is None else wait, write=True
        ) as connection:
            yield connection
            connection.execute("COMMIT")


def _store(path: Path, patience: float, kept: int) -> SqliteStore:
    return SqliteStore(path, patience=patience, kept=kept)
