"""From a predicate to the files that are disproved for it: what a query asks.

The path of a question: leaves -> each kind's tests -> one question to the store for all of them ->
bitmaps of disproved ordinals -> And and Or over the bitmaps. Theory: `providers.index_predicate`.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyroaring import BitMap

from providers.index_predicate import All, Any, IndexPredicate, Test, disproved, map_tests, tests
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
from skipping.definition import Definition, IndexedColumn, IndexId, TableId
from skipping.stores import Catalogue, IndexStore

__all__ = ["Finding", "Leg", "Lookup", "QueryColumn", "changed"]

_USELESS = 0.5
"""Of the files without a match, the share that an answer worth asking for may keep."""

_lookups: weakref.WeakSet[Lookup] = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class QueryColumn:
    """A column as a query sees it: display name, the domain it is compared in, Spark type."""

    name: str
    domain: Domain
    type: str = ""


@dataclass(frozen=True, slots=True)
class Leg:
    """What one sketch disproves for one leaf, alone; `source` is whose keys the leaf holds."""

    label: str
    disproved: BitMap
    source: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """What an index says about a predicate.

    `disproved` are ordinals of this index at `generation`; a file without one is unknown.
    `unused` says of each part of the predicate that could not be used, why.
    """

    index: IndexId
    generation: int
    disproved: BitMap
    legs: tuple[Leg, ...]
    unused: tuple[str, ...]


class Lookup:
    """Asks one store; remembers definitions and catalogues for `ttl` seconds.

    Safe to use from several threads; no lock is held while the store is asked.
    """

    def __init__(
        self,
        store: IndexStore,
        *,
        ttl: float,
        providers: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self._ttl = ttl
        self._providers = tuple(providers)
        self._clock = clock
        self._lock = threading.Lock()
        self._definitions: tuple[float, dict[TableId, Definition]] | None = None
        self._catalogues: dict[IndexId, tuple[float, Catalogue]] = {}
        self.on_change: Callable[[], object] = lambda: None
        _lookups.add(self)

    def forget(self) -> None:
        """Look again at what the store has, though `ttl` is not over."""
        with self._lock:
            self._definitions = None
            self._catalogues = {i: (-math.inf, c) for i, (_, c) in self._catalogues.items()}
        self.on_change()

    def indexed(self, *, fresh: bool = False) -> Mapping[TableId, Definition]:
        """The live indexes by table; raises StoreError. With `fresh`, as of now."""
        held = self._definitions
        if held is not None and not fresh and self._clock() - held[0] < self._ttl:
            return held[1]
        live = {d.value.table: d.value for d in self.store.definitions() if not d.value.dropped}
        with self._lock:
            self._definitions = self._clock(), live
            for gone in set(self._catalogues) - {d.index for d in live.values()}:
                del self._catalogues[gone]
        return live

    def catalogue(self, index: IndexId) -> Catalogue:
        """The files of an index, at most `ttl` seconds old; raises StoreError."""
        held = self._catalogues.get(index)
        if held is not None and self._clock() - held[0] < self._ttl:
            return held[1]
        if held is None:
            newest = self.store.catalogue(index)
        else:
            newest = held[1].after(self.store.catalogue(index, since=held[1].generation))
        with self._lock:
            self._catalogues[index] = self._clock(), newest
        return newest

    def ask(
        self,
        definition: Definition,
        predicate: Predicate,
        columns: Mapping[str, QueryColumn],
        *,
        timeout: float,
    ) -> Finding:
        """What the index disproves for a predicate with normalised values.

        The predicate names columns by identity; `columns` says what they are to the query. Raises
        StoreError after `timeout` seconds or if the store fails.
        """
        catalogue = self.catalogue(definition.index)
        question = _Question(definition, columns, self._providers)
        question.unused.extend(map(_unanswerable, _unknowns(predicate)))
        whole = question.translate(simplify(predicate))
        asked = [] if whole is None else list(tests(whole))
        answers = self.store.disproved(
            definition.index, asked, below=catalogue.below, timeout=timeout
        )
        by_test = {id(test): bitmap for test, bitmap in zip(asked, answers, strict=True)}

        def answer(test: Test) -> BitMap:
            return by_test[id(test)]

        return Finding(
            definition.index,
            catalogue.generation,
            BitMap() if whole is None else disproved(whole, answer),
            tuple(
                Leg(text, disproved(part, answer), source)
                for text, source, part in question.legs(whole)
            ),
            tuple(dict.fromkeys(question.unused)),
        )


def changed(store: IndexStore) -> None:
    """Let every Lookup of this process see at once what this process changed in a store."""
    for lookup in list(_lookups):
        if lookup.store.location == store.location:
            lookup.forget()
        else:
            lookup.on_change()  # its session may name this store by now


class _Question:
    """Translates one predicate for one index, noting which leg is whose and what is unused."""

    def __init__(
        self, definition: Definition, columns: Mapping[str, QueryColumn], providers: tuple[str, ...]
    ) -> None:
        self._definition = definition
        self._columns = columns
        self._providers = providers
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

    def translate(self, predicate: Predicate) -> IndexPredicate | None:
        """Tests that hold for every file with a row satisfying the predicate; None: no opinion."""
        match predicate:
            case And(legs):
                translated = [t for t in map(self.translate, _telling(legs)) if t is not None]
                return All(tuple(translated)) if translated else None
            case Or(legs):
                every = [self.translate(leg) for leg in legs]
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
            if indexed.domain != column.domain:
                self.unused.append(f"{text}: {column.name} was indexed as {indexed.type}")
                return None
            if self._definition.table.format == "parquet" and indexed.type != column.type:
                # A read of plain files may name any type, and Spark cuts an INT to a SMALLINT.
                self.unused.append(f"{text}: {column.name} was indexed as {indexed.type}")
                return None
            if not fits(leaf, column.domain):
                self.unused.append(f"{text}: compared with another type")
                return None
            provider = indexed.provider(self._providers)
            survival = provider.survival(leaf)
            if survival > _USELESS:
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
