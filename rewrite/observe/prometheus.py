"""Return counters for each table, and export them to Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import SparkSession

from providers.errors import SessionError
from rewrite.bridge.counters import TableCounters, metrics, totals
from rewrite.observe.explain import require_hooks, wait_for_records
from skipping.advise.savings import estimate
from skipping.config.settings import Settings
from skipping.model.workload import WorkloadRecord
from skipping.sources.spark import settings_of


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
        self._settings = settings_of(spark)

    def collect(self) -> Iterator[Any]:
        """Yield the metrics for a scrape; nothing after the session has ended."""
        try:
            tables = totals(self._hooks.java)
            workload = self._hooks.workload.read(self._settings)
        except Exception:  # py4j raises several types once the JVM has ended
            return
        verification = self._hooks.verification
        yield from metrics(tables, len(verification.alarms), verification.files)
        yield from savings_metrics(workload.records, self._settings)


def savings_metrics(records: Iterable[WorkloadRecord], settings: Settings) -> Iterator[Any]:
    """Yield estimates of what the queries of one driver saved, on the last days."""
    from prometheus_client.core import GaugeMetricFamily

    meanings = {
        "requests": "estimated requests that queries did not send, because files were skipped",
        "seconds": "estimated seconds of a task that reading these files would have taken",
        "price": "estimated price of these requests, by spark.skipping.price.get",
    }
    families = [
        GaugeMetricFamily(f"skipping_saved_{name}", meaning, labels=["table", "day"])
        for name, meaning in meanings.items()
    ]
    for record in records:
        for table in record.tables:
            found = estimate(table.table.root, table.pruned_files, table.pruned_bytes, settings)
            for family, value in zip(families, found, strict=True):
                family.add_metric([table.name, record.day.isoformat()], value)
    yield from families
