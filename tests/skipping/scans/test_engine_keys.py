"""Keys of joins as other engines have them, and joins on our survivors."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from providers.errors import DefinitionError
from providers.keys import Keys
from providers.values import encode
from skipping import SkippingIndex
from skipping.stores.memory.store import MemoryStore
from tests.skipping.tables.world import DAY, FILES, NAN, POOLS, World, ids

pytestmark = pytest.mark.nightly


def columns_of(keys: list[Any], name: str) -> Iterator[Any]:
    """One column of values in all the ways that people have it."""
    array = pa.array(keys)
    relation = duckdb.from_arrow(pa.table({name: array, "other": array}))
    yield from (array, pa.chunked_array([array, array]), pl.Series(keys), keys, iter(keys))
    yield from (pl.DataFrame({name: keys}), pl.LazyFrame({"o": keys, name: keys}), relation)
    yield from (pa.table({"o": array, name: array}), array.dictionary_encode())
    yield from (pd.Series(keys), pd.DataFrame({"o": keys, name: keys}))


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("i", [7, 2**31, None]),
        ("l", [2**53 + 1, 5]),
        ("d", [NAN, 0.0]),
        ("f", [0.5, 0.1, -0.0]),
        ("s", ["ab", "nope", None]),
        ("b", [True]),
        ("day", [DAY]),
        ("n", [Decimal("1.5"), Decimal("1.505"), Decimal(7)]),
    ],
)
def test_keys_of_any_library(world: World, name: str, keys: list[Any]) -> None:
    def equal(value: Any) -> bool:
        return value is not None and any(value == k or (value != value and k != k) for k in keys)

    pairs = zip(world.whole["id"].to_pylist(), world.whole[name].to_pylist(), strict=True)
    wanted = {id for id, value in pairs if equal(value)}
    every = columns_of(keys, name)
    for given in every if world.index.table.id.format == "delta" else islice(every, 3):
        if name == "l" and "pandas" in type(given).__module__:
            continue
        scan = world.index.scan(keys={name: given}, selected_fields=("id",))
        assert ids(scan.to_arrow()) == wanted, type(given)
        assert scan.count() == len(wanted)
    assert len(list(scan.plan_files())) < FILES
    assert set(scan.to_polars().collect()["id"]) == wanted


def test_keys_are_converted_soundly_or_refused(world: World) -> None:
    index = world.index
    count = pc.sum(pc.equal(world.whole["i"], 7)).as_py()
    for keys in (
        np.array([7, 255], np.uint8),
        np.array([7, 2**64 - 1], np.uint64),
        pd.Series([7, None]),
        pd.Series([7, None], dtype=object),
        pa.array([7.0, 7.5, NAN]),
    ):
        assert index.scan(keys={"i": keys}).count() == count
    assert index.scan(keys={"i": []}).count() == 0
    texts = pd.Series(["ab", NAN, pd.NA], dtype=object)
    assert index.scan(keys={"s": texts}).count() == index.scan(keys={"s": ["ab"]}).count() > 0
    assert (
        index.join(pd.DataFrame({"s": texts, "o": NAN}), "s").count()
        == index.scan("s = 'ab'").count()
    )
    unknown = index.join(pd.DataFrame({"d": [NAN], "o": [NAN]}), "d").to_arrow()
    assert unknown.num_rows == index.scan(keys={"d": [NAN]}).count() > 0
    assert unknown["o"].null_count == unknown.num_rows
    assert index.scan(keys={"i": [7], "s": ["nope"]}).count() == 0
    assert index.scan(keys={"i": [7]}, limit=1).to_arrow().num_rows == 1
    assert index.scan("s = 'ab'", keys={"i": [7, 1, 2]}).count() == len(
        world.frame.filter((pl.col("s") == "ab") & pl.col("i").is_in([7, 1, 2]))
    )
    days = np.array(["2024-01-01T00:00:00", "2024-01-02T00:00:01"], "datetime64[ns]")
    on_day = index.scan(keys={"day": days}).count()
    assert on_day == pc.sum(pc.equal(world.whole["day"], DAY)).as_py()
    stamps = pd.Series(
        pd.to_datetime(["2024-01-01T00:00:00.000000001", "2024-01-02T00:00:00.000000000"], utc=True)
    )
    found = index.scan(keys={"at": stamps}).to_arrow()["at"].to_pylist()
    assert set(found) == {POOLS["at"][1]}
    for name, keys in (
        ("i", ["7"]), ("s", [7]), ("i", [2.0**60]), ("d", [2**60]), ("day", ["2024-01-01"]),
        ("at", [DAY]), ("i", "7"), ("i", 7), ("i", {"a": 1}), ("i", [7, "a"]),
        ("i", pl.DataFrame({"a": [1], "b": [2]})), ("n", [1.5]),
        ("d", np.array([2**63], np.uint64)), ("s", pa.array([b"\xff"]).view(pa.string())),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=name):
            index.scan(keys={name: keys})
    with pytest.raises(DefinitionError, match="no column nope"):
        index.scan(keys={"nope": [1]})


def test_unsigned_keys_beyond_the_signed_ones_are_values_of_a_decimal() -> None:
    """Such is a column of UINT64, as Spark has it."""
    keys = Keys.of("k", pa.array([2**64 - 1, 7, None], pa.uint64()), pa.decimal128(20, 0))
    column = pa.array([Decimal(2**64 - 1), Decimal(8), None, Decimal(7)], pa.decimal128(20, 0))
    assert (keys.positions(encode(column)) >= 0).tolist() == [True, False, False, True]
    narrow = Keys.of("k", pa.array([7, 2**64 - 1], pa.uint64()), pa.decimal128(9, 2))
    assert narrow.given.to_pylist() == [Decimal("7.00"), None]


@pytest.mark.parametrize("type", [pa.int64(), pa.uint64(), pa.decimal128(20, 0)], ids=str)
def test_keys_of_any_size_match_no_other_number(type: pa.DataType) -> None:
    """Wrapped, 2**64 + 7 would be 7."""
    given = [7, 2**64 + 7, -(2**64) + 7, 10**50, None, 2**63]
    keys = Keys.of("k", given, type)
    column = encode(pa.array([7, 8, None], pa.int64()).cast(type))
    assert (keys.positions(column) >= 0).tolist() == [True, False, False]
    wanted = [True, False, False, False, False, type != pa.int64()]
    found = [place >= 0 for place in keys.rows.tolist()]
    assert (found[0], found[-1], found[4]) == (wanted[0], wanted[-1], False)


def test_a_million_keys_are_looked_up() -> None:
    keys = Keys.of("k", np.arange(1_000_000) * 3, pa.int64())
    values = pa.array([0, 1, 3, None, 2_999_997, 2_999_998])
    assert keys.positions(values).tolist() == [0, -1, 1, -1, 999_999, -1]
    texts = Keys.of("k", ["b", "a", "b", None], pa.string())
    assert texts.positions(pa.array(["a", "c", None, "b"])).tolist() == [0, -1, -1, 1]
    assert Keys.of("k", [], pa.string()).positions(pa.array(["a"])).tolist() == [-1]


@pytest.mark.parametrize("on", ["i", "s", "d", ["i", "s"], {"i": "key"}])
def test_a_join_gives_the_rows_of_the_whole_table(world: World, on: Any) -> None:
    dimension = pl.DataFrame(
        {
            "i": [7, 7, 1, 5, None],
            "s": ["a", "ab", "b", "x", None],
            "d": [NAN, 0.0, 0.5, 9.0, None],
            "key": [7, 2**31, 1, 1, None],
            "label": ["p", "q", "r", "s", "t"],
        },
        schema_overrides={"i": pl.Int32},
    )
    left = [on] if isinstance(on, str) else list(on)
    right = list(on.values()) if isinstance(on, dict) else left
    wanted = world.frame.join(dimension, left_on=left, right_on=right).sort("id", "label")
    joined = world.index.join(dimension, on)
    names = ["id", *left, "label"]
    found = pl.DataFrame(joined.to_arrow()).sort("id", "label")
    assert found.select(names).equals(wanted.select(names))
    assert len(found)
    assert joined.count() == len(wanted)
    assert len(list(joined.plan_files())) < FILES
    lazy = joined.to_polars().filter(pl.col("label") == "r").select("id", "label").collect()
    assert sorted(lazy["id"]) == sorted(wanted.filter(pl.col("label") == "r")["id"])
    db = joined.to_duckdb("j")
    assert db.sql("SELECT count(*) FROM j").fetchone() == (len(wanted),)
    some = world.index.join(dimension, on, selected_fields=("label", "id"))
    assert some.to_arrow().column_names == ["label", "id"]
    assert some.count() == len(wanted)


def test_a_join_on_columns_whose_tuples_are_many(tmp_path: Path) -> None:
    count = 60_000  # to the power of four is more than 64 bits hold
    random = np.random.default_rng(0)
    numbers = {name: random.permutation(count) for name in "abcd"}
    table = pa.table(numbers).append_column("a1", pa.array(numbers["a"] + 1))
    write_deltalake(tmp_path / "t", table)
    index = SkippingIndex.create(DeltaTable(tmp_path / "t"), "a MIN_MAX", store=MemoryStore())
    assert index.join(table, ["a", "b", "c", "d"]).count() == count
    # Each key is there, a tuple of them is not.
    assert index.join(table, {"a": "a1", "b": "b", "c": "c", "d": "d"}).count() == 0
    assert index.join(table.slice(0, 0), ["a", "b"]).count() == 0


@pytest.mark.parametrize("kind", ["VALUE_LIST", "BLOOM_FILTER"])
def test_a_join_asks_composites_for_the_tuples_of_the_dimension(tmp_path: Path, kind: str) -> None:
    """Every file has all values of each column, and a few of their tuples."""
    for shift in range(8):
        rows = [(a, f"{(a + shift) % 8}", shift) for a in range(8)]
        names = {"a": [a for a, _, _ in rows], "b": [b for _, b, _ in rows], "id": [shift] * 8}
        write_deltalake(tmp_path / "t", pa.table(names), mode="append")
    table = DeltaTable(tmp_path / "t")
    index = SkippingIndex.create(table, f"(b, a) {kind}", store=MemoryStore())
    dimension = pa.table({"x": [3, 7, None, 9], "b": ["5", "1", "0", "5"], "n": list("pqrs")})
    on = {"a": "x", "b": "b"}
    joined = index.join(dimension, on)
    assert sorted(joined.to_arrow().select(["id", "n"]).to_pylist(), key=str) == [
        {"id": 2, "n": "p"}, {"id": 2, "n": "q"}
    ]  # fmt: skip
    assert len(list(joined.plan_files())) == 1
    assert index.join(dimension, {"a": "x"}).count() == 16  # no composite is asked
    assert len(list(index.join(dimension, {"a": "x"}).plan_files())) == 8
    assert index.join(dimension.slice(2), on).count() == 0
    assert len(list(index.join(dimension.slice(2), on).plan_files())) == 0
    assert len(list(index.scan("(a, b) IN ((3, '5'), (9, '5'))").plan_files())) == 1
    assert index.scan("(a, b) IN ((3, '5'), (4, '5'))").count() == 2
    # Keys that are given column by column are no tuples.
    assert index.scan(keys={"a": [3], "b": ["5", "6"]}).count() == 2


def test_what_a_join_takes(world: World) -> None:
    index, dimension = world.index, pa.table({"i": [7], "s": ["x"]})
    relation = duckdb.from_arrow(dimension)
    scan = index.scan(keys={"i": [7]}, selected_fields=("i", "s"))
    counts = {
        index.join(given, "i").count()
        for given in (dimension, dimension.to_pandas(), relation, pl.LazyFrame(dimension))
    }
    assert len(counts) == 1
    assert index.join(scan, "i").count() == next(iter(counts)) ** 2
    twice = pl.DataFrame({"i": [7, 7, 7, 1]}, schema={"i": pl.Int32})
    for limit in (0, 1, 2, 4):
        some = index.join(twice, "i", limit=limit)
        assert len(some.to_arrow()) == some.count() == limit
        kept = {7, 1} if limit else set()
        assert set(some.to_polars().filter(pl.col("i") == 1).collect()["i"]) <= kept - {7}
    with pytest.raises(DefinitionError, match="limit is -1"):
        index.join(twice, "i", limit=-1)
    assert "s_right" in index.join(dimension, "i").to_arrow().column_names
    with pytest.raises(DefinitionError, match="the join has two columns"):
        index.join(dimension, "i", suffix="")
    twice_named = pa.table([[7], ["x"], ["y"]], names=["i", "s", "s"])
    for given in (twice_named, pd.DataFrame([[7, "x", "y"]], columns=["i", "s", "s"])):
        with pytest.raises(DefinitionError, match="dimension has two columns s: rename one"):
            index.join(given, "i")
    with pytest.raises(DefinitionError, match="the dimension has no column day"):
        index.join(dimension, "day")
    with pytest.raises(DefinitionError, match="`on` is empty"):
        index.join(dimension, [])
    with pytest.raises(TypeError, match="the dimension is a "):
        index.join(7, "i")
    with pytest.raises(DefinitionError, match="no column nope"):
        index.join(dimension, "i", selected_fields=("nope",))
