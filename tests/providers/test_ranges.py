"""RANGES: gaps it keeps, what it never loses, how little it holds, and its parameters."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from providers import Between, Column, Compare, In, IsNull, MinMax, Ranges, StartsWith
from providers.errors import DefinitionError
from providers.intervals import MOST, SPARE, IntervalsCollector
from providers.values import arrow_type, domain_of
from tests.providers.spark_oracle import FILE, Index, is_text, leaves_over, matches

LONG = "\u00e9" * 300  # 600 bytes: longer than an end may be


def index(spark_type: str, files: Sequence[FILE], n: int = 8, parts: int = 1) -> Index:
    return Index.of(
        Ranges, spark_type, files, cut=lambda file: [file[i::parts] for i in range(parts)], n=n
    )


def value(rng: random.Random, spark_type: str) -> Any:
    if spark_type == "double":
        edges = [0.0, -0.0, float("nan"), float("inf"), float("-inf"), 5e-324, 1e308, -1e308]
        return rng.choice([*edges, rng.uniform(-3, 3), rng.uniform(100, 103)])
    if spark_type == "bigint":
        edges = [-(2**63), 2**63 - 1, 0]
        return rng.choice([*edges, rng.randrange(50), 10**12 + rng.randrange(50)])
    text = rng.choice(["", "https://a/", "https://b/", LONG, LONG + "a", "\U0010ffff"])
    text += "".join(rng.choices("ab\u00e9\U0010ffff\0", k=rng.randrange(4)))
    return text if spark_type == "string" else text.encode() + rng.choice([b"", b"\xff"])


@pytest.mark.parametrize("spark_type", ["bigint", "double", "string", "binary"])
def test_no_row_is_lost_and_nothing_that_bounds_prune(spark_type: str) -> None:
    rng = random.Random(spark_type)
    more = 0
    for _ in range(6):
        files: list[FILE] = [
            [value(rng, spark_type) for _ in range(rng.choice([2, 9, 60]))] for _ in range(5)
        ]
        kept = index(spark_type, files, n=rng.choice([2, 3, 8]), parts=rng.choice([1, 3, 7]))
        bounds = Index.of(MinMax, spark_type, files)
        for _ in range(4):
            asked, keys = value(rng, spark_type), [value(rng, spark_type) for _ in range(3)]
            prefix = asked[: rng.randrange(len(asked) + 1)] if is_text(spark_type) else None
            for leaf in leaves_over(asked, keys, text=is_text(spark_type), prefix=prefix):
                skipped = kept.skipped(leaf)
                lost = {i for i in skipped if matches(leaf, files[i])}
                assert not lost, (leaf, [(files[i], kept.sketches[i]) for i in lost])
                less = bounds.skipped(leaf) - skipped
                # The end of a text is cut shorter than that of bounds.
                assert not less or is_text(spark_type), (leaf, less)
                more += len(skipped - bounds.skipped(leaf))
    assert more > 40


def test_the_widest_gaps_are_kept_whatever_the_parts() -> None:
    clusters = [range(a, a + 400) for a in (-(2**62), 0, 10_000, 2**62)]
    file: FILE = [value for cluster in clusters for value in cluster]
    random.Random(3).shuffle(file)
    for parts in (1, 4, 9):
        kept = index("bigint", [file], n=4, parts=parts)
        (sketch,) = kept.sketches
        assert sketch is not None
        ends = [(sketch[f"low{i}"], sketch[f"high{i}"]) for i in range(4)]
        assert ends == [(c[0], c[-1]) for c in clusters]
        for leaf in (
            Compare("x", "=", 5_000),
            In("x", [-5, 400, 9_999]),
            Between("x", 400, 9_999),
            Between("x", 399, 10_000, includes_low=False, includes_high=False),
        ):
            assert kept.skipped_raw(_raw(leaf)) == {0}
        assert kept.skipped_raw(Between("x", 399, 9_999)) == set()


def test_gaps_of_floats_are_as_wide_as_their_numbers() -> None:
    """By their bits, the numbers near 0 would be further apart than 1 and 1,000."""
    file: FILE = [0.0, 1e-300, 1e-9, 1.0, 1000.0, 1001.0]
    assert index("double", [file], n=2).skipped(Compare("x", "=", 500.0)) == {0}


def test_gaps_of_text_are_found_past_what_all_begin_with() -> None:
    start = "https://example.org/path/" * 3
    file: FILE = [f"{start}{host}/{page}" for host in ("a", "q", "z") for page in range(50)]
    kept = index("string", [file], n=3)
    assert kept.skipped(Compare("x", "=", f"{start}b/1")) == {0}
    assert kept.skipped(StartsWith("x", f"{start}r")) == {0}
    assert kept.skipped(StartsWith("x", f"{start}q/4")) == set()


def test_what_is_excluded_may_be_several_values() -> None:
    kept = index("bigint", [[1, 9, 9], [1, 5, 9], [None], []])
    assert kept.skipped(In("x", [1, 9], negated=True)) == {0, 2, 3}
    assert Index.of(MinMax, "bigint", [[1, 9]]).skipped(In("x", [1, 9], negated=True)) == set()
    assert kept.skipped(IsNull("x")) == {0, 1, 3}
    assert kept.skipped(IsNull("x", negated=True)) == {2, 3}


def test_a_long_text_with_nothing_above_it_is_unknown() -> None:
    kept = index("string", [["a", "\U0010ffff" * 200], ["b"]])
    assert kept.sketches[0] is None
    assert kept.skipped(Compare("x", "=", "q")) == {1}


@pytest.mark.parametrize("spark_type", ["bigint", "string"])
def test_little_is_held_while_a_file_is_read(spark_type: str) -> None:
    domain = domain_of(arrow_type(spark_type))
    assert domain is not None
    collector, n = IntervalsCollector(domain, 4), 4
    rng = random.Random(1)
    for _ in range(20):
        numbers = [rng.randrange(10**9) for _ in range(3_000)]
        texts = [f"{number:09}" + "x" * 600 for number in numbers]
        collector.add(pa.array(numbers if spark_type == "bigint" else texts))
        assert len(collector._ends) <= 2 * SPARE * n
    kept = collector.finish()
    assert kept is not None
    assert len(kept) == 2 * n


def test_its_parameter() -> None:
    domain = domain_of(pa.int32())
    assert domain is not None
    column = (Column("x", domain),)
    assert Ranges.of(column, {"n": 3}).fields()[-2].name == "high2"
    for n in (1, MOST + 1, "3", True, 2.5):
        with pytest.raises(DefinitionError, match="n of 2 to 32 intervals"):
            Ranges.of(column, {"n": n})
    with pytest.raises(DefinitionError, match="takes n, not limit"):
        Ranges.of(column, {"limit": 3})


def _raw(leaf: Any) -> Any:
    return In.of("x", pa.array(leaf.values, pa.int64())) if isinstance(leaf, In) else leaf
