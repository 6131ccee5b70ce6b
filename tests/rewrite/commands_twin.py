"""Twin Delta tables, `indexed` with an index and `twin` without one, and what tells them apart.

The oracle of commands that write: what a command does to the one it does to the other, down to
what it commits.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rewrite.observe.explain import read_scans, wait_for_records
from skipping.spark_api import error_condition
from tests.rewrite.delta_rows import DeltaRows
from tests.rewrite.differential import UNCOMPILED, make_table, settings
from tests.rewrite.twelve_files import INDEX, ROWS, location

ON = {"spark.skipping.dml": "true"}
OFF = {"spark.skipping.enabled": "false"}
NAMES = ("indexed", "twin")

TABLES = {
    "rewritten": {"delta.enableDeletionVectors": "false"},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "feed": {"delta.enableDeletionVectors": "false", "delta.enableChangeDataFeed": "true"},
    "vectors, feed": {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"},
    "mapped": {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"},
    "tracked": {"delta.enableRowTracking": "true", "delta.enableDeletionVectors": "false"},
}
PARTED = {
    "parted": TABLES["rewritten"],
    "parted, vectors": TABLES["vectors, feed"],
}
"""Tables with the partition column `n`, in which there are nulls."""

COUNTS_OF_ROWS = {
    *("numSourceRows", "numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"),
    *("numTargetRowsMatchedUpdated", "numTargetRowsMatchedDeleted"),
    *("numTargetRowsNotMatchedBySourceUpdated", "numTargetRowsNotMatchedBySourceDeleted"),
    *("numUpdatedRows", "numDeletedRows"),
}
"""Metrics of operations that go by the rows alone, wherever those are."""

Work = Callable[[str], object]
"""Something that is done to a table, given its name."""


class Originals(dict[str, str]):
    """The folders of tables that twins are copied from, by kind; each is made on first use."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__()
        self._spark = spark

    def __missing__(self, name: str) -> str:
        spark, properties = self._spark, {**TABLES, **PARTED}[name]
        table = f"original_{name.replace(', ', '_')}"
        made = f"{table}_flat" if name in PARTED else table
        make_table(spark, made, ROWS, properties=properties)
        if name in PARTED:
            given = {**properties, "delta.dataSkippingNumIndexedCols": "0"}
            listed = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
            spark.sql(f"DROP TABLE IF EXISTS {table}")
            spark.sql(
                f"CREATE TABLE {table} USING delta PARTITIONED BY (n) TBLPROPERTIES ({listed})"
                f" AS SELECT /*+ REPARTITION(1) */ * FROM {made}"
            )
        self[name] = location(spark, table).removeprefix("file:")
        return self[name]


@dataclass(frozen=True)
class Twins:
    """The two tables, where they are, and what they held."""

    spark: SparkSession
    folders: dict[str, Path]
    kind: str
    feeds: bool
    rows: dict[str, DeltaRows]
    counts: list[int] = field(default_factory=list)
    """Rows of each version that was compared."""

    @staticmethod
    def make(
        spark: SparkSession,
        originals: dict[str, str],
        kind: str,
        folder: Path,
        isolation: str = "Serializable",
    ) -> Twins:
        """Copies of an original, in two new folders within `folder`."""
        Twins.drop(spark)
        folders = {}
        for name in NAMES:
            folders[name] = folder / name
            shutil.copytree(originals[kind], folders[name])
            _isolate(folders[name] / "_delta_log", isolation)
            spark.sql(f"CREATE TABLE {name} USING delta LOCATION '{folders[name]}'")
        # What a partition column can skip needs no index.
        index = INDEX.replace("n VALUE_LIST, ", "") if kind in PARTED else INDEX
        spark.sql(f"CREATE SKIPPING INDEX ON indexed ({index})")
        feeds = "delta.enableChangeDataFeed" in {**TABLES, **PARTED}[kind]
        rows = {name: DeltaRows(at) for name, at in folders.items()}
        return Twins(spark, folders, kind, feeds, rows)

    @staticmethod
    def drop(spark: SparkSession) -> None:
        spark.sql("DROP SKIPPING INDEX IF EXISTS ON indexed")
        for name in NAMES:
            spark.sql(f"DROP TABLE IF EXISTS {name}")

    def versions(self, table: str) -> list[Path]:
        """The files of the log, of version 0 on."""
        return sorted((self.folders[table] / "_delta_log").glob("*.json"))

    def committed(self, table: str, last: int = 1) -> list[Any]:
        """What the last commits say, but for times, sizes, and names of files that they made."""
        shared = set.intersection(*(_files(folder) for folder in self.folders.values()))
        return [_commit(log, shared) for log in self.versions(table)[-last:]]

    def differ_in_commits(
        self, last: int, *, alike: bool = True, nested: bool = False
    ) -> str | None:
        """What the last commits of the two say differently, if they do.

        `alike`: whether the two were laid out alike before; if not, files and the rows that were
        copied with others are not compared. `nested`: whether Spark may join a MERGE by nested
        loops; then it reads the larger side twice, and Delta counts the rows of the source twice.
        """
        for one, other in zip(
            self.committed("indexed", last), self.committed("twin", last), strict=True
        ):
            (said, counted, *rest), (other_said, other_counted, *other_rest) = one, other
            if not alike:
                counted, other_counted, rest, other_rest = (
                    {name: counted[name] for name in COUNTS_OF_ROWS & counted.keys()},
                    {name: other_counted[name] for name in COUNTS_OF_ROWS & other_counted.keys()},
                    rest[1:],
                    other_rest[1:],
                )
            if nested:
                counted, other_counted = (
                    {name: count for name, count in each.items() if name != "numSourceRows"}
                    for each in (counted, other_counted)
                )
            if (said, counted, rest) != (other_said, other_counted, other_rest):
                counts = sorted(counted.items() ^ other_counted.items())
                return f"{said}, {other_said}: {counts}; {rest}, {other_rest}"
        return None

    def differ(self) -> str | None:
        """In which version since the last call the rows of the two differ, if they do."""
        logs = [self.versions(name) for name in NAMES]
        if len(logs[0]) != len(logs[1]):
            return f"{len(logs[0])} versions, and {len(logs[1])}"
        for version in range(self.compared(), len(logs[0])):
            one, other = (self.rows[n].at(log[version]) for n, log in zip(NAMES, logs, strict=True))
            self.counts.append(len(other))
            if one != other:
                lost, more = Counter(other) - Counter(one), Counter(one) - Counter(other)
                return f"version {version} lost {[*lost][:5]}, has {[*more][:5]} more"
        return None

    def laid_out_alike(self) -> bool:
        """Whether the same rows share files, as of what `differ` has read.

        Spark does not say which rows its tasks write together, and which files a later command
        touches, or how many of their rows it copies, goes by that.
        """
        return self.rows["indexed"].files() == self.rows["twin"].files()

    def compared(self) -> int:
        """Versions of which the rows are known to be equal."""
        return len(self.counts)

    def differ_in_time(self, most: int = 5) -> str | None:
        """In which of some versions, the last among them, Spark reads other rows, if it does."""
        last = len(self.counts) - 1
        # That of version 0 has no rows.
        versions = sorted({last - n * (last - 1) // most for n in range(most)})
        legs = [
            f"SELECT '{t}' AS name, {v} AS v, {DIGEST} FROM {t} VERSION AS OF {v}"
            for v in versions
            for t in NAMES
        ]
        with settings(self.spark, {**OFF, **UNCOMPILED}):
            rows = self.spark.sql(" UNION ALL ".join(legs)).collect()
            found: dict[str, list[Any]] = {name: [] for name in NAMES}
            for name, *digest in sorted(map(tuple, rows)):
                found[name].append(digest)
            counts = [count for _, count, *_ in found["twin"]]
            if found["indexed"] != found["twin"] or counts != [self.counts[v] for v in versions]:
                return f"versions {found}, counted {self.counts}"
            if not self.feeds:
                return None
            changes = [self._changes(name) for name in NAMES]
        return None if changes[0] == changes[1] else f"changes {changes}"

    def _changes(self, table: str) -> object:
        query = (
            f"SELECT _commit_version, _change_type, {DIGEST} FROM"
            f" (SELECT * EXCEPT (_commit_timestamp) FROM table_changes('{table}', 1))"
            " GROUP BY ALL ORDER BY ALL"
        )
        return outcome(lambda: self.spark.sql(query).collect())


DIGEST = (
    # As text: functions of hashing pass over nulls, wherever they stand.
    "count(*) AS c, bit_xor(xxhash64({0})) AS x, sum(bigint(hash({0}))) AS s"
).format("to_json(struct(*), map('ignoreNullFields', 'false'))")
"""What is equal where rows are, whatever their order."""


def _isolate(log: Path, level: str) -> None:
    """Write a table's isolation level into its log: Delta obeys both, but sets only the one."""
    for checksum in [*log.glob("*.crc"), *log.glob(".*.crc")]:
        checksum.unlink(missing_ok=True)
    for commit in log.glob("*.json"):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if "metaData" in action:
                action["metaData"]["configuration"]["delta.isolationLevel"] = level
        commit.write_text("".join(json.dumps(action) + "\n" for action in actions))


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*.parquet")}


def _commit(log: Path, shared: set[str]) -> Any:
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    info = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    files = []
    written: Counter[tuple[str, str]] = Counter()
    for action in actions:
        for kind, file in action.items():
            if kind not in ("add", "remove", "cdc"):
                continue
            count = json.loads(file.get("stats") or "{}").get("numRecords")
            values = json.dumps(file.get("partitionValues"))
            deleted = (file.get("deletionVector") or {}).get("cardinality")
            path = file["path"] if file["path"] in shared else ""
            if kind != "remove" and not path and deleted is None:
                written[kind, values] += count or 0
            else:
                files.append((kind, values, count, deleted, file.get("dataChange"), path))
    others = sorted({k for a in actions for k in a} - {"add", "remove", "cdc", "commitInfo"})
    # DESCRIBE HISTORY shows what stands here. How many files a command writes goes by its tasks,
    # and those go by what it reads.
    counted = {
        name: value
        for name, value in info.get("operationMetrics", {}).items()
        if not any(part in name for part in ("Time", "Bytes", "Size", "FilesAdded"))
        and name not in ("numAddedFiles", "numAddedChangeFiles")
        and not (name == "numFiles" and info["operation"] == "WRITE")
    }
    said = {
        name: info.get(name)
        for name in ("operation", "readVersion", "isolationLevel", "isBlindAppend")
    }
    # Statistics are missing in some.
    return said, counted, (sorted(files, key=repr), sorted(written.items())), others


def outcome(work: Callable[[], object]) -> object:
    """What comes of it: an answer, or the class of the error and what Spark calls it."""
    try:
        return work()
    except PySparkException as error:
        return f"{type(error).__name__} {error_condition(error) or str(error)[:60]}"
    except Py4JJavaError as error:
        thrown = error.java_exception
        while thrown.getCause() is not None:
            thrown = thrown.getCause()
        return f"{thrown.getClass().getName()} {str(thrown.getMessage())[:60]}"


def looks(spark: SparkSession, seen: int, table: str = "indexed") -> Iterator[Any]:
    """The scans of a table since an execution that had files to leave out."""
    for execution in json.loads(wait_for_records(spark).java.executions().recent()):
        if execution["id"] > seen:
            for scan in read_scans(execution["scans"]):
                if scan.total is not None and table in scan.table:
                    yield scan


def newest(spark: SparkSession) -> int:
    """The number of the last execution."""
    recent = json.loads(wait_for_records(spark).java.executions().recent())
    return max((execution["id"] for execution in recent), default=-1)


@contextmanager
def serving(spark: SparkSession, table: str) -> Iterator[None]:
    """The session as a table's commands are run: with the index, or as if there were none."""
    with settings(spark, ON if table == "indexed" else OFF):
        yield
