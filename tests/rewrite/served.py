"""A server in a process of its own, and its clients."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

import pytest
from pyhive import hive

from skipping.spark_api import RELEASE
from tests.test_house import ROOT

Rows = list[tuple[str, ...]]
TOKEN = "let me in"
WAYS = ("connect", "thrift") if RELEASE >= (4, 0) else ("thrift",)
needs_connect = pytest.mark.skipif("connect" not in WAYS, reason="its Connect has no token")
FILES = 8


class ClientError(Exception):
    """What a client was told."""


class Client(Protocol):
    def sql(self, statement: str) -> Rows:
        """Rows as texts; raises ClientError."""


class Server:
    """`python -m rewrite.serve`, in a folder."""

    def __init__(self, folder: Path, *arguments: str, wait: float = 120) -> None:
        command = [sys.executable, "-m", "rewrite.serve", "--conf", "spark.master=local[2]"]
        for pair in (
            "spark.driver.memory=1g",
            "spark.sql.shuffle.partitions=2",
            "spark.databricks.delta.snapshotPartitions=2",
        ):
            command += ["--conf", pair]
        self.log = folder / "server.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=folder,
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT),
                    "HIVE_SERVER2_THRIFT_BIND_HOST": "0.0.0.0",
                },
            )
        timer = threading.Timer(wait, self.process.kill)
        timer.start()
        assert self.process.stdout is not None
        self.ready = self.process.stdout.readline()
        timer.cancel()
        assert self.ready.startswith("ready: "), self.log.read_text()[-3000:]

    def port(self, service: str) -> int:
        found = re.search(rf"{service} \S+://[\w.]+:(\d+)", self.ready)
        assert found, self.ready
        return int(found[1])

    def url(self, token: str = TOKEN) -> str:
        """Where clients of Connect find it."""
        return f"sc://localhost:{self.port('connect')}/;token={token.replace(' ', '%20')}"

    def stop(self, *, signals: int = 1, wait: float = 30) -> int:
        """The exit code."""
        for _ in range(signals):
            self.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
        try:
            return self.process.wait(wait)
        finally:
            self.process.kill()
            self.process.stdout.close()  # type: ignore[union-attr]


class Connect:
    """A process with clients of Spark Connect; `of` gives one, with a session of its own."""

    def __init__(self, url: str, *conf: str, **environment: str) -> None:
        script = Path(__file__).with_name("connect_client.py")
        self._tags = itertools.count()
        self._waiting: dict[int, Future[Any]] = {}
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", script, url, *conf],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:  # type: ignore[union-attr]
            tag, said = json.loads(line)
            self._waiting.pop(tag).set_result(said)

    def ask(self, session: str, statement: str) -> Future[Any]:
        tag, future = next(self._tags), Future[Any]()
        self._waiting[tag] = future
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([tag, session, statement]) + "\n")
        self.process.stdin.flush()
        return future

    def of(self, session: str, *, wait: float = 120) -> ConnectClient:
        return ConnectClient(self, session, wait)

    def close(self) -> None:
        """As a client ends: its sessions are released."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(30)
        finally:
            self.kill()

    def kill(self) -> None:
        """As one that has no time."""
        with self.process:  # closes what leads there
            self.process.kill()


class ConnectClient:
    def __init__(self, connect: Connect, session: str, wait: float) -> None:
        self._connect, self._session, self._wait = connect, session, wait

    def sql(self, statement: str) -> Rows:
        said = self._connect.ask(self._session, statement).result(self._wait)
        if isinstance(said, str):
            raise ClientError(said)
        return [tuple(row) for row in said]


class ThriftClient:
    def __init__(self, port: int | None, **more: Any) -> None:
        given = {"host": "127.0.0.1", "port": port, "username": "somebody", **more}
        self._connection = hive.Connection(**given)

    def sql(self, statement: str) -> Rows:
        with contextlib.closing(self._connection.cursor()) as cursor:
            try:
                cursor.execute(statement)
            except hive.OperationalError as error:
                raise ClientError(error.args[0].status.errorMessage) from error
            if cursor.description is None:
                return []
            return [tuple(str(value) for value in row) for row in cursor.fetchall()]

    def close(self) -> None:
        self._connection.close()


def make(client: Client, folder: Path, name: str) -> None:
    """A table of eight files; each k is in one of them, and bounds are not kept."""
    client.sql(f"DROP TABLE IF EXISTS {name}")
    client.sql(
        f"CREATE TABLE {name} USING delta LOCATION '{folder / name}'"
        " TBLPROPERTIES (delta.dataSkippingNumIndexedCols = 0) AS"
        f" SELECT /*+ REPARTITION({FILES}, k) */ id, id % 80 AS k FROM range(800)"
    )


def covered(client: Client, table: str) -> dict[str, str]:
    rows = client.sql(f"DESCRIBE SKIPPING INDEX EXTENDED ON {table}")
    return {row[0]: row[1] for row in rows}


@contextlib.contextmanager
def connected(url: str, *conf: str) -> Iterator[Connect]:
    clients = Connect(url, *conf)
    try:
        yield clients
    finally:
        clients.close()


def eventually(holds: Any, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.5)


@contextlib.contextmanager
def tls_proxy(certificate: Path, key: Path, to: int) -> Iterator[int]:
    """The port of a proxy that takes TLS, speaks HTTP/2, and hands on to a port of this machine."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["h2"])
    ended = threading.Event()

    def serve(peer: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            context.wrap_socket(peer, server_side=True) as outer,
            socket.create_connection(("127.0.0.1", to)) as inner,
        ):
            outer.settimeout(0.05)
            inner.settimeout(0.05)
            while not ended.is_set():  # one thread: an SSL socket is not for two
                for source, target in ((outer, inner), (inner, outer)):
                    try:
                        if not (piece := source.recv(1 << 16)):
                            return
                    except TimeoutError:
                        continue
                    target.sendall(piece)

    def accept() -> None:
        while not ended.is_set():
            with contextlib.suppress(TimeoutError):
                peer, _ = listener.accept()
                threading.Thread(target=serve, args=(peer,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield listener.getsockname()[1]
        finally:
            ended.set()
            accepting.join()
