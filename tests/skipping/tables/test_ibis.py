"""Filters of Ibis: the rows that Ibis gives of everything, and the files that may have one."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import ibis
import polars as pl
import pyarrow as pa
import pytest

from providers.errors import DefinitionError
from skipping import SkippingIndex
from skipping.stores.memory.store import MemoryStore
from tests.skipping.tables.matrix import delta, iceberg

pytestmark = pytest.mark.nightly

DAY = datetime.date(2024, 1, 1)
FILES = 6


def rows(n: int) -> pa.Table:
    return pa.table(
        {
            "k": pa.array([n, n + 10, None], pa.int32()),
            "s": [f"s{n}", None, "all"],
            "x": [n * 1.5, float("nan"), -0.0],
            "day": [DAY + datetime.timedelta(n)] * 3,
        }
    )


@pytest.fixture(scope="module", params=[delta, iceberg])
@staticmethod
def index(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> SkippingIndex:
    table = request.param(tmp_path_factory.mktemp("ibis") / "t", rows, FILES)
    store = MemoryStore(f"ibis {request.param.__name__}")
    columns = "k VALUE_LIST, s VALUE_LIST, x VALUE_LIST, day MIN_MAX"
    return SkippingIndex.create(table, columns, store=store)


Filter = Callable[[Any], Any]
FILTERS: list[tuple[Filter, int]] = [
    (lambda t: t.k == 2, 1),
    (lambda t: t.k.isin([2, 13, 99]), 2),
    (lambda t: ~t.k.isin([0, 10]), 6),
    (lambda t: t.k.isin([2, None]), 6),
    (lambda t: t.k.between(14, 15), 2),
    (lambda t: (t.k == 1) | (t.s == "s3"), 2),
    (lambda t: (t.k > 12) & t.s.isin(["s4", "s5"]), 2),
    (lambda t: t.s.startswith("s4"), 1),
    (lambda t: t.k.isnull(), 6),
    (lambda t: t.x.isnan(), 6),
    (lambda t: t.x == 4.5, 1),
    (lambda t: t.day == DAY, 1),
    (lambda t: t.day < DAY, 0),
    (lambda t: t.s.upper() == "S2", 6),
    (lambda t: (t.s.upper() == "S2") & (t.k == 2), 1),
    (lambda t: t.k.cast("int64") == 2, 6),
]


@pytest.mark.parametrize(("given", "files"), FILTERS)
def test_the_rows_are_those_of_ibis(index: SkippingIndex, given: Filter, files: int) -> None:
    whole = index.scan().to_arrow()
    there = ibis.polars.connect({"t": pl.DataFrame(whole)}).table("t")
    wanted = sorted(map(repr, there.filter(given(there)).to_pyarrow().to_pylist()))
    for table in (there, ibis.table(there.schema(), name="another"), ibis._):
        scan = index.scan(given(table))
        assert sorted(map(repr, scan.to_arrow().to_pylist())) == wanted
        assert len(list(scan.plan_files())) == files
    assert scan.verify().rows == len(wanted)


def test_what_is_no_condition_on_one_table_is_refused(index: SkippingIndex) -> None:
    table = ibis.table({"k": "int32", "s": "string", "x": "float64"}, name="t")
    other = ibis.table({"k": "int32"}, name="other")
    renamed = table.select(k=table.k + 1)
    for given in (renamed.k == 2, table.k.isin(other.k), table.k + 1, table):
        with pytest.raises(TypeError, match="not a filter of Ibis: "):
            index.scan(given)
    with pytest.raises(TypeError, match="more than one row"):
        index.scan(table.k == table.k.max())
    with pytest.raises(TypeError, match=r"not a filter of Ibis: .*nope"):
        index.scan(ibis._.nope == 1)
    with pytest.raises(DefinitionError, match="no column nope"):
        index.scan(ibis.table({"nope": "int32"}, name="t").nope == 1)
