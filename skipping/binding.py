"""Predicates as people write them in Python, on column names and plain values, made askable."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from providers.errors import DefinitionError
from providers.predicate import Between, Compare, In, IsNull, Leaf, Predicate, StartsWith
from providers.values import arrow_type, domain_of, encode
from skipping.question import QueryColumn
from skipping.tables import Columns

__all__ = ["Binding"]


class Binding:
    """Gives leaves that name columns the columns' identities and normalised values."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self.columns: dict[str, QueryColumn] = {}

    def leaf(self, leaf: Leaf) -> Predicate:
        """Raises DefinitionError for a column or value that does not fit."""
        column = self._columns.resolve(leaf.column)
        arrow = arrow_type(column.type)
        domain = domain_of(arrow) if arrow is not None else None
        if arrow is None or domain is None or column.refusal is not None:
            raise DefinitionError(column.refusal or f"{column.name} is {column.type}")
        self.columns[column.identity] = QueryColumn(column.name, domain, column.type)
        try:
            match leaf:
                case Compare(_, op, value):
                    return Compare(column.identity, op, _normal(value, arrow))
                case Between(_, low, high):
                    return replace(
                        leaf,
                        column=column.identity,
                        low=_normal(low, arrow),
                        high=_normal(high, arrow),
                    )
                case In(_, values, negated):
                    return replace(
                        In.of(column.identity, encode(values.cast(arrow))), negated=negated
                    )
                case StartsWith(_, prefix, negated):
                    return StartsWith(column.identity, _normal(prefix, arrow), negated)
                case IsNull(_, negated):
                    return IsNull(column.identity, negated)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise DefinitionError(f"{column.name} is {column.type}: {error}") from error


def _normal(value: object, type: pa.DataType) -> object:
    (normal,) = encode(pa.array([value], type)).to_pylist()
    return normal
