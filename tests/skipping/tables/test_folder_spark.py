"""One index for Spark and pyarrow: the same files, columns and identities; either builds it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import rewrite
from providers.errors import TableError
from skipping import SkippingIndex
from skipping.spark_api import collect_arrow
from skipping.stores.memory.store import MemoryStore
from skipping.tables.open import open_table
from skipping.tables.parquet.listing import list_folder
from skipping.tables.parquet.pyarrow import ParquetFolder
from tests.rewrite.differential import settings
from tests.skipping.tables.formats import SPECIAL, check_random_filters
from tests.skipping.tables.local import COLUMNS, rows
from tests.skipping.tables.test_deltalake_spark import a_filter

pytestmark = pytest.mark.nightly

OLD = time.time() - 3600
STRUCT = "struct(id * 10 AS a, 'x' AS `b.c`) AS st"


def age(folder: Path) -> Path:
    for file in folder.rglob("*.parquet"):
        os.utime(file, (OLD, OLD))
    return folder


def written_by_spark(spark: SparkSession, folder: Path) -> Path:
    frame = spark.range(40).selectExpr(
        *("INT(id) AS k", STRUCT, "id % 3 AS n", "DATE'2024-01-01' + INT(id % 2) AS d"),
        *("concat('a b/', id % 2) AS p", "TIMESTAMP_SECONDS(id) AS ts", "DECIMAL(id) / 4 AS dec"),
        *("TINYINT(id) AS t", "array(id) AS l", "cast('x' AS binary) AS b"),
    )
    frame.repartition(2).write.partitionBy("n", "d", "p").parquet(str(folder))
    return age(folder)


def written_by_pyarrow(spark: SparkSession, folder: Path) -> Path:
    folder.mkdir()
    for i in range(4):
        pq.write_table(rows(i), folder / f"{i}.parquet")
    (folder / "_SUCCESS").touch()
    (folder / "empty.parquet").touch()
    (folder / ".hidden.parquet").write_bytes(b"no parquet")
    return age(folder)


def with_strange_values(spark: SparkSession, folder: Path) -> Path:
    frame = spark.createDataFrame([(i, p) for i, p in enumerate(SPECIAL)], "k BIGINT, `p q` STRING")
    frame.repartition(1).write.partitionBy("p q").parquet(str(folder))
    return age(folder)


@pytest.fixture(params=[written_by_spark, written_by_pyarrow, with_strange_values])
def folder(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Path:
    made: Path = request.param(spark, tmp_path / "a b%20é")
    return made


def test_both_see_the_same(spark: SparkSession, folder: Path) -> None:
    theirs, ours = open_table(spark, f"parquet.`{folder}`"), ParquetFolder.at(folder)
    assert (ours.id, ours.name, ours.version()) == (theirs.id, theirs.name, theirs.version())
    assert ours.files().to_pylist() == theirs.files().to_pylist()
    assert list(ours.columns().values()) == list(theirs.columns().values())


@pytest.mark.parametrize("builder", ["Spark", "pyarrow"])
def test_what_one_builds_the_other_asks(
    spark: SparkSession, folder: Path, tmp_path: Path, builder: str
) -> None:
    name, url = f"parquet.`{folder}`", f"sqlite:{tmp_path}/index.sqlite"
    known = [c for c in ParquetFolder.at(folder).columns().values() if c.refusal is None]
    columns = ", ".join(f"{_quoted(c.name)} VALUE_LIST" for c in known)
    SkippingIndex.create(*((spark, name) if builder == "Spark" else (folder,)), columns, store=url)
    one, other = SkippingIndex.on(folder, store=url), SkippingIndex.on(spark, name, store=url)
    assert one.definition == other.definition
    for index in (one, other):
        assert index.refresh() == index.state
        assert len(index.pending()) == 0
    frame = spark.read.parquet(str(folder))
    for asked in ("k = 1", "k > 1 AND k < 4", "k = 1000"):
        plan = one.lookup(asked)
        assert str(plan) == str(other.lookup(asked))
        assert plan.unknown == 0
        assert plan.kept is not None
        assert plan.kept < (plan.total or 0)
        found = one.scan(asked).to_arrow()
        assert _rows(found) == _rows(collect_arrow(frame.where(asked)))
        assert len(one.scan(asked).plan_files()) == plan.kept
        assert one.verify(asked).rows == len(found)


def _quoted(name: str) -> str:
    return name if "." in name else f"`{name}`"


def _rows(table: pa.Table) -> list[str]:
    return sorted(repr(sorted(row.items(), key=lambda pair: pair[0])) for row in table.to_pylist())


def test_spark_skips_by_what_was_built_here(spark: SparkSession, tmp_path: Path) -> None:
    folder, url = written_by_pyarrow(spark, tmp_path / "t"), f"sqlite:{tmp_path}/index.sqlite"
    SkippingIndex.create(folder, "k VALUE_LIST", store=url)
    with settings(spark, {"spark.skipping.store": url}):
        kept = spark.read.parquet(str(folder)).where("k = 2")
        assert [row.s for row in kept.collect()] == ["s2"]
        (scan,) = rewrite.explain(kept).scans
        assert (scan.kept, scan.total) == (1, 4)


UNSIGNED = {"u8": 2**8, "u16": 2**16, "u32": 2**32, "u64": 2**64}


@pytest.mark.parametrize("builder", ["Spark", "pyarrow"])
def test_unsigned_numbers_are_what_spark_reads(
    spark: SparkSession, tmp_path: Path, builder: str
) -> None:
    """Also those that would be negative with a sign."""
    folder, url = tmp_path / "t", f"sqlite:{tmp_path}/index.sqlite"
    folder.mkdir()
    for i in range(4):
        columns = {
            name: pa.array(
                [end - 1 - i, end // 2 + i, i, None], pa.type_for_alias(f"uint{name[1:]}")
            )
            for name, end in UNSIGNED.items()
        }
        pq.write_table(pa.table(columns), folder / f"{i}.parquet")
    age(folder)
    name, columns = (
        f"parquet.`{folder}`",
        ", ".join(f"{c} VALUE_LIST, {c} MIN_MAX" for c in UNSIGNED),
    )
    SkippingIndex.create(*((spark, name) if builder == "Spark" else (folder,)), columns, store=url)
    index, frame = SkippingIndex.on(folder, store=url), spark.read.parquet(str(folder))
    with settings(spark, {"spark.skipping.store": url}):
        for column, end in UNSIGNED.items():
            for asked, count, files in (
                (f"{column} = {end - 2}", 1, 1),
                (f"{column} IN ({end // 2 + 3}, {end - 1})", 2, 2),
                (f"{column} < 0", 0, 0),
                (f"{column} > {end - 2}", 1, 1),
                (f"NOT {column} <= 2 AND {column} < 4", 1, 4),
            ):
                rows = frame.where(asked)
                assert rows.count() == index.scan(asked).count() == count, asked
                (scan,) = rewrite.explain(rows).scans
                assert scan.kept == len(index.scan(asked).plan_files()) <= files, asked


VALUES = [
    ["1"], ["007", "-3"], ["1", "a"], ["1", "2147483648"], ["-0"], ["2024-01-31"],
    ["2024-01-31", "1"], ["2024-1-3"], ["2024-01-31", "b"], ["1.5"], ["1e5"], ["1d"], ["+1"],
    ["NaN"], ["Infinity", "a"], ["true"], ["now"], ["epoch"], ["T10"], ["_"], ["x1"], ["%31"],
    ["%32%30", "b"], ["a%2Fb", "1"],
    ["__HIVE_DEFAULT_PARTITION__"], ["__HIVE_DEFAULT_PARTITION__", "4"], ["12345678901234567890"],
    ["2024-01-31 00:00:00"], ["2024-02-30"], ["é"], ["%41"], ["0x1"], ["1_000"], [" 1"], ["İnf"],
]  # fmt: skip


def test_types_of_partitions_are_those_that_spark_infers(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Or they are refused."""
    told = 0
    for i, values in enumerate(VALUES):
        folder = tmp_path / str(i)
        for value in values:
            (folder / f"p={value}").mkdir(parents=True)
            pq.write_table(pa.table({"k": [1]}), folder / f"p={value}" / "x.parquet")
        ours = ParquetFolder.at(folder)
        try:
            listed = list_folder(ours.root, *ours.locate(ours.root))
        except TableError:  # the type is one that only Spark can tell
            continue
        told += 1
        theirs = open_table(spark, f"parquet.`{folder}`")
        assert ours.columns()["p"] == theirs.columns()["p"], values
        assert listed.files.to_pylist() == theirs.files().to_pylist(), values
    assert told > len(VALUES) / 2


def test_random_filters_give_the_rows_that_spark_gives(spark: SparkSession, tmp_path: Path) -> None:
    folder, random = tmp_path / "t", Random(20)
    folder.mkdir()
    for i in range(4):
        numbers = pa.array(range(3 * i, 3 * i + 3), pa.int64())
        pq.write_table(rows(i).append_column("n", numbers), folder / f"{i}.parquet")
    index = SkippingIndex.create(age(folder), COLUMNS, store=MemoryStore("random"))
    fixed = ["big <= 9223372036854775808", "big < 1e30", "k > -9223372036854775809.5", "k <= 1e30"]
    filters = [*fixed, *(a_filter(random) for _ in range(150))]
    check_random_filters(index, spark.read.parquet(str(folder)), filters, verify=True)
