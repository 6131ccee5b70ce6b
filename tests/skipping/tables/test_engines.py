"""Other engines on our survivors: the rows that each gives for its own filters, and keys of joins.

Rows of files that were disproved are in no answer: so one row of them that an engine's filter is
true of, when it reads everything, is a row lost.
"""

from __future__ import annotations

import datetime
import math
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import ArrowScan

from providers import Unknown
from providers.errors import DefinitionError, TableError
from providers.keys import Keys
from providers.values import encode
from skipping import SkippingIndex
from skipping.lookup.query import Asking
from skipping.stores import identities
from skipping.stores.memory.store import MemoryStore
from skipping.tables.expressions import translate
from skipping.tables.polars_expressions import translate_polars
from skipping.tables.scan import FileScan

NAN = math.nan
DAY = datetime.date(2024, 1, 1)
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "i": pa.int32(),
        "l": pa.int64(),
        "f": pa.float32(),
        "d": pa.float64(),
        "s": pa.string(),
        "b": pa.bool_(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "n": pa.decimal128(9, 2),
    }
)
POOLS: dict[str, list[Any]] = {
    "i": [-(2**31), -1, 0, 1, 2, 7, 2**31 - 1],
    "l": [-(2**40), 0, 1, 2, 2**53, 2**53 + 1, 2**63 - 1],
    "f": [NAN, -0.0, 0.0, 0.5, -1.5, 1.0, 16777217.0, math.inf, 0.1],
    "d": [NAN, -0.0, 0.0, 0.5, 0.1, 1.0, 1e300, -math.inf],
    "s": ["", "a", "ab", "b", "b\U0001f600", "\U0001f600"],
    "b": [True, False],
    "day": [DAY, datetime.date(1969, 12, 31), datetime.date(2024, 1, 2)],
    "at": [datetime.datetime(2024, 1, d, tzinfo=datetime.timezone.utc) for d in (1, 2, 3)],
    "n": [Decimal("0.00"), Decimal("-1.50"), Decimal("1.50"), Decimal("99999.99")],
    "later": [1, 2, 3],
}
"""Few values of each column, so that many files have no match, and files of one value are many."""

KINDS = ("VALUE_LIST", "MIN_MAX", "BLOOM_FILTER", "VALUE_LIST")
COLUMNS = ", ".join(
    f"{name} {kind}" for name, kind in zip(POOLS, islice(cycle(KINDS), len(POOLS)), strict=True)
)
FILES, ROWS = 24, 6


def rows(random: random.Random, file: int) -> pa.Table:
    """The rows of a file; later ones have a column more."""

    def values(name: str) -> list[Any]:
        some = random.sample(POOLS[name], random.choice([1, 1, 2]))
        pool = [*some, None] if random.random() < 0.4 else some
        return [random.choice(pool) for _ in range(ROWS)]

    schema = SCHEMA if file < FILES // 2 else SCHEMA.append(pa.field("later", pa.int64()))
    numbers = list(range(file * ROWS, (file + 1) * ROWS))
    columns = [numbers, *(values(name) for name in schema.names[1:])]
    return pa.table(columns, schema=schema)


@dataclass
class World:
    """A table, its index, and all of its rows as each engine has them when it reads everything."""

    index: SkippingIndex
    folder: Path
    whole: pa.Table = field(init=False)
    skipped: int = 0

    def __post_init__(self) -> None:
        self.columns = self.index.table.columns()
        self.whole = self.index.scan().to_arrow().sort_by("id")
        self.frame = pl.DataFrame(self.whole)
        self.db = duckdb.connect()
        self.db.register("given", self.whole)
        self.db.execute("SET TimeZone = 'UTC'; CREATE TABLE whole AS SELECT * FROM given")
        self.index.scan().to_duckdb("t", self.db)
        self.fusion = self.index.scan().to_datafusion(table_name="t")
        self.fusion.from_arrow(self.whole, name="whole")
        self.lazy = self.index.scan().to_polars()
        files = self.index.files()
        self.held: dict[Any, set[int]] = {}
        for identity in identities(files):
            scan = self.index.scan()
            path = identity[0]
            if isinstance(self.index.table.table, DeltaTable):
                only = scan.files.filter(pc.equal(scan.files["path"], path))
                found = replace(scan, files=only).to_arrow()
            else:
                tasks = [t for t in scan.plan_files() if t.file.file_path == path]
                reader = ArrowScan(scan.table_metadata, scan.io, scan.projection(), scan.row_filter)
                found = reader.to_table(tasks)
            self.held[identity] = set(found["id"].to_pylist())

    def has_null_float(self, id: int) -> bool:
        row = self.whole.filter(pc.field("id") == id).to_pylist()[0]
        return row["d"] is None or row["f"] is None

    def lost(self, predicate: Any, ids: set[int]) -> set[int]:
        """Rows of an answer that are in files which are disproved for a predicate."""
        gone = self.index._asking.disproved(predicate, self.columns)
        self.skipped += len(gone)
        return {id for identity in gone for id in self.held[identity] & ids}


def delta(folder: Path) -> Any:
    for file in range(FILES):
        write_deltalake(folder, rows(random.Random(file), file), mode="append", schema_mode="merge")
    table = DeltaTable(folder)
    table.delete("id % 17 = 3")
    return table


def iceberg(folder: Path) -> Any:
    folder.mkdir()
    catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}/w")
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", schema=SCHEMA)
    for file in range(FILES):
        if file == FILES // 2:
            with table.update_schema() as update:
                update.union_by_name(SCHEMA.append(pa.field("later", pa.int64())))
        table.append(rows(random.Random(file), file))
    table.delete("id in (3, 20, 37, 54, 71)")
    return table


FORMATS: dict[str, Callable[[Path], Any]] = {"delta": delta, "iceberg": iceberg}


@pytest.fixture(scope="module", params=FORMATS)
@staticmethod
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp(request.param) / "t"
    table = FORMATS[request.param](folder)
    store = MemoryStore(f"engines-{request.param}")
    return World(SkippingIndex.create(table, COLUMNS, store=store), folder)


@dataclass
class Asked:
    """One filter in the words of each engine."""

    arrow: pc.Expression
    polars: pl.Expr
    sql: str


_SQL = {"==": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


def literal(value: Any, type: pa.DataType) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f"CAST('{str(value).replace('inf', 'Infinity')}' AS DOUBLE)"
    match value:
        case str():
            return f"'{value}'"
        case datetime.datetime():
            return f"TIMESTAMP '{value.replace(tzinfo=None)}'"
        case datetime.date():
            return f"DATE '{value}'"
        case float():
            return f"CAST({value!r} AS {'REAL' if type == pa.float32() else 'DOUBLE'})"
    return str(value)


def leaf(random: random.Random, schema: pa.Schema) -> Asked:
    name = random.choice([n for n in POOLS if n != "at"])
    type, pool = schema.field(name).type, POOLS[name]
    a, p = pc.field(name), pl.col(name)
    kind = random.choice(["compare", "compare", "in", "null", "nan", "starts", "at"])
    if kind == "at":
        value = random.choice(POOLS["at"])
        text = f"CAST('{value.isoformat()}' AS TIMESTAMPTZ)"
        text = f'"at" >= {text}'
        return Asked(pc.field("at") >= pa.scalar(value, pa.timestamp("us", "UTC")),
                     pl.col("at") >= value, text)  # fmt: skip
    if kind == "null":
        return Asked(a.is_null(), p.is_null(), f"{name} IS NULL")
    if kind == "nan" and name in ("f", "d"):
        return Asked(pc.is_nan(a), p.is_nan(), f"isnan({name})")
    if kind == "starts" and name == "s":
        text = random.choice(["a", "b", "ab", "\U0001f600", ""])
        starts, ends = pc.starts_with(a, text), pc.ends_with(a, text)
        has = pc.match_substring(a, text)
        return random.choice(
            [
                Asked(starts, p.str.starts_with(text), f"starts_with(s, '{text}')"),
                Asked(ends, p.str.ends_with(text), f"ends_with(s, '{text}')"),
                Asked(has, p.str.contains(text, literal=True), f"contains(s, '{text}')"),
            ]
        )
    if kind == "in" and name != "n":
        some = random.sample(pool, min(2, len(pool)))
        texts = ", ".join(literal(value, type) for value in some)
        listed = pa.array([*some, None] if random.random() < 0.3 else some, type)
        return Asked(a.isin(listed), p.is_in(some), f"{name} IN ({texts})")
    value, op = random.choice(pool), random.choice(list(_SQL))
    if name == "b":
        op = random.choice(["==", "!="])
    typed = pa.scalar(value, type) if random.random() < 0.7 or name == "n" else pa.scalar(value)
    plain: Any = value
    if random.random() < 0.3 and name in ("i", "l", "d"):
        plain = random.choice([0.5, 1, 2**40, 2**53 + 1, 1.0, -7])
        typed = pa.scalar(plain)
    compared = {
        "==": lambda x, y: x == y, "!=": lambda x, y: x != y, "<": lambda x, y: x < y,
        "<=": lambda x, y: x <= y, ">": lambda x, y: x > y, ">=": lambda x, y: x >= y,
    }[op]  # fmt: skip
    sql = f"{name} {_SQL[op]} {literal(value, type)}"
    if value != value and op in ("<=", ">"):
        # DuckDB asks any Arrow table for `true` where it means x <= NaN, and gets nulls as well.
        sql = f"(isnan({name}) {'OR' if op == '<=' else 'AND'} NOT isnan({name}))"
    return Asked(compared(a, typed), compared(p, plain), sql)


def asked(random: random.Random, schema: pa.Schema, depth: int = 2) -> Asked:
    kind = random.choice(["leaf", "leaf", "and", "or", "not"]) if depth else "leaf"
    if kind == "leaf":
        return leaf(random, schema)
    one = asked(random, schema, depth - 1)
    if kind == "not":
        return Asked(~one.arrow, ~one.polars, f"NOT ({one.sql})")
    two = asked(random, schema, depth - 1)
    if kind == "and":
        both = f"({one.sql}) AND ({two.sql})"
        return Asked(one.arrow & two.arrow, one.polars & two.polars, both)
    either = f"({one.sql}) OR ({two.sql})"
    return Asked(one.arrow | two.arrow, one.polars | two.polars, either)


def ids(table: Any) -> set[int]:
    return set(table["id"].to_pylist() if isinstance(table, pa.Table) else table["id"].to_list())


def compare_filters(world: World, seeds: Iterator[int] | range) -> None:
    """What Arrow and Polars return of everything is in no file that is disproved."""
    known = world.index.scan().known()
    for seed in seeds:
        given = asked(random.Random(seed), world.whole.schema)
        try:
            found = ids(world.whole.filter(given.arrow))
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            found = set()  # Arrow refuses it: there are no rows to lose
        lost = world.lost(translate(given.arrow, known).predicate, found)
        assert not lost, (seed, str(given.arrow))
        try:
            found = ids(world.frame.filter(given.polars))
        except pl.exceptions.PolarsError:
            continue
        assert not world.lost(translate_polars(given.polars, known), found), (seed, given.polars)


def test_no_row_of_a_random_filter_is_lost(world: World) -> None:
    compare_filters(world, range(450))
    assert world.skipped > 3_000


def compare_engines(world: World, seeds: range) -> None:
    """The rows that each engine gives on our survivors are those of everything."""
    for seed in seeds:
        given = asked(random.Random(-seed - 1), world.whole.schema)
        sql = f"SELECT id FROM {{}} WHERE {given.sql}"
        wanted = set(world.db.sql(sql.format("whole")).fetchnumpy()["id"].tolist())
        found = world.db.sql(sql.format("t")).fetchnumpy()["id"].tolist()
        if beside_nan(given.sql):
            found = [id for id in found if id in wanted or not world.has_null_float(id)]
        assert sorted(found) == sorted(wanted), (seed, given.sql)
        compare_datafusion(world, seed, sql.replace("TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE"))
        try:
            kept = ids(world.frame.filter(given.polars))
        except pl.exceptions.PolarsError:
            continue
        assert ids(world.lazy.filter(given.polars).select("id").collect()) == kept, given.polars


def beside_nan(sql: str) -> bool:
    """Whether DuckDB does not say of which of two columns it asks `<= NaN`."""
    asked = any(f"{name} {op} CAST('nan'" in sql for name in "df" for op in ("<=", ">"))
    return asked and all(f"{name} " in sql or f"({name})" in sql for name in "df")


def compare_datafusion(world: World, seed: int, sql: str) -> None:
    wanted = world.fusion.sql(sql.format("whole")).to_pydict().get("id", [])
    try:
        found = world.fusion.sql(sql.format("t")).to_pydict().get("id", [])
    except Exception as error:
        # DataFusion makes `NULL AND x` of `x = 1 AND x = 2`, which it cannot hand to Arrow.
        if "BooleanScalar" not in str(error):
            raise
        return
    assert sorted(found) == sorted(wanted), (seed, sql)


def test_each_engine_gives_its_own_rows(world: World) -> None:
    # PyIceberg plans from its manifests each time.
    compare_engines(world, range(50 if world.index.table.id.format == "delta" else 15))


@pytest.mark.soak
def test_no_row_of_many_random_filters_is_lost(world: World) -> None:
    compare_filters(world, range(10_000, 35_000))
    compare_engines(world, range(10_000, 11_000))


def test_an_expression_decides_which_rows_there_are(world: World) -> None:
    for given in (
        pc.field("i") == 7,
        (pl.col("i") == 7) & pl.col("s").str.ends_with(""),
        pl.any_horizontal(pl.col("i") == 7, pl.col("i") == 8),
        pl.all_horizontal(pl.col("i") == 7, pl.col("i") > 0),
        ~pl.any_horizontal(pl.col("i") != 7, pl.col("i") < 0),
    ):
        scan = world.index.scan(given, selected_fields=("id",))
        kept = world.frame.filter(pl.col("i") == 7)
        assert ids(scan.to_arrow()) == ids(kept)
        assert scan.to_arrow().column_names == ["id"]
        assert scan.count() == len(kept)
        assert 0 < len(list(scan.plan_files())) < FILES
    assert world.index.scan(pc.field("i") == 7, limit=1).to_arrow().num_rows == 1
    by_place = world.index.scan(pc.field(world.whole.column_names.index("i")) == 7)
    for selected in (("id",), ("l", "id"), ("*",)):
        assert ids(by_place.select(*selected).to_arrow()) == ids(kept)
    with pytest.raises(TypeError, match="more than one row"):
        world.index.scan(pl.col("i") == pl.col("i").max())
    if world.index.table.id.format == "iceberg":
        with pytest.raises(TypeError, match="not Unknown"):
            world.index.scan(Unknown("f(i)"))
    with pytest.raises(TypeError, match="an expression, not DataFrame"):
        world.index.scan(world.frame)
    for given in (pc.field("nope") == 1, pl.col("nope") == 1):
        with pytest.raises(DefinitionError, match="no column nope"):
            world.index.scan(given)


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
    with pytest.raises(DefinitionError, match="limit is a number of rows, not -1"):
        index.join(twice, "i", limit=-1)
    assert "s_right" in index.join(dimension, "i").to_arrow().column_names
    with pytest.raises(DefinitionError, match="two columns are called"):
        index.join(dimension, "i", suffix="")
    with pytest.raises(DefinitionError, match="the dimension has no column day"):
        index.join(dimension, "day")
    with pytest.raises(DefinitionError, match="one column at least"):
        index.join(dimension, [])
    with pytest.raises(TypeError, match="a dimension is a table"):
        index.join(7, "i")
    with pytest.raises(DefinitionError, match="no column nope"):
        index.join(dimension, "i", selected_fields=("nope",))


def test_engines_open_only_the_files_that_their_own_filters_leave(world: World) -> None:
    """Also those of a join that DuckDB finds out at run time."""
    index, keys = world.index, [2**53 + 1]
    gone = index._asking.disproved(translate(pc.field("l") == keys[0], index.scan().known())
                                   .predicate, index.table.columns())  # fmt: skip
    paths = [Path(path.removeprefix("file://").removeprefix("file:")) for path, *_ in gone]
    there = {path: path.read_bytes() for path in paths}
    wanted = world.frame.filter(pl.col("l") == keys[0])["id"].to_list()
    assert wanted
    assert len(paths) > FILES // 4
    try:
        for path, content in there.items():
            path.write_bytes(b"x" * len(content))
        db, dimension = world.db, pa.table({"l": keys})
        db.register("dimension", dimension)
        answers = (
            db.sql("SELECT id FROM t JOIN dimension USING (l)").fetchnumpy()["id"].tolist(),
            db.sql(f"SELECT id FROM t WHERE l = {keys[0]}").fetchnumpy()["id"].tolist(),
            world.lazy.filter(pl.col("l") == keys[0]).collect()["id"].to_list(),
            world.lazy.filter(pl.col("l").is_in(keys)).select("id").collect()["id"].to_list(),
            world.fusion.sql(f"SELECT id FROM t WHERE l = {keys[0]}").to_pydict()["id"],
            index.scan(keys={"l": keys}).to_dataset().to_table()["id"].to_pylist(),
            index.join(dimension, "l").to_arrow()["id"].to_pylist(),
            pa.table(index.scan(pc.field("l") == keys[0]))["id"].to_pylist(),
        )
        assert [sorted(answer) for answer in answers] == [wanted] * len(answers)
        with pytest.raises((TableError, pa.ArrowException, OSError)):
            index.scan().to_arrow()
    finally:
        for path, content in there.items():
            path.write_bytes(content)


def test_files_that_polars_wrote_have_an_index(tmp_path: Path) -> None:
    """Their schema says that text was kept as views."""
    for n in range(3):
        texts = [f"s{n}", None, f"t{n}"] * 400
        frame = pl.DataFrame({"s": texts, "b": [f"b{n}".encode()] * 1200})
        write_deltalake(tmp_path, frame, mode="append")
    store = MemoryStore("of polars")
    index = SkippingIndex.create(DeltaTable(tmp_path), "s VALUE_LIST, b MIN_MAX", store=store)
    for given in (pl.col("s") == "s1", pc.field("b") == pa.scalar(b"b1")):
        scan = index.scan(given)
        assert len(list(scan.plan_files())) == 1
        assert scan.count() in (400, 1200)


def test_nan_is_what_an_engine_takes_it_for(world: World) -> None:
    for op in ("=", "<>", "<", "<=", ">", ">="):
        for value in ("'nan'", "0.0", "-0.0"):
            sql = f"SELECT id FROM {{}} WHERE d {op} CAST({value} AS DOUBLE)"
            found = [world.db.sql(sql.format(t)).fetchnumpy()["id"] for t in ("whole", "t")]
            assert sorted(found[0].tolist()) == sorted(found[1].tolist()), sql
            both = [world.fusion.sql(sql.format(t)).to_pydict() for t in ("whole", "t")]
            assert sorted(both[0].get("id", [])) == sorted(both[1].get("id", [])), sql


def test_no_null_is_in_a_list_of_sql_or_outside_of_it(world: World) -> None:
    """Arrow has it in one or the other, and DataFusion asks Arrow from four values on."""
    for name, values in (
        ("i", "7, 1, 2, 0, -1"),
        ("d", "0.5, 0.1, 2.5, 9.5, 1.0"),
        ("s", "'a', 'b', 'c', 'd'"),
    ):
        for listed in (values, f"{values}, NULL"):
            for given in (
                f"{name} IN ({listed})",
                f"{name} NOT IN ({listed})",
                f"NOT ({name} IN ({listed}) OR id < 0)",
                f"({name} IN ({listed})) IS NULL",
                f"NOT ({name} NOT IN ({listed}) AND id >= 0)",
            ):
                text = f"SELECT id FROM {{}} WHERE {given}"
                wanted = sorted(world.db.sql(text.format("whole")).fetchnumpy()["id"])
                assert sorted(world.db.sql(text.format("t")).fetchnumpy()["id"]) == wanted, given
                for table in ("whole", "t"):
                    found = world.fusion.sql(text.format(table)).to_pydict()
                    assert sorted(found.get("id", [])) == wanted, (table, given)


def test_duckdbs_floats_are_in_its_own_order(tmp_path: Path) -> None:
    """Also those below structs, and beside NaN, for which DuckDB hands Arrow a plain `true`."""
    given = pa.table(
        {
            "id": range(6),
            "d": [1.0, NAN, None, 3.0, None, NAN],
            "f": pa.array([None, NAN, None, 3.0, 1.0, -0.0], pa.float32()),
            "st": [{"x": 1.0}, {"x": None}, None, {"x": 3.0}, {"x": -0.0}, {"x": NAN}],
        }
    )
    write_deltalake(tmp_path, given)
    store = MemoryStore("floats")
    index = SkippingIndex.create(DeltaTable(tmp_path), "d MIN_MAX, f VALUE_LIST", store=store)
    db = index.scan().to_duckdb("t")
    db.register("given", given)
    db.execute("CREATE TABLE whole AS SELECT * FROM given")
    db.execute("CREATE TABLE top AS SELECT max(d) m FROM whole")
    nan = "CAST('nan' AS DOUBLE)"
    exact = (
        f"d <= {nan}", f"d <= {nan} AND id > 1", f"NOT d > {nan}", f"f <= {nan}",
        f"d BETWEEN 1 AND {nan}", f"d IS NULL AND d <= {nan}",
        f"d <= {nan} OR id = 2", f"st.x <= {nan}", "d <= (SELECT m FROM top)",
        "d IN (SELECT m FROM top)", "st.x >= 1 AND d >= 1", "st.x > 1", f"st.x = {nan}",
        "st.x <> 1", "st.x IN (0.0, 7.0)",
    )  # fmt: skip
    for where in exact:
        sql = f"SELECT id FROM {{}} WHERE {where} ORDER BY id"
        assert db.sql(sql.format("t")).fetchall() == db.sql(sql.format("whole")).fetchall(), where
    # Of which of several columns DuckDB does not say: then no row is lost.
    several = (f"f <= {nan}", f"d <= {nan} AND f <= {nan}", f"d <= {nan} AND f IN (0.0, 7.0)")
    for columns, where in product(("*", "id, d, f"), (*several, *exact)):
        sql = f"SELECT {columns} FROM {{}} WHERE {where}"
        found, wanted = (
            set(db.sql(sql.format(t)).fetchnumpy()["id"].tolist()) for t in ("t", "whole")
        )
        assert wanted <= found, where
        assert found - wanted <= {0, 1, 4}, "rows of which some of the floats are null"
    # A plain `true` means nothing else: without NaN no row is lost whose floats are all null.
    db.execute("CREATE TABLE many AS SELECT range AS id FROM range(100)")
    for rest in (
        "JOIN many USING (id)",
        "JOIN (SELECT 2 AS id) USING (id)",
        "SEMI JOIN many USING (id)",
        "WHERE id BETWEEN (SELECT 1) AND (SELECT 3)",
        "WHERE id IN (SELECT id FROM many WHERE id % 2 = 0)",
        "WHERE id <> 5 OR d = 3",
        "ORDER BY d NULLS FIRST, id LIMIT 2",
        "ORDER BY id DESC LIMIT 4",
    ):
        both = [db.sql(f"SELECT t.* FROM {name} t {rest}").fetchall() for name in ("t", "whole")]
        assert sorted(map(repr, both[0])) == sorted(map(repr, both[1])), rest
        assert any(row[0] == 2 for row in both[0]), rest


def test_a_dataset_is_read_and_not_changed(world: World) -> None:
    dataset, seven = world.index.scan().to_dataset(), pc.field("i") == 7
    wanted = len(world.frame.filter(pl.col("i") == 7))
    assert (
        dataset.count_rows(filter=seven) == wanted == dataset.to_table(["s"], filter=seven).num_rows
    )
    assert dataset.head(3).num_rows == 3
    assert dataset.to_table({"x": pc.field("d")}).column_names == ["x"]
    assert dataset.partition_expression.equals(pc.scalar(True))
    assert [each.schema for each in dataset.get_fragments()] == [dataset.schema]
    for change in (lambda: dataset.filter(seven), lambda: dataset.replace_schema(SCHEMA)):
        with pytest.raises(NotImplementedError):
            change()


def test_what_arrow_reads_past_a_dataset_says_so_and_does_not_crash(world: World) -> None:
    dataset, other = world.index.scan().to_dataset(), pads.dataset(world.whole)
    for use in (
        lambda: dataset.sort_by("id"),
        lambda: dataset.join(other, "id"),
        lambda: other.join(dataset, "id"),
        lambda: pads.Scanner.from_dataset(dataset).to_table(),
    ):
        with pytest.raises(OSError, match="call to_table first"):
            use()


def test_a_limit_is_of_the_rows_before_an_engines_filter(world: World) -> None:
    few = world.index.scan(limit=3)
    (wanted,) = few.to_duckdb("few").sql("SELECT count(*) FROM few WHERE i IS NULL").fetchall()
    assert wanted[0] <= 3
    assert world.lazy.head(3).filter(pl.col("i") == 7).collect().height <= 3


ENOUGH = """
import sys, duckdb, pyarrow
from deltalake import DeltaTable
from skipping import SkippingIndex
pyarrow.set_cpu_count(1)
index = SkippingIndex.on(DeltaTable(sys.argv[1]), store=sys.argv[2])
db = index.scan().to_duckdb("t")
print(sum(len(db.sql("SELECT id, s FROM t LIMIT 1").fetchall()) for _ in range(60)))
"""


def test_a_query_that_has_enough_leaves_no_work_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was read on, in threads of Arrow's that the next query, or the end, waited for."""
    table, store = delta(tmp_path / "t"), f"sqlite:{tmp_path}/store.db"
    index = SkippingIndex.create(table, "i MIN_MAX", store=store)
    opened: list[str] = []
    read = FileScan._rows
    monkeypatch.setattr(
        FileScan, "_rows", lambda self, path: opened.append(path) or read(self, path)
    )
    db = index.scan().to_duckdb("t", duckdb.connect(config={"threads": 1}))
    assert len(db.sql("SELECT id, s FROM t LIMIT 1").fetchall()) == 1
    assert index.scan().to_dataset().head(1).num_rows == 1
    assert 0 < len(opened) < FILES
    command = [sys.executable, "-c", ENOUGH, str(tmp_path / "t"), store]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout.strip()) == (0, "60"), ended.stderr


def test_a_missing_engine_says_what_to_install(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("duckdb", "polars", "datafusion", "daft"):
        monkeypatch.setitem(sys.modules, name, None)
    scan = world.index.scan()
    for name, call in (
        ("duckdb", lambda: scan.to_duckdb("t")),
        ("polars", scan.to_polars),
        ("datafusion", scan.to_datafusion),
        ("daft", scan.to_daft),
    ):
        with pytest.raises(ImportError, match=rf"pip install 'lakehouse-file-skipping\[{name}\]'"):
            call()


def test_an_index_that_is_away_skips_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_: object, **__: object) -> None:
        raise OSError("away")

    wanted = world.index.scan(keys={"i": [7]}).count()
    monkeypatch.setattr(Asking, "find", away)
    scan = world.index.scan(keys={"i": [7]})
    assert scan.count() == wanted
    assert len(list(scan.plan_files())) == len(world.held)
    assert "no file is skipped" in caplog.text


def test_what_is_no_tree_of_arrow_is_unknown() -> None:
    assert translate(object(), {}).columns is None
    assert isinstance(translate_polars(object(), {}), Unknown)
