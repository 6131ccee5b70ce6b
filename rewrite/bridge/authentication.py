"""Who may call Python: only this process's own Java.

Py4J listens on a port of the loopback interface, which every user of the host can reach, and calls
any attribute of the objects that Java holds, by name. Two things stand before them:

* The connection. PySpark starts the server without a token, and its Java half forgets the one it
  has when the port becomes known; `authenticate` gives both halves one, before the server listens.
  Connections of other users are closed unread, where the kernel tells whose they are.
* The message. `guarded` objects have a single function, which obeys texts that begin with the
  session's secret. This one needs nothing of Py4J's insides; alone it keeps what is known from
  strangers and statements from being run, but not objects of Java's from being released.
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

__all__ = ["Guarded", "authenticate", "make_secret", "seal"]

log = logging.getLogger("skipping")

_LENGTH = 64
"""Characters of a secret."""

_LOGIN = 10.0
"""Seconds that a connection has to show the token."""

_WAITING = 64
"""Connections at once that have yet to show it."""

_COMMAND = f"{AUTH_COMMAND_NAME}\n".encode()


def make_secret() -> str:
    """256 random bits as text."""
    return secrets.token_hex(_LENGTH // 2)


class Guarded:
    """A `java.util.function.BiFunction` for those who know the secret; others get null.

    The function gets the text behind the secret, and the second argument.
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
        found = object.__getattribute__(self, "_attributes").get(name)
        if object.__getattribute__(self, "_sealed"):
            # No error either: Py4J would send its traceback.
            return found if name == "apply" else _nothing
        return object.__getattribute__(self, name) if found is None else found


def seal(guarded: Guarded) -> None:
    """Hide what py4j had to see of an object to pass it on: from now on it only applies."""
    object.__setattr__(guarded, "_sealed", True)


def _nothing(*_: Any) -> None:
    return None


def authenticate(gateway: Any) -> None:
    """Start the callback server, and let in only this user's processes that know a token.

    A server that Spark has started already gets the token for connections to come; those that are
    there stay. Where Py4J is not as expected, the server takes any connection.
    """
    parameters = gateway.callback_server_parameters
    if not isinstance(gateway, ClientServer) or parameters.auth_token is not None:
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        return
    token = make_secret()
    # Before it listens: who connects first must not be who stays.
    gateway._create_callback_server = lambda _: _Server(gateway, token)
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    try:
        _tell_java(gateway, token)
    except (Py4JError, TypeError) as error:
        log.debug("the callback server takes any connection: %s", error)
        if isinstance(server := gateway._callback_server, _Server):
            server.token = None
        return
    parameters.auth_token = token


def _tell_java(gateway: Any, token: str) -> None:
    """Give Java the token for its connections; raises Py4JError and TypeError."""
    jvm = gateway.jvm
    server = JavaObject("GATEWAY_SERVER", gateway._gateway_client)
    held = server.getGateway()
    field = held.getClass().getDeclaredField("cbClient")
    field.setAccessible(True)
    client = jvm.py4j.PythonClient(
        held,
        None,
        gateway._callback_server.port,
        held.getCallbackClient().getAddress(),
        30,
        jvm.java.util.concurrent.TimeUnit.SECONDS,
        jvm.javax.net.SocketFactory.getDefault(),
        server,
        True,
        0,
        token,
    )
    field.set(held, client)


class _Server(PythonServer):  # type: ignore[misc]
    """Py4J's, but for how connections are let in.

    Py4J's own accept loop ends for good with the first error, such as too many open files, and its
    connections read lines of any length, for as long as they take, before they ask for the token.
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
        self._admitted.auth_token = None  # a connection has shown it before Py4J sees it

    def run(self) -> None:
        listener = self.server_socket
        listener.listen(128)
        while not self.is_shutdown:
            try:
                accepted, peer = listener.accept()
            except OSError as error:
                if not self.is_shutdown:
                    log.debug("a callback connection was not accepted: %s", error)
                    time.sleep(0.1)  # too many open files: others may close theirs
                continue
            ours = _owner(peer, accepted.getsockname()) in (None, os.geteuid())
            if ours and self.waiting.acquire(blocking=False):
                self._begin(accepted)
            else:
                accepted.close()

    def _begin(self, accepted: socket.socket) -> None:
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
        except RuntimeError as error:  # no more threads
            log.debug("a callback connection was not served: %s", error)
            self.waiting.release()
            connection.close()


class _Connection(ClientServerConnection):  # type: ignore[misc]
    """Py4J's, which first has to show the token, in the time and the bytes that this takes."""

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
        given, deadline = b"", time.monotonic() + _LOGIN
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
                return False  # what is no secret may be refused at once
        if not hmac.compare_digest(given, expected):
            return False
        self.socket.sendall(OUTPUT_VOID_COMMAND.encode())
        self.socket.settimeout(None)
        return True


def _owner(peer: tuple[str, int], own: tuple[str, int]) -> int | None:
    """The user of the other end of a connection within this host, where the kernel tells."""
    ends = tuple(
        f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"
        for host, port in (peer, own)
    )
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):  # Java's are of the second, as ::ffff:...
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            return None
        for line in lines:
            words = line.split()
            if words[1].endswith(ends[0]) and words[2].endswith(ends[1]):
                return int(words[7])
    return None
