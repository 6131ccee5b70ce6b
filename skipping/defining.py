"""From the columns that a statement names to the columns of a definition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from providers.errors import DefinitionError
from providers.registry import find
from skipping.ddl import ColumnSpec
from skipping.definition import IndexedColumn
from skipping.tables import Columns, TableColumn

__all__ = ["numbered"]


def numbered(
    specs: Sequence[ColumnSpec], columns: Columns, providers: Sequence[str]
) -> tuple[IndexedColumn, ...]:
    """The columns of a new definition; raises DefinitionError for one that cannot be sound."""
    made: list[IndexedColumn] = []
    for number, spec in enumerate(specs, start=1):
        with _at(spec.position):
            column = columns.resolve(spec.name)
            if column.refusal is not None:
                raise DefinitionError(column.refusal)
        with _at(spec.kind_position):
            indexed = _indexed(number, spec, column, providers)
            if any((m.identity, m.kind) == (indexed.identity, indexed.kind) for m in made):
                raise DefinitionError(f"{indexed.name} {indexed.kind} is given twice")
            made.append(indexed)
    return tuple(made)


@contextmanager
def _at(position: int) -> Iterator[None]:
    """Say of a DefinitionError where in the text the word stands that it is about."""
    try:
        yield
    except DefinitionError as error:
        error.position = position
        raise


def _indexed(
    number: int, spec: ColumnSpec, column: TableColumn, providers: Sequence[str]
) -> IndexedColumn:
    kind = find(spec.kind, providers)
    names = kind.signature(spec.positional)
    if len(spec.positional) > len(names):
        takes = f"takes {', '.join(names)}" if names else "takes no parameter"
        raise DefinitionError(f"{kind.kind} {takes}, not {len(spec.positional)} values")
    params = dict(zip(names, spec.positional, strict=False))
    if twice := params.keys() & spec.named.keys():
        raise DefinitionError(f"{kind.kind}: {', '.join(sorted(twice))} is given twice")
    params.update(spec.named)
    indexed = IndexedColumn(
        number,
        column.name,
        column.identity,
        column.type,
        kind.kind,
        tuple(sorted(params.items())),
        column.partition,
    )
    indexed.provider(providers)  # raises for a parameter or type that the kind cannot be sound on
    return indexed
