"""The time of a plan from the catalog service: `python -m tests.benchmarks.catalog [files ...]`.

With `load` instead, that of queries of 8 PyIceberg clients, while the service is handed over to the
next, dies, loses its index, and waits for the upstream.

The service in a process of its own, over Iceberg's REST catalog; the table's data files are named
in its manifests and its index, and are not there. Each file has 20 numbers that live in five files;
its bounds exclude nothing. A plan is measured as a client sees it, warm: request, loading of the
table by the upstream, answer.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from signal import SIGKILL
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import LongType

from skipping import SkippingIndex
from skipping.stores.open import open_store
from tests.benchmarks.report import heading, table
from tests.benchmarks.synthetic import VALUES, distinct, entries
from tests.rest_catalog import RestCatalog
from tests.skipping.catalog.load import Load, Relay
from tests.skipping.catalog.running import Service, ask, client, make

ROUNDS = 60
SIZE = 1_000_000


def main(*sizes: int) -> None:
    """Print the table."""
    rows = []
    with TemporaryDirectory() as folder, RestCatalog(Path(folder)) as behind:
        store = f"sqlite:{folder}/index.sqlite"
        for files in sizes or (1_000, 10_000, 100_000):
            name = f"db.of_{files}"
            _make(behind, name, files, store)
            service = Service(behind.uri, store)
            try:
                rows += _measure(service, name, files)
            finally:
                service.stop()
    heading("Plans of the catalog service", rounds=ROUNDS)
    table(["files", "filter", "tasks", "bytes", "cold s", "p50 ms", "p95 ms"], rows)


def under_load(clients: int = 8) -> None:
    """Print the table of queries by what happens meanwhile."""
    with TemporaryDirectory() as folder, RestCatalog(Path(folder)) as behind:
        kept = Path(folder, "index.sqlite")
        made = make(client(behind.uri), "db.loaded")
        SkippingIndex.create(made.table, "h VALUE_LIST", store=f"sqlite:{kept}")
        (key := Path(folder, "key")).write_bytes(b"k" * 32)
        options = ("--share-port", "--key", str(key))
        with Relay(int(urlsplit(behind.uri).port or 0)) as relay:
            upstream = f"http://127.0.0.1:{relay.port}"
            services = [Service(upstream, f"sqlite:{kept}", *options)]
            port = int(urlsplit(services[0].uri).port or 0)

            def start() -> None:
                services.append(Service(upstream, f"sqlite:{kept}", *options, port=port))

            def hand_over() -> None:
                start()
                services[-2].stop()

            def crash() -> None:
                services[-1].stop(SIGKILL)
                start()

            def lose() -> None:
                kept.write_bytes(b"no database" * 1000)

            def delay() -> None:
                relay.delay = 0.1

            try:
                with Load(services[0].uri, made.name, clients) as load:
                    for phase, work in (
                        ("calm", lambda: None),
                        ("the service is handed over", hand_over),
                        ("the service dies", crash),
                        ("the upstream is 100 ms late", delay),
                        ("the index is away", lose),
                    ):
                        load.during(phase, work, 100)
            finally:
                services[-1].stop()
    rows = []
    for phase in dict.fromkeys(query.phase for query in load.queries):
        some = [query for query in load.queries if query.phase == phase]
        shares = quantiles([query.seconds for query in some], n=20)
        again, failed = sum(q.attempts > 1 for q in some), sum(bool(q.error) for q in some)
        times = f"{1e3 * shares[9]:.0f}", f"{1e3 * shares[18]:.0f}"
        rows.append([phase, len(some), *times, again, failed])
    heading("Queries through the catalog service", clients=clients)
    table(["meanwhile", "queries", "p50 ms", "p95 ms", "begun again", "failed"], rows)


def _make(behind: RestCatalog, name: str, files: int, store: str) -> None:
    catalog = client(behind.uri)
    catalog.create_namespace_if_not_exists("db")
    made = catalog.create_table(name, schema=pa.schema([("k", pa.int64()), ("h", pa.int64())]))
    with made.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for number in range(files):
            append.append_data_file(_file(made, number, distinct(files)))
    index = SkippingIndex.create(catalog.load_table(name), "h VALUE_LIST", store=store, build=False)
    kept, definition = open_store(store), index.definition
    kept.reserve(definition.index, files)
    sketch = definition.columns[0].sketch
    for part in entries(files):
        numbers = part["ordinal"].to_pylist()
        part = part.select(["ordinal", "partition", "s2_known", "s2_values", "s2_nulls"])
        part = part.append_column("path", pa.array([_path(n) for n in numbers]))
        part = part.append_column("size", pa.array([SIZE] * len(numbers), pa.int64()))
        part = part.append_column("stamp", pa.array([VALUES] * len(numbers), pa.int64()))
        names = [f"{sketch}{c[2:]}" if c.startswith("s2_") else c for c in part.column_names]
        kept.write(definition.index, part.rename_columns(names), revision=index.revision)


def _path(number: int) -> str:
    return f"s3://bucket/warehouse/db/table/data/{number:08}-0-c000.parquet"


def _file(table: Table, number: int, most: int) -> DataFile:
    bounds = {2: to_bytes(LongType(), 0)}, {2: to_bytes(LongType(), most)}
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=_path(number),
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=VALUES,
        file_size_in_bytes=SIZE,
        column_sizes={},
        value_counts={2: VALUES},
        null_value_counts={2: 0},
        nan_value_counts={},
        lower_bounds=bounds[0],
        upper_bounds=bounds[1],
        key_metadata=None,
        split_offsets=[4],
        equality_ids=None,
        sort_order_id=None,
    )
    file.spec_id = table.spec().spec_id
    return file


def _measure(service: Service, name: str, files: int) -> list[list[Any]]:
    rows = []
    path = f"/v1/namespaces/db/tables/{name[3:]}/plan"
    for label, asked in (
        ("h = v", lambda n: {"type": "eq", "term": "h", "value": n}),
        ("h IN (10)", lambda n: {"type": "in", "term": "h", "values": [n + i for i in range(10)]}),
        (
            "h IN (500)",
            lambda n: {"type": "in", "term": "h", "values": [n + i for i in range(500)]},
        ),
        ("k = v", lambda n: {"type": "eq", "term": "k", "value": n}),
    ):
        seconds: list[float] = []
        rounds = ROUNDS if label != "k = v" else 5
        for turn in range(rounds + 1):
            start = time.perf_counter()
            status, plan, _ = ask(service.uri, "POST", path, {"filter": asked(turn * 37)})
            seconds.append(time.perf_counter() - start)
            assert status == 200, plan
        tasks, size = len(plan["file-scan-tasks"]), len(str(plan))
        warm = sorted(seconds[1:])
        shares = quantiles(warm, n=20)
        cold = f"{seconds[0]:.2f}" if label == "h = v" else ""
        rows.append(
            [files, label, tasks, size, cold, f"{1e3 * shares[9]:.0f}", f"{1e3 * shares[18]:.0f}"]
        )
    return rows


if __name__ == "__main__":
    under_load() if sys.argv[1:] == ["load"] else main(*map(int, sys.argv[1:]))
