"""One driver for many clients, of Spark Connect and of JDBC: real clients, each of its own process
or connection, of a real server.

That files are not opened shows where all that need not be read hold garbage.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psutil
import pyspark
import pytest
from pyhive import hive
from TCLIService.ttypes import TOperationState
from thrift.transport.TSSLSocket import TSSLSocket
from thrift.transport.TTransport import TTransportException
from thrift_sasl import TSaslClientTransport

from rewrite import serve
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
    tls_proxy,
)
from tests.test_house import ROOT

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
    clients = Connect(url(server))
    yield clients
    clients.kill()  # the server may have ended


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
    """A table of eight files; each k is in one of them, and bounds are not kept."""
    client.sql(f"DROP TABLE IF EXISTS {name}")
    client.sql(
        f"CREATE TABLE {name} USING delta LOCATION '{folder / name}'"
        " TBLPROPERTIES (delta.dataSkippingNumIndexedCols = 0) AS"
        f" SELECT /*+ REPARTITION({FILES}, k) */ id, id % 80 AS k FROM range(800)"
    )


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
    with pytest.raises(ClientError, match="no skipping index"):
        client.sql(f"DESCRIBE SKIPPING INDEX ON ddl_{way}")


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
    listed = text.partition("These only the server's")[2].partition("A client")[0]
    assert sorted(re.findall(r"`([a-z]\w*(?:\.\w+)*)`", listed)) == sorted([*FIXED])


def test_not_by_connecting_with_them_either(server: Server, folder: Path) -> None:
    store = f"sqlite:{folder}/elsewhere.sqlite"
    with connected(url(server), f"{PREFIX}store={store}", f"{PREFIX}cache.ttl=1s") as clients:
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
    port, waits = server.port("thrift"), "StatementCallback$Waiting.outcome"
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


def stacks(pid: int) -> str:
    """What the threads of a Java do."""
    dump = subprocess.run(["jstack", str(pid)], capture_output=True, text=True, check=True)
    return dump.stdout


# Who is let in


def test_a_wrong_token_is_refused(server: Server) -> None:
    for wrong in (url(server, "let me out"), f"sc://localhost:{server.port('connect')}"):
        with connected(wrong) as clients, pytest.raises(ClientError, match="UNAUTHENTICATED"):
            clients.of("one").sql("SELECT 1")


def test_a_token_over_tls(server: Server, folder: Path) -> None:
    """A proxy beside the server has the certificate, as the page advises."""
    names = ("certificate.pem", "key.pem")
    certificate, key = (folder / name for name in names)
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    more = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(
        [*request, *more, "-keyout", key, "-out", certificate], check=True, capture_output=True
    )
    trusted = {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(certificate)}
    with tls_proxy(certificate, key, server.port("connect")) as port:
        for token, said in ((TOKEN, [["1"]]), ("let me out", "UNAUTHENTICATED")):
            secure = f"sc://127.0.0.1:{port}/;use_ssl=true;token={token.replace(' ', '%20')}"
            clients = Connect(secure, **trusted)
            try:
                answer = clients.ask("one", "SELECT 1").result(60)
                assert answer == said or said in answer
            finally:
                clients.kill()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--connect", "0.0.0.0:0"], "Spark Connect would let in everybody"),
        (["--thrift", "[::]:0"], "the Thrift server would let in everybody"),
        (["--thrift", "0.0.0.0:0", "--conf", "spark.hadoop.hive.server2.authentication=nosasl"],
         "whatever name they give"),
    ],
)  # fmt: skip
def test_beyond_this_machine_only_with_authentication(arguments: list[str], said: str) -> None:
    code, text = refused(*arguments)
    assert code == 1
    assert said in text
    assert "--without-authentication" in text


def refused(*arguments: str) -> tuple[int, str]:
    """The exit code of a server that does not start, and what it says."""
    environment = {k: v for k, v in os.environ.items() if k != "SPARK_CONNECT_AUTHENTICATE_TOKEN"}
    run = subprocess.run(
        [sys.executable, "-m", "rewrite.serve", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
    )
    assert "Traceback" not in run.stderr
    return run.returncode, run.stderr


@pytest.mark.parametrize("service", ["connect", "thrift", "health"])
def test_a_port_that_is_taken(server: Server, service: str) -> None:
    port = str(server.port(service))
    code, text = refused(f"--{service}", port)
    assert code == 1
    assert f"no server: cannot listen on 127.0.0.1:{port}: Address already in use" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--connect", "host"], "'host' is not [HOST:]PORT, such as 15002"),
        (["--thrift", "::1:10000"], "'::1:10000' is not [HOST:]PORT"),
        (["--connect", "70000"], "'70000' is not"),
        (["--conf", "spark.master"], "'spark.master' is not spark.key=value"),
        (["--conf", "spark.connect.grpc.binding.port=1"], "is what --connect and --thrift say"),
        (["--conf", "spark.hive.server2.authentication=NONE"], "is spark.hadoop.hive.server2.auth"),
    ],
)
def test_wrong_arguments(arguments: list[str], said: str) -> None:
    code, text = refused(*arguments)
    assert code == 2
    assert said in text


def test_an_address_is_loopback_unless_it_says_otherwise() -> None:
    assert Address.of("15002") == Address("127.0.0.1", 15002)
    loopback = [Address.of(f"{host}:1").is_loopback for host in ("127.0.0.9", "localhost", "[::1]")]
    assert loopback == [True] * 3
    for host in ("0.0.0.0", "[::]", "192.0.2.1", "localhost.example"):
        assert not Address.of(f"{host}:1").is_loopback


# What goes wrong


def healthy(server: Server) -> int:
    address = f"http://127.0.0.1:{server.port('health')}/healthz"
    try:
        with urllib.request.urlopen(address, timeout=20) as answer:
            assert json.load(answer) == {"status": "ok"}
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except ConnectionError:  # too many ask
        return 0


def test_health(server: Server) -> None:
    assert healthy(server) == 200
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{server.port('health')}/")
    # Java stands still: nobody is answered.
    java = psutil.Process(server.process.pid).children()[0]
    java.suspend()
    try:
        eventually(lambda: healthy(server) == 503, 30)
    finally:
        java.resume()
    eventually(lambda: healthy(server) == 200, 30)


def test_many_that_ask_slowly(server: Server) -> None:
    peers = [socket.create_connection(("127.0.0.1", server.port("health"))) for _ in range(40)]
    for peer in peers:
        peer.sendall(b"GET /heal")
    eventually(lambda: healthy(server) == 200, 30)
    for peer in peers:
        peer.close()


def test_nothing_else_listens(server: Server) -> None:
    """Hive would obey its environment, and Spark's UI shows everybody what clients ask."""
    java = psutil.Process(server.process.pid).children()[0]
    listening = [c.laddr for c in java.net_connections() if c.status == psutil.CONN_LISTEN]
    assert server.port("thrift") in {at.port for at in listening}
    assert {at.ip for at in listening} <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}, listening


def test_garbage_and_clients_that_are_killed(server: Server, clients: Connect) -> None:
    for service in ("connect", "thrift", "health"):
        for said in (b"", b"\0" * 100, b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096)):
            with socket.create_connection(("127.0.0.1", server.port(service)), 5) as peer:
                peer.sendall(said)
    killed = Connect(url(server))
    running = killed.ask("one", "SELECT sum(a.id * b.id) FROM range(1000000) a, range(1000000) b")
    killed.of("other").sql("SELECT 1")
    killed.kill()
    assert not running.done()
    assert clients.of("one").sql("SELECT 1") == [("1",)]
    assert ThriftClient(server.port("thrift")).sql("SELECT 1") == [("1",)]
    assert healthy(server) == 200


class Hanging:
    """A session whose Java does not answer."""

    @property
    def sparkContext(self) -> Any:
        return time.sleep(30)


def test_told_to_end_while_java_hangs() -> None:
    end = serve._Ending()
    threading.Timer(0.5, end.begin).start()
    began = time.monotonic()
    assert serve._wait(Hanging(), end)  # type: ignore[arg-type]
    assert time.monotonic() - began < 5
    end.cancel()


def test_told_to_end_while_it_starts(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rewrite.serve", "--connect", "0"]
    conf = ["--conf", "spark.master=local[1]"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, *conf], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=log
        )
        eventually(lambda: psutil.Process(process.pid).children())  # Java is about to start
        process.terminate()
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, (tmp_path / "log").read_text()[-2000:]
    assert said == b""


# The end: these stop the server of this module


def test_told_to_end_it_ends(server: Server, clients: Connect, folder: Path) -> None:
    """With a query running and a stream: the lease is given back, and no process stays."""
    client = clients.of("one")
    make(client, folder, "ended")
    client.sql(f"CREATE SKIPPING INDEX ON delta.`{folder / 'ended'}` (k VALUE_LIST)"
               " WITH (auto_refresh = true, refresh_interval = '1 second')")  # fmt: skip
    rows = {row[0]: row[1] for row in client.sql(
        f"DESCRIBE SKIPPING INDEX EXTENDED ON delta.`{folder / 'ended'}`")}  # fmt: skip
    query = clients.ask("two", "SELECT sum(a.id * b.id) FROM range(1000000) a, range(1000000) b")
    java = psutil.Process(server.process.pid).children()[0]
    store = open_store(rows["store"])
    eventually(lambda: store.lease(rows["index"]).owner is not None)
    assert server.stop() == 0
    assert isinstance(query.result(60), str), "an error"
    assert store.lease(rows["index"]).owner is None
    assert not java.is_running()


GUARD = """
import javax.security.sasl.AuthenticationException;
import org.apache.hive.service.auth.PasswdAuthenticationProvider;

public class Guard implements PasswdAuthenticationProvider {
  public void Authenticate(String user, String password) throws AuthenticationException {
    if (!user.equals("me") || !password.equals("mine")) throw new AuthenticationException("no");
  }
}
"""


def keystore(folder: Path) -> Path:
    """`keys.p12` with a key of its own, and the certificate that clients are given."""
    options = ["-alias", "it", "-keystore", "keys.p12", "-storepass", "secret"]
    names = ["-dname", "CN=localhost", "-ext", "san=ip:127.0.0.1,dns:localhost"]
    more = ["-keyalg", "RSA", "-storetype", "PKCS12", *names]
    for command in (["-genkeypair", *more], ["-exportcert", "-rfc", "-file", "thrift.pem"]):
        subprocess.run(["keytool", *command, *options], cwd=folder, check=True, capture_output=True)
    return folder / "thrift.pem"


@contextlib.contextmanager
def over_tls(port: int, certificate: Path, password: str) -> Iterator[ThriftClient]:
    """PyHive is given the way there."""
    secured = TSSLSocket("127.0.0.1", port, cert_reqs=ssl.CERT_REQUIRED, ca_certs=str(certificate))
    login = partial(hive.get_installed_sasl, "127.0.0.1", "PLAIN", username="me", password=password)
    way = TSaslClientTransport(login, "PLAIN", secured)
    try:
        yield ThriftClient(None, host=None, username=None, thrift_transport=way)
    finally:
        if secured.isOpen():
            secured.close()


def test_the_next_server_goes_on(server: Server, folder: Path) -> None:
    """Streams are resumed; over TLS a class of ours says who is let in; a second signal ends it at
    once.
    """
    server.stop()
    table = f"delta.`{folder / 'ended'}`"
    (folder / "Guard.java").write_text(GUARD)
    jars = Path(pyspark.__file__).parent / "jars" / "*"
    subprocess.run(["javac", "-cp", jars, "Guard.java"], cwd=folder, check=True)
    authentication, certificate = "spark.hadoop.hive.server2", keystore(folder)
    following = Server(
        folder, "--thrift", "0.0.0.0:0",
        "--conf", f"{authentication}.authentication=CUSTOM",
        "--conf", f"{authentication}.custom.authentication.class=Guard",
        "--conf", f"{authentication}.use.SSL=true",
        "--conf", f"{authentication}.keystore.path={folder / 'keys.p12'}",
        "--conf", f"{authentication}.keystore.password=secret",
        "--conf", f"spark.driver.extraClassPath={folder}",
    )  # fmt: skip
    try:
        port = following.port("thrift")
        with (
            pytest.raises(TTransportException, match="Error validating the login"),
            over_tls(port, certificate, "yours"),
        ):
            pass
        with pytest.raises(TTransportException):  # in the clear
            ThriftClient(port, username="me", password="mine", auth="CUSTOM")
        with over_tls(port, certificate, "mine") as client:
            client.sql(f"INSERT INTO {table} SELECT id, id % 80 FROM range(800, 900)")
            eventually(lambda: covered(client, table)["version covered"] == "1")
        java = psutil.Process(following.process.pid).children()[0]
        assert following.stop(signals=2, wait=5) == 1
        eventually(lambda: not java.is_running(), 20)
    finally:
        following.process.kill()
