"""What each example of docs/ways.md has to show when it has run: appended to it, in its own driver.

It sees what the example's process has, which is not this checkout: nothing of `tests` is imported.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

FOUND = [(100, 42, 99042)]


def prove(spark: Any) -> None:
    """A read and a join of `events`, where all files but that of one user hold garbage."""
    read = "SELECT count(*), min(id), max(id) FROM events"
    query = f"{read} WHERE user = 'user42'"
    join = f"{read} JOIN wanted USING (user) WHERE n = 42"
    # A table of its own, so that the key is known only when this side has run.
    wanted = spark.range(1000).selectExpr("concat('user', id) AS user", "id AS n")
    wanted.write.format("delta").mode("overwrite").saveAsTable("wanted")
    needed = spark.sql("SELECT DISTINCT input_file_name() FROM events WHERE user = 'user42'")
    spoiled = spoil([row[0] for row in needed.collect()])
    assert spoiled >= 15, spoiled
    for each in (query, join):
        rows = [tuple(row) for row in spark.sql(each).collect()]
        assert rows == FOUND, rows
    (scan,) = spark.sql(f"EXPLAIN SKIPPING DRY RUN {query}").collect()
    assert (scan.files, scan.pruned) == (20, 19), scan
    spark.conf.set("spark.skipping.enabled", "false")
    try:
        spark.sql(query).collect()
    except (PySparkException, Py4JError):  # as it must: there is garbage
        spark.conf.set("spark.skipping.enabled", "true")
    else:
        raise AssertionError("garbage was read, or nothing was spoiled")
    print("PROVED garbage was not opened", flush=True)


def spoil(needed: list[str]) -> int:
    """How many files beside those named, by their URLs, now hold garbage."""
    files = [Path(unquote(urlsplit(url).path)) for url in needed]
    others = sorted({*files[0].parent.glob("*.parquet")} - {*files})
    for file in others:
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
        file.write_bytes(os.urandom(file.stat().st_size))
    return len(others)


def prove_stream(spark: Any) -> None:
    """A stream that indexes what is written, on executors."""
    spark.sql("CREATE TABLE followed USING delta AS SELECT id FROM range(100)")
    spark.sql("CREATE SKIPPING INDEX ON followed (id VALUE_LIST) "
              "WITH (auto_refresh = true, refresh_interval = '1 second')")  # fmt: skip
    spark.sql("INSERT INTO followed SELECT id FROM range(1000, 1100)")
    end = time.monotonic() + 60
    while True:
        rows = spark.sql("DESCRIBE SKIPPING INDEX EXTENDED ON followed").collect()
        told = {row[0]: row[1] for row in rows}
        if told["version covered"] == "1":
            assert told["column id"] == f"bigint VALUE_LIST, known in {told['files']}", told
            break
        assert time.monotonic() < end, told
        time.sleep(0.2)
    spark.sql("DROP SKIPPING INDEX ON followed")
    print("PROVED a stream indexed what was written", flush=True)


def prove_executors(spark: Any) -> None:
    """That the executors' Python, and what it builds with, came packed."""

    def look(batches: Iterable[Any]) -> Iterator[Any]:
        import sys

        import pyarrow

        import skipping

        for _ in batches:
            places = [sys.prefix, skipping.__file__, pyarrow.__file__]
            yield pyarrow.RecordBatch.from_arrays([pyarrow.array(places)], ["place"])

    rows = spark.range(4, numPartitions=4).mapInArrow(look, "place string").collect()
    assert len(rows) == 12, rows
    for row in rows:
        assert "/environment" in row.place, row.place
        assert not row.place.startswith(PACKED_IN), row.place
    print("PROVED executors have what was shipped", flush=True)


def prove_formats(spark: Any) -> None:
    """Equal rows, and files skipped, of Delta and of Iceberg, by conditions and by joins."""
    import rewrite

    spark.conf.set("spark.skipping.mode", "strict")
    frame = spark.range(0, 80, 1, 8).selectExpr("id", "concat('v', id % 40) AS v")
    for t, using, bounds in (
        ("t", "delta", "'delta.dataSkippingNumIndexedCols' = '0'"),
        ("iceberg.db.t", "iceberg", "'write.metadata.metrics.default' = 'none'"),
    ):
        spark.sql(f"CREATE TABLE {t} (id bigint, v string) USING {using} TBLPROPERTIES ({bounds})")
        frame.write.format(using).mode("append").saveAsTable(t)
        spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX, v VALUE_LIST)")
        condition = "a.id > 75 AND b.v = 'v37'"
        for query, expected, opened in (
            (
                f"SELECT a.id, b.id AS other FROM {t} a JOIN {t} b ON a.v = b.v WHERE {condition}",
                [(77, 37), (77, 77)],
                [1, 2],
            ),
            (
                f"SELECT id FROM {t} JOIN (VALUES ('v37'), ('v38')) d(v) USING (v)",
                [(37,), (38,), (77,), (78,)],
                [2],
            ),
        ):
            spark.conf.set("spark.skipping.enabled", "true")
            df = spark.sql(query)
            rows = sorted(map(tuple, df.collect()))
            scans = rewrite.explain(df).scans
            spark.conf.set("spark.skipping.enabled", "false")
            assert rows == sorted(map(tuple, spark.sql(query).collect())) == expected, rows
            assert [(scan.total, scan.opened) for scan in scans] == [(8, n) for n in opened], scans
        spark.conf.set("spark.skipping.enabled", "true")
    print("PROVED both formats skip files", flush=True)


PACKED_IN = str(Path("environment").absolute())
