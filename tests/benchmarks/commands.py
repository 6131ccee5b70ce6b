"""Commands that look for rows, with the index and without: `python -m tests.benchmarks.commands`.

On twin tables, interleaved; the log has no bounds. After each round RESTORE puts back what a
command did, so that rounds are alike.

- `upsert`: a MERGE of 1,000 keys that live in 10 files, through lists of values and through bloom
  filters.
- `every`: a MERGE of a key of each file, where an index can only cost.
- `delete`: a DELETE of one key in a table of 10,000 small files.
- `row`: small upserts in a row, with a stream that keeps the index.

*look* is what Delta says of the phase in which the command finds its files (`scanTimeMs`). With
`--delay 30` the tables are in an object store that answers each request 30 ms late.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

import rewrite
from skipping import SkippingIndex
from tests.benchmarks.report import heading, interleaved, ratio, spread, table
from tests.benchmarks.session import benchmark_session
from tests.benchmarks.small_files import write_small_files
from tests.benchmarks.star import KEYS, star
from tests.object_store import BUCKET, ObjectStore

__all__ = ["main"]

PARTS = ("upsert", "every", "delete", "row")
FPP = 0.00001
"""Filters with the default would let most files pass with one or another of 1,000 keys."""

KINDS = ("VALUE_LIST", f"BLOOM_FILTER(num_items = {KEYS}, fpp = {FPP:.5f})")
ARMS = ("without", "with")
IN_FILES, EACH, NEW = 10, 90, 100
"""Keys of an upsert: 90 of each of 10 files, and 100 new ones. Filters are asked for no more."""

SMALL = 10
"""Rows of a file of the table that one key is deleted from."""

MERGE = """MERGE INTO {t} t USING {source} s ON t.h = s.h
WHEN MATCHED THEN UPDATE SET note = s.note
WHEN NOT MATCHED THEN INSERT (k, h, oid, price, note) VALUES (s.k, s.h, 0, 0, s.note)"""
HEAD = ("", "files", "opened", "look s", "without", "times", "command s", "without", "times")


@dataclass(frozen=True, slots=True)
class Place:
    """Where tables are: `uri` for Spark, and the same as a folder of this machine."""

    uri: str
    folder: Path
    store: ObjectStore | None
    delay: int

    def late(self, on: bool) -> None:
        """Tables are made without the delay."""
        if self.store is not None:
            self.store.delay(self.delay if on else 0)

    def __str__(self) -> str:
        return f"object store, {self.delay} ms a request" if self.store else "local disk"


def main(
    parts: list[str], files: int, rows: int, rounds: int, many: int, upserts: int, delay: int | None
) -> None:
    """Print the tables of some parts."""
    with ExitStack() as open_things:
        store = open_things.enter_context(ObjectStore()) if delay is not None else None
        dml = {"spark.skipping.dml": "true"}
        conf = {**dml, **(store.settings() if store else {})}
        if store is None:
            folder = Path(open_things.enter_context(tempfile.TemporaryDirectory()))
            place = Place(f"file:{folder}", folder, None, 0)
        else:
            place = Place(f"s3a://{BUCKET}", store.folder, store, delay or 0)
        spark = open_things.enter_context(benchmark_session(conf))
        lines: list[tuple[object, ...]] = []
        facts = {"files": f"{files:,}", "rows": f"{files * rows:,}", "rounds": rounds, "at": place}
        if {"upsert", "every"} & set(parts):
            twins = _twins(spark, place, files, rows)
            for kind in KINDS:
                SkippingIndex.create(spark, twins["with"], f"h {kind}")
                place.late(True)
                if "upsert" in parts:
                    merge = MERGE.format(t="{t}", source=_keys(spark, files, IN_FILES, EACH, NEW))
                    name = f"upsert, {kind.partition('(')[0]}"
                    lines.append(_line(spark, name, twins, merge, rounds, files))
                if "every" in parts and kind == KINDS[0]:
                    merge = MERGE.format(t="{t}", source=_keys(spark, files, files, 1, 0))
                    lines.append(_line(spark, "every file", twins, merge, rounds, files))
                place.late(False)
                SkippingIndex.on(spark, twins["with"]).drop()
            heading("A MERGE, with the index and without", **facts)
            table(HEAD, lines)
        if "delete" in parts:
            twins = _small_files(place, many)
            SkippingIndex.create(spark, twins["with"], "id VALUE_LIST")
            place.late(True)
            delete = f"DELETE FROM {{t}} WHERE id = {many * SMALL // 2 + 3}"
            line = _line(spark, "one key", twins, delete, rounds, many)
            place.late(False)
            heading("A DELETE in many small files", **{**facts, "files": f"{many:,}", "rows": ""})
            table(HEAD, [line])
        if "row" in parts:
            _row(spark, place, upserts)


def _twins(spark: SparkSession, place: Place, files: int, rows: int) -> dict[str, str]:
    """The star twice; the files of the two are the same."""
    writer = star(spark, rows, files=files).write.format("delta")
    writer.option("delta.dataSkippingNumIndexedCols", "0").save(f"{place.uri}/star-with")
    shutil.copytree(place.folder / "star-with", place.folder / "star-without")
    return {arm: f"delta.`{place.uri}/star-{arm}`" for arm in ARMS}


def _keys(spark: SparkSession, files: int, match: int, each: int, new: int) -> str:
    """A table of so many keys of each of so many files, and of some that live in none."""
    name = f"keys_{match}"
    found = star(spark, KEYS, files=files).where(
        f"pmod((k div {KEYS}) * 7919, {files}) < {match} AND k % {KEYS} < {each}"
    )
    none = spark.range(new).selectExpr("-id - 1 AS k", "xxhash64(id, 'none') AS h")
    rows = found.select("k", "h").unionAll(none).selectExpr("k", "h", "'upserted' AS note")
    rows.coalesce(1).write.format("delta").mode("overwrite").saveAsTable(name)
    return name


def _small_files(place: Place, files: int) -> dict[str, str]:
    """Two tables of files of ten rows, of which no file's bounds would tell one from the next."""
    schema = pa.schema({"id": pa.int64(), "s": pa.string()})
    for arm in ARMS:
        ids = ([row * files + i for row in range(SMALL)] for i in range(files))
        tables = (pa.table({"id": each, "s": list(map(str, each))}, schema) for each in ids)
        write_small_files(place.folder / f"small-{arm}", schema, tables)
    return {arm: f"delta.`{place.uri}/small-{arm}`" for arm in ARMS}


def _line(
    spark: SparkSession, name: str, twins: dict[str, str], statement: str, rounds: int, files: int
) -> tuple[object, ...]:
    """Both arms of a command, in turn; what they did has to be the same."""
    looked: dict[str, list[float]] = {arm: [] for arm in ARMS}
    taken: dict[str, list[float]] = {arm: [] for arm in ARMS}
    opened = 0
    for turn in range(rounds + 1):
        arms: dict[str, Callable[[], object]] = {
            arm: partial(_run, spark, arm, statement.format(t=twins[arm])) for arm in ARMS
        }
        seconds = interleaved(arms, rounds=1, warm=0)
        did = {arm: _last(spark, twins[arm]) for arm in ARMS}
        counts = {arm: _counts(metrics) for arm, metrics in did.items()}
        if counts["with"] != counts["without"]:
            raise AssertionError(f"{name} did something else with the index: {counts}")
        opened = _opened(spark)
        for arm in ARMS:
            if turn:
                looked[arm].append(int(did[arm]["scanTimeMs"]) / 1e3)
                taken[arm] += seconds[arm]
            _restore(spark, twins[arm])
    return (
        name,
        f"{files:,}",
        f"{opened:,}",
        spread(looked["with"]),
        f"{median(looked['without']):.2f}",
        ratio(looked["without"], looked["with"]),
        spread(taken["with"]),
        f"{median(taken['without']):.2f}",
        ratio(taken["without"], taken["with"]),
    )


def _run(spark: SparkSession, arm: str, statement: str) -> None:
    spark.conf.set("spark.skipping.enabled", str(arm == "with").lower())
    spark.sql(statement).collect()


def _restore(spark: SparkSession, name: str) -> None:
    (last,) = DeltaTable.forName(spark, name).history(1).collect()
    spark.sql(f"RESTORE TABLE {name} TO VERSION AS OF {last.version - 1}")


def _last(spark: SparkSession, name: str) -> dict[str, str]:
    (last,) = DeltaTable.forName(spark, name).history(1).collect()
    metrics: dict[str, str] = last.operationMetrics
    return metrics


def _counts(metrics: dict[str, str]) -> dict[str, str]:
    return {k: v for k, v in metrics.items() if "Time" not in k and "Bytes" not in k}


def _opened(spark: SparkSession) -> int:
    """Files that the last command with the index looked into."""
    for row in reversed(rewrite.history(spark).collect()):
        if row.pruned is not None and "-with" in row.table and "-without" not in row.table:
            return int(row.opened or 0)
    return 0


def _row(spark: SparkSession, place: Place, upserts: int) -> None:
    """Upserts of ten keys in a row, nine of one of 100 files and a new one."""
    files, each = 100, max(1, upserts // 10)
    for arm in ARMS:
        star(spark, KEYS, files=files).write.format("delta").option(
            "delta.dataSkippingNumIndexedCols", "0"
        ).save(f"{place.uri}/row-{arm}")
    twins = {arm: f"delta.`{place.uri}/row-{arm}`" for arm in ARMS}
    spark.sql(
        f"CREATE SKIPPING INDEX ON {twins['with']} (h VALUE_LIST)"
        " WITH (auto_refresh = true, refresh_interval = '1 second')"
    )
    index = SkippingIndex.on(spark, twins["with"])
    draw = random.Random(7)
    lines, seconds = [], {arm: list[float]() for arm in ARMS}
    unknown: list[float] = []
    place.late(True)
    for n in range(1, upserts + 1):
        # Of one file: those of many would become one file, and the table soon have few.
        first = KEYS * draw.randrange(files)
        keys = draw.sample(range(first, first + KEYS), 9)
        rows = " UNION ALL ".join(f"SELECT {k}L AS k, xxhash64({k}L) AS h" for k in [*keys, -n])
        merge = MERGE.format(t="{t}", source=f"(SELECT k, h, 'n{n}' AS note FROM ({rows}))")
        arms: dict[str, Callable[[], object]] = {
            arm: partial(_run, spark, arm, merge.format(t=twins[arm])) for arm in ARMS
        }
        for arm, (took,) in interleaved(arms, rounds=1, warm=0).items():
            seconds[arm].append(took)
        if n % max(1, each // 10) == 0:
            unknown.append(index.pending().num_rows / index.table.files().num_rows)
        if n % each == 0:
            took_with, took_without = seconds["with"][-each:], seconds["without"][-each:]
            lines.append(
                (
                    f"{n:,}",
                    f"{index.table.files().num_rows:,}",
                    spread(unknown, 1, 100.0),
                    spread(took_with),
                    spread(took_without),
                    ratio(took_without, took_with),
                    _refreshes(spark),
                )
            )
            unknown.clear()
    place.late(False)
    for arm in ARMS:
        spark.conf.set("spark.skipping.enabled", "false")
        rows = spark.sql(f"SELECT count(*), bit_xor(xxhash64(h, note)) FROM {twins[arm]}")
        print(f"  rows {arm}: {rows.collect()[0]}")
    index.drop()
    heading(
        "Small upserts in a row, while a stream keeps the index",
        files=files,
        upserts=f"{upserts:,}",
        at=place,
    )
    table(
        ("upserts", "files", "unknown %", "s", "s without", "times", "refresh s"),
        lines,
    )


def _refreshes(spark: SparkSession) -> str:
    """Seconds of the batches of the stream that are remembered."""
    took = [
        progress.batchDuration / 1e3
        for query in spark.streams.active
        for progress in query.recentProgress
        if progress.numInputRows
    ]
    return spread(took) if took else "-"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(PARTS))
    parser.add_argument("--files", type=int, default=1_000)
    parser.add_argument("--rows", type=int, default=10_000, help="a file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--many", type=int, default=10_000, help="files for `delete`")
    parser.add_argument("--upserts", type=int, default=1_000, help="for `row`")
    parser.add_argument("--delay", type=int, help="ms a request; tables are in an object store")
    given = vars(parser.parse_args())
    main(**{**given, "parts": given["parts"] or list(PARTS)})
