"""What explain says of plans and of executions: counts, reasons, and whose they are."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession

import rewrite
from providers.errors import SessionError
from rewrite import Explanation
from skipping import ScanPlan
from skipping.spark_api import RELEASE, classic, collect_arrow
from skipping.stores.sqlite.store import SqliteStore
from tests.rewrite.differential import settings

pytestmark = [
    # DataFrame.toArrow and foreach of pyspark leave their sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    # toPandas of pyspark 4.1 on pandas 3.
    pytest.mark.filterwarnings("ignore:The copy keyword is deprecated"),
]

NO_QUERY = "not a query on a Delta or Iceberg table, or on a Parquet table without buckets and ids"


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> Iterator[tuple[str, str]]:
    """A table of four files with an index, and one of two files without."""
    for name, files in (("facts", 4), ("plain", 2)):
        frame = spark.range(0, 10 * files, 1, files).selectExpr(
            "id", "id % 3 AS k", "concat('secret', id) AS s", "id AS other"
        )
        frame.write.format("delta").option("delta.dataSkippingNumIndexedCols", "0").saveAsTable(
            name
        )
    spark.sql("CREATE SKIPPING INDEX ON facts (id MIN_MAX, s VALUE_LIST, s MIN_MAX, k VALUE_LIST)")
    yield "spark_catalog.default.facts", "spark_catalog.default.plain"
    for name in ("facts", "plain"):
        spark.sql(f"DROP SKIPPING INDEX IF EXISTS ON {name}")
        spark.sql(f"DROP TABLE {name}")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows with each question to the store."""
    questions: list[int] = []
    answer = SqliteStore.find_prunable

    def counted(self: SqliteStore, index: str, tests: Any, **named: Any) -> Any:
        questions.append(len(tests))
        return answer(self, index, tests, **named)

    monkeypatch.setattr(SqliteStore, "find_prunable", counted)
    return questions


@pytest.fixture
def configured(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    with ExitStack() as changes:
        yield lambda key, value: changes.enter_context(settings(spark, {key: value}))


def only(explanation: Explanation) -> ScanPlan:
    (scan,) = explanation.scans
    return scan


class TestExecutions:
    ACTIONS: dict[str, Callable[[DataFrame, Path], Any]] = {  # noqa: RUF012
        "show": lambda df, _: df.show(),
        "collect": lambda df, _: df.collect(),
        "count": lambda df, _: df.count(),
        "head": lambda df, _: df.head(),
        "isEmpty": lambda df, _: df.isEmpty(),
        "toPandas": lambda df, _: df.toPandas(),
        "toArrow": lambda df, _: collect_arrow(df),
        "toLocalIterator": lambda df, _: list(df.toLocalIterator()),
        "delta": lambda df, path: df.write.format("delta").save(str(path / "delta")),
        "parquet": lambda df, path: df.write.parquet(str(path / "parquet")),
        "saveAsTable": lambda df, _: df.write.format("delta").mode("overwrite").saveAsTable("copy"),
    }

    @pytest.mark.usefixtures("tables")
    @pytest.mark.parametrize("action", ACTIONS)
    def test_each_action_is_an_execution(
        self, spark: SparkSession, action: str, tmp_path: Path
    ) -> None:
        df = spark.sql("SELECT * FROM facts WHERE id = 5")
        self.ACTIONS[action](df, tmp_path)
        explanation = rewrite.explain(df)
        spark.sql("DROP TABLE IF EXISTS copy")
        assert explanation.execution is not None
        assert str(explanation).startswith(f"execution {explanation.execution[1]}")
        assert only(explanation) == ScanPlan(
            "spark_catalog.default.facts",
            total=4,
            pruned=3,
            legs=(("id = ?  MIN_MAX", 3),),
            opened=1,
        )

    @pytest.mark.usefixtures("tables")
    @pytest.mark.parametrize(
        "action",
        [lambda df: df.foreach(lambda _: None), lambda df: df.rdd.count()],
        ids=["foreach", "rdd"],
    )
    def test_what_runs_as_an_rdd_is_no_execution_but_counted(
        self, spark: SparkSession, action: Callable[[DataFrame], Any]
    ) -> None:
        df = spark.sql("SELECT * FROM facts WHERE id = 5")
        action(df)
        explanation = rewrite.explain(df)
        assert explanation.execution is None
        assert str(explanation).startswith("run as an RDD\n")
        assert only(explanation).opened == 1

    def test_a_write_to_a_v2_source_reads_past_the_index_and_says_so(
        self, spark: SparkSession, tables: tuple[str, str]
    ) -> None:
        df = spark.sql("SELECT * FROM facts WHERE id = 5")
        df.write.format("noop").mode("overwrite").save()
        scan = only(rewrite.explain(df))
        assert scan == ScanPlan(tables[0], opened=4, reason=NO_QUERY)

    @pytest.mark.usefixtures("tables")
    def test_the_last_one_counts(self, spark: SparkSession) -> None:
        df = spark.sql("SELECT * FROM facts WHERE id = 5")
        df.collect()
        first = rewrite.explain(df).execution
        df.count()
        second = rewrite.explain(df).execution
        assert first is not None
        assert second is not None
        assert first[1] < second[1]
        part = df.select("k").where("k = 1")
        assert rewrite.explain(part).execution is None
        part.collect()
        # It is a part of what ran last.
        assert rewrite.explain(df).execution == rewrite.explain(part).execution

    @pytest.mark.usefixtures("tables")
    def test_the_statement_is_its_name(
        self, spark: SparkSession, configured: Callable[[str, str], None]
    ) -> None:
        def title(df: DataFrame, action: Callable[[DataFrame], Any]) -> str:
            action(df)
            explanation = rewrite.explain(df)
            assert explanation.execution is not None
            return explanation.title.removeprefix(f"execution {explanation.execution[1]}")

        text = "-- monthly\nSELECT id,\n  s FROM facts WHERE s = 'secret15' AND id < 2.5e1"
        hidden = ": SELECT id, s FROM facts WHERE s = ? AND id < ?"
        for action in (DataFrame.collect, DataFrame.show, DataFrame.count):
            assert title(spark.sql(text), action) == hidden
        made = spark.table("facts").where("s = 'secret15'")
        assert title(made, DataFrame.collect) == " (collect)"
        made.createOrReplaceTempView("viewed")
        spark.sql("CREATE OR REPLACE TEMP VIEW named AS SELECT id, 'secret' FROM facts")
        assert title(spark.table("named"), DataFrame.collect) == " (collect)"
        last = rewrite.history(spark).collect()[-1]
        assert (last.action, last.statement) == ("collect", None)
        configured("spark.skipping.explain.values", "true")
        shown = title(spark.sql(text), DataFrame.collect)
        assert shown == ": SELECT id, s FROM facts WHERE s = 'secret15' AND id < 2.5e1"
        assert rewrite.history(spark).collect()[-1].statement == shown[2:]

    @pytest.mark.usefixtures("tables")
    def test_what_runs_again_opens_files_again(self, spark: SparkSession) -> None:
        df = spark.sql("SELECT * FROM facts WHERE id = 5")
        for _ in range(2):
            df.collect()
            scan = only(rewrite.explain(df))
            assert (scan.kept, scan.opened) == (1, 1)
            assert scan.opened_bytes == scan.kept_bytes

    @pytest.mark.usefixtures("tables")
    def test_it_is_printed_by_a_shell(self, spark: SparkSession) -> None:
        explanation = rewrite.explain("SELECT * FROM facts WHERE id = 5")
        assert repr(explanation) == str(explanation)

    @pytest.mark.usefixtures("tables")
    def test_two_of_one_text_are_told_apart(self, spark: SparkSession) -> None:
        text = "SELECT * FROM facts WHERE id = 5"
        one, other = spark.sql(text), spark.sql(text)
        one.collect()
        assert rewrite.explain(one).execution is not None
        assert rewrite.explain(other).execution is None
        other.count()
        assert rewrite.explain(one).execution != rewrite.explain(other).execution

    def test_a_failed_execution_is_none(self, spark: SparkSession, tables: tuple[str, str]) -> None:
        df = spark.sql("SELECT assert_true(id < 0) FROM facts WHERE id = 5")
        with pytest.raises(Exception, match="is not true"):
            df.collect()
        assert rewrite.explain(df).execution is None


class TestCounts:
    @pytest.mark.smoke
    def test_they_add_up(self, spark: SparkSession, tables: tuple[str, str]) -> None:
        df = spark.sql("SELECT * FROM facts WHERE id > 8 AND (s = 'secret15' OR s = 'secret25')")
        df.collect()
        scan = only(rewrite.explain(df))
        assert (scan.total, scan.pruned, scan.unknown, scan.kept) == (4, 2, 0, 2)
        assert scan.kept == scan.opened
        assert scan.legs == (
            ("id > ?  MIN_MAX", 0),
            ("s IN (2 keys)  VALUE_LIST", 2),
            ("s IN (2 keys)  MIN_MAX", 1),
        )
        sized = re.compile(r"  [\d.,]+ [kM]?B$")
        lines = [sized.sub("", line) for line in str(scan).splitlines()]
        assert lines.pop() == "  pruned no file: id > ?  MIN_MAX"
        assert re.fullmatch(r"  index lookup \d+\.\d\d\d s", lines.pop())
        assert lines == [
            tables[0],
            "  files              4",
            "  - pruned           2  by s IN (2 keys)  VALUE_LIST",
            "  - pruned           1  by s IN (2 keys)  MIN_MAX",
            "  - pruned           2  together",
            "  = to read          2",
            "  opened             2",
        ]

    @pytest.mark.usefixtures("tables")
    def test_a_subquery_is_a_scan_of_its_own(self, spark: SparkSession) -> None:
        df = spark.sql(
            "SELECT * FROM facts WHERE id = (SELECT max(id) FROM facts WHERE k = 7) OR id = 39"
        )
        df.collect()
        outer, inner = rewrite.explain(df).scans
        assert (outer.total, outer.opened) == (4, 4)
        assert (inner.legs, inner.opened) == ((("k = ?  VALUE_LIST", 4),), 0)

    @pytest.mark.usefixtures("tables")
    @pytest.mark.parametrize("adaptive", ["true", "false"])
    def test_each_side_of_a_self_join_is_a_scan(
        self, spark: SparkSession, configured: Callable[[str, str], None], adaptive: str
    ) -> None:
        configured("spark.sql.adaptive.enabled", adaptive)
        df = spark.sql(
            "SELECT * FROM facts a JOIN facts b ON a.k = b.k WHERE a.id = 5 AND b.id > 15"
        )
        planned = rewrite.explain(df)
        assert planned.execution is None
        assert sorted(scan.pruned for scan in planned.scans) == [1, 3]
        assert {scan.opened for scan in planned.scans} == {None}
        df.collect()
        ran = rewrite.explain(df)
        assert sorted(scan.opened or 0 for scan in ran.scans) == [1, 3]
        assert [scan.pruned for scan in ran.scans] == [s.pruned for s in planned.scans]

    @pytest.mark.usefixtures("tables")
    def test_a_cached_frame_shows_what_filled_the_cache(self, spark: SparkSession) -> None:
        df = spark.sql("SELECT * FROM facts WHERE id = 5").cache()
        try:
            assert only(rewrite.explain(df)).opened is None
            df.count()
            assert not only(rewrite.explain(df)).cached
            above = df.where("k = 2")
            above.collect()
            for explanation in map(rewrite.explain, (df, above)):
                assert explanation.execution is not None
                assert (only(explanation).pruned, only(explanation).opened) == (3, 1)
                assert only(explanation).cached
            assert "the files were opened when the cache was filled" in str(rewrite.explain(above))
            _, id = rewrite.explain(above).execution or ("", -1)
            assert id not in {row.execution for row in rewrite.history(spark).collect()}
        finally:
            df.unpersist()

    @pytest.mark.usefixtures("tables")
    def test_a_cached_table_is_filled_whatever_is_asked_of_it(self, spark: SparkSession) -> None:
        whole = spark.table("facts").cache()
        try:
            df = whole.where("id = 5")
            df.collect()
            scan = only(rewrite.explain(df))
            assert (scan.reason, scan.opened) == (
                "a cached frame is filled with all of its rows",
                4,
            )
        finally:
            whole.unpersist()

    @pytest.mark.usefixtures("tables")
    def test_tuples_are_one_line(self, spark: SparkSession) -> None:
        """Twenty, one a line, would be forty lines, and none would say what was skipped."""
        tuples = ", ".join(f"({i % 3}L, 'secret{i}')" for i in range(20))
        df = spark.sql(f"SELECT * FROM facts WHERE (k, s) IN ({tuples})")
        df.collect()
        scan = only(rewrite.explain(df))
        assert scan.legs == (("(k, s) IN (20 tuples)  MIN_MAX, VALUE_LIST", 2),)
        assert scan.opened == 2

    @pytest.mark.usefixtures("tables")
    def test_files_without_a_match(self, spark: SparkSession) -> None:
        """Known where Spark read each row, and the filter left fewer rows than there are files."""

        def explained(query: str) -> str:
            df = spark.sql(query)
            df.collect()
            return str(rewrite.explain(df))

        none = "SELECT {} FROM facts WHERE other IN (-1, {})"
        for what in ("*", "count(*)"):
            assert "\n  4 of the opened files had no" in explained(none.format(what, -2))
            one = explained(none.format(what, 5))
            assert "\n  at least 3 of the opened files had no matching row" in one
        assert "had no matching row" not in explained(none.format("*", 5) + " LIMIT 1")
        assert "had no matching row" not in explained("SELECT * FROM facts WHERE other >= 0")

    @pytest.mark.usefixtures("tables")
    @pytest.mark.parametrize("hint", ["BROADCAST(d)", "MERGE(f, d)"])
    def test_a_join_with_an_empty_side(self, spark: SparkSession, hint: str) -> None:
        """Adaptive execution takes the scan of the other side out of the plan."""
        df = spark.sql(
            f"SELECT /*+ {hint} */ f.id FROM facts f JOIN (SELECT k FROM plain WHERE other < -1) d"
            " ON f.k = d.k"
        )
        df.collect()
        scans = {scan.table: scan for scan in rewrite.explain(df).scans}
        assert set(scans) == {"spark_catalog.default.facts", "spark_catalog.default.plain"}
        assert scans["spark_catalog.default.plain"].opened == 2
        fact = scans["spark_catalog.default.facts"]
        if hint.startswith("BROADCAST"):  # else both sides are shuffled at once
            assert (fact.opened, fact.reason) == (
                0,
                "Spark left it out while the query ran, as another part of the query had no rows",
            )

    @pytest.mark.usefixtures("tables")
    def test_values_stay_hidden(self, spark: SparkSession) -> None:
        df = spark.sql(
            "SELECT * FROM facts WHERE s IN ('secret15', 'x') AND s LIKE 'secret%'"
            " AND s <> 'secret3' AND upper(s) <> 'SECRET1' AND other = 15"
        )
        text = str(rewrite.explain(df)) + str(rewrite.explain(df).to_dict())
        df.collect()
        text += str(rewrite.explain(df)) + str(rewrite.explain(df).to_dict())
        assert "secret" not in text.lower()
        assert "not used: other = ?: other is not in the index" in text


class TestPlans:
    @pytest.mark.smoke
    @pytest.mark.usefixtures("tables")
    def test_explaining_runs_no_job_and_asks_once_a_scan(
        self, spark: SparkSession, asked: list[int]
    ) -> None:
        text = "SELECT * FROM facts a JOIN facts b ON a.k = b.k WHERE a.id = 5 AND b.id > 15"
        df = spark.sql(text)
        assert df.columns
        assert asked == []
        # Delta's own planning may run jobs.
        df._jdf.queryExecution().executedPlan()
        group = str(uuid4())
        spark.sparkContext.setJobGroup(group, "explain")
        try:
            explanation = rewrite.explain(df)
        finally:
            spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        assert spark.sparkContext.statusTracker().getJobIdsForGroup(group) == []
        assert len(asked) == len(explanation.scans) == 2
        assert str(explanation).startswith("plan (not executed; what a run would read)\n")
        assert "opened" not in str(explanation)

    @pytest.mark.usefixtures("tables")
    def test_a_run_asks_once_a_scan_and_explaining_it_nothing(
        self, spark: SparkSession, asked: list[int]
    ) -> None:
        df = spark.sql("SELECT count(*) FROM facts WHERE id = 5")
        assert asked == []
        df.collect()
        assert asked == [1]
        rewrite.explain(df)
        assert asked == [1]

    def test_a_scan_of_another_table_asks_nothing(
        self, spark: SparkSession, tables: tuple[str, str], asked: list[int]
    ) -> None:
        df = spark.sql("SELECT * FROM plain WHERE id = 5")
        df.collect()
        assert asked == []
        assert only(rewrite.explain(df)) == ScanPlan(
            tables[1], opened=2, reason="the table has no index"
        )


class TestReasons:
    @pytest.mark.usefixtures("tables")
    @pytest.mark.parametrize(
        ("query", "reason"),
        [
            ("SELECT * FROM plain WHERE id = 5", "the table has no index"),
            ("SELECT * FROM facts", "no condition of the query reached this scan"),
            ("SELECT * FROM {orc} WHERE id = 5", NO_QUERY),
        ],
    )
    def test_why_no_index_was_asked(
        self, spark: SparkSession, query: str, reason: str, tmp_path: Path
    ) -> None:
        spark.range(3).write.orc(str(tmp_path / "x"))
        df = spark.sql(query.format(orc=f"orc.`{tmp_path}/x`"))
        for _ in ("plan", "execution"):
            scan = only(rewrite.explain(df))
            assert (scan.reason, scan.total) == (reason, None)
            assert f"no index was used: {reason}" in str(scan)
            df.collect()

    @pytest.mark.usefixtures("tables")
    @pytest.mark.parametrize(
        ("condition", "unused"),
        [
            ("other = 5", "other = ?: other is not in the index"),
            ("k > 1 OR id % 2 = 0", "id % ? = ?: no index can answer it"),
            ("s LIKE '%5'", "s LIKE '%?': VALUE_LIST does not support this condition"),
            (
                "s LIKE '%secret15%'",
                "s LIKE '%?%': NGRAM on s can answer it: ALTER SKIPPING INDEX ON "
                "spark_catalog.default.facts ADD (s NGRAM)",
            ),
            (
                "k = 1 AND upper(s) IN ('A', 'B')",
                "s ILIKE '%?%': VALUE_LIST does not support this condition",
            ),
            ("k = 1 AND reverse(s) IN ('A', 'B')", "in(reverse(s), ?, ?): no index can answer it"),
        ],
    )
    def test_why_a_condition_did_not_help(
        self, spark: SparkSession, condition: str, unused: str
    ) -> None:
        scan = only(rewrite.explain(spark.sql(f"SELECT * FROM facts WHERE {condition}")))
        assert scan.total == 4
        assert any(unused in text for text in scan.unused), scan.unused

    def test_switched_off(
        self,
        spark: SparkSession,
        tables: tuple[str, str],
        configured: Callable[[str, str], None],
    ) -> None:
        configured("spark.skipping.enabled", "false")
        df = spark.sql("SELECT * FROM facts WHERE id = 5")
        df.collect()
        assert only(rewrite.explain(df)) == ScanPlan(
            tables[0], opened=4, reason="spark.skipping.enabled is false"
        )

    def test_disabled_and_enabled_again(self, spark: SparkSession, tables: tuple[str, str]) -> None:
        rewrite.disable(spark)
        try:
            df = spark.sql("SELECT * FROM facts WHERE id = 5")
            df.collect()
            assert only(rewrite.explain(df)) == ScanPlan(
                tables[0], opened=4, reason="rewrite.disable was called"
            )
        finally:
            rewrite.enable(spark)
        df = spark.sql("SELECT * FROM facts WHERE id = 5")
        df.collect()
        assert only(rewrite.explain(df)).opened == 1

    @pytest.mark.smoke
    @pytest.mark.usefixtures("tables")
    def test_a_store_that_fails_is_the_reason(
        self,
        spark: SparkSession,
        configured: Callable[[str, str], None],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise OSError("disk gone")

        configured("spark.skipping.mode", "fallback")
        monkeypatch.setattr(SqliteStore, "find_prunable", fail)
        df = spark.sql("SELECT * FROM facts WHERE id = 5")
        df.collect()
        scan = only(rewrite.explain(df))
        assert (scan.reason, scan.opened) == ("OSError: disk gone", 4)

    @pytest.mark.usefixtures("tables")
    def test_a_store_that_hangs_is_the_reason(
        self,
        spark: SparkSession,
        configured: Callable[[str, str], None],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        wake = threading.Event()
        monkeypatch.setattr(SqliteStore, "find_prunable", lambda *_, **__: wake.wait(60))
        configured("spark.skipping.mode", "fallback")
        configured("spark.skipping.timeout", "200ms")
        df = spark.sql("SELECT * FROM facts WHERE id = 5")
        try:
            df.collect()
        finally:
            wake.set()
        scan = only(rewrite.explain(df))
        assert scan.reason == "the index did not answer within spark.skipping.timeout"
        assert scan.opened == 4

    @pytest.mark.usefixtures("tables")
    def test_a_store_that_does_not_know_is_the_reason(
        self, spark: SparkSession, configured: Callable[[str, str], None], tmp_path: Path
    ) -> None:
        """Which tables have an index cannot be told: not that this one has none."""
        (tmp_path / "damaged").write_text("this is no database" * 100)
        configured("spark.skipping.mode", "fallback")
        for store, why in (
            ("opensearch://localhost:1", "http://localhost:1 cannot be reached"),
            (f"sqlite:{tmp_path}/damaged", "file is not a database"),
            (f"sqlite:{tmp_path}/nowhere", "nowhere"),
            ("nonsense:x", "nonsense: is not supported"),
        ):
            configured("spark.skipping.store", store)
            df = spark.sql("SELECT * FROM facts WHERE id = 5")
            for _ in ("plan", "execution"):
                reason = only(rewrite.explain(df)).reason or ""
                assert why in reason
                assert reason != "the table has no index"
                df.collect()

    def test_a_stream_of_a_folder_reads_its_batch(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        folder = str(tmp_path / "streamed_folder")
        spark.range(10).write.parquet(folder)
        stream = spark.readStream.schema("id LONG").parquet(folder).where("id = 5").writeStream
        query = (
            stream.format("memory")
            .queryName("streamed")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        found = [r.reason for r in rewrite.history(spark).collect() if "streamed_folder" in r.table]
        # Spark 3.5 does not tell a stream from a query on files of a folder.
        expected = {
            True: "a stream reads all files of its batch",
            False: "the table has no index",
        }[RELEASE >= (4, 0)]
        assert found[-1] == expected

    def test_a_frame_of_pandas(self, spark: SparkSession) -> None:
        frame = spark.range(3).toPandas()
        with pytest.raises(TypeError, match=r"Spark DataFrame .*, not pandas\.DataFrame$"):
            rewrite.explain(frame)  # type: ignore[arg-type]

    def test_no_scan_and_no_hooks(self, spark: SparkSession) -> None:
        assert str(rewrite.explain(spark.range(3))).endswith("no file scan")
        session: Any = classic(spark.sparkContext._jvm).SparkSession  # type: ignore[union-attr]
        unhooked = SparkSession(spark.sparkContext, session(spark.sparkContext._jsc.sc(), {}))
        with pytest.raises(SessionError, match=r"spark = rewrite\.enable\(spark\)"):
            rewrite.explain(unhooked.range(3))


def test_scan_without_a_path_is_explained(spark: SparkSession) -> None:
    spark.sql("CREATE TEMP VIEW no_path (i INT) USING parquet")
    for query in ("SELECT * FROM no_path", "SELECT * FROM no_path a JOIN no_path b USING (i)"):
        df = spark.sql(query)
        planned = rewrite.explain(df)
        assert {scan.table for scan in planned.scans} == {"parquet without a path"}
        assert df.collect() == []
        # Spark drops the scans of a join that turns out to be empty.
        assert {scan.table for scan in rewrite.explain(df).scans} <= {"parquet without a path"}
    spark.catalog.dropTempView("no_path")


def test_explain_shows_no_control_characters_and_no_passwords(spark: SparkSession) -> None:
    """Who writes to a table chooses the names of its columns."""
    name = "a\x1b[2J\n  opened 0"
    spark.sql(
        f"CREATE TABLE hostile (`{name}` STRING) USING delta "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    spark.sql("INSERT INTO hostile VALUES ('a'), ('b')")
    df = spark.sql(
        f"SELECT 1 AS `ftp://user:secret@host` FROM hostile WHERE soundex(`{name}`) = 'x'"
    )
    df.collect()
    history = str(rewrite.history(spark).collect()[-1].asDict())
    for text in (str(rewrite.explain(df)), rewrite.explain(df)._repr_html_(), history):
        assert "\x1b" not in text
        assert "secret" not in text
        assert "\n  opened 0" not in text
        assert "[2J" in text
    spark.sql("DROP TABLE hostile")
