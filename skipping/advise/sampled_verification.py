"""Read pruned files again, and check whether they hold a match.

The check does not use the index: it reads all values of the condition's columns from each file, and
evaluates the condition on them. So it finds a wrong entry, whatever the cause is.
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

_ALL = 1 << 40
"""A value-list limit that no file reaches."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The number of files that could be read, and the paths of the wrongly pruned ones."""

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
    """Check whether files (IDENTITY columns) that a lookup pruned hold a match.

    Each leaf is evaluated on all rows of a file, as an index does: a file matches an And if each
    operand has a matching row. A file is left out if it was deleted, or if a column cannot be read
    exactly. `predicate` and `asked` are those of the lookup (`skipping.lookup.lookup`).
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
    # If a column of the lookup is missing now, this check could prune fewer files.
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
