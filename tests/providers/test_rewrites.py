"""What each kind makes of each leaf, as golden pairs in `rewrites.txt`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from providers import Column, IndexPredicate
from providers.index_predicate import (
    AllOf,
    AlwaysFalse,
    BitsSet,
    Contains,
    ContainsOther,
    ContainsRange,
    FieldCompare,
    NotWithin,
    Overlaps,
    OverlapsRange,
)
from providers.index_predicate import AnyOf as Some
from providers.predicate import And, Or, Unknown, fits
from providers.registry import find
from providers.values import arrow_type, domain_of
from tests.providers.golden import cases, predicate

PAIRS = cases(Path(__file__).with_name("rewrites.txt"))


def words(test: IndexPredicate | None) -> str:
    def listed(keys: pa.Array) -> str:
        return "{" + ", ".join(map(ascii, keys.to_pylist())) + "}"

    match test:
        case None:
            return "no opinion"
        case AllOf(legs):
            return " AND ".join(
                f"({words(leg)})" if isinstance(leg, Some) else words(leg) for leg in legs
            )
        case Some(legs):
            return " OR ".join(map(words, legs))
        case _ if not isinstance(test, AlwaysFalse) and test.sketch:
            return f"{test.sketch}: {words(replace(test, sketch=''))}"
        case FieldCompare(field, op, value):
            return f"{field} {op} {value!a}"
        case Overlaps(low, high, keys):
            return f"{low}..{high} meets {listed(keys)}"
        case NotWithin(low, high, starts, ends):
            pairs = zip(starts.to_pylist(), ends.to_pylist(), strict=True)
            return f"{low}..{high} leaves {{{', '.join(f'{a!a}..{b!a}' for a, b in pairs)}}}"
        case BitsSet(field, layout, probes):
            (n,) = {len(keys) for _, keys in probes}
            slices = sorted({keys.type.list_size for _, keys in probes})
            return f"{field} by {layout} may have {n} keys of {', '.join(map(str, slices))} bits"
        case Contains(field, keys):
            return f"{field} has {listed(keys)}"
        case ContainsOther(field, keys):
            return f"{field} has not {listed(keys)}"
        case OverlapsRange() | ContainsRange():
            return _of_ranges(test)


def _of_ranges(test: OverlapsRange | ContainsRange) -> str:
    left, right = "[" if test.includes_low else "(", "]" if test.includes_high else ")"
    if isinstance(test, ContainsRange):
        left, right = ("(" if test.low is None else left), (")" if test.high is None else right)
        return f"{test.field} in {left}{_end(test.low)}, {_end(test.high)}{right}"
    pairs = zip(test.starts.to_pylist(), test.ends.to_pylist(), strict=True)
    ranges = ", ".join(f"{left}{a!a}, {b!a}{right}" for a, b in pairs)
    return f"{test.low}..{test.high} meets {ranges}"


def _end(value: Any) -> str:
    return ".." if value is None else ascii(value)


@pytest.mark.parametrize(("section", "leaf", "expected"), PAIRS)
def test_golden_pairs(section: str, leaf: str, expected: str) -> None:
    kind, _, spark_type = section.partition(" ")
    type_ = arrow_type(spark_type)
    assert type_ is not None
    domain = domain_of(type_)
    assert domain is not None
    provider = find(kind).of((Column("x", domain, partition=True),), {})
    asked = predicate(leaf, array=lambda keys: pa.array(keys, None if keys else domain.stored))
    assert not isinstance(asked, And | Or | Unknown)
    answered = provider.rewrite(asked) if fits(asked, domain) else None
    assert words(answered) == expected


def test_every_kind_of_ours_has_a_section() -> None:
    assert {section.split()[0] for section, _, _ in PAIRS} >= {
        "BLOOM_FILTER",
        "MIN_MAX",
        "NGRAM",
        "PARTITION",
        "VALUE_LIST",
    }
