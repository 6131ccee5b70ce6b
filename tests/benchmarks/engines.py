"""A join in other engines, on all files and on our survivors: `python -m tests.benchmarks.engines`.

A Delta table of 200 files in an object store that answers each request 30 ms late, and a dimension
whose keys are in 2 of them; file bounds tell nothing. DuckDB, Polars and DataFusion read the table
themselves; then they are given what `index.scan(keys=...)` leaves, and Daft, where it is installed.
No Spark. The first run of each has a column of its own: it knows nothing yet.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib.util import find_spec
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import datafusion
import duckdb
import duckdb_extensions
import numpy as np
import polars as pl
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from skipping import SkippingIndex
from tests.benchmarks.report import heading, interleaved, spread, table
from tests.object_store import ACCESS, BUCKET, SECRET, ObjectStore

__all__ = ["main"]

NEEDED = 2
KEYS = 500
"""Distinct keys in a file."""

QUERY = "SELECT count(*) AS n, max(oid) AS oid, max(note) AS note FROM {} JOIN dim USING (h)"
Answer = tuple[object, ...]
Arm = Callable[[], Answer]


def _rows(file: int, rows: int) -> pa.Table:
    keys = np.arange(file * KEYS, (file + 1) * KEYS, dtype=np.uint64) * np.uint64(
        0x9E3779B97F4A7C15
    )
    random = np.random.default_rng(file)
    return pa.table(
        {
            "h": np.resize(keys.view(np.int64), rows),
            "oid": random.integers(2**62, size=rows),
            "price": random.random(rows),
            "note": [f"note {n:032x}" for n in random.integers(2**62, size=rows)],
        }
    )


def main(files: int, rows: int, rounds: int, delay: int) -> None:
    """Print the table."""
    with ObjectStore() as store, TemporaryDirectory() as folder:
        store.delay(0)
        url, options = f"s3://{BUCKET}/fact", store.options()
        for file in range(files):
            write_deltalake(url, _rows(file, rows), mode="append", storage_options=options)
        fact = DeltaTable(url, storage_options=options)
        index = SkippingIndex.create(fact, "h VALUE_LIST(1000)", store=f"sqlite:{folder}/index")
        needed = [place * files // NEEDED for place in range(NEEDED)]
        dim = pa.concat_tables(_rows(file, KEYS).select(["h"]) for file in needed)
        store.delay(delay)
        _measure(_arms(store, index, dim), rounds, files=files, rows=f"{files * rows:,}",
                 keys=len(dim), at=f"object store, {delay} ms a request")  # fmt: skip


def _arms(store: ObjectStore, index: SkippingIndex, dim: pa.Table) -> dict[str, Arm]:
    frame = pl.DataFrame(dim)

    def by_polars(lazy: Callable[[], pl.LazyFrame]) -> Arm:
        columns = pl.len().alias("n"), pl.col("oid").max(), pl.col("note").max()
        return lambda: lazy().join(frame.lazy(), on="h").select(*columns).collect().row(0)

    db = duckdb.connect()
    for extension in ("delta", "httpfs"):
        duckdb_extensions.import_extension(extension)
        db.execute(f"LOAD {extension}")
    db.execute(
        f"""CREATE SECRET (TYPE s3, KEY_ID '{ACCESS}', SECRET '{SECRET}', USE_SSL false,
        ENDPOINT '127.0.0.1:{store.port}', URL_STYLE 'path', REGION 'us-east-1')"""
    )
    db.register("dim", dim)

    def by_duckdb(source: Callable[[], str]) -> Arm:
        return lambda: db.execute(QUERY.format(source())).fetchone() or ()

    def survivors() -> str:
        index.scan(keys={"h": dim}).to_duckdb("survivors", db)
        return "survivors"

    context = datafusion.SessionContext()
    remote = datafusion.object_store.AmazonS3(
        bucket_name=BUCKET, region="us-east-1", access_key_id=ACCESS, secret_access_key=SECRET,
        endpoint=f"http://127.0.0.1:{store.port}", allow_http=True,
    )  # fmt: skip
    context.register_object_store(f"s3://{BUCKET}/", remote)
    context.register_parquet("fact", f"s3://{BUCKET}/fact/")
    context.from_arrow(dim, name="dim")

    def by_datafusion(source: Callable[[], str]) -> Arm:
        def run() -> Answer:
            (row,) = context.sql(QUERY.format(source())).to_arrow_table().to_pylist()
            return tuple(row.values())

        return run

    def given_to_datafusion() -> str:
        if context.table_exist("survivors"):
            context.deregister_table("survivors")
        index.scan(keys={"h": dim}).to_datafusion(context, "survivors")
        return "survivors"

    arms = {
        "DuckDB": by_duckdb(lambda: f"delta_scan('s3://{BUCKET}/fact')"),
        "DuckDB, our survivors": by_duckdb(survivors),
        "Polars": by_polars(
            lambda: pl.scan_delta(f"s3://{BUCKET}/fact", storage_options=store.options())
        ),
        "Polars, our survivors": by_polars(lambda: index.scan(keys={"h": dim}).to_polars()),
        "DataFusion": by_datafusion(lambda: "fact"),
        "DataFusion, our survivors": by_datafusion(given_to_datafusion),
    }
    if find_spec("daft") is not None:
        arms["Daft, our survivors"] = lambda: _by_daft(index, dim)
    assert len(index.scan(keys={"h": dim}).plan_files()) == NEEDED
    return arms


def _by_daft(index: SkippingIndex, dim: pa.Table) -> Answer:
    import daft

    joined = index.scan(keys={"h": dim}).to_daft().join(daft.from_arrow(dim), on="h")
    found = joined.agg(
        daft.col("h").count().alias("n"), daft.col("oid").max(), daft.col("note").max()
    ).to_pydict()
    return tuple(values[0] for values in found.values())


def _measure(arms: dict[str, Arm], rounds: int, **facts: object) -> None:
    first, answers = {}, set()
    for name, run in arms.items():
        began = perf_counter()
        answers.add(run())
        first[name] = perf_counter() - began
    if len(answers) != 1:
        raise AssertionError(f"other rows: {answers}")
    seconds = interleaved(arms, rounds=rounds, warm=0)
    heading("A join that needs 2 files, without Spark", rounds=rounds, **facts)
    table(
        ("engine", "first, s", "then, s"),
        [
            (name, f"{first[name]:.2f}", spread(seconds[name]))
            for name in sorted(arms, key=lambda name: median(seconds[name]))
        ],
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="?", type=int, default=200)
    parser.add_argument("rows", nargs="?", type=int, default=20_000, help="a file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--delay", type=int, default=30, help="ms a request")
    main(**vars(parser.parse_args()))
