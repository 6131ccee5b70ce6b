"""Keys that the metadata of one side of a join provide before anything runs.

`facts`, `side` and `third` have 20 files each, with 10 neighbors of `k`, `d` and `g`. Spark may not
read the filtering side of a form twice, and broadcasts nothing: only its metadata provide keys.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import rewrite
from rewrite.bridge.callbacks import Answers
from rewrite.bridge.messages import read_message
from rewrite.bridge.protocol import OP, PRUNED
from skipping.lookup.scan_plan import ScanPlan
from tests.rewrite.differential import (
    FORMATS,
    UNCOMPILED,
    Compared,
    make_table,
    matching,
    same_rows,
    settings,
)
from tests.rewrite.star import BOUNDS, Star

pytestmark = pytest.mark.nightly

FILES = 20
ROWS = f"""SELECT id, int(id) AS k, id AS l, int(id) AS d, int(id) + 1000 AS g, int(id div 10) AS p,
    int(id div 50) AS r, concat('key ', lpad(id, 6, '0'), repeat('x', 30)) AS s,
    CAST(id AS DECIMAL(9, 2)) AS e, date_add(DATE'2024-01-01', int(id)) AS day, double(id) AS x,
    timestamp_micros(1700000000000000 + id * 10000000) AS ts, int(id div 10) AS _f
    FROM range({10 * FILES})"""
OFF = {"spark.skipping.static.joins": "false"}
# The machine may be busy; a query that gets no bounds in time opens all files.
QUIET = {"spark.skipping.timeout": "90s", "spark.sql.shuffle.partitions": "2", **UNCOMPILED}
SMJ = {"spark.sql.autoBroadcastJoinThreshold": "-1", **QUIET}
PLAIN = {"spark.sql.adaptive.enabled": "false"}
ENGINES = {"adaptive": SMJ, "plain": {**SMJ, **PLAIN}}
LIMIT = "(SELECT * FROM side WHERE d < 20 LIMIT 1000) s"
TWICE = "(SELECT s.*, explode(array(1, 2)) AS n FROM {} s WHERE {}) s"


@dataclass(frozen=True)
class Form:
    """A query, the condition on the rows of `table` that have a partner, and the files that are
    opened with the keys."""

    query: str
    partners: str
    opened: int
    table: str = "facts"


FORMS = {
    "rows of a LIMIT": Form(f"SELECT f.id FROM facts f JOIN {LIMIT} ON f.k = s.k", "k < 20", 2),
    "exploded rows": Form(
        f"SELECT f.id FROM facts f JOIN {TWICE.format('side', 'd < 20')} ON f.k = s.k", "k < 20", 2
    ),
    "two ranges": Form(
        f"SELECT f.id FROM facts f JOIN {TWICE.format('side', 'd < 10 OR d > 189')} ON f.k = s.k",
        "k < 10 OR k > 189",
        2,
    ),
    "both partitioned, another condition": Form(
        f"SELECT f.id FROM parts f JOIN {TWICE.format('regions', 'r = 2')} ON f.p = s.p",
        "p BETWEEN 10 AND 14",
        5,
        "parts",
    ),
    "a partition and bounds": Form(
        f"SELECT f.id FROM facts f JOIN {TWICE.format('regions', 'r = 2')} ON f.d = s.p",
        "k BETWEEN 10 AND 14",
        1,
    ),
    "a chain": Form(
        "SELECT a.id FROM facts a JOIN side b ON a.k = b.k JOIN "
        + TWICE.format("third", "d < 20")
        + " ON b.g = s.g",
        "k < 20",
        2,
    ),
    "a chain, its middle": Form(
        "SELECT a.id FROM facts a JOIN side b ON a.k = b.k JOIN "
        + TWICE.format("third", "d < 20")
        + " ON b.g = s.g",
        "k < 20",
        2,
        "side",
    ),
    "IN": Form(f"SELECT id FROM facts WHERE k IN (SELECT k FROM {LIMIT})", "k < 20", 2),
    "left outer": Form(
        f"SELECT s.k, f.id FROM {LIMIT} LEFT JOIN facts f ON f.k = s.k", "k < 20", 2
    ),
    "right outer": Form(
        f"SELECT s.k, f.id FROM facts f RIGHT JOIN {LIMIT} ON f.k = s.k", "k < 20", 2
    ),
    "NOT EXISTS, the side that is looked up": Form(
        f"SELECT w.k FROM {LIMIT[:-1]}w WHERE NOT EXISTS (SELECT 1 FROM facts f WHERE f.k = w.k)",
        "k < 20",
        2,
    ),
    "an aggregate by the key": Form(
        f"SELECT f.n FROM (SELECT k, count(*) AS n FROM facts GROUP BY k) f JOIN {LIMIT}"
        " ON f.k = s.k",
        "k < 20",
        2,
    ),
    "an index": Form(
        f"SELECT f.id FROM indexed f JOIN {LIMIT} ON f.k = s.k", "k < 20", 2, "indexed"
    ),
    "a wider type": Form(f"SELECT f.id FROM facts f JOIN {LIMIT} ON f.k = s.l", "k < 20", 2),
    "another name": Form(
        f"SELECT f.id FROM (SELECT id, k AS a FROM facts) f JOIN {LIMIT} ON f.a = s.k", "k < 20", 2
    ),
}


def fact(found: Compared, name: str = "facts") -> ScanPlan:
    (scan,) = [scan for scan in found.explained.scans if re.search(rf"\b{name}\b", scan.table)]
    return scan


@pytest.fixture(scope="module", autouse=True)
def tables(spark: SparkSession, star: Star) -> Iterator[None]:
    for format in FORMATS:
        with star.of(format, "few"):
            for name in ("facts", "side", "third"):
                make_table(spark, name, ROWS, properties=BOUNDS)
            make_table(spark, "indexed", ROWS, "k VALUE_LIST")
            write_partitions(spark, format, "parts", "p")
            write_partitions(spark, format, "regions", "r, p")
    yield
    for format in FORMATS:
        with star.of(format, "few"):
            spark.sql("DROP SKIPPING INDEX ON indexed")
            for name in ("facts", "side", "third", "indexed", "parts", "regions"):
                spark.sql(f"DROP TABLE {name}")


def write_partitions(
    spark: SparkSession, format: str, name: str, by: str, rows: str = ROWS
) -> None:
    frame = spark.sql(rows).drop("_f")
    columns = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in frame.schema)
    spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.sql(f"CREATE TABLE {name} ({columns}) USING {format} PARTITIONED BY ({by})")
    frame.coalesce(1).createOrReplaceTempView("rows_of_partitions")
    spark.sql(f"INSERT INTO {name} SELECT * FROM rows_of_partitions")


@pytest.fixture(autouse=True)
def format(star: Star, request: pytest.FixtureRequest) -> Iterator[str]:
    name = getattr(request, "param", "delta")
    with star.of(name, "few"):
        yield name


on_every_format = pytest.mark.parametrize("format", FORMATS, indirect=True)


@on_every_format
@pytest.mark.parametrize("conf", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize("name", FORMS)
def test_static_joins_open_the_files_that_metadata_leave(
    spark: SparkSession, format: str, name: str, conf: dict[str, str]
) -> None:
    form = FORMS[name]
    needless = matching(spark, form.table, "true") - matching(spark, form.table, form.partners)
    found = same_rows(spark, form.query, conf=conf, garbage=needless)
    assert fact(found, form.table).opened == form.opened, str(found.explained)
    assert "of the metadata of" in str(found.explained), str(found.explained)
    with settings(spark, {**conf, **OFF, "spark.skipping.dynamic.enabled": "false"}):
        df = spark.sql(form.query)
        df.collect()
        (scan,) = [s for s in rewrite.explain(df).scans if s.table.endswith("." + form.table)]
    assert scan.opened == FILES, "other keys prune it, too"


SIDES = {
    "both sides": ("d < 100", "WHERE f.d >= 80", "=", "", 2),
    "the preserved side": ("d < 100", "", "=", "LEFT", FILES),
    "a full join": ("d < 100", "", "=", "FULL", FILES),
    "null equals null": ("d < 20", "", "<=>", "", FILES),
}


@on_every_format
@pytest.mark.parametrize("name", SIDES)
def test_static_joins_prune_sides_that_may_lose_rows(
    spark: SparkSession, format: str, name: str
) -> None:
    condition, where, equals, join, files = SIDES[name]
    query = f"""SELECT f.id, s.id FROM facts f {join} JOIN {TWICE.format("side", condition)}
        ON f.k {equals} s.k {where}"""
    assert fact(same_rows(spark, query, conf=SMJ)).opened == files


@on_every_format
def test_static_joins_take_no_keys_for_a_frame_that_a_query_has_twice(
    spark: SparkSession, format: str
) -> None:
    """Both occurrences are one node of the plan, and only one of them is joined."""

    def query(spark: SparkSession) -> DataFrame:
        facts = spark.table("facts").select("id", "k")
        return facts.join(spark.sql(f"SELECT k FROM {LIMIT}"), "k").select("id", "k").union(facts)

    assert len(same_rows(spark, query, conf=SMJ).rows) == 20 + 10 * FILES


@on_every_format
def test_static_joins_of_equal_parts_of_a_query(spark: SparkSession, format: str) -> None:
    part = f"SELECT f.k, count(*) AS n FROM facts f JOIN {TWICE} ON f.k = s.k GROUP BY f.k"
    query = " UNION ALL ".join(part.format("side", f"d < {n}") for n in (20, 40, 20))
    found = same_rows(spark, query, conf=SMJ)
    assert len(found.rows) == 20 + 40 + 20
    assert found.skipped > 0


@on_every_format
def test_static_joins_of_nulls_and_nan_and_unknown_bounds(spark: SparkSession, format: str) -> None:
    rows = """SELECT id, IF(id < 4, NULL, int(id)) AS k, IF(id = 9, double('NaN'), id) AS x,
        IF(id = 9, CAST(X'FF41' AS STRING), concat('t', id)) AS s, int(id div 4) AS p,
        int(id div 4) AS _f FROM range(12)"""
    make_table(spark, "odd", rows, properties=BOUNDS)
    write_partitions(spark, format, "odd_parts", "k", rows)
    far = f"SELECT id, k, x, s, p, _f - 1 AS _f FROM ({rows}) WHERE id > 3"
    make_table(spark, "far", far, properties=BOUNDS)
    for column, files in (("k", 1), ("x", 2), ("s", 2)):
        query = f"SELECT f.id FROM far f JOIN {TWICE.format('odd', 'id >= 8')} ON f.@ = s.@"
        found = same_rows(spark, query.replace("@", column), conf=SMJ)
        assert len(found.rows) == 8, column
        assert fact(found, "far").opened == files, str(found.explained)
    # A partition of null has no key; a join that keeps rows reads it.
    query = "SELECT f.id FROM {} LEFT JOIN far f ON f.k = s.k".format(
        TWICE.format("odd_parts", "p < 2")
    )
    found = same_rows(spark, query, conf=SMJ)
    assert len(found.rows) == 2 * 8
    assert fact(found, "far").opened == 1
    for name in ("odd", "odd_parts", "far"):
        spark.sql(f"DROP TABLE {name}")


@pytest.mark.parametrize("format", [f for f in FORMATS if f == "iceberg"], indirect=True)
def test_static_joins_of_files_with_bounds_and_files_in_partitions(
    spark: SparkSession, format: str
) -> None:
    """Two files of the version have bounds, and the scan reads two files: one is another file."""
    rows = "SELECT IF(id = 0, 1, 2) AS k, IF(id = 0, 1, 100) AS x, int(id) AS _f FROM range(2)"
    make_table(spark, "evolved", rows, properties=BOUNDS)
    spark.sql("ALTER TABLE evolved ADD PARTITION FIELD k")
    columns = ", ".join(spark.table("evolved").columns)
    spark.sql(f"INSERT INTO evolved ({columns}) SELECT {columns} FROM"
              " (SELECT 50 AS k, 100 AS x, 2 AS _f)")  # fmt: skip
    query = f"SELECT f.id FROM facts f JOIN {TWICE.format('evolved', 'x = 100')} ON f.k = s.k"
    assert len(same_rows(spark, query, conf=SMJ).rows) == 4
    spark.sql("DROP TABLE evolved")


@on_every_format
def test_static_joins_of_other_files_of_the_same_version(spark: SparkSession, format: str) -> None:
    """What a query finds of the files that it lists does not hold for those of the next one."""
    for r in (2, 3):
        query = f"SELECT f.id FROM parts f JOIN {TWICE.format('regions', f'r = {r}')} ON f.p = s.p"
        found = same_rows(spark, query, conf=SMJ)
        assert len(found.rows) == 50 * 20
        assert fact(found, "parts").opened == 5, str(found.explained)
    for where in ("WHERE f.d < 20", "", "WHERE f.d < 20", ""):
        query = f"SELECT f.id FROM facts f JOIN {TWICE.format('side', 'd < 20')} ON f.k = s.k"
        assert fact(same_rows(spark, f"{query} {where}", conf=SMJ)).opened == 2, where


def test_static_joins_of_a_version_that_returns_with_other_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A table's folder is copied back, and a commit gets the number of one that is gone."""
    dim, backup = tmp_path / "dim", tmp_path / "backup"

    def append(k: int) -> None:
        rows = spark.range(k, k + 1).selectExpr("id", "int(id) AS k")
        rows.write.format("delta").mode("append").save(str(dim))

    side = TWICE.format(f"delta.`{dim}`", "id >= 0")
    query = f"SELECT f.id FROM facts f JOIN {side} ON f.k = s.k"
    append(1)
    shutil.copytree(dim, backup)
    append(20)
    assert fact(same_rows(spark, query, conf=SMJ)).opened == 2
    shutil.rmtree(dim)
    shutil.copytree(backup, dim)
    append(70)
    found = same_rows(spark, query, conf=SMJ)
    assert set(found.rows) == {"Row(id=1)", "Row(id=70)"}
    assert fact(found).opened == 2


@pytest.mark.parametrize("format", [f for f in FORMATS if f == "iceberg"], indirect=True)
def test_static_joins_of_partitions_that_a_query_does_not_read(
    spark: SparkSession, format: str
) -> None:
    """That keys prune none of its partitions says nothing about those of the next query."""
    columns = "id BIGINT, region STRING, k INT"
    spark.sql(f"CREATE TABLE areas ({columns}) USING iceberg PARTITIONED BY (region, k)")
    for region, keys in (("a", 10), ("b", 40)):
        spark.sql(f"INSERT INTO areas SELECT id, '{region}', int(id) FROM range({keys})")
    query = f"SELECT f.id FROM areas f JOIN {TWICE.format('side', 'd < 10')} ON f.k = s.k"
    for region in ("b", "a", "b"):
        found = same_rows(spark, f"{query} WHERE f.region = '{region}'", conf=SMJ)
        assert fact(found, "areas").opened == 10, region
    spark.sql("DROP TABLE areas")


@pytest.mark.parametrize("format", [f for f in FORMATS if f == "iceberg"], indirect=True)
def test_static_joins_of_a_column_whose_type_changes(spark: SparkSession, format: str) -> None:
    """Iceberg makes no snapshot for it."""
    make_table(spark, "typed", f"SELECT id, k, d, _f FROM ({ROWS})", properties=BOUNDS)
    query = f"SELECT f.id FROM facts f JOIN {TWICE.format('typed', '{}')} ON f.k = s.k"
    conf = {**SMJ, "spark.skipping.mode": "strict"}
    for _ in range(2):
        assert fact(same_rows(spark, query.format("d < 20"), conf=conf)).opened == 2
        same_rows(spark, query.format("d >= 0"), conf=conf)
        spark.sql("ALTER TABLE typed ALTER COLUMN k TYPE BIGINT")
    spark.sql("DROP TABLE typed")


@on_every_format
def test_static_joins_keep_the_broadcast_of_sparks_own_filter(
    spark: SparkSession, format: str
) -> None:
    """The filtering side loses files, in the plan of the dynamic filter, too."""
    query = """SELECT /*+ BROADCAST(s) */ f.id FROM parts f JOIN side s USING (p)
        WHERE f.d < 100 AND s.g % 50 = 1"""
    found = same_rows(spark, query, conf=QUIET)
    assert fact(found, "side").opened == 10, str(found.explained)
    assert fact(found, "parts").opened == 2, str(found.explained)


@on_every_format
def test_static_joins_of_a_subquery_are_found_once(spark: SparkSession, format: str) -> None:
    """Spark optimizes the plan of a subquery alone, and again with the query that it is in."""
    query = f"""SELECT count(*) FROM third WHERE third.g >
        (SELECT avg(f.g) FROM facts f JOIN {LIMIT} ON f.k = s.k)"""
    needless = matching(spark, "facts", "true") - matching(spark, "facts", "k < 20")
    assert fact(same_rows(spark, query, conf=SMJ, garbage=needless)).opened == 2
    with settings(spark, SMJ):
        plan = spark.sql(query)._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("the metadata of side") == 1, plan
    with_edge = query.replace("FROM third", "FROM third JOIN side w ON third.k = w.k AND w.d < 50")
    with settings(spark, SMJ):
        plan = spark.sql(with_edge)._jdf.queryExecution().optimizedPlan().toString()
    for line in plan.split("\n"):
        assert line.count("the metadata of") <= 1, plan
    same_rows(spark, with_edge, conf=SMJ)


@on_every_format
def test_static_joins_look_up_only_what_may_prune(
    spark: SparkSession, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No condition has an indexed column, and the bounds of each side include the other's."""
    make_table(spark, "both", ROWS, "k VALUE_LIST", properties=BOUNDS)
    lookups = []
    apply = Answers.apply

    def count(self: Answers, envelope: str, message: bytes | str) -> bytes:
        if not isinstance(message, str) and read_message(message)[0][OP] == PRUNED:
            lookups.append(message)
        return apply(self, envelope, message)

    monkeypatch.setattr(Answers, "apply", count)

    def count_lookups(query: str, conf: dict[str, str]) -> int:
        with settings(spark, conf):
            for _ in range(2):  # the first one reads bounds, and finds ranges of no use
                lookups.clear()
                spark.sql(query)._jdf.queryExecution().executedPlan()
        return len(lookups)

    query = f"SELECT b.id FROM both b JOIN {TWICE.format('side', 'd >= 0')} ON b.k = s.k"
    for condition, more in (("b.d < 200", 0), ("b.d < 200 AND b.k < 300", 1)):
        each = f"{query} WHERE {condition}"
        without = count_lookups(each, {**SMJ, **OFF})
        assert count_lookups(each, SMJ) == without + more, condition
    # A narrower side is looked up.
    query = f"SELECT b.id FROM both b JOIN {TWICE.format('side', 'd < 20')} ON b.k = s.k"
    assert fact(same_rows(spark, query, conf=SMJ), "both").opened == 2
    spark.sql("DROP SKIPPING INDEX ON both")
    spark.sql("DROP TABLE both")


def test_static_joins_are_no_condition_of_a_query(spark: SparkSession, format: str) -> None:
    rules = "org.apache.spark.sql.catalyst.optimizer."
    excluded = f"{rules}BooleanSimplification,{rules}NullPropagation,{rules}ConstantFolding"
    conf = {**SMJ, "spark.sql.optimizer.excludedRules": excluded}
    query = "SELECT id FROM facts WHERE true OR ('the metadata of x' IS NOT NULL AND k IN (1, 2))"
    assert len(same_rows(spark, query, conf=conf).rows) == 10 * FILES


def test_static_joins_wait_no_longer_than_the_timeout(spark: SparkSession) -> None:
    make_table(spark, "unread", ROWS, properties=BOUNDS)
    query = FORMS["rows of a LIMIT"].query.replace("facts", "unread")
    with settings(spark, {**SMJ, "spark.skipping.timeout": "1ms"}):
        df = spark.sql(query)
        text = str(rewrite.explain(df))
    spark.sql("DROP TABLE unread")
    assert "were not read within half of spark.skipping.timeout" in text, text


@pytest.mark.smoke
def test_static_joins_are_in_explain(spark: SparkSession) -> None:
    with settings(spark, SMJ):
        text = str(rewrite.explain(spark.sql(FORMS["rows of a LIMIT"].query)))
    assert "by k IN (2 ranges of the metadata of side)  STATISTICS" in text, text
