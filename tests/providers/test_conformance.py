"""False skips that shipped elsewhere, as far as values, predicates and kinds can show them.

The numbers are those of `tests/conformance.md`. Each test skips something too, so that it is no
proof by doing nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

from providers import (
    And,
    Compare,
    In,
    IsNull,
    MinMax,
    Or,
    Predicate,
    SkippingProvider,
    StartsWith,
    Unknown,
    ValueList,
)
from providers.evaluate import find_prunable_rows
from providers.index_predicate import AllOf, IndexPredicate, find_prunable, map_tests
from providers.index_predicate import AnyOf as Some
from providers.predicate import map_leaves, negate
from providers.simplify import simplify
from providers.values import arrow_type, domain_of
from tests.providers.spark_oracle import FILE, Index, normalise, normalised

Kind = type[SkippingProvider]
BOTH = pytest.mark.parametrize("kind", [MinMax, ValueList], ids=["MIN_MAX", "VALUE_LIST"])


def skipped(kind: Kind, spark_type: str, files: list[FILE], predicate: Predicate) -> set[int]:
    """The files pruned for a whole predicate over typed values of the column x."""
    index = Index.of(kind, spark_type, files)

    def translate(node: Predicate) -> IndexPredicate:
        match node:
            case And(legs):
                return AllOf(tuple(map(translate, legs)))
            case Or(legs):
                return Some(tuple(map(translate, legs)))
            case Unknown():
                return AllOf(())
            case _:
                return index.provider.rewrite(node) or AllOf(())

    sketches = index.table
    asked = simplify(map_leaves(predicate, lambda leaf: normalise(leaf, index.type)))
    named = map_tests(translate(asked), lambda test: replace(test, sketch=f"s0{test.sketch}"))
    return set(
        find_prunable(
            named, lambda test: BitMap(np.flatnonzero(find_prunable_rows(test, sketches)))
        )
    )


def eq(value: Any) -> Compare:
    return Compare("x", "=", value)


def one_of(*values: Any) -> Any:
    return In("x", list(values))


def none_of(*values: Any) -> Any:
    return In("x", list(values), negated=True)


# Values and types


@BOTH
def test_conformance_01_like_prefix_is_no_equality(kind: Kind) -> None:
    files = [["xa", "xz"], ["x"], ["w", "wz"], ["y"], ["x\U0010ffff\U0010ffff"]]
    assert skipped(kind, "string", files, StartsWith("x", "x")) == {2, 3}
    # LIKE 'x%y' and LIKE 'x_': a prefix, and something no index can say
    widened = And((StartsWith("x", "x"), Unknown("LIKE 'x%y'")))
    assert skipped(kind, "string", files, widened) == {2, 3}
    assert skipped(kind, "string", files, negate(widened)) == set()


@BOTH
def test_conformance_01_like_prefix_empty_and_at_the_end_of_the_order(kind: Kind) -> None:
    files = [[""], ["a"], [None]]
    assert skipped(kind, "string", files, StartsWith("x", "")) == {2}
    assert skipped(kind, "string", files, StartsWith("x", "", negated=True)) == {0, 1, 2}
    last = "\U0010ffff"
    files = [["a" + last], ["a" + last + "b"], ["b"], [last], [last + last], ["a"]]
    assert skipped(kind, "string", files, StartsWith("x", "a" + last)) == {2, 3, 4, 5}
    assert skipped(kind, "string", files, StartsWith("x", last)) == {0, 1, 2, 5}
    binary = [[b"a\xff"], [b"a\xff\x01"], [b"b"], [b"\xff"], [b"\xff\xff"], [b"a"]]
    assert skipped(kind, "binary", binary, StartsWith("x", b"a\xff")) == {2, 3, 4, 5}
    assert skipped(kind, "binary", binary, StartsWith("x", b"\xff")) == {0, 1, 2, 5}
    assert skipped(kind, "binary", binary, StartsWith("x", b"\xff", negated=True)) == {3, 4}


@BOTH
def test_conformance_01_like_prefix_wildcards_and_quotes_are_literal(kind: Kind) -> None:
    files = [["100%"], ["100x"], ["a_b"], ["axb"], ["\\%"], ["'"]]
    assert skipped(kind, "string", files, StartsWith("x", "100%")) == {1, 2, 3, 4, 5}
    assert skipped(kind, "string", files, StartsWith("x", "a_")) == {0, 1, 3, 4, 5}
    assert skipped(kind, "string", files, StartsWith("x", "\\%")) == {0, 1, 2, 3, 5}


@BOTH
def test_conformance_02_not_equal_needs_a_file_of_one_value(kind: Kind) -> None:
    files = [[1, 3], [2, 2], [2, 3], [2, None], [None]]
    assert skipped(kind, "int", files, Compare("x", "!=", 2)) == {1, 3, 4}


@BOTH
def test_conformance_03_not_in_with_nulls(kind: Kind) -> None:
    files = [[1, None], [1, 2], [3, None], [None, None], [2]]
    assert skipped(kind, "int", files, none_of(1, 2)) == {0, 1, 3, 4}
    # NOT IN (1, NULL) is never true; an In without the null is weaker, and skips no match.
    assert skipped(kind, "int", files, none_of(1, None)) <= {0, 1, 2, 3, 4}
    assert skipped(kind, "int", files, one_of(1, None)) >= {2, 3, 4}
    assert skipped(kind, "int", files, one_of(None)) == {0, 1, 2, 3, 4}


@BOTH
def test_conformance_03_not_in_nothing_is_true_of_nulls(kind: Kind) -> None:
    assert skipped(kind, "int", [[None], [1], [1, None]], none_of()) == set()
    assert skipped(kind, "int", [[None], [1], [1, None]], one_of()) == {0, 1, 2}


@BOTH
def test_conformance_04_a_value_too_long_is_not_all_null(kind: Kind) -> None:
    long = "x" * 10_000
    files = [[long], [long, None], ["a"], [None]]
    assert not skipped(kind, "string", files, eq(long)) & {0, 1}
    assert not skipped(kind, "string", files, IsNull("x", negated=True)) & {0, 1}
    assert not skipped(kind, "string", files, StartsWith("x", "xxx")) & {0, 1}
    assert skipped(kind, "string", files, eq(long)) >= {2, 3}


@BOTH
@pytest.mark.parametrize("spark_type", ["float", "double"])
def test_conformance_05_nan_equals_itself_and_is_greatest(kind: Kind, spark_type: str) -> None:
    nan, inf = math.nan, math.inf
    files = [[nan], [nan, 1.0], [1.0, 2.0], [nan, None], [inf], [-inf, -nan]]
    with_nan = {0, 1, 3, 5}
    others = {2, 4}
    assert skipped(kind, spark_type, files, eq(nan)) == others
    assert skipped(kind, spark_type, files, one_of(nan, None)) == others
    assert skipped(kind, spark_type, files, Compare("x", ">", inf)) == others
    assert skipped(kind, spark_type, files, Compare("x", ">=", nan)) == others
    assert skipped(kind, spark_type, files, Compare("x", ">", nan)) == with_nan | others
    assert skipped(kind, spark_type, files, Compare("x", ">", 5.0)) == {2}
    assert skipped(kind, spark_type, files, Compare("x", "<", nan)) == {0, 3}
    assert skipped(kind, spark_type, files, Compare("x", "!=", nan)) == {0, 3}


@BOTH
@pytest.mark.parametrize("spark_type", ["float", "double"])
def test_conformance_06_zero_has_no_sign(kind: Kind, spark_type: str) -> None:
    files = [[-0.0], [0.0], [1.0], [-1.0]]
    for zero in (0.0, -0.0):
        assert skipped(kind, spark_type, files, eq(zero)) == {2, 3}
        assert skipped(kind, spark_type, files, one_of(zero)) == {2, 3}
        assert skipped(kind, spark_type, files, Compare("x", "<", zero)) == {0, 1, 2}
        assert skipped(kind, spark_type, files, Compare("x", "!=", zero)) == {0, 1}


@BOTH
def test_conformance_07_timestamps_keep_their_microseconds(kind: Kind) -> None:
    at = 1_700_000_000_000_999
    files = [[at], [at - 999], [at + 1], [-62_135_596_800_000_000], [253_402_300_799_999_999]]
    for spark_type in ("timestamp", "timestamp_ntz"):
        assert skipped(kind, spark_type, files, eq(at)) == {1, 2, 3, 4}
        assert skipped(kind, spark_type, files, Compare("x", ">", at)) == {0, 1, 3}
    dates = [[-719_162], [-141_428], [2_932_896], [0]]  # 0001, 1582-10-14, 9999
    assert skipped(kind, "date", dates, Compare("x", "<", 0)) == {2, 3}


def test_conformance_07_units_mix_and_zones_do_not() -> None:
    seconds, milli, micro = (
        pa.array([n], pa.timestamp(unit, "UTC"))
        for n, unit in ((1, "s"), (1_000, "ms"), (1_000_000, "us"))
    )
    assert len({normalised(a, a.type)[0].as_py() for a in (seconds, milli, micro)}) == 1
    names = {domain_of(pa.timestamp("us", zone)) for zone in ("UTC", "Asia/Tokyo", "+01:00")}
    assert len(names) == 1  # the session's zone is no part of the value
    assert domain_of(pa.timestamp("us")) not in names
    assert domain_of(pa.date32()) not in names
    assert domain_of(pa.timestamp("ns", "UTC")) is None


@BOTH
def test_conformance_08_decimals_beyond_a_double_and_beyond_64_bits(kind: Kind) -> None:
    near = [Decimal("99999999999999.9999"), Decimal("99999999999999.9998"), Decimal("-0.0001")]
    assert skipped(kind, "decimal(18,4)", [[d] for d in near], eq(near[0])) == {1, 2}
    assert skipped(kind, "decimal(18,4)", [[d] for d in near], Compare("x", "<", 0)) == {0, 1}
    most = Decimal("9" * 28 + "." + "9" * 10)
    past, last = (Decimal(2**64 - n).scaleb(-10) for n in (0, 1))
    files = [[most], [most.copy_negate()], [Decimal(0)], [past], [last]]
    assert skipped(kind, "decimal(38,10)", files, eq(most)) == {1, 2, 3, 4}
    assert skipped(kind, "decimal(38,10)", files, Compare("x", "<", Decimal(0))) == {0, 2, 3, 4}
    over = Compare("x", ">", last)
    assert skipped(kind, "decimal(38,10)", files, over) == {1, 2, 4}


def test_conformance_08_two_scales_are_two_domains() -> None:
    domains = [domain_of(pa.decimal128(p, s)) for p, s in ((9, 2), (18, 2), (9, 3), (38, 2))]
    assert domains[0] == domains[1]
    assert len(set(map(str, domains))) == 3


@BOTH
@pytest.mark.parametrize("spark_type", ["tinyint", "smallint", "int", "bigint"])
def test_conformance_09_literals_of_another_width(kind: Kind, spark_type: str) -> None:
    index = Index.of(kind, spark_type, [[-128], [127], [0]])
    assert index.skipped_raw(eq(127)) == {0, 2}
    assert index.skipped_raw(eq(2**40)) == {0, 1, 2}  # a bigint the column cannot hold
    assert index.skipped_raw(In("x", pa.array([127, 2**40]))) == {0, 2}
    assert index.skipped_raw(Compare("x", "<", 2**63 - 1)) == set()
    for beyond in (2**63, -(2**63) - 1, 1.5, "1", True):
        assert index.skipped_raw(Compare("x", "!=", beyond)) == set()
        assert index.skipped_raw(Compare("x", "<", beyond)) == set()


TEXTS = ["", " ", "a", "a ", "a\0", "é", "e\u0301", "\ud7ff", "\ue000", "\uffff", "\U00010000"]
TEXTS += ["'", '"', "\\", "\n", "'; DROP TABLE t; --", '{"a": 1}', ".*", "A", "\U0010ffff"]


@BOTH
def test_conformance_10_text_is_its_bytes(kind: Kind) -> None:
    files: list[FILE] = [[text] for text in TEXTS]
    for number, text in enumerate(TEXTS):
        everything_else = set(range(len(TEXTS))) - {number}
        assert skipped(kind, "string", files, eq(text)) == everything_else
        below = {n for n, other in enumerate(TEXTS) if other.encode() < text.encode()}
        not_below = set(range(len(TEXTS))) - below
        assert skipped(kind, "string", files, Compare("x", "<", text)) == not_below
    # UTF-16 would order these the other way round
    assert skipped(kind, "string", [["\U00010000"]], Compare("x", ">", "\uffff")) == set()


@pytest.mark.parametrize("spark_type", ["char(3)", "string collate UTF8_LCASE", "variant"])
def test_conformance_10_padding_and_collations_are_refused(spark_type: str) -> None:
    assert arrow_type(spark_type) is None


def test_conformance_12_cut_bounds_are_bounds_not_values() -> None:
    same = "x" * 512
    files = [[same + "b"], [same + "d"], [same], ["y"]]
    assert skipped(MinMax, "string", files, eq(same)) == {3}
    for value in (same + "a", same + "b", same + "e"):
        assert skipped(MinMax, "string", files, eq(value)) == {2, 3}
    assert skipped(MinMax, "string", files, Compare("x", ">", same + "c")) == {2}
    assert skipped(MinMax, "string", files, Compare("x", "!=", same + "b")) == set()
    assert skipped(MinMax, "string", files, none_of(same, same + "b")) == {2}
    # The cut must not split a character, nor be rounded up where nothing is above it.
    files = [["é" * 300], ["\U0010ffff" * 200], ["z"]]
    assert skipped(MinMax, "string", files, eq("é" * 300)) == {2}
    assert skipped(MinMax, "string", files, eq("\U0010ffff" * 200)) == {0, 2}
    assert skipped(MinMax, "binary", [[b"\xff" * 700], [b"a"]], eq(b"\xff" * 700)) == {1}


def test_bounds_keep_what_tells_values_with_a_long_prefix_apart() -> None:
    site = "https://example.com/" + "catalogue/" * 8
    files = [[f"{site}{n}/a", f"{site}{n}/{'z' * 90}"] for n in range(10)]
    assert skipped(MinMax, "string", files, eq(f"{site}7/b")) == set(range(10)) - {7}
    assert skipped(MinMax, "string", files, Compare("x", "<", f"{site}3")) == set(range(3, 10))
    for sketch in Index.of(MinMax, "string", files).sketches:
        assert sketch is not None
        assert len(sketch["high"].encode()) <= len(site) + 2 + 64
    # Up to the last code point, and where the first byte of a character is common and no more.
    odd = [["é\U0010ffff" * 40, "é\U0010ffff" * 40 + "\U0010ffff"], ["\u00e9", "\u00e8"]]
    for file in odd:
        for value in file:
            assert skipped(MinMax, "string", [file], eq(value)) == set()
            assert skipped(MinMax, "string", [file], Compare("x", ">=", value)) == set()


# Nulls and absence


@BOTH
def test_conformance_13_is_null_counts_and_is_not_inverted(kind: Kind) -> None:
    files = [[None, None], [1, None], [1], []]
    assert skipped(kind, "int", files, IsNull("x")) == {2, 3}
    assert skipped(kind, "int", files, IsNull("x", negated=True)) == {0, 3}


@BOTH
def test_conformance_13_an_unknown_null_count_is_no_zero(kind: Kind) -> None:
    index = Index.of(kind, "int", [[1], [None]])
    unknown = replace(index, sketches=(*index.sketches, None))
    for leaf in (IsNull("x"), IsNull("x", negated=True), eq(7), Compare("x", "!=", 1)):
        assert 2 not in unknown.skipped(leaf)
    assert unknown.skipped(eq(7)) == {0, 1}


@BOTH
def test_conformance_15_only_nulls_and_no_rows(kind: Kind) -> None:
    files = [[None, None], []]
    for leaf in (eq(0), Compare("x", "!=", 0), Compare("x", "<", 0), none_of(1), one_of(0)):
        assert skipped(kind, "int", files, leaf) == {0, 1}
    assert skipped(kind, "int", files, IsNull("x")) == {1}


def test_conformance_16_over_the_cap_is_unknown_not_empty() -> None:
    index = Index.of(ValueList, "int", [[1, 2, None], [1, 2, 3], [None]], limit=2)
    assert ["values" in (sketch or ()) for sketch in index.sketches] == [True, False, True]
    for leaf in (eq(2), IsNull("x", negated=True), Compare("x", "!=", 1), none_of(1, 2)):
        assert 1 not in index.skipped(leaf)
    assert index.skipped(eq(9)) == {0, 1, 2}, "the second by its bounds"
    assert index.skipped(IsNull("x")) == {1}
    long = Index.of(ValueList, "string", [["a", "x" * 9_000], ["b"]])
    assert long.skipped(eq("x" * 9_000)) == {1}
    assert long.skipped(eq("y")) == {0, 1}


def test_conformance_16_over_the_cap_in_the_last_part() -> None:
    def cut(file: FILE) -> list[FILE]:
        return [[value] for value in file]

    index = Index.of(ValueList, "int", [[1, 1, 2, 2], [1, 5, 1, 9, 1]], cut=cut, limit=2)
    assert index.skipped(eq(7)) == {0}
    assert index.skipped(eq(10)) == {0, 1}


@BOTH
def test_conformance_17_null_safe_equality(kind: Kind) -> None:
    files = [[5], [None], [6], [5, None]]
    null_safe = And((eq(5), IsNull("x", negated=True)))  # x <=> 5, never null
    assert skipped(kind, "int", files, null_safe) == {1, 2}
    assert skipped(kind, "int", files, IsNull("x")) == {0, 2}  # x <=> NULL
    # x IS DISTINCT FROM 5; COALESCE(x, 0) = 0 and x = x are for nobody to answer
    assert skipped(kind, "int", files, negate(null_safe)) == {0}
    assert skipped(kind, "int", files, And((Unknown("COALESCE"), eq(5)))) == {1, 2}


# Predicates


@BOTH
def test_conformance_19_negation_goes_to_the_leaves(kind: Kind) -> None:
    files = [[1], [5], [9], [None]]
    between = And((Compare("x", ">=", 4), Compare("x", "<=", 6)))
    either = Or((eq(1), eq(5)))
    assert skipped(kind, "int", files, negate(between)) == {1, 3}
    assert skipped(kind, "int", files, negate(negate(between))) == {0, 2, 3}
    assert skipped(kind, "int", files, negate(either)) == {0, 1, 3}
    assert skipped(kind, "int", files, negate(And((eq(1), Unknown("f"))))) == set()
    assert skipped(kind, "int", files, negate(Or((eq(1), Unknown("f"))))) == {0, 3}
    assert skipped(kind, "int", [[1, 3]], Compare("x", "!=", 2)) == set()


@BOTH
@pytest.mark.parametrize("count", [0, 1, 11, 10_000, 1_000_000])
def test_conformance_21_in_lists_of_any_length(kind: Kind, count: int) -> None:
    files = [[-1], [0, 2], [1, 3], [2_000_001], [None]]
    index = Index.of(kind, "bigint", files)
    even = pa.array(np.arange(count) * 2)
    keys = In.of("x", pa.concat_arrays([even, even, pa.nulls(1, pa.int64())]))
    expected = {0, 2, 3, 4} if count else {0, 1, 2, 3, 4}
    if kind is MinMax and count > 1:
        expected -= {2}  # 2 lies between 1 and 3
    assert index.skipped_raw(keys) == expected


@BOTH
@pytest.mark.parametrize(
    "join",
    [lambda legs: Or(tuple(legs)), lambda legs: _chain(legs), lambda legs: _chain(legs[::-1])],
    ids=["flat", "left", "right"],
)
def test_conformance_21_an_or_of_2000_legs(
    kind: Kind, join: Callable[[list[Predicate]], Predicate]
) -> None:
    whole = join([eq(n) for n in range(2_000)])
    assert skipped(kind, "int", [[-1], [1_999], [2_000]], whole) == {0, 2}
    below = Or((whole, Compare("x", "<", 0)))
    assert skipped(kind, "int", [[-1], [1_999], [2_000]], below) == {2}


def _chain(legs: list[Predicate]) -> Predicate:
    whole = legs[0]
    for leg in legs[1:]:
        whole = Or((whole, leg))
    return whole


# Found while designing


def test_conformance_41_widened_decimals_do_not_share_a_domain() -> None:
    assert domain_of(pa.decimal128(10, 2)) != domain_of(pa.decimal128(14, 4))
    assert domain_of(pa.decimal128(10, 2)) == domain_of(pa.decimal128(12, 2))
    assert domain_of(pa.decimal128(18, 2)) != domain_of(pa.decimal128(19, 2))
    old = normalised([Decimal("1.50")], pa.decimal128(10, 2))
    new = normalised([Decimal("1.50")], pa.decimal128(14, 4))
    assert old != new  # why they must not


@BOTH
def test_conformance_44_negated_null_safe_equality_and_in_with_null(kind: Kind) -> None:
    files = [[5], [None], [6], [5, None], []]
    not_five = negate(And((eq(5), IsNull("x", negated=True))))  # NOT (x <=> 5)
    assert skipped(kind, "int", files, not_five) == {0, 4}
    assert skipped(kind, "int", files, negate(IsNull("x"))) == {1, 4}  # NOT (x <=> NULL)
    # NOT (x IN (5, NULL)) is never true; whatever is kept is read for nothing, never lost.
    assert skipped(kind, "int", files, negate(one_of(5, None))) >= {0, 4}
    # NOT (x LIKE 'a%z'), after LIKE was widened to its prefix
    widened = And((StartsWith("x", "a"), Unknown("%z")))
    assert skipped(kind, "string", [["ab"], ["b"], ["az"]], negate(widened)) == set()
    assert skipped(kind, "string", [["ab"], ["b"], ["az"]], widened) == {1}
