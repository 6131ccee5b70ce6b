"""Asking one index from Python: predicates on column names, answers about files."""

from __future__ import annotations

from dataclasses import dataclass

from providers.predicate import Predicate, map_leaves
from skipping.binding import Binding
from skipping.definition import Definition
from skipping.lookup import Finding, Lookup
from skipping.scan_plan import ScanPlan
from skipping.settings import Settings
from skipping.stores import Identity, IndexStore, identities
from skipping.tables import Columns, Table

__all__ = ["Asking"]


@dataclass(frozen=True, slots=True)
class Asking:
    """One index as it is now. Raises StoreError, and DefinitionError for what does not fit."""

    store: IndexStore
    definition: Definition
    settings: Settings

    def disproved(self, predicate: Predicate, columns: Columns) -> set[Identity]:
        """The files without a match."""
        found, ordinals = self._ask(predicate, columns)
        return {file for file, ordinal in ordinals.items() if ordinal in found.disproved}

    def plan(self, predicate: Predicate, table: Table) -> ScanPlan:
        """What would be skipped of a table's newest version."""
        found, ordinals = self._ask(predicate, table.columns())
        live = table.files()
        known = [ordinals[key] for key in identities(live) if key in ordinals]
        return ScanPlan(
            table.name,
            total=len(live),
            disproved=sum(ordinal in found.disproved for ordinal in known),
            unknown=len(live) - len(known),
            legs=tuple((leg.label, sum(o in leg.disproved for o in known)) for leg in found.legs),
            unused=found.unused,
        )

    def _ask(self, predicate: Predicate, columns: Columns) -> tuple[Finding, dict[Identity, int]]:
        bound = Binding(columns)
        asked = map_leaves(predicate, bound.leaf)
        lookup = Lookup(self.store, ttl=0, providers=self.settings.providers)
        timeout = self.settings.timeout
        found = lookup.ask(self.definition, asked, bound.columns, timeout=timeout)
        entries = lookup.catalogue(self.definition.index).files
        return found, dict(zip(identities(entries), entries["ordinal"].to_pylist(), strict=True))
