"""The SQLite file of a store: its tables, how it comes to be, and how it is opened.

Nothing here reads or writes entries. The schema is fixed, no table is made for an index or a kind:

=========== ========================================= =============================================
table       one row                                   remark
=========== ========================================= =============================================
``index_``  an index; its definition is null once     the row stays, so that no id is used again
            it was erased
``entry``   a file                                    one identity once, a null stamp equals a null
``history`` a generation that there was               of which others may have heard
``removed`` an ordinal that had an entry              told to who reads a catalogue by increments
``field``   ``s3_known``, ``s3_low``, ... with types  what the numbers in the next two stand for
``scalar``  a value of a SCALAR field or known flag,  null values and flags have no row
            for TERMS how many terms the file has
``terms``   a term: the ordinals that one write gave  inverted index, ordinals as sorted uint32
``bytes``   a BYTES field of some files of one write  ordinals likewise, all values of one length
``slices``  the values of a row of ``bytes`` at some  turned round: of all its files the first
            positions                                 byte, then of all the second, and so on
``lease``   who keeps an index up to date             files of earlier releases get it when one does
=========== ========================================= =============================================

Text values are BLOBs of UTF-8: they compare as bytes, which is the order of the domain, and a NUL
is a byte like others. A write appends to ``terms`` and ``bytes`` and never rewrites what an earlier
one left.
"""

from __future__ import annotations

import os
import sqlite3
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa

from providers.errors import NoStore, StoreError

__all__ = ["APPLICATION_ID", "VERSION", "create", "opened"]

APPLICATION_ID = 0x736B6970
"""In the file's header: "skip"."""

VERSION = 1
"""Of the schema, in the file's header. A newer one is refused."""

_TICK = 0.05  # seconds after which a file system surely stamps a change with another time
_STEPS = 10_000  # SQLite's virtual machine asks that often whether time is up

_SCHEMA = """
CREATE TABLE index_ (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, table_ TEXT NOT NULL, definition TEXT,
    revision INTEGER NOT NULL, dropped INTEGER NOT NULL, state TEXT,
    generation INTEGER NOT NULL DEFAULT 0, next INTEGER NOT NULL DEFAULT 0,
    swept INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX index_live ON index_ (table_) WHERE NOT dropped;
CREATE TABLE entry (
    index_ INTEGER NOT NULL, ordinal INTEGER NOT NULL, path TEXT NOT NULL, size INTEGER NOT NULL,
    stamp INTEGER, partition TEXT, generation INTEGER NOT NULL, PRIMARY KEY (index_, ordinal)
) WITHOUT ROWID;
CREATE UNIQUE INDEX entry_identity ON entry (index_, path, size, stamp IS NULL, ifnull(stamp, 0));
CREATE INDEX entry_generation ON entry (index_, generation);
CREATE TABLE history (
    index_ INTEGER NOT NULL, generation INTEGER NOT NULL, PRIMARY KEY (index_, generation)
) WITHOUT ROWID;
CREATE TABLE removed (
    index_ INTEGER NOT NULL, ordinal INTEGER NOT NULL, generation INTEGER NOT NULL,
    PRIMARY KEY (index_, ordinal)
) WITHOUT ROWID;
CREATE INDEX removed_generation ON removed (index_, generation);
CREATE TABLE field (
    id INTEGER PRIMARY KEY, index_ INTEGER NOT NULL, name TEXT NOT NULL, type TEXT NOT NULL,
    UNIQUE (index_, name)
);
CREATE TABLE scalar (
    field INTEGER NOT NULL, ordinal INTEGER NOT NULL, value NOT NULL, PRIMARY KEY (field, ordinal)
) WITHOUT ROWID;
CREATE TABLE terms (
    field INTEGER NOT NULL, value NOT NULL, generation INTEGER NOT NULL, ordinals BLOB NOT NULL,
    PRIMARY KEY (field, value, generation)
) WITHOUT ROWID;
CREATE TABLE bytes (
    id INTEGER PRIMARY KEY, field INTEGER NOT NULL, ordinals BLOB NOT NULL,
    length INTEGER NOT NULL, width INTEGER NOT NULL, first INTEGER NOT NULL
);
CREATE INDEX bytes_field ON bytes (field);
CREATE TABLE slices (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE lease (index_ INTEGER PRIMARY KEY, lease TEXT NOT NULL);
"""

_ADVICE = (
    ("database is locked", "another process has held it for longer than {wait:g} s: try again"),
    ("interrupted", "it did not answer within {wait:g} s"),
    (
        "not a database",
        "it is something else, or damaged: move it away and create the indexes anew",
    ),
    ("malformed", "the file is damaged: move it away and create the indexes anew"),
    ("no such", "the file is damaged: move it away and create the indexes anew"),
    ("unable to open", "check that it and its folder may be read, and that it is no folder"),
    ("readonly", "this user may not write it: check the rights of the file and of its folder"),
    ("disk is full", "make room on the disk"),
)


def create(path: Path) -> None:
    """Make an empty store, or do nothing when there is one; raises StoreError when it cannot.

    It appears under its name only when it is complete: of several processes one succeeds, and
    nobody ever reads half a schema.
    """
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with _translated(path, wait=0):
        path.parent.mkdir(parents=True, exist_ok=True)
        if _wal(path).exists() and not path.exists():
            # SQLite would replay what a deleted store left behind into the new one.
            raise StoreError(f"{_wal(path)} is left of a store that was deleted: delete it too")
        try:
            with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
                connection.executescript(_SCHEMA)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {VERSION}")
                connection.execute("PRAGMA journal_mode = WAL")
            try:
                os.link(draft, path)
            except FileExistsError:
                return
        finally:
            draft.unlink(missing_ok=True)


@contextmanager
def opened(path: Path, *, wait: float, write: bool = False) -> Iterator[sqlite3.Connection]:
    """A connection to a store that is there, in autocommit, closed at the end.

    Waits `wait` seconds for locks; a connection that only reads is interrupted after them. Raises
    StoreError for everything that SQLite, the file system or the file's content can do wrong.
    """
    with _translated(path, wait=wait):
        if not path.exists():
            raise NoStore(f"the store {path} is not there: create the index anew")
        if not path.is_file():
            raise StoreError(f"the store {path} is no file: name one")
        mode = "rw" if os.access(path, os.W_OK) else "ro"
        before = None
        try:
            connection = _connected(path, mode, wait)
        except sqlite3.OperationalError as error:
            # Even a reader shares its state through files beside the store. Who cannot make them
            # may read a store that nobody has open, if it really stays like that meanwhile.
            private = any(text in str(error) for text in ("unable to open", "readonly"))
            if write or not private or _wal(path).exists():
                raise
            before = _settled(path)
            connection = _connected(path, "ro&immutable=1", wait)
        with closing(connection):
            if not write:
                deadline = time.monotonic() + wait
                connection.set_progress_handler(lambda: time.monotonic() >= deadline, _STEPS)
            yield connection
        if before is not None and (_wal(path).exists() or _stamp(path) != before):
            raise StoreError(f"the store {path} was written while it was read: try again")


def _connected(path: Path, mode: str, wait: float) -> sqlite3.Connection:
    # Of a store that nobody has open; what is left of a page SQLite would fill up with zeros.
    size = 0 if _wal(path).exists() else path.stat().st_size
    uri = f"file:{quote(str(path))}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=wait, isolation_level=None)
    try:
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA cache_size = -65536")
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (page,) = connection.execute("PRAGMA page_size").fetchone()
        if application != APPLICATION_ID:
            raise StoreError(f"{path} is no store of indexes: name another file, or move it away")
        if version > VERSION:
            raise StoreError(
                f"the store {path} is of format {version}, this release reads up to {VERSION}: "
                "upgrade, or name another file"
            )
        if size % page:
            raise StoreError(f"the store {path} is cut off: move it away, create the indexes anew")
    except BaseException:
        connection.close()
        raise
    return connection


def _wal(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _settled(path: Path) -> tuple[int, int, int]:
    """What changes with every write from now on: not within the tick of the last one."""
    if 0 <= time.time() - path.stat().st_mtime < _TICK:
        time.sleep(_TICK)
    return _stamp(path)


def _stamp(path: Path) -> tuple[int, int, int]:
    stat = path.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


@contextmanager
def _translated(path: Path, *, wait: float) -> Iterator[None]:
    try:
        yield
    except StoreError:
        raise
    except sqlite3.Error as error:
        advice = next((a for text, a in _ADVICE if text in str(error)), "see the cause")
        message = f"the store {path} cannot be used ({error}): {advice.format(wait=wait)}"
        raise StoreError(message) from error
    except OSError as error:
        raise StoreError(f"the store {path} cannot be used: {error}") from error
    except (pa.ArrowException, ValueError, TypeError, LookupError, OverflowError) as error:
        # SQLite does not check the type of what it stores: a damaged file shows up here.
        raise StoreError(f"the store {path} holds what no release wrote: {error}") from error
