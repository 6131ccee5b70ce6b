"""Which kinds are worth it on which columns, from what was measured in a sample of files.

A kind is asked as a query would ask it: its own tests, evaluated over its own sketches, for one key
and for several. Keys are distinct values of some files, each file as likely as another, asked of
*other* files where only a part of the table was seen: of the files that hold a key there is one for
sure, and every other file is kept as often as the others that were seen. `sorted` is the same for
the table sorted by the column into as many files (`skipping.advise.clustering`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from providers.base import SkippingProvider
from providers.evaluate import disproved_rows
from providers.index_predicate import IndexPredicate, disproved, map_tests
from providers.predicate import Compare, In, IsNull, Leaf, StartsWith
from skipping.advise.clustering import Clustering, SortedLayout, clustering
from skipping.advise.sample import Sample
from skipping.build.sketch import Work, entry_schema
from skipping.lookup.translate import USELESS
from skipping.stores import IDENTITY

__all__ = ["KEYS", "ColumnAdvice", "KindAdvice", "advise"]

KEYS = (1, 10, 100)
"""Keys of the questions that kinds are measured by."""

_DRAWS = {1: 48, 10: 24, 100: 12}
_WORTH = 0.5
"""A kind is worth it that keeps at most this share of the files for one of the questions."""

_ALIKE = 0.02
"""Shares that differ by no more are alike."""

_SMALL = 0.01
"""Of a file's bytes a sketch may take so much before one that answers less is preferred."""


@dataclass(frozen=True, slots=True)
class KindAdvice:
    """One kind on one column: `kept` files of the table for so many keys, and what it costs.

    `known` is the share of files whose sketch is known; `bytes` and `seconds` are those of a file,
    the seconds to read the column included, as if the kind were alone on it. `answers` counts the
    forms of conditions (`=`, `IN`, `<`, ...) that it has an opinion on.
    """

    spelling: str
    kept: tuple[float, ...]
    known: float
    bytes: float
    seconds: float
    answers: int
    advised: bool = False


@dataclass(frozen=True, slots=True)
class ColumnAdvice:
    """One column: how it lies, what each kind does on it, and what a sorted table would do.

    `bounds` are the files that the bounds in the table's own log keep, which needs no index; empty
    where it has none of the column.
    """

    name: str
    type: str
    reason: str
    kinds: tuple[KindAdvice, ...] = ()
    clustering: Clustering | None = None
    distinct: tuple[float, int] = (0.0, 0)
    sorted: tuple[float, ...] = ()
    bounds: tuple[float, ...] = ()

    @property
    def advised(self) -> KindAdvice | None:
        """The kind to index it with, if any."""
        return next((kind for kind in self.kinds if kind.advised), None)


def advise(sample: Sample, files: int) -> ColumnAdvice:
    """What a sample of one column says of a table of `files` files."""
    column = sample.work[0].column
    seen = sample.files
    if not len(seen):
        why = "it could be read in none of the files" if files else "the table has no files"
        return ColumnAdvice(column.name, column.type, why)
    questions = {k: list(_draws(sample, files, k)) for k in KEYS}
    works = [w for w in sample.work if not (w.indexed.params and _suffices(w, sample))]
    kinds = tuple(_measured(work, seen, files, questions) for work in works)
    distinct = seen["distinct"].to_numpy()
    made = ColumnAdvice(
        column.name,
        column.type,
        "",
        kinds,
        clustering(seen["low"].combine_chunks(), seen["high"].combine_chunks()).scaled(files),
        (float(distinct.mean()), int(distinct.max())),
        _sorted(sample, files, questions),
        _bounds(sample, files, questions),
    )
    some = made.distinct[1] > 0
    best = _best(made, files, pc.mean(seen["size"]).as_py()) if some else None
    chosen = tuple(replace(kind, advised=kind is best) for kind in kinds)
    return replace(made, kinds=chosen, reason=_reason(made, best, files))


def _suffices(work: Work, sample: Sample) -> bool:
    """Whether the same kind without parameters is known in every file."""
    plain = [w for w in sample.work if w.indexed.kind == work.indexed.kind and not w.indexed.params]
    return any(all(sample.files[f"{w.indexed.sketch}_known"].to_pylist()) for w in plain)


@dataclass(frozen=True, slots=True)
class _Draw:
    """Keys to ask, and which rows (files) of the sample to ask about.

    `sources` of the table's files have a key because it was taken from them; 0 where all are asked.
    """

    keys: pa.Array
    rows: npt.NDArray[np.int64]
    sources: float

    def scaled(self, kept: int, files: int) -> float:
        """Files of the table that are kept, where so many of the rows are."""
        return self.sources + kept * (files - self.sources) / len(self.rows)


def _draws(sample: Sample, files: int, k: int) -> Iterator[_Draw]:
    seen = sample.files
    rng = np.random.default_rng(k)
    held = np.flatnonzero(seen["distinct"].to_numpy() > 0)
    if not len(held):
        return
    keys = seen["keys"].combine_chunks()
    whole = len(seen) == files or len(seen) < 4
    for _ in range(_DRAWS[k]):
        asked, from_ = np.arange(len(seen)), held
        if not whole:
            # One half gives the keys, the other is asked.
            order = rng.permutation(len(seen))
            from_, asked = order[: len(seen) // 2], order[len(seen) // 2 :]
            from_ = from_[np.isin(from_, held)]
            if not len(from_):
                continue
        values = [keys[int(i)].values for i in rng.choice(from_, k)]
        picked = [v.slice(int(rng.integers(len(v))), 1) for v in values]
        sources = 0.0 if whole else files * (1 - (1 - 1 / files) ** k)
        yield _Draw(In.of("", pa.concat_arrays(picked)).values, asked, sources)


def _measured(
    work: Work, seen: pa.Table, files: int, questions: dict[int, list[_Draw]]
) -> KindAdvice:
    sketch, provider = work.indexed.sketch, work.provider
    kept = entry_schema([work]).names[len(IDENTITY) :]
    fields = [name for name in kept if not name.endswith("_known")]
    sketches = seen.select(kept).combine_chunks()
    took = seen["reading"].to_numpy() + seen[f"{sketch}_building"].to_numpy()
    params = ", ".join(str(value) for _, value in work.indexed.params)
    return KindAdvice(
        work.indexed.kind + (f"({params})" if params else ""),
        tuple(_mean([_kept(work, draw, sketches, files) for draw in questions[k]]) for k in KEYS),
        float(np.mean(sketches[0].to_pylist())),
        sum(sketches[name].nbytes for name in fields) / len(seen),
        float(took.mean()) / 1e9,
        sum(provider.rewrite(leaf) is not None for leaf in _forms(questions)),
    )


def _forms(questions: dict[int, list[_Draw]]) -> Iterator[Leaf]:
    """A condition of each form that there is for the column."""
    for draw in questions[1][:1]:
        (value,) = draw.keys.to_pylist()
        yield from (Compare("", "=", value), Compare("", "!=", value), Compare("", "<", value))
        yield from (In("", draw.keys), In("", draw.keys, True), IsNull(""), IsNull("", True))
        if not isinstance(value, int):
            yield StartsWith("", value)


def _kept(work: Work, draw: _Draw, sketches: pa.Table, files: int) -> float:
    """Files of the table that are read for the keys."""
    asked = _asked(work.provider, draw.keys)
    if asked is None:
        return float(files)
    sketch = work.indexed.sketch
    tests = map_tests(asked, lambda test: replace(test, sketch=f"{sketch}{test.sketch}"))
    gone = disproved(tests, lambda test: BitMap(np.flatnonzero(disproved_rows(test, sketches))))
    return draw.scaled(int((~np.isin(draw.rows, np.array(gone, np.int64))).sum()), files)


def _asked(provider: SkippingProvider, keys: pa.Array) -> IndexPredicate | None:
    leaf: Leaf = Compare("", "=", keys[0].as_py()) if len(keys) == 1 else In("", keys)
    return provider.rewrite(leaf) if provider.survival(leaf) <= USELESS else None


def _sorted(sample: Sample, files: int, questions: dict[int, list[_Draw]]) -> tuple[float, ...]:
    drawn = sample.files["drawn"].combine_chunks()
    lengths = np.array([len(drawn[i]) for i in range(len(drawn))])
    rows = sample.files["rows"].to_numpy() - sample.files["nulls"].to_numpy()
    weights = np.repeat(rows / np.maximum(lengths, 1), lengths)
    layout = SortedLayout(drawn.flatten(), weights, files=files)
    return tuple(_mean([float(layout.kept(draw.keys)) for draw in questions[k]]) for k in KEYS)


def _bounds(sample: Sample, files: int, questions: dict[int, list[_Draw]]) -> tuple[float, ...]:
    """Files that the table's own bounds keep: cut alike, keys compare with bounds as cut ones."""
    most = sample.work[0].column.bounded
    if most is None:
        return ()
    lows, highs = (_cut(sample.files[name], most) for name in ("low", "high"))

    def kept(draw: _Draw) -> float:
        keys = sorted(_cut(draw.keys, most))
        if any(key != key for key in keys):  # NaN, of which bounds say nothing
            return float(files)

        def may_hold(row: int) -> bool:
            if lows[row] is None:
                return False
            first = bisect_left(keys, lows[row])
            return first < len(keys) and bool(keys[first] <= highs[row])

        return draw.scaled(sum(map(may_hold, draw.rows)), files)

    return tuple(_mean([kept(draw) for draw in questions[k]]) for k in KEYS)


def _cut(values: pa.Array | pa.ChunkedArray, most: int) -> list[Any]:
    if pa.types.is_string(values.type):
        values = pc.utf8_slice_codeunits(values, 0, most)
    elif pa.types.is_binary(values.type):
        values = pc.binary_slice(values, 0, most)
    return list(values.to_pylist())


def _mean(numbers: Sequence[float]) -> float:
    return float(np.mean(numbers)) if numbers else 0.0


def _best(column: ColumnAdvice, files: int, size: float) -> KindAdvice | None:
    """Of the kinds that are worth it one that keeps least, and less than the table's own bounds.

    Of those alike a small one (`size` are a file's bytes), that answers most, and the smallest.
    """

    def share(kind: KindAdvice) -> float:
        return _mean(kind.kept) / files

    own = _mean(column.bounds) / files - _ALIKE if column.bounds else 1.0
    worth = [k for k in column.kinds if min(k.kept) <= _WORTH * files and share(k) < own]
    if not worth:
        return None
    alike = [kind for kind in worth if share(kind) <= min(map(share, worth)) + _ALIKE]
    return min(alike, key=lambda k: (k.bytes > _SMALL * size, -k.answers, k.bytes))


def _reason(column: ColumnAdvice, best: KindAdvice | None, files: int) -> str:
    lies = f"{column.distinct[0]:,.0f} values a file"
    if column.clustering is not None and column.clustering.files:
        lies += f", ranges {column.clustering.depth:,.1f} deep"
    if not column.distinct[1]:
        return "it has only nulls"
    if best is not None:
        said = f"keeps {_for_keys(best.kept)} of {files:,} files"
        if column.bounds:
            one, ten = column.bounds[:2]
            said += f", the table's own bounds {one:,.0f} and {ten:,.0f}"
    elif column.bounds and min(column.bounds) <= _WORTH * files:
        kept = _for_keys(column.bounds)
        said = f"the table's own bounds keep {kept} of {files:,} files, and no kind fewer"
    else:
        said = f"every kind keeps more than {_WORTH:.0%} of {files:,} files"
    apart = min((k.kept[0] for k in column.kinds), default=files)
    if column.sorted[0] < 0.5 * apart:
        said += f"; sorted by it {column.sorted[0]:,.0f} for 1 key"
    return f"{lies}: {said}"


def _for_keys(kept: Sequence[float]) -> str:
    return " and ".join(
        f"{n:,.0f} for {k} key{'s' * (k > 1)}" for n, k in zip(kept[:2], KEYS, strict=False)
    )
