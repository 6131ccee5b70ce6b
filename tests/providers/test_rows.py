"""Rows that satisfy a predicate, against Spark's semantics in plain Python."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers import And, Compare, In, IsNull, Or, Unknown
from providers.errors import DefinitionError
from providers.rows import matching_rows
from providers.values import arrow_type
from tests.providers.spark_oracle import (
    VALUES,
    holds_for,
    is_text,
    leaves_over,
    normalise,
    normalised,
)


@pytest.mark.parametrize("type", VALUES)
@given(data=st.data())
def test_each_leaf_holds_for_the_rows_that_spark_gives(type: str, data: Any) -> None:
    arrow = arrow_type(type)
    assert arrow is not None
    one = VALUES[type]
    rows = data.draw(st.lists(st.none() | one, max_size=6))
    value = data.draw(st.sampled_from(rows) if any(r is not None for r in rows) else one)
    value = data.draw(one) if value is None else value
    keys = [value, data.draw(one)]
    values = {"x": normalised(rows, arrow)}
    for leaf in leaves_over(value, keys, text=is_text(type)):
        found = matching_rows(normalise(leaf, arrow), values, len(rows)).to_pylist()
        assert found == [holds_for(leaf, row) is True for row in rows], leaf


def test_and_and_or_are_those_of_sql() -> None:
    values = {"x": pa.array([1, 2, None]), "y": pa.array([None, 2, 1])}
    one, two = Compare("x", "=", 1), Compare("y", "=", 2)
    assert matching_rows(Or((one, two)), values, 3).to_pylist() == [True, True, False]
    assert matching_rows(And((one, IsNull("y"))), values, 3).to_pylist() == [True, False, False]
    assert matching_rows(And(()), values, 3).to_pylist() == [True] * 3
    assert matching_rows(Or(()), values, 3).to_pylist() == [False] * 3
    none = In("x", pa.array([], pa.int64()), negated=True)
    assert matching_rows(none, values, 3).to_pylist() == [True] * 3
    with pytest.raises(DefinitionError, match=r"condition cannot be evaluated: f\(x\)"):
        matching_rows(And((one, Unknown("f(x)"))), values, 3)
