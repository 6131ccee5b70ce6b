"""Alarms: some of the files that were pruned are read again, in the background.

A query only leaves its question in a queue, which is short: what does not fit is not checked. One
thread reads, and what goes wrong there is only counted.
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
"""Files of one question at most, whatever the share is."""

_KEPT = 1_000
"""Alarms that are remembered."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A file that an index pruned, and that holds a match after all."""

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
    """One question and its answer. `share` of the files pruned are to be read again."""

    share: float
    lookup: Lookup
    definition: Definition
    predicate: Predicate
    columns: dict[str, QueryColumn]
    finding: LookupResult


class Shadow:
    """Checks answers on a thread of its own."""

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        self._session = session
        self._queue: queue.Queue[Asked | None] = queue.Queue(_WAITING)
        self._stopped = False
        self._random = random.Random()
        self._started = threading.Lock()
        self._thread: threading.Thread | None = None
        self.alarms: deque[Alarm] = deque(maxlen=_KEPT)
        self.files = 0
        """Files that were read again."""

    def offer(self, asked: Asked) -> None:
        """Check an answer some time, unless there is too much to check already. Never waits."""
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
        """Wait until all that was offered is checked; whether it is."""
        deadline = time.monotonic() + timeout
        while self._queue.unfinished_tasks:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def stop(self) -> None:
        """Check nothing more."""
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
                # The table is gone, the session has ended: nothing that a query would notice.
                log.debug("files could not be read again: %s", error)
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
            return  # the name leads to another table by now
        # Only what the table lists is opened, not what the store says is a file of it.
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
