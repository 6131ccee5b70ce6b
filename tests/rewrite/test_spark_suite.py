"""Spark's own SQL tests, on Delta and Iceberg: with skipping as without (`spark_suite.py`)."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.rewrite.spark_suite import Outcome, Suite, cost_ignored, input_names

LEAST_SKIPPED = {"delta": 0, "iceberg": 0}
"""Queries that skip files, of all inputs: fewer than this means that something is not indexed."""

_outcomes: dict[str, dict[str, Outcome]] = {"delta": {}, "iceberg": {}}


@pytest.mark.parametrize("name", input_names())
@pytest.mark.parametrize("format", list(_outcomes))
def test_spark_suite_has_equal_rows(spark: SparkSession, format: str, name: str) -> None:
    with cost_ignored(spark):
        outcome = Suite(spark, format).run(name)
    _outcomes[format][name] = outcome
    assert not outcome.wrong, "\n\n".join(outcome.wrong)


@pytest.mark.parametrize("format", list(_outcomes))
def test_spark_suite_skips_files(format: str) -> None:
    outcomes = _outcomes[format]
    if set(outcomes) != set(input_names()):
        pytest.skip("only some of the inputs ran")
    skipped = sum(outcome.skipped for outcome in outcomes.values())
    compared = sum(outcome.compared for outcome in outcomes.values())
    assert skipped >= LEAST_SKIPPED[format], f"{skipped} of {compared} queries skipped files"
