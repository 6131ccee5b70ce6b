"""Normalised values order and equal as Spark compares; bounds are cut and rounded soundly."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from providers.values import Domain, arrow_type, domain_of, encode, successor, truncate
from tests.providers.spark_oracle import VALUES, order

EVERY_TYPE = pytest.mark.parametrize("spark_type", VALUES)


def _type(spark: str) -> pa.DataType:
    found = arrow_type(spark)
    assert found is not None
    return found


def _domain(type: pa.DataType) -> Domain:
    found = domain_of(type)
    assert found is not None
    return found


@EVERY_TYPE
def test_order_and_equality_are_those_of_spark(spark_type: str) -> None:
    @given(st.lists(VALUES[spark_type], min_size=2, max_size=8))
    def run(values: list[Any]) -> None:
        encoded = encode(pa.array(values, _type(spark_type)))
        assert encoded.type == _domain(_type(spark_type)).stored
        # Python's order of int and bytes, of str by code point; Arrow's must be the same.
        python, ranks = encoded.to_pylist(), pc.rank(encoded, tiebreaker="dense").to_pylist()
        for i, a in enumerate(values):
            for j, b in enumerate(values):
                assert (order(a) < order(b)) == (python[i] < python[j]) == (ranks[i] < ranks[j])
                assert (order(a) == order(b)) == (python[i] == python[j]) == (ranks[i] == ranks[j])

    run()


@EVERY_TYPE
def test_slices_chunks_and_nulls_encode_like_their_values(spark_type: str) -> None:
    one_by_one = st.none() | VALUES[spark_type]

    @given(st.lists(one_by_one, max_size=12), st.integers(0, 12), st.integers(0, 12))
    def run(values: list[Any], start: int, stop: int) -> None:
        whole = pa.array(values, _type(spark_type))
        expected = [encode(pa.array([v], whole.type))[0].as_py() for v in values]
        assert encode(whole).to_pylist() == expected
        assert encode(whole.slice(start, stop)).to_pylist() == expected[start : start + stop]
        chunks = pa.chunked_array([whole.slice(0, start), whole.slice(start)], whole.type)
        assert isinstance(encode(chunks), pa.Array)
        assert encode(chunks).to_pylist() == expected

    run()


@EVERY_TYPE
def test_no_values_encode_to_none(spark_type: str) -> None:
    stored = _domain(_type(spark_type)).stored
    empty = pa.array([], _type(spark_type))
    for nothing in (empty, pa.nulls(3, empty.type).slice(3), pa.chunked_array([], empty.type)):
        assert encode(nothing).equals(pa.array([], stored))
    assert encode(pa.nulls(3, empty.type)).equals(pa.nulls(3, stored))


@EVERY_TYPE
def test_what_lies_beneath_a_null_is_not_seen(spark_type: str) -> None:
    @settings(max_examples=5)
    @given(VALUES[spark_type])
    def run(value: Any) -> None:
        array = pa.array([value, value], _type(spark_type))
        hidden = pc.if_else(pa.array([False, True]), array, pa.scalar(None, array.type))
        assert encode(hidden).to_pylist()[0] is None

    run()


# Types


def test_integers_share_a_domain_and_so_do_floats() -> None:
    assert len({_domain(_type(t)).name for t in ("tinyint", "smallint", "int", "bigint")}) == 1
    assert _domain(pa.float32()) == _domain(pa.float64())
    for narrow in (pa.int8(), pa.int16(), pa.int32()):
        assert encode(pa.array([-7, 7], narrow)).equals(encode(pa.array([-7, 7], pa.int64())))
    halves = [0.5, -0.5, math.inf, math.nan]
    assert encode(pa.array(halves, pa.float32())).equals(encode(pa.array(halves)))


def test_what_does_not_compare_by_value_is_another_domain() -> None:
    scalars = ["int", "boolean", "double", "date", "timestamp", "timestamp_ntz", "string", "binary"]
    decimals = ["decimal(9,2)", "decimal(9,3)", "decimal(38,2)", "decimal(38,3)"]
    names = [_domain(_type(spark)).name for spark in (*scalars, *decimals)]
    assert len(set(names)) == len(names)
    assert _domain(_type("decimal(9,2)")) == _domain(_type("decimal(18,2)"))


REFUSED = """
char(3); string collate UTF8_LCASE; interval day to second; array<int>; map<int,int>;
struct<a:int>; variant; void; decimal(10,-2)
"""


@pytest.mark.parametrize("spark", REFUSED.replace("\n", " ").strip().split("; "))
def test_spark_types_that_no_index_can_be_sound_on(spark: str) -> None:
    assert arrow_type(spark) is None


WITHOUT_DOMAIN = (
    pa.timestamp("ns"),
    pa.timestamp("ns", "UTC"),
    pa.date64(),
    pa.time64("us"),
    pa.duration("us"),
    pa.float16(),
    pa.decimal256(60, 2),
    pa.null(),
    pa.binary(3),
    pa.list_(pa.int32()),
    pa.struct([("a", pa.int32())]),
    pa.dictionary(pa.int32(), pa.time64("us")),
)


@pytest.mark.parametrize("type", WITHOUT_DOMAIN, ids=str)
def test_arrow_types_without_a_domain(type: pa.DataType) -> None:
    assert domain_of(type) is None
    with pytest.raises(pa.ArrowInvalid, match="no domain"):
        encode(pa.nulls(1, type))


@pytest.mark.parametrize(
    ("array", "plain"),
    [
        (pa.array([200, None], pa.uint8()), pa.array([200, None], pa.int16())),
        (pa.array([2**32 - 1, 0], pa.uint32()), pa.array([2**32 - 1, 0], pa.int64())),
        (
            pa.array([2**64 - 1, None, 0], pa.uint64()),
            pa.array([Decimal(2**64 - 1), None, Decimal(0)], pa.decimal128(20, 0)),
        ),
        (pa.array(["b", None, "a"]).dictionary_encode(), pa.array(["b", None, "a"])),
        (
            pa.DictionaryArray.from_arrays(
                pa.array([1, None, 0], pa.uint8()), pa.array(["a", "b"], pa.string_view())
            ),
            pa.array(["b", None, "a"]),
        ),
    ],
    ids=lambda array: str(array.type),
)
def test_encode_equal_values_of_another_layout_are_equal(array: pa.Array, plain: pa.Array) -> None:
    assert domain_of(array.type) == domain_of(plain.type)
    assert encode(array).equals(encode(plain))
    assert encode(array.slice(1)).equals(encode(plain.slice(1)))
    chunked = pa.chunked_array([array, array.slice(1)])
    assert encode(chunked).equals(pa.concat_arrays([encode(plain), encode(plain.slice(1))]))
    assert len(encode(pa.chunked_array([], array.type))) == 0


# Single types


def test_every_nan_is_one_value_above_infinity() -> None:
    bits = [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001, 0xFFF0000000000001]
    nans = np.array([*bits, 0x7FFFFFFFFFFFFFFF], np.uint64).view(np.float64)
    encoded = encode(pa.array(nans))
    assert len(encoded.unique()) == 1
    assert encoded[0].as_py() > encode(pa.array([math.inf]))[0].as_py()
    signalling = pa.array(np.array([0x7F800001], np.uint32).view(np.float32))
    assert encode(signalling)[0] == encoded[0]


def test_zero_has_no_sign_and_the_least_floats_do_not_melt_into_it() -> None:
    tiny = struct.unpack("<d", struct.pack("<Q", 1))[0]
    values = encode(pa.array([-tiny, -0.0, 0.0, tiny])).to_pylist()
    assert values[0] < values[1] == values[2] < values[3]


@pytest.mark.parametrize("zone", [None, "UTC", "+05:30"])
def test_timestamps_of_any_unit_are_microseconds(zone: str | None) -> None:
    for unit, count in (("s", -62_135_596_800), ("ms", -62_135_596_800_000), ("us", -1)):
        factor = {"s": 10**6, "ms": 10**3, "us": 1}[unit]
        array = pa.array([count, None, 1], pa.timestamp(unit, zone))
        assert encode(array).to_pylist() == [count * factor, None, factor]
    for unit in ("s", "ms"):
        with pytest.raises(pa.ArrowInvalid):  # past the last microsecond
            encode(pa.array([2**62], pa.timestamp(unit, zone)))


def test_decimals_are_their_unscaled_number() -> None:
    values = [Decimal("-1.50"), None, Decimal("0.01"), Decimal("9999999.99")]
    encoded = encode(pa.array(values, pa.decimal128(9, 2)))
    assert encoded.to_pylist() == [-150, None, 1, 999_999_999]
    most = 10**38 - 1
    wide = encode(pa.array([Decimal(-most), Decimal(0), Decimal(most)], pa.decimal128(38, 0)))
    biased = [(n + 2**127).to_bytes(16, "big") for n in (-most, 0, most)]
    assert wide.to_pylist() == biased


def test_text_that_is_not_utf8_raises() -> None:
    for data in (b"\xff", b"a\xc3", b"\xed\xa0\x80"):  # the last is half of a surrogate pair
        for text, raw in ((pa.string(), pa.binary()), (pa.large_string(), pa.large_binary())):
            broken = pa.array([b"fine", data], raw).view(text)
            with pytest.raises(pa.ArrowInvalid, match="UTF8"):
                encode(broken)
            with pytest.raises(pa.ArrowInvalid, match="UTF8"):
                encode(pa.chunked_array([broken.slice(1)]))
            assert encode(broken.slice(0, 1)).to_pylist() == ["fine"]


# Cutting and rounding


TEXT, BYTES = VALUES["string"], VALUES["binary"]


@given(TEXT | BYTES, TEXT | BYTES, TEXT | BYTES)
def test_successor_is_the_least_value_above_a_prefix(prefix: Any, tail: Any, other: Any) -> None:
    assume(type(prefix) is type(tail) is type(other))
    after = successor(prefix)
    if after is None:
        assert not prefix.strip("\U0010ffff" if isinstance(prefix, str) else b"\xff")
        assert order(other).startswith(order(prefix)) or order(other) < order(prefix)
        return
    assert order(prefix + tail) < order(after)
    if isinstance(after, str):
        after.encode()  # no half of a surrogate pair
    # Nothing lies between: what is not below `after` neither starts with the prefix nor precedes
    # it, and what is below and not before the prefix starts with it.
    if not order(other).startswith(order(prefix)):
        assert (order(other) < order(prefix)) != (order(other) >= order(after))


@given(TEXT | BYTES, st.integers(0, 80))
def test_truncate_keeps_a_lower_bound_within_the_limit(value: Any, limit: int) -> None:
    cut = truncate(value, limit)
    assert order(value).startswith(order(cut))
    assert len(order(cut)) <= limit
    assert len(order(cut)) > limit - 4 or cut == value  # no more than one character too short
    above = successor(cut)
    assert above is None or order(value) < order(above)


@pytest.mark.parametrize("value", [None, 0, -(2**63)])
def test_truncate_leaves_numbers_alone(value: int | None) -> None:
    assert truncate(value, 1) == value


def test_successor_steps_over_the_surrogates() -> None:
    assert successor("a\ud7ff") == "a\ue000"
    assert successor("a\U0010ffff\U0010ffff") == "b"
    assert successor("\U0010ffff") is None
    assert successor("\uffff") == "\U00010000"
    assert successor("") is None
    assert successor(b"") is None
    assert successor(b"\xff\xff") is None
    assert successor(b"a\xfe\xff") == b"a\xff"
