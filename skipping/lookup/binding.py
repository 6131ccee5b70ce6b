"""Bind predicates on column names and Python values to columns of the index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from providers.errors import DefinitionError
from providers.literals import normalise_leaf
from providers.predicate import In, Leaf, Predicate, Unknown, map_leaves
from providers.values import arrow_type, domain_of
from skipping.lookup.translate import QueryColumn
from skipping.model.definition import IndexedColumn
from skipping.tables import Columns, TableColumn
from skipping.tables.composites import by_identity


class Binding:
    """Binds leaves to an index: replaces column names by identities, and normalises values."""

    def __init__(self, columns: Columns, indexed: Sequence[IndexedColumn] = ()) -> None:
        """`indexed` are the columns of the index, multi-column ones among them."""
        self._columns = columns
        self._composites = {i.identity: i for i in indexed if i.parts}
        self._resolved: dict[str, tuple[TableColumn, pa.DataType]] = {}
        self.columns: dict[str, QueryColumn] = {}

    def leaf(self, leaf: Leaf) -> Predicate:
        """Return an equivalent leaf with Spark's comparison (`providers.literals`), or Unknown.

        Raises DefinitionError for a column that does not exist or has no index, and for a value
        that is not of the column's type.
        """
        composite = self._composites.get(leaf.column)
        if composite is not None and isinstance(leaf, In):
            return self._tuples(composite, leaf)
        column, arrow = self._resolve(leaf.column)
        try:
            asked = normalise_leaf(leaf, arrow)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise DefinitionError(f"{column.name} is {column.type}: {error}") from error
        return map_leaves(asked, lambda each: replace(each, column=column.identity))

    def _tuples(self, composite: IndexedColumn, leaf: In) -> Predicate:
        """Accept the tuples of a join; they already have identities instead of names."""
        column = by_identity(composite, self._columns)
        if column is None:
            return Unknown(f"{composite.name} is no longer a multi-column index of the table")
        for part in column.reads:
            self._resolve(part.name)
        return leaf

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
