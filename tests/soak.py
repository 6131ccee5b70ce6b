"""Tables are written all the time, streams keep their indexes, and every answer is checked.

`python -m tests.soak [minutes]`: one Delta and one Iceberg table. A thread for each appends,
merges, updates, deletes, compacts and goes back; this one asks, with the index and without it,
about the same version. Ends with 1 if one answer differed, or if an index in the end is not what
one built from scratch is.
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

import rewrite
import skipping
from skipping import SkippingIndex
from tests.benchmarks.report import heading, spread, table
from tests.benchmarks.session import benchmark_session
from tests.skipping.export import export, scratch

_SPAN = 200_000


class Format(Protocol):
    """What the soak needs of a table format; a version is what VERSION AS OF takes."""

    label: str
    name: str
    create: str

    def newest(self, spark: SparkSession) -> int:
        """The version that is current."""

    def compact(self) -> str:
        """A statement that rewrites files without changing rows."""

    def back(self, spark: SparkSession, steps: int) -> str:
        """A statement that makes the table what it was some commits ago."""


class Delta:
    label = "Delta"
    name = "soaked_delta"
    create = "USING delta TBLPROPERTIES (delta.dataSkippingNumIndexedCols = 0)"

    def newest(self, spark: SparkSession) -> int:
        return SkippingIndex.on(spark, self.name).table.version()

    def compact(self) -> str:
        return f"OPTIMIZE {self.name} WHERE true"

    def back(self, spark: SparkSession, steps: int) -> str:
        return f"RESTORE TABLE {self.name} TO VERSION AS OF {max(0, self.newest(spark) - steps)}"


class Iceberg:
    label = "Iceberg"
    name = "iceberg.db.soaked"
    create = (
        "USING iceberg TBLPROPERTIES ('write.metadata.metrics.default' = 'none',"
        " 'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read')"
    )

    def _ancestors(self, spark: SparkSession) -> list[int]:
        """The snapshots that led to the current one, oldest first."""
        history = f"SELECT snapshot_id FROM {self.name}.history WHERE is_current_ancestor"
        return [row[0] for row in spark.sql(f"{history} ORDER BY made_current_at").collect()]

    def newest(self, spark: SparkSession) -> int:
        return self._ancestors(spark)[-1]

    def compact(self) -> str:
        return "CALL iceberg.system.rewrite_data_files(table => 'db.soaked')"

    def back(self, spark: SparkSession, steps: int) -> str:
        ancestors = self._ancestors(spark)
        to = ancestors[max(0, len(ancestors) - 1 - steps)]
        return f"CALL iceberg.system.rollback_to_snapshot('db.soaked', {to})"


class Writer(threading.Thread):
    """Commits of every kind, one after another, until it is told to stop."""

    def __init__(self, spark: SparkSession, format: Format) -> None:
        super().__init__(name=f"writer of {format.name}", daemon=True)
        self._spark = spark
        self._format = format
        self._random = random.Random(7)
        self.done = Counter[str]()
        self.ended = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        kinds = ["append"] * 6 + ["merge", "update", "delete", "compact", "go back"]
        try:
            while not self.ended.is_set():
                kind = self._random.choice(kinds)
                self._spark.sql(self._statement(kind)).collect()
                self.done[kind] += 1
                self.ended.wait(self._random.uniform(0, 1))
        except BaseException as error:
            self.error = error

    def _statement(self, kind: str) -> str:
        name, at = self._format.name, self._random.randrange(_SPAN)
        rows = f"SELECT id, cast(id % 97 AS string) AS s FROM range({at}, {at + 400}, 1, 2)"
        match kind:
            case "append":
                return f"INSERT INTO {name} {rows}"
            case "merge":
                return (
                    f"MERGE INTO {name} t USING ({rows}) u ON t.id = u.id"
                    " WHEN MATCHED THEN UPDATE SET s = 'merged' WHEN NOT MATCHED THEN INSERT *"
                )
            case "update":
                return f"UPDATE {name} SET s = 'updated' WHERE id BETWEEN {at} AND {at + 2_000}"
            case "delete":
                return f"DELETE FROM {name} WHERE id BETWEEN {at} AND {at + 500}"
            case "compact":
                return self._format.compact()
            case _:
                return self._format.back(self._spark, self._random.randrange(1, 6))


@dataclass
class Seen:
    """What was seen of one table."""

    asked: int = 0
    different: int = 0
    skipped: int = 0
    opened: int = 0
    lags: list[float] = field(default_factory=list)


def main(minutes: float = 15.0) -> int:
    with benchmark_session() as spark, tempfile.TemporaryDirectory() as place:
        spark.conf.set("spark.skipping.mode", "fallback")
        formats: list[Format] = [Delta(), Iceberg()]
        for format in formats:
            rows = f"SELECT id, cast(id % 97 AS string) AS s FROM range(0, {_SPAN}, 1, 40)"
            spark.sql(f"CREATE TABLE {format.name} {format.create} AS {rows}")
            spark.sql(
                f"CREATE SKIPPING INDEX ON {format.name} (id MIN_MAX, s VALUE_LIST)"
                " WITH (auto_refresh = true, refresh_interval = '1 second')"
            )
        heading("soak", minutes=minutes, store="SQLite")
        writers = [Writer(spark, format) for format in formats]
        for writer in writers:
            writer.start()
        seen = {format.name: Seen() for format in formats}
        memory: list[int] = []
        deadline = time.monotonic() + 60 * minutes
        chosen = random.Random(11)
        while time.monotonic() < deadline and all(writer.is_alive() for writer in writers):
            for format in formats:
                compare(spark, format, chosen, seen[format.name])
            memory.append(_resident())
        for writer in writers:
            writer.ended.set()
            writer.join()
        right = True
        for format, writer in zip(formats, writers, strict=True):
            index = caught_up(spark, format.name)
            folder = Path(place) / format.label
            folder.mkdir()
            same = export(index) == scratch(spark, index, folder)
            found = seen[format.name]
            right &= same and not found.different and found.skipped > 0 and writer.error is None
            table(
                (format.label, "seen"),
                [
                    ("commits", sum(writer.done.values())),
                    *((f"  {kind}", n) for kind, n in sorted(writer.done.items())),
                    ("queries, with = without", found.asked),
                    ("  of them different", found.different),
                    ("files skipped", f"{found.skipped:,}"),
                    ("files opened", f"{found.opened:,}"),
                    ("lag in versions", spread(found.lags)),
                    ("entries as from scratch", same),
                ],
            )
            if writer.error is not None:
                print(f"  the writer ended: {writer.error}")
            spark.sql(f"DROP SKIPPING INDEX ON {format.name}")
        quarter = max(1, len(memory) // 4)
        first, last = (max(some) >> 20 for some in (memory[:quarter], memory[-quarter:]))
        print(f"  driver: {first} MiB in the first quarter, {last} MiB in the last")
        return 0 if right else 1


def compare(spark: SparkSession, format: Format, chosen: random.Random, seen: Seen) -> None:
    """Ask one question with the index and without."""
    version, at = format.newest(spark), chosen.randrange(_SPAN)
    condition = chosen.choice(
        [
            f"id = {at}",
            f"id BETWEEN {at} AND {at + 300}",
            "s = 'merged'",
            f"s = '{at % 97}'",
        ]
    )
    query = f"SELECT * FROM {format.name} VERSION AS OF {version} WHERE {condition}"
    got, plan = ask(spark, query)
    spark.conf.set("spark.skipping.enabled", "false")
    wanted, _ = ask(spark, query)
    spark.conf.unset("spark.skipping.enabled")
    seen.asked += 1
    if got != wanted:
        seen.different += 1
        print(f"  DIFFERENT: {query}: {len(got)} rows, not {len(wanted)}")
    if plan is not None and plan.total is not None and plan.opened is not None:
        seen.skipped += plan.total - plan.opened
        seen.opened += plan.opened
    (stream,) = [s for s in skipping.streams(spark) if s.table.endswith(format.name)]
    seen.lags.append(float(stream.versions or 0))


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


def caught_up(spark: SparkSession, name: str) -> SkippingIndex:
    deadline = time.monotonic() + 120
    while True:
        index = SkippingIndex.on(spark, name)
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
