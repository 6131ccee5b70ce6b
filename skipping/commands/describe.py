"""Return the rows of DESCRIBE SKIPPING INDEX and DESCRIBE SKIPPING FILES."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from skipping.model.definition import Definition


def column_rows(definition: Definition) -> Sequence[tuple[Any, ...]]:
    """Return (column, type, index type, parameters) for each indexed column."""
    return [
        (i.name, i.type, i.kind, ", ".join(f"{key} = {value}" for key, value in i.params))
        for i in definition.columns
    ]


def file_rows(why: pa.Table) -> Sequence[tuple[Any, ...]]:
    """Return (path, size, is indexed, is pruned, pruning conditions) for each file.

    `why` is the result of `SkippingIndex.why`.
    """
    labels = why.column_names[4:]
    flags = [why[label].to_pylist() for label in labels]
    paths, sizes, ordinals, pruned = (why[n].to_pylist() for n in why.column_names[:4])
    return [
        (
            paths[row],
            sizes[row],
            ordinals[row] is not None,
            pruned[row],
            [label for label, flag in zip(labels, flags, strict=True) if flag[row]],
        )
        for row in range(len(paths))
    ]
