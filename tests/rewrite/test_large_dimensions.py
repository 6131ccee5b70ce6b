"""A dimension as large as the fact gives keys where its own index leaves little to read again.

Neither side is broadcast. Of what its conditions leave the keys are exact, so garbage in every
other file of both tables changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from rewrite.bridge.callbacks import Answers
from skipping.lookup.scan_plan import ScanPlan
from tests.rewrite.differential import (
    FORMATS,
    Compared,
    append,
    in_catalog_of,
    make_table,
    matching,
    same_rows,
    settings,
    spelled,
    spoiled,
)
from tests.rewrite.spark_suite import without_cheap

pytestmark = pytest.mark.nightly

FILES = 12
# Else the table tells by its own bounds where keys are, and the join's shuffle has them.
SMJ = {
    "spark.sql.exchange.reuse": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.skipping.statistics.enabled": "false",
}
ROWS = f"""SELECT id, IF(id % 97 = 0, NULL, int(id % 240)) AS k,
    concat('tag ', id % {FILES}) AS tag, int(id % {FILES}) AS r,
    repeat(md5(string(id)), 8) AS pad, int(id % {FILES}) AS _f FROM range"""
DEAR = "bytes) may cost more than it saves of"


@pytest.fixture(scope="module", params=FORMATS)
def tables(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    with in_catalog_of(spark, request.param), without_cheap(spark):
        make_table(spark, "calls", f"{ROWS}(960)", "k VALUE_LIST")
        make_table(spark, "orders", f"{ROWS}(480)", "k VALUE_LIST")
        make_table(spark, "events", f"{ROWS}(960)", "tag BLOOM_FILTER, r MIN_MAX, k VALUE_LIST")
        yield request.param
        for name in ("calls", "orders", "events"):
            spark.sql(f"DROP SKIPPING INDEX ON {name}")
            spark.sql(f"DROP TABLE {name}")


def joined(condition: str, events: str = "events") -> str:
    # Of what is not read Iceberg does not count the bytes.
    return f"SELECT c.id, e.* FROM calls c JOIN {events} e ON c.k = e.k WHERE {condition}"


def scan_of(found: Compared, table: str = "calls") -> ScanPlan:
    return next(scan for scan in found.explained.scans if scan.table.endswith(table))


def price_of(found: Compared) -> int:
    said = re.search(r"events a second time \((\d+) bytes\)", str(scan_of(found)))
    assert said, str(found.explained)
    return int(said[1])


def test_what_its_index_leaves_is_what_reading_it_again_costs(
    spark: SparkSession, tables: str
) -> None:
    query = joined("e.tag = 'tag 5'")
    found = same_rows(spark, query, conf=SMJ)
    assert found.rows
    assert scan_of(found).opened == 1, str(found.explained)
    assert " of events for k" in str(scan_of(found))
    needed = matching(spark, "calls", "r = 5") | matching(spark, "events", "r = 5")
    others = (matching(spark, "calls", "true") | matching(spark, "events", "true")) - needed
    assert len(others) == 2 * (FILES - 1)
    with spoiled(sorted(others)), settings(spark, SMJ):
        assert spelled(spark.sql(query).collect()) == found.rows


def test_whichever_side_and_form(spark: SparkSession, tables: str) -> None:
    for query in (
        "SELECT c.id FROM events e JOIN calls c ON c.k = e.k WHERE e.r BETWEEN 3 AND 4",
        "SELECT id FROM calls WHERE k IN (SELECT k FROM events WHERE tag IN ('tag 3', 'tag 4'))",
        "SELECT c.id FROM (SELECT k FROM events WHERE r = 3 GROUP BY k) e JOIN calls c USING (k)",
    ):
        found = same_rows(spark, query, conf=SMJ)
        assert found.rows
        assert scan_of(found).opened in (1, 2), str(found.explained)


def test_two_facts_over_one_key(spark: SparkSession, tables: str) -> None:
    found = same_rows(
        spark,
        """SELECT c.id, o.id AS o FROM calls c JOIN orders o ON c.k = o.k
        JOIN events e ON o.k = e.k WHERE e.tag = 'tag 7'""",
        conf=SMJ,
    )
    assert found.rows
    assert scan_of(found).opened == scan_of(found, "orders").opened == 1, str(found.explained)


def test_where_it_leaves_much_it_is_not_read_again(spark: SparkSession, tables: str) -> None:
    some = same_rows(spark, joined("e.r < 8"), conf=SMJ)
    whole = same_rows(spark, joined("length(e.pad) > 9"), conf=SMJ)
    assert scan_of(some).opened == scan_of(whole).opened == FILES
    assert DEAR in str(scan_of(some))
    assert 0.6 < price_of(some) / price_of(whole) < 0.7


def test_a_fact_that_its_own_conditions_leave_little_of(spark: SparkSession, tables: str) -> None:
    rows = "SELECT id, int(id) AS k, repeat(md5(string(id)), 8) AS pad, 0 AS _f FROM range(240)"
    make_table(spark, "some", rows)
    query = "SELECT e.id FROM events e JOIN some s ON e.k = s.k WHERE e.r < {} AND s.id % 12 = 5"
    whole = same_rows(spark, query.format(12), conf=SMJ)
    assert scan_of(whole, "events").opened == 1, str(whole.explained)
    part = same_rows(spark, query.format(1), conf=SMJ)
    assert DEAR in str(scan_of(part, "events")), str(part.explained)
    assert scan_of(part, "events").opened == 1
    spark.sql("DROP TABLE some")


def test_files_without_an_entry_count(spark: SparkSession, tables: str) -> None:
    rows = f"{ROWS}(960)"
    make_table(spark, "late", rows, "tag VALUE_LIST")
    append(spark, "late", rows)
    query = joined("e.tag = 'tag 5'", "late")
    assert DEAR in str(scan_of(same_rows(spark, query, conf=SMJ)))
    spark.sql("REFRESH SKIPPING INDEX ON late")
    assert scan_of(same_rows(spark, query, conf=SMJ)).opened == 1
    spark.sql("DROP SKIPPING INDEX ON late")
    spark.sql("DROP TABLE late")


def test_an_older_version_and_deleted_rows(spark: SparkSession, tables: str) -> None:
    properties = {
        "delta": {"delta.enableDeletionVectors": "true", "delta.columnMapping.mode": "name"},
        "iceberg": {"write.delete.mode": "merge-on-read", "format-version": "2"},
    }[tables]
    kinds = "tag VALUE_LIST, r MIN_MAX"
    make_table(spark, "past", f"{ROWS}(960)", kinds, properties=properties)
    if tables == "iceberg":
        snapshots = spark.table("iceberg.default.past.snapshots")
        old = f"VERSION AS OF {snapshots.first()['snapshot_id']}"  # type: ignore[index]
    else:
        old = "VERSION AS OF 1"
    spark.sql("ALTER TABLE past RENAME COLUMN tag TO label")
    spark.sql("DELETE FROM past WHERE id % 24 = 5")
    now = same_rows(spark, joined("e.label = 'tag 5'", "past"), conf=SMJ)
    # Iceberg fails by itself on the old name, once there are files of deletes.
    before = "e.tag = 'tag 5'" if tables == "delta" else "e.r = 5"
    then = same_rows(spark, joined(before, f"past {old}"), conf=SMJ)
    assert 0 < len(now.rows) < len(then.rows)
    assert scan_of(now).opened == scan_of(then).opened == 1, str(then.explained)
    spark.sql("DROP SKIPPING INDEX ON past")
    spark.sql("DROP TABLE past")


def test_an_index_that_does_not_answer(
    spark: SparkSession, tables: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    answer = Answers._find_prunable

    def count(*given: object) -> bytes:
        asked.append(given)
        return answer(*given)  # type: ignore[arg-type]

    query = joined("e.tag = 'tag 9' AND e.r = 9")
    monkeypatch.setattr(Answers, "_find_prunable", count)
    with settings(spark, SMJ):
        frame = spark.sql(query)
        frame._jdf.queryExecution().optimizedPlan()
        assert len(asked) == 1, "asked once, however often the rule runs"

    def die(*_: object) -> bytes:
        raise RuntimeError("the store is away")

    monkeypatch.setattr(Answers, "_find_prunable", die)
    found = same_rows(spark, query, conf={**SMJ, "spark.skipping.mode": "fallback"})
    assert DEAR in str(scan_of(found)), str(found.explained)
    assert found.opened == found.without


def test_a_dimension_without_a_condition_that_spark_broadcasts(
    spark: SparkSession, tables: str
) -> None:
    """Of 1 MB and more (here: any) it is small only against a hundred times as much."""
    spark.sql("SELECT k, tag FROM orders WHERE k % 12 < 2").coalesce(1).write.saveAsTable("few")
    try:
        query = "SELECT e.id FROM events e JOIN few d ON e.k = d.k"
        conf = {name: value for name, value in SMJ.items() if "Threshold" not in name}
        (scan,) = [
            scan
            for scan in same_rows(spark, query, conf=conf).explained.scans
            if scan.table.endswith("events")
        ]
        assert "few has no condition, and is not small" in str(scan)
        hinted = same_rows(spark, query.replace("SELECT", "SELECT /*+ BROADCAST(d) */"), conf=conf)
        assert hinted.skipped > 0
    finally:
        spark.sql("DROP TABLE few")
