"""Table formats as the contract sees them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from providers.errors import DefinitionError
from skipping import SkippingIndex
from skipping.indexing.parquet_reader import Unreadable, read_columns
from skipping.spark_api import collect_arrow
from skipping.tables import FILES, Table
from skipping.tables.delta.deltalake import DeltaLakeTable
from skipping.tables.open import open_table

_numbers = itertools.count()


class Format(Protocol):
    """What the contract needs of a format; a second one joins by being added to FORMATS."""

    using: str
    lacks: Mapping[str, str]
    """Tests of the contract that do not apply, and why."""

    def name(self) -> str:
        """A table name that is not taken."""

    def open(self, spark: SparkSession, name: str) -> Table: ...

    def scanned(self, spark: SparkSession, name: str) -> list[str]:
        """Paths that a real scan lists, spelled as FILES should have them."""


class Delta:
    using = "delta"
    lacks: Mapping[str, str] = {}

    def name(self) -> str:
        return f"t{next(_numbers)}"

    def open(self, spark: SparkSession, name: str) -> Table:
        return open_table(spark, name)

    def scanned(self, spark: SparkSession, name: str) -> list[str]:
        frame: Any = spark.table(name)._jdf
        jvm: Any = spark._jvm
        scan = frame.queryExecution().sparkPlan().collectLeaves().apply(0)
        nothing = jvm.PythonUtils.toSeq([])
        folders = scan.relation().location().listFiles(nothing, nothing)
        paths = []
        for i in range(folders.size()):
            files = folders.apply(i).files()
            paths += [str(files.apply(j).getPath().toString()) for j in range(files.size())]
        return sorted(paths)


class DeltaRs(Delta):
    """A table that Spark writes, as delta-rs sees it."""

    def open(self, spark: SparkSession, name: str) -> Table:
        root = getattr(open_table(spark, name), "root", "")
        return DeltaLakeTable(DeltaTable(root.removeprefix("file:")))


class Parquet(Delta):
    using = "parquet"
    lacks: Mapping[str, str] = {
        "test_files_and_changes_of_each_version": "no log: there is no version but the newest",
        "test_files_of_versions_that_can_be_read_are_retained": "no DELETE, and no older versions",
        "test_identity_follows_the_incarnation": "a folder has no id but its place",
    }


class Iceberg(Delta):
    using = "iceberg"
    lacks: Mapping[str, str] = {}

    def name(self) -> str:
        return f"iceberg.db.t{next(_numbers)}"

    def scanned(self, spark: SparkSession, name: str) -> list[str]:
        return sorted(row[0] for row in spark.sql(f"SELECT DISTINCT _file FROM {name}").collect())


FORMATS: dict[str, Format] = {
    "delta": Delta(),
    "delta-rs": DeltaRs(),
    "iceberg": Iceberg(),
    "parquet": Parquet(),
}
SPECIAL = ["a b", "50%", "%20", "x/y", "é€", "a:b", "#?&=+", "{*}[]", '"', "..", "null"]


def paths(files: pa.Table | None) -> list[str]:
    assert files is not None
    assert files.schema == FILES
    return sorted(files.column("path").to_pylist())


def insert(spark: SparkSession, name: str, *rows: str) -> None:
    for row in rows:
        spark.sql(f"INSERT INTO {name} VALUES {row}")


def sketched(table: Table, column: str) -> Any:
    """Normalised values of a column over all files, or the first reason for not knowing."""
    wanted = table.columns().resolve(column)
    values: set[object] = set()
    for file in table.files().to_pylist():
        for part in read_columns(file["path"], [wanted], size=file["size"]):
            if isinstance(part, Unreadable):
                return part.reason
            values |= set(part.distinct().to_pylist())
    return values


def check_random_filters(
    index: SkippingIndex, frame: DataFrame, filters: Sequence[str], *, verify: bool = False
) -> None:
    """Compare the rows, by their number `n`, that a scan and Spark return for each filter."""
    asked = [f"({text}) AS f{i}" for i, text in enumerate(filters)]
    answers = collect_arrow(frame.selectExpr("n", *asked))
    evaluated = opened = 0
    for i, text in enumerate(filters):
        wanted = answers.filter(answers[f"f{i}"])["n"].to_pylist()
        scan: Any = index.scan(text).select("n")
        opened += len(scan.plan_files())
        try:
            found = scan.to_arrow()["n"].to_pylist()
            verified = scan.verify().rows if verify else len(wanted)
        except DefinitionError:  # it says so: times as text in a list
            continue
        evaluated += 1
        assert sorted(found) == sorted(wanted), text
        assert verified == len(wanted), text
    assert evaluated > 100
    assert opened < 3 * len(filters)
