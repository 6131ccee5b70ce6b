"""Provide `SkippingIndex`, the Python interface to the index of one table."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime, timezone
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from providers.base import Param
from providers.errors import Conflict, DefinitionError, SkippingError, TableError, first_line
from providers.predicate import Predicate
from skipping.advise.choose import BUDGET
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
from skipping.model.decision import Decision
from skipping.model.definition import Definition, IndexId, Revision, State, Versioned
from skipping.model.identifiers import shown_name
from skipping.parser.condition import Strings, require_same_strings
from skipping.parser.parse import column_drops, column_specs
from skipping.parser.statements import ColumnDrop, ColumnSpec
from skipping.scans.open import open_scan, open_transaction
from skipping.sources.base import Source
from skipping.sources.open import open_source
from skipping.stores import IDENTITY, IndexStore, identities
from skipping.tables import Table

if TYPE_CHECKING:
    from os import PathLike

    from deltalake import DeltaTable
    from pyarrow.dataset import Dataset
    from pyiceberg.table import Table as PyIceberg
    from pyiceberg.table import Transaction, UpsertResult
    from pyspark.sql import SparkSession
    from typing_extensions import Self

    from skipping.advise.analyze import Advice
    from skipping.scans.file_scan import FileScan
    from skipping.scans.iceberg_scan import IndexedScan
    from skipping.scans.join import JoinScan
    from skipping.scans.verification import Verification


log = logging.getLogger("skipping")


def _today() -> date:
    return datetime.now(timezone.utc).date()


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
            source: a Spark session, or a table that was opened without Spark.
            table: the name of the table, only with a Spark session.
            columns: `"tailnum VALUE_LIST(500), dep_time MIN_MAX"` as in SQL, or a list of such
                strings. Without Spark the second argument: `create(flights, "tailnum VALUE_LIST")`.
            where: the condition in WHERE of CREATE SKIPPING INDEX.
            build: whether to index the existing files now.
            store: where to store the index; by default, the store in the settings.
            timeout: as in `on`.
            if_not_exists: if the table already has an index, return it unchanged.
            options: the options in WITH: `{"auto_refresh": True}` starts a stream in this session.

        With the option `automatic`, a Spark session may leave out the columns.

        Raises StatementError, DefinitionError, TableError, and Conflict if the table has an index.

        """
        chosen = IndexOptions.of(options or {})
        session: Any = source
        if not (chosen.automatic and hasattr(session, "conf")):
            name, columns = (None, table) if columns is None else (table, columns)
            if columns is None:
                raise DefinitionError(
                    'pass the columns to index: create(spark, "flights", "tailnum VALUE_LIST"), or '
                    'without Spark create(flights, "tailnum VALUE_LIST")'
                )
        else:
            name, columns = table, columns or ()
        text = columns if isinstance(columns, str) else ", ".join(columns)
        specs = column_specs(text) if text else ()
        if chosen.streamed or chosen.checkpoint_location is not None:
            if name is None:
                raise DefinitionError(
                    "a stream needs a Spark session: leave out auto_refresh and checkpoint_location"
                )
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
        """Define an index on parsed columns, without building it; raise the errors of `create`."""
        opened = open_source(source, table).within(timeout)
        store = opened.resolve_store(store)
        if where is not None and opened.spark is not None:
            require_same_strings(where, _read_string_rules(opened.spark))
        definition = define_index(
            store,
            opened.table,
            columns,
            providers=opened.settings().providers,
            where=where,
            options=options,
            timeout=timeout,
        )
        invalidate(store)
        return cls(opened, store, definition)

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
        """Open the index of a table; raise DefinitionError if the table has none.

        If the table was replaced (CREATE OR REPLACE, or dropped and created again), this returns
        the index that was defined under its name; the next `refresh` builds it for the new table.

        Args:
            source: as in `create`.
            table: as in `create`.
            store: as in `create`.
            timeout: seconds for this call and for each lookup; by default, the timeout in the
                settings of the session, or without Spark in `SKIPPING_TIMEOUT`.
            likely: an index id to try first, for example the one found a moment ago.

        """
        opened = open_source(source, table).within(timeout)
        store = opened.resolve_store(store)
        return cls(opened, store, find_index(store, opened.table, likely=likely, timeout=timeout))

    @staticmethod
    def analyze(
        spark: SparkSession,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        files: int | None = None,
        budget: float = BUDGET,
    ) -> Advice:
        """Recommend index types for a table, indexed or not: see `skipping.advise.analyze`.

        `budget` is the maximum size of the index as a fraction of the table's bytes.

        Raises TableError without a Spark session.
        """
        if not hasattr(spark, "conf"):
            raise TableError(f"ANALYZE needs a Spark session, not a {type(spark).__name__}")
        from skipping.advise.analyze import analyze  # imports Spark

        return analyze(spark, table, columns=columns, files=files, budget=budget)

    @property
    def spark(self) -> SparkSession:
        """The session that opened the index; raises TableError if it was opened without Spark."""
        if spark := self._source.spark:
            return spark
        raise TableError(f"{self.table.name} was opened without Spark, but this operation needs it")

    @property
    def definition(self) -> Definition:
        """The columns, types and options of the index."""
        return self._definition.value

    @property
    def revision(self) -> Revision:
        """How often the definition was written."""
        return self._definition.revision

    @property
    def state(self) -> State:
        """The version of the table that is indexed, the status, and the last error."""
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
        """Index the files of the newest version that have no entry; return the state when done.

        If the definition changes during the build, the build uses the new one. Ctrl-C ends the
        build.

        Args:
            token: the fencing token of the lease, if the caller holds it.
            limit: the maximum number of files to index.
            until: the table version to index instead of the newest.
            retry: whether to read all files again that could not be read before; if false, only
                those whose next attempt is due.

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
                self._adapt_if_due(token)
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

    def adapt(
        self, *, dry_run: bool = False, today: date | None = None, token: int | None = None
    ) -> Sequence[Decision]:
        """Decide about the columns of an automatic index; return the decisions.

        `refresh` does it before it builds, once a day or if queries miss more. With `dry_run`,
        nothing is changed. `today` is the day in UTC, by default that of the clock, and `token` as
        in `refresh`. Raises TableError without a Spark session or if the table cannot be read, and
        DefinitionError if the index is not automatic.
        """
        from skipping.advise.adapt import collect_evidence  # imports Spark

        spark, name = self.spark, shown_name(self.table.name)
        if not self.definition.is_automatic:
            raise DefinitionError(
                f"the skipping index of {name} does not choose its columns: ALTER SKIPPING INDEX "
                f"ON {name} WITH (automatic = true)"
            )
        found = collect_evidence(
            spark, self.table, self.definition, today=_today() if today is None else today
        )
        if dry_run:
            return found.decide(self.definition)[0]
        # First, because it fails with a token that is no longer valid.
        index, day = self.definition.index, found.evidence.today.isoformat()
        state = replace(self.store.state(index), adapted=day, missed=found.missed)
        self.store.report(index, state, token=token)
        before = self.definition.decisions
        columns, providers = self.table.columns(), self._source.settings().providers
        self.alter(lambda definition: found.apply(definition, columns, providers))
        made = [each for each in self.definition.decisions if each not in before]
        for each in made:
            log.info(
                "automatic index: table=%s %s %s %s: %s",
                *(name, each.action, each.column, each.kind, each.reason),
            )
        if not self.definition.columns:
            log.warning(
                "the automatic index of %s has no columns yet, because none is worth its size: "
                "ANALYZE SKIPPING INDEX ON %s gives the reasons",
                *(name, name),
            )
        return made

    @property
    def is_adaptation_due(self) -> bool:
        """Whether an automatic index has decided nothing today (in UTC)."""
        return self.definition.is_automatic and self.state.adapted != _today().isoformat()

    def _adapt_if_due(self, token: int | None) -> None:
        """Adapt an automatic index if that is due; log errors, because a refresh needs no decision.

        The holder of the lease decides, if there is one. Without Spark there is nothing to measure
        with.
        """
        if self._source.spark is None or not self.definition.is_automatic:
            return
        from skipping.advise.adapt import is_due  # imports Spark

        index, name = self.definition.index, shown_name(self.table.name)
        try:
            if token is None and self.store.lease(index).seems_alive:
                log.info("the stream of %s decides about its columns", name)
                return
            state = self.store.state(index)
            if is_due(self.spark, self.table, self.definition, state, today=_today()):
                self.adapt(token=token)
        except Exception as error:
            log.warning("the automatic index of %s keeps its columns: %s", name, first_line(error))
            with suppress(SkippingError):  # the next refresh would fail again
                state = replace(self.store.state(index), adapted=_today().isoformat())
                self.store.report(index, state, token=token)

    def pending(self, *, until: int | None = None, retry: bool = True) -> pa.Table:
        """Return path and size of the files that lack an entry or a sketch.

        The files are those of the newest version, or of version `until`. They include files that
        could not be read; if `retry` is false, only those whose next attempt is due.
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
        """Read the definition again, which other processes may have changed."""
        self._definition = reload_definition(self.store, self._definition)

    def carry_over(self) -> None:
        """If the table was replaced, define the index for the table that has its name now."""
        if not self.replaced:
            return
        providers = self._source.settings().providers
        self._definition = carry_over(self.store, self._definition, self.table, providers)

    def add(self, columns: str | Sequence[ColumnSpec]) -> None:
        """Add columns or index types (`"a, b MIN_MAX"` as in SQL), and build them."""
        specs, providers = column_specs(columns), self._source.settings().providers
        available, before = self.table.columns(), self.definition.columns
        self.alter(lambda d: add_columns(d, specs, available, providers))
        warn_of_own_pruning([i for i in self.definition.columns if i not in before], available)
        self.refresh()

    def remove(self, columns: str | Sequence[ColumnDrop]) -> None:
        """Remove columns, or single index types of columns: `"a, b MIN_MAX"` as in SQL."""
        drops, providers = column_drops(columns), self._source.settings().providers
        self.alter(lambda d: drop_columns(d, drops, self.table.columns(), providers))

    def alter(self, change: Callable[[Definition], Definition]) -> None:
        """Apply `change` to the current definition; raise DefinitionError if it was dropped."""
        self._definition = alter_definition(self.store, self._definition, change)
        invalidate(self.store)

    def drop(self) -> None:
        """Drop the index: queries stop using it, and VACUUM removes its entries."""
        self.alter(lambda definition: replace(definition, dropped=True))

    def vacuum(self) -> int:
        """Remove the entries of files that no version of the table needs; return their number."""
        count = vacuum(self.store, self.table, self.definition.index)
        invalidate(self.store)
        return count

    def files(self, predicate: Predicate | str | None = None) -> pa.Table:
        """Return one row for each entry: the file, and for each sketch whether it is known.

        The columns are those of `skipping.stores.IDENTITY` (ordinal, path, size, ...), and a
        boolean for each column and index type. With a predicate (as in `lookup`), only files that
        it does not prune are returned.
        """
        columns = self.definition.columns
        known = [f"{i.sketch}_known" for i in columns]
        files = self.store.catalogue(self.definition.index, fields=known).files
        if predicate is not None:
            pruned = self._query.find_prunable(predicate, self.table.columns())
            files = files.filter(pa.array([f not in pruned for f in identities(files)], pa.bool_()))
        return files.rename_columns([*IDENTITY.names, *(f"{i.name} {i.kind}" for i in columns)])

    def lookup(self, predicate: Predicate | str) -> ScanPlan:
        """Return how many files of the table's newest version a predicate prunes.

        A predicate is SQL text as in WHERE of CREATE SKIPPING INDEX (`"dep_time > 2300"`), or an
        object from `providers` with column names as in SQL and Python values:
        `Compare("dep_time", ">", 2300)`. `In` takes an Arrow array. Raises TypeError for other
        objects.
        """
        return self._query.plan(predicate, self.table)

    def why(self, predicate: Predicate | str) -> pa.Table:
        """Return one row for each file of the newest version: which conditions prune the file.

        Columns: `path`, `size`, `ordinal` (null if the file has no entry), `pruned`, and a boolean
        for each condition, named as in explain: whether it alone prunes the file. If `pruned` is
        false, no condition prunes the file, or some operand of an OR does not. Predicates: see
        `lookup`.
        """
        return self._query.why(predicate, self.table)

    def scan(
        self, row_filter: Any = "", *, keys: Mapping[str, Any] | None = None, **options: Any
    ) -> IndexedScan | FileScan:
        """Return a scan of the matching rows that opens only files that can match.

        For tables that were opened without Spark. With a PyIceberg table, it takes the arguments of
        `Table.scan`, and returns the same rows with the same methods (`to_arrow`, `to_pandas`,
        `count`, ...). With a `DeltaTable` (the version that it has loaded) or a Parquet folder (its
        current files), it takes a predicate as in `lookup`, `selected_fields` and `limit`. That
        scan has `select`, `plan_files` (paths), `to_arrow`, `to_arrow_batch_reader`, `to_pandas`
        and `count`. It evaluates the filter as Spark does. If it cannot do that exactly, it raises
        DefinitionError for a filter and TableError for a file.

        For all tables, the filter may also be an expression of `pyarrow.compute` or Polars; that
        library's semantics then decide which rows match. `keys` are join keys by column,
        `{"h": values}`, any number of them: an Arrow or NumPy array, a column or frame of Polars or
        pandas, a relation of DuckDB, another scan, or a list. A row matches if its key is among
        them (NaN equals NaN, -0.0 equals 0.0, null equals nothing). Keys that cannot be compared
        with the column, such as text with a number, raise TypeError.

        `to_polars()` returns a LazyFrame. `to_duckdb(name, connection)` and `to_dataset()`
        (pyarrow) are lazy, too: the engine reads only the columns that it selects, from the files
        that its own filter leaves. Other libraries (pandas, DataFusion, Daft) read a scan as an
        Arrow stream.

        Raises TableError for a table that was opened with Spark, whose queries skip files already.
        """
        return open_scan(self._query, self.table, row_filter=row_filter, keys=keys, **options)

    def verify(self, row_filter: Any = "", **options: Any) -> Verification:
        """Run a scan, read the skipped files as well, and check that they have no matching row.

        Takes the arguments of `scan`. Returns row and file counts; raises WrongAnswer, with the
        names of the files, if the index is wrong. With Spark, use `rewrite.verify`.
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
        """Return a scan that joins the table with a dimension on equal keys.

        This is an inner join, as with `USING` in DuckDB. The dimension's keys are collected first,
        and only files that can contain one of them are opened. If several key columns have a
        multi-column index, it prunes by their tuples. The result has the table's columns, then the
        dimension's without its keys.

        Args:
            dimension: an Arrow table, a frame of Polars or pandas, a relation of DuckDB, or a scan.
            on: names of columns that both have, or a mapping from the table's columns to the
                dimension's.
            row_filter: as in `scan`.
            suffix: appended to a dimension column whose name the table also has.
            options: as in `scan`.

        """
        from skipping.scans.join import join  # imports NumPy

        return join(
            self._query, self.table, dimension, on, row_filter=row_filter, suffix=suffix, **options
        )

    def delete(
        self, row_filter: Any = "", *, keys: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        """Delete the matching rows of a PyIceberg table, and read only files that can match.

        Takes the options of PyIceberg's `Table.delete`, which rewrites the files and commits. A row
        matches as in PyIceberg, if it meets the filter and has one of the `keys` (see `scan`).
        Raises the errors of `transaction`, and DefinitionError for neither filter nor keys.
        """
        with self.transaction() as transaction:
            from skipping.scans.iceberg_transaction import delete_filter  # imports PyIceberg

            schema = transaction.table_metadata.schema()
            transaction.delete(delete_filter(schema, row_filter, keys), **options)

    def upsert(
        self, rows: pa.Table, on: str | Sequence[str] | None = None, **options: Any
    ) -> UpsertResult:
        """Update the rows of a PyIceberg table with the same key, and insert the others.

        Takes the options of PyIceberg's `Table.upsert`, and reads only files that can have a key.

        Args:
            rows: an Arrow table with the columns of the table, and no key twice.
            on: the columns of the key; by default, the identifier fields of the table's schema.
            options: `when_matched_update_all`, `branch` and others.

        Raises the errors of `transaction`, and TypeError for rows that are no Arrow table.

        """
        if not isinstance(rows, pa.Table):
            raise TypeError(
                f"the rows are a {type(rows).__name__}: pass an Arrow table, such as "
                "pyarrow.Table.from_pylist(rows)"
            )
        names = [on] if isinstance(on, str) else on if on is None else list(on)
        with self.transaction() as transaction:
            return transaction.upsert(rows, names, **options)

    def transaction(self) -> Transaction:
        """Return a PyIceberg transaction for several commands, which are committed together.

        Its `delete`, `overwrite` and `upsert` read only files that can match. Everything else,
        also the detection of conflicts, is PyIceberg's. Files that it writes are unknown to the
        index until `refresh`, so they are read.

        Raises TableError for a table that was not opened with PyIceberg, and PyIceberg's
        CommitFailedException or ValidationException if another writer was first.
        """
        return open_transaction(self._query, self.table)

    def describe(self) -> dict[str, str | None]:
        """Return what `DESCRIBE SKIPPING INDEX EXTENDED` shows, each value as text or None.

        The keys are the table, store, state, options, lag and number of files. Then for each column
        (key `column a.b`) its index types and, if new files get no sketch, the reason.
        """
        settings = self._source.settings()
        gaps = find_gaps(self.definition, self.table.columns(), settings.providers)
        return describe(self.store, self.table, self.definition, self.files(), gaps, settings)

    def __repr__(self) -> str:
        kinds = ", ".join(f"{i.name} {i.kind}" for i in self.definition.columns)
        status = standing(self.store, self.table, self.definition)
        return f"<SkippingIndex of {shown_name(self.definition.name)} ({kinds}): {status}>"

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
