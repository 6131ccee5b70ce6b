"""Random filters through the service and without it: the same rows, from fewer files."""

from __future__ import annotations

import math
import os
import random
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotIn,
    NotStartsWith,
    Or,
    StartsWith,
)
from pyiceberg.types import LongType

from tests.rest_catalog import RestCatalog
from tests.skipping.catalog.running import Numbered, Service, client, index, planned

pytestmark = pytest.mark.nightly

QUERIES = int(os.environ.get("SKIPPING_TEST_QUERIES", "30"))
COMPARED: list[Any] = [
    *(EqualTo, NotEqualTo, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual)
]
OF: dict[str, list[Any]] = {
    "i": [None, *range(0, 60, 3)],
    "d": [None, math.nan, -0.0, 0.0, 0.1, 1.5, math.inf, -math.inf, 7.0, 2.5],
    "s": [None, "", *(f"a{n}" for n in range(12)), "b"],
}
SCHEMA = pa.schema([("n", pa.int64()), ("i", pa.int32()), ("d", pa.float64()), ("s", pa.string())])


def rows(source: random.Random, first: int) -> pa.Table:
    columns: dict[str, Any] = {"n": list(range(first, first + 6))}
    for name, values in OF.items():
        some = source.sample(values, 2)
        columns[name] = [source.choice(some) for _ in range(6)]
    return pa.table(columns, schema=SCHEMA)


def leaf(source: random.Random, wide: str) -> BooleanExpression:
    name = source.choice([wide, "d", "s"])
    known = [v for v in OF[name if name != wide else "i"] if v is not None and v == v]
    kind = source.randrange(6)
    if kind == 0:
        return IsNull(name)
    if kind == 1 and name == "d":
        return IsNaN(name)
    if kind == 1 and name == "s":
        return source.choice([StartsWith, NotStartsWith])(name, source.choice(["a", "a1", "x"]))
    if kind == 2:
        listed: Any = source.choice([In, NotIn])
        return listed(name, source.sample(known, 3))
    made: BooleanExpression = source.choice(COMPARED)(name, source.choice(known))
    return made


def tree(source: random.Random, wide: str, depth: int = 0) -> BooleanExpression:
    kind = source.randrange(5 if depth < 3 else 1)
    if kind < 2:
        return leaf(source, wide)
    if kind == 2:
        return Not(tree(source, wide, depth + 1))
    return (And if kind == 3 else Or)(tree(source, wide, depth + 1), tree(source, wide, depth + 1))


def test_random_filters(service: Service, behind: RestCatalog, store: str) -> None:
    """NaN, null, zeros, infinities; a column renamed and widened; files from before."""
    source = random.Random(20_261)
    catalog = client(behind.uri)
    table = catalog.create_table("db.random", schema=SCHEMA)
    with table.transaction() as transaction:
        for n in range(10):
            transaction.append(rows(source, 6 * n))
    old = table.current_snapshot()
    assert old is not None
    with table.update_schema() as change:
        change.rename_column("i", "w")
        change.update_column("i", field_type=LongType())
        change.delete_column("n")
    table = catalog.load_table("db.random")
    after = SCHEMA.remove(0).set(0, pa.field("w", pa.int64()))
    with table.transaction() as transaction:
        for n in range(10):
            more = rows(source, n).drop(["n"]).rename_columns(after.names).cast(after)
            transaction.append(more)
    index(Numbered("db.random", table, ()), store, "w VALUE_LIST, d VALUE_LIST, s VALUE_LIST")
    plain, served = catalog.load_table("db.random"), client(service.uri).load_table("db.random")
    files = opened = 0
    for turn in range(QUERIES):
        options = {"snapshot_id": old.snapshot_id} if turn % 5 == 0 else {}
        asked = tree(source, "w")
        expected = plain.scan(asked, **options).to_arrow()
        found = served.scan(asked, **options).to_arrow()
        assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist())), (
            asked
        )
        files += planned(plain, asked, **options)
        opened += planned(served, asked, **options)
    assert files - opened > files // 20, "many of these filters leave out nothing"
