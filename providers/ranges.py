"""RANGES(n): up to n closed intervals with all values of a file. Good for columns with gaps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any as Anything
from typing import ClassVar

import pyarrow as pa

from providers import intervals
from providers.base import Column, Field, Param
from providers.index_predicate import IndexPredicate
from providers.predicate import Leaf
from providers.tuples import refuse_tuples
from providers.values import Domain


@dataclass(frozen=True, slots=True)
class Ranges(intervals.IntervalsProvider):
    """The intervals, cut at the widest gaps between values, and the null count."""

    kind: ClassVar[str] = "RANGES"

    @classmethod
    def of(cls, columns: tuple[Column, ...], params: Mapping[str, Param]) -> Ranges:
        """Index one column; raise DefinitionError for an `n` out of range."""
        (column,) = columns
        refuse_tuples(cls.kind, column)
        return cls(column.domain, cls.count_of(params))

    def fields(self) -> tuple[Field, ...]:
        """Return the fields of the intervals, and `nulls`, the null count."""
        return (*intervals.fields(self.domain.stored, self.n), Field("nulls", pa.int64()))

    def collector(self) -> RangesCollector:
        """Return a new collector, for one file."""
        return RangesCollector(self.domain, self.n)

    def rewrite(self, leaf: Leaf) -> IndexPredicate | None:
        """Return the tests of the intervals."""
        return intervals.rewrite(leaf, self.domain, self.n)


class RangesCollector:
    """Collects the intervals, and counts nulls."""

    def __init__(self, domain: Domain, n: int) -> None:
        self._intervals = intervals.IntervalsCollector(domain, n)
        self._nulls = 0

    def add(self, distinct: pa.Array, nulls: int) -> None:
        """Add a part of the file."""
        self._nulls += nulls
        self._intervals.add(distinct)

    def finish(self) -> Mapping[str, Anything] | None:
        """Return the intervals; None if an end cannot be rounded up."""
        found = self._intervals.finish()
        return None if found is None else {**found, "nulls": self._nulls}
