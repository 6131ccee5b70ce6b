"""Create and open the SQLite file of a store.

The schema is fixed; an index has no tables of its own (docs/sqlite-format.md). Everything in the
file is verified from the rows of ``index_``.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import sqlite3
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from urllib.parse import quote

from providers.errors import Damaged, NoStore, StoreError
from skipping.stores.fork_safety import Gate
from skipping.stores.sqlite.permissions import (
    check_folder_permissions,
    check_permissions,
    side_files,
)
from skipping.stores.untrusted import INVALID

APPLICATION_ID = 0x736B6970
"""The application id in the file's header: "skip"."""

VERSION = 6
"""The format of the file, in its header. A file with another format is rejected."""

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_TICK = 0.05  # seconds after which a change gets another modification time
_log = logging.getLogger(__name__)
_open = Gate()
_SHRUNK = 4_096  # pages, usually of 4 KB, to free at a time
_STEPS = 10_000  # steps of SQLite's virtual machine between two checks of the time
_LONGEST_WRITE = 600.0  # seconds of a transaction; a few thousand files take one

# Limits for what a file can make SQLite do; no release needs more. Python sets them since 3.11;
# with older versions the schema is compared and the time is limited.
_LIMITS = {
    "SQLITE_LIMIT_SQL_LENGTH": 1 << 16,
    "SQLITE_LIMIT_COLUMN": 32,
    "SQLITE_LIMIT_EXPR_DEPTH": 50,
    "SQLITE_LIMIT_COMPOUND_SELECT": 2,
    "SQLITE_LIMIT_FUNCTION_ARG": 8,
    "SQLITE_LIMIT_ATTACHED": 0,
    "SQLITE_LIMIT_TRIGGER_DEPTH": 1,
    "SQLITE_LIMIT_WORKER_THREADS": 0,
}

_SCHEMA = """
CREATE TABLE index_ (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, table_ TEXT NOT NULL, definition TEXT,
    revision INTEGER NOT NULL, dropped INTEGER NOT NULL, state TEXT, lease TEXT,
    next INTEGER NOT NULL, below INTEGER NOT NULL, swept INTEGER NOT NULL,
    generations BLOB NOT NULL, fields TEXT NOT NULL, sums TEXT NOT NULL, checksum INTEGER NOT NULL
);
CREATE UNIQUE INDEX index_live ON index_ (table_) WHERE NOT dropped;
CREATE TABLE run (
    id INTEGER PRIMARY KEY, index_ INTEGER NOT NULL, part TEXT NOT NULL,
    generation INTEGER NOT NULL, items INTEGER NOT NULL, first INTEGER NOT NULL,
    checksums BLOB NOT NULL, about BLOB NOT NULL
);
CREATE INDEX run_part ON run (index_, part);
CREATE TABLE block (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE replica (name TEXT PRIMARY KEY, data TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE workload (name TEXT PRIMARY KEY, data TEXT NOT NULL) WITHOUT ROWID;
"""

_ADVICE = (
    ("database is locked", "another process has locked it for more than {wait:g} s: try again"),
    ("interrupted", "it did not answer within {limit:g} s"),
    (
        "not a database",
        "it is not an SQLite file, or damaged: move it away and create the indexes again",
    ),
    ("malformed", "the file is damaged: move it away and create the indexes again"),
    ("no such", "the file is damaged: move it away and create the indexes again"),
    ("unable to open", "check that it and its folder may be read, and that it is not a folder"),
    ("readonly", "this user may not write it: check the rights of the file and of its folder"),
    ("disk is full", "free space on the disk"),
)


def create(path: Path) -> None:
    """Create an empty store unless there is one; raise StoreError if that fails.

    The file gets its name when it is complete. Of several processes one succeeds, and no reader
    sees an incomplete schema.
    """
    with _translate_errors(path), _open:
        _make_folder(path.parent)
        left = [each for each in side_files(path) if each.exists()]
        if left and not path.exists():
            # SQLite would replay the log of a deleted store into the new one.
            raise StoreError(f"{left[0]} is left from a deleted store: delete it too")
        with _make_draft(path) as draft:
            _publish(draft, path)


@contextmanager
def draft_store(path: Path) -> Iterator[Path]:
    """Create an empty store that gets its name at the end; raise StoreError if that is taken."""
    with _translate_errors(path):
        _make_folder(path.parent)
        for each in (path, *side_files(path)):
            if each.exists():
                raise StoreError(f"{each} exists already: name another file, or delete it")
        with _make_draft(path) as draft:
            yield draft
            if not _publish(draft, path):
                raise StoreError(f"{path} was created by another process: name another file")


def copy_into(
    draft: Path, source: sqlite3.Connection, progress: Callable[[int, int, int], object]
) -> None:
    """Copy what a transaction sees, page by page, into a store that no process has open."""
    with closing(sqlite3.connect(draft, isolation_level=None)) as target:
        source.backup(target, pages=1_024, progress=progress)
        target.execute("PRAGMA journal_mode = WAL")


def _make_folder(folder: Path) -> None:
    """Create a folder that other users cannot write, whatever the umask."""
    for each in reversed((folder, *folder.parents)):
        if not each.exists():
            each.mkdir(0o775, exist_ok=True)
    check_folder_permissions(folder)


@contextmanager
def _make_draft(path: Path) -> Iterator[Path]:
    """Create an empty private store next to a path, and delete it at the end."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # before the first table is made
            connection.executescript(_SCHEMA)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.execute("PRAGMA journal_mode = WAL")
        yield draft
    finally:
        for each in (draft, *side_files(draft)):
            each.unlink(missing_ok=True)


def _publish(draft: Path, path: Path) -> bool:
    """Give a complete file its name; return False if the name is taken."""
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return _rename_draft(draft, path)
    return True


def _rename_draft(draft: Path, path: Path) -> bool:
    """Publish without hard links, under a lock, because a rename would replace an existing file."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if path.exists():
            return False
        draft.rename(path)
        return True
    finally:
        os.close(folder)


def shrink(connection: sqlite3.Connection) -> bool:
    """Free some MB of unused pages at the end of the file; return whether there are more.

    Call it outside a transaction.
    """
    # Not `execute`, which frees the first page only: this pragma returns a row for each page.
    connection.executescript(f"PRAGMA incremental_vacuum({_SHRUNK})")
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (kind,) = connection.execute("PRAGMA auto_vacuum").fetchone()
    return bool(free and kind)


@contextmanager
def open_connection(
    path: Path, *, wait: float, write: bool = False
) -> Iterator[sqlite3.Connection]:
    """Open an existing store in a transaction, and close it at the end.

    A writer has to commit. The call waits `wait` seconds for locks; a reader is interrupted after
    this time, a writer after ten minutes. Raises StoreError for every error of SQLite, of the file
    system and in the file's content.
    """
    limit = _LONGEST_WRITE if write else wait
    with _translate_errors(path, wait=wait, limit=limit), _open:
        if _open.is_carried:
            raise StoreError(f"{path} was open when this process was forked: use another process")
        if not path.exists():
            raise NoStore(f"no indexes: the store {path} does not exist")
        if not path.is_file():
            raise StoreError(f"the store {path} is not a file: name a file")
        check_permissions(path)
        mode = "rw" if os.access(path, os.W_OK) else "ro"
        before = None
        if write:
            _close_to_others(path)
        try:
            connection = _connect(path, mode, wait, limit)
        except sqlite3.OperationalError as error:
            # A reader also creates side files. Without the right to do so, it can read a store that
            # no process has open, provided that none opens it meanwhile.
            private = any(text in str(error) for text in ("unable to open", "readonly"))
            if write or not private or _wal(path).exists():
                raise
            before = _wait_for_mtime(path)
            connection = _connect(path, "ro&immutable=1", wait, limit)
        with closing(connection):
            if write:
                connection.execute("PRAGMA temp_store = MEMORY")
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.execute("PRAGMA cache_size = -65536")
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            _require_schema(connection)
            yield connection
        if before is not None and (_wal(path).exists() or _stamp(path) != before):
            raise StoreError(f"the store {path} was written while it was read: try again")


def _close_to_others(path: Path) -> None:
    """Remove world permissions; keep the group permissions that an admin chose."""
    stat = path.stat()
    if stat.st_mode & 0o007 and stat.st_uid == os.geteuid():
        for each in (path, *side_files(path)):
            if each.exists():
                each.chmod(each.stat().st_mode & 0o770)
        _log.warning("every user could open the store %s: now only its owner and group can", path)


def _connect(path: Path, mode: str, wait: float, limit: float) -> sqlite3.Connection:
    # Only if no process has the store open: SQLite would pad an incomplete page with zeros.
    size = 0 if _wal(path).exists() else path.stat().st_size
    uri = f"file:{quote(str(path))}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=wait, isolation_level=None)
    deadline = time.monotonic() + limit
    connection.set_progress_handler(lambda: time.monotonic() >= deadline, _STEPS)
    try:
        _restrict(connection)
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (page,) = connection.execute("PRAGMA page_size").fetchone()
        if application != APPLICATION_ID:
            raise StoreError(f"{path} is not an index store: name another file, or move it away")
        if version != VERSION:
            upgrade = "upgrade, or " if version > VERSION else ""
            raise StoreError(
                f"the store {path} has format {version}, this release reads format {VERSION}: "
                f"{upgrade}move the file away and run CREATE SKIPPING INDEX again for each table"
            )
        if size % page:
            raise Damaged("it is truncated: move it away and create the indexes again")
    except BaseException:
        connection.close()
        raise
    return connection


def _restrict(connection: sqlite3.Connection) -> None:
    """Restrict SQLite to plain rows, because others may have written the file."""
    if sys.version_info >= (3, 11):
        for name, most in _LIMITS.items():
            connection.setlimit(getattr(sqlite3, name), most)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA mmap_size = 0")  # a truncated file would end the process


def _require_schema(connection: sqlite3.Connection) -> None:
    """Raise Damaged for a view, trigger, index or table that no release creates.

    A view in the place of a table can be endless, and so can a trigger or an index on an expression
    when a row is written. Call it in the transaction that reads the tables.
    """
    if _schema_of(connection) != _expected_schema():
        raise Damaged("its tables are not those that a release makes: create the indexes again")


def _schema_of(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    return connection.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name LIMIT 20"
    ).fetchall()


@cache
def _expected_schema() -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(_SCHEMA)
        return _schema_of(connection)


def _wal(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _wait_for_mtime(path: Path) -> tuple[int, int, int]:
    """Return inode, size and time of a file, at a time when a further write would change them."""
    if 0 <= time.time() - path.stat().st_mtime < _TICK:
        time.sleep(_TICK)
    return _stamp(path)


def _stamp(path: Path) -> tuple[int, int, int]:
    stat = path.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


@contextmanager
def _translate_errors(path: Path, *, wait: float = 0, limit: float = 0) -> Iterator[None]:
    try:
        yield
    except Damaged as error:
        raise Damaged(f"the store {path} is damaged: {error}") from error
    except StoreError:
        raise
    except sqlite3.Error as error:
        advice = next((a for text, a in _ADVICE if text in str(error)), "see the cause")
        message = (
            f"the store {path} cannot be used ({error}): {advice.format(wait=wait, limit=limit)}"
        )
        raise (Damaged if "damaged" in advice else StoreError)(message) from error
    except OSError as error:
        raise StoreError(f"the store {path} cannot be used: {error}") from error
    except MemoryError as error:
        raise StoreError(f"the store {path} needs more memory than is available") from error
    except INVALID as error:
        # SQLite does not check the types of values, so a damaged file shows up here.
        raise Damaged(f"the store {path} has values that no release writes: {error}") from error
