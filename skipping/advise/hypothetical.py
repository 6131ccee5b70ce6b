"""Build an index that does not exist, in a store in memory and from a sample of a table's files."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from providers.errors import DefinitionError, SkippingError
from skipping.advise.sample import FILES, choose_files
from skipping.indexing.definitions import add_columns, define_index, find_index, number_columns
from skipping.indexing.refresh import plan_refresh, refresh
from skipping.model.definition import Definition, Versioned
from skipping.parser.statements import ColumnSpec
from skipping.sources.base import Source
from skipping.sources.spark import settings_of, spark_source, store_of
from skipping.stores import IndexStore
from skipping.tables import Table


def build_hypothetical(
    spark: SparkSession,
    store: IndexStore,
    tables: Sequence[str],
    specs: Sequence[ColumnSpec],
    *,
    files: int = FILES,
) -> dict[str, int]:
    """Index a sample of the files of each table that has a column in `specs`.

    The index has the columns of the table's own index, too. Nothing is written outside of `store`.
    Returns the number of sampled files by table. Raises the DefinitionError of CREATE for columns
    that no table has, and for unsupported index types.
    """
    providers = settings_of(spark).providers
    definitions: dict[str, tuple[Source, Versioned[Definition]]] = {}
    refused: dict[ColumnSpec, SkippingError] = {}
    accepted: set[ColumnSpec] = set()
    for name in dict.fromkeys(tables):
        own: Sequence[ColumnSpec] = specs
        try:
            source = spark_source(spark, name)
            own = [spec for spec in specs if _accepts(source, spec, providers, refused)]
            if own:
                definition = _define(spark, store, source.table, own, providers)
                definitions[name] = source, definition
                accepted.update(own)
        except SkippingError as error:  # of this table; another one may have the columns
            refused.update(dict.fromkeys(own, error))
    for spec in specs:
        if spec in refused and spec not in accepted:
            raise refused[spec]
    sampled: dict[str, int] = {}
    for name, (source, definition) in definitions.items():
        table = source.table
        columns, before = table.columns(), store.state(definition.value.index)
        plan = plan_refresh(
            store,
            table,
            definition,
            before,
            columns,
            providers=providers,
            until=None,
            retry=True,
        )
        missing = [replace(each, files=choose_files(each.files, files)) for each in plan.missing]
        plan = replace(plan, missing=tuple(missing))
        refresh(source.build, store, table, definition, providers=providers, plan=plan)
        sampled[name] = len(store.catalogue(definition.value.index).files)
    return sampled


def _accepts(
    source: Source,
    spec: ColumnSpec,
    providers: Sequence[str],
    refused: dict[ColumnSpec, SkippingError],
) -> bool:
    """Return whether a table can have this column in its index; else add the error."""
    try:
        number_columns([spec], source.table.columns(), providers)
    except DefinitionError as error:
        refused.setdefault(spec, error)
        return False
    return True


def _define(
    spark: SparkSession,
    store: IndexStore,
    table: Table,
    specs: Sequence[ColumnSpec],
    providers: Sequence[str],
) -> Versioned[Definition]:
    """Store a definition with these columns; like ALTER ADD if the table has an index."""
    try:
        existing = find_index(store_of(spark, settings_of(spark)), table).value
    except SkippingError:  # there is no index, or its store is unreachable
        existing = None
    if existing is None or existing.table != table.id:  # the index of a replaced table
        return define_index(store, table, specs, providers=providers)
    definition = add_columns(existing, specs, table.columns(), providers)
    definition = replace(
        definition, index=str(uuid.uuid4()), options=(), decisions=(), enabled=True
    )
    return Versioned(definition, store.define(definition, expect=None))
