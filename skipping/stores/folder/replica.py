"""A copy of a folder store in an SQLite file of this host, which answers all reads.

It follows the log commit by commit, each in a transaction, so several processes can share it. The
record of an index is always there; its entries and sketches are loaded when they are first used,
and from then on with each commit. What is not loaded is unknown to queries.
"""

from __future__ import annotations

import json
import logging
import secrets
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from providers.errors import NoStore, Rewound, StoreError
from skipping.model.definition import Definition, IndexId, Revision
from skipping.stores.entries import check_entries
from skipping.stores.folder.log import RECORD, Checkpoint, Commit, Manifest, Part, Ranges
from skipping.stores.sqlite import index_rows
from skipping.stores.sqlite.entries import add_entries, add_sketches, remove_entries
from skipping.stores.sqlite.fields import FILES, ordinals_of
from skipping.stores.sqlite.index_rows import IndexRow
from skipping.stores.sqlite.schema import create
from skipping.stores.sqlite.segments import Parts
from skipping.stores.sqlite.store import SqliteStore
from skipping.stores.untrusted import INVALID

_log = logging.getLogger(__name__)

IDENTITIES = ""
"""Stands for the identities of the entries among the sketches that are in use."""


class Overtaken(Exception):
    """Another host has written the commit with this number."""


@dataclass(frozen=True, slots=True)
class Position:
    """The last commit that a replica has applied.

    `start` is drawn when a replica begins to follow a log; it changes if another process lets the
    same file follow another log.
    """

    store: str
    version: int
    commit: str
    start: str = field(default_factory=lambda: secrets.token_hex(8))


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """An index in a replica: its manifest, the objects not loaded, and the sketches in use."""

    manifest: Manifest = field(default_factory=Manifest)
    missing: frozenset[str] = frozenset()
    in_use: frozenset[str] = frozenset()

    def needs(self, part: Part) -> bool:
        """Return whether an object has something that is in use."""
        of = {*part.sketches, *([IDENTITIES] if part.identities else [])}
        return bool(of & self.in_use)

    def parts(self) -> Iterator[tuple[int, Part]]:
        """Yield the objects that are not loaded, in the order of the log, with their rows."""
        for segment in self.manifest.segments:
            for part in segment.parts:
                if part.name in self.missing:
                    yield segment.rows, part

    def after(self, commit: Commit, *, dropped: bool) -> IndexProgress:
        """Return this with a commit applied, whose new objects are not loaded yet."""
        manifest = self.manifest.after(commit)
        if dropped:
            return replace(self, manifest=manifest, missing=frozenset())
        new = Manifest(commit.add).names
        if not commit.merged:
            return replace(self, manifest=manifest, missing=self.missing | new)
        # Merged segments have nothing new for a replica that has all of them.
        live = manifest.names
        missing = (self.missing & live) | (new if self.missing - live else frozenset())
        return replace(self, manifest=manifest, missing=missing)

    def to_json(self) -> str:
        """Return the row of the replica."""
        lists = {"missing": sorted(self.missing), "in_use": sorted(self.in_use)}
        return json.dumps({"manifest": self.manifest.to_json(), **lists})

    @classmethod
    def from_json(cls, text: str) -> IndexProgress:
        """Parse the row; raise KeyError, TypeError or ValueError."""
        data = json.loads(text)
        manifest = Manifest.from_json(data["manifest"])
        return cls(manifest, frozenset(data["missing"]), frozenset(data["in_use"]))


class Replica(SqliteStore):
    """An `SqliteStore` that only the log changes."""

    def position(self) -> Position | None:
        """Return the position in the log; None if the replica has none yet."""
        try:
            with self._open(None) as connection:
                return _position(connection)
        except NoStore:
            return None

    def file_size(self) -> int:
        """Return the size of the file; 0 if it does not exist."""
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def progress(self, index: IndexId) -> IndexProgress:
        """Return what the replica has of an index."""
        with self._open(None) as connection:
            return _read_progress(connection, index)

    def use(self, index: IndexId, sketches: Collection[str]) -> None:
        """Load these sketches from now on with each commit."""
        with self._writing() as connection:
            progress = _read_progress(connection, index)
            in_use = progress.in_use | set(sketches)
            _save(connection, index, replace(progress, in_use=in_use))

    def preview(self, definition: Definition, expect: Revision | None) -> IndexRow:
        """Return the record that `define` would write; raise Conflict as it does."""
        with self._open(None) as connection:
            found = index_rows.find_row(connection, definition.index)
            record = found or IndexRow(id=0, index=definition.index, table="")
            live = index_rows.find_live(connection, definition)
            return record.with_definition(definition, expect=expect, live=live)

    def read(self, index: IndexId) -> IndexRow:
        """Return the record of an index; raise StoreError if it was erased or never existed."""
        return self._read(index)

    def find_record(self, index: IndexId) -> IndexRow:
        """Return the record of an index, even if it was erased."""
        with self._open(None) as connection:
            return index_rows.read_record(connection, index, erased=True)

    def restart(self, checkpoint: Checkpoint | None) -> None:
        """Forget everything, and continue after a checkpoint or from the beginning of the log."""
        with self._writing() as connection:
            in_use = {
                name: IndexProgress.from_json(data).in_use
                for name, data in connection.execute("SELECT name, data FROM replica")
                if name
            }
            for table in ("index_", "run", "block", "replica"):
                connection.execute(f"DELETE FROM {table}")
            if checkpoint is None:
                return
            for index, (fields, manifest) in checkpoint.indexes.items():
                record = index_rows.new_row(connection, index)
                index_rows.save(connection, _with(record, fields))
                kept = in_use.get(index, frozenset())
                _save(connection, index, IndexProgress(manifest, manifest.names, kept))
            _move(connection, Position(checkpoint.store, checkpoint.version, checkpoint.commit))

    def apply(
        self,
        commit: Commit,
        tables: Mapping[str, pa.Table],
    ) -> bool:
        """Apply the next commit; return False if the replica is elsewhere in the log.

        Raises Rewound if it follows another commit than the one that the replica has.

        `tables` has the objects that were read. Others, and invalid ones, are loaded when they are
        needed.
        """
        with self._writing() as connection:
            position = _position(connection)
            if not _is_next(commit, position):
                return False
            self._apply(connection, commit, tables, position, strict=False)
        self._after(commit)
        return True

    def publish(
        self,
        make: Callable[[Position | None], Commit | None],
        tables: Mapping[str, pa.Table],
        create: Callable[[Commit], bool],
        *,
        wait: float | None = None,
    ) -> Commit | None:
        """Apply the commit that `make` returns and `create` writes into the log, or neither.

        `make` gets the position, and can read the replica as it is there: other writers of this
        host wait, for `wait` seconds. Returns what `make` did. Raises Overtaken if `create` returns
        False, and StoreError, before it is called, if the entries do not fit those that are there.
        """
        with self._writing(wait=wait) as connection:
            position = _position(connection)
            commit = make(position)
            if commit is None:
                return None
            self._apply(connection, commit, tables, position, strict=True)
            if not create(commit):
                raise Overtaken
        self._after(commit)
        return commit

    def _apply(
        self,
        connection: sqlite3.Connection,
        commit: Commit,
        tables: Mapping[str, pa.Table],
        before: Position | None,
        *,
        strict: bool,
    ) -> None:
        found = index_rows.find_row(connection, commit.index)
        record = _with(found or index_rows.new_row(connection, commit.index), commit.set)
        progress = _read_progress(connection, commit.index).after(commit, dropped=record.dropped)
        for segment in () if commit.merged else commit.add:
            for part in segment.parts:
                table = tables.get(part.name)
                if table is None:
                    continue
                try:
                    with _savepoint(connection):
                        added = _add(connection, record, progress.manifest, part, table)
                except (StoreError, *INVALID) as error:
                    if strict:
                        raise
                    # Other indexes are not affected; this one fails when it is used.
                    _log.info("%s is not loaded: %s", part.name, error)
                    continue
                record = added
                progress = replace(progress, missing=progress.missing - {part.name})
        if commit.removed and not record.dropped:
            record = _remove(Parts(connection, record), commit.removed)
        index_rows.save(connection, record)
        _save(connection, commit.index, progress)
        position = Position(commit.store, commit.version, commit.id)
        _move(connection, replace(position, start=before.start) if before else position)

    def _after(self, commit: Commit) -> None:
        if commit.removed or commit.set.get("dropped") or "definition" in commit.set:
            self._reclaim(commit.index)
        if commit.set.get("revision") == 1:
            self._fields.drop(commit.index)

    def load(self, index: IndexId, tables: Mapping[str, pa.Table]) -> None:
        """Load objects of an index that were missing."""
        with self._writing() as connection:
            record = index_rows.read_record(connection, index, erased=True)
            progress = _read_progress(connection, index)
            for _, part in list(progress.parts()):
                if part.name in tables:
                    table = tables[part.name]
                    record = _add(connection, record, progress.manifest, part, table)
            missing = progress.missing - set(tables)
            index_rows.save(connection, record)
            _save(connection, index, replace(progress, missing=missing))

    def checkpoint(self) -> Checkpoint | None:
        """Return a checkpoint of the replica's position; None if it has none."""
        with self._open(None) as connection:
            position = _position(connection)
            if position is None:
                return None
            indexes = {
                record.index: (
                    {name: getattr(record, name) for name in RECORD},
                    _read_progress(connection, record.index).manifest,
                )
                for record in index_rows.all_rows(connection)
            }
            return Checkpoint(position.store, position.version, position.commit, indexes)

    @contextmanager
    def _writing(self, *, wait: float | None = None) -> Iterator[sqlite3.Connection]:
        if not self._path.exists():
            create(self._path)
        with super()._writing(wait=wait) as connection:
            yield connection


@contextmanager
def _savepoint(connection: sqlite3.Connection) -> Iterator[None]:
    """Undo what was written if an error occurs, and continue the transaction."""
    connection.execute("SAVEPOINT part")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK TO part")
        raise
    finally:
        connection.execute("RELEASE part")


def _with(record: IndexRow, fields: Mapping[str, Any]) -> IndexRow:
    """Return a row with changed fields of its record."""
    changed = replace(record, **fields)
    if fields.get("definition") is not None:
        changed = replace(changed, table=index_rows.table_key(changed.versioned.value.table))
        changed = index_rows.without_sketches(changed, record)
    elif "definition" in fields:
        changed = replace(changed, fields={}, sums={})
    return changed


def _add(
    connection: sqlite3.Connection,
    record: IndexRow,
    manifest: Manifest,
    part: Part,
    table: pa.Table,
) -> IndexRow:
    """Add the rows of an object to the entries; return the record to save."""
    gone = within(table["ordinal"].to_numpy(), manifest.removed)
    if gone.any():
        table = table.filter(pa.array(~gone))
    parts = Parts(connection, record)
    if part.identities:
        return add_entries(parts, check_entries(table))
    return add_sketches(parts, table)


def _remove(parts: Parts, removed: Ranges) -> IndexRow:
    there = ordinals_of(parts[FILES])
    return remove_entries(parts, pa.array(there[within(there, removed)]))


def within(ordinals: npt.NDArray[np.int64], ranges: Ranges) -> npt.NDArray[np.bool_]:
    """Return which ordinals lie within the ranges."""
    if not ranges:
        return np.zeros(len(ordinals), np.bool_)
    firsts, lasts = np.array(sorted(ranges), np.int64).T
    at = np.searchsorted(firsts, ordinals, side="right") - 1
    inside: npt.NDArray[np.bool_] = (at >= 0) & (ordinals <= lasts[at])
    return inside


def _is_next(commit: Commit, position: Position | None) -> bool:
    """Return whether a commit follows a position; raise Rewound if it is of another past."""
    if position is None:
        return commit.version == 1
    if commit.version != position.version + 1:
        return False
    if (position.store, position.commit) != (commit.store, commit.previous):
        raise Rewound(f"commit {commit.version} does not follow the one before it")
    return True


def _position(connection: sqlite3.Connection) -> Position | None:
    row = connection.execute("SELECT data FROM replica WHERE name = ''").fetchone()
    return None if row is None else Position(**json.loads(row[0]))


def _read_progress(connection: sqlite3.Connection, index: IndexId) -> IndexProgress:
    row = connection.execute("SELECT data FROM replica WHERE name = ?", (index,)).fetchone()
    return IndexProgress() if row is None else IndexProgress.from_json(row[0])


def _save(connection: sqlite3.Connection, index: IndexId, progress: IndexProgress) -> None:
    row = index, progress.to_json()
    connection.execute("INSERT OR REPLACE INTO replica (name, data) VALUES (?, ?)", row)


def _move(connection: sqlite3.Connection, position: Position) -> None:
    row = "", json.dumps(asdict(position))
    connection.execute("INSERT OR REPLACE INTO replica (name, data) VALUES (?, ?)", row)
