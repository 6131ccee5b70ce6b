"""Verify a sample of the pruned files in the background; a file that contains a match is an alarm.

A query puts its lookup into a short queue, unless the queue is full. One thread reads the files.
Failures of this thread are only logged; they do not affect queries.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone

import pyarrow as pa
from pyspark.sql import SparkSession

from providers.predicate import Predicate
from skipping.advise.sampled_verification import verify_files
from skipping.lookup.lookup import Lookup, LookupResult
from skipping.lookup.translate import QueryColumn
from skipping.model.definition import Definition
from skipping.sources.stored import stored_name
from skipping.stores import find_identities
from skipping.tables.open import open_table

log = logging.getLogger("skipping")

_QUEUE = 32
"""Maximum number of lookups in the queue."""

_FILES = 256
"""Maximum number of files to verify for one lookup."""

_ALARMS = 1_000
"""Maximum number of alarms in memory; the oldest are dropped."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A wrongly pruned file: it contains a row that matches the query."""

    table: str
    index: str
    path: str
    at: datetime

    def __str__(self) -> str:
        return (
            f"the skipping index of {self.table} pruned {self.path}, which contains a match: "
            f"run DROP SKIPPING INDEX ON {self.table}, and please report this"
        )


@dataclass(frozen=True, slots=True)
class LookupSample:
    """A lookup and its result; `share` is the fraction of the pruned files to verify."""

    share: float
    lookup: Lookup
    definition: Definition
    predicate: Predicate
    columns: dict[str, QueryColumn]
    result: LookupResult


class BackgroundVerification:
    """Verifies lookup results on its own thread."""

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        self._session = session
        self._queue: queue.Queue[LookupSample | None] = queue.Queue(_QUEUE)
        self._stopped = False
        self._random = random.Random()
        self._started = threading.Lock()
        self._thread: threading.Thread | None = None
        self.alarms: deque[Alarm] = deque(maxlen=_ALARMS)
        self.files = 0
        """Number of verified files."""

    def offer(self, sample: LookupSample) -> None:
        """Queue a lookup for verification; drop it if the queue is full. Never waits."""
        if not sample.result.pruned or self._stopped:
            return
        try:
            self._queue.put_nowait(sample)
        except queue.Full:
            return
        with self._started:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="background-verification", daemon=True
                )
                self._thread.start()

    def settle(self, timeout: float) -> bool:
        """Wait until all queued lookups are verified; return False after the timeout."""
        deadline = time.monotonic() + timeout
        while self._queue.unfinished_tasks:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def stop(self) -> None:
        """Stop verifying."""
        self._stopped = True
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(None)  # wakes the thread if it waits

    def _work(self) -> None:
        while not self._stopped:
            sample = self._queue.get()
            if sample is None:
                continue
            try:
                self._check(sample)
            except Exception as error:
                # For example, the table was dropped or the session has ended.
                log.debug("cannot verify pruned files: %s", error)
            finally:
                self._queue.task_done()

    def _check(self, sample: LookupSample) -> None:
        definition = sample.definition
        files = sample.lookup.entries.get(definition.index).entries.files
        pruned = [o in sample.result.pruned for o in files["ordinal"].to_pylist()]
        picked = [is_pruned and self._random.random() < sample.share for is_pruned in pruned]
        files = files.filter(pa.array(picked, pa.bool_())).slice(0, _FILES)
        spark = self._session()
        table = open_table(spark, stored_name(spark, definition))
        if table.id != definition.table:
            return  # the name belongs to another table now
        # Open only files that the table lists: others may have written paths into the store.
        files = files.filter(find_identities(files, table.files()).is_valid())
        verified = verify_files(
            files.select(["ordinal", "path", "size", "stamp", "partition"]),
            definition,
            table.columns(),
            sample.predicate,
            sample.columns,
            dated=not table.has_log,
        )
        self.files += verified.files
        for path in verified.wrong:
            now = datetime.now(timezone.utc)
            alarm = Alarm(definition.name, definition.index, path, now)
            self.alarms.append(alarm)
            log.error("%s", alarm)
