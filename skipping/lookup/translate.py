"""Translate a predicate into tests of one index's sketches, with reasons for what it cannot use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from providers.base import Column, SkippingProvider
from providers.errors import SettingError
from providers.index_predicate import AllOf, AlwaysFalse, AnyOf, IndexPredicate, map_tests, tests
from providers.predicate import (
    And,
    Between,
    Compare,
    Contains,
    EndsWith,
    In,
    IsNull,
    Leaf,
    Or,
    Predicate,
    StartsWith,
    StartsWithAny,
    Unknown,
    Within,
    fits,
    fold,
    label,
)
from providers.registry import kinds
from providers.simplify import simplify
from providers.tuples import tuple_domain, tuple_type
from providers.values import Domain
from skipping.lookup.composites import Composite, with_tuples
from skipping.lookup.format import format_leaf
from skipping.model.definition import Definition, IndexedColumn

MOST_LEAVES = 4_096
"""Maximum of leaves in a lookup; the rest are treated as conditions that no index can evaluate."""

FEW_TESTS = 4
"""Tests of a leaf that do not count for MOST_FURTHER: most index types need no more."""

MOST_FURTHER = 6_144
"""Maximum of tests in a lookup beyond FEW_TESTS for each leaf: types with intervals make dozens."""

_NOT_NULL = Compare | Between | Within | In | StartsWith | StartsWithAny
"""Leaves that null never satisfies."""

USELESS = 0.5
"""The highest expected false-positive rate of a useful test."""


@dataclass(frozen=True, slots=True)
class QueryColumn:
    """A column of a query: its display name, its domain and its Spark type."""

    name: str
    domain: Domain
    type: str = ""


def composite_column(
    indexed: IndexedColumn, columns: Mapping[str, QueryColumn]
) -> QueryColumn | None:
    """Return a multi-column index as a column of the query; None if a column of it is missing."""
    parts = [columns[identity] for identity in indexed.part_identities if identity in columns]
    if not parts or len(parts) < len(indexed.parts):
        return None
    name = f"({', '.join(part.name for part in parts)})"
    domain = tuple_domain([part.domain for part in parts])
    return QueryColumn(name, domain, tuple_type([part.type for part in parts]))


class PredicateTranslator:
    """Translates one predicate for one index; records the labels of leaves, and the unused ones."""

    def __init__(
        self,
        definition: Definition,
        columns: Mapping[str, QueryColumn],
        providers: tuple[str, ...],
        *,
        values: bool = False,
    ) -> None:
        """`values`: whether labels and reasons show the values of conditions, which are data."""
        self._definition = definition
        composites = ((i.identity, composite_column(i, columns)) for i in definition.columns)
        tuples = {identity: column for identity, column in composites if column is not None}
        self._columns = {**columns, **tuples}
        self._composites = [
            Composite(i.identity, {part: columns[part].domain for part in i.part_identities})
            for i in {i.identity: i for i in definition.columns}.values()
            if i.identity in tuples
        ]
        self._providers = providers
        self._values = values
        # By id, as Arrow arrays in predicates do not hash. They stay alive, so ids stay unique.
        self._labelled: dict[int, tuple[str, str, IndexPredicate]] = {}
        self._leaf_count = 0
        self._further = 0
        self._hinted: set[str] = set()
        self.unused: list[str] = []

    def labelled_leaves(
        self, predicate: IndexPredicate | None
    ) -> Iterator[tuple[str, str, IndexPredicate]]:
        """Yield the label, source and tests of each leaf of a translated predicate."""
        todo = [predicate]
        while todo:
            node = todo.pop()
            if id(node) in self._labelled:
                yield self._labelled[id(node)]
            elif isinstance(node, AllOf | AnyOf):
                todo.extend(reversed(node.legs))

    def translate(self, predicate: Predicate) -> IndexPredicate | None:
        """Return tests that hold for every file with a matching row; None without such tests."""
        self.unused.extend(map(_unanswerable, _unknowns(predicate)))
        return fold(
            with_tuples(simplify(predicate), self._composites, MOST_LEAVES),
            legs=lambda node: tuple(_reduce(node.legs)) if isinstance(node, And) else node.legs,
            leaf=self._leaf_or_unknown,
            join=self._join,
        )

    def _leaf_or_unknown(self, leaf: Leaf | Unknown) -> IndexPredicate | None:
        if isinstance(leaf, Unknown):
            self.unused.append(_unanswerable(leaf))
            return None
        if self._leaf_count == MOST_LEAVES:
            self.unused.append(f"conditions beyond {MOST_LEAVES:,} are ignored")
            return None
        self._leaf_count += 1
        return self._leaf(leaf)

    def _join(
        self, node: And | Or, legs: tuple[IndexPredicate | None, ...]
    ) -> IndexPredicate | None:
        answered = tuple(leg for leg in legs if leg is not None)
        if isinstance(node, And):
            return AllOf(answered) if answered else None
        if not legs:
            return self._add_label("a condition that is never true", "", AlwaysFalse())
        if len(answered) < len(legs):
            return None
        columns = _tuple_columns(node)
        if not columns:
            return AnyOf(answered)
        names = ", ".join(self._columns[column].name for column in columns)
        parts = [text for leg in answered for text, _, _ in self.labelled_leaves(leg)]
        by = ", ".join(sorted({text.rpartition("  ")[2] for text in parts}))
        text = f"({names}) IN ({len(legs):,} tuples)  {by}"
        return self._add_label(text, "", AnyOf(answered))

    def _add_label(self, text: str, source: str, part: IndexPredicate) -> IndexPredicate:
        self._labelled[id(part)] = (text, source, part)
        return part

    def _leaf(self, leaf: Leaf) -> IndexPredicate | None:
        column = self._columns[leaf.column]
        text = label(leaf, column.name)
        if self._values:
            text = format_leaf(leaf, column.name, column.type)
        source = leaf.source if isinstance(leaf, Compare | Between | Within | In) else ""
        if isinstance(leaf, In) and not leaf.negated and not len(leaf.values):
            return self._add_label(text, source, AlwaysFalse())
        found: list[IndexPredicate] = []
        for indexed in self._definition.columns:
            if indexed.identity != leaf.column:
                continue
            translated = self._translate_for(indexed, leaf, column, text)
            if translated is not None:
                found.append(self._add_label(f"{text}  {indexed.kind}", source, translated))
        if found:
            return AllOf(tuple(found))
        self._hint(leaf, column, text)
        if all(c.identity != leaf.column for c in self._definition.columns):
            composites = [c for c in self._definition.columns if leaf.column in c.part_identities]
            if not any(c.identity in self._columns for c in composites):
                names = ", ".join(dict.fromkeys(c.name for c in composites))
                only = f", only {names}" if names else ""
                self.unused.append(f"{text}: {column.name} is not in the index{only}")
        return None

    def _hint(self, leaf: Leaf, column: QueryColumn, text: str) -> None:
        """Note which index type supports a text search, if it is the only one."""
        if not isinstance(leaf, Contains | EndsWith) or leaf.negated or text in self._hinted:
            return
        self._hinted.add(text)
        try:
            known = kinds(self._providers)
        except SettingError:  # one cannot be loaded; whoever uses it gets the error
            return
        useful = [kind for kind in known if _is_supported(known[kind], leaf, column)]
        if len(useful) == 1:
            self.unused.append(
                f"{text}: {useful[0]} on {column.name} can answer it: "
                f"ALTER SKIPPING INDEX ON {self._definition.name} ADD ({column.name} {useful[0]})"
            )

    def _translate_for(
        self, indexed: IndexedColumn, leaf: Leaf, column: QueryColumn, text: str
    ) -> IndexPredicate | None:
        try:
            # A read of files without a log may declare any type; Spark cuts an INT to a SMALLINT.
            cuts = not self._definition.table.has_log and indexed.type != column.type
            if indexed.domain != column.domain or cuts:
                self.unused.append(f"{text}: {column.name} was indexed as {indexed.type}")
                return None
            if not fits(leaf, column.domain):
                self.unused.append(f"{text}: compared with another type")
                return None
            provider = indexed.provider(self._providers)
            survival = provider.survival(leaf)
            if survival > USELESS:
                # Third-party index types may lack it.
                sharper = getattr(provider, "sharper", lambda *_: None)(leaf, USELESS)
                hint = "" if sharper is None else f"; {indexed.kind}({sharper}) can answer it"
                self.unused.append(
                    f"{text}: {indexed.kind} would keep {survival:.0%} of the files without a match"
                    f"{hint}"
                )
                return None
            translated = _rewrite(provider, leaf)
        except Exception as error:
            # The index type is not installed here, or a third-party one raised an error; the
            # definition's other columns still serve.
            self.unused.append(f"{text}: {error}")
            return None
        if translated is None:
            self.unused.append(f"{text}: {indexed.kind} does not support this condition")
            return None
        further = max(0, sum(1 for _ in tests(translated)) - FEW_TESTS)
        if self._further + further > MOST_FURTHER:
            self.unused.append(f"{text}: {indexed.kind} is not used: there are too many conditions")
            return None
        self._further += further
        # A new object for each leaf distinguishes equal tests of two leaves.
        return map_tests(
            translated, lambda test: replace(test, sketch=f"{indexed.sketch}{test.sketch}")
        )


def _rewrite(provider: SkippingProvider, leaf: Leaf) -> IndexPredicate | None:
    """Return the tests of an index type for a leaf, or else for each of the leaves in it."""
    translated = provider.rewrite(leaf)
    if translated is not None or not isinstance(leaf, Within | StartsWithAny):
        return translated
    legs: list[IndexPredicate] = []
    for one in leaf.legs():
        asked = provider.rewrite(one)
        if asked is None or len(legs) == MOST_LEAVES:
            return None
        legs.append(asked)
    return AnyOf(tuple(legs))


def _tuple_columns(node: Or) -> tuple[str, ...]:
    """Return the columns that every operand of an Or compares by equality, as tuples do.

    Empty if an operand is anything else, or has keys of a join.
    """
    found: tuple[str, ...] = ()
    for leg in node.legs:
        parts = leg.legs if isinstance(leg, And) else ()
        columns = tuple(
            part.column
            for part in parts
            if isinstance(part, Compare) and part.op == "=" and not part.source
        )
        if len(columns) < max(2, len(parts)) or found not in ((), columns):
            return ()
        found = columns
    return found


def _is_supported(provider: type[SkippingProvider], leaf: Leaf, column: QueryColumn) -> bool:
    """Return whether an index type with default parameters supports a leaf on a column."""
    try:
        made = provider.of((Column(column.name, column.domain),), {})
        return made.survival(leaf) <= USELESS and made.rewrite(leaf) is not None
    except Exception:  # it refuses the column, or is third-party and raises anything
        return False


def _unknowns(predicate: Predicate) -> Iterator[Unknown]:
    """Yield all Unknowns in a predicate, from left to right; `simplify` drops them from an And."""
    todo = [predicate]
    while todo:
        match todo.pop():
            case And(legs) | Or(legs):
                todo.extend(reversed(legs))
            case Unknown() as unknown:
                yield unknown


def _unanswerable(unknown: Unknown) -> str:
    return f"{unknown.reason or 'a condition'}: no index can answer it"


def _reduce(legs: Sequence[Predicate]) -> Iterator[Predicate]:
    """Drop each `c IS NOT NULL` that another leaf on `c` implies; Spark adds those."""
    compared = {leg.column for leg in legs if isinstance(leg, _NOT_NULL)}
    for leg in legs:
        if not (isinstance(leg, IsNull) and leg.negated and leg.column in compared):
            yield leg
