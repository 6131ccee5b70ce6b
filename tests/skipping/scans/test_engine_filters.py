"""The rows that each engine gives for its own filters, on our survivors.

Rows of files that were pruned are in no answer: so one row of them that an engine's filter is
true of, when it reads everything, is a row lost.
"""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from providers import Unknown
from providers.errors import DefinitionError
from skipping import SkippingIndex
from skipping.filters.arrow import translate
from skipping.filters.polars import translate_polars
from skipping.stores.memory.store import MemoryStore
from tests.skipping.tables.world import FILES, NAN, POOLS, World, ids

pytestmark = pytest.mark.nightly


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


def compare_filters(world: World, seeds: Iterator[int] | range) -> None:
    """What Arrow and Polars return of everything is in no file that is pruned."""
    known = world.index.scan().indexable_columns()
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
        try:
            kept = ids(world.frame.filter(given.polars))
        except pl.exceptions.PolarsError:
            continue
        assert ids(world.lazy.filter(given.polars).select("id").collect()) == kept, given.polars


def beside_nan(sql: str) -> bool:
    """Whether DuckDB does not say of which of two columns it asks `<= NaN`."""
    asked = any(f"{name} {op} CAST('nan'" in sql for name in "df" for op in ("<=", ">"))
    return asked and all(f"{name} " in sql or f"({name})" in sql for name in "df")


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
        with pytest.raises(TypeError, match="the filter is a Unknown"):
            world.index.scan(Unknown("f(i)"))
    with pytest.raises(TypeError, match="the filter is a DataFrame"):
        world.index.scan(world.frame)
    for given in (pc.field("nope") == 1, pl.col("nope") == 1):
        with pytest.raises(DefinitionError, match="no column nope"):
            world.index.scan(given)


def test_nan_is_what_an_engine_takes_it_for(world: World) -> None:
    for op in ("=", "<>", "<", "<=", ">", ">="):
        for value in ("'nan'", "0.0", "-0.0"):
            sql = f"SELECT id FROM {{}} WHERE d {op} CAST({value} AS DOUBLE)"
            found = [world.db.sql(sql.format(t)).fetchnumpy()["id"] for t in ("whole", "t")]
            assert sorted(found[0].tolist()) == sorted(found[1].tolist()), sql


def test_no_null_is_in_a_list_of_sql_or_outside_of_it(world: World) -> None:
    """Arrow has it in one or the other."""
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
