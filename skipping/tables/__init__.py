"""Table formats, each read through its own log.

A table lists its files at a version; the index is only asked about files that the table listed.
Files travel as Arrow tables with the columns of FILES.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias

import pyarrow as pa

from providers.errors import DefinitionError
from skipping.model.definition import Expression, TableId
from skipping.parser.literals import split_parts
from skipping.tables.filesystem import Locate

__all__ = ["FILES", "VARIANT", "Columns", "Table", "TableColumn", "TableSnapshot"]

FILES = pa.schema(
    [
        ("path", pa.string()),  # fully qualified, as the format identifies the file
        ("size", pa.int64()),  # bytes, from the log
        ("stamp", pa.int64()),  # what else tells it apart: its time, its record count; or null
        ("partition", pa.map_(pa.string(), pa.string())),  # by `logged_as`, as the log has them
        ("format", pa.string()),  # only "parquet" is ever opened; others stay unknown
    ]
)


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A leaf column: name, identity, Spark type, and where it is in a data file.

    `identity` survives a rename. `physical` is its path of names in a Parquet file; with
    `field_id` it is found by that id instead. `refusal` says why it cannot be indexed, if so.
    `backfilled`: rows of files without the column read a default, not null. `in_files`: of a
    partition column, whether a file may have its values, beside the log. `imported`: the names
    that each part of its path may have in a file without field ids; none if that is not known.
    `proleptic`: readers of the format take old dates as they stand, whoever wrote the file.
    `bounded`: how many characters (bytes) of a text's bounds the table's own log keeps for files
    written now; None where it keeps no bounds. `reads` are the columns that an `expression` is
    over, or else that it is the composite of. `divided_by`: what the table is partitioned by that
    is made of it, as `days(ts)`; not the column as it is (`partition`). `generated`: of a partition
    column, the expression that Delta makes it by, and derives conditions on it from. `read_as`: the
    Arrow type that rows of a scan have of it, which other engines compare, if that may differ.
    """

    name: str
    identity: str
    type: str
    physical: tuple[str, ...]
    field_id: int | None = None
    partition: bool = False
    refusal: str | None = None
    backfilled: bool = False
    in_files: bool = False
    imported: tuple[tuple[str, ...], ...] = ()
    proleptic: bool = False
    bounded: int | None = None
    divided_by: tuple[str, ...] = ()
    generated: str | None = None
    expression: Expression | None = None
    reads: tuple[TableColumn, ...] = ()
    read_as: pa.DataType | None = None

    @property
    def is_composite(self) -> bool:
        """Whether its values are the tuples of several columns."""
        return bool(self.reads) and self.expression is None

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """Of a composite the names of its columns, with their identities."""
        return tuple((c.name, c.identity) for c in self.reads) if self.is_composite else ()

    @property
    def logged_as(self) -> str:
        """What the log's partition values are kept under."""
        return self.identity if self.field_id is None else f"#{self.field_id}"

    @property
    def opened(self) -> bool:
        """Whether a file may have to be opened for its values."""
        return self.in_files or not self.partition


VARIANT = "variant"
"""The Spark type of columns that have no index themselves, only expressions over them."""

Computing: TypeAlias = Callable[[str, Mapping[str, TableColumn], Expression | None], TableColumn]
"""Makes a column of an expression (`skipping.tables.computed`)."""


class Columns(Mapping[str, TableColumn]):
    """The leaf columns of a table by their dotted name, found as Spark finds them: in any case."""

    def __init__(self, columns: Iterable[TableColumn], computing: Computing | None = None) -> None:
        """`computing` makes columns of expressions, where Spark is there to compute them."""
        self._columns = {column.name: column for column in columns}
        self._computing = computing

    def compute(self, sql: str, kept: Expression | None = None) -> TableColumn:
        """The column that an expression over these is, or that a definition says it was.

        Raises DefinitionError for what cannot be indexed, and without Spark.
        """
        if self._computing is None:
            raise DefinitionError(f"{sql} is an expression, which Spark computes: index it there")
        return self._computing(sql, self._columns, kept)

    def __getitem__(self, name: str) -> TableColumn:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def resolve(self, name: str) -> TableColumn:
        """The column a user means; raises DefinitionError if there is none or more than one.

        As in Flint, a quoted name with dots, `` `a.b` ``, is a field unless a column is called so.
        """
        if name in self._columns:
            return self._columns[name]
        alike = [c for n, c in self._columns.items() if n.lower() == name.lower()]
        if len(alike) == 1:
            return alike[0]
        if alike:
            raise DefinitionError(f"{name} may be any of {', '.join(c.name for c in alike)}")
        parts = split_parts(name)
        if len(parts) == 1 and "." in parts[0]:
            with suppress(DefinitionError):
                return self.resolve(parts[0])
        raise DefinitionError(f"no column {name}: there are {', '.join(self._columns)}")


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

    def retained(self, paths: pa.Array) -> pa.Array:
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
