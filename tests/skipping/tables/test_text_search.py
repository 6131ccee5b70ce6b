"""Substrings without Spark: text, and expressions of Arrow and Polars, with an NGRAM index."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

from providers import Contains, EndsWith
from providers.errors import DefinitionError
from skipping import SkippingIndex

PLACES = ["Amsterdam", "Bogot\u00e1", "Chennai", "Dushanbe", "\u4eac\u90fd\u5e02"]


def rows(place: str) -> pa.Table:
    texts = [f"{place}: {i} parcels of {place[::-1]}" for i in range(50)]
    return pa.table({"id": range(50), "s": [*texts[:-1], None]})


@pytest.fixture(params=["delta", "iceberg", "parquet"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A table of five files, each of a place of its own."""
    table: Any = tmp_path / "t"
    if request.param == "delta":
        for place in PLACES:
            write_deltalake(table, rows(place), mode="append")
        table = DeltaTable(table)
    elif request.param == "iceberg":
        uri, warehouse = f"sqlite:///{tmp_path}/c.db", tmp_path.as_uri()
        catalog = load_catalog("c", type="sql", uri=uri, warehouse=warehouse)
        catalog.create_namespace("db")
        table = catalog.create_table("db.t", rows("").schema)
        for place in PLACES:
            table.append(rows(place))
    else:
        table.mkdir()
        for place in PLACES:
            file = table / f"{place[:2]}.parquet"
            pq.write_table(rows(place), file)
            os.utime(file, (1_700_000_000, 1_700_000_000))  # younger ones are not indexed yet
        table = str(table)
    made = SkippingIndex.create(table, "s NGRAM(3)", store=f"sqlite:{tmp_path}/i.db", build=False)
    made.refresh()
    return made


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("s LIKE '%sterda%'", pc.match_substring(pc.field("s"), "sterda")),
        ("s LIKE '%s of madretsmA'", pc.ends_with(pc.field("s"), "s of madretsmA")),
        ("s LIKE 'Amster%'", pl.col("s").str.starts_with("Amster")),
        ("s LIKE '%dam: 1%'", pl.col("s").str.contains("dam: 1", literal=True)),
        ("s LIKE '%: 7 parcels of madre%'", pl.col("s").str.contains(": 7 parcels of madre",
                                                                     literal=True)),
        ("s LIKE '%\u5e02\u90fd\u4eac'", pl.col("s").str.ends_with("\u5e02\u90fd\u4eac")),
    ],
)  # fmt: skip
def test_a_scan_opens_the_file_with_the_substring(index: Any, text: str, expression: Any) -> None:
    scan = index.scan(expression)
    whole = index.scan().to_arrow()
    frame: Any = pl.DataFrame(whole)
    kept = (
        whole.filter(expression)
        if isinstance(expression, pc.Expression)
        else frame.filter(expression).to_arrow()
    )
    assert kept.num_rows > 0
    found = scan.to_arrow()
    assert sorted(found["s"].to_pylist()) == sorted(kept["s"].to_pylist())
    assert len(list(scan.plan_files())) == 1
    assert index.lookup(text).kept == 1
    if index.table.id.format != "iceberg":  # whose own filters have no such test
        scan = index.scan(text)
        assert sorted(scan.to_arrow()["s"].to_pylist()) == sorted(kept["s"].to_pylist())
        assert len(list(scan.plan_files())) == 1


def test_what_is_negated_loses_no_row(index: Any) -> None:
    for expression in (
        ~pc.match_substring(pc.field("s"), "sterda"),
        ~pl.col("s").str.contains("sterda", literal=True),
        ~pl.col("s").str.ends_with("madretsmA"),
    ):
        assert index.scan(expression).count() == 4 * 49
    assert index.lookup(Contains("s", "sterda", negated=True)).kept == 5
    assert index.lookup(EndsWith("s", "madretsmA", negated=True)).kept == 5


def test_a_regular_expression_of_polars_is_not_taken_for_its_letters(index: Any) -> None:
    assert index.scan(pl.col("s").str.contains("sterda|ennai")).count() == 2 * 49
    assert index.scan(pl.col("s").str.contains("Am.ter")).count() == 49
    assert index.scan(pc.match_substring(pc.field("s"), "STERDA", ignore_case=True)).count() == 49


def test_a_pattern_that_no_leaf_says_is_asked_and_not_evaluated(index: Any) -> None:
    assert index.lookup("s LIKE '%ster_am%parcels%'").kept == 1
    assert index.lookup("s NOT LIKE '%ster_am%'").kept == 5
    if index.table.id.format != "iceberg":
        # Its letters alone would let through rows that do not match.
        with pytest.raises(DefinitionError, match="the rest of a pattern of s LIKE"):
            index.scan("s LIKE '%A_ter%'").to_arrow()
