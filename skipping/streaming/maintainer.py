"""Keeps one index up to date from this process, for as long as it holds the index's lease."""

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
from skipping.streaming.scheduler import Keeper
from skipping.streaming.source import FileEvents

__all__ = ["LEAVING", "TRANSITIONS", "Event", "Maintainer", "State"]

log = logging.getLogger("skipping")

_LONGEST = 300.0
"""Seconds between two starts of a query that fails each time, at most."""

LEAVING = 10.0
"""Seconds that who ends a stream waits for it."""

_LONGEST_TEXT = 1_000
"""Characters of an error that are said."""

_NUMBERS = re.compile(r"\b[0-9a-f-]{8,}\b|[0-9]+")
"""What differs between failures of one kind: numbers, and the ids of Spark's queries."""

_FOUND = 60.0
"""Seconds for which a table is taken to be where its name led."""

_KINDS = 100
"""Kinds of failures that are remembered, so as to say each once."""


class State(Enum):
    """What the query of an index is doing."""

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
    """What changes the state."""

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
    """The streaming query of one index, and what is to be done for both when a `Keeper` looks.

    That moves the lease, has the query started again when it failed (after a pause that doubles),
    or anew when its options were altered, waits while another process holds the lease, and is over
    when the index was dropped, follows its table no more, has its checkpoint where the session lets
    no stream write, or the Spark context ended. Whatever a store or a table raises is a failure
    like any other, said once and described in the index's state.
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
        """`name` is that of the definition, and `table` what this session calls its table, if it
        is not the same; `patience` makes a silent owner a dead one.
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
        self._leases: dict[IndexId, Lease] = {}  # of the incarnations there were, too
        self._lock = threading.Lock()  # of the two above
        self._options = IndexOptions()
        self._failures = 0
        self._retry = 0.0
        self.state = State.IDLE
        self._changing = threading.Lock()  # the state
        self._ending = threading.Lock()  # of the query: whoever comes second waits for its end
        self._said = set[str]()
        self._reason: Exception | None = None  # why the query could not be started
        self._astray = False  # the last look failed
        self._unsure = False  # whether the lease was moved
        self._checkpoint: str | None = None  # of the query; None: a temporary one
        self._spoilt: str | None = None  # one that a query could not go on from
        self._temporary: str | None = None
        self._last: tuple[float, MaintainedIndex] | None = None  # opened, and when
        self.query: StreamingQuery | None = None
        self.error: str | None = None

    def start(self) -> None:
        """Begin; returns at once."""
        ensure_callback_server_started(self._spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
        Keeper.add(self._store, self)

    def end(self) -> None:
        """Begin to end; returns at once."""
        self._change(Event.END)
        Keeper.wake(self)

    def _change(self, event: Event) -> State:
        """Return the state before an event, and go on to the next."""
        with self._changing:
            before = self.state
            self.state = TRANSITIONS[event].get(before, before)
        return before

    def stop(self, *, timeout: float | None = None) -> None:
        """End the query and give the lease back; returns when that is done, or time is up.

        That is after `timeout` seconds, or `LEAVING`.
        """
        self.end()
        if Keeper.closed(self, within=LEAVING if timeout is None else timeout):
            return
        log.warning("the stream of the skipping index of %s is still stopping", self._name)
        # Its keeper may be waiting for the store; the query need not wait for the keeper.
        with suppress(RuntimeError):  # the process ends
            threading.Thread(target=self._stop_query, daemon=True).start()

    def wake(self) -> None:
        """Look at once, and forget failures: something was altered, or mended."""
        self._failures, self._retry, self._spoilt = 0, 0.0, None
        Keeper.wake(self)

    def serves(self, spark: SparkSession) -> bool:
        """Whether it looks after the index, running or waiting, in the application of a session."""
        same = self._application == spark.sparkContext.applicationId
        return same and self.state is not State.ENDED and self.is_kept

    @property
    def is_kept(self) -> bool:
        """Whether it was started, and has not given everything back."""
        return Keeper.has(self)

    @property
    def owns(self) -> bool:
        """Whether it holds the lease."""
        return self._index in self._leases

    def is_over(self) -> bool:
        """Whether it was ended, or the Spark context was, or is about to."""
        if self.state is State.ENDED:
            return True
        context = self._spark.sparkContext._jsc
        try:
            return context is None or bool(context.sc().isStopped())
        except (Py4JError, OSError):
            return True  # with Java

    def look(self, definitions: Sequence[Versioned[Definition]]) -> Callable[[], object] | None:
        """What is to be done for the query, as the index and its lease are now."""
        try:
            work = self._looked(definitions)
            self._found_its_way()
        except Exception as error:
            self._went_astray(error, told=True)
            return None
        if self.query is None and work is None and self._retry > time.monotonic():
            Keeper.wake(self, at=self._retry)
        return work

    def lost(self, error: Exception) -> None:
        """A look came to nothing: a store that cannot be asked is not told so, either."""
        self._went_astray(error, told=False)

    def _went_astray(self, error: Exception, *, told: bool) -> None:
        if not self.is_over():
            self._astray = True
            self._failed(error, told=told)

    def close(self) -> Callable[[], object] | None:
        """Give the lease back once there is no query."""
        if self.query is not None or self._temporary is not None:
            return self._stop_query
        with suppress(Exception):
            self._release()
        return None

    def _looked(self, definitions: Sequence[Versioned[Definition]]) -> Callable[[], object] | None:
        definition = self._mine(definitions)
        if definition is None:
            self.end()
            return None
        if definition.fault is not None:
            self._say(definition.fault)
            self.end()
            return None
        options = IndexOptions.of(dict(definition.options))
        if not options.streamed:
            self.end()
            return None
        if self.busy is not None and time.monotonic() - self.busy > self.patience:
            # Who hangs is taken for dead, and another may follow the table.
            self._say(f"its query takes more than {self.patience:.0f} s to start, or to stop")
            return None
        held = self._held(definition.index)
        if self.busy is not None or self.state is State.ENDED:
            return None
        if self.state in (State.UNSTARTED, State.REFUSED):
            self._failed(self._reason)
            if self._change(Event.REPORTED) is State.REFUSED:
                return None
        if not held:
            return None if self.query is None else self._stop_query
        if self.query is not None and not self.query.isActive:
            self._doubt_checkpoint()
            ended = self.query.exception() or "its streaming query was stopped"
            self._failed(None if self.state is State.FAILED else ended)
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
            self.query = self._started(place)
        except Exception as error:
            self._doubt_checkpoint()
            self._reason = error
            self._change(Event.NOT_STARTED)

    def _found_its_way(self) -> None:
        """Forget a look that failed while the query went on: no batch need come to say so."""
        if self._astray and self.query is not None and self.query.isActive:
            self._astray, self._failures, self.error = False, 0, None

    def _mine(self, definitions: Sequence[Versioned[Definition]]) -> Definition | None:
        """That of the index by now: another incarnation of the table has another."""
        live = [d.value for d in definitions if not d.value.dropped]
        mine = [d for d in live if d.name == self._name]
        same = [d for d in mine if d.index == self._index]
        return next(iter((*same, *mine)), None)

    def _held(self, index: IndexId) -> bool:
        """Whether the lease of an index is this one's, after moving or claiming it."""
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
                with suppress(StoreError):  # it was erased, or taken over
                    self._store.hold(
                        index, lease.release(), expect=lease, timeout=self.patience / 3
                    )
            self._leases.clear()

    def _started(self, place: str | None) -> StreamingQuery:
        """The query, going on from a checkpoint, or with None and with a spoilt one from none."""
        limit = self._options.max_files_per_batch
        source = FileEvents(
            self._spark, self._name, self._opened, self._glimpsed, self._guard, limit=limit
        )
        self._last, self._checkpoint = None, None if place == self._spoilt else place
        if self._checkpoint is None:
            self._temporary = tempfile.mkdtemp(prefix="skipping-stream-")
            place = f"file:{self._temporary}"
        self._change(Event.START)
        milliseconds = _spread(self._options.refresh_interval, self._index or "")
        writer = (
            source.stream()
            .writeStream.queryName(f"skipping index of {self._name}")
            .trigger(processingTime=f"{milliseconds} milliseconds")
            .foreachBatch(lambda events, id: self._batch(source, events))
            .option("checkpointLocation", place)
        )
        return writer.start()

    def _doubt_checkpoint(self) -> None:
        """If the query ended before its source was asked, let the next one do without.

        Nothing is deleted: the folder's name stands in the store.
        """
        if self.state is State.OPENING and self._checkpoint is not None:
            self._spoilt = self._checkpoint
            log.warning(
                "the stream of the skipping index of %s could not go on from its checkpoint, "
                "and uses a temporary one: delete %s, and say RECOVER INDEX JOB",
                self._name,
                self._spoilt,
            )

    def _opened(self) -> MaintainedIndex:
        index = self._open_index(self._spark, self.table, store=self._store, likely=self._index)
        self._last = time.monotonic(), index
        return index

    def _glimpsed(self) -> MaintainedIndex:
        """For a look: with the definition of now, of a table that was found some time ago.

        Nearly all looks find nothing new, and to find a table by its name is most of what they
        cost. That the name is one of another folder by now is seen when the time is over, or when
        there is nothing at the old place any more.
        """
        at, index = self._last or (-inf, None)
        if index is not None and time.monotonic() - at < _FOUND:
            with suppress(DefinitionError):  # it was erased
                index.reread()
                if not index.definition.dropped:
                    return index
        return self._opened()

    def _batch(self, source: FileEvents, events: DataFrame) -> None:
        if self.state in (State.STOPPING, State.ENDED):
            return  # an empty batch, which nobody waits for
        with self._guard():
            # So that Spark's progress counts them; DataFrame.count would plan an aggregate.
            events._jdf.queryExecution().toRdd().count()
            index = source.opened or self._opened()
            index.reread()
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
            self._said.clear()

    @contextmanager
    def _guard(self) -> Iterator[None]:
        self._change(Event.READ)
        try:
            yield
        except Exception as error:
            if self.state is State.STOPPING or self.is_over():
                return  # its thread was interrupted
            self._change(Event.FAIL)
            self._say(error)
            raise SkippingError(self.error) from None

    def _failed(self, error: object, *, told: bool = True) -> None:
        """Note why there is no query (None: it has been said), and when to start the next.

        The store is `told`, unless it is what failed.
        """
        pause = min(2.0 ** min(self._failures, 30), _LONGEST)
        self._retry = time.monotonic() + pause
        Keeper.wake(self, at=self._retry)
        self._failures += 1
        if error is not None:
            self._say(error)
        index = self._index
        lease = None if index is None else self._leases.get(index)
        if told and index is not None and lease is not None:
            with suppress(Exception):  # the store may be what failed
                state = self._store.state(index)
                # A refresh that failed has said so itself.
                if state.status != "failed" or (error is not None and state.error != self.error):
                    failed = replace(state, status="failed", error=self.error)
                    self._store.report(index, failed, token=lease.token)

    def _stop_query(self) -> None:
        with self._ending:
            if self.query is not None:
                self._change(Event.STOP)
                with suppress(Exception):  # Java has ended, or the session's stopTimeout has passed
                    self.query.stop()
                self.query = None
                self._change(Event.STOPPED)
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)
                self._temporary = None

    def _say(self, error: object) -> None:
        text = _described(error)
        kind = _NUMBERS.sub("0", text)
        if kind not in self._said:
            if len(self._said) >= _KINDS:
                self._said.clear()
            self._said.add(kind)
            log.warning("the skipping index of %s is not maintained: %s", self._name, text)
        self.error = text


def _spread(interval: float, index: IndexId) -> int:
    """Milliseconds between two looks at a table: up to a twentieth less than those of the option.

    Spark begins all queries of the same interval at the same moment, which for a hundred is a
    hundred threads that do at once what a few could do one after another.
    """
    share = zlib.crc32(index.encode()) / (1 << 32)
    return max(1, round(interval * 1_000 * (1 - share / 20)))


def _described(error: object) -> str:
    """One line; with its type where the text of an error may not say much without."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:
        lines = []
    line = mask_controls(lines[0])[:_LONGEST_TEXT] if lines else ""
    if line and isinstance(error, str | SkippingError | PySparkException | Py4JError):
        return line
    name = type(error).__name__
    return f"{name}: {line}" if line else name
