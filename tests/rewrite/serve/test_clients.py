"""One driver for many clients, of Spark Connect and of JDBC: real clients, each of its own process
or connection, of a real server.

That files are not opened shows where all that need not be read hold garbage.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psutil
import pytest
from pyhive import hive
from TCLIService.ttypes import TOperationState

from skipping.config.settings import PREFIX, SETTINGS
from tests.rewrite.served import (
    FILES,
    WAYS,
    Client,
    ClientError,
    Connect,
    Server,
    ThriftClient,
    connected,
    covered,
    eventually,
    make,
    needs_connect,
)
from tests.test_house import ROOT

pytestmark = [pytest.mark.process, pytest.mark.nightly]

FIXED = [setting.key for setting in SETTINGS if setting.fixed]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def a_client(request: pytest.FixtureRequest, way: str, name: str) -> Client:
    if way == "thrift":
        return ThriftClient(request.getfixturevalue("server").port("thrift"))
    clients: Connect = request.getfixturevalue("clients")
    return clients.of(name)


@pytest.fixture
def client(request: pytest.FixtureRequest, way: str) -> Client:
    return a_client(request, way, "one")


@pytest.fixture
def other(request: pytest.FixtureRequest, way: str) -> Client:
    return a_client(request, way, "other")


def make_iceberg(client: Client, name: str) -> None:
    """The same in the server's catalog of Iceberg tables."""
    client.sql("CREATE NAMESPACE IF NOT EXISTS iceberg.served")
    client.sql(f"DROP TABLE IF EXISTS {name}")
    client.sql(
        f"CREATE TABLE {name} USING iceberg"
        " TBLPROPERTIES ('write.metadata.metrics.default' = 'none') AS"
        f" SELECT /*+ REPARTITION({FILES}, k) */ id, id % 80 AS k FROM range(800)"
    )


def files(client: Client, name: str, condition: str = "true") -> set[Path]:
    """Those that have rows for which a condition is true."""
    rows = client.sql(f"SELECT DISTINCT input_file_name() FROM {name} WHERE {condition}")
    return {Path(unquote(urlsplit(row[0]).path)) for row in rows}


def index(client: Client, name: str, keys: list[int]) -> None:
    """Give a table an index, and put garbage into all files that hold none of these keys."""
    client.sql(f"CREATE SKIPPING INDEX ON {name} (k VALUE_LIST)")
    listed = ", ".join(map(str, keys))
    spoiled = files(client, name) - files(client, name, f"k IN ({listed})")
    assert len(spoiled) >= FILES // 2
    for file in spoiled:
        file.write_bytes(b"garbage" * (file.stat().st_size // 7))


def indexed(client: Client, folder: Path, name: str, keys: list[int]) -> None:
    """`make` with `index`."""
    make(client, folder, name)
    index(client, name, keys)


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


def test_iceberg(client: Client, way: str) -> None:
    table, dim = f"iceberg.served.fact_{way}", f"iceberg.served.dim_{way}"
    make_iceberg(client, table)
    index(client, table, [7])
    assert client.sql(f"SELECT count(*), min(id) FROM {table} WHERE k = 7") == [("10", "7")]
    with pytest.raises(ClientError):
        client.sql(f"SELECT count(*), min(id) FROM {table} WHERE k IN (7, 8, 9, 10, 11, 12)")
    client.sql(f"CREATE TABLE {dim} USING iceberg AS "
               "SELECT id AS k, concat('n', id) AS name FROM range(80)")  # fmt: skip
    join = f"SELECT count(*), min(id) FROM {table} JOIN {dim} USING (k) WHERE name = "
    assert client.sql(f"{join} 'n7'") == [("10", "7")]
    assert any("VALUE_LIST" in str(row) for row in client.sql(f"EXPLAIN SKIPPING {join} 'n7'"))


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
    assert client.sql(f"DESCRIBE SKIPPING INDEX ON ddl_{way}") == []
    with pytest.raises(ClientError, match="no skipping index"):
        client.sql(f"REFRESH SKIPPING INDEX ON ddl_{way}")


def test_reports(client: Client, way: str, folder: Path) -> None:
    name = f"told_{way}"
    make(client, folder, name)
    client.sql(f"CREATE SKIPPING INDEX ON {name} (k VALUE_LIST)")
    query = f"SELECT count(*) FROM {name} WHERE k = 7"
    for dry in ("", "DRY RUN "):
        (scan,) = client.sql(f"EXPLAIN SKIPPING {dry}{query}")
        assert name in scan[1]
        assert scan[2:4] == ("8", "7")
    assert client.sql(query) == [("10",)]
    assert any(row[6:8] == ("8", "7") for row in client.sql(f"SHOW SKIPPING HISTORY FOR {name}"))
    (verified,) = client.sql(f"VERIFY SKIPPING {query}")
    assert verified[:3] == ("1", "1", "8")
    files = client.sql(f"DESCRIBE SKIPPING FILES ON {name} WHERE k = 7")
    assert sorted(row[3].lower() for row in files) == ["false"] + ["true"] * 7
    assert name in str(client.sql("SHOW SKIPPING COUNTERS"))
    client.sql("SHOW SKIPPING STREAMS")
    with pytest.raises(ClientError, match="expected a query"):
        client.sql(f"EXPLAIN SKIPPING DELETE FROM {name}")
    assert client.sql(query) == [("10",)]


def test_a_wrong_statement_is_marked(client: Client, way: str, folder: Path) -> None:
    make(client, folder, f"wrong_{way}")
    with pytest.raises(ClientError) as caught:
        client.sql(f"CREATE SKIPPING INDEX ON wrong_{way} (id FOO)")
    said = str(caught.value)
    assert "unknown index type FOO: the types are ADDRESSES, BLOOM_FILTER" in said
    line, mark = said.splitlines()[2:4]
    assert line[mark.index("^") :].startswith("FOO"), said


def test_a_stream_outlives_its_client(
    client: Client, other: Client, way: str, server: Server, folder: Path
) -> None:
    name = f"followed_{way}"
    make(other, folder, name)
    options = "auto_refresh = true, refresh_interval = '1 second'"
    create = f"CREATE SKIPPING INDEX ON {name} (k VALUE_LIST) WITH ({options})"
    if way == "connect":
        with connected(server.url()) as ending:
            ending.of("ending").sql(create)
    else:
        ending = ThriftClient(server.port("thrift"))
        ending.sql(create)
        ending.close()
    for n in range(2):
        client.sql(f"INSERT INTO {name} SELECT id, id % 80 FROM range({800 + n}, 900)")
        eventually(lambda n=n: covered(client, name)["version covered"] == str(n + 1))
    client.sql(f"DROP SKIPPING INDEX ON {name}")


# Each for itself


def test_settings_are_of_one_client(client: Client, other: Client, way: str, folder: Path) -> None:
    name = f"own_{way}"
    indexed(client, folder, name, [7])
    count = f"SELECT count(*) FROM {name} WHERE k = 7"
    other.sql("SET spark.skipping.enabled = false")
    with pytest.raises(ClientError):
        other.sql(count)
    assert client.sql(count) == [("10",)]
    other.sql("SET spark.skipping.enabled = true")
    assert other.sql(count) == [("10",)]


def test_clients_cannot_set_what_is_the_servers(client: Client, folder: Path) -> None:
    elsewhere = folder / "elsewhere.sqlite"
    before = client.sql("SHOW SKIPPING INDEXES")
    for key in FIXED:
        for statement in (f"SET {PREFIX}{key} = {elsewhere}", f"RESET {PREFIX}{key}"):
            with pytest.raises(ClientError, match="CANNOT_MODIFY_STATIC_CONFIG"):
                client.sql(statement)
    client.sql("RESET")
    assert client.sql(f"SET {PREFIX}store") == [(f"{PREFIX}store", "<undefined>")]
    assert client.sql("SHOW SKIPPING INDEXES") == before
    assert not elsewhere.exists()


def test_the_page_lists_them() -> None:
    text = (ROOT / "docs" / "server.md").read_text()
    listed = text.partition("environment can set these:")[2].partition(". A client")[0]
    assert sorted(re.findall(r"`([a-z]\w*(?:\.\w+)*)`", listed)) == sorted([*FIXED])


@needs_connect
def test_not_by_connecting_with_them_either(server: Server, folder: Path) -> None:
    store = f"sqlite:{folder}/elsewhere.sqlite"
    with connected(server.url(), f"{PREFIX}store={store}", f"{PREFIX}cache.ttl=1s") as clients:
        client = clients.of("one")
        assert client.sql(f"SET {PREFIX}store") == [(f"{PREFIX}store", "<undefined>")]
        assert client.sql(f"SET {PREFIX}cache.ttl") == [(f"{PREFIX}cache.ttl", "1s")]
        make(client, folder, "aside")
        client.sql("CREATE SKIPPING INDEX ON aside (k VALUE_LIST)")
    port = server.port("thrift")
    with pytest.raises(hive.OperationalError, match="CANNOT_MODIFY_STATIC_CONFIG"):
        ThriftClient(port, configuration={f"set:hiveconf:{PREFIX}store": store})
    bare = ThriftClient(port, configuration={f"{PREFIX}store": store})  # which is Hive's alone
    assert bare.sql(f"SET {PREFIX}store") == [(f"{PREFIX}store", "<undefined>")]
    assert not (folder / "elsewhere.sqlite").exists()
    assert (folder / "spark-warehouse" / "skipping-index.sqlite").exists()


def test_a_setting_that_is_wrong_is_named(client: Client, folder: Path, way: str) -> None:
    indexed(client, folder, f"garbage_{way}", [7])
    client.sql("SET spark.skipping.tiemout = 1")
    client.sql("SET spark.skipping.cache.ttl = ever")
    try:
        assert client.sql(f"SELECT count(*) FROM garbage_{way} WHERE k = 7") == [("10",)]
        with pytest.raises(ClientError, match=r"did you mean spark\.skipping\.timeout"):
            client.sql("SHOW SKIPPING INDEXES")
    finally:
        client.sql("RESET spark.skipping.tiemout")
        client.sql("RESET spark.skipping.cache.ttl")


def test_many_at_once(server: Server, clients: Connect, folder: Path) -> None:
    """Eight, each with a join of its own; nothing that a client costs stays."""
    first = clients.of("one")
    indexed(first, folder, "many", [7, 8])
    first.sql("CREATE OR REPLACE TABLE names USING delta AS "
              "SELECT id AS k, concat('n', id) AS name FROM range(80)")  # fmt: skip
    join = "SELECT count(*), min(id) FROM many JOIN names USING (k) WHERE name = 'n{}'"

    def ask(n: int) -> None:
        client = clients.of(f"of many {n}")
        key = 7 + n % 2
        assert client.sql(join.format(key)) == [("10", str(key))]
        for _ in range(3):
            assert client.sql("SELECT 'a skipping rope'") == [("a skipping rope",)]

    python = psutil.Process(server.process.pid)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(8)))
        threads = python.num_threads()
        list(pool.map(ask, range(8)))
    # Py4J keeps one for each thread of Java's that ever called.
    assert python.num_threads() <= threads + 8


def test_a_statement_is_cancelled_with_its_query(clients: Connect, folder: Path) -> None:
    client = clients.of("one")
    make(client, folder, "left")
    index = "SKIPPING INDEX ON left"
    create = clients.ask("one", f"CREATE {index} (k VALUE_LIST)")
    while not create.done():
        time.sleep(0.2)
        client.sql("INTERRUPT")
    assert "OPERATION_CANCELED" in create.result()
    with contextlib.suppress(ClientError):  # it came before there was one
        assert covered(client, "left")["files"] == "0", "nothing goes on behind the client's back"


@contextlib.contextmanager
def hanging_store(folder: Path) -> Iterator[None]:
    """Whoever writes to the server's store waits, for half a minute."""
    path = folder / "spark-warehouse" / "skipping-index.sqlite"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def test_a_cancelled_statement_leaves_a_store_that_hangs(
    server: Server, clients: Connect, folder: Path
) -> None:
    make(clients.of("one"), folder, "hung")
    clients.of("one").sql("CREATE SKIPPING INDEX ON hung (k VALUE_LIST)")
    alter = "ALTER SKIPPING INDEX ON hung ADD (id MIN_MAX)"
    port, waits = server.port("thrift"), "StatementCallback.await"
    jdbc, gone = (hive.connect("127.0.0.1", port, username="somebody") for _ in range(2))
    java = psutil.Process(server.process.pid).children()[0]
    with hanging_store(folder):
        asked = clients.ask("one", alter)
        cursor = jdbc.cursor()
        cursor.execute(alter, async_=True)
        gone.cursor().execute(alter, async_=True)
        eventually(lambda: stacks(java.pid).count(waits) == 3)
        assert not asked.done()
        began = time.monotonic()
        clients.of("one").sql("INTERRUPT")
        assert "OPERATION_CANCELED" in asked.result(20)
        gone.close()
        cursor.cancel()
        eventually(lambda: cursor.poll().operationState == TOperationState.CANCELED_STATE, 20)
        assert time.monotonic() - began < 8
        # Each has its session, and its thread, again.
        assert clients.of("one").sql("SELECT 1") == [("1",)]
        eventually(lambda: waits not in stacks(java.pid), 20)
    jdbc.close()
    clients.of("one").sql("REFRESH SKIPPING INDEX ON hung")


def test_one_client_cannot_block_the_statements_of_others(
    server: Server, clients: Connect, folder: Path
) -> None:
    make(clients.of("one"), folder, "greedy")
    clients.of("one").sql("CREATE SKIPPING INDEX ON greedy (k VALUE_LIST)")
    java = psutil.Process(server.process.pid).children()[0]
    with hanging_store(folder):
        alter = "ALTER SKIPPING INDEX ON greedy ADD (id MIN_MAX)"
        asked = [clients.ask("greedy", alter) for _ in range(36)]
        eventually(lambda: "StatementCallback.await" in stacks(java.pid))
        time.sleep(3)  # for the others
        for name in ("one", "another"):
            described = clients.of(name, wait=10).sql("DESCRIBE SKIPPING INDEX ON greedy")
            assert [row[0] for row in described] == ["k"]
        clients.of("greedy").sql("INTERRUPT")
        for each in asked:
            assert "OPERATION_CANCELED" in each.result(20)
        assert clients.of("one", wait=10).sql("SHOW SKIPPING INDEXES")
    # What was cancelled has ended with the store's pause, and its session can go on.
    assert clients.of("greedy").sql("DESCRIBE SKIPPING INDEX ON greedy")


def stacks(pid: int) -> str:
    """What the threads of a Java do."""
    dump = subprocess.run(["jstack", str(pid)], capture_output=True, text=True, check=True)
    return dump.stdout
