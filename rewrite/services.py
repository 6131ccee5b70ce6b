"""Run services in a Spark driver: Spark Connect, Spark's Thrift server, and `/healthz`.

The first two are Spark's own. They run in this driver, so that their clients' sessions have the
hooks.
"""

from __future__ import annotations

import ipaddress
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from py4j.protocol import Py4JJavaError
from pyspark import __version__
from pyspark.sql import SparkSession

from providers.errors import SessionError, SettingError, first_line
from skipping.config.settings import PREFIX, SETTINGS
from skipping.spark_api import RELEASE

_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectService"
_TOKEN = "spark.connect.authenticate.token"
_AUTHENTICATION = "spark.hadoop.hive.server2.authentication"

_INTERVAL, _PATIENCE = 1.0, 10.0
"""Seconds between two checks of Spark; seconds without a successful check until 503 is returned."""
_PROBES, _PROBE = 100, 2.0
"""Maximum number of open connections to `/healthz`, and seconds that each has for its request.

Further connections wait, so half-open connections delay a probe but do not make it fail.
"""


@dataclass(frozen=True, slots=True)
class Address:
    """An address to listen on; port 0 selects a free port."""

    host: str
    port: int

    @classmethod
    def of(cls, text: str) -> Address:
        """Parse `[HOST:]PORT`; the default host is 127.0.0.1. Raise ValueError for other text.

        >>> Address.of("15002"), Address.of("[::1]:0")
        (Address(host='127.0.0.1', port=15002), Address(host='::1', port=0))
        """
        host, _, port = text.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ValueError(text)
        if not (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
            raise ValueError(text)
        return cls(host or "127.0.0.1", int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this host can reach the address."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def require_free(self) -> None:
        """Raise SessionError if this process cannot listen on the address.

        Call it before Spark starts, which takes ten seconds.
        """
        try:
            family, *_, address = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[
                0
            ]
            with socket.socket(family) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        except OSError as error:
            raise SessionError(f"cannot listen on {self}: {error.strerror}") from error


class Service(Protocol):
    """A service that listens for clients."""

    address: Address

    @property
    def url(self) -> str:
        """The URL for clients."""

    def listens(self) -> bool:
        """Return whether it accepts clients."""

    def stop(self) -> None:
        """Stop accepting clients, and cancel running queries."""


class Connect:
    """Spark Connect: gRPC, with a bearer token if one is configured."""

    def __init__(self, spark: SparkSession) -> None:
        """Start Spark Connect at the configured address; raise SessionError if that fails."""
        jvm: Any = spark.sparkContext._jvm
        self._java = getattr(jvm, _CONNECT)
        self._none = jvm.scala.Option.empty
        conf = spark.sparkContext._conf
        try:
            self._java.start(spark.sparkContext._jsc.sc())
            self._object = _singleton(jvm, _CONNECT)
            port = self._object.localPort()
        except Py4JJavaError as error:
            raise _start_error("Spark Connect", error) from error
        self.address = Address(conf.get("spark.connect.grpc.binding.address", ""), port)
        self._has_token = _token(dict(conf.getAll())) is not None

    @staticmethod
    def settings(address: Address) -> dict[str, str]:
        """Return the settings for an address."""
        return {
            "spark.connect.grpc.binding.address": address.host,
            "spark.connect.grpc.binding.port": str(address.port),
        }

    @property
    def url(self) -> str:
        """The URL for `SparkSession.builder.remote`."""
        # Without TLS, PySpark sends a token only to a host that is spelled `localhost`.
        local = self._has_token and self.address.host in ("127.0.0.1", "::1")
        return f"sc://{Address('localhost', self.address.port) if local else self.address}"

    def listens(self) -> bool:
        """Return whether it accepts clients."""
        return not self._object.server().isShutdown()

    def stop(self) -> None:
        """Stop the service; running queries of clients are cancelled with an error."""
        self._java.stop(self._none(), self._none())

    @staticmethod
    def require_support(conf: Mapping[str, str], address: Address) -> None:
        """Raise SettingError if this Spark has no server, or could not authenticate clients."""
        if RELEASE >= (4, 0):
            return
        jars = f"{conf.get('spark.jars')} {conf.get('spark.jars.packages')}"
        if "spark-connect" not in jars:
            raise SettingError(
                f"PySpark {__version__} has no Spark Connect server: use --thrift, or add --conf "
                f"spark.jars.packages=org.apache.spark:spark-connect_2.12:{__version__}"
            )
        if not address.is_loopback:
            raise SettingError(
                f"Spark Connect {__version__} cannot authenticate clients: let it listen on "
                "127.0.0.1, behind a proxy that authenticates them"
            )

    @staticmethod
    def require_authentication(conf: Mapping[str, str]) -> None:
        """Raise SettingError unless clients must authenticate."""
        if not _token(conf):
            raise SettingError(
                "Spark Connect would accept every client without authentication: set SPARK_CONNECT_"
                f"AUTHENTICATE_TOKEN or --conf {_TOKEN}=..., listen on loopback behind a proxy "
                "that authenticates clients, or pass --without-authentication"
            )


class Thrift:
    """Spark's Thrift server, for JDBC, ODBC and PyHive."""

    def __init__(self, spark: SparkSession) -> None:
        """Start the server at the configured address; raise SessionError if that fails."""
        jvm: Any = spark.sparkContext._jvm
        java = jvm.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2
        # Hive runs a Derby database, which would write a log file into the current folder.
        jvm.System.getProperties().putIfAbsent("derby.stream.error.file", os.devnull)
        # Hive's authenticators (LDAP, CUSTOM) read system properties, not Spark's settings.
        for key, value in spark.sparkContext._conf.getAll():
            if key.startswith("spark.hadoop.hive.server2."):
                jvm.System.setProperty(key.removeprefix("spark.hadoop."), value)
        try:
            if RELEASE >= (4, 0):
                self._java = java.startWithSparkSession(spark._jsparkSession, False)
            else:
                self._java = java.startWithContext(spark._jsparkSession.sqlContext())
        except Py4JJavaError as error:
            raise _start_error("the Thrift server", error) from error
        host = spark.sparkContext._conf.get("spark.hadoop.hive.server2.thrift.bind.host", "")
        ports = [s.getPortNumber() for s in self._java.getServices() if "Thrift" in s.getName()]
        self.address = Address(host, ports[0])

    @staticmethod
    def settings(address: Address) -> dict[str, str]:
        """Return the settings for an address."""
        return {
            "spark.hadoop.hive.server2.thrift.bind.host": address.host,
            "spark.hadoop.hive.server2.thrift.port": str(address.port),
            "spark.hadoop.hive.server2.thrift.http.port": str(address.port),
        }

    @staticmethod
    def forget_environment() -> None:
        """Remove environment variables that would override the addresses in Hive's settings."""
        for name in ("BIND_HOST", "PORT", "HTTP_PORT"):
            os.environ.pop(f"HIVE_SERVER2_THRIFT_{name}", None)

    @property
    def url(self) -> str:
        """The URL for JDBC."""
        return f"jdbc:hive2://{self.address}"

    def listens(self) -> bool:
        """Return whether it accepts clients."""
        return str(self._java.getServiceState()) == "STARTED"

    def stop(self) -> None:
        """Stop the server, and end the sessions of clients."""
        self._java.stop()

    @staticmethod
    def require_authentication(conf: Mapping[str, str]) -> None:
        """Raise SettingError unless clients must authenticate."""
        if conf.get(_AUTHENTICATION, "NONE").upper() in ("NONE", "NOSASL"):
            raise SettingError(
                "the Thrift server would accept every client without authentication, under any "
                f"user name: set --conf {_AUTHENTICATION}=LDAP (or KERBEROS, PAM, CUSTOM), listen "
                "on loopback, or pass --without-authentication"
            )


class Health:
    """`GET /healthz`: returns 200 while Spark responds and the other services listen, else 503.

    One thread checks Spark, independent of the number of requests.
    """

    def __init__(self, spark: SparkSession, address: Address, services: Sequence[Service]) -> None:
        """Start listening; raise SessionError if the address is in use."""
        self._spark = spark
        self._services = services
        self._last_success = time.monotonic()
        self._ended = threading.Event()
        try:
            self._server = _Http((address.host, address.port), self._fault)
        except OSError as error:
            raise SessionError(f"cannot listen on {address}: {error.strerror}") from error
        self.address = Address(address.host, self._server.server_address[1])
        for work in (self._server.serve_forever, self._check):
            threading.Thread(target=work, name="health", daemon=True).start()

    @property
    def url(self) -> str:
        """The URL for probes."""
        return f"http://{self.address}/healthz"

    def listens(self) -> bool:
        """Return true until it is stopped."""
        return not self._ended.is_set()

    def stop(self) -> None:
        """Stop listening."""
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()

    def _fault(self) -> str | None:
        silent = time.monotonic() - self._last_success
        return f"Spark has not answered for {silent:.0f} s" if silent > _PATIENCE else None

    def _check(self) -> None:
        while not self._ended.wait(_INTERVAL):
            with suppress(Exception):  # `_fault` reports it after `_PATIENCE`
                # This runs no Spark job, so it also succeeds while the cluster is busy.
                self._spark.sql("VALUES 1").collect()
                if all(service.listens() for service in self._services):
                    self._last_success = time.monotonic()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], fault: Callable[[], str | None]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.fault = fault
        self._connections = threading.BoundedSemaphore(_PROBES)
        super().__init__(address, _Answer)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Wait until fewer than `_PROBES` connections are open, then answer in a thread."""
        self._connections.acquire()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, but close the connection after `_PROBE` seconds, even if bytes still arrive."""
        # Only a shutdown of both directions interrupts the thread that reads from the socket.
        timer = threading.Timer(_PROBE, _shut, [request])
        timer.daemon = True
        timer.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            timer.cancel()
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that close their connection."""


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, _Http)
        if self.path != "/healthz":
            self.send_error(404)
            return
        fault = self.server.fault()
        body = json.dumps({"status": "ok"} if fault is None else {"status": fault}).encode()
        self.send_response(200 if fault is None else 503)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: probes arrive every few seconds."""


def fix_settings(spark: SparkSession) -> None:
    """Make the settings that clients must not change static configurations of Spark.

    Spark then rejects SET, RESET and client configurations for them in all sessions of this JVM.
    """
    jvm: Any = spark.sparkContext._jvm
    conf = jvm.org.apache.spark.sql.internal.SQLConf
    for setting in SETTINGS:
        key = f"{PREFIX}{setting.key}"
        if setting.fixed and not conf.isStaticConfigKey(key):
            conf.buildStaticConf(key).doc(setting.meaning).stringConf().createOptional()


def _token(conf: Mapping[str, str]) -> str | None:
    return conf.get(_TOKEN) or os.environ.get("SPARK_CONNECT_AUTHENTICATE_TOKEN")


def _singleton(jvm: Any, name: str) -> Any:
    """Return a Scala object; py4j cannot call all of its methods as static methods."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return loader.loadClass(f"{name}$").getField("MODULE$").get(None)


def _start_error(service: str, error: Py4JJavaError) -> SessionError:
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return SessionError(f"{service} cannot start: {first_line(cause.toString())}")
