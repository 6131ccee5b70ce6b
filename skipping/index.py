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
from skipping.indexing.column_sync import find_gaps
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
from skipping.indexing.refresh import RefreshPlan, plan_refresh, refresh
from skipping.indexing.vacuum import vacuum
from skipping.lookup.lookup import invalidate
from skipping.lookup.query import IndexQuery
from skipping.lookup.scan_plan import ScanPlan
from skipping.model.definition import Definition, IndexId, Revision, State, Versioned
from skipping.model.identifiers import shown_name
from skipping.parser.condition import Strings, require_same_strings
from skipping.parser.fragments import column_drops, column_specs
from skipping.parser.statements import ColumnDrop, ColumnSpec
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
    from skipping.scans.join import JoinScan
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
        self._plan: RefreshPlan | None = None  # for the next refresh
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
        store = given.resolve_store(store)
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
        store = given.resolve_store(store)
        return cls(given, store, find_index(store, given.table, likely=likely, timeout=timeout))

    @staticmethod
    def analyze(
        spark: SparkSession,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        files: int | None = None,
    ) -> Advice:
        """Recommend index types for a table, indexed or not: see `skipping.advise.analyze`.

        Raises TableError without a Spark session.
        """
        if not hasattr(spark, "conf"):
            raise TableError(f"ANALYZE needs a Spark session, not a {type(spark).__name__}")
        from skipping.advise.analyze import analyze  # imports Spark

        return analyze(spark, table, columns=columns, files=files)

    @property
    def spark(self) -> SparkSession:
        """The session that opened the index; raises TableError if it was opened without Spark."""
        if spark := self._source.spark:
            return spark
        raise TableError(f"{self.table.name} was opened without Spark, which this operation needs")

    @property
    def definition(self) -> Definition:
        """The columns, types and options of the index."""
        return self._definition.value

    @property
    def revision(self) -> Revision:
        """The number of writes of the definition."""
        return self._definition.revision

    @property
    def state(self) -> State:
        """The part of the table that is indexed, and the last error."""
        return self.store.state(self.definition.index)

    @property
    def replaced(self) -> bool:
        """Whether the table was replaced; then no file is skipped until `refresh`."""
        return is_replaced(self.definition, self.table)

    @property
    def options(self) -> IndexOptions:
        """The current options."""
        return IndexOptions.of(dict(self.definition.options))

    def refresh(
        self,
        *,
        token: int | None = None,
        limit: int | None = None,
        until: int | None = None,
        retry: bool = True,
    ) -> State:
        """Index the files of the table's newest version that have no entry, and wait for it.

        Uses the new definition if it changes meanwhile. Ctrl-C ends the build.

        Args:
            token: the fencing token of the lease, for its holder.
            limit: the maximum number of files.
            until: the table version to index in place of the newest.
            retry: whether to read files again that could not be read; else only when that is due.

        Raises DefinitionError if the index was dropped, Conflict if another process has the lease.

        """
        run = partial(self._refresh, token, limit, until, retry=retry)
        if self._source.spark is None:
            return run()
        from skipping.indexing.interrupts import run_interruptibly  # imports Spark

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
                    plan=self._plan,
                )
                break
            except Conflict:
                if reload_definition(self.store, self._definition) == self._definition:
                    raise
        self._plan = None
        self.reread()
        invalidate(self.store)
        return state

    def pending(self, *, until: int | None = None, retry: bool = True) -> pa.Table:
        """Return path and size of the files that lack an entry or a sketch.

        They are those of the newest version, or of `until`. Files that could not be read are among
        them; without `retry` only when it is time to try again.
        """
        if self.replaced:
            return self.table.files().select(["path", "size"])
        self._plan = plan_refresh(
            self.store,
            self.table,
            self._definition,
            self.state,
            self.table.columns(),
            providers=self._source.settings().providers,
            until=until,
            retry=retry,
        )
        return self._plan.list_files()

    def reread(self) -> None:
        """Read the definition again: other processes may have changed it."""
        self._definition = reload_definition(self.store, self._definition)

    def carry_over(self) -> None:
        """Move the definition to the current table, if the table was replaced."""
        if not self.replaced:
            return
        providers = self._source.settings().providers
        self._definition = carry_over(self.store, self._definition, self.table, providers)

    def add(self, columns: str | Sequence[ColumnSpec]) -> None:
        """Add columns or index types, and build them."""
        specs, providers = column_specs(columns), self._source.settings().providers
        available, before = self.table.columns(), self.definition.columns
        self.alter(lambda d: add_columns(d, specs, available, providers))
        warn_of_own_pruning([i for i in self.definition.columns if i not in before], available)
        self.refresh()

    def remove(self, columns: str | Sequence[ColumnDrop]) -> None:
        """Remove columns, or single index types of columns: `"a, b MIN_MAX"`."""
        drops, providers = column_drops(columns), self._source.settings().providers
        self.alter(lambda d: drop_columns(d, drops, self.table.columns(), providers))

    def alter(self, change: Callable[[Definition], Definition]) -> None:
        """Change the current definition; raises DefinitionError if it was dropped."""
        self._definition = alter_definition(self.store, self._definition, change)
        invalidate(self.store)

    def drop(self) -> None:
        """Drop the index: queries do not use it any more; VACUUM removes its entries."""
        self.alter(lambda definition: replace(definition, dropped=True))

    def vacuum(self) -> int:
        """Remove the entries of files that no version of the table needs; return their number."""
        count = vacuum(self.store, self.table, self.definition.index)
        invalidate(self.store)
        return count

    def files(self, predicate: Predicate | str | None = None) -> pa.Table:
        """Return the entries: the IDENTITY columns, and for each sketch whether it is known.

        With a predicate (as in `lookup`), only those of files that it does not prune.
        """
        columns = self.definition.columns
        known = [f"{i.sketch}_known" for i in columns]
        files = self.store.catalogue(self.definition.index, fields=known).files
        if predicate is not None:
            gone = self._query.find_prunable(predicate, self.table.columns())
            files = files.filter(pa.array([f not in gone for f in identities(files)], pa.bool_()))
        return files.rename_columns([*IDENTITY.names, *(f"{i.name} {i.kind}" for i in columns)])

    def lookup(self, predicate: Predicate | str) -> ScanPlan:
        """Return how many files of the table's newest version a predicate prunes.

        A predicate is SQL text like WHERE of CREATE SKIPPING INDEX (`"dep_time > 2300"`), or an
        object of `providers`: `Compare("dep_time", ">", 2300)`, with column names as in SQL and
        Python values; `In` takes an Arrow array. Anything else is a TypeError.
        """
        return self._query.plan(predicate, self.table)

    def why(self, predicate: Predicate | str) -> pa.Table:
        """Return the files of the table's newest version, and what prunes each for a predicate.

        Columns: `path`, `size`, `ordinal` (null: the file has no entry), `pruned`, and for each
        condition, under its label in explain, whether it alone prunes the file. Where `pruned` is
        false, no condition prunes the file, or under an OR not all do. Predicates: see `lookup`.
        """
        return self._query.why(predicate, self.table)

    def scan(
        self, row_filter: Any = "", *, keys: Mapping[str, Any] | None = None, **options: Any
    ) -> IndexedScan | FileScan:
        """Return a scan of the matching rows that opens only files that can match, without Spark.

        For a PyIceberg table it takes the arguments of `Table.scan` and returns the same rows with
        the same methods (`to_arrow`, `to_pandas`, `count`, ...). For a `DeltaTable`, at its
        version, and for a Parquet folder, as it is now, it takes a predicate as in `lookup`,
        `selected_fields` and `limit`; the scan has `select`, `plan_files` (paths), `to_arrow`,
        `to_arrow_batch_reader`, `to_pandas` and `count`. It evaluates the filter as Spark does; it
        raises DefinitionError for a filter and TableError for a file where it cannot do that
        exactly.

        Of all, the filter may be an expression of `pyarrow.compute` or Polars, which then
        decides which rows there are, and `keys` are the values of join keys by column, any number
        of them: `{"h": values}`, where values are an Arrow or NumPy array, a column or frame of
        Polars or pandas, a relation of DuckDB, another scan or a list. The rows are those whose key
        is among them (NaN equals itself, -0.0 equals 0.0, null nothing); keys of another kind than
        the column, such as text beside numbers, are a TypeError.

        `to_polars()` is a LazyFrame; `to_duckdb(name, connection)` and `to_dataset()` (Arrow's)
        read lazily, too: what the engine selects, of the files that its own filter leaves. Other
        libraries (pandas, DataFusion, Daft) read a scan as an Arrow stream.

        Raises TableError for a table of a Spark session, where queries skip files.
        """
        return open_scan(self._query, self.table, row_filter=row_filter, keys=keys, **options)

    def verify(self, row_filter: Any = "", **options: Any) -> Verification:
        """Read the files that a scan skips, too, and check that none has a matching row.

        Takes the arguments of `scan`. Returns the numbers of rows and files; raises WrongAnswer
        with the files if the index is wrong. With Spark use `rewrite.verify`.
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
    ) -> JoinScan:
        """Return a scan of the table's rows joined with the rows of a dimension with equal keys.

        An inner join, like `USING` in Polars and DuckDB. It collects the dimension's keys first,
        and opens only files that can have one of them. A composite of several key columns prunes by
        their tuples. The columns are the table's, then the dimension's except its keys.

        Args:
            dimension: an Arrow table, a frame of Polars or pandas, a relation of DuckDB, or a scan.
            on: names of columns of both, or a mapping from the table's columns to the dimension's.
            row_filter: as in `scan`.
            suffix: appended to the dimension's columns whose names the table has, too.
            options: as in `scan`.

        """
        from skipping.scans.join import join  # imports NumPy

        return join(
            self._query, self.table, dimension, on, row_filter=row_filter, suffix=suffix, **options
        )

    def describe(self) -> dict[str, str | None]:
        """Return the facts that `DESCRIBE SKIPPING INDEX EXTENDED` shows, as text or None.

        They are the table, store, state and options, the lag and the number of files; then
        `column a.b` for each column, with its index types, and why new files get no sketch, if so.
        """
        gaps = find_gaps(self.definition, self.table.columns(), self._source.settings().providers)
        return describe(self.store, self.table, self.definition, self.files(), gaps)

    def __repr__(self) -> str:
        kinds = ", ".join(f"{i.name} {i.kind}" for i in self.definition.columns)
        stands = standing(self.store, self.table, self.definition)
        return f"<SkippingIndex of {shown_name(self.definition.name)} ({kinds}): {stands}>"

    def _repr_html_(self) -> str:
        """Return `describe` as an HTML table for notebooks; the repr if that fails."""
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
