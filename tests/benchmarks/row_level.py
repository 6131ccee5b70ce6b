"""What a join does with its keys inside files: `python -m tests.benchmarks.row_level`.

A fact of 40 files of 20 row groups each, ordered by a key, joined by sort and merge. The keys live
in ten files, in a tenth of the row groups of each. Files alone: `spark.skipping.dynamic.rows` is
off. The filter alone: the Parquet reader takes no conditions. Both: as it is.
"""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame, Row, SparkSession

from skipping import SkippingIndex
from tests.benchmarks.metrics import Read, reads
from tests.benchmarks.report import Timing, heading, interleaved, ratio, spread, table
from tests.benchmarks.session import benchmark_session
from tests.benchmarks.star import DATA

__all__ = ["main"]

FILES, GROUPS, IN_GROUP = 40, 20, 10_000
IN_FILE = GROUPS * IN_GROUP
KEYS = (100, 10_000, 20_000, 1_000_000)
ROUNDS = 5
ARMS = {
    "no index": {"spark.skipping.enabled": "false"},
    "files": {"spark.skipping.dynamic.rows": "false"},
    "and filter": {"spark.sql.parquet.filterPushdown": "false"},
    "and reader": {},
}
QUERY = "SELECT count(*), sum(f.k), max(f.note) FROM {} f JOIN dim USING (k) WHERE dim.chosen"


def main() -> None:
    """Print the table."""
    settings = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
    with benchmark_session(settings) as spark:
        path = DATA / "row-groups"
        if not path.exists():
            _write(spark, str(path))
        SkippingIndex.create(spark, f"delta.`{path}`", "k MIN_MAX")
        lines: list[tuple[object, ...]] = []
        for n in KEYS:
            _dimension(spark, n)
            lines.extend(_lines(spark, QUERY.format(f"delta.`{path}`"), n))
        heading(
            "A join with the keys used on files, on rows and in the reader",
            files=FILES,
            row_groups=GROUPS,
            rows=f"{FILES * IN_FILE:,}",
            rounds=ROUNDS,
        )
        table(("keys", "files", "rows read", "rows joined", "s", "times faster"), lines)


def _write(spark: SparkSession, path: str) -> None:
    rows = spark.range(0, FILES * IN_FILE, 1, FILES)
    # Row groups end by size, which is looked at every so many rows.
    rows.selectExpr("id AS k", "concat(md5(string(id)), md5(string(-id))) AS note").write.format(
        "delta"
    ).options(
        **{
            "parquet.block.size": str(IN_GROUP * 72),
            "parquet.block.size.row.check.min": str(IN_GROUP),
            "parquet.block.size.row.check.max": str(IN_GROUP),
            "compression": "uncompressed",
        }
    ).save(path)


def _dimension(spark: SparkSession, n: int) -> None:
    """At most 20,000 keys of ten files, in two row groups of each; the others are in no file."""
    place = f"(id % 10) * {4 * IN_FILE} + (id % 20 div 10) * {10 * IN_GROUP} + id div 20"
    spark.sql("DROP TABLE IF EXISTS dim")
    spark.range(0, n, 1, 2).selectExpr(
        f"IF(id < 20000, {place}, -id) AS k", "true AS chosen"
    ).write.format("delta").saveAsTable("dim")


def _lines(spark: SparkSession, query: str, n: int) -> list[tuple[object, ...]]:
    last: dict[str, tuple[list[Row], Read]] = {}

    def run(arm: str) -> None:
        for name, value in ARMS[arm].items():
            spark.conf.set(name, value)
        df: DataFrame = spark.sql(query)
        rows = df.collect()
        last[arm] = rows, max(reads(df), key=lambda read: read.bytes)
        for name in ARMS[arm]:
            spark.conf.unset(name)

    seconds: dict[str, Timing] = dict(
        interleaved({arm: partial(run, arm) for arm in ARMS}, rounds=ROUNDS)
    )
    if any(rows != last["no index"][0] for rows, _ in last.values()):
        raise AssertionError(f"rows differ: {last}")
    return [
        (
            f"{n:,} {arm}",
            read.files,
            f"{read.rows:,}",
            f"{read.joined:,}",
            spread(seconds[arm]),
            ratio(seconds["no index"], seconds[arm]),
        )
        for arm, (_, read) in last.items()
    ]


if __name__ == "__main__":
    main()
