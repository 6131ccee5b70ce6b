"""Recommend index types for columns, from measurements in a sample of files.

An index type is evaluated as in a query: its own tests on its own sketches, for one key and for
several (`skipping.advise.questions`). `sorted` is the estimate for the table sorted by the column,
with the same number of files (`skipping.advise.clustering`).

The benefit of an index type are the bytes that queries do not read because of it, plus OPEN_COST
for each file that they do not open. The queries are the recorded ones. If none is recorded on the
table, they are three typical ones on each column: for one key, for ten, and for a tenth of the
values. Only the last one is typical for fractions such as prices, which are measures. `recommend`
chooses the index types with the most benefit whose size is within a budget.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow.compute as pc

from providers.base import Layout, Param
from providers.predicate import Compare, In, IsNull, Leaf, StartsWith
from skipping.advise.baseline import Baseline, TableItself
from skipping.advise.choose import OPEN_COST, Option, choose
from skipping.advise.clustering import Clustering, SortedLayout, clustering
from skipping.advise.history import RANGE, TEXT, VALUES, RecordedPredicate
from skipping.advise.questions import (
    KEYS,
    Draw,
    estimate_remaining,
    mean,
    prefixes,
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

__all__ = [
    "FOR_TEXT",
    "KEYS",
    "ColumnAdvice",
    "KindAdvice",
    "advise",
    "best_works",
    "format_type",
    "measure_size",
    "recommend",
    "spell_column",
]

FOR_TEXT = ("NGRAM",)
"""Index types that are measured by substrings instead of values, if queries searched for them."""

_LEAST = 0.05
"""An index type is useful if it saves this fraction of what the queries on its column read."""

_BITS = 14
"""Bits of a Bloom filter for a value, if its capacity is 1.5 times the number of values."""

_MANY = 1_000
"""Values of a file for which a list may be too large or unknown."""

_COPIES = 2
"""Stores have each value of a list twice: in the file's entry and in the inverted index."""


@dataclass(frozen=True, slots=True)
class KindAdvice:
    """One index type on one column: its effect and its cost.

    `kept` are the files that it keeps for KEYS[i] keys (substrings for a text index). `known` is
    the fraction of files with a known sketch. `bytes` and `seconds` are the cost for one file,
    including the time to read the column. `answers` counts the forms of conditions (`=`, `IN`, `<`,
    ...) that it supports. `past_scans` scans had conditions that only this one supports: it would
    have saved them `saved_files` files with `saved_bytes` bytes. `benefit` are the bytes that it
    saves of those queries, or of typical ones, and `saved` is this as a fraction of what they read.
    If it `folds`, it also evaluates conditions that ignore case.
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
    benefit: float = 0.0
    saved: float = 0.0
    folds: bool = False

    @property
    def kind(self) -> str:
        """The index type without its parameters."""
        return self.spelling.partition("(")[0]


@dataclass(frozen=True, slots=True)
class ColumnAdvice:
    """One column: its clustering, and the effect of each index type and of sorting the table.

    `bounds` are the files that the baseline keeps, empty without any statistics. `own` is its name
    (Baseline): the table's own bounds and partitions, or for a multi-column index the best index
    types of its columns. `sorted` is empty for expressions and multi-column indexes. `recorded`
    has the predicates of past scans without an index; `sql` is the column as CREATE spells it. It
    `is_unused` if there are recorded predicates on the table, but none on the column.
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
    identity: str = ""
    is_unused: bool = False

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
    *,
    typical: bool | None = None,
) -> ColumnAdvice:
    """Measure the index types of a column of a table with `files` files, from a sample.

    `baseline` prunes files without these index types; by default it is the table itself. The
    queries are `asked`, and with `typical` (by default if `asked` is empty) also typical ones.
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
    texts = [substrings(q) for q in questions.values()] if _has_text(sample) else []
    works = [w for w in sample.work if not (w.indexed.params and _suffices(w, sample))]
    typical = not asked if typical is None else typical
    queries = _Queries(sample, files, asked, own, baseline, typical=typical)
    kinds = tuple(
        queries.estimate_savings(_measure_type(w, sample, files, questions, texts), w)
        for w in works
    )
    distinct = seen["distinct"].to_numpy()
    return ColumnAdvice(
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
        column.identity,
        not asked and not typical,
    )


def recommend(
    columns: Sequence[ColumnAdvice],
    files: int,
    budget: float,
    existing: Collection[tuple[str, str]] = (),
    missing: Mapping[str, Mapping[str, str]] | None = None,
) -> list[ColumnAdvice]:
    """Choose index types with at most `budget` bytes together, and give the reasons.

    At most one type is chosen for the values of a column, and one for its substrings. `existing`
    are the identities and index types of an index that the table has: they use the budget, and
    other types count only for what they save in addition. `missing` has for the identities of
    columns the index types that lack a package, with the reason.
    """
    left = budget
    options: dict[Option, tuple[int, KindAdvice]] = {}
    for number, column in enumerate(columns):
        # One spelling for each type: the first, without parameters, as `existing` has none.
        first = {k.kind: k for k in reversed(column.kinds)}
        have = [k for k in first.values() if (column.identity, k.kind) in existing]
        left -= files * sum(k.bytes for k in have)
        for kind in column.kinds if column.distinct[1] else ():
            alike = [k for k in have if k.for_text == kind.for_text]
            benefit = kind.benefit - max((k.benefit for k in alike), default=0.0)
            if kind.saved > 0 and kind.saved * benefit / kind.benefit >= _LEAST:
                group = (number, kind.for_text)
                option = Option(group, benefit, files * kind.bytes, kind.answers)
                options[option] = (number, kind)
    chosen = [options[option] for option in choose(list(options), max(0.0, left))]
    found = []
    for number, column in enumerate(columns):
        if not column.kinds:
            found.append(column)
            continue
        advised = [kind for n, kind in chosen if n == number]
        useful = [kind for n, kind in options.values() if n == number]
        kinds = tuple(replace(k, advised=any(k is kind for kind in advised)) for k in column.kinds)
        made = replace(column, kinds=kinds)
        reasons = [_reason(made, files, useful, budget)]
        reasons.extend(_list_better(made, (missing or {}).get(column.identity, {})))
        found.append(replace(made, reason="; ".join(reasons)))
    return found


def best_works(columns: Sequence[tuple[ColumnAdvice, Sample]]) -> list[tuple[Work, Sample]]:
    """Return for each column its best index type, not counting those for text search.

    It leaves the fewest files to read; among equals, it supports the most forms of conditions.
    """
    best = []
    for advice, sample in columns:
        rank = {k.spelling: (mean(k.kept), -k.answers) for k in advice.kinds if not k.for_text}
        work = min(sample.work, key=lambda work: rank.get(format_type(work), (float("inf"), 0)))
        best.append((work, sample))
    return best


def format_type(work: Work) -> str:
    """Return an index type with its parameters, as CREATE spells it."""
    given = work.indexed.params
    names = work.provider.signature([value for _, value in given])
    is_positional = [name for name, _ in given] == list(names[: len(given)])
    params = [_literal(v) if is_positional else f"{name} => {_literal(v)}" for name, v in given]
    return work.indexed.kind + (f"({', '.join(params)})" if params else "")


def _literal(value: Param) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _clustering(sample: Sample, files: int) -> Clustering:
    lows, highs = (sample.files[name].combine_chunks() for name in ("low", "high"))
    return clustering(lows, highs).scale(files)


def _has_text(sample: Sample) -> bool:
    return any(w.indexed.kind in FOR_TEXT for w in sample.work)


def _suffices(work: Work, sample: Sample) -> bool:
    """Return whether a list with the default limit has a known sketch of every file."""
    if work.indexed.kind != "VALUE_LIST":
        return False
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
    took = seen["reading"].to_numpy() + seen[f"{sketch}_building"].to_numpy()
    for_text = work.indexed.kind in FOR_TEXT
    return KindAdvice(
        format_type(work),
        tuple(
            estimate_remaining(work, draws, seen, files)
            for draws in (texts if for_text else questions.values())
        ),
        float(np.mean(sketches[0].to_pylist())),
        measure_size(work, sample),
        float(took.mean()) / 1e9,
        sum(provider.rewrite(leaf) is not None for leaf in _forms(questions)),
        for_text=for_text,
        folds=bool(dict(work.indexed.params).get("fold")),
    )


def measure_size(work: Work, sample: Sample) -> float:
    """Return the bytes that an index type takes for a file on average, in a store."""
    sketches = sketches_of(work, sample.files)
    sizes = [
        (_COPIES if field.layout is Layout.TERMS else 1)
        * sketches[f"{work.indexed.sketch}{field.column}"].nbytes
        for field in work.provider.fields()
    ]
    return float(sum(sizes)) / len(sample.files)


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


class _Queries:
    """The queries on a column, and the files that the baseline keeps for them.

    A scan with several conditions counts for each of them, so savings are those of one condition,
    not of all together. Files that the baseline would have pruned do not count.
    """

    def __init__(
        self,
        sample: Sample,
        files: int,
        asked: Sequence[RecordedPredicate],
        own: tuple[float, ...],
        baseline: Baseline,
        *,
        typical: bool,
    ) -> None:
        self._sample, self._files, self._asked, self._baseline = sample, files, asked, baseline
        self._own = own or (float(files),) * len(KEYS)
        self._spans: dict[bool, tuple[list[Draw], float]] = {}
        size = float(pc.mean(sample.files["size"]).as_py())
        self._typical = list(self._list_typical(size)) if typical else []

    def estimate_savings(self, kind: KindAdvice, work: Work) -> KindAdvice:
        """Return the advice with its savings.

        Ranges and prefixes are evaluated. Other forms use the files that the index type keeps for
        KEYS, interpolated.
        """
        past = [each for each in self._asked if (each.form == TEXT) == kind.for_text]
        past = [each for each in past if kind.folds or not each.ignores_case]
        files, size = self._estimate(kind, work, past)
        more_files, more_size = self._estimate(kind, work, [] if kind.for_text else self._typical)
        benefit = size + more_size + OPEN_COST * (files + more_files)
        queries = [*self._asked, *self._typical]
        read = sum(each.bytes + OPEN_COST * each.opened for each in queries)
        return replace(
            kind,
            past_scans=sum(each.scans for each in past),
            saved_files=files,
            saved_bytes=size,
            benefit=benefit,
            saved=benefit / read if read else 0.0,
        )

    def _estimate(
        self, kind: KindAdvice, work: Work, queries: Sequence[RecordedPredicate]
    ) -> tuple[float, float]:
        """Return the files and bytes that these queries would not have read."""
        files, size = 0.0, 0.0
        ranges_kept: dict[bool, float] = {}
        for each in queries:
            if each.form == RANGE:
                draws, own = self._draw_ranges(prefix=each.is_prefix)
                if each.is_prefix not in ranges_kept:
                    kept = estimate_remaining(work, draws, self._sample.files, self._files)
                    ranges_kept[each.is_prefix] = kept
                kept = ranges_kept[each.is_prefix]
            else:
                kept = _interpolate(kind.kept, each.keys)
                own = _interpolate(self._own, each.keys) if each.form == VALUES else self._files
            share = max(0.0, 1 - kept / own) if own else 0.0
            share *= min(1.0, each.scans * own / each.opened) if each.opened else 0.0
            files += share * each.opened
            size += share * each.bytes
        return files, size

    def _draw_ranges(self, *, prefix: bool) -> tuple[list[Draw], float]:
        """Return the draws for ranges or prefixes, and the files that the baseline keeps."""
        if prefix not in self._spans:
            draws = prefixes(self._sample) if prefix else ranges(self._sample)
            own = (self._baseline.estimate_files(draws) if draws else None) or float(self._files)
            self._spans[prefix] = draws, own
        return self._spans[prefix]

    def _list_typical(self, size: float) -> Iterator[RecordedPredicate]:
        column = self._sample.work[0].column
        if not _is_fraction(column.type):
            for i, keys in enumerate(_TYPICAL_KEYS):
                yield _scan_once(VALUES, keys, self._own[i], size)
        if not column.is_composite:
            yield _scan_once(RANGE, 1, self._draw_ranges(prefix=False)[1], size)


_TYPICAL_KEYS = KEYS[:2]


def _interpolate(kept: Sequence[float], keys: float) -> float:
    """Return the files kept for a number of keys; an unknown number, as of a join, is ten."""
    return float(np.interp(np.log10(keys or 10), np.log10(KEYS), kept))


def _scan_once(form: str, keys: int, opened: float, size: float) -> RecordedPredicate:
    # Not rounded: a query may open less than a file on average.
    return RecordedPredicate("", "", "", False, form, 1, opened, opened * size, keys)


def _is_fraction(type: str) -> bool:
    return type in ("float", "double") or (type.startswith("decimal") and not type.endswith(",0)"))


def _reason(column: ColumnAdvice, files: int, useful: Sequence[KindAdvice], budget: float) -> str:
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
    if not reasons and useful:
        best = max(useful, key=lambda kind: kind.benefit / max(kind.bytes, 1.0))
        size = files * best.bytes
        why = "exceed the budget" if size > budget else "do not fit into what is left of the budget"
        reasons.append(
            f"{best.spelling} saves {best.saved:.0%} of the bytes of queries on it, but its "
            f"{size:,.0f} bytes {why}"
        )
    elif not reasons and column.bounds and min(column.bounds) <= 0.5 * files:
        kept = _for_keys(column.bounds)
        own = f"{column.own} keep {kept}"
        reasons.append(f"{own} of {files:,} files, and no index type keeps fewer")
    elif not reasons and column.is_unused:
        reasons.append("no recorded query has a condition on it that an index could evaluate")
    elif not reasons:
        reasons.append(
            f"no index type saves {_LEAST:.0%} of the bytes of queries on it ({files:,} files)"
        )
    apart = min((k.kept[0] for k in column.kinds), default=files)
    if column.sorted and column.sorted[0] < 0.5 * apart:
        reasons.append(f"if sorted by it, {column.sorted[0]:,.0f} for 1 key")
    reasons.extend(_describe_history(column))
    return f"{layout}: {'; '.join(reasons)}"


def _list_better(column: ColumnAdvice, missing: Mapping[str, str]) -> Iterator[str]:
    """Yield why the package of a Bloom filter is missing, if the filter would be smaller."""
    size = _BITS / 8 * column.distinct[0]
    best = next((kind for kind in column.all_advised if not kind.for_text), None)
    looks_up = any(kind.answers and kind.benefit for kind in column.kinds) or not column.kinds
    is_better = best.bytes > size if best is not None else column.distinct[0] > _MANY
    if "BLOOM_FILTER" in missing and looks_up and is_better:
        yield (
            f"a Bloom filter of about {size:,.0f} bytes a file may be better: "
            + missing["BLOOM_FILTER"]
        )


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
