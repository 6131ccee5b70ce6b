"""Composites without Spark: each file has every value of every column, and tuples tell."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from providers.errors import DefinitionError
from skipping import SkippingIndex
from skipping.indexing.definitions import number_columns
from skipping.indexing.parquet_reader import TUPLES, Chunk, read_columns
from skipping.indexing.sketch import Work, sketch_files
from skipping.parser.parse import column_specs
from skipping.stores import IDENTITY
from skipping.stores.memory.store import MemoryStore
from skipping.tables import Columns, PhysicalColumn, TableColumn
from skipping.tables.composites import by_identity, combine

N = 12
COLUMNS = "(a, s) VALUE_LIST, (s, st.x, a) BLOOM_FILTER(0.000001)"


def rows(f: int) -> pa.Table:
    """Those of a file: (n, f) pairs that no other has, and tuples with nulls."""
    numbers = list(range(N))
    texts: list[str | None] = [f"s{(n + f) % N}" for n in numbers]
    return pa.table(
        {
            "a": pa.array([*numbers, 0, None], pa.int64()),
            "s": pa.array([*texts, None, "s0"]).dictionary_encode().cast(pa.string()),
            "st": pa.array([*({"x": (n + f) % N} for n in numbers), {"x": None}, None]),
        }
    )


def delta(folder: Path) -> Any:
    for f in range(4):
        write_deltalake(folder / "t", rows(f), mode="append")
    return DeltaTable(folder / "t")


def parquet(folder: Path) -> Any:
    (folder / "t").mkdir()
    for f in range(4):
        pq.write_table(rows(f), folder / "t" / f"{f}.parquet")
    return str(folder / "t")


def iceberg(folder: Path) -> Any:
    catalog = SqlCatalog("own", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
    catalog.create_namespace("db")
    table = catalog.create_table(("db", "t"), schema=rows(0).schema)
    for f in range(4):
        table.append(rows(f))
    return table


@pytest.mark.parametrize("make", [delta, parquet, iceberg])
def test_the_files_with_a_tuple_are_read(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    index = SkippingIndex.create(make(tmp_path), COLUMNS, store=MemoryStore("here"))
    kept = {
        "a = 1 AND s = 's3'": 1,
        "a IN (1, 2) AND s = 's3'": 2,
        "a = 1 AND s = 's9'": 0,
        "(a = 1 AND s = 's3') OR (a = 5 AND s = 's5')": 2,
        "a = 1 AND st.x = 3 AND s = 's3'": 1,
        "a = 0 AND s IS NULL": 4,
        "a = 1 AND NOT s = 's3'": 4,
        "a = 1": 4,
    }
    assert {text: index.lookup(text).kept for text in kept} == kept
    assert index.lookup("a = 1").unused == (
        "a = ?: a is not in the index, only (a, s), (s, st.x, a)",
    )
    found = index.scan("a = 1 AND s = 's3'").to_arrow()
    assert found.to_pylist() == [{"a": 1, "s": "s3", "st": {"x": 3}}]
    with pytest.raises(DefinitionError, match="in the index already"):
        index.add("(s, a) VALUE_LIST")
    index.remove("(s, a)")
    assert index.lookup("a = 1 AND s = 's3'").kept == 4


def test_a_file_of_which_a_part_is_in_doubt_is_unknown(tmp_path: Path) -> None:
    """A part of another type, or with a value in the log, too; a part that is missing is null."""
    columns = Columns(
        [TableColumn(name, name, "bigint", PhysicalColumn((name,))) for name in ("a", "b")]
    )
    indexed = number_columns(column_specs("(a, b) VALUE_LIST, a VALUE_LIST"), columns, ())
    both = by_identity(indexed[0], columns)
    assert both is not None
    work = [Work(indexed[0], both, indexed[0].provider())]
    work.append(Work(indexed[1], columns["a"], indexed[1].provider()))
    held = {
        "both": pa.table({"a": [1, None, 3], "b": [4, 5, None]}),
        "other type": pa.table({"a": [1], "b": ["x"]}),
        "missing": pa.table({"a": [1, 2]}),
        "logged": pa.table({"a": [1], "b": [2]}),
        "no rows": pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.int64())}),
    }
    files = []
    for i, (name, data) in enumerate(held.items()):
        path = tmp_path / f"{name}.parquet"
        pq.write_table(data, path)
        logged = json.dumps({"b": "2"} if name == "logged" else {})
        files.append([i, str(path), path.stat().st_size, None, logged])
    arrays = list(map(pa.array, zip(*files, strict=True)))
    batch = pa.table(arrays, names=IDENTITY.names).cast(IDENTITY).to_batches()[0]
    found = sketch_files(batch, work).to_pylist()
    shown = {
        name: (row["s1_known"], row["s1_nulls"]) for name, row in zip(held, found, strict=True)
    }
    assert shown == {
        "both": (True, 2),
        "other type": (False, None),
        "missing": (True, 2),
        "logged": (False, None),
        "no rows": (True, 0),
    }
    assert [len(row["s1_values"] or ()) for row in found] == [1, 0, 0, 0, 0]
    assert all(row["s2_known"] for row in found)


def test_long_texts_are_taken_a_few_rows_at_a_time(tmp_path: Path) -> None:
    """A dictionary has each once, their tuples in every row."""
    count, path = 1 << 14, f"{tmp_path}/long.parquet"

    def text(letter: str) -> pa.Array:
        return pa.DictionaryArray.from_arrays(
            pa.array([0] * count, pa.int32()), pa.array([letter * 10_000])
        )

    pq.write_table(
        pa.table({"a": range(count), "s": text("s"), "t": text("t")}), path, store_schema=False
    )
    a, s, t = (
        TableColumn(name=n, identity=n, type=type, physical=PhysicalColumn((n,)))
        for n, type in (("a", "bigint"), ("s", "string"), ("t", "string"))
    )
    sizes, rows = [], 0
    for part in read_columns(path, [a, combine([s, t])]):
        assert isinstance(part, Chunk)
        if part.column.is_composite:
            sizes.append(part.values.nbytes)
            rows += len(part.values)
    assert rows == count
    assert max(sizes) < 1.01 * TUPLES < sum(sizes)
