"""A skipping index of one table: the Python twin of the SQL statements."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from providers.errors import Conflict, DefinitionError, NoStore, TableError
from providers.predicate import Predicate
from skipping.asking import Asking
from skipping.ddl import ColumnSpec, Create, parse
from skipping.defining import numbered
from skipping.definition import Definition, IndexedColumn, State, Versioned
from skipping.lookup import changed
from skipping.refresh import refresh
from skipping.scan_plan import ScanPlan
from skipping.source import Source, open_source
from skipping.stores import IDENTITY, IndexStore, identities
from skipping.stores.opening import open_store
from skipping.tables import Table

if TYPE_CHECKING:
    from pyiceberg.table import DataScan
    from pyiceberg.table import Table as PyIceberg
    from pyspark.sql import SparkSession

__all__ = ["SkippingIndex"]


class SkippingIndex:
    """The index of one table in one store.

    >>> index = SkippingIndex.on(spark, "flights")  # doctest: +SKIP
    >>> print(index.lookup(Compare("tailnum", "=", "N201AA")))  # doctest: +SKIP

    A table of PyIceberg's needs neither Spark nor a JVM; where the index is kept has to be said.

    >>> flights = catalog.load_table("db.flights")  # doctest: +SKIP
    >>> index = SkippingIndex.on(flights, store="sqlite:/data/skipping.sqlite")  # doctest: +SKIP
    >>> index.scan("tailnum = 'N201AA'").to_pandas()  # doctest: +SKIP
    """

    def __init__(
        self, source: Source, store: IndexStore, definition: Versioned[Definition]
    ) -> None:
        self._source = source
        self._definition = definition
        self.table: Table = source.table
        self.store = store

    @classmethod
    def create(
        cls,
        source: SparkSession | PyIceberg,
        table: str,
        columns: str | None = None,
        *,
        where: str | None = None,
        build: bool = True,
        store: IndexStore | str | None = None,
    ) -> SkippingIndex:
        """Define an index and build it for the files there are, unless `build` is false.

        `columns` is written as in SQL: `"tailnum VALUE_LIST(500), dep_time MIN_MAX"`. A PyIceberg
        table has no name here: `create(flights, "tailnum VALUE_LIST", store=...)`; its `where` is
        in PyIceberg's language. Raises StatementError, DefinitionError, TableError, and Conflict if
        the table has an index.
        """
        name, columns = (None, table) if columns is None else (table, columns)
        statement = parse(f"CREATE SKIPPING INDEX ON t ({columns})")
        assert isinstance(statement, Create), "the text above is a CREATE"
        index = cls.define(source, name, statement.columns, where=where, store=store)
        if build:
            index.refresh()
        return index

    @classmethod
    def define(
        cls,
        source: SparkSession | PyIceberg,
        table: str | None,
        columns: Sequence[ColumnSpec],
        *,
        where: str | None = None,
        store: IndexStore | str | None = None,
    ) -> SkippingIndex:
        """`create` with parsed columns, and without building."""
        given = open_source(source, table)
        store, opened = _store(store, given), given.table
        indexed = numbered(columns, opened.columns(), given.settings().providers)
        if where is not None:
            _require_answerable(opened, where)
        if cls._found(store, opened) is not None:
            # Also one of the table's earlier incarnation: REFRESH carries it over.
            raise Conflict(f"there is an index on {opened.name} already")
        definition = Definition(str(uuid.uuid4()), opened.id, opened.name, indexed, where)
        revision = store.define(definition, expect=None)
        changed(store)
        return cls(given, store, Versioned(definition, revision))

    @classmethod
    def on(
        cls,
        source: SparkSession | PyIceberg,
        table: str | None = None,
        *,
        store: IndexStore | str | None = None,
    ) -> SkippingIndex:
        """The index that a table has; raises DefinitionError if it has none.

        A table that was replaced (CREATE OR REPLACE, or dropped and made again) still has the index
        that was defined under its name; the next `refresh` builds it for what the table is now.
        """
        given = open_source(source, table)
        store, opened = _store(store, given), given.table
        found = cls._found(store, opened)
        if found is None:
            raise DefinitionError(
                f"{opened.name} has no skipping index in {store.location}: "
                f"CREATE SKIPPING INDEX ON {opened.name} (column KIND)",
                about="table",
            )
        return cls(given, store, found)

    @staticmethod
    def _found(store: IndexStore, table: Table) -> Versioned[Definition] | None:
        """The live index of what a table is now, or else of what its name was before."""
        try:
            live = [d for d in store.definitions() if not d.value.dropped]
        except NoStore:
            return None
        id = table.id
        alike = [d for d in live if d.value.table.format == id.format]
        now = (d for d in alike if d.value.table == id)
        before = (d for d in alike if d.value.name == table.name)
        return next(now, None) or next(before, None)

    @property
    def definition(self) -> Definition:
        """What it is."""
        return self._definition.value

    @property
    def state(self) -> State:
        """How it stands."""
        return self.store.state(self.definition.index)

    @property
    def replaced(self) -> bool:
        """Whether the table was replaced since; then nothing is skipped until `refresh`."""
        return self.definition.table != self.table.id

    def refresh(self) -> State:
        """Index every file of the version that is newest now; returns when that is done.

        Raises DefinitionError if the index was dropped meanwhile.
        """
        self._definition = self._newest()
        if self.definition.dropped:
            raise self._gone()
        if self.replaced:
            self._carry_over()
        providers = self._source.settings().providers
        build = self._source.build
        state = refresh(build, self.store, self.table, self._definition, providers=providers)
        self._definition = self._newest()
        changed(self.store)
        return state

    def _newest(self) -> Versioned[Definition]:
        index = self.definition.index
        newest = next((d for d in self.store.definitions() if d.value.index == index), None)
        if newest is None:
            raise self._gone()
        return newest

    def _gone(self) -> DefinitionError:
        name = self.definition.name
        return DefinitionError(f"the skipping index of {name} was dropped meanwhile", about="table")

    def _carry_over(self) -> None:
        """Give the definition, by column name, to the incarnation that the table is now."""
        old, columns = self.definition, self.table.columns()
        kept = [i for i in old.columns if i.name in columns and columns[i.name].refusal is None]
        carried: list[IndexedColumn] = []
        for i in {(i.name, i.kind, i.params): i for i in kept}.values():
            column = columns[i.name]
            carried.append(
                replace(
                    i,
                    number=len(carried) + 1,
                    identity=column.identity,
                    type=column.type,
                    partition=column.partition,
                )
            )
        if not carried:
            raise DefinitionError(
                f"{old.name} was replaced and has none of the indexed columns any more: "
                "drop its skipping index and create another"
            )
        new = replace(old, index=str(uuid.uuid4()), table=self.table.id, columns=tuple(carried))
        revision = self.store.define(new, expect=None)
        self.store.define(replace(old, dropped=True), expect=self._definition.revision)
        self._definition = Versioned(new, revision)

    def drop(self) -> None:
        """Ask it no more; VACUUM removes what it keeps."""
        while True:
            newest = self._newest()
            try:
                self.store.define(replace(newest.value, dropped=True), expect=newest.revision)
                changed(self.store)
                return
            except Conflict:
                continue  # somebody changed it meanwhile; dropping wins over any change

    def vacuum(self) -> int:
        """Remove entries of files that no live version of the table can read; how many."""
        files = self.store.catalogue(self.definition.index).files
        table = self.table.files()
        live = set(identities(table))
        candidates = files.filter(pa.array([i not in live for i in identities(files)], pa.bool_()))
        paths = candidates["path"].combine_chunks()
        # Of a path that is live, what is not was replaced there.
        replaced = pc.is_in(paths, value_set=table["path"].combine_chunks())
        gone = pc.or_(replaced, pc.invert(self.table.retained(paths)))
        ordinals = candidates["ordinal"].combine_chunks().filter(gone)
        if len(ordinals):
            self.store.remove(self.definition.index, ordinals)
            changed(self.store)
        return len(ordinals)

    def files(self) -> pa.Table:
        """The entries: the IDENTITY columns, and for each sketch whether it is known."""
        known = [f"{i.sketch}_known" for i in self.definition.columns]
        names = [f"{i.name} {i.kind}" for i in self.definition.columns]
        files = self.store.catalogue(self.definition.index, fields=known).files
        return files.rename_columns([*IDENTITY.names, *names])

    def lookup(self, predicate: Predicate) -> ScanPlan:
        """What would be skipped of the table's newest version; the leaves name columns as SQL does.

        Values are Python's (`Compare("dep_time", ">", 2300)`), for `In` an Arrow array.
        """
        return self._asking.plan(predicate, self.table)

    def scan(self, row_filter: Any = "", **options: Any) -> DataScan:
        """PyIceberg's `Table.scan`, over the files that may have a matching row.

        Takes what that takes and gives what that gives (`to_arrow`, `to_pandas`, `count`, ...), the
        same rows. Raises TableError for a table of a Spark session, which skips files by itself.
        """
        scan = getattr(self.table, "scan", None)
        if scan is None:
            raise TableError(f"{self.table.name} was opened with Spark: query it there")
        if row_filter:
            options["row_filter"] = row_filter
        scanned: DataScan = scan(self._asking.disproved, **options)
        return scanned

    @property
    def _asking(self) -> Asking:
        return Asking(self.store, self.definition, self._source.settings())


def _store(given: IndexStore | str | None, source: Source) -> IndexStore:
    if isinstance(given, str):
        return open_store(given)
    return source.store() if given is None else given


def _require_answerable(table: Table, where: str) -> None:
    try:
        table.files(where=where)
    except DefinitionError as error:
        error.about = "where"
        raise
