"""Attacks on the service by writers of tables, by its clients, and by answers of its upstream."""

from __future__ import annotations

import json
import os
import random
import socket
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from skipping.catalog.storage import storage
from tests.conftest import RunPython
from tests.skipping.catalog.forged import (
    MANIFEST_LIST,
    Tables,
    avro,
    manifest,
    manifest_list,
    upstream,
)
from tests.skipping.catalog.running import Service, ask

pytestmark = [pytest.mark.process, pytest.mark.nightly]

PLAN = "/v1/namespaces/db/tables/{}/plan"
VICTIM = "victim-token-0123456789abcdef"
SECRET = "vended-secret-of-the-victim"


@contextmanager
def serving(
    tables: Tables, attack: Callable[[], Any], *options: str, **answers: Any
) -> Iterator[Service]:
    """A service whose caller `attacker` may load table `a`, as `attack` has it."""
    allowed = {"attacker": "a", VICTIM: "b"}
    victims = {**tables.loaded("b"), "config": {"s3.secret-access-key": SECRET}}
    with upstream({"a": attack, "b": lambda: victims}, allowed, **answers) as (uri, _):
        service = Service(uri, f"sqlite:{tables.folder / 'store.sqlite'}", *options)
        try:
            yield service
        finally:
            code, log = service.stop()
        assert code == 0, log
        assert VICTIM not in log


def plan(service: Service, table: str, token: str, body: Any = None) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}"}
    return ask(service.uri, "POST", PLAN.format(table), body or {}, headers)[:2]


def peak(service: Service) -> int:
    """The most memory that the service has had, in MiB."""
    status = Path(f"/proc/{service.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) >> 10


def test_a_length_beyond_its_block_returns_no_memory(tables: Tables) -> None:
    """In a decoder that does not check: the service's memory, or its end (SIGSEGV)."""
    source = random.Random(37)
    turns = iter(range(1, 100))
    folder = tables.place("a")

    def attack() -> Any:
        turn = next(turns)
        (folder / f"m{turn}.avro").write_bytes(manifest(lengths[turn - 1]))
        (folder / f"l{turn}.avro").write_bytes(manifest_list(f"file://{folder}/m{turn}.avro"))
        return tables.forged("a", f"file://{folder}/l{turn}.avro", 1000 + turn)

    lengths = [1, 200_000, 1 << 31, 1 << 62, -1, -(1 << 62)]
    lengths += [1 + source.randrange(1 << source.randrange(1, 62)) for _ in range(14)]
    with serving(tables, attack) as service:
        for length in lengths:
            assert plan(service, "b", VICTIM)[0] == 200
            status, said = plan(service, "a", "attacker")
            assert (status, said["error"]["type"]) == (500, "ServiceFailureException"), length
            assert "Avro" in said["error"]["message"]


def test_a_manifest_that_unpacks_to_more_than_memory(tables: Tables) -> None:
    packed = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = b"".join(packed.compress(bytes(1 << 24)) for _ in range(64)) + packed.flush()
    assert len(bomb) < 2 << 20
    path = tables.place("a") / "bomb.avro"
    path.write_bytes(avro(MANIFEST_LIST, bomb, codec="deflate"))
    attack = tables.forged("a", f"file://{path}", 8001)
    with serving(tables, lambda: attack, "--worker-memory", "200") as service:
        assert plan(service, "b", VICTIM)[0] == 200
        before = peak(service)
        status, said = plan(service, "a", "attacker")
        assert (status, "takes too much memory" in said["error"]["message"]) == (406, True)
        assert plan(service, "b", VICTIM)[0] == 200
        assert peak(service) - before < 50


@pytest.mark.parametrize("turn", ["..", ".\t.", ".\n.", "..\r", "%2e%2e", ".%09.", "..;x", "link"])
def test_manifests_of_another_table_are_not_read(tables: Tables, turn: str) -> None:
    """However the way there is spelled, and also over a symbolic link."""
    mine, theirs = tables.place("a"), tables.place("b")
    files = storage({}, tables.table("a").metadata_location, {})
    other = next(theirs.glob("snap-*.avro"))
    if turn == "link":
        (mine / "link").symlink_to(theirs)
        (mine / "file").symlink_to(other)
        named = [f"{mine}/link/{other.name}", f"{mine}/file"]
    else:
        named = [f"{mine.parent}/{turn}/b/metadata/{other.name}"]
    for location in named:
        with pytest.raises(PermissionError):
            list(files.read(f"file://{location}"))
    own = next(mine.glob("snap-*.avro"))
    assert b"".join(files.read(f"file://{own}")) == own.read_bytes()


def test_what_is_no_file_is_not_waited_for(tables: Tables) -> None:
    pipe = tables.place("a") / "pipe"
    os.mkfifo(pipe)
    files = storage({}, tables.table("a").metadata_location, {})
    for path in (pipe, pipe.parent):
        with pytest.raises((PermissionError, IsADirectoryError)):
            list(files.read(f"file://{path}"))


def test_metadata_that_takes_much_memory(tables: Tables) -> None:
    """As lists of nothing, which cost twenty times their text, and as many snapshots."""
    small = json.dumps(tables.loaded("a"))
    many = tables.loaded("a")
    one = dict(many["metadata"]["snapshots"][0])
    many["metadata"]["snapshots"] += [
        {**one, "snapshot-id": n, "parent-snapshot-id": n} for n in range(100_000)
    ]
    turns: list[Any] = [
        f'{small[:-1]},"x":[{",".join(["[]"] * 3_000_000)}]}}'.encode(),
        json.dumps(many).encode(),
        b'{"metadata":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    ]
    with serving(tables, lambda: turns[0], "--worker-memory", "100") as service:
        assert plan(service, "b", VICTIM)[0] == 200
        statuses = []
        while turns:
            status, said = plan(service, "a", "attacker")
            statuses.append(status)
            assert said["error"]["code"] == status
            turns.pop(0)
        # Native code that gets no memory ends its process, which then says nothing.
        assert statuses in ([406, 406, 502], [406, 500, 502])
        assert plan(service, "b", VICTIM)[0] == 200
        assert peak(service) < 700


def test_answers_of_the_catalog_that_are_not_as_they_should_be(tables: Tables) -> None:
    said = {"coding": "", "body": b""}

    def answer(handler: BaseHTTPRequestHandler) -> bool:
        if "/tables/a" not in handler.path:
            return False
        assert handler.headers["accept-encoding"] == "identity"
        body = said["body"]
        assert isinstance(body, bytes)
        handler.send_response(200)
        if said["coding"]:
            handler.send_header("Content-Encoding", str(said["coding"]))
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
        return True

    broken = tables.loaded("a")
    broken["metadata"]["schemas"] = 5
    with serving(tables, dict, answer=answer) as service:
        for coding, body, status in (
            ("gzip", zlib.compress(bytes(1 << 20), wbits=31), 502),
            ("zstd", b"zstd", 502),
            ("", b"<html/>", 502),
            ("", b"[]", 502),
            ("", b'{"metadata":{}}', 406),
            ("", b'{"metadata":{},"config":5,"storage-credentials":[5,{"prefix":7}]}', 406),
            ("", b'{"metadata":{},"metadata-location":"file:///x/\\ud800"}', 500),
            ("", json.dumps(broken).encode(), 500),
        ):
            said.update(coding=coding, body=body)
            found, error = plan(service, "a", "attacker")
            assert (found, error["error"]["code"]) == (status, status), body[:60]


def test_bodies_of_strangers_are_not_kept(tables: Tables) -> None:
    with serving(tables, lambda: tables.loaded("a")) as service:
        assert plan(service, "a", "attacker")[0] == 200
        before = peak(service)
        large = b'{"filter":"' + b"x" * (15 << 20) + b'"}'
        lines = []
        for _ in range(8):
            line = socket.create_connection((urlsplit(service.uri).hostname, service.port), 30)
            head = f"POST {PLAN.format('a')} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(large)}"
            line.sendall(head.encode() + b"\r\n\r\n" + large[:-1])
            lines.append(line)
        # All but the last byte of each is there by now.
        for line in lines:
            line.sendall(large[-1:])
            assert line.recv(12) == b"HTTP/1.1 403"
            line.close()
        # What is forwarded goes on as it comes.
        assert ask(service.uri, "POST", "/v1/namespaces", b"x" * (60 << 20))[0] == 200
        assert ask(service.uri, "POST", "/v1/namespaces", b"x" * (65 << 20))[0] == 413
        assert peak(service) - before < 60


def test_requests_that_two_servers_read_in_two_ways(tables: Tables) -> None:
    """Refused, and nothing after them on the connection is answered."""
    heads = (
        b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /v1/x HTTP/1.1\r\nHost: x\r\nConnection: x-forwarded-user\r\n"
        b"X-Forwarded-User: me\r\n\r\n",
        b"GET /v1/x HTTP/1.1\r\nHost: x\r\nConnection: close, Authorization\r\n\r\n",
        b"GET /v1/x HTTP/1.1\r\nHost: x\r\nAuthorization: a\r\nauthorization: b\r\n\r\n",
    )
    with serving(tables, dict) as service:
        for head in heads:
            line = socket.create_connection((urlsplit(service.uri).hostname, service.port), 30)
            line.sendall(head + b"GET /v1/smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
            said = b""
            while part := line.recv(1 << 16):
                said += part
            line.close()
            assert said.startswith(b"HTTP/1.1 400 "), head
            assert said.count(b"HTTP/1.1") == 1
            assert b'"BadRequestException"' in said


def test_half_of_a_pair_in_a_message(tables: Tables) -> None:
    """What the service repeats of a request may have no bytes in UTF-8."""
    with serving(tables, lambda: tables.loaded("a")) as service:
        status, said = plan(service, "a", "attacker", {"snapshot-id": "\ud800"})
    assert (status, said["error"]["type"]) == (400, "BadRequestException")


def test_memory_is_hidden_from_other_processes(run_python: RunPython) -> None:
    script = (
        "import ctypes; from skipping.catalog.memory import hide_memory; hide_memory();"
        "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"
    )
    assert run_python("-c", script).stdout == "0\n"
