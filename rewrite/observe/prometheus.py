"""Return counters for each table, and export them to Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from providers.errors import SessionError
from rewrite.bridge.counters import TableCounters, metrics, totals
from rewrite.observe.explain import require_hooks, wait_for_records


def counters(spark: SparkSession) -> tuple[TableCounters, ...]:
    """Return counters for each table, summed over the session and its clones since `enable`.

    Raises SessionError without `rewrite.enable`.
    """
    return totals(wait_for_records(spark).java)


class PrometheusCollector:
    """A collector to register with prometheus-client (install the extra `metrics`).

    >>> from prometheus_client import REGISTRY, start_http_server  # doctest: +SKIP
    >>> REGISTRY.register(rewrite.PrometheusCollector(spark))  # doctest: +SKIP
    >>> start_http_server(9400)  # doctest: +SKIP
    """

    def __init__(self, spark: SparkSession) -> None:
        """Create a collector; raise SessionError without `rewrite.enable` or prometheus-client."""
        try:
            import prometheus_client  # noqa: F401
        except ModuleNotFoundError as error:
            raise SessionError(
                "the collector needs prometheus-client: "
                "pip install 'lakehouse-file-skipping[metrics]'"
            ) from error
        self._hooks = require_hooks(spark)

    def collect(self) -> Iterator[Any]:
        """Yield the metrics for a scrape; nothing after the session has ended."""
        try:
            tables = totals(self._hooks.java)
        except Exception:  # py4j raises several types once the JVM has ended
            return
        verification = self._hooks.verification
        yield from metrics(tables, len(verification.alarms), verification.files)
