"""The statements of a skipping index: text in, immutable values out. Nothing is resolved or run."""

from skipping.ddl.complaints import pointing
from skipping.ddl.parser import parse
from skipping.ddl.scan import is_ours
from skipping.ddl.statements import (
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
    display,
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
    "display",
    "is_ours",
    "parse",
    "pointing",
]
