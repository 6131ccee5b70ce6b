"""Many clients of one server for a while: how many queries, which failures, what the driver takes.

`python -m tests.benchmarks.serve [--connect N] [--thrift N] [--seconds S]`: each client asks one
question after another: reads and joins that an index prunes, whose rows are compared, and DESCRIBE.
Ends with 1 if a query failed or had wrong rows.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psutil

from tests.benchmarks.report import heading, table
from tests.rewrite.served import Client, Connect, Server, ThriftClient

_KEYS, _ROWS, _FILES = 400, 200_000, 40
_A_PROCESS = 16
"""Sessions of Spark Connect in one client process."""


def make(client: Client) -> None:
    """A fact whose keys lie in one of forty files each, its index, and a dimension."""
    client.sql(
        "CREATE TABLE fact USING delta TBLPROPERTIES (delta.dataSkippingNumIndexedCols = 0) AS"
        f" SELECT /*+ REPARTITION({_FILES}, k) */ id, id % {_KEYS} AS k FROM range({_ROWS})"
    )
    client.sql(
        f"CREATE TABLE dim USING delta AS SELECT id AS k, concat('n', id) AS n FROM range({_KEYS})"
    )
    client.sql("CREATE SKIPPING INDEX ON fact (k VALUE_LIST)")


class Load:
    """What the clients do until they are told to end."""

    def __init__(self) -> None:
        self.asked = Counter[str]()
        self.failed = Counter[str]()
        self.slowest = 0.0
        self.ended = threading.Event()

    def run(self, client: Client, seed: int) -> None:
        draw = random.Random(seed)
        while not self.ended.is_set():
            key = draw.randrange(_KEYS)
            kind = draw.choices(["read", "join", "describe"], [6, 3, 1])[0]
            expected = [(str(_ROWS // _KEYS), str(key))]
            began = time.monotonic()
            try:
                if kind == "read":
                    rows = client.sql(f"SELECT count(*), min(id) FROM fact WHERE k = {key}")
                elif kind == "join":
                    rows = client.sql(
                        f"SELECT count(*), min(id) FROM fact JOIN dim USING (k) WHERE n = 'n{key}'"
                    )
                else:
                    rows = client.sql("DESCRIBE SKIPPING INDEX ON fact")
                    expected = [("k", "bigint", "VALUE_LIST", rows[0][3])]
                if rows != expected:
                    self.failed[f"{kind}: wrong rows"] += 1
            except Exception as error:
                if not self.ended.is_set():
                    self.failed[f"{kind}: {cause(str(error) or repr(error))}"] += 1
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.asked[kind] += 1


def cause(text: str) -> str:
    """What an error says, and its last cause with where that was."""
    first, *lines = [line.strip() for line in text.strip().splitlines()]
    found = [n for n, line in enumerate(lines) if line.startswith("Caused by:")]
    return "\n    ".join([first, *(lines[found[-1] : found[-1] + 4] if found else [])])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connect", type=int, default=20, help="clients of Spark Connect")
    parser.add_argument("--thrift", type=int, default=0, help="clients of the Thrift server")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--memory", default="2g", help="spark.driver.memory")
    given = parser.parse_args()
    heading("clients of one server", connect=given.connect, thrift=given.thrift,
            seconds=given.seconds, memory=given.memory)  # fmt: skip
    load, samples = Load(), list[tuple[object, ...]]()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as open:
        server = Server(Path(folder), "--connect", "0", "--thrift", "0",
                        "--conf", f"spark.driver.memory={given.memory}",
                        "--conf", "spark.sql.connect.serverStacktrace.enabled=true",
                        "--conf", "spark.sql.pyspark.jvmStacktrace.enabled=true")  # fmt: skip
        open.callback(server.process.kill)
        url = f"sc://127.0.0.1:{server.port('connect')}"
        processes = [Connect(url) for _ in range(-(-max(1, given.connect) // _A_PROCESS))]
        for process in processes:
            open.callback(process.kill)
        make(processes[0].of("0"))
        clients: list[Client] = [
            processes[n // _A_PROCESS].of(str(n), wait=600) for n in range(given.connect)
        ]
        clients += [ThriftClient(server.port("thrift")) for _ in range(given.thrift)]
        driver = psutil.Process(server.process.pid)
        (java,) = driver.children()
        with ThreadPoolExecutor(len(clients)) as pool:
            began = time.monotonic()
            running = [pool.submit(load.run, client, n) for n, client in enumerate(clients)]
            for n in range(11):
                time.sleep(max(0.0, began + given.seconds * n / 10 - time.monotonic()))
                samples.append(
                    (
                        round(time.monotonic() - began),
                        load.asked.total(),
                        load.failed.total(),
                        *(f"{each.memory_info().rss / 2**20:,.0f}" for each in (driver, java)),
                        driver.num_threads(),
                        java.num_threads(),
                        driver.num_fds() + java.num_fds(),
                    )
                )
            load.ended.set()
            for each in running:
                each.result()
        for process in processes:
            process.close()
        began = time.monotonic()
        code = server.stop()
        stopped = time.monotonic() - began
    table(
        ("s", "queries", "failed", "Python MB", "Java MB", "threads", "of Java", "descriptors"),
        samples,
    )
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(load.asked.items()))
    print(f"  {kinds}; slowest {load.slowest:.1f} s; ended with {code} in {stopped:.1f} s")
    for what, count in load.failed.most_common():
        print(f"  {count} x {what}")
    return 1 if load.failed or code else 0


if __name__ == "__main__":
    sys.exit(main())
