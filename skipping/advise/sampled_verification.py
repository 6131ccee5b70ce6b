"""Read files again that an index pruned, and see whether they hold a match after all.

Nothing of the index is used: each file is read anew, all values of the columns that the condition
names, and the condition is asked of those. So a wrong entry shows, whatever made it wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from providers.evaluate import find_prunable_rows
from providers.index_predicate import find_prunable
from providers.predicate import Predicate, leaves
from skipping.indexing.column_sync import current_columns
from skipping.indexing.sketch import Work, sketch_files
from skipping.lookup.translate import PredicateTranslator, QueryColumn
from skipping.model.definition import Definition
from skipping.tables import Columns

__all__ = ["Verification", "verify_files"]

_ALL = 1 << 40
"""A cap of a value list that no file reaches."""


@dataclass(frozen=True, slots=True)
class Verification:
    """How many files could be read, and the paths of those that were wrongly pruned."""

    files: int
    wrong: tuple[str, ...]


def verify_files(
    files: pa.Table,
    definition: Definition,
    columns: Columns,
    predicate: Predicate,
    asked: Mapping[str, QueryColumn],
    *,
    dated: bool,
) -> Verification:
    """Look whether files (IDENTITY columns) that were pruned for a predicate hold a match.

    A match is looked for as an index does: leaf by leaf, so that of an And it is enough that some
    row satisfies each. A file that is gone, or of which a column cannot be read exactly, is passed
    over. Predicate and `asked` are those of the question (`skipping.lookup.lookup`).
    """
    named = {leaf.column for leaf in leaves(predicate)}
    named |= {i.identity for i in definition.columns if i.parts and named.issuperset(i.of)}
    found = {
        i.identity: (i, c)
        for i, c in current_columns(definition, columns)
        if i.identity in named and i.expression is None
    }
    work = []
    for indexed, column in found.values():
        whole = replace(indexed, kind="VALUE_LIST", params=(("limit", _ALL),))
        work.append(Work(whole, column, whole.provider()))
    # Without a column of the lookup, fewer files could be pruned this time.
    if not len(files) or named & {i.identity for i in definition.columns} != found.keys():
        return Verification(0, ())
    translator = PredicateTranslator(
        replace(definition, columns=tuple(w.indexed for w in work)), asked, ()
    )
    tests = translator.translate(predicate)
    if tests is None:
        return Verification(0, ())
    batches = files.combine_chunks().to_batches()
    fresh = pa.Table.from_batches([sketch_files(batch, work, dated=dated) for batch in batches])
    known = np.ones(len(fresh), np.bool_)
    for each in work:
        flags = fresh[f"{each.indexed.sketch}_known"].to_pylist()
        known &= np.array([flag is True for flag in flags])
    gone = find_prunable(
        tests, lambda test: BitMap(np.flatnonzero(find_prunable_rows(test, fresh)))
    )
    wrong = [row for row in np.flatnonzero(known).tolist() if row not in gone]
    paths = fresh["path"].to_pylist()
    return Verification(int(known.sum()), tuple(paths[row] for row in wrong))
