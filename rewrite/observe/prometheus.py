"""Report counters by table to operators, and export them to Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from providers.errors import SessionError
from rewrite.bridge.counters import TableCounters, metrics, totals
from rewrite.observe.explain import require_hooks, require_settled_hooks

__all__ = ["PrometheusCollector", "counters"]


def counters(spark: SparkSession) -> tuple[TableCounters, ...]:
    """Return the counters of each table since the session was enabled, with those of its clones.

    Raises SessionError without `rewrite.enable`.
    """
    return totals(require_settled_hooks(spark).java)


class PrometheusCollector:
    """A collector for a registry of prometheus-client (the extra `metrics`).

    >>> from prometheus_client import REGISTRY, start_http_server  # doctest: +SKIP
    >>> REGISTRY.register(rewrite.PrometheusCollector(spark))  # doctest: +SKIP
    >>> start_http_server(9400)  # doctest: +SKIP
    """

    def __init__(self, spark: SparkSession) -> None:
        """Create a collector; raises SessionError without `rewrite.enable` or prometheus-client."""
        try:
            import prometheus_client  # noqa: F401
        except ModuleNotFoundError as error:
            raise SessionError(
                "the collector needs prometheus-client: "
                "pip install 'lakehouse-file-skipping[metrics]'"
            ) from error
        self._hooks = require_hooks(spark)

    def collect(self) -> Iterator[Any]:
        """Yield the metrics for a scrape; none after the session has ended."""
        try:
            found = totals(self._hooks.java)
        except Exception:  # py4j's, of a JVM that has ended
            return
        shadow = self._hooks.shadow
        yield from metrics(found, len(shadow.alarms), shadow.files)
