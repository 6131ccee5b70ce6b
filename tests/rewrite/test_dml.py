"""DELETE, UPDATE and MERGE of Delta that look for their rows through the index: what they do to a
table is what they do to its twin without one, and they look into fewer files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import rewrite
from tests.rewrite.commands_twin import (
    NAMES,
    ON,
    TABLES,
    Originals,
    Twins,
    looks,
    newest,
    serving,
)
from tests.rewrite.differential import settings
from tests.rewrite.twelve_files import FILES, contents

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
VECTORS_OR_NOT = ("vectors", "rewritten")
SOURCE = "(SELECT * FROM VALUES (7, 1), (8, 2), (7000, 3) AS s(k, v)) s"

# What is done, and how many files hold a row that is looked for.
COMMANDS = {
    "delete": ("DELETE FROM {t} WHERE k = 7", 1),
    "delete a list": ("DELETE FROM {t} WHERE k IN (7, 8, 20)", 2),
    "delete files whole": ("DELETE FROM {t} WHERE m >= 1000", 2),
    "delete by several columns": ("DELETE FROM {t} WHERE name = 'n7-0' OR n IS NULL", 3),
    "delete nothing": ("DELETE FROM {t} WHERE k = 7000", 0),
    "update": ("UPDATE {t} SET k = k + 1000, name = 'x' WHERE k = 7 OR m = 300", 2),
    "update what is looked for": ("UPDATE {t} SET n = n + 1 WHERE n = 5", 1),
    "upsert": (
        f"""MERGE INTO {{t}} t USING {SOURCE} ON t.k = s.k
        WHEN MATCHED THEN UPDATE SET m = s.v WHEN NOT MATCHED THEN INSERT (k, m) VALUES (k, v)""",
        2,
    ),
    "merge, matched only": (
        f"""MERGE INTO {{t}} t USING {SOURCE} ON t.k = s.k
        WHEN MATCHED AND s.v = 1 THEN DELETE WHEN MATCHED AND t.m > 5 THEN UPDATE SET name = 'y'""",
        2,
    ),
    "merge, more conditions": (
        f"""MERGE INTO {{t}} t USING {SOURCE} ON t.k = s.k AND t.n > 7 AND s.v < t.m
        WHEN MATCHED THEN DELETE WHEN NOT MATCHED AND s.v > 1 THEN INSERT (k) VALUES (s.k)""",
        2,
    ),
    "merge, insert only": (
        f"""MERGE INTO {{t}} t USING {SOURCE} ON t.k = s.k
        WHEN NOT MATCHED THEN INSERT (k, m) VALUES (s.k, s.v)""",
        2,
    ),
    "merge, no match": (
        """MERGE INTO {t} t USING (SELECT 7000 AS k) s ON t.k = s.k
        WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (k) VALUES (s.k)""",
        0,
    ),
    "merge, two columns": (
        """MERGE INTO {t} t USING (SELECT * FROM VALUES (7, 700), (20, 801), (8, 0) AS s(k, m)) s
        ON t.k = s.k AND t.m = s.m WHEN MATCHED THEN UPDATE SET i = -1""",
        2,
    ),
}

# Those that also change rows without a match, and how many files hold a row that a clause changes.
UNMATCHED = {
    "an indexed column": (
        f"""MERGE INTO {{t}} t USING {SOURCE} ON t.k = s.k
        WHEN MATCHED THEN DELETE WHEN NOT MATCHED BY SOURCE AND t.k = 9 THEN UPDATE SET m = -9""",
        3,
    ),
    "several clauses": (
        f"""MERGE INTO {{t}} t USING {SOURCE} ON t.k = s.k
        WHEN MATCHED AND s.v = 1 THEN UPDATE SET m = 0
        WHEN NOT MATCHED THEN INSERT (k, m) VALUES (s.k, s.v)
        WHEN NOT MATCHED BY SOURCE AND t.k = 9 AND t.i < 9 THEN DELETE
        WHEN NOT MATCHED BY SOURCE AND t.m >= 1100 THEN UPDATE SET name = 'y'""",
        4,
    ),
    "no row of them": (
        f"""MERGE INTO {{t}} t USING {SOURCE} ON t.k = s.k
        WHEN NOT MATCHED BY SOURCE AND t.m > 7000 THEN DELETE""",
        2,
    ),
    "nulls": (
        """MERGE INTO {t} t USING (SELECT * FROM VALUES (7000), (8) AS s(k)) s
        ON t.k = s.k AND t.n > 1 WHEN MATCHED THEN DELETE
        WHEN NOT MATCHED BY SOURCE AND t.n IS NULL THEN DELETE""",
        3,
    ),
    "a source without rows": (
        """MERGE INTO {t} t USING (SELECT int(id) AS k FROM range(9) WHERE id % 10 = 9) s
        ON t.k = s.k WHEN MATCHED THEN DELETE WHEN NOT MATCHED BY SOURCE AND t.k = 9 THEN DELETE""",
        1,
    ),
    "ranges": (
        """MERGE INTO {t} t USING (SELECT * FROM VALUES (100, 103), (500, 501) AS s(a, b)) s
        ON t.m BETWEEN s.a AND s.b WHEN NOT MATCHED BY SOURCE AND t.k = 9 THEN DELETE""",
        3,
    ),
}

# Commands that need all files.
WHOLE = {
    "not matched by source, any row": f"""MERGE INTO {{t}} t USING {SOURCE} ON t.k = s.k
        WHEN NOT MATCHED BY SOURCE AND t.k = 9 THEN DELETE
        WHEN NOT MATCHED BY SOURCE THEN UPDATE SET m = -9""",
    "not matched by source, a column that is not known": f"""MERGE INTO {{t}} t USING {SOURCE}
        ON t.k = s.k WHEN NOT MATCHED BY SOURCE AND t.i = 4 THEN DELETE""",
    "no equality": f"""MERGE INTO {{t}} t USING {SOURCE} ON t.k + s.k = 14
        WHEN MATCHED THEN DELETE""",
    "any row": "UPDATE {t} SET i = i + 1",
}

Make = Callable[[str], Twins]


@pytest.fixture(scope="module")
def originals(spark: SparkSession) -> dict[str, str]:
    """Where the tables are that the commands change copies of."""
    return Originals(spark)


@pytest.fixture
def twins(spark: SparkSession, originals: dict[str, str], tmp_path: Path) -> Iterator[Make]:
    """Makes `indexed`, and `twin` without an index."""
    yield lambda kind: Twins.make(spark, originals, kind, tmp_path)
    Twins.drop(spark)


def both(tables: Twins, statement: str, *, fewer: bool = False) -> tuple[list[Any], list[Any]]:
    """Runs a statement on both, and compares; the answer, and how `indexed` was looked into. With
    `fewer`, it may rewrite fewer files of `indexed`."""
    spark = tables.spark
    seen = newest(spark)
    answers = []
    for table in NAMES:
        with serving(spark, table):
            answers.append(spark.sql(statement.format(t=table)).collect())
    found = list(looks(spark, seen))
    assert answers[0] == answers[1]
    assert contents(spark, "indexed") == contents(spark, "twin")
    assert tables.differ() is None
    assert fewer or tables.committed("indexed") == tables.committed("twin")
    return answers[0], found


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "kind",
    [
        "vectors",
        "rewritten",
        # Random commands draw all kinds of tables.
        *(pytest.param(k, marks=pytest.mark.soak) for k in TABLES if k not in VECTORS_OR_NOT),
    ],
)
def test_a_command_looks_into_files_with_its_rows(
    spark: SparkSession, twins: Make, kind: str, command: str
) -> None:
    tables = twins(kind)
    statement, files = COMMANDS[command]
    _, found = both(tables, statement)
    looks = [(look.total, look.opened) for look in found[:1]]
    # Without rows one file is opened, or none: adaptive execution may drop the scan from the plan.
    assert looks == [(FILES, files or 1)] or (files == 0 and looks == [])
    # Again, on a table with files that the index does not know, and one with rows deleted.
    both(tables, statement)


@pytest.mark.parametrize("command", UNMATCHED)
@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=() if k in VECTORS_OR_NOT else pytest.mark.soak) for k in TABLES]
)
def test_rows_without_a_match_need_the_files_that_may_meet_their_conditions(
    spark: SparkSession, twins: Make, kind: str, command: str
) -> None:
    tables = twins(kind)
    statement, files = UNMATCHED[command]
    _, found = both(tables, statement, fewer=True)
    assert [(look.total, look.opened) for look in found[:1]] == [(FILES, files)]
    # Again, on files that the index does not know.
    for adaptive in ("true", "false"):
        conf = {
            "spark.sql.autoBroadcastJoinThreshold": "-1",
            "spark.sql.adaptive.enabled": adaptive,
        }
        with settings(spark, conf):
            both(tables, statement, fewer=True)


@pytest.mark.parametrize("command", WHOLE)
def test_a_command_that_needs_all_files_sees_them(
    spark: SparkSession, twins: Make, command: str
) -> None:
    tables = twins("rewritten")
    _, found = both(tables, WHOLE[command])
    assert sum(look.pruned for look in found) == 0


def test_it_can_be_switched_off(spark: SparkSession, twins: Make) -> None:
    twins("vectors")
    with settings(spark, {"spark.skipping.dml": "false"}):
        explained = rewrite.explain(spark.sql("DELETE FROM indexed WHERE k = 7"))
    assert "it changes: spark.skipping.dml is off" in str(explained)
    assert [scan.opened for scan in explained.scans] == [FILES]


@pytest.mark.smoke
def test_explain_shows_all_that_a_command_read(spark: SparkSession, twins: Make) -> None:
    twins("vectors")
    command = spark.sql(COMMANDS["merge, matched only"][0].format(t="indexed"))
    explained = rewrite.explain(command)
    look, *again = (scan for scan in explained.scans if scan.table.endswith("indexed"))
    assert (look.total, look.opened, {scan.opened for scan in again}) == (FILES, 2, {2})
    assert "the command has found its files before" in str(explained)
    assert explained.execution is not None
    assert explained.execution[0] == "command"
    roots = {row.root for row in rewrite.history(spark).collect() if "indexed" in row.table}
    assert explained.execution[1] in roots


def test_both_looks_of_an_update_are_explained(spark: SparkSession, twins: Make) -> None:
    twins("rewritten")
    explained = rewrite.explain(spark.sql("UPDATE indexed SET i = 0 WHERE k = 7"))
    assert [scan.opened for scan in explained.scans] == [1, 1]


def test_commands_of_the_tested_releases_are_known() -> None:
    source = (ROOT / "rewrite/jvm/source/DeltaSource.java").read_text()
    (releases,) = re.findall(r"RELEASES = Set\.of\((.+)\);", source)
    pins = [path.read_text() for path in (ROOT / ".ci").glob("constraints*.txt")]
    tested = re.findall(r"^delta-spark==(.+)$", "\n".join(pins), re.MULTILINE)
    assert set(re.findall(r'"(.+?)"', releases)) == set(tested)


@pytest.mark.parametrize("on", ["t.k = s.k", "t.k = s.k AND t.i < 9"])
@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_the_source_is_counted_though_nothing_matches(
    spark: SparkSession, twins: Make, on: str, adaptive: str
) -> None:
    """Adaptive execution does not run one side of a join whose other side has no rows, and what
    Delta counts in the source it does after its last shuffle."""
    tables = twins("rewritten")
    conf = {
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.adaptive.enabled": adaptive,
        "spark.databricks.delta.merge.materializeSource": "none",
    }
    merge = f"""MERGE INTO {{t}} t USING (SELECT DISTINCT int(7000 + id % 40) AS k FROM range(80)) s
        ON {on} WHEN MATCHED THEN UPDATE SET m = 1 WHEN NOT MATCHED THEN INSERT (k) VALUES (s.k)"""
    with settings(spark, conf):
        _, found = both(tables, merge)
        explained = str(rewrite.explain(spark.sql(merge.format(t="indexed"))))
    if adaptive == "true":
        # A join without rows is no longer in the plan, if its empty side ended first.
        assert [look.opened for look in found] in ([], [1])
    elif on == "t.k = s.k":
        assert [scan.opened for scan in found] == [1]
    else:
        assert sum(scan.pruned for scan in found) == 0
        assert "Delta would miscount the source if no row met the other conditions" in explained


def test_two_rows_for_one_fail_as_ever(spark: SparkSession, twins: Make) -> None:
    twins("vectors")
    merge = """MERGE INTO indexed t USING (SELECT 7 AS k, id AS v FROM range(2)) s ON t.k = s.k
        WHEN MATCHED THEN UPDATE SET m = s.v"""
    before = contents(spark, "indexed")
    with settings(spark, ON), pytest.raises(Exception, match="MULTIPLE_SOURCE_ROW_MATCHING"):
        spark.sql(merge)
    assert contents(spark, "indexed") == before


def test_files_that_are_unknown_are_looked_into(spark: SparkSession, twins: Make) -> None:
    tables = twins("rewritten")
    for table in ("indexed", "twin"):
        spark.sql(f"INSERT INTO {table} (k, m) VALUES (7, -7)")
    answer, found = both(tables, "DELETE FROM {t} WHERE k = 7")
    assert answer[0].num_affected_rows == 2
    assert (found[0].unknown, found[0].opened) == (1, 2)
