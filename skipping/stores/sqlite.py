"""The embedded store: one SQLite file, for the threads and processes of one host.

Every operation opens the file and closes it again, so that nothing is held between operations and
a deleted file is noticed. Writers queue up, readers never wait for them (WAL).
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyroaring import BitMap

from providers.errors import Conflict, StoreError
from providers.index_predicate import Test
from skipping.definition import Definition, IndexId, Revision, State, Versioned
from skipping.lease import Lease
from skipping.stores import Catalogue, Generation
from skipping.stores import sqlite_heads as heads
from skipping.stores.entries import ORDINALS, checked
from skipping.stores.fields import KEPT, Fields, brought_up
from skipping.stores.generations import following, rewound
from skipping.stores.sqlite_entries import (
    advance,
    fields_of,
    forget,
    has_been,
    holders,
    place,
    store_sketches,
    sweep,
)
from skipping.stores.sqlite_fields import catalogue, sketch_fields
from skipping.stores.sqlite_heads import row
from skipping.stores.sqlite_schema import create, opened
from skipping.stores.sqlite_snapshot import Snapshot

__all__ = ["SqliteStore"]

_PATIENCE = 30.0


class SqliteStore:
    """An `IndexStore` in one file, made by the first `define` of a new index.

    `patience` is how many seconds a lock of another process is waited for, `kept`, how many bytes
    of fields are kept here.

    >>> SqliteStore("/tmp/not there.db").definitions()
    Traceback (most recent call last):
    providers.errors.StoreError: the store /tmp/not there.db is not there: create the index anew
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
        """Every definition, dropped ones too until they are erased."""
        with self._reading(wait=timeout) as connection:
            rows = connection.execute(
                "SELECT name, definition, revision FROM index_ WHERE definition IS NOT NULL"
                " ORDER BY id"
            ).fetchall()
        found = tuple(Versioned(Definition.read(text, index), n) for index, text, n in rows)
        self._fields.retain({each.value.index for each in found if not each.value.dropped})
        return found

    def define(self, definition: Definition, *, expect: Revision | None) -> Revision:
        """Write a definition if its revision still is `expect`; raises Conflict if not."""
        if expect is None and not self._path.exists():
            create(self._path)
        with self._writing() as connection:
            revision = heads.define(connection, definition, expect)
        if expect is None:
            self._fields.drop(definition.index)  # of a file that was deleted
        return revision

    def state(self, index: IndexId) -> State:
        """How it stands."""
        with self._reading() as connection:
            (text,) = row(connection, index, "state")
            return State() if text is None else State.from_json(text)

    def report(self, index: IndexId, state: State, *, token: int | None = None) -> None:
        """Say how it stands."""
        with self._writing() as connection:
            (id,) = row(connection, index, "id")
            heads.require(connection, index, token)
            connection.execute("UPDATE index_ SET state = ? WHERE id = ?", (state.to_json(), id))

    def lease(self, index: IndexId) -> Lease:
        """Who keeps it up to date."""
        with self._reading() as connection:
            return heads.lease_of(connection, index)

    def hold(self, index: IndexId, lease: Lease, *, expect: Lease) -> None:
        """Write a lease if it still is `expect`; raises Conflict if not."""
        with self._writing() as connection:
            heads.hold(connection, index, lease, expect)

    def reserve(self, index: IndexId, n: int) -> range:
        """`n` ordinals that nobody else gets; raises StoreError when there are no more."""
        with self._writing() as connection:
            id, start = row(connection, index, "id, next")
            if n < 0 or start + n > ORDINALS:
                raise StoreError(f"no {n} ordinals left for index {index}: drop and create it")
            connection.execute("UPDATE index_ SET next = ? WHERE id = ?", (start + n, id))
            return range(start, start + n)

    def write(
        self,
        index: IndexId,
        entries: pa.Table,
        *,
        revision: Revision,
        token: int | None = None,
    ) -> None:
        """Add entries and sketches, all or nothing, as `IndexStore.write` says."""
        entries = checked(entries)
        with self._writing() as connection:
            id, found, dropped, end, before = row(
                connection, index, "id, revision, dropped, next, generation"
            )
            if dropped or found != revision:
                raise Conflict(f"index {index} was changed or dropped meanwhile: read it again")
            heads.require(connection, index, token)
            ordinals = entries["ordinal"].to_numpy()
            if len(ordinals) and ordinals.max() >= end:
                raise StoreError(f"ordinal {ordinals.max()} was never reserved")
            generation = following(before)
            rows = place(connection, id, entries, generation)
            store_sketches(connection, id, entries, rows, generation)
            sql = "SELECT 1 FROM entry WHERE index_ = ? AND generation = ?"
            if connection.execute(sql, (id, generation)).fetchone():
                advance(connection, id, generation)

    def remove(self, index: IndexId, ordinals: pa.Array) -> None:
        """Forget entries; ordinals without an entry are passed over."""
        with self._writing() as connection:
            id, before, swept = row(connection, index, "id, generation, swept")
            generation = following(before)
            connection.execute("CREATE TEMP TABLE incoming (ordinal INTEGER PRIMARY KEY)")
            connection.executemany(
                "INSERT OR IGNORE INTO temp.incoming VALUES (?)",
                zip(ordinals.to_pylist(), strict=True),
            )
            gone = connection.execute(
                "INSERT INTO removed SELECT ?, e.ordinal, ? FROM temp.incoming i"
                " CROSS JOIN entry e ON e.index_ = ? AND e.ordinal = i.ordinal",
                (id, generation, id),
            ).rowcount
            if not gone:
                return
            connection.execute(
                "DELETE FROM entry WHERE index_ = ? AND ordinal IN temp.incoming", (id,)
            )
            for field, _ in fields_of(connection, id).values():
                connection.execute(
                    "DELETE FROM scalar WHERE field = ? AND ordinal IN temp.incoming", (field,)
                )
            advance(connection, id, generation)
            sweep(connection, id, since=swept)

    def erase(self, index: IndexId) -> None:
        """Forget a dropped index, again if need be; raises StoreError while it is live."""
        with self._writing() as connection:
            row = connection.execute(
                "SELECT id, dropped FROM index_ WHERE name = ?", (index,)
            ).fetchone()
            if row is None:
                raise StoreError(f"the store has no index {index}")
            id, dropped = row
            if not dropped:
                raise StoreError(f"index {index} is live: drop it before it is erased")
            forget(connection, id)
            connection.execute("UPDATE index_ SET definition = NULL WHERE id = ?", (id,))
        self._fields.drop(index)

    def catalogue(
        self,
        index: IndexId,
        *,
        since: Generation | None = None,
        fields: Sequence[str] = (),
        timeout: float | None = None,
    ) -> Catalogue:
        """The entries in the order of their ordinals, or those changed after `since`."""
        with self._reading(wait=timeout) as connection:
            id, generation = row(connection, index, "id, generation")
            if since is not None and not has_been(connection, id, since):
                raise rewound(self.location, index)
            return catalogue(connection, id, generation, since=since, fields=fields)

    def ordinals(self, index: IndexId, files: pa.Table) -> pa.Array:
        """Of each of these files the ordinal of its entry, or null."""
        with self._reading() as connection:
            (id,) = row(connection, index, "id")
            return holders(connection, id, files)

    def disproved(
        self,
        index: IndexId,
        tests: Sequence[Test],
        *,
        below: int,
        timeout: float,
        generation: Generation | None = None,
    ) -> Sequence[BitMap]:
        """For each test the ordinals under `below` that it disproves; see `IndexStore`."""
        deadline = time.monotonic() + timeout
        held = {test.sketch: self._kept(index, test.sketch, deadline) for test in tests}
        with self._reading(wait=deadline - time.monotonic()) as connection:
            id, present = row(connection, index, "id, generation")
            if generation is not None and not has_been(connection, id, generation):
                raise rewound(self.location, index)
            for sketch, kept in held.items():
                if kept is not None and kept.generation != present:
                    held[sketch] = self._newest(connection, index, sketch, kept)
            snapshot = Snapshot(connection, id, held, below=below, deadline=deadline)
            return [snapshot.disproved(test) for test in tests]

    def _kept(self, index: IndexId, sketch: str, deadline: float) -> Catalogue | None:
        """The fields of a sketch, as of now or earlier; None if that takes too long."""

        def read() -> Catalogue:
            with self._reading() as connection:
                id, generation = row(connection, index, "id, generation")
                return sketch_fields(connection, id, sketch, generation)

        held = self._fields.held(index, sketch)
        return held or self._fields.loaded(index, sketch, read, deadline=deadline)

    def _newest(
        self, connection: sqlite3.Connection, index: IndexId, sketch: str, kept: Catalogue
    ) -> Catalogue:
        """What is kept brought up to what a transaction sees."""
        id, generation = row(connection, index, "id, generation")
        if has_been(connection, id, kept.generation):
            change = sketch_fields(connection, id, sketch, generation, since=kept.generation)
            newest = brought_up(kept, change)
        else:
            self._fields.drop(index)
            newest = sketch_fields(connection, id, sketch, generation)
        self._fields.keep(index, sketch, newest)
        return newest

    @contextmanager
    def _reading(self, *, wait: float | None = None) -> Iterator[sqlite3.Connection]:
        with opened(self._path, wait=self._patience if wait is None else wait) as connection:
            connection.execute("BEGIN")
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with opened(self._path, wait=self._patience, write=True) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")


def _store(path: Path, patience: float, kept: int) -> SqliteStore:
    return SqliteStore(path, patience=patience, kept=kept)
