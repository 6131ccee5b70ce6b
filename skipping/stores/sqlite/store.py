"""The embedded store: one SQLite file for the threads and processes of one host.

Every operation opens and closes the file, so no lock stays between operations and a deleted file is
noticed. Writers wait for each other, readers never wait for a writer (WAL).
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyroaring import BitMap

from providers.errors import Damaged, StoreError
from providers.index_predicate import Test
from skipping.model.definition import Definition, IndexId, Revision, TableId, Versioned
from skipping.model.workload import (
    LONGEST,
    MOST_RECORDS,
    WorkloadRecord,
    list_old_keys,
    parse_records,
)
from skipping.progress import progress
from skipping.stores import Catalogue, Generation, OnProgress
from skipping.stores.entries import check_entries
from skipping.stores.fields import KEPT, Fields, apply_change
from skipping.stores.index_record import RecordStore
from skipping.stores.sqlite import index_rows
from skipping.stores.sqlite.entries import (
    add_entries,
    entries_of,
    find_holders,
    reclaim,
    remove_entries,
)
from skipping.stores.sqlite.evaluate import Snapshot
from skipping.stores.sqlite.fields import catalogue, sketch_fields
from skipping.stores.sqlite.index_rows import IndexRow, read_record
from skipping.stores.sqlite.schema import copy_into, create, draft_store, open_connection, shrink
from skipping.stores.sqlite.segments import Parts, count_bytes

_log = logging.getLogger(__name__)
_PATIENCE = 30.0
_RECLAIMING = 10.0  # seconds that a call spends on shrinking the file, after its own work


class SqliteStore(RecordStore[IndexRow]):
    """An `IndexStore` in one file, which the first `define` of a new index creates.

    `patience` is the time to wait for a lock of another process, in seconds; `kept` limits the
    cache of fields, in bytes.

    >>> SqliteStore("/tmp/not there.db").definitions()
    Traceback (most recent call last):
    providers.errors.NoStore: no indexes: the store /tmp/not there.db does not exist
    """

    def __init__(self, path: str | Path, *, patience: float = _PATIENCE, kept: int = KEPT) -> None:
        self._path = Path(path).absolute()
        self._patience = patience
        self._fields = Fields(kept)

    def __reduce__(self) -> tuple[object, ...]:
        make = partial(SqliteStore, patience=self._patience, kept=self._fields.most)
        return make, (self._path,)

    @property
    def location(self) -> str:
        """`sqlite:` and the absolute path."""
        return f"sqlite:{self._path}"

    def definitions(self, *, timeout: float | None = None) -> Sequence[Versioned[Definition]]:
        with self._open(timeout) as connection:
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
        with self._open(timeout) as connection:
            try:
                record = index_rows.find_record(connection, index)
            except Damaged as error:
                return Versioned(Definition.unreadable(index, str(error)), 0)
        return None if record is None else record.versioned

    def live_definition(
        self, table: TableId, *, timeout: float | None = None
    ) -> Versioned[Definition] | None:
        with self._open(timeout) as connection:
            record = index_rows.find_live_record(connection, table)
        return None if record is None else record.versioned

    def define(self, definition: Definition, *, expect: Revision | None) -> Revision:
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
        with self._reading(index, wait=timeout) as parts:
            return parts.record

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
        self, index: IndexId, entries: pa.Table, *, revision: Revision, token: int | None = None
    ) -> None:
        entries = check_entries(entries)
        with self._writing() as connection:
            record = read_record(connection, index)
            record.require_writable(revision, token)
            index_rows.save(connection, add_entries(Parts(connection, record), entries))

    def remove(self, index: IndexId, ordinals: pa.Array) -> None:
        with self._writing() as connection:
            parts = Parts(connection, read_record(connection, index))
            index_rows.save(connection, remove_entries(parts, ordinals))
        self._reclaim(index)

    def erase(self, index: IndexId) -> None:
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
                    record = read_record(connection, index, erased=True)
                    left = reclaim(Parts(connection, record))
                    connection.execute("COMMIT")
                    left |= shrink(connection)
        except StoreError as error:
            _log.info(
                "space is not freed yet: store=%s index=%s error=%s", self._path, index, error
            )

    def catalogue(
        self,
        index: IndexId,
        *,
        since: Generation | None = None,
        fields: Sequence[str] = (),
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> Catalogue:
        with self._reading(index, wait=timeout) as parts:
            if on_progress is not None:
                parts.connection.set_progress_handler(None, 0)  # no caller waits for all of it
            parts.record.require_generation(since, self.location)
            return catalogue(parts, since=since, fields=fields, on_progress=on_progress)

    def size(self, index: IndexId) -> int | None:
        """Return the bytes of the blocks."""
        with self._reading(index) as parts:
            return count_bytes(parts.connection, parts.record.id)

    def ordinals(self, index: IndexId, files: pa.Table) -> pa.Array:
        with self._reading(index) as parts:
            return find_holders(parts, files)

    def entries(self, index: IndexId) -> Iterator[pa.Table]:
        with self._reading(index) as parts:
            # A forged file has endless rows, which the time limits; the rest has none.
            bytes = count_bytes(parts.connection, parts.record.id)
            parts.connection.set_progress_handler(None, 0)
            yield from entries_of(parts, bytes)

    def find_prunable(
        self,
        index: IndexId,
        tests: Sequence[Test],
        *,
        below: int,
        timeout: float,
        generation: Generation | None = None,
    ) -> Sequence[BitMap]:
        deadline = time.monotonic() + timeout
        held = {test.sketch: self._load_fields(index, test.sketch, deadline) for test in tests}
        with self._reading(index, wait=deadline - time.monotonic()) as parts:
            record = parts.record
            record.require_generation(generation, self.location)
            for sketch, kept in held.items():
                if kept is not None and kept.generation != record.generation:
                    # Partial fields are updated once they are complete.
                    held[sketch] = self._newest(parts, sketch, kept) if kept.whole else None
            snapshot = Snapshot(parts, held, below=below, deadline=deadline)
            return snapshot.find_prunable(tests)

    def _load_fields(self, index: IndexId, sketch: str, deadline: float) -> Catalogue | None:
        """Return the fields of a sketch, current or older; partial ones if reading is slow."""

        def on_progress(read: Callable[[], Catalogue]) -> None:
            self._fields.report(index, sketch, read)

        def read() -> Catalogue:
            with self._reading(index) as parts:
                parts.connection.set_progress_handler(None, 0)  # nobody waits for all of it
                return sketch_fields(parts, sketch, on_progress=on_progress)

        held = self._fields.get(index, sketch, Catalogue)
        return held or self._fields.load(index, sketch, read, deadline=deadline)

    def _newest(self, parts: Parts, sketch: str, kept: Catalogue) -> Catalogue:
        """Update cached fields to what a transaction sees."""
        record = parts.record
        if record.has_been(kept.generation):
            newest = apply_change(kept, sketch_fields(parts, sketch, since=kept.generation))
        else:
            self._fields.drop(record.index)
            newest = sketch_fields(parts, sketch)
        self._fields.add(record.index, sketch, newest)
        return newest

    def record_workload(
        self, record: WorkloadRecord, *, oldest: date, timeout: float | None = None
    ) -> None:
        row = record.key, record.to_json()
        with self._writing(wait=timeout) as connection:
            names = connection.execute("SELECT name FROM workload LIMIT 100000").fetchall()
            expired = list_old_keys((name for (name,) in names), record, oldest)
            connection.executemany(
                "DELETE FROM workload WHERE name = ?", ((name,) for name in expired)
            )
            connection.execute("INSERT OR REPLACE INTO workload (name, data) VALUES (?, ?)", row)

    def workload(
        self,
        *,
        since: date,
        until: date,
        most: int = MOST_RECORDS,
        timeout: float | None = None,
    ) -> Sequence[WorkloadRecord]:
        # "." is the character after "-", which follows the day in a key.
        bounds = since.isoformat(), f"{until.isoformat()}.", LONGEST, most
        with self._open(timeout) as connection:
            rows = connection.execute(
                "SELECT name, data FROM workload WHERE name >= ? AND name < ? "
                "AND length(data) <= ? ORDER BY name DESC LIMIT ?",
                bounds,
            ).fetchall()
        return parse_records(rows)

    @contextmanager
    def copy_to(self, target: SqliteStore) -> Iterator[SqliteStore]:
        """Copy the store as it is now; the copy becomes `target` at the end."""
        with target.create_draft() as draft:
            with self._open(None) as connection, progress(None, "pages", "copy") as bar:

                def on_step(status: int, left: int, total: int) -> None:
                    bar.total = total
                    bar.update(total - left - bar.n)

                connection.set_progress_handler(None, 0)  # no time limit
                copy_into(draft._path, connection, on_step)
            yield draft

    @contextmanager
    def create_draft(self) -> Iterator[SqliteStore]:
        """Create an empty store that becomes this one at the end, unless an error occurs."""
        with draft_store(self._path) as draft:
            yield SqliteStore(draft, patience=self._patience, kept=self._fields.most)

    @contextmanager
    def _reading(self, index: IndexId, *, wait: float | None = None) -> Iterator[Parts]:
        with self._open(wait) as connection:
            yield Parts(connection, read_record(connection, index))

    @contextmanager
    def _writing(self, *, wait: float | None = None) -> Iterator[sqlite3.Connection]:
        with self._open(wait, write=True) as connection:
            yield connection
            connection.execute("COMMIT")

    def _open(
        self, wait: float | None, *, write: bool = False
    ) -> AbstractContextManager[sqlite3.Connection]:
        return open_connection(
            self._path, wait=self._patience if wait is None else wait, write=write
        )
