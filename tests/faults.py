"""A proxy before an HTTP server that delays, counts and spoils requests as networks do."""

from __future__ import annotations

import http.client
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, TypeAlias

__all__ = ["FAULTS", "Fault", "Proxy", "proxy", "some"]

Fault = Literal["refused", "conflict", "not sent", "lost", "answered 500", "cut", "late"]
"""`refused` is 503 and `conflict` is 409, without the request being run; `not sent` closes the
connection before, `lost` after it is run; `answered 500` runs it, too; `cut` ends the response
halfway, `late` gives it after `Proxy.late` seconds."""

Headers: TypeAlias = list[tuple[str, str]]
FAULTS: tuple[Fault, ...] = ("refused", "conflict", "not sent", "lost", "answered 500", "cut")
_OWN = {"connection", "keep-alive", "transfer-encoding"}  # headers of this connection
_TIME = re.compile(rb"(?<=<LastModified>)[^<]+")


@dataclass
class Proxy:
    """A running proxy; change its fields at any time.

    `choose` gets the method and the path of a request, and returns the fault to make, or None.
    """

    port: int
    delay: float = 0.0
    late: float = 0.0
    skew: timedelta = timedelta()
    choose: Callable[[str, str], Fault | None] = lambda method, path: None
    requests: list[str] = field(default_factory=list)
    made: list[Fault] = field(default_factory=list)


def some(share: float, faults: tuple[Fault, ...] = FAULTS) -> Callable[[str, str], Fault | None]:
    """Return a choice that spoils this share of all requests; only a PUT can conflict."""
    drawn, lock = random.Random(7), threading.Lock()

    def choose(method: str, path: str) -> Fault | None:
        with lock:
            if drawn.random() >= share:
                return None
            fault = drawn.choice(faults)
        return "refused" if fault == "conflict" and method != "PUT" else fault

    return choose


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = port
        self.proxy = Proxy(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # the client is gone


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.proxy = self.server.proxy
        self.behind = http.client.HTTPConnection("127.0.0.1", self.server.behind, timeout=60)

    def finish(self) -> None:
        self.behind.close()
        super().finish()

    def log_message(self, *args: Any) -> None:
        pass

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.proxy.requests.append(f"{self.command} {self.path}")
        time.sleep(self.proxy.delay)
        fault = self.proxy.choose(self.command, self.path)
        if fault is not None:
            self.proxy.made.append(fault)
        if fault in ("refused", "conflict"):
            self.respond(503 if fault == "refused" else 409, [], b"")
        elif fault != "not sent":
            status, headers, found = self.forward(body)
            if fault == "late":
                time.sleep(self.proxy.late)
            if fault == "answered 500":
                self.respond(500, [], b"")
            elif fault != "lost":
                self.respond(status, headers, found, cut=fault == "cut")
        if fault in ("not sent", "lost", "cut"):
            self.close_connection = True

    def respond(self, status: int, headers: Headers, found: bytes, *, cut: bool = False) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("content-length", str(len(found)))
        self.end_headers()
        self.wfile.write(found[: len(found) // 2] if cut else found)

    def forward(self, body: bytes) -> tuple[int, Headers, bytes]:
        # The signature includes the header Host, so all headers are passed on as they are.
        self.behind.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            self.behind.putheader(name, value)
        self.behind.endheaders(body)
        response = self.behind.getresponse()
        found, headers = response.read(), response.getheaders()
        if skew := self.proxy.skew:
            headers = [(name, _shift_header(name, value, skew)) for name, value in headers]
            found = _TIME.sub(lambda match: _shift(match[0], skew), found)
        own = _OWN if self.command == "HEAD" else {*_OWN, "content-length"}
        return response.status, [each for each in headers if each[0].lower() not in own], found

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer


def _shift(text: bytes, skew: timedelta) -> bytes:
    moved = datetime.fromisoformat(text.decode().replace("Z", "+00:00")) + skew
    return moved.strftime("%Y-%m-%dT%H:%M:%S.000Z").encode()


def _shift_header(name: str, value: str, skew: timedelta) -> str:
    if name.lower() not in ("date", "last-modified"):
        return value
    return format_datetime(parsedate_to_datetime(value) + skew, usegmt=True)


@contextmanager
def proxy(port: int) -> Iterator[Proxy]:
    """Run a proxy before the server at a port of this machine."""
    with _Server(port) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.proxy
        finally:
            server.shutdown()
            thread.join()
