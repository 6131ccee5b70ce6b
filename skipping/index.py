"""The index of one table: what the SQL statements do, in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from providers.base import Param
from providers.errors import Conflict, DefinitionError, SkippingError, TableError
from providers.predicate import Predicate
from skipping.config.options import IndexOptions
from skipping.indexing.definitions import (
    add_columns,
    alter_definition,
    carry_over,
    define_index,
    drop_columns,
    dropped_error,
    find_index,
    reload_definition,
    warn_of_own_pruning,
)
from skipping.indexing.describe import as_html, describe, is_replaced, standing
from skipping.indexing.refresh import Pending, find_gaps, find_pending, list_files, refresh
from skipping.indexing.vacuum import vacuum
from skipping.lookup.lookup import invalidate
from skipping.lookup.query import IndexQuery
from skipping.lookup.scan_plan import ScanPlan
from skipping.model.definition import Definition, IndexId, Revision, State, Versioned
from skipping.model.identifiers import shown_name
from skipping.parser import ColumnSpec
from skipping.parser.condition import Strings, require_same_strings
from skipping.parser.fragments import column_drops, column_specs
from skipping.parser.statements import ColumnDrop
from skipping.scans.open import open_scan
from skipping.sources.base import Source
from skipping.sources.open import open_source
from skipping.stores import IDENTITY, IndexStore, identities
from skipping.tables import Table

if TYPE_CHECKING:
    from os import PathLike

    from deltalake import DeltaTable
    from pyarrow.dataset import Dataset
    from pyiceberg.table import Table as PyIceberg
    from pyspark.sql import SparkSession
    from typing_extensions import Self

    from skipping.advise.analyze import Advice
    from skipping.scans.file_scan import FileScan
    from skipping.scans.iceberg_scan import IndexedScan
    from skipping.scans.join import Joined
    from skipping.scans.verification import Verification

__all__ = ["SkippingIndex"]


class SkippingIndex:
    """The index of one table in one store.

    >>> index = SkippingIndex.on(spark, "flights")  # doctest: +SKIP
    >>> print(index.lookup(Compare("tailnum", "=", "N201AA")))  # doctest: +SKIP

    PyIceberg tables, delta-rs tables (`DeltaTable`) and folders of Parquet files (a path, or a
    `Dataset` of pyarrow) need neither Spark nor a JVM; for these, name the store:

    >>> flights = catalog.load_table("db.flights")  # doctest: +SKIP
    >>> index = SkippingIndex.on(flights, store="sqlite:/data/skipping.sqlite")  # doctest: +SKIP
    >>> index.scan("tailnum = 'N201AA'").to_pandas()  # doctest: +SKIP
    """

    def __init__(
        self, source: Source, store: IndexStore, definition: Versioned[Definition]
    ) -> None:
        self._source = source
        self._definition = definition
        self._pending: Pending | None = None  # spares the next refresh the search
        self.table: Table = source.table
        self.store = store

    @classmethod
    def create(
        cls,
        source: SparkSession | PyIceberg | DeltaTable | Dataset | str | PathLike[str],
        table: str | None = None,
        columns: str | Sequence[str] | None = None,
        *,
        where: str | None = None,
        build: bool = True,
        store: IndexStore | str | PathLike[str] | None = None,
        timeout: float | None = None,
        if_not_exists: bool = False,
        options: Mapping[str, Param] | None = None,
    ) -> Self:
        """Define an index and build it.

        Args:
            source: a Spark session, or a table that is opened without Spark.
            table: the name of the table, only with a Spark session.
            columns: `"tailnum VALUE_LIST(500), dep_time MIN_MAX"` as in SQL, or a list of such
                texts. Without Spark they follow the table: `create(flights, "tailnum VALUE_LIST")`.
            where: as WHERE of CREATE SKIPPING INDEX.
            build: whether to index the existing files now.
            store: where the index is stored; by default as the settings say.
            timeout: as in `on`.
            if_not_exists: return the index that the table has already, unchanged.
            options: those of WITH: `{"auto_refresh": True}` starts a stream in this session.

        Raises StatementError, DefinitionError, TableError, and Conflict if the table has an index.

        """
        name, columns = (None, table) if columns is None else (table, columns)
        if columns is None:
            raise DefinitionError(
                'name the columns to index: create(spark, "flights", "tailnum VALUE_LIST"), or '
                'without Spark create(flights, "tailnum VALUE_LIST")'
            )
        text = columns if isinstance(columns, str) else ", ".join(columns)
        specs, chosen = column_specs(text), IndexOptions.of(options or {})
        session: Any = source
        if chosen.streamed or chosen.checkpoint_location is not None:
            if name is None:
                raise DefinitionError("a stream needs a Spark session: leave out auto_refresh")
            from skipping.streaming.checkpoints import require_checkpoint  # imports Spark

            require_checkpoint(session, chosen)
        try:
            index = cls.define(
                source, name, specs, where=where, options=chosen, store=store, timeout=timeout
            )
        except Conflict:
            if not if_not_exists:
                raise
            return cls.on(source, name, store=store, timeout=timeout)
        if build and chosen.build:
            index.refresh()
        if chosen.streamed:
            from skipping.streaming.jobs import start_stream

            start_stream(session, index.store, index.table.name, open_index=cls.on)
        return index

    @classmethod
    def define(
        cls,
        source: SparkSession | PyIceberg | DeltaTable | Dataset | str | PathLike[str],
        table: str | None,
        columns: Sequence[ColumnSpec],
        *,
        where: str | None = None,
        options: IndexOptions | None = None,
        store: IndexStore | str | PathLike[str] | None = None,
        timeout: float | None = None,
    ) -> Self:
        """Define an index of parsed columns, without building it; raises as `create`."""
        given = open_source(source, table).within(timeout)
        store = given.kept_in(store)
        if where is not None and given.spark is not None:
            require_same_strings(where, _read_string_rules(given.spark))
        definition = define_index(
            store,
            given.table,
            columns,
            providers=given.settings().providers,
            where=where,
            options=options,
            timeout=timeout,
        )
        invalidate(store)
        return cls(given, store, definition)

    @classmethod
    def on(
        cls,
        source: SparkSession | PyIceberg | DeltaTable | Dataset | str | PathLike[str],
        table: str | None = None,
        *,
        store: IndexStore | str | PathLike[str] | None = None,
        likely: IndexId | None = None,
        timeout: float | None = None,
    ) -> Self:
        """Open the index of a table; raises DefinitionError if the table has none.

        A table that was replaced (CREATE OR REPLACE, or dropped and created again) keeps the index
        that was defined under its name; the next `refresh` builds it for the new table.

        Args:
            source: as in `create`.
            table: as in `create`.
            store: as in `create`.
            timeout: seconds for this call and for each lookup; by default those of the settings:
                of the session, or without Spark of the environment (`SKIPPING_TIMEOUT`).
            likely: the id that the index had a moment ago, which is tried first.

        """
        given = open_source(source, table).within(timeout)
        store = given.kept_in(store)
        return cls(given, store, find_index(store, given.table, likely=likely, timeout=timeout))

    @staticmethod
    def analyze(
        spark: SparkSession,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        files: int | None = None,
    ) -> Advice:
        """Advice for a table that need not have an index yet: see `skipping.advise.analyze`.

        Raises TableError without a Spark session, whose statistics and settings it takes.
        """
        if not hasattr(spark, "conf"):
            raise TableError(f"ANALYZE needs a Spark session, not a {type(spark).__name__}")
        from skipping.advise.analyze import analyze  # Spark's: an index of PyIceberg's does without

        return analyze(spark, table, columns=columns, files=files)

    @property
    def spark(self) -> SparkSession:
        """The session that it was opened with; raises TableError if there is none."""
        if spark := self._source.spark:
            return spark
        raise TableError(f"{self.table.name} was opened without Spark, which this operation needs")

    @property
    def definition(self) -> Definition:
        """What it is."""
        return self._definition.value

    @property
    def revision(self) -> Revision:
        """How often the definition was written."""
        return self._definition.revision

    @property
    def state(self) -> State:
        """How it stands."""
        return self.store.state(self.definition.index)

    @property
    def replaced(self) -> bool:
        """Whether the table was replaced since; then nothing is skipped until `refresh`."""
        return is_replaced(self.definition, self.table)

    @property
    def options(self) -> IndexOptions:
        """The options it was defined with, or got since."""
        return IndexOptions.of(dict(self.definition.options))

    def refresh(
        self,
        *,
        token: int | None = None,
        limit: int | None = None,
        until: int | None = None,
        retry: bool = True,
    ) -> State:
        """Index every file of the version that is newest now; returns when that is done.

        With `limit`, no more than so many files; with `until`, of that version. `token` is that of
        the lease, for its owner; files that could not be read before are tried again, without
        `retry` only when that is due. Goes on with the definition as it is when somebody alters it
        meanwhile. Raises DefinitionError if it was dropped, Conflict if another has the lease. An
        interrupt (Ctrl-C) ends the build.
        """
        run = partial(self._refresh, token, limit, until, retry=retry)
        if self._source.spark is None:
            return run()
        from skipping.indexing.interrupts import run_interruptibly  # Spark's

        return run_interruptibly(self._source.spark, run)

    def _refresh(
        self, token: int | None, limit: int | None, until: int | None, *, retry: bool
    ) -> State:
        while True:
            self.reread()
            if self.definition.dropped:
                raise dropped_error(self.definition)
            try:
                self.carry_over()
                state = refresh(
                    self._source.build,
                    self.store,
                    self.table,
                    self._definition,
                    providers=self._source.settings().providers,
                    token=token,
                    limit=limit,
                    until=until,
                    retry=retry,
                    known=self._pending,
                )
                break
            except Conflict:
                if reload_definition(self.store, self._definition) == self._definition:
                    raise
        self._pending = None
        self.reread()
        invalidate(self.store)
        return state

    def pending(self, *, until: int | None = None, retry: bool = True) -> pa.Table:
        """The files of a version, the newest, that lack an entry or a sketch: path and size.

        Those that could not be read among them, without `retry` only when they are due.
        """
        if self.replaced:
            return self.table.files().select(["path", "size"])
        self._pending = find_pending(
            self.store,
            self.table,
            self._definition,
            self.state,
            providers=self._source.settings().providers,
            until=until,
            retry=retry,
        )
        return list_files(self._pending.todo)

    def reread(self) -> None:
        """See what others made of the definition."""
        self._definition = reload_definition(self.store, self._definition)

    def carry_over(self) -> None:
        """Give the definition to the incarnation that the table is now, if it was replaced."""
        if not self.replaced:
            return
        providers = self._source.settings().providers
        self._definition = carry_over(self.store, self._definition, self.table, providers)

    def add(self, columns: str | Sequence[ColumnSpec]) -> None:
        """Index more columns, or columns with more kinds, and build what is new."""
        specs, providers = column_specs(columns), self._source.settings().providers
        available, before = self.table.columns(), self.definition.columns
        self.alter(lambda d: add_columns(d, specs, available, providers))
        warn_of_own_pruning([i for i in self.definition.columns if i not in before], available)
        self.refresh()

    def remove(self, columns: str | Sequence[ColumnDrop]) -> None:
        """Take columns out of the index, or single kinds of them: `"a, b MIN_MAX"`."""
        drops, providers = column_drops(columns), self._source.settings().providers
        self.alter(lambda d: drop_columns(d, drops, self.table.columns(), providers))

    def alter(self, change: Callable[[Definition], Definition]) -> None:
        """Change the definition, as it is by now; raises DefinitionError if it was dropped."""
        self._definition = alter_definition(self.store, self._definition, change)
        invalidate(self.store)

    def drop(self) -> None:
        """Ask it no more; VACUUM removes what it keeps."""
        self.alter(lambda definition: replace(definition, dropped=True))

    def vacuum(self) -> int:
        """Remove entries of files that no live version of the table can read; how many."""
        count = vacuum(self.store, self.table, self.definition.index)
        invalidate(self.store)
        return count

    def files(self, predicate: Predicate | str | None = None) -> pa.Table:
        """The entries: the IDENTITY columns, and for each sketch whether it is known.

        With a predicate, that of `lookup`, those that it does not prune.
        """
        columns = self.definition.columns
        known = [f"{i.sketch}_known" for i in columns]
        files = self.store.catalogue(self.definition.index, fields=known).files
        if predicate is not None:
            gone = self._query.find_prunable(predicate, self.table.columns())
            files = files.filter(pa.array([f not in gone for f in identities(files)], pa.bool_()))
        return files.rename_columns([*IDENTITY.names, *(f"{i.name} {i.kind}" for i in columns)])

    def lookup(self, predicate: Predicate | str) -> ScanPlan:
        """What would be skipped of the table's newest version.

        A predicate is SQL text as WHERE of CREATE SKIPPING INDEX takes it (`"dep_time > 2300"`), or
        made of `providers`: leaves name columns as SQL does, values are Python's
        (`Compare("dep_time", ">", 2300)`), for `In` an Arrow array. Anything else is a TypeError.
        """
        return self._query.plan(predicate, self.table)

    def why(self, predicate: Predicate | str) -> pa.Table:
        """The files of the table's newest version, and what prunes each for a predicate.

        Columns: `path`, `size`, `ordinal` (null: the index does not know the file), `pruned`,
        and for each sketch that was asked, under the label that explain shows, whether it alone
        prunes the file. A file whose `pruned` is false survived: no label is true, or, under
        an OR, not all are. The predicate is that of `lookup`.
        """
        return self._query.why(predicate, self.table)

    def scan(
        self, row_filter: Any = "", *, keys: Mapping[str, Any] | None = None, **options: Any
    ) -> IndexedScan | FileScan:
        """The matching rows, read from the files that may have one, without Spark.

        Of a PyIceberg table it is `Table.scan`: takes what that takes and gives what that gives
        (`to_arrow`, `to_pandas`, `count`, ...), the same rows. Of a `DeltaTable`, at the version
        that it is at, and of a Parquet folder, as it is now, it takes a predicate as `lookup` does,
        `selected_fields` and `limit`, and gives a scan with the same methods: `select`,
        `plan_files` (paths), `to_arrow`, `to_arrow_batch_reader`, `to_pandas`, `count`. Its filter
        is evaluated as Spark would; what cannot be is a DefinitionError, and a file that cannot be
        read exactly a TableError.

        Of all, the filter may be an expression of `pyarrow.compute`, Polars or Ibis, which then
        decides which rows there are, and `keys` are the values of join keys by column, any number
        of them: `{"h": values}`, where values are an Arrow or NumPy array, a column or frame of
        Polars or pandas, a relation of DuckDB, another scan or a list. The rows are those whose key
        is among them (NaN equals itself, -0.0 equals 0.0, null nothing); keys of another kind than
        the column, such as text beside numbers, are a TypeError.

        `to_polars()` is a LazyFrame; `to_duckdb(name, connection)`, `to_datafusion(context, name)`,
        `to_daft()` and `to_dataset()` (Arrow's) read lazily, too: what the engine selects, of the
        files that its own filter leaves.

        Raises TableError for a table of a Spark session, which skips files by itself.
        """
        if not isinstance(row_filter, str) or row_filter:
            options["row_filter"] = row_filter
        if keys is not None:
            options["keys"] = keys
        return open_scan(self._query, self.table, **options)

    def verify(self, row_filter: Any = "", **options: Any) -> Verification:
        """Read, of a `scan`, also the files that are left out: none may hold a matching row.

        Takes what `scan` takes, without Spark as that (with Spark: `rewrite.verify`). Says how many
        rows and files there were; raises WrongAnswer, naming the files, where the index is wrong.
        """
        return self.scan(row_filter, **options).verify()

    def join(
        self,
        dimension: Any,
        on: str | Sequence[str] | Mapping[str, str],
        row_filter: Any = "",
        *,
        suffix: str = "_right",
        **options: Any,
    ) -> Joined:
        """The rows of the table joined with those of a dimension that have equal keys.

        An inner join, as Polars' and DuckDB's `USING`: the dimension's keys are collected first,
        and only files that may have one are opened; of several columns of which the index has a
        composite, only files that may have one of their tuples. `dimension` is a table of Arrow, a
        frame of Polars or pandas, a relation of DuckDB, or another scan. `on` names columns that
        both have, or of each column of the table that of the dimension. Columns are the table's,
        then the dimension's but its keys, with the suffix where the table has that name. Takes what
        `scan` does, and gives `to_arrow`, `to_polars`, `to_duckdb` and so on as a scan does.
        """
        from skipping.scans.join import join  # imports NumPy

        return join(
            self._query, self.table, dimension, on, row_filter=row_filter, suffix=suffix, **options
        )

    def describe(self) -> dict[str, str | None]:
        """Facts about it, as `DESCRIBE SKIPPING INDEX EXTENDED` shows them: text, None for none.

        Its table, store, state and options, how far it is behind, how many files it has; then
        `column a.b` for each column, with its kinds, and why new files have no sketch, if so.
        """
        gaps = find_gaps(self.definition, self.table.columns(), self._source.settings().providers)
        return describe(self.store, self.table, self.definition, self.files(), gaps)

    def __repr__(self) -> str:
        kinds = ", ".join(f"{i.name} {i.kind}" for i in self.definition.columns)
        stands = standing(self.store, self.table, self.definition)
        return f"<SkippingIndex of {shown_name(self.definition.name)} ({kinds}): {stands}>"

    def _repr_html_(self) -> str:
        """A table of what `describe` says, for notebooks; the repr where that cannot be asked."""
        try:
            facts = self.describe()
        except SkippingError:
            return f"<p>{escape(repr(self))}</p>"
        return as_html(facts)

    @property
    def _query(self) -> IndexQuery:
        spark, settings = self._source.spark, self._source.settings()
        if spark is None:
            return IndexQuery(self.store, self.definition, settings)
        zone = spark.conf.get("spark.sql.session.timeZone")
        return IndexQuery(self.store, self.definition, settings, zone, _read_string_rules(spark))


def _read_string_rules(spark: SparkSession) -> Strings:

    def is_on(key: str) -> bool:
        return (spark.conf.get(f"spark.sql.{key}") or "").strip().lower() == "true"

    return Strings(
        stand=is_on("parser.escapedStringLiterals"),
        name=is_on("ansi.enabled") and is_on("ansi.doubleQuotedIdentifiers"),
    )
