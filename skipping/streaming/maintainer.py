"""Maintain one index with a streaming query, while this process holds the lease of the index."""

from __future__ import annotations

import logging
import re
import shutil
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from math import inf

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from providers.errors import Conflict, DefinitionError, SkippingError, StoreError, TableError
from skipping.config.options import IndexOptions
from skipping.model.definition import Definition, IndexId, Versioned
from skipping.model.lease import PATIENCE, Lease, Watch, owner_of
from skipping.parser.errors import mask_controls
from skipping.stores import IndexStore
from skipping.streaming.checkpoints import checkpoint_of
from skipping.streaming.protocols import MaintainedIndex, OpenIndex
from skipping.streaming.scheduler import Scheduler
from skipping.streaming.source import FileEvents

log = logging.getLogger("skipping")

_LONGEST = 300.0  # maximum pause in seconds before a failed query is started again

STOP_TIMEOUT = 10.0
"""Stop timeout in seconds."""

_LONGEST_TEXT = 1_000  # maximum number of characters of an error that are logged and stored
_NUMBERS = re.compile(r"\b[0-9a-f-]{8,}\b|[0-9]+")
"""Numbers and query ids. They are ignored when errors are compared."""

_LOCATION_TTL = 60.0  # seconds for which the location of a table is cached
_LOGGED = 100  # maximum number of different errors that are remembered, to log each only once


class State(Enum):
    """The state of an index's query."""

    IDLE = auto()
    """There is no query: another process has the lease, or a failed query is to be restarted."""
    OPENING = auto()
    """The query was started; Spark has not read its source yet."""
    RUNNING = auto()
    FAILED = auto()
    """A batch failed and was reported; Spark is ending the query."""
    STOPPING = auto()
    UNSTARTED = auto()
    """The query could not be started; the next poll reports the reason."""
    REFUSED = auto()
    """The session does not allow the checkpoint of the query; the next poll reports it."""
    ENDED = auto()
    """This process does not maintain the index any more."""


class Event(Enum):
    """An event that changes the state."""

    START = auto()
    READ = auto()
    FAIL = auto()
    STOP = auto()
    STOPPED = auto()
    NOT_STARTED = auto()
    REFUSE = auto()
    REPORTED = auto()
    END = auto()


TRANSITIONS: dict[Event, dict[State, State]] = {
    Event.START: {State.IDLE: State.OPENING},
    Event.READ: {State.OPENING: State.RUNNING},
    Event.FAIL: {State.OPENING: State.FAILED, State.RUNNING: State.FAILED},
    Event.STOP: {
        State.OPENING: State.STOPPING,
        State.RUNNING: State.STOPPING,
        State.FAILED: State.STOPPING,
    },
    Event.STOPPED: {State.STOPPING: State.IDLE},
    Event.NOT_STARTED: {
        State.IDLE: State.UNSTARTED,
        State.OPENING: State.UNSTARTED,
        State.RUNNING: State.UNSTARTED,
        State.FAILED: State.UNSTARTED,
    },
    Event.REFUSE: {State.IDLE: State.REFUSED},
    Event.REPORTED: {State.UNSTARTED: State.IDLE, State.REFUSED: State.ENDED},
    Event.END: dict.fromkeys(State, State.ENDED),
}
"""The state after an event, by the state before it; other states stay the same."""


class Maintainer:
    """Runs the streaming query of one index; a `Scheduler` polls the maintainer.

    Each poll renews the lease. It restarts the query if the query failed (after a pause that
    doubles each time) or if the options changed. While another process holds the lease, it waits.
    The maintainer ends with the Spark context, when the index is dropped or its options do not have
    a stream any more, and when the session does not allow the checkpoint. Each error of a store or
    a table is logged once and stored in the state of the index.
    """

    def __init__(
        self,
        spark: SparkSession,
        store: IndexStore,
        name: str,
        *,
        open_index: OpenIndex,
        table: str | None = None,
        patience: float = PATIENCE,
    ) -> None:
        """Create a maintainer without starting it.

        `name` is the name in the definition, `table` the table's name in this session if it
        differs. A lease holder without a heartbeat for `patience` seconds counts as dead.
        """
        self._spark = spark
        self._store = store
        self._name = name
        self._open_index = open_index
        self.table = table or name
        self.patience = patience
        self.due = 0.0
        self.busy: float | None = None
        self._application = spark.sparkContext.applicationId
        self._owner = owner_of(self._application)
        self._watch = Watch(patience)
        self._index: IndexId | None = None
        self._leases: dict[IndexId, Lease] = {}  # includes the indexes of replaced tables
        self._lock = threading.Lock()  # guards _index and _leases
        self._options = IndexOptions()
        self._failures = 0
        self._retry = 0.0
        self.state = State.IDLE
        self._state_lock = threading.Lock()
        self._stop_lock = threading.Lock()  # of two callers that stop the query, the second waits
        self._logged = set[str]()
        self._reason: Exception | None = None  # why the query could not be started
        self._poll_failed = False  # whether the last poll failed
        self._is_lease_uncertain = False  # the last write of the lease may have failed
        self._checkpoint: str | None = None  # of the query; None for a temporary one
        self._bad_checkpoint: str | None = None  # the query could not resume from it
        self._temporary: str | None = None  # the folder of a temporary checkpoint
        self._last: tuple[float, MaintainedIndex] | None = None  # when it was opened, and the index
        self.query: StreamingQuery | None = None
        self.error: str | None = None

    def start(self) -> None:
        """Start maintaining the index; return immediately."""
        ensure_callback_server_started(self._spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
        Scheduler.add(self._store, self)

    def end(self) -> None:
        """Request the end; return immediately."""
        self._change(Event.END)
        Scheduler.wake(self)

    def _change(self, event: Event) -> State:
        """Move to the state after an event, and return the state before it."""
        with self._state_lock:
            before = self.state
            self.state = TRANSITIONS[event].get(before, before)
        return before

    def stop(self, *, timeout: float | None = None) -> None:
        """Stop the query and release the lease; wait at most `timeout`, default STOP_TIMEOUT."""
        self.end()
        if Scheduler.await_close(self, within=STOP_TIMEOUT if timeout is None else timeout):
            return
        log.warning("the stream of the skipping index of %s is still stopping", self._name)
        # The scheduler may be waiting for the store, so stop the query on another thread.
        with suppress(RuntimeError):  # the process is exiting
            threading.Thread(target=self._stop_query, daemon=True).start()

    def wake(self) -> None:
        """Poll immediately, without the pause after failures: the user changed something."""
        self._failures, self._retry, self._bad_checkpoint = 0, 0.0, None
        Scheduler.wake(self)

    def serves(self, spark: SparkSession) -> bool:
        """Return whether this is not ended, and runs in the Spark application of a session."""
        is_same = self._application == spark.sparkContext.applicationId
        return is_same and self.state is not State.ENDED and self.is_scheduled

    @property
    def is_scheduled(self) -> bool:
        """Whether it was started, and may still have a query or a lease."""
        return Scheduler.has(self)

    @property
    def owns(self) -> bool:
        """Whether it holds the lease."""
        return self._index in self._leases

    def is_over(self) -> bool:
        """Return whether the maintainer or the Spark context has ended."""
        if self.state is State.ENDED:
            return True
        context = self._spark.sparkContext._jsc
        try:
            return context is None or bool(context.sc().isStopped())
        except (Py4JError, OSError):
            return True  # the JVM has exited

    def look(self, definitions: Sequence[Versioned[Definition]]) -> Callable[[], object] | None:
        """Renew the lease; return the work to do for the query, or None."""
        try:
            work = self._decide(definitions)
            self._clear_error()
        except Exception as error:
            self._on_failed_poll(error, store_it=True)
            return None
        if self.query is None and work is None and self._retry > time.monotonic():
            Scheduler.wake(self, at=self._retry)
        return work

    def on_error(self, error: Exception) -> None:
        """Log an error of the store or of the work; do not write it to the store."""
        self._on_failed_poll(error, store_it=False)

    def _on_failed_poll(self, error: Exception, *, store_it: bool) -> None:
        if not self.is_over():
            self._poll_failed = True
            self._report_failure(error, store_it=store_it)

    def close(self) -> Callable[[], object] | None:
        """Release the lease; if there is a query, return the work that must stop it first."""
        if self.query is not None or self._temporary is not None:
            return self._stop_query
        with suppress(Exception):
            self._release()
        return None

    def _decide(self, definitions: Sequence[Versioned[Definition]]) -> Callable[[], object] | None:
        definition = self._find_definition(definitions)
        if definition is None:
            self.end()
            return None
        if definition.fault is not None:
            self._log_once(definition.fault)
            self.end()
            return None
        options = IndexOptions.of(dict(definition.options))
        if not options.streamed:
            self.end()
            return None
        if self.busy is not None and time.monotonic() - self.busy > self.patience:
            # Do not renew the lease, so that another process can take over.
            self._log_once(f"starting or stopping its query takes more than {self.patience:.0f} s")
            return None
        has_lease = self._take_lease(definition.index)
        if self.busy is not None or self.state is State.ENDED:
            return None
        if self.state in (State.UNSTARTED, State.REFUSED):
            self._report_failure(self._reason)
            if self._change(Event.REPORTED) is State.REFUSED:
                Scheduler.wake(self)  # the next poll closes it and releases the lease
                return None
        if not has_lease:
            return None if self.query is None else self._stop_query
        if self.query is not None and not self.query.isActive:
            self._reject_checkpoint()
            ended = self.query.exception() or "its streaming query was stopped"
            self._report_failure(None if self.state is State.FAILED else ended)
            return self._stop_query
        if (self.query is None and time.monotonic() >= self._retry) or options != self._options:
            return partial(self._restart, options, definition.index)
        return None

    def _restart(self, options: IndexOptions, index: IndexId) -> None:
        self._stop_query()
        self._options = options
        if self.is_over():
            return
        try:
            place = checkpoint_of(self._spark, options, index)
        except Exception as error:
            self._reason = error
            is_final = isinstance(error, DefinitionError)
            self._change(Event.REFUSE if is_final else Event.NOT_STARTED)
            return
        try:
            self.query = self._start_query(place)
        except Exception as error:
            self._reject_checkpoint()
            self._reason = error
            self._change(Event.NOT_STARTED)

    def _clear_error(self) -> None:
        """Clear the error of a failed poll if the query runs.

        A batch would clear it, too, but without new files there is no batch.
        """
        if self._poll_failed and self.query is not None and self.query.isActive:
            self._poll_failed, self._failures, self.error = False, 0, None

    def _find_definition(self, definitions: Sequence[Versioned[Definition]]) -> Definition | None:
        """Return the definition for `_name`, preferably with the same index id; None if dropped."""
        live = [d.value for d in definitions if not d.value.dropped]
        with_name = [d for d in live if d.name == self._name]
        with_id = [d for d in with_name if d.index == self._index]
        return next(iter((*with_id, *with_name)), None)

    def _take_lease(self, index: IndexId) -> bool:
        """Renew or claim the lease of an index; return whether this process holds it."""
        with self._lock:
            if self._index != index:
                self._index, self._watch = index, Watch(self.patience)
            timeout = self.patience / 3
            mine = self._leases.get(index)
            if mine is not None and self._is_lease_uncertain:
                stored = self._store.lease(index, timeout=timeout)
                is_mine = (stored.token, stored.owner) == (mine.token, mine.owner)
                mine = stored if is_mine else None
            if mine is not None:
                expect, new = mine, mine.renew()
            else:
                self._leases.pop(index, None)
                expect = self._store.lease(index, timeout=timeout)
                if not self._watch.is_free(expect):
                    return False
                new = expect.claim(self._owner)
            self._is_lease_uncertain = True
            try:
                self._store.hold(index, new, expect=expect, timeout=timeout)
            except Conflict:
                self._leases.pop(index, None)
                return False
            self._leases[index], self._is_lease_uncertain = new, False
            return True

    def _release(self) -> None:
        with self._lock:
            for index, lease in self._leases.items():
                with suppress(StoreError):  # erased, or taken over
                    self._store.hold(
                        index, lease.release(), expect=lease, timeout=self.patience / 3
                    )
            self._leases.clear()

    def _start_query(self, place: str | None) -> StreamingQuery:
        """Start the query with a checkpoint folder, or a temporary one if it is None or bad."""
        limit = self._options.max_files_per_batch
        source = FileEvents(
            self._spark, self._name, self._open, self._reuse_index, self._guard, limit=limit
        )
        self._last, self._checkpoint = None, None if place == self._bad_checkpoint else place
        if self._checkpoint is None:
            self._temporary = tempfile.mkdtemp(prefix="skipping-stream-")
            place = f"file:{self._temporary}"
        self._change(Event.START)
        milliseconds = _spread_interval(self._options.refresh_interval, self._index or "")
        writer = (
            source.stream()
            .writeStream.queryName(f"skipping index of {self._name}")
            .trigger(processingTime=f"{milliseconds} milliseconds")
            .foreachBatch(lambda events, id: self._process_batch(source, events))
            .option("checkpointLocation", place)
        )
        return writer.start()

    def _reject_checkpoint(self) -> None:
        """Stop using the checkpoint if the query ended before it read its source.

        The folder is not deleted, because its path comes from the store.
        """
        if self.state is State.OPENING and self._checkpoint is not None:
            self._bad_checkpoint = self._checkpoint
            log.warning(
                "the stream of the skipping index of %s cannot resume from its checkpoint, and "
                "uses a temporary one: delete %s, then run RECOVER INDEX JOB",
                self._name,
                self._bad_checkpoint,
            )

    def _open(self) -> MaintainedIndex:
        index = self._open_index(self._spark, self.table, store=self._store, likely=self._index)
        self._last = time.monotonic(), index
        return index

    def _reuse_index(self) -> MaintainedIndex:
        """Return the index that was opened last, with its current definition.

        Most polls find no new files, and finding the table by its name is most of their cost. If
        the table has moved, this is noticed after `_LOCATION_TTL` seconds, or when the old location
        does not exist any more.
        """
        at, index = self._last or (-inf, None)
        if index is not None and time.monotonic() - at < _LOCATION_TTL:
            with suppress(DefinitionError):  # the definition was erased
                index.reread()
                if not index.definition.dropped:
                    return index
        return self._open()

    def _process_batch(self, source: FileEvents, events: DataFrame) -> None:
        if self.state in (State.STOPPING, State.ENDED):
            return  # `getBatch` returned an empty batch
        with self._guard():
            # Count the rows for Spark's progress; DataFrame.count would plan an aggregate.
            events._jdf.queryExecution().toRdd().count()
            index = source.opened or self._open()
            index.reread()
            index.carry_over()
            id = index.definition.index
            lease = self._leases.get(id)
            if lease is None and self._take_lease(id):
                lease = self._leases.get(id)
            if lease is None:
                raise Conflict(f"another process now maintains the skipping index of {self._name}")
            limit = self._options.max_files_per_batch
            try:
                index.refresh(token=lease.token, limit=limit, until=source.until, retry=False)
            except TableError:  # that version is no longer in the table's log
                index.refresh(token=lease.token, limit=limit, retry=False)
            self._failures, self.error = 0, None
            self._logged.clear()

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Report errors and shorten their text; suppress them while the query is being stopped."""
        self._change(Event.READ)
        try:
            yield
        except Exception as error:
            if self.state is State.STOPPING or self.is_over():
                return  # Spark has interrupted the thread
            self._change(Event.FAIL)
            self._log_once(error)
            raise SkippingError(self.error) from None

    def _report_failure(self, error: object, *, store_it: bool = True) -> None:
        """Log the error, and schedule the next start of the query.

        `error` is None if the batch has already logged it. With `store_it`, also write the error
        to the state of the index; pass false if the store has failed.
        """
        pause = min(2.0 ** min(self._failures, 30), _LONGEST)
        self._retry = time.monotonic() + pause
        Scheduler.wake(self, at=self._retry)
        self._failures += 1
        if error is not None:
            self._log_once(error)
        index = self._index
        lease = None if index is None else self._leases.get(index)
        if store_it and index is not None and lease is not None:
            with suppress(Exception):  # the store may have failed
                state = self._store.state(index)
                # A failed refresh has already stored its error.
                if state.status != "failed" or (error is not None and state.error != self.error):
                    failed = replace(state, status="failed", error=self.error)
                    self._store.report(index, failed, token=lease.token)

    def _stop_query(self) -> None:
        with self._stop_lock:
            if self.query is not None:
                self._change(Event.STOP)
                with suppress(Exception):  # the JVM has exited, or Spark's stopTimeout is over
                    self.query.stop()
                self.query = None
                self._change(Event.STOPPED)
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)
                self._temporary = None

    def _log_once(self, error: object) -> None:
        text = _describe(error)
        pattern = _NUMBERS.sub("0", text)
        if pattern not in self._logged:
            if len(self._logged) >= _LOGGED:
                self._logged.clear()
            self._logged.add(pattern)
            log.warning("the skipping index of %s is not maintained: %s", self._name, text)
        self.error = text


def _spread_interval(interval: float, index: IndexId) -> int:
    """Return the milliseconds between two polls of a table: the interval minus up to 5 %.

    Spark triggers all queries with the same interval at the same moment. With different intervals,
    a hundred streams do not need a hundred threads at the same time.
    """
    share = zlib.crc32(index.encode()) / (1 << 32)
    return max(1, round(interval * 1_000 * (1 - share / 20)))


def _describe(error: object) -> str:
    """Return the first line of an error's text; with its type, unless its text is clear alone."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:
        lines = []
    line = mask_controls(lines[0])[:_LONGEST_TEXT] if lines else ""
    if line and isinstance(error, str | SkippingError | PySparkException | Py4JError):
        return line
    name = type(error).__name__
    return f"{name}: {line}" if line else name
