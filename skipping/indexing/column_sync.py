"""Match the columns of an index with the columns that its table has now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from providers.errors import DefinitionError, first_line
from providers.tuples import domain_of_type
from skipping.model.definition import Definition, IndexedColumn, Versioned
from skipping.stores import IndexStore
from skipping.tables import Columns, TableColumn
from skipping.tables.composites import by_identity, by_name


def current_columns(
    definition: Definition, columns: Columns, providers: Sequence[str] = ()
) -> list[tuple[IndexedColumn, TableColumn]]:
    """Pair each column of an index with the table's column, if new files can be sketched for it.

    These columns are left out; `find_gaps` gives the reason:

    - The column is gone, or its type changed. Sketches of the old type still serve queries on
      versions that had it.
    - The expression cannot be computed here, or has changed since it was defined
      (`explain_uncomputable`).
    - The index type does not accept the column, which an earlier release may have added.
    """
    by_id = {column.identity: column for column in columns.values()}

    def find(indexed: IndexedColumn) -> TableColumn | None:
        if indexed.expression is not None:
            return _resolve_expression(indexed, columns)[0]
        return by_identity(indexed, columns) if indexed.parts else by_id.get(indexed.identity)

    pairs = [(indexed, find(indexed)) for indexed in definition.columns]
    return [
        (indexed, column)
        for indexed, column in pairs
        if column is not None
        and column.index_refusal is None
        and domain_of_type(column.type) == indexed.domain
        and indexed.misfit(providers) is None
    ]


def explain_uncomputable(definition: Definition, columns: Columns) -> str | None:
    """Return why an expression of the index cannot be computed here; None if all can."""
    reasons = (_resolve_expression(i, columns)[1] for i in definition.columns if i.expression)
    return next((reason for reason in reasons if reason), None)


def _resolve_expression(
    indexed: IndexedColumn, columns: Columns
) -> tuple[TableColumn | None, str | None]:
    try:
        column = columns.compute(indexed.name, indexed.expression)
    except DefinitionError as error:
        return None, first_line(error)
    # The store may have another expression than the one whose identity queries look up.
    if column.identity != indexed.identity or column.type != indexed.type:
        return None, f"{indexed.name} has changed since CREATE: DROP it and ADD it again"
    return replace(column, name=indexed.name), None


def find_gaps(
    definition: Definition, columns: Columns, providers: Sequence[str] = ()
) -> dict[int, str]:
    """Return the reasons why new files get no sketch, by the number of the index's column.

    Expressions are left out: Spark may compute them where this process cannot.
    """
    current = [indexed for indexed, _ in current_columns(definition, columns, providers)]
    numbers = {indexed.number for indexed in current}
    replaced = {(i.name, i.kind, i.params) for i in current}
    return {
        i.number: _explain_gap(i, columns, providers)
        for i in definition.columns
        if i.expression is None
        and i.number not in numbers
        and (i.name, i.kind, i.params) not in replaced
    }


def _explain_gap(indexed: IndexedColumn, columns: Columns, providers: Sequence[str]) -> str:
    column = find_by_name(indexed, columns)
    if column is None:
        return "the table no longer has the column"
    if column.index_refusal is not None:
        return column.index_refusal
    misfit = move_to(indexed, column).misfit(providers)
    return misfit or f"the column is now {column.type}: REFRESH the index"


def find_by_name(indexed: IndexedColumn, columns: Columns) -> TableColumn | None:
    """Return today's column, or columns, with the name of an indexed one."""
    return by_name(indexed, columns) if indexed.parts else columns.get(indexed.name)


def move_to(indexed: IndexedColumn, column: TableColumn) -> IndexedColumn:
    """Return the definition of the same index type on another column."""
    return replace(
        indexed,
        identity=column.identity,
        type=column.type,
        partition=column.partition,
        parts=column.parts,
    )


def sync_columns(
    store: IndexStore, definition: Versioned[Definition], columns: Columns, providers: Sequence[str]
) -> Versioned[Definition]:
    """Update the definition to the columns that the table has now, and store it if it changed.

    A column that was widened into another domain, or dropped and added again with the same name,
    gets a new number. Sketches under the old number still serve queries on older versions. If the
    index type does not accept the new column type (NGRAM on an INT), new files are unknown.
    """
    old = definition.value
    current = {
        i.number: replace(i, name=c.name, type=c.type, parts=c.parts)
        for i, c in current_columns(old, columns, providers)
    }
    renamed = tuple(current.get(i.number, i) for i in old.columns)
    present = {(i.name, i.kind, i.params) for i in current.values()}
    added: list[IndexedColumn] = []
    for indexed in renamed:
        column = find_by_name(indexed, columns)
        key = (indexed.name, indexed.kind, indexed.params)
        if key not in present and column is not None and column.index_refusal is None:
            moved = replace(move_to(indexed, column), number=old.next_number + len(added))
            if moved.misfit(providers) is None:
                present.add(key)
                added.append(moved)
    new = replace(old, columns=(*renamed, *added))
    if new == old:
        return definition
    return Versioned(new, store.define(new, expect=definition.revision))
