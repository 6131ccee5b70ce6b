"""Tables without a log: a version is a digest of their files."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from providers.errors import TableError
from skipping.model.definition import TableId
from skipping.tables import FILES


def _digest_of(files: pa.Table) -> int:
    """Return a digest of the paths, sizes and times of files (FILES, sorted by path)."""
    digest = hashlib.blake2b(digest_size=8)
    for row in zip(*(files[n].to_pylist() for n in ("path", "size", "stamp")), strict=True):
        digest.update(repr(row).encode())
    return int.from_bytes(digest.digest(), "big") >> 1  # stores keep 63 bits


class UnloggedTable(ABC):
    """A folder at a `root`. Its versions have no order: they differ only if the files do.

    Only the newest version and the last result of `version` can be read; `_listed` has the files of
    the latter.
    """

    __slots__ = ()

    has_log: ClassVar[bool] = False

    root: str
    _listed: dict[int, pa.Table]

    @abstractmethod
    def _list_files(self) -> pa.Table:
        """List the files (FILES) as they are now, sorted by path."""

    @property
    def id(self) -> TableId:
        """The root. A new table at the same root has the same identity, but other files."""
        return TableId("parquet", "", self.root)

    def version(self) -> int:
        """Return a digest of paths, sizes and times; raise TableError if the table is gone."""
        files = self._list_files()
        version = _digest_of(files)
        self._listed.clear()
        self._listed[version] = files
        return version

    def changes(self, since: int, until: int) -> pa.Table | None:
        """Return None unless the versions are equal."""
        return FILES.empty_table() if since == until else None

    def find_reachable(self, paths: pa.Array) -> pa.Array:
        """Return for each path whether the file exists now: no older version can be read."""
        return pc.is_in(paths, value_set=self._list_files()["path"].combine_chunks())

    def _files_at(self, version: int | None) -> pa.Table:
        if version in self._listed:
            return self._listed[version]
        files = self._list_files()
        if version is not None and _digest_of(files) != version:
            raise TableError(f"{self.root} has no log: its older files cannot be listed")
        return files
