"""Keeps one index up to date from this process, for as long as it holds the index's lease."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from providers.errors import Conflict, SkippingError, StoreError, TableError
from skipping.definition import Definition, IndexId
from skipping.index import SkippingIndex
from skipping.lease import PATIENCE, Lease, Watch, owner_of
from skipping.options import IndexOptions
from skipping.stores import IndexStore
from skipping.streaming.file_events import FileEvents

__all__ = ["Keeper"]

log = logging.getLogger("skipping")

_LONGEST = 300.0
"""Seconds between two starts of a query that fails each time, at most."""


class Keeper:
    """The streaming query of one index, and a thread that looks after both.

    The thread moves the lease, starts the query again when it failed (after a pause that doubles),
    or anew when its options were altered, waits while another process holds the lease, and ends
    when the index was dropped, follows its table no more, or the Spark context ended.
    """

    def __init__(
        self, spark: SparkSession, store: IndexStore, name: str, *, patience: float = PATIENCE
    ) -> None:
        """`name` is that of the definition; `patience` makes a silent owner a dead one."""
        self._spark = spark
        self._store = store
        self._name = name
        self._patience = patience
        self._application = spark.sparkContext.applicationId
        self._owner = owner_of(self._application)
        self._watch = Watch(patience)
        self._index: IndexId | None = None
        self._leases: dict[IndexId, Lease] = {}  # of the incarnations there were, too
        self._lock = threading.Lock()  # of the two above
        self._options = IndexOptions()
        self._failures = 0
        self._due = 0.0
        self._ended = threading.Event()
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"keep {name}", daemon=True)
        self.query: StreamingQuery | None = None
        self.error: str | None = None

    def start(self) -> None:
        """Begin; returns at once."""
        ensure_callback_server_started(self._spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
        self._thread.start()

    def stop(self, *, timeout: float | None = None) -> None:
        """End the query and give the lease back; returns when that is done, or time is up."""
        self._ended.set()
        self._woken.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def wake(self) -> None:
        """Look at once, and forget failures: something was altered, or mended."""
        self._failures, self._due = 0, 0.0
        self._woken.set()

    def serves(self, spark: SparkSession) -> bool:
        """Whether it looks after the index, running or waiting, in the application of a session."""
        same = self._application == spark.sparkContext.applicationId
        return same and self._thread.is_alive() and not self._ended.is_set()

    @property
    def owns(self) -> bool:
        """Whether it holds the lease."""
        return self._index in self._leases

    def _run(self) -> None:
        try:
            while not self._ended.is_set() and not self._is_over():
                try:
                    if not self._looked_after():
                        break
                except (SkippingError, PySparkException, Py4JJavaError) as error:
                    self._failed(error)
                left = self._due - time.monotonic()
                pause = self._patience / 6
                self._woken.wait(pause if left < 0 else min(pause, left + 0.1))
                self._woken.clear()
        except (Py4JError, OSError):
            pass  # Java has ended
        finally:
            with suppress(Exception):
                self._stop_query()
            with suppress(SkippingError):
                self._release()

    def _is_over(self) -> bool:
        """Whether the Spark context ended, or is about to."""
        context = self._spark.sparkContext._jsc
        return context is None or bool(context.sc().isStopped())

    def _looked_after(self) -> bool:
        """One look; false if there is nothing to keep any more."""
        definition = self._definition()
        if definition is None:
            return False
        if definition.fault is not None:
            self._say(definition.fault)
            return False
        options = IndexOptions.of(dict(definition.options))
        if not options.streamed:
            return False
        if not self._held(definition.index):
            self._stop_query()
        elif self.query is not None and not self.query.isActive:
            ended, self.query = self.query, None
            self._failed(ended.exception() or "its streaming query was stopped")
        elif (self.query is None and time.monotonic() >= self._due) or options != self._options:
            self._stop_query()
            self._options = options
            self.query = self._started(definition.index)
        return True

    def _definition(self) -> Definition | None:
        """That of the index by now: another incarnation of the table has another."""
        live = [d.value for d in self._store.definitions() if not d.value.dropped]
        mine = [d for d in live if d.name == self._name]
        same = [d for d in mine if d.index == self._index]
        return next(iter((*same, *mine)), None)

    def _held(self, index: IndexId) -> bool:
        """Whether the lease of an index is this one's, after moving or claiming it."""
        with self._lock:
            if self._index != index:
                self._index, self._watch = index, Watch(self._patience)
            mine = self._leases.pop(index, None)
            if mine is not None:
                expect, wanted = mine, mine.moved()
            else:
                expect = self._store.lease(index)
                if not self._watch.is_free(expect):
                    return False
                wanted = expect.claimed(self._owner)
            try:
                self._store.hold(index, wanted, expect=expect)
            except Conflict:
                return False
            except StoreError:
                if mine is not None:
                    self._leases[index] = mine  # until somebody else says otherwise
                raise
            self._leases[index] = wanted
            return True

    def _release(self) -> None:
        with self._lock:
            for index, lease in self._leases.items():
                with suppress(StoreError):  # it was erased, or taken over
                    self._store.hold(index, lease.released(), expect=lease)
            self._leases.clear()

    def _started(self, index: IndexId) -> StreamingQuery:
        limit = self._options.max_files_per_batch
        source = FileEvents(self._spark, self._name, self._opened, self._guard, limit=limit)
        self._stopping.clear()
        milliseconds = max(1, round(self._options.refresh_interval * 1_000))
        writer = (
            source.stream()
            .writeStream.queryName(f"skipping index of {self._name}")
            .trigger(processingTime=f"{milliseconds} milliseconds")
            .foreachBatch(lambda events, id: self._batch(source, events))
        )
        if self._options.checkpoint_location is not None:
            place = self._options.checkpoint_location.rstrip("/")
            writer = writer.option("checkpointLocation", f"{place}/{index}")
        return writer.start()

    def _opened(self) -> SkippingIndex:
        return SkippingIndex.on(self._spark, self._name, store=self._store)

    def _batch(self, source: FileEvents, events: DataFrame) -> None:
        with self._guard():
            events.count()  # so that Spark's progress counts them
            index = self._opened()
            index.carry_over()
            id = index.definition.index
            lease = self._leases.get(id)
            if lease is None and self._held(id):
                lease = self._leases.get(id)
            if lease is None:
                raise Conflict(f"another owner took over the skipping index of {self._name}")
            limit = self._options.max_files_per_batch
            try:
                index.refresh(token=lease.token, limit=limit, until=source.until, retry=False)
            except TableError:  # the log of that version is gone by now
                index.refresh(token=lease.token, limit=limit, retry=False)
            self._failures, self.error = 0, None

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if self._stopping.is_set() or self._is_over():
                return  # its thread was interrupted
            self._say(error)
            raise SkippingError(self.error) from None

    def _failed(self, error: object) -> None:
        """Note why there is no query, and when to start the next."""
        self._due = time.monotonic() + min(2.0**self._failures, _LONGEST)
        self._failures += 1
        if self.error is None:  # or a batch has said it better
            self._say(error)
        index = self._index
        lease = None if index is None else self._leases.get(index)
        if index is not None and lease is not None:
            with suppress(StoreError):  # which may be what failed
                state = self._store.state(index)
                if state.status != "failed":  # a refresh that failed has said so itself
                    failed = replace(state, status="failed", error=self.error)
                    self._store.report(index, failed, token=lease.token)

    def _stop_query(self) -> None:
        query, self.query = self.query, None
        if query is not None:
            self._stopping.set()
            query.stop()

    def _say(self, error: object) -> None:
        text = (str(error).strip() or type(error).__name__).splitlines()[0]
        if text != self.error:
            log.warning("the skipping index of %s is not kept: %s", self._name, text)
        self.error = text
