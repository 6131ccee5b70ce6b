"""List and read plain Parquet folders with pyarrow and its file systems.

Paths, sizes, times and identities are those of Spark, so that one index serves both.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from providers.errors import DefinitionError, TableError, first_line
from skipping.model.identifiers import sql_name
from skipping.tables import Columns
from skipping.tables.filesystem import locate
from skipping.tables.parquet.files import FolderFiles
from skipping.tables.parquet.listing import Listing, list_folder
from skipping.tables.parquet.unlogged import UnloggedTable

_SCHEMES = {"s3": "s3a", "gcs": "gs"}
"""Spark's scheme for an Arrow file system."""


@dataclass(frozen=True, slots=True)
class ParquetFolder(UnloggedTable):
    """A folder by its root in Hadoop's form (`file:/tmp/x y`); it is listed for each call.

    `filesystem` and `schema` are those of the Dataset, if any; by default, the root's file system
    is used. `base` is the prefix of its paths in Spark (`file:`, `s3a://`).
    """

    root: str
    filesystem: pafs.FileSystem | None = field(default=None, repr=False)
    base: str = ""
    schema: pa.Schema | None = field(default=None, repr=False)
    _listed: dict[int, pa.Table] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> ParquetFolder:
        """Open the folder at an unescaped path: `/data/t`, `file:/data/t`, `s3a://bucket/t`.

        Raises TableError for a complete bucket, which Spark spells in two ways.
        """
        given = os.fspath(path)
        match = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]+):(?://([^/]*))?(/.*|)", given, re.DOTALL)
        if match is None or match[1] == "file":
            return cls("file:" + os.path.abspath(match[3] if match else given))
        inner = match[3].rstrip("/")
        if not inner:
            raise TableError(f"{given} is a bucket: name a folder in it")
        return cls(f"{match[1]}://{match[2] or ''}{inner}")

    @classmethod
    def of(cls, dataset: ds.Dataset) -> ParquetFolder:
        """Open the folder of a Dataset; raise TableError if it has no Parquet folder."""
        if not isinstance(dataset, ds.FileSystemDataset) or not isinstance(
            dataset.format, ds.ParquetFileFormat
        ):
            raise TableError(
                f"a {type(dataset).__name__} does not consist of Parquet files in a folder"
            )
        kind = dataset.filesystem.type_name
        paths = list(map(os.path.abspath, dataset.files)) if kind == "local" else dataset.files
        base = "file:" if kind == "local" else f"{_SCHEMES.get(kind, '')}://"
        if base == "://":
            raise TableError(
                f"Spark has no name for files in a {kind} file system: give the folder's path"
            )
        roots = {re.sub(r"(/[^/]*=[^/]*)*/[^/]*\Z", "", path) for path in paths}
        if len(roots) != 1:
            raise TableError(
                f"the dataset has files of {len(roots)} folders; an index covers one: give its path"
            )
        made = cls(base + roots.pop(), dataset.filesystem, base, dataset.schema)
        missing = {base + path for path in paths}.symmetric_difference(
            made._list_files()["path"].to_pylist()
        )
        if missing:
            raise TableError(
                f"the dataset does not have exactly the files of {made.root}: give the folder's "
                f"path, or create the dataset again ({', '.join(sorted(missing)[:3])})"
            )
        return made

    @property
    def name(self) -> str:
        """The path, as Spark names the table."""
        return sql_name(["parquet", self.root])

    def columns(self) -> Columns:
        """Return the columns of the first file, as Spark does; raise TableError."""
        return self.snapshot().columns

    def files(self, version: int | None = None, *, where: str | None = None) -> pa.Table:
        """List the files (FILES); raise DefinitionError for a condition, which needs Spark."""
        if where is not None:
            raise DefinitionError(
                "without Spark, an index of a Parquet folder does not support WHERE"
            )
        return self._files_at(version)

    def snapshot(self) -> FolderFiles:
        """Return the folder as it is now, with its files listed."""
        return FolderFiles.of(self._list(), self.locate, self.schema)

    def locate(self, path: str) -> tuple[pafs.FileSystem, str]:
        """Return a path's file system, which is that of the Dataset if any, and the path in it."""
        if self.filesystem is None:
            return locate(path)
        return self.filesystem, path.removeprefix(self.base)

    def _list_files(self) -> pa.Table:
        return self._list().files

    def _list(self) -> Listing:
        try:
            return list_folder(self.root, *self.locate(self.root))
        except (pa.ArrowException, OSError) as error:
            raise TableError(f"cannot list {self.root}: {first_line(error)}") from error
