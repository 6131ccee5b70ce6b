"""With `spark.skipping.dml` off, commands that change an Iceberg table see every row of it,
whatever the index says."""

from __future__ import annotations

from typing import Any

import pytest
from pyroaring import BitMap
from pyspark.sql import SparkSession

from skipping.lookup.lookup import Lookup, LookupResult
from tests.rewrite.differential import (
    ENABLED,
    exact,
    files_of,
    make_table,
    same_rows,
    settings,
    spelled,
)
from tests.rewrite.iceberg.tables import (
    INDEX,
    MERGE_ON_READ,
    ROWS,
    drop,
    one_of,
)

pytestmark = pytest.mark.nightly


@pytest.fixture
def lying(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that prunes every file."""

    def lie(lookup: Lookup, definition: Any, *_: Any, timeout: float) -> LookupResult:
        known = lookup.entries.get(definition.index, timeout=timeout)
        there, everything = known.entries, BitMap(range(known.entries.below))
        return LookupResult(
            *(definition.index, there.generation, everything, (), (), there.files, known.id)
        )

    monkeypatch.setattr(Lookup, "find", lie)


WRITES = [
    "DELETE FROM {t} WHERE k = 3",
    "DELETE FROM {t} WHERE k IN (SELECT k FROM few WHERE name = 'n4' AND k < 60)",
    "UPDATE {t} SET pad = 'x' WHERE k = 5 AND id > 100",
    "UPDATE {t} SET k = k + 1000"
    " WHERE EXISTS (SELECT 1 FROM few WHERE few.k = {t}.k AND few.k < 2)",
    "MERGE INTO {t} USING few ON {t}.k = few.k AND name = 'n6'"
    " WHEN MATCHED AND few.k > 20 THEN DELETE WHEN MATCHED THEN UPDATE SET pad = few.name",
    "MERGE INTO {t} USING (SELECT k + 60 AS k FROM few) s ON {t}.k = s.k"
    " WHEN MATCHED THEN UPDATE SET pad = 'y'"
    " WHEN NOT MATCHED THEN INSERT (id, k) VALUES (5000 + s.k, s.k)"
    " WHEN NOT MATCHED BY SOURCE AND {t}.k = 7 THEN DELETE",
]


@pytest.mark.parametrize(
    ("mode", "version"), [("copy-on-write", "2"), ("merge-on-read", "2"), ("merge-on-read", "3")]
)
def test_writes_see_every_row(spark: SparkSession, lying: None, mode: str, version: str) -> None:
    """Not even an index that is wrong loses a write: it is not asked."""
    properties = {**dict.fromkeys(MERGE_ON_READ, mode), "format-version": version}
    make_table(spark, "t", ROWS, INDEX, properties=properties)
    make_table(spark, "twin", ROWS, properties=properties)
    assert spark.sql("SELECT * FROM t WHERE k = 3").collect() == [], "what it says is believed"
    for write in WRITES:
        with settings(spark, {"spark.skipping.dml": "false"}):
            for name in ("t", "twin"):
                spark.sql(write.format(t=name))
        spark.sql("REFRESH SKIPPING INDEX ON t")
        with settings(spark, {ENABLED: "false"}):
            rows = spelled(spark.table("t").collect())
            assert rows == spelled(spark.table("twin").collect()), write
    spark.sql("CALL iceberg.system.rewrite_data_files(table => 'default.t', where => 'k < 100',"
              " options => map('min-input-files', '2'))")  # fmt: skip
    with settings(spark, {ENABLED: "false"}):
        assert spelled(spark.table("t").collect()) == rows
    drop(spark, "t")
    drop(spark, "twin")


def test_maintenance(spark: SparkSession, table: str) -> None:
    files = set(files_of(spark, "t"))
    spark.sql("CALL iceberg.system.rewrite_data_files(table => 'default.t', strategy => 'sort',"
              " sort_order => 'k', options => map('rewrite-all', 'true', 'target-file-size-bytes',"
              " '20000', 'min-file-size-bytes', '1', 'max-file-size-bytes', '30000'))")  # fmt: skip
    assert set(files_of(spark, "t")) != files
    assert one_of(same_rows(spark, "SELECT * FROM t WHERE k = 3")) == len(files_of(spark, "t"))
    spark.sql("REFRESH SKIPPING INDEX ON t")
    exact(spark, "t", "k = 3")
