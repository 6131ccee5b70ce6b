"""A stream's own source: a micro-batch opens only the files that its conditions and keys need.

Each query runs twice from its own checkpoint, with the index and without. Sink and offsets must be
equal, and the files that need not be read hold garbage while the index is used.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import rewrite
from tests.conftest import RunPython
from tests.rewrite.differential import (
    ENABLED,
    FORMATS,
    append,
    in_catalog_of,
    make_table,
    matching,
    settings,
    spelled,
    spoiled,
)

ROOT = Path(__file__).parents[2]
FILES = 10
ROWS = f"""SELECT id, int(id div 10) AS k, int(id % 3) AS g, timestamp_seconds(id * 60) AS t,
    int(id div 10) AS _f FROM range({10 * FILES})"""
INDEX = "k VALUE_LIST"

Query = Callable[[DataFrame], DataFrame]


# The option that limits the files of a batch.
LIMIT = {"delta": "maxFilesPerTrigger", "iceberg": "streaming-max-files-per-micro-batch"}


@pytest.fixture(params=list(FORMATS))
def source(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    """A table of ten files, each with one key."""
    with in_catalog_of(spark, request.param) as format:
        make_table(spark, "streamed_source", ROWS, INDEX)
        yield f"{format.namespace}.streamed_source"
        spark.sql("DROP SKIPPING INDEX IF EXISTS ON streamed_source")
        spark.sql("DROP TABLE streamed_source")


only_delta = pytest.mark.parametrize("source", ["delta"], indirect=True)


@pytest.fixture(autouse=True)
def few_partitions(spark: SparkSession) -> Iterator[None]:
    """Write the state of a batch to few files."""
    with settings(spark, {"spark.sql.shuffle.partitions": "2"}):
        yield


@dataclass
class Stream:
    """A query on a stream of a table, with a sink and a checkpoint of its own."""

    spark: SparkSession
    table: str
    place: Path
    query: Query
    options: dict[str, Any] = field(default_factory=dict)
    mode: str = "append"
    sink: str = "parquet"
    progress: list[Any] = field(default_factory=list)

    def start(self) -> Any:
        frame = self.spark.readStream.options(**self.options).table(self.table)
        # The file sink runs one execution for each batch, and the Delta sink two.
        sink = self.query(frame).writeStream.format(self.sink).outputMode(self.mode)
        sink = sink.option("checkpointLocation", str(self.place / "checkpoint"))
        return sink.trigger(availableNow=True).start(str(self.place / "out"))

    def run(self) -> list[int]:
        """Read what is new; return the files of the source that each execution opened."""
        before = {row.execution for row in rewrite.history(self.spark).collect()}
        started = self.start()
        started.awaitTermination()
        self.progress += started.recentProgress
        return [
            row.opened
            for row in rewrite.history(self.spark).collect()
            if row.execution not in before and row.table.endswith(self.table.split(".")[-1])
        ]

    def rows(self) -> list[str]:
        return spelled(self.spark.read.format(self.sink).load(str(self.place / "out")).collect())

    def offsets(self) -> list[list[Any]]:
        """The offsets of all batches, without the times and settings in their metadata."""
        files = sorted(
            (self.place / "checkpoint/offsets").glob("[0-9]*"), key=lambda f: int(f.name)
        )
        return [file.read_text().splitlines()[2:] for file in files]


class Pair:
    """The same query with the index and without."""

    def __init__(
        self,
        spark: SparkSession,
        table: str,
        place: Path,
        query: Query,
        *,
        mode: str = "append",
        sink: str = "parquet",
        **options: Any,
    ) -> None:
        self._spark = spark
        self.pruned = Stream(spark, table, place / "with", query, options, mode, sink)
        self.control = Stream(spark, table, place / "without", query, options, mode, sink)

    def run(self, garbage: Collection[Path] = ()) -> list[int]:
        """Run both; return the files that each execution opened with the index."""
        with settings(self._spark, {ENABLED: "false"}):
            self.control.run()
        with spoiled(garbage):
            opened = self.pruned.run()
        assert self.pruned.rows() == self.control.rows()
        assert self.pruned.offsets() == self.control.offsets()
        return opened


def test_stream_source_opens_the_files_of_its_conditions(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    limit = {LIMIT[source.split(".")[0].replace("spark_catalog", "delta")]: 4}
    pair = Pair(spark, source, tmp_path, lambda s: s.where("k IN (3, 4)"), **limit)
    opened = pair.run(matching(spark, source, "k NOT IN (3, 4)"))
    assert sum(opened) == 2, opened
    assert len(pair.pruned.rows()) == 20
    # The batches are the same, and rows are counted for the source that has them.
    batches = [json.loads(each.json) for each in pair.pruned.progress]
    assert len(batches) == len(pair.control.progress) == 3
    assert sum(batch["sources"][0]["numInputRows"] for batch in batches) == 20


def test_stream_source_goes_on_after_a_restart(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    """Files that the index does not know are read."""
    pair = Pair(spark, source, tmp_path, lambda s: s.where("k = 3"))
    assert sum(pair.run()) == 1
    append(spark, source, ROWS)
    assert sum(pair.run()) == FILES
    append(spark, source, ROWS)
    spark.sql(f"REFRESH SKIPPING INDEX ON {source}")
    assert sum(pair.run()) == 1
    assert len(pair.pruned.rows()) == 30


@pytest.mark.nightly
def test_stream_source_reads_deleted_rows_of_earlier_versions(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A stream that begins before a DELETE reads rows that the table has no more."""
    table = make_table(
        spark, "streamed_deleted", ROWS, properties={"delta.enableDeletionVectors": "true"}
    )
    append(spark, table, ROWS.replace("SELECT id,", "SELECT id + 1000 AS id,"))
    spark.sql(f"DELETE FROM {table} WHERE k = 3 AND id % 10 < 5")
    spark.sql(f"CREATE SKIPPING INDEX ON {table} (id MIN_MAX, k VALUE_LIST)")

    for name, options, rows in (
        ("now", {}, 10),
        ("since", {"startingVersion": 0, "skipChangeCommits": True}, 20),
    ):
        pair = Pair(spark, table, tmp_path / name, lambda s: s.where("k = 3"), **options)
        assert sum(pair.run()) == 2, name
        assert len(pair.pruned.rows()) == rows, name
        # A file has rows with this id only in the earlier version.
        pair = Pair(spark, table, tmp_path / f"{name}-id", lambda s: s.where("id = 31"), **options)
        assert sum(pair.run()) == 1, name
    spark.sql(f"DROP SKIPPING INDEX ON {table}")
    spark.sql(f"DROP TABLE {table}")


STATEFUL: dict[str, tuple[Query, str]] = {
    "deduplication": (lambda s: s.where("k IN (3, 4)").dropDuplicates(["k", "g"]), "append"),
    "deduplication within a watermark": (
        lambda s: s.withWatermark("t", "1 hour").where("k IN (3, 4)").dropDuplicates(["k", "t"]),
        "append",
    ),
    "aggregate": (lambda s: s.where("k IN (3, 4)").groupBy("g").count(), "complete"),
    "minimum": (
        lambda s: s.where("k IN (3, 4)").agg(F.min("k").alias("a"), F.max("k").alias("b")),
        "complete",
    ),
    "windows of time": (
        lambda s: (
            s.withWatermark("t", "5 minutes")
            .where("k IN (3, 4)")
            .groupBy(F.window("t", "7 minutes"))
            .count()
        ),
        "append",
    ),
}


@pytest.mark.nightly
@pytest.mark.parametrize("form", STATEFUL)
def test_stream_source_keeps_state(
    spark: SparkSession, source: str, tmp_path: Path, form: str
) -> None:
    query, mode = STATEFUL[form]
    pair = Pair(spark, source, tmp_path, query, mode=mode, sink="delta")
    pair.run(matching(spark, source, "k NOT IN (3, 4)"))
    append(spark, source, ROWS.replace("SELECT id,", "SELECT id + 1000 AS id,"))
    pair.run()
    assert len(pair.pruned.rows()) > 0
    # The watermark is in the commit log.
    logs = [
        [
            json.loads(line).get("nextBatchWatermarkMs")
            for file in sorted((each.place / "checkpoint/commits").glob("[0-9]*"))
            for line in file.read_text().splitlines()[1:2]
        ]
        for each in (pair.pruned, pair.control)
    ]
    assert logs[0] == logs[1]


DIM = "streamed_dim"
JOINED = {
    "inner": (lambda s, dim: s.join(dim, "k"), 2),
    "inner, with a condition": (lambda s, dim: s.where("g = 1").join(dim, "k"), 2),
    "semi": (lambda s, dim: s.join(dim, "k", "left_semi"), 2),
    "outer": (lambda s, dim: s.join(dim, "k", "left_outer"), FILES),
    "subquery": (lambda s, dim: s.where(f"k = (SELECT min(k) FROM {DIM} WHERE name > 'n3')"), 1),
    "renamed": (lambda s, dim: s.selectExpr("k AS l", "g").join(dim, F.col("l") == dim.k), 2),
    "two tables": (
        lambda s, dim: s.join(dim.join(dim.selectExpr("k AS l"), F.expr("k = l")), "k").drop("l"),
        2,
    ),
    "a union": (lambda s, dim: s.join(dim.union(dim), "k"), FILES),
    "after state": (lambda s, dim: s.dropDuplicates(["id"]).join(dim, "k"), FILES),
    "before state": (lambda s, dim: s.join(dim, "k").dropDuplicates(["id"]), FILES),
    "observed": (
        lambda s, dim: s.observe("all", F.count(F.lit(1)).alias("n")).join(dim, "k"),
        FILES,
    ),
}


@only_delta
@pytest.mark.nightly
@pytest.mark.parametrize("form", JOINED)
def test_stream_source_takes_keys_of_the_static_side(
    spark: SparkSession, source: str, tmp_path: Path, form: str
) -> None:
    query, files = JOINED[form]
    spark.sql("SELECT int(id) AS k, 'n' || id AS name FROM range(40)").coalesce(1).write.format(
        "delta"
    ).mode("overwrite").saveAsTable(DIM)
    # The names of two keys.
    dim = spark.table(DIM).where("name IN ('n3', 'n4')")
    pair = Pair(spark, source, tmp_path, lambda s: query(s, dim))
    garbage = matching(spark, source, "k NOT IN (3, 4)") if files < FILES else ()
    assert max(pair.run(garbage)) == files
    assert len(pair.pruned.rows()) > 0
    found = rewrite.history(spark).collect()
    unused = next(r.unused for r in reversed(found) if r.table.endswith("streamed_source"))
    has_state = "state" in form or form == "observed"
    reason = "keys of a join: the stream has state, a watermark or an observation"
    assert (reason in unused) == has_state, unused
    single = "keys of a join: a stream takes keys of a single table only"
    assert (single in unused) == (form == "a union"), unused
    assert sum(batch.numInputRows for batch in pair.pruned.progress) > 0
    spark.sql(f"DROP TABLE {DIM}")


@pytest.mark.parametrize("source", ["iceberg"], indirect=True)
def test_stream_source_of_iceberg_takes_no_keys(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    # Spark would make a condition of constants.
    dim = spark.range(3, 5).selectExpr("int(id) AS k", "'n' || id AS name")
    pair = Pair(spark, source, tmp_path, lambda s: s.join(F.broadcast(dim), "k"))
    assert sum(pair.run()) == FILES
    (found,) = [r for r in rewrite.history(spark).collect() if r.table == source][-1:]
    assert found.unused == ["keys of a join: the source of this stream takes no keys"]


@only_delta
def test_stream_source_is_read_for_an_observation(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    """Spark leaves a condition above what counts all rows."""

    def count_all(stream: DataFrame) -> DataFrame:
        return stream.observe("all", F.count(F.lit(1)).alias("n")).where("k = 3")

    pair = Pair(spark, source, tmp_path, count_all)
    assert sum(pair.run()) == FILES
    (batch,) = pair.pruned.progress
    assert batch.observedMetrics["all"].n == 10 * FILES


def test_stream_source_is_read_for_a_condition_in_foreach_batch(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    counts: list[int] = []

    def write(batch: DataFrame, id: int) -> None:
        counts.append(batch.where("k = 3").count())

    for query, files in (
        (spark.readStream.table(source), FILES),
        (spark.readStream.table(source).where("k = 3"), 1),
    ):
        before = {row.execution for row in rewrite.history(spark).collect()}
        query.writeStream.foreachBatch(write).trigger(availableNow=True).start().awaitTermination()
        ran = [
            row.opened
            for row in rewrite.history(spark).collect()
            if row.execution not in before and row.table.endswith("streamed_source")
        ]
        assert max(ran) == files, ran
    assert counts == [10, 10]


@only_delta
@pytest.mark.nightly
def test_stream_source_follows_the_schema(spark: SparkSession, source: str, tmp_path: Path) -> None:
    """A new column ends the stream, and a new start goes on."""
    pair = Pair(spark, source, tmp_path, lambda s: s.where("k = 3").select("id", "k"))
    pair.run()
    spark.sql(f"ALTER TABLE {source} ADD COLUMN more STRING")
    append(spark, source, ROWS.replace("AS g", "AS g, 'm' AS more"))
    spark.sql(f"REFRESH SKIPPING INDEX ON {source}")
    for _ in range(2):
        with suppress(StreamingQueryException):
            pair.run()
    assert pair.pruned.rows() == pair.control.rows()
    assert len(pair.pruned.rows()) == 20
    more = Pair(spark, source, tmp_path / "more", lambda s: s.where("k = 4 AND more = 'm'"))
    assert sum(more.run()) == 2
    assert len(more.pruned.rows()) == 10


@pytest.mark.nightly
def test_stream_source_with_renamed_columns(spark: SparkSession, tmp_path: Path) -> None:
    """A stream with a schema log reads by the names of its own version."""
    table = make_table(
        spark,
        "streamed_renamed",
        ROWS,
        INDEX,
        properties={"delta.columnMapping.mode": "name"},
    )
    places = {name: str(tmp_path / name / "checkpoint" / "schema") for name in ("with", "without")}
    pair = Pair(spark, table, tmp_path, lambda s: s.where("k = 3").select("k"))
    for stream, name in ((pair.pruned, "with"), (pair.control, "without")):
        stream.options = {"schemaTrackingLocation": places[name]}
    with suppress(StreamingQueryException):
        pair.run()
    assert sum(pair.run()) <= 1
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN g TO h")
    spark.sql(f"ALTER TABLE {table} ADD COLUMN g INT")
    append(spark, table, ROWS.replace("AS g", "AS h, int(9) AS g"))
    spark.sql(f"REFRESH SKIPPING INDEX ON {table}")
    allowed = {"spark.databricks.delta.streaming.allowSourceColumnRename": "always"}
    with settings(spark, allowed):
        for _ in range(4):
            for stream, enabled in ((pair.control, "false"), (pair.pruned, "true")):
                with settings(spark, {ENABLED: enabled}), suppress(StreamingQueryException):
                    stream.run()
    assert pair.pruned.rows() == pair.control.rows()
    assert len(pair.pruned.rows()) == 20
    spark.sql(f"DROP SKIPPING INDEX ON {table}")
    spark.sql(f"DROP TABLE {table}")


@pytest.mark.nightly
def test_stream_source_of_changes_is_read(spark: SparkSession, tmp_path: Path) -> None:
    """The change feed tells removed rows, too."""
    table = make_table(
        spark,
        "streamed_changes",
        ROWS,
        INDEX,
        properties={"delta.enableChangeDataFeed": "true"},
    )
    spark.sql(f"DELETE FROM {table} WHERE k = 3 AND g = 1")
    spark.sql(f"UPDATE {table} SET k = 3 WHERE k = 4 AND g = 2")
    spark.sql(f"REFRESH SKIPPING INDEX ON {table}")
    pair = Pair(
        spark,
        table,
        tmp_path,
        lambda s: s.where("k = 3").drop("_commit_timestamp"),
        readChangeFeed=True,
        startingVersion=0,
    )
    pair.run()
    assert {"delete", "insert", "update_postimage"} <= {
        row._change_type for row in spark.read.parquet(str(tmp_path / "with/out")).collect()
    }
    spark.sql(f"DROP SKIPPING INDEX ON {table}")
    spark.sql(f"DROP TABLE {table}")


@pytest.mark.nightly
@pytest.mark.process
def test_stream_source_after_kills(tmp_path: Path, run_python: RunPython) -> None:
    """200 micro-batches with stops and kills have the rows and offsets of an undisturbed stream."""
    script = Path(__file__).with_name("stream_kills.py")
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # pytest shows it where the test fails
    chance = random.Random(seed)
    made = run_python(script, tmp_path, "make", seed, timeout=900)
    assert made.returncode == 0, made.stderr
    for n in range(4):
        (tmp_path / "ready").unlink(missing_ok=True)
        started = subprocess.Popen(
            [sys.executable, str(script), str(tmp_path), "run", f"{seed}-{n}"],
            cwd=ROOT,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 300
        while not (tmp_path / "ready").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(chance.uniform(2, 25))
        assert started.poll() is None, "it runs until it is killed"
        os.killpg(started.pid, signal.SIGKILL)  # also the JVM
        started.wait()
    ended = run_python(script, tmp_path, "end", seed, timeout=900)
    assert ended.returncode == 0, ended.stderr
    seen = json.loads(ended.stdout.splitlines()[-1])
    assert seen["with"] == seen["without"]
    assert len(seen["with"]) == 50
    assert seen["with offsets"] == seen["without offsets"]
    assert len(seen["with offsets"]) >= 200
