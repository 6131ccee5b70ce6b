"""What is Delta's own: deletion vectors, column mapping, its log, its paths."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from providers.errors import TableError
from skipping.tables.open import open_table
from skipping.tables.paths import resolve_path
from tests.rewrite.differential import settings
from tests.skipping.tables import formats
from tests.skipping.tables.formats import SPECIAL, Delta, insert, paths

pytestmark = pytest.mark.nightly


def sketched(spark: SparkSession, name: str, column: str) -> Any:
    return formats.sketched(open_table(spark, name), column)


def log_of(spark: SparkSession, name: str) -> Path:
    return Path(open_table(spark, name).root.removeprefix("file:")) / "_delta_log"


def test_names_that_users_type(spark: SparkSession, name: str) -> None:
    spark.sql(f"CREATE TABLE {name} (k INT) USING delta")
    root = open_table(spark, name).root
    for typed in (name, f"default.{name}", f"spark_catalog.default.{name}", name.upper()):
        assert open_table(spark, typed).name == f"spark_catalog.default.{name}"
    for typed in (f"delta.`{root}`", f"delta.`{root.removeprefix('file:')}`"):
        table = open_table(spark, typed)
        assert table.name == f"delta.`{root}`"
        assert table.id == open_table(spark, name).id


def test_what_is_no_delta_table_says_so(spark: SparkSession, name: str, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE {name} (k INT) USING delta")
    insert(spark, name, "(1)")
    spark.sql(f"CREATE VIEW {name}_v AS SELECT a.k FROM {name} a JOIN {name} b USING (k)")
    spark.sql(f"CREATE TABLE {name}_p (k INT) USING orc")
    spark.table(name).createOrReplaceTempView(f"{name}_tv")
    spark.readStream.table(name).createOrReplaceTempView(f"{name}_sv")
    spark.range(3).createOrReplaceTempView(f"{name}_rv")
    base = f"name its table: spark_catalog.default.{name}$"
    try:
        for typed, message in {
            f"{name}_v": f"is a view.*{base}",
            f"{name}_tv": f"is a view.*{base}",
            f"{name}_sv": f"is a stream.*spark_catalog.default.{name}$",
            f"{name}_rv": "is a view",
            f"{name}_p": "is not a Delta, Iceberg or Parquet table: its provider is orc",
            "nothing_here": "cannot open table nothing_here: .*cannot be found",
            f"delta.`{tmp_path}`": "cannot open table",
            f"delta.`{open_table(spark, name).root}@v0`": "one version",
            "not a name": "cannot open table not a name",
        }.items():
            with pytest.raises(TableError, match=message):
                open_table(spark, typed)
    finally:
        spark.sql(f"DROP VIEW {name}_v")
        spark.sql(f"DROP TABLE {name}_p")


def test_a_table_that_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(1).write.format("delta").save(str(tmp_path / "t"))
    table = open_table(spark, f"delta.`{tmp_path / 't'}`")
    shutil.rmtree(tmp_path / "t")
    for ask in (table.version, table.files, table.columns):
        with pytest.raises(TableError, match=r"cannot read|is gone"):
            ask()


def test_deleted_rows_stay_in_the_sketch_because_restore_brings_them_back(
    spark: SparkSession, name: str
) -> None:
    spark.sql(
        f"CREATE TABLE {name} (k INT) USING delta "
        "TBLPROPERTIES (delta.enableDeletionVectors = true)"
    )
    spark.range(10).selectExpr("CAST(id AS INT) k").coalesce(1).writeTo(name).append()
    table = open_table(spark, name)
    before = table.files()
    spark.sql(f"DELETE FROM {name} WHERE k = 7")
    assert spark.table(name).count() == 9
    assert table.files().equals(before), "the file is the same, its rows are fewer"
    assert sketched(spark, name, "k") == set(range(10))
    spark.sql(f"RESTORE TABLE {name} TO VERSION AS OF 1")
    assert table.files().equals(before)
    assert spark.table(name).count() == 10
    assert len(table.changes(0, table.version()) or ()) == 1, "added three times, told once"


@pytest.mark.parametrize("mode", ["name", "id"])
def test_column_mapping(spark: SparkSession, name: str, mode: str) -> None:
    spark.sql(
        f"CREATE TABLE {name} (k INT, `a.b` STRING, s STRUCT<x: INT>, p STRING) USING delta "
        f"PARTITIONED BY (p) TBLPROPERTIES (delta.columnMapping.mode = '{mode}')"
    )
    insert(spark, name, "(1, 'dot', named_struct('x', 5), 'one')")
    table = open_table(spark, name)
    before = {n: c.identity for n, c in table.columns().items()}
    assert list(before) == ["k", "`a.b`", "s", "s.x", "p"]
    assert all(i.startswith("#") == (mode == "id") for i in before.values())
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN k TO key")
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN s.x TO y")
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN p TO q")
    insert(spark, name, "(2, 'more', named_struct('x', 6), 'two')")
    after = {n: c.identity for n, c in table.columns().items()}
    assert list(after.values()) == list(before.values())
    assert list(after) == ["key", "`a.b`", "s", "s.y", "q"]
    assert sketched(spark, name, "key") == {1, 2}
    assert sketched(spark, name, "`a.b`") == {"dot", "more"}
    assert sketched(spark, name, "s.y") == {5, 6}
    partitions = [dict(f["partition"]) for f in table.files().to_pylist()]
    assert {p[after["q"]] for p in partitions} == {"one", "two"}
    spark.sql(f"ALTER TABLE {name} DROP COLUMN key")
    spark.sql(f"ALTER TABLE {name} ADD COLUMNS (key STRING)")
    again = table.columns()["key"]
    assert again.type == "string"
    assert again.identity not in before.values()
    assert sketched(spark, name, "key") == set(), "old files read nulls for the new column"
    assert paths(table.files()) == Delta().scanned(spark, name)


def test_mapping_added_later_keeps_identities(spark: SparkSession, name: str) -> None:
    spark.sql(f"CREATE TABLE {name} (k INT, s STRUCT<x: INT>) USING delta")
    insert(spark, name, "(1, named_struct('x', 5))")
    table = open_table(spark, name)
    before = {c.identity for c in table.columns().values()}
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES (delta.columnMapping.mode = 'name')")
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN k TO `k.2`")
    assert {c.identity for c in table.columns().values()} == before == {"k", "s", "s.x"}
    assert sketched(spark, name, "`k.2`") == {1}


def test_nested_leaves_under_null_structs(spark: SparkSession, name: str) -> None:
    spark.sql(f"CREATE TABLE {name} (s STRUCT<x: INT, t: STRUCT<y: STRING>>) USING delta")
    struct = "named_struct('x', 1, 't', named_struct('y', 'a'))"
    insert(spark, name, f"(NULL), ({struct}), (named_struct('x', NULL, 't', NULL))")
    assert sketched(spark, name, "s.x") == {1}
    assert sketched(spark, name, "s.t.y") == {"a"}


def test_widened_columns(spark: SparkSession, name: str) -> None:
    spark.sql(
        f"CREATE TABLE {name} (k INT, d DECIMAL(9,2), e DECIMAL(9,2), day DATE) USING delta "
        "TBLPROPERTIES (delta.enableTypeWidening = true, delta.feature.timestampNtz = 'supported')"
    )
    insert(spark, name, "(1, 1.5, 1.5, DATE'2020-01-01')")
    spark.sql(f"ALTER TABLE {name} ALTER COLUMN k TYPE BIGINT")
    spark.sql(f"ALTER TABLE {name} ALTER COLUMN d TYPE DECIMAL(12,2)")
    spark.sql(f"ALTER TABLE {name} ALTER COLUMN e TYPE DECIMAL(12,4)")
    spark.sql(f"ALTER TABLE {name} ALTER COLUMN day TYPE TIMESTAMP_NTZ")
    insert(spark, name, "(5000000000, 2.5, 2.5, TIMESTAMP_NTZ'2020-01-01 01:00:00')")
    assert open_table(spark, name).columns()["k"].type == "bigint"
    assert sketched(spark, name, "k") == {1, 5_000_000_000}
    assert sketched(spark, name, "d") == {150, 250}
    assert "the file has type" in sketched(spark, name, "e")
    assert "the file has type" in sketched(spark, name, "day")


@pytest.mark.parametrize(
    ("properties", "bounded"),
    [
        ("", {"a": 32, "b": 32, "s.x": 32, "c": None}),
        ("'delta.dataSkippingNumIndexedCols' = '2'", {"a": 32, "b": 32, "s.x": None, "c": None}),
        ("'delta.dataSkippingStatsColumns' = 's'", {"a": None, "b": None, "s.x": 32, "c": None}),
        ("'delta.columnMapping.mode' = 'name'", {"a": 32, "b": 32, "s.x": 32, "c": None}),
    ],
    ids=["as it is", "two", "named", "mapped"],
)
def test_columns_whose_bounds_are_in_the_log(
    spark: SparkSession, name: str, properties: str, bounded: dict[str, int | None]
) -> None:
    columns = "a INT, b STRING, s STRUCT<x: DATE>, c BOOLEAN"
    listed = f" TBLPROPERTIES ({properties})" if properties else ""
    spark.sql(f"CREATE TABLE {name} ({columns}) USING delta{listed}")
    insert(spark, name, "(1, 'x', named_struct('x', DATE'2024-01-01'), true)")
    found = open_table(spark, name).columns()
    assert {column.name: column.bounded for column in found.values() if not column.refusal} == (
        bounded
    )
    # As Delta wrote it.
    (commit,) = log_of(spark, name).glob("*1.json")
    (add,) = [line for line in map(json.loads, commit.read_text().splitlines()) if "add" in line]
    least = json.loads(add["add"]["stats"])["minValues"]
    assert set(least) == {column.physical.path[0] for column in found.values() if column.bounded}


def test_columns_that_are_refused(
    spark: SparkSession, name: str, request: pytest.FixtureRequest
) -> None:
    check = "spark.databricks.delta.schema.typeCheck.enabled"  # 4.4.0 makes no collated columns
    spark.conf.set(check, "false")
    request.addfinalizer(lambda: spark.conf.unset(check))
    spark.sql(
        f"CREATE TABLE {name} (c CHAR(3), v VARCHAR(3), u STRING COLLATE UNICODE_CI, "
        "j VARIANT, x STRING COLLATE UTF8_BINARY, "
        "s STRUCT<c: CHAR(4), v: VARCHAR(4), t: STRUCT<d: CHAR(5)>>) USING delta"
    )
    columns = open_table(spark, name).columns()
    refusals = {n: c.refusal for n, c in columns.items()}
    assert "char(3)" in (refusals["c"] or "")
    assert "char(4)" in (refusals["s.c"] or "")
    assert "char(5)" in (refusals["s.t.d"] or "")
    assert "UNICODE_CI" in (refusals["u"] or "")
    assert "variant" in (refusals["j"] or "")
    assert refusals["v"] is refusals["x"] is refusals["s.v"] is None
    inner = "named_struct('c', 'e', 'v', 'f', 't', named_struct('d', 'g'))"
    insert(spark, name, f"('a', 'b', 'c', parse_json('1'), 'd', {inner})")
    assert paths(open_table(spark, name).files()) == Delta().scanned(spark, name)


def test_a_cleaned_log_is_a_gap(spark: SparkSession, name: str) -> None:
    spark.sql(
        f"CREATE TABLE {name} (k INT) USING delta TBLPROPERTIES (delta.checkpointInterval = 3)"
    )
    insert(spark, name, *[f"({k})" for k in range(5)])
    table = open_table(spark, name)
    assert len(table.changes(0, 5) or ()) == 5
    for version in range(3):
        (log_of(spark, name) / f"{version:020d}.json").unlink()
    assert len(table.files()) == 5
    assert table.changes(0, 5) is None
    assert len(table.changes(2, 5) or ()) == 3
    assert len(table.files(4)) == 4
    with pytest.raises(TableError, match="cannot read table"):
        table.files(1)
    spark.sql(f"DELETE FROM {name} WHERE k = 4")
    everything = pa.array(paths(table.files(5)))
    assert table.find_reachable(everything).to_pylist() == [True] * 5


def test_a_broken_commit_is_a_gap_whatever_the_session_ignores(
    spark: SparkSession, name: str
) -> None:
    spark.sql(f"CREATE TABLE {name} (k INT) USING delta")
    insert(spark, name, "(1)", "(2)", "(3)")
    table = open_table(spark, name)
    commit = log_of(spark, name) / f"{2:020d}.json"
    (commit.parent / f".{commit.name}.crc").unlink(missing_ok=True)
    ignored = ["spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles"]
    with settings(spark, dict.fromkeys(ignored, "true")):
        assert len(table.changes(0, 3) or ()) == 3
        text = commit.read_text()
        commit.write_text(text[:-200])
        assert table.changes(0, 3) is None
        commit.unlink()
        assert table.changes(0, 3) is None
    assert table.changes(0, 5_000) is None


def test_replaced_table_is_another_one_in_the_same_place(spark: SparkSession, name: str) -> None:
    spark.sql(f"CREATE TABLE {name} (k INT) USING delta")
    insert(spark, name, "(1)")
    table = open_table(spark, name)
    before = table.id
    spark.sql(f"CREATE OR REPLACE TABLE {name} (s STRING) USING delta")
    insert(spark, name, "('a')")
    assert (table.id.root, table.id.format) == (before.root, "delta")
    assert table.id.id != before.id
    assert len(table.files()) == 1
    assert len(table.files(1)) == 1
    assert len(table.changes(0, 3) or ()) == 2


def test_copied_folder_shares_the_id_but_not_the_root(spark: SparkSession, tmp_path: Path) -> None:
    odd = tmp_path / "a b%20é {x}[1]*"
    spark.range(1).write.format("delta").save(str(odd))
    shutil.copytree(odd, tmp_path / "copy")
    source = open_table(spark, f"delta.`{odd}`")
    copy = open_table(spark, f"delta.`{tmp_path / 'copy'}`")
    assert source.root == f"file:{odd}"
    assert source.id.id == copy.id.id
    assert source.id != copy.id
    assert not {*paths(source.files())} & {*paths(copy.files())}
    assert paths(source.files()) == Delta().scanned(spark, f"delta.`{odd}`")
    assert paths(source.changes(-1, 0)) == paths(source.files())
    assert paths(source.files(where="id = 0")) == paths(source.files())


def test_shallow_clones_name_the_files_of_their_source(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "so urce%"
    spark.sql(f"CREATE TABLE delta.`{folder}` (k INT, p STRING) USING delta PARTITIONED BY (p)")
    values = ", ".join(f"({i}, '{p}')" for i, p in enumerate(SPECIAL))
    spark.sql(f"INSERT INTO delta.`{folder}` VALUES {values}")
    clone = f"delta.`{tmp_path / 'clone'}`"
    spark.sql(f"CREATE TABLE {clone} SHALLOW CLONE delta.`{folder}`")
    spark.sql(f"INSERT INTO {clone} VALUES (99, 'own')")
    table, source = open_table(spark, clone), open_table(spark, f"delta.`{folder}`")
    assert table.id.id != source.id.id
    assert paths(table.files()) == Delta().scanned(spark, clone)
    assert {*paths(source.files())} < {*paths(table.files())}
    assert sketched(spark, clone, "k") == {*range(len(SPECIAL)), 99}


def test_absolute_paths_in_the_log(spark: SparkSession, tmp_path: Path) -> None:
    """As converters and other writers make them: a file elsewhere, in each spelling of its URI."""
    home, away = tmp_path / "t", tmp_path / "else where%"
    spark.range(1).coalesce(1).write.format("delta").save(str(home))
    away.mkdir()
    (file,) = home.glob("*.parquet")
    uris = []
    for i, prefix in enumerate(("file:", "file://", "")):
        moved = away / f"{i} {file.name}"
        shutil.copy(file, moved)
        uris.append(prefix + quote(str(moved)))
    entry = {"partitionValues": {}, "size": file.stat().st_size, "dataChange": True}
    adds = [{"add": {**entry, "path": uri, "modificationTime": 0}} for uri in uris]
    commit = home / "_delta_log" / f"{1:020d}.json"
    commit.write_text("\n".join(map(json.dumps, adds)))
    name = f"delta.`{home}`"
    files = open_table(spark, name).files()
    assert spark.table(name).count() == 4
    assert paths(files) == Delta().scanned(spark, name)
    assert sketched(spark, name, "id") == {0}


def test_paths_are_spelled_as_delta_spells_them(spark: SparkSession, name: str) -> None:
    spark.sql(f"CREATE TABLE {name} (k INT) USING delta")
    root = open_table(spark, name).root
    frame: Any = spark.table(name)._jdf
    index = frame.queryExecution().analyzed().collectLeaves().apply(0).relation().location()
    odd = [
        "part-0.parquet",
        "p=a%20b/x",
        "p=a%2520b%252F/x",
        "p=é%C3%A9/%E2%82%AC",
        "p=a%3Ab/x",
        "./p/../x",
        "a//b/x",
        "file:/x/y%20z",
        "file:///x/./y//z",
        "/x/y%25",
        "s3a://bucket/a%20b/x",
        "abfss://box@host.example/k/../x+y",
        "%FF/x",
    ]
    spelled = [str(index.absolutePath(path).toString()) for path in odd]
    assert resolve_path(root, pa.array(odd)).to_pylist() == spelled
    assert resolve_path("s3a://bucket/", pa.array(["x"])).to_pylist() == ["s3a://bucket/x"]
