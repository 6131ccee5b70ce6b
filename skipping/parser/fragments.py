"""Parts of statements as arguments of Python methods."""

from __future__ import annotations

from collections.abc import Sequence

from skipping.parser.parse import parse
from skipping.parser.statements import Alter, ColumnDrop, ColumnSpec, Create, DropColumns


def column_specs(columns: str | Sequence[ColumnSpec]) -> Sequence[ColumnSpec]:
    """Parse the columns of CREATE: `"a MIN_MAX, b.c VALUE_LIST(10)"`; raises StatementError."""
    if not isinstance(columns, str):
        return columns
    statement = parse(f"CREATE SKIPPING INDEX ON t ({columns})")
    assert isinstance(statement, Create), "the text above is a CREATE"
    return statement.columns


def column_drops(columns: str | Sequence[ColumnDrop]) -> Sequence[ColumnDrop]:
    """Parse the columns of ALTER ... DROP: `"a, b.c MIN_MAX"`; raises StatementError."""
    if not isinstance(columns, str):
        return columns
    statement = parse(f"ALTER SKIPPING INDEX ON t DROP ({columns})")
    assert isinstance(statement, Alter), "the text above is an ALTER"
    assert isinstance(statement.action, DropColumns), "the text above says DROP"
    return statement.action.columns
