"""Clients that load a table, plan and read without a pause, while things happen to the service."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType

import requests
from pyiceberg.exceptions import ServiceUnavailableError

from tests.skipping.catalog.running import FILES, ROWS, client, values

RETRIED = (requests.ConnectionError, ServiceUnavailableError)
"""What a client asks again for: PyIceberg leaves it to whoever calls, Java does it by itself."""


@dataclass(frozen=True)
class Query:
    """What went on, how long it took, how often it was begun, and what went wrong at last."""

    phase: str
    seconds: float
    attempts: int
    opened: int
    error: str = ""


class Load:
    """`clients` threads of PyIceberg, each asking one table for one row after the other.

    `with Load(uri, name) as load`; `load.phase` is what queries that begin are noted under.
    """

    def __init__(self, uri: str, name: str, clients: int = 3) -> None:
        self.phase = "calm"
        self.queries: list[Query] = []
        self._uri, self._name = uri, name
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(clients)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def during(self, phase: str, work: Callable[[], object], queries: int = 6) -> None:
        """Note queries under a phase while something happens, and until some more are done."""
        self.phase = phase
        work()
        after, deadline = len(self.queries), time.monotonic() + 60
        while len(self.queries) < after + queries and time.monotonic() < deadline:
            time.sleep(0.02)

    def _run(self, seed: int) -> None:
        source, catalog = random.Random(seed), None
        while not self._ended.is_set():
            phase, start, value = self.phase, time.perf_counter(), source.randrange(FILES * ROWS)
            opened = attempts = 0
            error = ""
            while attempts < 10:
                attempts += 1
                try:
                    catalog = catalog or client(self._uri)
                    scan = catalog.load_table(self._name).scan(f"h = {value}")
                    opened = len(list(scan.plan_files()))
                    found = values(scan.to_arrow())
                    error = "" if found == [value] else f"{value} gave {found}"
                    break
                except RETRIED as again:
                    error = repr(again)
                    time.sleep(0.1 * attempts)
                except Exception as wrong:
                    error = repr(wrong)
                    break
            seconds = time.perf_counter() - start
            self.queries.append(Query(phase, seconds, attempts, opened, error))


class Relay:
    """A port whose bytes go to another, `delay` seconds late; `with Relay(port) as relay`."""

    def __init__(self, port: int) -> None:
        self.delay = 0.0
        self._target = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._lines: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                self._lines += [near, far]
                for pair in ((near, far), (far, near)):
                    thread = threading.Thread(target=self._pass, args=pair, daemon=True)
                    self._threads.append(thread)
                    thread.start()

    def _pass(self, here: socket.socket, there: socket.socket) -> None:
        with suppress(OSError):
            while sent := here.recv(1 << 16):
                time.sleep(self.delay)
                there.sendall(sent)
            there.shutdown(socket.SHUT_WR)

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        for line in (self._listening, *self._lines):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()
        for thread in self._threads:
            thread.join()
