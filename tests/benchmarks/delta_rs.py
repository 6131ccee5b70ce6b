"""A join in delta-rs and through the index, without Spark: `python -m tests.benchmarks.delta_rs`.

The fact table is sorted by its key, so delta-rs prunes files by a literal, from the bounds in the
log, but not by the keys of a join. DataFusion reads the rows that `index.join` leaves.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import SessionContext
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from skipping import SkippingIndex
from tests.benchmarks.report import heading, interleaved, spread, table

__all__ = ["main"]

JOIN = "SELECT count(*) AS n, sum(v) AS v FROM fact JOIN dim ON fact.k = dim.k WHERE dim.name = 'x'"
LITERAL = "SELECT count(*) AS n, sum(v) AS v FROM fact WHERE k = {}"


def main(files: int, rows: int, rounds: int) -> None:
    """Print the table."""
    with TemporaryDirectory() as folder:
        fact, dim = f"{folder}/fact", f"{folder}/dim"
        for i in range(files):
            numbers = np.arange(i * rows, (i + 1) * rows, dtype=np.int64)
            made = {"k": numbers // 10, "v": numbers, "note": pc.cast(pa.array(numbers), "string")}
            Path(fact).mkdir(exist_ok=True)
            write_deltalake(fact, pa.table(made), mode="append")
        key = files * rows // 20
        names = {"k": [*range(0, 2 * key, key // 10), key], "name": [*"y" * 20, "x"]}
        write_deltalake(dim, pa.table(names))
        index = SkippingIndex.create(
            DeltaTable(fact), "k MIN_MAX", store=f"sqlite:{folder}/i.sqlite"
        )
        opened = len(index.join(pa.table({"k": [key]}), on="k").plan_files())

        def run(sql: str) -> list[dict[str, object]]:
            builder = QueryBuilder().register("fact", DeltaTable(fact))
            return pa.table(builder.register("dim", DeltaTable(dim)).execute(sql)).to_pylist()

        def through_index() -> list[dict[str, object]]:
            small = QueryBuilder().register("dim", DeltaTable(dim))
            keys = pa.table(small.execute("SELECT k FROM dim WHERE name = 'x'"))
            context = SessionContext()
            context.from_arrow(index.join(keys, on="k").select("v"), "joined")
            return context.sql("SELECT count(*) AS n, sum(v) AS v FROM joined").to_pylist()

        candidates: dict[str, Callable[[], object]] = {
            "delta-rs, key as a literal": lambda: run(LITERAL.format(key)),
            "delta-rs, join": lambda: run(JOIN),
            "index.join, then DataFusion": through_index,
        }
        assert run(LITERAL.format(key)) == run(JOIN) == through_index()
        seconds = interleaved(candidates, rounds=rounds)
    heading(
        "A join without Spark",
        deltalake=version("deltalake"),
        datafusion=version("datafusion"),
        files=f"{files:,}",
        rows=f"{files * rows:,}",
        rounds=rounds,
        opened=f"{opened} by index.join",
    )
    table(["", "seconds"], [[name, spread(taken, 3)] for name, taken in seconds.items()])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--rows", type=int, default=50_000, help="a file")
    parser.add_argument("--rounds", type=int, default=3)
    main(**vars(parser.parse_args()))
