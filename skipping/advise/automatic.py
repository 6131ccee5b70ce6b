"""Decide which columns an automatic index gains and loses, from data and workload; no I/O.

Benefit and cost are bytes of a day, and each file that is not opened counts as OPEN_COST bytes more
(`skipping.advise.recommend`). The cost is the size of the column's sketches, divided by the days in
which they must pay off. A column is added at once when it is worth it, and dropped only if it was
not on several days in a row, because building costs more than keeping.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from skipping.advise.choose import OPEN_COST
from skipping.model.decision import Action, Decision
from skipping.model.workload import PredicateWorkload, TableWorkload

PAYBACK = 30
"""Days in which sketches must save their own size."""

PATIENCE = 7
"""Default for the days whose queries count. If a column's benefit is below its cost on each of
them, the column is dropped."""

_SWAP = 2.0
"""How many times the benefit of a byte must be that of columns that are dropped for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An index type that a column could have, with the expected bytes of its sketches.

    `benefit` is what it would have saved on a day of the workload. If it `is_advised`, the data
    alone recommends it, as there is no workload. `spelling` is the type with its parameters, and
    `sql` the column with them, as in CREATE.
    """

    identity: str
    column: str
    kind: str
    spelling: str
    sql: str
    bytes: int
    benefit: float = 0.0
    is_advised: bool = False

    @property
    def is_worthwhile(self) -> bool:
        """Whether it saves more than it costs."""
        return self.benefit > self.bytes / PAYBACK


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentColumn:
    """A column of the index: its type, the bytes of its sketches, the supported forms.

    A multi-column index has the identities of its columns as `parts`.

    `since` is the day on which it was added automatically; None if a user chose it.
    """

    identity: str
    column: str
    kind: str
    bytes: int
    forms: frozenset[str]
    parts: frozenset[str] = frozenset()
    since: date | None = None


def decide(
    candidates: Sequence[Candidate],
    workload: Iterable[tuple[date, TableWorkload]],
    current: Sequence[CurrentColumn],
    past: Iterable[Decision] = (),
    *,
    budget: int,
    today: date,
    patience: int = PATIENCE,
    is_recorded: bool = True,
) -> tuple[Sequence[Decision], Sequence[Candidate]]:
    """Return the changes to make now, first the columns to drop, and the candidates to add.

    `workload` has the counts of the table by day (of several drivers, if there are), `past` earlier
    decisions. Columns that a user chose are left alone, and so are columns that were changed today.
    `budget` is the maximum of bytes of the automatic columns. If queries are not `is_recorded`, no
    column is dropped.
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
        if is_recorded
        and each.identity not in fixed
        and (decision := _drop(each, days, today, patience))
    ]
    gone = {(each.identity, each.kind) for each in drops}
    automatic = [each for each in current if each.since and (each.identity, each.kind) not in gone]
    adds: list[Candidate] = []
    room = budget - sum(each.bytes for each in automatic)
    has = {(each.identity, each.kind) for each in current}
    changed = {each.identity for each in drops}
    for candidate in _rank(candidates):
        if (candidate.identity, candidate.kind) in has or candidate.identity in fixed | changed:
            continue
        density = candidate.benefit / max(1, candidate.bytes)
        victims = _find_victims(
            candidate.bytes - room,
            density,
            [each for each in automatic if each.identity not in fixed | changed],
            days,
            today,
            patience,
        )
        if victims is None:
            continue
        for victim, worth in victims:
            automatic.remove(victim)
            room += victim.bytes
            changed.add(victim.identity)
            reason = f"the budget is full, and {candidate.column} saves more for its size"
            drops.append(_decision("drop", victim, worth, today, reason))
        room -= candidate.bytes
        changed.add(candidate.identity)
        adds.append(candidate)
    added = (_decision("add", each, each.benefit, today, _explain(each)) for each in adds)
    return (*drops, *added), adds


def _explain(added: Candidate) -> str:
    if added.is_advised:
        return "the data recommends it, and there are no queries yet"
    cost = added.bytes / PAYBACK
    return f"queries would read {added.benefit:,.0f} bytes a day less, at a cost of {cost:,.0f}"


def _rank(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates that are worth their cost, the best first: one for each column."""
    if advised := [each for each in candidates if each.is_advised]:
        return sorted(advised, key=lambda each: each.bytes)
    worthy = [each for each in candidates if each.is_worthwhile]
    # The best type of a column has the largest net benefit, not the best ratio.
    worthy.sort(key=lambda each: (each.bytes / PAYBACK - each.benefit, each.kind))
    best: dict[str, Candidate] = {}
    for each in worthy:
        best.setdefault(each.identity, each)
    return sorted(best.values(), key=lambda each: -each.benefit / max(1, each.bytes))


def _count_savings(column: CurrentColumn, predicates: Iterable[PredicateWorkload]) -> int:
    """Return the bytes that conditions on a column pruned, and OPEN_COST for each file."""
    return sum(
        each.pruned_bytes + OPEN_COST * each.pruned_files
        for each in predicates
        if each.form in column.forms
        and (
            column.parts <= frozenset(each.parts)
            if column.parts
            else each.identity == column.identity
        )
    )


def _by_day(column: CurrentColumn, days: Sequence[tuple[date, TableWorkload]]) -> dict[date, int]:
    skipped: dict[date, int] = {}
    for day, table in days:
        skipped[day] = skipped.get(day, 0) + _count_savings(column, table.predicates)
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
    days: Sequence[tuple[date, TableWorkload]],
    today: date,
    patience: int,
) -> list[tuple[CurrentColumn, float]] | None:
    """Return the columns to drop for `needed` bytes with their benefit; None if that is not enough.

    A byte of them must save less than half of `density` a day.
    """
    if needed <= 0:
        return []
    found: list[tuple[float, CurrentColumn, float]] = []
    for each in automatic:
        if each.since is None or each.since == today:
            continue
        # Over the days that it existed: a new column is not worse than an old one.
        worth = sum(_by_day(each, days).values()) / min((today - each.since).days + 1, patience)
        if worth / max(1, each.bytes) * _SWAP < density:
            found.append((worth / max(1, each.bytes), each, worth))
    victims = []
    for _, each, worth in sorted(found, key=lambda item: item[0]):
        victims.append((each, worth))
        needed -= each.bytes
        if needed <= 0:
            return victims
    return None


def _decision(
    action: Action,
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
        bytes=column.bytes,
        benefit=benefit,
        cost=column.bytes / PAYBACK,
        reason=reason,
    )
