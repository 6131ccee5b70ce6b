"""The min and max of a file: fields, collector and tests, for MIN_MAX and PARTITION."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any as Anything
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from providers.base import BaseProvider, Collector, Field
from providers.index_predicate import (
    AllOf,
    AnyOf,
    FieldCompare,
    IndexPredicate,
    NotWithin,
    Overlaps,
    OverlapsRange,
    Test,
    map_tests,
)
from providers.predicate import (
    Between,
    Contains,
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
from providers.values import Domain, common_prefix, successor, truncate

TELLING = 64
"""Bytes of a text or binary bound that are stored after the common prefix of min and max."""

LONGEST = 512
"""Maximum of bytes of a text or binary bound. A longer one is cut, and the max is rounded up."""


def fields(domain: Domain) -> tuple[Field, ...]:
    """Return `low` and `high` (null: no values), and `nulls`, the null count."""
    return Field("low", domain.stored), Field("high", domain.stored), Field("nulls", pa.int64())


def rewrite(leaf: Leaf, domain: Domain) -> IndexPredicate | None:
    """Return tests of the bounds for a leaf; any number of keys is tested exactly.

    `!=` and NOT IN prune a file only if all values from min to max are excluded: testing each bound
    alone is wrong, because bounds 1 and 3 do not exclude a value 2.
    """
    match leaf:
        case Comparison():
            return _comparison(leaf, domain)
        case Between(_, low, high, includes_low, includes_high):
            above = FieldCompare("high", ">=" if includes_low else ">", low)
            return AllOf((above, FieldCompare("low", "<=" if includes_high else "<", high)))
        case Within(_, starts, ends, includes_low, includes_high):
            return OverlapsRange("low", "high", starts, ends, includes_low, includes_high)
        case In(_, keys, True) if not len(keys):
            return None  # true for nulls, too
        case In(_, keys, negated):
            if negated:
                return NotWithin("low", "high", *_runs(keys))
            return Overlaps("low", "high", keys)
        case StartsWith(_, prefix, negated):
            return _prefix(prefix, negated=negated)
        case StartsWithAny():
            return _prefixes(leaf, domain)
        case IsNull(_, negated):
            if negated:
                return _any_value(domain)
            return FieldCompare("nulls", ">", 0)
        case EndsWith() | Contains() | ContainsAnyCase():
            return None


def rename(predicate: IndexPredicate, field: Callable[[str], str]) -> IndexPredicate:
    """Return the tests of `rewrite` with other names of the fields."""

    def change(test: Test) -> Test:
        match test:
            case FieldCompare():
                return replace(test, field=field(test.field))
            case Overlaps() | OverlapsRange() | NotWithin():
                return replace(test, low=field(test.low), high=field(test.high))
        return test

    return map_tests(predicate, change)


def _comparison(leaf: Comparison, domain: Domain) -> IndexPredicate:
    key = pa.array([leaf.value], domain.stored)
    match leaf.op:
        case "=":
            return Overlaps("low", "high", key)
        case "!=":
            return NotWithin("low", "high", key, key)
        case "<" | "<=":
            return FieldCompare("low", leaf.op, leaf.value)
    return FieldCompare("high", leaf.op, leaf.value)


def _any_value(domain: Domain) -> IndexPredicate:
    nothing = pa.array([], domain.stored)
    return NotWithin("low", "high", nothing, nothing)


def _prefix(prefix: str | bytes, *, negated: bool) -> IndexPredicate:
    after = successor(prefix)
    if negated:
        below = FieldCompare("low", "<", prefix)
        return below if after is None else AnyOf((below, FieldCompare("high", ">=", after)))
    not_below = FieldCompare("high", ">=", prefix)
    return not_below if after is None else AllOf((not_below, FieldCompare("low", "<", after)))


def _prefixes(leaf: StartsWithAny, domain: Domain) -> IndexPredicate:
    starts: list[Anything] = leaf.prefixes.to_pylist()
    ends = [successor(prefix) for prefix in starts]
    open_from = [FieldCompare("high", ">=", a) for a, b in zip(starts, ends, strict=True) if not b]
    ended = len(starts) - len(open_from)
    first, last = (pa.array(some[:ended], domain.stored) for some in (starts, ends))
    within = OverlapsRange("low", "high", first, last, includes_high=False)
    return AnyOf((within, *open_from)) if open_from else within


def _runs(keys: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the first and last key of each run of adjacent keys.

    Only types that are stored as integers have runs; every other key is its own run.
    """
    if not pa.types.is_integer(keys.type) or not len(keys):
        return keys, keys
    numbers = keys.to_numpy()
    gaps = np.flatnonzero(numbers[1:] - 1 != numbers[:-1])
    return pa.array(numbers[np.r_[0, gaps + 1]]), pa.array(numbers[np.r_[gaps, len(numbers) - 1]])


@dataclass(frozen=True, slots=True)
class BoundsProvider(BaseProvider):
    """Base class of index types that store bounds and have no parameters."""

    only_extremes: ClassVar[bool] = True
    most: ClassVar[int | None] = None
    domain: Domain

    def fields(self) -> tuple[Field, ...]:
        """Return the fields of the bounds, and the null count."""
        return fields(self.domain)

    def collector(self) -> Collector:
        """Return a new collector, for one file."""
        return BoundsCollector()

    def rewrite(self, leaf: Leaf) -> IndexPredicate | None:
        """Return tests of the bounds for the leaf; any number of keys is tested exactly."""
        return rewrite(leaf, self.domain)


class BoundsCollector:
    """Collects the bounds."""

    def __init__(self) -> None:
        self._low: Anything = None
        self._high: Anything = None
        self._nulls = 0

    def add(self, distinct: pa.Array, nulls: int) -> None:
        """Widen the bounds by a part of the file."""
        self._nulls += nulls
        if len(distinct):
            bounds = pc.min_max(distinct).as_py()
            low, high = bounds["min"], bounds["max"]
            self._low = low if self._low is None else min(self._low, low)
            self._high = high if self._high is None else max(self._high, high)

    def finish(self) -> Mapping[str, Anything] | None:
        """Return the bounds, cut; None if a cut max cannot be rounded up."""
        limit = min(common_prefix(self._low, self._high) + TELLING, LONGEST)
        high = round_up(self._high, limit)
        if high is None and self._high is not None:
            return None
        return {"low": truncate(self._low, limit), "high": high, "nulls": self._nulls}


def round_up(value: Anything, limit: int) -> Anything:
    """Return a value of about `limit` bytes that is not below `value`; None if impossible."""
    cut = truncate(value, limit)
    return cut if cut == value else successor(cut)
