"""Read Delta tables with delta-rs: its log, its credentials.

Paths, sizes and identities are those of Delta in Spark, so that one index serves both.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler

from providers.errors import TableError, first_line
from skipping.model.definition import TableId
from skipping.tables import FILES, Columns
from skipping.tables.delta.deltalake_files import LiveFiles, table_root
from skipping.tables.delta.deltalake_where import delta_rs_condition
from skipping.tables.filesystem import locate

_AT_ONCE = 16
"""Files or commits that are read at a time."""

_COMMITS = 1_000
"""Above this number of commits, compare the live files instead of reading each commit."""


def open_delta(url: str, name: str) -> DeltaTable:
    """Open the table at a URL; a TableError has the user's `name` for it."""
    with _translate_errors(name):
        return _load(url)


@dataclass(frozen=True, slots=True)
class DeltaLakeTable:
    """A table of delta-rs, loaded again for each call; the given object does not change.

    If a table was dropped and created again at the same path, it is the new table.
    """

    table: DeltaTable

    has_log: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """The path, as Delta in Spark names a table without a catalog."""
        return f"delta.`{table_root(self.table.table_uri)}`"

    @property
    def id(self) -> TableId:
        """The id in the metadata, with the root: copies of a folder share the id."""
        with _translate_errors(self.name):
            newest = self._at()
            return TableId("delta", str(newest.metadata().id), table_root(newest.table_uri))

    def version(self) -> int:
        """Return the newest version; raise TableError if the table is gone."""
        with _translate_errors(self.name):
            return int(self._at().version())

    def columns(self) -> Columns:
        """Return the current columns; those that cannot be indexed have a reason."""
        with _translate_errors(self.name):
            return LiveFiles.of(self._at()).columns

    def files(self, version: int | None = None, *, where: str | None = None) -> pa.Table:
        """Return the live files (FILES) of a version; with `where` those that delta-rs reads."""
        with _translate_errors(self.name):
            live = LiveFiles.of(self._at(version))
            files = live.files()
        if where is None:
            return files
        condition = delta_rs_condition(where, live.columns)
        with _translate_errors(self.name):
            uris = live.table.file_uris(file_pruning_predicate=condition)
        # Compare the unique file names, because URIs differ from the log's paths.
        kept = pa.array([unquote(uri).rpartition("/")[2] for uri in uris], pa.string())
        names = pc.replace_substring_regex(files["path"], r"(?s)\A.*/", "")
        return files.filter(pc.is_in(names, value_set=kept))

    def changes(self, since: int, until: int) -> pa.Table | None:
        """See `Table`. delta-rs has no function for it, so this reads up to _COMMITS commits."""
        if until <= since:
            return FILES.empty_table()
        if until - since > _COMMITS:
            return None
        try:
            return LiveFiles.of(self._at()).read_commits(self._commits(since + 1, until + 1))
        except (DeltaError, OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def _commits(self, first: int, end: int) -> Iterator[bytes]:
        def text(version: int) -> bytes:
            filesystem, path = self.locate(f"{root}/_delta_log/{version:020d}.json")
            with filesystem.open_input_stream(path) as file:
                return bytes(file.read())

        root = table_root(self.table.table_uri)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            yield from pool.map(text, range(first, end))

    def find_reachable(self, paths: pa.Array) -> pa.Array:
        """Return for each path whether the file exists: no version can read a deleted file.

        Raises TableError if the storage is unreachable.
        """

        def exists(path: str) -> bool:
            filesystem, inner = self.locate(path)
            return bool(filesystem.get_file_info(inner).type != pafs.FileType.NotFound)

        with _translate_errors(self.name), ThreadPoolExecutor(_AT_ONCE) as pool:
            return pa.array(list(pool.map(exists, paths.to_pylist())), pa.bool_())

    def snapshot(self) -> LiveFiles:
        """Return the version that the given table is at, with its files listed."""
        with _translate_errors(self.name):
            snapshot = LiveFiles.of(self._at(self.table.version()))
            _ = snapshot.columns, snapshot.arrow_schema, snapshot.files()
            return snapshot

    def locate(self, path: str) -> tuple[pafs.FileSystem, str]:
        """Return a path's file system, with the table's own credentials, and the path in it."""
        match = re.fullmatch(_REMOTE, path, re.DOTALL)
        if match is None or match[1] == "file":
            root = re.fullmatch(_REMOTE, self.table.table_uri, re.DOTALL)
            if root is not None and root[1] != "file":  # its writers must not name local files
                raise TableError(f"the log of {self.table.table_uri} names a local file: {path}")
            return locate(path)
        return _open_filesystem(
            f"{match[1]}://{match[2]}/", *sorted(self._options().items())
        ), match[3]

    def _options(self) -> dict[str, str]:
        return dict(self.table._storage_options or {})

    def _at(self, version: int | None = None) -> DeltaTable:
        return _load(self.table.table_uri, version, self._options())


_REMOTE = r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)/(.*)"


def _load(
    url: str, version: int | None = None, options: dict[str, str] | None = None
) -> DeltaTable:
    if escape := re.search("%[0-9A-Fa-f]{2}", unquote(url)):
        raise TableError(
            f"delta-rs cannot open {table_root(url)}: it decodes {escape[0]} in the path and would "
            "read another folder. Rename the folder, or use Spark"
        )
    return DeltaTable(url, version, storage_options=options or None)


@functools.lru_cache(64)
def _open_filesystem(uri: str, *options: tuple[str, str]) -> pafs.FileSystem:
    return pafs.PyFileSystem(DeltaStorageHandler(uri, dict(options)))


@contextlib.contextmanager
def _translate_errors(name: str) -> Iterator[None]:
    try:
        yield
    except (DeltaError, OSError, ValueError) as error:
        raise TableError(f"cannot read table {name}: {first_line(error)}") from error
