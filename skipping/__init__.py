"""Define, build, store and look up skipping indexes.

The package can be imported without Spark; modules that need Spark are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from skipping.requirements import require_own, require_spark

require_own("providers")

from providers.errors import SkippingError  # noqa: E402

if TYPE_CHECKING:
    from skipping.advise.savings import Saving, savings
    from skipping.commands.execute import schema, sql, streams
    from skipping.index import SkippingIndex
    from skipping.lookup.scan_plan import ScanPlan
    from skipping.parser.networks import in_network
    from skipping.streaming.jobs import Stream

__all__ = [
    "Saving",
    "ScanPlan",
    "SkippingError",
    "SkippingIndex",
    "Stream",
    "in_network",
    "savings",
    "schema",
    "sql",
    "streams",
]

_MODULES = {
    "Saving": "skipping.advise.savings",
    "ScanPlan": "skipping.lookup.scan_plan",
    "SkippingIndex": "skipping.index",
    "Stream": "skipping.streaming.jobs",
    "in_network": "skipping.parser.networks",
    "savings": "skipping.advise.savings",
    "schema": "skipping.commands.execute",
    "sql": "skipping.commands.execute",
    "streams": "skipping.commands.execute",
}

_NEED_SPARK = {"Stream", "savings", "schema", "sql", "streams"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _NEED_SPARK:
        require_own("rewrite")
        require_spark()
    return getattr(import_module(_MODULES[name]), name)
