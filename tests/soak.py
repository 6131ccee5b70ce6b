"""A table is written all the time, a stream keeps its index, and every answer is checked.

`python -m tests.soak [minutes]`. One thread appends, merges, updates, deletes, optimizes and
restores; this one asks, with the index and without it, about the same version. Ends with 1 if one
answer differed, or if the index in the end is not what one built from scratch is.
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

import rewrite
import skipping
from skipping import SkippingIndex
from tests.benchmarks.report import heading, spread, table
from tests.benchmarks.session import benchmark_session
from tests.skipping.export import export, scratch

NAME = "soaked"
_SPAN = 200_000


class Writer(threading.Thread):
    """Commits of every kind, one after another, until it is told to stop."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(name="writer", daemon=True)
        self._spark = spark
        self._random = random.Random(7)
        self.done = Counter[str]()
        self.ended = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        kinds = ["append"] * 6 + ["merge", "update", "delete", "optimize", "restore"]
        try:
            while not self.ended.is_set():
                kind = self._random.choice(kinds)
                self._spark.sql(self._statement(kind)).collect()
                self.done[kind] += 1
                self.ended.wait(self._random.uniform(0, 1))
        except BaseException as error:
            self.error = error

    def _statement(self, kind: str) -> str:
        at = self._random.randrange(_SPAN)
        rows = f"SELECT id, cast(id % 97 AS string) AS s FROM range({at}, {at + 400}, 1, 2)"
        match kind:
            case "append":
                return f"INSERT INTO {NAME} {rows}"
            case "merge":
                return (
                    f"MERGE INTO {NAME} t USING ({rows}) u ON t.id = u.id"
                    " WHEN MATCHED THEN UPDATE SET s = 'merged' WHEN NOT MATCHED THEN INSERT *"
                )
            case "update":
                return f"UPDATE {NAME} SET s = 'updated' WHERE id BETWEEN {at} AND {at + 2_000}"
            case "delete":
                return f"DELETE FROM {NAME} WHERE id BETWEEN {at} AND {at + 500}"
            case "optimize":
                return f"OPTIMIZE {NAME} WHERE true"
            case _:
                back = max(0, newest(self._spark) - self._random.randrange(1, 6))
                return f"RESTORE TABLE {NAME} TO VERSION AS OF {back}"


def newest(spark: SparkSession) -> int:
    return SkippingIndex.on(spark, NAME).table.version()


def main(minutes: float = 15.0) -> int:
    with benchmark_session() as spark, tempfile.TemporaryDirectory() as place:
        spark.conf.set("spark.skipping.mode", "fallback")
        spark.sql(
            f"CREATE TABLE {NAME} USING delta TBLPROPERTIES (delta.dataSkippingNumIndexedCols = 0)"
            f" AS SELECT id, cast(id % 97 AS string) AS s FROM range(0, {_SPAN}, 1, 40)"
        )
        spark.sql(
            f"CREATE SKIPPING INDEX ON {NAME} (id MIN_MAX, s VALUE_LIST)"
            " WITH (auto_refresh = true, refresh_interval = '1 second')"
        )
        heading("soak", minutes=minutes, format="Delta", store="SQLite")
        writer = Writer(spark)
        writer.start()
        asked, differ, skipped, opened = 0, 0, 0, 0
        lags: list[float] = []
        memory: list[int] = []
        deadline = time.monotonic() + 60 * minutes
        chosen = random.Random(11)
        while time.monotonic() < deadline and writer.is_alive():
            version, at = newest(spark), chosen.randrange(_SPAN)
            condition = chosen.choice(
                [
                    f"id = {at}",
                    f"id BETWEEN {at} AND {at + 300}",
                    "s = 'merged'",
                    f"s = '{at % 97}'",
                ]
            )
            query = f"SELECT * FROM {NAME} VERSION AS OF {version} WHERE {condition}"
            got, plan = ask(spark, query)
            spark.conf.set("spark.skipping.enabled", "false")
            wanted, _ = ask(spark, query)
            spark.conf.unset("spark.skipping.enabled")
            asked += 1
            if got != wanted:
                differ += 1
                print(f"  DIFFERENT: {query}: {len(got)} rows, not {len(wanted)}")
            if plan is not None and plan.opened is not None:
                skipped += plan.total - plan.opened
                opened += plan.opened
            (stream,) = skipping.streams(spark)
            lags.append(float(stream.versions or 0))
            memory.append(_resident())
        writer.ended.set()
        writer.join()
        index = caught_up(spark)
        folder = Path(place)
        same = export(index) == scratch(spark, index, folder)
        quarter = max(1, len(memory) // 4)
        table(
            ("what", "seen"),
            [
                ("commits", sum(writer.done.values())),
                *((f"  {kind}", n) for kind, n in sorted(writer.done.items())),
                ("queries, with = without", asked),
                ("  of them different", differ),
                ("files skipped", f"{skipped:,}"),
                ("files opened", f"{opened:,}"),
                ("lag in versions", spread(lags)),
                ("driver, MiB, first quarter", max(memory[:quarter]) >> 20),
                ("driver, MiB, last quarter", max(memory[-quarter:]) >> 20),
                ("entries as from scratch", same),
            ],
        )
        spark.sql(f"DROP SKIPPING INDEX ON {NAME}")
        if writer.error is not None:
            print(f"  the writer ended: {writer.error}")
        return 0 if same and not differ and skipped and writer.error is None else 1


def ask(spark: SparkSession, query: str) -> tuple[list[Row], skipping.ScanPlan | None]:
    """The rows, sorted, and how the scan went."""
    for _ in range(3):
        try:
            df = spark.sql(query)
            rows = sorted(df.collect())
            return rows, next(iter(rewrite.explain(df).scans), None)
        except PySparkException as error:
            if "VERSION_NOT_FOUND" not in str(error):
                raise
    raise AssertionError("the version cannot be read")


def caught_up(spark: SparkSession) -> SkippingIndex:
    deadline = time.monotonic() + 120
    while True:
        index = SkippingIndex.on(spark, NAME)
        if index.state.covered == index.table.version() and index.state.status == "active":
            return index
        assert time.monotonic() < deadline, f"the stream did not catch up: {index.state}"
        time.sleep(0.2)


def _resident() -> int:
    """Bytes of this process, not of Java."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


if __name__ == "__main__":
    sys.exit(main(*map(float, sys.argv[1:])))
