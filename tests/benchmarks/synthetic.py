"""Entries as an index of many files has them, and the servers that benchmarks of stores ask.

File `i` holds the 500 keys from 500 i on (s1), and 20 numbers that live in five files each (s2).
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skipping.stores import IDENTITY
from tests.opensearch import Node

__all__ = [
    "KEYS",
    "PART",
    "SHARED",
    "VALUES",
    "cluster",
    "distinct",
    "entries",
    "identities",
    "server",
]

KEYS, VALUES, SHARED = 500, 20, 5
PART = 10_000  # entries of one write


def distinct(files: int) -> int:
    """How many different numbers there are in all files."""
    return files * VALUES // SHARED


def entries(files: int, start: int = 0) -> Iterator[pa.Table]:
    """The entries of the files `start` to `files`, PART at a time."""
    values = np.random.default_rng(7).permutation((files - start) * VALUES) % distinct(files)
    for first in range(start, files, PART):
        numbers = np.arange(first, min(first + PART, files))
        n = len(numbers)
        some = values[(first - start) * VALUES :][: n * VALUES]
        ends = pa.array(np.arange(n + 1, dtype=np.int32) * VALUES)
        nulls, known = pa.array(np.zeros(n, np.int64)), pa.array(np.ones(n, np.bool_))
        table = identities(numbers)
        columns = {
            "s1_known": known,
            "s1_low": pa.array(numbers * KEYS),
            "s1_high": pa.array(numbers * KEYS + KEYS - 1),
            "s1_nulls": nulls,
            "s2_known": known,
            "s2_values": pa.ListArray.from_arrays(ends, pa.array(some)),
            "s2_nulls": nulls,
        }
        for name, column in columns.items():
            table = table.append_column(name, column)
        yield table


def identities(numbers: npt.NDArray[np.int64]) -> pa.Table:
    """What tells these files apart; their ordinals are their numbers."""
    n = len(numbers)
    spelled = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 7, "0")
    paths = pc.binary_join_element_wise("file:/star/part-", spelled, "-c000.snappy.parquet", "")
    return pa.table(
        [
            pa.array(numbers),
            paths,
            pa.array(numbers + 1_000_000),
            pa.nulls(n, pa.int64()),
            pa.repeat("{}", n),
        ],
        schema=IDENTITY,
    )


@contextmanager
def cluster() -> Iterator[str]:
    """The address of a node on this machine, or of the one that $OPENSEARCH names."""
    running = os.environ.get("OPENSEARCH", "").rpartition("/")[2]
    if running:
        yield f"http://{running}"
        return
    node = Node(fast=True)
    try:
        yield f"http://{node.start()}"
    finally:
        node.stop()


def server(cluster: str) -> str:
    """Version and Java of the first node."""
    with urllib.request.urlopen(f"{cluster}/_nodes/jvm", timeout=60) as response:
        node = next(iter(json.load(response)["nodes"].values()))
    return f"{node['version']} on JDK {node['jvm']['version']}"


def administer(cluster: str, method: str, path: str) -> Any:
    """What no store asks for."""
    request = urllib.request.Request(f"{cluster}{path}", method=method)
    with urllib.request.urlopen(request, timeout=600) as response:
        return json.load(response)
