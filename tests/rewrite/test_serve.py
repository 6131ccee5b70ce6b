"""One driver for many clients, of Spark Connect and of JDBC: real clients, each of its own process
or connection, of a real server.

That files are not opened shows where all that need not be read hold garbage.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote

import psutil
import pyspark
import pytest

from rewrite.services import Address
from skipping.config.settings import PREFIX, SETTINGS
from skipping.stores.open import open_store
from tests.rewrite.served import (
    TOKEN,
    Client,
    ClientError,
    Connect,
    Server,
    ThriftClient,
    connected,
    eventually,
)

WAYS = ("connect", "thrift")
FILES = 8
FIXED = [setting.key for setting in SETTINGS if setting.fixed]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    server = Server(
        folder, "--connect", "0", "--thrift", "0", "--health", "0",
        "--conf", f"spark.connect.authenticate.token={TOKEN}",
    )  # fmt: skip
    yield server
    server.stop()


def url(server: Server, token: str = TOKEN) -> str:
    return f"sc://localhost:{server.port('connect')}/;token={token.replace(' ', '%20')}"


@pytest.fixture(scope="module")
def clients(server: Server) -> Iterator[Connect]:
    with connected(url(server)) as clients:
        yield clients


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def a_client(way: str, server: Server, clients: Connect, name: str) -> Client:
    return clients.of(name) if way == "connect" else ThriftClient(server.port("thrift"))


@pytest.fixture
def client(way: str, server: Server, clients: Connect) -> Client:
    return a_client(way, server, clients, "one")


@pytest.fixture
def other(way: str, server: Server, clients: Connect) -> Client:
    return a_client(way, server, clients, "other")


def make(client: Client, folder: Path, name: str) -> None:
    """A table of eight files, each with every tenth... of all values, so that bounds say nothing."""
    client.sql(f"DROP TABLE IF EXISTS {name}")
    client.sql(
        f"CREATE TABLE {name} USING delta LOCATION '{folder / name}'"
        " TBLPROPERTIES (delta.dataSkippingNumIndexedCols = 0) AS"
        f" SELECT /*+ REPARTITION({FILES}, k) */ id, id % 80 AS k FROM range(800)"
    )


def indexed(client: Client, folder: Path, name: str, keys: list[int]) -> None:
    """The same with an index, and garbage in all files that hold none of these keys."""
    make(client, folder, name)
    client.sql(f"CREATE SKIPPING INDEX ON {name} (k VALUE_LIST)")
    listed = ", ".join(map(str, keys))
    rows = client.sql(f"SELECT DISTINCT input_file_name() FROM {name} WHERE k IN ({listed})")
    needed = {Path(unquote(row[0])).name for row in rows}
    spoiled = [f for f in (folder / name).glob("*.parquet") if f.name not in needed]
    assert len(spoiled) >= FILES // 2
    for file in spoiled:
        file.write_bytes(b"garbage" * (file.stat().st_size // 7))


# Each way of connecting


def test_reads_are_pruned(client: Client, way: str, folder: Path) -> None:
    indexed(client, folder, f"read_{way}", [7])
    assert client.sql(f"SELECT count(*), min(id) FROM read_{way} WHERE k = 7") == [("10", "7")]
    with pytest.raises(ClientError):
        client.sql(f"SELECT count(*) FROM read_{way} WHERE k IN (7, 8, 9, 10, 11, 12)")


def test_joins_are_pruned(client: Client, way: str, folder: Path) -> None:
    indexed(client, folder, f"fact_{way}", [7])
    client.sql(f"CREATE OR REPLACE TABLE dim_{way} USING delta AS "
               "SELECT id AS k, concat('n', id) AS name FROM range(80)")  # fmt: skip
    join = f"SELECT count(*), min(id) FROM fact_{way} JOIN dim_{way} USING (k) WHERE name = "
    assert client.sql(f"{join} 'n7'") == [("10", "7")]


def test_statements(client: Client, way: str, folder: Path) -> None:
    make(client, folder, f"ddl_{way}")
    assert client.sql(f"CREATE SKIPPING INDEX ON ddl_{way} (k VALUE_LIST, id MIN_MAX)") == []
    rows = client.sql(f"DESCRIBE SKIPPING INDEX ON ddl_{way}")
    assert [row[:3] for row in rows] == [
        ("k", "bigint", "VALUE_LIST"),
        ("id", "bigint", "MIN_MAX"),
    ]
    assert f"ddl_{way}" in [row[3] for row in client.sql("SHOW SKIPPING INDEXES")]
    client.sql(f"REFRESH SKIPPING INDEX ON ddl_{way}")
    client.sql(f"DROP SKIPPING INDEX ON ddl_{way}")
    with pytest.raises(ClientError, match="no skipping index"):
        client.sql(f"DESCRIBE SKIPPING INDEX ON ddl_{way}")


def test_a_wrong_statement_is_marked(client: Client, way: str, folder: Path) -> None:
    make(client, folder, f"wrong_{way}")
    with pytest.raises(ClientError) as caught:
        client.sql(f"CREATE SKIPPING INDEX ON wrong_{way} (id FOO)")
    said = str(caught.value)
    assert "no index kind FOO: there are BLOOM_FILTER, MIN_MAX" in said
    line, mark = said.splitlines()[2:4]
    assert line[mark.index("^") :].startswith("FOO"), said


def covered(client: Client, table: str) -> dict[str, str]:
    rows = client.sql(f"DESCRIBE SKIPPING INDEX EXTENDED ON {table}")
    return {row[0]: row[1] for row in rows}


def test_a_stream_outlives_its_client(
    client: Client, other: Client, way: str, server: Server, folder: Path
) -> None:
    name = f"followed_{way}"
    make(other, folder, name)
    options = "auto_refresh = true, refresh_interval = '1 second'"
    create = f"CREATE SKIPPING INDEX ON {name} (k VALUE_LIST) WITH ({options})"
    if way == "connect":
        with connected(url(server)) as ending:
            ending.of("ending").sql("SET spark.sql.shuffle.partitions = 3")
            ending.of("ending").sql(create)
    else:
        ending = ThriftClient(server.port("thrift"))
        ending.sql(create)
        ending.close()
    for n in range(2):
        client.sql(f"INSERT INTO {name} SELECT id, id % 80 FROM range({800 + n}, 900)")
        eventually(lambda n=n: covered(client, name)["version covered"] == str(n + 1))
    client.sql(f"DROP SKIPPING INDEX ON {name}")
