"""DELETE, UPDATE and MERGE of Iceberg that look for their rows through the index: what they do to a
table is what they do to its twin without one, and they look into fewer files."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

import rewrite
from tests.rewrite.differential import ENABLED, make_table, settings, spelled
from tests.rewrite.iceberg.tables import FILES, INDEX, MERGE_ON_READ, ROWS, delete_by_value, drop

pytestmark = pytest.mark.nightly

SOURCE = "(SELECT * FROM VALUES (3, 'a'), (11, 'b'), (7000, 'c') AS s(k, v)) s"
DML = "spark.skipping.dml"

# What is done, and in how many of eight files its rows are looked for.
COMMANDS = {
    "delete": ("DELETE FROM {t} WHERE k = 3", 1),
    "delete by another table": ("DELETE FROM {t} WHERE k IN (SELECT k FROM few WHERE k = 5)", 1),
    "update": ("UPDATE {t} SET pad = 'x' WHERE k IN (4, 12) AND id > 100", 1),
    "update by another table": (
        "UPDATE {t} SET k = k + 1000 WHERE EXISTS (SELECT 1 FROM few WHERE few.k = {t}.k"
        " AND few.k < 2)",
        2,
    ),
    "upsert": (
        f"""MERGE INTO {{t}} t USING {SOURCE} ON t.k = s.k WHEN MATCHED THEN UPDATE SET pad = v
        WHEN NOT MATCHED THEN INSERT (id, k, pad) VALUES (k, k, v)""",
        1,
    ),
    "merge, matched only": (
        f"""MERGE INTO {{t}} t USING {SOURCE} ON t.k = s.k AND t.id > 20
        WHEN MATCHED AND s.k = 3 THEN DELETE WHEN MATCHED THEN UPDATE SET pad = 'y'""",
        1,
    ),
    "merge, insert only": (
        f"""MERGE INTO {{t}} t USING {SOURCE} ON t.k = s.k
        WHEN NOT MATCHED THEN INSERT (id, k, pad) VALUES (k, k, v)""",
        1,
    ),
}
# Those that also change rows without a match: a command that replaces files needs all of them.
UNMATCHED = {
    "a condition": (
        f"""MERGE INTO {{t}} t USING {SOURCE} ON t.k = s.k WHEN MATCHED THEN DELETE
        WHEN NOT MATCHED BY SOURCE AND t.k = 7 THEN UPDATE SET pad = 'z'""",
        2,
    ),
    "several clauses": (
        f"""MERGE INTO {{t}} t USING {SOURCE} ON t.k = s.k WHEN MATCHED THEN UPDATE SET pad = v
        WHEN NOT MATCHED THEN INSERT (id, k, pad) VALUES (k, k, v)
        WHEN NOT MATCHED BY SOURCE AND t.s = 's12' AND t.id > 20 THEN DELETE
        WHEN NOT MATCHED BY SOURCE AND t.m = 5 THEN UPDATE SET pad = 'z'""",
        3,
    ),
    "a source that runs once": (
        """MERGE INTO {t} t USING (SELECT explode(array(3, 11, 7000)) AS k FROM range(1)) s
        ON t.k = s.k WHEN MATCHED THEN DELETE
        WHEN NOT MATCHED BY SOURCE AND t.k = 7 THEN UPDATE SET pad = 'z'""",
        2,
    ),
    "any row": (
        f"""MERGE INTO {{t}} t USING {SOURCE} ON t.k = s.k WHEN MATCHED THEN DELETE
        WHEN NOT MATCHED BY SOURCE THEN UPDATE SET pad = 'z'""",
        FILES,
    ),
}
MODES = [("copy-on-write", "2"), ("merge-on-read", "2"), ("merge-on-read", "3")]


def last(spark: SparkSession, table: str) -> Any:
    """The last snapshot: its id, and what it says of its commit, but for ids, times and bytes."""
    row = spark.sql(
        f"SELECT * FROM iceberg.default.{table}.snapshots ORDER BY committed_at DESC"
    ).first()
    assert row is not None
    ours = ("records", "files", "deletes", "rows")
    # Into how many files tasks write is up to Spark.
    written = ("added-data-files", "total-data-files")
    counts = {k: v for k, v in row.summary.items() if k.endswith(ours) and k not in written}
    return row.snapshot_id, (row.operation, counts)


def roll_back(spark: SparkSession, table: str, snapshot: int) -> None:
    spark.sql(f"CALL iceberg.system.rollback_to_snapshot('default.{table}', {snapshot})")


def looks(spark: SparkSession, statement: str) -> list[tuple[int, int]]:
    """Runs a command on `t`; of each of its scans that was asked about the files, and those that
    it opened."""
    command = spark.sql(statement.format(t="t"))
    scans = rewrite.explain(command).scans
    return [(s.total, s.opened or 0) for s in scans if s.total is not None and s.table[-2:] == ".t"]


@pytest.mark.parametrize(("mode", "version"), MODES)
@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_commands_look_into_files_with_their_rows(
    spark: SparkSession, mode: str, version: str, adaptive: str
) -> None:
    properties = {**dict.fromkeys(MERGE_ON_READ, mode), "format-version": version}
    make_table(spark, "t", ROWS, INDEX, properties=properties)
    make_table(spark, "twin", ROWS, properties=properties)
    before = {name: last(spark, name)[0] for name in ("t", "twin")}
    replaces = mode == "copy-on-write"
    unmatched = {c: (s, FILES if replaces else n) for c, (s, n) in UNMATCHED.items()}
    for command, (statement, files) in {**COMMANDS, **unmatched}.items():
        with settings(spark, {"spark.sql.adaptive.enabled": adaptive}):
            found = looks(spark, statement)
            with settings(spark, {ENABLED: "false"}):
                spark.sql(statement.format(t="twin"))
                rows = [spelled(spark.table(name).collect()) for name in ("t", "twin")]
        assert rows[0] == rows[1], command
        assert last(spark, "t")[1] == last(spark, "twin")[1], command
        if files < FILES:
            assert found[:1] == [(FILES, files)], command
        else:
            assert all(opened == total for total, opened in found), command
        for name, snapshot in before.items():
            roll_back(spark, name, snapshot)
    drop(spark, "t")
    drop(spark, "twin")


@pytest.mark.parametrize(("mode", "version"), MODES[:2])
def test_rows_that_were_deleted_by_value_stay_so(
    spark: SparkSession, mode: str, version: str
) -> None:
    properties = {**dict.fromkeys(MERGE_ON_READ, mode), "format-version": version}
    make_table(spark, "t", ROWS, INDEX, properties=properties)
    make_table(spark, "twin", ROWS, properties=properties)
    for name in ("t", "twin"):
        delete_by_value(spark, name, 11)
    for statement, files in (COMMANDS["upsert"], COMMANDS["delete"]):
        assert looks(spark, statement)[0][1] >= files
        with settings(spark, {ENABLED: "false"}):
            spark.sql(statement.format(t="twin"))
            rows = [spelled(spark.table(name).collect()) for name in ("t", "twin")]
        assert rows[0] == rows[1]
        assert last(spark, "t")[1] == last(spark, "twin")[1]
    drop(spark, "t")
    drop(spark, "twin")


@pytest.mark.parametrize(("mode", "version"), MODES[:2])
def test_it_can_be_switched_off(spark: SparkSession, mode: str, version: str) -> None:
    properties = {**dict.fromkeys(MERGE_ON_READ, mode), "format-version": version}
    make_table(spark, "t", ROWS, INDEX, properties=properties)
    with settings(spark, {DML: "false"}):
        assert looks(spark, "DELETE FROM {t} WHERE k = 3") == []
    drop(spark, "t")
