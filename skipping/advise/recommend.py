"""Recommend index types for columns, from measurements in a sample of files.

An index type is evaluated as in a query: its own tests on its own sketches, for one key and for
several (`skipping.advise.questions`). `sorted` is the estimate for the table sorted by the column,
with the same number of files (`skipping.advise.clustering`). The savings for a recorded predicate
are the files that its queries opened, without the fraction that the index type keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow.compute as pc

from providers.predicate import Compare, In, IsNull, Leaf, StartsWith
from skipping.advise.baseline import Baseline, TableItself
from skipping.advise.clustering import Clustering, SortedLayout, clustering
from skipping.advise.history import RANGE, TEXT, VALUES, RecordedPredicate
from skipping.advise.questions import (
    KEYS,
    Draw,
    estimate_remaining,
    mean,
    ranges,
    sketches_of,
    substrings,
    values,
)
from skipping.advise.sample import Sample
from skipping.indexing.sketch import Work
from skipping.model.identifiers import sql_name
from skipping.parser.literals import split_parts
from skipping.tables import TableColumn

__all__ = ["FOR_TEXT", "KEYS", "ColumnAdvice", "KindAdvice", "advise", "best_works", "spell_column"]

FOR_TEXT = ("NGRAM",)
"""Index types that are measured by substrings instead of values, if queries searched for them."""

_WORTH = 0.5
"""An index type is useful if it keeps at most this fraction of the files for 1, 10 or 100 keys."""

_ALIKE = 0.02
"""Fractions that differ by at most this much count as equal."""

_SMALL = 0.01
"""A sketch up to this fraction of its file is small: preferred to one for more conditions."""


@dataclass(frozen=True, slots=True)
class KindAdvice:
    """One index type on one column: its effect and its cost.

    `kept` are the files that it keeps for KEYS[i] keys (substrings for a text index). `known` is
    the fraction of files with a known sketch. `bytes` and `seconds` are the cost for one file,
    including the time to read the column. `answers` counts the forms of conditions (`=`, `IN`, `<`,
    ...) that it supports. `past_scans` scans had conditions that only this one supports: it would
    have saved them `saved_files` files with `saved_bytes` bytes.
    """

    spelling: str
    kept: tuple[float, ...]
    known: float
    bytes: float
    seconds: float
    answers: int
    advised: bool = False
    for_text: bool = False
    past_scans: int = 0
    saved_files: float = 0.0
    saved_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class ColumnAdvice:
    """One column: its clustering, and the effect of each index type and of sorting the table.

    `bounds` are the files that the baseline keeps, empty without any statistics. `own` is its name
    (Baseline): the table's own bounds and partitions, or for a multi-column index the best index
    types of its columns. `sorted` is empty for expressions and multi-column indexes. `recorded`
    has the predicates of past scans without an index; `sql` is the column as CREATE spells it.
    """

    name: str
    sql: str
    type: str
    reason: str
    kinds: tuple[KindAdvice, ...] = ()
    clustering: Clustering | None = None
    distinct: tuple[float, int] = (0.0, 0)
    sorted: tuple[float, ...] = ()
    bounds: tuple[float, ...] = ()
    recorded: tuple[RecordedPredicate, ...] = ()
    own: str = ""

    @property
    def advised(self) -> KindAdvice | None:
        """The recommended index type for values, else the one for text search, else None."""
        return next(iter(self.all_advised), None)

    @property
    def all_advised(self) -> tuple[KindAdvice, ...]:
        """The recommended index types: at most one for values, and one for text search."""
        return tuple(sorted((k for k in self.kinds if k.advised), key=lambda k: k.for_text))


def spell_column(column: TableColumn) -> str:
    """Return a column in SQL: `my col`.`x.y`.z, (a, b), or its expression."""
    if column.is_composite:
        return f"({', '.join(map(spell_column, column.reads))})"
    return column.name if column.expression else sql_name(split_parts(column.name))


def advise(
    sample: Sample,
    files: int,
    asked: Sequence[RecordedPredicate] = (),
    baseline: Baseline | None = None,
) -> ColumnAdvice:
    """Recommend index types for a column of a table with `files` files, from a sample.

    `baseline` prunes files without these index types; by default it is the table itself.
    """
    column = sample.work[0].column
    spelled = spell_column(column)
    seen = sample.files
    if not len(seen):
        why = "no sampled file could be read" if files else "the table has no files"
        return ColumnAdvice(column.name, spelled, column.type, why)
    baseline = baseline or TableItself(sample, files)
    questions = {k: list(values(sample, files, k)) for k in KEYS}
    own = _estimate_baseline(baseline, files, list(questions.values()))
    spans = ranges(sample) if any(a.form == RANGE for a in asked) else []
    texts = [substrings(q) for q in questions.values()] if _has_text(sample) else []
    works = [w for w in sample.work if not (w.indexed.params and _suffices(w, sample))]
    size = pc.mean(seen["size"]).as_py()
    history = _History(sample, files, asked, spans, own, baseline)
    kinds = tuple(
        history.estimate_savings(_measure_type(w, sample, files, questions, texts), w)
        for w in works
    )
    distinct = seen["distinct"].to_numpy()
    made = ColumnAdvice(
        column.name,
        spelled,
        column.type,
        "",
        kinds,
        None if column.is_composite else _clustering(sample, files),
        (float(distinct.mean()), int(distinct.max())),
        () if column.reads else _estimate_sorted_layout(sample, files, questions),
        own,
        tuple(asked),
        baseline.name,
    )
    only_text = column.expression is not None and all(a.form == TEXT for a in asked)
    some = made.distinct[1] > 0
    best = _best(made, files, size) if some and not only_text else None
    search = _best_for_text(made, files) if some else None
    chosen = tuple(replace(k, advised=k is best or k is search) for k in kinds)
    made = replace(made, kinds=chosen)
    return replace(made, reason=_reason(made, files))


def best_works(columns: Sequence[tuple[ColumnAdvice, Sample]]) -> list[tuple[Work, Sample]]:
    """Return for each column its best index type, not counting those for text search.

    It leaves the fewest files to read; among equals, it supports the most forms of conditions.
    """
    best = []
    for advice, sample in columns:
        rank = {k.spelling: (mean(k.kept), -k.answers) for k in advice.kinds if not k.for_text}
        work = min(sample.work, key=lambda work: rank.get(_format_type(work), (float("inf"), 0)))
        best.append((work, sample))
    return best


def _format_type(work: Work) -> str:
    params = ", ".join(str(value) for _, value in work.indexed.params)
    return work.indexed.kind + (f"({params})" if params else "")


def _clustering(sample: Sample, files: int) -> Clustering:
    lows, highs = (sample.files[name].combine_chunks() for name in ("low", "high"))
    return clustering(lows, highs).scale(files)


def _has_text(sample: Sample) -> bool:
    return any(w.indexed.kind in FOR_TEXT for w in sample.work)


def _suffices(work: Work, sample: Sample) -> bool:
    """Return whether this index type with default parameters has a known sketch of every file."""
    plain = [w for w in sample.work if w.indexed.kind == work.indexed.kind and not w.indexed.params]
    return any(all(sample.files[f"{w.indexed.sketch}_known"].to_pylist()) for w in plain)


def _measure_type(
    work: Work,
    sample: Sample,
    files: int,
    questions: Mapping[int, list[Draw]],
    texts: Sequence[list[Draw]],
) -> KindAdvice:
    sketch, provider, seen = work.indexed.sketch, work.provider, sample.files
    sketches = sketches_of(work, seen)
    fields = [name for name in sketches.column_names if not name.endswith("_known")]
    took = seen["reading"].to_numpy() + seen[f"{sketch}_building"].to_numpy()
    for_text = work.indexed.kind in FOR_TEXT
    return KindAdvice(
        _format_type(work),
        tuple(
            estimate_remaining(work, draws, seen, files)
            for draws in (texts if for_text else questions.values())
        ),
        float(np.mean(sketches[0].to_pylist())),
        sum(sketches[name].nbytes for name in fields) / len(seen),
        float(took.mean()) / 1e9,
        sum(provider.rewrite(leaf) is not None for leaf in _forms(questions)),
        for_text=for_text,
    )


def _forms(questions: Mapping[int, list[Draw]]) -> Iterator[Leaf]:
    for draw in questions[1][:1]:
        (value,) = draw.keys.to_pylist()
        yield from (Compare("", "=", value), Compare("", "!=", value), Compare("", "<", value))
        yield from (In("", draw.keys), In("", draw.keys, True), IsNull(""), IsNull("", True))
        if not isinstance(value, int):
            yield StartsWith("", value)


def _estimate_sorted_layout(
    sample: Sample, files: int, questions: Mapping[int, list[Draw]]
) -> tuple[float, ...]:
    drawn = sample.files["drawn"].combine_chunks()
    lengths = np.array([len(drawn[i]) for i in range(len(drawn))])
    rows = sample.files["rows"].to_numpy() - sample.files["nulls"].to_numpy()
    weights = np.repeat(rows / np.maximum(lengths, 1), lengths)
    layout = SortedLayout(drawn.flatten(), weights, files=files)
    return tuple(
        mean([float(layout.count_files(draw.keys)) for draw in questions[k]]) for k in KEYS
    )


def _estimate_baseline(
    baseline: Baseline, files: int, questions: Sequence[list[Draw]]
) -> tuple[float, ...]:
    """Return the files that the baseline keeps; empty if it has no statistics of the column."""
    kept = [baseline.estimate_files(draws) for draws in questions]
    if all(n is None for n in kept):
        return ()
    return tuple(float(files) if n is None else n for n in kept)


class _History:
    """The recorded predicates on a column, and the files that the baseline keeps for them.

    A scan with several conditions counts for each of them, so savings are those of one condition,
    not of all together. Files that the baseline would have pruned do not count.
    """

    def __init__(
        self,
        sample: Sample,
        files: int,
        asked: Sequence[RecordedPredicate],
        spans: list[Draw],
        own: tuple[float, ...],
        baseline: Baseline,
    ) -> None:
        self._sample, self._files, self._asked, self._spans = sample, files, asked, spans
        self._own = own or (float(files),) * len(KEYS)
        self._own_span = (baseline.estimate_files(spans) if spans else None) or float(files)

    def estimate_savings(self, kind: KindAdvice, work: Work) -> KindAdvice:
        """Return the advice with its savings.

        Ranges are evaluated. Other forms use the files that the index type keeps for a similar
        number of keys.
        """
        scans, files, size = 0, 0.0, 0.0
        span = None
        for each in self._asked:
            if (each.form == TEXT) != kind.for_text:
                continue
            if each.form == RANGE:
                if span is None:
                    span = estimate_remaining(work, self._spans, self._sample.files, self._files)
                kept, own = span, self._own_span
            else:
                # The number of a join's keys may be unknown.
                k = min(range(len(KEYS)), key=lambda i: abs(np.log10((each.keys or 10) / KEYS[i])))
                kept, own = kind.kept[k], self._own[k] if each.form == VALUES else self._files
            share = max(0.0, 1 - kept / own) if own else 0.0
            share *= min(1.0, each.scans * own / each.opened) if each.opened else 0.0
            scans += each.scans
            files += share * each.opened
            size += share * each.bytes
        return replace(kind, past_scans=scans, saved_files=files, saved_bytes=size)


def _best(column: ColumnAdvice, files: int, size: float) -> KindAdvice | None:
    """Return the useful index type that keeps the fewest files, fewer than the baseline, or None.

    If several keep equally few, prefer small ones (`size` is a file's size in bytes), then those
    that support more forms of conditions, then the smallest.
    """

    def share(kind: KindAdvice) -> float:
        return mean(kind.kept) / files

    own = mean(column.bounds) / files - _ALIKE if column.bounds else 1.0
    worth = [
        k
        for k in column.kinds
        if not k.for_text and min(k.kept) <= _WORTH * files and share(k) < own
    ]
    if not worth:
        return None
    alike = [kind for kind in worth if share(kind) <= min(map(share, worth)) + _ALIKE]
    return min(alike, key=lambda k: (k.bytes > _SMALL * size, -k.answers, k.bytes))


def _best_for_text(column: ColumnAdvice, files: int) -> KindAdvice | None:
    worth = [k for k in column.kinds if k.for_text and k.kept[0] <= _WORTH * files]
    return min(worth, key=lambda k: (mean(k.kept), k.bytes), default=None)


def _reason(column: ColumnAdvice, files: int) -> str:
    layout = f"{column.distinct[0]:,.0f} values a file"
    if column.clustering is not None and column.clustering.files:
        layout += f", ranges {column.clustering.depth:,.1f} deep"
    if not column.distinct[1]:
        return "it has only nulls"
    reasons = []
    for best in column.all_advised:
        what = "substring" if best.for_text else "key"
        part = f"keeps {_for_keys(best.kept, what)} of {files:,} files"
        if column.bounds and not best.for_text:
            one, ten = column.bounds[:2]
            part += f", {column.own} {one:,.0f} and {ten:,.0f}"
        reasons.append(part)
    if not reasons and column.bounds and min(column.bounds) <= _WORTH * files:
        kept = _for_keys(column.bounds)
        own = f"{column.own} keep {kept}"
        reasons.append(f"{own} of {files:,} files, and no index type keeps fewer")
    elif not reasons:
        reasons.append(f"every index type keeps more than {_WORTH:.0%} of {files:,} files")
    apart = min((k.kept[0] for k in column.kinds), default=files)
    if column.sorted and column.sorted[0] < 0.5 * apart:
        reasons.append(f"if sorted by it, {column.sorted[0]:,.0f} for 1 key")
    reasons.extend(_describe_history(column))
    return f"{layout}: {'; '.join(reasons)}"


def _describe_history(column: ColumnAdvice) -> Iterator[str]:
    for each in column.recorded:
        times = "once" if each.scans == 1 else f"{each.scans:,} times"
        yield f"{each.condition} had no index {times}"
    for best in column.all_advised:
        if best.past_scans:
            opened = sum(a.opened for a in column.recorded if (a.form == TEXT) == best.for_text)
            yield f"{best.spelling} would have saved {best.saved_files:,.0f} of {opened:,} files"


def _for_keys(kept: Sequence[float], what: str = "key") -> str:
    return " and ".join(
        f"{n:,.0f} for {k} {what}{'s' * (k > 1)}" for n, k in zip(kept[:2], KEYS, strict=False)
    )
