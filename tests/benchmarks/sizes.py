"""What OpenSearch keeps of a file, by kind: `python -m tests.benchmarks.sizes [files]`.

OpenSearch is a node on this machine ($OPENSEARCH, if it is set).
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from skipping.model.definition import Definition, TableId
from skipping.stores import IDENTITY
from skipping.stores.opensearch.credentials import Access
from skipping.stores.opensearch.store import OpenSearchStore
from tests.benchmarks.report import heading, table
from tests.benchmarks.synthetic import KEYS, SHARED, bytes_on_disk, cluster, entries, server

__all__ = ["main"]


def main(files: int = 10_000) -> None:
    """Print the table."""
    with cluster() as address:
        rows = list(_sizes(address, files))
        version = server(address)
    heading("What OpenSearch keeps, merged to one segment", files=files, OpenSearch=version)
    table(("sketches", "bytes a file"), rows)


def _sizes(address: str, files: int) -> Iterator[tuple[str, str]]:
    """Bytes a file that each kind adds, to those of a file's identity."""
    random = np.random.default_rng(7)
    known = pa.array(np.ones(files, np.bool_))
    bounds = pa.array(np.arange(files) * KEYS)
    some = {
        "MIN_MAX of numbers": {"s1_low": bounds, "s1_high": bounds, "s1_nulls": bounds},
        "BLOOM_FILTER of a KiB": {
            "s1_filter": pa.array([random.bytes(1024) for _ in range(files)], pa.large_binary()),
            "s1_layout": pa.array(np.full(files, 7)),
        },
    }
    for n in (20, 200):
        ends = pa.array(np.arange(files + 1, dtype=np.int32) * n)
        values = random.choice(files * n // SHARED, files * n)
        spelled = pa.array([f"w{value:09}" for value in values.tolist()])
        numbers, texts = (pa.ListArray.from_arrays(ends, v) for v in (pa.array(values), spelled))
        some[f"VALUE_LIST of {n} numbers"] = {"s1_values": numbers}
        some[f"VALUE_LIST of {n} texts of 10 bytes"] = {"s1_values": texts}
    identity = pa.concat_tables(entries(files)).select(IDENTITY.names)
    base = _kept(address, identity)
    yield "none: path, size, partition", f"{base:.0f}"
    for name, columns in some.items():
        made = identity.append_column("s1_known", known)
        for column, of_files in columns.items():
            made = made.append_column(column, of_files)
        yield f"+ {name}", f"{_kept(address, made) - base:.0f}"


def _kept(address: str, made: pa.Table) -> float:
    prefix = f"size-{uuid.uuid4().hex[:8]}-"
    store = OpenSearchStore(address, Access(prefix=prefix), patience=600)
    store.define(Definition("i", TableId("delta", "t", "file:/t"), "t", ()), expect=None)
    store.reserve("i", len(made))
    store.write("i", made, revision=1)
    return bytes_on_disk(address, f"{prefix}*,-{prefix}catalogue") / len(made)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
