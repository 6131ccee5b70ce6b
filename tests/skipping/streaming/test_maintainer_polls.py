"""What a maintainer does at a poll and in a batch, without Spark: queries are objects of a test."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from providers.errors import Conflict, DefinitionError, SkippingError, StoreError, TableError
from skipping.model.definition import Definition, TableId
from skipping.model.lease import Lease
from skipping.stores.memory.store import MemoryStore
from skipping.streaming import maintainer
from skipping.streaming.maintainer import TRANSITIONS, Event, Maintainer, State

STREAMED = (("auto_refresh", True),)
PATIENCE = 30.0


class Query:
    """A streaming query."""

    def __init__(self) -> None:
        self.isActive = True

    def exception(self) -> object:
        return None

    def stop(self) -> None:
        self.isActive = False


class Local(Maintainer):
    """A maintainer whose queries need no Spark; `fails` is raised instead of starting one."""

    fails: Exception | None = None

    def _start_query(self, place: str | None) -> Any:
        self._checkpoint = None if place == self._bad_checkpoint else place
        self._change(Event.START)
        if self.fails is not None:
            raise self.fails
        return Query()


class Index:
    """An index that notes its refreshes, and raises what it is told to."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.refreshed: list[dict[str, Any]] = []
        self.raises: list[Exception] = []

    def reread(self) -> None:
        if self.definition.dropped:
            raise DefinitionError("erased")

    def carry_over(self) -> None:
        pass

    def refresh(self, **options: Any) -> None:
        self.refreshed.append(options)
        if self.raises:
            raise self.raises.pop()


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore("polls")
    made.define(define(), expect=None)
    return made


def define(**changes: Any) -> Definition:
    made = Definition("i", TableId("delta", "t", "file:/t"), "t", (), options=STREAMED)
    return replace(made, **changes)


@pytest.fixture
def kept(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> Local:
    monkeypatch.setattr(maintainer, "checkpoint_of", lambda *_: "file:/checkpoints/i")
    context = SimpleNamespace(isStopped=lambda: False)
    java = SimpleNamespace(sc=lambda: context)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(applicationId="app", _jsc=java))
    opened = Index(define())
    return Local(spark, store, "t", open_index=lambda *_, **__: opened, patience=PATIENCE)


def poll(kept: Local) -> bool:
    """Poll once, and do the work; return whether there was some."""
    work = kept.look(kept._store.definitions())
    if work is not None:
        work()
    return work is not None


def test_poll_starts_a_query_once_and_renews_the_lease(store: MemoryStore, kept: Local) -> None:
    assert (poll(kept), kept.state, kept.owns) == (True, State.OPENING, True)
    assert (poll(kept), store.lease("i").token, store.lease("i").beat) == (False, 1, 1)
    kept._options = maintainer.IndexOptions()  # those of ALTER differ
    first = kept.query
    assert (poll(kept), kept.query is first) == (True, False)


@pytest.mark.parametrize(
    "changes",
    [{"dropped": True}, {"options": ()}, {"fault": "its JSON is invalid"}, {"name": "other"}],
)
def test_poll_ends_without_an_index_to_maintain(
    store: MemoryStore, kept: Local, changes: dict[str, Any]
) -> None:
    poll(kept)
    definitions = [SimpleNamespace(value=define(**changes))]
    assert kept.look(definitions) is None  # type: ignore[arg-type]
    assert kept.is_over()


def test_poll_prefers_the_index_that_it_maintains(store: MemoryStore, kept: Local) -> None:
    poll(kept)
    other = SimpleNamespace(value=Definition("j", TableId("delta", "u", "file:/u"), "t", ()))
    (known,) = store.definitions()
    assert kept.look([other, known]) is None  # type: ignore[list-item]
    assert kept.state is State.OPENING


def test_poll_leaves_a_live_lease_holder_alone(store: MemoryStore, kept: Local) -> None:
    theirs = Lease().claim("them")
    store.hold("i", theirs, expect=Lease())
    assert (poll(kept), kept.owns, kept.query) == (False, False, None)
    kept._watch._since -= PATIENCE + 1  # no heartbeat since then
    assert (poll(kept), kept.owns, store.lease("i").token) == (True, True, 2)
    store.hold("i", theirs, expect=store.lease("i"))
    assert (poll(kept), kept.owns, kept.query) == (True, False, None)  # stopped


def test_poll_reads_the_lease_again_after_a_failed_write(
    store: MemoryStore, kept: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll(kept)
    hold = store.hold

    def lost(*arguments: Any, **options: Any) -> None:
        hold(*arguments, **options)
        raise StoreError("no response")

    monkeypatch.setattr(store, "hold", lost)
    assert not poll(kept)
    assert kept.error == "no response"
    monkeypatch.undo()
    poll(kept)
    assert (kept.owns, store.lease("i").beat, kept.error) == (True, 2, None)
    kept._is_lease_uncertain = True
    store.hold("i", Lease().claim("them"), expect=store.lease("i"))
    assert (poll(kept), kept.owns) == (True, False)


def test_poll_does_not_renew_the_lease_of_a_query_that_hangs(
    store: MemoryStore, kept: Local
) -> None:
    poll(kept)
    for since, beat in ((1.0, 1), (PATIENCE + 1, 1)):
        kept.busy = time.monotonic() - since
        assert not poll(kept)
        assert store.lease("i").beat == beat
    assert kept.error == "starting or stopping its query takes more than 30 s"


def test_poll_restarts_a_query_after_a_pause(store: MemoryStore, kept: Local) -> None:
    poll(kept)
    kept._change(Event.READ)
    assert kept.query is not None
    kept.query.stop()
    assert (poll(kept), kept.state) == (True, State.IDLE)
    kept.due = math.inf
    text = "its streaming query was stopped"
    assert (store.state("i").status, store.state("i").error) == ("failed", text)
    assert (poll(kept), kept.due) == (False, kept._retry)
    kept.wake()
    assert (poll(kept), kept.state) == (True, State.OPENING)


def test_poll_reports_a_query_that_cannot_start(store: MemoryStore, kept: Local) -> None:
    kept.fails = ValueError("no space")
    poll(kept)
    assert (kept.state, kept._bad_checkpoint) == (State.UNSTARTED, "file:/checkpoints/i")
    assert not poll(kept)
    assert (kept.state, store.state("i").error) == (State.IDLE, "ValueError: no space")


def test_poll_ends_if_the_checkpoint_is_not_allowed(
    store: MemoryStore, kept: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise DefinitionError("not allowed")

    monkeypatch.setattr(maintainer, "checkpoint_of", refuse)
    poll(kept)
    assert kept.state is State.REFUSED
    kept.due = math.inf
    assert (poll(kept), kept.state, store.state("i").error) == (False, State.ENDED, "not allowed")
    assert kept.due == 0.0  # closed at once
    assert kept.close() is None
    assert store.lease("i") == Lease(1)


def test_is_over_with_the_spark_context(kept: Local) -> None:
    def exited() -> None:
        raise OSError("the JVM has exited")

    assert not kept.is_over()
    for context in (None, SimpleNamespace(sc=exited)):
        kept._spark.sparkContext._jsc = context  # type: ignore[assignment]
        assert kept.is_over() is True


def test_batch_refreshes_with_the_token_of_the_lease(store: MemoryStore, kept: Local) -> None:
    opened: Any = kept._open()
    rows = SimpleNamespace(count=lambda: 0)
    events: Any = SimpleNamespace(
        _jdf=SimpleNamespace(queryExecution=lambda: SimpleNamespace(toRdd=lambda: rows))
    )
    source: Any = SimpleNamespace(opened=None, until=7)
    kept._process_batch(source, events)
    expected = {"token": 1, "limit": None, "retry": False}
    assert opened.refreshed == [{**expected, "until": 7}]
    opened.raises = [TableError("no version 7")]
    kept._process_batch(source, events)
    assert opened.refreshed[1:] == [{**expected, "until": 7}, expected]
    store.hold("i", Lease().claim("them"), expect=store.lease("i"))
    kept._leases.clear()
    with pytest.raises(SkippingError, match="another process now maintains"):
        kept._process_batch(source, events)
    kept.end()
    kept._process_batch(source, events)
    assert len(opened.refreshed) == 3


def test_reuse_index_opens_a_dropped_or_old_one_again(kept: Local) -> None:
    first: Any = kept._open()
    opened: list[Index] = []
    kept._open_index = lambda *_, **__: opened.append(Index(define())) or opened[-1]
    assert kept._reuse_index() is first
    assert kept._last is not None
    kept._last = kept._last[0] - 61, first
    assert kept._reuse_index() is opened[0]
    opened[0].definition = define(dropped=True)
    assert kept._reuse_index() is opened[1]


def test_failed_state_is_not_overwritten(store: MemoryStore, kept: Local) -> None:
    poll(kept)
    kept._report_failure("first")
    kept._report_failure(None)
    kept.error = "second"
    kept._report_failure(None)
    assert store.state("i").error == "first"
    kept._report_failure("third", store_it=False)
    assert store.state("i").error == "first"
    kept._report_failure("fourth")
    assert store.state("i").error == "fourth"


def test_log_once_ignores_numbers(kept: Local, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "skipping"):
        for error in ("port 1", "port 22", KeyError("x"), "", Conflict("a\nb"), "y" * 2_000):
            kept._log_once(error)
        for n in range(maintainer._LOGGED):
            kept._log_once("z" * (n + 1))
    texts = [record.getMessage().rpartition("maintained: ")[2] for record in caplog.records]
    assert texts[:5] == ["port 1", "KeyError: 'x'", "str", "a", "y" * 1_000]
    assert len(kept._logged) == 5


def test_transitions_have_all_events_and_no_way_out_of_ended() -> None:
    assert set(TRANSITIONS) == set(Event)
    assert all(after.get(State.ENDED, State.ENDED) is State.ENDED for after in TRANSITIONS.values())
    reached = {state for after in TRANSITIONS.values() for state in after.values()}
    assert reached == set(State)
