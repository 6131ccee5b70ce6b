"""Joins, datasets and row tests of a scan whose rows are in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from providers.errors import DefinitionError
from providers.keys import Keys
from providers.predicate import And, Compare, In, Predicate, Unknown
from skipping.scans.engines import EngineScan
from skipping.scans.join import JoinScan, as_table
from skipping.scans.row_filters import KeyTest, apply_tests, row_tests
from skipping.tables import Columns, TableColumn

FACT = pa.table(
    {"a": [1, 2, 2, 3, None], "b": ["x", "y", "x", "x", "y"], "n": [10, 20, 30, 40, 50]}
)
ALL = And(())
COLUMNS = Columns(
    [TableColumn("a", "a", "bigint"), TableColumn("b", "b", "string"), TableColumn("n", "n", "int")]
)


@dataclass(frozen=True)
class Rows(EngineScan):
    """A scan of a table in memory, two rows at a time."""

    table: pa.Table = field(default_factory=lambda: FACT)
    predicate: Predicate = ALL

    @property
    def arrow_schema(self) -> pa.Schema:
        return self.table.schema

    def to_arrow_batch_reader(self) -> pa.RecordBatchReader:
        batches = self.table.to_batches(max_chunksize=2)
        return pa.RecordBatchReader.from_batches(self.table.schema, batches)

    def project_and_prune(self, names: Sequence[str], predicate: Predicate) -> Rows:
        return Rows(self.table.select(list(names)), predicate)

    def select(self, *names: str) -> Rows:
        return Rows(self.table.select(list(names)))

    def indexable_columns(self) -> Mapping[str, TableColumn]:
        types = {field.name: field.type for field in self.table.schema}
        return {n: replace(COLUMNS[n], read_as=type) for n, type in types.items()}


def join(dimension: pa.Table, on: Sequence[str], limit: int | None = None) -> JoinScan:
    keys = {n: Keys.of(n, dimension[n], FACT.schema.field(n).type) for n in on}
    return JoinScan.of(Rows(), dimension, keys, drop=set(on), suffix="_right", limit=limit)


DIMENSION = pa.table({"a": [2, 2, 3, None], "b": ["x", "y", "z", "x"], "n": ["p", "q", "r", "s"]})


@pytest.mark.parametrize(
    ("dimension", "on", "found"),
    [
        (DIMENSION, "a", [(20, "p"), (20, "q"), (30, "p"), (30, "q"), (40, "r")]),
        (DIMENSION, "ab", [(20, "q"), (30, "p")]),
        (DIMENSION.slice(0, 0), "ab", []),
        (DIMENSION.slice(3), "ab", []),
        (DIMENSION.slice(2, 1), "ab", []),
    ],
)
def test_join_has_the_pairs_with_equal_keys(
    dimension: pa.Table, on: str, found: list[tuple[int, str]]
) -> None:
    joined = join(dimension, on)
    assert joined.arrow_schema.names == [*FACT.schema.names, *["b_right"][len(on) - 1 :], "n_right"]
    rows = joined.select("n_right", "n").to_arrow().to_pylist()
    assert sorted((row["n"], row["n_right"]) for row in rows) == found
    assert joined.count() == len(found)


def test_join_with_a_limit_is_not_pruned_by_an_engine() -> None:
    asked = Compare("n", "=", 10)
    assert join(DIMENSION, "a").project_and_prune(["n"], asked).fact.predicate == asked
    some = join(DIMENSION, "a", limit=3)
    assert some.project_and_prune(["n"], asked).fact.predicate == ALL
    assert some.count() == 3
    with pytest.raises(DefinitionError, match="limit is -1"):
        join(DIMENSION, "a", limit=-1)


def frames() -> Iterator[Any]:
    columns = {"k": [1.0, np.nan], "v": [2.0, np.nan]}
    yield from (pa.table(columns), pa.RecordBatch.from_pydict(columns), columns)
    yield from (
        pd.DataFrame(columns),
        pl.DataFrame(columns),
        pl.LazyFrame(columns),
        Rows(pa.table(columns)),
    )


@pytest.mark.parametrize("given", list(frames()), ids=lambda given: type(given).__name__)
def test_as_table_converts_frames(given: Any) -> None:
    table = as_table(given, ["k"])
    assert table.schema.types == [pa.float64()] * 2
    assert table["k"].null_count == 0
    assert table["v"].null_count == isinstance(given, pd.DataFrame)


def test_as_table_refuses_what_is_no_table() -> None:
    named = ["k", "k"]
    for given in (pa.table([[1], [2]], names=named), pd.DataFrame([[1, 2]], columns=named)):
        with pytest.raises(DefinitionError, match="two columns k: rename one"):
            as_table(given)
    with pytest.raises(TypeError, match="the dimension is a list"):
        as_table([1])
    assert as_table(pl.DataFrame({"s": ["x"]})).schema.types == [pa.large_string()]


def test_dataset_reads_what_engines_ask_for() -> None:
    dataset = Rows().to_dataset()
    assert dataset.to_table().equals(FACT)
    assert dataset.to_table(["n"], filter=pc.field("a") == 2)["n"].to_pylist() == [20, 30]
    doubled = dataset.to_table({"m": pc.field("n") * 2})
    assert doubled.to_pydict() == {"m": [20, 40, 60, 80, 100]}
    for count, found in ((0, 0), (1, 1), (2, 2), (3, 3), (9, 5)):
        assert dataset.scanner(["n"]).head(count).num_rows == found
    assert dataset.scanner([]).count_rows() == 5
    assert dataset.scanner(["n"]).take([1, 4])["n"].to_pylist() == [20, 50]
    scan = dataset.scanner(["n"], pc.field("a") == 2)._scan
    assert (scan.arrow_schema.names, scan.predicate) == (
        ["a", "n"],
        Compare("a", "=", pa.scalar(2)),
    )


def test_duckdb_reads_a_scan() -> None:
    found = Rows().to_duckdb("t").sql("SELECT n FROM t WHERE a = 2 OR b = 'y' ORDER BY n")
    assert found.fetchall() == [(20,), (30,), (50,)]


def test_row_tests_filter_by_keys_and_expressions() -> None:
    def passing(row_filter: Any, keys: Mapping[str, Any] | None = None) -> list[int]:
        rest, tests = row_tests(row_filter, keys, COLUMNS, FACT.schema)
        assert rest == ("" if tests[len(keys or ()) :] else row_filter)
        return list(apply_tests(tests, FACT)["n"].to_pylist())

    assert passing(pc.field("a") == 2) == [20, 30]
    assert passing(pl.col("a") == 2, {"b": ["x", None]}) == [30]
    assert passing("a = 2", {"a": [3, None]}) == [40]
    with pytest.raises(TypeError, match="reads more than one row"):
        row_tests(pl.col("a").sum() == 2, None, COLUMNS, FACT.schema)
    with pytest.raises(TypeError, match=r"a DataFrame of Polars: give a pl\.Expr"):
        row_tests(pl.DataFrame(), None, COLUMNS, FACT.schema)
    with pytest.raises(DefinitionError, match="no column c: there are a, b, n"):
        row_tests(pc.field("c") == 2, None, COLUMNS, FACT.schema)


@pytest.mark.parametrize(
    ("column", "rows", "found"),
    [
        (TableColumn("k", "k", "bigint"), pa.int64(), In("k", pa.array([1]))),
        (TableColumn("k", "k", "bigint"), pa.decimal128(5, 2), Unknown("k is decimal128(5, 2)")),
        (TableColumn("k", "k", "bigint", refusal="no"), pa.int64(), Unknown("k is int64")),
        (TableColumn("k", "k", "array<int>"), pa.list_(pa.int32()), "k is array<int>"),
        (TableColumn("k", "k", "x", refusal="not in rows"), pa.null(), "not in rows"),
    ],
)
def test_key_test_needs_comparable_rows(column: TableColumn, rows: Any, found: Any) -> None:
    schema = pa.schema([("k", rows)])
    if isinstance(found, str):
        with pytest.raises(DefinitionError, match=found):
            row_tests("", {"k": [1]}, Columns([column]), schema)
        return
    _, (test,) = row_tests("", {"k": [1]}, Columns([column]), schema)
    assert isinstance(test, KeyTest)
    assert repr(test.predicate).split(" object")[0] == repr(found).split(" object")[0]
