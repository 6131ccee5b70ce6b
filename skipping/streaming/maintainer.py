"""Maintain one index from this process, while this process holds the lease of the index."""

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

_LONGEST = 300.0
"""Longest pause in seconds before a query that fails each time is started again."""

LEAVING = 10.0
"""Stop timeout in seconds."""

_LONGEST_TEXT = 1_000
"""Characters of an error that are logged and stored."""

_NUMBERS = re.compile(r"\b[0-9a-f-]{8,}\b|[0-9]+")
"""Numbers and query ids, which differ between equal failures."""

_FOUND = 60.0
"""Seconds for which the location of a table is cached."""

_KINDS = 100
"""Different failures that are remembered, to log each once."""


class State(Enum):
    """The state of an index's query."""

    IDLE = auto()
    """There is no query: another process has the lease, or the pause after a failure lasts."""
    OPENING = auto()
    """The query was started; Spark has not asked its source for files yet."""
    RUNNING = auto()
    FAILED = auto()
    """A batch failed, and has reported why; Spark ends the query."""
    STOPPING = auto()
    UNSTARTED = auto()
    """The query could not be started; the next look reports why."""
    REFUSED = auto()
    """The session refuses the checkpoint of the query; the next look reports it."""
    ENDED = auto()
    """The index is not maintained here any more."""


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
"""The state after an event. An event that is not listed for a state leaves it: so ENDED lasts."""


class Maintainer:
    """The streaming query of one index; a `Scheduler` polls it.

    Each poll renews the lease. It restarts the query when that failed (after a pause that doubles)
    and when its options changed. It waits while another process holds the lease. The maintainer
    ends when the index was dropped or has no stream any more, when the session refuses its
    checkpoint, and with the Spark context. Every error of a store or a table is logged once and
    stored in the state of the index.
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
        """Create it without starting it.

        `name` is that of the definition, `table` the table's name in this session if it differs.
        A lease holder without a heartbeat for `patience` seconds counts as dead.
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
        self._leases: dict[IndexId, Lease] = {}  # also of the tables that this one replaced
        self._lock = threading.Lock()  # guards the two above
        self._options = IndexOptions()
        self._failures = 0
        self._retry = 0.0
        self.state = State.IDLE
        self._changing = threading.Lock()  # guards the state
        self._ending = threading.Lock()  # two callers may stop the query: the second waits
        self._said = set[str]()
        self._reason: Exception | None = None  # why the query could not be started
        self._astray = False  # the last poll failed
        self._unsure = False  # whether the lease was renewed
        self._checkpoint: str | None = None  # of the query; None: a temporary one
        self._spoilt: str | None = None  # one that a query could not resume from
        self._temporary: str | None = None
        self._last: tuple[float, MaintainedIndex] | None = None  # opened, and when
        self.query: StreamingQuery | None = None
        self.error: str | None = None

    def start(self) -> None:
        """Start maintaining; returns immediately."""
        ensure_callback_server_started(self._spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
        Scheduler.add(self._store, self)

    def end(self) -> None:
        """Start to end; returns immediately."""
        self._change(Event.END)
        Scheduler.wake(self)

    def _change(self, event: Event) -> State:
        """Move to the state after an event, and return the state before it."""
        with self._changing:
            before = self.state
            self.state = TRANSITIONS[event].get(before, before)
        return before

    def stop(self, *, timeout: float | None = None) -> None:
        """Stop the query and release the lease; waits `timeout` seconds at most, else `LEAVING`."""
        self.end()
        if Scheduler.await_close(self, within=LEAVING if timeout is None else timeout):
            return
        log.warning("the stream of the skipping index of %s is still stopping", self._name)
        # The scheduler may be waiting for the store: stop the query without it.
        with suppress(RuntimeError):  # the process ends
            threading.Thread(target=self._stop_query, daemon=True).start()

    def wake(self) -> None:
        """Poll immediately, and forget failures: something was altered or repaired."""
        self._failures, self._retry, self._spoilt = 0, 0.0, None
        Scheduler.wake(self)

    def serves(self, spark: SparkSession) -> bool:
        """Return whether it maintains the index, running or waiting, in a session's application."""
        same = self._application == spark.sparkContext.applicationId
        return same and self.state is not State.ENDED and self.is_scheduled

    @property
    def is_scheduled(self) -> bool:
        """Whether it was started, and still has a query or a lease."""
        return Scheduler.has(self)

    @property
    def owns(self) -> bool:
        """Whether it holds the lease."""
        return self._index in self._leases

    def is_over(self) -> bool:
        """Return whether it ended, or the Spark context did, or is about to."""
        if self.state is State.ENDED:
            return True
        context = self._spark.sparkContext._jsc
        try:
            return context is None or bool(context.sc().isStopped())
        except (Py4JError, OSError):
            return True  # the JVM ended

    def look(self, definitions: Sequence[Versioned[Definition]]) -> Callable[[], object] | None:
        """Renew the lease; return the work to do for the query, if any."""
        try:
            work = self._decide(definitions)
            self._clear_error()
        except Exception as error:
            self._note_failed_look(error, store_it=True)
            return None
        if self.query is None and work is None and self._retry > time.monotonic():
            Scheduler.wake(self, at=self._retry)
        return work

    def on_error(self, error: Exception) -> None:
        """Note an error of the store; it is not stored there."""
        self._note_failed_look(error, store_it=False)

    def _note_failed_look(self, error: Exception, *, store_it: bool) -> None:
        if not self.is_over():
            self._astray = True
            self._report_failure(error, store_it=store_it)

    def close(self) -> Callable[[], object] | None:
        """Release the lease, or return what stops the query first."""
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
            # It counts as dead: another process may take over.
            self._log_once(f"its query takes more than {self.patience:.0f} s to start, or to stop")
            return None
        held = self._take_lease(definition.index)
        if self.busy is not None or self.state is State.ENDED:
            return None
        if self.state in (State.UNSTARTED, State.REFUSED):
            self._report_failure(self._reason)
            if self._change(Event.REPORTED) is State.REFUSED:
                Scheduler.wake(self)  # which releases the lease
                return None
        if not held:
            return None if self.query is None else self._stop_query
        if self.query is not None and not self.query.isActive:
            self._doubt_checkpoint()
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
            self._doubt_checkpoint()
            self._reason = error
            self._change(Event.NOT_STARTED)

    def _clear_error(self) -> None:
        """Forget a failed poll if the query runs: without new files no batch clears the error."""
        if self._astray and self.query is not None and self.query.isActive:
            self._astray, self._failures, self.error = False, 0, None

    def _find_definition(self, definitions: Sequence[Versioned[Definition]]) -> Definition | None:
        """Return the definition for the table as it is now: a replaced table has another."""
        live = [d.value for d in definitions if not d.value.dropped]
        mine = [d for d in live if d.name == self._name]
        same = [d for d in mine if d.index == self._index]
        return next(iter((*same, *mine)), None)

    def _take_lease(self, index: IndexId) -> bool:
        """Renew or claim the lease of an index; return whether this process holds it."""
        with self._lock:
            if self._index != index:
                self._index, self._watch = index, Watch(self.patience)
            timeout = self.patience / 3
            mine = self._leases.get(index)
            if mine is not None and self._unsure:
                there = self._store.lease(index, timeout=timeout)
                mine = there if (there.token, there.owner) == (mine.token, mine.owner) else None
            if mine is not None:
                expect, wanted = mine, mine.renew()
            else:
                self._leases.pop(index, None)
                expect = self._store.lease(index, timeout=timeout)
                if not self._watch.is_free(expect):
                    return False
                wanted = expect.claim(self._owner)
            self._unsure = True
            try:
                self._store.hold(index, wanted, expect=expect, timeout=timeout)
            except Conflict:
                self._leases.pop(index, None)
                return False
            self._leases[index], self._unsure = wanted, False
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
        """Start the query from a checkpoint; without one, or with a spoilt one, from none."""
        limit = self._options.max_files_per_batch
        source = FileEvents(
            self._spark, self._name, self._open, self._reuse_index, self._guard, limit=limit
        )
        self._last, self._checkpoint = None, None if place == self._spoilt else place
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

    def _doubt_checkpoint(self) -> None:
        """Ignore the checkpoint from now on if the query ended before it read its source.

        Nothing is deleted: the name of the folder comes from the store.
        """
        if self.state is State.OPENING and self._checkpoint is not None:
            self._spoilt = self._checkpoint
            log.warning(
                "the stream of the skipping index of %s could not go on from its checkpoint, "
                "and uses a temporary one: delete %s, and say RECOVER INDEX JOB",
                self._name,
                self._spoilt,
            )

    def _open(self) -> MaintainedIndex:
        index = self._open_index(self._spark, self.table, store=self._store, likely=self._index)
        self._last = time.monotonic(), index
        return index

    def _reuse_index(self) -> MaintainedIndex:
        """Return the index with its current definition, of a table that was located before.

        Most polls find nothing new, and locating the table by its name is most of their cost. A
        table that moved is noticed after `_FOUND` seconds, or when the old location is gone.
        """
        at, index = self._last or (-inf, None)
        if index is not None and time.monotonic() - at < _FOUND:
            with suppress(DefinitionError):  # it was erased
                index.reread()
                if not index.definition.dropped:
                    return index
        return self._open()

    def _process_batch(self, source: FileEvents, events: DataFrame) -> None:
        if self.state in (State.STOPPING, State.ENDED):
            return  # an empty batch, whose result is not used
        with self._guard():
            # For Spark's progress; DataFrame.count would plan an aggregate.
            events._jdf.queryExecution().toRdd().count()
            index = source.opened or self._open()
            index.reread()
            index.carry_over()
            id = index.definition.index
            lease = self._leases.get(id)
            if lease is None and self._take_lease(id):
                lease = self._leases.get(id)
            if lease is None:
                raise Conflict(f"another owner took over the skipping index of {self._name}")
            limit = self._options.max_files_per_batch
            try:
                index.refresh(token=lease.token, limit=limit, until=source.until, retry=False)
            except TableError:  # the log of that version was deleted
                index.refresh(token=lease.token, limit=limit, retry=False)
            self._failures, self.error = 0, None
            self._said.clear()

    @contextmanager
    def _guard(self) -> Iterator[None]:
        self._change(Event.READ)
        try:
            yield
        except Exception as error:
            if self.state is State.STOPPING or self.is_over():
                return  # Spark interrupted its thread
            self._change(Event.FAIL)
            self._log_once(error)
            raise SkippingError(self.error) from None

    def _report_failure(self, error: object, *, store_it: bool = True) -> None:
        """Log why there is no query (None: a batch did), and schedule the next start.

        With `store_it`, write it in the state of the index, too; not if the store is what failed.
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
            with suppress(Exception):  # the store may be what failed
                state = self._store.state(index)
                # A refresh that failed has stored its error.
                if state.status != "failed" or (error is not None and state.error != self.error):
                    failed = replace(state, status="failed", error=self.error)
                    self._store.report(index, failed, token=lease.token)

    def _stop_query(self) -> None:
        with self._ending:
            if self.query is not None:
                self._change(Event.STOP)
                with suppress(Exception):  # the JVM ended, or the session's stopTimeout is over
                    self.query.stop()
                self.query = None
                self._change(Event.STOPPED)
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)
                self._temporary = None

    def _log_once(self, error: object) -> None:
        text = _describe(error)
        kind = _NUMBERS.sub("0", text)
        if kind not in self._said:
            if len(self._said) >= _KINDS:
                self._said.clear()
            self._said.add(kind)
            log.warning("the skipping index of %s is not maintained: %s", self._name, text)
        self.error = text


def _spread_interval(interval: float, index: IndexId) -> int:
    """Return the milliseconds between two polls of a table: the option, less up to 5 %.

    Spark triggers all queries with the same interval at the same moment. A hundred streams would
    mean a hundred threads at once, where a few could do the work one after the other.
    """
    share = zlib.crc32(index.encode()) / (1 << 32)
    return max(1, round(interval * 1_000 * (1 - share / 20)))


def _describe(error: object) -> str:
    """Return one line; with the type of an error whose text may not be clear without."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:
        lines = []
    line = mask_controls(lines[0])[:_LONGEST_TEXT] if lines else ""
    if line and isinstance(error, str | SkippingError | PySparkException | Py4JError):
        return line
    name = type(error).__name__
    return f"{name}: {line}" if line else name
