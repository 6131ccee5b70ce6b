"""VALUE_LIST: the distinct values of a file, up to a limit. Good if a file has few of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any as Anything
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from providers import bounds
from providers.base import BaseProvider, Column, Field, Layout, Param
from providers.errors import DefinitionError
from providers.index_predicate import (
    AllOf,
    AnyOf,
    Contains,
    ContainsOther,
    ContainsRange,
    FieldCompare,
    IndexPredicate,
    map_tests,
)
from providers.predicate import (
    Between,
    ContainsAnyCase,
    EndsWith,
    In,
    IsNull,
    Leaf,
    StartsWith,
    StartsWithAny,
    Within,
)
from providers.predicate import Compare as Comparison
from providers.predicate import Contains as Substring
from providers.values import Domain, successor

OVERFLOW = "o"
"""The part of the sketch with the bounds of files with too many values. It is a separate part, so
that the list of such a file is still unknown to an older release.
"""

LIMIT = 1_000
"""Default limit of distinct values of a file."""

LONGEST = 8_192
"""Maximum of bytes of a term. A file with a longer value is unknown: stores reject or cut it."""


@dataclass(frozen=True, slots=True)
class ValueList(BaseProvider):
    """All distinct values of one column, up to `limit`, and the null count."""

    kind: ClassVar[str] = "VALUE_LIST"
    takes: ClassVar[tuple[str, ...]] = ("limit",)
    only_extremes: ClassVar[bool] = False
    domain: Domain
    limit: int = LIMIT

    @classmethod
    def of(cls, columns: tuple[Column, ...], params: Mapping[str, Param]) -> ValueList:
        """Index one column; raise DefinitionError unless `limit` is 1 or more."""
        cls.refuse_others(params)
        limit = params.get("limit", LIMIT)
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise DefinitionError(f"VALUE_LIST takes a limit of 1 or more values, not {limit!r}")
        return cls(columns[0].domain, limit)

    @property
    def most(self) -> int:
        """The `limit`."""
        return self.limit

    def fields(self) -> tuple[Field, ...]:
        """Return `values` (terms) and `nulls` (a count), and the bounds in the part OVERFLOW."""
        return (
            Field("values", self.domain.stored, Layout.TERMS),
            Field("nulls", pa.int64()),
            *(replace(field, part=OVERFLOW) for field in bounds.fields(self.domain)),
        )

    def collector(self) -> ValueListCollector:
        """Return a new collector, for one file."""
        return ValueListCollector(self.domain.stored, self.limit)

    def rewrite(self, leaf: Leaf) -> IndexPredicate | None:
        """Return exact tests of the list, and tests of the bounds of files with too many values.

        Each file has only one of the two parts, and is pruned if that part prunes it.
        """
        exact, rough = self._exact(leaf), bounds.rewrite(leaf, self.domain)
        if exact is None or rough is None:
            return None
        return AllOf((exact, map_tests(rough, lambda test: replace(test, sketch=OVERFLOW))))

    def _exact(self, leaf: Leaf) -> IndexPredicate | None:
        match leaf:
            case Comparison(_, "=", value):
                return Contains("values", pa.array([value], self.domain.stored))
            case Comparison(_, "!=", value):
                return ContainsOther("values", pa.array([value], self.domain.stored))
            case Comparison(_, ("<" | "<=") as op, value):
                return ContainsRange("values", high=value, includes_high=op == "<=")
            case Comparison(_, op, value):
                return ContainsRange("values", low=value, includes_low=op == ">=")
            case Between(_, low, high, includes_low, includes_high):
                return ContainsRange("values", low, high, includes_low, includes_high)
            case (Within() | StartsWithAny()) as several:
                legs = tuple(map(self._exact, several.legs()))
                return AnyOf(tuple(leg for leg in legs if leg)) if all(legs) else None
            case In(_, keys, True) if not len(keys):
                return None  # true for nulls, too
            case In(_, keys, negated):
                return ContainsOther("values", keys) if negated else Contains("values", keys)
            case StartsWith(_, prefix, negated):
                return _prefix(prefix, negated=negated)
            case IsNull(_, negated):
                return ContainsRange("values") if negated else FieldCompare("nulls", ">", 0)
            case EndsWith() | Substring() | ContainsAnyCase():
                return None  # tests of terms do not search inside them


def _prefix(prefix: str | bytes, *, negated: bool) -> IndexPredicate:
    after = successor(prefix)
    if not negated:
        return ContainsRange("values", prefix, after, includes_high=False)
    below = ContainsRange("values", high=prefix, includes_high=False)
    return below if after is None else AnyOf((below, ContainsRange("values", low=after)))


class ValueListCollector:
    """Collects the distinct values until there are too many, and the bounds."""

    def __init__(self, stored: pa.DataType, limit: int) -> None:
        self._values: pa.Array | None = pa.array([], stored)
        self._limit = limit
        self._bounds = bounds.BoundsCollector()
        self._nulls = 0

    def add(self, distinct: pa.Array, nulls: int) -> None:
        """Add a part's values; past the limit, only to the bounds."""
        self._nulls += nulls
        self._bounds.add(distinct, nulls)
        if self._values is None:
            return
        if len(distinct) > self._limit or _longest(distinct) > LONGEST:
            self._values = None
            return
        merged = pc.unique(pa.concat_arrays([self._values, distinct]))
        self._values = merged if len(merged) <= self._limit else None

    def finish(self) -> Mapping[str, Anything] | None:
        """Return the sorted values, or the bounds if there were too many."""
        if self._values is None:
            found = self._bounds.finish()
            return found and {f"{OVERFLOW}_{name}": value for name, value in found.items()}
        ordered = self._values.take(pc.sort_indices(self._values))
        return {"values": ordered, "nulls": self._nulls}


def _longest(values: pa.Array) -> int:
    if pa.types.is_integer(values.type) or not len(values):
        return 0
    return int(pc.max(pc.binary_length(values)).as_py())
