"""Publish the list of indexed tables to Java, so that scans of other tables never call Python."""

from __future__ import annotations

import json
import math
import threading
import time
import weakref
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.sql import SparkSession

from providers.errors import SkippingError
from rewrite.bridge.callbacks import describe_indexes
from rewrite.bridge.counters import Counting
from rewrite.bridge.lookup_cache import LookupCache
from rewrite.bridge.workload_writer import WorkloadWriter
from skipping.lookup.lookup import Lookup

_SHORTEST, _LONGEST = 0.2, 60.0
"""Limits in seconds for the time between two reads of a store, which `cache.ttl` sets."""

_TIMEOUT = 10.0
"""Timeout in seconds for reading a store."""

_LOG_INTERVAL = 60.0
"""Minimum seconds between two times that counters are logged."""


class StoreWatcher:
    """Reads the store in each session's settings about every `cache.ttl`, on its own thread.

    The same thread logs the counters, and writes those of the workload to the store. It ends
    with the Spark context and then calls `on_end`.
    """

    def __init__(
        self,
        java: Any,
        spark: Callable[[], SparkSession],
        lookups: LookupCache,
        counting: Counting,
        workload: WorkloadWriter,
        *,
        warn: Callable[[str], None],
        on_end: Callable[[], None],
    ) -> None:
        self._java = java
        self._spark = spark
        self._lookups = lookups
        self._counting = counting
        self._workload = workload
        self._warn = warn
        self._on_end = on_end
        self._read_at = weakref.WeakKeyDictionary[Lookup, float]()
        self._is_running = False

    def start(self) -> None:
        """Start the thread if it is not running."""
        if not self._is_running:
            self._is_running = True
            threading.Thread(target=self._run, name="skipping", daemon=True).start()

    def publish(self, only: Collection[Lookup] | None = None) -> None:
        """Send Java the tables that have an index, for the settings of each session.

        With `only`, skip settings that use another lookup, so that a slow store delays no other.
        """
        # A change of the store also notifies lookups of sessions that have ended.
        if self._has_ended():
            return
        settings = self._java.client().settings()
        current = settings.name(self._spark()._jsparkSession.sessionState().conf())
        indexes: dict[Lookup, str | None] = {}
        for name in dict.fromkeys([current, *settings.names()]):
            try:
                _, lookup = self._lookups.get(name)
                if only is not None and lookup not in only:
                    continue
                if lookup not in indexes:
                    indexes[lookup] = None
                    indexes[lookup] = _list_indexes(lookup)
                if indexes[lookup] is not None:
                    self._java.client().setIndexes(name, indexes[lookup])
            except SkippingError:
                # Java keeps its list. It still sends lookups, and their responses have the reason.
                continue
            except Py4JNetworkError:
                raise
            except Exception as error:
                self._warn(f"cannot read a store: {type(error).__name__}: {error}")

    def publish_for(self, spark: SparkSession) -> None:
        """Send Java the tables that have an index, for the settings of one session."""
        name = self._java.client().settings().name(spark._jsparkSession.sessionState().conf())
        _, lookup = self._lookups.get(name)
        self._java.client().setIndexes(name, _list_indexes(lookup))

    def _run(self) -> None:
        logged = time.monotonic()
        with suppress(Exception):  # the store may be unreachable, or not exist yet
            self._workload.restore()
        while not self._has_ended():
            time.sleep(_SHORTEST)
            try:
                if due := self._find_due():
                    self.publish(due)
                if time.monotonic() - logged >= _LOG_INTERVAL:
                    logged = time.monotonic()
                    self._counting.log(self._java)
                self._workload.write_if_due()
            except Exception as error:
                if self._has_ended() or not self._is_java_alive():
                    break
                self._warn(f"watching the stores failed, retrying: {type(error).__name__}: {error}")
        with suppress(Exception):  # the JVM may end meanwhile
            if self._is_java_alive():
                self._workload.write()
        self._on_end()

    def _find_due(self) -> set[Lookup]:
        now, due = time.monotonic(), set()
        for settings, lookup in self._lookups.items():
            interval = min(max(settings.cache_ttl, _SHORTEST), _LONGEST)
            if now - self._read_at.get(lookup, -math.inf) >= interval:
                self._read_at[lookup] = now
                due.add(lookup)
        return due

    def _is_java_alive(self) -> bool:
        try:
            self._java.client().plans()
        except (Py4JError, OSError):
            return False
        return True

    def _has_ended(self) -> bool:
        return self._spark().sparkContext._jsc is None


def _list_indexes(lookup: Lookup) -> str:
    return json.dumps(describe_indexes(lookup.definitions(fresh=True, timeout=_TIMEOUT)))
