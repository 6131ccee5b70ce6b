"""CREATE SKIPPING INDEX, in SQL and in Python."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import skipping
from providers.errors import SettingError, SkippingError, StatementError
from skipping.sources.spark import settings_of, store_of
from skipping.spark_api import RELEASE
from tests.skipping.commands.samples import UUID, facts, fresh, indexes, opened, refused, scan, word

pytestmark = pytest.mark.nightly


class TestBothWays:
    STATEMENTS = (
        "CREATE SKIPPING INDEX ON {t} (id MIN_MAX, s VALUE_LIST(20)) WITH (build = false)",
        "DESC SKIPPING INDEX ON {t}",
        "DESCRIBE SKIPPING INDEX EXTENDED ON {t}",
        "REFRESH SKIPPING INDEX ON {t}",
        "DESCRIBE SKIPPING INDEX EXTENDED ON {t}",
        "DESCRIBE SKIPPING FILES ON {t} WHERE id = 5 AND s IN ('5', '6')",
        "DESC SKIPPING FILES ON {t} WHERE nope = 5",
        "SHOW SKIPPING STREAMS",
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
                    rows = [row for row in rows if row.table == str(path)]
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
            "DESC": "StatementError",
            "REFRESH": "StatementError",
        }

    def test_other_text_is_not_run_by_skipping_sql(self, unhooked: SparkSession) -> None:
        with pytest.raises(
            StatementError, match=r"not a skipping-index statement.*with spark\.sql"
        ):
            skipping.sql(unhooked, "SHOW TABLES")
        with pytest.raises(StatementError, match="not a skipping-index statement"):
            skipping.schema("SHOW TABLES")

    def test_schemas_are_known_before_anything_runs(self) -> None:
        assert skipping.schema("DROP SKIPPING INDEX ON nowhere") == ""
        assert skipping.schema("DESC SKIPPING INDEX ON nowhere").startswith("indexed_col_name")


class TestDatabricks:
    """CREATE and DROP of BLOOMFILTER and DATASKIPPING indexes, which add to an index here."""

    def kinds(self, spark: SparkSession, name: str) -> list[tuple[str, str, str]]:
        rows = spark.sql(f"DESCRIBE SKIPPING INDEX ON {name}").collect()
        return [(row.indexed_col_name, row.skip_type, row.params) for row in rows]

    def test_create_adds_to_the_index_and_drop_takes_out(self, spark: SparkSession, t: str) -> None:
        options = "s OPTIONS (fpp = 0.05, numItems = 500), n"
        create = f"CREATE BLOOMFILTER INDEX ON TABLE {t} FOR COLUMNS ({options})"
        spark.sql(f"{create} OPTIONS (fpp = 0.2)")
        bloom = [
            ("s", "BLOOM_FILTER", "fpp = 0.05, num_items = 500"),
            ("n", "BLOOM_FILTER", "fpp = 0.2"),
        ]
        assert self.kinds(spark, t) == bloom
        spark.sql(f"CREATE DATASKIPPING INDEX ON {t}")
        bounds = [(name, "MIN_MAX", "") for name in ("id", "s", "n")]
        assert self.kinds(spark, t) == [*bloom, *bounds]
        assert opened(spark, f"SELECT * FROM {t} WHERE id = 5") == 1
        spark.sql(f"CREATE DATASKIPPING INDEX ON {t}")
        assert self.kinds(spark, t) == [*bloom, *bounds]
        assert "is in the index already" in refused(spark, create)
        spark.sql(f"DROP DATASKIPPING INDEX ON {t} FOR COLUMNS (s, n)")
        spark.sql(f"DROP BLOOMFILTER INDEX ON TABLE {t}")
        assert self.kinds(spark, t) == [("id", "MIN_MAX", "")]
        assert "has no column with BLOOM_FILTER" in refused(spark, f"DROP BLOOMFILTER INDEX ON {t}")
        spark.sql(f"DROP BLOOMFILTER INDEX IF EXISTS ON {t}")
        spark.sql(f"DROP DATASKIPPING INDEX ON {t} FOR COLUMNS (id)")
        assert not indexes(spark, t)
        assert "has no skipping index" in refused(spark, f"DROP DATASKIPPING INDEX ON {t}")
        spark.sql(f"DROP DATASKIPPING INDEX IF EXISTS ON {t}")

    def test_create_dataskipping_leaves_out_what_has_no_bounds(
        self, spark: SparkSession, wide: str
    ) -> None:
        spark.sql(f"CREATE DATASKIPPING INDEX ON {wide}")
        names = [name for name, _, _ in self.kinds(spark, wide)]
        assert names == ["id", "s", "a.b.c", "a.b.`x.y`"]
        spark.sql(f"DROP SKIPPING INDEX ON {wide}")


class TestCreate:
    @pytest.mark.smoke
    def test_it_builds_says_where_and_skips(
        self, spark: SparkSession, t: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert opened(spark, f"SELECT * FROM {t} WHERE id = 5") == 4
        with caplog.at_level(logging.INFO, "skipping"):
            answer = spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX, s VALUE_LIST)")
        assert (answer.columns, answer.collect()) == ([], [])
        store = store_of(spark, settings_of(spark)).location
        # A thread logs counters every minute, under a name of their own.
        said = [r.getMessage() for r in caplog.records if r.name == "skipping"]
        assert said == [f"skipping index defined: table=spark_catalog.default.{t} store={store}"]
        plan = scan(spark, f"SELECT * FROM {t} WHERE id = 5")
        assert (plan.total, plan.pruned, plan.unknown, plan.opened) == (4, 3, 0, 1)

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
        assert (
            f"{t} already has a skipping index. To add columns: ALTER SKIPPING INDEX ON {t} ADD ("
            in message
        )
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
        assert (plan.total, plan.pruned, plan.unknown, plan.opened) == (4, 2, 1, 2)
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
        assert (plan.total, plan.pruned, plan.unknown, plan.opened) == (4, 1, 2, 3)
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

    def test_create_finds_a_field_by_a_quoted_name_with_dots(self, spark: SparkSession) -> None:
        name = fresh()
        fields = "named_struct('b', id, 'c', named_struct('d', id)) AS a"
        frame = spark.range(0, 20, 1, 2).selectExpr(fields, "id + 1 AS `a.b`")
        frame.write.format("parquet").saveAsTable(name)
        spark.sql(f"CREATE SKIPPING INDEX ON {name} (`a.b` MIN_MAX, `A.c.D` VALUE_LIST)")
        described = spark.sql(f"DESCRIBE SKIPPING INDEX ON {name}").collect()
        assert [row.indexed_col_name for row in described] == ["`a.b`", "a.c.d"]
        message = refused(spark, f"ALTER SKIPPING INDEX ON {name} ADD (`a.c.x` MIN_MAX)")
        assert message.startswith("no column `a.c.x`: there are ")
        spark.sql(f"DROP SKIPPING INDEX ON {name}")
        spark.sql(f"DROP TABLE {name}")

    @pytest.mark.parametrize("using", ["delta", "iceberg"])
    def test_create_takes_names_with_letters_beyond_ascii(
        self, spark: SparkSession, using: str
    ) -> None:
        # Spark's own catalog takes no such letters in names of tables.
        database, table = ("größe", "ñandú") if using == "iceberg" else ("default", fresh())
        name = f"{'iceberg' if using == 'iceberg' else 'spark_catalog'}.`{database}`.`{table}`"
        if using == "iceberg":
            spark.sql("CREATE NAMESPACE iceberg.`größe`")
        spark.sql(
            f"CREATE TABLE {name} USING {using} AS SELECT /*+ REPARTITION(4, `straße`) */ "
            "id AS `straße`, named_struct('Ünï', id) AS `ø` FROM range(40)"
        )
        spark.sql(f"CREATE SKIPPING INDEX ON {name} (`straße` VALUE_LIST, `ø`.`Ünï` MIN_MAX)")
        assert opened(spark, f"SELECT * FROM {name} WHERE `straße` = 7") == 1
        described = spark.sql(f"DESCRIBE SKIPPING INDEX ON {name}").collect()
        assert [row.indexed_col_name for row in described] == ["straße", "ø.Ünï"]
        spark.sql(f"REFRESH SKIPPING INDEX ON {name}")
        (shown,) = indexes(spark, table)
        assert (shown.database, shown.orphan, shown.covered is not None) == (database, False, True)
        spark.sql(f"DROP SKIPPING INDEX ON {name}")
        spark.sql(f"DROP TABLE {name}")
        if using == "iceberg":
            spark.sql("DROP NAMESPACE iceberg.`größe`")

    @pytest.mark.parametrize(
        ("text", "marked", "says"),
        [
            ("(id MIN_MAX, nope VALUE_LIST)", "nope", "no column nope: there are id, s"),
            ("(a.b.d MIN_MAX)", "a", r"no column a\.b\.d"),
            ("(id MIN_MAX, s BLOM_FILTER)", "BLOM_FILTER", r"did you mean BLOOM_FILTER\?"),
            ("(s VALUE_LIST(limt => 3))", "VALUE_LIST", "VALUE_LIST takes limit, not limt"),
            ("(s VALUE_LIST(1, 2))", "VALUE_LIST", "VALUE_LIST takes limit, not 2 values"),
            ("(id MIN_MAX(3))", "MIN_MAX", "MIN_MAX takes no parameter"),
            ("(s VALUE_LIST(0))", "VALUE_LIST", "a limit of 1 or more"),
            ("(s VALUE_LIST(1, limit => 2))", "VALUE_LIST", "limit is given twice"),
            ("(id MIN_MAX, ID MIN_MAX)", "MIN_MAX", "id MIN_MAX is given twice"),
            ("(s VALUE_LIST, s VALUE_SET)", "VALUE_SET", "s VALUE_LIST is given twice"),
            ("(s PARTITION)", "PARTITION", "partition"),
            ("(id MIN_MAX) WITH (bild = false)", "bild", r"option bild: did you mean build\?"),
            ("(id MIN_MAX) WITH (build = maybe)", "maybe", "expected a value"),
            ("(id MIN_MAX) WITH (build = 'maybe')", "build", "takes true or false, not 'maybe'"),
            ("(id MIN_MAX) WITH (refresh_interval = 0)", "refresh_interval", "a duration above"),
            ("(id MIN_MAX) WITH (extra_options = '{}')", "extra_options", "has no meaning here"),
            ("(id MIN_MAX) WITH (output_mode = 'x')", "output_mode", "has no meaning here"),
            ("(id MIN_MAX) WHERE nope > 3", "nope", "nope"),
            ("(id MIN_MAX) WHERE id > ", " ", "the condition ends too early"),
            ("(id MIN_MAX) WHERE abs(id) > 1", "abs", "abs is a function"),
            (
                "(code MIN_MAX)",
                "code",
                r"char\(3\), whose values are compared with padding; make it a STRING",
            ),
            ("(tags MIN_MAX)", "MIN_MAX", "MIN_MAX does not support tags: elements of arrays"),
            ("(m VALUE_LIST)", "m", "maps cannot be indexed: m is map<string,int>"),
            *(
                [("(v MIN_MAX)", "v", "v is variant, which cannot be indexed")]
                if RELEASE >= (4, 0)
                else []
            ),
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
        hint = r"unknown setting spark\.skipping\.stor: did you mean spark\.skipping\.store\?"
        for text in (f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX)", "SHOW SKIPPING INDEXES"):
            with pytest.raises(SettingError, match=hint):
                session.sql(text)
