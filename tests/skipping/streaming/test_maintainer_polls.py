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
    """An index that notes its refreshes, and raises given errors."""

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
def local(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> Local:
    monkeypatch.setattr(maintainer, "checkpoint_of", lambda *_: "file:/checkpoints/i")
    context = SimpleNamespace(isStopped=lambda: False)
    java = SimpleNamespace(sc=lambda: context)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(applicationId="app", _jsc=java))
    opened = Index(define())
    return Local(spark, store, "t", open_index=lambda *_, **__: opened, patience=PATIENCE)


def poll(local: Local) -> bool:
    """Poll once, and do the work; return whether there was some."""
    work = local.look(local._store.definitions())
    if work is not None:
        work()
    return work is not None


def test_poll_starts_a_query_once_and_renews_the_lease(store: MemoryStore, local: Local) -> None:
    assert (poll(local), local.state, local.owns) == (True, State.OPENING, True)
    assert (poll(local), store.lease("i").token, store.lease("i").beat) == (False, 1, 1)
    local._options = maintainer.IndexOptions()  # those of ALTER differ
    first = local.query
    assert (poll(local), local.query is first) == (True, False)


@pytest.mark.parametrize(
    "changes",
    [{"dropped": True}, {"options": ()}, {"fault": "its JSON is invalid"}, {"name": "other"}],
)
def test_poll_ends_without_an_index_to_maintain(
    store: MemoryStore, local: Local, changes: dict[str, Any]
) -> None:
    poll(local)
    definitions = [SimpleNamespace(value=define(**changes))]
    assert local.look(definitions) is None  # type: ignore[arg-type]
    assert local.is_over()


def test_poll_prefers_the_index_that_it_maintains(store: MemoryStore, local: Local) -> None:
    poll(local)
    other = SimpleNamespace(value=Definition("j", TableId("delta", "u", "file:/u"), "t", ()))
    (known,) = store.definitions()
    assert local.look([other, known]) is None  # type: ignore[list-item]
    assert local.state is State.OPENING


def test_poll_leaves_a_live_lease_holder_alone(store: MemoryStore, local: Local) -> None:
    theirs = Lease().claim("them")
    store.hold("i", theirs, expect=Lease())
    assert (poll(local), local.owns, local.query) == (False, False, None)
    local._watch._since -= PATIENCE + 1  # no heartbeat since then
    assert (poll(local), local.owns, store.lease("i").token) == (True, True, 2)
    store.hold("i", theirs, expect=store.lease("i"))
    assert (poll(local), local.owns, local.query) == (True, False, None)  # stopped


def test_poll_reads_the_lease_again_after_a_failed_write(
    store: MemoryStore, local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll(local)
    hold = store.hold

    def lose_response(*arguments: Any, **options: Any) -> None:
        hold(*arguments, **options)
        raise StoreError("no response")

    monkeypatch.setattr(store, "hold", lose_response)
    assert not poll(local)
    assert local.error == "no response"
    monkeypatch.undo()
    poll(local)
    assert (local.owns, store.lease("i").beat, local.error) == (True, 2, None)
    local._is_lease_uncertain = True
    store.hold("i", Lease().claim("them"), expect=store.lease("i"))
    assert (poll(local), local.owns) == (True, False)


def test_poll_does_not_renew_the_lease_of_a_query_that_hangs(
    store: MemoryStore, local: Local
) -> None:
    poll(local)
    for since, beat in ((1.0, 1), (PATIENCE + 1, 1)):
        local.busy = time.monotonic() - since
        assert not poll(local)
        assert store.lease("i").beat == beat
    assert local.error == "starting or stopping its query takes more than 30 s"


def test_poll_restarts_a_query_after_a_pause(store: MemoryStore, local: Local) -> None:
    poll(local)
    local._change(Event.READ)
    assert local.query is not None
    local.query.stop()
    assert (poll(local), local.state) == (True, State.IDLE)
    local.due = math.inf
    text = "its streaming query was stopped"
    assert (store.state("i").status, store.state("i").error) == ("failed", text)
    assert (poll(local), local.due) == (False, local._retry)
    local.wake()
    assert (poll(local), local.state) == (True, State.OPENING)


def test_poll_reports_a_query_that_cannot_start(store: MemoryStore, local: Local) -> None:
    local.fails = ValueError("no space")
    poll(local)
    assert (local.state, local._bad_checkpoint) == (State.UNSTARTED, "file:/checkpoints/i")
    assert not poll(local)
    assert (local.state, store.state("i").error) == (State.IDLE, "ValueError: no space")


def test_poll_ends_if_the_checkpoint_is_not_allowed(
    store: MemoryStore, local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise DefinitionError("not allowed")

    monkeypatch.setattr(maintainer, "checkpoint_of", refuse)
    poll(local)
    assert local.state is State.REFUSED
    local.due = math.inf
    assert (poll(local), local.state, store.state("i").error) == (False, State.ENDED, "not allowed")
    assert local.due == 0.0  # closed at once
    assert local.close() is None
    assert store.lease("i") == Lease(1)


def test_is_over_with_the_spark_context(local: Local) -> None:
    def exit_jvm() -> None:
        raise OSError("the JVM has exited")

    assert not local.is_over()
    for context in (None, SimpleNamespace(sc=exit_jvm)):
        local._spark.sparkContext._jsc = context  # type: ignore[assignment]
        assert local.is_over() is True


def test_batch_refreshes_with_the_token_of_the_lease(store: MemoryStore, local: Local) -> None:
    opened: Any = local._open()
    rows = SimpleNamespace(count=lambda: 0)
    events: Any = SimpleNamespace(
        _jdf=SimpleNamespace(queryExecution=lambda: SimpleNamespace(toRdd=lambda: rows))
    )
    source: Any = SimpleNamespace(opened=None, until=7)
    local._process_batch(source, events)
    expected = {"token": 1, "limit": None, "retry": False}
    assert opened.refreshed == [{**expected, "until": 7}]
    opened.raises = [TableError("no version 7")]
    local._process_batch(source, events)
    assert opened.refreshed[1:] == [{**expected, "until": 7}, expected]
    store.hold("i", Lease().claim("them"), expect=store.lease("i"))
    local._leases.clear()
    with pytest.raises(SkippingError, match="another process now maintains"):
        local._process_batch(source, events)
    local.end()
    local._process_batch(source, events)
    assert len(opened.refreshed) == 3


def test_reuse_index_opens_a_dropped_or_old_one_again(local: Local) -> None:
    first: Any = local._open()
    opened: list[Index] = []
    local._open_index = lambda *_, **__: opened.append(Index(define())) or opened[-1]
    assert local._reuse_index() is first
    assert local._last is not None
    local._last = local._last[0] - 61, first
    assert local._reuse_index() is opened[0]
    opened[0].definition = define(dropped=True)
    assert local._reuse_index() is opened[1]


def test_failed_state_is_not_overwritten(store: MemoryStore, local: Local) -> None:
    poll(local)
    local._report_failure("first")
    local._report_failure(None)
    local.error = "second"
    local._report_failure(None)
    assert store.state("i").error == "first"
    local._report_failure("third", store_it=False)
    assert store.state("i").error == "first"
    local._report_failure("fourth")
    assert store.state("i").error == "fourth"


def test_log_once_ignores_numbers(local: Local, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "skipping"):
        for error in ("port 1", "port 22", KeyError("x"), "", Conflict("a\nb"), "y" * 2_000):
            local._log_once(error)
        for n in range(maintainer._LOGGED):
            local._log_once("z" * (n + 1))
    texts = [record.getMessage().rpartition("maintained: ")[2] for record in caplog.records]
    assert texts[:5] == ["port 1", "KeyError: 'x'", "str", "a", "y" * 1_000]
    assert len(local._logged) == 5


def test_transitions_have_all_events_and_no_way_out_of_ended() -> None:
    assert set(TRANSITIONS) == set(Event)
    assert all(after.get(State.ENDED, State.ENDED) is State.ENDED for after in TRANSITIONS.values())
    reached = {state for after in TRANSITIONS.values() for state in after.values()}
    assert reached == set(State)
