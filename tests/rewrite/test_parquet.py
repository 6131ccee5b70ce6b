"""Plain Parquet tables: same rows, fewer files, whatever happens to the files meanwhile."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StructField, StructType

import rewrite
from providers.errors import SkippingError
from tests.rewrite.differential import (
    IS_SPARK_4,
    Query,
    by_group,
    exact_batch,
    files_of,
    matching,
    reads_all,
    same_rows,
    settings,
    skips,
    spoiled,
)

FILES = 8
ROWS = f"""
    SELECT int(f + {FILES} * i) AS k, int(100 * f + i) AS m, IF(f = 1, NULL, int(f)) AS n,
           date_add(DATE'2024-01-01', int(f)) AS d, f / 10.0D AS x, concat('n', f, '-', i) AS name,
           IF(f = 2, NULL, named_struct('a', int(f), 'b.c', concat('c', f))) AS st,
           concat('p', f % 3) AS p, f AS _f
    FROM (SELECT int(id % {FILES}) AS f, int(id div {FILES}) AS i FROM range({5 * FILES}))
"""
INDEX = "k VALUE_LIST, m MIN_MAX, n VALUE_LIST, d MIN_MAX, x MIN_MAX, name VALUE_LIST, st.a MIN_MAX"
CONDITIONS = [
    "k = 7",
    "k IN (1, 2, 8000)",
    "k = 7 OR m > 600",
    "m BETWEEN 205 AND 402",
    "NOT (m < 700)",
    "n IS NULL",
    "n <=> 3",
    "d >= DATE'2024-01-06'",
    "x = 0.3D",
    "name LIKE 'n7%'",
    "st.a = 4",
    "st.a IS NULL",
    "k = 7 AND p = 'p1'",
    "p IN ('p1', 'p2') AND m < 200",
]


def make(spark: SparkSession, name: str, rows: str, index: str | None, *, by: str = "") -> str:
    """A Parquet table, one file for each value of `_f`, partitioned `by` a column."""
    spark.sql(f"DROP SKIPPING INDEX IF EXISTS ON {name}")
    spark.sql(f"DROP TABLE IF EXISTS {name}")
    writer = by_group(spark.sql(rows)).write.format("parquet")
    (writer.partitionBy(by) if by else writer).saveAsTable(name)
    if index:
        spark.sql(f"CREATE SKIPPING INDEX ON {name} ({index})")
    return name


@pytest.fixture(scope="module")
def flat(spark: SparkSession) -> str:
    return make(spark, "pq_flat", ROWS, f"{INDEX}, p VALUE_LIST")


@pytest.fixture(scope="module")
def parted(spark: SparkSession) -> str:
    return make(spark, "pq_parted", ROWS, f"{INDEX}, p PARTITION", by="p")


@pytest.fixture(scope="module", params=["flat", pytest.param("parted", marks=pytest.mark.smoke)])
def table(request: pytest.FixtureRequest) -> str:
    name: str = request.getfixturevalue(request.param)
    return name


@pytest.fixture
def t(spark: SparkSession) -> Iterator[str]:
    yield "pq"
    spark.sql("DROP SKIPPING INDEX IF EXISTS ON pq")
    spark.sql("DROP TABLE IF EXISTS pq")


def root(spark: SparkSession, name: str) -> Path:
    return Path(os.path.commonpath(files_of(spark, name)))


def test_conditions(spark: SparkSession, table: str) -> None:
    exact_batch(spark, table, CONDITIONS)


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_joins(spark: SparkSession, table: str, adaptive: str) -> None:
    conf = {"spark.sql.adaptive.enabled": adaptive}
    dim = "(SELECT explode(array(7, 15)) AS k, 'a' AS v)"
    spark.sql(f"SELECT * FROM {dim}").write.mode("overwrite").saveAsTable("pq_dim")
    found = skips(spark, f"SELECT * FROM {table} JOIN pq_dim USING (k) WHERE v = 'a'", conf=conf)
    assert found.opened <= 1 + 1, str(found.explained)
    skips(
        spark, f"SELECT * FROM {table} WHERE k IN (SELECT k FROM pq_dim WHERE v = 'a')", conf=conf
    )
    # The dimension's files may be replaced between two reads: its rows would have no partner.
    left = f"SELECT * FROM pq_dim LEFT JOIN {table} USING (k) WHERE v = 'a'"
    found = same_rows(spark, left, conf=conf)
    assert found.skipped == 0 or "from the shuffle" in str(found.explained), str(found.explained)


def test_dynamic_partition_pruning_beside_ours(spark: SparkSession, parted: str) -> None:
    spark.sql("SELECT 'p1' AS p, 4 AS k, 'a' AS v").write.mode("overwrite").saveAsTable("pq_dim2")
    found = skips(
        spark, f"SELECT * FROM {parted} f JOIN pq_dim2 d ON f.p = d.p AND f.k = d.k WHERE v = 'a'"
    )
    assert found.rows
    skips(spark, f"SELECT * FROM {parted} f JOIN pq_dim2 d ON f.p = d.p WHERE v = 'a' AND m = 401")


def test_what_is_skipped_is_not_opened(spark: SparkSession, flat: str) -> None:
    (kept,) = matching(spark, flat, "k = 7")
    others = [path for path in files_of(spark, flat) if path != kept]
    times = {path: path.stat() for path in others}
    with spoiled(others):
        for path, stat in times.items():
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        assert len(spark.sql(f"SELECT * FROM {flat} WHERE k = 7").collect()) == 1
    for path, stat in times.items():
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_by_path(spark: SparkSession, parted: str) -> None:
    folder = root(spark, parted)
    skips(spark, f"SELECT * FROM parquet.`{folder}` WHERE k = 7")
    skips(spark, lambda s: s.read.parquet(str(folder)).where("k = 7"))
    skips(spark, lambda s: s.read.parquet(f"file:{folder}/").where("k = 7 AND p >= 'p1'"))

    def based(s: SparkSession) -> DataFrame:
        return s.read.option("basePath", str(folder)).parquet(f"{folder}/p=p1", f"{folder}/p=p2")

    skips(spark, lambda s: based(s).where("k = 7"))
    # Without the partition column they are other reads of the same files: nothing is known.
    same_rows(spark, lambda s: s.read.parquet(f"{folder}/p=p1").where("k = 7"))
    if IS_SPARK_4:  # before, its reader does not widen integers
        wide = "k BIGINT, m BIGINT"
        same_rows(spark, lambda s: s.read.schema(wide).parquet(str(folder)).where("k = 7"))
    same_rows(spark, lambda s: s.read.schema("K INT").parquet(str(folder)).where("K = 7"))


def test_a_narrower_type_cuts_values(spark: SparkSession, tmp_path: Path) -> None:
    folder = str(tmp_path / "t")
    by_group(spark.sql("SELECT int(65536 + id) AS k, int(id) AS _f FROM range(4)")).write.parquet(
        folder
    )
    name = f"parquet.`{folder}`"
    spark.sql(f"CREATE SKIPPING INDEX ON {name} (k VALUE_LIST)")
    skips(spark, f"SELECT * FROM {name} WHERE k = 65538")
    cut: Query = lambda s: s.read.schema("k SMALLINT").parquet(folder).where("k = 2")  # noqa: E731
    # Spark's own bounds of row groups are those of the uncut values.
    found = same_rows(spark, cut, conf={"spark.sql.parquet.filterPushdown": "false"})
    assert len(found.rows) == 1
    assert "was indexed as int" in str(found.explained)
    spark.sql(f"DROP SKIPPING INDEX ON {name}")


def test_an_index_by_path(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "a b%20é"
    by_group(spark.sql(ROWS)).write.partitionBy("p").parquet(str(folder))
    name = f"parquet.`{folder}`"
    spark.sql(f"CREATE SKIPPING INDEX ON {name} (k VALUE_LIST, p VALUE_LIST)")
    exact_batch(
        spark, name, ["k = 7", "k > 6 AND p = 'p1'", "p IN ('p0', 'p2')", "k = 9 AND p > 'p0'"]
    )
    shown = {row.table: row for row in spark.sql("SHOW SKIPPING INDEXES").collect()}
    assert any(str(folder) in table for table in shown)
    spark.sql(f"DROP SKIPPING INDEX ON {name}")
    reads_all(spark, f"SELECT * FROM {name} WHERE k = 7", "no index")


SPECIAL = [
    "a b",
    "50%",
    "%20",
    "x/y",
    "é€",
    "a:b",
    "#?&=+",
    "{*}[]",
    '"',
    "..",
    "null",
    "a'b",
    "\\",
]


@pytest.mark.nightly
def test_partition_values_of_any_spelling(spark: SparkSession, t: str) -> None:
    spark.sql(f"CREATE TABLE {t} (k INT, p STRING) USING parquet PARTITIONED BY (p)")
    rows = [(i, value) for i, value in enumerate(SPECIAL)] + [(90, None), (91, "")]
    spark.createDataFrame(rows, "k INT, p STRING").write.insertInto(t)
    spark.sql(f"CREATE SKIPPING INDEX ON {t} (k MIN_MAX, p PARTITION)")
    for i in range(0, len(SPECIAL), 4):
        assert skips(spark, f"SELECT * FROM {t} WHERE k = {i}").opened == 1
    for value in SPECIAL:
        spelled = value.replace("\\", "\\\\").replace("'", "\\'")
        assert len(same_rows(spark, f"SELECT * FROM {t} WHERE p = '{spelled}'").rows) == 1
        same_rows(spark, f"SELECT * FROM {t} WHERE p = '{spelled}' OR k = 3")
    assert len(same_rows(spark, f"SELECT * FROM {t} WHERE p IS NULL AND k = 90").rows) == 1


def test_partition_values_of_other_types(spark: SparkSession, t: str) -> None:
    columns = "k INT, i INT, d DATE, dec DECIMAL(6,2), b BOOLEAN, z TIMESTAMP, x DOUBLE"
    spark.sql(f"CREATE TABLE {t} ({columns}) USING parquet PARTITIONED BY (i, d, dec, b, z, x)")
    spark.sql(
        f"INSERT INTO {t} SELECT int(id), int(id), date_add(DATE'2024-01-01', int(id)), id + 0.50, "
        "id % 2 = 0, timestampadd(HOUR, id, TIMESTAMP'2024-01-01 00:00:00'), id / 4 FROM range(4)"
    )
    spark.sql(
        f"CREATE SKIPPING INDEX ON {t} (k MIN_MAX, i PARTITION, d PARTITION, dec PARTITION, "
        "b PARTITION, z PARTITION, x PARTITION)"
    )
    assert skips(spark, f"SELECT * FROM {t} WHERE k = 2").opened == 1
    for other in ("i = 1", "d = DATE'2024-01-02'", "dec = 1.50", "x = 0.25D"):
        assert len(same_rows(spark, f"SELECT * FROM {t} WHERE {other}").rows) == 1
        assert skips(spark, f"SELECT * FROM {t} WHERE k = 3 AND NOT ({other})").opened == 1
    late = f"SELECT * FROM {t} WHERE z = TIMESTAMP'2024-01-01 01:00:00'"
    same_rows(spark, late)
    with settings(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        same_rows(spark, late)
        same_rows(spark, f"SELECT * FROM {t} WHERE z < TIMESTAMP'2024-01-01 01:00:00' AND k < 2")


def replace_file(path: Path, table: pa.Table, *, same_size: bool) -> None:
    """Another content at a path, as a job that overwrites its own output leaves it."""
    size = path.stat().st_size
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    padding = 0
    for _ in range(10 if same_size else 1):
        padded = table.append_column("s", pa.array(["z" * padding]))
        pq.write_table(
            padded, path, compression="none", use_dictionary=False, write_statistics=False
        )
        padding += size - path.stat().st_size
    assert (path.stat().st_size == size) == same_size


@pytest.mark.nightly
@pytest.mark.parametrize("same_size", [True, False])
@pytest.mark.parametrize("by", ["", "p"])
def test_a_file_replaced_under_a_listing(
    spark: SparkSession, t: str, by: str, same_size: bool
) -> None:
    make(spark, t, "SELECT int(f) AS k, concat('p', f % 2) AS p, repeat(uuid(), 40) AS s, f AS _f "
         "FROM (SELECT id AS f FROM range(4))", "k VALUE_LIST", by=by)  # fmt: skip
    query = f"SELECT k, p FROM {t} WHERE k = 50"
    assert skips(spark, query).opened == 0
    either = f"SELECT t.k FROM {t} t JOIN (VALUES (50, 50)) d(a, b) ON t.k = d.a OR t.k = d.b + 0"
    found = same_rows(spark, either)
    assert "the join key is k OR k, and files may be replaced" in str(found.explained)
    (path,) = matching(spark, t, "k = 2")

    new = {"k": pa.array([50], pa.int32()), **({} if by else {"p": pa.array(["p0"])})}
    replace_file(path, pa.table(new), same_size=same_size)
    # The listing is old and so is the index; then only the listing; then neither.
    assert len(same_rows(spark, query).rows) == 1
    spark.sql(f"REFRESH SKIPPING INDEX ON {t}")
    assert len(same_rows(spark, query).rows) == 1
    spark.sql(f"REFRESH TABLE {t}")
    found = skips(spark, query)
    assert (len(found.rows), found.opened) == (1, 1)
    assert skips(spark, f"SELECT k, p FROM {t} WHERE k = 2").opened == 0


@pytest.mark.nightly
def test_files_that_come_and_go_behind_sparks_back(spark: SparkSession, t: str) -> None:
    make(spark, t, ROWS, INDEX)
    folder = root(spark, t)
    query = f"SELECT * FROM {t} WHERE k = 7"
    skips(spark, query)
    (hit,) = matching(spark, t, "k = 7")
    shutil.copy(hit, folder / "copied.parquet")
    same_rows(spark, query)
    spark.sql(f"REFRESH TABLE {t}")
    found = skips(spark, query)
    assert (len(found.rows), found.opened) == (2, 2)
    (other,) = matching(spark, t, "k = 6")
    other.unlink()
    spark.sql(f"REFRESH TABLE {t}")
    same_rows(spark, f"SELECT * FROM {t} WHERE k = 6")
    spark.sql(f"REFRESH SKIPPING INDEX ON {t}")
    assert skips(spark, query).explained.scans[0].unknown == 0
    spark.sql(f"VACUUM SKIPPING INDEX ON {t}")
    described = dict(spark.sql(f"DESCRIBE SKIPPING INDEX EXTENDED ON {t}").collect())
    assert described["files"] == str(FILES)
    assert described["lag"] == "none"


@pytest.mark.nightly
def test_inserts_that_read_their_own_table(spark: SparkSession, t: str) -> None:
    make(spark, t, ROWS, INDEX)
    spark.sql(f"INSERT INTO {t} SELECT * FROM {t} WHERE k = 7")
    assert len(skips(spark, f"SELECT * FROM {t} WHERE k = 7").rows) == 2
    with pytest.raises(Exception, match="UNSUPPORTED_OVERWRITE"):
        spark.sql(f"INSERT OVERWRITE {t} SELECT * FROM {t} WHERE k = 7")
    spark.sql(f"REFRESH SKIPPING INDEX ON {t}")
    found = skips(spark, f"SELECT * FROM {t} WHERE k = 7")
    assert (len(found.rows), found.explained.scans[0].unknown) == (2, 0)
    spark.sql(f"INSERT OVERWRITE {t} SELECT k + 1000, m, n, d, x, name, st, p FROM ({ROWS})")
    assert same_rows(spark, f"SELECT * FROM {t} WHERE k = 7").rows == []
    assert len(same_rows(spark, f"SELECT * FROM {t} WHERE k = 1007").rows) == 1


@pytest.mark.parametrize("merge", ["true", "false"])
def test_files_of_other_schemas(spark: SparkSession, tmp_path: Path, merge: str) -> None:
    folder = tmp_path / "mixed"
    for i in range(3):
        spark.sql(f"SELECT {i} AS k, 'a{i}' AS s").coalesce(1).write.mode("append").parquet(
            str(folder)
        )
    pq.write_table(pa.table({"k": pa.array([7], pa.int32()), "more": ["x"]}), folder / "z1.parquet")
    pq.write_table(pa.table({"K": pa.array([8], pa.int32())}), folder / "z2.parquet")
    name = f"parquet.`{folder}`"
    schema = "k INT, s STRING, more STRING"
    spark.sql(f"CREATE SKIPPING INDEX ON {name} (k VALUE_LIST, s VALUE_LIST)")

    def read(condition: str) -> Query:
        return lambda s: s.read.option("mergeSchema", merge).parquet(str(folder)).where(condition)

    if merge == "false":
        for condition in ("k = 7", "k = 8", "s IS NULL", "s = 'a1'"):
            skips(spark, lambda s, c=condition: s.read.schema(schema).parquet(str(folder)).where(c))
        with settings(spark, {"spark.sql.caseSensitive": "true"}):
            same_rows(
                spark, lambda s: s.read.schema("k INT").parquet(str(folder)).where("k IS NULL")
            )
    else:
        (folder / "z2.parquet").unlink()
        for condition in ("k = 7", "more = 'x' AND k = 7", "s IS NULL"):
            skips(spark, read(condition))
    spark.sql(f"DROP SKIPPING INDEX ON {name}")


@pytest.mark.nightly
def test_partitions_that_move(spark: SparkSession, t: str, tmp_path: Path) -> None:
    """The catalog says which value a folder has, and may say another one tomorrow."""
    make(spark, t, ROWS, "k VALUE_LIST, p PARTITION", by="p")
    folder = root(spark, t)
    query = f"SELECT * FROM {t} WHERE p = 'other'"
    assert same_rows(spark, query).rows == []
    spark.sql(f"ALTER TABLE {t} ADD PARTITION (p = 'other') LOCATION '{folder}/p=p1'")
    assert same_rows(spark, query).rows
    spark.sql(f"ALTER TABLE {t} DROP PARTITION (p = 'p1')")
    # The folder went with its partition, as the table is managed: it comes back as another.
    elsewhere = tmp_path / "elsewhere"
    spark.sql(ROWS).coalesce(1).drop("_f", "p").write.parquet(str(elsewhere))
    spark.sql(f"ALTER TABLE {t} PARTITION (p = 'other') SET LOCATION '{elsewhere}'")
    assert same_rows(spark, query).rows
    spark.sql(f"REFRESH SKIPPING INDEX ON {t}")
    assert same_rows(spark, query).rows
    same_rows(spark, f"SELECT * FROM {t} WHERE k = 7 AND p = 'other'")
    spark.sql(f"ALTER TABLE {t} PARTITION (p = 'other') RENAME TO PARTITION (p = 'third')")
    assert same_rows(spark, f"SELECT * FROM {t} WHERE p = 'third'").rows


def test_what_is_left_alone(spark: SparkSession, flat: str, t: str, tmp_path: Path) -> None:
    for kind in ("orc", "csv", "json"):
        spark.sql(ROWS).select("k").write.format(kind).save(str(tmp_path / kind))
        with pytest.raises(
            SkippingError,
            match=f"is not a Delta, .* table: its files are {kind.upper()}",
        ):
            spark.sql(f"CREATE SKIPPING INDEX ON {kind}.`{tmp_path / kind}` (k MIN_MAX)")
    spark.sql(ROWS).write.bucketBy(4, "k").sortBy("k").saveAsTable(t)
    with pytest.raises(SkippingError, match="is bucketed"):
        spark.sql(f"CREATE SKIPPING INDEX ON {t} (k MIN_MAX)")
    reads_all(spark, f"SELECT * FROM {t} WHERE k = 7", "Parquet table without buckets")
    folder = root(spark, flat)
    stream = spark.readStream.schema("k INT").parquet(str(folder)).where("k = 7")
    query = stream.writeStream.format("memory").queryName("pq_out").trigger(availableNow=True)
    query.start().awaitTermination()
    assert spark.table("pq_out").count() == 1
    numbered = StructType([StructField("k", IntegerType(), metadata={"parquet.field.id": 1})])
    ignoring = {"spark.sql.parquet.fieldId.read.ignoreMissing": "true"}
    by_id: Query = lambda s: s.read.schema(numbered).parquet(str(folder)).where("k IS NULL")  # noqa: E731
    assert same_rows(spark, by_id, conf=ignoring).skipped == 0


@pytest.mark.nightly
def test_young_files_wait(spark: SparkSession, t: str) -> None:
    make(spark, t, ROWS, INDEX)
    ahead = time.time() + 3600
    (path,) = matching(spark, t, "k = 6")
    os.utime(path, (ahead, ahead))
    spark.sql(f"REFRESH TABLE {t}")
    spark.sql(f"REFRESH SKIPPING INDEX ON {t}")
    assert skips(spark, f"SELECT * FROM {t} WHERE k = 7").opened == 2, "the one of tomorrow too"
    os.utime(path)
    spark.sql(f"REFRESH TABLE {t}")
    spark.sql(f"REFRESH SKIPPING INDEX ON {t}")
    found = skips(spark, f"SELECT * FROM {t} WHERE k = 7")
    assert found.opened == 1
    assert "spark_catalog" in str(rewrite.explain(spark.table(t).where("k = 7")))
