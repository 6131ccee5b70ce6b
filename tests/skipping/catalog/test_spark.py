"""Spark through the service, with nothing changed but the URI."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest
from pyspark.sql import SparkSession

from skipping import SkippingIndex
from tests.rest_catalog import RestCatalog
from tests.skipping.catalog.running import (
    FILES,
    ROWS,
    Numbered,
    Service,
    ask,
    client,
    planned,
    values,
)
from tests.skipping.catalog.test_clients import FILTERS

pytestmark = pytest.mark.nightly

NAMES = itertools.count()
MODES = ("copy-on-write", "merge-on-read")


@pytest.fixture(scope="module")
def sql(spark: SparkSession, service: Service) -> Iterator[Any]:
    """Runs SQL in the catalog `served`; gives the values of the first column, sorted."""
    settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": service.uri}
    for key, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.served{key}", value)
    spark.conf.set("spark.skipping.enabled", "false")  # the service alone
    spark.sql("CREATE NAMESPACE IF NOT EXISTS served.db")

    def run(text: str) -> list[Any]:
        return sorted((row[0] for row in spark.sql(text).collect()), key=str)

    yield run
    spark.conf.unset("spark.skipping.enabled")


@pytest.fixture
def fresh(sql: Any, store: str) -> Any:
    """Makes a table of six files, as `base` has them, with an index; gives its name."""

    def make(properties: str = "", rows: str = "id AS k, id * 7 % 240 AS h, 0.5D AS v") -> str:
        name = f"served.db.fresh{next(NAMES)}"
        options = f"TBLPROPERTIES ({properties})" if properties else ""
        sql(f"""CREATE TABLE {name} USING iceberg {options} AS
            SELECT /*+ REPARTITION_BY_RANGE(6, k) */ {rows} FROM range(240)""")
        return name

    return make


def refresh(behind: RestCatalog, store: str, name: str, columns: str = "h VALUE_LIST") -> None:
    table = client(behind.uri).load_table(name.removeprefix("served."))
    SkippingIndex.create(table, columns, store=store, if_not_exists=True).refresh()


@pytest.mark.parametrize(("filter", "rows", "opened"), FILTERS)
def test_queries(sql: Any, base: Numbered, filter: str, rows: list[int], opened: set[int]) -> None:
    restore = base.garble(opened)
    try:
        assert sql(f"SELECT h FROM served.{base.name} WHERE {filter}") == sorted(rows, key=str)
    finally:
        restore()


def test_counts(sql: Any, base: Numbered) -> None:
    assert sql(f"SELECT count(*) FROM served.{base.name}") == [FILES * ROWS]
    assert sql(f"SELECT count(*) FROM served.{base.name} WHERE h = 5") == [1]
    assert sql(f"SELECT count(*) FROM served.{base.name} WHERE h = 100000") == [0]
    assert sql(f"SELECT max(h) FROM served.{base.name} WHERE k < 40") == [(ROWS - 1) * FILES]


@pytest.mark.parametrize("mode", MODES)
def test_commands_change_the_right_rows(
    sql: Any, fresh: Any, behind: RestCatalog, service: Service, store: str, mode: str
) -> None:
    modes = ", ".join(f"'write.{c}.mode'='{mode}'" for c in ("delete", "update", "merge"))
    name = fresh(f"'format-version'='2', {modes}")
    refresh(behind, store, name)
    count = f"SELECT count(*) FROM {name}"
    sql(f"DELETE FROM {name} WHERE h = 3 AND v > 7")
    sql(f"DELETE FROM {name} WHERE h = -1")
    sql(f"DELETE FROM {name} WHERE h = 100000")
    assert sql(count) == [240]
    missing = sql(f"SELECT h FROM {name} WHERE k = 11")[0]
    sql(f"DELETE FROM {name} WHERE k = 11")
    sql(f"DELETE FROM {name} WHERE h = {missing}")  # inside the bounds, and no row has it
    assert sql(count) == [239]
    sql(f"UPDATE {name} SET v = -1 WHERE h IN (14, 21)")
    sql(f"""MERGE INTO {name} t USING (SELECT explode(array(28, 1000)) AS h) s ON t.h = s.h
        WHEN MATCHED THEN UPDATE SET v = -2
        WHEN NOT MATCHED THEN INSERT (k, h, v) VALUES (-1, s.h, -3)""")
    assert sql(f"SELECT h FROM {name} WHERE v = -1") == [14, 21]
    assert sql(f"SELECT v FROM {name} WHERE h = 28") == [-2.0]
    assert sql(f"SELECT v FROM {name} WHERE h = 1000") == [-3.0], "a file without an entry"
    assert sql(f"SELECT v FROM {name} WHERE h = 14") == [-1.0]
    assert sql(count) == [240]
    refresh(behind, store, name)
    assert sql(f"SELECT v FROM {name} WHERE h = 28") == [-2.0]
    assert sql(f"SELECT count(DISTINCT k) FROM {name} WHERE h >= 0") == [240]
    others = client(service.uri).load_table(name.removeprefix("served."))
    assert others.config["scan-planning-mode"] == "server"
    assert values(others.scan("v < 0").to_arrow()) == [14, 21, 28, 1000]
    assert others.scan(f"h = {missing}").to_arrow().num_rows == 0
    for reader in ("native", "pyiceberg"):
        frame = pl.scan_iceberg(others, reader_override=reader).filter(pl.col("v") < 0)
        assert sorted(frame.collect()["h"].to_list()) == [14, 21, 28, 1000]


def test_evolution_and_time_travel(
    sql: Any, fresh: Any, behind: RestCatalog, service: Service, store: str
) -> None:
    name = fresh()
    refresh(behind, store, name)
    (first,) = sql(f"SELECT snapshot_id FROM {name}.snapshots")
    sql(f"ALTER TABLE {name} CREATE TAG old")
    sql(f"ALTER TABLE {name} RENAME COLUMN h TO g")
    assert sql(f"SELECT k FROM {name} WHERE g = 7") == [1]
    assert sql(f"SELECT k FROM {name} VERSION AS OF {first} WHERE h = 7") == [1]
    assert sql(f"SELECT k FROM {name} VERSION AS OF 'old' WHERE h = 7") == [1]
    table = client(service.uri).load_table(name.removeprefix("served."))
    assert planned(table, "g = 7") == 1
    sql(f"ALTER TABLE {name} ADD COLUMN h BIGINT")
    sql(f"INSERT INTO {name} VALUES (500, 501, 0, 7)")
    assert sql(f"SELECT k FROM {name} WHERE h = 7") == [500], "the new column"
    assert sql(f"SELECT k FROM {name} VERSION AS OF {first} WHERE h = 7") == [1], "the old one"
    assert sql(f"SELECT count(*) FROM {name} WHERE h IS NULL") == [240]
    sql(f"ALTER TABLE {name} DROP COLUMN g")
    assert sql(f"SELECT k FROM {name} VERSION AS OF {first} WHERE h = 7") == [1]
    sql(f"ALTER TABLE {name} CREATE BRANCH side")
    sql(f"INSERT INTO {name}.branch_side VALUES (600, 0, 8)")
    assert sql(f"SELECT k FROM {name} VERSION AS OF 'side' WHERE h = 8") == [600]
    assert sql(f"SELECT k FROM {name} WHERE h = 8") == []


def test_partitions_are_exact(
    sql: Any, fresh: Any, behind: RestCatalog, service: Service, store: str
) -> None:
    """Spark leaves to the plan what only selects partitions, and counts by its files."""
    name = f"served.db.parts{next(NAMES)}"
    sql(f"""CREATE TABLE {name} (k BIGINT, h BIGINT, p STRING, day DATE, at TIMESTAMP)
        USING iceberg PARTITIONED BY (p, bucket(4, k), days(at))""")
    sql(f"""INSERT INTO {name} SELECT id, id * 7 % 240, concat('p', id % 3),
        date_add(DATE'2026-01-01', int(id % 2)), timestamp_seconds(1700000000 + 86400 * (id % 2))
        FROM range(240)""")
    refresh(behind, store, name)
    assert sql(f"SELECT count(*) FROM {name} WHERE p = 'p1'") == [80]
    assert sql(f"SELECT count(*) FROM {name} WHERE p = 'absent'") == [0]
    assert sql(f"SELECT count(*) FROM {name} WHERE p = 'p1' AND h = 100000") == [0]
    expected = sql(f"SELECT count(*) FROM {name} WHERE served.system.bucket(4, k) + 0 = 3")
    assert sql(f"SELECT count(*) FROM {name} WHERE served.system.bucket(4, k) = 3") == expected
    assert 0 < expected[0] < 240
    days = f"SELECT count(*) FROM {name} WHERE served.system.days(at) = DATE'2023-11-14'"
    assert sql(days) == [120]
    assert sql(f"SELECT k FROM {name} WHERE p = 'p1' AND h = 7") == [1]
    sql(f"DELETE FROM {name} WHERE p = 'p2'")
    assert sql(f"SELECT count(*) FROM {name}") == [160]
    sql(f"ALTER TABLE {name} ADD PARTITION FIELD truncate(k, 100)")
    sql(f"INSERT INTO {name} VALUES (1000, 7, 'p1', DATE'2026-01-01', TIMESTAMP'2026-01-01')")
    assert sql(f"SELECT k FROM {name} WHERE h = 7") == [1, 1000]
    assert sql(f"SELECT count(*) FROM {name} WHERE p = 'p1'") == [81]
    table = client(service.uri).load_table(name.removeprefix("served."))
    assert sorted(table.scan("h = 7").to_arrow()["k"].to_pylist()) == [1, 1000]
    assert table.scan("p = 'p1'").count() == 81


def test_deletion_vectors_stay_with_the_client(
    sql: Any, fresh: Any, behind: RestCatalog, service: Service, store: str
) -> None:
    name = fresh("'format-version'='3', 'write.delete.mode'='merge-on-read'")
    refresh(behind, store, name)
    plain = name.removeprefix("served.")
    assert client(service.uri).load_table(plain).config["scan-planning-mode"] == "server"
    assert sql(f"SELECT k FROM {name} WHERE h = 7") == [1]
    before = client(service.uri).load_table(plain)
    assert (before.format_version, planned(before, "h = 7")) == (3, 1)
    assert before.scan("h = 7").to_arrow()["k"].to_pylist() == [1]
    assert before.scan().count() == 240
    rows = sql(f"SELECT _row_id FROM {name}")
    assert len(set(rows)) == 240
    assert None not in rows
    sql(f"DELETE FROM {name} WHERE k IN (2, 100, 101)")
    # This session planned it by the service before, and goes on doing so.
    assert sql(f"SELECT k FROM {name} WHERE h IN (7, 14)") == [1]
    assert sql(f"SELECT count(*) FROM {name}") == [237]
    table = client(service.uri).load_table(plain)
    assert table.config["scan-planning-mode"] == "client"
    sql(f"REFRESH TABLE {name}")
    assert sql(f"SELECT k FROM {name} WHERE h IN (7, 14)") == [1]
    # PyIceberg does not look at the table's configuration.
    assert len(table.scan().to_arrow()) == 237
    assert table.scan("h IN (7, 14)").to_arrow()["k"].to_pylist() == [1]


def test_equality_deletes_stay_with_the_client(
    sql: Any, fresh: Any, behind: RestCatalog, service: Service, store: str, spark: SparkSession
) -> None:
    """A writer such as Flink brings them under a session that planned by the service before."""
    name = fresh("'format-version'='2'", "id AS k, int(id * 7 % 240) AS h, 0.5D AS v")
    refresh(behind, store, name)
    plain = name.removeprefix("served.")
    assert sql(f"SELECT k FROM {name} WHERE h = 7") == [1]
    delete_by_value(spark, name, "h", 7)
    assert client(service.uri).load_table(plain).config["scan-planning-mode"] == "client"
    status, plan, _ = ask(service.uri, "POST", f"/v1/namespaces/db/tables/{plain[3:]}/plan", {})
    (delete,) = plan["delete-files"]
    assert (status, delete["content"], len(delete["equality-ids"])) == (200, "equality-deletes", 1)
    assert {tuple(t["delete-file-references"]) for t in plan["file-scan-tasks"]} == {(0,)}
    assert sql(f"SELECT k FROM {name} WHERE h IN (7, 14)") == [2]
    assert sql(f"SELECT count(*) FROM {name}") == [239]
    sql(f"INSERT INTO {name} VALUES (900, 7, 0)")
    assert sql(f"SELECT k FROM {name} WHERE h = 7") == [900], "written after the delete"


def delete_by_value(spark: SparkSession, name: str, column: str, value: int) -> None:
    """Delete the rows of a value by an equality delete."""
    jvm: Any = spark._jvm
    iceberg = jvm.org.apache.iceberg
    table = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)
    schema = table.schema().select([column])
    ids = spark.sparkContext._gateway.new_array(jvm.int, 1)
    ids[0] = table.schema().findField(column).fieldId()
    factory = iceberg.data.GenericAppenderFactory(table.schema(), table.spec(), ids, schema)
    out = table.io().newOutputFile(f"{table.location()}/data/equality.parquet")
    encrypted = iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(out)
    writer = factory.newEqDeleteWriter(encrypted, iceberg.FileFormat.PARQUET, None)
    row = iceberg.data.GenericRecord.create(schema)
    row.setField(column, value)
    writer.write(row)
    writer.close()
    table.newRowDelta().addDeletes(writer.toDeleteFile()).commit()
