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
    sources = {name: spark_source(spark, name) for name in dict.fromkeys(tables)}
    providers = settings_of(spark).providers
    accepted: dict[str, list[ColumnSpec]] = {}
    for spec in specs:
        errors: list[DefinitionError] = []
        for name, source in sources.items():
            try:
                number_columns([spec], source.table.columns(), providers)
                accepted.setdefault(name, []).append(spec)
            except DefinitionError as error:
                errors.append(error)
        if errors and len(errors) == len(sources):
            raise errors[0]
    sampled: dict[str, int] = {}
    for name, own in accepted.items():
        table = sources[name].table
        definition = _define(spark, store, table, own, providers)
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
        refresh(sources[name].build, store, table, definition, providers=providers, plan=plan)
        sampled[name] = len(store.catalogue(definition.value.index).files)
    return sampled


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
        return define_index(store, table, specs, providers=providers)
    definition = add_columns(existing, specs, table.columns(), providers)
    definition = replace(definition, index=str(uuid.uuid4()), options=())
    return Versioned(definition, store.define(definition, expect=None))
