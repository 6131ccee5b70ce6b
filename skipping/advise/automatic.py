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

from skipping.advise.choose import OPEN_COST, Option, choose
from skipping.model.decision import Action, Decision
from skipping.model.workload import PredicateWorkload, TableWorkload

PAYBACK = 30
"""Days in which sketches must save their own size."""

PATIENCE = 7
"""Default for the days whose queries count. If a column's benefit is below its cost on each of
them, the column is dropped."""

_SWAP = 2.0
"""How many times the benefit of a byte must be that of columns that are dropped for it."""

_CAUTION = 2.0
"""The factor of the least benefit to add a column again, for each time that it was dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An index type that a column could have, with the expected bytes of its sketches.

    `benefit` is what it would have saved on a day of the workload. If it `is_advised`, the data
    alone recommends it, as there is no workload. `sql` is the column with the type, as in CREATE. A
    candidate `for_text` is for substrings.
    """

    identity: str
    column: str
    kind: str
    sql: str
    bytes: int
    benefit: float = 0.0
    is_advised: bool = False
    for_text: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentColumn:
    """A column of the index: its type, the bytes of its sketches, the supported forms.

    A multi-column index has the identities of its columns as `parts`. `since` is the day on which
    it was added automatically; None if a user chose it.
    """

    identity: str
    column: str
    kind: str
    bytes: int
    forms: frozenset[str]
    parts: frozenset[str] = frozenset()
    since: date | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known on the day `today`: candidates, and the counts of the table's queries by day.

    `budget` is the maximum of bytes of the automatic columns, and `files` the number of the table's
    files. If queries are not `is_recorded`, no column is dropped.
    """

    today: date
    candidates: Sequence[Candidate]
    workload: Sequence[tuple[date, TableWorkload]]
    budget: float
    files: int = 0
    patience: int = PATIENCE
    is_recorded: bool = True


def decide(
    evidence: Evidence, current: Sequence[CurrentColumn], past: Iterable[Decision] = ()
) -> tuple[Sequence[Decision], Sequence[Candidate]]:
    """Return the changes to make now, first the columns to drop, and the candidates to add.

    `past` are earlier decisions. Columns that a user chose are left alone, and so are columns that
    were changed today.
    """
    past, today = list(past), evidence.today
    fixed = {each.identity for each in current if each.since is None}
    fixed |= {each.identity for each in current if each.since and each.since >= today}
    fixed |= {each.identity for each in past if each.day >= today}
    automatic = [each for each in current if each.since is not None]
    drops = [
        decision
        for each in automatic
        if each.identity not in fixed and (decision := _drop(each, evidence))
    ]
    gone = {(each.identity, each.kind) for each in drops}
    fixed |= {each.identity for each in drops}
    kept = [each for each in automatic if (each.identity, each.kind) not in gone]
    movable = {
        each: _worth(each, evidence)
        for each in kept
        if evidence.is_recorded and each.identity not in fixed
    }
    room = evidence.budget - sum(each.bytes for each in kept if each not in movable)
    there = {(each.identity, each.kind) for each in current}
    options: dict[Option, Candidate | CurrentColumn] = {}
    for each in evidence.candidates:
        is_new = (each.identity, each.kind) not in there and each.identity not in fixed
        if is_new and (benefit := _net_benefit(each, past)) > 0:
            options[Option((each.identity, each.for_text), benefit, each.bytes)] = each
    for column, worth in movable.items():
        options[Option(column, max(_SWAP * worth, 1.0), column.bytes)] = column
    chosen = [options[option] for option in choose(list(options), room)]
    adds = [each for each in chosen if isinstance(each, Candidate)]
    room -= sum(each.bytes for each in chosen)
    for column, worth in sorted(movable.items(), key=lambda item: -item[1]):
        if column in chosen:
            continue
        if column.bytes <= max(0, room):
            room -= column.bytes
        else:
            reason = "the budget is full, and other columns save more for their size"
            drops.append(_decision("drop", column, worth, evidence, reason))
    added = (_decision("add", each, each.benefit, evidence, _explain(each)) for each in adds)
    return (*drops, *added), adds


def _net_benefit(candidate: Candidate, past: Iterable[Decision]) -> float:
    """Return the benefit of a day minus the cost, 0 if it is not worth it."""
    if candidate.is_advised:
        return 1.0 / max(1, candidate.bytes)  # the data does not say more than that
    key = candidate.identity, candidate.kind
    drops = sum((each.identity, each.kind) == key for each in past if each.action == "drop")
    cost = candidate.bytes / PAYBACK
    net = candidate.benefit - cost
    return net if candidate.benefit > cost * _CAUTION**drops else 0.0


def _explain(added: Candidate) -> str:
    if added.is_advised:
        return "the data recommends it, and there are no queries yet"
    cost = added.bytes / PAYBACK
    return f"queries would read {added.benefit:,.0f} bytes a day less, at a cost of {cost:,.0f}"


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


def _by_day(column: CurrentColumn, evidence: Evidence) -> dict[date, int]:
    saved: dict[date, int] = {}
    for day, table in evidence.workload:
        if timedelta(0) <= evidence.today - day <= timedelta(evidence.patience):
            saved[day] = saved.get(day, 0) + _count_savings(column, table.predicates)
    return saved


def _drop(column: CurrentColumn, evidence: Evidence) -> Decision | None:
    """Return the decision to drop a column that was not worth its cost on each of some days."""
    today, patience = evidence.today, evidence.patience
    if column.since is None or today - column.since < timedelta(patience):
        return None
    saved, cost = _by_day(column, evidence), column.bytes / PAYBACK
    most = max(saved.get(today - timedelta(n), 0) for n in range(1, patience + 1))
    # Today counts only in favour of the column: the day is not over.
    if not evidence.is_recorded or most >= cost or saved.get(today, 0) >= cost:
        return None
    reason = f"on {patience} days, queries skipped at most {most:,} bytes a day by it"
    return _decision("drop", column, most, evidence, reason)


def _worth(column: CurrentColumn, evidence: Evidence) -> float:
    """Return what a column saved on a day, over the days that it existed."""
    assert column.since is not None, "it was added automatically"
    days = min((evidence.today - column.since).days + 1, evidence.patience)
    return sum(_by_day(column, evidence).values()) / max(1, days)


def _decision(
    action: Action,
    column: Candidate | CurrentColumn,
    benefit: float,
    evidence: Evidence,
    reason: str,
) -> Decision:
    return Decision(
        day=evidence.today,
        action=action,
        identity=column.identity,
        column=column.column,
        kind=column.kind,
        bytes=column.bytes,
        files=evidence.files,
        benefit=benefit,
        cost=column.bytes / PAYBACK,
        reason=reason,
    )
