"""DuckDB through the service: it plans by itself, and reads what is behind."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import duckdb_extensions
import pytest

from tests.skipping.catalog.running import FILES, ROWS, Numbered, Service
from tests.skipping.catalog.test_clients import FILTERS

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def attached(service: Service) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as db:
        for extension in ("httpfs", "avro", "iceberg"):
            duckdb_extensions.import_extension(extension)
            db.execute(f"LOAD {extension}")
        options = "AUTHORIZATION_TYPE 'none', ACCESS_DELEGATION_MODE 'none'"
        db.execute(f"ATTACH '' AS served (TYPE iceberg, ENDPOINT '{service.uri}', {options})")
        yield db


@pytest.mark.parametrize(("filter", "rows", "opened"), FILTERS)
def test_queries(
    attached: duckdb.DuckDBPyConnection,
    base: Numbered,
    filter: str,
    rows: list[int],
    opened: set[int],
) -> None:
    found = attached.execute(f"SELECT h FROM served.{base.name} WHERE {filter} ORDER BY h")
    assert [row[0] for row in found.fetchall()] == rows


def test_joins_and_counts(attached: duckdb.DuckDBPyConnection, base: Numbered) -> None:
    keys = "(SELECT unnest([245, 258, 100000]) AS key)"
    joined = f"SELECT h FROM served.{base.name} JOIN {keys} ON h = key ORDER BY h"
    assert attached.execute(joined).fetchall() == [(245,), (258,)]
    counted = attached.execute(f"SELECT count(*) FROM served.{base.name}")
    assert counted.fetchall() == [(FILES * ROWS,)]
