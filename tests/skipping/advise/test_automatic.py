"""What an automatic index decides: single rules, and a month of queries on three tables."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any

import pytest

from skipping.advise.automatic import (
    PATIENCE,
    PAYBACK,
    Candidate,
    CurrentColumn,
    Evidence,
    decide,
)
from skipping.model.decision import Decision
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


def candidate(column: str = "a", bytes: int = 30 * MB, benefit: float = 0.0) -> Candidate:
    return Candidate(
        identity=column,
        column=column,
        kind="VALUE_LIST",
        sql=f"{column} VALUE_LIST",
        bytes=bytes,
        benefit=benefit,
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


def run(
    candidates: Sequence[Candidate],
    workload: Sequence[tuple[date, TableWorkload]],
    current: Sequence[CurrentColumn],
    past: Sequence[Decision] = (),
    *,
    budget: float = GB,
    today: date = DAY,
    **more: Any,
) -> Sequence[Decision]:
    evidence = Evidence(
        today=today, candidates=candidates, workload=workload, budget=budget, **more
    )
    decisions, added = decide(evidence, current, past)
    adds = [each for each in decisions if each.action == "add"]
    assert [(each.identity, each.kind) for each in adds] == [(a.identity, a.kind) for a in added]
    return decisions


def test_a_new_index_begins_with_what_the_data_recommends() -> None:
    advised = replace(candidate("a", 50 * MB), is_advised=True)
    large = replace(candidate("b", 70 * MB), is_advised=True)
    found = run([large, candidate("c"), advised], [], [], budget=100 * MB)
    assert changes(found) == [("add", "a")]
    assert "no queries yet" in found[0].reason


def test_a_column_is_added_when_it_saves_more_than_it_costs() -> None:
    cost = 30 * MB / PAYBACK
    assert run([candidate(benefit=cost)], [], []) == ()
    (made,) = run([candidate(benefit=cost + 1)], [], [])
    assert (made.benefit, made.cost, made.bytes) == (cost + 1, cost, 30 * MB)
    assert run([candidate(benefit=GB)], [], [], budget=29 * MB) == ()
    assert run([candidate(benefit=GB)], [], [column(days=1)]) == ()


def test_of_the_types_of_a_column_the_best_is_added() -> None:
    small = replace(candidate(bytes=MB, benefit=GB / 70), kind="MIN_MAX")
    found = run([small, candidate(benefit=GB / 8)], [], [])
    assert [each.kind for each in found] == ["VALUE_LIST"]


def test_a_column_without_benefit_is_dropped_after_a_week() -> None:
    cost = 30 * MB // PAYBACK
    week = [DAY - timedelta(n) for n in range(1, PATIENCE + 1)]

    def drops(*skipped: int, days: int = 10, **options: Any) -> list[tuple[str, str]]:
        workload = [
            (day, queries(predicate("a", pruned_bytes=more)))
            for day, more in zip([*week, DAY], skipped, strict=False)
        ]
        return changes(run([], workload, [column(days=days)], **options))

    assert drops(*[cost - 1] * PATIENCE) == [("drop", "a")]
    assert drops() == [("drop", "a")]  # nobody reads the table
    assert drops(is_recorded=False) == []
    assert drops(*[cost - 1] * (PATIENCE - 1), cost) == []
    assert drops(*[0] * PATIENCE, cost) == []  # queries came back today
    assert drops(days=PATIENCE - 1) == []
    assert drops(days=PATIENCE) == [("drop", "a")]
    assert drops(patience=11) == []


def test_columns_that_a_user_chose_are_left_alone() -> None:
    assert run([], [], [column(days=None)]) == ()
    better = replace(candidate(benefit=GB), kind="BLOOM_FILTER")
    assert run([better], [], [column(days=None)]) == ()
    # It does not use up the budget of the others.
    large = column("b", GB, days=None)
    found = run([candidate(benefit=GB)], [], [large], budget=30 * MB)
    assert changes(found) == [("add", "a")]


def test_at_most_one_change_a_day_and_column() -> None:
    (made,) = run([candidate(benefit=GB)], [], [])
    again = replace(candidate(benefit=GB), kind="BLOOM_FILTER")
    assert run([again], [], [], [made]) == ()
    assert run([], [], [column()], [replace(made, action="drop")]) == ()
    tomorrow = DAY + timedelta(1)
    assert changes(run([again], [], [], [made], today=tomorrow)) == [("add", "a")]
    # What is dropped today is not added today.
    found = run([candidate(benefit=GB), again], [], [column()])
    assert changes(found) == [("drop", "a")]


def test_a_full_budget_goes_to_what_saves_more() -> None:
    better = candidate("b", benefit=GB)
    for skipped, expected in ((90, [("drop", "a"), ("add", "b")]), (900, [])):
        days = [
            (DAY - timedelta(n), queries(predicate("a", pruned_bytes=skipped * MB)))
            for n in range(PATIENCE)
        ]
        assert changes(run([better], days, [column("a")], budget=40 * MB)) == expected
    assert run([better], [], [column("a", days=0)], budget=40 * MB) == ()
    fixed = column("a", days=None)
    assert changes(run([better], [], [fixed], budget=40 * MB)) == [("add", "b")]


def test_a_smaller_type_is_chosen_if_the_best_one_exceeds_the_budget() -> None:
    large = candidate(bytes=129 * MB, benefit=10 * GB)
    small = replace(candidate(bytes=5 * MB, benefit=9 * GB), kind="BLOOM_FILTER")
    for budget, kind in ((10 * MB, "BLOOM_FILTER"), (GB, "VALUE_LIST")):
        (made,) = run([large, small], [], [], budget=budget)
        assert made.kind == kind
    # One type for values, and one for substrings.
    search = replace(candidate(benefit=GB), kind="NGRAM", for_text=True)
    assert {each.kind for each in run([small, search], [], [])} == {"BLOOM_FILTER", "NGRAM"}


def test_an_index_that_outgrows_its_budget_loses_what_saves_least() -> None:
    pruned = [predicate("a", pruned_bytes=GB), predicate("b", pruned_bytes=2 * GB)]
    both = [column("a"), column("b")]
    days = [(DAY, queries(*pruned))]
    assert run([], days, both, budget=60 * MB) == ()
    assert changes(run([], days, both, budget=59 * MB)) == [("drop", "a")]

    # A column without sketches always fits.
    empty = [column("a", 0), column("b", days=None), column("c", days=0)]
    assert run([], days, empty, budget=MB) == ()


def test_without_records_nothing_is_dropped_for_others() -> None:
    better = candidate("b", benefit=GB)
    assert run([better], [], [column("a")], budget=40 * MB, is_recorded=False) == ()
    found = run([better], [], [column("a")], budget=60 * MB, is_recorded=False)
    assert changes(found) == [("add", "b")]


def test_what_was_dropped_must_be_worth_more_to_come_back() -> None:
    cost = 30 * MB / PAYBACK
    (drop,) = run([], [], [column()])
    later = DAY + timedelta(1)
    for drops, benefit, is_added in ((1, 1.9, False), (1, 2.1, True), (2, 3.9, False)):
        found = run([candidate(benefit=benefit * cost)], [], [], [drop] * drops, today=later)
        assert bool(found) == is_added


def test_a_clock_that_is_ahead_changes_nothing() -> None:
    days = [(DAY, queries(predicate("a", pruned_bytes=GB)))]
    for ahead in (1, 2, 30):
        ours = replace(column(), since=DAY + timedelta(ahead))
        better = candidate("b", benefit=GB)
        assert run([better], days, [ours], budget=40 * MB) == ()


def test_the_tuples_of_a_multi_column_index_count_for_it() -> None:
    both = replace(column("tuple:ab"), parts=frozenset("ab"))
    for parts, expected in ((("a", "b", "c"), []), (("a", "c"), [("drop", "tuple:ab")])):
        pruned = replace(predicate("", pruned_bytes=GB), parts=parts)
        assert changes(run([], [(DAY, queries(pruned))], [both])) == expected


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


def list_candidates(
    table: Simulated, workload: Sequence[tuple[date, TableWorkload]], today: date
) -> list[Candidate]:
    """Return what each column would have saved of the scans that opened all files."""
    found = []
    for name, (left, size) in table.columns.items():
        missed = sum(
            each.missed_bytes
            for day, queries in workload
            for each in queries.predicates
            if each.identity == name and today - day <= timedelta(PATIENCE)
        )
        found.append(candidate(name, size, (1 - left) * missed / PATIENCE))
    return found


@pytest.mark.parametrize("table", TABLES, ids=lambda each: each.name)
@pytest.mark.parametrize("share", [0.06, 0.2])
def test_a_month_of_an_automatic_index(table: Simulated, share: float) -> None:
    """From day 8 on, queries read at most 1.2 times what the best fixed index would read."""
    budget, size = int(share * table.bytes), {c: s for c, (_, s) in table.columns.items()}
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
            candidates = list_candidates(table, workload, today)
            decisions = run(
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
