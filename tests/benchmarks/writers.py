"""Commands of PyIceberg, with the index and without: `python -m tests.benchmarks.writers`.

A table whose keys are spread so that no file's bounds exclude one. Each command changes rows in 20
files; then the table is rolled back, so that rounds are alike. *files* counts every time that a
data file is opened, to find rows and to rewrite them. With `--delay 30` opening one takes 60 ms
longer, as in an object store that answers the requests for its footer and its rows 30 ms late.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import And, EqualTo, In
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table, Transaction

from skipping import SkippingIndex
from tests.benchmarks.report import heading, interleaved, ratio, spread, table

__all__ = ["main"]

KEYS, IN_FILES = 1_000, 20
INDEX = "k VALUE_LIST, (a, b) VALUE_LIST"


class _FileIO(PyArrowFileIO):
    """Counts the data files that are opened, and delays them."""

    opened = 0
    delay = 0.0

    def new_input(self, location: str) -> Any:
        if location.endswith(".parquet"):
            _FileIO.opened += 1
            time.sleep(2 * _FileIO.delay)
        return super().new_input(location)


def main(only: str, files: int, rows: int, rounds: int, delay: int) -> None:
    """Print the table."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        properties = {"py-io-impl": f"{_FileIO.__module__}.{_FileIO.__name__}"}
        data, uri = folder / "data", f"file://{folder}/data"
        data.mkdir()
        catalog = SqlCatalog("own", uri=f"sqlite:///{folder}/c.db", warehouse=uri, **properties)
        catalog.create_namespace("db")
        for i in range(files):
            pq.write_table(_rows(i, files, rows), data / f"{i}.parquet")
        made = catalog.create_table("db.t", schema=_rows(0, files, 1).schema)
        made.add_files([f"{uri}/{i}.parquet" for i in range(files)])
        index = SkippingIndex.create(made, INDEX, store=f"sqlite:{folder}/index.sqlite")
        _FileIO.delay = delay / 1e3
        lines = [
            _line(title, command, made, index, rounds)
            for title, command in _commands(files, rows).items()
            if title.startswith(only)
        ]
        catalog.close()
    heading(
        "PyIceberg's commands, with an index and without",
        PyIceberg=version("pyiceberg"),
        files=f"{files:,}",
        rows=f"{files * rows:,}",
        rounds=rounds,
        at=f"local disk, {delay} ms a request",
    )
    table(["", "files with", "without", "s with", "s without", "times faster"], lines)


def _rows(i: int, files: int, rows: int) -> pa.Table:
    """Rows of a file: `k` is unique and has no order, and so is (a, b)."""
    numbers = np.arange(i * rows, (i + 1) * rows, dtype=np.int64)
    spread = (numbers * 7_046_029_254_386_353_087) % 2**40
    return pa.table(
        {"k": spread, "a": spread % 5_000, "b": spread // 5_000, "v": numbers, "w": numbers % 7}
    )


def _commands(files: int, rows: int) -> dict[str, Callable[[Transaction], Any]]:
    """Commands on the keys of 20 files, and on keys of none."""
    each = KEYS // IN_FILES
    chosen = [_rows(i * (files // IN_FILES), files, rows).slice(0, each) for i in range(IN_FILES)]
    given = pa.concat_tables(chosen)
    given = given.set_column(3, "v", pa.array([-1] * len(given), pa.int64()))
    one = given.slice(len(given) // 2, 1).to_pylist()[0]
    keys = given["k"].to_pylist()
    few = given.take(list(range(0, KEYS, 10)))
    return {
        "upsert, 1,000 keys": lambda t: t.upsert(given, ["k"]),
        "upsert, 100 keys of two columns": lambda t: t.upsert(few, ["a", "b"]),
        "delete, 1,000 keys": lambda t: t.delete(In("k", keys)),
        "delete, one key": lambda t: t.delete(EqualTo("k", one["k"])),
        "delete, one key of two columns": lambda t: t.delete(
            And(EqualTo("a", one["a"]), EqualTo("b", one["b"]))
        ),
    }


def _line(
    title: str,
    command: Callable[[Transaction], Any],
    made: Table,
    index: SkippingIndex,
    rounds: int,
) -> list[object]:
    start = made.metadata.current_snapshot_id
    assert start is not None
    opened: dict[str, int] = {}
    results: dict[str, object] = {}

    def run(name: str, begin: Callable[[], Transaction]) -> None:
        before = _FileIO.opened
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with begin() as transaction:
                command(transaction)
        opened[name] = _FileIO.opened - before
        summary = made.metadata.snapshots[-1].summary
        results[name] = summary and (summary.operation, summary["total-records"])

    seconds: dict[str, list[float]] = {"with": [], "without": []}
    for _ in range(rounds):
        for name, begin in (("with", index.transaction), ("without", made.transaction)):
            (taken,) = interleaved({name: lambda: run(name, begin)}, rounds=1, warm=0).values()  # noqa: B023
            seconds[name] += taken
            made.manage_snapshots().rollback_to_snapshot(start).commit()
    assert results["with"] == results["without"]
    files = opened["with"], opened["without"]
    faster = ratio(seconds["without"], seconds["with"])
    return [title, *files, spread(seconds["with"]), spread(seconds["without"]), faster]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="?", default="", help="the beginning of a command's name")
    parser.add_argument("--files", type=int, default=1_000)
    parser.add_argument("--rows", type=int, default=1_000, help="a file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--delay", type=int, default=0, help="ms a request for a data file")
    main(**vars(parser.parse_args()))
