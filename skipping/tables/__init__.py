"""Table formats, each read through its own log.

A table lists its files at a version; the index is only queried about files that the table listed.
Files travel as Arrow tables with the columns of FILES.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

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
]

FILES = pa.schema(
    [
        ("path", pa.string()),  # fully qualified, as the format identifies the file
        ("size", pa.int64()),  # bytes, from the log
        ("stamp", pa.int64()),  # what else tells it apart: its time, its record count; or null
        ("partition", pa.map_(pa.string(), pa.string())),  # by `logged_as`, as the log has them
        ("format", pa.string()),  # only "parquet" is ever opened; others stay unknown
    ]
)


class Table(Protocol):
    """A format read through its log, or, where it has none, through what Spark lists."""

    has_log: ClassVar[bool]
    """Whether files never change, and versions tell what came when. If not, a version is a digest
    of the files, `stamp` a file's modification time in milliseconds, and a file may be replaced at
    its path."""

    @property
    def id(self) -> TableId:
        """Which incarnation this is."""

    @property
    def name(self) -> str:
        """The catalog name, or the path, that a definition is kept under."""

    def columns(self) -> Columns:
        """The columns as of now."""

    def version(self) -> int:
        """The newest version."""

    def files(self, version: int | None = None, *, where: str | None = None) -> pa.Table:
        """The live files (FILES) of a version, the newest unless given.

        With `where`, those that may hold a row satisfying it, by partition values and by the
        format's own statistics.
        """

    def changes(self, since: int, until: int) -> pa.Table | None:
        """Files (FILES) added in versions since < v <= until, whether they still live or not.

        None: the log does not tell any more, or it is not worth asking; compare `files` instead.
        """

    def find_reachable(self, paths: pa.Array) -> pa.Array:
        """Of each path whether some version of the table that can still be read may have it."""


class TableSnapshot(Protocol):
    """One version of a table that is read without Spark: its columns, its files, their rows."""

    @property
    def columns(self) -> Columns:
        """The leaf columns."""

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns as Arrow has them."""

    @property
    def vectors(self) -> Mapping[str, pa.Array]:
        """By path, for each row of a file whether it is live; others have all of theirs."""

    def files(self) -> pa.Table:
        """The live files (FILES)."""

    def read(self, path: str, names: Sequence[str], locate: Locate) -> pa.Table:
        """Top-level columns of a file by name, as the table has them; dead rows among them.

        Raises TableError for a column that cannot be read exactly.
        """
