"""What is bounded: requests at a time, files in memory, what is read for whom."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import uvicorn
from anyio.to_thread import run_sync
from pyiceberg.expressions import AlwaysTrue
from starlette.applications import Starlette

from skipping import SkippingIndex
from skipping.catalog import connections, filters
from skipping.catalog.entries import Entries
from skipping.catalog.filters import Names, read_filter
from skipping.catalog.http import hash_payer
from skipping.catalog.indexes import Indexes
from skipping.catalog.limits import Limits
from skipping.catalog.service import application
from skipping.catalog.storage import Storage, storage
from skipping.catalog.upstream import Upstream, leads_out
from skipping.catalog.workers import Workers
from skipping.config.settings import Settings
from skipping.stores import IndexStore
from skipping.stores.memory.store import MemoryStore
from tests.rest_catalog import RestCatalog
from tests.skipping.catalog.conftest import Pool
from tests.skipping.catalog.forged import Tables
from tests.skipping.catalog.forged import upstream as forged_upstream
from tests.skipping.catalog.running import FILES, client, make, planned, rows_of
from tests.skipping.catalog.test_filters import metadata


@asynccontextmanager
async def calling(
    uri: str, *, connections: int, store: IndexStore | None = None, **given: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the service, which runs in this process in front of a catalog."""
    upstream = Upstream(uri, ca=None, connections=connections, timeout=30)
    indexes = Indexes(store or MemoryStore("none"), Settings())
    transport = httpx.ASGITransport(
        application(upstream, indexes, **given), client=("192.0.2.1", 1)
    )
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as caller:
        yield caller
    await upstream.close()


@contextmanager
def serving(listening: socket.socket, app: Starlette, **options: Any) -> Iterator[None]:
    """Run the service on a socket."""
    config = uvicorn.Config(app, http=connections.Protocol, log_level="error", **options)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: anyio.run(server.serve, [listening]))
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


def test_requests_at_a_time(behind: RestCatalog) -> None:
    """Those over the limit are told so, at once; the next ones are answered."""
    statuses: list[int] = []

    async def asked() -> None:
        async with calling(
            behind.uri, connections=4, limits=Limits(requests=8, of_one_client=2)
        ) as caller:

            async def one() -> None:
                statuses.append((await caller.get("/v1/config")).status_code)

            async with anyio.create_task_group() as group:
                for _ in range(6):
                    group.start_soon(one)
            assert sorted(statuses) == [200, 200, 503, 503, 503, 503]
            await one()
            assert statuses[-1] == 200

    anyio.run(asked)


def test_a_request_that_does_not_come(behind: RestCatalog) -> None:
    async def stuck() -> AsyncIterator[bytes]:
        yield b"{"
        await anyio.sleep(30)

    async def asked() -> None:
        async with calling(
            behind.uri, connections=1, limits=Limits(of_one_client=1, receiving=0.1)
        ) as caller:
            for _ in range(2):  # the place that it had is free again
                answer = await caller.post("/v1/namespaces", content=stuck())
                assert (answer.status_code, "took too long" in answer.text) == (408, True)

    anyio.run(asked)


def test_places_of_one_token(pool: Pool, tmp_path: Path) -> None:
    """Who adds headers, or spells the token in another way, gets no more places."""
    tables, workers = Tables(tmp_path), pool()
    reading, go = threading.Semaphore(0), threading.Event()
    answers: dict[str, int] = {}

    def slow(job: Any, do: str, *parts: bytes, seconds: Any = None) -> Any:
        if b"wait" in parts[0]:
            reading.release()
            assert go.wait(30)
        return Workers.ask(workers, job, do, b"{}", seconds=seconds)

    class Slow:
        start, close, ask = workers.start, workers.close, staticmethod(slow)

    async def asked(uri: str) -> None:
        made: Any = Slow()
        async with calling(uri, connections=9, workers=made, limits=Limits(waiting=20)) as caller:

            async def plan(token: str, body: bytes, **headers: str) -> None:
                headers["Authorization"] = token
                path = "/v1/namespaces/db/tables/a/plan"
                answer = await caller.post(path, content=body, headers=headers)
                answers[token + headers.get("X-N", "")] = answer.status_code

            async with anyio.create_task_group() as group:
                for n in range(6):
                    group.start_soon(partial(plan, "Bearer one", b'{"wait":1}', **{"X-N": str(n)}))
                for _ in range(2):
                    assert await run_sync(partial(reading.acquire, timeout=20))
                await plan("Bearer two", b"{}")
                assert not reading.acquire(blocking=False), "a third place of one token"
                go.set()

    try:
        said = lambda: tables.loaded("a")  # noqa: E731
        with forged_upstream({"a": said}, {"one": "a", "two": "a"}) as (uri, _):
            anyio.run(asked, uri)
    finally:
        go.set()
    assert set(answers.values()) == {200}
    assert len(answers) == 7
    spelled = (b"Bearer one", b"bearer  one ")
    assert len({hash_payer([(b"Authorization", each)], each) for each in spelled}) == 1


def test_answers_that_are_not_taken_are_held(pool: Pool, tmp_path: Path) -> None:
    """A plan counts for its client until the last byte is sent."""
    tables = Tables(tmp_path)

    async def asked(uri: str) -> None:
        async with calling(
            uri,
            connections=9,
            workers=pool(),
            limits=Limits(held_of_one_client=len(json.dumps(tables.loaded("a"))) + 600),
        ) as caller:
            path = "/v1/namespaces/db/tables/a/plan"
            headers = {"Authorization": "Bearer one"}
            many = await caller.post(path, content=b"{}", headers=headers)
            assert (many.status_code, "too many bytes" in many.text) == (503, True)
            none = json.dumps({"filter": {"type": "eq", "term": "k", "value": 9}})
            assert (await caller.post(path, content=none, headers=headers)).status_code == 200

    with forged_upstream({"a": lambda: tables.loaded("a")}, {"one": "a"}) as (uri, _):
        anyio.run(asked, uri)


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("/v1/namespaces/a%1Fb/tables/t..x", True),
        ("/v1/namespaces/a/tables/t%2Fu", True),
        ("/v1/../x", False),
        ("/v1/%2e%2E/x", False),
        ("/v1/..%2fx", False),
        ("/v1/%252e%252e/x", False),
        ("/v1/..;a=b/x", False),
        ("/v1/..\\x", False),
    ],
)
def test_paths_that_lead_out(path: str, is_one: bool) -> None:
    """However whoever stands before the catalog unquotes them."""
    assert leads_out(path.encode()) != is_one


def test_files_in_memory(behind: RestCatalog) -> None:
    """The last used stay, as many as may; one snapshot alone may be greater."""
    table = make(client(behind.uri), "db.kept").table
    for n in range(2):
        table.append(rows_of(n))
    snapshots = [s for s in table.metadata.snapshots if s.manifest_list][-3:]
    files = storage({}, table.metadata_location, {})

    def read(locations: Sequence[str]) -> Iterator[bytes]:
        return (b"".join(files.read(each)) for each in locations)

    entries = Entries(read, 2 * (FILES + 3))
    first, second, third = (partial(entries.files, table.metadata, each) for each in snapshots)
    held = first()
    assert len(held) == FILES
    assert first() is held
    assert len(second()) == FILES + 1
    assert first() is held
    assert len(third()) == FILES + 2
    second()
    assert first() is not held
    small = Entries(read, 1)
    held = small.files(table.metadata, snapshots[0])
    assert small.files(table.metadata, snapshots[0]) is held


def test_manifests_that_cannot_be_read(behind: RestCatalog, service: Any) -> None:
    made = make(client(behind.uri), "db.broken")
    snapshot = made.table.current_snapshot()
    assert snapshot is not None
    Path(snapshot.manifest_list.split(":")[-1]).write_bytes(b"garbage")
    with pytest.raises(Exception, match=f"manifests of snapshot {snapshot.snapshot_id}"):
        planned(client(service.uri).load_table(made.name))


def test_storage_is_the_callers(tmp_path: Path) -> None:
    said = {
        "config": {"s3.region": "eu", "s3.access-key-id": "k", "py-io-impl": "os.Evil"},
        "storage-credentials": [
            {"prefix": "s3://b", "config": {"s3.session-token": "short"}},
            {"prefix": "s3://b/w", "config": {"s3.session-token": "long", "s3.endpoint": "e"}},
            {"prefix": "s3://other", "config": {"s3.session-token": "other"}},
        ],
    }
    made = storage(said, "s3://b/w/t/metadata.json", {"s3.region": "us", "s3.proxy-uri": "p"})
    assert made._config["s3.session-token"] == "long"
    assert "py-io-impl" not in made._config
    place = {"s3.region": "eu", "s3.endpoint": "e", "s3.proxy-uri": "p", "own": "False"}
    assert dict(made.place[1:]) == place
    file = tmp_path / "here"
    file.write_bytes(b"x")
    for location in (str(file), f"file://{file}", f"FILE:{file}"):
        with pytest.raises(PermissionError):
            next(made.read(location))
    local = storage({}, f"file://{tmp_path}/metadata/1.json", {})
    for location in (str(file), f"file:{file}", f"file://{file}"):
        assert list(local.read(location)) == [b"x"]
    others = (f"{tmp_path}s/f", f"{tmp_path}/../f", f"file:///{tmp_path.parent}/f", "s3://b/f")
    for location in others:
        assert not local.may_read(location)
        with pytest.raises(PermissionError):
            next(local.read(location))
    for given, is_own in (
        ({"token": "t", "s3.signer.uri": "u"}, True),  # nothing that a reader would use
        ({"s3.access-key-id": "k", "s3.secret-access-key": "s"}, False),
        ({"gcs.oauth2.token": "t"}, True),  # of another storage
    ):
        vended = storage({"config": given}, "s3://b/w/t/metadata/1.metadata.json", {})
        assert vended.may_read("s3a://b/w/t/metadata/snap.avro")
        assert vended.may_read("s3://b/w/t2/metadata/snap.avro") != is_own
        assert not vended.may_read("gs://b/w/t/metadata/snap.avro")
    assert not storage({}, "s3://b/1.json", {}).may_read("s3://b/snap.avro")  # a whole bucket


def test_values_of_a_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "_MOST", 140 + filters._LEAF)
    many = {"type": "in", "term": "k", "values": list(range(100))}
    both = {"type": "or", "left": many, "right": many}
    names = Names(metadata())
    assert read_filter(many, names).understood
    leaf = {"type": "eq", "term": "k", "value": 1}
    conditions = {"type": "or", "left": leaf, "right": {"type": "or", "left": leaf, "right": leaf}}
    assert read_filter(conditions, names).understood
    assert not read_filter({"type": "and", "left": conditions, "right": leaf}, names).understood
    assert not read_filter(both, names).understood
    assert read_filter(both, names).rows == AlwaysTrue()


@pytest.mark.parametrize("coding", ["identity", "gzip"])
def test_metadata_that_is_too_large_goes_to_the_client(behind: RestCatalog, coding: str) -> None:
    """As it is behind; who asks for a plan all the same is told to plan."""
    make(client(behind.uri), f"db.large_{coding}")
    path = f"/v1/namespaces/db/tables/large_{coding}"

    async def asked() -> None:
        async with calling(behind.uri, connections=1, limits=Limits(metadata=3_000)) as caller:
            headers = {"Accept-Encoding": coding}
            for _ in range(3):  # by the one connection that there is: it is given back
                loaded = await caller.get(path, headers=headers)
                assert loaded.json() == httpx.get(behind.uri + path).json()
                plan = await caller.post(f"{path}/plan", json={}, headers=headers)
                assert (plan.status_code, "expire snapshots" in plan.text) == (406, True)

    anyio.run(asked)


def test_load_table_with_many_references_is_checked_beside_the_event_loop(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the few manifest lists that 100,000 tags name is checked once, in another thread."""
    tables, store = Tables(tmp_path), MemoryStore("references")
    SkippingIndex.create(tables.table("a"), "k VALUE_LIST", store=store)
    loaded = tables.loaded("a")
    snapshots = loaded["metadata"]["snapshots"]
    loaded["metadata"]["refs"] |= {
        f"tag{n}": {"snapshot-id": snapshots[n % len(snapshots)]["snapshot-id"], "type": "tag"}
        for n in range(100_000)
    }
    checked: list[tuple[str, int]] = []
    may_read = Storage.may_read

    def recorded(self: Storage, location: str) -> bool:
        checked.append((location, threading.get_ident()))
        return may_read(self, location)

    monkeypatch.setattr(Storage, "may_read", recorded)
    monkeypatch.setattr("skipping.catalog.service._MODE_SECONDS", 300)  # of a busy machine

    async def load(uri: str) -> int:
        async with calling(uri, connections=4, store=store, workers=pool()) as caller:
            headers = {"Authorization": "Bearer one"}
            answer = await caller.get("/v1/namespaces/db/tables/a", headers=headers, timeout=300)
            config = answer.json()["config"]
            assert (answer.status_code, config["scan-planning-mode"]) == (200, "server")
        return threading.get_ident()

    with forged_upstream({"a": lambda: loaded}, {"one": "a"}) as (uri, _):
        loop = anyio.run(load, uri)
    assert sorted(location for location, _ in checked) == sorted(
        snapshot["manifest-list"] for snapshot in snapshots
    )
    assert loop not in {thread for _, thread in checked}


@pytest.mark.parametrize("sent", [b"", b"GET /v1/config HTTP/1.1\r\nhost: x\r\n", b"G"])
def test_connections_that_ask_nothing_are_closed(
    behind: RestCatalog, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """Also after a request that was answered; who asks in time is not disturbed."""
    monkeypatch.setattr(connections, "_ASKING", 0.5)
    upstream = Upstream(behind.uri, ca=None, connections=4, timeout=30)
    indexes = Indexes(MemoryStore("idle"), Settings())
    app = application(upstream, indexes)
    with socket.create_server(("127.0.0.1", 0)) as listening, serving(listening, app):
        for before in (b"", b"HEAD /v1/config HTTP/1.1\r\nhost: x\r\n\r\n"):
            if before and not sent:
                continue  # that is uvicorn's own, of `timeout_keep_alive`
            with socket.create_connection(listening.getsockname(), timeout=20) as line:
                if before:
                    time.sleep(0.3)
                    line.sendall(before)
                    assert line.recv(1 << 16).startswith(b"HTTP/1.1 ")
                line.sendall(sent)
                begun = time.monotonic()
                assert line.recv(1) == b"", "closed"
                assert 0.1 < time.monotonic() - begun < 10


def test_idle_connections_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one client for each other; and, where there are too many in all, the oldest."""
    monkeypatch.setattr(connections, "_OF_ONE_CLIENT", 6)
    indexes = Indexes(MemoryStore("idle"), Settings())

    def connect(host: int) -> socket.socket:
        source = (f"127.0.0.{host}", 0)
        return socket.create_connection(listening.getsockname(), 20, source_address=source)

    def is_served(host: int) -> bool:
        with connect(host) as line:
            line.sendall(b"GET /v1/config HTTP/1.1\r\nhost: x\r\n\r\n")
            return line.recv(1 << 16).startswith(b"HTTP/1.1 200")

    with socket.create_server(("127.0.0.1", 0)) as listening, forged_upstream({}, {}) as (uri, _):
        app = application(Upstream(uri, ca=None, connections=4, timeout=30), indexes)
        with serving(listening, app, limit_concurrency=20), ExitStack() as lines:
            first, *_ = [lines.enter_context(connect(1)) for _ in range(40)]
            assert is_served(2)
            assert is_served(1), "also for who has too many"
            assert first.recv(1) == b"", "the oldest is closed"
            for host in range(3, 10):
                for _ in range(6):
                    lines.enter_context(connect(host))
            assert is_served(20)
