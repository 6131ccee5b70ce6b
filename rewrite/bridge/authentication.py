"""Accept calls of Python only from the Java process that belongs to this process.

Py4J's callback server listens on a loopback port, which every user of the host can reach. By name,
it calls any attribute of the objects that Java references. Two checks protect these objects:

* The connection. PySpark starts the server without a token, and Java drops its own token once the
  port is known. `authenticate` gives both sides a token before the server listens. If the kernel
  reports that a connection belongs to another user, it is closed unread.
* The message. A `Guarded` object has one function, which accepts only texts that begin with the
  session's secret. This check does not depend on Py4J's internals. Without the first check it still
  protects data and statements, but other users can then make Java release objects.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from copy import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from py4j.clientserver import ClientServer, ClientServerConnection, PythonServer
from py4j.java_gateway import JavaObject
from py4j.protocol import AUTH_COMMAND_NAME, END, OUTPUT_VOID_COMMAND, Py4JError
from pyspark.java_gateway import ensure_callback_server_started

log = logging.getLogger("skipping")

_LENGTH = 64
"""Number of characters of a secret."""

_LOGIN_TIMEOUT = 10.0
"""Seconds within which a connection must send the token."""

_WAITING = 64
"""Maximum number of connections that have not sent the token yet."""

_COMMAND = f"{AUTH_COMMAND_NAME}\n".encode()


def make_secret() -> str:
    """Return 256 random bits as hexadecimal text."""
    return secrets.token_hex(_LENGTH // 2)


class Guarded:
    """A `java.util.function.BiFunction` that returns null unless its text begins with the secret.

    Otherwise it calls `function` with the text after the secret, and the second argument.
    """

    __slots__ = ("_attributes", "_sealed")

    def __init__(self, secret: str, function: Callable[[str, Any], Any]) -> None:
        key = secret.encode()

        def apply(*arguments: Any) -> Any:
            if len(arguments) != 2 or not isinstance(arguments[0], str):
                return None
            text, argument = arguments
            given = text[:_LENGTH].encode(errors="surrogatepass")
            return function(text[_LENGTH:], argument) if hmac.compare_digest(given, key) else None

        java = SimpleNamespace(implements=("java.util.function.BiFunction",))
        object.__setattr__(self, "_attributes", {"apply": apply, "Java": java})
        object.__setattr__(self, "_sealed", False)

    def __getattribute__(self, name: str) -> Any:
        attribute = object.__getattribute__(self, "_attributes").get(name)
        if object.__getattribute__(self, "_sealed"):
            # Do not raise AttributeError: Py4J would send the traceback to the caller.
            return attribute if name == "apply" else _nothing
        return object.__getattribute__(self, name) if attribute is None else attribute


def seal(guarded: Guarded) -> None:
    """Hide all attributes except `apply`. Call this after py4j has passed the object to Java."""
    object.__setattr__(guarded, "_sealed", True)


def _nothing(*_: Any) -> None:
    return None


def authenticate(gateway: Any) -> None:
    """Start the callback server; it accepts only processes of this user that send the token.

    If Spark has already started the server, the token applies to new connections only. If Py4J's
    internals differ from what this release expects, the server accepts any connection.
    """
    parameters = gateway.callback_server_parameters
    if not isinstance(gateway, ClientServer) or parameters.auth_token is not None:
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        return
    token = make_secret()
    # Replace the server before it listens, so that it checks every connection.
    gateway._create_callback_server = lambda _: _Server(gateway, token)
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    try:
        _set_token_in_java(gateway, token)
    except (Py4JError, TypeError) as error:
        log.debug("the callback server does not authenticate connections: error=%s", error)
        if isinstance(server := gateway._callback_server, _Server):
            server.token = None
        return
    parameters.auth_token = token


def _set_token_in_java(gateway: Any, token: str) -> None:
    """Make Java send the token when it connects; raise Py4JError or TypeError if that fails."""
    jvm = gateway.jvm
    server = JavaObject("GATEWAY_SERVER", gateway._gateway_client)
    java_gateway = server.getGateway()
    field = java_gateway.getClass().getDeclaredField("cbClient")
    field.setAccessible(True)
    client = jvm.py4j.PythonClient(
        java_gateway,
        None,
        gateway._callback_server.port,
        java_gateway.getCallbackClient().getAddress(),
        30,
        jvm.java.util.concurrent.TimeUnit.SECONDS,
        jvm.javax.net.SocketFactory.getDefault(),
        server,
        True,
        0,
        token,
    )
    field.set(java_gateway, client)


class _Server(PythonServer):  # type: ignore[misc]
    """Py4J's callback server with a safer accept loop.

    Py4J's own accept loop ends at the first error, such as too many open files. Its connections
    read lines of any length, without a timeout, before they check the token.
    """

    def __init__(self, gateway: ClientServer, token: str) -> None:
        super().__init__(
            gateway._gateway_client,
            gateway.java_parameters,
            gateway.python_parameters,
            gateway.gateway_property,
        )
        self.token: str | None = token
        self.waiting = threading.BoundedSemaphore(_WAITING)
        self._admitted = copy(gateway.python_parameters)
        self._admitted.auth_token = None  # `_Connection` has checked the token before Py4J reads

    def run(self) -> None:
        listener = self.server_socket
        listener.listen(128)
        while not self.is_shutdown:
            try:
                accepted, peer = listener.accept()
            except OSError as error:
                if not self.is_shutdown:
                    log.debug("cannot accept a callback connection: %s", error)
                    time.sleep(0.1)  # too many open files: wait until some are closed
                continue
            is_ours = _find_user(peer, accepted.getsockname()) in (None, os.geteuid())
            if is_ours and self.waiting.acquire(blocking=False):
                self._start_connection(accepted)
            else:
                accepted.close()

    def _start_connection(self, accepted: socket.socket) -> None:
        connection = _Connection(
            self.java_parameters,
            self._admitted,
            self.gateway_property,
            self.gateway_client,
            python_server=self,
        )
        connection.init_socket_from_python_server(accepted, accepted.makefile("rb"))
        with self.lock:
            if self.is_shutdown:
                connection.close()
                return
            self.connections.add(connection)
        try:
            connection.start()
        except RuntimeError as error:  # the process cannot start more threads
            log.debug("cannot serve a callback connection: %s", error)
            self.waiting.release()
            connection.close()


class _Connection(ClientServerConnection):  # type: ignore[misc]
    """Py4J's connection; its first bytes must be the token, within `_LOGIN_TIMEOUT`."""

    def wait_for_commands(self) -> None:
        try:
            admitted = self._is_admitted()
        except OSError:
            admitted = False
        finally:
            self.python_server.waiting.release()
        if admitted:
            super().wait_for_commands()
        else:
            self.close(reset=True)

    def _is_admitted(self) -> bool:
        if self.python_server.token is None:
            return True
        expected = _COMMAND + f"{self.python_server.token}\n{END}\n".encode()
        given, deadline = b"", time.monotonic() + _LOGIN_TIMEOUT
        while len(given) < len(expected):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self.socket.settimeout(left)
            piece = self.socket.recv(len(expected) - len(given))
            if not piece:
                return False
            given += piece
            if not given.startswith(expected[: min(len(given), len(_COMMAND))]):
                return False  # only the token is secret, so a wrong command may fail early
        if not hmac.compare_digest(given, expected):
            return False
        self.socket.sendall(OUTPUT_VOID_COMMAND.encode())
        self.socket.settimeout(None)
        return True


def _find_user(peer: tuple[str, int], own: tuple[str, int]) -> int | None:
    """Return the user id of a local connection's peer; None if the kernel does not report it."""
    ends = tuple(
        f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"
        for host, port in (peer, own)
    )
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):  # Java's sockets are in tcp6, as ::ffff:...
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            return None
        for line in lines:
            words = line.split()
            if words[1].endswith(ends[0]) and words[2].endswith(ends[1]):
                return int(words[7])
    return None
