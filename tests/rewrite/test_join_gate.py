"""When keys of a join are not collected, when collecting them fails, and tuples of keys."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import rewrite
from rewrite.bridge import protocol
from rewrite.bridge.callbacks import Answers, table_key
from rewrite.bridge.classes import Classes
from rewrite.bridge.install import find_hooks
from skipping import SkippingIndex
from skipping.lookup.scan_plan import ScanPlan
from tests.rewrite.differential import Compared, make_table, same_rows, settings, spelled, stages
from tests.rewrite.troubled_files import troubled

pytestmark = pytest.mark.nightly

SCRIPT = Path(__file__).with_name("join_limits.py")
FILES = 8
SMJ = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
PLAIN = {"spark.sql.adaptive.enabled": "false"}
APART = {"spark.sql.exchange.reuse": "false"}


@pytest.fixture(scope="module", autouse=True)
def tables(spark: SparkSession) -> Iterator[None]:
    rows = f"""SELECT id, int(id % 80) AS k, int(id % {FILES}) AS r,
        repeat(md5(string(id)), 8) AS pad, int(id % {FILES}) AS _f FROM range(320)"""
    make_table(spark, "gated", rows, "k VALUE_LIST, r VALUE_LIST")
    spark.sql(f"SELECT int(id) AS k, id % {FILES} AS name FROM range(80)").coalesce(1).write.format(
        "delta"
    ).saveAsTable("dimg")
    yield
    spark.sql("DROP SKIPPING INDEX ON gated")
    for name in ("gated", "dimg"):
        spark.sql(f"DROP TABLE {name}")


def joined(condition: str, fact: str = "gated") -> str:
    return f"SELECT f.id, d.name FROM {fact} f JOIN dimg d ON f.k = d.k WHERE {condition}"


def scan_of(found: Compared, table: str = "gated") -> ScanPlan:
    (scan,) = [s for s in found.explained.scans if s.table.endswith(table)]
    return scan


def test_a_partition_column_is_sparks_own(spark: SparkSession) -> None:
    frame = spark.table("gated").select("id", "k", "r", "pad").write.format("delta")
    frame.partitionBy("k").saveAsTable("gated_parts")
    spark.sql("CREATE SKIPPING INDEX ON gated_parts (k PARTITION, r VALUE_LIST)")
    scan = scan_of(same_rows(spark, joined("name = 3", "gated_parts")), "gated_parts")
    assert "k is a partition column, and pruned by Spark" in str(scan)
    assert scan.opened == 10
    first = (
        "SELECT f.id FROM gated_parts f JOIN (SELECT k FROM dimg ORDER BY name LIMIT 3) USING (k)"
    )
    scan = scan_of(same_rows(spark, first), "gated_parts")
    assert "a LIMIT or a sample, and partitions get their keys first" in str(scan)
    spark.sql("DROP SKIPPING INDEX ON gated_parts")
    spark.sql("DROP TABLE gated_parts")


def test_a_single_file(spark: SparkSession) -> None:
    spark.table("gated").coalesce(1).write.format("delta").saveAsTable("gated_one")
    spark.sql("CREATE SKIPPING INDEX ON gated_one (k VALUE_LIST)")
    scan = scan_of(same_rows(spark, joined("name = 3", "gated_one")), "gated_one")
    assert "the scan has a single file" in str(scan)
    spark.sql("DROP SKIPPING INDEX ON gated_one")
    spark.sql("DROP TABLE gated_one")


def test_a_dimension_that_is_too_dear_to_read_twice(spark: SparkSession) -> None:
    # Else the large table takes the keys of the small one, by its own bounds.
    with settings(spark, {"spark.skipping.statistics.enabled": "false"}):
        check_a_dimension_that_is_too_dear(spark)


def check_a_dimension_that_is_too_dear(spark: SparkSession) -> None:
    dear = spark.range(0, 400_000).selectExpr("int(id) AS k", "uuid() AS t", "id % 8 AS name")
    dear.write.format("delta").saveAsTable("dear")
    query = "SELECT f.id FROM gated f JOIN dear d ON f.k = d.k WHERE name = 3"
    scan = scan_of(same_rows(spark, query, conf=SMJ | APART))
    assert "a second time" in str(scan), str(scan)
    assert scan.opened == FILES
    scan = scan_of(same_rows(spark, query, conf=SMJ))
    assert "reading the shuffle of dear once more" in str(scan), str(scan)
    assert scan.opened == FILES
    broadcast = query.replace("SELECT", "SELECT /*+ BROADCAST(d) */")
    assert scan_of(same_rows(spark, broadcast)).opened in (1, FILES)
    # Two parts that Spark reads once stay equal with the keys of its shuffle, and without keys.
    merged = query.replace("SELECT f.id", "SELECT /*+ MERGE(f, d) */ f.k, count(*)")
    twice = f"WITH c AS ({merged} GROUP BY f.k) SELECT * FROM c UNION ALL SELECT * FROM c"
    once = twice.replace("dear d", "(SELECT explode(array(k)) AS k, name FROM dimg) d")
    found = same_rows(spark, once)
    assert scan_of(found).opened == 1, str(found.explained)
    found = same_rows(spark, twice, conf=PLAIN)
    assert "Spark does not broadcast it" in str(found.explained)
    assert found.opened == found.without
    # Nor where one of them has no keys and no condition: Spark does not ask what is never null.
    spark.sql("CREATE TABLE whole (k INT NOT NULL) USING delta")
    spark.sql("INSERT INTO whole SELECT /*+ REPARTITION(4) */ int(id % 80) FROM range(320)")
    spark.sql("CREATE SKIPPING INDEX ON whole (k VALUE_LIST)")
    found = same_rows(
        spark,
        """WITH c AS (SELECT k, count(*) AS n FROM whole GROUP BY k)
        SELECT /*+ MERGE(c, d) */ c.* FROM c JOIN dear d ON c.k = d.k WHERE name = 3
        UNION ALL SELECT * FROM c""",
        conf=PLAIN,
    )
    assert "Spark does not broadcast it" in str(found.explained)
    assert found.opened == found.without
    spark.sql("DROP SKIPPING INDEX ON whole")
    spark.sql("DROP TABLE whole")
    spark.sql("DROP TABLE dear")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT f.id FROM gated f JOIN cheap d ON f.k = d.k WHERE name = 3",
        "SELECT f.id FROM gated f JOIN (SELECT k FROM cheap WHERE name = 3 GROUP BY k) d USING (k)",
        "SELECT f.id FROM gated f JOIN cheap d ON f.k BETWEEN d.k AND d.k WHERE name = 3",
        "SELECT id FROM gated WHERE k = 3 OR k IN (SELECT k FROM cheap WHERE name = 3)",
        "SELECT d.t FROM cheap d LEFT ANTI JOIN gated f ON f.k = d.k WHERE name = 3",
    ],
    ids=["inner", "aggregated", "a range", "OR", "anti"],
)
def test_a_dimension_that_is_cheap_to_read_twice(spark: SparkSession, query: str) -> None:
    """It is larger than all that its keys can save, but below 1 MB."""
    cheap = spark.range(0, 12_000).selectExpr("int(id) AS k", "uuid() AS t", "id % 8000 AS name")
    cheap.coalesce(1).write.format("delta").saveAsTable("cheap")
    try:
        # Else the large table takes the keys of the small one, by its own bounds.
        own = {"spark.skipping.statistics.enabled": "false"}
        scan = scan_of(same_rows(spark, query, conf=SMJ | own))
        assert scan.opened == 1, str(scan)
    finally:
        spark.sql("DROP TABLE cheap")


def test_what_saved_nothing_is_not_asked_again_but_now_and_then(spark: SparkSession) -> None:
    """History flips the decision; and where it was wrong, it recovers."""

    def run(query: str) -> ScanPlan:
        _let_time_pass(spark)
        return scan_of(same_rows(spark, query))

    useless = joined("name >= 0 AND pmod(d.k, 80) >= {}")
    scans = [run(useless.format(0)) for _ in range(5)]
    assert [bool(s.keys) for s in scans] == [True, False, True, False, False]
    assert "keys of this shape saved less than 1 % of the files lately" in str(scans[-1])
    # The same shape with another value would save; it is found out within ten queries.
    opened = [run(useless.format(79)).opened for _ in range(12)]
    assert opened[0] == FILES
    assert opened[-1] == 1
    assert 1 in opened[:10]


def test_what_keys_saved_is_forgotten_when_the_index_is_altered(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By this driver, and by another one as soon as this one knows of it."""
    rows = f"SELECT id, int(id % 80) AS k, int(id % {FILES}) AS _f FROM range(320)"
    make_table(spark, "altered", rows, "k MIN_MAX")
    table = SkippingIndex.on(spark, "altered").definition.table
    hooks = find_hooks(spark)
    assert hooks is not None

    def opened() -> int | None:
        query = joined("d.name = 3", "altered")
        return scan_of(same_rows(spark, query, conf=SMJ), "altered").opened

    assert [opened() for _ in range(3)] == [FILES] * 3, "every file has small keys and large ones"
    spark.sql("ALTER SKIPPING INDEX ON altered ADD (k VALUE_LIST)")
    assert opened() == 1
    spark.sql("ALTER SKIPPING INDEX ON altered DROP (k VALUE_LIST)")
    assert [opened() for _ in range(3)] == [FILES] * 3
    # As another driver does it: nobody tells this one.
    monkeypatch.setattr("skipping.index.invalidate", lambda _: None)
    monkeypatch.setattr("skipping.commands.execute.invalidate", lambda _: None)
    with settings(spark, {"spark.skipping.cache.ttl": "0"}):
        before = hooks.java.client().revision(table_key(table))
        spark.sql("ALTER SKIPPING INDEX ON altered ADD (k VALUE_LIST)")
        end = time.monotonic() + 60
        while hooks.java.client().revision(table_key(table)) == before:
            assert time.monotonic() < end
            time.sleep(0.1)
        assert opened() == 1
    spark.sql("DROP SKIPPING INDEX ON altered")
    spark.sql("DROP TABLE altered")


def test_keys_that_were_lost_are_not_tried_again_at_once(spark: SparkSession) -> None:
    classes = Classes(spark.sparkContext._gateway)
    feedback = classes.new("keys.PruningFeedback")
    source = classes.new(
        "keys.KeySource", "d", "shape", "10", 1, None, "a join", False, False, None, None
    )
    feedback.recordFailure(source, "there are too many", 60.0)
    lately = "keys were not collected lately: there are too many"
    assert feedback.rejectReason("shape", "10", 1) == lately
    assert feedback.rejectReason("shape", "99", 1) is None
    assert feedback.rejectReason("another", "10", 1) is None
    feedback.recordFailure(source, "there are too many", 0.0)
    assert feedback.rejectReason("shape", "10", 1) is None


def test_keys_that_took_long_and_pruned_nothing_wait_longer_than_some_queries(
    spark: SparkSession,
) -> None:
    feedback, source = _feedback(spark)
    for seconds, fraction, is_paused in ((60.0, 0.0, True), (0.0, 0.0, False), (60.0, 1.0, False)):
        feedback.recordBenefit(source, fraction, seconds)
        outcome = _field(feedback, "outcomes").get("shape")
        _find_field(outcome, "rejected").setInt(outcome, 40)  # more queries than any pause has
        assert (feedback.rejectReason("shape", "10", 1) is not None) == is_paused


def test_each_useless_try_in_turn_doubles_the_pause_up_to_eight_times(spark: SparkSession) -> None:
    feedback, source = _feedback(spark)
    for fraction, times in ((0.0, 1), (0.0, 2), (0.0, 4), (0.0, 8), (0.0, 8), (1.0, 1), (0.0, 1)):
        feedback.recordBenefit(source, fraction, 60.0)
        pause = _field(_field(feedback, "outcomes").get("shape"), "resumes")
        seconds = (pause - spark._jvm.System.nanoTime()) / 1e9
        assert fraction == 1.0 or 20 * 60 * times - 60 < seconds <= 20 * 60 * times


def test_keys_of_rows_that_are_computed_once_whose_source_is_forgotten(spark: SparkSession) -> None:
    """A long query may outlive what is remembered of its joins."""
    query = """SELECT f.id FROM gated f
        JOIN (SELECT k FROM dimg ORDER BY name LIMIT 3) d ON f.k = d.k"""
    hooks = find_hooks(spark)
    assert hooks is not None
    for is_forgotten, opened in ((False, 1), (True, FILES)):
        df = spark.sql(query)
        df._jdf.queryExecution().optimizedPlan()
        if is_forgotten:
            _field(_field(hooks.java, "registry"), "sources").clear()
        assert len(df.collect()) == 12
        (scan,) = [s for s in rewrite.explain(df).scans if s.table.endswith("gated")]
        assert scan.opened == opened, str(scan)
    assert "Spark did not collect them" in str(scan)


def _feedback(spark: SparkSession) -> tuple[Any, Any]:
    """Return new feedback, and a source of keys whose query is unknown."""
    classes, unknown = Classes(spark.sparkContext._gateway), spark._jvm.java.lang.ref.WeakReference
    feedback = classes.new("keys.PruningFeedback")
    source = classes.new(
        "keys.KeySource", "d", "shape", "10", 1, None, "a join", False, False, None, unknown(None)
    )
    return feedback, source


def _let_time_pass(spark: SparkSession) -> None:
    """End the time in which keys that pruned nothing are not tried again."""
    hooks = find_hooks(spark)
    assert hooks is not None
    for outcome in _field(hooks.java.feedback(), "outcomes").values():
        _find_field(outcome, "resumes").setLong(outcome, spark._jvm.System.nanoTime())


def _field(of: Any, name: str) -> Any:
    return _find_field(of, name).get(of)


def _find_field(of: Any, name: str) -> Any:
    field = of.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field


@pytest.mark.parametrize(
    ("other", "here"),  # the session remembers shapes: each has a condition of its own
    [("name < {1}", "name <> 77"), ("name >= 1 AND name < 1 + {1}", "name NOT IN (77, 78)")],
    ids=["of two shapes", "of one shape"],
)
def test_keys_that_keep_spark_from_reading_once_for_two_parts(
    spark: SparkSession, other: str, here: str
) -> None:
    """A table that is named twice is read once; pruned by other keys each time it is read twice."""
    query = f"""WITH sums AS (SELECT k, sum(id) AS n FROM gated GROUP BY k)
        SELECT s.* FROM sums s JOIN dimg d ON s.k = d.k
        WHERE name >= {{0}} AND name < {{0}} + {{1}} AND {here}
        UNION ALL
        SELECT s.* FROM sums s JOIN dimg d ON s.k = d.k WHERE {other} AND {here}"""

    def opened(first: int, names: int) -> list[int | None]:
        _let_time_pass(spark)
        scans = reversed_rows(spark, query.format(first, names), {}).explained.scans
        return [s.opened for s in scans if s.table.endswith("gated")]

    assert [opened(3, 1) for _ in range(4)] == [[1, 1]] * 4
    in_vain = [[6, 6], *[[FILES]] * 7]  # a try costs as much as the query
    assert [opened(2, 6) for _ in range(9)] == [*in_vain, [6, 6]]


@pytest.fixture
def pairs(spark: SparkSession) -> Iterator[None]:
    """A file for each pair of `a` and `b`, and some pairs to join with."""
    rows = """SELECT int(id / 16) AS a, int(id / 4) % 4 AS b, id, repeat(md5(string(id)), 8) AS pad,
        int(id / 4) AS _f FROM range(64)"""
    make_table(spark, "pairs", rows, "a VALUE_LIST, b VALUE_LIST")
    spark.sql(
        "SELECT * FROM VALUES (0, 1, 1), (2, 3, 1), (3, 3, 2), (NULL, 2, 1) t(a, b, n)"
    ).coalesce(1).write.format("delta").saveAsTable("pair_dim")
    yield
    spark.sql("DROP SKIPPING INDEX ON pairs")
    for name in ("pairs", "pair_dim"):
        spark.sql(f"DROP TABLE {name}")


EVERY_WAY = pytest.mark.parametrize(
    "conf", [{}, SMJ, PLAIN, SMJ | PLAIN], ids=["adaptive", "sort-merge", "plain", "plain, sort"]
)


@EVERY_WAY
def test_tuples(spark: SparkSession, pairs: None, conf: dict[str, str]) -> None:
    """(0, 1) and (2, 3) are not (0, 3)."""
    query = "SELECT * FROM pairs f JOIN pair_dim d ON f.a = d.a AND f.b = d.b WHERE n = 1"
    found = scan_of(same_rows(spark, query, conf=conf), "pairs")
    assert found.opened == 2
    assert (" tuples of pair_dim for (a, b)" in str(found)) is (SMJ.items() <= conf.items())
    cast = "(SELECT bigint(a) AS a, string(b) AS b, n FROM pair_dim) d"
    same_rows(spark, query.replace("pair_dim d", cast), conf=conf)


@pytest.mark.parametrize("conf", [SMJ, SMJ | PLAIN], ids=["adaptive", "plain"])
def test_tuples_come_from_a_hinted_broadcast(
    spark: SparkSession, pairs: None, conf: dict[str, str]
) -> None:
    """Spark broadcasts the dimension anyway, so nothing reads it again for the tuples."""
    query = """SELECT /*+ BROADCAST(d) */ * FROM pairs f JOIN pair_dim d ON f.a = d.a AND f.b = d.b
        WHERE n = 1"""
    scan = scan_of(same_rows(spark, query, conf=conf), "pairs")
    assert scan.opened == 2
    assert [keys.how for keys in scan.keys] == ["from the broadcast"] * 2, str(scan)
    assert " tuples of pair_dim" not in str(scan)


def test_tuples_are_sent_once_if_a_subquery_is_awaited(
    spark: SparkSession, pairs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[list[str]] = []
    find = Answers._find_prunable

    def record(self: Answers, lookup: Any, header: Any, *rest: Any) -> bytes:
        sent.append([each[protocol.OP] for each in header[protocol.FILTERS][protocol.OPERANDS]])
        return find(self, lookup, header, *rest)

    monkeypatch.setattr(Answers, "_find_prunable", record)
    query = """SELECT f.id FROM pairs f JOIN pair_dim d ON f.a = d.a AND f.b = d.b
        WHERE d.n = 1 AND f.b >= (SELECT min(n) FROM pair_dim)"""
    assert scan_of(same_rows(spark, query), "pairs").opened == 2
    with_tuples = [operands for operands in sent if protocol.OR in operands]
    assert [operands.count(protocol.OR) for operands in with_tuples] == [1], sent


@pytest.mark.parametrize("conf", [SMJ, PLAIN], ids=["sort-merge", "plain"])
def test_many_tuples(spark: SparkSession, pairs: None, conf: dict[str, str]) -> None:
    """A few are asked for; of more none are, and no row is lost."""
    make_table(
        spark, "many", "SELECT id, int(id div 8) AS a, int(id % 8) AS b, 0 AS _f FROM range(64)"
    )
    for b in ("b", "string(b)"):
        for last in (48, 49, 50, 51, 52, 60):
            some = f"(SELECT a, {b} AS b FROM many WHERE id <= {last}) d"
            for join in ("JOIN", "LEFT ANTI JOIN", "LEFT SEMI JOIN"):
                fact = f"(SELECT a, {b} AS b, id FROM many WHERE id <> {last % 7}) f"
                query = f"SELECT * FROM {fact} {join} {some} ON f.a = d.a AND f.b = d.b"
                same_rows(spark, query, conf=conf)
        some = f"(SELECT a, {b} AS b FROM many WHERE id > 3) d"
        query = (
            f"SELECT f.* FROM pairs f JOIN {some} ON f.a = d.a AND {b.replace('b', 'f.b')} = d.b"
        )
        found = scan_of(same_rows(spark, query, conf=conf), "pairs")
        if SMJ.items() <= conf.items():
            assert "there are many tuples" in str(found), str(found)
    spark.sql("DROP TABLE many")


@EVERY_WAY
def test_a_dimension_in_two_roles(spark: SparkSession, pairs: None, conf: dict[str, str]) -> None:
    """Spark broadcasts it once for both, but a row may have a partner in each."""
    for query in (
        "SELECT f.id, p.n FROM pairs f JOIN pair_dim p ON f.a = p.a JOIN pair_dim q ON f.b = q.a"
        " WHERE p.n = 1 AND q.n = 1",
        "SELECT id FROM pairs WHERE a IN (SELECT a FROM pair_dim WHERE n = 1)"
        " AND b IN (SELECT a FROM pair_dim WHERE n = 1)",
        "WITH c AS (SELECT a + 0 AS k, b AS l FROM pair_dim WHERE n = 1) SELECT f.id FROM pairs f"
        " JOIN c p ON f.a = p.k JOIN c q ON f.b = q.k",
        "WITH c AS (SELECT a + 0 AS k, b AS l FROM pair_dim WHERE n = 1) SELECT f.id FROM pairs f"
        " JOIN c p ON f.a = p.k AND f.b = p.l JOIN c q ON f.b = q.k AND f.a = q.l - 1",
    ):
        assert same_rows(spark, query, conf=conf).skipped > 0


@pytest.mark.parametrize("conf", [SMJ, SMJ | PLAIN], ids=["adaptive", "plain"])
def test_collecting_fails(spark: SparkSession, tmp_path: Path, conf: dict[str, str]) -> None:
    """The dimension cannot be read the first time, which is when its keys are collected."""
    query = joined(f"name {other_shape(conf)} = 3").replace("dimg", "away")
    fallback = {"spark.skipping.mode": "fallback"}
    with troubled(spark, tmp_path, "away"), settings(spark, fallback):
        found = scan_of(reversed_rows(spark, query, conf))
    assert "collecting failed" in str(found), str(found)
    assert len(found.keys) == 1
    assert found.opened == FILES


def other_shape(conf: dict[str, str]) -> str:
    """What makes a condition another one: what was lost a moment ago is not tried again."""
    return "+ 0" if PLAIN.items() <= conf.items() else "- 0"


def reversed_rows(spark: SparkSession, query: str, conf: dict[str, str]) -> Compared:
    """As `same_rows`, but first with the index."""
    with settings(spark, conf):
        df = spark.sql(query)
        rows = spelled(df.collect())
        explained = rewrite.explain(df)
        with settings(spark, {"spark.skipping.enabled": "false"}):
            assert spelled(spark.sql(query).collect()) == rows
    return Compared(rows, 0, 0, explained)


@pytest.mark.parametrize("conf", [SMJ, SMJ | PLAIN], ids=["adaptive", "plain"])
def test_collecting_takes_too_long(
    spark: SparkSession, tmp_path: Path, conf: dict[str, str]
) -> None:
    """All dimensions of a query are waited for once."""
    query = """SELECT f.id FROM gated f JOIN slow d ON f.k = d.k JOIN slower e ON f.r = e.k
        WHERE abs(d.name {0}) = 3 AND abs(e.name {0}) < 7""".format(other_shape(conf))
    with troubled(spark, tmp_path, "slow", "slower", seconds=20):
        found = scan_of(reversed_rows(spark, query, conf | {"spark.sql.broadcastTimeout": "3"}))
    assert "collecting took longer than spark.sql.broadcastTimeout" in str(found), str(found)
    assert found.opened == FILES
    assert len(found.keys) == 2
    waited = [keys.seconds or 0 for keys in found.keys]
    assert 2.9 < max(waited) < 5.9, waited  # not 3 for the one, and then 3 for the other


def test_keys_are_counted_by_their_bytes(spark: SparkSession) -> None:
    """Of a hundred strings of 100 kB the driver gets the lengths."""
    rows = f"""SELECT id, 'x' || id AS s, int(id % {FILES}) AS _f,
        concat_ws('', transform(sequence(1, 400), i -> md5(string(id * 400 + i)))) AS pad
        FROM range(320)"""
    make_table(spark, "texts", rows, "s VALUE_LIST")
    spark.sql(
        """SELECT IF(id < 100, repeat('y', 100000), 'x') || id % 100 AS s, id % 100 AS name
        FROM range(101)"""
    ).write.format("delta").saveAsTable("long_keys")
    query = """SELECT f.id FROM texts f JOIN (SELECT /*+ REPARTITION(1) */ * FROM long_keys) d
        ON f.s = d.s WHERE d.name >= 0"""
    small = {"spark.skipping.dynamic.maxBytes": "2m"}
    for conf in (SMJ, SMJ | PLAIN):
        scan = scan_of(reversed_rows(spark, query, conf | small), "texts")
        assert "there are more than spark.skipping.dynamic.maxBytes hold" in str(scan), str(scan)
        assert scan.opened == FILES
        # A few of them fit.
        few = query.replace("d.name >= 0", "d.name = 0")
        scan = scan_of(reversed_rows(spark, few, conf | small), "texts")
        assert [keys.keys for keys in scan.keys] == [2], str(scan)
        assert scan.opened == 1
    spark.sql("DROP SKIPPING INDEX ON texts")
    for name in ("texts", "long_keys"):
        spark.sql(f"DROP TABLE {name}")


def result_bytes(spark: SparkSession) -> int:
    """What all stages so far have sent to the driver."""
    return sum(stage.resultSize() for stage in stages(spark))


def test_tuples_are_counted_by_their_bytes(spark: SparkSession) -> None:
    """Of a hundred tuples with a text of 100 kB the driver gets the lengths."""
    rows = "SELECT id, 'x' || id AS s, int(id % 8) AS b, int(id % 8) AS _f FROM range(320)"
    rows = f"SELECT *, repeat(md5(s), 99) AS pad FROM ({rows})"
    make_table(spark, "long_fact", rows, "(s, b) VALUE_LIST")
    spark.sql(
        """SELECT IF(id < 100, repeat('y', 100000), IF(id < 101, 'x9', NULL)) AS s,
        int(id % 100) + IF(id = 100, 1, 0) AS b, id % 100 AS name FROM range(102)"""
    ).write.format("delta").saveAsTable("long_keys")
    query = """SELECT f.id FROM long_fact f JOIN (SELECT /*+ REPARTITION(1) */ * FROM long_keys) d
        ON f.s = d.s AND f.b = d.b WHERE d.name {}"""
    conf = {"spark.sql.autoBroadcastJoinThreshold": "-1", "spark.skipping.dynamic.maxBytes": "2m"}
    for condition, told in (
        (">= 0", "there are more than spark.skipping.dynamic.maxBytes hold"),
        ("< 2", "(s, b) IN (3 keys of long_keys)"),
    ):
        before = result_bytes(spark)
        scan = scan_of(same_rows(spark, query.format(condition), conf=conf), "long_fact")
        assert scan.opened == 1, str(scan)
        assert told in str(scan)
        assert result_bytes(spark) - before < 1_000_000
    spark.sql("DROP SKIPPING INDEX ON long_fact")
    for name in ("long_fact", "long_keys"):
        spark.sql(f"DROP TABLE {name}")


def test_a_callback_that_dies(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> bytes:
        raise MemoryError("no more")

    monkeypatch.setattr(Answers, "apply", die)
    with settings(spark, {"spark.skipping.mode": "fallback"}):
        for conf in ({}, SMJ, PLAIN):
            scan = scan_of(same_rows(spark, joined("name = 3"), conf=conf))
            assert scan.opened == FILES
            assert "asking the index failed" in str(scan)


@pytest.mark.soak
def test_conformance_46_many_keys_few_threads_little_memory(tmp_path: Path) -> None:
    """What only a session of its own can be set to: see the script."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path), "3", "8"],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert "all is well" in done.stdout, done.stdout[-2000:] + done.stderr[-4000:]
