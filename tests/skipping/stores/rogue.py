"""Servers that are none: they say nothing, or never enough, or far too much.

python rogue.py BEHAVIOUR     prints the port of 127.0.0.1 that it listens on, until it is killed
"""

from __future__ import annotations

import contextlib
import gzip
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
DRIPS = {  # what it says at once, and then again and again, a little later
    "drips": (HEAD + b"content-length: 1000000\r\n\r\n", b" "),
    "drips headers": (b"HTTP/1.1 200 OK\r\nx: ", b"x"),
    "drips chunks": (HEAD + b"transfer-encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "continues": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
}
FLOODS = {  # the same without a pause
    "endless": (HEAD + b"\r\n[", b"1," * 500_000),
    "endless headers": (HEAD, b"x: y\r\n" * 10_000),
}
LATE = (*DRIPS, "silent", "mute handshake")


def whole(body: bytes, more: bytes = b"") -> bytes:
    length = str(len(body)).encode()
    return HEAD + more + b"content-length: " + length + b"\r\n\r\n" + body


ANSWERS: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "half": lambda: whole(b'{"half": ' + b" " * 90)[:-80],
    "huge": lambda: HEAD + b"content-length: 99999999999\r\n\r\n",
    "deep": lambda: whole(b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "wide": lambda: whole(b"[" + b"{}," * 4_100_000 + b"{}]"),
    "bomb": lambda: whole(gzip.compress(b"[" * 50_000_000), b"content-encoding: gzip\r\n"),
    "no json": lambda: whole(b"<p>!").replace(b"application/json", b"text/html"),
    "redirects": lambda: whole(b"", b"location: /again\r\n").replace(b"200 OK", b"307 Moved"),
    "other answer": lambda: whole(b"{}", b"x-opaque-id: another\r\n"),
    "list": lambda: whole(b"[]"),
    "object": lambda: whole(b"{}"),
}


def behave(line: socket.socket, how: str) -> None:
    if how == "mute handshake":  # whatever is said to it
        time.sleep(3600)
    line.recv(65_536)
    if how == "silent":
        time.sleep(3600)
    elif how == "resets":
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    elif how in ANSWERS:
        line.sendall(ANSWERS[how]())
        line.shutdown(socket.SHUT_WR)
        while line.recv(65_536):  # what was not read would be a reset
            pass
    else:
        record, piece = {**DRIPS, **FLOODS}[how]
        line.sendall(record)
        while True:
            line.sendall(piece)
            time.sleep(0.02 if how in DRIPS else 0)


def serve(line: socket.socket, how: str) -> None:
    with contextlib.suppress(OSError), line:
        behave(line, how)


@contextlib.contextmanager
def rogue(how: str) -> Iterator[str]:
    """Its `host:port`; a process of its own, so that this one has only what the client opens."""
    with subprocess.Popen([sys.executable, Path(__file__), how], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield f"127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


if __name__ == "__main__":
    listening = socket.create_server(("127.0.0.1", 0), backlog=256)
    print(listening.getsockname()[1], flush=True)
    while True:
        accepted, _ = listening.accept()
        threading.Thread(target=serve, args=(accepted, sys.argv[1]), daemon=True).start()
