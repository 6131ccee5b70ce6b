"""Many indexed tables, and one driver that keeps some of them by streams.

`python -m tests.benchmarks.many_tables [--store sqlite|opensearch] [--tables N] [--streams N ...]`:
for each number of streams a driver of its own keeps so many of the indexes, first while nothing is
committed, then while each of their tables gets a file a minute (`--every` 6 intervals). What is
measured: how long it takes until all streams run, the CPU of the driver (Python and Java, in
cores), its threads of both, its connections to the store, and the seconds from a commit until the
index covers it, which are to be at most two intervals.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import psutil
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

import rewrite
from skipping import SkippingIndex
from skipping.indexing.definitions import set_options
from skipping.stores import IndexStore
from skipping.stores.open import open_store
from skipping.streaming.jobs import keep, leave_all
from tests.benchmarks.report import heading, table
from tests.benchmarks.synthetic import cluster

_ROWS = 100
_STARTED = 600.0
"""Seconds that all streams of a driver may take to start, at most."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "opensearch"], default="sqlite")
    parser.add_argument("--tables", type=int, default=1_000)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--interval", type=int, default=10, help="seconds between two looks")
    parser.add_argument("--rounds", type=int, default=12, help="intervals of each phase")
    parser.add_argument("--every", type=int, default=6, help="intervals between two of its commits")
    parser.add_argument("--driver", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.driver:
        _keep(*given.driver)
        return
    with ExitStack() as open:
        folder = Path(open.enter_context(tempfile.TemporaryDirectory()))
        at = f"sqlite:{folder}/index.sqlite"
        if given.store == "opensearch":
            at = open.enter_context(cluster()).replace("http", "opensearch", 1)
        heading(f"streams of one driver, in {given.store}", tables=given.tables,
                interval=f"{given.interval} s", rounds=given.rounds, every=given.every)  # fmt: skip
        paths = [folder / f"t{n}" for n in range(given.tables)]
        store, began = open_store(at), time.monotonic()
        options = {"auto_refresh": True, "refresh_interval": f"{given.interval}s"}
        most = max(given.streams)
        indexes = [
            _indexed(path, store, options if n < most else {}) for n, path in enumerate(paths)
        ]
        print(f"  {given.tables} tables made and indexed in {time.monotonic() - began:.0f} s")
        rows = []
        for streams in given.streams:
            followed = dict(zip(paths[:streams], indexes, strict=False))
            rows.append((streams, *_kept(at, followed, given)))
            print(" ", *rows[-1], flush=True)
        table(
            ("streams", "started s", "idle cores", "busy cores", "Python threads", "Java threads",
             "connections", "MiB", "lag s", "p95", "most"),
            rows,
        )  # fmt: skip


def _rows(start: int) -> pa.Table:
    return pa.table({"id": pa.array(range(start, start + _ROWS), pa.int64())})


def _indexed(path: Path, store: IndexStore, options: dict[str, Any]) -> SkippingIndex:
    write_deltalake(path, _rows(0))
    index = SkippingIndex.create(DeltaTable(path), "id MIN_MAX", store=store, build=False)
    index.alter(lambda definition: set_options(definition, options))
    index.refresh()
    return index


def _kept(at: str, followed: dict[Path, SkippingIndex], given: argparse.Namespace) -> Iterator[str]:
    """One driver's figures, as the table names them."""
    began = time.monotonic()
    command = [sys.executable, "-m", "tests.benchmarks.many_tables", "--driver", at]
    command += [index.definition.name for index in followed.values()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        driver = Driver(run)
        while driver.ask()["running"] < len(followed):
            assert time.monotonic() - began < _STARTED, driver.ask()
            time.sleep(1)
        yield f"{time.monotonic() - began:.0f}"
        time.sleep(2 * given.interval)
        idle = driver.cores(lambda: time.sleep(given.rounds * given.interval))
        lags = list[float]()
        busy = driver.cores(
            lambda: lags.extend(
                _committed(followed, given.every * given.interval, given.rounds // given.every)
            )
        )
        last = driver.ask()
        yield from (f"{idle:.2f}", f"{busy:.2f}")
        yield from (str(last[name]) for name in ("python", "java", "connections", "MiB"))
        lags.sort()
        yield from (f"{s:.1f}" for s in (median(lags), lags[int(0.95 * len(lags))], lags[-1]))
        driver.end()


class Driver:
    """The process that keeps the streams."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._measured = psutil.Process(process.pid)

    def ask(self) -> dict[str, Any]:
        """What it says of itself."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        while not (line := self._process.stdout.readline()).startswith("{"):
            assert line, "the driver ended"
        found: dict[str, Any] = json.loads(line)
        return found

    def cores(self, run: Callable[[], object]) -> float:
        """Its CPU seconds a second while this runs, with those of its Java."""
        before, began = self._cpu(), time.monotonic()
        run()
        return (self._cpu() - before) / (time.monotonic() - began)

    def _cpu(self) -> float:
        total = 0.0
        for process in (self._measured, *self._measured.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):  # by now its time is its parent's
                total += sum(process.cpu_times()[:4])
        return total

    def end(self) -> None:
        """End it as who leaves a program does."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(120)


def _committed(followed: dict[Path, SkippingIndex], seconds: float, times: int) -> list[float]:
    """Commits a file to each table, so many times; the seconds until each was covered."""
    draw, lags = random.Random(0), list[float]()
    waiting, lock = dict[tuple[Path, int], float](), threading.Lock()
    ended = threading.Event()

    def watch() -> None:
        while waiting or not ended.is_set():
            with lock:
                asked = list(waiting)
            for path in {path for path, _ in asked}:
                covered, now = followed[path].state.covered or 0, time.monotonic()
                with lock:
                    for each in [e for e in asked if e[0] == path and e[1] <= covered]:
                        lags.append(now - waiting.pop(each))
            time.sleep(0.2)

    watching = threading.Thread(target=watch)
    watching.start()
    began = time.monotonic()
    for turn in range(times):
        due = sorted((draw.uniform(turn, turn + 1) * seconds, path) for path in followed)
        for when, path in due:
            time.sleep(max(0.0, began + when - time.monotonic()))
            there = DeltaTable(path)
            version = there.version() + 1
            write_deltalake(there, _rows(version * _ROWS), mode="append")
            with lock:
                waiting[path, version] = time.monotonic()
    ended.set()
    watching.join()
    return lags


def _keep(at: str, *names: str) -> None:
    """What a driver does: keep the indexes of these tables, and say how it is when asked."""
    spark = rewrite.session(SparkSession.builder.config("spark.skipping.store", at))
    spark.sparkContext.setLogLevel("ERROR")
    store = open_store(at)
    for name in names:
        keep(spark, store, name)
    jvm: Any = spark.sparkContext._jvm
    java, this = jvm.java.lang.management.ManagementFactory.getThreadMXBean(), psutil.Process()
    server = urlsplit(at).port
    for _ in sys.stdin:
        processes = (this, *this.children())  # of Java's Python there is more or less by the moment
        said = {
            "running": sum(query.isActive for query in spark.streams.active),
            "python": threading.active_count(),
            "java": java.getThreadCount(),
            "connections": sum(
                bool(socket.raddr) and socket.raddr.port == server
                for socket in this.net_connections("tcp")
            ),
            "MiB": sum(process.memory_info().rss for process in processes) >> 20,
        }
        print(json.dumps(said), flush=True)
    leave_all()
    spark.stop()


if __name__ == "__main__":
    main()
