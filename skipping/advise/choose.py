"""Choose index types within a budget: those that save queries the most bytes.

This is a knapsack with groups: of each group, such as the index types for the values of one column,
at most one is taken. A greedy choice takes the step with the most benefit for each byte, which may
replace a smaller type of the same group. The result has at least the benefit of the best single
option, so it is never worse than half of the optimum for options without groups.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

BUDGET = 0.1
"""The default budget: the size of an index as a fraction of the table's bytes."""

OPEN_COST = 4 << 20
"""Bytes that take as long to read as it takes to open a file: the default of Spark's
`spark.sql.files.openCostInBytes`."""

_ALIKE = 0.07
"""An option is only taken if a smaller one of its group has less than 93 % of its benefit.

For up to ten keys, a Bloom filter has 95 % of the benefit of an exact list, which is much larger.
"""


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


def choose(options: Sequence[Option], budget: float) -> list[Option]:
    """Return options with at most `budget` bytes together, at most one of each group.

    >>> small, large, other = Option("a", 60, 10), Option("a", 90, 60), Option("b", 50, 20)
    >>> choose([small, large, other], 30) == [small, other]
    True
    >>> choose([small, large, other], 60) == [small, other]
    True
    >>> choose([small, large, other], 80) == [large, other]
    True
    """
    useful = [option for group in _by_group(options) for option in _drop_alike(group)]
    taken: dict[Hashable, Option] = {}
    room = budget
    while True:
        best, best_rate = None, 0.0
        for option in useful:
            before = taken.get(option.group)
            gain = option.benefit - (before.benefit if before else 0.0)
            size = option.bytes - (before.bytes if before else 0.0)
            if gain <= 0 or size > room:
                continue
            rate = gain / max(size, 1.0)
            if rate > best_rate:
                best, best_rate = option, rate
        if best is None:
            break
        before = taken.get(best.group)
        room -= best.bytes - (before.bytes if before else 0.0)
        taken[best.group] = best
    found = list(taken.values())
    alone = [option for option in useful if option.bytes <= budget]
    single = max(alone, key=lambda option: option.benefit, default=None)
    if single is not None and single.benefit > sum(option.benefit for option in found):
        return [single]
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
