"""Estimate how many files a query reads without the index type that may be recommended.

An index type saves only files that this baseline reads. For a column, the baseline is the table
itself: the bounds in its log and its partitions. For a multi-column index, it is the best
single-column index type of each column, which evaluates its part of a tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from providers.index_predicate import AllOf, AnyOf, IndexPredicate
from providers.predicate import Compare, Leaf
from providers.tuples import decode_tuple
from skipping.advise.questions import (
    Draw,
    estimate_remaining_by_bounds,
    estimate_remaining_by_tests,
    mean,
    sketches_of,
    translate_leaves,
)
from skipping.advise.sample import Sample
from skipping.indexing.sketch import Work

_PLANNED = 8
"""The table plans a scan for only one in this many draws."""

Planned: TypeAlias = Callable[[Leaf], int | None]
"""Returns how many files the table itself plans to read for a leaf; None if it cannot plan it."""


class Baseline(Protocol):
    """What prunes files without the index types of a column."""

    @property
    def name(self) -> str:
        """The name in reports, in the plural."""

    def estimate_files(self, draws: Sequence[Draw]) -> float | None:
        """Return the average number of files that queries read; None without any statistics."""


class TableItself:
    """The bounds in a table's log, and its partitions, which `planned` evaluates."""

    def __init__(self, sample: Sample, files: int, planned: Planned | None = None) -> None:
        self._sample, self._files, self._planned = sample, files, planned

    @property
    def name(self) -> str:
        """The name in reports, with the partitions."""
        column = self._sample.work[0].column
        if not column.partitioning.transforms:
            return "the table's own bounds"
        partitions = f"the table's own partitions ({', '.join(column.partitioning.transforms)})"
        return partitions if column.bounded is None else f"{partitions} and bounds"

    def estimate_files(self, draws: Sequence[Draw]) -> float | None:
        """Return the smaller estimate of bounds and partitions."""
        both = (estimate_remaining_by_bounds(self._sample, draws, self._files), self._plans(draws))
        return min((n for n in both if n is not None), default=None)

    def _plans(self, draws: Sequence[Draw]) -> float | None:
        some = draws[: max(1, len(draws) // _PLANNED)]
        found = [] if self._planned is None else [self._planned(draw.leaves[0]) for draw in some]
        known = [float(n) for n in found if n is not None]
        return mean(known) if known and len(known) == len(found) else None


class ColumnKinds:
    """Baseline for a multi-column index: the best index type of each of its columns, together."""

    name = "the best index types of its columns"

    def __init__(self, sample: Sample, files: int, columns: Sequence[tuple[Work, Sample]]) -> None:
        self._files = files
        self._kinds = [work for work, _ in columns]
        self._types = [work.column.type for work in self._kinds]
        together: dict[str, pa.ChunkedArray] = {}
        for i, (work, alone) in enumerate(columns):
            # A file without a sketch of one column is null there, which prunes nothing.
            rows = pc.index_in(sample.files["ordinal"], value_set=alone.files["ordinal"])
            sketches = sketches_of(work, alone.files).take(rows)
            for name in sketches.column_names:
                together[f"{_prefix(i)}{name}"] = sketches[name]
        self._sketches = pa.table(together).combine_chunks()

    def estimate_files(self, draws: Sequence[Draw]) -> float | None:
        """Return the average over the draws, evaluating each tuple separately.

        Lists of keys for each column would prune fewer files.
        """
        return mean(
            [
                estimate_remaining_by_tests(
                    self._create_tests(draw), draw, self._sketches, self._files
                )
                for draw in draws
            ]
        )

    def _create_tests(self, draw: Draw) -> IndexPredicate | None:
        legs: list[IndexPredicate] = []
        for one in draw.keys.to_pylist():
            values = decode_tuple(one, self._types)
            parts = [
                translate_leaves(work, [Compare("", "=", value)], of=_prefix(i))
                for i, (work, value) in enumerate(zip(self._kinds, values, strict=True))
            ]
            answered = tuple(part for part in parts if part is not None)
            if not answered:
                return None
            legs.append(AllOf(answered))
        return AnyOf(tuple(legs))


def _prefix(i: int) -> str:
    """Return a prefix for the sketches of a column, because the columns number theirs alike."""
    return f"column{i}_"
