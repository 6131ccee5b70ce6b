"""What an automatic index decides: single rules, and a month of queries on three tables."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta

import pytest

from skipping.advise.automatic import (
    PATIENCE,
    PAYBACK,
    Candidate,
    CurrentColumn,
    Decision,
    decide,
)
from skipping.model.definition import TableId
from skipping.model.workload import PredicateWorkload, TableWorkload

DAY = date(2026, 3, 1)
MB = 1_000_000
GB = 1_000 * MB


def predicate(column: str, **counts: int) -> PredicateWorkload:
    return PredicateWorkload(
        condition=f"{column} = ?",
        identity=column,
        sql=column,
        computed=False,
        form="values",
        scans=1,
        **counts,
    )


def queries(*predicates: PredicateWorkload) -> TableWorkload:
    return TableWorkload(
        table=TableId("delta", "t", "file:/t"), name="t", queries=1, predicates=predicates
    )


def candidate(column: str = "a", bytes: int = 30 * MB, remaining: float = 0.1) -> Candidate:
    return Candidate(
        identity=column,
        column=column,
        kind="VALUE_LIST",
        bytes=bytes,
        remaining={"values": remaining},
    )


def column(
    name: str = "a", bytes: int = 30 * MB, *, days: int | None = 10, kind: str = "VALUE_LIST"
) -> CurrentColumn:
    since = None if days is None else DAY - timedelta(days)
    forms = frozenset(["values"])
    return CurrentColumn(
        identity=name, column=name, kind=kind, bytes=bytes, forms=forms, since=since
    )


def changes(decisions: Sequence[Decision]) -> list[tuple[str, str]]:
    return [(each.action, each.column) for each in decisions]


def test_a_new_index_begins_with_what_the_data_recommends() -> None:
    advised = replace(candidate("a", 50 * MB), is_advised=True)
    large = replace(candidate("b", 70 * MB), is_advised=True)
    found = decide([large, candidate("c"), advised], [], [], budget=100 * MB, today=DAY)
    assert changes(found) == [("add", "a")]
    assert "no queries yet" in found[0].reason
    assert decide([advised], [], [column("x", days=1)], budget=GB, today=DAY) == ()


def test_a_column_is_added_when_it_saves_more_than_it_costs() -> None:
    for missed, is_added in ((6 * MB, False), (9 * MB, True)):
        days = [(DAY, queries(predicate("a", missed_bytes=missed)))]
        found = decide([candidate()], days, [], budget=GB, today=DAY)
        assert bool(found) == is_added
    assert found[0].benefit == pytest.approx(9 * MB * 0.9 / PATIENCE)
    assert found[0].cost == 30 * MB / PAYBACK
    assert decide([candidate()], days, [], budget=29 * MB, today=DAY) == ()
    assert decide([candidate()], days, [column(days=1)], budget=GB, today=DAY) == ()
    other = replace(candidate(), remaining={"range": 0.1})
    assert decide([other], days, [], budget=GB, today=DAY) == ()
    assert decide([candidate()], days, [], budget=GB, today=DAY + timedelta(PATIENCE + 1)) == ()


def test_of_the_types_of_a_column_the_best_is_added() -> None:
    days = [(DAY, queries(predicate("a", missed_bytes=GB)))]
    small = replace(candidate(bytes=MB, remaining=0.9), kind="MIN_MAX")
    found = decide([small, candidate()], days, [], budget=GB, today=DAY)
    assert [each.kind for each in found] == ["VALUE_LIST"]


def test_a_column_without_benefit_is_dropped_after_a_week() -> None:
    cost = 30 * MB // PAYBACK
    week = [DAY - timedelta(n) for n in range(1, PATIENCE + 1)]

    def run(*skipped: int, days: int = 10) -> list[tuple[str, str]]:
        workload = [
            (day, queries(predicate("a", pruned_bytes=more)))
            for day, more in zip([*week, DAY], skipped, strict=False)
        ]
        return changes(decide([], workload, [column(days=days)], budget=GB, today=DAY))

    assert run(*[cost - 1] * PATIENCE) == [("drop", "a")]
    assert run() == [("drop", "a")]  # nobody reads the table
    assert run(*[cost - 1] * (PATIENCE - 1), cost) == []
    assert run(*[0] * PATIENCE, cost) == []  # queries came back today
    assert run(days=PATIENCE - 1) == []
    assert run(days=PATIENCE) == [("drop", "a")]
    patient = decide([], [], [column()], budget=GB, today=DAY, patience=11)
    assert patient == ()


def test_columns_that_a_user_chose_are_left_alone() -> None:
    days = [(DAY, queries(predicate("a", missed_bytes=GB)))]
    assert decide([], [], [column(days=None)], budget=GB, today=DAY) == ()
    better = replace(candidate(), kind="BLOOM_FILTER")
    assert decide([better], days, [column(days=None)], budget=GB, today=DAY) == ()
    # It does not use up the budget of the others.
    large = column("b", GB, days=None)
    assert changes(decide([candidate()], days, [large], budget=30 * MB, today=DAY)) == [
        ("add", "a")
    ]


def test_at_most_one_change_a_day_and_column() -> None:
    days = [(DAY, queries(predicate("a", missed_bytes=GB)))]
    (made,) = decide([candidate()], days, [], budget=GB, today=DAY)
    again = replace(candidate(), kind="BLOOM_FILTER")
    assert decide([again], days, [], [made], budget=GB, today=DAY) == ()
    assert decide([], [], [column()], [replace(made, action="drop")], budget=GB, today=DAY) == ()
    tomorrow = DAY + timedelta(1)
    assert changes(decide([again], days, [], [made], budget=GB, today=tomorrow)) == [("add", "a")]
    # What is dropped today is not added today.
    kinds = [candidate(), again]
    week = [(DAY - timedelta(n), queries(predicate("a", missed_bytes=GB))) for n in range(8)]
    found = decide(kinds, week, [column()], budget=GB, today=DAY)
    assert changes(found) == [("drop", "a")]


def test_a_full_budget_goes_to_what_saves_more() -> None:
    missed = predicate("b", missed_bytes=GB)
    for skipped, expected in ((90, [("drop", "a"), ("add", "b")]), (900, [])):
        days = [
            (DAY - timedelta(n), queries(missed, predicate("a", pruned_bytes=skipped * MB)))
            for n in range(PATIENCE)
        ]
        found = decide([candidate("b")], days, [column("a")], budget=40 * MB, today=DAY)
        assert changes(found) == expected
    days = [(DAY, queries(missed))]
    new = column("a", days=0)
    assert decide([candidate("b")], days, [new], budget=40 * MB, today=DAY) == ()
    fixed = column("a", days=None)
    assert changes(decide([candidate("b")], days, [fixed], budget=40 * MB, today=DAY)) == [
        ("add", "b")
    ]


# A month


@dataclass(frozen=True)
class Simulated:
    """A table with columns: the fraction of its bytes that an indexed one leaves, and its size."""

    name: str
    bytes: int
    columns: Mapping[str, tuple[float, int]]
    plan: Sequence[Mapping[str, int]]
    """The queries of each day: how many have a condition on a column."""

    def read(self, day: int, indexed: frozenset[str]) -> float:
        return sum(
            n * self.bytes * (self.columns[c][0] if c in indexed else 1)
            for c, n in self.plan[day].items()
        )

    def best(self, budget: float, days: range) -> float:
        """Return what the best fixed index reads, of all that fit into the budget."""
        return min(
            sum(self.read(day, frozenset(some)) for day in days)
            for r in range(len(self.columns) + 1)
            for some in itertools.combinations(self.columns, r)
            if sum(self.columns[c][1] for c in some) <= budget
        )


COLUMNS = {
    "customer": (0.02, 30 * MB),
    "day": (0.1, MB),
    "product": (0.05, 25 * MB),
    "note": (0.6, 45 * MB),
    "flag": (1.0, MB),
}
MONTH = 30
TABLES = [
    Simulated("steady", GB, COLUMNS, [{"customer": 20, "day": 5, "flag": 9}] * MONTH),
    Simulated(
        "changing",
        GB,
        COLUMNS,
        [{"customer": 20}] * 12
        + [{"product": 20, "customer": 1}] * 9
        + [{"day": 20, "note": 1}] * 9,
    ),
    Simulated(
        "weekends",
        GB,
        COLUMNS,
        [{} if n % 7 > 4 else {"product": 4, "day": 30} for n in range(MONTH)],
    ),
]
REFRESHES = 8  # in a day


@pytest.mark.parametrize("table", TABLES, ids=lambda each: each.name)
@pytest.mark.parametrize("share", [0.06, 0.2])
def test_a_month_of_an_automatic_index(table: Simulated, share: float) -> None:
    """From day 8 on, queries read at most 1.2 times what the best fixed index would read."""
    budget, size = int(share * table.bytes), {c: s for c, (_, s) in table.columns.items()}
    candidates = [candidate(c, s, left) for c, (left, s) in table.columns.items()]
    current: dict[str, CurrentColumn] = {}
    workload: list[tuple[date, TableWorkload]] = []
    log: list[Decision] = []
    read = [0.0] * MONTH
    for n in range(MONTH):
        today = DAY + timedelta(n)
        for _ in range(REFRESHES):
            counted = []
            for c, times in table.plan[n].items():
                full, left = table.bytes * times / REFRESHES, table.columns[c][0]
                read[n] += full * (left if c in current else 1)
                counts = (
                    {"pruned_bytes": int(full * (1 - left))}
                    if c in current
                    else {"missed_bytes": int(full)}
                )
                counted.append(predicate(c, **counts))
            workload.append((today, queries(*counted)))
            decisions = decide(
                candidates, workload, list(current.values()), log, budget=budget, today=today
            )
            log += decisions
            for each in decisions:
                if each.action == "drop":
                    del current[each.column]
                else:
                    made = column(each.column, size[each.column])
                    current[each.column] = replace(made, since=today)
            assert sum(each.bytes for each in current.values()) <= budget
    days = range(7, MONTH)
    assert sum(read[7:]) <= 1.2 * table.best(budget, days)
    by_day = [(each.day, each.identity) for each in log]
    assert len(set(by_day)) == len(by_day), "one change a day and column"
    assert len(log) <= 10
    assert "flag" not in {each.column for each in log}, "its values are in every file"
