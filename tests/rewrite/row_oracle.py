"""What an index prunes beside what Spark makes of each row, without a table for each file.

A file is some rows of one frame; its sketches are made here as a build makes them. A condition
takes the path it takes in a query: Spark's optimiser, `PredicateEncoder`, `PredicateTranslator`.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap
from pyspark.sql import DataFrame, SparkSession

from providers.evaluate import find_prunable_rows
from providers.index_predicate import Test, find_prunable
from providers.values import arrow_type, domain_of, encode
from rewrite.bridge import protocol
from rewrite.bridge.classes import Classes, find_jar
from rewrite.bridge.messages import Reader, read_message
from skipping.indexing.parquet_reader import Chunk, Part
from skipping.indexing.sketch import Work, make_entries, sketch
from skipping.lookup.translate import PredicateTranslator
from skipping.model.definition import Definition, IndexedColumn, TableId
from skipping.tables import TableColumn
from tests.jvm import compile_java, load_folder, spark_jars

_loaders: dict[int, Any] = {}


def oracle_of(spark: SparkSession, frame: DataFrame) -> Any:
    """A `RowOracle.java` over the rows of a frame."""
    gateway: Any = spark.sparkContext._gateway
    if id(gateway) not in _loaders:
        source = Path(__file__).with_name("RowOracle.java")
        folder = Path(tempfile.mkdtemp())
        compile_java([source], [find_jar(), *spark_jars()], folder)
        _loaders[id(gateway)] = load_folder(gateway, folder, Classes(gateway)._loader)
    given = gateway.jvm.java.util.ArrayList()
    given.add(frame._jdf)
    oracle = _loaders[id(gateway)].loadClass("rewrite.oracle.RowOracle")
    return oracle.getConstructors()[0].newInstance(given.toArray())


class Files:
    """Files over rows of a frame: one of each row, and some of several."""

    def __init__(
        self,
        columns: Mapping[str, tuple[str, pa.ChunkedArray]],
        kinds: Mapping[str, Sequence[str]],
        rng: random.Random,
        several: int,
    ) -> None:
        """`columns` are types and values by identity, `kinds` the kinds of each domain's name."""
        rows = len(next(iter(columns.values()))[1])
        self.rows = [[row] for row in range(rows)]
        self.rows += [rng.sample(range(rows), rng.randrange(2, 6)) for _ in range(several)]
        work, arrays = [], {}
        for identity, (type, values) in columns.items():
            arrow = arrow_type(type)
            domain = None if arrow is None else domain_of(arrow)
            if domain is None:
                continue
            arrays[identity] = encode(values)
            column = TableColumn(identity, identity, type)
            for kind in (*kinds["every"], *kinds.get(domain.name, ())):
                name, *params = kind.split()
                given = tuple((p.split("=")[0], json.loads(p.split("=")[1])) for p in params)
                indexed = IndexedColumn(len(work) + 1, identity, identity, type, name, given)
                work.append(Work(indexed, column, indexed.provider()))
        table = TableId("delta", "oracle", "/oracle")
        indexes = tuple(each.indexed for each in work)
        self.definition = Definition("oracle", table, "oracle", indexes)

        def read(file: Mapping[str, Any], named: Sequence[TableColumn]) -> Iterator[Part]:
            for column in {c.identity: c for c in named}.values():
                values = arrays[column.identity].take(pa.array(self.rows[file["ordinal"]]))
                yield Chunk(column, values.drop_null(), values.null_count)

        entries = []
        for n in range(len(self.rows)):
            file = {"ordinal": n, "path": f"{n}", "size": 1, "stamp": 0, "partition": None}
            entries.append({**file, **sketch(file, work, read)})
        self.entries = pa.Table.from_batches([make_entries(entries, work)])

    def find_prunable(self, message: bytes) -> BitMap:
        """The files that the index prunes for a question of Java's."""
        header, buffers = read_message(message)
        reader = Reader(buffers)
        predicate = reader.read(header[protocol.FILTERS])
        translator = PredicateTranslator(self.definition, reader.columns, ())
        asked = translator.translate(predicate)
        if asked is None:
            return BitMap()
        every = BitMap(range(len(self.rows)))

        def answer(test: Test) -> BitMap:
            return BitMap(np.flatnonzero(find_prunable_rows(test, self.entries)))

        return find_prunable(asked, answer, every)

    def held(self, outcomes: str, marks: str) -> BitMap:
        """The files with a row whose outcome is one of some."""
        there = enumerate(self.rows)
        return BitMap(n for n, rows in there if any(outcomes[row] in marks for row in rows))


def values_of(path: Path) -> pa.Table:
    """The rows of a Parquet folder, in order of `id`."""
    return pq.read_table(path).sort_by("id")
