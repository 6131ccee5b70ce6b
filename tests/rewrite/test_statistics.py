"""Tables without an index, pruned by what they know: partitions, and bounds in their log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rewrite
from skipping.lookup.scan_plan import ScanPlan
from skipping.spark_api import RELEASE, repartition_by_number
from tests.rewrite.differential import (
    FORMATS,
    Compared,
    in_catalog_of,
    make_table,
    same_rows,
    settings,
)
from tests.rewrite.star import BOUNDS, SORTED, Star
from tests.rewrite.star import SORTED_FILES as FILES

pytestmark = pytest.mark.nightly

SMJ = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
PLAIN = {"spark.sql.adaptive.enabled": "false"}
ENGINES = {"broadcast": {}, "sorted": SMJ, "plain": PLAIN, "plain sorted": {**PLAIN, **SMJ}}
on_all_engines = pytest.mark.parametrize("conf", ENGINES.values(), ids=ENGINES)

COLUMNS = ["id", "i", "f", "d", "e", "day", "ts", "ntz", "s", "odd", "st.a.b"]


@pytest.fixture(scope="module", params=FORMATS)
def format(star: Star, request: pytest.FixtureRequest) -> Iterator[str]:
    """A session whose tables are the star's of a format: `sorted`, and `few` of its rows."""
    with star.of(request.param, "sorted", "few"):
        yield request.param


def fact(found: Compared, name: str) -> ScanPlan:
    (scan,) = [scan for scan in found.explained.scans if re.search(rf"\b{name}\b", scan.table)]
    return scan


def joined(column: str = "i", table: str = "sorted", condition: str = "d.i > 0") -> str:
    return f"SELECT f.id FROM {table} f JOIN few d ON f.{column} = d.{column} WHERE {condition}"


def side(conf: dict[str, str]) -> str:
    """The name of the filtering side; without adaptive execution, Spark before 4.1 loses it."""
    is_lost = RELEASE < (4, 1) and conf == {**PLAIN, **SMJ}
    return "a dimension" if is_lost else "few"


@pytest.mark.parametrize(
    ("format", "conf"),
    [
        pytest.param(format, conf, id=f"{format}-{name}", marks=smoke)
        for format in FORMATS
        for name, conf in ENGINES.items()
        for smoke in [[pytest.mark.smoke] * ((format, name) == ("iceberg", "broadcast"))]
    ],
    indirect=["format"],
)
def test_a_join_on_a_clustered_column(
    spark: SparkSession, format: str, conf: dict[str, str]
) -> None:
    found = same_rows(spark, joined(), conf=conf)
    assert fact(found, "sorted").opened == 2, str(found.explained)
    assert f"by i IN (3 keys of {side(conf)})  STATISTICS" in str(found.explained)


@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_of_each_type(spark: SparkSession, format: str, column: str) -> None:
    found = same_rows(spark, joined(column))
    # Times may be cut to the millisecond, and DECIMAL in Iceberg to whole numbers.
    wide = column in ("ts", "ntz") or (column == "e" and format == "iceberg")
    most = 6 if wide else 2
    scan = fact(found, "sorted")
    assert len(found.rows) == 3
    assert scan.opened in range(2, most + 1), str(scan)


def test_conformance_51_no_bounds_of_a_function_in_no_order(
    spark: SparkSession, format: str
) -> None:
    found = same_rows(spark, "SELECT id FROM sorted WHERE i % 8 IN (1, 3) AND i IN (3, 95, 196)")
    assert (len(found.rows), found.opened) == (1, 3)
    found = same_rows(spark, "SELECT f.id FROM sorted f JOIN few d ON f.i % 8 = d.i % 8")
    assert len(found.rows) == 75
    assert fact(found, "sorted").opened == FILES


def test_a_list_of_values_is_more_than_its_ends(spark: SparkSession, format: str) -> None:
    found = same_rows(spark, "SELECT * FROM sorted WHERE i IN (3, 95, 196)")
    assert found.opened == 3
    assert (len(found.rows), found.without) == (3, 3 if format == "iceberg" else FILES)
    many = ", ".join(str(10 * n + 5) for n in range(FILES) if n % 4 == 0)
    strings = "SELECT * FROM sorted WHERE i IN ({}) AND s IN ({})".format(
        many, ", ".join(f"'s{n:04}{'x' * 40}'" for n in range(100, 110))
    )
    assert same_rows(spark, strings).opened <= 1
    found = same_rows(spark, f"SELECT * FROM sorted WHERE i IN ({many}, {'9, ' * 250}9)")
    assert found.opened == FILES // 4


@on_all_engines
def test_both_sides_are_partitioned(spark: SparkSession, format: str, conf: dict[str, str]) -> None:
    """The condition on the dimension's partition may stand in its scan alone."""
    make_partitioned(spark, format, "parts", "p")
    make_partitioned(spark, format, "dimension", "p")
    query = "SELECT f.id FROM parts f JOIN dimension d ON f.p = d.p WHERE d.p = 3"
    found = same_rows(spark, query, conf=conf)
    assert fact(found, "parts").opened == 1, str(found.explained)
    query = "SELECT f.id FROM sorted f JOIN dimension d ON f.i = d.i WHERE d.p = 3"
    found = same_rows(spark, query, conf=conf)
    assert fact(found, "sorted").opened == 1, str(found.explained)
    for name in ("parts", "dimension"):
        spark.sql(f"DROP TABLE {name}")


@on_all_engines
def test_a_partition_column(spark: SparkSession, format: str, conf: dict[str, str]) -> None:
    make_partitioned(spark, format, "parts", "p")
    found = same_rows(spark, joined("p", "parts"), conf=conf)
    assert fact(found, "parts").opened == 2, str(found.explained)
    if SMJ.items() <= conf.items():
        assert f"by p IN (2 keys of {side(conf)})  PARTITION" in str(found.explained)
    spark.sql("DROP TABLE parts")


@pytest.mark.parametrize("conf", [SMJ, SMJ | PLAIN], ids=["adaptive", "plain"])
def test_tuples_of_partition_columns(
    spark: SparkSession, format: str, conf: dict[str, str]
) -> None:
    """Spark must not collect them: it has no limit, and fails if that fails."""
    rows = "SELECT id, int(id % 3) AS p, int(id % 4) AS q FROM range(24)"
    make_partitioned(spark, format, "parts", "p, q", rows)
    make_table(
        spark, "corners", "SELECT int(id) AS p, int(id) AS q, id AS n, 0 AS _f FROM range(3)"
    )
    query = "SELECT f.id FROM parts f JOIN corners d ON f.p = d.p AND f.q = d.q WHERE d.n < 2"
    found = same_rows(spark, query, conf=conf)
    assert len(found.rows) == 4
    assert (fact(found, "parts").opened or 0) <= 4, str(found.explained)
    with settings(spark, conf | {"spark.sql.maxMetadataStringLength": "10000"}):
        df = spark.sql(query)
        df.collect()
        plan = df._jdf.queryExecution().executedPlan().toString()
    final = plan.split("Initial Plan")[0]
    assert not re.search(r"PartitionFilters: \[.*named_struct.*\], PushedFilters", final), plan
    for name in ("parts", "corners"):
        spark.sql(f"DROP TABLE {name}")


def make_partitioned(
    spark: SparkSession, format: str, name: str, by: str, rows: str = SORTED
) -> None:
    columns = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in spark.sql(rows).schema)
    spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.sql(f"CREATE TABLE {name} ({columns}) USING {format} PARTITIONED BY ({by})")
    spark.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ * FROM ({rows})")


def test_values_of_partitions(spark: SparkSession, format: str) -> None:
    """Nulls, the empty text, what is escaped in paths, NaN and the two zeros."""
    rows = """SELECT * FROM VALUES (1, 'a b/c%d', 0.0D), (2, '', double('NaN')), (3, NULL, NULL),
        (4, 'ü=1', -0.0D), (5, 'a', 1.5D) AS t(id, s, d)"""
    make_table(spark, "keys", f"SELECT *, 0 AS _f FROM ({rows})")
    for by in ("s", "d"):
        make_partitioned(spark, format, "odd_parts", by, rows)
        for id in range(1, 6):
            query = f"SELECT f.id FROM odd_parts f JOIN keys k ON f.{by} = k.{by} WHERE k.id = {id}"
            for conf in (SMJ, {**PLAIN, **SMJ}):
                found = same_rows(spark, query, conf=conf)
                # NaN and both zeros, which Iceberg tells apart: it is not asked.
                assert found.opened <= (5 if by == "d" else 2), str(found.explained)
        lists = "SELECT id FROM odd_parts WHERE s IN ('a', 'a b/c%d', '') OR d IN (0, 1.5)"
        same_rows(spark, lists)
    for name in ("keys", "odd_parts"):
        spark.sql(f"DROP TABLE {name}")


def test_bounds_are_as_of_the_version(spark: SparkSession, format: str) -> None:
    make_table(spark, "grows", SORTED, properties=BOUNDS)
    assert fact(same_rows(spark, joined(table="grows")), "grows").opened == 2
    rows = spark.sql(SORTED).drop("_f")
    rows.where("i % 10 = 6").write.insertInto("grows")
    assert (fact(same_rows(spark, joined(table="grows")), "grows").opened or 0) > 2
    spark.sql("DELETE FROM grows WHERE i = 25")
    spark.sql("UPDATE grows SET i = 131 WHERE i = 77")
    assert (fact(same_rows(spark, joined(table="grows")), "grows").opened or 0) > 2
    if format == "delta":
        past = joined(table="grows VERSION AS OF 1")
        assert fact(same_rows(spark, past), "grows").opened == 2
    spark.sql("ALTER TABLE grows ADD COLUMN more INT")
    rows.where("i < 20").selectExpr("*", "i AS more").write.insertInto("grows")
    query = "SELECT f.id FROM grows f JOIN few d ON f.more = d.p WHERE d.i > 0"
    same_rows(spark, query)
    spark.sql("DROP TABLE grows")


def test_columns_that_are_renamed_dropped_and_widened(spark: SparkSession, format: str) -> None:
    mapped = {"delta.columnMapping.mode": "name", "delta.enableTypeWidening": "true"}
    rows = f"SELECT i, i + 1000 AS j, _f FROM ({SORTED})"
    make_table(spark, "changes", rows, properties={**BOUNDS, **mapped})
    spark.sql("ALTER TABLE changes RENAME COLUMN i TO was")
    spark.sql("ALTER TABLE changes RENAME COLUMN j TO i")
    query = "SELECT f.* FROM changes f JOIN few d ON f.{} = d.i WHERE d.p > 0"
    assert same_rows(spark, query.format("was")).rows
    assert fact(same_rows(spark, query.format("was")), "changes").opened == 2
    assert fact(same_rows(spark, query.format("i")), "changes").opened == 0
    if format == "iceberg" or RELEASE >= (4, 0):
        spark.sql("ALTER TABLE changes ALTER COLUMN was TYPE BIGINT")
        widened = "SELECT f.* FROM changes f JOIN few d ON f.was = d.id WHERE d.p > 0"
        assert fact(same_rows(spark, widened), "changes").opened == 2
    spark.sql("ALTER TABLE changes DROP COLUMN i")
    spark.sql("ALTER TABLE changes ADD COLUMN i INT")
    spark.sql("INSERT INTO changes VALUES (5, 25)")
    assert same_rows(spark, query.format("i")).rows
    spark.sql("DROP TABLE changes")


def test_nan_zeros_and_files_of_nulls(spark: SparkSession, format: str) -> None:
    rows = """SELECT id, IF(id = 7, double('NaN'), IF(id = 11, -0.0D, IF(id > 15, NULL,
        double(id) - 4))) AS d, int(id div 4) AS _f FROM range(20)"""
    make_table(spark, "floats", rows, properties=BOUNDS)
    keys = "SELECT double('NaN') AS d, 'a' AS n, 0 AS _f UNION ALL SELECT 0.0D, 'b', 0 UNION ALL"
    make_table(spark, "keys", f"{keys} SELECT NULL, 'c', 0 UNION ALL SELECT 99.5D, 'd', 0")
    query = "SELECT f.id FROM floats f JOIN keys k ON f.d = k.d WHERE k.n = '{}'"
    assert [len(same_rows(spark, query.format(n)).rows) for n in "abcd"] == [1, 2, 0, 0]
    found = same_rows(spark, query.format("d"))
    assert fact(found, "floats").opened in (0, 1)  # NaN may be the upper bound of its file
    for name in ("floats", "keys"):
        spark.sql(f"DROP TABLE {name}")


def test_bytes_that_are_no_text(spark: SparkSession, format: str) -> None:
    """Logs and manifests keep them as another text, and so does what the Parquet reader is told."""
    rows = """SELECT id, s, int(id - 1) AS _f FROM VALUES (1, CAST(X'FF' AS STRING)), (2, 'abc'),
        (3, CAST(X'80' AS STRING)), (3, 'é'), (4, concat('b', CAST(X'F5' AS STRING))), (4, 'b🙂'),
        (5, CAST(unhex(repeat('FF', 50)) AS STRING)) AS t(id, s)"""
    make_table(spark, "bytes", rows, properties=BOUNDS)
    make_table(spark, "keys", f"SELECT id, s, 0 AS _f FROM ({rows})")
    for n, held in ((1, 1), (2, 1), (3, 2), (4, 2), (5, 1)):
        query = f"SELECT f.id FROM bytes f JOIN keys k ON f.s = k.s WHERE k.id = {n}"
        for conf in ({}, SMJ):
            assert len(same_rows(spark, query, conf=conf).rows) == held
    for name in ("bytes", "keys"):
        spark.sql(f"DROP TABLE {name}")


def test_a_float_that_became_a_double(spark: SparkSession) -> None:
    """Delta's log has 0.1 where the column has now 0.10000000149011612."""
    rows = "SELECT int(id) AS id, float(id) + float(0.1) AS f, int(id) AS _f FROM range(4)"
    widening = {**BOUNDS, "delta.enableTypeWidening": "true"}
    make_table(spark, "wide", rows, properties=widening)
    make_table(spark, "keys", f"SELECT id, double(f) AS f, 0 AS _f FROM ({rows})")
    spark.sql("ALTER TABLE wide ALTER COLUMN f TYPE DOUBLE")
    query = "SELECT w.id FROM wide w JOIN keys k ON w.f = k.f WHERE k.id = 1"
    assert same_rows(spark, query).rows == ["Row(id=1)"]
    for name in ("wide", "keys"):
        spark.sql(f"DROP TABLE {name}")


def test_times_that_were_logged_in_a_legacy_format(spark: SparkSession) -> None:
    """It drops the seconds of -07:52:58, which Los Angeles was off till 1883."""
    micros = "-4000000000000000 - id * 100"
    rows = f"SELECT int(id) AS id, timestamp_micros({micros}) AS ts, int(id) AS _f FROM range(4)"
    zone = {"spark.sql.session.timeZone": "America/Los_Angeles"}
    with settings(spark, {**zone, "spark.sql.legacy.timeParserPolicy": "LEGACY"}):
        make_table(spark, "old", rows, properties=BOUNDS)
    make_table(spark, "keys", f"SELECT id, ts, 0 AS _f FROM ({rows})")
    query = "SELECT f.id FROM old f JOIN keys k ON f.ts = k.ts WHERE k.id = 1"
    assert same_rows(spark, query).rows == ["Row(id=1)"]
    for name in ("old", "keys"):
        spark.sql(f"DROP TABLE {name}")


def test_times_of_files_that_were_imported(spark: SparkSession, tmp_path: Path) -> None:
    """Iceberg takes the bounds in their footers as microseconds, and they are of milliseconds."""
    rows = "SELECT int(id) AS id, timestamp_millis(id * 86400000) AS ts FROM range(4)"
    with settings(spark, {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS"}):
        repartition_by_number(spark.sql(rows), 4, "id").write.parquet(str(tmp_path / "old"))
    with in_catalog_of(spark, "iceberg"):
        spark.sql("CREATE TABLE imported (id INT, ts TIMESTAMP) USING iceberg")
        spark.sql(
            "CALL iceberg.system.add_files(table => 'default.imported', "
            f"source_table => '`parquet`.`{tmp_path}/old`')"
        )
        make_table(spark, "keys", f"SELECT *, 0 AS _f FROM ({rows})")
        query = "SELECT f.id FROM imported f JOIN keys k ON f.{0} = k.{0} WHERE k.id = 1"
        assert same_rows(spark, query.format("ts")).rows == ["Row(id=1)"]
        assert fact(same_rows(spark, query.format("id")), "imported").opened == 1
        for name in ("imported", "keys"):
            spark.sql(f"DROP TABLE {name}")


def test_a_table_in_no_order_is_refused_once_its_bounds_are_known(
    spark: SparkSession, format: str
) -> None:
    rows = f"SELECT id, int(id * 7919 % 2000) AS i, int(id % {FILES}) AS _f FROM range(2000)"
    make_table(spark, "mixed", rows, properties=BOUNDS)
    assert fact(same_rows(spark, joined(table="mixed")), "mixed").opened == FILES
    again = same_rows(spark, joined(table="mixed", condition="d.p > 0"))
    assert "the table is in no order of i" in str(again.explained), str(again.explained)
    spark.sql("DROP TABLE mixed")


def test_an_index_that_is_made_is_asked_at_once(spark: SparkSession, format: str) -> None:
    rows = f"SELECT id, int(id) AS i, int(id % {FILES}) AS _f FROM range({10 * FILES})"
    make_table(spark, "later", rows, properties=BOUNDS)
    query = "SELECT f.id FROM later f JOIN few d ON f.i = d.i WHERE d.id > 0"
    assert fact(same_rows(spark, query), "later").opened == FILES
    spark.sql("CREATE SKIPPING INDEX ON later (i VALUE_LIST)")
    assert fact(same_rows(spark, query), "later").opened == 3
    spark.sql("DROP SKIPPING INDEX ON later")
    spark.sql("DROP TABLE later")


def test_an_index_comes_first(spark: SparkSession, format: str) -> None:
    make_table(spark, "both", SORTED, "i VALUE_LIST", properties=BOUNDS)
    query = "SELECT f.id FROM both f JOIN few d ON f.i = d.i AND f.s = d.s WHERE d.i < 30"
    text = str(same_rows(spark, query).explained)
    assert "by i IN (2 keys of few)  VALUE_LIST" in text
    assert "by s IN (2 keys of few)  STATISTICS" in text
    spark.sql("DROP SKIPPING INDEX ON both")
    spark.sql("DROP TABLE both")


def test_the_switch(spark: SparkSession, format: str) -> None:
    spark.sql("CREATE SKIPPING INDEX ON few (i MIN_MAX)")  # else there may be no store
    spark.sql("DROP SKIPPING INDEX ON few")
    with settings(spark, {"spark.skipping.statistics.enabled": "false"}):
        found = same_rows(spark, joined())
        assert fact(found, "sorted").opened == FILES
        assert "the table has no index" in str(found.explained)


def test_a_hidden_partition(spark: SparkSession) -> None:
    """Buckets, prefixes and days, as Iceberg itself projects keys on them."""
    with in_catalog_of(spark, "iceberg"):
        make_table(spark, "pair", f"SELECT *, 0 AS g FROM ({SORTED}) WHERE i IN (25, 131)")
        cases = {
            "bucket(16, i)": "i",
            "truncate(5, s)": "s",
            "days(ts)": "ts",
            "months(day)": "day",
        }
        for by, column in cases.items():
            make_partitioned(spark, "iceberg", "hidden", by)
            # Where Spark prunes by its broadcast, ours save no more, and history says so.
            for conf in (SMJ, {**PLAIN, **SMJ}, PLAIN, {}):
                query = joined(column, "hidden").replace("few", "pair")
                found = same_rows(spark, query, conf=conf)
                assert len(found.rows) == 2
                assert (fact(found, "hidden").opened or 0) <= 2, f"{by}\n{found.explained}"
        for name in ("hidden", "pair"):
            spark.sql(f"DROP TABLE {name}")


SUBQUERIES = {
    "i = (SELECT max(i) FROM few)": 1,
    "i = (SELECT max(i) FROM few WHERE i < 0)": 0,
    "i >= (SELECT max(i) + 60 FROM few)": 1,
    "(SELECT min(id) - 20 FROM few) > id": 1,
    "ts <= (SELECT min(ts) FROM few)": 3,
    "ts < (SELECT date(min(ts)) - 10 FROM few)": 3,  # Spark casts the date
    "s BETWEEN (SELECT min(s) FROM few) AND (SELECT min(s) FROM few WHERE i > 25)": 1,
    # Spark makes one subquery of both.
    "i BETWEEN (SELECT min(i) FROM few) AND (SELECT max(i) - 100 FROM few)": 2,
    "d > (SELECT max(d) + 5 FROM few)": FILES,  # NaN is greater, and in no bounds
    "d < (SELECT min(d) - 3 FROM few)": 1,
}


@pytest.mark.parametrize("conf", [{}, PLAIN], ids=["adaptive", "plain"])
@pytest.mark.parametrize("condition", SUBQUERIES)
def test_a_value_that_a_subquery_gives(
    spark: SparkSession, format: str, condition: str, conf: dict[str, str]
) -> None:
    found = same_rows(spark, f"SELECT * FROM sorted WHERE {condition}", conf=conf)
    scan = fact(found, "sorted")
    assert scan.opened is not None
    assert scan.opened <= SUBQUERIES[condition] + (format == "delta" and "ts" in condition)


NEWEST = "(VALUES (TIMESTAMP'2024-01-20 07:00:00', 199L), (TIMESTAMP'2024-01-02', 3L)) v(ts, id)"
CONVERTED = {
    f"ts >= (SELECT date(max(ts)) FROM {NEWEST})": 1,
    f"ts >= (SELECT max(date(ts)) FROM {NEWEST})": 1,
    f"date(ts) >= (SELECT max(date(ts)) FROM {NEWEST})": 2,
    f"ts >= (SELECT max(ts) FROM {NEWEST}) - INTERVAL 2 HOURS": 1,
    f"date(ts) >= (SELECT date(max(ts)) FROM {NEWEST})": 2,
    f"id + 1 >= (SELECT max(id) FROM {NEWEST})": 1,
}


@pytest.mark.parametrize("conf", [{}, PLAIN], ids=["adaptive", "plain"])
def test_a_value_of_another_type_that_a_subquery_gives(
    spark: SparkSession, format: str, conf: dict[str, str]
) -> None:
    """The index is asked with what Spark makes of the value: a date as a timestamp."""
    days = """SELECT id, TIMESTAMP'2024-01-01 06:00:00' + make_dt_interval(int(id div 10)) AS ts,
        int(id div 10) AS _f FROM range(200)"""
    make_table(spark, "converted", days, "ts MIN_MAX, id MIN_MAX")
    for condition, most in CONVERTED.items():
        found = same_rows(spark, f"SELECT * FROM converted WHERE {condition}", conf=conf)
        scan = fact(found, "converted")
        assert 1 <= (scan.opened or 0) <= most, f"{condition}\n{scan}"
    spark.sql("DROP SKIPPING INDEX ON converted")
    spark.sql("DROP TABLE converted")


@pytest.mark.parametrize("conf", [{}, PLAIN], ids=["adaptive", "plain"])
def test_a_subquery_that_gives_another_value_again(
    spark: SparkSession, format: str, tmp_path: Path, conf: dict[str, str]
) -> None:
    """Spark computes equal subqueries once, and files are pruned by that value."""
    calls = tmp_path / "calls"

    def count(_: object) -> int:
        done = int(calls.read_text()) if calls.exists() else 0
        calls.write_text(str(done + 1))
        return 70 * done + 5

    spark.udf.register("next_id", count, "bigint")
    part = "SELECT id FROM sorted WHERE id = (SELECT next_id(max(id)) FROM few)"
    with settings(spark, conf):
        df = spark.sql(f"{part} UNION ALL {part}")
        assert [row.id for row in df.collect()] == [5, 5]
        scans = rewrite.explain(df).scans
    assert {scan.opened for scan in scans if "sorted" in scan.table} == {1}, str(scans)
    assert calls.read_text() == "1", "nothing is computed twice"


def test_a_value_and_keys_together(spark: SparkSession, format: str) -> None:
    for conf in ENGINES.values():
        query = joined(condition="d.i > 0 AND f.id > (SELECT min(id) + 50 FROM few)")
        found = same_rows(spark, query, conf=conf)
        assert fact(found, "sorted").opened == 1, str(found.explained)
