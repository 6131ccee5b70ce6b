"""Why a file survived: what each part of a predicate says of each file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from providers.predicate import Predicate, map_leaves
from skipping.binding import Binding
from skipping.lookup import Lookup
from skipping.session import settings_of
from skipping.stores import identities

if TYPE_CHECKING:
    from skipping.index import SkippingIndex

__all__ = ["verdicts"]


def verdicts(index: SkippingIndex, predicate: Predicate) -> pa.Table:
    """The files of the table's newest version, and what disproves each for a predicate.

    Columns: `path`, `size`, `ordinal` (null: the index does not know the file), `disproved`, and
    for each sketch that was asked, under the label that explain shows, whether it alone disproves
    the file. A file whose `disproved` is false survived: no label is true, or, under an OR, not all
    are. Values are Python's, as in `SkippingIndex.lookup`.
    """
    bound = Binding(index.table.columns())
    normalised = map_leaves(predicate, bound.leaf)
    settings = settings_of(index._spark)
    lookup = Lookup(
        index.store, ttl=0, providers=settings.providers, values=settings.explain_values
    )
    found = lookup.ask(index.definition, normalised, bound.columns, timeout=settings.timeout)
    entries = lookup.catalogue(index.definition.index).files
    known = dict(zip(identities(entries), entries["ordinal"].to_pylist(), strict=True))
    live = index.table.files()
    ordinals = pa.array([known.get(identity) for identity in identities(live)], pa.int64())
    numbers = ordinals.fill_null(-1).to_numpy()
    columns = {
        "path": live["path"],
        "size": live["size"],
        "ordinal": ordinals,
        "disproved": pa.array(np.isin(numbers, np.array(found.disproved, np.int64))),
    }
    for leg in found.legs:
        columns[leg.label] = pa.array(np.isin(numbers, np.array(leg.disproved, np.int64)))
    return pa.table(columns)
