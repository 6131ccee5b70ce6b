"""ANALYZE: measure a sample of a table's files, and recommend an index for the table."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import SparkSession

from providers.base import Column, Param
from providers.errors import DefinitionError, SkippingError
from providers.predicate import Between, Compare, In, Leaf, StartsWith
from providers.registry import kinds
from providers.values import Value, successor
from skipping.advise.baseline import ColumnKinds, Planned, TableItself
from skipping.advise.choose import BUDGET
from skipping.advise.computed import measure_expression
from skipping.advise.history import (
    TEXT,
    RecordedPredicate,
    attribute_to_columns,
    list_unused_predicates,
)
from skipping.advise.recommend import (
    FOR_TEXT,
    KEYS,
    ColumnAdvice,
    KindAdvice,
    advise,
    best_works,
    recommend,
    spell_column,
)
from skipping.advise.sample import FILES, Sample, choose_files, measure_files
from skipping.advise.workload import read_workload
from skipping.config.settings import Settings
from skipping.indexing.definitions import find_index
from skipping.indexing.sketch import Work
from skipping.lookup.format import format_value
from skipping.model.definition import IndexedColumn
from skipping.parser.condition import LONGEST
from skipping.sources.spark import settings_of, store_of
from skipping.tables import Columns, Table, TableColumn
from skipping.tables.composites import combine
from skipping.tables.open import open_table

_FURTHER: dict[str, dict[str, Param]] = {"VALUE_LIST": {"limit": 10_000}}
"""Index types that are also measured with other parameters."""

_FOR_NETWORKS = ("ADDRESSES",)
"""Index types that are measured if queries had conditions on prefixes of text."""

_EXPRESSIONS = 8
"""Maximum number of expressions to measure, most frequent first: each one reads the sample."""

_COMPOSITES = 4
"""Maximum number of multi-column indexes to measure, most frequent first."""

_DEFAULT = "spark_catalog"

_UNKNOWN = (None,) * len(KEYS)


@dataclass(frozen=True, slots=True)
class Advice:
    """The result of ANALYZE; `print` it.

    The table has `files` files with `bytes` bytes; ANALYZE read a sample of `sampled_files` files
    with `sampled_bytes` bytes. All other figures are estimates for the complete table. `budget` is
    the maximum size of the index, as a fraction of `bytes`. `existing` are the identities and index
    types of the index that the table has.
    """

    table: str
    files: int
    bytes: int
    sampled_files: int
    sampled_bytes: int
    columns: tuple[ColumnAdvice, ...]
    budget: float = BUDGET
    existing: frozenset[tuple[str, str]] = frozenset()

    @property
    def ddl(self) -> str | None:
        """The statement that creates or adds all recommended index types; None without any."""
        listed = ", ".join(f"{c.sql} {kind.spelling}" for c, kind in self._list_choice())
        if not listed:
            return None
        if self.existing:
            return f"ALTER SKIPPING INDEX ON {self.table} ADD ({listed})"
        return f"CREATE SKIPPING INDEX ON {self.table} ({listed})"

    @property
    def index_bytes(self) -> int:
        """The size of all recommended index types together."""
        return round(self.files * sum(kind.bytes for _, kind in self._list_choice()))

    @property
    def share(self) -> float:
        """The size of all recommended index types as a fraction of the table's bytes."""
        return self.index_bytes / self.bytes if self.bytes else 0.0

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the rows of `ANALYZE SKIPPING INDEX`: one for each column, then the total."""
        rows: list[tuple[Any, ...]] = []
        for column in self.columns:
            head = (column.name, column.type, column.reason)
            rows.extend(
                (*head, kind.spelling, kind.saved, *self._size(kind), None)
                for kind in column.all_advised
            )
            if not column.all_advised:
                rows.append((*head, None, None, None, None, None))
        return [
            *rows,
            (None, None, self._total, None, None, self.index_bytes, self.share, self.ddl),
        ]

    def _size(self, kind: KindAdvice) -> tuple[int, float]:
        size = round(self.files * kind.bytes)
        return size, size / self.bytes if self.bytes else 0.0

    @property
    def _total(self) -> str:
        if self.ddl is None:
            return "no index is recommended for the table's current layout"
        return (
            f"all recommended index types: {self.index_bytes:,} bytes, {self.share:.1%} of the "
            f"data (budget {100 * self.budget:g}%)"
        )

    def _list_choice(self) -> list[tuple[ColumnAdvice, KindAdvice]]:
        return [(column, kind) for column in self.columns for kind in column.all_advised]

    def details(self) -> list[tuple[Any, ...]]:
        """Return the rows of `WITH (details = true)`: one for each column and index type."""
        return [row for c in self.columns for row in self._rows(c)]

    def _rows(self, column: ColumnAdvice) -> list[tuple[Any, ...]]:
        layout = column.clustering
        seen = (
            self.files,
            self.sampled_files,
            *(column.distinct if column.kinds else (None, None)),
            *((layout.depth, layout.overlaps) if layout else (None, None)),
        )
        laid = (*(column.sorted or _UNKNOWN), *(column.bounds or _UNKNOWN))
        head = (column.name, column.type, column.reason)
        if not column.kinds:
            scans = sum(recorded.scans for recorded in column.recorded)
            nothing = (None, False, *_UNKNOWN, None, None)
            return [(*head, *nothing, *laid, *seen, None, scans, None, None)]
        return [
            (
                *(*head, kind.spelling, kind.advised),
                *(*kind.kept, kind.bytes, 1_000 * kind.seconds, *laid, *seen),
                self.ddl if kind.advised else None,
                *(kind.past_scans, kind.saved_files, kind.saved_bytes),
            )
            for kind in column.kinds
        ]

    def __str__(self) -> str:
        lines = [
            f"{self.table}: {self.files:,} files, {self.bytes / 1e6:,.1f} MB; sampled "
            f"{self.sampled_files:,}, {self.sampled_bytes / 1e6:,.1f} MB",
            f"{'':<36} files kept for {KEYS[0]:>5} {KEYS[1]:>7} {KEYS[2]:>7} keys"
            "   bytes a file  ms a file",
        ]
        for column in self.columns:
            lines.append(f"{column.name} {column.type}: {column.reason}")
            lines.extend(_line(kind) for kind in column.kinds)
            if column.distinct[1]:
                if column.bounds:
                    lines.append(_files(f"    {column.own}", column.bounds))
                if column.sorted:
                    lines.append(_files("    sorted by it", column.sorted))
        lines.append(self._total)
        if self.ddl is not None:
            lines.append(self.ddl)
        return "\n".join(lines)


def _line(kind: KindAdvice) -> str:
    part = f", known in {kind.known:.0%}" if kind.known < 1 else ""
    kept = _files(f"  {'*' if kind.advised else ' '} {kind.spelling}{part}", kind.kept)
    return f"{kept}      {kind.bytes:>12,.0f} {1_000 * kind.seconds:>10,.1f}"


def _files(what: str, kept: Sequence[float]) -> str:
    return f"{what:<48} " + " ".join(f"{n:>7,.0f}" for n in kept)


def analyze(
    spark: SparkSession,
    table: str,
    *,
    columns: Sequence[str] | None = None,
    files: int | None = None,
    budget: float = BUDGET,
) -> Advice:
    """Recommend an index for a table, from a sample of at most `files` files (default FILES).

    `columns` limits the columns, and `budget` the size of the index as a fraction of the table's
    bytes. Writes nothing. Raises TableError if the table cannot be read, and DefinitionError for an
    unknown column.
    """
    if not budget > 0:
        raise DefinitionError(
            f"the budget is a fraction of the table's bytes above 0, not {budget}"
        )
    settings = settings_of(spark)
    opened = open_table(spark, table)
    there = opened.columns()
    named = None if columns is None else [there.resolve(name) for name in columns]
    unused = list_unused_predicates(read_workload(spark).records, opened.id)
    history = attribute_to_columns(unused, there)
    analyzed = there.values() if named is None else named
    measured = measure(
        spark, opened, history, columns=analyzed, files=files, computed=named is None
    )
    existing = _list_existing(spark, settings, opened)
    missing = {c.identity: _find_missing(c, settings.providers) for c in analyzed}
    chosen = recommend(measured.columns, measured.files, budget * measured.bytes, existing, missing)
    is_current = spark.catalog.currentCatalog() == _DEFAULT
    return Advice(
        re.sub(rf"^{_DEFAULT}\.", "", opened.name) if is_current else opened.name,
        measured.files,
        measured.bytes,
        measured.sampled_files,
        measured.sampled_bytes,
        tuple(chosen),
        budget,
        existing,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Measurements of columns, without a choice; the table's size and the sample's as in Advice."""

    columns: Sequence[ColumnAdvice]
    files: int
    bytes: int
    sampled_files: int
    sampled_bytes: int


def measure(
    spark: SparkSession,
    table: Table,
    history: Sequence[RecordedPredicate],
    *,
    columns: Collection[TableColumn],
    files: int | None = None,
    computed: bool = True,
    where: str | None = None,
) -> Measured:
    """Measure the index types of columns for the predicates in `history`, or for typical ones.

    With `computed`, this includes expressions and multi-column indexes for these predicates. With
    `where`, the table has only the files of an index with this condition. Raises TableError if the
    table cannot be read.
    """
    providers = settings_of(spark).providers
    there = table.columns()
    live = table.files(where=where)
    sample = choose_files(live, FILES if files is None else files)
    recorded = _by_identity(history)
    works = {c.identity: list_kinds(c, providers, recorded.get(c.identity, [])) for c in columns}
    looked = [w for w in works.values() if w]
    samples = dict(
        zip(
            (w[0].column.identity for w in looked),
            measure_files(spark, sample, looked, name=table.name),
            strict=True,
        )
    )
    found = {
        c.identity: advise(
            samples[c.identity],
            len(live),
            recorded.get(c.identity, []),
            TableItself(samples[c.identity], len(live), _plan_files(table, c)),
            typical=not history,
        )
        if c.identity in samples
        else _advise_against(c, recorded.get(c.identity, []))
        for c in columns
    }
    if computed:
        for column in _expressions(there, history):
            work = list_kinds(column, providers, recorded[column.identity])
            measured = measure_expression(spark, sample, work, dated=not table.has_log)
            found[column.identity] = advise(measured, len(live), recorded[column.identity])
        together = _composites(there, history, samples)
        kinds_of = [list_kinds(column, providers) for column, _ in together]
        weighed = [pair for pair in zip(together, kinds_of, strict=True) if pair[1]]
        tuples = measure_files(spark, sample, [work for _, work in weighed], name=table.name)
        for ((column, questions), _), measured in zip(weighed, tuples, strict=True):
            alone = [(found[c.identity], samples[c.identity]) for c in column.reads]
            baseline = ColumnKinds(measured, len(live), best_works(alone))
            found[column.identity] = advise(measured, len(live), questions, baseline)
    return Measured(
        columns=list(found.values()),
        files=len(live),
        bytes=pc.sum(live["size"]).as_py() or 0,
        sampled_files=len(sample),
        sampled_bytes=pc.sum(sample["size"]).as_py() or 0,
    )


def _list_existing(
    spark: SparkSession, settings: Settings, table: Table
) -> frozenset[tuple[str, str]]:
    """Return the identities and index types of the table's index; empty if it cannot be read."""
    try:
        definition = find_index(store_of(spark, settings), table).value
    except SkippingError:  # there is no index, or its store is unreachable
        return frozenset()
    return frozenset((i.identity, i.kind) for i in definition.columns)


def _by_identity(history: Sequence[RecordedPredicate]) -> dict[str, list[RecordedPredicate]]:
    found: dict[str, list[RecordedPredicate]] = {}
    for recorded in history:
        found.setdefault(recorded.identity, []).append(recorded)
    return found


def _expressions(columns: Columns, history: Sequence[RecordedPredicate]) -> Iterator[TableColumn]:
    """Yield the expressions of recorded predicates that CREATE accepts in this session."""
    wanted = {recorded.identity: recorded.sql for recorded in history if recorded.computed}
    for identity, sql in list(wanted.items())[:_EXPRESSIONS]:
        try:
            column = columns.compute(sql)
        except DefinitionError:
            continue
        if column.identity == identity:
            yield column


def _composites(
    columns: Columns, history: Sequence[RecordedPredicate], samples: Mapping[str, Sample]
) -> list[tuple[TableColumn, list[RecordedPredicate]]]:
    """Return the multi-column candidates of recorded predicates, with these predicates.

    Partition columns are left out: the table itself skips by them.
    """
    there = {column.identity: column for column in columns.values()}
    found: dict[str, tuple[TableColumn, list[RecordedPredicate]]] = {}
    for recorded in history:
        parts = [there[part] for part in recorded.parts if part in samples]
        parts = [part for part in parts if not part.partitioning.transforms]
        if len(parts) < 2:
            continue
        composite = combine(sorted(parts, key=lambda part: part.name))
        found.setdefault(composite.identity, (composite, []))[1].append(recorded)
    return list(found.values())[:_COMPOSITES]


def _plan_files(table: Table, column: TableColumn) -> Planned | None:
    if not column.partitioning.transforms:
        return None

    def plan_leaf(leaf: Leaf) -> int | None:
        paths: set[str] = set()
        try:
            for condition in _conditions(leaf, spell_column(column), column.type):
                paths.update(table.files(where=condition)["path"].to_pylist())
        except SkippingError:  # a value without a literal, such as NaN
            return None
        return len(paths)

    return plan_leaf


def _conditions(leaf: Leaf, name: str, type: str) -> Iterator[str]:
    """Yield conditions whose OR is the leaf; a long list is split into several conditions."""
    match leaf:
        case Between(_, low, high):
            yield f"{name} BETWEEN {_constant(low, type)} AND {_constant(high, type)}"
        case StartsWith(_, prefix):
            end = successor(prefix)
            assert end is not None, "drawn prefixes have one"
            yield f"{name} >= {_constant(prefix, type)} AND {name} < {_constant(end, type)}"
        case In(_, values):
            some: list[str] = []
            room = 0
            for constant in (_constant(value, type) for value in values.to_pylist()):
                if some and len(constant) + 2 > room:
                    yield f"{name} IN ({', '.join(some)})"
                    some = []
                if not some:
                    room = LONGEST - len(name) - len(" IN ()")
                some.append(constant)
                room -= len(constant) + 2
            yield f"{name} IN ({', '.join(some)})"
        case Compare(_, op, value):
            yield f"{name} {op} {_constant(value, type)}"
        case _:
            raise AssertionError(f"a drawn leaf has values, unlike {leaf}")


def _constant(value: Value, type: str) -> str:
    text = format_value(value, type)
    if isinstance(value, str):
        return text.replace("\\", "\\\\")
    match type:
        case "date" | "timestamp_ntz":
            return f"{type.upper()} {text}"
        case "timestamp":  # an instant in any time zone
            return f"TIMESTAMP {text[:-1]}Z'"
    return text


def _advise_against(column: TableColumn, found: Sequence[RecordedPredicate]) -> ColumnAdvice:
    reason = column.refusal or "a partition column: the table itself skips files by it"
    if column.partitioning.generated and not column.refusal:
        reason += f", and by conditions on {column.partitioning.generated}, which generates it"
    return ColumnAdvice(column.name, spell_column(column), column.type, reason, recorded=(*found,))


def list_kinds(
    column: TableColumn, providers: tuple[str, ...], history: Sequence[RecordedPredicate] = ()
) -> list[Work]:
    """Return the index types to measure for a column with these recorded predicates.

    Those for substrings, and those for networks, are included if `history` has such predicates.
    """
    if column.partition or column.refusal is not None:
        return []
    found: list[Work] = []
    left_out = {
        *(FOR_TEXT if all(recorded.form != TEXT for recorded in history) else ()),
        *(() if any(recorded.is_prefix for recorded in history) else _FOR_NETWORKS),
    }
    further = dict(_FURTHER)
    if any(recorded.ignores_case for recorded in history):
        further["NGRAM"] = {"fold": True}
    for kind in sorted(kinds(providers).keys() - left_out):
        for params in ({}, further[kind]) if kind in further else ({},):
            number = len(found) + 1
            given = tuple(params.items())
            indexed = IndexedColumn(number, column.name, column.identity, column.type, kind, given)
            try:
                domain = Column(column.name, indexed.domain)
                provider = kinds(providers)[kind].of((domain,), params)
            except DefinitionError:
                continue
            found.append(Work(indexed, column, provider))
    return found


def _find_missing(column: TableColumn, providers: tuple[str, ...]) -> dict[str, str]:
    """Return the index types that lack a package, with the reason and what to install."""
    found: dict[str, str] = {}
    if column.partition or column.refusal is not None:
        return found
    for kind, provider in kinds(providers).items():
        indexed = IndexedColumn(1, column.name, column.identity, column.type, kind, ())
        try:
            provider.of((Column(column.name, indexed.domain),), {})
        except DefinitionError as error:
            if isinstance(error.__cause__, ImportError):
                found[kind] = str(error)
    return found
