"""Building against others: `python -m tests.benchmarks.build [rows [files [rounds]]]`.

With `storage` as the first argument: from an object store, by each source of values, at two delays
of a request, files of these rows and files of 50. For each source: its time to Spark's, ms
a file, and by how much the driver's memory grew meanwhile.

direct     Python opens the files, with the session's credentials
columns    Spark opens them; the driver sketches small files, Spark reads columns of the others

ours       MIN_MAX and VALUE_LIST of each column, by `skipping.indexing.spark`
read       Spark reads the same columns and throws them away
aggregate  Spark groups by file: min, max and collect_set, as Flint builds
objects    rows become Python objects, kept in sets; on a tenth of the files, its time taken by ten
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import psutil
import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from skipping.indexing.sketch import Build, Work
from skipping.indexing.spark import SparkBuild
from skipping.indexing.spark_reader import ReaderBuild
from skipping.model.definition import IndexedColumn
from skipping.stores import IDENTITY
from skipping.tables.open import open_table
from tests.benchmarks.report import heading, interleaved, ratio, spread, table
from tests.benchmarks.session import benchmark_session
from tests.benchmarks.star import FILES, write_star
from tests.object_store import BUCKET, ObjectStore

__all__ = ["main"]

TYPES = {
    "code": "cast(pmod(xxhash64(id, 'code'), 800) AS int)",
    "day": "date_add(DATE'2024-01-01', cast(k % 300 AS int))",
    "at": "timestamp_micros(1700000000000000 + 1000003 * id)",
    "paid": "cast(pmod(xxhash64(id, 'paid'), 1000000) / 100 AS decimal(12, 2))",
    "wide": "cast(pmod(xxhash64(id, 'wide'), 1000000) AS decimal(30, 2))",
    "ok": "id % 2 = 0",
    "city": "concat('city of ', pmod(xxhash64(id, 'city'), 900))",
}
"""Further columns, to see every type: few values a file, and unique ones."""

TOGETHER = ("k", "h", "day", "price", "city")
KINDS = ("MIN_MAX", "VALUE_LIST")


def main(rows: int = 50_000, files: int = FILES, rounds: int = 5) -> None:
    """Print the tables."""
    with benchmark_session() as spark:
        path = write_star(spark, "types", rows, files=files, more=TYPES)
        source = Source(spark, f"delta.`{path}`")
        tenth = source.paths[: files // 10]
        seconds = interleaved(
            {
                "read": partial(source.read, TOGETHER),
                "ours": partial(source.ours, TOGETHER),
                "aggregate": partial(source.aggregate, TOGETHER),
                "objects": partial(source.objects, TOGETHER, tenth),
            },
            rounds=rounds,
        )
        seconds["objects"] = [10 * s for s in seconds["objects"]]
        facts = {"files": files, "rows_a_file": rows, "rounds": rounds}
        heading(f"Build of {', '.join(KINDS)} on {', '.join(TOGETHER)}", **facts)
        table(
            ("", "seconds", "to read"),
            [(name, spread(s), ratio(s, seconds["read"])) for name, s in seconds.items()],
        )
        heading("Build of one column", **facts)
        table(("column", "read, s", "ours, s", "ratio"), list(_by_type(source, rounds)))


def _by_type(source: Source, rounds: int) -> Iterator[tuple[str, str, str, str]]:
    for name, column in source.columns.items():
        candidates: dict[str, Callable[[], object]] = {
            "read": partial(source.read, [name]),
            "ours": partial(source.ours, [name]),
        }
        seconds = interleaved(candidates, rounds=rounds)
        read, ours = seconds["read"], seconds["ours"]
        yield f"{name} {column.type}", spread(read), spread(ours), ratio(ours, read)


class Source:
    """The files of a table, and each way to learn what its files hold."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        opened = open_table(spark, name)
        files = opened.files()
        self._spark = spark
        self.columns = opened.columns()
        self.paths = files["path"].to_pylist()
        ordinals = pa.array(range(len(files)), pa.int64())
        self.files = pa.table(
            [ordinals, files["path"], files["size"], files["stamp"], pa.nulls(len(files))],
            names=IDENTITY.names,
        ).cast(IDENTITY)

    def ours(self, names: Sequence[str]) -> list[pa.Table]:
        """The entries of all files."""
        return list(SparkBuild(self._spark)(self.files, self.work(names)))

    def work(self, names: Sequence[str]) -> list[Work]:
        """Each of KINDS on each column."""
        work: list[Work] = []
        for column in (self.columns[name] for name in names):
            for kind in KINDS:
                indexed = IndexedColumn(
                    len(work), column.name, column.identity, column.type, kind, (), False
                )
                work.append(Work(indexed, column, indexed.provider(())))
        return work

    def read(self, names: Sequence[str]) -> None:
        """Nothing: rows are read and dropped."""
        _drop(self._frame(names))

    def aggregate(self, names: Sequence[str]) -> None:
        """One row a file, dropped."""
        each = [f(name) for name in names for f in (F.min, F.max, F.collect_set)]
        _drop(self._frame(names).groupBy(F.input_file_name()).agg(*each))

    def objects(self, names: Sequence[str], paths: Sequence[str]) -> None:
        """Sets of Python objects, dropped."""

        def collect(rows: Iterable[Row]) -> Iterator[list[set[object]]]:
            sets: list[set[object]] = [set() for _ in names]
            for row in rows:
                for values, value in zip(sets, row, strict=True):
                    values.add(value)
            yield sets

        self._frame(names, paths).rdd.mapPartitions(collect).foreach(len)

    def _frame(self, names: Sequence[str], paths: Sequence[str] | None = None) -> DataFrame:
        return self._spark.read.parquet(*(paths or self.paths)).select(*names)


def _drop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


SOURCES: dict[str, Callable[[SparkSession], Build]] = {
    "direct": SparkBuild,
    "columns": ReaderBuild,
}
STORED = ("k", "city")


def storage(rows: int = 20_000, files: int = 100, rounds: int = 2, small: int = 1_000) -> None:
    """Print the table."""
    with ObjectStore() as store, benchmark_session(store.settings()) as spark:
        lines = []
        heading(f"Build of {', '.join(KINDS)} on {', '.join(STORED)}", rounds=rounds)
        for count, each in ((files, rows), (small, 50)):
            path = f"s3a://{BUCKET}/{count}x{each}"
            frame = spark.range(0, count * each, 1, count).selectExpr(
                "id", "id div 40 AS k", "xxhash64(id) AS h", f"{TYPES['city']} AS city"
            )
            frame.write.format("delta").save(path)
            source = Source(spark, f"delta.`{path}`")
            for delay in (0, 30):
                store.delay(delay)
                lines += _from_storage(spark, source, f"delta.`{path}`", each, delay, rounds)
            store.delay(0)
        head = ("files", "rows", "delay, ms", "source", "read, s", "build, s", "ratio", "ms a file")
        table((*head, "driver, MiB"), lines)


def _from_storage(
    spark: SparkSession, source: Source, name: str, rows: int, delay: int, rounds: int
) -> Iterator[tuple[object, ...]]:
    work, grown = source.work(STORED), dict.fromkeys(SOURCES, 0)

    def build(by: str) -> None:
        with _memory() as peak:
            built = sum(len(entries) for entries in SOURCES[by](spark)(source.files, work))
        assert built == len(source.files), f"{built} of {len(source.files)}"
        grown[by] = max(grown[by], peak())

    read = {"read": lambda: _drop(spark.table(name).select(*STORED))}
    seconds = interleaved({**read, **{by: partial(build, by) for by in SOURCES}}, rounds=rounds)
    for by in SOURCES:
        yield (
            len(source.files),
            rows,
            delay,
            by,
            spread(seconds["read"]),
            spread(seconds[by]),
            ratio(seconds[by], seconds["read"]),
            spread(seconds[by], 1, 1_000 / len(source.files)),
            grown[by] >> 20,
        )


@contextmanager
def _memory() -> Iterator[Callable[[], int]]:
    """Gives the bytes that this process grew by at most, looked at every 20 ms."""
    process, over = psutil.Process(), threading.Event()
    before = most = process.memory_info().rss

    def look() -> None:
        nonlocal most
        while not over.wait(0.02):
            most = max(most, process.memory_info().rss)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield lambda: most - before
    finally:
        over.set()
        looking.join()


if __name__ == "__main__":
    if sys.argv[1:2] == ["storage"]:
        storage(*map(int, sys.argv[2:]))
    else:
        main(*map(int, sys.argv[1:]))
