"""Executors that lack what a build needs are found out before a build begins."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import skipping.indexing.preflight
import skipping.indexing.spark
from providers import BloomFilter, Column, Domain, MinMax
from providers.errors import DefinitionError, SessionError
from skipping.indexing.preflight import require_executors
from skipping.indexing.sketch import Work
from skipping.indexing.spark import SparkBuild
from skipping.model.definition import IndexedColumn
from skipping.requirements import require_spark
from skipping.stores import IDENTITY
from skipping.tables import PhysicalColumn, TableColumn

COLUMN = Column("x", Domain("integer", pa.int64()))
KINDS = [MinMax.of((COLUMN,), {}), BloomFilter.of((COLUMN,), {})]


@dataclass(frozen=True)
class OnlyHere:
    """A kind whose package only this process has."""

    process: int

    def collector(self) -> object:
        if os.getpid() != self.process:
            raise DefinitionError("needs the package somebody-s-kind")
        return object()


@pytest.fixture(autouse=True)
def _forgetful() -> Iterator[None]:
    skipping.indexing.preflight._able.clear()
    yield
    skipping.indexing.preflight._able.clear()


def jobs(spark: SparkSession, group: str) -> int:
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


def test_able_ones_are_asked_once(spark: SparkSession) -> None:
    context = spark.sparkContext
    context.setJobGroup("able", "")
    try:
        require_executors(spark, KINDS)
        assert jobs(spark, "able") == 1
        require_executors(spark, KINDS[::-1])
        assert jobs(spark, "able") == 1
    finally:
        context.setLocalProperty("spark.jobGroup.id", "")


def test_without_the_package(spark: SparkSession) -> None:
    with pytest.raises(SessionError, match=r"No module named 'skipping_elsewhere'.*PYSPARK_PYTHON"):
        require_executors(spark, KINDS, modules=["skipping_elsewhere"])
    with pytest.raises(SessionError, match="skipping_elsewhere"):  # it is not taken for able
        require_executors(spark, KINDS, modules=["skipping_elsewhere"])


def test_without_the_package_of_a_kind_no_file_is_read(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*arguments: Any) -> Any:
        raise AssertionError("a file was looked at")

    monkeypatch.setattr(skipping.indexing.spark, "can_open", never)
    monkeypatch.setattr(SparkBuild, "_sketch_in_tasks", never)
    indexed = IndexedColumn(1, "x", "x", "bigint", "ONLY_HERE")
    column = TableColumn("x", "x", "bigint", PhysicalColumn(("x",)))
    kind: Any = OnlyHere(os.getpid())
    files = pa.table([[0], ["file:/none"], [1], [None], ["{}"]], schema=IDENTITY)
    with pytest.raises(SessionError, match="needs the package somebody-s-kind"):
        list(SparkBuild(spark)(files, [Work(indexed, column, kind)]))


def test_where_no_python_starts(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/no/such/python")
    with pytest.raises(SessionError, match="cannot build an index"):
        require_executors(spark, KINDS)


def test_what_this_process_lacks_is_not_said_of_the_executors(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)  # as where it was never installed
    with pytest.raises(SessionError) as caught:
        require_executors(spark, KINDS)
    assert "Pandas >= " in str(caught.value)
    assert "executors" not in str(caught.value)
    assert str(caught.value).endswith(f": {require_spark().install}")
