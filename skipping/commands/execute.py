"""Run skipping-index statements, and return their results as DataFrames."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, replace
from typing import Any, TypeAlias

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from providers.base import Param
from providers.errors import (
    Conflict,
    DefinitionError,
    NoIndex,
    SessionError,
    StatementError,
    TableError,
)
from skipping.advise.analyze import analyze
from skipping.advise.choose import BUDGET
from skipping.advise.savings import rows_of_savings, savings
from skipping.config.options import IndexOptions
from skipping.extensions import find_extensions
from skipping.index import SkippingIndex
from skipping.indexing.definitions import drop_kind, number_columns, orphan_hint, set_options
from skipping.indexing.describe import summarize
from skipping.indexing.vacuum import erase_indexes
from skipping.lookup.lookup import invalidate
from skipping.model.decision import Decision
from skipping.model.definition import Definition
from skipping.model.identifiers import (
    is_same_name,
    qualify_name,
    shown_name,
    shown_path,
    split_name,
    sql_name,
)
from skipping.parser import statements
from skipping.parser.errors import point_at
from skipping.parser.literals import split_parts
from skipping.parser.parse import parse
from skipping.parser.statements import ColumnSpec, Name, Statement
from skipping.sources.rows import frame_of_rows
from skipping.sources.spark import settings_of, store_of
from skipping.sources.stored import folder_exists, stored_name
from skipping.stores import IndexStore, list_definitions
from skipping.streaming import jobs
from skipping.streaming.checkpoints import require_checkpoint
from skipping.streaming.jobs import job_name, stop_stream
from skipping.tables.open import open_table

log = logging.getLogger("skipping")

Rows: TypeAlias = Sequence[tuple[Any, ...]]


def schema(text: str) -> str:
    """Return the columns of a statement's result as Spark DDL; raise StatementError."""
    return _parse_ours(text).schema


def sql(spark: SparkSession, text: str) -> DataFrame:
    """Run one skipping-index statement and return its result; the session needs no hooks.

    Raises SkippingError; the message points at the wrong word, if there is one.
    """
    statement = _parse_ours(text)
    with _pointing_into(text, statement):
        return frame_of_rows(spark, statement.schema, _run(spark, statement))


def streams(spark: SparkSession) -> tuple[jobs.Stream, ...]:
    """Return the state of every index in the session's store that a stream maintains."""
    return jobs.streams(spark, SkippingIndex.on)


def _parse_ours(text: str) -> Statement:
    statement = parse(text)
    if statement is None:
        raise StatementError(
            f"not a skipping-index statement: {text.strip()[:60]!r}. "
            "Run other statements with spark.sql"
        )
    return statement


@contextmanager
def _pointing_into(text: str, statement: Statement) -> Iterator[None]:
    """Make the error of a run point at the table, column or option in the statement."""
    try:
        yield
    except TableError as error:
        if "table" not in statement.marks:
            raise
        raise point_at(text, statement.marks["table"], str(error)) from error
    except DefinitionError as error:
        position = error.position
        if position is None:
            position = statement.marks.get(error.about or "")
        if position is None:
            raise
        raise point_at(text, position, str(error)) from error


def _run(spark: SparkSession, statement: Statement) -> Rows:
    match statement:
        case statements.Create():
            return _create(spark, statement)
        case statements.Refresh():
            return _refresh(spark, statement)
        case statements.Describe(table, extended):
            return _describe(spark, table, extended=extended)
        case statements.Show(scope, extended):
            return _show(spark, scope, extended=extended)
        case statements.Drop() | statements.DropKind():
            return _drop(spark, statement)
        case statements.Vacuum(table):
            return _vacuum(spark, table)
        case statements.Analyze(table, budget):
            advice = analyze(spark, sql_name(table), budget=BUDGET if budget is None else budget)
            return advice.details() if statement.details else advice.rows()
        case statements.Alter():
            return _alter(spark, statement)
        case statements.RecoverJob(job):
            jobs.recover(spark, job, SkippingIndex.on)
            return []
        case statements.DescribeFiles(table, where):
            return _describe_files(spark, table, where)
        case _:
            return _run_report(spark, statement)


def _run_report(
    spark: SparkSession,
    statement: statements.ShowStreams
    | statements.ShowSavings
    | statements.ShowDecisions
    | statements.Report,
) -> Rows:
    match statement:
        case statements.ShowStreams():
            return [astuple(stream) for stream in streams(spark)]
        case statements.ShowSavings(table, by):
            found = savings(spark, None if table is None else sql_name(table), by=by)
            return rows_of_savings(found, statement.schema)
        case statements.ShowDecisions(table):
            return _show_decisions(spark, table)
    return _report(spark, statement)


def _refresh(spark: SparkSession, statement: statements.Refresh) -> Rows:
    index = SkippingIndex.on(spark, sql_name(statement.table))
    if statement.dry_run:
        return [_decision_row(index.table.name, each) for each in index.adapt(dry_run=True)]
    index.refresh()
    return []


def _report(spark: SparkSession, statement: statements.Report) -> Rows:
    extensions = find_extensions()
    if extensions is None:
        raise SessionError(
            "the session does not skip files: import rewrite, run spark = rewrite.enable(spark)"
        )
    return extensions.report(spark, statement)


def _show_decisions(spark: SparkSession, table: Name | None) -> Rows:
    name = None if table is None else qualify_name(spark, table)
    store = store_of(spark, settings_of(spark))
    return [
        _decision_row(definition.name, decision)
        for definition in (found.value for found in list_definitions(store))
        if not definition.dropped and (name is None or is_same_name(definition.name, name))
        for decision in definition.decisions
    ]


def _decision_row(table: str, decision: Decision) -> tuple[Any, ...]:
    return (
        *(shown_name(table), decision.day, decision.action, decision.column, decision.kind),
        *(float(decision.benefit), float(decision.cost), decision.reason),
    )


def _describe(spark: SparkSession, table: Name, *, extended: bool) -> Rows:
    try:
        index = SkippingIndex.on(spark, sql_name(table))
    except NoIndex as hint:
        log.warning("%s", hint)
        return [("hint", str(hint))] if extended else []
    if extended:
        return list(index.describe().items())
    return [
        (i.name, i.type, i.kind, ", ".join(f"{key} = {value}" for key, value in i.params))
        for i in index.definition.columns
    ]


def _describe_files(spark: SparkSession, table: Name, where: str) -> Rows:
    index = SkippingIndex.on(spark, sql_name(table))
    try:
        why = index.why(where)
    except DefinitionError as error:
        error.about = error.about or "where"
        raise
    labels = why.column_names[4:]
    return [
        (path, size, ordinal is not None, pruned, [k for k, v in zip(labels, by, strict=True) if v])
        for path, size, ordinal, pruned, *by in zip(*why.to_pydict().values(), strict=True)
    ]


def _create(spark: SparkSession, statement: statements.Create) -> Rows:
    name = sql_name(statement.table)
    options = IndexOptions.of({"automatic": statement.automatic, **statement.options})
    if statement.automatic and not options.automatic:
        raise DefinitionError("AUTO means automatic = true", about="with.automatic")
    require_checkpoint(spark, options)
    columns: Sequence[ColumnSpec] = statement.columns
    if not columns and not statement.automatic:
        columns = _list_bounded_columns(spark, name)
    try:
        index = SkippingIndex.define(spark, name, columns, where=statement.where, options=options)
    except Conflict:
        if statement.extends:
            _extend(SkippingIndex.on(spark, name), statement, columns)
            return []
        if statement.if_not_exists:
            existing = SkippingIndex.on(spark, name)
            if existing.replaced and options.build:  # it was built for the replaced table
                existing.refresh()
            return []
        raise DefinitionError(
            f"{name} already has a skipping index. To add columns: ALTER SKIPPING INDEX ON {name} "
            "ADD (column TYPE). If the table was replaced since: REFRESH SKIPPING INDEX ON "
            f"{name}. To keep the index as it is: IF NOT EXISTS",
            about="table",
        ) from None
    log.info(
        "skipping index defined: table=%s store=%s",
        shown_name(index.table.name),
        index.store.location,
    )
    if options.build:
        index.refresh()
    if options.streamed:
        jobs.start_stream(spark, index.store, index.table.name, open_index=SkippingIndex.on)
    return []


def _list_bounded_columns(spark: SparkSession, name: str) -> Sequence[ColumnSpec]:
    """Return a MIN_MAX spec for each column that can have it, except partition columns."""
    available = open_table(spark, name).columns()
    specs = []
    for column in available.values():
        spec = ColumnSpec(tuple(split_parts(column.name)), "MIN_MAX")
        with suppress(DefinitionError):
            number_columns([spec], available, settings_of(spark).providers)
            if not column.partition:
                specs.append(spec)
    if not specs:
        raise DefinitionError(
            f"{shown_name(name)} has no column that MIN_MAX can index", about="table"
        )
    return specs


def _extend(
    index: SkippingIndex, statement: statements.Create, columns: Sequence[ColumnSpec]
) -> None:
    """Add columns to an index.

    With IF NOT EXISTS, or if the statement names no columns, skip those that the index has.
    """
    if statement.if_not_exists or not statement.columns:
        existing = {(i.name.lower(), i.kind) for i in index.definition.columns}
        columns = [c for c in columns if (c.name.lower(), c.kind) not in existing]
    if columns:
        index.add(columns)


def _alter(spark: SparkSession, statement: statements.Alter) -> Rows:
    index = SkippingIndex.on(spark, sql_name(statement.table))
    match statement.action:
        case statements.AddColumns(columns):
            index.add(columns)
        case statements.DropColumns(drops):
            index.remove(drops)
        case statements.Enable():
            index.alter(lambda definition: replace(definition, enabled=True))
        case statements.Disable():
            index.alter(lambda definition: replace(definition, enabled=False))
        case statements.SetOptions(options):
            index.alter(lambda definition: _set_options(spark, definition, options))
            if index.options.streamed:
                jobs.start_stream(
                    spark,
                    index.store,
                    index.definition.name,
                    open_index=SkippingIndex.on,
                    table=index.table.name,
                )
            else:
                stop_stream(index.store, index.definition.name)
    return []


def _set_options(
    spark: SparkSession, definition: Definition, given: Mapping[str, Param]
) -> Definition:
    new = set_options(definition, given)
    options = IndexOptions.of(dict(new.options))
    # An invalid checkpoint_location in the store must not prevent ending the stream.
    if options.streamed or "checkpoint_location" in given:
        require_checkpoint(spark, options)
    return new


def _show(spark: SparkSession, scope: Name | None, *, extended: bool) -> Rows:
    store = store_of(spark, settings_of(spark))
    rows: list[tuple[Any, ...]] = []
    _require_scope(spark, scope, store)
    for found in list_definitions(store):
        definition = found.value
        catalog, database, table = split_name(definition.name)
        if definition.dropped or not _within(scope, (catalog, database)):
            continue
        rows.append(
            _index_row(spark, store, definition, (catalog, database, table), extended=extended)
        )
    return rows


def _index_row(
    spark: SparkSession,
    store: IndexStore,
    definition: Definition,
    name: tuple[str, str, str],
    *,
    extended: bool,
) -> tuple[Any, ...]:
    """Return the row of an index in SHOW; if the store fails, `error` says why."""
    found = summarize(store, definition, count_files=extended)
    catalog, database, table = name
    flint = job_name(definition.name)
    row = (flint, "skipping", database, shown_path(table), None, found.follows, found.status)
    orphaned = _explain_orphan(spark, definition)
    place = (catalog, orphaned is not None, definition.index)
    if not extended:
        return (*row, *place)
    return (*row, found.error or orphaned, *place, found.covered, found.files, found.bytes)


def _require_scope(spark: SparkSession, scope: Name | None, store: IndexStore) -> None:
    """Raise DefinitionError if neither the session nor an index has this catalog or database."""
    if not scope:
        return
    found = (d.value for d in list_definitions(store) if not d.value.dropped)
    databases = {split_name(definition.name)[:2] for definition in found}
    if any(_within(scope, database) for database in databases):
        return
    catalogs: Any = spark._jsparkSession.sessionState().catalogManager()
    if scope[0].casefold() in ("delta", "parquet"):  # as in delta.`/path`
        return
    if not catalogs.isCatalogRegistered(scope[0]):
        raise DefinitionError(
            f"unknown catalog {scope[0]}: configure it as spark.sql.catalog.{scope[0]}",
            about="scope",
        )
    try:
        known = len(scope) == 1 or spark.catalog.databaseExists(sql_name(scope))
    except PySparkException:  # the catalog does not respond
        return
    if not known:
        raise DefinitionError(f"unknown database {sql_name(scope)}", about="scope")


def _within(scope: Name | None, database: tuple[str, str]) -> bool:
    """Return whether `IN catalog[.database]` includes this (catalog, database), in any case."""
    wanted = tuple(part.casefold() for part in scope or ())
    return wanted == tuple(part.casefold() for part in database)[: len(wanted)]


def _explain_orphan(spark: SparkSession, definition: Definition) -> str | None:
    """Return why the table of a definition cannot be opened, and what to do; None if it can."""
    try:
        name = stored_name(spark, definition)
    except TableError as error:
        return str(error)
    try:
        if definition.table.format == "parquet":  # opening the table would list its folder
            exists = folder_exists(spark, definition.table.root)
            return None if exists else f"the folder does not exist. {orphan_hint(definition)}"
        format = open_table(spark, name).id.format
    except TableError as error:
        return f"{error}. {orphan_hint(definition)}"
    is_other = format != definition.table.format
    return f"the table's format is {format} now. {orphan_hint(definition)}" if is_other else None


def _drop(spark: SparkSession, statement: statements.Drop | statements.DropKind) -> Rows:
    if isinstance(statement, statements.DropKind) and _drop_part(spark, statement):
        return []
    table = statement.table
    try:
        index = SkippingIndex.on(spark, sql_name(table))
        index.drop()
        stop_stream(index.store, index.definition.name)
    except (TableError, DefinitionError) as error:
        # The table may be gone while its index still exists.
        if not _drop_orphan(spark, table) and not statement.if_exists:
            if isinstance(error, NoIndex):
                raise DefinitionError(
                    f"{shown_name(qualify_name(spark, table))} has no skipping index to drop: "
                    "SHOW SKIPPING INDEXES lists all skipping indexes",
                    about="table",
                ) from error
            raise
    return []


def _drop_part(spark: SparkSession, statement: statements.DropKind) -> bool:
    """Remove an index type, or its columns in `statement`.

    Return False, without a change, if the index would have no column left.
    """
    try:
        index = SkippingIndex.on(spark, sql_name(statement.table))
    except (TableError, NoIndex):
        return False
    kind, columns = statement.kind, index.definition.columns
    named = {drop.name.lower() for drop in statement.columns}
    removed = [i for i in columns if i.kind == kind and (not named or i.name.lower() in named)]
    if len(removed) == len(columns) and len(removed) >= len(named):
        return False
    if named:
        index.remove(statement.columns)
    elif removed:
        index.alter(lambda definition: drop_kind(definition, kind))
    elif not statement.if_exists:
        raise DefinitionError(
            f"the skipping index of {shown_name(index.definition.name)} has no column with {kind}",
            about="table",
        )
    return True


def _drop_orphan(spark: SparkSession, table: Name) -> bool:
    store, name = store_of(spark, settings_of(spark)), qualify_name(spark, table)
    for found in list_definitions(store):
        if is_same_name(found.value.name, name) and not found.value.dropped:
            store.define(replace(found.value, dropped=True), expect=found.revision)
            invalidate(store)
            stop_stream(store, found.value.name)
            return True
    return False


def _vacuum(spark: SparkSession, table: Name) -> Rows:
    store = store_of(spark, settings_of(spark))
    name = qualify_name(spark, table)
    erased = erase_indexes(store, lambda definition: is_same_name(definition.name, name))
    try:
        SkippingIndex.on(spark, sql_name(table)).vacuum()
    except (TableError, DefinitionError):
        if not erased:
            raise
    return []
