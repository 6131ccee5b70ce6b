"""The private part of PyIceberg that the service uses, for the releases it was tested with.

PyIceberg's planner reads manifests of format version 3 as version 2. Row ids and the offsets of
deletion vectors get lost, so `entries` reads manifests itself. Then the files' bounds have to be
compared with a filter here as well, and PyIceberg's evaluator for that is private.

This module and the reader in `entries` can go when PyIceberg plans tables of version 3.
`test_pyiceberg_reads_manifests_as_version_2` fails then.
"""

from __future__ import annotations

import pyiceberg
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator as InclusiveMetricsEvaluator

from skipping.requirements import require_release

__all__ = ["InclusiveMetricsEvaluator"]

require_release(
    "PyIceberg",
    pyiceberg.__version__,
    "0.12",
    install="pip install 'lakehouse-file-skipping[catalog]'",
)
