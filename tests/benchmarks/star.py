"""The synthetic fact table that benchmarks share: what a file can be skipped by, and by nothing.

==========  ======  ============================================================================
column      type    values
==========  ======  ============================================================================
``k``       bigint  clustered: file `i` holds the 500 keys from 500 i on, all of them
``h``       bigint  a 64-bit mix of `k`: in the same files, but each file's bounds span everything
``oid``     bigint  unique, in no order
``price``   double  about 100,000 values, in every file
``note``    string  about 100,000 texts of 37 characters, in every file
==========  ======  ============================================================================
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

__all__ = ["DATA", "FILES", "KEYS", "matching", "mixes", "star", "write_star"]

DATA = Path(__file__).parents[2] / ".data"
"""Where tables are kept between runs; not in git."""

FILES = 200
KEYS = 500
"""Distinct values of `k`, and of `h`, in a file."""


def star(
    spark: SparkSession, rows: int, *, files: int = FILES, more: Mapping[str, str] | None = None
) -> DataFrame:
    """The rows, in one partition a file. `more`: further columns, as SQL over `id`, `k`, `file`."""
    if rows % KEYS:
        raise ValueError(f"{rows} rows a file are no multiple of the {KEYS} keys of a file")
    keyed = spark.range(0, rows * files, 1, files).selectExpr(
        "id", f"id div {rows // KEYS} AS k", f"cast(id div {rows} AS int) AS file"
    )
    columns = {
        "k": "k",
        "h": "xxhash64(k)",
        "oid": "xxhash64(id, 'oid')",
        "price": "pmod(xxhash64(id, 'price'), 100000) / 100.0D",
        "note": "concat('note ', md5(cast(pmod(xxhash64(id, 'note'), 100000) AS string)))",
        **(more or {}),
    }
    return keyed.selectExpr(*(f"{sql} AS {name}" for name, sql in columns.items()))


def write_star(
    spark: SparkSession,
    name: str,
    rows: int,
    *,
    folder: Path = DATA,
    files: int = FILES,
    more: Mapping[str, str] | None = None,
    statistics: bool = True,
) -> Path:
    """The star as a Delta table in `folder`, written unless it is there; says where it is.

    Without `statistics` the log has no bounds, and Delta alone skips nothing.
    """
    path = folder / f"{name}-{files}x{rows}{'' if statistics else '-bare'}"
    if not path.exists():
        half = path.with_name(f"{path.name}.half")
        shutil.rmtree(half, ignore_errors=True)
        writer = star(spark, rows, files=files, more=more).write.format("delta")
        if not statistics:
            writer = writer.option("delta.dataSkippingNumIndexedCols", "0")
        writer.save(str(half))
        half.rename(path)
    return path


def mixes(spark: SparkSession, *, files: int = FILES) -> dict[int, int]:
    """The `h` of each `k`."""
    pairs = star(spark, KEYS, files=files).select("k", "h").coalesce(2).toArrow()
    return dict(zip(pairs["k"].to_pylist(), pairs["h"].to_pylist(), strict=True))


def matching(spark: SparkSession, condition: str, *, files: int = FILES) -> set[int]:
    """The files that hold a row for which a condition on `k` and `h` is true."""
    found = star(spark, KEYS, files=files).coalesce(2).where(condition)
    return {row.file for row in found.selectExpr(f"k div {KEYS} AS file").distinct().collect()}
