"""Folded case: which n-grams of a text every upper and lower case of it keeps."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pyarrow as pa
import pytest

from providers.case_folding import CUT, UNASSIGNED, fold_case, fold_cases

POINTS = [chr(p) for p in range(sys.maxunicode + 1) if not 0xD800 <= p < 0xE000]


def keeps_n_grams(text: str, cased: str) -> bool:
    """Whether each uncut part of another case is in the text, too."""
    return all(part in fold_case(text) for part in fold_case(cased).split(CUT))


@pytest.mark.parametrize("change", [str.lower, str.upper, str.casefold, str.title])
def test_folding_keeps_each_character(change: Callable[[str], str]) -> None:
    for point in POINTS:
        text = f"aK{point}tZ"
        if UNASSIGNED not in fold_case(text):
            assert keeps_n_grams(text, change(text)), ascii(text)


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("ABC xyz \x01", "abc xyz \x01"), ("\0", CUT), ("Straße \u1e9e", "strasse ss"),
        ("\u212aelvin \u017fig", "kelvin sig"), ("\u0130I\u0131i i\u0307", "iiii i"),
        ("\ufb01\ufb06", "fist"), ("\u00cd\u00ec\u0129", f"i{CUT}i{CUT}i{CUT}"),
        ("\u0416\u0451 \u1c80", "\u0436\u0451 \u0432"),
        ("\u4e2d\uac00\U0001f600", "\u4e2d\uac00\U0001f600"),
        ("\u03a3\u03c2\u0386", CUT * 3), ("a\u0301", f"a{CUT}"), ("\u0378", UNASSIGNED),
    ],
)  # fmt: skip
def test_what_is_folded(text: str, folded: str) -> None:
    assert fold_case(text) == folded


def test_an_array_is_folded_as_its_texts_are() -> None:
    texts = ["ABC", "", "ß\u0130", "x\0Y", "\u4e2dA"]
    folded = fold_cases(pa.array(texts))
    assert folded is not None
    assert folded.to_pylist() == [fold_case(text) for text in texts]
    assert fold_cases(pa.array([*texts, "\U000e0080"])) is None
