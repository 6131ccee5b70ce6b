"""Parse parts of statements that are passed as text to Python methods."""

from __future__ import annotations

from collections.abc import Sequence

from skipping.parser.parse import parse
from skipping.parser.statements import Alter, ColumnDrop, ColumnSpec, Create, DropColumns


def column_specs(columns: str | Sequence[ColumnSpec]) -> Sequence[ColumnSpec]:
    """Parse columns as in CREATE: `"a MIN_MAX, b.c VALUE_LIST(10)"`; raise StatementError."""
    if not isinstance(columns, str):
        return columns
    statement = parse(f"CREATE SKIPPING INDEX ON t ({columns})")
    assert isinstance(statement, Create), "the text above is a CREATE"
    return statement.columns


def column_drops(columns: str | Sequence[ColumnDrop]) -> Sequence[ColumnDrop]:
    """Parse columns as in ALTER ... DROP: `"a, b.c MIN_MAX"`; raise StatementError."""
    if not isinstance(columns, str):
        return columns
    statement = parse(f"ALTER SKIPPING INDEX ON t DROP ({columns})")
    assert isinstance(statement, Alter), "the text above is an ALTER"
    assert isinstance(statement.action, DropColumns), "the text above has DROP"
    return statement.action.columns
