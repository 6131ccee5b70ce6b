"""What tests share: one Spark session, with the hooks, for the whole run."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rewrite

# For every Java that the tests start. The second, better compiler would take a third of the CPU of
# test_joins.py, and give less. Without it the room for compiled code is small.
os.environ["JDK_JAVA_OPTIONS"] = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
)
os.environ["SPARK_CONF_DIR"] = str(Path(__file__).parent / "conf")

EXTENDED = {
    "users": (
        "test_docs.py",
        "test_installed.py",
        "test_must_show.py",
        "test_notebooks.py",
        "test_ways.py",
        "rewrite/serve/test_clients.py",
        "rewrite/serve/test_life.py",
        "rewrite/test_session.py",
        "rewrite/test_statements.py",
        "rewrite/test_verify.py",
        "skipping/test_main.py",
        "skipping/test_stored_names.py",
        "skipping/commands/test_alter.py",
        "skipping/commands/test_create.py",
        "skipping/commands/test_statements.py",
        "skipping/commands/test_upkeep.py",
    ),
    "conditions": (
        "rewrite/test_composites.py",
        "rewrite/test_conformance.py",
        "rewrite/test_conformance_tables.py",
        "rewrite/test_expressions.py",
        "rewrite/test_monotonic_ends.py",
        "rewrite/test_row_oracle.py",
        "rewrite/test_variants.py",
        "skipping/filters/test_sql.py",
    ),
    "joins": (
        "rewrite/test_expression_keys.py",
        "rewrite/test_join_cancel.py",
        "rewrite/test_join_conformance.py",
        "rewrite/test_join_gate.py",
        "rewrite/test_join_shapes.py",
        "rewrite/test_large_dimensions.py",
        "rewrite/test_range_joins.py",
    ),
    "writes": (
        "rewrite/test_commands.py",
        "rewrite/test_dml.py",
        "rewrite/test_fault_matrix.py",
        "rewrite/test_faults.py",
        "rewrite/test_statistics.py",
        "rewrite/iceberg/test_plans.py",
        "rewrite/iceberg/test_row_level.py",
        "rewrite/iceberg/test_writes.py",
        "skipping/indexing/test_reader_build.py",
        "skipping/indexing/test_refresh.py",
        "skipping/streaming/test_commits.py",
        "skipping/streaming/test_endings.py",
        "skipping/streaming/test_faults.py",
        "skipping/streaming/test_losses.py",
        "skipping/streaming/test_maintainer.py",
        "skipping/streaming/test_streams.py",
    ),
    "tables": (
        "test_iceberg_releases.py",
        "test_local_cluster.py",
        "test_object_store.py",
        "rewrite/test_iceberg_catalogs.py",
        "rewrite/test_other_writers.py",
        "skipping/advise/test_advice.py",
        "skipping/advise/test_analyze.py",
        "skipping/advise/test_asked.py",
        "skipping/advise/test_composite_advice.py",
        "skipping/catalog/test_credentials.py",
        "skipping/catalog/test_differential.py",
        "skipping/catalog/test_duckdb.py",
        "skipping/catalog/test_hostile.py",
        "skipping/catalog/test_load.py",
        "skipping/catalog/test_nessie.py",
        "skipping/catalog/test_spark.py",
        "skipping/stores/test_damaged.py",
        "skipping/stores/test_fork_safety.py",
        "skipping/stores/test_large_writes.py",
        "skipping/stores/test_opensearch.py",
        "skipping/stores/test_opensearch_answers.py",
        "skipping/stores/test_opensearch_cluster.py",
        "skipping/stores/test_opensearch_names.py",
        "skipping/stores/test_opensearch_secured.py",
        "skipping/stores/test_opensearch_slow.py",
        "skipping/stores/test_opensearch_untrusted.py",
        "skipping/stores/test_opensearch_writes.py",
        "skipping/stores/test_restored.py",
        "skipping/tables/test_delta.py",
        "skipping/tables/test_deltalake_spark.py",
        "skipping/scans/test_engine_filters.py",
        "skipping/scans/test_engine_keys.py",
        "skipping/scans/test_engines.py",
        "skipping/tables/test_folder_spark.py",
        "skipping/tables/test_ibis.py",
        "skipping/tables/test_iceberg.py",
        "skipping/tables/test_matrix.py",
        "skipping/filters/test_pyiceberg.py",
        "skipping/tables/test_pyiceberg_v3.py",
    ),
    "long": (
        "rewrite/test_alone.py",
        "rewrite/test_dbt.py",
        "rewrite/test_dml_concurrency.py",
        "rewrite/test_dml_random.py",
        "rewrite/test_flat.py",
        "rewrite/test_join_property.py",
        "rewrite/test_property.py",
        "rewrite/test_stream_static.py",
        "skipping/streaming/test_iceberg.py",
        "skipping/streaming/test_opensearch.py",
    ),
    "foreign": ("rewrite/test_spark_suite.py",),
}
"""What `make test` leaves to `make test-extended`, in shares; CI runs `conditions`. Each rule,
kind, format, store and join form has its tests among the others. Single tests of other files name
their share as a mark."""

ONE_FORMAT = (
    "rewrite/test_join_shapes.py",
    "rewrite/test_range_joins.py",
    "rewrite/test_expression_keys.py",
)
"""Files whose tests run in their share on one format, as their names fall; the other one is in the
long share."""

FORMAT_BY_FORMAT = (
    "rewrite/test_addresses.py",
    "rewrite/test_joins.py",
    "rewrite/test_monotonic.py",
    "rewrite/test_shared_shuffle.py",
    "rewrite/test_text_search.py",
    "rewrite/test_top_rows.py",
)
"""Files whose tests `make test` runs on one format, as their names fall; the others are extended
tests of joins."""

LONGEST = (
    "test_notebooks.py",
    "test_ways.py",
    "test_installed.py",
    "rewrite/test_joins.py",
    "skipping/advise/test_asked.py",
    "rewrite/test_commands.py",
    "rewrite/test_join_gate.py",
    "rewrite/test_conformance.py",
    "rewrite/test_session.py",
    "skipping/streaming/test_commits.py",
    "rewrite/test_conformance_tables.py",
    "rewrite/test_dml.py",
    "skipping/advise/test_analyze.py",
    "rewrite/serve/test_clients.py",
    "rewrite/test_static.py",
    "skipping/streaming/test_streams.py",
)
"""Files of minutes, the longest first: begun last, one would keep one of two processes waiting."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs no Spark first, then the longest files, then the others."""
    here = Path(__file__).parent
    shares = {here / name: share for share, names in EXTENDED.items() for name in names}
    places = {here / name: place for place, name in enumerate(LONGEST)}
    one_format = {here / name for name in ONE_FORMAT}
    by_format = {here / name for name in FORMAT_BY_FORMAT}
    for item in items:
        if item.path in one_format and _is_of_the_other(item.name):
            item.add_marker("long")
        elif item.path in shares:
            item.add_marker(shares[item.path])
        if item.path in by_format and _is_of_the_other(item.name):
            item.add_marker("joins")
        if any(mark.name in EXTENDED for mark in item.iter_markers()):
            item.add_marker("extended")
    items.sort(
        key=lambda item: (
            here / "providers" not in item.path.parents,
            places.get(item.path, len(places)),
        )
    )


def _is_of_the_other(name: str) -> bool:
    """Whether a test is of the format that its name without it does not fall to.

    >>> [_is_of_the_other(f"test_a_form[{format}-1]") for format in ("delta", "iceberg")]
    [False, True]
    """
    formats = re.findall(r"(?<=[\[-])(?:delta|iceberg)(?=[]-])", name)
    if len(formats) != 1:
        return False
    falls = zlib.crc32(name.replace(formats[0], "").encode()) % 2
    return bool(formats[0] == ("delta", "iceberg")[falls])


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session for small data; `strict`, so that a question that fails fails the test."""
    # A catalog that Spark shares with PyIceberg is an SQLite file.
    packages = ["org.xerial:sqlite-jdbc:3.54.1.0"]
    if release := os.environ.get("SKIPPING_TEST_ICEBERG"):
        packages.append(f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{release}")
    builder = (
        SparkSession.builder.master(os.environ.get("SKIPPING_TEST_MASTER", "local[2]"))
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.jars.packages", ",".join(packages))
        .config("spark.driver.memory", "2g")
        .config("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        .config("spark.skipping.mode", "strict")
    )
    session = rewrite.session(builder)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
