"""Who may say where a stream keeps its place: the session, not what stands in a store."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import skipping
from providers.errors import DefinitionError, StatementError
from skipping import SkippingIndex
from skipping.config.options import IndexOptions
from skipping.sources.spark import settings_of, store_of
from skipping.streaming.checkpoints import checkpoint_of, require_checkpoint
from skipping.streaming.jobs import job_name
from skipping.streaming.maintainer import Maintainer
from tests.skipping.streaming.conftest import QUICK, until

KEY = "spark.skipping.streaming.checkpointRoots"
SPARKS = "spark.sql.streaming.checkpointLocation"


@pytest.fixture
def started_with(spark: SparkSession) -> Iterator[Any]:
    """The configuration that the context was started with, to be told of more folders."""
    conf = spark.sparkContext._conf
    conf.set(KEY, "file:///allowed/a, s3://Bucket/checkpoints/,hdfs://name:8020/x y")
    yield conf
    conf._jconf.remove(KEY)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "location",
    [
        *("/allowed/a", "file:/allowed/a/", "file:///allowed/a/b", "/allowed//a/./b/../c"),
        *("/allowed/x/../a", "/allowed/a/b/..", "s3://Bucket/checkpoints"),
        *("s3://Bucket//checkpoints/t", "hdfs://name:8020/x y/z"),
        *("spark-warehouse/../{warehouse}/c", "{warehouse}/c"),
    ],
)
def test_allowed(spark: SparkSession, started_with: Any, location: str) -> None:
    warehouse = str(spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:")
    if location.startswith("spark-"):  # by the working directory
        location = "../" * len(Path.cwd().parts) + warehouse.lstrip("/")
        location = location.replace("../", "", 1)
    location = location.format(warehouse=warehouse)
    options = IndexOptions(checkpoint_location=location)
    require_checkpoint(spark, options)
    place = checkpoint_of(spark, options, "1-2-3")
    assert place is not None
    assert place.endswith("/1-2-3")
    assert not {"..", "."} & set(place.split("/"))
    assert "//" not in place.replace("://", "")


@pytest.mark.parametrize(
    "location",
    [
        *("/", "/allowed", "/allowed/ab", "/allowed/a/../b", "/allowed/a/../../etc"),
        *("/../allowed/b", "/allowed/a%2fb/../../b", "/allowed/A", "s3://bucket/checkpoints"),
        *("s3://Bucket/checkpoints2", "s3a://Bucket/checkpoints", "s3:/checkpoints"),
        *("s3:checkpoints", "hdfs://name/x y", "hdfs://evil:1/allowed/a"),
        *("file://evil/allowed/a", "allowed/a", "mailto:a", ":"),
    ],
)
def test_refused(spark: SparkSession, started_with: Any, location: str) -> None:
    options = IndexOptions(checkpoint_location=location)
    for asked in (require_checkpoint, lambda s, o: checkpoint_of(s, o, "1")):
        with pytest.raises(DefinitionError, match=f"{KEY}|not a valid folder") as error:
            asked(spark, options)
        assert error.value.about == "with.checkpoint_location"


@pytest.mark.parametrize("index", ["..", "a/b", "../../b", ".", "/etc", "a/.."])
def test_the_id_of_an_index_is_no_path(spark: SparkSession, started_with: Any, index: str) -> None:
    with pytest.raises(DefinitionError, match="is not a valid folder name"):
        checkpoint_of(spark, IndexOptions(checkpoint_location="/allowed/a/b"), index)


@pytest.mark.parametrize("key", [KEY, SPARKS])
def test_checkpoint_of_ignores_what_a_session_sets_later(spark: SparkSession, key: str) -> None:
    mine = IndexOptions(checkpoint_location="/mine/c")
    spark.conf.set(key, "/mine")
    try:
        assert checkpoint_of(spark, IndexOptions(), "1") is None
        with pytest.raises(DefinitionError, match="only have an effect if Spark is started"):
            require_checkpoint(spark, mine)
    finally:
        spark.conf.unset(key)


def test_checkpoint_of_uses_the_default_that_the_context_was_started_with(
    spark: SparkSession, started_with: Any
) -> None:
    started_with.set(SPARKS, "/operators")
    spark.conf.set(SPARKS, "/mine")
    try:
        options = IndexOptions(checkpoint_location="/operators/c")
        assert checkpoint_of(spark, options, "1") == "file:/operators/c/1"
        assert checkpoint_of(spark, IndexOptions(), "1") == "file:/operators/1"
    finally:
        spark.conf.unset(SPARKS)
        started_with._jconf.remove(SPARKS)


def test_a_tables_log_is_no_place(spark: SparkSession, started_with: Any) -> None:
    for location in ("/allowed/a/t/_delta_log", "/allowed/a/t/_delta_log/c"):
        with pytest.raises(DefinitionError, match="in the log of a Delta table"):
            require_checkpoint(spark, IndexOptions(checkpoint_location=location))


def test_statements_refuse_it_where_it_stands(spark: SparkSession, t: str, tmp_path: Path) -> None:
    option = f"checkpoint_location = '{tmp_path}'"
    create = f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX) WITH ({QUICK}, {option})"
    with pytest.raises(StatementError, match=KEY.replace(".", r"\.")) as error:
        spark.sql(create)
    column = create.index("checkpoint_location") + 1
    assert f"line 1, column {column}\n" in str(error.value)
    spark.sql(f"CREATE SKIPPING INDEX ON {t} (id MIN_MAX)")
    for alter in (option, f"auto_refresh = true, {option}"):
        with pytest.raises(StatementError, match="is not allowed: use"):
            spark.sql(f"ALTER SKIPPING INDEX ON {t} WITH ({alter})")

    # Whoever writes to the store says so in the session's stead.
    def foisted(index: SkippingIndex) -> None:
        pairs = IndexOptions(auto_refresh=True, checkpoint_location=str(tmp_path / "c")).pairs()
        index.alter(lambda definition: replace(definition, options=pairs))

    foisted(SkippingIndex.on(spark, t))
    for statement in (
        f"RECOVER INDEX JOB {job_name(f'spark_catalog.default.{t}')}",
        f"ALTER SKIPPING INDEX ON {t} WITH (refresh_interval = '1 second')",
    ):
        with pytest.raises(
            (StatementError, DefinitionError), match="is not allowed: use a folder below"
        ):
            spark.sql(statement)
    spark.sql(f"ALTER SKIPPING INDEX ON {t} WITH (auto_refresh = false)")
    assert not (tmp_path / "c").exists()


def test_a_stored_one_ends_its_stream_and_nothing_else(
    spark: SparkSession, t: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    index = SkippingIndex.create(spark, t, "id MIN_MAX")
    store = store_of(spark, settings_of(spark))
    pairs = IndexOptions(auto_refresh=True, checkpoint_location=str(tmp_path / "c")).pairs()
    index.alter(lambda definition: replace(definition, options=pairs))
    keeper = Maintainer(spark, store, index.definition.name, open_index=SkippingIndex.on)
    with caplog.at_level(logging.WARNING, "skipping"):
        keeper.start()
        until(lambda: not keeper.serves(spark), seconds=20)
    assert [KEY in record.getMessage() for record in caplog.records] == [True]
    rows = spark.sql(f"DESCRIBE SKIPPING INDEX EXTENDED ON {t}").collect()
    facts = {row.item: row.value for row in rows}
    assert "is not allowed: use a folder below the warehouse" in facts["last error"]
    assert (facts["state"], facts["owner"]) == ("failed", "no owner")
    assert not (tmp_path / "c").exists()
    spark.sql(f"REFRESH SKIPPING INDEX ON {t}")
    assert index.state.status == "active"


def test_options_that_nobody_can_read_are_no_matter_of_other_streams(
    spark: SparkSession, t: str
) -> None:
    index = SkippingIndex.create(spark, t, "id MIN_MAX")
    index.alter(lambda definition: replace(definition, options=(("refresh_interval", "never"),)))
    assert [s for s in skipping.streams(spark) if s.table == index.definition.name] == []
