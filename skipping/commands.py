"""Run statements: each is a few calls of SkippingIndex, and rows to show."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from providers.errors import Conflict, DefinitionError, NoStore, StatementError, TableError
from skipping.analyze import analyze
from skipping.ddl import (
    Alter,
    Analyze,
    Create,
    Describe,
    Drop,
    RecoverJob,
    Refresh,
    Show,
    Statement,
    Vacuum,
    parse,
    pointing,
)
from skipping.ddl.literals import unquoted
from skipping.ddl.statements import Name
from skipping.definition import Definition, Versioned
from skipping.index import SkippingIndex
from skipping.lookup import changed
from skipping.options import IndexOptions
from skipping.session import settings_of, store_of
from skipping.stores import IDENTITY, IndexStore
from skipping.tables import Table
from skipping.tables.names import qualified, sql_name
from skipping.tables.opening import open_table

__all__ = ["schema", "sql"]

Rows: TypeAlias = Sequence[tuple[Any, ...]]


def schema(text: str) -> str:
    """The columns of a statement's answer as Spark DDL; raises StatementError for wrong text."""
    return _parsed(text).schema


def sql(spark: SparkSession, text: str) -> DataFrame:
    """Run one skipping-index statement; works on any session, with hooks or without.

    Raises SkippingError. Errors in the text, and of the tables and columns it names, point at the
    word.
    """
    statement = _parsed(text)
    with _pointing_into(text, statement):
        rows = list(_run(spark, statement))
        return spark.createDataFrame(rows, statement.schema or StructType([]))


def _parsed(text: str) -> Statement:
    statement = parse(text)
    if statement is None:
        raise StatementError(
            f"not a skipping-index statement: {text.strip()[:60]!r}; "
            "for anything else use spark.sql"
        )
    return statement


@contextmanager
def _pointing_into(text: str, statement: Statement) -> Iterator[None]:
    """Let errors found while running point at the word they are about."""
    try:
        yield
    except TableError as error:
        if "table" not in statement.marks:
            raise
        raise pointing(text, statement.marks["table"], str(error)) from error
    except DefinitionError as error:
        position = error.position
        if position is None:
            position = statement.marks.get(error.about or "")
        if position is None:
            raise
        raise pointing(text, position, str(error)) from error


def _run(spark: SparkSession, statement: Statement) -> Rows:
    match statement:
        case Create():
            return _create(spark, statement)
        case Refresh(table):
            SkippingIndex.on(spark, sql_name(table)).refresh()
            return []
        case Describe(table, extended):
            index = SkippingIndex.on(spark, sql_name(table))
            return _extended(index) if extended else _columns(index.definition)
        case Show(scope, extended):
            return _show(spark, scope, extended=extended)
        case Drop(table, if_exists):
            return _drop(spark, table, if_exists=if_exists)
        case Vacuum(table):
            return _vacuum(spark, table)
        case Analyze(table):
            return analyze(spark, sql_name(table)).rows()
        case Alter() | RecoverJob():
            word = {Alter: "ALTER", RecoverJob: "RECOVER INDEX JOB"}
            raise StatementError(f"{word[type(statement)]} is not supported yet")


def _create(spark: SparkSession, statement: Create) -> Rows:
    name = sql_name(statement.table)
    options = IndexOptions.of(statement.options)
    try:
        index = SkippingIndex.define(spark, name, statement.columns, where=statement.where)
    except Conflict:
        if statement.if_not_exists:
            return []
        raise DefinitionError(
            f"{name} has a skipping index already: drop it first, or say IF NOT EXISTS",
            about="table",
        ) from None
    print(f"skipping index of {index.table.name} in {index.store.location}")
    if options.build:
        index.refresh()
    return []


def _columns(definition: Definition) -> Rows:
    return [
        (i.name, i.type, i.kind, ", ".join(f"{key} = {value}" for key, value in i.params))
        for i in definition.columns
    ]


def _extended(index: SkippingIndex) -> Rows:
    definition, state = index.definition, index.state
    files = index.files()
    version = index.table.version()
    facts: list[tuple[str, object]] = [
        ("table", definition.name),
        ("store", index.store.location),
        ("index", definition.index),
        ("state", "table was replaced: refresh" if index.replaced else state.status),
        ("owner", "none, REFRESH keeps it"),
        ("version", version),
        ("version covered", state.covered),
        ("lag", None if index.replaced else _lag(index.table, version, state.covered)),
        ("files", len(files)),
        ("bytes", sum(files["size"].to_pylist())),
        ("where", definition.where),
        ("last error", state.error),
    ]
    for column, known in zip(definition.columns, files.columns[len(IDENTITY) :], strict=True):
        count = sum(filter(None, known.to_pylist()))
        facts.append((f"column {column.name}", f"{column.type} {column.kind}, known in {count}"))
    return [(item, None if value is None else str(value)) for item, value in facts]


def _lag(table: Table, version: int, covered: int | None) -> str | None:
    if covered is None:
        return None
    if not table.logged:
        return "none" if version == covered else "files came, changed or went"
    behind = version - covered
    return f"{behind} version" if behind == 1 else f"{behind} versions"


def _show(spark: SparkSession, scope: Name | None, *, extended: bool) -> Rows:
    store = store_of(spark, settings_of(spark))
    rows = []
    for found in _definitions(store):
        definition = found.value
        catalog, database, table = _split(definition.name)
        if definition.dropped or not _within(scope, (catalog, database)):
            continue
        state = store.state(definition.index)
        row: list[Any] = [definition.index, "skipping", database, table, None, False, state.status]
        if extended:
            row.append(state.error)
        row += [catalog, _is_orphan(spark, definition)]
        if extended:
            files = store.catalogue(definition.index).files
            row += [state.covered, len(files), sum(files["size"].to_pylist())]
        rows.append(tuple(row))
    return rows


def _definitions(store: IndexStore) -> Sequence[Versioned[Definition]]:
    """Those in a store, none where nothing was created yet."""
    try:
        return store.definitions()
    except NoStore:
        return []


def _split(name: str) -> tuple[str, str, str]:
    """Catalog, database and table of a full name; a path is a table of no database.

    >>> _split("spark_catalog.`my.db`.t"), _split("delta.`file:/a.b`")
    (('spark_catalog', 'my.db', 't'), ('delta', '', 'file:/a.b'))
    """
    parts = [unquoted(part) for part in re.findall(r"`(?:[^`]|``)*`|[^.`]+", name)]
    if len(parts) == 2:
        return parts[0], "", parts[1]
    catalog, *databases, table = parts
    return catalog, ".".join(databases), table


def _within(scope: Name | None, place: tuple[str, str]) -> bool:
    """Whether `IN catalog[.database]` takes in a catalog and database; Spark ignores case."""
    asked = tuple(part.casefold() for part in scope or ())
    return asked == tuple(part.casefold() for part in place)[: len(asked)]


def _is_orphan(spark: SparkSession, definition: Definition) -> bool:
    try:
        return open_table(spark, definition.name).id.format != definition.table.format
    except TableError:
        return True


def _same(one: str, other: str) -> bool:
    """Whether two full names are of one table; Spark ignores case, but in a path."""
    is_path = one.startswith(("delta.`", "parquet.`"))
    return one == other if is_path else one.casefold() == other.casefold()


def _drop(spark: SparkSession, table: Name, *, if_exists: bool) -> Rows:
    try:
        SkippingIndex.on(spark, sql_name(table)).drop()
    except (TableError, DefinitionError):
        # The table may be gone, and its index still there.
        if not _drop_orphan(spark, table) and not if_exists:
            raise
    return []


def _drop_orphan(spark: SparkSession, table: Name) -> bool:
    store, name = store_of(spark, settings_of(spark)), qualified(spark, table)
    for found in _definitions(store):
        if _same(found.value.name, name) and not found.value.dropped:
            store.define(replace(found.value, dropped=True), expect=found.revision)
            changed(store)
            return True
    return False


def _vacuum(spark: SparkSession, table: Name) -> Rows:
    store = store_of(spark, settings_of(spark))
    name = qualified(spark, table)
    erased = [d.value for d in _definitions(store) if d.value.dropped and _same(d.value.name, name)]
    for definition in erased:
        store.erase(definition.index)
    try:
        SkippingIndex.on(spark, sql_name(table)).vacuum()
    except (TableError, DefinitionError):
        if not erased:
            raise
    return []
