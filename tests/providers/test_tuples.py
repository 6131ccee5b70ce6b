"""Tuples are equal where all their values are, and null where one is; of every type."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from providers.tuples import decode_tuple, domain_of_type, encode_tuples, part_types
from providers.values import arrow_type, encode
from tests.providers.spark_oracle import VALUES, order


@st.composite
def columns(draw: st.DrawFn) -> tuple[list[str], list[list[object]]]:
    """Two or three types, and rows of few values, so that many are equal."""
    types = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=2, max_size=3))
    pools = [[None, *draw(st.lists(VALUES[t], min_size=1, max_size=3))] for t in types]
    rows = draw(st.lists(st.tuples(*map(st.sampled_from, pools)), max_size=8))
    return types, [list(column) for column in zip(*rows, strict=True)] or [[] for _ in types]


@given(columns())
def test_equal_bytes_are_equal_values(given: tuple[list[str], list[list[object]]]) -> None:
    types, parts = given
    arrays = [encode(pa.array(p, arrow_type(t))) for t, p in zip(types, parts, strict=True)]
    found = encode_tuples(arrays).to_pylist()
    rows = list(zip(*parts, strict=True))
    assert [value is None for value in found] == [None in row for row in rows]
    whole = [row for row in rows if None not in row]
    values = [value for value in found if value is not None]
    known = [tuple(map(order, row)) for row in whole]  # type: ignore[arg-type]
    for i, one in enumerate(values):
        for j, other in enumerate(values):
            assert (one == other) == (known[i] == known[j])
    normal = [row for row in zip(*(a.to_pylist() for a in arrays), strict=True) if None not in row]
    assert [decode_tuple(value, types) for value in values] == normal


def test_a_slice_of_a_column_is_that_slice() -> None:
    numbers, texts = pa.array([1, 2, None, 4]), pa.array(["a", "", "c", None])
    whole = encode_tuples([numbers, texts])
    assert encode_tuples([numbers.slice(1), texts.slice(1)]).equals(whole.slice(1))


def test_the_domain_tells_types_apart() -> None:
    pairs = [("int", "bigint"), ("float", "double"), ("decimal(5,2)", "decimal(9,2)")]
    for one, other in pairs:
        assert domain_of_type(f"tuple<{one}, string>") == domain_of_type(f"tuple<{other}, string>")
    apart = ["int, string", "date, string", "string, int", "decimal(5,1), string", "binary, int"]
    assert len({domain_of_type(f"tuple<{types}>") for types in apart}) == len(apart)
    assert domain_of_type("tuple<int, string collate UTF8_LCASE>") is None


def test_no_tuple_is_in_a_tuple() -> None:
    assert domain_of_type("tuple<int, tuple<int, int>>") is None
    assert domain_of_type("tuple<int, " + "tuple<" * 10_000 + "int" + ">" * 10_001) is None
    assert len(part_types(f"tuple<int, {'(' * 100_000}>")) < 3
