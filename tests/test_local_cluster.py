"""Random joins on executors in processes of their own. One run that every change has stands in
test_ways.py: nothing compiled or cached in the driver reaches executors.
"""

from __future__ import annotations

import pytest

from skipping.requirements import require_spark
from tests.rerun import rerun

pytestmark = pytest.mark.nightly


@pytest.mark.soak
def test_random_joins_have_equal_rows() -> None:
    """The first queries of the property test."""
    env = {"SKIPPING_TEST_MASTER": "local-cluster[2,1,1024]", "SKIPPING_TEST_QUERIES": "8"}
    told = rerun("tests/rewrite/test_join_property.py", env=env, timeout=900)
    formats = 2 if require_spark().iceberg else 1
    assert f"{formats} passed" in told, told
