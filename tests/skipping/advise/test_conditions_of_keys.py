"""Questions that ANALYZE puts to a table as text: every value comes back as it was."""

from __future__ import annotations

import pyarrow as pa
import pytest

from providers import Between, Compare, In
from providers.predicate import Leaf
from skipping.advise.analyze import _conditions
from skipping.filters.sql import as_predicate
from skipping.parser.condition import LONGEST
from skipping.tables import Columns, TableColumn

COLUMNS = Columns((TableColumn("a b", "a b", "string"),))
TEXTS = ["", "'", "\\", "\\'", "a\\nb", "\\u0041", "100\\%", '"', "\n", "\\\\", "it''s", "r'x'"]


def read(leaf: Leaf) -> list[str]:
    asked: list[str] = []
    for condition in _conditions(leaf, "`a b`", "string"):
        assert len(condition) <= LONGEST
        found = as_predicate(condition, COLUMNS)
        assert isinstance(found, In)
        asked.extend(found.values)  # a list until they are bound
    return asked


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_comes_back_as_it_was(text: str) -> None:
    (condition,) = _conditions(Compare("", "=", text), "`a b`", "string")
    assert as_predicate(condition, COLUMNS) == Compare("a b", "=", text)
    (between,) = _conditions(Between("", text, text + "z"), "`a b`", "string")
    assert str(text + "z") in [leg.value for leg in as_predicate(between, COLUMNS).legs]  # type: ignore[union-attr]


def test_a_list_that_is_too_long_for_one_condition_is_several() -> None:
    values = [f"{n:03}" + "\\'x" * 100 for n in range(100)]
    assert read(In.of("", pa.array(values))) == values
    assert read(In.of("", pa.array(TEXTS))) == sorted(TEXTS)
