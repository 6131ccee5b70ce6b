"""MERGE with conditions as people write them: casts, OR, several clauses, sources of all kinds.

On a table with an index and its twin without one, in Delta and both modes of Iceberg: the rows are
equal, and files without a row that is looked for are unreadable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, expr

from tests.rewrite.commands_twin import looks, newest
from tests.rewrite.differential import (
    ENABLED,
    IS_SPARK_4,
    files_of,
    in_catalog_of,
    make_table,
    matching,
    settings,
    spelled,
    spoiled,
)
from tests.rewrite.twelve_files import location

pytestmark = pytest.mark.nightly

FILES = 12
ROWS = f"""SELECT id, int(id) AS k, int(59 - id) AS m, int(id) AS o,
        CAST(id + 0.25 AS DECIMAL(14, 2)) AS d, CAST(id AS DECIMAL(16, 0)) AS e,
        timestamp'2026-01-01 03:00:00' + make_dt_interval(int(id)) AS ts, string(id) AS s,
        double(id) AS x, int(id % 5) AS i, repeat(md5(string(id)), 4) AS pad, int(id div 5) AS _f
    FROM range({5 * FILES})"""
INDEX = "id MIN_MAX, k VALUE_LIST, m VALUE_LIST, d MIN_MAX, e MIN_MAX, ts MIN_MAX, s VALUE_LIST"
BOUNDS = {
    "delta.dataSkippingNumIndexedCols": "32",
    "write.metadata.metrics.default": "truncate(16)",
}
MODES = {
    "delta": ("delta", {"delta.enableDeletionVectors": "true"}),
    "copy-on-write": ("iceberg", {"write.merge.mode": "copy-on-write"}),
    "merge-on-read": ("iceberg", {"write.merge.mode": "merge-on-read"}),
}
S = "(SELECT * FROM VALUES (7L, 42, 'a'), (8L, -5, 'b'), (3000L, NULL, 'c') AS s(a, b, v)) s"
"""Keys of one file by `a`; by `b` of another one, because `m` is 42 where `k` is 17."""
UPSERT = """WHEN MATCHED THEN UPDATE SET pad = v
    WHEN NOT MATCHED THEN INSERT (id, k, pad) VALUES (a, 0, v)"""
MATCHED = "WHEN MATCHED THEN UPDATE SET pad = v"
UNMATCHED = """WHEN MATCHED THEN DELETE
    WHEN NOT MATCHED BY SOURCE AND t.k = 55 AND t.i < 9 THEN DELETE
    WHEN NOT MATCHED BY SOURCE AND t.m = 2 THEN UPDATE SET pad = 'z'"""


@dataclass(frozen=True)
class Case:
    """A MERGE of `S`, or of another source, and the condition of the rows it looks for."""

    on: str
    rows: str
    clauses: str = UPSERT
    source: str = S


A = "k IN (7, 8)"
EITHER = "k IN (7, 8) OR m = 42"
CASTS = {
    "a narrowing cast": Case("CAST(t.id AS INT) = s.a", A),
    "a narrowing cast, nothing inserted": Case("CAST(t.id AS INT) = s.a", A, MATCHED),
    "two casts": Case("CAST(CAST(t.id AS SMALLINT) AS BIGINT) = s.a", A),
    "try_cast": Case("try_cast(t.id AS INT) = s.a", A),
    "a widening cast": Case("CAST(t.k AS BIGINT) = s.a", A),
    "an implied cast": Case("t.k = s.a", A),
    "a cast of the source": Case("t.k = CAST(s.a AS INT)", A),
    "a decimal": Case("CAST(t.k AS DECIMAL(12, 2)) = s.a", A),
    "a narrow decimal": Case("CAST(t.k AS DECIMAL(5, 0)) = s.a", A),
    "a decimal without its fraction": Case("CAST(t.d AS DECIMAL(9, 0)) = s.a", A),
    "a decimal with fewer digits": Case("CAST(t.e AS DECIMAL(9, 0)) = s.a", A),
    "text": Case("string(t.k) = string(s.a)", A),
    "text of the source": Case("t.s = s.a || ''", A),
    "a double": Case("CAST(t.k AS DOUBLE) = s.a", A),
    "a day": Case("date(t.ts) = date_add(date'2026-01-01', int(s.a))", A),
    "a sum": Case("CAST(t.id AS INT) + 1 = s.a + 1", A),
}
ORS = {
    "two columns": Case("t.k = s.a OR t.m = s.b", EITHER),
    "two columns, nothing inserted": Case("t.k = s.a OR t.m = s.b", EITHER, MATCHED),
    "casts in OR": Case("CAST(t.id AS INT) = s.a OR CAST(t.m AS BIGINT) = s.b", EITHER),
    "bounds and an index": Case("t.o = s.a OR t.m = s.b", EITHER),
    "bounds": Case("t.o = s.a OR t.o = s.b", "k IN (7, 8, 42)"),
    "one column": Case("t.k = s.a OR t.k = s.b", "k IN (7, 8, 42)"),
    "more conditions": Case(
        "(t.k = s.a AND t.i >= 0 OR t.m = s.b AND s.v <> 'x') AND s.v < 'z'", EITHER, MATCHED
    ),
    "a value": Case("t.k = s.a OR t.m = 42 AND s.v = 'a'", EITHER, MATCHED),
    "days": Case("date(t.ts) = date_add(date'2026-01-01', int(s.a)) OR t.m = s.b", EITHER),
}
OTHERS = {
    "several clauses": Case(
        "t.k = s.a",
        A,
        """WHEN MATCHED AND t.i > 2 AND s.v = 'a' THEN DELETE
        WHEN MATCHED AND s.v = 'b' THEN UPDATE SET pad = 'y', k = t.k + 100
        WHEN MATCHED THEN UPDATE SET pad = v
        WHEN NOT MATCHED AND s.v <> 'c' THEN INSERT (id) VALUES (-1)
        WHEN NOT MATCHED THEN INSERT (id, pad) VALUES (a, v)""",
    ),
    "a subquery": Case(
        "t.k = s.a", A, source="(SELECT a, v FROM news WHERE region = 'eu' AND a > 5) s"
    ),
    "a view": Case("t.k = s.a", A, source="(SELECT * FROM european) s"),
    "a view of a join": Case("t.k = s.a", A, source="joined s"),
    "a subquery, OR": Case(
        "t.k = s.a OR t.m = s.b",
        EITHER,
        source="(SELECT * FROM news WHERE region = 'eu' AND a > 5) s",
    ),
}
CASES = {**CASTS, **ORS, **OTHERS}
LEFT = "k = 55 OR m = 2"
"""The rows of `UNMATCHED` without a match: of two more files."""
BY_SOURCE = {
    "a narrowing cast": Case("CAST(t.id AS INT) = s.a", f"{A} OR {LEFT}", UNMATCHED),
    "two columns": Case("t.k = s.a OR t.m = s.b", f"{EITHER} OR {LEFT}", UNMATCHED),
    "casts in OR": Case(
        "CAST(t.id AS INT) = s.a OR CAST(t.m AS SMALLINT) = s.b", f"{EITHER} OR {LEFT}", UNMATCHED
    ),
    "ranges": Case(
        "t.o BETWEEN s.a AND s.a + 1", f"k IN (7, 8, 9) OR {LEFT}", UNMATCHED, S.replace("-5", "8")
    ),
}
NEWS = """SELECT * FROM VALUES (7L, 42, 'a', 'eu'), (8L, -5, 'b', 'eu'), (3000L, NULL, 'c', 'eu'),
    (50L, 3, 'd', 'us'), (2L, 1, 'e', 'eu') AS s(a, b, v, region)"""


class Tables:
    """The tables `t` and `twin`, which each command finds as they were."""

    def __init__(self, spark: SparkSession, mode: str) -> None:
        self.spark = spark
        self.format, self.properties = MODES[mode]
        self.replaces = mode == "copy-on-write"
        properties = {**BOUNDS, **self.properties}
        make_table(spark, "t", ROWS, INDEX, properties=properties)
        make_table(spark, "twin", ROWS, properties=properties)
        make_table(spark, "news", f"SELECT *, 0 AS _f FROM ({NEWS})")
        spark.sql("CREATE OR REPLACE TEMPORARY VIEW european AS"
                  " SELECT * FROM news WHERE region = 'eu' AND a > 5")  # fmt: skip
        spark.sql("CREATE OR REPLACE TEMPORARY VIEW joined AS SELECT e.* FROM european e"
                  " JOIN (SELECT DISTINCT region FROM news) USING (region)")  # fmt: skip
        self.before = {name: self.version(name) for name in ("t", "twin")}

    def version(self, table: str) -> int:
        if self.format == "delta":
            return max(row.version for row in self.spark.sql(f"DESCRIBE HISTORY {table}").collect())
        snapshots = self.spark.table(f"iceberg.default.{table}.snapshots")
        return snapshots.orderBy("committed_at").tail(1)[0].snapshot_id

    def restore(self) -> None:
        for name, version in self.before.items():
            if self.format == "delta":
                # RESTORE takes seconds.
                log = Path(location(self.spark, name).removeprefix("file:")) / "_delta_log"
                for path in log.iterdir():
                    number = path.name.strip(".").split(".")[0]
                    if number.isdigit() and int(number) > version:
                        path.unlink()
                jvm: Any = self.spark._jvm
                jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
            else:
                self.spark.sql(
                    f"CALL iceberg.system.rollback_to_snapshot('default.{name}', {version})"
                )

    def compare(self, work: Callable[[str], Any], rows: str, files: int = FILES) -> None:
        """Do it to both tables, which have `files` files: those of `t` without the rows are
        unreadable, and exactly those with them are opened."""
        try:
            with settings(self.spark, {ENABLED: "false"}):
                work("twin")
            needed = matching(self.spark, "t", rows)
            garbage = set(files_of(self.spark, "t")) - needed
            seen = newest(self.spark)
            with spoiled(garbage):
                work("t")
            # Spark may derive `k > 5` from the source, and Iceberg prunes by it first.
            counts = [
                (scan.format[0].files if scan.format else scan.total, scan.opened)
                for scan in looks(self.spark, seen, ".t")
            ]
            assert counts[:1] == [(files, len(needed))]
            with settings(self.spark, {ENABLED: "false"}):
                there, twin = (spelled(self.spark.table(n).collect()) for n in ("t", "twin"))
            assert there == twin
        finally:
            self.restore()


@pytest.fixture(scope="module", params=MODES)
def tables(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[Tables]:
    with in_catalog_of(spark, MODES[request.param][0]):
        made = Tables(spark, request.param)
        yield made
        spark.sql("DROP SKIPPING INDEX ON t")
        for name in ("t", "twin", "news"):
            spark.sql(f"DROP TABLE {name}")


def merge(spark: SparkSession, case: Case) -> Callable[[str], DataFrame]:
    return lambda table: spark.sql(
        f"MERGE INTO {table} t USING {case.source} ON {case.on} {case.clauses}"
    )


SOME = (
    *("a narrowing cast", "try_cast", "a decimal with fewer digits", "two columns"),
    *("bounds and an index", "more conditions", "several clauses", "a view of a join"),
    "a subquery, OR",
)
"""The cases of all modes: those of merge-on-read take the least time."""


@pytest.mark.parametrize(
    ("tables", "name"),
    [
        pytest.param(
            mode, name, marks=() if mode == "merge-on-read" or name in SOME else pytest.mark.soak
        )
        for mode in MODES
        for name in CASES
    ],
    indirect=["tables"],
)
def test_merge_opens_the_files_that_may_match(
    spark: SparkSession, tables: Tables, name: str
) -> None:
    case = CASES[name]
    tables.compare(merge(spark, case), case.rows)


@pytest.mark.parametrize("name", BY_SOURCE)
def test_rows_without_a_match_by_casts_or_and_ranges(
    spark: SparkSession, tables: Tables, name: str
) -> None:
    if tables.replaces:
        pytest.skip("all files are read: see test_row_level.py")
    case = BY_SOURCE[name]
    tables.compare(merge(spark, case), case.rows)


def test_a_value_on_which_a_cast_fails_fails_the_command(
    spark: SparkSession, tables: Tables
) -> None:
    """Its file is opened, whatever the keys."""
    before = tables.before
    # All columns, because Spark 4.0 has no default for those of Iceberg.
    known = {"id": "5000000000", "k": "7000"}
    row = ", ".join(known.get(name, "NULL") for name in spark.table("t").columns)
    for name in ("t", "twin"):
        spark.sql(f"INSERT INTO {name} VALUES ({row})")
    spark.sql("REFRESH SKIPPING INDEX ON t")
    tables.before = {name: tables.version(name) for name in before}
    statement = f"MERGE INTO {{}} t USING {S} ON CAST(t.id AS INT) = s.a {MATCHED}"
    try:
        for name in ("t", "twin"):
            with pytest.raises(Exception, match="CAST_OVERFLOW"):
                spark.sql(statement.format(name))
        narrow = Case("try_cast(t.id AS INT) = s.a", f"{A} OR k = 7000", MATCHED)
        tables.compare(merge(spark, narrow), narrow.rows, files=FILES + 1)
        # Without ANSI the value wraps around, to 705032704.
        wrapped = Case("CAST(t.id AS INT) = s.a", f"{A} OR k = 7000", MATCHED)
        source = S.replace("3000L", "705032704L")
        with settings(spark, {"spark.sql.ansi.enabled": "false"}):
            work = merge(spark, replace(wrapped, source=source))
            tables.compare(work, wrapped.rows, files=FILES + 1)
    finally:
        tables.before = before
        tables.restore()


@pytest.mark.parametrize(
    ("on", "rows"), [("t.k = s.a", A), ("t.k = s.a OR t.m = s.b", EITHER)], ids=["equal", "or"]
)
def test_merge_of_a_dataframe(spark: SparkSession, tables: Tables, on: str, rows: str) -> None:
    if tables.format == "iceberg" and not IS_SPARK_4:
        pytest.skip("Spark 3.5 has no mergeInto")

    def work(table: str) -> None:
        source = spark.table("news").where("region = 'eu' AND a > 5").alias("s")
        if tables.format == "delta":
            builder: Any = DeltaTable.forName(spark, table).alias("t").merge(source, on)
            builder = builder.whenMatchedDelete("t.i > 2").whenMatchedUpdate(set={"pad": "s.v"})
            builder.whenNotMatchedInsert(values={"id": "s.a", "pad": "s.v"}).execute()
        else:
            writer: Any = source.mergeInto(table, expr(on.replace("t.", f"{table}.")))
            writer = writer.whenMatched(col(f"{table}.i") > 2).delete()
            writer = writer.whenMatched().update({"pad": col("s.v")})
            writer.whenNotMatched().insert({"id": col("s.a"), "pad": col("s.v")}).merge()

    tables.compare(work, rows)
