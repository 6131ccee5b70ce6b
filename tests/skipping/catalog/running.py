"""The service as people start it, over Iceberg's own REST catalog, and tables to ask it for."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog as Client
from pyiceberg.table import Table

from skipping import SkippingIndex
from tests.test_house import ROOT

FILES = 12
ROWS = 40
SCHEMA = pa.schema([("k", pa.int64()), ("h", pa.int64()), ("s", pa.string()), ("d", pa.float64())])


class Service:
    """`file-skipping catalog` in a process of its own, at a free port unless one is given."""

    def __init__(self, upstream: str, store: str, *options: str, port: int = 0) -> None:
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "skipping", "catalog", "--upstream", upstream),
                *("--port", str(port), "--conf", f"spark.skipping.store={store}"),
                *("--conf", "spark.skipping.cache.ttl=0s", *options),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert self._process.stdout is not None
        self.said = self._process.stdout.readline().strip()
        if not self.said:
            raise RuntimeError(self.stop()[1])
        self.uri = self.said.split()[1]
        self.port = int(urlsplit(self.uri).port or 0)
        self.pid = self._process.pid

    def stop(self, how: int = signal.SIGTERM) -> tuple[int, str]:
        """End it; its exit code, and what it wrote to its log."""
        if self._process.poll() is None:
            self._process.send_signal(how)
        _, log = self._process.communicate(timeout=30)
        return self._process.returncode, log


@dataclass(frozen=True)
class Numbered:
    """A table of FILES files; file `n` has `h` = n, n + FILES, ...: bounds exclude nothing."""

    name: str
    table: Table
    paths: tuple[Path, ...]

    def garble(self, keep: Iterable[int]) -> Callable[[], None]:
        """Overwrite all files but these; gives what puts them back."""
        kept = set(keep)
        was = {path: path.read_bytes() for n, path in enumerate(self.paths) if n not in kept}
        for path, content in was.items():
            path.write_bytes(random.Random(1).randbytes(len(content)))

        def restore() -> None:
            for path, content in was.items():
                path.write_bytes(content)

        return restore


def rows_of(n: int) -> pa.Table:
    """Those of file `n`."""
    h = [row * FILES + n for row in range(ROWS)]
    return pa.table(
        {
            "k": [n * ROWS + row for row in range(ROWS)],
            "h": h,
            "s": [f"n{value}" for value in h],
            "d": [value / 2 for value in h],
        },
        schema=SCHEMA,
    )


def client(uri: str, **properties: str) -> Client:
    return Client("asked", uri=uri, **properties)


def make(catalog: Catalog, name: str, *, schema: Any = SCHEMA, **options: Any) -> Numbered:
    """The table, written through a catalog, file by file in one commit."""
    catalog.create_namespace_if_not_exists(name.split(".")[0])
    table = catalog.create_table(name, schema=schema, **options)
    with table.transaction() as transaction:
        for n in range(FILES):
            transaction.append(rows_of(n))
    return numbered(name, catalog.load_table(name))


def numbered(name: str, table: Table) -> Numbered:
    tasks = table.scan().plan_files()
    by_first = {_number(table, task): Path(task.file.file_path.split(":")[-1]) for task in tasks}
    return Numbered(name, table, tuple(by_first[n] for n in range(FILES)))


def _number(table: Table, task: Any) -> int:
    h = table.schema().find_field("h").field_id
    return int.from_bytes(task.file.lower_bounds[h], "little")


def index(
    table: Numbered, store: str, columns: str = "h VALUE_LIST, s VALUE_LIST"
) -> SkippingIndex:
    return SkippingIndex.create(table.table, columns, store=store)


def planned(table: Table, row_filter: Any = "", **options: Any) -> int:
    """How many files a client is told to open."""
    scan = table.scan(row_filter, **options) if row_filter != "" else table.scan(**options)
    return len(list(scan.plan_files()))


def values(result: pa.Table, column: str = "h") -> Sequence[Any]:
    return sorted(result[column].to_pylist())


def ask(
    uri: str, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, Any, dict[str, str]]:
    """Status, JSON and headers of one request."""
    parts = urlsplit(uri)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
    sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    try:
        connection.request(method, path, sent, headers or {})
        answer = connection.getresponse()
        content = answer.read()
        said = json.loads(content) if content[:1] in (b"{", b"[") else content
        return answer.status, said, {k.lower(): v for k, v in answer.getheaders()}
    finally:
        connection.close()
