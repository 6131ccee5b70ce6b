"""A front before an OpenSearch node that can do to answers what clusters and networks do."""

from __future__ import annotations

import json
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Request:
    method: str
    path: str
    body: bytes
    headers: dict[str, str]


@dataclass
class Answer:
    status: int
    body: Any


Rule = Callable[[Request, Callable[[bytes], Answer]], Answer | None]
"""What to answer, given a request and how to forward a body; None: nothing, the line is cut."""


def forward(request: Request, to_node: Callable[[bytes], Answer]) -> Answer:
    return to_node(request.body)


def refuse(answer: Answer, words: bytes = b"") -> Rule:
    """A rule that answers requests with these words in the path or body so."""

    def rule(request: Request, to_node: Callable[[bytes], Answer]) -> Answer:
        named = words in request.path.encode() + request.body
        return answer if named else to_node(request.body)

    return rule


def alter(change: Callable[[Any], object], words: bytes = b"scripted_metric") -> Rule:
    """A rule that changes the answers to requests with these words in the path or body."""

    def rule(request: Request, to_node: Callable[[bytes], Answer]) -> Answer:
        answer = to_node(request.body)
        if words in request.path.encode() + request.body:
            change(answer.body)
        return answer

    return rule


@dataclass
class Front:
    """`address` is its `host:port`; `rule` may be changed at any time."""

    address: str
    rule: Rule = forward
    seen: list[Request] = field(default_factory=list)


@contextmanager
def front(node: str, *, tls: ssl.SSLContext | None = None) -> Iterator[Front]:
    """A front before the node at `host:port`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            pass

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            request = Request(self.command, self.path, body, dict(self.headers.items()))
            made.seen.append(request)
            answer = made.rule(request, lambda sent: _ask(node, request, sent))
            if answer is None:
                self.close_connection = True
                return
            text = json.dumps(answer.body).encode()
            self.send_response(answer.status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_PUT = do_POST = do_DELETE = answer

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # who asked is gone, or did not like the certificate

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    made = Front(f"127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _ask(node: str, request: Request, body: bytes) -> Answer:
    asked = urllib.request.Request(
        f"http://{node}{request.path}",
        data=body or None,
        method=request.method,
        headers={"content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(asked, timeout=60) as response:
            return Answer(response.status, json.load(response))
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, json.load(error))
