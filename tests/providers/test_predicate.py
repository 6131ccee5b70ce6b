"""negate and simplify against three-valued logic, as golden pairs, and on trees that are deep."""

from __future__ import annotations

import re
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers import (
    And,
    Between,
    Compare,
    Contains,
    EndsWith,
    In,
    IsNull,
    Or,
    Predicate,
    StartsWith,
    Unknown,
)
from providers.predicate import Leaf, StartsWithAny, Within, fits, leaves, map_leaves, negate
from providers.simplify import simplify
from providers.values import domain_of
from tests.conftest import RunPython
from tests.providers.golden import cases, predicate
from tests.providers.spark_oracle import OPS, holds_for

Row = dict[str, Any]


def truth(node: Predicate, row: Row, unknown: bool | None) -> bool | None:
    """Three-valued truth for one row, every Unknown being `unknown`."""
    match node:
        case And(legs):
            found = [truth(leg, row, unknown) for leg in legs]
            return False if False in found else None if None in found else True
        case Or(legs):
            found = [truth(leg, row, unknown) for leg in legs]
            return True if True in found else None if None in found else False
        case Unknown():
            return unknown
        case In(column, keys, negated):
            if not len(keys):
                return negated
            return holds_for(In(column, keys.to_pylist(), negated), row[column])
        case _:
            return holds_for(node, row[node.column])


_VALUE = st.integers(0, 3)
_TEXT = st.sampled_from(["", "a", "ab", "b"])
_LEAF: st.SearchStrategy[Leaf] = st.one_of(
    st.builds(Compare, st.sampled_from("ab"), st.sampled_from(OPS), _VALUE),
    st.builds(
        lambda column, keys, negated: In(
            column, In.of(column, pa.array(keys, pa.int64())).values, negated
        ),
        st.sampled_from("ab"),
        st.lists(_VALUE | st.none(), max_size=3),
        st.booleans(),
    ),
    st.builds(IsNull, st.sampled_from("abt"), st.booleans()),
    st.builds(StartsWith, st.just("t"), _TEXT, st.booleans()),
    st.builds(EndsWith, st.just("t"), _TEXT, st.booleans()),
    st.builds(Contains, st.just("t"), _TEXT, st.booleans()),
    st.builds(Compare, st.just("t"), st.sampled_from(OPS), _TEXT),
)


def _trees(leaf: st.SearchStrategy[Any]) -> st.SearchStrategy[Predicate]:
    return st.recursive(
        leaf,
        lambda below: st.builds(
            lambda kind, legs: kind(tuple(legs)),
            st.sampled_from([And, Or]),
            st.lists(below, max_size=4),
        ),
        max_leaves=12,
    )


KNOWN = _trees(_LEAF)
ANY = _trees(_LEAF | st.just(Unknown("a function")))
ROWS = st.fixed_dictionaries({"a": st.none() | _VALUE, "b": st.none() | _VALUE, "t": _TEXT})
ROWS |= st.fixed_dictionaries({"a": st.none(), "b": _VALUE, "t": st.none()})


# Laws


@given(KNOWN, ROWS)
def test_negation_is_true_exactly_where_the_predicate_is_false(node: Predicate, row: Row) -> None:
    assert (truth(negate(node), row, None) is True) == (truth(node, row, None) is False)
    assert (truth(negate(node), row, None) is None) == (truth(node, row, None) is None)


@given(ANY, ROWS)
def test_negation_may_be_true_wherever_the_predicate_may_be_false(
    node: Predicate, row: Row
) -> None:
    # There is no Not, so a tree is monotone: it may be false iff it is with false unknowns.
    may_be_false = truth(node, row, False) is False
    assert (truth(negate(node), row, True) is True) == may_be_false


@given(ANY)
def test_negation_twice_is_nothing(node: Predicate) -> None:
    assert negate(negate(node)) == node


@given(ANY, ROWS)
def test_simplify_is_never_stronger_and_gives_nothing_away(node: Predicate, row: Row) -> None:
    for unknown in (True, False, None):
        if truth(node, row, unknown) is True:
            assert truth(simplify(node), row, True) is True
    # What no index can answer counts as true; with that, nothing is given away.
    assert (truth(simplify(node), row, True) is True) == (truth(node, row, True) is True)


@given(KNOWN, ROWS)
def test_simplify_is_the_same_where_all_is_known(node: Predicate, row: Row) -> None:
    simple = simplify(node)
    if not any(isinstance(part, Unknown) for part in _parts(simple)):
        assert (truth(simple, row, None) is True) == (truth(node, row, None) is True)
    else:  # only an operand that is always true makes an Unknown of known legs
        assert truth(node, row, None) is True


_RANGE = st.builds(
    Between, st.sampled_from("ab"), _VALUE, _VALUE, st.booleans(), st.booleans()
) | st.builds(Between, st.just("t"), _TEXT, _TEXT, st.booleans(), st.booleans())
RANGES = _trees(_RANGE | _LEAF)


@given(RANGES, ROWS)
def test_ranges_and_prefixes_that_become_one_hold_where_some_did(node: Predicate, row: Row) -> None:
    simple = simplify(node)
    assert (truth(simple, row, True) is True) == (truth(node, row, True) is True)
    assert simplify(simple) == simple
    opposite = truth(negate(simple), row, True)
    assert (opposite is True) == (truth(simple, row, False) is False)


def _parts(node: Predicate) -> list[Predicate]:
    below = node.legs if isinstance(node, And | Or) else ()
    return [node, *(part for leg in below for part in _parts(leg))]


@given(ANY)
def test_simplify_leaves_a_flat_tree_that_it_leaves_alone(node: Predicate) -> None:
    simple = simplify(node)
    assert simplify(simple) == simple
    for part in _parts(simple):
        if isinstance(part, And | Or):
            assert len(part.legs) != 1
            assert not any(type(leg) is type(part) or isinstance(leg, Unknown) for leg in part.legs)


@given(ANY)
def test_leaves_come_from_left_to_right_and_map_leaves_meets_each_once(node: Predicate) -> None:
    expected = [p for p in _parts(node) if not isinstance(p, And | Or | Unknown)]
    met: list[Leaf] = []

    def meet(leaf: Leaf) -> Leaf:
        met.append(leaf)
        return leaf

    assert list(leaves(node)) == expected
    assert map_leaves(node, meet) == node
    assert met == expected


@pytest.mark.parametrize(
    ("section", "given_text", "expected"), cases(Path(__file__).with_name("predicates.txt"))
)
def test_golden_pairs(section: str, given_text: str, expected: str) -> None:
    apply = {"negate": negate, "simplify": simplify}[section]
    outcome = map_unknown(apply(predicate(given_text)))
    assert outcome == predicate(expected)


def map_unknown(node: Predicate) -> Predicate:
    """Unknowns without their reasons."""
    if isinstance(node, And | Or):
        return type(node)(tuple(map(map_unknown, node.legs)))
    return Unknown() if isinstance(node, Unknown) else node


# Edges


def test_reasons_survive_simplify() -> None:
    why = Unknown("a UDF")
    assert simplify(Or((Compare("x", "=", 1), why))) == why
    assert simplify(Or((Compare("x", "=", 1), And((why, Unknown("other")))))) == why
    assert simplify(Or((Compare("x", "=", 1), And(())))) == Unknown(
        "an operand that is always true"
    )


def test_in_of_sorts_and_drops_duplicates_and_nulls() -> None:
    assert In.of("x", pa.array([3, 1, None, 3])).values.to_pylist() == [1, 3]
    assert In.of("x", pa.array(["\U00010000", "\uffff", ""])).values.to_pylist() == [
        "", "\uffff", "\U00010000"
    ]  # fmt: skip
    assert In.of("x", pa.array([None], pa.int64())).values.equals(pa.array([], pa.int64()))


@pytest.mark.parametrize(
    ("arrow", "leaf", "expected"),
    [
        (pa.int32(), Compare("x", "=", 1), True),
        (pa.int32(), Compare("x", "=", 1.0), False),
        (pa.int32(), Compare("x", "<", 1.5), False),
        (pa.int32(), Compare("x", "=", "1"), False),
        (pa.int32(), Compare("x", "=", True), False),
        (pa.bool_(), Compare("x", "=", True), False),  # normalised it is a 1
        (pa.int32(), Compare("x", "=", None), False),
        (pa.int32(), Compare("x", "=", 2**63 - 1), True),
        (pa.int32(), Compare("x", "=", 2**63), False),
        (pa.int32(), Compare("x", "=", -(2**63) - 1), False),
        (pa.int32(), In("x", pa.array([1])), True),
        (pa.int32(), In("x", pa.array([1], pa.int32())), False),
        (pa.int32(), In("x", pa.array(["a"])), False),
        (pa.int32(), In("x", pa.array([1, None])), False),
        (pa.int32(), StartsWith("x", "1"), False),
        (pa.int32(), StartsWith("x", 1), False),
        (pa.int32(), IsNull("x"), True),
        (pa.string(), Compare("x", "=", "a"), True),
        (pa.string(), Compare("x", "=", b"a"), False),
        (pa.string(), Compare("x", "=", "\ud800"), False),
        (pa.string(), Compare("x", "=", 1), False),
        (pa.string(), StartsWith("x", "a"), True),
        (pa.string(), StartsWith("x", b"a"), False),
        (pa.binary(), StartsWith("x", b"a"), True),
        *((pa.string(), form("x", "a"), True) for form in (EndsWith, Contains)),
        *((pa.string(), form("x", "\ud800"), False) for form in (EndsWith, Contains)),
        *((pa.binary(), form("x", b"a"), True) for form in (EndsWith, Contains)),
        *((pa.int32(), form("x", "1"), False) for form in (EndsWith, Contains)),
        (pa.binary(), Compare("x", "=", "a"), False),
        (pa.decimal128(38, 2), Compare("x", "=", 1), False),
        (pa.decimal128(38, 2), StartsWith("x", b"a"), False),
    ],
    ids=lambda value: re.sub(r" object at 0x\w+", "", str(value)),
)
def test_only_normalised_values_of_the_domain_fit(
    arrow: pa.DataType, leaf: Leaf, expected: bool
) -> None:
    domain = domain_of(arrow)
    assert domain is not None
    assert fits(leaf, domain) is expected


# Many legs, deep trees


@pytest.mark.parametrize("shape", ["flat", "left", "right"])
def test_two_thousand_legs_are_one_in(shape: str) -> None:
    legs: list[Predicate] = [Compare("x", "=", n % 1_900) for n in range(2_000)]
    whole = {
        "flat": lambda: Or(tuple(legs)),
        "left": lambda: reduce(lambda a, b: Or((a, b)), legs),
        "right": lambda: reduce(lambda a, b: Or((b, a)), legs),
    }[shape]()
    merged = simplify(whole)
    assert isinstance(merged, In)
    assert merged.values.equals(pa.array(range(1_900), pa.int64()))


def test_many_ranges_of_a_column_are_one_leaf() -> None:
    legs: list[Predicate] = [
        And((Compare("x", ">=", 10 * n), Compare("x", "<=", 10 * n + 4))) for n in range(3_000)
    ]
    (merged,) = leaves(simplify(Or((*legs, *legs[::-1]))))
    assert isinstance(merged, Within)
    assert merged.starts.equals(pa.array(range(0, 30_000, 10)))
    assert merged.ends.equals(pa.array(range(4, 30_000, 10)))


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([(1, 5), (3, 9)], Between("x", 1, 9)),
        ([(1, 5), (5, 9)], Between("x", 1, 9)),
        ([(1, 9), (2, 3)], Between("x", 1, 9)),
        ([(5, 6), (1, 2), (9, 8)], Within("x", pa.array([1, 5]), pa.array([2, 6]))),
        ([("a", "b"), ("c", "d")], Within("x", pa.array(["a", "c"]), pa.array(["b", "d"]))),
    ],
)
def test_ranges_that_meet_are_one(ranges: list[tuple[Any, Any]], expected: Predicate) -> None:
    assert simplify(Or(tuple(Between("x", *ends) for ends in ranges))) == expected


def test_ranges_that_leave_out_where_they_meet_are_two() -> None:
    legs = (Between("x", 1, 5, False, False), Between("x", 5, 9, False, False))
    merged = simplify(Or(legs))
    assert isinstance(merged, Within)
    assert list(merged.legs()) == list(legs)


@pytest.mark.parametrize(
    "legs",
    [
        (Between("x", 1, 2), Between("y", 5, 6)),
        (Between("x", 1, 2), Between("x", "5", "6")),
        (Between("x", 1, 2), Between("x", 5, 2**63)),  # no number of Arrow's
        (Between("x", 1, 2), Between("x", 5, 6, True, False)),
        (Between("x", 4, 3), Between("x", 2, 1)),
        (StartsWith("x", "a"), StartsWith("x", b"b")),
        (StartsWith("x", "a"), StartsWith("x", "\ud800")),
        (StartsWith("x", "a", negated=True), StartsWith("x", "b", negated=True)),
    ],
)
def test_what_cannot_stand_in_one_array_stays_apart(legs: tuple[Leaf, ...]) -> None:
    assert simplify(Or(legs)) == Or(legs)


def test_prefixes_of_a_column_are_one_leaf_without_those_that_others_begin() -> None:
    texts = ["b", "abc", "", "ab", "\U0010ffff"]
    merged = simplify(Or(tuple(StartsWith("x", text) for text in texts if text)))
    assert merged == StartsWithAny("x", pa.array(["ab", "b", "\U0010ffff"]))
    assert simplify(Or(tuple(StartsWith("x", text) for text in texts))) == StartsWith("x", "")


def test_a_tree_of_5000_levels_is_walked_without_recursion() -> None:
    deep: Predicate = Compare("x", "=", 0)
    for n in range(1, 5_001):
        deep = (And if n % 2 else Or)((deep, Compare("x", "<", n)))
    assert len(list(leaves(deep))) == 5_001
    assert sum(1 for _ in leaves(negate(deep))) == 5_001
    assert sum(1 for _ in leaves(simplify(deep))) == 5_001
    assert sum(1 for _ in leaves(map_leaves(deep, lambda leaf: Unknown()))) == 0


def test_a_tree_of_20000_levels_cannot_take_the_process_down(run_python: RunPython) -> None:
    # What Python itself walks recursively (==, repr, pickle) must at most raise RecursionError.
    script = """
import pickle
from providers import And, Compare, Or
from providers.index_predicate import AllOf, AnyOf, find_prunable, has_always_false, map_tests
from providers.index_predicate import tests
from providers.predicate import leaves, negate
from providers.simplify import simplify

deep, index = Compare("x", "=", 0), AnyOf(())
for n in range(20_000):
    deep = (And if n % 2 else Or)((deep, Compare("x", "<", n)))
    index = (AllOf if n % 2 else AnyOf)((index,))
assert len(list(leaves(simplify(negate(deep))))) == 20_001
copy = negate(negate(deep))
assert not find_prunable(index, None) and not list(tests(index)) and not has_always_false(index)
index = map_tests(index, None)
refused = 0
for act in (
    lambda: deep == copy, lambda: repr(deep), lambda: hash(deep), lambda: pickle.dumps(deep),
):
    try:
        act()
    except RecursionError:
        refused += 1
del deep, copy, index
print("alive", refused)
"""
    ran = run_python("-c", script)
    assert (ran.returncode, ran.stdout[:5]) == (0, "alive"), ran.stderr
