"""Predicates as people write them in Python, on column names and plain values, made askable."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from providers.errors import DefinitionError
from providers.literals import normalise_leaf
from providers.predicate import Leaf, Predicate, map_leaves
from providers.values import arrow_type, domain_of
from skipping.lookup.translate import QueryColumn
from skipping.tables import Columns, TableColumn

__all__ = ["Binding"]


class Binding:
    """Gives leaves that name columns the columns' identities and normalised values."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._resolved: dict[str, tuple[TableColumn, pa.DataType]] = {}
        self.columns: dict[str, QueryColumn] = {}

    def leaf(self, leaf: Leaf) -> Predicate:
        """The leaf as Spark compares (`providers.literals`): equivalent, or Unknown.

        Raises DefinitionError for a column that is not there or has no index, and for a value that
        is none of the column's.
        """
        column, arrow = self._resolve(leaf.column)
        try:
            asked = normalise_leaf(leaf, arrow)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise DefinitionError(f"{column.name} is {column.type}: {error}") from error
        return map_leaves(asked, lambda each: replace(each, column=column.identity))

    def _resolve(self, name: str) -> tuple[TableColumn, pa.DataType]:
        if name not in self._resolved:
            column = self._columns.resolve(name)
            arrow = arrow_type(column.type)
            domain = domain_of(arrow) if arrow is not None else None
            if arrow is None or domain is None or column.refusal is not None:
                raise DefinitionError(column.refusal or f"{column.name} is {column.type}")
            self.columns[column.identity] = QueryColumn(column.name, domain, column.type)
            self._resolved[name] = column, arrow
        return self._resolved[name]
