"""Iceberg through the catalogs that people have, each the real one.

REST is Iceberg's own servlet in a process of its own, JDBC is SQLite, Hive is the metastore that
ships with Spark, embedded, on Derby.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyspark.sql import SparkSession

import rewrite
from skipping import SkippingIndex
from skipping.sources.spark import settings_of, store_of
from tests.rest_catalog import RestCatalog

pytestmark = pytest.mark.nightly

KINDS = ("rest", "jdbc", "hive")


@dataclass(frozen=True)
class Place:
    """A namespace in a Spark catalog; `open` is the same catalog, as PyIceberg has it."""

    catalog: str
    namespace: str
    open: Callable[[], Catalog] | None = None

    def __str__(self) -> str:
        return f"{self.catalog}.{self.namespace}"


def _configure(spark: SparkSession, name: str, **settings: str) -> None:
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    for key, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.{name}.{key}", value)


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    with RestCatalog(tmp_path_factory.mktemp("rest")) as server:
        yield server


@pytest.fixture(params=KINDS, scope="module")
def place(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Place:
    kind, folder = request.param, tmp_path_factory.mktemp(request.param)
    if kind == "rest":
        return of_rest(spark, request.getfixturevalue("rest"))
    if kind == "jdbc":
        _configure(
            spark,
            "by_jdbc",
            type="jdbc",
            uri=f"jdbc:sqlite:{folder}/db",
            warehouse=f"file://{folder}/warehouse",
            **{"jdbc.schema-version": "V1"},  # with views
        )
        return Place(
            "by_jdbc",
            "deep.er",
            lambda: load_catalog(
                "by_jdbc",
                type="sql",
                uri=f"sqlite:///{folder}/db",
                warehouse=f"file://{folder}/warehouse",
            ),
        )
    derby = f"jdbc:derby:;databaseName={folder}/db;create=true"
    hadoop = {
        "hadoop.javax.jdo.option.ConnectionURL": derby,
        "hadoop.datanucleus.schema.autoCreateAll": "true",
        "hadoop.hive.metastore.schema.verification": "false",
        "hadoop.hive.metastore.warehouse.dir": f"{folder}/warehouse",
        "hadoop.iceberg.engine.hive.lock-enabled": "false",  # Derby has no tables for locks
    }
    _configure(spark, "by_hive", type="hive", warehouse=f"file://{folder}/warehouse", **hadoop)
    return Place("by_hive", "flat")


def of_rest(spark: SparkSession, server: RestCatalog, name: str = "by_rest") -> Place:
    _configure(spark, name, type="rest", uri=server.uri)
    return Place(
        name, "deep.er", lambda: load_catalog("called_otherwise", type="rest", uri=server.uri)
    )


@contextmanager
def tables(spark: SparkSession, place: Place, index: str = "") -> Iterator[tuple[str, str]]:
    """A fact of eight files with an index, and a dimension."""
    parts = place.namespace.split(".")
    for depth in range(len(parts)):
        name = ".".join([place.catalog, *parts[: depth + 1]])
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name}")
    fact, dim = f"{place}.fact", f"{place}.dim"
    rows = "id % 8 AS part, concat('u', id % 80) AS user, id AS n FROM range(160)"
    hint = "/*+ REPARTITION_BY_RANGE(8, part) */"
    spark.sql(f"CREATE TABLE {fact} USING iceberg AS SELECT {hint} {rows}")
    spark.sql(f"CREATE TABLE {dim} USING iceberg AS SELECT 'u3' AS user, 'yes' AS wanted")
    try:
        spark.sql(f"CREATE SKIPPING INDEX ON {fact} (user VALUE_LIST)")
        yield fact, dim
    finally:
        spark.sql(f"DROP SKIPPING INDEX IF EXISTS ON {fact}")
        for table in (fact, dim):
            spark.sql(f"DROP TABLE IF EXISTS {table}")


def look(spark: SparkSession, query: str) -> tuple[list[Any], list[int | None]]:
    """The first column, sorted, and how many files each scan opened."""
    frame = spark.sql(query)
    rows = sorted(row[0] for row in frame.collect())
    return rows, sorted(scan.opened or 0 for scan in rewrite.explain(frame).scans)


def test_each_catalog(spark: SparkSession, place: Place) -> None:
    with tables(spark, place) as (fact, dim):
        mine = f"SELECT n FROM {fact} WHERE user = 'u3'"
        assert look(spark, mine) == ([3, 83], [1])
        joined = f"SELECT n FROM {fact} f JOIN {dim} d ON f.user = d.user WHERE wanted = 'yes'"
        assert look(spark, joined) == ([3, 83], [1, 1])

        two = "VALUES (9, 'u1', 998), (9, 'u9', 999)"  # their bounds do not exclude u3
        spark.sql(f"INSERT INTO {fact} SELECT /*+ COALESCE(1) */ * FROM {two}")
        assert look(spark, mine) == ([3, 83], [2]), "a file without an entry is read"
        spark.sql(f"REFRESH SKIPPING INDEX ON {fact}")
        assert look(spark, mine) == ([3, 83], [1])

        spark.sql(f"ALTER TABLE {fact} CREATE BRANCH side")
        spark.sql(f"INSERT INTO {fact}.branch_side VALUES (9, 'aside', 1000)")
        spark.sql(f"REFRESH SKIPPING INDEX ON {fact}")
        aside = f"SELECT n FROM {fact} VERSION AS OF 'side' WHERE user = 'aside'"
        assert look(spark, aside) == ([1000], [1])
        assert look(spark, f"SELECT n FROM {fact} WHERE user = 'aside'") == ([], [0])

        spark.sql(f"CREATE VIEW {place}.seen AS SELECT user, n + 1 AS m FROM {fact}")
        try:
            assert look(spark, f"SELECT m FROM {place}.seen WHERE user = 'u3'") == ([4, 84], [1])
        finally:
            spark.sql(f"DROP VIEW {place}.seen")

        spark.sql(f"DELETE FROM {fact} WHERE user = 'u3' AND n = 83")
        spark.sql(f"REFRESH SKIPPING INDEX ON {fact}")
        assert look(spark, mine) == ([3], [1])

        if place.open is not None:
            table = place.open().load_table(f"{place.namespace}.fact")
            store = store_of(spark, settings_of(spark))
            index = SkippingIndex.on(table, store=store)
            scan = index.scan("user = 'u3'")
            assert len(list(scan.plan_files())) == 1
            assert scan.to_arrow()["n"].to_pylist() == [3]

            late = pa.Table.from_pylist([{"part": 9, "user": "u3", "n": 1001}])
            table.append(late.cast(table.schema().as_arrow()))
            index.refresh()
            spark.sql(f"REFRESH TABLE {fact}")
            assert look(spark, mine) == ([3, 1001], [2])
            assert look(spark, f"SELECT n FROM {fact} WHERE user = 'u9'")[1] == [2], "not the last"


def test_two_names_of_a_catalog_are_of_one_index(spark: SparkSession, rest: RestCatalog) -> None:
    """What a table is called is nothing to its index; its UUID and its location are."""
    place, other = of_rest(spark, rest), of_rest(spark, rest, "by_rest_too")
    with tables(spark, place) as (fact, _):
        there = fact.replace(place.catalog, other.catalog)
        assert look(spark, f"SELECT n FROM {there} WHERE user = 'u3'") == ([3, 83], [1])
        spark.sql(f"INSERT INTO {there} VALUES (9, 'new', 999)")
        spark.sql(f"REFRESH SKIPPING INDEX ON {there}")
        spark.sql(f"REFRESH TABLE {fact}")
        for name in (fact, there):
            assert look(spark, f"SELECT n FROM {name} WHERE user = 'new'") == ([999], [1])
        # And one that PyIceberg made, under a name that Spark has no catalog of.
        spark.sql(f"DROP SKIPPING INDEX ON {there}")
        assert look(spark, f"SELECT n FROM {fact} WHERE user = 'u3'") == ([3, 83], [8])
        assert place.open is not None
        table = place.open().load_table(f"{place.namespace}.fact")
        store = store_of(spark, settings_of(spark))
        made = SkippingIndex.create(table, "user VALUE_LIST", store=store)
        assert made.table.name.startswith("called_otherwise.")
        assert look(spark, f"SELECT n FROM {fact} WHERE user = 'new'") == ([999], [1])
        spark.sql(f"ALTER SKIPPING INDEX ON {fact} WITH (auto_refresh = true)")
        try:
            spark.sql(f"INSERT INTO {fact} VALUES (9, 'late', 1000)")
            deadline = time.monotonic() + 60
            while len(made.pending()) and time.monotonic() < deadline:
                time.sleep(0.1)
            assert len(made.pending()) == 0
            assert look(spark, f"SELECT n FROM {fact} WHERE user = 'late'") == ([1000], [1])
        finally:
            spark.sql(f"ALTER SKIPPING INDEX ON {fact} WITH (auto_refresh = false)")


def test_a_table_made_again_has_another_identity(spark: SparkSession, rest: RestCatalog) -> None:
    place = of_rest(spark, rest)
    with tables(spark, place) as (fact, _):
        spark.sql(f"DROP TABLE {fact}")
        spark.sql(f"CREATE TABLE {fact} USING iceberg AS SELECT 'u3' AS user, 7L AS n")
        assert look(spark, f"SELECT n FROM {fact} WHERE user = 'u3'") == ([7], [1])
        assert look(spark, f"SELECT n FROM {fact} WHERE user = 'u4'") == ([], [0])
        spark.sql(f"REFRESH SKIPPING INDEX ON {fact}")
        assert look(spark, f"SELECT n FROM {fact} WHERE user = 'u3'") == ([7], [1])
