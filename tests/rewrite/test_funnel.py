"""The funnel with files and bytes, dry runs, values that were asked for, and what ran before."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rewrite
from providers.errors import SessionError, StatementError
from skipping import ScanPlan
from skipping.lookup.scan_plan import FunnelStep
from tests.rewrite.differential import files_of, make_table, settings, spoiled

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> Iterator[str]:
    """Sixteen files: two partitions of eight; Delta knows the bounds of `id`, nothing of `s`."""
    spark.sql(
        "CREATE TABLE funnel (p INT, id BIGINT, s STRING, d DATE) USING delta PARTITIONED BY (p)"
        " TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 'id')"
    )
    spark.range(0, 160, 1, 16).selectExpr(
        "int(id div 80) AS p", "id", "'<v' || id % 20 || '>' AS s",
        "date_from_unix_date(int(id)) AS d",
    ).write.format("delta").mode("append").saveAsTable("funnel")  # fmt: skip
    spark.sql("CREATE SKIPPING INDEX ON funnel (s VALUE_LIST, d MIN_MAX)")
    yield "funnel"
    spark.sql("DROP SKIPPING INDEX ON funnel")
    spark.sql("DROP TABLE funnel")


def only(explanation: rewrite.Explanation) -> ScanPlan:
    (scan,) = explanation.scans
    return scan


QUERY = "SELECT * FROM funnel WHERE p = 1 AND id >= 120 AND s = '<v3>'"


class TestTheFunnel:
    def test_each_step_with_files_and_bytes(self, spark: SparkSession, table: str) -> None:
        df = spark.sql(QUERY)
        assert len(df.collect()) == 2
        scan = only(rewrite.explain(df))
        names = [step.name for step in scan.funnel]
        assert names == ["table", "partitions", "statistics", "index", "opened"]
        assert [step.files for step in scan.funnel] == [16, 8, 4, 2, 2]
        sizes = [step.bytes for step in scan.funnel]
        on_disk = {path: path.stat().st_size for path in files_of(spark, table)}
        assert sizes[0] == sum(on_disk.values())
        assert None not in sizes
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[3] == sizes[4] == scan.kept_bytes
        assert scan.seconds is not None
        assert 0 < scan.seconds < 60
        text = str(scan)
        for line in (
            r"  in the table      16  \d.* kB",
            r"  - not read         8  by the table's partitions",
            r"  - not read         4  by the table's statistics",
            r"  files              4  \d.* kB",
            r"  - pruned           2  by s = \?  VALUE_LIST",
            r"  = to read          2  \d.* kB",
            r"  opened             2  \d.* kB",
            r"  index lookup \d+\.\d+ s",
        ):
            assert re.search(f"^{line}$", text, re.MULTILINE), text

    def test_rows_are_the_last_step_of_a_join(self, spark: SparkSession, table: str) -> None:
        df = spark.sql(
            f"SELECT f.id FROM {table} f"
            f" JOIN (SELECT DISTINCT s FROM {table} WHERE id = 3) USING (s)"
        )
        df.collect()
        scan = next(scan for scan in rewrite.explain(df).scans if scan.keys)
        assert [step.name for step in scan.funnel][-2:] == ["rows read", "rows left by the filter"]
        assert [step.rows for step in scan.funnel][-2:] == list(scan.rows or ()) == [80, 80]

    def test_a_table_without_an_index_has_the_formats_steps(self, spark: SparkSession) -> None:
        make_table(spark, "bare", "SELECT id AS _f, id FROM range(3)")
        df = spark.sql("SELECT * FROM bare WHERE id = 1")
        df.collect()
        scan = only(rewrite.explain(df))
        assert scan.reason == "the table has no index"
        assert scan.funnel[0].files == 3
        assert scan.funnel[-1].name == "opened"
        spark.sql("DROP TABLE bare")

    def test_iceberg_plans_by_partitions_and_bounds_at_once(self, spark: SparkSession) -> None:
        name = "iceberg.default.funnel"
        spark.sql(
            f"CREATE TABLE {name} (p INT, id BIGINT, s STRING) USING iceberg PARTITIONED BY (p)"
            " TBLPROPERTIES ('write.distribution-mode' = 'none', 'write.spark.fanout.enabled' ="
            " 'true', 'write.metadata.metrics.column.s' = 'none')"
        )
        spark.range(0, 160, 1, 16).selectExpr(
            "int(id div 80) AS p", "id", "'<v' || id % 20 || '>' AS s"
        ).writeTo(name).append()
        query = f"SELECT * FROM {name} WHERE p = 1 AND id >= 120 AND s = '<v3>'"

        def funnel() -> tuple[FunnelStep, ...]:
            df = spark.sql(query)
            assert len(df.collect()) == 2
            return only(rewrite.explain(df)).funnel

        bare = [(step.name, step.files) for step in funnel()]
        assert bare == [("table", 16), ("planning", 4), ("opened", 4)]
        spark.sql(f"CREATE SKIPPING INDEX ON {name} (s VALUE_LIST)")
        steps = funnel()
        assert [step.name for step in steps] == ["table", "planning", "index", "opened"]
        assert [step.files for step in steps] == [16, 4, 2, 2]
        sizes = [step.bytes or 0 for step in steps]
        listed = spark.sql(f"SELECT file_size_in_bytes FROM {name}.files").collect()
        assert sizes[0] == sum(row[0] for row in listed)
        assert sizes[0] > sizes[1] > sizes[2] == sizes[3] > 0
        spark.sql(f"DELETE FROM {name} WHERE p = 0")
        assert funnel()[0].files == 8
        spark.sql(f"DROP SKIPPING INDEX ON {name}")
        spark.sql(f"DROP TABLE {name}")

    def test_plain_files(self, spark: SparkSession, tmp_path: Path) -> None:
        path = f"parquet.`{tmp_path}/t`"
        spark.range(0, 40, 1, 4).selectExpr("id", "id div 20 AS p").write.partitionBy("p").parquet(
            f"{tmp_path}/t"
        )
        df = spark.sql(f"SELECT * FROM {path} WHERE p = 1")
        df.collect()
        funnel = only(rewrite.explain(df)).funnel
        assert [step.files for step in funnel] == [4, 2]

    def test_what_spark_prunes_by_partitions(self, spark: SparkSession, tmp_path: Path) -> None:
        """By the query's own condition, and while it runs by the other side of a join."""
        rows = "SELECT id, int(id div 10) AS p, id % 2 AS k FROM range(40)"
        path = f"{tmp_path}/pruned"
        spark.sql(rows).repartition(4, "p").write.partitionBy("p").parquet(path)
        spark.read.parquet(path).createOrReplaceTempView("pruned_files")
        spark.sql(rows).repartition(4, "p").write.format("delta").partitionBy("p").saveAsTable(
            "pruned"
        )
        spark.sql("SELECT int(id) AS p, id AS name FROM range(4)").write.saveAsTable("whose_p")
        query = "SELECT * FROM {} t JOIN whose_p USING (p) WHERE name = 3"
        found = {}
        for name in ("pruned_files", "pruned"):
            for text in (f"SELECT * FROM {name} WHERE p = 3", query.format(name)):
                df = spark.sql(text)
                assert len(df.collect()) == 10
                found[text] = str(rewrite.explain(df).scans[0])
                by = "by (Spark's partition pruning|the table's partitions)"
                assert re.search(rf"\n  - not read +3  {by}\n", found[text]), found[text]
        spark.sql("CREATE SKIPPING INDEX ON pruned (k VALUE_LIST)")
        df = spark.sql(query.format("pruned") + " AND k = 1")
        assert len(df.collect()) == 5
        text = str(rewrite.explain(df).scans[0])
        assert re.search(r"= to read +4 .*\n  - not read +3  by Spark's partition pruning\n", text)
        spark.sql("DROP SKIPPING INDEX ON pruned")
        for name in ("pruned", "whose_p"):
            spark.sql(f"DROP TABLE {name}")


class TestDryRun:
    def test_it_reads_no_data(self, spark: SparkSession, table: str) -> None:
        df = spark.sql(QUERY)
        with spoiled(files_of(spark, table)):
            explanation = rewrite.explain(df, dry_run=True)
        scan = only(explanation)
        assert explanation.execution is None
        assert (scan.total, scan.pruned, scan.opened) == (4, 2, None)

    def test_of_what_has_run(self, spark: SparkSession, table: str) -> None:
        df = spark.sql(QUERY)
        df.collect()
        assert rewrite.explain(df).execution is not None
        dry = rewrite.explain(df, dry_run=True)
        assert dry.execution is None
        assert only(dry).pruned == only(rewrite.explain(df)).pruned
        assert only(dry).rows is None

    def test_of_a_text(self, spark: SparkSession, table: str, tmp_path: Path) -> None:
        assert only(rewrite.explain(QUERY)).pruned == 2
        # A command is not executed.
        before = spark.sql("SHOW SKIPPING INDEXES").collect()
        for command in (
            "DROP SKIPPING INDEX ON funnel",
            "CREATE TABLE never USING delta AS SELECT * FROM funnel",
            f"INSERT OVERWRITE DIRECTORY '{tmp_path / 'never'}' USING parquet SELECT 1",
        ):
            with pytest.raises(StatementError, match="expected a query, but this is a command"):
                rewrite.explain(command)
        assert not (tmp_path / "never").exists()
        assert spark.sql("SHOW SKIPPING INDEXES").collect() == before
        assert not spark.catalog.tableExists("never")

    def test_keys_come_only_with_a_run(self, spark: SparkSession, table: str) -> None:
        text = f"SELECT f.id FROM {table} f JOIN (SELECT s FROM {table} WHERE id = 3) USING (s)"
        assert "collected when the query runs" in str(rewrite.explain(text))

    def test_without_a_session(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
        with pytest.raises(SessionError, match="no active session"):
            rewrite.explain("SELECT 1")


class TestForms:
    @pytest.mark.usefixtures("table")
    def test_as_a_dict(self, spark: SparkSession) -> None:
        df = spark.sql(QUERY)
        df.collect()
        explanation = rewrite.explain(df)
        told = json.loads(json.dumps(explanation.to_dict()))
        assert told["execution"]["id"] == (explanation.execution or ("", -1))[1]
        assert 0 < told["execution"]["seconds"] < 60
        assert re.search(
            r"\nin all: looked up in \d\.\d{3} s, ran in \d+\.\d{3} s$", str(explanation)
        )
        (scan,) = told["scans"]
        assert (scan["total"], scan["pruned"], scan["kept"], scan["opened"]) == (4, 2, 2, 2)
        assert scan["funnel"][0]["files"] == 16
        assert scan["legs"] == [{"label": "s = ?  VALUE_LIST", "pruned": 2}]
        assert rewrite.explain(df, dry_run=True).to_dict()["execution"] is None


class TestValues:
    CONDITION = "s IN ('<v3>', '<v4>', '<v5>', '<v6>') AND d < date'1970-01-10' AND s LIKE '<v%'"

    @pytest.mark.usefixtures("table")
    def test_they_are_shown_where_that_was_asked_for(self, spark: SparkSession) -> None:
        query = f"SELECT * FROM funnel WHERE {self.CONDITION} AND upper(s) <> 'Q'"
        hidden = str(rewrite.explain(query))
        assert "s IN (4 keys)" in hidden
        assert "v3" not in hidden
        with settings(spark, {"spark.skipping.explain.values": "true"}):
            shown = str(rewrite.explain(query))
            assert "s IN ('<v3>', '<v4>', '<v5>', ... 4 in all)  VALUE_LIST" in shown
            assert "d < '1970-01-10'  MIN_MAX" in shown
            assert "s LIKE '<v%'" in shown
        assert "v3" not in str(rewrite.explain(query))


class TestHistory:
    def test_what_has_run(self, spark: SparkSession, table: str) -> None:
        df = spark.sql(QUERY)
        df.collect()
        _, id = rewrite.explain(df).execution or ("", -1)
        spark.sql(f"SELECT max(s) FROM {table}").collect()
        rows = rewrite.history(spark).collect()
        assert len({row.execution for row in rows}) <= 100
        (found,) = [row for row in rows if row.execution == id]
        assert found.table == "spark_catalog.default.funnel"
        assert (found.files, found.pruned, found.opened) == (4, 2, 2)
        assert found.bytes == found.pruned_bytes + found.opened_bytes
        assert found.pruned_by == ["s = ?  VALUE_LIST"]
        assert found.seconds > 0
        assert found.ended is not None
        last = rows[-1]
        assert last.reason == "no condition of the query reached this scan"
        assert (last.files, last.pruned) == (None, None)
        assert [row.ended for row in rows] == sorted(row.ended for row in rows)

    def test_it_is_bounded(self, spark: SparkSession, table: str) -> None:
        for _ in range(105):
            spark.range(1).collect()
        assert rewrite.history(spark).count() == 0
