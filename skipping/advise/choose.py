"""Choose index types within a budget: those that save queries the most bytes.

This is a knapsack with groups: of each group, such as the index types for the values of one column,
at most one option is taken.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from skipping.config import options
from skipping.parser.literals import parse_percent

BUDGET = parse_percent(options.BUDGET)
"""The default budget: the size of an index as a fraction of the table's bytes."""

OPEN_COST = 4 << 20
"""Bytes that take as long to read as it takes to open a file: the default of Spark's
`spark.sql.files.openCostInBytes`."""

_ALIKE = 0.07
"""An option is only taken if a smaller one of its group has less than 93 % of its benefit.

For up to ten keys, a Bloom filter has 95 % of the benefit of an exact list, which is much larger.
"""


_STEPS = 4096
"""Sizes are rounded up to the budget divided by this number."""


@dataclass(frozen=True, slots=True)
class Option:
    """One index type that may be taken, with its benefit and its size, both in bytes.

    Of options with one size and nearly the same benefit, the one with more `forms` of conditions is
    taken.
    """

    group: Hashable
    benefit: float
    bytes: float
    forms: int = 0


_Taken: TypeAlias = "tuple[Option, _Taken] | None"
_Set: TypeAlias = tuple[int, float, _Taken]


def choose(options: Sequence[Option], budget: float) -> list[Option]:
    """Return options with at most `budget` bytes together, at most one of each group.

    >>> small, large, other = Option("a", 60, 10), Option("a", 90, 60), Option("b", 50, 20)
    >>> choose([small, large, other], 31) == [small, other]
    True
    >>> choose([small, large, other], 82) == [large, other]
    True
    """
    if budget <= 0:
        return []
    unit = budget / _STEPS
    # Sets of options that no other set with their size or less exceeds: (size, benefit, options).
    # A set's options are a pair of the last one and the set without it.
    best: list[_Set] = [(0, 0.0, None)]
    for group in _by_group(options):
        fitting = [option for option in _drop_alike(group) if option.bytes <= budget]
        steps = [math.ceil(option.bytes / unit - 1e-6) for option in fitting]
        with_one = [
            (size + more, benefit + option.benefit, (option, taken))
            for option, more in zip(fitting, steps, strict=True)
            for size, benefit, taken in best
        ]
        best = _find_frontier([*best, *with_one])
    found, taken = [], best[-1][2]
    while taken is not None:
        option, taken = taken
        found.append(option)
    return found[::-1]


def _find_frontier(sets: Iterable[_Set]) -> list[_Set]:
    found: list[_Set] = []
    for each in sorted(sets, key=lambda s: (s[0], -s[1])):
        if each[0] <= _STEPS and (not found or each[1] > found[-1][1]):
            found.append(each)
    return found


def _by_group(options: Sequence[Option]) -> list[list[Option]]:
    groups: dict[Hashable, list[Option]] = {}
    for option in options:
        groups.setdefault(option.group, []).append(option)
    return list(groups.values())


def _drop_alike(options: Sequence[Option]) -> list[Option]:
    """Return one group's options with a benefit, without those that smaller ones nearly equal."""
    found: list[Option] = []
    reached = 0.0
    for option in sorted(options, key=lambda o: (o.bytes, -o.forms, -o.benefit)):
        if option.benefit * (1 - _ALIKE) > reached:
            found.append(option)
            reached = option.benefit
    return found
