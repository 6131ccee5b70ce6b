"""PyIceberg and Polars, nothing changed but the URI; files that need not be read are garbage."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from pyiceberg.expressions import NotIn

from skipping.catalog.handles import Handles, Invalid
from skipping.catalog.plan import Part
from tests.rest_catalog import RestCatalog
from tests.skipping.catalog.running import (
    FILES,
    ROWS,
    Numbered,
    Service,
    ask,
    client,
    make,
    planned,
    values,
)

TEN = [n * 17 % FILES + (n + 10) * FILES for n in range(10)]
FILTERS = [
    ("h = 245", [245], {5}),
    (f"h in ({', '.join(map(str, TEN))})", sorted(TEN), {n % FILES for n in TEN}),
    ("h = 245 or h = 258", [245, 258], {5, 6}),
    ("h = 245 or s = 'n259'", [245, 259], {5, 7}),
    ("h in (245, 258) and k < 240", [245], {5}),
    ("h in (245, 258) and not h = 245", [258], {5, 6}),
]


@pytest.mark.parametrize(("filter", "rows", "opened"), FILTERS)
def test_pyiceberg(
    service: Service, base: Numbered, filter: str, rows: list[int], opened: set[int]
) -> None:
    table = client(service.uri).load_table(base.name)
    assert table.config["scan-planning-mode"] == "server"
    restore = base.garble(opened)
    try:
        assert values(table.scan(filter).to_arrow()) == rows
    finally:
        restore()
    assert planned(table, filter) == len(opened)
    assert table.scan(filter).count() == len(rows)
    assert values(base.table.scan(filter).to_arrow()) == rows, "as without the service"


@pytest.mark.parametrize("reader", ["native", "pyiceberg"])
@pytest.mark.parametrize(("filter", "rows", "opened"), FILTERS)
def test_polars(
    service: Service, base: Numbered, filter: str, rows: list[int], opened: set[int], reader: Any
) -> None:
    table = client(service.uri).load_table(base.name)
    restore = base.garble(opened)
    try:
        scan = pl.scan_iceberg(table, reader_override=reader).filter(pl.sql_expr(filter))
        assert sorted(scan.select("h").collect()["h"].to_list()) == rows
    finally:
        restore()


def test_great_plans_come_in_pages(behind: RestCatalog, store: str, base: Numbered) -> None:
    service = Service(behind.uri, store, "--page", "5")
    try:
        table = client(service.uri).load_table(base.name)
        assert planned(table) == FILES
        assert len(table.scan().to_arrow()) == FILES * ROWS
        assert table.scan("h >= 0").count() == FILES * ROWS
        assert values(table.scan("h = 245").to_arrow()) == [245]
        path = "/v1/namespaces/db/tables/base"
        asked = {"filter": {"type": "gt-eq", "term": "h", "value": 0}}
        _, plan, _ = ask(service.uri, "POST", f"{path}/plan", asked)
        assert len(plan["file-scan-tasks"]) == 5
        first, last = plan["plan-tasks"]
        status, said, _ = ask(service.uri, "POST", f"{path}/tasks", {"plan-task": last})
        assert (status, len(said["file-scan-tasks"])) == (200, 2)
        assert said["file-scan-tasks"][0]["residual-filter"] == asked["filter"]
        other = f"/v1/namespaces/db/tables/{make(client(behind.uri), 'db.other').name[3:]}"
        changed = first[:50] + ("A" if first[50] != "A" else "B") + first[51:]
        for where, handle in ((other, first), (path, changed), (path, first[:-8])):
            status, said, _ = ask(service.uri, "POST", f"{where}/tasks", {"plan-task": handle})
            assert (status, said["error"]["type"]) == (404, "NoSuchPlanTaskException")
        long = [str(n) * 1_000 for n in range(1_000, 1_500)]
        asked = {"filter": {"type": "not-in", "term": "s", "values": long}}
        _, plan, _ = ask(service.uri, "POST", f"{path}/plan", asked)
        residuals = [task["residual-filter"]["type"] for task in plan["file-scan-tasks"]]
        assert residuals == ["or"] * 5, "the filter is not sent five times"
        assert table.scan(NotIn("s", long)).count() == FILES * ROWS
    finally:
        assert service.stop() == (0, "")


def test_handles_end() -> None:
    now = [0.0]
    handles = Handles(clock=lambda: now[0])
    part = Part(7, np.array([1, 5], np.int64), b"true").pack()
    handle = handles.seal("/t", part)
    now[0] = 3_599
    opened = Part.unpack(handles.open("/t", handle))
    assert (opened.snapshot, opened.places.tolist(), opened.residual) == (7, [1, 5], b"true")
    for table, moment, opener in (
        ("/u", 0.0, handles),
        ("/t", 3_601.0, handles),
        ("/t", 0.0, Handles()),
    ):
        now[0] = moment
        with pytest.raises(Invalid):
            opener.open(table, handle)
    shared = Handles(b"k" * 32).seal("/t", part)
    assert Handles(b"k" * 32).open("/t", shared) == part
    with pytest.raises(Invalid):
        Handles(b"l" * 32).open("/t", shared)
