"""Statements as texts: whose they are, what is wrong with them, and what Flint's say here."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pyspark.errors import ParseException
from pyspark.sql import SparkSession

import skipping
from providers.errors import StatementError
from tests.skipping.commands.samples import FLINT, indexes, refused, word

pytestmark = pytest.mark.nightly


class TestParsing:
    def test_a_statement_runs_once_when_it_is_executed(
        self, spark: SparkSession, t: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ran: list[str] = []
        run = skipping.sql

        def counted(session: SparkSession, text: str) -> Any:
            ran.append(text)
            return run(session, text)

        monkeypatch.setattr(skipping, "sql", counted, raising=False)
        text = f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX) WITH (build = false)"
        jvm: Any = spark._jvm
        state = spark._jsparkSession.sessionState()
        plan = state.sqlParser().parsePlan(text)
        modes = getattr(jvm, "org.apache.spark.sql.execution.CommandExecutionMode$")
        lazy = state.executePlan(plan, getattr(modes, "MODULE$").SKIP())
        assert f"Command {text}" in lazy.toString()
        assert ran == []
        assert not indexes(spark, t)
        ran.clear()

        frame = spark.sql(text)
        assert (frame.collect(), frame.count()) == ([], 0)
        frame.explain()
        assert ran == [text]

        show = spark.sql("SHOW SKIPPING INDEXES")
        show.createOrReplaceTempView("shown")
        assert spark.sql(f"SELECT orphan FROM shown WHERE table = '{t}'").collect() == [(False,)]
        spark.catalog.dropTempView("shown")
        assert ran[1:] == ["SHOW SKIPPING INDEXES"]

    @pytest.mark.parametrize(
        "text",
        [
            "SHOW TABLES",
            "SELECT 'CREATE SKIPPING INDEX ON t' AS text",
            "WITH skipping AS (SELECT 1 AS recover) SELECT recover AS flint FROM skipping",
            "SELECT 1 AS skipping -- DROP SKIPPING INDEX ON t",
            "EXPLAIN SELECT 'skipping'",
            "SET spark.skipping.enabled",
            "/* SKIPPING */ VALUES (1)",
        ],
    )
    def test_other_text_is_left_to_spark(self, spark: SparkSession, text: str) -> None:
        assert spark.sql(text).columns

    def test_names_that_look_like_ours_are_left_to_spark(self, spark: SparkSession) -> None:
        spark.sql("CREATE TEMPORARY VIEW skipping AS SELECT 1 AS index")
        assert spark.sql("DESCRIBE skipping index").columns == ["info_name", "info_value"]
        spark.catalog.dropTempView("skipping")
        with pytest.raises(ParseException):
            spark.sql("CREATE SKIPING INDEX ON t (a MIN_MAX)")

    def test_errors_arrive_whole_and_as_ours(self, spark: SparkSession, t: str) -> None:
        message = refused(spark, f"DROP SKIPPING INDEX\n  ON {t} please", StatementError)
        assert message == (
            "expected the end, not please\n"
            f"line 2, column {len(t) + 7}\n    ON {t} please\n{' ' * (len(t) + 8)}^^^^^^"
        )
        message = refused(spark, "REFRESH SKIPPING INDEX ON not_there", StatementError)
        assert message.startswith("cannot open table not_there: [TABLE_OR_VIEW_NOT_FOUND]")
        assert word(message) == "not_there"


class TestFlint:
    """Each statement of Flint's manual runs, or fails by name with the reason."""

    # By what a statement holds; the first that fits is what is expected of it.
    REASONS = (
        ("myglue", "cannot open table myglue.default.requests"),
        ("watermark_delay", "the option watermark_delay has no meaning here"),
    )

    def test_every_statement(self, spark: SparkSession) -> None:
        spark.sql(
            "CREATE TABLE requests (day STRING, status INT, took DOUBLE, ip STRING,"
            " client STRUCT<net: STRUCT<ip: STRING>, port: INT>) USING delta PARTITIONED BY (day)"
        )
        text = re.sub(r"^--.*$", "", FLINT.read_text(), flags=re.MULTILINE)
        statements = [s.strip() for s in re.split(r";\s*\n", text) if s.strip()]
        assert len(statements) > 25
        ran = 0
        for statement in statements:
            if re.match("(REFRESH|DESC|DROP|VACUUM|ALTER)", statement):
                spark.sql("CREATE SKIPPING INDEX IF NOT EXISTS ON requests (took MIN_MAX)")
            elif statement.startswith("RECOVER"):
                spark.sql(
                    "CREATE SKIPPING INDEX IF NOT EXISTS ON requests (took MIN_MAX)"
                    " WITH (auto_refresh = true)"
                )
            else:
                spark.sql("DROP SKIPPING INDEX IF EXISTS ON requests")
            reason = next((says for has, says in self.REASONS if has in statement), None)
            if reason is None:
                spark.sql(statement)
                ran += 1
            else:
                assert reason in refused(spark, statement), statement
        assert ran > 15
        spark.sql("DROP SKIPPING INDEX IF EXISTS ON requests")
        assert not spark.streams.active
        spark.sql("DROP TABLE requests")
