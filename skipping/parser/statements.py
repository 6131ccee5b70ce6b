"""What a text says, as values. Nothing here is resolved: tables, columns and kinds are names.

Every statement knows the columns of its answer before it runs (`schema`, a Spark DDL string, empty
for no columns), and where in the text its parts stand (`marks`), for errors found later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, TypeAlias

from providers.base import Param
from skipping.parser.literals import join_name

__all__ = [
    "Action",
    "AddColumns",
    "Alter",
    "Analyze",
    "ColumnDrop",
    "ColumnSpec",
    "Create",
    "Describe",
    "DescribeFiles",
    "Disable",
    "Drop",
    "DropColumns",
    "DropKind",
    "Enable",
    "Explain",
    "Name",
    "RecoverJob",
    "Refresh",
    "Report",
    "SetOptions",
    "Show",
    "ShowCounters",
    "ShowHistory",
    "ShowStreams",
    "Statement",
    "Vacuum",
    "Verify",
]

Name: TypeAlias = tuple[str, ...]
"""The parts of a name, without backticks: `("spark_catalog", "default", "flights")`."""


def _nothing() -> Mapping[str, Param]:
    return MappingProxyType({})


def _nowhere() -> Mapping[str, int]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """One column with one kind: `a.b VALUE_LIST(10)`, `c BLOOM_FILTER(fpp => 0.01)`.

    `kind` is in upper case. Positional parameters stay apart from named ones: only the kind knows
    their names. `position` and `kind_position` are where column and kind begin in the text.
    With `is_expression` the one part is an expression of Spark's SQL, as written: `lower(a)`. Of a
    `composite`, `(a, b)`, there are the names of its columns.
    """

    parts: Name
    kind: str
    positional: tuple[Param, ...] = ()
    named: Mapping[str, Param] = field(default_factory=_nothing, hash=False)
    position: int = field(default=0, compare=False, repr=False)
    kind_position: int = field(default=0, compare=False, repr=False)
    is_expression: bool = field(default=False, kw_only=True)
    composite: tuple[Name, ...] = field(default=(), kw_only=True)

    @property
    def name(self) -> str:
        """The column as it is shown; an expression as it was written."""
        return _format_name(self)


@dataclass(frozen=True, slots=True)
class ColumnDrop:
    """A column to take out of an index, with all its kinds (None) or one."""

    parts: Name
    kind: str | None = None
    position: int = field(default=0, compare=False, repr=False)
    is_expression: bool = field(default=False, kw_only=True)
    composite: tuple[Name, ...] = field(default=(), kw_only=True)

    @property
    def name(self) -> str:
        """The column as it is shown; an expression as it was written."""
        return _format_name(self)


def _format_name(given: ColumnSpec | ColumnDrop) -> str:
    if given.composite:
        return f"({', '.join(map(join_name, given.composite))})"
    return given.parts[0] if given.is_expression else join_name(given.parts)


@dataclass(frozen=True, slots=True)
class AddColumns:
    """`ADD (a MIN_MAX, ...)`."""

    columns: tuple[ColumnSpec, ...]


@dataclass(frozen=True, slots=True)
class DropColumns:
    """`DROP (a, b MIN_MAX, ...)`."""

    columns: tuple[ColumnDrop, ...]


@dataclass(frozen=True, slots=True)
class SetOptions:
    """`WITH (k = v, ...)`."""

    options: Mapping[str, Param] = field(hash=False)


@dataclass(frozen=True, slots=True)
class Enable:
    """`ENABLE`: queries ask the index again."""


@dataclass(frozen=True, slots=True)
class Disable:
    """`DISABLE`: queries do not ask the index, which stays."""


Action: TypeAlias = AddColumns | DropColumns | SetOptions | Enable | Disable


@dataclass(frozen=True, slots=True)
class _Marked:
    # Positions in the text of "table", "scope", "job", "where", "query", and "with.k" for the
    # option k.
    marks: Mapping[str, int] = field(
        default_factory=_nowhere, kw_only=True, compare=False, repr=False
    )


@dataclass(frozen=True, slots=True)
class Create(_Marked):
    """`CREATE SKIPPING INDEX [IF NOT EXISTS] ON t [FOR COLUMNS] (...) [WHERE ...] [WITH (...)]`.

    `where` is the condition exactly as written, comments inside it included. With `extends`, as in
    Databricks' `CREATE BLOOMFILTER INDEX`, an index that is there gets the columns; no columns
    stand for MIN_MAX of every column that can have it (`CREATE DATASKIPPING INDEX ON t`).
    """

    schema: ClassVar[str] = ""
    table: Name
    columns: tuple[ColumnSpec, ...]
    if_not_exists: bool = False
    where: str | None = None
    options: Mapping[str, Param] = field(default_factory=_nothing, hash=False)
    extends: bool = False


@dataclass(frozen=True, slots=True)
class Refresh(_Marked):
    """`REFRESH SKIPPING INDEX ON t`."""

    schema: ClassVar[str] = ""
    table: Name


@dataclass(frozen=True, slots=True)
class Describe(_Marked):
    """`DESC[RIBE] SKIPPING INDEX [EXTENDED] ON t`.

    A row for each column and kind, under Flint's names and one of ours. EXTENDED answers with rows
    `item`, `value` instead: first the facts about the index, then `column a.b`, `bigint MIN_MAX`
    for each column and kind, so that one name finds one fact and no row has empty cells.
    """

    table: Name
    extended: bool = False

    @property
    def schema(self) -> str:
        """That of the rows, with or without EXTENDED."""
        if self.extended:
            return "item string, value string"
        return "indexed_col_name string, data_type string, skip_type string, params string"


@dataclass(frozen=True, slots=True)
class Show(_Marked):
    """`SHOW SKIPPING INDEXES [EXTENDED] [IN catalog[.db]]`, also `SHOW FLINT INDEX[ES]`.

    A row for each index. Flint's columns come first, under its names, then ours:
    `flint_index_name` is what Flint would call it, `index` the id it has here.
    """

    scope: Name | None = None
    extended: bool = False

    @property
    def schema(self) -> str:
        """That of the rows, with or without EXTENDED."""
        columns = (
            "flint_index_name string, kind string, database string, `table` string, "
            "index_name string, auto_refresh boolean, status string"
        )
        if self.extended:
            columns += ", error string"
        columns += ", catalog string, orphan boolean, index string"
        if self.extended:
            columns += ", covered bigint, files bigint, bytes bigint"
        return columns


@dataclass(frozen=True, slots=True)
class Alter(_Marked):
    """`ALTER SKIPPING INDEX ON t`, then one action."""

    schema: ClassVar[str] = ""
    table: Name
    action: Action


@dataclass(frozen=True, slots=True)
class Analyze(_Marked):
    """`ANALYZE SKIPPING INDEX ON t`: a row for each column and kind, Flint's columns first.

    `kept_1` are the files read for one key, `sorted_1` those of the table sorted by the column, and
    `bounds_1` those that the bounds in the table's own log keep without an index, or the best kinds
    of its columns without a composite. A kind that is
    advised has the whole statement in `ddl`. `asked` scans had conditions that the kind would have
    answered and no index did; then `saved_files` would not have been opened.
    """

    schema: ClassVar[str] = (
        "column_name string, column_type string, reason string, skipping_type string, "
        "advised boolean, kept_1 double, kept_10 double, kept_100 double, "
        "bytes_a_file double, ms_a_file double, "
        "sorted_1 double, sorted_10 double, sorted_100 double, "
        "bounds_1 double, bounds_10 double, bounds_100 double, "
        "files bigint, sampled_files bigint, distinct_mean double, distinct_max bigint, "
        "average_depth double, average_overlaps double, ddl string, "
        "asked bigint, saved_files double, saved_bytes double"
    )
    table: Name


@dataclass(frozen=True, slots=True)
class Drop(_Marked):
    """`DROP SKIPPING INDEX [IF EXISTS] ON t`."""

    schema: ClassVar[str] = ""
    table: Name
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropKind(_Marked):
    """`DROP BLOOMFILTER INDEX ON t [FOR COLUMNS (...)]`, and `DROP DATASKIPPING INDEX`.

    Takes `columns`, or all, of this kind out of the index, and drops it if nothing is left.
    """

    schema: ClassVar[str] = ""
    table: Name
    kind: str
    columns: tuple[ColumnDrop, ...] = ()
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class Vacuum(_Marked):
    """`VACUUM SKIPPING INDEX ON t`."""

    schema: ClassVar[str] = ""
    table: Name


@dataclass(frozen=True, slots=True)
class RecoverJob(_Marked):
    """`RECOVER INDEX JOB name`, Flint's way to restart a failed refresh."""

    schema: ClassVar[str] = ""
    job: str


@dataclass(frozen=True, slots=True)
class DescribeFiles(_Marked):
    """`DESC[RIBE] SKIPPING FILES ON t WHERE ...`: a row a file of the newest version.

    `indexed` says whether the index knows the file, `pruned` whether it holds no match, and
    `pruned_by` which conditions alone prune it. `where` is the condition as written.
    """

    schema: ClassVar[str] = (
        "path string, size bigint, indexed boolean, pruned boolean, pruned_by array<string>"
    )
    table: Name
    where: str


@dataclass(frozen=True, slots=True)
class Explain(_Marked):
    """`EXPLAIN SKIPPING [DRY RUN] <query>`: a row a file scan of the query.

    Runs the query and throws its rows away; with DRY RUN it is only planned, and what a run alone
    tells is null. `query` is its text as written.
    """

    schema: ClassVar[str] = (
        "scan int, `table` string, files bigint, pruned bigint, unknown bigint, kept bigint, "
        "opened bigint, bytes bigint, pruned_bytes bigint, opened_bytes bigint, "
        "rows_read bigint, rows_left bigint, asked_seconds double, "
        "conditions array<struct<condition: string, pruned: bigint>>, `keys` array<string>, "
        "reason string, unused array<string>, explanation string"
    )
    query: str
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Verify(_Marked):
    """`VERIFY SKIPPING <query>`: one row, of two runs that gave the same rows.

    `rows` are those of the query, `opened` and `opened_without` the files that it opened with its
    indexes and without.
    """

    schema: ClassVar[str] = "`rows` bigint, opened bigint, opened_without bigint, note string"
    query: str


@dataclass(frozen=True, slots=True)
class ShowHistory(_Marked):
    """`SHOW SKIPPING HISTORY [FOR t]`: a row a scan of the last executions, the oldest first."""

    schema: ClassVar[str] = (
        "execution bigint, root bigint, action string, ended timestamp, seconds double, "
        "`table` string, files bigint, pruned bigint, unknown bigint, opened bigint, "
        "bytes bigint, pruned_bytes bigint, opened_bytes bigint, asked_seconds double, "
        "pruned_by array<string>, `keys` array<string>, reason string, unused array<string>, "
        "statement string"
    )
    table: Name | None = None


@dataclass(frozen=True, slots=True)
class ShowStreams(_Marked):
    """`SHOW SKIPPING STREAMS`: a row for each index that follows its table by a stream."""

    schema: ClassVar[str] = (
        "`table` string, index string, owner string, here boolean, running boolean, "
        "version bigint, covered bigint, versions_behind bigint, files_behind bigint, "
        "seconds_behind double, batch bigint, error string"
    )


@dataclass(frozen=True, slots=True)
class ShowCounters(_Marked):
    """`SHOW SKIPPING COUNTERS`: a row a table, sums since the session was enabled."""

    schema: ClassVar[str] = (
        "`table` string, scans bigint, asked bigint, files bigint, skipped bigint, "
        "unknown bigint, bytes bigint, skipped_bytes bigint, opened bigint, "
        "lookup_seconds double, fallbacks map<string, bigint>"
    )


Report: TypeAlias = Explain | Verify | ShowHistory | ShowCounters
"""Statements that only a session with hooks can run (`skipping.extensions`)."""

Statement: TypeAlias = (
    Create
    | Refresh
    | Describe
    | Show
    | Alter
    | Analyze
    | Drop
    | DropKind
    | Vacuum
    | RecoverJob
    | DescribeFiles
    | ShowStreams
    | Report
)
