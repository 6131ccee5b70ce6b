"""PARTITION: the value of a partition column, one a file. Kept by every format; free to ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from providers import bounds
from providers.base import Collector, Column, Field, Param
from providers.errors import DefinitionError
from providers.index_predicate import IndexPredicate
from providers.predicate import Leaf
from providers.values import Domain

__all__ = ["Partition"]


@dataclass(frozen=True, slots=True)
class Partition:
    """A file has one value of it, which is its least and its greatest: so bounds are exact."""

    kind: ClassVar[str] = "PARTITION"
    only_extremes: ClassVar[bool] = True
    most: ClassVar[int | None] = None
    domain: Domain

    @classmethod
    def signature(cls, given: Sequence[Param] = ()) -> tuple[str, ...]:
        """No parameters."""
        return ()

    @classmethod
    def of(cls, columns: tuple[Column, ...], params: Mapping[str, Param]) -> Partition:
        """Raises DefinitionError for a parameter and for a column that is no partition column."""
        (column,) = columns
        if params:
            raise DefinitionError(f"PARTITION takes no parameter, not {', '.join(params)}")
        if not column.partition:
            raise DefinitionError(
                f"{column.name} is not a partition column of the table: "
                "PARTITION is for those, use MIN_MAX or VALUE_LIST"
            )
        return cls(column.domain)

    def fields(self) -> tuple[Field, ...]:
        """Those of the bounds."""
        return bounds.fields(self.domain)

    def collector(self) -> Collector:
        """That of the bounds."""
        return bounds.BoundsCollector()

    def rewrite(self, leaf: Leaf) -> IndexPredicate | None:
        """The tests of the bounds."""
        return bounds.rewrite(leaf, self.domain)

    def survival(self, leaf: Leaf) -> float:
        """None: its tests are exact."""
        return 0.0
