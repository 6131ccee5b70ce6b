"""Spark's own SQL tests, on Delta and Iceberg: with skipping as without (`spark_suite.py`)."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.rewrite.spark_suite import Outcome, Suite, cost_ignored, input_names

pytestmark = pytest.mark.nightly

GROUPS = 12
LEAST_SKIPPED = {"delta": 817, "iceberg": 604}
"""Queries that skip files, in all groups: 90 % of those that did. With fewer, some table is not
indexed."""

_outcomes: dict[tuple[str, int], list[Outcome]] = {}


@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.parametrize("format", list(LEAST_SKIPPED))
def test_spark_suite_has_equal_rows(spark: SparkSession, format: str, group: int) -> None:
    suite = Suite(spark, format)
    with cost_ignored(spark):
        # Not a parameter: the names are in a jar, which only this test fetches.
        outcomes = {name: suite.run(name) for name in input_names()[group::GROUPS]}
    _outcomes[format, group] = list(outcomes.values())
    skipped, compared = _count(_outcomes[format, group])
    print(f"{format}, group {group}: {skipped} of {compared} queries skipped files")
    wrong = [f"{name}: {each}" for name, found in outcomes.items() for each in found.wrong]
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize("format", list(LEAST_SKIPPED))
def test_spark_suite_skips_files(format: str) -> None:
    groups = [_outcomes.get((format, group)) for group in range(GROUPS)]
    if None in groups:
        pytest.skip("only some of the groups ran")
    skipped, compared = _count([outcome for group in groups for outcome in group or ()])
    assert skipped >= LEAST_SKIPPED[format], f"{skipped} of {compared} queries skipped files"


def _count(outcomes: list[Outcome]) -> tuple[int, int]:
    """Return how many queries skipped files, and how many were compared."""
    return sum(each.skipped for each in outcomes), sum(each.compared for each in outcomes)
