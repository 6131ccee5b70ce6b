"""One predicate as tests of one index's sketches, with the reasons for what stays unanswered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from providers.index_predicate import All, Any, IndexPredicate, map_tests
from providers.predicate import (
    And,
    Between,
    Compare,
    In,
    IsNull,
    Leaf,
    Or,
    Predicate,
    StartsWith,
    Unknown,
    fits,
    label,
)
from providers.simplify import simplify
from providers.values import Domain
from skipping.definition import Definition, IndexedColumn
from skipping.spelling import spelled

__all__ = ["USELESS", "QueryColumn", "Question"]

USELESS = 0.5
"""Of the files without a match, the share that an answer worth asking for may keep."""


@dataclass(frozen=True, slots=True)
class QueryColumn:
    """A column as a query sees it: display name, the domain it is compared in, Spark type."""

    name: str
    domain: Domain
    type: str = ""


class Question:
    """Translates one predicate for one index, noting which leg is whose and what is unused."""

    def __init__(
        self,
        definition: Definition,
        columns: Mapping[str, QueryColumn],
        providers: tuple[str, ...],
        *,
        values: bool = False,
    ) -> None:
        """`values`: legs and reasons show the values of conditions, which are data."""
        self._definition = definition
        self._columns = columns
        self._providers = providers
        self._values = values
        # Predicates hold Arrow arrays, which do not hash, so they are told apart by identity; they
        # stay alive, and so do their ids.
        self._labelled: dict[int, tuple[str, str, IndexPredicate]] = {}
        self.unused: list[str] = []

    def legs(self, predicate: IndexPredicate | None) -> Iterator[tuple[str, str, IndexPredicate]]:
        """Label, source and part of a translated predicate, for each of its leaves."""
        if id(predicate) in self._labelled:
            yield self._labelled[id(predicate)]
        elif isinstance(predicate, All | Any):
            for leg in predicate.legs:
                yield from self.legs(leg)

    def asks(self, predicate: Predicate) -> IndexPredicate | None:
        """Tests that hold for every file with a row satisfying the predicate; None: no opinion."""
        self.unused.extend(map(_unanswerable, _unknowns(predicate)))
        return self._translate(simplify(predicate))

    def _translate(self, predicate: Predicate) -> IndexPredicate | None:
        match predicate:
            case And(legs):
                translated = [t for t in map(self._translate, _telling(legs)) if t is not None]
                return All(tuple(translated)) if translated else None
            case Or(legs):
                every = [self._translate(leg) for leg in legs]
                answered = tuple(t for t in every if t is not None)
                return Any(answered) if answered and len(answered) == len(every) else None
            case Unknown():
                self.unused.append(_unanswerable(predicate))
                return None
            case _:
                return self._leaf(predicate)

    def _leaf(self, leaf: Leaf) -> IndexPredicate | None:
        column = self._columns[leaf.column]
        text = label(leaf, column.name)
        if self._values:
            text = spelled(leaf, column.name, column.type)
        found: list[IndexPredicate] = []
        for indexed in self._definition.columns:
            if indexed.identity != leaf.column:
                continue
            translated = self._ask_kind(indexed, leaf, column, text)
            if translated is not None:
                source = leaf.source if isinstance(leaf, In) else ""
                self._labelled[id(translated)] = (f"{text}  {indexed.kind}", source, translated)
                found.append(translated)
        if not found and all(c.identity != leaf.column for c in self._definition.columns):
            self.unused.append(f"{text}: {column.name} is not in the index")
        return All(tuple(found)) if found else None

    def _ask_kind(
        self, indexed: IndexedColumn, leaf: Leaf, column: QueryColumn, text: str
    ) -> IndexPredicate | None:
        try:
            # A read of files without a log may name any type, and Spark cuts an INT to a SMALLINT.
            cuts = not self._definition.table.logged and indexed.type != column.type
            if indexed.domain != column.domain or cuts:
                self.unused.append(f"{text}: {column.name} was indexed as {indexed.type}")
                return None
            if not fits(leaf, column.domain):
                self.unused.append(f"{text}: compared with another type")
                return None
            provider = indexed.provider(self._providers)
            survival = provider.survival(leaf)
            if survival > USELESS:
                self.unused.append(
                    f"{text}: {indexed.kind} would keep {survival:.0%} of the files without a match"
                )
                return None
            translated = provider.rewrite(leaf)
        except Exception as error:
            # A kind that is not installed here, or anything somebody's kind may raise; the
            # definition's other columns still serve.
            self.unused.append(f"{text}: {error}")
            return None
        if translated is None:
            self.unused.append(f"{text}: {indexed.kind} has no opinion on it")
            return None
        # A new object each, so that equal tests of two legs are told apart.
        return map_tests(translated, lambda test: replace(test, sketch=indexed.sketch))


def _unknowns(predicate: Predicate) -> Iterator[Unknown]:
    """Those anywhere in a predicate, from left to right; `simplify` drops them from an And."""
    todo = [predicate]
    while todo:
        match todo.pop():
            case And(legs) | Or(legs):
                todo.extend(reversed(legs))
            case Unknown() as unknown:
                yield unknown


def _unanswerable(unknown: Unknown) -> str:
    return f"{unknown.reason or 'a condition'}: no index can answer it"


def _telling(legs: Sequence[Predicate]) -> Iterator[Predicate]:
    """The legs without each `c IS NOT NULL` that another leaf on `c` implies; Spark adds those."""
    compared = {leg.column for leg in legs if isinstance(leg, Compare | Between | In | StartsWith)}
    for leg in legs:
        if not (isinstance(leg, IsNull) and leg.negated and leg.column in compared):
            yield leg
