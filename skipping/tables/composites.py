"""Combine the columns of a multi-column index into one column of tuples: `(a, b) VALUE_LIST`."""

from __future__ import annotations

from collections.abc import Sequence

from providers.errors import DefinitionError
from providers.tuples import tuple_type
from skipping.model.definition import IndexedColumn, composite_identity
from skipping.tables import Columns, TableColumn


def combine(columns: Sequence[TableColumn]) -> TableColumn:
    """Combine two or more columns; raise DefinitionError if that is impossible."""
    name = f"({', '.join(column.name for column in columns)})"
    identities = [column.identity for column in columns]
    if len(set(identities)) < len(identities):
        raise DefinitionError(f"{name} has a column twice")
    for column in columns:
        if column.refusal is not None:
            raise DefinitionError(column.refusal)
        if column.partition:
            raise DefinitionError(
                f"{column.name} is a partition column, with one value per file: "
                f"index only the other columns of {name}, which prunes the same files"
            )
    return TableColumn(
        name=name,
        identity=composite_identity(identities),
        type=tuple_type([column.type for column in columns]),
        reads=tuple(columns),
    )


def by_identity(indexed: IndexedColumn, columns: Columns) -> TableColumn | None:
    """Combine the current columns of a multi-column index by identity, or return None."""
    there = {column.identity: column for column in columns.values()}
    return _combine_all([there.get(identity) for identity in indexed.part_identities])


def by_name(indexed: IndexedColumn, columns: Columns) -> TableColumn | None:
    """Combine the current columns of a multi-column index by name, or return None."""
    return _combine_all([columns.get(name) for name, _ in indexed.parts])


def _combine_all(found: Sequence[TableColumn | None]) -> TableColumn | None:
    columns = [column for column in found if column is not None]
    try:
        return combine(columns) if len(columns) == len(found) else None
    except DefinitionError:
        return None
