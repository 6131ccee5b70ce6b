"""EXPLAIN SKIPPING, VERIFY SKIPPING, SHOW SKIPPING HISTORY and COUNTERS: with hooks and without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

import rewrite
import skipping
from providers.errors import (
    SessionError,
    SkippingError,
    StatementError,
    StoreError,
    WrongAnswer,
)
from skipping.spark_api import RELEASE, classic
from skipping.stores.sqlite.store import SqliteStore

pytestmark = pytest.mark.nightly

FACTS = "spark_catalog.default.stated"
JOIN = "SELECT f.* FROM stated f JOIN stated_keys k ON f.id = k.key WHERE k.colour = 'red'"


@pytest.fixture(scope="module", autouse=True)
def tables(spark: SparkSession) -> Iterator[None]:
    """A table of four files with an index, and keys of which one is red."""
    frame = spark.range(0, 40, 1, 4).selectExpr("id", "concat('user', id) AS user")
    frame.write.format("delta").option("delta.dataSkippingNumIndexedCols", "0").saveAsTable(
        "stated"
    )
    spark.sql("CREATE SKIPPING INDEX ON stated (id MIN_MAX, user VALUE_LIST)")
    keys = spark.range(0, 40).selectExpr("id AS key", "if(id = 11, 'red', 'blue') AS colour")
    keys.write.format("delta").saveAsTable("stated_keys")
    yield
    spark.sql("DROP SKIPPING INDEX ON stated")
    for name in ("stated", "stated_keys"):
        spark.sql(f"DROP TABLE {name}")


@pytest.fixture(params=["spark.sql", "skipping.sql"])
def run(request: pytest.FixtureRequest, spark: SparkSession) -> Callable[[str], DataFrame]:
    if request.param == "spark.sql":
        return spark.sql
    return lambda text: skipping.sql(spark, text)


def row(run: Callable[[str], DataFrame], text: str, table: str = FACTS) -> Row:
    (found,) = [r for r in run(text).collect() if r.table == table]
    return found


class TestExplain:
    def test_a_query_is_run_and_each_scan_is_a_row(self, run: Callable[[str], DataFrame]) -> None:
        found = row(run, f"EXPLAIN SKIPPING {JOIN}")
        counts = (found.files, found.pruned, found.unknown, found.to_read, found.opened)
        assert counts == (4, 3, 0, 1, 1)
        assert [tuple(c) for c in found.conditions if c.pruned] == [
            ("id IN (1 key of stated_keys)  MIN_MAX", 3),
            ("id BETWEEN ? AND ? of the metadata of stated_keys  MIN_MAX", 2),
        ]
        assert found["keys"][0].startswith("1 key of stated_keys for id: from the broadcast")
        assert (found.rows_read, found.rows_left) == (10, 10)
        assert found.bytes == found.pruned_bytes + found.opened_bytes
        assert found.lookup_seconds > 0
        assert (found.reason, found.unused) == (None, [])
        assert found.explanation.startswith(f"{FACTS}\n  files              4")
        assert "user" not in found.explanation  # values are not shown

    def test_dry_run_only_plans(self, spark: SparkSession, run: Callable[[str], DataFrame]) -> None:
        before = row(run, "SHOW SKIPPING COUNTERS").scans
        found = row(run, f"EXPLAIN SKIPPING DRY RUN {JOIN};")
        assert (found.files, found.to_read, found.opened, found.opened_bytes) == (4, 2, None, None)
        assert found["keys"] == ["no keys of stated_keys for id: collected when the query runs"]
        found = row(run, "EXPLAIN SKIPPING DRY RUN SELECT * FROM stated WHERE user = 'user12'")
        assert (found.to_read, found.opened) == (1, None)
        assert row(run, "SHOW SKIPPING COUNTERS").scans == before
        assert (
            str(rewrite.explain("TABLE stated").scans[0])
            == row(run, "EXPLAIN SKIPPING DRY RUN TABLE stated").explanation
        )

    def test_all_rows_are_read_and_none_is_kept(self, spark: SparkSession) -> None:
        found = row(spark.sql, "EXPLAIN SKIPPING SELECT upper(user) FROM stated ORDER BY id")
        assert (found.to_read or 4, found.opened) == (4, 4)
        ended = spark.sql("SHOW SKIPPING HISTORY FOR stated").collect()[-1]
        assert (ended.action, ended.opened) == ("explain", 4)

    def test_a_table_by_its_path(self, spark: SparkSession, tmp_path: Path) -> None:
        place = str(tmp_path / "p")
        spark.range(4).write.format("delta").save(place)
        for query in (f"SELECT * FROM delta.`{place}`", f"SELECT * FROM delta.`file:{place}`"):
            found = row(spark.sql, f"EXPLAIN SKIPPING {query} WHERE id = 1", place)
            assert found.reason == "the table has no index"
        shown = spark.sql(f"SHOW SKIPPING HISTORY FOR delta.`{place}`").collect()
        assert [r.table for r in shown] == [place, place]

    def test_no_scan_is_no_row(self, run: Callable[[str], DataFrame]) -> None:
        assert run("EXPLAIN SKIPPING VALUES (1)").collect() == []

    def test_the_settings_are_those_of_the_session(self, spark: SparkSession) -> None:
        other = spark.newSession()
        other.conf.set("spark.skipping.enabled", "false")
        text = "EXPLAIN SKIPPING SELECT * FROM stated WHERE id = 5"
        assert row(other.sql, text).reason == "spark.skipping.enabled is false"
        assert row(spark.sql, text).opened == 1

    @pytest.mark.parametrize("report", ["EXPLAIN SKIPPING", "VERIFY SKIPPING"])
    def test_a_query_that_nests_too_deep(self, spark: SparkSession, report: str) -> None:
        text = f"{report} SELECT {'(' * 10_000}1{')' * 10_000}"
        with pytest.raises(StatementError, match="is nested too deeply for Spark: divide it"):
            spark.sql(text)
        assert spark.sql(f"{report} SELECT ((1))").columns

    def test_sparks_own_explain_is_sparks(self, spark: SparkSession) -> None:
        (plan,) = spark.sql("EXPLAIN SELECT 'SKIPPING' FROM stated WHERE id = 5").collect()
        assert "Physical Plan" in plan.plan
        (plan,) = spark.sql("EXPLAIN FORMATTED SELECT id AS skipping FROM stated").collect()
        assert "Physical Plan" in plan.plan


class TestCommandsAreRefused:
    COMMANDS = (
        "DELETE FROM stated",
        "-- all\nUPDATE stated SET user = 'x'",
        "MERGE INTO stated t USING stated s ON t.id = s.id WHEN MATCHED THEN DELETE",
        "INSERT INTO stated SELECT * FROM stated",
        "INSERT OVERWRITE stated SELECT * FROM stated LIMIT 1",
        "INSERT INTO stated REPLACE WHERE id = 1 SELECT * FROM stated WHERE id = 1",
        "WITH a AS (SELECT * FROM stated) INSERT INTO stated SELECT * FROM a",
        "FROM stated INSERT INTO stated SELECT * INSERT INTO stated SELECT *",
        "CREATE TABLE stated_copy AS SELECT * FROM stated",
        "SET spark.skipping.enabled = false",
        "TRUNCATE TABLE stated",
        "OPTIMIZE stated",
        "EXPLAIN SELECT 1",
        "EXPLAIN SKIPPING SELECT 1",
        "VERIFY SKIPPING SELECT 1",
        "DROP SKIPPING INDEX ON stated",
        "SHOW TABLES",
    )
    if RELEASE >= (4, 0):
        COMMANDS += ("EXECUTE IMMEDIATE 'DELETE FROM stated'",)
    if RELEASE >= (4, 1):
        COMMANDS += ("BEGIN DELETE FROM stated; END",)

    @pytest.mark.parametrize(
        "statement", ["EXPLAIN SKIPPING", "EXPLAIN SKIPPING DRY RUN", "VERIFY SKIPPING"]
    )
    def test_and_not_run(self, spark: SparkSession, statement: str) -> None:
        before = spark.table("stated").orderBy("id").collect()
        for command in self.COMMANDS:
            with pytest.raises(
                StatementError, match="this is a command, and it was not run"
            ) as error:
                spark.sql(f"{statement} {command}")
            *_, line, mark = str(error.value).split("\n")
            first = command.removeprefix("-- all\n").split()[0]
            assert line[mark.index("^") : mark.rindex("^") + 1] == first
        assert spark.table("stated").orderBy("id").collect() == before
        assert not spark.catalog.tableExists("stated_copy")
        assert spark.conf.get("spark.skipping.enabled", "true") == "true"

    def test_a_procedure_neither(self, spark: SparkSession) -> None:
        """Spark runs CALL while it analyses it, so it must not come to that."""
        spark.sql("CREATE TABLE iceberg.stated.kept (id INT) USING iceberg")
        for id in range(2):
            spark.sql(f"INSERT INTO iceberg.stated.kept VALUES ({id})")
        call = (
            "CALL iceberg.system.expire_snapshots(table => 'stated.kept',"
            " older_than => TIMESTAMP '2999-01-01 00:00:00', retain_last => 1)"
        )
        try:
            for statement in ("EXPLAIN SKIPPING", "EXPLAIN SKIPPING DRY RUN", "VERIFY SKIPPING"):
                with pytest.raises(StatementError, match="this is a command, and it was not run"):
                    spark.sql(f"{statement} {call}")
            for ask in (rewrite.explain, rewrite.verify):
                with pytest.raises(StatementError, match="this is a command, and it was not run"):
                    ask(call)
            assert spark.table("iceberg.stated.kept.snapshots").count() == 2
            spark.sql(call)  # which it would have done
            assert spark.table("iceberg.stated.kept.snapshots").count() == 1
        finally:
            spark.sql("DROP TABLE iceberg.stated.kept PURGE")

    def test_in_python_neither(self, spark: SparkSession) -> None:
        for ask in (rewrite.explain, rewrite.verify):
            with pytest.raises(StatementError, match="this is a command, and it was not run"):
                ask("DELETE FROM stated")
        assert spark.table("stated").count() == 40

    @pytest.mark.parametrize(
        ("query", "error", "says"),
        [
            ("SELECT 1; DELETE FROM stated", ParseException, "extra input 'DELETE'"),
            ("SELEC 1", ParseException, "PARSE_SYNTAX_ERROR"),
            ("SELECT * FROM nowhere", AnalysisException, "TABLE_OR_VIEW_NOT_FOUND"),
            ("SELECT :a", StatementError, "has parameters without values"),
            ("SELECT ?", StatementError, "has parameters without values"),
            ("/* never", StatementError, None),
        ],
    )
    def test_what_is_no_query_says_so(
        self, spark: SparkSession, query: str, error: type[Exception], says: str | None
    ) -> None:
        for statement in ("EXPLAIN SKIPPING", "EXPLAIN SKIPPING DRY RUN", "VERIFY SKIPPING"):
            with pytest.raises((error, PySparkException) if says is None else error, match=says):
                spark.sql(f"{statement} {query}")


class TestVerify:
    def test_same_rows_are_one_row(self, run: Callable[[str], DataFrame]) -> None:
        (found,) = run("VERIFY SKIPPING SELECT * FROM stated WHERE id IN (3, 5);").collect()
        assert tuple(found) == (2, 1, 4, None)
        assert found.asDict().keys() == {"rows", "opened", "opened_without", "note"}

    def test_python_takes_text_too(self, spark: SparkSession) -> None:
        found = rewrite.verify("SELECT * FROM stated WHERE id = 5")
        assert (found.rows, found.opened, found.without) == (1, 1, 4)

    def test_chance_is_refused(self, spark: SparkSession) -> None:
        with pytest.raises(SkippingError, match="not deterministic"):
            spark.sql("VERIFY SKIPPING SELECT rand() FROM stated")

    def test_other_rows_are_an_error(
        self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = SqliteStore.find_prunable

        def too_many(self: SqliteStore, index: str, tests: object, **named: object) -> object:
            answers = real(self, index, tests, **named)  # type: ignore[arg-type]
            for answer in answers:
                answer.update(range(4))
            return answers

        monkeypatch.setattr(SqliteStore, "find_prunable", too_many)
        with pytest.raises(WrongAnswer, match="0 rows with the indexes, 1 without"):
            spark.sql("VERIFY SKIPPING SELECT * FROM stated WHERE id = 5")


class TestHistoryAndCounters:
    def test_history_is_that_of_python(
        self, spark: SparkSession, run: Callable[[str], DataFrame]
    ) -> None:
        spark.sql("SELECT * FROM stated WHERE id = 5").collect()
        python = rewrite.history(spark)
        shown = run("SHOW SKIPPING HISTORY")
        assert shown.schema == python.schema
        assert shown.collect()[-1] == python.collect()[-1]
        last = shown.collect()[-1]
        assert (last.table, last.opened, last.action) == (FACTS, 1, "collect")

    def test_history_of_one_table(self, run: Callable[[str], DataFrame]) -> None:
        run("EXPLAIN SKIPPING SELECT * FROM stated_keys").collect()
        for name in ("stated_keys", "STATED_KEYS", "default.stated_keys", f"{FACTS}_keys"):
            assert {r.table for r in run(f"SHOW SKIPPING HISTORY FOR {name}").collect()} == {
                f"{FACTS}_keys"
            }
        assert run("SHOW SKIPPING HISTORY FOR nowhere").collect() == []

    def test_counters_are_those_of_python(
        self, spark: SparkSession, run: Callable[[str], DataFrame]
    ) -> None:
        spark.sql("SELECT * FROM stated WHERE id = 5").collect()
        spark.sql("SELECT * FROM stated_keys").collect()
        (python,) = [c for c in rewrite.counters(spark) if c.table == FACTS]
        found = row(run, "SHOW SKIPPING COUNTERS")
        assert (found.scans, found.lookups, found.skipped) == (
            python.scans,
            python.lookups,
            python.skipped,
        )
        assert found.fallbacks == dict(python.fallbacks)
        keys = row(run, "SHOW SKIPPING COUNTERS", f"{FACTS}_keys")
        assert keys.fallbacks["the table has no index"] >= 1


class TestWithoutHooks:
    STATEMENTS = (
        "EXPLAIN SKIPPING SELECT 1",
        "EXPLAIN SKIPPING DRY RUN SELECT 1",
        "VERIFY SKIPPING SELECT 1",
        "SHOW SKIPPING HISTORY",
        "SHOW SKIPPING COUNTERS",
    )

    def test_they_say_what_is_needed(
        self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        jvm = spark.sparkContext._jvm
        made = classic(jvm).SparkSession(spark.sparkContext._jsc.sc(), {})  # type: ignore[union-attr]
        unhooked = SparkSession(spark.sparkContext, made)
        for statement in self.STATEMENTS:
            with pytest.raises(SessionError, match=r"rewrite\.enable"):
                skipping.sql(unhooked, statement)
        # A process that never imported rewrite.
        monkeypatch.setattr("skipping.extensions._extensions", None)
        for statement in self.STATEMENTS:
            with pytest.raises(SessionError, match=r"import rewrite, run spark = rewrite\.enable"):
                skipping.sql(unhooked, statement)
        assert skipping.sql(unhooked, "SHOW SKIPPING STREAMS").collect() == []


def test_a_wrong_object_is_a_type_error() -> None:
    for ask in (rewrite.explain, rewrite.verify):
        for given in (5, None, ["SELECT 1"], object()):
            name = type(given).__name__
            with pytest.raises(TypeError, match=f"or the SQL text of a query, not {name}$"):
                ask(given)  # type: ignore[arg-type]


def test_a_store_that_fails_fails_no_explain(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise StoreError("the store is away")

    other = spark.newSession()
    other.conf.set("spark.skipping.mode", "fallback")
    monkeypatch.setattr(SqliteStore, "find_prunable", away)
    found = row(other.sql, "EXPLAIN SKIPPING SELECT * FROM stated WHERE id = 5")
    assert (found.opened, found.reason) == (4, "the store is away")
