"""What ALTER makes of a definition. Nothing is built here, and nothing stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from providers.errors import DefinitionError
from providers.provider import Param
from providers.registry import find
from skipping.ddl import ColumnSpec
from skipping.ddl.statements import ColumnDrop
from skipping.defining import numbered
from skipping.definition import Definition, IndexedColumn
from skipping.options import IndexOptions
from skipping.tables import Columns

__all__ = ["added", "optioned", "removed"]


def added(
    definition: Definition, specs: Sequence[ColumnSpec], columns: Columns, providers: Sequence[str]
) -> Definition:
    """With more columns or kinds; raises DefinitionError for one that is there or not sound."""
    new = numbered(specs, columns, providers, first=definition.next_number)
    there = {(i.identity, i.kind) for i in definition.columns}
    for indexed, spec in zip(new, specs, strict=True):
        if (indexed.identity, indexed.kind) in there:
            raise DefinitionError(
                f"{indexed.name} {indexed.kind} is in the index already: DROP it first",
                position=spec.kind_position,
            )
    return replace(definition, columns=(*definition.columns, *new))


def removed(
    definition: Definition, drops: Sequence[ColumnDrop], columns: Columns, providers: Sequence[str]
) -> Definition:
    """Without columns or kinds; raises DefinitionError for one that is not there.

    A column is meant by the name it has in the table now; one that is gone from the table, by the
    name it had in the index.
    """
    left = definition.columns
    for drop in drops:
        kind = None if drop.kind is None else find(drop.kind, providers).kind
        gone = [i for i in left if _is(i, drop, columns) and kind in (None, i.kind)]
        if not gone:
            what = drop.name if drop.kind is None else f"{drop.name} {drop.kind}"
            there = ", ".join(f"{i.name} {i.kind}" for i in left)
            raise DefinitionError(
                f"{what} is not in the index: there are {there}", position=drop.position
            )
        left = tuple(i for i in left if i not in gone)
    if not left:
        raise DefinitionError("nothing would be left: use DROP SKIPPING INDEX", about="table")
    return replace(definition, columns=left, numbers=definition.next_number - 1)


def optioned(definition: Definition, given: Mapping[str, Param]) -> Definition:
    """With these options, the others as they were; raises DefinitionError for a wrong one."""
    IndexOptions.of(given, alter=True)
    options = IndexOptions.of({**dict(definition.options), **given})
    return replace(definition, options=options.pairs())


def _is(indexed: IndexedColumn, drop: ColumnDrop, columns: Columns) -> bool:
    if indexed.name.lower() == drop.name.lower():
        return True  # also what the column of this name was before it was made again
    try:
        return indexed.identity == columns.resolve(drop.name).identity
    except DefinitionError:
        return False
