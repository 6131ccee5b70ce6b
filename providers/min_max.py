"""MIN_MAX: the least and the greatest value of a file. Good where data is clustered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from providers import bounds
from providers.base import Collector, Column, Field, Param
from providers.errors import DefinitionError
from providers.index_predicate import IndexPredicate
from providers.predicate import Leaf
from providers.tuples import refuse_tuples
from providers.values import Domain

__all__ = ["MinMax"]


@dataclass(frozen=True, slots=True)
class MinMax:
    """Bounds and the number of nulls of one column. Takes no parameters."""

    kind: ClassVar[str] = "MIN_MAX"
    only_extremes: ClassVar[bool] = True
    most: ClassVar[int | None] = None
    domain: Domain

    @classmethod
    def signature(cls, given: Sequence[Param] = ()) -> tuple[str, ...]:
        """No parameters."""
        return ()

    @classmethod
    def of(cls, columns: tuple[Column, ...], params: Mapping[str, Param]) -> MinMax:
        """Bounds of the one column; raises DefinitionError for any parameter."""
        (column,) = columns
        refuse_tuples(cls.kind, column)
        if params:
            raise DefinitionError(f"MIN_MAX takes no parameter, not {', '.join(params)}")
        return cls(column.domain)

    def fields(self) -> tuple[Field, ...]:
        """The bounds and the number of nulls."""
        return bounds.fields(self.domain)

    def collector(self) -> Collector:
        """A new collector, for one file."""
        return bounds.BoundsCollector()

    def rewrite(self, leaf: Leaf) -> IndexPredicate | None:
        """The bounds against the leaf; exact for any number of keys."""
        return bounds.rewrite(leaf, self.domain)

    def survival(self, leaf: Leaf) -> float:
        """None that follows from the leaf: it is up to how the data lies."""
        return 0.0
