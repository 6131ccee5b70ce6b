"""Define the columns of a table of any format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from providers.errors import DefinitionError
from skipping.model.definition import Expression
from skipping.parser.literals import split_parts

VARIANT = "variant"
"""The Spark type of columns that cannot be indexed, only expressions over them."""


@dataclass(frozen=True, slots=True)
class PhysicalColumn:
    """Where a data file stores a column, and how the format's readers read it.

    `path` is its path of names; a column with a `field_id` is found by that id instead. `imported`
    has the possible names of each part of the path in a file without field ids; it is empty if the
    table has no such mapping. If `backfilled`, files without the column read a default instead of
    null. If `proleptic`, readers never rebase old dates, whichever program wrote them.
    """

    path: tuple[str, ...] = ()
    field_id: int | None = None
    imported: tuple[tuple[str, ...], ...] = ()
    backfilled: bool = False
    proleptic: bool = False


@dataclass(frozen=True, slots=True)
class Partitioning:
    """How a table is partitioned by a column.

    `by_value`: by the column itself; the log has its value. `in_files`: files may also contain its
    values. `transforms`: partition transforms of the column, such as `days(ts)`. `generated`: the
    expression of a generated partition column in Delta, which derives conditions on the partition
    column from it.
    """

    by_value: bool = False
    in_files: bool = False
    transforms: tuple[str, ...] = ()
    generated: str | None = None


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A leaf column: its name, its identity (which survives a rename) and its Spark type.

    `refusal` is the reason why its values cannot be indexed, or None; if it `has_elements`, these
    can be. `bounded`: the number of characters (bytes) of a text bound that the table's log has for
    new files; None if it has no bounds.
    `reads` are the columns that an `expression` reads, or the columns of a multi-column index.
    `read_as` is the Arrow type of the column in the rows of a scan, if it may differ: other engines
    compare this type.
    """

    name: str
    identity: str
    type: str
    physical: PhysicalColumn = PhysicalColumn()
    partitioning: Partitioning = Partitioning()
    refusal: str | None = None
    has_elements: bool = False
    bounded: int | None = None
    expression: Expression | None = None
    reads: tuple[TableColumn, ...] = ()
    read_as: pa.DataType | None = None

    @property
    def partition(self) -> bool:
        """Whether the table is partitioned by the column itself."""
        return self.partitioning.by_value

    @property
    def index_refusal(self) -> str | None:
        """The reason why neither its values nor its elements can be indexed, or None."""
        return None if self.has_elements else self.refusal

    @property
    def is_composite(self) -> bool:
        """Whether its values are tuples of several columns."""
        return bool(self.reads) and self.expression is None

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """The names and identities of the columns of a multi-column index."""
        return tuple((c.name, c.identity) for c in self.reads) if self.is_composite else ()

    @property
    def logged_as(self) -> str:
        """The key of its values in the `partition` map of FILES."""
        id = self.physical.field_id
        return self.identity if id is None else f"#{id}"

    @property
    def opened(self) -> bool:
        """Whether its values may require opening a file."""
        return self.partitioning.in_files or not self.partition


Computing: TypeAlias = Callable[[str, Mapping[str, TableColumn], Expression | None], TableColumn]
"""Returns the column of an expression (`skipping.tables.computed`)."""


class Columns(Mapping[str, TableColumn]):
    """The leaf columns of a table by their dotted names; `resolve` ignores case, as Spark does."""

    def __init__(self, columns: Iterable[TableColumn], computing: Computing | None = None) -> None:
        """`computing` returns columns of expressions; None without Spark."""
        self._columns = {column.name: column for column in columns}
        self._computing = computing

    def compute(self, sql: str, kept: Expression | None = None) -> TableColumn:
        """Return the column of an expression over these; `kept` is its stored form, if any.

        Raises DefinitionError for an expression that cannot be indexed, or without Spark.
        """
        if self._computing is None:
            raise DefinitionError(f"{sql} is an expression: index it with Spark, which computes it")
        return self._computing(sql, self._columns, kept)

    def __getitem__(self, name: str) -> TableColumn:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def resolve(self, name: str) -> TableColumn:
        """Find a column by name; raise DefinitionError unless there is exactly one.

        As in Flint, a quoted name with dots, `` `a.b` ``, is a field unless a column has that name.
        """
        if name in self._columns:
            return self._columns[name]
        alike = [c for n, c in self._columns.items() if n.lower() == name.lower()]
        if len(alike) == 1:
            return alike[0]
        if alike:
            raise DefinitionError(f"{name} is ambiguous: {', '.join(c.name for c in alike)}")
        parts = split_parts(name)
        if len(parts) == 1 and "." in parts[0]:
            with suppress(DefinitionError):
                return self.resolve(parts[0])
        raise DefinitionError(f"no column {name}: there are {', '.join(self._columns)}")
