"""Random star and snowflake queries: with the index = without, and it skips.

One fact in files that hold few keys each, by a partition column too, so that Spark's own dynamic
pruning works beside ours. Of other tables bounds or partitions are known, on both sides of a join.
A query draws its joins, their keys, the shape of each dimension and of
the fact, and what Spark runs it with. `SKIPPING_TEST_QUERIES` says how many are run of each format;
`SKIPPING_TEST_SEED` draws others than the usual ones.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.rewrite.differential import FORMATS, in_catalog_of, make_table, same_rows
from tests.rewrite.star import BOUNDS

pytestmark = pytest.mark.nightly

QUERIES = {"delta": 24, "iceberg": 10}

KEYS = {
    "i": "int(k)",
    "l": "k",
    "s": "concat('key ', k)",
    "d": "date_add(date'2024-01-01', int(k))",
    "ts": "timestamp_micros(k * 1000003)",
    "dec": "CAST(k / 4 AS DECIMAL(10, 2))",
    "x": "CASE k % 20 WHEN 7 THEN double('NaN') WHEN 8 THEN -0D WHEN 9 THEN 0D ELSE k / 3D END",
    "n": "IF(k % 3 = 0, NULL, int(k % 40))",
    "p": "concat('p', k % 3)",
    "c": "IF(k >= 110, NULL, int(k div 10))",
    "t": "concat('text ', lpad(k, 3, '0'), repeat('é', 40))",
}
"""Columns by which tables are joined, of a number `k` from 0 to 119."""

COLUMNS = ", ".join(f"{expression} AS {name}" for name, expression in KEYS.items())
FACT = f"SELECT id, {COLUMNS}, repeat(md5(string(id)), 6) AS pad, int(k % 12) AS _f FROM"
PAIRS = [(name, name) for name in KEYS] + [("i", "l"), ("l", "i"), ("n", "i"), ("i", "n")]

DIMENSIONS = ["dima", "dimb", "dimc", "dimd"]
"""The first two are a file without bounds, the others files with bounds, or partitions."""

CONDITIONS = ["{d}.a = 3", "{d}.a IN (1, 5)", "{d}.l < 9", "{d}.s = 'key 17'", "{d}.n IS NULL",
              "{d}.a > 90", "{d}.l BETWEEN 25 AND 47", "{d}.c = 3", "{d}.g = 2", "{d}.l > 105",
              "{d}.x = 0D", "{d}.a % 6 = 2", "true"]  # fmt: skip
RANGES = ["{f}.{c} BETWEEN {d}.{c} AND {d}.{c}", "{f}.{c} >= {d}.{c}", "{d}.{c} > {f}.{c}",
          "{f}.l BETWEEN {d}.l AND {d}.l + 3", "{f}.l > {d}.l AND {f}.l - 4 < {d}.l",
          "{f}.x >= {d}.x AND {f}.x < {d}.x + 1", "{d}.x <= {f}.x AND {d}.x >= {f}.x",
          "{f}.d >= {d}.d AND {f}.d < date_add({d}.d, 3)", "{f}.i BETWEEN {d}.l - 1 AND {d}.l",
          "{f}.{c} = {d}.{c} AND {f}.n BETWEEN {d}.n AND {d}.n + 5",
          "{f}.ts BETWEEN {d}.ts - INTERVAL 2 SECONDS AND {d}.ts"]  # fmt: skip
"""Joins on ranges, of a column `c` as well."""

ENGINES = {
    "spark.sql.adaptive.enabled": ["true", "true", "false"],
    "spark.sql.autoBroadcastJoinThreshold": ["10m", "-1"],
    "spark.sql.codegen.wholeStage": ["true", "true", "false"],
    "spark.sql.exchange.reuse": ["true", "true", "false"],
    "spark.skipping.dynamic.enabled": ["true", "true", "false"],
    "spark.skipping.dynamic.rows": ["true", "false"],
    "spark.skipping.dynamic.maxBytes": ["32m", "32m", "64"],
}


@pytest.fixture(scope="module", params=FORMATS)
def tables(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    """The tables, and their format."""
    totals.clear()
    kinds = ", ".join(f"{name} VALUE_LIST, {name} MIN_MAX" for name in KEYS if name != "p")
    rows = "(SELECT id, (id * 7919) % 120 AS k FROM range({}))"
    with in_catalog_of(spark, request.param) as format:
        for name, count in (("star", 720), ("star2", 480)):
            make_table(spark, name, f"{FACT} {rows.format(count)}", kinds)
        parted = spark.table("star").repartition(6, "l").writeTo("parted").using(request.param)
        for key, value in format.properties.items():
            parted.tableProperty(key, value)
        parted.partitionedBy(F.col("p")).create()
        spark.sql(f"CREATE SKIPPING INDEX ON parted ({kinds})")
        ranges = f"{FACT.replace('k % 12', 'k div 10')} {rows.format(360)}"
        make_table(spark, "lined", ranges, properties=BOUNDS)
        lined = spark.table("lined").repartition(6, "l").writeTo("cut").using(request.param)
        lined.partitionedBy(F.col("c")).create()
        for name, step in (("dima", 1), ("dimb", 2)):
            numbers = f"range(0, 120, {step})"
            some = f"(SELECT id AS k, int(id % 12) AS a, int(id % 5) AS g FROM {numbers})"
            make_table(spark, name, f"SELECT a, g, {COLUMNS}, 0 AS _f FROM {some}")
        some_files = f"SELECT a, g, {COLUMNS}, int(k div 10) AS _f FROM {some}"
        make_table(spark, "dimc", some_files, properties=BOUNDS)
        made = spark.table("dimc").repartition(3, "l").writeTo("dimd").using(request.param)
        made.partitionedBy(F.col("c"), F.col("g")).create()
        make_table(spark, "few", f"SELECT a, g, {COLUMNS}, 0 AS _f FROM {some} WHERE k IN (2, 38)")
        spark.table("dima").where("a IN (2, 3)").createOrReplaceTempView("kept")
        spark.catalog.cacheTable("kept")
        make_table(spark, "sub1", "SELECT int(id) AS g, id AS h, 0 AS _f FROM range(5)")
        for name in DIMENSIONS:
            rows = spark.table(name)
            view = spark.createDataFrame(rows.rdd, rows.schema)
            view.createOrReplaceTempView(f"rows_of_{name}")
        spark.udf.register("same", lambda value: value, "int")
        yield request.param
        spark.sql("DROP TEMPORARY FUNCTION same")
        for name in DIMENSIONS:
            spark.catalog.dropTempView(f"rows_of_{name}")
        for name in ("star", "star2", "parted"):
            spark.sql(f"DROP SKIPPING INDEX ON {name}")
        spark.catalog.uncacheTable("kept")
        for name in ("star", "star2", "parted", "lined", "cut", *DIMENSIONS, "few", "sub1"):
            spark.sql(f"DROP TABLE {name}")
    if totals["queries"]:
        print(request.param, dict(totals))
        assert totals["skipped"] > totals["files"] / 6, totals


totals: Counter[str] = Counter()


@dataclass(frozen=True)
class Case:
    """A query, and settings to run it with."""

    query: str
    conf: dict[str, str]


@st.composite
def dimensions(draw: st.DrawFn, alias: str) -> str:
    """A relation with the columns of a dimension."""
    table = draw(st.sampled_from(DIMENSIONS))
    where = draw(st.sampled_from(CONDITIONS)).format(d=table)
    names = ", ".join(KEYS)
    shape = draw(
        st.sampled_from(
            ["plain", "plain", "distinct", "group", "sub", "sub", "limit", "union", "latest",
             "small", "kept", "large", "rows", "rows", "exploded", "code"]
        )
    )  # fmt: skip
    query = {
        "plain": f"SELECT * FROM {table} WHERE {where}",
        "distinct": f"SELECT DISTINCT {names}, a FROM {table} WHERE {where}",
        "group": f"SELECT {names}, max(a) AS a FROM {table} WHERE {where} GROUP BY {names}",
        "sub": f"SELECT {table}.* FROM {table} JOIN sub1 USING (g) WHERE h = 2",
        "limit": f"SELECT * FROM {table} WHERE {where} ORDER BY l LIMIT 30",
        "latest": "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY a ORDER BY l DESC) AS"
        f" r FROM {table} WHERE {where}) WHERE r = 1",
        "small": "SELECT * FROM few",
        "rows": f"SELECT * FROM rows_of_{table} WHERE {where.replace(table, f'rows_of_{table}')}",
        "exploded": f"SELECT {table}.* FROM {table} LATERAL VIEW explode(array(1)) e AS one"
        f" WHERE {where}",
        "code": f"SELECT * FROM {table} WHERE {where} AND same(a) = a",
        "large": f"SELECT {names}, a FROM (SELECT *, id % 12 AS a, id % 5 AS g FROM star2) s WHERE"
        f" {where.replace(table, 's')}",
        "kept": f"SELECT * FROM kept WHERE {where.replace(table, 'kept')}",
        "union": f"SELECT * FROM {table} WHERE {where} UNION ALL SELECT * FROM {table} WHERE a = 4",
    }[shape]
    return f"({query}) {alias}"


MOST = ", ".join(f"max({name}) AS {name}" for name in KEYS if name not in ("i", "l"))
facts = st.sampled_from(
    [
        "star",
        "star",
        "parted",
        "lined",
        "lined",
        "cut",
        "(SELECT a.* FROM lined a JOIN cut b ON a.l = b.l AND b.c < 4)",
        "(SELECT a.* FROM cut a LEFT JOIN lined b ON a.t = b.t AND a.c = 7)",
        "(SELECT * FROM star WHERE l % 7 < 5)",
        "(SELECT * FROM star UNION ALL SELECT * FROM star2)",
        f"(SELECT max(id) AS id, {', '.join(KEYS)} FROM star GROUP BY {', '.join(KEYS)})",
        "(SELECT *, row_number() OVER (PARTITION BY l ORDER BY id) AS r FROM star)",
        "(SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY l ORDER BY id) AS r FROM star)"
        " WHERE r = 1)",
        f"(SELECT count(DISTINCT id) + count(DISTINCT pad) AS id, {', '.join(KEYS)} FROM star"
        f" GROUP BY {', '.join(KEYS)})",
        f"(SELECT max(id) AS id, i, l, {MOST} FROM star GROUP BY i, ROLLUP (l))",
        "(SELECT /*+ REPARTITION(3) */ * FROM star)",
        "(SELECT /*+ REBALANCE */ * FROM star)",
        "(SELECT *, l AS id FROM dima WHERE a < 4 AND NOT EXISTS"
        " (SELECT 1 FROM star WHERE star.l = dima.l AND star.id % 7 < 3))",
        "(SELECT a.* FROM star a JOIN star2 b ON a.l = b.l AND a.id = b.id)",
    ]
)


@st.composite
def alternatives(draw: st.DrawFn) -> str:
    """A condition of the fact with OR, most of them of one column; often there is none."""
    if draw(st.booleans()):
        return "true"
    one, legs = draw(st.sampled_from(PAIRS)), []
    for n in range(draw(st.integers(1, 3))):
        mine, theirs = draw(st.sampled_from([one, one, one, ("l", "l")]))
        keys = draw(dimensions(f"o{n}"))
        form = draw(st.sampled_from(["IN", "IN", "IN", "EXISTS", "=", "list", "NOT IN"]))
        leg = {
            "IN": f"f.{mine} IN (SELECT {theirs} FROM {keys})",
            "EXISTS": f"EXISTS (SELECT 1 FROM {keys} WHERE o{n}.{theirs} = f.{mine})",
            "=": f"f.{mine} = (SELECT max({theirs}) FROM dima)",
            "list": f"f.{mine} IN (SELECT {theirs} FROM few) AND f.i IN (2, NULL, 38)",
            "NOT IN": f"f.{mine} NOT IN (SELECT {theirs} FROM {keys} WHERE {theirs} IS NOT NULL)",
        }[form]
        legs.append(draw(st.sampled_from([leg, f"{leg} AND f.id > 99"])))
    return f"({' OR '.join([*legs, *draw(st.sampled_from([[], ['f.i = 7'], ['f.l = 9L']]))])})"


@st.composite
def cases(draw: st.DrawFn) -> Case:
    source = f"{draw(facts)} f"
    for n in range(draw(st.integers(1, 3))):
        dimension = draw(dimensions(f"d{n}"))
        mine, theirs = draw(st.sampled_from(PAIRS))
        equals = draw(st.sampled_from(["=", "=", "=", "<=>"]))
        on = f"f.{mine} {equals} d{n}.{theirs}"
        if draw(st.sampled_from([False, False, False, True])):
            on = draw(st.sampled_from(RANGES)).format(f="f", d=f"d{n}", c=mine)
        extra = draw(st.sampled_from(["", "", "", f" AND f.id > d{n}.l", f" AND f.p = d{n}.p",
                                      f" AND f.l <=> d{n}.l"]))  # fmt: skip
        kind = draw(st.sampled_from(["", "", "", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI", "first"]))
        if kind == "first" and n == 0:
            source = f"{dimension} JOIN {source} ON {on}{extra}"
        else:
            join = {"SEMI": "LEFT SEMI", "ANTI": "LEFT ANTI", "first": ""}.get(kind, kind)
            source = f"{source} {join} JOIN {dimension} ON {on}{extra}"
    where = draw(alternatives())
    query = f"""SELECT count(*), count(f.id), sum(f.id), bit_xor(xxhash64(f.id, f.s)) FROM {source}
        WHERE {where}"""
    return Case(query, {key: draw(st.sampled_from(values)) for key, values in ENGINES.items()})


def test_with_the_index_is_without(spark: SparkSession, tables: str) -> None:
    chosen = os.environ.get("SKIPPING_TEST_SEED")

    @settings(
        max_examples=int(os.environ.get("SKIPPING_TEST_QUERIES", QUERIES[tables])),
        deadline=None,
        derandomize=chosen is None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def drawn(case: Case) -> None:
        # Keys of one of two equal parts may have no benefit: feedback, which is off here, ends it.
        found: Any = same_rows(spark, case.query, conf=case.conf, shares=False)
        totals.update(queries=1, files=found.without, skipped=found.skipped)
        totals["pruned"] += found.skipped > 0
        if totals["queries"] % 1_000 == 0:
            print(tables, dict(totals), flush=True)

    (drawn if chosen is None else seed(int(chosen))(drawn))()
