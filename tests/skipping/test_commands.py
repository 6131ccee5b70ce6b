"""Statements as people run them: what they do, what they say, and where they point."""

from __future__ import annotations

import itertools
import logging
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Row, SparkSession

import rewrite
import skipping
from providers.errors import (
    SettingError,
    SkippingError,
    StatementError,
    StoreError,
)
from skipping import ScanPlan, SkippingIndex
from skipping.build.spark import SparkBuild
from skipping.engines.spark import settings_of, store_of

# DataFrame.toArrow of pyspark leaves its socket to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

FLINT = Path(__file__).parent / "parser" / "flint.sql"
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

_numbers = itertools.count()


def fresh() -> str:
    return f"cmd{next(_numbers):03}"


def make(spark: SparkSession, name: str, *, files: int = 4, start: int = 0) -> None:
    """Ten rows a file, `id` clustered; Delta keeps no bounds, so that only an index skips."""
    frame = spark.range(start, start + 10 * files, 1, files)
    frame.selectExpr("id", "cast(id % 7 as string) AS s", "id * 2 AS n").write.format(
        "delta"
    ).option("delta.dataSkippingNumIndexedCols", "0").mode("append").saveAsTable(name)


@pytest.fixture
def t(spark: SparkSession) -> Iterator[str]:
    name = fresh()
    make(spark, name)
    yield name
    spark.sql(f"DROP SKIPPING INDEX IF EXISTS ON {name}")
    spark.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.fixture(scope="module")
def wide(spark: SparkSession) -> Iterator[str]:
    """A table with no rows, and a column of each type that matters here."""
    name = fresh()
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT, s STRING, day DATE, code CHAR(3), tags ARRAY<STRING>,"
        " m MAP<STRING, INT>, v VARIANT, a STRUCT<b: STRUCT<c: INT, `x.y`: STRING>>)"
        " USING delta PARTITIONED BY (day)"
    )
    yield name
    spark.sql(f"DROP TABLE {name}")


@pytest.fixture(scope="module")
def unhooked(spark: SparkSession) -> SparkSession:
    """A Delta session of its own in the same Spark context, where nothing was put in."""
    session: Any = spark.sparkContext._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]
    jvm_session = session(spark.sparkContext._jsc.sc(), {})
    assert rewrite.bridge.install.find_hooks(SparkSession(spark.sparkContext, jvm_session)) is None
    return SparkSession(spark.sparkContext, jvm_session)


def indexes(spark: SparkSession, name: str) -> list[Row]:
    return [
        row for row in spark.sql("SHOW SKIPPING INDEXES EXTENDED").collect() if row.table == name
    ]


def facts(spark: SparkSession, name: str) -> dict[str, str | None]:
    rows = spark.sql(f"DESCRIBE SKIPPING INDEX EXTENDED ON {name}").collect()
    assert len({row.item for row in rows}) == len(rows)
    return {row.item: row.value for row in rows}


def scan(spark: SparkSession, query: str) -> ScanPlan:
    df = spark.sql(query)
    df.collect()
    (plan,) = rewrite.explain(df).scans
    return plan


def opened(spark: SparkSession, query: str) -> int | None:
    return scan(spark, query).opened


def refused(spark: SparkSession, text: str, error: type[SkippingError] = SkippingError) -> str:
    with pytest.raises(error) as caught:
        spark.sql(text)
    return str(caught.value)


def word(message: str) -> str:
    """What the mark stands under."""
    *_, line, mark = message.split("\n")
    return line[mark.index("^") : mark.rindex("^") + 1]


class TestBothWays:
    STATEMENTS = (
        "CREATE SKIPPING INDEX ON {t} (id MIN_MAX, s VALUE_LIST(20)) WITH (build = false)",
        "DESC SKIPPING INDEX ON {t}",
        "DESCRIBE SKIPPING INDEX EXTENDED ON {t}",
        "REFRESH SKIPPING INDEX ON {t}",
        "DESCRIBE SKIPPING INDEX EXTENDED ON {t}",
        "SHOW SKIPPING INDEXES",
        "SHOW FLINT INDEX EXTENDED IN spark_catalog.default",
        "CREATE SKIPPING INDEX IF NOT EXISTS ON {t} (id MIN_MAX)",
        "CREATE SKIPPING INDEX ON {t} (id MIN_MAX)",
        "CREATE SKIPPING INDEX ON {t} (nope MIN_MAX)",
        "CREATE SKIPPING INDEX {t} (id MIN_MAX)",
        "ALTER SKIPPING INDEX ON {t} DISABLE",
        "ANALYZE SKIPPING INDEX ON {t}",
        "RECOVER INDEX JOB job",
        "VACUUM SKIPPING INDEX ON {t}",
        "DROP SKIPPING INDEX ON {t}",
        "DROP SKIPPING INDEX IF EXISTS ON {t}",
        "DROP SKIPPING INDEX ON {t}",
        "DESCRIBE SKIPPING INDEX ON {t}",
        "REFRESH SKIPPING INDEX ON {t}",
        "VACUUM SKIPPING INDEX ON {t}",
        "SHOW SKIPPING INDEXES",
    )

    def answers(self, path: Path, run: Callable[[str], Any]) -> list[tuple[str, str, object, str]]:
        answers = []
        for statement in self.STATEMENTS:
            try:
                df = run(statement.format(t=f"delta.`{path}`"))
                rows = df.drop("ms_a_file").collect()  # what ANALYZE measured
                if statement.startswith("SHOW"):
                    rows = [row for row in rows if row.table == f"file:{path}"]
                answer = (statement, "", df.schema, "\n".join(map(str, rows)))
            except SkippingError as error:
                answer = (statement, type(error).__name__, None, str(error))
            answers.append((*answer[:3], UUID.sub("UUID", answer[3])))
        return answers

    def test_sql_of_a_session_and_skipping_sql_without_hooks_answer_alike(
        self, spark: SparkSession, unhooked: SparkSession, tmp_path: Path
    ) -> None:
        path = tmp_path / "t"
        spark.range(0, 20, 1, 2).selectExpr("id", "cast(id % 7 AS string) AS s").write.format(
            "delta"
        ).save(str(path))
        hooked = self.answers(path, spark.sql)
        plain = self.answers(path, lambda text: skipping.sql(unhooked, text))
        assert hooked == plain
        failed = {statement.split()[0]: kind for statement, kind, *_ in hooked if kind}
        assert failed == {
            "CREATE": "StatementError",
            "RECOVER": "StatementError",
            "DROP": "StatementError",
            "DESCRIBE": "StatementError",
            "REFRESH": "StatementError",
        }

    def test_other_text_is_not_run_by_skipping_sql(self, unhooked: SparkSession) -> None:
        with pytest.raises(StatementError, match=r"not a skipping-index statement.*use spark\.sql"):
            skipping.sql(unhooked, "SHOW TABLES")
        with pytest.raises(StatementError, match="not a skipping-index statement"):
            skipping.schema("SHOW TABLES")

    def test_schemas_are_known_before_anything_runs(self) -> None:
        assert skipping.schema("DROP SKIPPING INDEX ON nowhere") == ""
        assert skipping.schema("DESC SKIPPING INDEX ON nowhere").startswith("indexed_col_name")


class TestCreate:
    def test_it_builds_says_where_and_skips(
        self, spark: SparkSession, t: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert opened(spark, f"SELECT * FROM {t} WHERE id = 5") == 4
        with caplog.at_level(logging.INFO, "skipping"):
            answer = spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX, s VALUE_LIST)")
        assert (answer.columns, answer.collect()) == ([], [])
        store = store_of(spark, settings_of(spark)).location
        assert caplog.messages == [f"skipping index of spark_catalog.default.{t} in {store}"]
        plan = scan(spark, f"SELECT * FROM {t} WHERE id = 5")
        assert (plan.total, plan.disproved, plan.unknown, plan.opened) == (4, 3, 0, 1)

    def test_bloom_filters_skip_what_bounds_and_lists_cannot(self, spark: SparkSession) -> None:
        name = fresh()
        rows = spark.range(0, 8_000, 1, 8).selectExpr("(id * 7919) % 8009 AS k", "id")
        rows.selectExpr("k", "concat('\u00e9', k) AS s", "cast(k AS string) AS big").write.format(
            "delta"
        ).option("delta.dataSkippingNumIndexedCols", "0").saveAsTable(name)
        spark.sql(
            f"CREATE SKIPPING INDEX ON {name}"
            " (k BLOOM_FILTER(0.0001), s BLOOM_FILTER(20, 0.0001), big BLOOM_FILTER(false, 1000))"
        )
        kinds = {
            row.indexed_col_name: row.params
            for row in spark.sql(f"DESC SKIPPING INDEX ON {name}").collect()
        }
        assert kinds["s"] == "fpp = 0.0001, num_candidates = 20"
        for condition in ("k = 7919", "s = '\u00e97919'", "k IN (7919, 7829) AND k <=> 7919"):
            query = f"SELECT * FROM {name} WHERE {condition}"
            assert (opened(spark, query), spark.sql(query).count()) == (1, 1), condition
        spark.sql(f"DROP TABLE {name}")

    def test_if_not_exists_leaves_what_is_there(self, spark: SparkSession, t: str) -> None:
        spark.sql(f"CREATE SKIPPING INDEX IF NOT EXISTS ON {t} (id MIN_MAX) WITH (build = false)")
        spark.sql(f"CREATE SKIPPING INDEX IF NOT EXISTS ON {t} (s VALUE_LIST)")
        described = spark.sql(f"DESCRIBE SKIPPING INDEX ON {t}").collect()
        assert [tuple(row) for row in described] == [("id", "bigint", "MIN_MAX", "")]

    def test_a_second_index_points_at_the_table(self, spark: SparkSession, t: str) -> None:
        spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX) WITH (build = false)")
        message = refused(spark, f"CREATE SKIPPING INDEX ON {t} (s VALUE_LIST)", StatementError)
        assert f"{t} has a skipping index already: drop it first" in message
        assert word(message) == t

    def test_without_a_build_all_files_are_unknown_and_read(
        self, spark: SparkSession, t: str
    ) -> None:
        spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX) WITH (build = false)")
        described = facts(spark, t)
        assert (described["state"], described["version covered"]) == ("creating", None)
        assert (described["files"], described["lag"]) == ("0", None)
        plan = scan(spark, f"SELECT * FROM {t} WHERE id = 5")
        assert (plan.unknown, plan.opened) == (4, 4)

    def test_where_by_statistics_chooses_files(self, spark: SparkSession, t: str) -> None:
        name = fresh()
        spark.range(0, 40, 1, 4).selectExpr("id", "id % 40 AS n").write.format("delta").option(
            "delta.dataSkippingStatsColumns", "id"
        ).saveAsTable(name)
        spark.sql(f"CREATE SKIPPING INDEX ON {name} (n MIN_MAX) WHERE id >= 15")
        described = facts(spark, name)
        assert (described["files"], described["where"]) == ("3", "id >= 15")
        # The first file has no entry, so it is unknown and read, whatever the query's condition.
        plan = scan(spark, f"SELECT * FROM {name} WHERE n = 35")
        assert (plan.total, plan.disproved, plan.unknown, plan.opened) == (4, 2, 1, 2)
        spark.sql(f"INSERT INTO {name} SELECT id, id FROM range(0, 10)")
        spark.sql(f"INSERT INTO {name} SELECT id, id FROM range(100, 110)")
        spark.sql(f"REFRESH SKIPPING INDEX ON {name}")
        assert facts(spark, name)["files"] in ("4", "5")  # a write may make more than one file
        assert scan(spark, f"SELECT * FROM {name} WHERE n = 3").opened in (2, 3)
        spark.sql(f"DROP SKIPPING INDEX ON {name}")
        spark.sql(f"DROP TABLE {name}")

    def test_where_by_partition_value_chooses_files(self, spark: SparkSession) -> None:
        name = fresh()
        rows = spark.range(0, 40, 1, 1).selectExpr(
            "id", "date'2024-01-01' + cast(id % 4 AS int) AS day"
        )
        rows.write.format("delta").option("delta.dataSkippingNumIndexedCols", "0").partitionBy(
            "day"
        ).saveAsTable(name)
        spark.sql(f"CREATE SKIPPING INDEX ON {name} (id VALUE_LIST) WHERE day > '2024-01-02'")
        assert facts(spark, name)["files"] == "2"
        plan = scan(spark, f"SELECT * FROM {name} WHERE id = 2")
        assert (plan.total, plan.disproved, plan.unknown, plan.opened) == (4, 1, 2, 3)
        spark.sql(f"DROP SKIPPING INDEX ON {name}")
        spark.sql(f"DROP TABLE {name}")

    def test_nested_columns(self, spark: SparkSession) -> None:
        name = fresh()
        nested = "named_struct('b', named_struct('c', id, 'x.y', cast(id AS string))) AS a"
        spark.range(0, 20, 1, 2).selectExpr(nested).write.format("delta").option(
            "delta.dataSkippingNumIndexedCols", "0"
        ).saveAsTable(name)
        spark.sql(f"CREATE SKIPPING INDEX ON {name} (a.b.c MIN_MAX, A.B.`x.y` VALUE_LIST)")
        described = spark.sql(f"DESCRIBE SKIPPING INDEX ON {name}").collect()
        assert [row.indexed_col_name for row in described] == ["a.b.c", "a.b.`x.y`"]
        assert opened(spark, f"SELECT * FROM {name} WHERE a.b.c = 15") == 1
        assert opened(spark, f"SELECT * FROM {name} WHERE a.b.`x.y` = '3'") == 1
        spark.sql(f"DROP SKIPPING INDEX ON {name}")
        spark.sql(f"DROP TABLE {name}")

    @pytest.mark.parametrize(
        ("text", "marked", "says"),
        [
            ("(id MIN_MAX, nope VALUE_LIST)", "nope", "no column nope: there are id, s"),
            ("(a.b.d MIN_MAX)", "a", r"no column a\.b\.d"),
            ("(id MIN_MAX, s BLOM_FILTER)", "BLOM_FILTER", "no index kind BLOM_FILTER: there are"),
            ("(s VALUE_LIST(limt => 3))", "VALUE_LIST", "VALUE_LIST takes limit, not limt"),
            ("(s VALUE_LIST(1, 2))", "VALUE_LIST", "VALUE_LIST takes limit, not 2 values"),
            ("(id MIN_MAX(3))", "MIN_MAX", "MIN_MAX takes no parameter"),
            ("(s VALUE_LIST(0))", "VALUE_LIST", "a limit of 1 or more"),
            ("(s VALUE_LIST(1, limit => 2))", "VALUE_LIST", "limit is given twice"),
            ("(id MIN_MAX, ID MIN_MAX)", "MIN_MAX", "id MIN_MAX is given twice"),
            ("(s VALUE_LIST, s VALUE_SET)", "VALUE_SET", "s VALUE_LIST is given twice"),
            ("(s PARTITION)", "PARTITION", "partition"),
            ("(id MIN_MAX) WITH (bild = false)", "bild", r"no option bild: did you mean build\?"),
            ("(id MIN_MAX) WITH (build = maybe)", "maybe", "expected a value"),
            ("(id MIN_MAX) WITH (build = 'maybe')", "build", "takes true or false, not 'maybe'"),
            ("(id MIN_MAX) WITH (refresh_interval = 0)", "refresh_interval", "a duration above"),
            ("(id MIN_MAX) WITH (extra_options = '{}')", "extra_options", "has no meaning here"),
            ("(id MIN_MAX) WITH (output_mode = 'x')", "output_mode", "has no meaning here"),
            ("(id MIN_MAX) WHERE nope > 3", "nope", "nope"),
            ("(id MIN_MAX) WHERE id > ", " ", "the condition ends too early"),
            ("(id MIN_MAX) WHERE abs(id) > 1", "abs", "abs is a function"),
            ("(code MIN_MAX)", "code", r"char\(3\), which compares padded; make it a STRING"),
            ("(tags VALUE_LIST)", "tags", "tags is array<string>, which has no index"),
            ("(m VALUE_LIST)", "m", "m is map<string,int>, which has no index"),
            ("(v MIN_MAX)", "v", "v is variant, which has no index"),
            ("(a MIN_MAX)", "a", "a is a struct; name its leaves: a.b"),
            ("(a.b MIN_MAX)", "a", r"name its leaves: a\.b\.c, a\.b\.`x\.y`"),
        ],
    )
    def test_what_is_wrong_is_pointed_at(
        self, spark: SparkSession, wide: str, text: str, marked: str, says: str
    ) -> None:
        message = refused(spark, f"CREATE SKIPPING INDEX ON {wide} {text}", StatementError)
        assert re.search(says, message)
        assert word(message) == marked
        assert not indexes(spark, wide)

    def test_names_that_are_no_table(self, spark: SparkSession, t: str, tmp_path: Path) -> None:
        spark.sql(f"CREATE VIEW {t}_view AS SELECT * FROM {t} WHERE id > 3")
        spark.sql(f"CREATE TEMPORARY VIEW {t}_temp AS SELECT * FROM {t}")
        spark.sql(f"CREATE TABLE {t}_orc USING orc AS SELECT 1 AS id")
        stream = spark.readStream.table(t)
        stream.createOrReplaceTempView(f"{t}_stream")
        full = f"spark_catalog.default.{t}"
        says = {
            f"{t}_view": f"is a view, which has no files; name its table: {full}",
            f"{t}_temp": f"is a view, which has no files; name its table: {full}",
            f"{t}_stream": f"is a stream; name the table it reads: {full}",
            f"{t}_orc": "is not a Delta, Iceberg or Parquet table: its provider is orc",
            f"{t}_gone": "cannot open table",
            f"delta.`{tmp_path}/gone`": "cannot open table",
        }
        try:
            for name, text in says.items():
                message = refused(spark, f"CREATE SKIPPING INDEX ON {name} (id MIN_MAX)")
                assert text in message, name
                assert name.startswith(word(message))
        finally:
            spark.sql(f"DROP VIEW {t}_view")
            spark.sql(f"DROP VIEW {t}_temp")
            spark.sql(f"DROP VIEW {t}_stream")
            spark.sql(f"DROP TABLE {t}_orc")

    def test_a_setting_that_is_unknown_stops_every_statement(
        self, spark: SparkSession, t: str
    ) -> None:
        session = spark.newSession()
        session.conf.set("spark.skipping.stor", "memory:x")
        hint = r"no setting spark\.skipping\.stor: did you mean spark\.skipping\.store\?"
        for text in (f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX)", "SHOW SKIPPING INDEXES"):
            with pytest.raises(SettingError, match=hint):
                session.sql(text)


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

    def test_a_replaced_table_gets_the_definition_by_column_name(
        self, spark: SparkSession, t: str
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
        assert "has a skipping index already" in message
        assert len(indexes(spark, t)) == 1

        spark.sql(f"REFRESH SKIPPING INDEX ON {t}")
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
        assert [row.flint_index_name for row in indexes(spark, t)] == [described["index"]]

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
            mine = [row for row in rows if row.table in (t, f"file:{tmp_path}/p")]
            return {(row.catalog, row.database, row.table, row.orphan) for row in mine}

        one = ("spark_catalog", "default", t, False)
        two = ("spark_catalog", other, t, False)
        path = ("delta", "", f"file:{tmp_path}/p", False)
        try:
            assert shown("") == {one, two, path}
            assert shown("IN spark_catalog") == shown("IN SPARK_CATALOG") == {one, two}
            assert shown("IN spark_catalog.`cmd_db`") == {two}
            assert shown("IN spark_catalog.Default") == {one}
            assert shown("IN delta") == {path}
            assert shown("IN nowhere") == set()

            spark.sql(f"DROP TABLE `{other}`.{t}")
            shutil.rmtree(tmp_path / "p")
            assert shown("") == {one, (*two[:3], True), (*path[:3], True)}
        finally:
            for name in names[1:]:
                spark.sql(f"DROP SKIPPING INDEX ON {name}")
                spark.sql(f"VACUUM SKIPPING INDEX ON {name}")
            spark.sql(f"DROP DATABASE `{other}` CASCADE")
        assert shown("") == {one}


class TestDrop:
    def test_it_is_not_asked_any_more(self, spark: SparkSession, t: str) -> None:
        spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX)")
        spark.sql(f"DROP SKIPPING INDEX ON {t}")
        plan = scan(spark, f"SELECT * FROM {t} WHERE id = 5")
        assert (plan.reason, plan.opened) == ("the table has no index", 4)
        assert not indexes(spark, t)
        message = refused(spark, f"DROP SKIPPING INDEX ON {t}", StatementError)
        assert f"{t} has no skipping index in sqlite:" in message
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
        assert row.flint_index_name in [d.value.index for d in store.definitions()]
        spark.sql(f"VACUUM SKIPPING INDEX ON {name}")
        assert row.flint_index_name not in [d.value.index for d in store.definitions()]


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
        assert len(store.catalogue(gone).files) == 4
        spark.sql(f"VACUUM SKIPPING INDEX ON {t}")
        with pytest.raises(StoreError):
            store.catalogue(gone)
        assert len(indexes(spark, t)) == 1

    def test_nothing_to_vacuum_is_an_error(self, spark: SparkSession, t: str) -> None:
        assert "has no skipping index" in refused(spark, f"VACUUM SKIPPING INDEX ON {t}")


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

    def test_parameters_are_what_they_are_without_hooks(
        self, spark: SparkSession, unhooked: SparkSession
    ) -> None:
        def outcome(session: SparkSession) -> object:
            try:
                return session.sql("SELECT :a AS a, 'skipping' AS b", {"a": 1}).collect()
            except AnalysisException as error:
                return error.getCondition()  # Delta 4.4.0 loses parameters on Spark 4.1

        assert outcome(spark) == outcome(unhooked)

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
        ("`client.net.ip`", "no column `client.net.ip`"),
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
