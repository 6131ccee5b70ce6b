"""Query one index from Python: predicates on column names give files."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, count

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from providers.predicate import Predicate, map_leaves
from skipping.config.settings import Settings
from skipping.filters.sql import as_predicate
from skipping.lookup.binding import Binding
from skipping.lookup.lookup import LookupResult, shared_lookup
from skipping.lookup.scan_plan import ScanPlan
from skipping.model.definition import Definition
from skipping.model.identifiers import shown_name
from skipping.parser.condition import Strings
from skipping.stores import Identity, IndexStore, find_identities, identities
from skipping.stores.entries import bitmap_of
from skipping.tables import Columns, Table


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """Queries one index. Raises StoreError, and DefinitionError for a predicate that does not fit.

    A predicate may be SQL text. Then `zone` is the session's time zone, and `strings` says how the
    session's Spark reads string literals; those that it reads differently raise an error.
    """

    store: IndexStore
    definition: Definition
    settings: Settings
    zone: str | None = None
    strings: Strings | None = None

    def find_prunable(self, predicate: Predicate | str, columns: Columns) -> set[Identity]:
        """Return the identities of the files that cannot match."""
        found = self.find(predicate, columns)
        entries = found.files
        ordinals = np.array(found.pruned, np.int64)
        return set(identities(entries.filter(np.isin(entries["ordinal"].to_numpy(), ordinals))))

    def plan(self, predicate: Predicate | str, table: Table) -> ScanPlan:
        """Return how many files of a table's newest version would be skipped."""
        found, live, ordinals = self._live(predicate, table)
        known = bitmap_of(ordinals.drop_null().to_numpy())
        return ScanPlan(
            shown_name(table.name),
            total=len(live),
            pruned=len(known & found.pruned),
            unknown=len(live) - len(known),
            legs=tuple((leg.label, len(known & leg.pruned)) for leg in found.legs),
            unused=found.unused,
        )

    def why(self, predicate: Predicate | str, table: Table) -> pa.Table:
        """List the newest version's files, and what prunes each; see `SkippingIndex.why`."""
        found, live, ordinals = self._live(predicate, table)
        numbers = ordinals.fill_null(-1).to_numpy()

        def flags(pruned: BitMap) -> pa.Array:
            return pa.array(np.isin(numbers, np.array(pruned, np.int64)))

        columns = {"path": live["path"], "size": live["size"], "ordinal": ordinals}
        columns["pruned"] = flags(found.pruned)
        for leg in found.legs:
            # Both conditions of a = 1 OR a = 2 have the same label: values are not shown.
            labels = chain([leg.label], (f"{leg.label} ({n})" for n in count(2)))
            columns[next(label for label in labels if label not in columns)] = flags(leg.pruned)
        return pa.table(columns)

    def bind(self, predicate: Predicate | str, columns: Columns) -> Predicate:
        """Return the predicate with column identities and normalised values."""
        return self._bind(predicate, columns)[0]

    def _live(
        self, predicate: Predicate | str, table: Table
    ) -> tuple[LookupResult, pa.Table, pa.Array]:
        """Return the lookup's result, the live files, and their ordinals."""
        found = self.find(predicate, table.columns())
        live = table.files()
        at = find_identities(live, found.files)
        return found, live, found.files["ordinal"].combine_chunks().take(at)

    def _bind(self, predicate: Predicate | str, columns: Columns) -> tuple[Predicate, Binding]:
        bound = Binding(columns, self.definition.columns)
        given = as_predicate(predicate, columns, zone=self.zone, strings=self.strings)
        return map_leaves(given, bound.leaf), bound

    def find(self, predicate: Predicate | str, columns: Columns) -> LookupResult:
        """Look up a predicate."""
        asked, bound = self._bind(predicate, columns)
        settings = self.settings
        lookup = shared_lookup(self.store, settings)
        return lookup.find(self.definition, asked, bound.columns, timeout=settings.timeout)
