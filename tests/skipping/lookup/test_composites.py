"""What a predicate tells of tuples holds in each row that satisfies it; and how much it tells."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from providers.predicate import And, Compare, In, IsNull, Or, Predicate, Unknown, leaves
from providers.simplify import simplify
from providers.tuples import decode_tuple
from providers.values import domain_of
from skipping.lookup.composites import (
    MOST,
    MOST_BYTES,
    MOST_COMBINED,
    Composite,
    _Budget,
    with_tuples,
)

NUMBERS = domain_of(pa.int64())
assert NUMBERS is not None
COMPOSITES = [
    Composite("ab", {"a": NUMBERS, "b": NUMBERS}),
    Composite("cab", {"c": NUMBERS, "a": NUMBERS, "b": NUMBERS}),
]
COLUMNS = ("a", "b", "c")
MANY = 4_096
FEW = st.integers(0, 2)


def _leaf(column: str) -> st.SearchStrategy[Predicate]:
    return st.one_of(
        FEW.map(lambda v: Compare(column, "=", v)),
        st.lists(FEW, max_size=2).map(lambda v: In.of(column, pa.array(v, pa.int64()))),
        FEW.map(lambda v: Compare(column, ">", v)),
        FEW.map(lambda v: In(column, pa.array([v]), negated=True)),
        st.just(IsNull(column, negated=True)),
        st.just(Unknown("x")),
    )


PREDICATES: st.SearchStrategy[Predicate] = st.recursive(
    st.sampled_from(COLUMNS).flatmap(_leaf),
    lambda inner: st.lists(inner, max_size=4).flatmap(
        lambda legs: st.sampled_from([And(tuple(legs)), Or(tuple(legs))])
    ),
    max_leaves=10,
)


def holds(predicate: Predicate, row: dict[str, Any]) -> bool:
    """Whether it may be true of a row, whose tuples are computed here."""
    match predicate:
        case And(legs):
            return all(holds(leg, row) for leg in legs)
        case Or(legs):
            return any(holds(leg, row) for leg in legs)
        case Unknown():
            return True
        case In("ab" | "cab" as name, values):
            asked = [decode_tuple(v, ["int"] * len(name)) for v in values.to_pylist()]
            return tuple(row[column] for column in name) in asked
        case Compare(column, "=", value):
            return row[column] == value
        case Compare(column, ">", value):
            return row[column] is not None and row[column] > value
        case In(column, values, negated):
            return row[column] is not None and (row[column] in values.to_pylist()) != negated
        case IsNull(column):
            return row[column] is not None
    raise AssertionError(predicate)


ROWS = [
    dict(zip(COLUMNS, values, strict=True))
    for values in [(a, b, c) for a in (0, 1, None) for b in (0, 1, 2) for c in (0, 2)]
]


@given(PREDICATES)
def test_it_is_equivalent(predicate: Predicate) -> None:
    before = simplify(predicate)
    after = with_tuples(before, COMPOSITES, MANY)
    for row in ROWS:
        assert holds(before, row) == holds(after, row), (before, after, row)


def top_tuples(predicate: Predicate) -> dict[str, list[tuple[Any, ...]]]:
    """The tuples of each composite, where it is asked at the top."""
    found = with_tuples(simplify(predicate), COMPOSITES, MANY)
    legs = found.legs if isinstance(found, And) else ()
    return {
        leg.column: [decode_tuple(v, ["int"] * len(leg.column)) for v in leg.values.to_pylist()]
        for leg in legs
        if isinstance(leg, In) and leg.column in ("ab", "cab")
    }


def pair(a: int, b: int) -> And:
    return And((Compare("a", "=", a), Compare("b", "=", b)))


def test_what_is_told() -> None:
    one, other = pair(1, 2), pair(3, 4)
    assert top_tuples(one) == {"ab": [(1, 2)]}
    assert top_tuples(And((one, Compare("c", "=", 7)))) == {"ab": [(1, 2)], "cab": [(7, 1, 2)]}
    assert top_tuples(Or((one, other))) == {"ab": [(1, 2), (3, 4)]}
    assert top_tuples(And((Or((one, other)), Compare("c", ">", 0)))) == {"ab": [(1, 2), (3, 4)]}
    two = In.of("a", pa.array([1, 3]))
    assert top_tuples(And((two, Compare("b", "=", 2)))) == {"ab": [(1, 2), (3, 2)]}
    assert top_tuples(Or((one, Compare("a", "=", 3)))) == {}
    assert top_tuples(And((one, Compare("a", ">", 0)))) == {"ab": [(1, 2)]}
    assert top_tuples(Compare("a", "=", 1)) == {}


def test_too_many_combinations_are_not_asked() -> None:
    many = In.of("a", pa.array(range(MOST_COMBINED + 1)))
    assert top_tuples(And((many, Compare("b", "=", 2)))) == {}
    thousands = Or(tuple(pair(n, n + 1) for n in range(3_000)))
    assert len(top_tuples(thousands)["ab"]) == 3_000


def several(first: int, count: int = 30) -> And:
    values = pa.array(range(first, first + count))
    return And((In.of("a", values), In.of("b", values)))


def test_ors_inside_each_other_do_not_make_tuples_again_and_again() -> None:
    predicate: Predicate = Or(tuple(several(100 * n) for n in range(100)))
    for n in range(50):
        predicate = And((Or((predicate, several(-100 * n - 100))), Compare("c", ">", n)))
    found = with_tuples(simplify(predicate), COMPOSITES, MANY)
    made = [leaf.values for leaf in leaves(found) if isinstance(leaf, In) and leaf.column == "ab"]
    assert 0 < sum(map(len, made)) <= MOST


def test_budget_can_be_used_up() -> None:
    budget = _Budget(0, tuples=5, bytes=70)
    assert not budget.takes(6, 7)
    assert not budget.takes(5, 71)
    assert budget.takes(4, 60)
    assert not budget.takes(2, 5)
    assert not budget.takes(1, 11)
    assert budget.takes(1, 10)


def test_long_values_make_few_tuples() -> None:
    text = domain_of(pa.string())
    assert text is not None
    composites = [Composite("as", {"a": NUMBERS, "s": text})]
    for length, asked in ((10, 1), (MOST_BYTES // 100, 0)):
        long = And((In.of("a", pa.array(range(1_000))), Compare("s", "=", "x" * length)))
        found = with_tuples(long, composites, MANY)
        assert [leaf.column for leaf in leaves(found)].count("as") == asked


def test_what_is_added_leaves_room_for_what_was_asked() -> None:
    legs = Or(tuple(several(100 * n, 10) for n in range(2_001)))  # more tuples than MOST
    found = list(leaves(with_tuples(simplify(legs), COMPOSITES, MANY)))
    assert [leaf.column for leaf in found].count("a") == 2_001
    assert 4_002 < len(found) <= MANY


def test_what_a_leg_tells_alone_is_added_to_it() -> None:
    found = with_tuples(simplify(Or((pair(1, 2), Compare("c", ">", 1)))), COMPOSITES, MANY)
    assert [leaf.column for leaf in leaves(found)] == ["ab", "a", "b", "c"]


def test_values_of_another_type_are_no_keys() -> None:
    wrong = And((Compare("a", "=", "1"), Compare("b", "=", 2)))
    assert top_tuples(wrong) == {}


class TestLongOr:
    """`(a = 1 AND b = 2) OR ...`, as an upsert on two columns has it."""

    @staticmethod
    def pairs(count: int, *columns: str) -> Or:
        return Or(
            tuple(
                And(tuple(Compare(c, "=", i + n) for n, c in enumerate(columns)))
                for i in range(count)
            )
        )

    def test_becomes_lists_and_tuples(self) -> None:
        found = with_tuples(self.pairs(40, "b", "a"), COMPOSITES[:1], MANY)
        assert [(leaf.column, len(leaf.values)) for leaf in leaves(found)] == [
            ("ab", 40), ("b", 40), ("a", 40)
        ]  # fmt: skip
        tuples = next(leaf for leaf in leaves(found) if leaf.column == "ab")
        assert decode_tuple(tuples.values[7].as_py(), ["bigint", "bigint"]) == (8, 7)

    def test_stays_if_no_index_has_the_tuples(self) -> None:
        long = self.pairs(40, "b", "c")
        assert with_tuples(long, COMPOSITES, MANY) == long
        few = with_tuples(long, COMPOSITES, 50)
        assert [leaf.column for leaf in leaves(few)] == ["b", "c"], "it would have 80 leaves"

    def test_stays_if_its_operands_differ(self) -> None:
        long = self.pairs(40, "a", "b").legs
        for other in (
            Compare("a", "=", 1),
            And((Compare("a", "=", 1), Compare("c", "=", 1))),
            And((Compare("a", "=", 1), Compare("b", ">", 1))),
            And((Compare("a", "=", 1), Compare("a", "=", 2))),
            And((Compare("a", "=", "x"), Compare("b", "=", 2))),
            And(()),
            Unknown("x"),
        ):
            mixed = Or((*long, other))
            found = with_tuples(mixed, COMPOSITES[:1], MANY)
            assert sum(isinstance(leaf, Compare) for leaf in leaves(found)) >= 80, other
