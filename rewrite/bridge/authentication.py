"""Who may call Python: only this process's own Java.

Py4J listens on a port of the loopback interface, which every user of the host can reach, and calls
any attribute of the objects that Java holds, by name. Two things stand before them:

* The connection. PySpark starts the server without a token, and its Java half forgets the one it
  has when the port becomes known; `authenticate` gives both halves one.
* The message. `guarded` objects have a single function, which obeys texts that begin with the
  session's secret. This one needs nothing of Py4J's insides; alone it keeps what is known from
  strangers and statements from being run, but not objects of Java's from being released.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from py4j.clientserver import ClientServer
from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError
from pyspark.java_gateway import ensure_callback_server_started

__all__ = ["Guarded", "authenticate", "make_secret", "seal"]

log = logging.getLogger("skipping")

_LENGTH = 64
"""Characters of a secret."""


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
    """Start the callback server, if Spark has not, and let in only those who know a token.

    Connections that are there stay. Where Py4J is not as expected, the server stays as it was.
    """
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    parameters = gateway.callback_server_parameters
    if parameters.auth_token is not None or not isinstance(gateway, ClientServer):
        return
    jvm, token = gateway.jvm, make_secret()
    try:
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
    except (Py4JError, TypeError) as error:
        log.debug("the callback server takes any connection: %s", error)
        return
    parameters.auth_token = token
