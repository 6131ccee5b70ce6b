"""What every table format promises of its files and columns."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from providers.errors import DefinitionError, StatementError, TableError
from skipping.indexing.parquet_reader import Unreadable, read_columns
from tests.skipping.tables.formats import FORMATS, SPECIAL, Format, paths


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
class TestEveryFormat:
    @pytest.fixture(autouse=True)
    def _lacking(self, request: pytest.FixtureRequest, form: Format) -> None:
        """What a format cannot promise must fail, so that it is noticed once it can."""
        reason = form.lacks.get(request.node.originalname)
        if reason is not None:
            request.applymarker(pytest.mark.xfail(reason=reason, strict=True))

    def make(self, spark: SparkSession, form: Format, columns: str, more: str = "") -> str:
        name = form.name()
        spark.sql(f"CREATE TABLE {name} ({columns}) USING {form.using} {more}")
        return name

    @pytest.mark.smoke
    def test_files_and_changes_of_each_version(self, spark: SparkSession, form: Format) -> None:
        name = self.make(spark, form, "k INT, s STRING")
        table = form.open(spark, name)
        versions = [table.version()]
        assert table.files().num_rows == 0
        seen: list[list[str]] = [[]]
        for k in range(2):
            spark.sql(f"INSERT INTO {name} VALUES ({k}, 'a')")
            versions.append(table.version())
            seen.append(paths(table.files()))
        assert [len(files) for files in seen] == [0, 1, 2]
        assert seen[-1] == form.scanned(spark, name)
        for version, files in zip(versions, seen, strict=True):
            assert paths(table.files(version)) == files
        assert paths(table.changes(versions[0], versions[2])) == seen[2]
        assert paths(table.changes(versions[1], versions[2])) == sorted({*seen[2]} - {*seen[1]})
        assert paths(table.changes(versions[2], versions[2])) == []
        spark.sql(f"DELETE FROM {name} WHERE k = 0")
        assert len(table.files()) == 1
        assert paths(table.changes(versions[0], versions[2])) == seen[2], "dead files are told too"

    def test_files_of_versions_that_can_be_read_are_retained(
        self, spark: SparkSession, form: Format
    ) -> None:
        name = self.make(spark, form, "k INT")
        table = form.open(spark, name)
        for statement in (
            "INSERT INTO {} VALUES (1)",
            "DELETE FROM {}",
            "INSERT INTO {} VALUES (2)",
        ):
            spark.sql(statement.format(name))
        (dead,) = {*paths(table.files(1))} - {*paths(table.files())}
        (live,) = paths(table.files())
        assert table.find_reachable(pa.array([dead, "file:/nowhere", live])).to_pylist() == [
            1,
            0,
            1,
        ]

    def test_a_version_to_come_is_a_gap(self, spark: SparkSession, form: Format) -> None:
        name = self.make(spark, form, "k INT")
        table = form.open(spark, name)
        assert table.changes(table.version(), table.version() + 1) is None
        with pytest.raises(TableError):
            table.files(table.version() + 1)

    def test_sizes_and_paths_are_those_of_the_files(
        self, spark: SparkSession, form: Format
    ) -> None:
        name = self.make(spark, form, "k INT, p STRING", "PARTITIONED BY (p)")
        table = form.open(spark, name)
        values = ", ".join(f"({i}, '{p}')" for i, p in enumerate([*SPECIAL, ""]))
        spark.sql(f"INSERT INTO {name} VALUES {values}, (99, NULL)")
        files = table.files()
        assert paths(files) == form.scanned(spark, name)
        if table.has_log:
            assert paths(table.changes(table.version() - 1, table.version())) == paths(files)
        key = table.columns().resolve("P")
        assert key.partition
        for file in files.to_pylist():
            (part, *_) = read_columns(file["path"], [table.columns()["k"]], size=file["size"])
            assert not isinstance(part, Unreadable), part
        found = {dict(file["partition"]).get(key.identity) for file in files.to_pylist()}
        assert {value or None for value in found} == {*SPECIAL, None}

    def test_where_keeps_what_partitions_and_statistics_cannot_exclude(
        self, spark: SparkSession, form: Format
    ) -> None:
        name = self.make(spark, form, "k INT, p STRING", "PARTITIONED BY (p)")
        table = form.open(spark, name)
        for k in range(4):
            spark.sql(f"INSERT INTO {name} VALUES ({k}, '{'ab'[k % 2]}')")
        everything = paths(table.files())
        assert len(paths(table.files(where="p = 'a'"))) == 2
        assert len(paths(table.files(where="k >= 2"))) == 2
        assert len(paths(table.files(where="p = 'a' AND k >= 2"))) == 1
        assert paths(table.files(where="k = 7")) == []
        assert paths(table.files(where="1 = 0")) == []
        assert paths(table.files(where="k IS NULL OR k <= 9")) == everything
        if table.has_log:
            assert len(paths(table.files(table.version() - 1, where="k >= 2"))) == 1
        with pytest.raises(DefinitionError, match="nope"):
            table.files(where="nope = 1")
        for wrong in ("k +", "k", "abs(k) >= 0"):
            with pytest.raises(StatementError, match="WHERE supports"):
                table.files(where=wrong)

    def test_identity_follows_the_incarnation(self, spark: SparkSession, form: Format) -> None:
        name = self.make(spark, form, "k INT")
        table = form.open(spark, name)
        first = table.id
        spark.sql(f"INSERT INTO {name} VALUES (1)")
        spark.sql(f"ALTER TABLE {name} ADD COLUMNS (s STRING)")
        assert table.id == first
        spark.sql(f"DROP TABLE {name}")
        spark.sql(f"CREATE TABLE {name} (other STRING) USING {form.using}")
        assert form.open(spark, name).id != first
        assert list(form.open(spark, name).columns()) == ["other"]

    @pytest.mark.smoke
    def test_columns(self, spark: SparkSession, form: Format) -> None:
        name = self.make(
            spark,
            form,
            "Id BIGINT, s STRUCT<a: INT, Deep: STRUCT<x: DECIMAL(10,2)>>, t TIMESTAMP, "
            "l ARRAY<INT>, m MAP<STRING, INT>, b BINARY",
        )
        columns = form.open(spark, name).columns()
        types = {n: c.type for n, c in columns.items() if c.refusal is None}
        assert types == {
            "Id": "bigint",
            "s.a": "int",
            "s.Deep.x": "decimal(10,2)",
            "t": "timestamp",
            "b": "binary",
        }
        assert "s.Deep.x" in (columns.resolve("S.deep").refusal or "")
        assert columns.resolve("S.DEEP.X").name == "s.Deep.x"
        assert not any(c.physical.backfilled or c.partition for c in columns.values())
        assert len({c.identity for c in columns.values()}) == len(columns)
