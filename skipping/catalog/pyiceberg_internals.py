"""Import the private part of PyIceberg that the service uses, if its release was tested.

PyIceberg's planner reads manifests of format version 3 as version 2, and so loses row ids and the
offsets of deletion vectors. So `entries` reads manifests itself, and the service compares the
files' bounds with filters, for which PyIceberg's evaluator is private.

Remove this module and the reader in `entries` when PyIceberg plans tables of version 3. Then
`test_pyiceberg_reads_manifests_as_version_2` fails.
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
