"""The sources of a build make equal sketches, whatever the type and whoever wrote the file."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import rewrite
from skipping.indexing import spark_reader
from skipping.indexing.column_sync import current_columns
from skipping.indexing.definitions import number_columns
from skipping.indexing.sketch import Work, sketch_files
from skipping.indexing.spark_reader import ReaderBuild
from skipping.model.definition import Definition, TableId
from skipping.parser.parse import parse
from skipping.parser.statements import Create
from skipping.spark_api import collect_arrow
from skipping.stores import IDENTITY
from skipping.tables import Columns, PhysicalColumn, TableColumn
from skipping.tables.open import open_table
from skipping.tables.schema import leaves
from tests.rewrite.differential import settings
from tests.skipping.indexing.test_parquet_reader import WRITERS, frame_of_types

pytestmark = pytest.mark.nightly

SETTINGS = {**WRITERS, "legacy decimals": {"spark.sql.parquet.writeLegacyFormat": "true"}}


def work_on(columns: Columns) -> list[Work]:
    """Each leaf column by its values, by its bounds, and by its tuples with the next one."""
    names = [name for name, column in columns.items() if column.refusal is None]
    listed = [f"{name} VALUE_LIST, {name} MIN_MAX" for name in names]
    listed += [f"({a}, {b}) VALUE_LIST" for a, b in itertools.pairwise(names)]
    statement = parse(f"CREATE SKIPPING INDEX ON t ({', '.join(listed)})")
    assert isinstance(statement, Create)
    indexed = number_columns(statement.columns, columns, ())
    pairs = current_columns(Definition("i", TableId("f", "", "r"), "t", indexed), columns)
    return [Work(i, column, i.provider()) for i, column in pairs]


def listed(paths: list[Path], *, dated: bool = False) -> pa.Table:
    rows = [
        (
            i,
            f"file:{p}",
            p.stat().st_size,
            p.stat().st_mtime_ns // 1_000_000 if dated else None,
            None,
        )
        for i, p in enumerate(sorted(paths))
    ]
    columns = [list(column) for column in zip(*rows, strict=True)]
    return pa.table(dict(zip(IDENTITY.names, columns, strict=True)), schema=IDENTITY)


def both(
    spark: SparkSession, files: pa.Table, work: list[Work]
) -> tuple[list[object], list[object]]:
    """Entries by Python's reader, which the driver's are equal to, and by Spark's."""
    direct = pa.Table.from_batches([sketch_files(files.combine_chunks().to_batches()[0], work)])
    (small,) = ReaderBuild(spark)(files, work)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spark_reader, "_SMALL", 0)
        (by_spark,) = ReaderBuild(spark)(files, work)
    assert direct.schema == small.schema == by_spark.schema
    assert spelled(small) == spelled(direct)
    return spelled(direct), spelled(by_spark)


def spelled(entries: pa.Table) -> list[object]:
    """Entries in the order of their files; the values of a list have none."""
    rows = sorted(entries.to_pylist(), key=lambda row: row["ordinal"])
    return [
        {k: sorted(map(repr, v)) if isinstance(v, list) else repr(v) for k, v in row.items()}
        for row in rows
    ]


def test_every_type_and_writer(spark: SparkSession, tmp_path: Path) -> None:
    frame = frame_of_types(spark)
    paths = []
    for writer, values in SETTINGS.items():
        folder = tmp_path / writer.replace(" ", "-")
        with settings(spark, values):
            frame.write.parquet(str(folder))
        paths += folder.glob("*.parquet")
    table = collect_arrow(frame)
    (tmp_path / "pa").mkdir()
    for version in ("1.0", "2.6"):
        pq.write_table(table, tmp_path / "pa" / f"{version}.parquet", version=version)
    pq.write_table(table.slice(0, 0), tmp_path / "pa" / "empty.parquet")
    pq.write_table(table.select(["number", "text"]), tmp_path / "pa" / "few.parquet")
    pq.write_table(
        pa.table({"NUMBER": [1], "text": [7], "big": pa.array([3], pa.int32())}),
        tmp_path / "pa" / "other.parquet",
    )
    (tmp_path / "pa" / "broken.parquet").write_bytes(os.urandom(500))
    paths += (tmp_path / "pa").glob("*.parquet")
    columns = Columns(leaves(frame.schema.jsonValue()["fields"], ()))
    direct, by_reader = both(spark, listed(paths), work_on(columns))
    (at,) = (i for i, row in enumerate(direct) if "broken" in row["path"])  # type: ignore[index]
    # Python tells a file that is no Parquet from one that cannot be read now; Spark does not.
    known = [rows.pop(at)["s1_known"] for rows in (direct, by_reader)]  # type: ignore[index]
    assert known == ["False", "None"]
    assert by_reader == direct
    assert all(row["s1_known"] == "True" for row in direct)  # type: ignore[index]


@pytest.mark.parametrize("mode", ["none", "name", "id"])
def test_columns_of_delta_tables(spark: SparkSession, mode: str) -> None:
    name = f"reader_{mode}"
    spark.sql(
        f"CREATE TABLE {name} (k INT, `a.b` STRING, s STRUCT<x: INT, t: STRUCT<`y.z`: STRING>>, "
        "p STRING) USING delta PARTITIONED BY (p) TBLPROPERTIES "
        f"(delta.columnMapping.mode = '{mode}', delta.enableDeletionVectors = true)"
    )
    struct = "named_struct('x', {0}, 't', IF({0} = 2, NULL, named_struct('y.z', 'v{0}')))"
    for k in range(4):
        value = "NULL" if k == 3 else struct.format(k)
        # In one file, so that the row deleted below is deleted by a vector.
        spark.sql(
            f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ * FROM VALUES "
            f"({k}, 'dot{k}', {value}, 'p {k % 2}'), ({k + 10}, NULL, NULL, 'p {k % 2}')"
        )
    spark.sql(f"DELETE FROM {name} WHERE k = 11")
    if mode != "none":
        spark.sql(f"ALTER TABLE {name} RENAME COLUMN k TO key")
        spark.sql(f"ALTER TABLE {name} ADD COLUMNS (k STRING)")
    table = open_table(spark, name)
    paths = [Path(path.removeprefix("file:")) for path in table.files()["path"].to_pylist()]
    columns = Columns(c for c in table.columns().values() if not c.partition)
    direct, by_reader = both(spark, listed(paths), work_on(columns))
    assert by_reader == direct
    held = [row["s1_values"] for row in direct]
    assert ["1", "11"] in held, "deleted rows are in the sketches of both"
    spark.sql(f"DROP TABLE {name}")


@pytest.mark.parametrize("small", [0, spark_reader._SMALL])
def test_files_that_change_or_are_young_are_left_for_the_next_time(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr(spark_reader, "_SMALL", small)
    for name in ("old", "young", "changed", "gone"):
        pq.write_table(pa.table({"k": [1, 2]}), tmp_path / f"{name}.parquet")
        os.utime(tmp_path / f"{name}.parquet", (1e9, 1e9))
    os.utime(tmp_path / "young.parquet", (time.time() + 60, time.time() + 60))
    files = listed(list(tmp_path.glob("*.parquet")), dated=True)
    os.utime(tmp_path / "changed.parquet", (1e9 + 5, 1e9 + 5))
    (tmp_path / "gone.parquet").unlink()
    work = work_on(Columns([TableColumn("k", "k", "bigint", PhysicalColumn(("k",)))]))
    (entries,) = ReaderBuild(spark, dated=True)(files, work)
    direct = sketch_files(files.combine_chunks().to_batches()[0], work, dated=True)
    for made in (entries, pa.Table.from_batches([direct])):
        known = {Path(r["path"]).stem: r["s1_known"] for r in made.to_pylist()}
        assert known == {"old": True, "young": None, "changed": None, "gone": None}


def test_storage_that_python_cannot_open(spark: SparkSession, tmp_path: Path) -> None:
    """viewfs is a scheme of Hadoop's: a table of mount points, in the session's settings."""
    spark.conf.set("fs.viewfs.mounttable.default.link./data", f"file:{tmp_path}")
    spark.range(0, 40, 1, 4).write.partitionBy().parquet(str(tmp_path / "t x"))
    name = "parquet.`viewfs:/data/t x`"
    try:
        spark.sql(f"CREATE SKIPPING INDEX ON {name} (id MIN_MAX)")
        df = spark.sql(f"SELECT * FROM {name} WHERE id = 5")
        assert [row.id for row in df.collect()] == [5]
        scan = rewrite.explain(df).scans[0]
        assert (scan.opened, scan.unknown) == (1, 0), str(scan)
        spark.sql(f"DROP SKIPPING INDEX ON {name}")
    finally:
        spark.conf.unset("fs.viewfs.mounttable.default.link./data")


def test_a_path_without_a_scheme(spark: SparkSession, tmp_path: Path) -> None:
    """As Iceberg has them in a warehouse that was named without one."""
    path = tmp_path / "a b%20.parquet"
    pq.write_table(pa.table({"k": [1, 2]}), path)
    files = listed([path])
    files = files.set_column(1, "path", pa.array([str(path)]))
    work = work_on(Columns([TableColumn("k", "k", "bigint", PhysicalColumn(("k",)))]))
    direct, by_reader = both(spark, files, work)
    assert direct == by_reader
