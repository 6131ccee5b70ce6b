"""Every kind x every type x every leaf: no file with a matching row is ever pruned.

Kinds come from the registry, so an installed third-party kind is tested without a line here.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from providers import (
    Between,
    Compare,
    Contains,
    EndsWith,
    In,
    IsNull,
    Or,
    SkippingProvider,
    StartsWith,
)
from providers.errors import DefinitionError
from providers.intervals import COUNT, TELLING
from providers.predicate import Leaf, StartsWithAny, Within
from providers.registry import kinds
from providers.simplify import simplify
from tests.providers.spark_oracle import (
    FILE,
    VALUES,
    Index,
    is_text,
    leaves_over,
    matches,
    normalise,
    order,
)


def _index(
    kind: type[SkippingProvider], spark_type: str, files: Sequence[FILE], at: int, **params: Any
) -> Index:
    return Index.of(kind, spark_type, files, cut=lambda f: [f[:at], f[at:]], **params)


def _accepts(kind: type[SkippingProvider], spark_type: str) -> bool:
    try:
        _index(kind, spark_type, [], 0)
    except DefinitionError:
        return False
    return True


KINDS = kinds()
BOUNDS = ("MIN_MAX", "PARTITION")
PAIRS = {
    f"{name}-{type}": (kind, type)
    for name, kind in KINDS.items()
    for type in VALUES
    if _accepts(kind, type)
}
OF_NUMBERS = [kind for kind in KINDS.values() if _accepts(kind, "int")]
EVERY_PAIR = pytest.mark.parametrize(("kind", "spark_type"), PAIRS.values(), ids=PAIRS)
EVERYWHERE = pytest.mark.parametrize("spark_type", VALUES)


@st.composite
def question(draw: st.DrawFn, spark_type: str) -> tuple[list[FILE], list[Leaf], int]:
    """Files that share some values, leaves that often hit one, and where files are cut in parts."""
    pool = draw(st.lists(VALUES[spark_type], min_size=1, max_size=5))
    files = draw(
        st.lists(st.lists(st.sampled_from([None, *pool]), max_size=5), min_size=1, max_size=6)
    )
    value = draw(st.sampled_from(pool) | VALUES[spark_type])
    keys = draw(st.lists(st.sampled_from([None, *pool]) | VALUES[spark_type], max_size=4))
    prefix = value[: draw(st.integers(0, len(value)))] if is_text(spark_type) else None
    leaves = leaves_over(value, keys, text=is_text(spark_type), prefix=prefix)
    return files, leaves, draw(st.integers(0, 5))


def _distinct(file: FILE) -> int:
    return len({order(value) for value in file if value is not None})


def _is_cut(file: FILE) -> bool:
    """Whether a bound of the file, or an end of its intervals, may have been cut."""
    return any(isinstance(v, str | bytes) and len(order(v)) > TELLING for v in file)


@EVERY_PAIR
def test_no_file_with_a_match_is_pruned(kind: type[SkippingProvider], spark_type: str) -> None:
    skipped_in_all = 0

    @given(question(spark_type))
    def run(asked: tuple[list[FILE], list[Leaf], int]) -> None:
        nonlocal skipped_in_all
        files, leaves, at = asked
        index = _index(kind, spark_type, files, at)
        skipped_here = 0
        for leaf in leaves:
            skipped = index.skipped(leaf)
            for number, file in enumerate(files):
                is_match = matches(leaf, file)
                assert not (is_match and number in skipped), (leaf, file, index.sketches[number])
                if _must_be_exact(kind.kind, leaf, file, _is_known(index, number)):
                    assert is_match != (number in skipped), (leaf, file, index.sketches[number])
            skipped_here += len(skipped)
        event("skipped something" if skipped_here else "skipped nothing")
        skipped_in_all += skipped_here

    run()
    assert skipped_in_all > 0


@EVERY_PAIR
def test_ranges_and_prefixes_together_skip_what_each_by_itself_does(
    kind: type[SkippingProvider], spark_type: str
) -> None:
    @given(question(spark_type), st.data())
    def run(asked: tuple[list[FILE], list[Leaf], int], data: st.DataObject) -> None:
        files, leaves, at = asked
        index = _index(kind, spark_type, files, at)
        alone = [leaf for leaf in leaves if isinstance(leaf, Between | StartsWith)]
        alone += data.draw(st.lists(_ranges(spark_type), min_size=2, max_size=5))
        legs = [normalise(leaf, index.type) for leaf in alone]
        for form in (Between, StartsWith):
            together = simplify(Or(tuple(leg for leg in legs if isinstance(leg, form))))
            for leaf in [together] if not isinstance(together, Or) else together.legs:
                if not isinstance(leaf, Within | StartsWithAny):
                    continue
                each = [index.skipped_raw(leg) for leg in leaf.legs()]
                translated = index.provider.rewrite(leaf)
                if translated is not None:
                    assert index.skipped_raw(leaf) == set.intersection(*each), leaf

    run()


def _ranges(spark_type: str) -> st.SearchStrategy[Leaf]:
    values = VALUES[spark_type]
    ranges: st.SearchStrategy[Leaf] = st.builds(Between, st.just("x"), values, values)
    if not is_text(spark_type):
        return ranges
    return ranges | st.builds(lambda v: StartsWith("x", v[:2]), values)


def _must_be_exact(kind: str, leaf: Leaf, file: FILE, known: bool) -> bool:
    if _is_odd(leaf) or _is_within(leaf):
        return False
    if kind == "VALUE_LIST":
        return known
    if kind == "RANGES" and known and not _is_cut(file):
        return _distinct(file) <= COUNT
    if kind in ("BLOOM_FILTER", "NGRAM"):
        return known and _is_null_test(leaf)
    if kind in BOUNDS and known and not _is_cut(file):
        if isinstance(leaf, IsNull) or (isinstance(leaf, Compare) and leaf.op not in ("=", "!=")):
            return True
        return _distinct(file) <= 1
    return False


def _is_known(index: Index, number: int) -> bool:
    """Whether all is known of a file, and not only a part."""
    sketch = index.sketches[number]
    return sketch is not None and index.provider.fields()[0].name in sketch


def _is_null_test(leaf: Leaf) -> bool:
    return isinstance(leaf, IsNull)


def _is_equality(leaf: Leaf) -> bool:
    return (isinstance(leaf, Compare) and leaf.op == "=") or (
        isinstance(leaf, In) and not leaf.negated
    )


def _is_within(leaf: Leaf) -> bool:
    """What bounds and lists have no opinion on."""
    return isinstance(leaf, EndsWith | Contains)


def _is_odd(leaf: Leaf) -> bool:
    """NOT IN () and NOT IN (..., NULL): true of all rows and of none, a kind need not see it."""
    return isinstance(leaf, In) and leaf.negated and (not leaf.values or None in leaf.values)


@EVERYWHERE
def test_value_list_is_known_up_to_its_limit_and_no_further(spark_type: str) -> None:
    @given(question(spark_type), st.integers(1, 4))
    def run(asked: tuple[list[FILE], list[Leaf], int], limit: int) -> None:
        files, leaves, at = asked
        index = _index(KINDS["VALUE_LIST"], spark_type, files, at, limit=limit)
        known = [_is_known(index, n) for n in range(len(files))]
        assert known == [_distinct(file) <= limit for file in files]
        bounds = _index(KINDS["MIN_MAX"], spark_type, files, at)
        for leaf in leaves:
            no_match = {n for n, file in enumerate(files) if not matches(leaf, file)}
            skipped = index.skipped(leaf)
            assert skipped <= no_match
            if _is_within(leaf):
                assert not skipped
            elif not _is_odd(leaf):
                # Of the others what their bounds prune.
                rough = {n for n in bounds.skipped(leaf) if not known[n]}
                assert skipped == {n for n in no_match if known[n]} | rough

    run()


@pytest.mark.parametrize("kind", [k for k in KINDS.values() if k.only_extremes])
@EVERYWHERE
def test_extremes_are_enough_where_a_kind_says_so(
    kind: type[SkippingProvider], spark_type: str
) -> None:
    @given(st.lists(VALUES[spark_type], min_size=1, max_size=6))
    def run(file: list[Any]) -> None:
        ordered = sorted(file, key=order)
        extremes = [ordered[0], ordered[-1]]
        sketches = [_index(kind, spark_type, [f], 0).sketches for f in (file, extremes)]
        assert sketches[0] == sketches[1]

    run()


@pytest.mark.parametrize("kind", [k for k in OF_NUMBERS if not k.only_extremes])
def test_more_values_than_a_kind_can_use_are_unknown_whichever_they_are(
    kind: type[SkippingProvider],
) -> None:
    params = {"VALUE_LIST": {"limit": 20}, "BLOOM_FILTER": {"num_items": 20}}.get(kind.kind, {})
    provider = _index(kind, "int", [], 0, **params).provider
    if provider.most is None:
        return
    for many in (range(provider.most + 1), range(7, 3 * provider.most), [*range(-5, 40), None]):
        assert not _is_known(_index(kind, "int", [list(many)], 3, **params), 0)
    exactly = list(range(provider.most))
    assert _is_known(_index(kind, "int", [exactly], 3, **params), 0)


# The floor: what must be skipped, without chance

SAMPLES: dict[str, tuple[Any, Any, Any]] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), (-5, 0, 7)),
    **dict.fromkeys(("date", "timestamp", "timestamp_ntz"), (-719_162, 0, 2_932_896)),
    **dict.fromkeys(("float", "double"), (-1.5, 0.0, float("nan"))),
    **dict.fromkeys(("string", "varchar(90)"), ("", "a", "\U0010ffff")),
    "boolean": (False, True, None),
    "decimal(9,2)": (Decimal("-1.50"), Decimal("0.00"), Decimal("9999999.99")),
    "decimal(18,4)": (Decimal("-1.5"), Decimal(0), Decimal("99999999999999.9999")),
    "decimal(38,10)": (Decimal("-1.5"), Decimal(0), Decimal(10) ** 27),
    "binary": (b"", b"a", b"\xff"),
}


@EVERYWHERE
@pytest.mark.parametrize("name", [*BOUNDS, "VALUE_LIST", "RANGES", "BLOOM_FILTER"])
def test_files_of_one_value_are_skipped_exactly(name: str, spark_type: str) -> None:
    kind = KINDS[name]
    files = [[value, value] for value in SAMPLES[spark_type]] + [[None], []]
    index = _index(kind, spark_type, files, 1)
    skipped_in_all = 0
    for value in SAMPLES[spark_type]:
        if value is None:
            continue
        for leaf in leaves_over(value, [value], text=is_text(spark_type)):
            expected = {n for n, file in enumerate(files) if not matches(leaf, file)}
            if kind.kind == "BLOOM_FILTER" and not (_is_equality(leaf) or _is_null_test(leaf)):
                expected = set()
            if _is_within(leaf):
                expected = set()
            assert index.skipped(leaf) == expected, leaf
            skipped_in_all += len(expected)
    assert skipped_in_all > 0


@EVERY_PAIR
def test_kinds_are_immutable_values_that_pickle(
    kind: type[SkippingProvider], spark_type: str
) -> None:
    provider = _index(kind, spark_type, [], 0).provider
    assert pickle.loads(pickle.dumps(provider)) == provider
    assert len({field.column for field in provider.fields()}) == len(provider.fields())


@pytest.mark.parametrize("kind", OF_NUMBERS)
def test_expected_survival_is_a_share(kind: type[SkippingProvider]) -> None:
    provider = _index(kind, "int", [], 0).provider
    many = In("x", pa.array(range(100_000)))
    for leaf in (*leaves_over(5, [5, 6], text=False), many, In("x", pa.array([], pa.int64()))):
        assert 0 <= provider.survival(leaf) <= 1
    assert (provider.survival(many) > 0.99) == (kind.kind == "BLOOM_FILTER")
    assert provider.survival(In("x", pa.array([], pa.int64()))) == 0


def test_kinds_refuse_types_that_are_no_text_or_none() -> None:
    ours = [*BOUNDS, "VALUE_LIST", "BLOOM_FILTER", "RANGES"]
    assert all(f"{name}-{type}" in PAIRS for name in ours for type in VALUES)
    for name in ("ADDRESSES", "NGRAM"):
        for type in VALUES.keys() - {"string", "varchar(90)"}:
            with pytest.raises(DefinitionError, match=f"{name} requires a STRING column"):
                _index(KINDS[name], type, [], 0)


def test_a_limit_that_is_none_is_refused() -> None:
    for limit in (0, -1, 1.5, "9", True):
        with pytest.raises(DefinitionError, match="limit of 1 or more"):
            Index.of(KINDS["VALUE_LIST"], "int", [], limit=limit)
    for kind in KINDS.values():
        with pytest.raises(DefinitionError, match="nonsense"):
            Index.of(kind, "int", [], nonsense=1)
