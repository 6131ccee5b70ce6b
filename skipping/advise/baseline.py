"""What is read without a kind that may be advised: it is worth only what it keeps less than that.

Of a column that is the table itself, by the bounds in its log and its partitions. Of a composite it
is what the best kinds of its columns leave together, each asked for its part of a tuple.
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
    ask,
    estimate_remaining_by_bounds,
    estimate_remaining_by_tests,
    mean,
    sketches_of,
)
from skipping.advise.sample import Sample
from skipping.indexing.sketch import Work

__all__ = ["Baseline", "ColumnKinds", "Planned", "TableItself"]

_PLANNED = 8
"""The table plans a scan only for one in this many draws."""

Planned: TypeAlias = Callable[[Leaf], int | None]
"""How many files the table itself plans to read for a leaf; None where it cannot say."""


class Baseline(Protocol):
    """What keeps files without the kinds of a column."""

    @property
    def name(self) -> str:
        """What it is, in the plural, for people."""

    def estimate_files(self, draws: Sequence[Draw]) -> float | None:
        """Files of the table that it keeps for questions, on average; None: it knows nothing."""


class TableItself:
    """The bounds in a table's log, and its partitions; `planned` asks those that are made of it."""

    def __init__(self, sample: Sample, files: int, planned: Planned | None = None) -> None:
        self._sample, self._files, self._planned = sample, files, planned

    @property
    def name(self) -> str:
        """Says which partitions."""
        column = self._sample.work[0].column
        if not column.partitioning.transforms:
            return "the table's own bounds"
        partitions = f"the table's own partitions ({', '.join(column.partitioning.transforms)})"
        return partitions if column.bounded is None else f"{partitions} and bounds"

    def estimate_files(self, draws: Sequence[Draw]) -> float | None:
        """The fewer of both."""
        both = (estimate_remaining_by_bounds(self._sample, draws, self._files), self._plans(draws))
        return min((n for n in both if n is not None), default=None)

    def _plans(self, draws: Sequence[Draw]) -> float | None:
        some = draws[: max(1, len(draws) // _PLANNED)]
        found = [] if self._planned is None else [self._planned(draw.leaves[0]) for draw in some]
        known = [float(n) for n in found if n is not None]
        return mean(known) if known and len(known) == len(found) else None


class ColumnKinds:
    """One kind of each column of a composite, with the sample that it was measured in."""

    name = "the best kinds of its columns"

    def __init__(self, sample: Sample, files: int, columns: Sequence[tuple[Work, Sample]]) -> None:
        self._files = files
        self._kinds = [work for work, _ in columns]
        self._types = [work.column.type for work in self._kinds]
        together: dict[str, pa.ChunkedArray] = {}
        for i, (work, alone) in enumerate(columns):
            # A file that was not read for one of them is null there, which prunes nothing.
            rows = pc.index_in(sample.files["ordinal"], value_set=alone.files["ordinal"])
            sketches = sketches_of(work, alone.files).take(rows)
            for name in sketches.column_names:
                together[f"{_of(i)}{name}"] = sketches[name]
        self._sketches = pa.table(together).combine_chunks()

    def estimate_files(self, draws: Sequence[Draw]) -> float | None:
        """Evaluate each tuple on its own: independent keys of columns would keep more files."""
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
                ask(work, [Compare("", "=", value)], of=_of(i))
                for i, (work, value) in enumerate(zip(self._kinds, values, strict=True))
            ]
            answered = tuple(part for part in parts if part is not None)
            if not answered:
                return None
            legs.append(AllOf(answered))
        return AnyOf(tuple(legs))


def _of(i: int) -> str:
    """Distinguishes the sketches of the columns, which were numbered independently."""
    return f"column{i}_"
