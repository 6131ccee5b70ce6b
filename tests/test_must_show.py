"""A query opens exactly the files that hold a match: every other file is overwritten with garbage.

MIN_MAX stands alone on the clustered `k`, VALUE_LIST alone on its mix `h`; the log has no bounds,
so Delta skips nothing. The query must answer all the same, and fail where skipping is off.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, Row, SparkSession

import rewrite
from skipping import SkippingIndex
from tests.benchmarks.literals import INDEX, POINTS, RANGES, conditions
from tests.benchmarks.star import FILES, KEYS, star, write_star

pytestmark = pytest.mark.nightly

NAMES = [name for name, *_ in (*POINTS, *RANGES)]


@dataclass(frozen=True, slots=True)
class Ground:
    """The table with an index, its files by number as they were written, conditions, the rows."""

    source: str
    files: dict[int, tuple[Path, bytes]]
    conditions: dict[tuple[str, str], str]
    rows: DataFrame

    def spoil(self, spared: set[int]) -> None:
        """Write garbage of the same size over all files but these."""
        for number, (path, content) in self.files.items():
            if number not in spared:
                path.write_bytes(os.urandom(len(content)))

    def mend(self) -> None:
        """Write all files as they were."""
        for path, content in self.files.values():
            path.write_bytes(content)


@pytest.fixture(scope="module")
def ground(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ground:
    folder = tmp_path_factory.mktemp("must_show")
    path = write_star(spark, "star", KEYS, folder=folder, statistics=False)
    for checksum in path.glob(".*.crc"):
        checksum.unlink()
    source = f"delta.`{path}`"
    rows = spark.sql(f"SELECT DISTINCT k div {KEYS}, _metadata.file_name FROM {source}").collect()
    files = {number: (path / name, (path / name).read_bytes()) for number, name in rows}
    assert len(files) == len(rows) == FILES
    SkippingIndex.create(spark, source, INDEX)
    named = {(c, name): sql for c, name, sql in conditions(spark)}
    return Ground(source, files, named, star(spark, KEYS).coalesce(2).cache())


@pytest.fixture
def mended(ground: Ground) -> Iterator[None]:
    yield
    ground.mend()


def _selected(spark: SparkSession, ground: Ground, condition: str) -> tuple[list[Row], int | None]:
    df = spark.sql(f"SELECT k, h, oid, price, note FROM {ground.source} WHERE {condition}")
    rows = sorted(df.collect())
    return rows, rewrite.explain(df).scans[0].opened


@pytest.mark.usefixtures("mended")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("column", ["k", "h"])
def test_exactly_the_files_that_match_are_opened(
    spark: SparkSession, ground: Ground, column: str, name: str
) -> None:
    condition = ground.conditions[column, name]
    expected = sorted(ground.rows.where(condition).collect())
    match = {row.k // KEYS for row in expected}
    ground.spoil(match)

    rows, opened = _selected(spark, ground, condition)

    assert opened == len(match)
    assert rows == expected
    if len(match) < FILES:
        spark.conf.set("spark.skipping.enabled", "false")
        try:
            with pytest.raises(Py4JJavaError, match="FAILED_READ_FILE"):
                _selected(spark, ground, condition)
        finally:
            spark.conf.unset("spark.skipping.enabled")
