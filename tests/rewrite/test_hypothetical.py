"""EXPLAIN SKIPPING WITH: an index that does not exist, against the index when it does."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from pyspark.sql import Row, SparkSession

from providers.errors import SkippingError
from rewrite.observe import hypothetical
from skipping.advise.hypothetical import build_hypothetical
from tests.rewrite.differential import make_table

FILES = 20
ROWS = f"""SELECT id div 30 AS _f, id, 'k' || id div 30 % 5 AS name,
    xxhash64(id) AS mixed, id * 7919 % {FILES * 30} AS number FROM range({FILES * 30})"""

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> Iterator[str]:
    name = make_table(spark, "hypothetical", ROWS)
    yield name
    spark.sql(f"DROP SKIPPING INDEX IF EXISTS ON {name}")
    spark.sql(f"DROP TABLE {name}")


@pytest.fixture(autouse=True)
def without_index(spark: SparkSession, table: str) -> None:
    spark.sql(f"DROP SKIPPING INDEX IF EXISTS ON {table}")


def explain(spark: SparkSession, text: str) -> Row:
    (row,) = spark.sql(f"EXPLAIN SKIPPING {text}").collect()
    return row


def test_an_estimate_from_all_files_is_what_the_index_does(spark: SparkSession, table: str) -> None:
    query = f"SELECT * FROM {table} WHERE mixed = xxhash64(77L) AND name IN ('k2', 'k3')"
    columns = "mixed BLOOM_FILTER, name VALUE_LIST"
    before = spark.sql("SHOW SKIPPING INDEXES").collect()
    found = explain(spark, f"WITH ({columns}) {query}")
    assert spark.sql("SHOW SKIPPING INDEXES").collect() == before
    assert found.reason == "estimated from 20 of 20 files, without building an index"
    assert found.opened is None
    assert found.explanation.endswith(found.reason)
    assert explain(spark, f"DRY RUN {query}").pruned in (None, 0)  # there is no index

    spark.sql(f"CREATE SKIPPING INDEX ON {table} ({columns})")
    built = explain(spark, f"DRY RUN {query}")
    assert (found.files, found.pruned, found.conditions) == (
        built.files,
        built.pruned,
        built.conditions,
    )
    assert found.pruned_bytes == built.pruned_bytes
    assert 1 <= found.to_read <= 3


def test_a_sample_is_extrapolated(
    spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hypothetical, "build_hypothetical", partial(build_hypothetical, files=10))
    found = explain(spark, f"WITH (name VALUE_LIST) SELECT * FROM {table} WHERE name <> 'k1'")
    assert found.reason == "estimated from 10 of 20 files, without building an index"
    assert (found.files, found.unknown) == (FILES, 0)
    assert found.to_read % 2 == 0  # a file of the sample counts twice
    assert 10 <= found.to_read < FILES


def test_the_existing_index_counts_too(spark: SparkSession, table: str) -> None:
    spark.sql(f"CREATE SKIPPING INDEX ON {table} (id MIN_MAX)")
    query = f"SELECT * FROM {table} WHERE id < 300 AND name = 'k1'"
    alone = explain(spark, f"DRY RUN {query}")
    assert alone.to_read == 10
    assert explain(spark, f"WITH (name VALUE_LIST) {query}").to_read == 2
    assert explain(spark, f"DRY RUN {query}").to_read == alone.to_read
    with pytest.raises(SkippingError, match="id MIN_MAX is in the index already"):
        explain(spark, f"WITH (id MIN_MAX) {query}")


def test_tables_without_the_columns_and_keys_of_joins(spark: SparkSession, table: str) -> None:
    make_table(spark, "whatif_keys", "SELECT 0 AS _f, id AS k, 'n' || id AS label FROM range(9)")
    try:
        query = f"SELECT {table}.* FROM {table} JOIN whatif_keys ON number = k WHERE label = 'n3'"
        rows = spark.sql(f"EXPLAIN SKIPPING WITH (number VALUE_LIST) {query}").collect()
        reasons = {row.table.rpartition(".")[2]: row.reason for row in rows}
        assert "keys of joins are known only when the query runs" in reasons[table]
        assert reasons["whatif_keys"].startswith("the table has none of the columns in WITH")
    finally:
        spark.sql("DROP TABLE whatif_keys")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("nope VALUE_LIST", "no column nope"),
        ("name VALUE_LISTT", "did you mean VALUE_LIST"),
        ("id ADDRESSES", "ADDRESSES requires a STRING column"),
    ],
)
def test_wrong_columns_raise_the_errors_of_create(
    spark: SparkSession, table: str, columns: str, message: str
) -> None:
    text = f"EXPLAIN SKIPPING WITH ({columns}) SELECT * FROM {table} WHERE id = 1"
    with pytest.raises(SkippingError, match=message) as estimated:
        spark.sql(text)
    with pytest.raises(SkippingError, match=message):
        spark.sql(f"CREATE SKIPPING INDEX ON {table} ({columns})")
    assert "^" in str(estimated.value)
