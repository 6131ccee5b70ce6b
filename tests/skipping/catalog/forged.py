"""Tables on local disk, Avro files made byte by byte, and a catalog that gives any answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.avro.codecs import KNOWN_CODECS
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

SYNC = b"S" * 16


def number(value: int) -> bytes:
    """A number as Avro has it: zigzag, seven bits a byte."""
    value = (value << 1) ^ (value >> 63)
    made = b""
    while value > 0x7F:
        made += bytes([value & 0x7F | 0x80])
        value >>= 7
    return made + bytes([value])


def text(value: str | bytes) -> bytes:
    encoded = value if isinstance(value, bytes) else value.encode()
    return number(len(encoded)) + encoded


def avro(schema: Any, block: bytes, count: int = 1, codec: str = "null") -> bytes:
    """A file of one block."""
    head = {"avro.schema": json.dumps(schema), "avro.codec": codec}
    pairs = b"".join(text(key) + text(value) for key, value in head.items())
    start = b"Obj\x01" + number(len(head)) + pairs + number(0) + SYNC
    return start + number(count) + text(block) + SYNC


def _record(name: str, fields: list[tuple[str, Any, int]]) -> dict[str, Any]:
    made = [{"name": name, "type": type, "field-id": id} for name, type, id in fields]
    return {"type": "record", "name": name, "fields": made}


MANIFEST_LIST = _record(
    "manifest_file",
    [
        ("manifest_path", "string", 500),
        ("manifest_length", "long", 501),
        ("partition_spec_id", "int", 502),
        ("content", "int", 517),
        ("sequence_number", "long", 515),
        ("min_sequence_number", "long", 516),
        ("added_snapshot_id", "long", 503),
        ("added_files_count", "int", 504),
        ("existing_files_count", "int", 505),
        ("deleted_files_count", "int", 506),
        ("added_rows_count", "long", 512),
        ("existing_rows_count", "long", 513),
        ("deleted_rows_count", "long", 514),
    ],
)
DATA_FILE = _record(
    "r2",
    [
        ("content", "int", 134),
        ("file_path", "string", 100),
        ("file_format", "string", 101),
        ("partition", _record("r102", []), 102),
        ("record_count", "long", 103),
        ("file_size_in_bytes", "long", 104),
        ("key_metadata", ["null", "bytes"], 131),
    ],
)
MANIFEST = _record(
    "manifest_entry",
    [
        ("status", "int", 0),
        ("snapshot_id", ["null", "long"], 1),
        ("sequence_number", ["null", "long"], 3),
        ("file_sequence_number", ["null", "long"], 4),
        ("data_file", DATA_FILE, 2),
    ],
)


def manifest_list(*manifests: str, codec: str = "null") -> bytes:
    """A list of manifests."""
    rest = b"".join(map(number, (100, 0, 0, 1, 1, 1, 1, 0, 0, 10, 0, 0)))
    block = b"".join(text(each) + rest for each in manifests)
    if pack := KNOWN_CODECS[codec]:  # type: ignore[index]
        block, _ = pack.compress(block)
    return avro(MANIFEST_LIST, block, len(manifests), codec)


def manifest(length: int, key: bytes = b"") -> bytes:
    """A manifest of one file, whose key metadata is said to be `length` bytes long."""
    head = b"".join(map(number, (1, 1, 5, 1, 1, 1, 1, 0)))
    file = text("file:/x/y.parquet") + text("PARQUET") + number(10) + number(1000)
    return avro(MANIFEST, head + file + number(1) + number(length) + key)


class Tables:
    """Tables `a` and `b` with two files each, on local disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        uri = f"sqlite:///{folder}/catalog.db"
        self.catalog = SqlCatalog("made", uri=uri, warehouse=folder.as_uri())
        self.catalog.create_namespace("db")
        for name in ("a", "b"):
            table = self.catalog.create_table(f"db.{name}", pa.schema([("k", pa.int64())]))
            with table.transaction() as transaction:
                for n in range(2):
                    transaction.append(pa.table({"k": [n]}))

    def table(self, name: str) -> Table:
        return self.catalog.load_table(f"db.{name}")

    def place(self, name: str) -> Path:
        """The folder of a table's metadata."""
        return Path(self.table(name).metadata_location.removeprefix("file://")).parent

    def loaded(self, name: str, **changed: Any) -> dict[str, Any]:
        """What a catalog says of a table, with something `changed` in its metadata."""
        location = self.table(name).metadata_location
        metadata = json.loads(Path(location.removeprefix("file://")).read_bytes())
        return {"metadata-location": location, "metadata": {**metadata, **changed}, "config": {}}

    def forged(self, name: str, listed: str, id: int) -> dict[str, Any]:
        """The table with one snapshot, whose list of manifests is at a location."""
        snapshot = {
            "snapshot-id": id,
            "sequence-number": 1,
            "timestamp-ms": self.table(name).metadata.last_updated_ms,
            "manifest-list": listed,
            "summary": {"operation": "append"},
            "schema-id": 0,
        }
        return self.loaded(
            name,
            snapshots=[snapshot],
            refs={"main": {"snapshot-id": id, "type": "branch"}},
            **{"current-snapshot-id": id, "snapshot-log": []},
        )


@contextmanager
def serve(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Run a server on this machine; gives its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def upstream(
    tables: Mapping[str, Callable[[], Any]],
    allowed: Mapping[str, str],
    answer: Callable[[BaseHTTPRequestHandler], bool] = lambda _: False,
) -> Iterator[tuple[str, list[Any]]]:
    """A catalog that says of a table what its function returns; `allowed` are names by token.

    `answer` may answer a request in its place. Gives the address, and the requests that came: path,
    headers, and how many bytes of a body.
    """
    seen: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            left = size = int(self.headers.get("content-length") or 0)
            while left > 0:
                left -= len(self.rfile.read(min(left, 1 << 20)))
            seen.append((self.path, dict(self.headers.items()), size))
            if answer(self):
                return
            name = self.path.rpartition("/")[2]
            token = (self.headers.get("authorization") or "").removeprefix("Bearer ")
            status, said = 200, {}
            if "/tables/" in self.path:
                if name in allowed.get(token, ""):
                    said = tables[name]()
                else:
                    error = {"message": "no", "type": "ForbiddenException", "code": 403}
                    status, said = 403, {"error": error}
            sent = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    with serve(Handler) as uri:
        yield uri, seen
