"""Ask an index from Python: what a predicate would skip, and why each file survived."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from providers.predicate import Predicate, map_leaves
from skipping.binding import Binding
from skipping.lookup import Finding, Lookup
from skipping.scan_plan import ScanPlan
from skipping.session import settings_of
from skipping.stores import identities

if TYPE_CHECKING:
    from skipping.index import SkippingIndex

__all__ = ["lookup", "why"]


def lookup(index: SkippingIndex, predicate: Predicate) -> ScanPlan:
    """What would be skipped of the table's newest version; the leaves name columns as SQL does.

    Values are Python's (`Compare("dep_time", ">", 2300)`), for `In` an Arrow array.
    """
    found, live, ordinals = _asked(index, predicate)
    known = ordinals.drop_null().to_pylist()
    return ScanPlan(
        index.table.name,
        total=len(live),
        disproved=sum(ordinal in found.disproved for ordinal in known),
        unknown=len(live) - len(known),
        legs=tuple((leg.label, sum(o in leg.disproved for o in known)) for leg in found.legs),
        unused=found.unused,
    )


def why(index: SkippingIndex, predicate: Predicate) -> pa.Table:
    """The files of the table's newest version, and what disproves each for a predicate.

    Columns: `path`, `size`, `ordinal` (null: the index does not know the file), `disproved`, and
    for each sketch that was asked, under the label that explain shows, whether it alone disproves
    the file. A file whose `disproved` is false survived: no label is true, or, under an OR, not all
    are. The predicate is that of `lookup`.
    """
    found, live, ordinals = _asked(index, predicate)
    numbers = ordinals.fill_null(-1).to_numpy()

    def flags(disproved: object) -> pa.Array:
        return pa.array(np.isin(numbers, np.array(disproved, np.int64)))

    columns = {"path": live["path"], "size": live["size"], "ordinal": ordinals}
    columns["disproved"] = flags(found.disproved)
    columns.update({leg.label: flags(leg.disproved) for leg in found.legs})
    return pa.table(columns)


def _asked(index: SkippingIndex, predicate: Predicate) -> tuple[Finding, pa.Table, pa.Array]:
    """The answer, the live files, and their ordinals."""
    bound = Binding(index.table.columns())
    normalised = map_leaves(predicate, bound.leaf)
    settings = settings_of(index._spark)
    asking = Lookup(
        index.store, ttl=0, providers=settings.providers, values=settings.explain_values
    )
    found = asking.ask(index.definition, normalised, bound.columns, timeout=settings.timeout)
    entries = asking.catalogue(index.definition.index).files
    known = dict(zip(identities(entries), entries["ordinal"].to_pylist(), strict=True))
    live = index.table.files()
    return found, live, pa.array([known.get(key) for key in identities(live)], pa.int64())
