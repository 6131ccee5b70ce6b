"""A stream joined with a table: each batch opens the files of the table that its rows need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast

import rewrite
from skipping.spark_api import RELEASE
from tests.rewrite.differential import ENABLED, in_catalog_of, make_table, settings

pytestmark = pytest.mark.nightly

FILES = 10
ROWS = f"SELECT id, int(id div 10) AS k, int(id div 10) AS _f FROM range({10 * FILES})"
INDEX = "k VALUE_LIST"


@pytest.fixture(scope="module", params=["delta", "iceberg"])
def fact(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    """A table of ten files, each with one key."""
    with in_catalog_of(spark, request.param) as format:
        make_table(spark, "static_fact", ROWS, INDEX)
    yield f"{format.namespace}.static_fact"
    spark.sql(f"DROP SKIPPING INDEX ON {format.namespace}.static_fact")
    spark.sql(f"DROP TABLE {format.namespace}.static_fact")


class Batches:
    """Runs a query on a Delta stream batch after batch, each begun anew from the checkpoint."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self._spark = spark
        self._place = place

    def run(
        self, keys: list[int], query: Callable[[DataFrame], DataFrame], mode: str = "append"
    ) -> list[int]:
        """Files of the table that each execution of the batch opened."""
        source = str(self._place / "source")
        frame = self._spark.createDataFrame([(k, f"n{k}") for k in keys], "k INT, name STRING")
        frame.coalesce(1).write.format("delta").mode("append").save(source)
        before = {row.execution for row in rewrite.history(self._spark).collect()}
        stream = self._spark.readStream.format("delta").load(source)
        sink = query(stream).writeStream.format("delta").outputMode(mode)
        sink.option("checkpointLocation", str(self._place / "checkpoint")).trigger(
            availableNow=True
        ).start(str(self._place / "out")).awaitTermination()
        return [
            row.opened
            for row in rewrite.history(self._spark).collect()
            if row.execution not in before and row.table.endswith("static_fact")
        ]

    def rows(self) -> list[str]:
        out = self._spark.read.format("delta").load(str(self._place / "out"))
        return sorted(map(str, out.collect()))


@pytest.mark.parametrize(
    ("kind", "files"),
    # A stream that keeps all its rows is not broadcast, and its batch is not read again.
    [("inner", [1, 2, 0]), ("left_outer", [FILES] * 3)],
)
def test_each_batch_opens_what_it_needs(
    spark: SparkSession, fact: str, tmp_path: Path, kind: str, files: list[int]
) -> None:
    def joined(stream: DataFrame) -> DataFrame:
        return stream.join(spark.table(fact), "k", kind)

    batches = Batches(spark, tmp_path / "with")
    opened = [batches.run(keys, joined) for keys in ([3], [7, 8], [99])]
    control = Batches(spark, tmp_path / "without")
    with settings(spark, {ENABLED: "false"}):
        for keys in ([3], [7, 8], [99]):
            control.run(keys, joined)
    assert batches.rows() == control.rows()
    assert len(batches.rows()) == 30 + (kind == "left_outer")
    assert [max(counts, default=0) for counts in opened] == files


def test_a_filtered_table_does_not_prune_the_stream(
    spark: SparkSession, fact: str, tmp_path: Path
) -> None:
    def joined(stream: DataFrame) -> DataFrame:
        return stream.join(broadcast(spark.table(fact).where("id < 35")), "k")

    batches = Batches(spark, tmp_path)
    batches.run([1, 3, 5], joined)
    batches.run([3, 9], joined)
    assert len(batches.rows()) == 10 + 5 + 5


def test_state_is_not_touched(spark: SparkSession, fact: str, tmp_path: Path) -> None:
    def counted(stream: DataFrame) -> DataFrame:
        sums = stream.groupBy("k").count()
        return sums.join(spark.table(fact).where("id % 10 = 0"), "k")

    results = []
    for name, enabled in (("with", "true"), ("without", "false")):
        batches = Batches(spark, tmp_path / name)
        with settings(spark, {ENABLED: enabled}):
            for keys in ([3, 3], [3, 4], [4]):
                batches.run(keys, counted, "complete")
        results.append(batches.rows())
    assert results[0] == results[1]
    assert len(results[0]) == 2


def test_a_batch_in_foreach_batch(spark: SparkSession, fact: str, tmp_path: Path) -> None:
    found: list[tuple[int, int]] = []

    def write(batch: DataFrame, id: int) -> None:
        table = batch.sparkSession.table(fact)
        joined = table.join(broadcast(batch), "k")
        rows = joined.count()
        scans = [s for s in rewrite.explain(joined).scans if s.table.endswith("static_fact")]
        found.append((rows, sum(scan.opened or 0 for scan in scans)))

    source = str(tmp_path / "source")
    frame = spark.createDataFrame([(3, "a"), (5, "b")], "k INT, name STRING")
    frame.coalesce(1).write.format("delta").save(source)
    stream = spark.readStream.format("delta").load(source)
    stream.writeStream.foreachBatch(write).trigger(availableNow=True).start().awaitTermination()
    # The batch is rows of an RDD: before Spark 4.1 no scan can be kept from other rows without
    # adaptive execution.
    assert found == [(20, FILES if RELEASE < (4, 1) else 2)]
