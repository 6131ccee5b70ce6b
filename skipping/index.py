"""A skipping index of one table: the Python twin of the SQL statements."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from providers.errors import Conflict, DefinitionError, NoStore
from providers.predicate import Predicate, map_leaves
from skipping.analyze import Advice, analyze
from skipping.binding import Binding
from skipping.ddl import ColumnSpec, Create, parse
from skipping.defining import numbered
from skipping.definition import Definition, IndexedColumn, State, Versioned
from skipping.lookup import Lookup, changed
from skipping.refresh import refresh
from skipping.sampling import FILES
from skipping.scan_plan import ScanPlan
from skipping.session import settings_of, store_of
from skipping.stores import IDENTITY, IndexStore, identities
from skipping.tables import Table
from skipping.tables.opening import open_table

__all__ = ["SkippingIndex"]


class SkippingIndex:
    """The index of one table in one store.

    >>> index = SkippingIndex.on(spark, "flights")  # doctest: +SKIP
    >>> print(index.lookup(Compare("tailnum", "=", "N201AA")))  # doctest: +SKIP
    """

    def __init__(
        self,
        spark: SparkSession,
        table: Table,
        store: IndexStore,
        definition: Versioned[Definition],
    ) -> None:
        self._spark = spark
        self._definition = definition
        self.table = table
        self.store = store

    @classmethod
    def create(
        cls,
        spark: SparkSession,
        table: str,
        columns: str,
        *,
        where: str | None = None,
        build: bool = True,
        store: IndexStore | None = None,
    ) -> SkippingIndex:
        """Define an index and build it for the files there are, unless `build` is false.

        `columns` is written as in SQL: `"tailnum VALUE_LIST(500), dep_time MIN_MAX"`. Raises
        StatementError, DefinitionError, TableError, and Conflict if the table has an index.
        """
        statement = parse(f"CREATE SKIPPING INDEX ON t ({columns})")
        assert isinstance(statement, Create), "the text above is a CREATE"
        index = cls.define(spark, table, statement.columns, where=where, store=store)
        if build:
            index.refresh()
        return index

    @classmethod
    def define(
        cls,
        spark: SparkSession,
        table: str,
        columns: Sequence[ColumnSpec],
        *,
        where: str | None = None,
        store: IndexStore | None = None,
    ) -> SkippingIndex:
        """`create` with parsed columns, and without building."""
        settings = settings_of(spark)
        store = store or store_of(spark, settings)
        opened = open_table(spark, table)
        indexed = numbered(columns, opened.columns(), settings.providers)
        if where is not None:
            _require_answerable(opened, where)
        if cls._found(store, opened) is not None:
            # Also one of the table's earlier incarnation: REFRESH carries it over.
            raise Conflict(f"there is an index on {opened.name} already")
        definition = Definition(str(uuid.uuid4()), opened.id, opened.name, indexed, where)
        revision = store.define(definition, expect=None)
        changed(store)
        return cls(spark, opened, store, Versioned(definition, revision))

    @classmethod
    def on(
        cls, spark: SparkSession, table: str, *, store: IndexStore | None = None
    ) -> SkippingIndex:
        """The index that a table has; raises DefinitionError if it has none.

        A table that was replaced (CREATE OR REPLACE, or dropped and made again) still has the index
        that was defined under its name; the next `refresh` builds it for what the table is now.
        """
        store = store or store_of(spark, settings_of(spark))
        opened = open_table(spark, table)
        found = cls._found(store, opened)
        if found is None:
            raise DefinitionError(
                f"{opened.name} has no skipping index in {store.location}: "
                f"CREATE SKIPPING INDEX ON {opened.name} (column KIND)",
                about="table",
            )
        return cls(spark, opened, store, found)

    @staticmethod
    def analyze(
        spark: SparkSession, table: str, *, columns: Sequence[str] | None = None, files: int = FILES
    ) -> Advice:
        """Advise an index for a table, which needs none yet, from at most so many of its files.

        `columns`: all unless given. Raises TableError, and DefinitionError for a column that is not
        there.

        >>> print(SkippingIndex.analyze(spark, "flights").ddl)  # doctest: +SKIP
        CREATE SKIPPING INDEX ON default.flights (tailnum VALUE_LIST)
        """
        return analyze(spark, table, columns=columns, files=files)

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
        providers = settings_of(self._spark).providers
        state = refresh(self._spark, self.store, self.table, self._definition, providers=providers)
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
        bound = Binding(self.table.columns())
        normalised = map_leaves(predicate, bound.leaf)
        settings = settings_of(self._spark)
        lookup = Lookup(self.store, ttl=0, providers=settings.providers)
        found = lookup.ask(self.definition, normalised, bound.columns, timeout=settings.timeout)
        entries = lookup.catalogue(self.definition.index).files
        ordinals = dict(zip(identities(entries), entries["ordinal"].to_pylist(), strict=True))
        live = self.table.files()
        known = [ordinals[key] for key in identities(live) if key in ordinals]
        return ScanPlan(
            self.table.name,
            total=len(live),
            disproved=sum(ordinal in found.disproved for ordinal in known),
            unknown=len(live) - len(known),
            legs=tuple((leg.label, sum(o in leg.disproved for o in known)) for leg in found.legs),
            unused=found.unused,
        )


def _require_answerable(table: Table, where: str) -> None:
    try:
        table.files(where=where)
    except DefinitionError as error:
        error.about = "where"
        raise
