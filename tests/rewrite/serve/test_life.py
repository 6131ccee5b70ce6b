"""A server from its start to its end: who is let in, and what goes wrong."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest
from pyhive import hive
from thrift.transport.TSSLSocket import TSSLSocket
from thrift.transport.TTransport import TTransportException
from thrift_sasl import TSaslClientTransport

from rewrite import serve
from rewrite.services import Address
from skipping.stores.open import open_store
from tests.rewrite.served import (
    TOKEN,
    WAYS,
    ClientError,
    Connect,
    Server,
    ThriftClient,
    connected,
    covered,
    eventually,
    make,
    needs_connect,
    tls_proxy,
)
from tests.test_house import ROOT

pytestmark = [pytest.mark.process, pytest.mark.nightly]

# Who is let in


@needs_connect
def test_a_wrong_token_is_refused(server: Server) -> None:
    for wrong in (server.url("let me out"), f"sc://localhost:{server.port('connect')}"):
        with connected(wrong) as clients, pytest.raises(ClientError, match="UNAUTHENTICATED"):
            clients.of("one").sql("SELECT 1")


@needs_connect
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
        pytest.param(
            ["--connect", "0.0.0.0:0"], "Spark Connect would accept every client",
            marks=needs_connect,
        ),
        (["--thrift", "[::]:0"], "the Thrift server would accept every client"),
        (["--thrift", "0.0.0.0:0", "--conf", "spark.hadoop.hive.server2.authentication=nosasl"],
         "under any user name"),
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


@pytest.mark.parametrize("service", [*WAYS, "health"])
def test_a_port_that_is_taken(server: Server, service: str) -> None:
    port = str(server.port(service))
    code, text = refused(f"--{service}", port)
    assert code == 1
    assert (
        f"cannot start the server: cannot listen on 127.0.0.1:{port}: Address already in use"
        in text
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--connect", "host"], "'host' is not [HOST:]PORT, such as 15002"),
        (["--thrift", "::1:10000"], "'::1:10000' is not [HOST:]PORT"),
        (["--connect", "70000"], "'70000' is not"),
        (["--conf", "spark.master"], "'spark.master' is not spark.key=value"),
        (["--conf", "spark.connect.grpc.binding.port=1"], "use --connect and --thrift instead of"),
        (
            ["--conf", "spark.hive.server2.authentication=NONE"],
            "use spark.hadoop.hive.server2.auth",
        ),
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
    except OSError:
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


def test_health_answers_while_others_never_end_their_requests(server: Server) -> None:
    ended = threading.Event()

    def dribble() -> None:
        while not ended.is_set():
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", server.port("health")), 20) as peer,
            ):
                peer.settimeout(0.5)
                peer.sendall(b"GET /healthz HTTP/1.1\r\n")
                while not ended.is_set():  # until it is closed from the other side
                    peer.sendall(b"a: b\r\n")
                    with contextlib.suppress(TimeoutError):
                        if not peer.recv(1):
                            break

    peers = [threading.Thread(target=dribble) for _ in range(160)]
    for peer in peers:
        peer.start()
    try:
        time.sleep(1)
        assert [healthy(server) for _ in range(5)] == [200] * 5
    finally:
        ended.set()
        for peer in peers:
            peer.join()


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
    killed = Connect(server.url())
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


def spark_begins(pid: int) -> bool:
    """Whether Java starts, or the script that starts it: what Python imports has children, too."""
    with contextlib.suppress(psutil.Error):  # one has ended meanwhile
        commands = [child.cmdline() for child in psutil.Process(pid).children()]
        return any("spark" in word for command in commands for word in command)
    return False


def test_told_to_end_while_it_starts(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rewrite.serve", f"--{WAYS[0]}", "0"]
    conf = ["--conf", "spark.master=local[1]"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (tmp_path / "log").open("wb") as errors:
        process = subprocess.Popen(
            [*command, *conf], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=errors
        )
        eventually(lambda: spark_begins(process.pid))
        begun = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, (tmp_path / "log").read_text()[-2000:]
    assert said == b""
    gone, stayed = psutil.wait_procs(begun, timeout=60)
    assert gone
    assert not stayed


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
    eventually(lambda: java.cpu_percent(0.5) > 50)  # else the client would look for the server
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


@needs_connect
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
