"""The reasons why an index cannot evaluate a condition."""

from __future__ import annotations

import pyarrow as pa
import pytest

from providers.predicate import (
    And,
    Compare,
    Contains,
    EndsWith,
    IsNull,
    Or,
    Predicate,
    StartsWith,
    Unknown,
)
from providers.tuples import tuple_type
from providers.values import domain_of
from skipping.lookup.translate import PredicateTranslator, QueryColumn
from skipping.model.definition import Definition, IndexedColumn, TableId

BOTH = tuple_type(["bigint", "bigint"])
DEFINITION = Definition(
    "i",
    TableId("delta", "t", "file:/t"),
    "t",
    (
        IndexedColumn(1, "s", "s", "string", "MIN_MAX"),
        IndexedColumn(2, "(a, b)", "ab", BOTH, "VALUE_LIST", parts=(("a", "a"), ("b", "b"))),
        IndexedColumn(3, "n", "n", "bigint", "MIN_MAX"),
    ),
)
NOT_SUPPORTED = "s LIKE '%?%': MIN_MAX does not support this condition"
HINT = "NGRAM on s can answer it: ALTER SKIPPING INDEX ON t ADD (s NGRAM)"


def make_translator(columns: str) -> PredicateTranslator:
    """Return a translator for a query on these columns."""
    text, number = domain_of(pa.string()), domain_of(pa.int64())
    assert text is not None
    assert number is not None
    asked = {name: QueryColumn(name, text if name == "s" else number) for name in columns}
    return PredicateTranslator(DEFINITION, asked, ())


@pytest.mark.parametrize(
    ("predicate", "columns", "unused"),
    [
        (Compare("s", "=", "x"), "s", []),
        (StartsWith("s", "x"), "s", []),
        (Contains("s", "xyz"), "s", [NOT_SUPPORTED, f"s LIKE '%?%': {HINT}"]),
        (
            EndsWith("s", "xyz", negated=True),
            "s",
            ["s NOT LIKE '%?': MIN_MAX does not support this condition"],
        ),
        (
            And(
                (
                    StartsWith("s", "x"),
                    Or((Unknown("f"), And((Unknown("g"), Compare("s", "=", "y"))))),
                )
            ),
            "s",
            ["f: no index can answer it", "g: no index can answer it"],
        ),
        (Compare("c", "=", 1), "c", ["c = ?: c is not in the index"]),
        (Compare("a", "=", 1), "a", ["a = ?: a is not in the index, only (a, b)"]),
        (Compare("a", "=", 1), "ab", []),
    ],
    ids=str,
)
def test_translator_names_what_it_cannot_use(
    predicate: Predicate, columns: str, unused: list[str]
) -> None:
    translator = make_translator(columns)
    translator.translate(predicate)
    assert translator.unused == unused


def test_translator_drops_an_implied_is_not_null() -> None:
    translator = make_translator("sn")
    legs = IsNull("s", negated=True), Compare("s", "=", "x"), IsNull("n", negated=True)
    found = translator.labelled_leaves(translator.translate(And(legs)))
    assert [label for label, _, _ in found] == ["s = ?  MIN_MAX", "n IS NOT NULL  MIN_MAX"]
