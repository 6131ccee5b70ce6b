"""The statements of a skipping index: text in, immutable values out. Nothing is resolved or run."""

from skipping.parser.errors import point_at
from skipping.parser.lexer import is_ours
from skipping.parser.parse import parse
from skipping.parser.statements import (
    Action,
    AddColumns,
    Alter,
    Analyze,
    ColumnDrop,
    ColumnSpec,
    Create,
    Describe,
    Disable,
    Drop,
    DropColumns,
    Enable,
    Name,
    RecoverJob,
    Refresh,
    SetOptions,
    Show,
    Statement,
    Vacuum,
)

__all__ = [
    "Action",
    "AddColumns",
    "Alter",
    "Analyze",
    "ColumnDrop",
    "ColumnSpec",
    "Create",
    "Describe",
    "Disable",
    "Drop",
    "DropColumns",
    "Enable",
    "Name",
    "RecoverJob",
    "Refresh",
    "SetOptions",
    "Show",
    "Statement",
    "Vacuum",
    "is_ours",
    "parse",
    "point_at",
]
