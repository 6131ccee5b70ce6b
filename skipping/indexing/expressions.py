"""Build sketches of expressions: Spark reads their columns from files, and computes them.

A file in which an expression fails on a row is unknown for that expression, so that a query reads
it and fails as it would without an index.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from providers.errors import DefinitionError
from skipping.extensions import Analysed
from skipping.indexing.parquet_columns import Found, indexed_domain
from skipping.indexing.parquet_reader import Chunk, Part, Unreadable, part_of
from skipping.indexing.sketch import Work, entry_schema, make_entries, sketch, sketch_columns
from skipping.indexing.spark_reader import Footer, ReaderBuild, quote_path
from skipping.spark_api import parse_type
from skipping.stores import IDENTITY
from skipping.tables import TableColumn
from skipping.tables.computed import analyse


class ExpressionBuild(ReaderBuild):
    """Builds sketches of expressions, in tasks of a Spark session."""

    _reads_all = True  # in a file without its columns, an expression is computed from nulls

    def __init__(self, spark: SparkSession, *, dated: bool = False) -> None:
        super().__init__(spark, dated=dated)
        self._analysed: dict[str, Analysed] = {}

    def _columns(self, work: Sequence[Work]) -> dict[str, TableColumn]:
        return {column.identity: column for w in work for column in w.column.reads}

    def _rows(self, read: DataFrame, found: Sequence[Found], work: Sequence[Work]) -> DataFrame:
        places = {place.column.identity: place for place in found}
        names: dict[str, str] = {}
        leaves = []
        for identity, column in self._columns(work).items():
            names[identity] = f"c{len(names)}"
            place = places.get(identity)
            leaf = F.lit(None) if place is None else F.col(quote_path(place.path))
            leaves.append(leaf.cast(parse_type(column.type)).alias(names[identity]))
        columns = [self._compute(w.column, names).alias(f"e{i}") for i, w in enumerate(work)]
        dated = [F.col(names[place.column.identity]) for place in _select_dates(found)]
        flat = read.select("_metadata.file_path", *leaves)
        return flat.select("file_path", *columns, *dated)

    def _compute(self, column: TableColumn, names: Mapping[str, str]) -> Column:
        expression = column.expression
        assert expression is not None, "it is computed"
        if column.identity not in self._analysed:
            reads = {read.identity: read for read in column.reads}
            named = {name: reads[identity] for name, identity in expression.reads}
            analysed = analyse(self._spark, expression, named)
            if analysed.text() != column.identity:
                raise DefinitionError(
                    f"{column.name} has changed since CREATE: DROP it and ADD it again"
                )
            self._analysed[column.identity] = analysed
        flat = {name: names[identity] for name, identity in expression.reads}
        return Column(self._analysed[column.identity].over(json.dumps(flat)))

    @staticmethod
    def _sketch(
        file: Mapping[str, Any],
        footer: Footer,
        work: Sequence[Work],
        batches: Iterable[pa.RecordBatch],
    ) -> dict[str, Any]:
        doubtful = {
            w.column.identity: place.reason
            for w in work
            for read in w.column.reads
            if isinstance(place := footer.places[read.identity], Unreadable)
        }

        def read(_: Mapping[str, Any], columns: Sequence[TableColumn]) -> Iterator[Part]:
            for column in columns:
                if column.identity in doubtful:
                    yield Unreadable(column, doubtful[column.identity])
                else:
                    yield Chunk(column, pa.array([], indexed_domain(column).stored), 0)
            rows = 0
            for batch in batches:
                rows += batch.num_rows
                for i, each in enumerate(work):
                    yield part_of(Found(each.column, (), None), batch.column(i + 1))
                for i, place in enumerate(_select_dates(footer.found), start=len(work) + 1):
                    old = part_of(place, batch.column(i))
                    if isinstance(old, Unreadable):
                        for each in work:
                            if place.column in each.column.reads:
                                yield replace(old, column=each.column)
            if rows != footer.rows:
                yield Unreadable(columns[0], f"{rows} of {footer.rows} rows", of_file=True)

        return sketch(file, work, read)

    def _read(
        self, group: Sequence[tuple[dict[str, Any], Footer]], work: Sequence[Work]
    ) -> list[pa.Table]:
        """Build entries; if Spark fails on a file, only the sketches that can be computed."""
        try:
            return [self._job(group, work)]
        except (PySparkException, Py4JError):
            if len(group) > 1:
                half = len(group) // 2
                return self._read(group[:half], work) + self._read(group[half:], work)
        if len(work) > 1:
            parts = [part for each in work for part in self._read(group, [each])]
            return [merge(parts, work)] if parts else []
        (file, footer), (only,) = group[0], work
        # Either the expression fails on one of its rows, or the file cannot be read.
        if not self._is_readable(file, footer, work):
            return []
        row = {**file, **sketch_columns(only, None)}
        return [pa.Table.from_batches([make_entries([row], work)])]

    def _is_readable(self, file: dict[str, Any], footer: Footer, work: Sequence[Work]) -> bool:
        try:
            self._read_of([(file, footer)]).write.format("noop").mode("append").save()
        except (PySparkException, Py4JError):
            return False
        return True


def _select_dates(found: Sequence[Found]) -> list[Found]:
    return [place for place in found if place.column.type in ("date", "timestamp")]


def merge(parts: Sequence[pa.Table], work: Sequence[Work]) -> pa.Table:
    """Merge the sketches of several tables; the first table has all files.

    A sketch that no table has is null, which means not built.
    """
    first, *others = parts
    columns = {name: first[name] for name in first.column_names}
    for other in others:
        places = pc.index_in(first["path"], value_set=other["path"].combine_chunks())
        for name in other.column_names:
            if name not in IDENTITY.names:
                columns[name] = other[name].take(places)
    schema = entry_schema(work)
    made = [
        columns[field.name].cast(field.type)
        if field.name in columns
        else pa.nulls(len(first), field.type)
        for field in schema
    ]
    return pa.table(made, schema=schema)
