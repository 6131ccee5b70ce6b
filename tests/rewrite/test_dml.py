"""DELETE, UPDATE and MERGE of Delta that look for their rows through the index: what they do to a
table is what they do to its twin without one, and they look into fewer files."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import rewrite
from tests.rewrite.differential import make_table, settings
from tests.rewrite.twelve_files import FILES, INDEX, ROWS, contents, location

ROOT = Path(__file__).parents[2]
ON = {"spark.skipping.dml": "true"}
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

# Commands that need all files, and what they say.
WHOLE = {
    "not matched by source": f"""MERGE INTO {{t}} t USING {SOURCE} ON t.k = s.k
        WHEN MATCHED THEN DELETE WHEN NOT MATCHED BY SOURCE AND t.k = 9 THEN UPDATE SET m = -9""",
    "no equality": f"""MERGE INTO {{t}} t USING {SOURCE} ON t.k + s.k = 14
        WHEN MATCHED THEN DELETE""",
    "any row": "UPDATE {t} SET i = i + 1",
}

TABLES = {
    "rewritten": {"delta.enableDeletionVectors": "false"},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "feed": {"delta.enableDeletionVectors": "false", "delta.enableChangeDataFeed": "true"},
    "vectors, feed": {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"},
    "mapped": {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"},
    "tracked": {"delta.enableRowTracking": "true", "delta.enableDeletionVectors": "false"},
}

Twins = Callable[[str], None]


@pytest.fixture(scope="module")
def originals(spark: SparkSession) -> dict[str, str]:
    """Where the tables are that the commands change copies of."""
    found = {}
    for name, properties in TABLES.items():
        table = f"original_{name.replace(', ', '_')}"
        make_table(spark, table, ROWS, properties=properties)
        found[name] = location(spark, table).removeprefix("file:")
    return found


@pytest.fixture
def twins(spark: SparkSession, originals: dict[str, str], tmp_path: Path) -> Iterator[Twins]:
    """Makes `indexed`, and `twin` without an index."""

    def make(kind: str) -> None:
        spark.sql("DROP SKIPPING INDEX IF EXISTS ON indexed")
        for name in ("indexed", "twin"):
            shutil.copytree(originals[kind], tmp_path / name)
            spark.sql(f"DROP TABLE IF EXISTS {name}")
            spark.sql(f"CREATE TABLE {name} USING delta LOCATION '{tmp_path / name}'")
        spark.sql(f"CREATE SKIPPING INDEX ON indexed ({INDEX})")

    yield make
    spark.sql("DROP SKIPPING INDEX IF EXISTS ON indexed")
    for name in ("indexed", "twin"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def folder(spark: SparkSession, table: str) -> Path:
    return Path(location(spark, table).removeprefix("file:"))


def committed(spark: SparkSession, table: str) -> Any:
    """What the last commit says, but for times, sizes, and the names of files that it made."""
    log = max((folder(spark, table) / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    copied = [{path.name for path in folder(spark, t).iterdir()} for t in ("indexed", "twin")]
    files = sorted(
        (
            kind,
            json.loads(file.get("stats") or "{}").get("numRecords"),
            (file.get("deletionVector") or {}).get("cardinality"),
            file["path"] if file["path"] in copied[0] & copied[1] else "",
        )
        for action in actions
        for kind, file in action.items()
        if kind in ("add", "remove", "cdc")
    )
    last = spark.sql(f"DESCRIBE HISTORY {table}").first()
    assert last is not None
    counted = {
        name: value
        for name, value in last.operationMetrics.items()
        if "Time" not in name and "Bytes" not in name
    }
    return last.operation, counted, files


def looks(spark: SparkSession, seen: int) -> list[Any]:
    """The scans of `indexed` since an execution that had files to leave out."""
    return [
        row
        for row in rewrite.history(spark).collect()
        if row.execution > seen and row.disproved is not None and "indexed" in row.table
    ]


def both(spark: SparkSession, statement: str) -> tuple[list[Any], list[Any]]:
    """Runs a statement on both, and compares; the answer, and how `indexed` was looked into."""
    seen = max((row.execution for row in rewrite.history(spark).collect()), default=-1)
    with settings(spark, ON):
        answer = spark.sql(statement.format(t="indexed")).collect()
    found = looks(spark, seen)
    with settings(spark, {"spark.skipping.enabled": "false"}):
        assert spark.sql(statement.format(t="twin")).collect() == answer
    assert contents(spark, "indexed") == contents(spark, "twin")
    assert committed(spark, "indexed") == committed(spark, "twin")
    return answer, found


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "kind",
    ["vectors", *(pytest.param(k, marks=pytest.mark.extended) for k in TABLES if k != "vectors")],
)
def test_a_command_looks_into_files_with_its_rows(
    spark: SparkSession, twins: Twins, kind: str, command: str
) -> None:
    twins(kind)
    statement, files = COMMANDS[command]
    _, found = both(spark, statement)
    # With no file at all Spark drops the scan.
    assert [(look.files, look.opened) for look in found[:1]] == [(FILES, files)] * (files > 0)
    # Again, on a table with files that the index does not know, and one with rows deleted.
    both(spark, statement)


@pytest.mark.parametrize("command", WHOLE)
def test_a_command_that_needs_all_files_sees_them(
    spark: SparkSession, twins: Twins, command: str
) -> None:
    twins("rewritten")
    _, found = both(spark, WHOLE[command])
    assert sum(look.disproved for look in found) == 0


def test_it_can_be_switched_off(spark: SparkSession, twins: Twins) -> None:
    twins("vectors")
    with settings(spark, {"spark.skipping.dml": "false"}):
        explained = rewrite.explain(spark.sql("DELETE FROM indexed WHERE k = 7"))
    assert "it changes: spark.skipping.dml is off" in str(explained)
    assert [scan.opened for scan in explained.scans] == [FILES]


def test_explain_shows_all_that_a_command_read(spark: SparkSession, twins: Twins) -> None:
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


def test_both_looks_of_an_update_are_explained(spark: SparkSession, twins: Twins) -> None:
    twins("rewritten")
    explained = rewrite.explain(spark.sql("UPDATE indexed SET i = 0 WHERE k = 7"))
    assert [scan.opened for scan in explained.scans] == [1, 1]


def test_the_release_whose_commands_are_known_is_the_one_that_is_pinned() -> None:
    source = (ROOT / "rewrite/jvm/source/DeltaSource.java").read_text()
    (release,) = re.findall(r'String RELEASE = "(.+)";', source)
    assert f'"delta-spark=={release}"' in (ROOT / "pyproject.toml").read_text()


def test_two_rows_for_one_fail_as_ever(spark: SparkSession, twins: Twins) -> None:
    twins("vectors")
    merge = """MERGE INTO indexed t USING (SELECT 7 AS k, id AS v FROM range(2)) s ON t.k = s.k
        WHEN MATCHED THEN UPDATE SET m = s.v"""
    before = contents(spark, "indexed")
    with settings(spark, ON), pytest.raises(Exception, match="MULTIPLE_SOURCE_ROW_MATCHING"):
        spark.sql(merge)
    assert contents(spark, "indexed") == before


def test_files_that_are_unknown_are_looked_into(spark: SparkSession, twins: Twins) -> None:
    twins("rewritten")
    for table in ("indexed", "twin"):
        spark.sql(f"INSERT INTO {table} (k, m) VALUES (7, -7)")
    answer, found = both(spark, "DELETE FROM {t} WHERE k = 7")
    assert answer[0].num_affected_rows == 2
    assert (found[0].unknown, found[0].opened) == (1, 2)


@st.composite
def statements(draw: st.DrawFn) -> str:
    key, other = draw(st.integers(0, 70)), draw(st.integers(0, 70))
    condition = draw(
        st.sampled_from([
            f"t.k = {key}", f"t.k IN ({key}, {other})", f"t.m BETWEEN {10 * key} AND {9 * key + 9}",
            f"t.name = 'n{key % 12}-{other % 5}'", f"t.n = {key % 12} AND t.i > 2", "t.n IS NULL",
            f"t.st.a = {key % 12} OR t.k = {other}", f"NOT t.k > {key % 9}",
        ])
    )  # fmt: skip
    source = draw(
        st.sampled_from([
            f"(SELECT id AS k, 100 * id AS m FROM range({key}, {key + 3})) s",
            f"(SELECT k, max(m) AS m FROM {{t}} WHERE k % 9 = {key % 9} GROUP BY k) s",
            f"(SELECT * FROM VALUES ({key}, 1), (NULL, 2), ({other + 100}, 3) AS s(k, m)) s",
        ])
    )  # fmt: skip
    on = draw(st.sampled_from(["t.k = s.k", "t.k = s.k", "s.k <=> t.k", "t.m = s.m AND t.i = 0"]))
    on += draw(st.sampled_from(["", "", " AND t.n > 3", " AND s.m > 1"]))
    does = draw(
        st.sampled_from([
            "WHEN MATCHED THEN UPDATE SET name = 'merged', m = t.m + 1",
            "WHEN MATCHED AND t.i > 1 THEN DELETE WHEN MATCHED THEN UPDATE SET n = 7",
            "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (k, m) VALUES (s.k, s.m)",
            "WHEN NOT MATCHED THEN INSERT (k, m, name) VALUES (s.k, s.m, 'new')",
            "WHEN NOT MATCHED AND s.k > 9 THEN INSERT (k) VALUES (s.k)",
            "WHEN MATCHED THEN UPDATE SET i = 3 WHEN NOT MATCHED BY SOURCE AND t.i > 3 THEN DELETE",
        ])
    )  # fmt: skip
    return draw(
        st.sampled_from([
            f"DELETE FROM {{t}} t WHERE {condition}",
            f"UPDATE {{t}} t SET k = k + 1, name = 'set' WHERE {condition}",
            f"MERGE INTO {{t}} t USING {source} ON {on} {does}",
            f"MERGE INTO {{t}} t USING {source} ON {on} {does}",
            "REFRESH SKIPPING INDEX ON indexed",
        ])
    )  # fmt: skip


@pytest.mark.extended
@pytest.mark.parametrize("kind", ["rewritten", "vectors, feed"])
def test_random_commands(spark: SparkSession, twins: Twins, kind: str) -> None:
    twins(kind)
    skipped = 0

    @hypothesis.settings(
        max_examples=int(os.environ.get("SKIPPING_TEST_QUERIES", "30")),
        deadline=None,
        derandomize=True,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(statements())
    def drawn(statement: str) -> None:
        nonlocal skipped
        if statement.startswith("REFRESH"):
            spark.sql(statement)
            return
        seen = max(row.execution for row in rewrite.history(spark).collect())
        failures = []
        for table, conf in (("indexed", ON), ("twin", {"spark.skipping.enabled": "false"})):
            with settings(spark, conf):
                try:
                    spark.sql(statement.format(t=table))
                    failures.append("")
                except Exception as failure:
                    failures.append(type(failure).__name__ + str(failure)[:40])
        assert failures[0] == failures[1], statement
        assert contents(spark, "indexed") == contents(spark, "twin"), statement
        skipped += sum(look.disproved for look in looks(spark, seen))

    drawn()
    assert skipped > 0
