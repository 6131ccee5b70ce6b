"""Table formats, each read through its own log.

A table lists its files at a version; the index is only queried about files that the table listed.
Files travel as Arrow tables with the columns of FILES.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from skipping.model.definition import TableId
from skipping.tables.columns import VARIANT, Columns, Partitioning, PhysicalColumn, TableColumn
from skipping.tables.filesystem import Locate

__all__ = [
    "FILES",
    "VARIANT",
    "Columns",
    "Partitioning",
    "PhysicalColumn",
    "Table",
    "TableColumn",
    "TableSnapshot",
    "distinct_files",
    "files_table",
]

FILES = pa.schema(
    [
        ("path", pa.string()),  # fully qualified, as the format identifies the file
        ("size", pa.int64()),  # bytes, from the log
        ("stamp", pa.int64()),  # what else distinguishes it: its time or record count; or null
        ("partition", pa.map_(pa.string(), pa.string())),  # by `logged_as`, as the log has them
        ("format", pa.string()),  # only "parquet" is ever opened; others stay unknown
    ]
)


def files_table(paths: Any, sizes: Any, partition: Any, *, stamps: Any = None) -> pa.Table:
    """Return Parquet files as FILES, from a column or list for each field."""
    count = len(paths)
    stamps = pa.nulls(count, pa.int64()) if stamps is None else stamps
    return pa.table([paths, sizes, stamps, partition, pa.repeat("parquet", count)], schema=FILES)


def distinct_files(files: pa.Table, *by: str) -> pa.Table:
    """Keep the first of the files that are equal in the columns `by`."""
    numbered = files.select(by).append_column("row", pa.array(range(len(files)), pa.int64()))
    first = numbered.group_by(by, use_threads=False).aggregate([("row", "min")])
    return files.take(first["row_min"]).combine_chunks()


class Table(Protocol):
    """A table of any format, read through its log, or through a file listing if it has no log."""

    has_log: ClassVar[bool]
    """Whether a log orders the changes, and files never change. If not, a version is a digest of
    the files, `stamp` is a file's modification time in milliseconds, and a file may be replaced at
    its path.
    """

    @property
    def id(self) -> TableId:
        """The identity of the table, which changes when it is created again."""

    @property
    def name(self) -> str:
        """The catalog name or path under which its definition is stored."""

    def columns(self) -> Columns:
        """Return the current columns."""

    def version(self) -> int:
        """Return the newest version."""

    def files(self, version: int | None = None, *, where: str | None = None) -> pa.Table:
        """Return the live files (FILES) of a version, by default the newest.

        With `where`, those that may hold a row satisfying it, by partition values and by the
        format's own statistics. Raises TableError for a version that can no longer be read,
        DefinitionError for a condition that is not valid on this table.
        """

    def changes(self, since: int, until: int) -> pa.Table | None:
        """Return the files (FILES) added in versions since < v <= until, live or not.

        None if the log no longer has them, or if it is cheaper to compare `files`.
        """

    def find_reachable(self, paths: pa.Array) -> pa.Array:
        """Return for each path whether a readable version of the table may contain it."""


class TableSnapshot(Protocol):
    """One version of a table, read without Spark: its columns, its files, and their rows."""

    @property
    def columns(self) -> Columns:
        """The leaf columns."""

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns with Arrow's types."""

    @property
    def vectors(self) -> Mapping[str, pa.Array]:
        """For each file with deleted rows, by path: for each row, whether it is live."""

    def files(self) -> pa.Table:
        """Return the live files (FILES)."""

    def read(self, path: str, names: Sequence[str], locate: Locate) -> pa.Table:
        """Read top-level columns of a file by name, with the table's types, deleted rows included.

        Raises TableError for a column that cannot be read exactly.
        """
