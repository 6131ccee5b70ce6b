"""What drivers counted of their queries: one document for each driver and day, in an own index."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import date

from skipping.model.workload import (
    MOST_RECORDS,
    WorkloadRecord,
    list_old_keys,
    parse_records,
    select_keys,
)
from skipping.stores.opensearch import limits
from skipping.stores.opensearch.client import Body, Client, Refused

_MAPPING: Body = {
    "dynamic": "strict",
    "properties": {
        "day": {"type": "keyword"},
        "driver": {"type": "keyword"},
        "data": {"type": "text", "index": False},
    },
}
_SETTINGS: Body = {"number_of_shards": 1, "auto_expand_replicas": "0-1"}
_PAGE = 100  # documents in one request


class WorkloadIndex:
    """The OpenSearch index with the documents; `record` creates it."""

    def __init__(self, client: Client, prefix: str) -> None:
        self._client = client
        self._name = f"{prefix}workload"
        self._is_created = False
        self._cleaned: date | None = None

    def record(self, record: WorkloadRecord, oldest: date, timeout: float | None) -> None:
        """Write a document; once a day, delete those that expired."""
        deadline = self._deadline(timeout)
        if not self._is_created:
            self._create(deadline)
        body = {"day": record.day.isoformat(), "driver": record.driver, "data": record.to_json()}
        self._client.call(
            *("PUT", f"/{self._name}/_doc/{record.key}", body),
            timeout=deadline - time.monotonic(),
            refresh="true",
        )
        if self._cleaned != record.day:
            first = oldest.isoformat()
            ids = [id for op in ("lt", "gte") for id in self._ids({op: first}, deadline)]
            expired = list_old_keys(ids, record, oldest)
            if expired:
                self._client.bulk(self._name, [({"delete": {"_id": id}}, None) for id in expired])
                left = deadline - time.monotonic()
                self._client.call("POST", f"/{self._name}/_refresh", timeout=left)
            self._cleaned = record.day

    def read(
        self, since: date, until: date, most: int, timeout: float | None
    ) -> Sequence[WorkloadRecord]:
        """Return the records of some days, the newest first; empty if there is no index."""
        deadline = self._deadline(timeout)
        try:
            ids = self._ids({"gte": since.isoformat(), "lte": until.isoformat()}, deadline)
        except Refused as error:
            if error.status != 404:
                raise
            return []
        keys = select_keys(ids, since=since, until=until, most=most)
        records: list[WorkloadRecord] = []
        for start in range(0, len(keys), _PAGE):
            some = keys[start : start + _PAGE]
            answer = self._client.search(
                self._name,
                {"query": {"ids": {"values": some}}, "size": len(some)},
                timeout=deadline - time.monotonic(),
                most=limits.DOCUMENTS,
            )
            found = {
                hit.get("_id"): (hit.get("_source") or {}).get("data")
                for hit in answer["hits"]["hits"]
            }
            records += parse_records((key, found.get(key)) for key in some)
        return records

    def _ids(self, days: Body, deadline: float) -> list[str]:
        body: Body = {
            "query": {"range": {"day": days}},
            "sort": [{"day": "desc"}, {"driver": "desc"}],
            "size": MOST_RECORDS,
            "_source": False,
        }
        left = deadline - time.monotonic()
        hits = self._client.search(self._name, body, timeout=left)["hits"]["hits"]
        return [str(hit.get("_id")) for hit in hits]

    def _create(self, deadline: float) -> None:
        body: Body = {"mappings": _MAPPING, "settings": {"index": _SETTINGS}}
        try:
            self._client.call("PUT", f"/{self._name}", body, timeout=deadline - time.monotonic())
        except Refused as error:
            if error.kind != "resource_already_exists_exception":
                raise
        self._is_created = True

    def _deadline(self, timeout: float | None) -> float:
        return time.monotonic() + (self._client.patience if timeout is None else timeout)
