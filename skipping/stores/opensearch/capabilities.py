"""Detect what a cluster supports in searches. A store probes it once, with three small searches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from providers.errors import StoreError
from skipping.stores.opensearch.client import Body, Refused
from skipping.stores.opensearch.index import Entries
from skipping.stores.opensearch.queries import numbers_query
from skipping.stores.opensearch.scripts import ANY_FILTER, bitmap
from skipping.stores.single_flight import SingleFlight

_REFUSALS = (400, 403, 500)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The features that a cluster's version and settings support."""

    aggregates_by_script: bool
    filters_by_script: bool
    matches_bitmaps: bool
    """Whether a `terms` query takes 64-bit bitmaps."""


class CapabilityCache:
    """The capabilities of one cluster, probed once. Several threads can use it."""

    def __init__(self) -> None:
        self._probed: Capabilities | None = None
        self._probes = SingleFlight[Capabilities]()

    def get(self, entries: Entries, require_time: Callable[[], float]) -> Capabilities:
        """Return the capabilities; the first call probes them on an index that has documents."""
        if self._probed is None:
            probed = self._probes.result(
                "capabilities", lambda: _probe(entries, require_time), timeout=require_time()
            )
            if probed is None:
                raise StoreError("the store did not answer in time")
            self._probed = probed
        return self._probed

    def forget(self, error: Refused) -> None:
        """Probe again at the next search if a refused one may mean that the cluster has changed."""
        if error.status in _REFUSALS:
            self._probed = None


def _probe(entries: Entries, require_time: Callable[[], float]) -> Capabilities:
    aggregation = {"query": {"match_none": {}}, "aggs": {"words": bitmap(1)}}
    # Some document has the record's generation; older clusters do not find it by a bitmap.
    numbers = numbers_query("generation", pa.array([entries.record.generation]))
    found = _search(entries, {"query": numbers, "size": 1, "_source": False}, require_time())
    return Capabilities(
        aggregates_by_script=_search(entries, aggregation, require_time()) is not None,
        filters_by_script=_search(entries, {"query": ANY_FILTER}, require_time()) is not None,
        matches_bitmaps=found is not None and bool(found["hits"]["hits"]),
    )


def _search(entries: Entries, body: Body, timeout: float) -> Body | None:
    """Return the response, or None if the cluster refuses such a search."""
    try:
        return entries.search(body, timeout=timeout)
    except Refused as error:
        if error.status not in _REFUSALS:
            raise
        return None
