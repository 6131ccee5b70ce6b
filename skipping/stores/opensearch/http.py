"""HTTP with one server: every exchange ends by its deadline, whatever the server does.

The deadline covers everything from the name lookup to the last byte of the response. A socket here
checks it before each operation, so a server cannot extend it by sending single bytes. A response
that is late, too large or for another request is an error, and its connection is closed. The number
of connections is limited, and only name lookups use threads. Proxies of the environment, `.netrc`,
redirects and cookies are ignored.
"""

from __future__ import annotations

import http.client
import ipaddress
import secrets
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import certifi

from providers.errors import StoreError
from skipping.stores.fork_safety import reset_after_fork
from skipping.stores.opensearch import limits
from skipping.stores.single_flight import SingleFlight

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


_LINES = 16  # connections to one server; further requests wait
_PIECE = 1 << 20
_LOOKUPS = 8  # name lookups at a time: one that hangs cannot be cancelled


class Overdue(StoreError):
    """The request did not finish by its deadline."""


class TooMuch(StoreError):
    """A response is larger than the limit."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The response of a server."""

    status: int
    headers: dict[str, str]
    body: bytes


class Wire:
    """The connections to one server, `http://host:port` or `https://host:port`.

    `ca`, `certificate` and `key` are PEM files. Several threads can use it; a forked child opens
    its own connections.
    """

    def __init__(
        self, server: str, *, ca: str | None, certificate: str | None, key: str | None
    ) -> None:
        parts = urlsplit(server)
        self._server, self._secure = server, parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port or 9200
        self._pems = ca, certificate, key
        self._context: ssl.SSLContext | None = None
        self._idle: list[http.client.HTTPConnection] = []
        weakref.finalize(self, _close, self._idle)
        self._begin()
        reset_after_fork(self)

    def _begin(self) -> None:
        self._room = threading.BoundedSemaphore(_LINES)
        self._lock = threading.Lock()

    def _after_fork(self) -> None:
        self._begin()
        self.close()  # closes the copies of the child only

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            _close(self._idle)

    def exchange(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        *,
        deadline: float,
        most: int | None = None,
    ) -> Reply:
        """Send a request and return the response.

        Raises Overdue at the deadline, TooMuch for a response of more than `most` bytes (default
        `limits.RESPONSE`), and StoreError for any other failure.
        """
        began = time.monotonic()
        if not self._room.acquire(timeout=max(0.0, deadline - began)):
            raise Overdue(f"{self._server}: all {_LINES} connections are in use")
        try:
            most = limits.RESPONSE if most is None else most
            return self._exchange(self._line(deadline), (method, path, body), headers, most)
        except TimeoutError as error:
            raise Overdue(
                f"{self._server} did not answer within {max(0.0, deadline - began):.3g} s"
            ) from error
        except ssl.SSLCertVerificationError as error:
            raise StoreError(
                f"{self._server} has a certificate that is not trusted "
                f"({error.verify_message}): name the CA in spark.skipping.opensearch.ca"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise StoreError(
                f"{self._server} cannot be reached ({_describe_error(error)}): "
                "is it running, and does it use the protocol of the address?"
            ) from error
        finally:
            self._room.release()

    def _exchange(
        self,
        line: http.client.HTTPConnection,
        request: tuple[str, str, bytes | None],
        headers: Mapping[str, str],
        most: int,
    ) -> Reply:
        whole = False
        try:
            asked = secrets.token_hex(8)
            own = {"accept-encoding": "identity", "x-opaque-id": asked}
            line.request(*request, {**headers, **own})
            response = line.getresponse()
            said = {name.lower(): value for name, value in response.getheaders()}
            # A proxy may drop the header; the caller checks the response itself, too.
            if said.get("x-opaque-id", asked) != asked:
                raise StoreError(f"{self._server} returned the response to another request")
            if said.get("content-encoding", "identity") != "identity":
                raise StoreError(f"{self._server} answered in an encoding that was not requested")
            content = self._read(response, most)
            whole = not response.will_close
            return Reply(response.status, said, content)
        finally:
            if whole:
                with self._lock:
                    self._idle.append(line)
            else:
                line.close()

    def _read(self, response: http.client.HTTPResponse, most: int) -> bytes:
        pieces: list[bytes] = []
        room = most if response.length is None else most - response.length
        while room >= 0 and (piece := response.read(_PIECE)):
            pieces.append(piece)
            room -= len(piece) if response.length is None else 0
        if room < 0:
            raise TooMuch(f"{self._server} answered with more than {most >> 20} MB")
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        content = b"".join(pieces)
        for count, limit, what in (
            (content.count(b"{") + content.count(b"["), limits.OBJECTS, "objects"),
            (content.count(b","), limits.VALUES, "values"),
        ):
            if count > limit:
                raise TooMuch(f"{self._server} answered with more than {limit:,} {what}")
        return content

    def _line(self, deadline: float) -> http.client.HTTPConnection:
        """Return an idle or new connection whose operations end by the deadline."""
        while True:
            with self._lock:
                line = self._idle.pop() if self._idle else None
            if line is None:
                break
            # A connection with unexpected data was closed, or is out of sync.
            sock: Any = line.sock
            if not _has_data(sock):
                sock.deadline = deadline
                return line
            line.close()
        line = http.client.HTTPConnection(self._host, self._port)
        line.auto_open = 0
        line.sock = self._connect(deadline)
        return line

    def _connect(self, deadline: float) -> socket.socket:
        context = self._tls() if self._secure else None
        found = _NAMES.addresses(self._host, self._port, deadline)
        failed: OSError = OSError("it has no address")
        for i, (family, kind, protocol, _, address) in enumerate(found):
            plain = _Plain(family, kind, protocol)
            try:
                # An unreachable first address must not use up the time of the others.
                plain.settimeout(_require_time(deadline) / (len(found) - i))
                plain.connect(address)
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                plain.deadline = deadline
                if context is None:
                    return plain
                secure: Any = context.wrap_socket(
                    plain, server_hostname=self._host, do_handshake_on_connect=False
                )
            except OSError as error:
                plain.close()
                failed = error
                continue
            except BaseException:
                plain.close()
                raise
            try:
                secure.deadline = deadline
                secure.settimeout(_require_time(deadline))  # for the whole handshake
                secure.do_handshake()
            except BaseException:
                secure.close()
                raise
            return cast(socket.socket, secure)
        raise failed

    def _tls(self) -> ssl.SSLContext:
        with self._lock:
            if self._context is None:
                ca, certificate, key = self._pems
                try:
                    context = ssl.create_default_context(cafile=ca)
                    if ca is None:  # some Pythons do not find the system's authorities
                        context.load_verify_locations(certifi.where())
                    if certificate is not None:
                        # Never prompt for the password of a key.
                        context.load_cert_chain(certificate, key, password="")
                except (OSError, ValueError) as error:
                    raise StoreError(f"{self._server} cannot be used: {error}") from error
                context.sslsocket_class = _Secure
                self._context = context
            return self._context


def _close(lines: list[http.client.HTTPConnection]) -> None:
    while lines:
        lines.pop().close()


class _Plain(socket.socket):
    """A socket whose operations end by its deadline."""

    deadline = 0.0

    def recv_into(self, buffer: WriteableBuffer, nbytes: int = 0, flags: int = 0) -> int:
        self.settimeout(_require_time(self.deadline))
        return super().recv_into(buffer, nbytes, flags)

    def sendall(self, data: ReadableBuffer, flags: int = 0) -> None:
        self.settimeout(_require_time(self.deadline))  # for all data
        super().sendall(data, flags)


class _Secure(ssl.SSLSocket):
    """A TLS socket whose operations end by its deadline."""

    deadline = 0.0

    def recv_into(self, buffer: WriteableBuffer, nbytes: int | None = None, flags: int = 0) -> int:
        self.settimeout(_require_time(self.deadline))
        return super().recv_into(buffer, nbytes, flags)

    def send(self, data: ReadableBuffer, flags: int = 0) -> int:
        self.settimeout(_require_time(self.deadline))  # `sendall` calls this for each record
        return super().send(data, flags)


class _Names:
    """Looks up hosts in a limited number of threads, because a lookup cannot be cancelled."""

    def __init__(self) -> None:
        self._after_fork()
        reset_after_fork(self)

    def _after_fork(self) -> None:
        self._room = threading.BoundedSemaphore(_LOOKUPS)
        self._loading = SingleFlight[list[Any]]()  # one for all who wait for the same host

    def addresses(self, host: str, port: int, deadline: float) -> list[Any]:
        """Return the result of `getaddrinfo`; raise TimeoutError or StoreError."""
        try:
            ipaddress.ip_address(host)
        except ValueError:
            pass
        else:
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        room = self._room

        def work() -> list[Any]:
            if not room.acquire(blocking=False):
                raise StoreError(f"{host} is not resolved: {_LOOKUPS} name lookups still run")
            try:
                return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except OSError as error:
                raise StoreError(f"{host} cannot be reached: {error}") from error
            finally:
                room.release()

        found = self._loading.result((host, port), work, timeout=_require_time(deadline))
        if found is None:
            raise TimeoutError(f"the name {host} was not resolved in time")
        return found


_NAMES = _Names()


def _require_time(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("out of time")
    return left


def _has_data(sock: socket.socket) -> bool:
    """Return whether a connection has unexpected data, or was closed."""
    sock.settimeout(0)
    try:
        socket.socket.recv(sock, 1, socket.MSG_PEEK)  # below TLS
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _describe_error(error: Exception) -> str:
    if isinstance(error, http.client.HTTPException):
        return type(error).__name__
    return str(error.strerror or error)[:200] if isinstance(error, OSError) else "no answer"
