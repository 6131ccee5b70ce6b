"""Measure an expression: Spark computes its values in a few files, as in a build.

The tasks also return some of these values, as the sketch of an index type for this purpose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from providers.base import BaseProvider, Column, Field, Layout, Param
from providers.index_predicate import IndexPredicate
from providers.predicate import Leaf
from skipping.advise.sample import KEYS, Sample, ValuesCollector, some_of
from skipping.indexing.expressions import ExpressionBuild
from skipping.indexing.parquet_columns import indexed_domain
from skipping.indexing.refresh import without_ordinals
from skipping.indexing.sketch import Work
from skipping.model.definition import IndexedColumn
from skipping.stores import IDENTITY


def measure_expression(
    spark: SparkSession, files: pa.Table, work: Sequence[Work], *, dated: bool
) -> Sample:
    """Measure the work on one expression in these files of a table.

    The sample lacks files that cannot be read, or on which the expression fails. No rows are drawn:
    `drawn` is empty, and `rows` counts only nulls. Each file gets the average time of all work.
    """
    first = work[0]
    number = len(work) + 1
    stored = indexed_domain(first.column).stored
    indexed = IndexedColumn(
        number, first.column.name, first.column.identity, first.column.type, _Values.kind
    )
    everything = [*work, Work(indexed, first.column, _Values(stored))]
    if not len(files):
        return Sample(tuple(work), pa.table({}), 0)
    ordinals = pa.array(range(len(files)), pa.int64())
    numbered = without_ordinals(files).set_column(0, IDENTITY.field(0), ordinals)
    began = perf_counter_ns()
    made = pa.concat_tables(list(ExpressionBuild(spark, dated=dated)(numbered, everything)))
    took = (perf_counter_ns() - began) // len(files)
    known = made.filter(pc.fill_null(made[f"{indexed.sketch}_known"], False))
    of = {name: known[f"{indexed.sketch}_{name}"] for name in _NAMES}
    columns = {name: known[name] for name in known.column_names}
    columns.update(of)
    columns["rows"] = of["nulls"]
    columns["drawn"] = pa.array([[]] * len(known), pa.list_(stored))
    columns["reading"] = pa.array([took] * len(known), pa.int64())
    for each in work:
        columns[f"{each.indexed.sketch}_building"] = pa.array([0] * len(known), pa.int64())
    return Sample(tuple(work), pa.table(columns).combine_chunks(), len(files) - len(known))


_NAMES = ("nulls", "distinct", "low", "high", "keys")


@dataclass(frozen=True, slots=True)
class _Values(BaseProvider):
    """An index type whose sketch is what `measure_file` collects from a file's values."""

    kind: ClassVar[str] = "SAMPLE"
    only_extremes: ClassVar[bool] = False
    most: ClassVar[int | None] = None
    stored: pa.DataType

    @classmethod
    def of(cls, columns: tuple[Column, ...], params: Mapping[str, Param]) -> _Values:
        return cls(columns[0].domain.stored)

    def fields(self) -> tuple[Field, ...]:
        return (
            Field("nulls", pa.int64()),
            Field("distinct", pa.int64()),
            Field("low", self.stored),
            Field("high", self.stored),
            Field("keys", self.stored, Layout.TERMS),
        )

    def collector(self) -> _Collector:
        return _Collector(self.stored)

    def rewrite(self, leaf: Leaf) -> IndexPredicate | None:
        return None


class _Collector(ValuesCollector):
    def finish(self) -> Mapping[str, Any]:
        rng = np.random.default_rng(len(self.values))
        keys = some_of(self.values, KEYS, rng)
        return dict(zip(_NAMES, (self.nulls, len(self.values), *self.bounds, keys), strict=True))
