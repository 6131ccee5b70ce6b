"""Servers that drip, hang, stall, flood or lie: who asks learns of it in time."""

from __future__ import annotations

import gc
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import psutil
import pytest

from providers.errors import StoreError
from skipping.stores.opensearch import http as opensearch_http
from skipping.stores.opensearch import limits
from skipping.stores.opensearch.circuit_breaker import CircuitBreaker
from skipping.stores.opensearch.client import Client
from skipping.stores.opensearch.credentials import Access
from skipping.stores.opensearch.http import Wire
from skipping.stores.opensearch.store import OpenSearchStore
from tests.skipping.stores.rogue import LATE, rogue

pytestmark = pytest.mark.nightly

SLACK = 1.0  # seconds, on a machine that is busy with other tests


def hold_response(address: str) -> int:
    """Sockets of this process to a server."""
    gc.collect()
    port = int(address.rpartition(":")[2])
    connections = psutil.Process().net_connections("tcp")
    return sum(bool(c.raddr) and c.raddr.port == port for c in connections)


def wire(address: str, scheme: str = "http") -> Wire:
    return Wire(f"{scheme}://{address}", ca=None, certificate=None, key=None)


def query_store(line: Wire, seconds: float) -> float:
    """Seconds that an exchange took in vain."""
    began = time.monotonic()
    with pytest.raises(StoreError):
        line.exchange("GET", "/x", None, {}, deadline=began + seconds)
    return time.monotonic() - began


@pytest.mark.parametrize("how", LATE)
def test_an_exchange_ends_by_its_deadline(how: str) -> None:
    with rogue(how) as address:
        line = wire(address, "https" if how == "mute handshake" else "http")
        query_store(line, 0.1)
        before = hold_response(address)
        for _ in range(8):
            assert 0.1 <= query_store(line, 0.1) < 0.1 + SLACK
        assert hold_response(address) <= before


WRONG = {
    "endless": "more than 64 MB",
    "endless headers": "cannot be reached",
    "resets": "cannot be reached",
    "nothing": "cannot be reached",
    "half": "cannot be reached",
    "huge": "more than 64 MB",
    "deep": "other than JSON",
    "wide": "more than 4,000,000 objects",
    "bomb": "encoding that was not requested",
    "no json": "other than JSON",
    "redirects": "answered 307",
    "other answer": "another request",
    "list": "other than a JSON object",
    "object": "without a search result",
}


@pytest.mark.parametrize("how", WRONG)
def test_an_answer_that_is_none(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RESPONSE", 64 << 20)
    with rogue(how) as address:
        client = Client(f"http://{address}", Access(), patience=20)

        def ask() -> None:
            with pytest.raises(StoreError, match=WRONG[how]):
                client.search("x", {})

        ask()
        before = hold_response(address)
        ask()
        assert hold_response(address) <= before


@pytest.mark.parametrize("how", ["drips", "silent", "drips headers", "endless", "resets"])
def test_two_hundred_questions_do_not_each_wait(how: str) -> None:
    with rogue(how) as address:
        store = OpenSearchStore(f"http://{address}", Access(), patience=5)

        def ask(_: int) -> float:
            began = time.monotonic()
            with pytest.raises(StoreError):
                store.definitions(timeout=0.4)
            return time.monotonic() - began

        ask(0)
        before = hold_response(address)
        began = time.monotonic()
        with ThreadPoolExecutor(8) as pool:
            assert max(pool.map(ask, range(200))) < 0.4 + SLACK
        assert time.monotonic() - began < 12  # 10 s in turns of eight, were each to wait
        assert hold_response(address) <= before


def test_more_questions_than_connections_wait_no_longer() -> None:
    with rogue("silent") as address:
        line = wire(address)
        with ThreadPoolExecutor(40) as pool:
            took = list(pool.map(lambda _: query_store(line, 0.5), range(40)))
        assert max(took) < 0.5 + SLACK


def test_a_name_that_is_never_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    real = socket.getaddrinfo

    def stalls(host: str, *more: Any, **named: Any) -> Any:
        if host.startswith("stalls"):
            go.wait(30)
            raise socket.gaierror("not found")
        return real(host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", stalls)
    before = threading.active_count()
    try:
        lines = [wire(f"stalls{n}.example:9") for n in range(20)]
        took = [query_store(line, 0.05) for line in [*lines, *lines]]
        assert max(took) < 0.05 + SLACK
        assert threading.active_count() <= before + opensearch_http._LOOKUPS
        with pytest.raises(StoreError, match="name lookups still run"):
            lines[-1].exchange("GET", "/x", None, {}, deadline=time.monotonic() + 5)
    finally:
        go.set()
    with pytest.raises(StoreError, match="cannot be reached"):
        lines[0].exchange("GET", "/x", None, {}, deadline=time.monotonic() + 5)


def move_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """What moves the clock on."""
    now = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def move(seconds: float) -> None:
        now[0] += seconds

    return move


def test_pauses_grow_and_one_question_goes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    move = move_clock(monkeypatch)
    breaker = CircuitBreaker("http://host")
    waited = []
    for _ in range(7):
        breaker.admit(2)
        began = time.monotonic()
        with (
            pytest.raises(StoreError, match="next request is sent in") if waited else nullcontext()
        ):
            breaker.admit(2)  # another, while the first is under way
        move(2)
        breaker.record_failure(began)
        breaker.record_failure(began)  # one that was asked with it
        pause = 0.0
        while True:
            try:
                breaker.admit(0)
                break
            except StoreError:
                move(0.5)
                pause += 0.5
        waited.append(pause)
        breaker._until = 0.0
    assert waited == [1, 2, 4, 8, 16, 30, 30]
    breaker.record_answer()
    breaker.admit(2)
    breaker.admit(2)


def test_a_store_that_answers_others_does_not_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    move = move_clock(monkeypatch)
    breaker = CircuitBreaker("http://host")
    began = time.monotonic()
    move(1)
    breaker.record_answer()
    move(1)
    breaker.record_failure(began)
    breaker.admit(2)
