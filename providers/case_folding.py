"""Fold the case of text, so that upper() and lower() of any engine and locale keep its n-grams.

Engines map case by different tables: Java, ICU, the versions of Unicode in both, and the locales
tr, az, lt, el and hy. A folded text is cut where a mapping depends on any of these. Between two
cuts, a text and its upper or lower case have the same folded characters.

Why this holds for later versions of Unicode: its stability policy says that case folding of
assigned characters never changes, and that two assigned characters never become a case pair.
"""

from __future__ import annotations

import unicodedata

import pyarrow as pa
import pyarrow.compute as pc

CUT = "\0"
"""Takes the place of a character that mappings may change in different ways."""

UNASSIGNED = "\uffff"
"""Takes the place of a character that this Python does not know; an engine may map it to any."""

# Latin, Cyrillic, and scripts without case. Left out are Greek, where the locale el drops accents,
# combining characters, which may be dropped or inserted, and rare scripts with case.
_STABLE = (
    (0x1, 0x300), (0x400, 0x530), (0x5D0, 0x10A0), (0x2000, 0x2100), (0x3000, 0xA000),
    (0xAC00, 0xD7A4), (0x1F300, 0x1FB00), (0x20000, 0x32000),
)  # fmt: skip


def _fold(character: str) -> str:
    if unicodedata.category(character) == "Cn":
        return UNASSIGNED
    return "".join(
        each if any(start <= ord(each) < end for start, end in _STABLE) else CUT
        for each in character.casefold()
        if each != "\u0307"  # the locales tr and lt drop the dot, or insert it
    )


class _Folds(dict[int, str]):
    def __missing__(self, point: int) -> str:
        self[point] = folded = _fold(chr(point))
        return folded


_FOLDS = _Folds(
    {
        0x131: "i",  # dotless i, whose upper case is I
        # The locale lt writes the lower case as i with two marks.
        **dict.fromkeys(map(ord, "\u00cc\u00ec\u00cd\u00ed\u0128\u0129"), "i" + CUT),
    }
)


def fold_case(text: str) -> str:
    r"""Return a text in folded case.

    >>> fold_case("Straße, KELVIN \u212a"), fold_case("TITLE \u0130\u0131Σ")
    ('strasse, kelvin k', 'title ii\x00')
    """
    return text.translate(_FOLDS)


def fold_cases(values: pa.Array) -> pa.Array | None:
    """Return texts in folded case; None if one has a character that is UNASSIGNED."""
    folded = pc.ascii_lower(values)
    others = pc.invert(pc.string_is_ascii(values))
    texts = [fold_case(text) for text in values.filter(others).to_pylist()]
    if any(UNASSIGNED in text for text in texts):
        return None
    return pc.replace_with_mask(folded, others, pa.array(texts, pa.string()))
