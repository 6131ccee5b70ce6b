"""A stream over a table of many files, one process a start: `stream_kills.py FOLDER STEP SEED`.

`make` creates the table and its index, and runs the stream without the index. `run` starts and
stops the stream with the index until it is killed. `end` runs what is left, and prints one JSON
object: the rows of both sinks and the offsets of both checkpoints. `test_stream_source.py` compares
them.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import rewrite

FILES = int(os.environ.get("FILES_KILLS", 200))
WANTED = "k IN (3, 50, 51, 120, 199)"


def start(spark: SparkSession, folder: Path, name: str, trigger: dict[str, Any]) -> Any:
    stream = spark.readStream.option("maxFilesPerTrigger", 1).format("delta")
    query = stream.load(str(folder / "table")).where(WANTED).writeStream.format("delta")
    query = query.option("checkpointLocation", str(folder / name / "checkpoint"))
    return query.trigger(**trigger).start(str(folder / name / "out"))


def make(spark: SparkSession, folder: Path) -> None:
    rows = spark.range(0, 10 * FILES, numPartitions=FILES).selectExpr("id", "int(id div 10) AS k")
    table = f"delta.`{folder / 'table'}`"
    rows.write.format("delta").option("delta.dataSkippingNumIndexedCols", 0).save(
        str(folder / "table")
    )
    spark.sql(f"CREATE SKIPPING INDEX ON {table} (k VALUE_LIST)")
    spark.conf.set("spark.skipping.enabled", "false")
    start(spark, folder, "without", {"availableNow": True}).awaitTermination()
    spark.conf.set("spark.skipping.enabled", "true")
    # Nothing but the files with these keys may be opened from now on.
    needed = {
        row.p.rpartition("/")[2]
        for row in spark.sql(
            f"SELECT DISTINCT _metadata.file_path AS p FROM {table} WHERE {WANTED}"
        ).collect()
    }
    for file in (folder / "table").glob("*.parquet"):
        if file.name not in needed:
            file.unlink()
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def run(spark: SparkSession, folder: Path, chance: random.Random) -> None:
    (folder / "ready").touch()
    while True:
        query = start(spark, folder, "with", {"processingTime": "0 seconds"})
        time.sleep(chance.uniform(1, 6))
        query.stop()


def offsets(folder: Path, name: str) -> list[list[str]]:
    files = (folder / name / "checkpoint" / "offsets").glob("[0-9]*")
    return [
        file.read_text().splitlines()[2:] for file in sorted(files, key=lambda file: int(file.name))
    ]


def end(spark: SparkSession, folder: Path) -> None:
    start(spark, folder, "with", {"availableNow": True}).awaitTermination()
    seen: dict[str, Any] = {}
    for name in ("with", "without"):
        out = spark.read.format("delta").load(str(folder / name / "out"))
        seen[name] = sorted((row.id, row.k) for row in out.collect())
        seen[f"{name} offsets"] = offsets(folder, name)
    print(json.dumps(seen))


def main(folder: Path, step: str, seed: str) -> None:
    builder = SparkSession.builder.master("local[2]").config(
        map={
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.skipping.mode": "strict",
            "spark.skipping.store": f"sqlite:{folder / 'index.db'}",
            "spark.sql.streaming.minBatchesToRetain": "1000",  # the offsets of all are compared
            "spark.ui.enabled": "false",
        }
    )
    spark = rewrite.session(builder, formats=["delta"])
    if step == "run":
        run(spark, folder, random.Random(seed))
    else:
        {"make": make, "end": end}[step](spark, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
