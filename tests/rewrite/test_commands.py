"""Commands that read a table to change it see every row of it, index or not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.rewrite.differential import (
    batch,
    make_table,
    settings,
)
from tests.rewrite.twelve_files import INDEX, ROWS, contents, location

pytestmark = pytest.mark.nightly

COMMANDS = {
    "DELETE": ["DELETE FROM {t} WHERE k IN (7, 8)"],
    "DELETE all of some files": ["DELETE FROM {t} WHERE m >= 700"],
    "UPDATE": ["UPDATE {t} SET k = k + 1000, name = 'x' WHERE k = 7 OR m = 300"],
    "UPDATE by position": ["UPDATE {t} SET m = -1 WHERE name LIKE 'n7%'"],
    "MERGE": [
        """MERGE INTO {t} t USING (SELECT k, m FROM {t} WHERE k IN (7, 8)) s ON t.k = s.k
        WHEN MATCHED AND t.k = 7 THEN DELETE WHEN MATCHED THEN UPDATE SET t.name = 'merged'
        WHEN NOT MATCHED BY SOURCE AND t.k = 9 THEN UPDATE SET t.m = -9""",
        """MERGE INTO {t} t USING (SELECT 7000 AS k) s ON t.k = s.k AND t.k > 20
        WHEN NOT MATCHED THEN INSERT (k) VALUES (s.k)""",
    ],
    "INSERT ... SELECT from itself": ["INSERT INTO {t} SELECT * FROM {t} WHERE k IN (7, 20)"],
    "INSERT OVERWRITE from itself": ["INSERT OVERWRITE {t} SELECT * FROM {t} WHERE k < 30"],
    "INSERT REPLACE WHERE": ["INSERT INTO {t} REPLACE WHERE k = 7 SELECT * FROM {t} WHERE k = 7"],
    "OPTIMIZE": ["DELETE FROM {t} WHERE k = 7", "OPTIMIZE {t}"],
    "OPTIMIZE ZORDER": ["OPTIMIZE {t} ZORDER BY (k)"],
    "REORG": ["DELETE FROM {t} WHERE k = 7", "REORG TABLE {t} APPLY (PURGE)"],
    "RESTORE": ["DELETE FROM {t} WHERE k IN (7, 8)", "RESTORE TABLE {t} TO VERSION AS OF 1"],
    "CREATE OR REPLACE": [
        "CREATE OR REPLACE TABLE {t} USING delta AS SELECT * FROM {t} WHERE k <> 7"
    ],
    "CHECK": ["ALTER TABLE {t} ADD CONSTRAINT c CHECK (k >= 0)"],
    "CTAS": ["CREATE OR REPLACE TABLE {t}_copy USING delta AS SELECT * FROM {t} WHERE k = 7"],
}


@pytest.fixture(scope="module")
def folders(spark: SparkSession) -> dict[bool, str]:
    """Where the tables that the commands change copies of are: with deletion vectors, without."""
    found = {}
    for vectors in (True, False):
        name = f"original_{vectors}"
        properties = {"delta.enableDeletionVectors": str(vectors).lower()}
        make_table(spark, name, ROWS, properties=properties)
        found[vectors] = location(spark, name).removeprefix("file:")
    return found


@pytest.mark.parametrize(
    ("command", "vectors"),
    [*((command, True) for command in COMMANDS), *((c, False) for c in ("DELETE", "MERGE"))],
)
def test_a_command_sees_every_row(
    spark: SparkSession, folders: dict[bool, str], tmp_path: Path, command: str, vectors: bool
) -> None:
    """On a table with an index and on its twin without one: equal tables come of it."""
    spark.sql("DROP SKIPPING INDEX IF EXISTS ON indexed")
    for name in ("indexed", "twin"):
        shutil.copytree(folders[vectors], tmp_path / name)
        spark.sql(f"DROP TABLE IF EXISTS {name}")
        spark.sql(f"CREATE TABLE {name} USING delta LOCATION '{tmp_path / name}'")
    spark.sql(f"CREATE SKIPPING INDEX ON indexed ({INDEX})")
    # Z-ordering by a column without bounds does nothing useful, but it rewrites the files.
    unchecked = {"spark.databricks.delta.optimize.zorder.checkStatsCollection.enabled": "false"}
    with settings(spark, unchecked):
        for statement in COMMANDS[command]:
            spark.sql(statement.format(t="indexed"))
            with settings(spark, {"spark.skipping.enabled": "false"}):
                spark.sql(statement.format(t="twin"))
    assert contents(spark, "indexed") == contents(spark, "twin")
    conditions = ["k = 7", "k = 8", "name LIKE 'n7%'", "n IS NULL", "k IN (20, 7000)"]
    batch(spark, "indexed", conditions)
    spark.sql("REFRESH SKIPPING INDEX ON indexed")
    batch(spark, "indexed", conditions)
