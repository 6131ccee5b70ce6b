"""Scans of Iceberg are pruned through classes that are not its API: each release is run."""

from __future__ import annotations

import re

import pytest

from tests.rerun import rerun

pytestmark = pytest.mark.nightly

PLANS = "only_files or explain or deleted or storage or aggregates or mix or copied or row_groups"
"""What depends on how a scan is pruned; the metadata are read by the table's own JSON."""


@pytest.mark.soak
def test_the_next_release() -> None:
    told = rerun(
        "tests/rewrite/iceberg",
        "-k",
        PLANS,
        env={"SKIPPING_TEST_ICEBERG": "1.12.0"},
        timeout=900,
    )
    assert re.search(r"\d\d passed", told), told
