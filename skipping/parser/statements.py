"""Define the parsed statements. Tables, columns and index types are names, not resolved yet.

`schema` has the columns of a statement's result, which are known before it runs: a Spark DDL
string, empty for no columns. `marks` has the positions of its parts in the text, for errors that
are found later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeAlias

from providers.base import Param
from skipping.parser.literals import join_name

Name: TypeAlias = tuple[str, ...]
"""The parts of a name, without backticks: `("spark_catalog", "default", "flights")`."""


def _nothing() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """A column with an index type: `a.b VALUE_LIST(10)`, `c BLOOM_FILTER(fpp => 0.01)`.

    `kind` is the index type in upper case. Only the index type knows the names of the `positional`
    parameters. `position` and `kind_position` are the offsets of the column and the type in the
    text. If `is_expression` is true, the only part is a Spark SQL expression as written, such as
    `lower(a)`. `composite` has the columns of a multi-column index: `(a, b)`.
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
        """The column as in SQL; an expression as it was written."""
        return _format_name(self)


@dataclass(frozen=True, slots=True)
class ColumnDrop:
    """A column to remove from an index; `kind` is the index type to remove, None for all."""

    parts: Name
    kind: str | None = None
    position: int = field(default=0, compare=False, repr=False)
    is_expression: bool = field(default=False, kw_only=True)
    composite: tuple[Name, ...] = field(default=(), kw_only=True)

    @property
    def name(self) -> str:
        """The column as users write it; an expression as it was written."""
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
    """`ENABLE`: queries use the index again."""


@dataclass(frozen=True, slots=True)
class Disable:
    """`DISABLE`: queries do not use the index; its entries are not deleted."""


Action: TypeAlias = AddColumns | DropColumns | SetOptions | Enable | Disable


@dataclass(frozen=True, slots=True)
class _Marked:
    # Positions in the text of "table", "scope", "job", "where", "query", and "with.k" for the
    # option k.
    marks: Mapping[str, int] = field(
        default_factory=_nothing, kw_only=True, compare=False, repr=False
    )


@dataclass(frozen=True, slots=True)
class Create(_Marked):
    """`CREATE SKIPPING INDEX [IF NOT EXISTS] ON t [FOR COLUMNS] (...) [WHERE ...] [WITH (...)]`.

    With AUTO instead of the columns, the index is `automatic` and chooses them. `where` is the
    condition exactly as written, with comments. `extends` is true for Databricks' statements:
    `CREATE BLOOMFILTER INDEX` adds the columns to an existing index, and `CREATE DATASKIPPING INDEX
    ON t`, which has no columns, adds MIN_MAX to every column that can have it.
    """

    schema: ClassVar[str] = ""
    table: Name
    columns: tuple[ColumnSpec, ...]
    if_not_exists: bool = False
    where: str | None = None
    options: Mapping[str, Param] = field(default_factory=_nothing, hash=False)
    extends: bool = False
    automatic: bool = False


@dataclass(frozen=True, slots=True)
class Refresh(_Marked):
    """`REFRESH SKIPPING INDEX ON t [DRY RUN]`.

    A dry run changes nothing. It returns what an automatic index would decide, as SHOW SKIPPING
    DECISIONS.
    """

    table: Name
    dry_run: bool = False

    @property
    def schema(self) -> str:
        """The columns of the rows of a dry run."""
        return ShowDecisions.schema if self.dry_run else ""


@dataclass(frozen=True, slots=True)
class Describe(_Marked):
    """`DESC[RIBE] SKIPPING INDEX [EXTENDED] ON t`.

    Returns a row for each column and index type: the columns of Flint, and `params`. EXTENDED
    returns (`item`, `value`) rows instead: first the properties of the index, then a row such as
    (`column a.b`, `bigint MIN_MAX`) for each column.
    """

    table: Name
    extended: bool = False

    @property
    def schema(self) -> str:
        """The columns of the rows, with or without EXTENDED."""
        if self.extended:
            return "item string, value string"
        return "indexed_col_name string, data_type string, skip_type string, params string"


@dataclass(frozen=True, slots=True)
class Show(_Marked):
    """`SHOW SKIPPING INDEXES [EXTENDED] [IN catalog[.db]]`, also `SHOW FLINT INDEX[ES]`.

    Returns a row for each index: Flint's columns first, then those of this project.
    `flint_index_name` is its name in Flint, `index` its id.
    """

    scope: Name | None = None
    extended: bool = False

    @property
    def schema(self) -> str:
        """The columns of the rows, with or without EXTENDED."""
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
    """`ALTER SKIPPING INDEX ON t`, followed by one action."""

    schema: ClassVar[str] = ""
    table: Name
    action: Action


@dataclass(frozen=True, slots=True)
class Analyze(_Marked):
    """`ANALYZE SKIPPING INDEX ON t [WITH (budget = '5%', details = true)]`.

    Returns a row for each column with its recommended index type, Flint's columns first, then a row
    with the size of all of them and the statement to run in `ddl`. `saved` is the fraction of bytes
    that queries on the column do not read with it. `budget` is the maximum size of the index as a
    fraction of the table's bytes, None for the default.

    With `details`, returns a row for each column and index type. `kept_1` is the number of files
    read for one key, and `sorted_1` the same if the table were sorted by the column. `bounds_1` is
    the same without this index: by the bounds in the table's log, or for several columns, by the
    best types of each. For a recommended type, `ddl` has the CREATE or ALTER statement.
    `past_scans` counts scans with a condition that this type, but no existing index, can evaluate.
    It would have saved them `saved_files`.
    """

    table: Name
    budget: float | None = None
    details: bool = field(default=False, kw_only=True)

    @property
    def schema(self) -> str:
        """The columns of the rows, with or without details."""
        flint = "column_name string, column_type string, reason string, skipping_type string, "
        if self.details:
            return flint + _DETAILS
        return flint + "saved double, index_bytes bigint, data_share double, ddl string"


_DETAILS = (
    "advised boolean, kept_1 double, kept_10 double, kept_100 double, "
    "bytes_a_file double, ms_a_file double, "
    "sorted_1 double, sorted_10 double, sorted_100 double, "
    "bounds_1 double, bounds_10 double, bounds_100 double, "
    "files bigint, sampled_files bigint, distinct_mean double, distinct_max bigint, "
    "average_depth double, average_overlaps double, ddl string, "
    "past_scans bigint, saved_files double, saved_bytes double"
)


@dataclass(frozen=True, slots=True)
class Drop(_Marked):
    """`DROP SKIPPING INDEX [IF EXISTS] ON t`."""

    schema: ClassVar[str] = ""
    table: Name
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropKind(_Marked):
    """`DROP BLOOMFILTER INDEX ON t [FOR COLUMNS (...)]`, and `DROP DATASKIPPING INDEX`.

    Removes this type from `columns`, or from all columns, and drops the index if none is left.
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
    """`RECOVER INDEX JOB name`: Flint's statement to restart a failed refresh."""

    schema: ClassVar[str] = ""
    job: str


@dataclass(frozen=True, slots=True)
class DescribeFiles(_Marked):
    """`DESC[RIBE] SKIPPING FILES ON t WHERE ...`: a row for each file of the newest version.

    `indexed` is true if the file has an entry, and `pruned` if the file cannot match. `pruned_by`
    lists the conditions that prune the file on their own. `where` is the condition as written.
    """

    schema: ClassVar[str] = (
        "path string, size bigint, indexed boolean, pruned boolean, pruned_by array<string>"
    )
    table: Name
    where: str


@dataclass(frozen=True, slots=True)
class Explain(_Marked):
    """`EXPLAIN SKIPPING [DRY RUN] [WITH (...)] <query>`: a row for each file scan of the query.

    Runs the query and discards its rows. DRY RUN only plans it; columns that need a run are null.
    `query` is the text as written. `columns` are those of an index that does not exist: the query
    is only planned, and the counts of files are estimates for this index.
    """

    schema: ClassVar[str] = (
        "scan int, `table` string, files bigint, pruned bigint, unknown bigint, to_read bigint, "
        "opened bigint, bytes bigint, pruned_bytes bigint, opened_bytes bigint, "
        "rows_read bigint, rows_left bigint, lookup_seconds double, "
        "conditions array<struct<condition: string, pruned: bigint>>, `keys` array<string>, "
        "reason string, unused array<string>, explanation string"
    )
    query: str
    dry_run: bool = False
    columns: tuple[ColumnSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class Verify(_Marked):
    """`VERIFY SKIPPING <query>`: run the query with and without indexes, and compare the rows.

    Returns one row if they are equal, else the statement fails. `rows` counts the rows; `opened`
    and `opened_without` count the files opened with and without indexes.
    """

    schema: ClassVar[str] = "`rows` bigint, opened bigint, opened_without bigint, note string"
    query: str


@dataclass(frozen=True, slots=True)
class ShowHistory(_Marked):
    """`SHOW SKIPPING HISTORY [FOR t]`: a row for each recent scan, oldest first."""

    schema: ClassVar[str] = (
        "execution bigint, root bigint, action string, ended timestamp, seconds double, "
        "`table` string, files bigint, pruned bigint, unknown bigint, opened bigint, "
        "bytes bigint, pruned_bytes bigint, opened_bytes bigint, lookup_seconds double, "
        "pruned_by array<string>, `keys` array<string>, reason string, unused array<string>, "
        "statement string"
    )
    table: Name | None = None


@dataclass(frozen=True, slots=True)
class ShowStreams(_Marked):
    """`SHOW SKIPPING STREAMS`: a row for each index that a stream maintains."""

    schema: ClassVar[str] = (
        "`table` string, index string, owner string, is_local boolean, running boolean, "
        "version bigint, covered bigint, versions_behind bigint, files_behind bigint, "
        "seconds_behind double, batch bigint, error string"
    )


@dataclass(frozen=True, slots=True)
class ShowCounters(_Marked):
    """`SHOW SKIPPING COUNTERS`: a row for each table with sums since the session was enabled."""

    schema: ClassVar[str] = (
        "`table` string, scans bigint, lookups bigint, files bigint, skipped bigint, "
        "unknown bigint, bytes bigint, skipped_bytes bigint, opened bigint, "
        "lookup_seconds double, fallbacks map<string, bigint>"
    )


@dataclass(frozen=True, slots=True)
class ShowSavings(_Marked):
    """`SHOW SKIPPING SAVINGS [FOR t] [BY COLUMN | DAY]`: what queries of all drivers did not read.

    Returns a row for each table, for each of its columns with a condition, or for each of its days.
    """

    table: Name | None = None
    by: Literal["column", "day"] | None = None

    @property
    def schema(self) -> str:
        """The columns of the rows; those about the index are missing BY COLUMN."""
        first = {None: "since date", "column": "`column` string", "day": "day date"}[self.by]
        index = "" if self.by == "column" else "index_bytes bigint, cost double, "
        return (
            f"`table` string, {first}, queries bigint, pruned_queries bigint, files bigint, "
            f"bytes bigint, requests bigint, seconds double, saved double, {index}"
            "opened_files bigint, opened_bytes bigint, unmatched_files bigint, note string"
        )


@dataclass(frozen=True, slots=True)
class ShowDecisions(_Marked):
    """`SHOW SKIPPING DECISIONS [FOR t]`: a row for each recent change of an automatic index.

    `benefit` is the number of bytes that queries read less on a day, and `cost` that of the
    column's sketches, divided by the days in which they must pay off.
    """

    schema: ClassVar[str] = (
        "`table` string, day date, action string, `column` string, skipping_type string, "
        "benefit double, cost double, reason string"
    )
    table: Name | None = None


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
    | ShowSavings
    | ShowDecisions
    | Report
)
