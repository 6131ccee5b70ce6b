"""Worker processes: what they have, when they end, and what is believed of what they send."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import random
import re
import socket
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.avro.file import AvroFile
from pyiceberg.expressions.visitors import bind
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import MANIFEST_ENTRY_SCHEMAS, DataFile, ManifestEntry
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from providers.predicate import Predicate, Unknown
from skipping.catalog.avro import Decoder, read_records
from skipping.catalog.bounded import TooManyParts, read_json
from skipping.catalog.errors import Refused
from skipping.catalog.filters import read_filter
from skipping.catalog.messages import Channel, Ended
from skipping.catalog.plan import Contents
from skipping.catalog.predicates import read_predicate, write_predicate
from skipping.catalog.storage import storage
from skipping.catalog.workers import Bounds, Job, Workers, _Starter, check_tasks
from skipping.filters.pyiceberg import translate_pyiceberg
from tests.skipping.catalog.conftest import Pool
from tests.skipping.catalog.forged import Tables, manifest, manifest_list

TASKS = {"data-file": {"content": "data", "file-path": "f"}}


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SKIPPING_OPENSEARCH_PASSWORD", "secret-of-the-service")
        made = Workers(Bounds(workers=3, of_one_caller=2, seconds=30, idle=600))
        made.start()
    yield made
    made.close()


def job(tables: Tables, caller: str = "me", table: str = "a", **changed: Any) -> Job:
    said = tables.loaded(table, **changed)
    text = json.dumps(said["metadata"]).encode()
    files = storage(said, said["metadata-location"], {})
    version = hashlib.sha256(text).hexdigest()
    return Job(caller, table, text, version, files.read, lambda _: None)


def tasks(workers: Workers, job: Job) -> int:
    _, (made, *_) = workers.ask(job, "plan", b"{}")
    return len(json.loads(check_tasks(made))["file-scan-tasks"])


def processes(workers: Workers) -> list[int]:
    """The workers, newest last."""
    assert workers._starter is not None
    starter = workers._starter._process.pid
    return sorted(map(int, Path(f"/proc/{starter}/task/{starter}/children").read_text().split()))


def until(holds: Any) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


TAKEN_OVER = """
import ctypes, os, resource, socket, sys, time
from skipping.catalog import worker

def attempt(act):
    try:
        act()
    except OSError as error:
        return type(error).__name__
    return "done"

class TakenOver:
    def __init__(self, channel, **_):
        self.channel = channel

    def serve(self):
        self.channel.receive(deadline=time.monotonic() + 30)
        limits = ("NOFILE", "FSIZE", "CORE", "AS")
        said = {
            "environment": sorted(os.environ),
            "open": [n for n in range(256) if attempt(lambda: os.fstat(n)) == "done"],
            "limits": {n: resource.getrlimit(getattr(resource, f"RLIMIT_{n}"))[1] for n in limits},
            "dumpable": ctypes.CDLL(None).prctl(3, 0, 0, 0, 0),
        }
        os.close(0)
        said["acts"] = [attempt(lambda: os.open("/", os.O_RDONLY)), attempt(socket.socket)]
        self.channel.send(said, deadline=time.monotonic() + 30)

worker.Worker = TakenOver
worker.main()
"""


@pytest.mark.process
def test_worker_has_nothing_to_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever code runs in it: no environment, no file or socket, not even in place of another."""
    monkeypatch.setenv("SKIPPING_OPENSEARCH_PASSWORD", "secret-of-the-service")
    start = f"import sys; sys.path[:] = sys.argv[1:]\n{TAKEN_OVER}"
    monkeypatch.setattr("skipping.catalog.workers._START", start)
    starter = _Starter()
    try:
        bounds = {"memory": 2 << 30, "files": 1, "page": 1, "idle": 30}
        channel = Channel(starter.fork({"start": 1, **bounds}), 0)
        channel.send({}, deadline=time.monotonic() + 30)
        said, _ = channel.receive(deadline=time.monotonic() + 30)
    finally:
        starter.close()
    assert {"SKIPPING_OPENSEARCH_PASSWORD", "HOME"}.isdisjoint(said["environment"])
    assert said["open"] == [0, 1, 2, 3]
    assert said["limits"].pop("AS") > 2 << 30
    assert set(said["limits"].values()) == {0}
    assert said["dumpable"] == 0, "other workers could read its memory"
    assert said["acts"] == ["OSError", "OSError"]


def test_worker_serves_one_caller_and_table(workers: Workers, tables: Tables) -> None:
    """Those of a caller make room for each other, and all for a new caller."""
    assert tasks(workers, job(tables, "first", "a")) == 2
    (first,) = {*processes(workers)[-1:]}
    assert tasks(workers, job(tables, "first", "a")) == 2
    assert processes(workers)[-1] == first
    tasks(workers, job(tables, "second", "a"))
    assert first in processes(workers)
    assert processes(workers)[-1] != first
    tasks(workers, job(tables, "second", "b"))
    assert first in processes(workers)
    tasks(workers, job(tables, "third", "a"))
    until(lambda: first not in processes(workers))
    assert len(processes(workers)) == 3


def test_worker_of_a_caller_makes_room_where_all_are_taken(pool: Pool, tables: Tables) -> None:
    """One worker ends, though both its caller and all together have as many as they may."""
    made = pool(workers=4, of_one_caller=2)
    for caller in ("first", "second"):
        for table in ("a", "b"):
            tasks(made, job(tables, caller, table))
    third = replace(job(tables, "first"), table="a third")
    assert tasks(made, third) == 2
    assert len(made._workers) == 4
    assert tasks(made, third) == 2


def kill_starter(made: Workers) -> None:
    assert made._starter is not None
    made._starter._process.kill()
    made._starter._process.wait()


def test_idle_workers_of_a_starter_that_died_are_forgotten(pool: Pool, tables: Tables) -> None:
    made = pool(idle=5.1)
    for caller in ("first", "second"):
        tasks(made, job(tables, caller))
    kill_starter(made)
    time.sleep(0.2)
    assert tasks(made, job(tables, "third")) == 2


def test_worker_plans_with_values_of_every_type(workers: Workers, tables: Tables) -> None:
    """What Python would import late, it cannot import any more in a worker."""
    types = (
        *(BooleanType(), IntegerType(), LongType(), FloatType(), DoubleType(), DecimalType(9, 3)),
        *(DateType(), TimeType(), TimestampType(), TimestamptzType(), StringType(), UUIDType()),
        *(FixedType(2), BinaryType()),
    )
    fields = [NestedField(n, f"c{n}", type) for n, type in enumerate(types, 1)]
    parts = (PartitionField(n, 1000 + n, IdentityTransform(), f"p{n}") for n in (6, 7, 9, 13, 14))
    day, at = datetime.date(2020, 2, 3), datetime.datetime(2020, 2, 3, 4, 5)
    row: dict[str, Any] = {
        f.name: value
        for f, value in zip(
            fields,
            (
                *(True, 7, 2**40, 0.5, 1 / 3, Decimal("1.125")),
                *(day, at.time(), at, at.replace(tzinfo=datetime.timezone.utc), "é", b"u" * 16),
                *(b"ab", b"\x00\xff"),
            ),
            strict=True,
        )
    }
    schema = Schema(*fields)
    table = tables.catalog.create_table("db.types", schema, partition_spec=PartitionSpec(*parts))
    table.append(pa.Table.from_pylist([row], schema_to_pyarrow(schema, include_field_ids=False)))
    asked = job(tables, "types", "types")
    days = ("c7", "c8", "c9", "c10")
    literals = {
        **{name: row[name].isoformat() for name in days},
        **{name: row[name].hex() for name in ("c13", "c14")},
        "c6": str(row["c6"]),
        "c12": str(uuid.UUID(bytes=row["c12"])),
    }
    for name, value in {**row, **literals}.items():
        for type in ("eq", "lt", "not-eq", "starts-with", "is-null"):
            filter = {"type": type, "term": name, "value": value}
            if type == "starts-with" and name in ("c6", "c7", "c9"):
                continue  # partitions, which are not compared so: these go to the client
            try:
                _, (made, *_) = workers.ask(asked, "plan", json.dumps({"filter": filter}).encode())
            except Refused as refused:
                raise AssertionError((filter, refused.message)) from refused
            found = json.loads(check_tasks(made))["file-scan-tasks"]
            assert len(found) == 1 or type != "eq", filter


def test_worker_reads_every_codec(workers: Workers, tables: Tables) -> None:
    """What decompresses a manifest is there before a worker may open no more files."""
    (path, *_) = tables.place("a").glob("*-m0.avro")
    plain = job(tables)
    for turn, codec in enumerate(("null", "deflate", "zstandard", "bzip2"), 1):
        listed = manifest_list(f"file://{path}", codec=codec)

        def read(location: str, content: bytes = listed) -> Iterator[bytes]:
            return iter([content]) if "snap-" in location else plain.read(location)

        each = Job("codecs", "a", renumbered(tables, turn), codec, read, plain.find)
        assert tasks(workers, each) == 1, codec


def test_error_amid_files_leaves_nothing_for_the_next_request(
    workers: Workers, tables: Tables
) -> None:
    """Files that were read ahead for a request that failed are not taken for its successor's."""
    (path, *_) = tables.place("a").glob("*-m0.avro")
    plain = job(tables)
    for turn in range(6):
        forged = [f"file://{path}"] * 12
        forged[turn] = f"file://{path.parent}/{turn}/forged"
        listed = manifest_list(*(forged if turn % 2 == 0 else [f"file://{path}"] * turn))

        def read(location: str, content: bytes = listed) -> Iterator[bytes]:
            if "snap-" in location:
                return iter([content])
            return iter([b"Obj" * 100_000]) if "forged" in location else plain.read(location)

        text = renumbered(tables, 100 + turn)
        each = Job("amid", "a", text, f"amid {turn}", read, plain.find)
        if turn % 2:
            assert tasks(workers, each) == turn
        else:
            with pytest.raises(Refused, match="manifests of snapshot"):
                tasks(workers, each)


def test_worker_that_died_is_replaced(workers: Workers, tables: Tables) -> None:
    """Idle or during a request, for example because the machine runs out of memory."""
    asked = job(tables, "unlucky")
    tasks(workers, asked)
    os.kill(processes(workers)[-1], 9)
    assert tasks(workers, asked) == 2
    changed = job(tables, "unlucky", **{"last-updated-ms": 1})

    def find(_: Any) -> None:
        killed.append(processes(workers)[-1])
        os.kill(killed[-1], 9 if len(killed) == 1 else 0)

    killed: list[int] = []
    filtered = {"filter": {"type": "eq", "term": "k", "value": 1}}
    _, (made, *_) = workers.ask(replace(changed, find=find), "plan", json.dumps(filtered).encode())
    assert len(json.loads(check_tasks(made))["file-scan-tasks"]) == 1
    assert len({*killed}) == 2


def test_new_worker_that_dies_is_an_error(workers: Workers, tables: Tables) -> None:
    """It may be the metadata that ends it, so another worker is not tried."""
    asked = job(tables, "attacker")
    killed: list[int] = []

    def read(_: str) -> Iterator[bytes]:
        killed.append(processes(workers)[-1])
        os.kill(killed[-1], 9)
        yield b""

    with pytest.raises(Refused, match="ended") as refused:
        tasks(workers, replace(asked, read=read))
    assert (refused.value.status, len(killed)) == (500, 1)
    assert tasks(workers, asked) == 2


def test_worker_ends_at_its_deadline(workers: Workers, tables: Tables) -> None:
    asked = job(tables, "slow")
    tasks(workers, asked)
    slow = processes(workers)[-1]
    os.kill(slow, 19)  # SIGSTOP
    with pytest.raises(Refused, match="too long") as refused:
        workers.ask(asked, "plan", b"{}", seconds=0.5)
    assert refused.value.status == 406
    until(lambda: slow not in processes(workers))


def test_worker_that_is_idle_ends(pool: Pool, tables: Tables) -> None:
    made = pool(idle=6)
    tasks(made, job(tables))
    (first,) = processes(made)
    until(lambda: processes(made) == [])
    assert tasks(made, job(tables)) == 2
    assert processes(made) != [first]


def test_closing_ends_all_processes(pool: Pool, tables: Tables) -> None:
    made = pool()
    tasks(made, job(tables))
    assert made._starter is not None
    pids = [made._starter._process.pid, *processes(made)]
    made.close()
    until(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in pids[1:]))
    assert made._starter is None
    with pytest.raises(Refused, match="shutting down"):
        tasks(made, job(tables))


def test_starter_that_dies_is_started_again(pool: Pool, tables: Tables) -> None:
    made = pool()
    tasks(made, job(tables))
    kill_starter(made)
    assert tasks(made, job(tables, "another")) == 2
    assert tasks(made, job(tables)) == 2


def test_busy_workers_are_not_taken_away(pool: Pool, tables: Tables) -> None:
    """Who comes meanwhile is told so, and a second request of one caller waits."""
    made = pool(workers=1, seconds=90)
    reading, go = threading.Event(), threading.Event()

    def read(location: str) -> Iterator[bytes]:
        reading.set()
        assert go.wait(60)
        return plain.read(location)

    plain = job(tables)
    held = Job("me", "a", plain.metadata, plain.version, read, plain.find)
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(tasks(made, held))) for _ in range(2)]
    try:
        for thread in threads:
            thread.start()
        assert reading.wait(60)
        with pytest.raises(Refused, match="all workers are busy") as refused:
            tasks(made, job(tables, "other"))
        assert refused.value.status == 503
    finally:
        go.set()
        for thread in threads:
            thread.join()
    assert found == [2, 2]


def test_manifests_have_a_limit(pool: Pool, tables: Tables) -> None:
    with pytest.raises(Refused, match="too large") as refused:
        tasks(pool(manifest=1000), job(tables))
    assert refused.value.status == 406


def renumbered(tables: Tables, by: int) -> bytes:
    """Metadata whose snapshots have other ids, which no worker has cached."""
    metadata = tables.loaded("a")["metadata"]
    for snapshot in (*metadata["snapshots"], *metadata["refs"].values()):
        snapshot["snapshot-id"] += by
    metadata["current-snapshot-id"] += by
    return json.dumps({**metadata, "snapshot-log": []}).encode()


def test_forged_manifests_against_a_worker(pool: Pool, tables: Tables) -> None:
    """Bytes turned at random: a plan, or an error with a reason; the worker goes on."""
    source = random.Random(20_261)
    good = next(tables.place("a").glob("*-m0.avro")).read_bytes()
    plain = job(tables)
    made = pool(memory=300 << 20, seconds=20)
    outcomes: Counter[object] = Counter()
    for turn in range(60):
        forged = bytearray(good if turn % 2 else manifest(7, b"seven77"))
        for _ in range(source.randrange(1, 6)):
            forged[source.randrange(len(forged))] = source.randrange(256)
        if turn % 5 == 0:
            del forged[source.randrange(len(forged)) :]

        def read(location: str, content: bytes = bytes(forged)) -> Iterator[bytes]:
            return plain.read(location) if "snap-" in location else iter([content])

        text = renumbered(tables, turn)
        try:
            tasks(made, Job("me", "a", text, str(turn), read, plain.find))
            outcomes["plan"] += 1
        except Refused as refused:
            outcomes[refused.status] += 1
    assert outcomes.keys() <= {"plan", 500, 406}
    assert outcomes[500] > 20
    assert len(processes(made)) == 1


def values_of(entry: Any) -> Any:
    """A record as lists, and its maps as they are."""
    if isinstance(entry, Record):
        return [values_of(entry[place]) for place in range(len(entry))]
    return dict(entry) if isinstance(entry, Mapping) else entry


def test_decoder_reads_what_pyiceberg_reads(tables: Tables) -> None:
    for path in tables.place("a").glob("*-m0.avro"):
        read_types = {-1: ManifestEntry, 2: DataFile}
        file = load_file_io({}, str(path)).new_input(str(path))
        with AvroFile(file, MANIFEST_ENTRY_SCHEMAS[2], read_types, {}) as theirs:
            expected = [values_of(entry) for entry in theirs]
        ours = read_records(path.read_bytes(), MANIFEST_ENTRY_SCHEMAS[2], read_types, {})
        assert [values_of(entry) for entry in ours] == expected
        content = path.read_bytes()
        for end in range(200, len(content), 97):  # PyIceberg returns fewer entries for some of them
            with pytest.raises((ValueError, TypeError, OSError)):
                list(read_records(content[:end], MANIFEST_ENTRY_SCHEMAS[2], read_types, {}))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x80" * 11 + b"\x01", b"\x04a", b"\x01"])
def test_decoder_stays_in_its_block(data: bytes) -> None:
    with pytest.raises(ValueError, match="Avro"):
        Decoder(data).read_bytes()


def spelled(predicate: Predicate) -> str:
    """A predicate without the addresses of its arrays."""
    return re.sub(r" at 0x\w+|object", "", repr(predicate))


def test_predicates_survive_the_way(tables: Tables) -> None:
    """Values of all types come back as they were, so the index is asked the same."""
    fields = [
        NestedField(1, "l", LongType()),
        NestedField(2, "d", DoubleType()),
        NestedField(3, "s", StringType()),
        NestedField(4, "m", DecimalType(20, 2)),
    ]
    said = tables.loaded("a")["metadata"]
    schema = json.loads(Schema(*fields, schema_id=0).model_dump_json())
    table = Contents(json.dumps({**said, "schemas": [schema], "current-schema-id": 0}))
    legs = [
        {"type": "eq", "term": "l", "value": 2**53 + 1},
        {"type": "in", "term": "l", "values": [3, 1, 2]},
        {"type": "lt", "term": "d", "value": 0.1},
        {"type": "is-nan", "term": "d"},
        {"type": "not-starts-with", "term": "s", "value": "é\U0001f600"},
        {"type": "not-in", "term": "m", "values": ["123456789012345678.25", "-0.01"]},
        {"type": "is-null", "term": "m"},
    ]
    for leg in legs:
        bound = bind(table.metadata.schema(), read_filter(leg, table.names).rows, True)
        predicate = translate_pyiceberg(bound, table.columns, table.reading)
        assert not isinstance(predicate, Unknown), leg
        wire = json.loads(json.dumps(write_predicate(predicate, table.columns)))
        found, columns = read_predicate(wire)
        assert spelled(found) == spelled(predicate)
        assert all(columns[name].type == table.columns[name].type for name in columns)


@pytest.mark.parametrize(
    "forged",
    [
        {},
        {"predicate": {"is": "null", "column": "x", "not": False}, "columns": {}},
        {"predicate": {"is": "run"}, "columns": {}},
        {"predicate": {"is": "null", "column": "x"}, "columns": {"x": ["1", 7, None]}},
        {
            "predicate": {"is": "in", "column": "x", "values": ["a"], "not": False},
            "columns": {"x": ["1", "bigint", None]},
        },
        {
            "predicate": {"is": "compare", "column": "x", "op": "or", "value": 1, "typed": True},
            "columns": {"x": ["1", "bigint", None]},
        },
    ],
)
def test_predicates_of_a_worker_are_checked(forged: Any) -> None:
    with pytest.raises(ValueError, match=r"^not |cannot be indexed|invalid"):
        read_predicate(forged)
    deep: Any = {"is": "unknown"}
    for _ in range(300):
        deep = {"is": "and", "legs": [deep]}
    with pytest.raises(ValueError, match="too deep"):
        read_predicate({"predicate": deep, "columns": {}})


def test_tasks_of_a_worker_are_checked() -> None:
    good = {"file-scan-tasks": [TASKS], "delete-files": [{"content": "position-deletes"}]}
    text = json.dumps({**good, "residual-filter": {"type": "true \\", "b": '"residual-filter":""'}})
    found = json.loads(check_tasks(text.encode()[1:-1]))
    residual = json.loads(text)["residual-filter"]
    assert found == {**good, "file-scan-tasks": [{**TASKS, "residual-filter": residual}]}
    theft = {"storage-credentials": [{"prefix": "s3", "config": {"s3.endpoint": "evil"}}]}
    for text in (
        json.dumps({**good, **theft}),
        json.dumps({"file-scan-tasks": [{**TASKS, **theft}]}),
        json.dumps({"file-scan-tasks": [{**TASKS, "data-file": theft}]}),
        json.dumps({"file-scan-tasks": [TASKS], "delete-files": [theft]}),
        json.dumps({"file-scan-tasks": [{**TASKS, "residual-filter": True}]}),
        json.dumps({"file-scan-tasks": [TASKS] * 9, "residual-filter": "x" * (1 << 20)}),
        json.dumps({"file-scan-tasks": [7]}),
        json.dumps({"file-scan-tasks": 7}),
        "{}",
        '{"file-scan-tasks":[]},"storage-credentials":[{}',
        '{"file-scan-tasks":[' + "[" * 5000,
    ):
        with pytest.raises(Refused):
            check_tasks(text.encode()[1:-1])
    twice = b'"file-scan-tasks":[],"file-scan-tasks":[{"data-file":{},"data-file":{}}]'
    assert check_tasks(twice) == (b'{"file-scan-tasks":[{"data-file":{},"residual-filter":null}]}')


@pytest.mark.parametrize(
    "sent",
    [
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x02[]",
        b"\x00\x00\x00\x02{}",
        b'\x00\x00\x00\x0e{"sizes":[-1]}',
        b'\x00\x00\x00\x14{"sizes":[999999999]}'[:24] + b" ",
        b"\x00\x00\x00\x0a" + b"[" * 10,
        b"",
    ],
)
def test_messages_of_a_worker_are_checked(sent: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(Ended):
            Channel(ours, 1000).receive(deadline=time.monotonic() + 5)


def test_messages_have_a_deadline() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        with pytest.raises(Ended):
            Channel(ours, 1000).receive(deadline=time.monotonic() + 0.1)
        with pytest.raises(Ended):
            Channel(ours, 1000).send({}, [bytes(1 << 24)], deadline=time.monotonic() + 0.1)


def test_json_has_a_limit() -> None:
    assert read_json(b'{"a":[1,2]}', 4) == {"a": [1, 2]}
    with pytest.raises(TooManyParts):
        read_json(b'{"a":[1,2,3]}', 4)
    with pytest.raises(ValueError, match="deep"):
        read_json(b"[" * 100_000, 1_000_000)
    with pytest.raises(UnicodeDecodeError):
        read_json('{"a":1}'.encode("utf-16"), 10)
