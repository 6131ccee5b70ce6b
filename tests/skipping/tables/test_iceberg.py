"""What is Iceberg's own in Spark: snapshots, refs, field ids, file formats, a shared catalog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from providers import Compare
from providers.errors import TableError
from skipping import SkippingIndex
from skipping.stores import identities
from skipping.stores.memory.store import MemoryStore
from skipping.tables.iceberg.pyiceberg import PyIcebergTable
from skipping.tables.iceberg.spark import IcebergTable
from skipping.tables.open import open_table
from tests.skipping.tables.formats import FORMATS, Iceberg, insert, paths, sketched

pytestmark = [
    pytest.mark.parametrize("name", [FORMATS["iceberg"]], ids=["iceberg"], indirect=True),
    pytest.mark.nightly,
]


def create(spark: SparkSession, name: str, columns: str, more: str = "", **properties: str) -> Any:
    given = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    more = f"{more} TBLPROPERTIES ({given})" if given else more
    spark.sql(f"CREATE TABLE {name} ({columns}) USING iceberg {more}")
    return open_table(spark, name)


def call(spark: SparkSession, procedure: str, name: str, more: str = "") -> None:
    table = name.removeprefix("iceberg.")
    spark.sql(f"CALL iceberg.system.{procedure}(table => '{table}'{more})")


def snapshots(spark: SparkSession, name: str) -> list[int]:
    found = spark.table(f"{name}.snapshots").orderBy("committed_at")
    return [row.snapshot_id for row in found.collect()]


def java(spark: SparkSession, name: str) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)


def test_names_that_users_type(spark: SparkSession, name: str) -> None:
    create(spark, name, "k INT")
    insert(spark, name, "(1)")
    short = name.rpartition(".")[2]
    assert open_table(spark, name).name == name
    spark.sql("USE iceberg.db")
    try:
        assert open_table(spark, short).name == name
        spark.sql(f"CREATE SKIPPING INDEX ON {short} (k VALUE_LIST)")
        spark.sql(f"REFRESH SKIPPING INDEX ON db.{short}")
        (shown,) = spark.sql("SHOW SKIPPING INDEXES IN iceberg.db").collect()
        assert (shown.catalog, shown.database, shown.table) == ("iceberg", "db", short)
        spark.sql(f"DROP TABLE {short}")
        spark.sql(f"DROP SKIPPING INDEX ON {short}")
        spark.sql(f"VACUUM SKIPPING INDEX ON {short}")
    finally:
        spark.sql("USE spark_catalog.default")


def test_the_table_is_meant_while_a_session_writes_to_be_audited(
    spark: SparkSession, name: str
) -> None:
    """Iceberg then puts the branch behind each name."""
    create(spark, name, "k INT")
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.wap.enabled' = 'true')")
    insert(spark, name, "(1)", "(2)")
    spark.sql(f"CREATE SKIPPING INDEX ON {name} (k VALUE_LIST)")
    spark.sql(f"ALTER TABLE {name} CREATE BRANCH audited")
    try:
        spark.conf.set("spark.wap.branch", "audited")
        assert open_table(spark, name).name == name
        insert(spark, name, "(3)")
        spark.sql(f"REFRESH SKIPPING INDEX ON {name}")
        described = dict(spark.sql(f"DESCRIBE SKIPPING INDEX EXTENDED ON {name}").collect())
        assert described["files"] == "3"
        assert [row.k for row in spark.sql(f"SELECT k FROM {name} WHERE k = 3").collect()] == [3]
        with pytest.raises(TableError, match="is one version of a table"):
            open_table(spark, f"{name}.branch_audited")
    finally:
        spark.conf.unset("spark.wap.branch")
        spark.sql(f"DROP SKIPPING INDEX ON {name}")


def test_what_is_no_table_says_so(spark: SparkSession, name: str) -> None:
    create(spark, name, "k INT")
    insert(spark, name, "(1)", "(2)")
    spark.sql(f"ALTER TABLE {name} CREATE BRANCH side")
    spark.sql(f"ALTER TABLE {name} CREATE TAG old")
    spark.table(name).createOrReplaceTempView("ice_view")
    first = snapshots(spark, name)[0]
    for typed, message in {
        f"{name}.files": "is a metadata table",
        f"{name}.snapshots": "is a metadata table",
        f"{name}.branch_side": "is one version of a table",
        f"{name}.tag_old": "is one version of a table",
        f"{name}.snapshot_id_{first}": "is one version of a table",
        "ice_view": f"is a view.*name its table: {name}$",
        "iceberg.db.nothing": "cannot open table",
    }.items():
        with pytest.raises(TableError, match=message):
            open_table(spark, typed)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_what_commits_do(spark: SparkSession, name: str, version: int) -> None:
    table = create(spark, name, "k INT, s STRING", **{"format-version": str(version)})
    insert(spark, name, "(1, 'a')", "(2, 'b')")
    two, covered = paths(table.files()), table.version()
    spark.sql(f"INSERT OVERWRITE {name} VALUES (3, 'c')")
    (third,) = paths(table.files())
    assert table.version() > covered
    assert table.find_reachable(pa.array([*two, third, "file:/no"])).to_pylist() == [1, 1, 1, 0]
    insert(spark, name, "(4, 'd')")
    call(spark, "rewrite_data_files", name, ", options => map('rewrite-all', 'true')")
    (whole,) = paths(table.files())
    assert whole not in (*two, third)
    added = table.changes(covered, table.version())
    assert added is None if version == 1 else len(added) == 3
    spark.sql(f"DELETE FROM {name} WHERE k = 4")
    (left,) = paths(table.files())
    assert left != whole
    call(spark, "rollback_to_snapshot", name, f", snapshot_id => {snapshots(spark, name)[1]}")
    assert paths(table.files()) == two
    insert(spark, name, "(5, 'e')")
    assert len(table.files()) == 3
    assert table.changes(table.version() - 1, table.version()) is None, "it went back"
    assert paths(table.files()) == Iceberg().scanned(spark, name)
    last = snapshots(spark, name)[-1]
    call(
        spark, "expire_snapshots", name, ", older_than => TIMESTAMP '2999-01-01', retain_last => 1"
    )
    assert snapshots(spark, name) == [last]
    assert table.find_reachable(pa.array([*two, third])).to_pylist() == [1, 1, 0]
    assert table.changes(covered, table.version()) is None


def test_files_of_branches_and_tags(spark: SparkSession, name: str) -> None:
    table = create(spark, name, "k INT")
    insert(spark, name, "(1)")
    spark.sql(f"ALTER TABLE {name} CREATE TAG old")
    spark.sql(f"ALTER TABLE {name} CREATE BRANCH side")
    spark.sql(f"INSERT INTO {name}.branch_side VALUES (2)")
    spark.sql(f"INSERT OVERWRITE {name} VALUES (3)")
    assert len(table.files()) == 3
    assert len(table.changes(1, 3) or ()) == 2
    assert len(table.files(where="k = 3")) == 1
    assert len(table.files(where="k = 2")) == 1, "of the branch"
    index = SkippingIndex.create(spark, name, "k VALUE_LIST", store=MemoryStore("refs"))
    assert index.lookup(Compare("k", "=", 1)).kept == 1
    spark.sql(f"INSERT INTO {name}.branch_side VALUES (4)")
    assert index.refresh().covered == 4
    assert len(index.files()) == 4


@pytest.mark.parametrize("version", [2, 3])
def test_deleted_rows_stay_in_the_sketch(spark: SparkSession, name: str, version: int) -> None:
    more = {"format-version": str(version), "write.delete.mode": "merge-on-read"}
    table = create(spark, name, "k INT", **more)
    spark.range(10).selectExpr("CAST(id AS INT) k").coalesce(1).writeTo(name).append()
    before = table.files()
    spark.sql(f"DELETE FROM {name} WHERE k = 7")
    assert spark.table(name).count() == 9
    assert table.files().equals(before), "the file is the same, its rows are fewer"
    assert len(table.changes(1, 2) or ()) == 0
    assert sketched(table, "k") == set(range(10))


def test_evolved_columns(spark: SparkSession, name: str) -> None:
    table = create(
        spark,
        name,
        "k INT, f FLOAT, d DECIMAL(9,2), `a.b` STRING, st STRUCT<x: INT, t: STRUCT<y: STRING>>",
    )
    struct = "named_struct('x', 5, 't', named_struct('y', 'deep'))"
    insert(spark, name, f"(1, 0.5, 1.50, 'dot', {struct}), (NULL, NULL, NULL, NULL, NULL)")
    before = {n: c.identity for n, c in table.columns().items()}
    assert list(before) == ["k", "f", "d", "`a.b`", "st", "st.x", "st.t", "st.t.y"]
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN k TO key")
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN st.x TO z")
    for column, type in {"key": "BIGINT", "f": "DOUBLE", "d": "DECIMAL(12,2)"}.items():
        spark.sql(f"ALTER TABLE {name} ALTER COLUMN {column} TYPE {type}")
    struct = "named_struct('z', 6, 't', named_struct('y', 'more'))"
    insert(spark, name, f"(5000000000, 0.25, 123456789.25, 'more', {struct})")
    after = table.columns()
    assert [c.identity for c in after.values()] == list(before.values())
    assert [after[n].type for n in ("key", "f", "d")] == ["bigint", "double", "decimal(12,2)"]
    assert sketched(table, "key") == {1, 5_000_000_000}
    assert sketched(table, "d") == {150, 12345678925}
    assert len(sketched(table, "f")) == 2
    assert sketched(table, "`a.b`") == {"dot", "more"}
    assert sketched(table, "st.z") == {5, 6}
    assert sketched(table, "st.t.y") == {"deep", "more"}
    spark.sql(f"ALTER TABLE {name} DROP COLUMN key")
    spark.sql(f"ALTER TABLE {name} ADD COLUMNS (key STRING)")
    again = table.columns()["key"]
    assert (again.type, again.identity in before.values()) == ("string", False)
    assert sketched(table, "key") == set(), "old files read nulls for the new column"


def test_columns_that_are_refused(spark: SparkSession, name: str) -> None:
    table = create(
        spark, name, "b BINARY, n TIMESTAMP_NTZ, l ARRAY<INT>", **{"format-version": "3"}
    )
    jvm: Any = spark._jvm
    types = jvm.org.apache.iceberg.types.Types
    change = java(spark, name).updateSchema()
    for column, type in {
        "u": types.UUIDType.get(),
        "x": types.FixedType.ofLength(3),
        "c": types.TimeType.get(),
        "o": types.TimestampNanoType.withZone(),
    }.items():
        change = change.addColumn(column, type)
    change.commit()
    columns = table.columns()
    assert {n: c.type for n, c in columns.items() if c.refusal is None} == {
        "b": "binary",
        "n": "timestamp_ntz",
    }
    assert columns["u"].refusal == "u is uuid, which cannot be indexed"
    assert columns["l"].refusal == "arrays can be indexed by their elements only: l is array<int>"


@pytest.mark.parametrize(
    ("properties", "bounded"),
    [
        ({}, {"a": 16, "b": 16, "s.x": 16}),
        ({"default": "counts"}, {"a": None, "b": None, "s.x": None}),
        ({"default": "none", "column.b": "truncate(3)"}, {"a": None, "b": 3, "s.x": None}),
        ({"column.s.x": "none", "column.b": "full"}, {"a": 16, "b": 1 << 30, "s.x": None}),
        ({"max-inferred-column-defaults": "2"}, {"a": 16, "b": 16, "s.x": None}),
    ],
    ids=["as it is", "counts", "one", "whole", "two"],
)
def test_columns_whose_bounds_are_in_manifests(
    spark: SparkSession, name: str, properties: dict[str, str], bounded: dict[str, int | None]
) -> None:
    metrics = {f"write.metadata.metrics.{key}": value for key, value in properties.items()}
    table = create(spark, name, "a INT, b STRING, s STRUCT<x: DATE>", **metrics)
    insert(spark, name, "(1, 'x', named_struct('x', DATE'2024-01-01'))")
    assert {c.name: c.bounded for c in table.columns().values() if not c.refusal} == bounded
    # As Iceberg wrote it.
    (row,) = spark.sql(f"SELECT readable_metrics m FROM {name}.files").collect()
    written = {column: row.m[column].lower_bound is not None for column in bounded}
    assert written == {column: kept is not None for column, kept in bounded.items()}


def test_a_default_of_version_3_is_unknown_in_older_files(spark: SparkSession, name: str) -> None:
    table = create(spark, name, "k INT", **{"format-version": "3"})
    insert(spark, name, "(1)")
    jvm: Any = spark._jvm
    iceberg = jvm.org.apache.iceberg
    default = iceberg.expressions.Literal.of(5)
    integer = iceberg.types.Types.IntegerType.get()
    java(spark, name).updateSchema().addColumn("five", integer, None, default).commit()
    assert table.columns()["five"].physical.backfilled
    assert sketched(table, "five") == "the file lacks the column, so its rows read a default"
    spark.sql(f"REFRESH TABLE {name}")
    assert spark.table(name).collect() == [(1, 5)]
    insert(spark, name, "(2, 6)")
    index = SkippingIndex.create(spark, name, "five VALUE_LIST", store=MemoryStore("five"))
    assert sorted(f["five VALUE_LIST"] for f in index.files().to_pylist()) == [False, True]


def test_partitions_evolve(spark: SparkSession, name: str) -> None:
    columns = "k INT, p STRING, day DATE, q INT"
    table = create(spark, name, columns, "PARTITIONED BY (p, bucket(4, k))")
    insert(spark, name, "(1, 'a b/%25', DATE'2024-05-01', 1)")
    spark.sql(f"ALTER TABLE {name} DROP PARTITION FIELD p")
    insert(spark, name, "(2, 'b', DATE'2024-05-02', 2)")
    spark.sql(f"ALTER TABLE {name} ADD PARTITION FIELD day")
    spark.sql(f"ALTER TABLE {name} ADD PARTITION FIELD q AS qq")
    insert(spark, name, "(3, 'c', NULL, 3)")
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN day TO d")
    found = table.columns()
    assert {n for n, c in found.items() if c.partition} == {"d", "q"}
    ids = {n: found[n].identity for n in ("p", "d", "q")}
    files = [dict(f["partition"]) for f in table.files().to_pylist()]
    expected = [{ids["p"]: "a b/%25"}, {}, {ids["d"]: None, ids["q"]: "3"}]
    assert sorted(map(repr, files)) == sorted(map(repr, expected))
    since = [dict(f["partition"]) for f in (table.changes(0, 3) or FILES_OF_NONE).to_pylist()]
    assert sorted(map(repr, since)) == sorted(map(repr, expected))
    index = SkippingIndex.create(spark, name, "q PARTITION, d PARTITION", store=MemoryStore("p"))
    assert index.lookup(Compare("q", "=", 3)).kept == 1
    assert index.lookup(Compare("q", "=", 1)).kept == 1, "read from the file"


FILES_OF_NONE = pa.table({"partition": pa.array([], pa.map_(pa.string(), pa.string()))})


def test_files_of_other_formats_are_unknown(spark: SparkSession, name: str) -> None:
    table = create(spark, name, "k INT")
    for number, form in enumerate(("parquet", "orc", "avro")):
        spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.format.default' = '{form}')")
        insert(spark, name, f"({number})")
    assert sorted(table.files()["format"].to_pylist()) == ["avro", "orc", "parquet"]
    index = SkippingIndex.create(spark, name, "k VALUE_LIST", store=MemoryStore("formats"))
    assert index.state.status == "active"
    assert len(index.files()) == 1
    plan = index.lookup(Compare("k", "=", 9))
    assert (plan.total, plan.pruned, plan.unknown) == (3, 1, 2)


def test_imported_files(spark: SparkSession, name: str, tmp_path: Path) -> None:
    table = create(spark, name, "k INT, s STRUCT<x: INT>, p STRING", "PARTITIONED BY (p)")
    source = tmp_path / "source"
    frame = spark.range(3).selectExpr("CAST(id AS INT) k", "struct(CAST(id AS INT) x) s", "'a' p")
    frame.coalesce(1).write.partitionBy("p").parquet(str(source))
    call(spark, "add_files", name, f", source_table => '`parquet`.`{source}`'")
    assert [dict(f["partition"]) for f in table.files().to_pylist()] == [
        {table.columns()["p"].logged_as: "a"}
    ]
    assert sketched(table, "k") == {0, 1, 2}
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN k TO key")
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN s.x TO y")
    assert sketched(table, "key") == {0, 1, 2}
    assert sketched(table, "s.y") == {0, 1, 2}
    assert spark.sql(f"SELECT key, s.y FROM {name} ORDER BY key").first() == (0, 0)
    index = SkippingIndex.create(spark, name, "p PARTITION, key MIN_MAX", store=MemoryStore("i"))
    assert index.lookup(Compare("p", "=", "b")).kept == 0
    assert index.lookup(Compare("key", "=", 7)).kept == 0
    spark.sql(f"ALTER TABLE {name} UNSET TBLPROPERTIES ('schema.name-mapping.default')")
    assert "no field ids" in sketched(table, "key")


def test_replaced_table_keeps_its_index(spark: SparkSession, name: str) -> None:
    create(spark, name, "k INT, s STRING")
    insert(spark, name, "(1, 'a')")
    index = SkippingIndex.create(spark, name, "k VALUE_LIST, s MIN_MAX", store=MemoryStore("r"))
    spark.sql(f"CREATE OR REPLACE TABLE {name} (k STRING, s STRING) USING iceberg")
    insert(spark, name, "('one', 'b')")
    index.refresh()
    assert index.lookup(Compare("k", "=", "two")).kept == 0
    spark.sql(f"DROP TABLE {name}")
    create(spark, name, "k INT, s STRING")
    insert(spark, name, "(1, 'a')")
    again = SkippingIndex.on(spark, name, store=index.store)
    assert again.replaced
    again.refresh()
    assert not again.replaced
    assert again.lookup(Compare("k", "=", 2)).kept == 0


def test_entries_are_those_of_the_physical_files(spark: SparkSession, name: str) -> None:
    table = create(spark, name, "k INT, s STRING, st STRUCT<x: BIGINT>", "PARTITIONED BY (s)")
    spark.range(0, 40, 1, 4).selectExpr(
        "CAST(id AS INT) k", "concat('s', id % 3) s", "struct(id * id AS x) st"
    ).writeTo(name).append()
    spark.sql(f"DELETE FROM {name} WHERE k IN (0, 39)")
    store = MemoryStore("physical")
    index = SkippingIndex.create(spark, name, "k MIN_MAX, st.x MIN_MAX, s PARTITION", store=store)
    fields = ["s1_low", "s1_high", "s2_low", "s2_high", "s3_low"]
    entries = store.catalogue(index.definition.index, fields=fields).files.to_pylist()
    assert len(entries) == len(table.files()) >= 3
    for entry in entries:
        path = entry["path"].removeprefix("file:")
        file = pq.read_table(path, partitioning=None)
        x = pc.struct_field(file["st"], "x")
        assert (entry["s1_low"], entry["s1_high"]) == tuple(pc.min_max(file["k"]).as_py().values())
        assert (entry["s2_low"], entry["s2_high"]) == tuple(pc.min_max(x).as_py().values())
        assert {entry["s3_low"]} == set(file["s"].to_pylist())
        assert (entry["size"], entry["stamp"]) == (Path(path).stat().st_size, len(file))


class TestSharedCatalog:
    @pytest.fixture
    @staticmethod
    def catalog(spark: SparkSession, tmp_path: Path) -> Iterator[SqlCatalog]:
        """One SQLite file for both, under one name."""
        called = f"shared{abs(hash(str(tmp_path))) % 10**9}"
        prefix = f"spark.sql.catalog.{called}"
        for key, value in {
            prefix: "org.apache.iceberg.spark.SparkCatalog",
            f"{prefix}.type": "jdbc",
            f"{prefix}.uri": f"jdbc:sqlite:{tmp_path}/c.db",
            f"{prefix}.jdbc.schema-version": "V1",
            f"{prefix}.warehouse": f"file://{tmp_path}/w",
        }.items():
            spark.conf.set(key, value)
        made = SqlCatalog(
            called, uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w"
        )
        made.create_namespace("db")
        yield made
        made.close()

    def test_both_see_the_same_files(
        self, spark: SparkSession, catalog: SqlCatalog, name: str, tmp_path: Path
    ) -> None:
        full = f"{catalog.name}.db.t"
        create(spark, full, "k BIGINT, s STRING, p STRING", "PARTITIONED BY (p)")
        insert(spark, full, "(1, 'a', 'x y/%25'), (2, 'b', NULL)")
        store = f"sqlite:{tmp_path}/index.sqlite"
        index = SkippingIndex.create(spark, full, "k VALUE_LIST, p PARTITION", store=store)
        assert isinstance(index.table, IcebergTable)
        table = catalog.load_table("db.t")
        table.append(pa.table({"k": [3], "s": ["c"], "p": ["z"]}))
        ours = index.table.files()
        assert {path[:7] for path in paths(ours)} == {"file:/t", "file://"}
        theirs = PyIcebergTable(table)
        assert (theirs.name, theirs.id, theirs.version()) == (
            full,
            index.table.id,
            index.table.version(),
        )
        assert sorted(ours.to_pylist(), key=str) == sorted(theirs.files().to_pylist(), key=str)
        since = index.table.changes(0, 2)
        assert since is not None
        assert sorted(identities(since)) == sorted(identities(theirs.changes(0, 2)))
        assert sorted(map(str, since["partition"].to_pylist())) == sorted(
            map(str, ours["partition"].to_pylist())
        )
        local = SkippingIndex.on(table, store=store)
        assert local.definition == index.definition
        assert local.refresh() == index.state
        assert local.scan("k = 3").to_arrow()["s"].to_pylist() == ["c"]
        assert len(list(local.scan("k = 3").plan_files())) == 1
        insert(spark, full, "(4, 'd', 'w')")
        index.refresh()
        table.refresh()
        assert len(list(local.scan("k = 4").plan_files())) == 1
        assert index.lookup(Compare("k", "=", 4)).kept == 1
        spark.sql(f"DROP TABLE {full}")
