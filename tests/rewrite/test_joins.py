"""Keys of a join prune the files of its other side: every form, and every form that must not.

A fact of 24 files; a key lives in one file, and every file spans all keys, so that bounds say
nothing. Exactly the files that hold a key of the dimension are opened, which garbage in all others
proves; where a join must keep its rows, all are, and explain says why. On tables of every format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import pytest
from pyspark.sql import SparkSession

import rewrite
from skipping.spark_api import RELEASE
from tests.rewrite.differential import (
    ENABLED,
    FORMATS,
    Compared,
    make_table,
    same_rows,
    settings,
    smoke_on,
    spoiled,
)
from tests.rewrite.star import FACT, FACT_INDEX, FILES, Star

BRIDGE = "SELECT int(id) AS k, int(id % 12) AS g, int(id % 12) AS _f FROM range(240)"

SMJ = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
PLAIN = {"spark.sql.adaptive.enabled": "false"}
INTERPRETED = {"spark.sql.codegen.wholeStage": "false"}


@pytest.fixture(scope="module")
def more_facts(spark: SparkSession, star: Star) -> None:
    """A second fact, and a bridge between the fact and `sub`."""
    for format in FORMATS:
        with star.of(format):
            make_table(spark, "other_fact", FACT, FACT_INDEX)
            make_table(spark, "bridge", BRIDGE, "g VALUE_LIST")


on_every_format = pytest.mark.parametrize("tables", FORMATS, indirect=True)


@pytest.fixture(autouse=True)
def tables(spark: SparkSession, star: Star, request: pytest.FixtureRequest) -> Iterator[None]:
    """Names are tables of the format that a test asks for: of Delta if it does not."""
    with star.of(getattr(request, "param", "delta")):
        spark.sql("CREATE OR REPLACE TEMPORARY VIEW dim_view AS SELECT k AS key, name FROM dim")
        yield


FORMS: dict[str, str] = {
    "inner": "SELECT * FROM fact f JOIN dim ON f.k = dim.k WHERE name = 'n3'",
    "dimension first": "SELECT * FROM dim JOIN fact USING (k) WHERE name = 'n3'",
    "other conditions": """SELECT * FROM fact f JOIN dim ON f.k = dim.k
        AND f.id > dim.g WHERE name = 'n3'""",
    "a condition on the fact": """SELECT * FROM fact f JOIN dim USING (k)
        WHERE name IN ('n3', 'n4') AND f.m <> 4""",
    "IN": "SELECT * FROM fact WHERE k IN (SELECT k FROM dim WHERE name = 'n3')",
    "IN or IN": """SELECT * FROM fact WHERE k IN (SELECT k FROM dim WHERE name = 'n3')
        OR k IN (SELECT k FROM dim WHERE name = 'n5')""",
    "IN or a constant": """SELECT * FROM fact WHERE k = 5 OR k IN (SELECT k FROM dim
        WHERE name = 'n3')""",
    "IN, or constants, or EXISTS, each with more": """SELECT * FROM fact f WHERE f.m < 9
        AND (k IN (SELECT k FROM dim WHERE name = 'n3') OR k IN (NULL, 5, 33)
        AND id > 9 OR EXISTS (SELECT 1 FROM dim WHERE dim.k = f.k AND name = 'n6'
        AND dim.g < f.id + 20))""",
    "EXISTS": """SELECT * FROM fact f WHERE EXISTS (SELECT 1 FROM dim
        WHERE dim.k = f.k AND name = 'n3' AND dim.g < f.id + 20)""",
    "semi, the fact on the right": """SELECT * FROM (SELECT * FROM dim
        WHERE name = 'n3') d LEFT SEMI JOIN fact ON d.k = fact.k""",
    "right outer": "SELECT * FROM fact RIGHT JOIN dim USING (k) WHERE name = 'n3'",
    "left outer": "SELECT * FROM dim LEFT JOIN fact USING (k) WHERE name = 'n3'",
    "two dimensions": """SELECT * FROM fact f JOIN dim a ON f.k = a.k JOIN dim b
        ON f.l = b.l WHERE a.name IN ('n3', 'n4') AND b.name IN ('n4', 'n5')""",
    "snowflake, flat": """SELECT * FROM fact f JOIN dim ON f.k = dim.k JOIN sub
        ON dim.g = sub.g WHERE sub.name = 'g3'""",
    "snowflake, nested": """SELECT * FROM fact f JOIN (SELECT dim.k FROM dim JOIN sub
        USING (g) WHERE sub.name = 'g3') d ON f.k = d.k""",
    "a view": "SELECT * FROM fact JOIN dim_view ON k = key WHERE name = 'n3'",
    "a common table": """WITH d AS (SELECT k FROM dim WHERE name = 'n3') SELECT *
        FROM fact JOIN d USING (k)""",
    "a DISTINCT dimension": """SELECT * FROM fact JOIN (SELECT DISTINCT k FROM dim
        WHERE name = 'n3') USING (k)""",
    "an aggregated dimension": """SELECT * FROM fact JOIN (SELECT k, count(*) AS n
        FROM dim WHERE name = 'n3' GROUP BY k) USING (k)""",
    "given rows": "SELECT * FROM fact JOIN (VALUES (3), (27), (5)) v(k) USING (k)",
    "one row": "SELECT * FROM fact JOIN (SELECT 3 AS k) USING (k)",
    "the fact itself": """SELECT * FROM fact JOIN (SELECT DISTINCT k FROM fact
        WHERE m = 3 AND id < 240) USING (k)""",
    "an aggregated fact": """SELECT * FROM (SELECT k AS kk, count(*) AS n FROM fact
        GROUP BY k) f JOIN dim ON kk = dim.k WHERE name = 'n3'""",
    "a window by the key": """SELECT * FROM (SELECT k, row_number() OVER (PARTITION BY k ORDER
        BY id) AS n FROM fact) f JOIN dim USING (k) WHERE name = 'n3'""",
    "an exploded fact": """SELECT * FROM (SELECT k, e
        FROM fact LATERAL VIEW explode(array(1, 2)) AS e) f JOIN dim USING (k)
        WHERE name = 'n3'""",
    "a scalar subquery": """SELECT (SELECT sum(f.id) FROM fact f JOIN dim USING (k)
        WHERE name = 'n3') AS total""",
    "a range": "SELECT * FROM fact f JOIN dim ON f.m BETWEEN dim.m AND dim.m + 1 WHERE name = 'n3'",
    "two keys": "SELECT * FROM fact f JOIN dim ON f.k = dim.k AND f.m = dim.m WHERE name = 'n3'",
    "a nested column": "SELECT * FROM fact f JOIN dim ON f.st.a = dim.k WHERE name = 'n3'",
    "int = bigint": "SELECT * FROM fact f JOIN dim ON f.k = dim.l WHERE name = 'n3'",
    "bigint = int": "SELECT * FROM fact f JOIN dim ON f.l = dim.k WHERE name = 'n3'",
    "string": "SELECT * FROM fact f JOIN dim ON f.s = dim.s WHERE name = 'n3'",
    "date": "SELECT * FROM fact f JOIN dim ON f.d = dim.d WHERE name = 'n3'",
    "double": "SELECT * FROM fact f JOIN dim ON f.x = dim.x WHERE name = 'n3'",
    "timestamp": "SELECT * FROM fact f JOIN dim ON f.ts = dim.ts WHERE name = 'n3'",
    "decimal": "SELECT * FROM fact f JOIN dim ON f.dec = dim.dec WHERE name = 'n3'",
    "another decimal": """SELECT * FROM fact f JOIN dim
        ON f.dec = CAST(dim.dec AS DECIMAL(38, 12)) WHERE name = 'n3'""",
}
PARTNERS = {
    "IN or IN": "m IN (3, 5)",
    "IN or a constant": "m = 3 OR k = 5",
    "IN, or constants, or EXISTS, each with more": "m IN (3, 6) OR k = 5",
    "two dimensions": "m = 4",
    "snowflake, flat": "m IN (3, 15)",
    "snowflake, nested": "m IN (3, 15)",
    "given rows": "m IN (3, 5)",
    "a range": "m IN (3, 4)",
}
"""The condition on the fact's rows that have a partner; of other forms `m = 3`."""


def exactly(
    spark: SparkSession, star: Star, query: str, partners: str, conf: Mapping[str, str]
) -> Compared:
    """`same_rows`; exactly the files with a partner are opened, of `fact` in one scan."""
    # A dimension that is made of the fact reads other files of it.
    garbage = () if "DISTINCT k FROM fact" in query else star.files() - star.files(partners)
    found = same_rows(spark, query, conf=conf, garbage=garbage)
    scans = [s for s in found.explained.scans if s.table.endswith(".fact")]
    if len(scans) > 1:  # the dimension is made of it too
        scans = [s for s in scans if s.keys]
    assert [s.opened for s in scans] == [len(star.files(partners))], str(found.explained)
    return found


def together(queries: Mapping[str, str]) -> str:
    """All queries as one; a row is the query's name and a hash."""
    return " UNION ALL ".join(
        f"SELECT '{name}' AS name, xxhash64(*) AS row FROM ({query})"
        for name, query in queries.items()
    )


@smoke_on("delta", "tables", scope="function")
def test_all_forms_in_one_query(spark: SparkSession, star: Star) -> None:
    """No form opens less than it needs; so if they do not open more in all, none opens more."""
    needed = {form: star.files(PARTNERS.get(form, "m = 3")) for form in FORMS}
    garbage = star.files().difference(*needed.values())
    found = same_rows(spark, together(FORMS), garbage=garbage)
    opened = [s.opened or 0 for s in found.explained.scans if s.table.endswith(".fact")]
    # The dimension of "the fact itself" is one of its files, unless Spark reuses its exchange.
    assert sum(opened) - sum(map(len, needed.values())) in (0, 1), str(found.explained)


@on_every_format
@pytest.mark.parametrize("form", FORMS)
def test_exactly_the_files_with_a_partner_are_opened(
    spark: SparkSession, star: Star, form: str
) -> None:
    exactly(spark, star, FORMS[form], PARTNERS.get(form, "m = 3"), {})


@pytest.mark.smoke
def test_a_file_of_garbage_fails_a_query_that_opens_it(spark: SparkSession, star: Star) -> None:
    with (
        spoiled(star.files() - star.files("m = 3")),
        settings(spark, {ENABLED: "false"}),
        pytest.raises(Exception, match=r"(?i)parquet"),
    ):
        spark.sql(FORMS["inner"]).collect()


ENGINES = {
    "sort-merge": SMJ,
    "not adaptive": PLAIN,
    "not adaptive, sort-merge": SMJ | PLAIN,
    "interpreted": INTERPRETED,
    "interpreted, not adaptive": INTERPRETED | PLAIN,
    "no reuse": {"spark.sql.exchange.reuse": "false"},
    "no reuse, not adaptive": {"spark.sql.exchange.reuse": "false"} | PLAIN,
}


RUNS = [
    pytest.param("delta", "sort-merge", "IN", marks=pytest.mark.smoke),
    *(
        ("delta", engine, form)
        for engine in ENGINES
        for form in ("inner", "dimension first", "right outer", "snowflake, flat")
    ),
    *(
        ("iceberg", engine, form)
        for engine in ("sort-merge", "not adaptive", "not adaptive, sort-merge")
        for form in ("inner", "right outer", "int = bigint", "a nested column")
    ),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("tables", "engine", "form"), RUNS, indirect=["tables"])
def test_on_every_engine(spark: SparkSession, star: Star, form: str, engine: str) -> None:
    exactly(spark, star, FORMS[form], PARTNERS.get(form, "m = 3"), ENGINES[engine])


BOTH = "SELECT k, id FROM fact UNION ALL SELECT k, id FROM other_fact"


@on_every_format
@pytest.mark.parametrize(
    "query",
    [
        f"SELECT * FROM ({BOTH}) f JOIN dim USING (k) WHERE name = 'n3'",
        "SELECT * FROM fact f JOIN dim ON f.k = dim.k JOIN other_fact o ON o.k = dim.k"
        " WHERE name = 'n3'",
        "SELECT * FROM fact a JOIN fact b USING (k) JOIN dim USING (k) WHERE name = 'n3'",
    ],
    ids=["each leg of a union", "two facts", "a self-join of the fact"],
)
@pytest.mark.parametrize("engine", [{}, SMJ, PLAIN], ids=["adaptive", "sort-merge", "plain"])
def test_one_dimension_filters_every_fact(
    spark: SparkSession, more_facts: None, query: str, engine: dict[str, str]
) -> None:
    found = same_rows(spark, query, conf=engine)
    facts = [s for s in found.explained.scans if s.table.endswith("fact")]
    assert facts
    assert [s.opened for s in facts] == [1] * len(facts), str(found.explained)


@on_every_format
@pytest.mark.parametrize(
    "engine", [{}, SMJ, PLAIN, SMJ | PLAIN], ids=["adaptive", "smj", "plain", "both"]
)
def test_a_bridge_and_the_fact_behind_it(
    spark: SparkSession, more_facts: None, engine: dict[str, str]
) -> None:
    query = """SELECT f.id, sub.name FROM fact f JOIN bridge b ON f.k = b.k
        JOIN sub ON b.g = sub.g WHERE sub.name = 'g3'"""
    found = same_rows(spark, query, conf=engine)
    opened = {s.table.split(".")[-1]: s.opened for s in found.explained.scans}
    assert (opened["fact"], opened["bridge"]) == (2, 1), str(found.explained)


KEPT: dict[str, tuple[str, str]] = {
    "left outer keeps the left": (
        "SELECT * FROM fact f LEFT JOIN (SELECT * FROM dim WHERE name = 'n3') d ON f.k = d.k",
        "LEFT OUTER JOIN keeps rows",
    ),
    "right outer keeps the right": (
        "SELECT * FROM (SELECT * FROM dim WHERE name = 'n3') d RIGHT JOIN fact f ON f.k = d.k",
        "RIGHT OUTER JOIN keeps rows",
    ),
    "full outer keeps both": (
        "SELECT * FROM fact f FULL JOIN (SELECT * FROM dim WHERE name = 'n3') d ON f.k = d.k",
        "FULL OUTER JOIN keeps rows",
    ),
    "anti": (
        "SELECT * FROM fact f WHERE NOT EXISTS"
        " (SELECT 1 FROM dim WHERE dim.k = f.k AND name = 'n3')",
        "LEFT ANTI JOIN keeps rows",
    ),
    "NOT IN": (
        "SELECT * FROM fact WHERE k NOT IN (SELECT k FROM dim WHERE name = 'n3')",
        "NOT IN keeps rows without a partner",
    ),
    "IN or another column": (
        "SELECT * FROM fact WHERE k IN (SELECT k FROM dim WHERE name = 'n3') OR l = 5",
        "an IN or EXISTS beside an OR keeps rows",
    ),
    "IN or NOT IN": (
        "SELECT * FROM fact WHERE k IN (SELECT k FROM dim WHERE name = 'n3')"
        " OR k NOT IN (SELECT k FROM dim WHERE k < 99)",
        "an IN or EXISTS beside an OR keeps rows",
    ),
    "IN as a column": (
        "SELECT id, k IN (SELECT k FROM dim WHERE name = 'n3') AS is_three FROM fact",
        "an IN or EXISTS beside an OR keeps rows",
    ),
    "a function on the key": (
        "SELECT * FROM fact f JOIN dim ON abs(f.k) = dim.k WHERE name = 'n3'",
        r"the join key is abs\(k\)",
    ),
    "a narrowing cast": (
        "SELECT * FROM fact f JOIN dim ON int(f.x) = dim.k WHERE name = 'n3'",
        r"the join key is cast\(x\)",
    ),
    "a limit below the join": (
        "SELECT * FROM (SELECT * FROM fact ORDER BY id LIMIT 100) f JOIN dim USING (k)"
        " WHERE name = 'n3'",
        "a GlobalLimit stands between",
    ),
    "a key made by an aggregate": (
        "SELECT * FROM (SELECT m, max(k) AS k FROM fact GROUP BY m) f JOIN dim USING (k)"
        " WHERE name = 'n3'",
        "an aggregate by other columns",
    ),
    "a window over other columns": (
        "SELECT * FROM (SELECT k, rank() OVER (PARTITION BY m ORDER BY id) AS n FROM fact) f"
        " JOIN dim USING (k) WHERE name = 'n3'",
        "a Window stands between",
    ),
    "a random dimension": (
        "SELECT f.id FROM fact f JOIN (SELECT * FROM dim WHERE rand(7) >= 0.2) USING (k)",
        "the dimension is not deterministic",
    ),
    "a key that is not in the index": (
        "SELECT * FROM fact f JOIN dim ON f.id = dim.l WHERE name = 'n3'",
        "id, the join key, is not in the index",
    ),
}


@smoke_on("delta", "tables", scope="function")
def test_all_joins_that_must_not_prune_in_one_query(spark: SparkSession) -> None:
    found = same_rows(spark, together({form: query for form, (query, _) in KEPT.items()}))
    opened = [s.opened for s in found.explained.scans if s.table.endswith(".fact")]
    assert opened == [FILES] * len(KEPT), str(found.explained)
    for _, why in KEPT.values():
        assert re.search(why, str(found.explained)), why


@on_every_format
@pytest.mark.parametrize("form", KEPT)
def test_a_join_that_must_not_prune_does_not(spark: SparkSession, form: str) -> None:
    query, why = KEPT[form]
    found = same_rows(spark, query)
    (scan,) = [s for s in found.explained.scans if s.table.endswith(".fact")]
    assert scan.opened == FILES, str(scan)
    assert re.search(why, str(scan)), str(scan)


def test_what_is_large_and_has_no_condition_is_not_asked_for_keys(
    spark: SparkSession, more_facts: None
) -> None:
    found = same_rows(spark, "SELECT fact.id FROM fact JOIN other_fact USING (k)")
    assert [s.keys for s in found.explained.scans] == [(), ()]


@on_every_format
def test_no_key_opens_no_file(spark: SparkSession) -> None:
    for condition in ("name = 'nobody'", "k IS NULL AND name = 'n3'"):
        for conf in ({}, SMJ, PLAIN | SMJ):
            query = f"SELECT * FROM fact RIGHT JOIN dim USING (k) WHERE {condition}"
            found = same_rows(spark, query, conf=conf)
            assert all(s.opened == 0 for s in found.explained.scans if s.keys)


@on_every_format
@pytest.mark.parametrize("engine", [{}, PLAIN, SMJ | PLAIN], ids=["adaptive", "plain", "both"])
def test_explain_runs_nothing(spark: SparkSession, engine: dict[str, str]) -> None:
    def jobs(enabled: str) -> int:
        group = f"explain {enabled} {engine}"
        spark.sparkContext.setJobGroup(group, group)
        try:
            with settings(spark, engine | {ENABLED: enabled}):
                df = spark.sql(FORMS["inner"])
                shown = df._jdf.queryExecution().toString()
                explained = str(rewrite.explain(df))
        finally:
            spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        assert ("dynamicpruning" in shown or "Skipping(k by dim" in shown) == (enabled == "true")
        # Before Spark 4.1, without adaptive execution, subqueries that read the dimension again get
        # other ids.
        side = "dim" if RELEASE >= (4, 1) or engine != SMJ | PLAIN else "a dimension"
        assert (f"keys of {side} for k: collected when" in explained) == (enabled == "true")
        return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))

    jobs("false")  # Delta looks into its log, once
    assert jobs("true") <= jobs("false")
    with settings(spark, engine):
        df = spark.sql(FORMS["inner"])
        rewrite.explain(df)
        df.collect()
        assert [s.opened for s in rewrite.explain(df).scans if s.keys] == [1], "nor does it spoil"


@on_every_format
def test_rows_without_a_partner_are_dropped_before_a_shuffle(
    spark: SparkSession, star: Star
) -> None:
    query = "SELECT * FROM fact f JOIN dim ON f.k = dim.k WHERE dim.l IN (3, 28, 101)"
    found = exactly(spark, star, query, "k IN (3, 28, 101)", SMJ)
    (scan,) = [s for s in found.explained.scans if s.keys]
    assert scan.rows == (120, 12)
    off = exactly(
        spark, star, query, "k IN (3, 28, 101)", SMJ | {"spark.skipping.dynamic.rows": "false"}
    )
    (scan,) = [s for s in off.explained.scans if s.keys]
    assert scan.rows == (120, 120)


def test_switched_off(spark: SparkSession) -> None:
    query = FORMS["inner"]
    for key in (
        "spark.skipping.dynamic.enabled",
        "spark.sql.optimizer.dynamicPartitionPruning.enabled",
    ):
        found = same_rows(spark, query, conf={key: "false"})
        assert [s.keys for s in found.explained.scans] == [(), ()]
        assert found.opened == FILES + 1


@pytest.fixture(scope="module")
def many(spark: SparkSession, star: Star) -> None:
    """Eight files of 5,000 keys each, clustered; a dimension of 24,000 of their 40,000 keys."""
    rows = """SELECT id, id % 40000 AS k, repeat(md5(string(id)), 4) AS pad,
        int(id % 40000 / 5000) AS _f FROM range(80000)"""
    with star.of("delta"):
        make_table(spark, "crowd", rows)
        half = "SELECT id AS k, id % 2 AS half, 0 AS _f FROM range(8000, 32000)"
        make_table(spark, "crowd_dim", half)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("kinds", "files"),
    [
        ("k VALUE_LIST(5000)", 6),
        ("k MIN_MAX", 6),
        ("k VALUE_LIST, k MIN_MAX, k BLOOM_FILTER", 6),
        ("k BLOOM_FILTER", 8),  # of so many keys one is thought to be in every file
    ],
)
def test_thousands_of_keys(spark: SparkSession, many: None, kinds: str, files: int) -> None:
    spark.sql("DROP SKIPPING INDEX IF EXISTS ON crowd")
    spark.sql(f"CREATE SKIPPING INDEX ON crowd ({kinds})")
    # Each by a condition of another shape: what one saved says nothing of the next.
    shapes = ("d.k + 0", "abs(d.k)", "d.k - 0", "greatest(d.k, 0)")
    steps = ((1, 1), (100, None), (6_000, None), (12_000, files))
    for shape, (keys, opened) in zip(shapes, steps, strict=True):
        query = f"""SELECT count(*), sum(f.id) FROM crowd f JOIN crowd_dim d ON f.k = d.k
            WHERE half = 1 AND {shape} < {8000 + 2 * keys}"""
        found = same_rows(spark, query, conf=SMJ)
        (scan,) = [s for s in found.explained.scans if s.keys]
        assert scan.keys[0].keys == keys
        assert opened is None or (scan.opened or 0) <= opened, str(scan)
        assert scan.rows is not None
        # Up to 10,000 keys rows are tested one by one, beyond that in a bloom filter.
        assert 2 * keys <= scan.rows[1] <= 2 * keys * 1.1, scan.rows
        assert scan.rows[0] >= scan.rows[1]
