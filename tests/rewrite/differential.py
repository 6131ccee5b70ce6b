"""Compare queries with and without the index, on tables where only the index can skip files.

The tables have one data file for each group of rows, and no bounds in their log, so all skipped
files were skipped by the index. The current catalog determines their format: Delta, or Iceberg
within `in_catalog_of("iceberg")`.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import DataType, StructType

import rewrite
from rewrite import Explanation
from skipping.requirements import require_spark
from skipping.spark_api import repartition_by_number

Query: TypeAlias = str | Callable[[SparkSession], DataFrame]

ENABLED = "spark.skipping.enabled"
# Compiling a query over a few rows takes longer than interpreting it. Not NO_CODEGEN, which would
# save more: Spark cannot read variants from Parquet then (CLASS_NOT_OVERRIDE_EXPECTED_METHOD).
UNCOMPILED = {"spark.sql.codegen.wholeStage": "false"}
CONTROL = {ENABLED: "false", **UNCOMPILED}
OWN_BOUNDS = "delta.dataSkippingNumIndexedCols"


@dataclass(frozen=True)
class TableFormat:
    """The namespace for tables of a format, table properties that omit bounds, and the column with
    a row's file."""

    namespace: str
    properties: Mapping[str, str]
    file: str


FORMATS = {
    "delta": TableFormat("spark_catalog.default", {OWN_BOUNDS: "0"}, "_metadata.file_path"),
    "iceberg": TableFormat(
        "iceberg.default",
        {
            "write.metadata.metrics.default": "none",
            "write.distribution-mode": "none",
            "write.spark.fanout.enabled": "true",
        },
        "_file",
    ),
}
IS_SPARK_4 = require_spark().spark >= "4"
# A line of Spark may have no release of a format.
FORMATS = {name: format for name, format in FORMATS.items() if getattr(require_spark(), name)}


def smoke_on(
    format: str, fixture: str = "format", *, scope: Literal["module", "function"] = "module"
) -> pytest.MarkDecorator:
    """Give a fixture every format; `make test` runs one of them, `make test-more` the others."""
    smoke = [pytest.mark.smoke]
    params = [pytest.param(name, marks=smoke if name == format else []) for name in FORMATS]
    return pytest.mark.parametrize(fixture, params, indirect=True, scope=scope)


@contextmanager
def in_catalog_of(
    spark: SparkSession, format: str, schema: str = "default"
) -> Iterator[TableFormat]:
    """Make this format's catalog, and a schema of it, the current one until exit."""
    before = f"{spark.catalog.currentCatalog()}.{spark.catalog.currentDatabase()}"
    catalog = FORMATS[format].namespace.removesuffix("default")
    place = replace(FORMATS[format], namespace=catalog + schema)
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {place.namespace}")
    spark.sql(f"USE {place.namespace}")
    try:
        yield place
    finally:
        spark.sql(f"USE {before}")


def _current(spark: SparkSession, table: str = "") -> str:
    catalog = table.split(".")[0] if table.count(".") == 2 else spark.catalog.currentCatalog()
    return "iceberg" if catalog == "iceberg" else "delta"


@dataclass(frozen=True)
class Compared:
    """The result of a query that ran with and without the index.

    `rows` are sorted; `opened` and `without` count the files opened with and without the index.
    """

    rows: list[str]
    opened: int
    without: int
    explained: Explanation

    @property
    def skipped(self) -> int:
        return self.without - self.opened


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Set some settings of the session, and restore them on exit."""
    before = {key: spark.conf.get(key, None) for key in values}
    for key, value in values.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


def run(spark: SparkSession, query: Query) -> DataFrame:
    return spark.sql(query) if isinstance(query, str) else query(spark)


def opened(df: DataFrame) -> int:
    """Return how many files the last execution of a DataFrame opened, by Spark's own metric."""
    explained = rewrite.explain(df)
    assert explained.execution is not None, "it has run"
    return sum(scan.opened or 0 for scan in explained.scans)


def spelled(rows: list[Row]) -> list[str]:
    """Return the rows as sorted text: repr distinguishes types, and 0.0 from -0.0."""
    return sorted(map(repr, rows))


def same_rows(
    spark: SparkSession,
    query: Query,
    *,
    conf: Mapping[str, str] | None = None,
    garbage: Collection[Path] = (),
    shares: bool = True,
) -> Compared:
    """Run a query with skipping and without; assert that the rows and their types are equal.

    With skipping, some files hold `garbage`, so the query fails if it opens one of them. `shares`:
    equal parts of the query must be computed once, as without skipping.
    """
    with settings(spark, conf or {}):
        with settings(spark, CONTROL):
            control = run(spark, query)
            expected = spelled(control.collect())
            without = opened(control)
        df = run(spark, query)
        with spoiled(garbage):
            rows = spelled(df.collect())
        found = Compared(rows, opened(df), without, rewrite.explain(df))
    assert df.schema == control.schema
    assert rows == expected, f"rows differ for {query}\n{found.explained}"
    for _ in range(4):
        # Adaptive execution removes a scan from the plan, or ends it after it began, if the other
        # side of the join has returned no rows.
        if found.opened <= without or "Spark left it out" in str(rewrite.explain(control)):
            return found
        if not shares and len(found.explained.scans) > len(rewrite.explain(control).scans):
            return found
        with settings(spark, {**(conf or {}), **CONTROL}):
            control = run(spark, query)
            control.collect()
            without = max(without, opened(control))
    raise AssertionError(f"{found.opened} files were opened, and {without} without the index")


def skips(spark: SparkSession, query: Query, *, conf: Mapping[str, str] | None = None) -> Compared:
    """Assert `same_rows`, and that a file was skipped."""
    found = same_rows(spark, query, conf=conf)
    assert found.skipped > 0, f"nothing was skipped for {query}\n{found.explained}"
    return found


def reads_all(spark: SparkSession, query: Query, why: str) -> Compared:
    """Assert `same_rows`, that no file was skipped, and that explain matches the pattern `why`."""
    found = same_rows(spark, query)
    assert found.skipped == 0, str(found.explained)
    assert re.search(why, str(found.explained)), str(found.explained)
    return found


def matching(spark: SparkSession, table: str, condition: str) -> set[Path]:
    """Return the files that contain a matching row, without use of an index."""
    with settings(spark, CONTROL):
        found = spark.sql(
            f"SELECT DISTINCT {_file(spark, table)} AS p FROM {table} WHERE {condition}"
        )
        return {Path(re.sub(r"^file:/*", "/", row.p)) for row in found.collect()}


def _file(spark: SparkSession, table: str) -> str:
    return FORMATS[_current(spark, table)].file


def exact(spark: SparkSession, table: str, condition: str) -> Compared:
    """Assert `same_rows` of a condition, and that exactly the files with a match were opened."""
    rest = f"FROM {table} WHERE {condition}"
    with settings(spark, CONTROL):
        # One scan returns the rows and their files.
        control = spark.sql(f"SELECT *, {_file(spark, table)} AS in_file {rest}")
        *columns, _ = control.schema
        whole = control.collect()
        without = opened(control)
    df = spark.sql(f"SELECT * {rest}")
    rows = spelled(df.collect())
    found = Compared(rows, opened(df), without, rewrite.explain(df))
    assert list(df.schema) == columns
    names = Row(*df.columns)
    expected = spelled([names(*row[:-1]) for row in whole])
    assert rows == expected, f"rows differ for {condition}\n{found.explained}"
    held = len({row[-1] for row in whole})
    assert found.opened == held, f"{condition}\n{found.explained}"
    return found


@dataclass(frozen=True)
class Batch:
    """Sums over many conditions on one table: `held` counts the files that contain a match."""

    total: int
    opened: int
    held: int

    @property
    def skipped(self) -> int:
        return self.total - self.opened


def batch(
    spark: SparkSession,
    table: str,
    conditions: Sequence[str],
    history: str = "",
    *,
    shown: str = "*",
) -> Batch:
    """Assert `same_rows` of many conditions with only two queries.

    Without the index, one scan returns each row with a flag for each condition. With the index, a
    UNION has a query for each condition. None of these opens fewer files than contain a match, so
    if the sums are equal, the counts of each condition are. `shown` are the columns to compare, if
    a value has no Python object.
    """
    flags = ", ".join(f"({condition}) AS q{n}" for n, condition in enumerate(conditions))
    with settings(spark, CONTROL):
        control = spark.sql(
            f"SELECT {shown}, {_file(spark, table)} AS in_file, {flags} FROM {table}"
        )
        whole = control.collect()
    width = len(control.columns) - len(conditions) - 1
    expected: Counter[str] = Counter()
    files = set()
    for row in whole:
        for n in range(len(conditions)):
            if row[width + 1 + n]:
                expected[repr((n, *row[:width]))] += 1
                files.add((n, row[width]))
    legs = [f"SELECT {n} AS n, {shown} FROM {table} WHERE {c}" for n, c in enumerate(conditions)]
    with settings(spark, UNCOMPILED):
        df = spark.sql(" UNION ALL ".join(legs))
        rows = Counter(repr(tuple(row)) for row in df.collect())
    lost, more = expected - rows, rows - expected
    wrong = sorted({int(row[1:].partition(",")[0]) for row in lost + more})
    assert not wrong, (
        f"{lost.total()} rows are lost and {more.total()} added by {[conditions[n] for n in wrong]}"
        f"\n{history}\n{list(lost)[:3]}\n{list(more)[:3]}\n{rewrite.explain(df)}"
    )
    scans = rewrite.explain(df).scans
    held, read = len(files), sum(scan.opened or 0 for scan in scans)
    assert read >= held
    total = sum((scan.opened if scan.total is None else scan.total) or 0 for scan in scans)
    return Batch(total, read, held)


def exact_batch(spark: SparkSession, table: str, conditions: Sequence[str]) -> None:
    """Assert `batch`, and that each condition opens exactly the files with a match."""
    found = batch(spark, table, conditions)
    if found.opened != found.held:
        for condition in conditions:
            exact(spark, table, condition)


def by_group(df: DataFrame, group: str = "_f") -> DataFrame:
    """Repartition a frame to write one file for each value of `group` (0, 1, ...); drop `group`."""
    files = df.agg({group: "max"}).collect()[0][0] + 1
    numbered = df.selectExpr("*", f"int({group}) AS _g")
    return repartition_by_number(numbered, files, "_g").drop(group, "_g")


def make_table(
    spark: SparkSession,
    table: str,
    rows: str | DataFrame,
    index: str | None = None,
    *,
    properties: Mapping[str, str] | None = None,
) -> str:
    """Create a table with one file for each value of the column `_f`, and its skipping index."""
    df = spark.sql(rows) if isinstance(rows, str) else rows
    # The definition of an index belongs to the table's name: it remains after DROP TABLE.
    spark.sql(f"DROP SKIPPING INDEX IF EXISTS ON {table}")
    spark.sql(f"DROP TABLE IF EXISTS {table}")
    format = _current(spark, table)
    options = {**FORMATS[format].properties, **(properties or {})}
    columns = ", ".join(f"{_quoted(f.name)} {_ddl(f.dataType)}" for f in df.drop("_f").schema)
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    spark.sql(f"CREATE TABLE {table} ({columns}) USING {format} TBLPROPERTIES ({listed})")
    append(spark, table, df)
    if index:
        spark.sql(f"CREATE SKIPPING INDEX ON {table} ({index})")
    return table


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _ddl(type: DataType) -> str:
    if not isinstance(type, StructType):
        return type.simpleString()
    return f"struct<{', '.join(f'{_quoted(f.name)}: {_ddl(f.dataType)}' for f in type.fields)}>"


def append(spark: SparkSession, table: str, rows: str | DataFrame) -> None:
    """Append rows, one file for each value of the column `_f`."""
    df = spark.sql(rows) if isinstance(rows, str) else rows
    format = _current(spark, table)
    by_group(df).write.format(format).mode("append").saveAsTable(table)


def files_of(spark: SparkSession, table: str) -> list[Path]:
    """Return the data files of a table's current version, on the local disk."""
    return list(matching(spark, table, "true"))


def stages(spark: SparkSession) -> list[Any]:
    """Return Spark's data on all stages so far: `stageId()`, `inputRecords()`, `resultSize()`."""
    context: Any = spark.sparkContext
    no_quantiles = context._gateway.new_array(context._jvm.double, 0)
    every = context._jvm.java.util.ArrayList()
    found = context._jsc.sc().statusStore().stageList(every, False, False, no_quantiles, every)
    return [found.apply(n) for n in range(found.size())]


@contextmanager
def spoiled(paths: Collection[Path]) -> Iterator[None]:
    """Replace the files' content with random bytes of the same size until exit."""
    held = {path: path.read_bytes() for path in paths}
    try:
        for path, content in held.items():
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
            path.write_bytes(os.urandom(len(content)))
        yield
    finally:
        for path, content in held.items():
            path.write_bytes(content)
