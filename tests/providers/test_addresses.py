"""ADDRESSES: what of text it knows, what it never loses, and that other texts do not spoil it."""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from providers import Addresses, Column, Compare, In, IsNull, Ranges, StartsWith
from providers.errors import DefinitionError
from providers.predicate import Leaf
from providers.values import domain_of
from tests.providers.spark_oracle import FILE, Index, leaves_over, matches

JUNK = ["", "-", "unknown", "10.1", "10.1.", "010.1.2.3", "10.1.2.3 ", "10.1.2.3:80", "256.1.1.1"]
JUNK += ["10.1.2.3\n", "1.2.3.4.5", "10.1.foo", "fe80:", "2001:db8:zz", "::1::", "\u0661.1.1.1"]


def index(files: Sequence[FILE], parts: int = 1, **params: Any) -> Index:
    return Index.of(
        Addresses, "string", files, cut=lambda f: [f[i::parts] for i in range(parts)], **params
    )


def text(rng: random.Random) -> str:
    if rng.random() < 0.15:
        return rng.choice(JUNK)
    if rng.random() < 0.3:
        groups = [rng.choice([0, 1, 0xDB8, 0x2001, 0xFFFF]) for _ in range(8)]
        address = ipaddress.IPv6Address(b"".join(g.to_bytes(2, "big") for g in groups))
        mapped = f"::ffff:10.{rng.randrange(3)}.2.3"
        return rng.choice([str(address), address.exploded, str(address).upper(), mapped])
    octets = rng.choice([10, 100, 192, 25]), rng.choice([0, 1, 16, 168]), rng.randrange(256)
    return ".".join(map(str, (*octets, rng.choice([0, 7, 255]))))


def test_no_row_is_lost() -> None:
    rng = random.Random(5)
    skipped_in_all = 0
    for _ in range(20):
        files: list[FILE] = [[text(rng) for _ in range(rng.choice([1, 4, 40]))] for _ in range(5)]
        files += [[None], [], [None, "10.1.2.3"]]
        kept = index(files, parts=rng.choice([1, 3]), n=rng.choice([2, 4, 16]))
        for _ in range(6):
            asked = rng.choice(rng.choice(files[:5])) or "x"
            prefix = asked[: rng.randrange(len(asked) + 1)]
            keys = [text(rng) for _ in range(3)]
            for leaf in leaves_over(asked, keys, text=True, prefix=prefix):
                skipped = kept.skipped(leaf)
                lost = {i for i in skipped if matches(leaf, files[i])}
                assert not lost, (leaf, [(files[i], kept.sketches[i]) for i in lost])
                skipped_in_all += len(skipped)
    assert skipped_in_all > 1_000


@pytest.mark.parametrize(
    ("leaf", "kept"),
    [
        (StartsWith("x", "10.1."), {0, 4}),
        (StartsWith("x", "10."), {0, 1, 2, 4}),
        (StartsWith("x", "10.1.2.3:"), set()),  # none is of 10.1.2.0/24
        (StartsWith("x", "2001:db8:"), {3}),
        (StartsWith("x", "2001:0DB8:1"), {3}),
        (StartsWith("x", "un"), {0, 1, 2, 3, 4, 5}),  # no part of an address is whole
        (Compare("x", "=", "10.20.0.1"), {2}),
        (Compare("x", "=", "10.3.0.1"), set()),
        (Compare("x", "=", "unknown"), {4}),
        (Compare("x", "=", "n/a"), set()),
        (IsNull("x"), {5}),
        (IsNull("x", negated=True), {0, 1, 2, 3, 4}),
        (StartsWith("x", "10.1.", negated=True), {0, 1, 2, 3, 4, 5}),
    ],
)
def test_networks_are_told_apart_where_text_is_not(leaf: Leaf, kept: set[int]) -> None:
    """By text, 10.20.0.1 is between 10.199.0.1 and 10.3.0.1."""
    files: list[FILE] = [
        ["10.1.0.1", "10.1.200.7"],
        ["10.199.0.1", "10.2.255.1"],
        ["10.20.0.1"],
        ["2001:db8::1", "2001:DB8:1::", "2001:db8:ffff::ffff"],
        ["10.1.0.1", "-", "unknown"],
        [None],
    ]
    assert {*range(6)} - index(files).skipped(leaf) == kept


def test_in_takes_addresses_and_other_texts() -> None:
    kept = index([["10.0.0.1"], ["10.0.0.9", "-"], ["::a"], ["zz"]])
    assert kept.skipped(In("x", ["10.0.0.1", "::A", "-"])) == {3}
    assert kept.skipped(In("x", ["10.0.0.2", "10.0.0.3"])) == {0, 1, 2, 3}
    assert kept.skipped(In("x", ["a", "zz"])) == {0, 1, 2}


def test_it_is_for_text() -> None:
    domain = domain_of(pa.int32())
    assert domain is not None
    with pytest.raises(DefinitionError, match="x has values of type integer"):
        Addresses.of((Column("x", domain),), {})
    with pytest.raises(DefinitionError, match="ADDRESSES takes an n of 2 to 32"):
        index([], n=1)


def test_gaps_are_finer_than_those_of_text() -> None:
    """100 addresses of two networks beside each other by text, and not by number."""
    files: list[FILE] = [[f"10.{net}.{i}.1" for net in (1, 19) for i in range(100)]]
    asked = StartsWith("x", "10.18.")
    assert index(files, n=2).skipped(asked) == {0}
    assert Index.of(Ranges, "string", files, n=2).skipped(Compare("x", "=", "10.1.300")) == set()
