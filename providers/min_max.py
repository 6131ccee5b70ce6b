"""MIN_MAX: the min and max of a column in a file. Good where data is clustered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from providers.base import Column, Param
from providers.bounds import BoundsProvider
from providers.tuples import refuse_tuples


@dataclass(frozen=True, slots=True)
class MinMax(BoundsProvider):
    """The bounds and the null count of one column."""

    kind: ClassVar[str] = "MIN_MAX"

    @classmethod
    def of(cls, columns: tuple[Column, ...], params: Mapping[str, Param]) -> MinMax:
        """Index one column; raises DefinitionError for any parameter."""
        cls.refuse_others(params)
        (column,) = columns
        refuse_tuples(cls.kind, column)
        return cls(column.domain)
