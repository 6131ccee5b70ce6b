"""Iceberg with an index and by itself: `python -m tests.benchmarks.iceberg [files] [rows]`.

First a needle: one value of a column that is unique and in no order, so that the bounds which
Iceberg plans by keep every file. Beside it the same table with Parquet's own bloom filters, which
take opening each file. Then a join whose keys live in a share of the files, by sort and merge: the
files alone, and with the keys in the reader and in a filter before the shuffle.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from pyspark.sql import Row, SparkSession

import rewrite
from skipping import ScanPlan, SkippingIndex
from tests.benchmarks.metrics import Read, reads
from tests.benchmarks.report import heading, interleaved, ratio, spread, table
from tests.benchmarks.session import benchmark_session
from tests.benchmarks.star import KEYS, star

__all__ = ["main"]

OFF = {"spark.skipping.enabled": "false"}
NEEDLES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "Iceberg": ("fact", OFF),
    "Parquet's blooms": ("blooms", OFF),
    "index": ("fact", {}),
}
JOINS: Mapping[str, Mapping[str, str]] = {
    "Iceberg": OFF,
    "files": {"spark.skipping.dynamic.rows": "false"},
    "and rows": {},
}
PERCENT = (1, 10)
FPP = 0.0005
"""The share of files without a needle that are opened all the same: mostly none of 400."""


def main(files: int, rows: int, rounds: int) -> None:
    """Print the tables."""
    with benchmark_session({"spark.sql.autoBroadcastJoinThreshold": "-1"}) as spark:
        spark.sql("CREATE NAMESPACE IF NOT EXISTS iceberg.default")
        spark.sql("USE iceberg.default")
        _write(spark, "fact", files, rows)
        _write(spark, "blooms", files, rows, "oid")
        index = SkippingIndex.create(
            spark,
            "fact",
            f"oid BLOOM_FILTER(num_items = {rows}, fpp = {FPP}), h VALUE_LIST({KEYS})",
        )
        kept = Path(index.store.location.removeprefix("sqlite:")).stat().st_size / files
        facts = {"files": files, "rows": f"{files * rows:,}", "rounds": rounds}
        heading("A needle", **facts, index_bytes_a_file=f"{kept:,.0f}")
        head = ("arm", "opened", "MB", "rows read", "rows joined", "s", "times faster")
        needle = spark.table("fact").where(f"id = {files * rows // 2}").first()
        assert needle is not None, "there are as many ids as rows"
        query = f"SELECT count(*), max(price) FROM {{}} WHERE oid = {needle.oid}"
        arms = {arm: (query.format(name), conf) for arm, (name, conf) in NEEDLES.items()}
        table(head, _lines(spark, arms, rounds))
        keys = star(spark, KEYS, files=files).selectExpr(
            "h", f"cast(pmod((k div {KEYS}) * 7919, {files}) AS int) AS place"
        )
        keys.coalesce(1).writeTo("dim").create()
        for percent in PERCENT:
            heading(f"A join with keys in {percent} % of the files", **facts)
            query = (
                "SELECT count(*), max(note) FROM fact JOIN dim USING (h)"
                f" WHERE place < {max(1, files * percent // 100)}"
            )
            table(head, _lines(spark, {arm: (query, conf) for arm, conf in JOINS.items()}, rounds))


def _write(spark: SparkSession, name: str, files: int, rows: int, *blooms: str) -> None:
    writer = star(spark, rows, files=files, more={"id": "id"}).writeTo(name).using("iceberg")
    properties = {"write.distribution-mode": "none", "write.target-file-size-bytes": str(1 << 30)}
    for column in blooms:
        properties[f"write.parquet.bloom-filter-enabled.column.{column}"] = "true"
    for key, value in properties.items():
        writer = writer.tableProperty(key, value)
    writer.create()


def _lines(
    spark: SparkSession, arms: Mapping[str, tuple[str, Mapping[str, str]]], rounds: int
) -> list[tuple[object, ...]]:
    last: dict[str, tuple[list[Row], ScanPlan, Read]] = {}

    def run(arm: str) -> None:
        query, conf = arms[arm]
        for key, value in conf.items():
            spark.conf.set(key, value)
        df = spark.sql(query)
        rows = df.collect()
        (scan,) = [s for s in rewrite.explain(df).scans if not s.table.endswith("dim")]
        (read,) = [r for r in reads(df) if not r.location.endswith("dim")]
        last[arm] = rows, scan, read
        for key in conf:
            spark.conf.unset(key)

    runs: dict[str, Callable[[], object]] = {arm: partial(run, arm) for arm in arms}
    seconds = interleaved(runs, rounds=rounds)
    if any(rows != last["Iceberg"][0] for rows, *_ in last.values()):
        raise AssertionError(f"rows differ: {last}")
    return [
        (
            arm,
            scan.opened,
            f"{(scan.opened_bytes or 0) / 1e6:,.1f}",
            f"{read.rows:,}",
            f"{read.joined:,}",
            spread(seconds[arm]),
            ratio(seconds["Iceberg"], seconds[arm]),
        )
        for arm, (_, scan, read) in last.items()
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="?", type=int, default=400)
    parser.add_argument("rows", nargs="?", type=int, default=20_000, help="a file")
    parser.add_argument("--rounds", type=int, default=5)
    main(**vars(parser.parse_args()))
