"""Verify a sample of the pruned files in the background, and raise alarms for wrong ones.

A query puts its lookup into a short queue, and drops it if the queue is full. One thread reads the
files. Its failures do not affect queries: they are only logged.
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

__all__ = ["Alarm", "Asked", "Shadow"]

log = logging.getLogger("skipping")

_WAITING = 32
_FILES = 256
"""Maximum number of files to verify for one lookup, whatever the share is."""

_KEPT = 1_000
"""Maximum number of alarms in memory; the oldest are dropped."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A file that an index pruned although it holds a match."""

    table: str
    index: str
    path: str
    at: datetime

    def __str__(self) -> str:
        return (
            f"the skipping index of {self.table} pruned {self.path}, which holds a match: "
            f"DROP SKIPPING INDEX ON {self.table}, and please report this"
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """One lookup and its result. `share` is the fraction of the pruned files to verify."""

    share: float
    lookup: Lookup
    definition: Definition
    predicate: Predicate
    columns: dict[str, QueryColumn]
    finding: LookupResult


class Shadow:
    """Verifies lookup results on its own thread."""

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        self._session = session
        self._queue: queue.Queue[Asked | None] = queue.Queue(_WAITING)
        self._stopped = False
        self._random = random.Random()
        self._started = threading.Lock()
        self._thread: threading.Thread | None = None
        self.alarms: deque[Alarm] = deque(maxlen=_KEPT)
        self.files = 0
        """Number of verified files."""

    def offer(self, asked: Asked) -> None:
        """Queue a lookup for verification; drop it if the queue is full. Never waits."""
        if not asked.finding.pruned or self._stopped:
            return
        try:
            self._queue.put_nowait(asked)
        except queue.Full:
            return
        with self._started:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="shadow", daemon=True)
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
            asked = self._queue.get()
            if asked is None:
                continue
            try:
                self._check(asked)
            except Exception as error:
                # The table was dropped, or the session has ended: no query is affected.
                log.debug("cannot verify pruned files: %s", error)
            finally:
                self._queue.task_done()

    def _check(self, asked: Asked) -> None:
        definition = asked.definition
        files = asked.lookup.entries.get(definition.index).entries.files
        pruned = [o in asked.finding.pruned for o in files["ordinal"].to_pylist()]
        picked = [gone and self._random.random() < asked.share for gone in pruned]
        some = files.filter(pa.array(picked, pa.bool_())).slice(0, _FILES)
        spark = self._session()
        table = open_table(spark, stored_name(spark, definition))
        if table.id != definition.table:
            return  # the name belongs to another table now
        # Open only files that the table lists: the store may name others.
        some = some.filter(find_identities(some, table.files()).is_valid())
        found = verify_files(
            some.select(["ordinal", "path", "size", "stamp", "partition"]),
            definition,
            table.columns(),
            asked.predicate,
            asked.columns,
            dated=not table.has_log,
        )
        self.files += found.files
        for path in found.wrong:
            now = datetime.now(timezone.utc)
            alarm = Alarm(definition.name, definition.index, path, now)
            self.alarms.append(alarm)
            log.error("%s", alarm)
