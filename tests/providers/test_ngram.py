"""NGRAM: what it lets through, how large it is, which text it takes, and its parameters."""

from __future__ import annotations

import random
import string
import tracemalloc
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from providers import Column, Compare, Contains, EndsWith, In, IsNull, Ngram, StartsWith, ngram
from providers.errors import DefinitionError
from providers.predicate import ContainsAnyCase, Leaf
from providers.values import domain_of
from tests.providers.spark_oracle import Index, matches

TEXT = pa.string()


def kind(type: pa.DataType = TEXT, **params: Any) -> Ngram:
    domain = domain_of(type)
    assert domain is not None
    return Ngram.of((Column("x", domain),), params)


def collected(provider: Ngram, *parts: Sequence[str]) -> Mapping[str, Any] | None:
    collector = provider.collector()
    for part in parts:
        collector.add(pa.array(part, TEXT), 0)
    return collector.finish()


def words(rng: random.Random, letters: str, length: int, many: int) -> list[str]:
    return ["".join(rng.choices(letters, k=length)) for _ in range(many)]


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_every_substring_of_a_value_is_found_and_most_others_are_not(n: int) -> None:
    rng = random.Random(n)
    letters = "aé\u4e2d\U0001f600 _%\\\0'Zß"
    files = [words(rng, letters, rng.randrange(24), 5) for _ in range(12)]
    index = Index.of(Ngram, "string", [*files, [None], [], [""]], n=n)
    skipped_in_all = 0
    for file in files:
        for value in file:
            start, end = sorted(rng.choices(range(len(value) + 1), k=2))
            for leaf in (
                Contains("x", value[start:end]),
                StartsWith("x", value[:end]),
                EndsWith("x", value[start:]),
                Compare("x", "=", value),
                In("x", [value, file[0]]),
            ):
                skipped = index.skipped(leaf)
                skipped_in_all += len(skipped)
                assert not {i for i in skipped if i < len(files) and matches(leaf, files[i])}
            if end - start >= n:
                assert index.skipped(Contains("x", value[start:end])) >= {12, 13, 14}
    assert skipped_in_all > 1_800
    assert index.skipped(IsNull("x")) == {*range(12), 13, 14}
    assert index.skipped(IsNull("x", negated=True)) == {12, 13}


def test_a_literal_shorter_than_an_n_gram_asks_for_length_only() -> None:
    index = Index.of(Ngram, "string", [["", None], ["x"], ["xy"], ["xyz"], [None], []])
    for leaf in (Contains("x", "qq"), StartsWith("x", "qq"), EndsWith("x", "qq")):
        assert index.skipped(leaf) == {0, 1, 4, 5}
        assert index.provider.survival(leaf) == 1
    assert index.skipped(Contains("x", "")) == {4, 5}
    assert index.skipped(Contains("x", "qqq")) == {0, 1, 2, 3, 4, 5}


def test_folded_n_grams_find_text_in_any_case() -> None:
    files = [
        ["Straße in KYIV"],
        ["\u041a\u0418\u0407\u0412"],
        ["\u0391\u0392\u0393 abc", None],
        [None],
        [],
    ]
    index = Index.of(Ngram, "string", [*files, ["x\U000e0080"]], fold=True)
    for text, skipped in {
        "STRASSE": {1, 2, 3, 4}, "\u212ayiv": {1, 2, 3, 4}, "\u043a\u0438\u0457": {0, 2, 3, 4},
        "\u0391\u0392\u0393": {3, 4}, "\u03b1bc": {3, 4}, "\u0391abc": {0, 1, 3, 4}, "": {3, 4},
        "qqq\0abc": {0, 1, 2, 3, 4}, "n": {3, 4},
    }.items():  # fmt: skip
        assert index.skipped(ContainsAnyCase("x", text)) == skipped, text
    # Conditions on the text itself use it, too.
    assert index.skipped(Contains("x", "Straße")) == {1, 2, 3, 4}
    assert index.skipped(Compare("x", "=", "Straße in KYIV")) == {1, 2, 3, 4}
    assert index.provider.survival(ContainsAnyCase("x", "ab\u0391cd")) == 1
    assert index.provider.survival(ContainsAnyCase("x", "abc")) == pytest.approx(0.01)


def test_without_folding_no_condition_ignores_case() -> None:
    index = Index.of(Ngram, "string", [["abc"], ["xyz"]])
    leaf = ContainsAnyCase("x", "abc")
    assert index.skipped(leaf) == set()
    assert (index.provider.survival(leaf), kind().sharper(leaf, 0.5)) == (1, "fold => true")
    assert kind(fold=True).sharper(leaf, 0.5) is None


def test_nothing_negated_is_answered() -> None:
    index = Index.of(Ngram, "string", [["abc", "xyz"], ["abc"]])
    leaves: list[Leaf] = [
        form("x", "abc", negated=True) for form in (Contains, StartsWith, EndsWith)
    ]
    for leaf in (*leaves, Compare("x", "!=", "abc"), In("x", ["abc"], True)):
        assert index.skipped(leaf) == set()


def test_false_positives_are_as_many_as_the_formula_says() -> None:
    """(1 - e^(-kn/m))^k for an n-gram, that to the power of g for a literal of g of them."""
    rng = random.Random(7)
    letters, asked = string.ascii_lowercase, string.ascii_uppercase
    for fpp, share in ((0.01, 0.5), (0.1, 0.5), (0.01, 0.05)):
        provider = kind(fpp=fpp, share=share)
        measured, expected = [0, 0], [0.0, 0.0]
        for _ in range(4):
            values = words(rng, letters, 40, 5_000)
            sketch = collected(provider, sorted(set(values)))
            assert sketch is not None
            grams = len({v[i : i + 3] for v in values for i in range(38)})
            layout = provider.layout(grams, 40 * len(set(values)))
            assert layout is not None
            assert layout.number == sketch["layout"]
            bits = int.from_bytes(sketch["filter"], "little")
            for at, length in enumerate((3, 4)):
                for literal in words(rng, asked, length, 500):
                    mixed = ngram._mix(ngram._grams_of(literal, 3))
                    places = layout.positions(mixed).ravel().tolist()
                    measured[at] += all(bits >> place & 1 for place in places)
                expected[at] += 500 * layout.fpp(grams) ** (length - 2)
        for found, formula in zip(measured, expected, strict=True):
            assert abs(found - formula) <= 4 * formula**0.5 + 3, (fpp, share, measured, expected)


def test_a_filter_takes_its_share_of_the_text_at_most() -> None:
    rng = random.Random(3)
    for many in (1, 10, 1_000, 20_000):
        for letters in ("ab", string.ascii_letters, string.printable):
            values = sorted(set(words(rng, letters, 30, many)))
            text = sum(map(len, values))
            for share in (0.01, 0.05, 0.2):
                sketch = collected(kind(share=share), values)
                if sketch is not None:
                    assert len(sketch["filter"]) <= max(1_024, share * text)
    # Random text, of which each n-gram is another: no filter of this size is of use.
    assert collected(kind(share=0.01), words(rng, string.printable, 1_000, 100)) is None
    # A cut filter is worse for one n-gram and good for several.
    cut = kind(share=0.05)
    values = words(rng, string.ascii_letters, 1_000, 1_000)
    sketch = collected(cut, values)
    assert sketch is not None
    assert sketch["layout"] >> 32 == 2


def test_parts_make_the_filter_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    values = words(rng, "abc\u00e9\u4e2d\U0001f600", 50, 600)
    whole = collected(kind(), values)
    assert whole is not None
    assert collected(kind(), values[:100], [], values[100:]) == whole
    monkeypatch.setattr(ngram, "_BLOCK", 70)
    assert collected(kind(), values) == whole
    assert collected(kind(), ["", *values[:300]], values[300:]) == whole


def test_no_n_gram_reaches_into_the_next_value() -> None:
    sketch = collected(kind(), ["ab", "cd", "", "e", "fgh"])
    assert sketch == collected(kind(), ["fgh"])
    assert sketch is not None
    assert sketch["longest"] == 3


def test_a_long_value_is_taken_in_little_memory() -> None:
    value = "".join(random.Random(1).choices(string.ascii_lowercase, k=8 << 20))
    tracemalloc.start()
    sketch = collected(kind(), [value])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sketch is not None
    assert sketch["longest"] == 8 << 20
    assert peak < 16 * len(value)
    index = Index.of(Ngram, "string", [[value], ["q" * (1 << 20)]])
    assert index.skipped(Contains("x", value[-40:])) == {1}
    assert index.skipped(Contains("x", value[1_048_570:1_048_590])) == {1}
    assert index.skipped(Contains("x", value[1_000:2_000_000])) == {1}


def test_too_many_n_grams_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngram, "GRAMS", 100)
    values = words(random.Random(2), string.ascii_letters, 60, 3)
    assert collected(kind(), values[:1]) is not None
    assert collected(kind(), values) is None
    monkeypatch.setattr(ngram, "_BLOCK", 10)
    collector = kind().collector()
    for value in values:
        collector.add(pa.array([value]), 1)
    assert collector._grams is None
    collector.add(pa.array(["more"]), 1)
    assert collector.finish() is None


@pytest.mark.parametrize(
    ("params", "says"),
    [
        *(({"n": n}, "n from 2 to 8") for n in (1, 9, 2.5, "3", True)),
        *(({"fpp": fpp}, "fpp from 1e-4 to below 0.5") for fpp in (0.0, 0.5, 1, "x", 1e-5)),
        *(({"share": share}, "share from 0.001 to 0.5") for share in (0.0, 0.6, 1, False)),
        *(({"fold": fold}, "fold = true or false") for fold in (1, "true")),
        ({"limit": 5}, "takes n, fpp, share, fold, not limit"),
    ],
)
def test_parameters_that_make_no_filter(params: dict[str, Any], says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        kind(**params)


def test_defaults() -> None:
    assert kind() == Ngram(3, 0.01, 0.05)
    assert Ngram.signature() == ("n", "fpp", "share", "fold")
    assert (kind().hashes, kind(fpp=0.3).hashes, kind(fpp=0.0001).hashes) == (7, 2, 13)
    assert kind().most is None


def test_survival() -> None:
    provider = kind()
    assert provider.survival(Contains("x", "abc")) == pytest.approx(0.01)
    assert provider.survival(Contains("x", "abcd")) == pytest.approx(0.0001)
    assert provider.survival(Contains("x", "aaaaa")) == pytest.approx(0.01)
    assert provider.survival(In("x", pa.array(["abc", "abd"]))) == pytest.approx(0.0199)
    assert provider.survival(IsNull("x")) == 0
