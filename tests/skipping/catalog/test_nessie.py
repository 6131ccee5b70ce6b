"""Another upstream, with prefixes in its paths, an address of its own, and tables in a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from pyiceberg.exceptions import NoSuchTableError

from tests.nessie import Nessie
from tests.object_store import ACCESS, BUCKET, SECRET, ObjectStore
from tests.skipping.catalog.running import (
    FILES,
    ROWS,
    Numbered,
    Service,
    ask,
    client,
    index,
    make,
    planned,
    rows_of,
    values,
)
from tests.skipping.catalog.test_clients import FILTERS

pytestmark = [pytest.mark.process, pytest.mark.nightly]

KEYS = {"s3.access-key-id": ACCESS, "s3.secret-access-key": SECRET}
TABLES = "/v1/main/namespaces/db/tables"


@pytest.fixture(scope="module")
def nessie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Nessie, ObjectStore]]:
    with pytest.MonkeyPatch.context() as patch, ObjectStore() as bucket:
        # This store takes no checksums behind what is uploaded.
        patch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "WHEN_REQUIRED")
        with Nessie(tmp_path_factory.mktemp("nessie"), bucket) as server:
            yield server, bucket


@pytest.fixture(scope="module")
def there(nessie: tuple[Nessie, ObjectStore], store: str) -> Numbered:
    server, bucket = nessie
    made = make(client(server.uri, **KEYS), "db.there")
    index(made, store)
    objects = (str(path).removeprefix(f"//{BUCKET}/") for path in made.paths)
    return replace(made, paths=tuple(bucket.folder / name for name in objects))


@pytest.fixture(scope="module")
def before(nessie: tuple[Nessie, ObjectStore], store: str, there: Numbered) -> Iterator[Service]:
    own = [f"--io={name}={value}" for name, value in KEYS.items()]
    started = Service(nessie[0].uri, store, *own)
    yield started
    assert started.stop() == (0, "")


@pytest.mark.parametrize(("filter", "rows", "opened"), FILTERS)
def test_queries(
    before: Service, there: Numbered, filter: str, rows: list[int], opened: set[int]
) -> None:
    table = client(before.uri, **KEYS).load_table(there.name)
    assert table.config["scan-planning-mode"] == "server"
    restore = there.garble(opened)
    try:
        assert values(table.scan(filter).to_arrow()) == rows
        options = {"reader_override": "pyiceberg"}
        scan = pl.scan_iceberg(table, **options).filter(pl.sql_expr(filter))
        assert sorted(scan.select("h").collect()["h"].to_list()) == rows
    finally:
        restore()
    assert planned(table, filter) == len(opened)
    assert planned(there.table, filter) >= planned(table, filter), "as without the service"


def test_what_is_passed_on(
    before: Service, nessie: tuple[Nessie, ObjectStore], there: Numbered
) -> None:
    behind = nessie[0].uri
    _, ours, _ = ask(before.uri, "GET", "/v1/config")
    _, theirs, _ = ask(behind, "GET", "/iceberg/v1/config")
    assert "uri" in theirs["overrides"]
    theirs["overrides"].pop("uri")
    assert ours["overrides"] == theirs["overrides"], "clients stay at the service"
    assert ours["defaults"] == {**theirs["defaults"], "scan-planning-mode": "server"}
    for path in ("/v1/main/namespaces", TABLES, f"{TABLES}/none", "/v1/main/namespaces/none"):
        ours, theirs = ask(before.uri, "GET", path), ask(behind, "GET", f"/iceberg{path}")
        assert ours[:2] == theirs[:2], path
    with pytest.raises(NoSuchTableError):
        client(before.uri, **KEYS).load_table("db.none")
    assert ask(before.uri, "POST", f"{TABLES}/none/plan", {})[0] == 404


def test_commits_and_what_comes_later(before: Service, nessie: Any, store: str) -> None:
    alone = {"scan-planning-mode": "client"}  # plans of the service have no bounds
    written = make(client(before.uri, **KEYS, **alone), "db.through")
    table = client(before.uri, **KEYS).load_table(written.name)
    assert table.config["scan-planning-mode"] == "client", "no index yet"
    assert len(table.scan().to_arrow()) == FILES * ROWS
    index(written, store)
    assert planned(table, "h = 245") == 1
    table.append(rows_of(5).slice(20, 3))
    assert values(table.scan("h = 245").to_arrow()) == [245, 245]
    assert planned(table, "h = 245") == 2
