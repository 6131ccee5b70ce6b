"""The trees of Arrow's expressions, and what happens where a release writes them otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from providers import Unknown
from skipping.filters import arrow_tree
from skipping.filters.arrow import translate
from skipping.filters.arrow_tree import Call, Field, parse_expression


@pytest.fixture
def fresh_check() -> Iterator[None]:
    arrow_tree._is_readable.cache_clear()
    yield
    arrow_tree._is_readable.cache_clear()


def test_parse_expression_keeps_types_options_and_repeated_keys() -> None:
    given = ~(pc.field("s", "x") == pa.scalar(1, pa.int8())) | pc.field("d").is_null(
        nan_is_null=True
    )
    either = parse_expression(given)
    assert isinstance(either, Call)
    inverted, is_null = either.arguments
    assert isinstance(is_null, Call)
    assert (is_null.function, is_null.arguments) == ("is_null", (Field(("d",)),))
    assert is_null.options["nan_is_null"] is True
    assert isinstance(inverted, Call)
    (equal,) = inverted.arguments
    assert isinstance(equal, Call)
    assert equal.arguments == (Field(("s", "x")), pa.scalar(1, pa.int8()))


def test_parse_expression_reads_deep_nesting() -> None:
    given = pc.field("a") == 0
    for number in range(1, 3_000):
        given = given | (pc.field("a") == number)
    node: Any = parse_expression(given)
    for _ in range(2_999):
        node, _equal = node.arguments
    assert node.function == "equal"


@pytest.mark.parametrize("rename", [{"call": "function"}, {"invert": "not"}, {"1": "0"}])
def test_translate_another_form_is_unknown(
    monkeypatch: pytest.MonkeyPatch, fresh_check: None, rename: dict[str, str]
) -> None:
    read = arrow_tree._metadata_pairs

    def renamed(schema: pa.Schema) -> list[tuple[str, str]]:
        return [(rename.get(key, key), rename.get(value, value)) for key, value in read(schema)]

    monkeypatch.setattr(arrow_tree, "_metadata_pairs", renamed)
    found = translate(pc.field("a") == 1, {})
    assert isinstance(found.predicate, Unknown)
    assert f"pyarrow {pa.__version__}" in found.predicate.reason
    assert found.columns is None
