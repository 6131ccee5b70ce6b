"""Decide which columns an automatic index gains and loses, from data and workload; no I/O.

Benefit and cost are bytes of a day: those that queries do not read, and the size of the column's
sketches divided by the days in which they must pay off. A column is added at once when it is worth
it, and dropped only if it was not on several days in a row, because building costs more than
keeping.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Literal

from skipping.model.workload import PredicateWorkload, TableWorkload

PAYBACK = 30
"""Days in which sketches must save their own size."""

PATIENCE = 7
"""Days whose queries count. A column without benefit on each of them is dropped."""

_SWAP = 0.5
"""A candidate replaces columns that save less than this fraction of its benefit for each byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An index type that a column could have, with the expected bytes of its sketches.

    `remaining` has the fraction of the table's bytes that a scan with a condition of each form
    still reads; forms that the type does not support are missing. `is_advised` is whether the data
    alone recommends it.
    """

    identity: str
    column: str
    kind: str
    bytes: int
    remaining: Mapping[str, float] = field(hash=False)
    is_advised: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentColumn:
    """A column of the index: its type, the bytes of its sketches, the supported forms.

    `since` is the day on which it was added automatically; None if a user chose it.
    """

    identity: str
    column: str
    kind: str
    bytes: int
    forms: frozenset[str]
    since: date | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A change of an automatic index, with its reason; `benefit` and `cost` are bytes a day."""

    day: date
    action: Literal["add", "drop"]
    identity: str
    column: str
    kind: str
    benefit: float
    cost: float
    reason: str


def decide(
    candidates: Sequence[Candidate],
    workload: Iterable[tuple[date, TableWorkload]],
    current: Sequence[CurrentColumn],
    past: Iterable[Decision] = (),
    *,
    budget: int,
    today: date,
    patience: int = PATIENCE,
) -> tuple[Decision, ...]:
    """Return the changes to make now: first the columns to drop, then those to add.

    `workload` has the counts of the table by day (of several drivers, if there are), `past` the
    decisions of today. Columns that a user chose are left alone, and so are columns that were
    changed today. `budget` is the maximum of bytes of the automatic columns.
    """
    days = [
        (day, table)
        for day, table in workload
        if timedelta(0) <= today - day <= timedelta(patience)
    ]
    fixed = {each.identity for each in current if each.since is None}
    fixed |= {each.identity for each in past if each.day == today}
    drops = [
        decision
        for each in current
        if each.identity not in fixed and (decision := _drop(each, days, today, patience))
    ]
    gone = {(each.identity, each.kind) for each in drops}
    automatic = [each for each in current if each.since and (each.identity, each.kind) not in gone]
    adds: list[Decision] = []
    left = budget - sum(each.bytes for each in automatic)
    has = {(each.identity, each.kind) for each in current}
    changed = {each.identity for each in drops}
    for benefit, candidate in _rank(candidates, days, patience, is_first=not current):
        if (candidate.identity, candidate.kind) in has or candidate.identity in fixed | changed:
            continue
        cost = candidate.bytes / PAYBACK
        density = benefit / max(1, candidate.bytes)
        victims = _find_victims(
            candidate.bytes - left, density, automatic, fixed | changed, days, today
        )
        if victims is None:
            continue
        for victim, worth in victims:
            automatic.remove(victim)
            left += victim.bytes
            changed.add(victim.identity)
            reason = f"replaced by {candidate.column}, which saves more for its size"
            drops.append(_decision("drop", victim, worth, today, reason))
        left -= candidate.bytes
        changed.add(candidate.identity)
        reason = (
            f"queries would read {benefit:,.0f} bytes a day less, at a cost of {cost:,.0f}"
            if days
            else "the data recommends it, and there are no queries yet"
        )
        adds.append(_decision("add", candidate, benefit, today, reason))
    return (*drops, *adds)


def _rank(
    candidates: Sequence[Candidate],
    days: Sequence[tuple[date, TableWorkload]],
    patience: int,
    *,
    is_first: bool,
) -> list[tuple[float, Candidate]]:
    """Return the candidates that are worth their cost with their benefit, the best first.

    Of several types of one column the first counts. Without a workload, a new index has those that
    the data recommends.
    """
    if not days:
        advised = [each for each in candidates if each.is_advised and is_first]
        return [(0.0, each) for each in sorted(advised, key=lambda each: each.bytes)]
    found = []
    for each in candidates:
        benefit = sum(_estimate_gain(each, table) for _, table in days) / patience
        if benefit > each.bytes / PAYBACK:
            found.append((benefit, each))
    # The best type of a column has the largest net benefit, not the best ratio.
    found.sort(key=lambda item: (item[1].bytes / PAYBACK - item[0], item[1].kind))
    best: dict[str, tuple[float, Candidate]] = {}
    for item in found:
        best.setdefault(item[1].identity, item)
    return sorted(best.values(), key=lambda item: -item[0] / max(1, item[1].bytes))


def _estimate_gain(candidate: Candidate, table: TableWorkload) -> float:
    """Return the bytes that scans opened, and would not have with this candidate."""
    return sum(
        each.missed_bytes * (1 - candidate.remaining[each.form])
        for each in table.predicates
        if each.identity == candidate.identity and each.form in candidate.remaining
    )


def _benefit(column: CurrentColumn, predicates: Iterable[PredicateWorkload]) -> int:
    """Return the bytes that conditions on a column pruned."""
    return sum(
        each.pruned_bytes
        for each in predicates
        if each.identity == column.identity and each.form in column.forms
    )


def _by_day(column: CurrentColumn, days: Sequence[tuple[date, TableWorkload]]) -> dict[date, int]:
    skipped: dict[date, int] = {}
    for day, table in days:
        skipped[day] = skipped.get(day, 0) + _benefit(column, table.predicates)
    return skipped


def _drop(
    column: CurrentColumn,
    days: Sequence[tuple[date, TableWorkload]],
    today: date,
    patience: int,
) -> Decision | None:
    """Return the decision to drop a column that was not worth its cost on each of some days."""
    if column.since is None or today - column.since < timedelta(patience):
        return None
    skipped, cost = _by_day(column, days), column.bytes / PAYBACK
    complete = [today - timedelta(n) for n in range(1, patience + 1)]
    most = max(skipped.get(day, 0) for day in complete)
    # Today counts only in favour of the column: the day is not over.
    if most >= cost or skipped.get(today, 0) >= cost:
        return None
    reason = f"on {patience} days, queries skipped at most {most:,} bytes a day by it"
    return _decision("drop", column, most, today, reason)


def _find_victims(
    needed: int,
    density: float,
    automatic: Sequence[CurrentColumn],
    fixed: set[str],
    days: Sequence[tuple[date, TableWorkload]],
    today: date,
) -> list[tuple[CurrentColumn, float]] | None:
    """Return the columns to drop for `needed` bytes with their benefit, or None.

    A byte of them must save less than half of `density` a day.
    """
    if needed <= 0:
        return []
    found: list[tuple[float, CurrentColumn, float]] = []
    for each in automatic:
        if each.identity in fixed or each.since is None or each.since == today:
            continue
        # Over the days that it existed: a new column is not worse than an old one.
        worth = sum(_by_day(each, days).values()) / min((today - each.since).days + 1, PATIENCE)
        if worth / max(1, each.bytes) < _SWAP * density:
            found.append((worth / max(1, each.bytes), each, worth))
    victims = []
    for _, each, worth in sorted(found, key=lambda item: item[0]):
        victims.append((each, worth))
        needed -= each.bytes
        if needed <= 0:
            return victims
    return None


def _decision(
    action: Literal["add", "drop"],
    column: Candidate | CurrentColumn,
    benefit: float,
    today: date,
    reason: str,
) -> Decision:
    return Decision(
        day=today,
        action=action,
        identity=column.identity,
        column=column.column,
        kind=column.kind,
        benefit=benefit,
        cost=column.bytes / PAYBACK,
        reason=reason,
    )
