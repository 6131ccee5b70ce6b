"""REFRESH, SHOW and DESCRIBE, DROP, VACUUM."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

from providers.errors import StatementError, StoreError
from skipping import SkippingIndex
from skipping.indexing.spark import SparkBuild
from skipping.sources.spark import settings_of, store_of
from tests.skipping.commands.samples import facts, fresh, indexes, make, opened, refused, scan, word

pytestmark = pytest.mark.nightly


class TestRefresh:
    def test_after_append_delete_optimize_and_a_new_column(
        self, spark: SparkSession, t: str
    ) -> None:
        spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX, n VALUE_LIST)")
        query = f"SELECT * FROM {t} WHERE id = 45"

        make(spark, t, files=2, start=40)
        described = facts(spark, t)
        assert (described["lag"], described["version covered"]) == ("1 version", "0")
        plan = scan(spark, query)
        assert (plan.total, plan.unknown, plan.opened) == (6, 2, 2)
        spark.sql(f"REFRESH SKIPPING INDEX ON {t}")
        described = facts(spark, t)
        assert (described["lag"], described["files"]) == ("0 versions", "6")
        assert opened(spark, query) == 1

        spark.sql(f"ALTER TABLE {t} ADD COLUMN extra STRING")
        spark.sql(f"DELETE FROM {t} WHERE id = 41")
        spark.sql(f"REFRESH SKIPPING INDEX ON {t}")
        assert facts(spark, t)["version"] == facts(spark, t)["version covered"] == "3"
        assert [row.id for row in spark.sql(query).collect()] == [45]
        assert opened(spark, f"SELECT * FROM {t} WHERE n = 82") == 0
        assert opened(spark, query) == 1

        spark.sql(f"OPTIMIZE {t}")
        assert scan(spark, query).unknown == 1
        spark.sql(f"REFRESH SKIPPING INDEX ON {t}")
        plan = scan(spark, f"SELECT * FROM {t} WHERE id = 1000")
        assert (plan.total, plan.unknown, plan.opened) == (1, 0, 0)

    @pytest.mark.parametrize(
        "statement",
        ["REFRESH SKIPPING INDEX ON {}", "CREATE SKIPPING INDEX IF NOT EXISTS ON {} (id MIN_MAX)"],
    )
    def test_a_replaced_table_gets_the_definition_by_column_name(
        self, spark: SparkSession, t: str, statement: str
    ) -> None:
        spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX, s VALUE_LIST(20), n MIN_MAX)")
        before = facts(spark, t)
        spark.sql(
            f"CREATE OR REPLACE TABLE {t} USING delta"
            " TBLPROPERTIES (delta.dataSkippingNumIndexedCols = 0)"
            " AS SELECT /*+ REPARTITION_BY_RANGE(2, id) */ cast(id AS int) AS id, 'x' AS s"
            " FROM range(20)"
        )
        described = facts(spark, t)
        assert (described["state"], described["lag"]) == ("table was replaced: refresh", None)
        assert opened(spark, f"SELECT * FROM {t} WHERE id = 3") == 2
        message = refused(spark, f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX)")
        assert "already has a skipping index" in message
        assert "If the table was replaced since: REFRESH SKIPPING INDEX ON" in message
        assert len(indexes(spark, t)) == 1

        spark.sql(statement.format(t))
        described = facts(spark, t)
        assert (described["state"], described["files"], described["lag"]) == (
            "active",
            "2",
            "0 versions",
        )
        assert described["index"] != before["index"]
        columns = [tuple(row) for row in spark.sql(f"DESC SKIPPING INDEX ON {t}").collect()]
        assert columns == [
            ("id", "int", "MIN_MAX", ""),
            ("s", "string", "VALUE_LIST", "limit = 20"),
        ]
        assert opened(spark, f"SELECT * FROM {t} WHERE id = 3") == 1
        assert [row["index"] for row in indexes(spark, t)] == [described["index"]]

        spark.sql(f"CREATE OR REPLACE TABLE {t} (other INT) USING delta")
        assert "no longer has any of the indexed columns" in refused(
            spark, f"REFRESH SKIPPING INDEX ON {t}"
        )

    def test_it_covers_the_version_that_was_current_when_it_began(
        self, spark: SparkSession, t: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX) WITH (build = false)")
        build = SparkBuild.__call__

        def and_a_commit(self: SparkBuild, *arguments: Any) -> Iterator[Any]:
            yield from build(self, *arguments)
            spark.sql(f"INSERT INTO {t} VALUES (1000, 'x', 0)")

        monkeypatch.setattr(SparkBuild, "__call__", and_a_commit)
        spark.sql(f"REFRESH SKIPPING INDEX ON {t}")
        monkeypatch.undo()
        described = facts(spark, t)
        assert (described["version covered"], described["lag"]) == ("0", "1 version")
        spark.sql(f"REFRESH SKIPPING INDEX ON {t}")
        assert facts(spark, t)["version covered"] == "1"
        assert opened(spark, f"SELECT * FROM {t} WHERE id = 1000") == 1

    def test_what_went_wrong_is_described(
        self, spark: SparkSession, t: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX) WITH (build = false)")

        def fail(*_: object) -> Iterator[Any]:
            raise StoreError("the disk is full")

        monkeypatch.setattr(SparkBuild, "__call__", fail)
        assert refused(spark, f"REFRESH SKIPPING INDEX ON {t}") == "the disk is full"
        monkeypatch.undo()
        described = facts(spark, t)
        assert (described["state"], described["last error"]) == ("failed", "the disk is full")
        (row,) = indexes(spark, t)
        assert (row.status, row.error) == ("failed", "the disk is full")
        spark.sql(f"REFRESH SKIPPING INDEX ON {t}")
        assert facts(spark, t)["last error"] is None


class TestShow:
    def test_scopes_and_orphans(self, spark: SparkSession, t: str, tmp_path: Path) -> None:
        other = "cmd_db"
        spark.sql(f"CREATE DATABASE `{other}`")
        spark.sql(f"CREATE TABLE `{other}`.{t} (id INT) USING delta")
        spark.sql(f"CREATE TABLE delta.`{tmp_path}/p` (id INT) USING delta")
        names = [t, f"`{other}`.{t}", f"delta.`{tmp_path}/p`"]
        for name in names:
            spark.sql(f"CREATE SKIPPING INDEX ON {name} (id MIN_MAX) WITH (build = false)")

        def shown(scope: str) -> set[tuple[str, str, str, bool]]:
            rows = spark.sql(f"SHOW SKIPPING INDEXES {scope}").collect()
            mine = [row for row in rows if row.table in (t, f"{tmp_path}/p")]
            return {(row.catalog, row.database, row.table, row.orphan) for row in mine}

        one = ("spark_catalog", "default", t, False)
        two = ("spark_catalog", other, t, False)
        path = ("delta", "", f"{tmp_path}/p", False)
        try:
            assert shown("") == {one, two, path}
            assert shown("IN spark_catalog") == shown("IN SPARK_CATALOG") == {one, two}
            assert shown("IN spark_catalog.`cmd_db`") == {two}
            assert shown("IN spark_catalog.Default") == {one}
            assert shown("IN delta") == {path}
            message = refused(spark, "SHOW SKIPPING INDEXES IN nowhere", StatementError)
            assert (message.split("\n")[0], word(message)) == (
                "unknown catalog nowhere: configure it as spark.sql.catalog.nowhere",
                "nowhere",
            )
            message = refused(spark, "SHOW SKIPPING INDEXES IN spark_catalog.nope", StatementError)
            assert message.startswith("unknown database spark_catalog.nope\n")
            assert word(message) == "spark_catalog"
            assert shown("IN spark_catalog.default EXTENDED") == {one}

            spark.sql(f"DROP TABLE `{other}`.{t}")
            shutil.rmtree(tmp_path / "p")
            assert shown("") == {one, (*two[:3], True), (*path[:3], True)}
        finally:
            for name in names[1:]:
                spark.sql(f"DROP SKIPPING INDEX ON {name}")
                spark.sql(f"VACUUM SKIPPING INDEX ON {name}")
            spark.sql(f"DROP DATABASE `{other}` CASCADE")
        assert shown("") == {one}

    def test_flints_name_of_an_index(self, spark: SparkSession, t: str) -> None:
        spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX) WITH (build = false)")
        (row,) = (r for r in spark.sql("SHOW FLINT INDEXES").collect() if r.table == t)
        assert row.flint_index_name == f"flint_spark_catalog_default_{t}_skipping_index"
        assert row["index"] == facts(spark, t)["index"]

    def test_it_starts_no_job(self, spark: SparkSession) -> None:
        """Of rows that Python has Spark makes one, and workers that take seconds to start."""
        tracker = spark.sparkContext.statusTracker()
        before = set(tracker.getJobIdsForGroup(None))
        spark.sql("SHOW SKIPPING INDEXES IN delta").collect()
        spark.sql("SHOW SKIPPING STREAMS").collect()
        assert set(tracker.getJobIdsForGroup(None)) == before


class TestRename:
    def test_every_report_says_what_to_do(self, spark: SparkSession) -> None:
        """Spark moves the files of a managed Delta table, all of which are others then."""
        old, new = fresh(), fresh()
        make(spark, old)
        spark.sql(f"CREATE SKIPPING INDEX ON {old} (id MIN_MAX, s VALUE_LIST(9))")
        spark.sql(f"ALTER TABLE {old} RENAME TO {new}")
        columns = "(id MIN_MAX, s VALUE_LIST(limit = 9))"
        create = f"CREATE SKIPPING INDEX ON spark_catalog.default.{new} {columns}"
        drop = f"DROP SKIPPING INDEX ON spark_catalog.default.{old}"
        for said in (facts(spark, new)["hint"], refused(spark, f"REFRESH SKIPPING INDEX ON {new}")):
            assert f"If it was renamed: {create}, then {drop}" in str(said)
        for statement in ("DESCRIBE SKIPPING INDEX ON", "REFRESH SKIPPING INDEX ON"):
            said = refused(spark, f"{statement} {old}")
            assert f"CREATE SKIPPING INDEX ON <its new name> {columns}, then {drop}" in said
            assert f"If it is gone: {drop}" in said
        (row,) = indexes(spark, old)
        assert row.orphan
        assert f"If it is gone: {drop}" in row.error
        plan = scan(spark, f"SELECT * FROM {new} WHERE id = 5")
        assert plan.reason is not None
        moved = "the table has no index since it was renamed or copied: its index is of "
        assert plan.reason.startswith(moved)
        try:
            spark.sql(create)
            spark.sql(drop)
            assert opened(spark, f"SELECT * FROM {new} WHERE id = 5") == 1
            assert not indexes(spark, old)
        finally:
            spark.sql(f"DROP SKIPPING INDEX IF EXISTS ON {new}")
            spark.sql(f"DROP TABLE {new}")


class TestDescribe:
    def test_describe_of_a_table_without_an_index_is_empty_with_a_hint(
        self, spark: SparkSession, t: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        described = spark.sql(f"DESC SKIPPING INDEX ON {t}")
        assert (described.collect(), len(described.columns)) == ([], 4)
        assert f"CREATE SKIPPING INDEX ON spark_catalog.default.{t} (column TYPE)" in caplog.text
        assert list(facts(spark, t)) == ["hint"]
        assert "has no skipping index" in str(facts(spark, t)["hint"])


class TestFiles:
    def test_which_survive_and_what_prunes_the_others(self, spark: SparkSession, t: str) -> None:
        spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX, n VALUE_LIST)")
        make(spark, t, files=1, start=100)
        described = spark.sql(f"DESCRIBE SKIPPING FILES ON {t} WHERE id < 15 AND n = 4")
        assert described.columns == ["path", "size", "indexed", "pruned", "pruned_by"]
        rows = described.collect()
        assert {r.path for r in rows} == {r.path for r in spark.table(t).selectExpr(
            "_metadata.file_path AS path").distinct().collect()}  # fmt: skip
        assert sorted((r.indexed, r.pruned, tuple(r.pruned_by)) for r in rows) == [
            (False, False, ()),
            (True, False, ()),
            (True, True, ("id < ?  MIN_MAX", "n = ?  VALUE_LIST")),
            (True, True, ("id < ?  MIN_MAX", "n = ?  VALUE_LIST")),
            (True, True, ("n = ?  VALUE_LIST",)),
        ]

    def test_errors_point_at_the_condition(self, spark: SparkSession, t: str) -> None:
        text = f"DESCRIBE SKIPPING FILES ON {t} WHERE nope = 5"
        assert "has no skipping index" in refused(spark, text, StatementError)
        spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX) WITH (build = false)")
        message = refused(spark, text, StatementError)
        assert message.startswith("no column nope: there are id, s, n\n")
        assert word(message) == "nope"
        message = refused(spark, text.replace("nope = 5", "id = 'five'"), StatementError)
        assert message.startswith("id is bigint: 'five' is not a valid integer\n")


class TestDrop:
    def test_it_is_not_asked_any_more(self, spark: SparkSession, t: str) -> None:
        spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX)")
        spark.sql(f"DROP SKIPPING INDEX ON {t}")
        plan = scan(spark, f"SELECT * FROM {t} WHERE id = 5")
        assert (plan.reason, plan.opened) == ("the table has no index", 4)
        assert not indexes(spark, t)
        message = refused(spark, f"DROP SKIPPING INDEX ON {t}", StatementError)
        assert f"{t} has no skipping index to drop: SHOW SKIPPING" in message
        assert "CREATE" not in message
        assert word(message) == t
        spark.sql(f"DROP SKIPPING INDEX IF EXISTS ON {t}")
        spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX) WITH (build = false)")
        assert len(indexes(spark, t)) == 1

    def test_an_index_whose_table_is_gone(self, spark: SparkSession) -> None:
        name = fresh()
        make(spark, name, files=1)
        spark.sql(f"CREATE SKIPPING INDEX ON {name} (id MIN_MAX) WITH (build = false)")
        spark.sql(f"DROP TABLE {name}")
        (row,) = indexes(spark, name)
        assert row.orphan
        assert "cannot open table" in refused(spark, f"DESCRIBE SKIPPING INDEX ON {name}")
        spark.sql(f"DROP SKIPPING INDEX ON {name.upper()}")
        assert not indexes(spark, name)
        assert "cannot open table" in refused(spark, f"DROP SKIPPING INDEX ON {name}")
        spark.sql(f"DROP SKIPPING INDEX IF EXISTS ON {name}")
        store = store_of(spark, settings_of(spark))
        assert row["index"] in [d.value.index for d in store.definitions()]
        spark.sql(f"VACUUM SKIPPING INDEX ON {name}")
        assert row["index"] not in [d.value.index for d in store.definitions()]


class TestVacuum:
    def test_what_time_travel_reads_stays_until_the_log_forgets_it(
        self, spark: SparkSession, t: str
    ) -> None:
        spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX)")
        spark.sql(f"OPTIMIZE {t}")
        spark.sql(f"REFRESH SKIPPING INDEX ON {t}")
        spark.sql(f"VACUUM SKIPPING INDEX ON {t}")
        assert facts(spark, t)["files"] == "5"
        assert opened(spark, f"SELECT * FROM {t} VERSION AS OF 0 WHERE id = 5") == 1

        index = SkippingIndex.on(spark, t)
        log = Path(urlsplit(index.table.id.root).path) / "_delta_log"
        jvm: Any = spark._jvm
        delta = jvm.org.apache.spark.sql.delta.DeltaLog
        delta.forTable(spark._jsparkSession, index.table.id.root).checkpoint()
        for version in range(1):
            for old in log.glob(f"*{version:020d}.*"):
                old.unlink()
        delta.clearCache()
        spark.sql(f"VACUUM SKIPPING INDEX ON {t}")
        assert facts(spark, t)["files"] == "1"
        assert opened(spark, f"SELECT * FROM {t} WHERE id = 5") == 1

    def test_files_of_a_shallow_clone_stay(self, spark: SparkSession, t: str) -> None:
        spark.sql(f"CREATE TABLE {t}_clone SHALLOW CLONE {t}")
        spark.sql(f"CREATE SKIPPING INDEX ON {t}_clone (id MIN_MAX)")
        spark.sql(f"VACUUM SKIPPING INDEX ON {t}_clone")
        assert facts(spark, f"{t}_clone")["files"] == "4"
        assert opened(spark, f"SELECT * FROM {t}_clone WHERE id = 5") == 1
        spark.sql(f"DROP SKIPPING INDEX ON {t}_clone")
        spark.sql(f"DROP TABLE {t}_clone")

    def test_dropped_indexes_are_erased_and_the_live_one_stays(
        self, spark: SparkSession, t: str
    ) -> None:
        store = store_of(spark, settings_of(spark))
        spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX)")
        gone = facts(spark, t)["index"] or ""
        spark.sql(f"DROP SKIPPING INDEX ON {t}")
        spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX) WITH (build = false)")
        assert len(store.catalogue(gone).files) == 0  # DROP gives their space back
        spark.sql(f"VACUUM SKIPPING INDEX ON {t}")
        with pytest.raises(StoreError):
            store.catalogue(gone)
        assert len(indexes(spark, t)) == 1

    def test_nothing_to_vacuum_is_an_error(self, spark: SparkSession, t: str) -> None:
        assert "has no skipping index" in refused(spark, f"VACUUM SKIPPING INDEX ON {t}")
