"""Each form of command and stream, with and without index: `python -m tests.benchmarks.forms`.

Twin tables in an object store that answers each request 30 ms late. Their metadata has no bounds,
so only the index can skip files. *affected* are files with a row that the command changes or the
stream returns. After each form the twins must have the same rows, and so must the sinks of streams.
Each form runs once in each twin, so its seconds are of one run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession
from tqdm import tqdm

import rewrite
from tests.benchmarks.report import heading, table
from tests.benchmarks.session import benchmark_session
from tests.object_store import BUCKET, ObjectStore

__all__ = ["main"]

ROWS = 1_000
"""Rows of a file; each has ten values of `k`, and `h` and `g` are hashes of those."""

INDEX = "k VALUE_LIST, h VALUE_LIST, g VALUE_LIST"
ARMS = ("without", "with")
WAREHOUSE = "spark.sql.catalog.iceberg.warehouse"
NO_BOUNDS = {
    "delta": "'delta.dataSkippingNumIndexedCols' = '0'",
    "iceberg": "'write.metadata.metrics.default' = 'none', 'write.distribution-mode' = 'none'",
}
MERGE_ON_READ = ", ".join(
    f"'write.{command}.mode' = 'merge-on-read'" for command in ("delete", "update", "merge")
)


@dataclass(frozen=True)
class Target:
    """A kind of table: its name in the report, its namespace, format and properties."""

    name: str
    namespace: str
    format: str
    properties: str = ""

    @property
    def file(self) -> str:
        """The column with a row's file."""
        return "_file" if self.format == "iceberg" else "_metadata.file_path"

    def table(self, arm: str) -> str:
        """The full name of the table of an arm."""
        return f"{self.namespace}.forms_{self.name.replace('-', '_')}_{arm}"


TARGETS = (
    Target("delta", "spark_catalog.default", "delta"),
    Target("delta-dv", "spark_catalog.default", "delta", "'delta.enableDeletionVectors' = 'true'"),
    Target("iceberg-cow", "iceberg.default", "iceberg"),
    Target("iceberg-mor", "iceberg.default", "iceberg", MERGE_ON_READ),
)

FEW = "(SELECT k, hash(k, 'h') AS h, hash(k, 'g') AS g, v FROM source WHERE v < 5)"
"""Keys of five files."""

COMMANDS = {
    "DELETE, one value": ("DELETE FROM {t} WHERE h = hash(7L, 'h')", "k = 7"),
    "UPDATE, a range": ("UPDATE {t} SET v = -1 WHERE k BETWEEN 95 AND 104", "k BETWEEN 95 AND 104"),
    "MERGE, upsert": (
        f"""MERGE INTO {{t}} t USING {FEW} s ON t.h = s.h WHEN MATCHED THEN UPDATE SET v = s.v
        WHEN NOT MATCHED THEN INSERT (id, k, h, g, v) VALUES (-1, s.k, s.h, s.g, s.v)""",
        f"h IN (SELECT h FROM {FEW})",
    ),
    "MERGE, a cast key": (
        f"""MERGE INTO {{t}} t USING {FEW} s ON CAST(t.k AS INT) = CAST(s.k AS INT)
        WHEN MATCHED AND s.v = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v + 1""",
        f"k IN (SELECT k FROM {FEW})",
    ),
    "MERGE, one key or the other": (
        f"""MERGE INTO {{t}} t USING (SELECT h, hash(k + 50, 'g') AS g, v FROM {FEW}) s
        ON t.h = s.h OR t.g = s.g WHEN MATCHED THEN UPDATE SET v = s.v + 2""",
        f"h IN (SELECT h FROM {FEW}) OR k - 50 IN (SELECT k FROM {FEW})",
    ),
    "MERGE, not matched by source": (
        f"""MERGE INTO {{t}} t USING {FEW} s ON t.h = s.h WHEN MATCHED THEN UPDATE SET v = s.v + 3
        WHEN NOT MATCHED BY SOURCE AND t.k = 205 THEN DELETE""",
        f"h IN (SELECT h FROM {FEW}) OR k = 205",
    ),
}

Query = Callable[[SparkSession, DataFrame], DataFrame]
STREAMS: dict[str, tuple[Query, str]] = {
    "stream, a list of values": (
        lambda spark, rows: rows.where("k IN (301, 412)"),
        "k IN (301, 412)",
    ),
    "stream, keys of a static table": (
        lambda spark, rows: rows.join(spark.table("source").where("v < 5").select("k"), "k"),
        f"k IN (SELECT k FROM {FEW})",
    ),
}


def main(names: Collection[str], files: int, delay: int) -> None:
    """Print the table."""
    lines: list[tuple[object, ...]] = []
    with ObjectStore() as store, TemporaryDirectory() as folder:
        settings = {**store.settings(), WAREHOUSE: f"s3a://{BUCKET}/iceberg"}
        with benchmark_session(settings) as spark:
            spark.sql("CREATE NAMESPACE IF NOT EXISTS iceberg.default")
            # One key of each third file, and one of none.
            keys = spark.range(0, files // 3).selectExpr("id * 30 + 1 AS k", "id AS v")
            new = spark.sql("SELECT -1L AS k, 1L AS v")
            source = keys.unionAll(new).coalesce(1)
            source.writeTo("spark_catalog.default.source").using("delta").create()
            source.writeTo("iceberg.default.source").using("iceberg").create()
            targets = [each for each in TARGETS if each.name in names]
            for target in tqdm(targets, unit="table", disable=None):
                store.delay(0)
                spark.sql(f"USE {target.namespace}")  # so that the source has the same format
                _make(spark, target, files)
                for line in _lines(spark, target, store, delay, Path(folder)):
                    lines.append((target.name, *line))
    heading("Commands and streams", files=files, rows=f"{files * ROWS:,}", delay=f"{delay} ms")
    head = ("table", "form", "affected", "opened", "without", "s", "s without", "times", "rows")
    table(head, lines)
    if any(line[-1] != "equal" for line in lines):
        raise AssertionError("some rows differ")


def _make(spark: SparkSession, target: Target, files: int) -> None:
    rows = spark.range(0, files * ROWS, 1, files)
    k = f"id div {ROWS // 10}"
    values = rows.selectExpr(
        "id", f"{k} AS k", f"hash({k}, 'h') AS h", f"hash({k}, 'g') AS g", "id % 100 AS v"
    )
    for arm in ARMS:
        name = target.table(arm)
        place = f" LOCATION 's3a://{BUCKET}/{name}'" if target.format == "delta" else ""
        properties = ", ".join(filter(None, (NO_BOUNDS[target.format], target.properties)))
        spark.sql(
            f"CREATE TABLE {name} (id BIGINT, k BIGINT, h INT, g INT, v BIGINT)"
            f" USING {target.format}{place} TBLPROPERTIES ({properties})"
        )
        values.writeTo(name).append()
    spark.sql(f"CREATE SKIPPING INDEX ON {target.table('with')} ({INDEX})")


def _lines(
    spark: SparkSession, target: Target, store: ObjectStore, delay: int, folder: Path
) -> Iterator[tuple[object, ...]]:
    """Run each form on both twins."""
    forms: dict[str, tuple[Callable[[str], str], str]] = {}
    for form, (query, affected) in STREAMS.items():
        forms[form] = _stream(spark, target, query, folder / target.name / form), affected
    for form, (statement, affected) in COMMANDS.items():
        forms[form] = _command(spark, target, statement), affected
    for form, (run, affected) in forms.items():
        store.delay(0)
        spark.conf.set("spark.skipping.enabled", "false")
        (needed,) = spark.sql(
            f"SELECT count(DISTINCT {target.file}) FROM {target.table('without')} WHERE {affected}"
        ).collect()[0]
        seconds, opened, results = {}, {}, {}
        for arm in ARMS:
            spark.conf.set("spark.skipping.enabled", str(arm == "with").lower())
            before = {row.execution for row in rewrite.history(spark).collect()}
            store.delay(delay)
            start = time.perf_counter()
            result = run(arm)
            seconds[arm] = time.perf_counter() - start
            store.delay(0)
            opened[arm] = _files_of(spark, target.table(arm), before)
            spark.conf.set("spark.skipping.enabled", "false")
            results[arm] = _rows(spark, result)
        spark.conf.set("spark.skipping.enabled", "true")
        spark.sql(f"REFRESH SKIPPING INDEX ON {target.table('with')}")
        yield (
            form,
            needed,
            opened["with"],
            opened["without"],
            f"{seconds['with']:.1f}",
            f"{seconds['without']:.1f}",
            f"{seconds['without'] / seconds['with']:.1f}",
            "equal" if results["with"] == results["without"] else "DIFFERENT",
        )


def _command(spark: SparkSession, target: Target, statement: str) -> Callable[[str], str]:
    def run(arm: str) -> str:
        spark.sql(statement.format(t=target.table(arm))).collect()
        return target.table(arm)

    return run


def _stream(
    spark: SparkSession, target: Target, query: Query, folder: Path
) -> Callable[[str], str]:
    def run(arm: str) -> str:
        sink = folder / arm
        reader = spark.readStream.option("skipChangeCommits", "true")  # of Delta
        reader = reader.option("streaming-skip-overwrite-snapshots", "true")  # of Iceberg
        reader = reader.option("streaming-skip-delete-snapshots", "true")
        writer = query(spark, reader.table(target.table(arm))).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", f"{sink}-checkpoint")
        writer.trigger(availableNow=True).start(str(sink)).awaitTermination()
        return f"parquet.`{sink}`"

    return run


def _files_of(spark: SparkSession, name: str, before: set[int]) -> str:
    """Files that each of the command's scans opened."""
    counts = [
        "?" if row.opened is None else str(row.opened)
        for row in rewrite.history(spark).collect()
        if row.execution not in before and row.table == name
    ]
    return " + ".join(counts) or "-"


def _rows(spark: SparkSession, source: str) -> object:
    """A sum over all rows."""
    return spark.sql(f"SELECT count(*), sum(hash(id, k, h, g, v)) FROM {source}").collect()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    every = [target.name for target in TARGETS]
    parser.add_argument("names", nargs="*", metavar="table", default=every, help=", ".join(every))
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--delay", type=int, default=30, help="ms a request")
    main(**vars(parser.parse_args()))
